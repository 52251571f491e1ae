/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the thread that writes queued lines to stderr, and the ring that the other threads fill. */
#include "lib/base/log_queue.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (32u << 10)
/* A thread that panics while it holds the mutex must not wait for itself. */
#define LOCK_MS 100

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t added, written;
    size_t (*dropped_line)(uint64_t count, char line[LOG_LINE_BYTES]);
    char bytes[LOG_QUEUE_BYTES]; /* whole lines, from `from` on, around the end */
    size_t from, used;
    bool writing; /* the thread writes a line that it has taken from the queue */
    _Atomic uint64_t dropped;
    uint64_t reported;
    _Atomic bool runs;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .added = PTHREAD_COND_INITIALIZER,
           .written = PTHREAD_COND_INITIALIZER};

static struct timespec after_ms(unsigned ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* the wall clock may be set meanwhile */
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static bool lock(void)
{
    struct timespec limit = after_ms(LOCK_MS);
    return pthread_mutex_clocklock(&queue.mutex, CLOCK_MONOTONIC, &limit) == 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static size_t take_line(char line[LOG_LINE_BYTES])
{
    size_t n = 0;
    while (queue.used > 0 && n < LOG_LINE_BYTES && (n == 0 || line[n - 1] != '\n')) {
        line[n++] = queue.bytes[queue.from];
        queue.from = (queue.from + 1) % LOG_QUEUE_BYTES;
        queue.used--;
    }
    return n;
}

static size_t take(char line[LOG_LINE_BYTES])
{
    if (queue.used > 0)
        return take_line(line);
    uint64_t dropped = atomic_load(&queue.dropped);
    size_t n = queue.dropped_line(dropped - queue.reported, line);
    queue.reported = dropped;
    return n;
}

static void *writer(void *unused)
{
    char line[LOG_LINE_BYTES];
    prctl(PR_SET_NAME, "log");
    pthread_mutex_lock(&queue.mutex);
    for (;;) {
        while (queue.used == 0 && queue.dropped == queue.reported)
            pthread_cond_wait(&queue.added, &queue.mutex);
        size_t n = take(line);
        queue.writing = true;
        pthread_mutex_unlock(&queue.mutex);
        while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR)
            continue; /* other errors cannot be reported */
        pthread_mutex_lock(&queue.mutex);
        queue.writing = false;
        pthread_cond_broadcast(&queue.written);
    }
    return unused;
}

int log_queue_start(size_t (*dropped_line)(uint64_t count, char line[LOG_LINE_BYTES]))
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    size_t stack =
        STACK_BYTES > (size_t)PTHREAD_STACK_MIN ? STACK_BYTES : (size_t)PTHREAD_STACK_MIN;
    queue.dropped_line = dropped_line;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the other threads */
    int rc = pthread_create(&thread, &attr, writer, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    atomic_store(&queue.runs, rc == 0);
    return rc;
}

bool log_queue_runs(void)
{
    return atomic_load_explicit(&queue.runs, memory_order_relaxed);
}

/* ---- the other threads ----------------------------------------------------------------------- */

void log_queue_add(const char *line, size_t bytes)
{
    if (!lock()) {
        atomic_fetch_add(&queue.dropped, 1);
        return;
    }
    if (bytes > LOG_QUEUE_BYTES - queue.used) {
        atomic_fetch_add(&queue.dropped, 1);
    } else {
        for (size_t i = 0; i < bytes; i++)
            queue.bytes[(queue.from + queue.used + i) % LOG_QUEUE_BYTES] = line[i];
        queue.used += bytes;
    }
    pthread_cond_signal(&queue.added);
    pthread_mutex_unlock(&queue.mutex);
}

void log_queue_flush(unsigned ms)
{
    struct timespec limit = after_ms(ms);
    if (!log_queue_runs() || !lock())
        return;
    while ((queue.used > 0 || queue.writing || queue.dropped != queue.reported) &&
           pthread_cond_clockwait(&queue.written, &queue.mutex, CLOCK_MONOTONIC, &limit) == 0)
        continue;
    pthread_mutex_unlock(&queue.mutex);
}

uint64_t log_queue_dropped(void)
{
    return atomic_load(&queue.dropped);
}
