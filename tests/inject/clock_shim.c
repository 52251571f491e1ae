/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD that sets the wall clock of a program, as settimeofday does it for a
 * machine. Tests only.
 *
 *   SLUICE_TEST_CLOCK=FILE  of 8 bytes: what is added to the wall clock, in nanoseconds; read at
 *                           every call
 *
 * A wait on a condition until a wall-clock time ends early (spuriously, which callers must expect)
 * and is repeated by its caller, so that it follows the clock as it does in the kernel. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS    1000000000ll
#define SLICE (20 * NS / 1000)
#define WALL_S                                                                                     \
    (1 << 30) /* times beyond are of the wall clock: no machine has been up for so long */

static const _Atomic int64_t *added;

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("SLUICE_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *added, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        added = at;
    if (fd >= 0)
        close(fd);
}

static int64_t kernel_ns(clockid_t clock)
{
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return t.tv_sec * NS + t.tv_nsec;
}

static int64_t wall_ns(void)
{
    return kernel_ns(CLOCK_REALTIME) + (added ? atomic_load(added) : 0);
}

static struct timespec time_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS, .tv_nsec = ns % NS};
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, t);
    *t = time_of(wall_ns());
    return 0;
}

int timespec_get(struct timespec *t, int base)
{
    *t = time_of(wall_ns());
    return base == TIME_UTC ? base : 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    int64_t now = wall_ns();
    (void)zone;
    *t = (struct timeval){.tv_sec = now / NS, .tv_usec = now % NS / 1000};
    return 0;
}

time_t time(time_t *t)
{
    time_t now = (time_t)(wall_ns() / NS);
    if (t)
        *t = now;
    return now;
}

typedef int wait_until(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    static _Atomic(wait_until *) original;
    if (!original)
        original = (wait_until *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (until->tv_sec < WALL_S)
        return original(condition, mutex, until);
    int64_t left = until->tv_sec * NS + until->tv_nsec - wall_ns();
    struct timespec soon = time_of(kernel_ns(CLOCK_REALTIME) + (left < SLICE ? left : SLICE));
    int rv = original(condition, mutex, &soon);
    return rv == ETIMEDOUT && left > SLICE ? 0 : rv;
}
