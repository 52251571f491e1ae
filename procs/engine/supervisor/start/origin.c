/* SPDX-License-Identifier: Apache-2.0 */
/* A model on a server (-m URL). Every process opens the model by path, so a program of the server's
 * kind first makes a directory with all of it but the experts, which stay holes
 * (procs/engine/fetch). That directory is the model from then on, and run_copies makes the URL of
 * each loader's file from that of the model. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/warm/warm.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/fetch/result.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define POLL_MS 20

static bool interrupted(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            return true;
    return false;
}

/* There is no time limit: the program gives up a server that does not answer. */
static int wait_for(struct supervisor *s, pid_t pid, struct error *error)
{
    int status;
    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (interrupted(s)) {
            kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return error_set(error, ERR_CANCELLED, "fetching %.200s was interrupted",
                             s->params.origin);
        }
        poll(NULL, 0, POLL_MS);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status)) /* it has printed the reason */
        return error_set(error, WEXITSTATUS(status) == 2 ? ERR_BAD_INPUT : ERR_FAILED, "%s", "");
    return error_set(error, ERR_FAILED, "fetching %.200s ended by signal %d (%s)", s->params.origin,
                     WTERMSIG(status), strsignal(WTERMSIG(status)));
}

/* One line: the path of the model. The program has parsed the bytes of a server, so that it cannot
 * be trusted to name a file of its directory. */
static int read_result(int fd, const char *directory, char path[PATH_MAX], struct error *error)
{
    ssize_t n = pread(fd, path, PATH_MAX - 1, 0);
    path[n > 0 ? n : 0] = 0;
    path[strcspn(path, "\n")] = 0;
    if (fetch_path_allowed(directory, path))
        return 0;
    return error_set(error, ERR_FAILED, "the program that fetches named '%.200s', not below %.200s",
                     path, directory);
}

static int run(struct supervisor *s, char *url, char *directory, char path[PATH_MAX],
               struct error *error)
{
    struct io_url parsed;
    char format[32], sandbox[32], origin[PARAM_TEXT_BYTES + 16];
    if (io_url_parse(url, &parsed, error) != 0)
        return -1;
    snprintf(format, sizeof format, "--log-format=%s", s->params.log_format);
    snprintf(sandbox, sizeof sandbox, "--sandbox=%s", s->params.sandbox);
    snprintf(origin, sizeof origin, "--key=%s", s->params.origin);
    char *arguments[SPAWN_FETCH_ARGUMENTS] = {format, sandbox, origin, url, directory};
    int fd = fd_high(memfd_create("sluice-fetch", MFD_CLOEXEC));
    if (fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "out of memory (fetch)");
    int rc = -1;
    bool secrets = parsed.s3 && !parsed.credentials[0];
    pid_t pid = spawn_fetch(s, io_backend_info(parsed.backend), secrets, arguments, fd, error);
    if (pid > 0)
        rc = wait_for(s, pid, error);
    if (rc == 0)
        rc = read_result(fd, directory, path, error);
    close(fd);
    return rc;
}

/* Without --cache-dir it is that of this user. */
static int find_directory(const struct supervisor *s, char path[PATH_MAX], struct error *error)
{
    const char *given = s->params.cache_dir;
    struct error why;
    if (!*given)
        return warm_cache(path, PATH_MAX, &why) == 0
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "%.300s; give --cache-dir", why.text);
    if (mkdir(given, 0700) != 0 && errno != EEXIST)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot make --cache-dir %.200s",
                               given);
    return realpath(given, path) ? 0
                                 : error_set_errno(error, ERR_BAD_INPUT, errno,
                                                   "cannot open --cache-dir %.200s", given);
}

int origin_take(struct supervisor *s, struct error *error)
{
    char url[PARAM_TEXT_BYTES], directory[PATH_MAX], path[PATH_MAX];
    if (!run_remote(&s->params))
        return 0;
    if (storage_address(s, s->params.origin, url, error) != 0 ||
        find_directory(s, directory, error) != 0)
        return -1;
    int rc = run(s, url, directory, path, error);
    if (rc == 0 && strlen(path) >= sizeof s->options.model)
        rc = error_set(error, ERR_BAD_INPUT, "the path %.200s is too long", path);
    if (rc == 0) {
        strcpy(s->options.model, path);
        strcpy(s->params.origin, url); /* of which loaders make those of their files */
    }
    return rc;
}
