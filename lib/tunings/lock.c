/* SPDX-License-Identifier: Apache-2.0 */
/* Two files: tune.lock ends with the program that holds it; stages.lock is inherited by the programs that it runs. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/tunings/tunings.h"

#define OWN     "tune.lock"
#define STAGES  "stages.lock"
#define POLL_MS 50
#define POLLS   200 /* the stages of a tuning that was killed end within this time */

/* Whether the file under this name is still the one that was opened: `sluice models rm` removes it. */
static bool same(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* An open and locked file; -1 with errno, EWOULDBLOCK: locked. */
static int take(const char *path, int flags)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | flags, 0600);
        if (fd < 0)
            return -1;
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        int why = errno;
        if (locked && same(fd, path))
            return fd;
        close(fd);
        if (!locked) {
            errno = why;
            return -1;
        }
    }
}

static int busy(struct error *error)
{
    return error_set(error, ERR_BUSY, "another tuning of this model is in progress");
}

int tunings_lock(const char *directory, const volatile sig_atomic_t *stop,
                 struct tunings_lock *lock, struct error *error)
{
    char path[PATH_MAX + 16];
    *lock = (struct tunings_lock)TUNINGS_UNLOCKED;
    snprintf(path, sizeof path, "%s/" OWN, directory);
    lock->own = take(path, O_CLOEXEC);
    snprintf(path, sizeof path, "%s/" STAGES, directory);
    for (int i = 0; lock->own >= 0 && lock->stages < 0; i++) {
        lock->stages = take(path, 0); /* not O_CLOEXEC: the stages hold it, too */
        if (lock->stages >= 0 || errno != EWOULDBLOCK)
            break;
        if ((stop && *stop) || i == POLLS) {
            tunings_unlock(lock);
            return i == POLLS ? busy(error) : error_set(error, ERR_CANCELLED, "interrupted");
        }
        poll(NULL, 0, POLL_MS);
    }
    if (lock->own >= 0 && lock->stages >= 0)
        return 0;
    int why = errno;
    tunings_unlock(lock);
    return why == EWOULDBLOCK
               ? busy(error)
               : error_set_errno(error, ERR_IO, why, "cannot write in %.200s", directory);
}

void tunings_unlock(struct tunings_lock *lock)
{
    if (lock->stages >= 0)
        close(lock->stages);
    if (lock->own >= 0)
        close(lock->own);
    *lock = (struct tunings_lock)TUNINGS_UNLOCKED;
}
