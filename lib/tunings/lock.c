/* SPDX-License-Identifier: Apache-2.0 */
/* Two files: tune.lock ends with the program that holds it; stages.lock is inherited by the
 * programs that it runs. */
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
/* So long a stage may hold the first lock, too: between fork and exec. */
#define OWN_POLLS 20

/* Whether the file under this name is still the one that was opened: `sluice models rm` removes
 * it. */
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

/* The same, if it is locked after POLL_MS again, `polls` times at most. */
static int take_within(const char *path, int flags, int polls, const volatile sig_atomic_t *stop)
{
    for (int i = 0;; i++) {
        int fd = take(path, flags);
        if (fd >= 0 || errno != EWOULDBLOCK || i == polls || (stop && *stop))
            return fd;
        poll(NULL, 0, POLL_MS);
    }
}

int tunings_lock(const char *directory, const volatile sig_atomic_t *stop,
                 struct tunings_lock *lock, struct error *error)
{
    char path[PATH_MAX + 16];
    *lock = (struct tunings_lock)TUNINGS_UNLOCKED;
    snprintf(path, sizeof path, "%s/" OWN, directory);
    lock->own = take_within(path, O_CLOEXEC, OWN_POLLS, stop);
    snprintf(path, sizeof path, "%s/" STAGES, directory);
    if (lock->own >= 0) /* not O_CLOEXEC: the stages hold it, too */
        lock->stages = take_within(path, 0, POLLS, stop);
    if (lock->own >= 0 && lock->stages >= 0)
        return 0;
    int why = errno;
    tunings_unlock(lock);
    if (why != EWOULDBLOCK)
        return error_set_errno(error, ERR_IO, why, "cannot write in %.200s", directory);
    if (stop && *stop)
        return error_set(error, ERR_CANCELLED, "interrupted");
    return error_set(error, ERR_BUSY, "another tuning of this model is in progress");
}

void tunings_unlock(struct tunings_lock *lock)
{
    if (lock->stages >= 0)
        close(lock->stages);
    if (lock->own >= 0)
        close(lock->own);
    *lock = (struct tunings_lock)TUNINGS_UNLOCKED;
}
