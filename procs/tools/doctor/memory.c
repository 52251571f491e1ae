/* SPDX-License-Identifier: Apache-2.0 */
/* Read bandwidth of memory: threads sum an array several times as large as all caches. It bounds
 * decoding with all experts resident, which reads the weights of a token once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/bulk.h"
#include "procs/tools/doctor/doctor.h"

#define RUN_NS      (600 * NS_PER_MS)
#define THREADS_MAX 64u

/* 64 bytes: the compiler uses the vector registers of the target. */
typedef uint64_t lane __attribute__((vector_size(64)));

struct reader {
    pthread_t thread;
    const lane *from;
    uint64_t lanes; /* a multiple of 4 */
    uint64_t deadline_ns;
    uint64_t bytes, ns; /* result */
    uint64_t sum;       /* keeps the compiler from removing the reads */
};

static uint64_t sum_up(const lane *from, uint64_t lanes)
{
    lane a = {0}, b = {0}, c = {0}, d = {0};
    for (uint64_t i = 0; i < lanes; i += 4) {
        a += from[i];
        b += from[i + 1];
        c += from[i + 2];
        d += from[i + 3];
    }
    a += b + c + d;
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum += a[i];
    return sum;
}

/* Of the CPU for this thread: other programs that run meanwhile take time, but not this one. */
static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void *read_loop(void *arg)
{
    struct reader *r = arg;
    uint64_t start_ns = thread_ns();
    while (clock_now_ns() < r->deadline_ns) {
        r->sum += sum_up(r->from, r->lanes);
        r->bytes += r->lanes * sizeof(lane);
    }
    r->ns = thread_ns() - start_ns;
    return NULL;
}

/* Bytes per second of `threads` threads, each on a separate part. */
static double measure(const char *array, uint64_t bytes, unsigned threads)
{
    struct reader readers[THREADS_MAX] = {0};
    uint64_t part = align_down(bytes / threads, 4 * sizeof(lane));
    uint64_t deadline = clock_now_ns() + RUN_NS;
    unsigned started = 0;
    double rate = 0;
    for (; started < threads; started++) {
        struct reader *r = &readers[started];
        *r = (struct reader){.from = (const lane *)(const void *)(array + started * part),
                             .lanes = part / sizeof(lane),
                             .deadline_ns = deadline};
        if (pthread_create(&r->thread, NULL, read_loop, r) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(readers[i].thread, NULL);
        if (readers[i].ns > 0)
            rate += (double)readers[i].bytes * 1e9 / (double)readers[i].ns;
    }
    return rate;
}

double memory_rate(uint64_t bytes, unsigned threads)
{
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    char *array = bulk_buffer(bytes); /* writes it: unwritten pages share the zero page */
    double rate = array ? measure(array, bytes, threads) : 0;
    free(array);
    return rate;
}

static void add(struct findings *f, const char *name, double rate, const char *meaning)
{
    char text[24], size[16];
    snprintf(text, sizeof text, "%s/s", bytes_format((uint64_t)rate, size));
    finding(f, "memory", name, json_real(rate), text, "%s", meaning);
}

void memory_examine(struct findings *f, unsigned threads, struct host_facts *facts)
{
    uint64_t bytes = host_stream_bytes();
    char *array = bulk_buffer(bytes); /* writes it: unwritten pages share the zero page */
    if (!array) {
        finding(f, "memory", "read_bytes_per_s", json_null(), "not measured",
                "out of memory (buffer of the measurement)");
        return;
    }
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    facts->stream_bytes_per_s = measure(array, bytes, threads);
    add(f, "read_one_thread", measure(array, bytes, 1), "bound for one compute thread");
    add(f, "read_all_threads", facts->stream_bytes_per_s,
        "bound of resident decode: tokens/s is at most this / weight bytes per token");
    finding_quiet(f, "memory", "read_array_bytes", json_integer((json_int_t)bytes));
    free(array);
}
