/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: created, locked before a process listens in it, emptied at the end.
 *
 * The lock belongs to an open file description that every child inherits: a new engine of this name
 * cannot start before the last child of a crashed supervisor has exited, and with it the last
 * mapping of its segments. The lock file is not removed: otherwise a third process could lock a new
 * file of that name while a second one waits for this one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ipc/run_dirs.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

int fd_high(int fd)
{
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_MIN);
    int saved = errno;
    close(fd);
    errno = saved;
    return high;
}

/* Segments have names for a short time only, but two engines of one name in different directories
 * must not remove each other's. FNV-1a over the directory. */
static uint32_t path_hash(const char *path)
{
    uint32_t hash = 2166136261u;
    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * 16777619u;
    return hash;
}

int run_dir_take(struct supervisor *s, struct error *error)
{
    if (run_dir_path(s->options.run, s->run_dir, error) != 0 ||
        run_dir_create(s->run_dir, error) != 0)
        return -1;
    int fd = run_dir_lock(s->run_dir, 0, error);
    if (fd < 0 && error->code == ERR_BUSY) { /* it may be ending, or wait for its processes */
        log_warn("%s; waiting %u s for its end. --name NAME starts a second engine", error->text,
                 (unsigned)(LOCK_WAIT_NS / NS_PER_S));
        fd = run_dir_lock(s->run_dir, LOCK_WAIT_NS / NS_PER_MS, error);
    }
    if (fd < 0 && error->code == ERR_BUSY) {
        struct error busy = *error;
        return error_set(error, ERR_BUSY,
                         "%.300s: use another --name, or stop it with 'sluice ctl stop'",
                         busy.text);
    }
    if (fd < 0)
        return -1;
    s->lock_fd = fd_high(fd);
    if (s->lock_fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot move a descriptor");
    fd = run_dir_open(s->run_dir, error);
    if (fd < 0)
        return -1;
    s->run_dir_fd = fd_high(fd);
    if (s->run_dir_fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot move a descriptor");
    snprintf(s->run_tag, sizeof s->run_tag, "%s-%08x", s->options.run, path_hash(s->run_dir));
    segment_remove_stale(s->run_tag);
    run_dir_files_remove(s->run_dir_fd);
    unsigned others = run_dirs_sweep(s->options.run);
    if (others)
        log_debug("%u run directories of engines that were killed were removed", others);
    return 0;
}

/* The directory for --print-memory: named after this process, so that no engine waits for its
 * lock. */
void run_dir_remove(const struct supervisor *s)
{
    if (s->run_dir_fd < 0)
        return;
    unlinkat(s->run_dir_fd, RUN_LOCK_FILE, 0);
    rmdir(s->run_dir);
}

void run_dir_clear(const struct supervisor *s)
{
    if (s->run_dir_fd >= 0)
        run_dir_files_remove(s->run_dir_fd);
}
