/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the run directories of this user, and removes what killed engines left in them. */
#include "ipc/run_dirs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* The parent of all run directories, as a stream; NULL: there is none. */
static DIR *base_open(void)
{
    char path[ENDPOINT_BYTES];
    struct error ignored;
    if (run_dir_path(RUN_NAME_DEFAULT, path, &ignored) != 0)
        return NULL;
    *strrchr(path, '/') = 0;
    return opendir(path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void run_dirs_running(void (*visit)(const char *name, void *arg), void *arg)
{
    char path[ENDPOINT_BYTES], **names = NULL;
    size_t count = 0;
    struct error ignored;
    DIR *base = base_open();
    for (struct dirent *e; base && (e = readdir(base)) != NULL;) {
        if (run_dir_path(e->d_name, path, &ignored) != 0 || run_dir_state(path) != RUN_LOCKED)
            continue;
        char **grown = reallocarray(names, count + 1, sizeof *names);
        if (!grown)
            break;
        names = grown;
        if ((names[count] = strdup(e->d_name)))
            count++;
    }
    if (base)
        closedir(base);
    if (count)
        qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        visit(names[i], arg);
        free(names[i]);
    }
    free(names);
}

void run_dir_files_remove(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (endpoint_is_file(e->d_name))
            unlinkat(dir_fd, e->d_name, 0);
    closedir(dir);
}

/* Whether the lock file names a process that does not exist. An empty one belongs to an engine that
 * is starting; a number that is in use again keeps the directory until a later start. */
static bool owner_gone(int lock)
{
    char text[24] = "";
    if (pread(lock, text, sizeof text - 1, 0) <= 0)
        return false;
    long pid = strtol(text, NULL, 10);
    return pid > 0 && pid <= INT_MAX && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

/* Every process of an engine holds the lock, so that it can be taken only when all have exited. It
 * is held during the removal. An engine that starts meanwhile notices that its lock file is not the
 * directory's any more (run_dir_lock). */
static bool dead_remove(int base_fd, const char *name, const char *path)
{
    struct error ignored;
    bool removed = false;
    int dir_fd = run_dir_open(path, &ignored);
    int lock = dir_fd >= 0 ? openat(dir_fd, RUN_LOCK_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && owner_gone(lock)) {
        run_dir_files_remove(dir_fd);
        unlinkat(dir_fd, RUN_LOCK_FILE, 0);
        removed = unlinkat(base_fd, name, AT_REMOVEDIR) == 0;
    }
    if (lock >= 0)
        close(lock);
    if (dir_fd >= 0)
        close(dir_fd);
    return removed;
}

unsigned run_dirs_sweep(const char *except)
{
    unsigned removed = 0;
    char path[ENDPOINT_BYTES];
    struct error ignored;
    DIR *base = base_open();
    for (struct dirent *e; base && (e = readdir(base)) != NULL;)
        if (strcmp(e->d_name, except) != 0 && run_dir_path(e->d_name, path, &ignored) == 0)
            removed += dead_remove(dirfd(base), e->d_name, path);
    if (base)
        closedir(base);
    return removed;
}
