/* SPDX-License-Identifier: Apache-2.0 */
/* Removes the run directories of private engines that have exited. */
#include "procs/clients/common/private_engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "ipc/run_dirs.h"

pid_t private_instance_pid(const char *run)
{
    static const char *const prefixes[] = {"own-", "bench-", "doctor-"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(run, prefixes[i], n) != 0 || run[n] < '1' || run[n] > '9')
            continue;
        char *end;
        errno = 0;
        long pid = strtol(run + n, &end, 10);
        if (errno == 0 && pid <= INT32_MAX && (*end == 0 || *end == '-'))
            return (pid_t)pid;
    }
    return 0;
}

/* Every process of an engine holds the lock shared, so an exclusive lock means the engine has
 * exited. It is held during the removal, so that no engine starts in the directory meanwhile. */
static void remove_dir(const char *path)
{
    int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd < 0)
        return;
    int lock = openat(dir_fd, RUN_LOCK_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0 ? errno == ENOENT : flock(lock, LOCK_EX | LOCK_NB) == 0) {
        run_dir_files_remove(dir_fd);
        unlinkat(dir_fd, RUN_LOCK_FILE, 0);
        rmdir(path);
    }
    if (lock >= 0)
        close(lock);
    close(dir_fd);
}

void private_instance_remove(const char *run)
{
    char path[ENDPOINT_BYTES];
    struct error ignored;
    if (private_instance_pid(run) == getpid() && run_dir_path(run, path, &ignored) == 0)
        remove_dir(path);
}

void private_instances_sweep(void)
{
    char path[ENDPOINT_BYTES];
    struct error ignored;
    if (run_dir_path("own-1", path, &ignored) != 0)
        return;
    *strrchr(path, '/') = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        pid_t pid = private_instance_pid(e->d_name);
        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH &&
            run_dir_path(e->d_name, path, &ignored) == 0)
            remove_dir(path);
    }
    closedir(dir);
}
