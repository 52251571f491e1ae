/* SPDX-License-Identifier: Apache-2.0 */
/* Decode while the devices are read as loaders read them. Reads take processor time of the kernel
 * and, in a virtual machine, of the host, which no counter of this machine shows; so both are
 * measured together: how much slower a token is, and the bandwidth beside it. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/io/io.h"
#include "procs/tools/doctor/forward/forward.h"

#define READS_NS      (NS_PER_S * 3 / 2)
#define PASSES_MIN    3u
#define PASSES_MAX    512u
#define DEPTH         16u
#define BUFFERS_BYTES (128 * MIB) /* more than the caches: as in storage.c */
#define WAIT_MS       100
#define LIMIT_MS      10000 /* of one read */

struct reader { /* of one device */
    const struct device_reads *device;
    struct region buffers; /* memory that all have in common: what they read is not used */
    struct random random;
    struct io *io;
    int ready_fd;
    uint32_t in_flight;
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    _Atomic uint64_t bytes;
};

static void submit(struct reader *r)
{
    const struct device_reads *d = r->device;
    struct io_read read = {.fd = d->fd,
                           .bytes = d->chunk_bytes,
                           .file_offset =
                               random_below(&r->random, d->bytes / d->chunk_bytes) * d->chunk_bytes,
                           .buffer = region_take(&r->buffers, d->chunk_bytes)};
    r->in_flight += d->backend->submit(r->io, &read, 1);
}

/* A read that fails is not made again. */
static void take_done(struct reader *r)
{
    struct io_done done[DEPTH];
    uint32_t n = r->device->backend->poll(r->io, done, DEPTH);
    for (uint32_t i = 0; i < n; i++) {
        r->in_flight--;
        if (done[i].result <= 0)
            continue;
        atomic_fetch_add(&r->bytes, (uint64_t)done[i].result);
        if (!atomic_load(&r->stop))
            submit(r);
    }
}

static void *read_on(void *arg)
{
    struct reader *r = arg;
    uint32_t waited_ms = 0;
    for (uint32_t i = 0; i < DEPTH; i++)
        submit(r);
    while (r->in_flight > 0 && waited_ms < LIMIT_MS) {
        struct pollfd p = {.fd = r->ready_fd, .events = POLLIN};
        waited_ms = poll(&p, 1, WAIT_MS) == 0 ? waited_ms + WAIT_MS : 0;
        take_done(r);
    }
    return NULL;
}

static bool start(struct reader *r, const struct device_reads *device, const struct region *buffers)
{
    struct error ignored;
    r->device = device;
    random_seed(&r->random, 1, 0);
    r->buffers = *buffers;
    r->io = device->backend->open(&(struct io_source){.depth = DEPTH}, &r->ready_fd, &ignored);
    r->running = r->io && pthread_create(&r->thread, NULL, read_on, r) == 0;
    return r->running;
}

/* False if reads did not end: they and their memory are left to the end of the process. */
static bool stop(struct reader *r)
{
    atomic_store(&r->stop, true);
    if (r->running)
        pthread_join(r->thread, NULL);
    if (r->in_flight > 0)
        return false;
    if (r->io)
        r->device->backend->close(r->io);
    return true;
}

static uint64_t bytes_of(struct reader *reader, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += atomic_load(&reader[i].bytes);
    return bytes;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Passes for READS_NS, after one that does not count. */
static int measure(struct forward *f, struct core *core, struct reader *reader, uint32_t count,
                   struct forward_speed *out, struct error *error)
{
    uint64_t ns[PASSES_MAX];
    uint32_t n = 0;
    if (forward_pass(f, core, 0, 1, error) == 0)
        return -1;
    uint64_t start_ns = clock_now_ns(), before = bytes_of(reader, count), now_ns = start_ns;
    while (n < PASSES_MIN || (n < PASSES_MAX && now_ns - start_ns < READS_NS)) {
        ns[n] = forward_pass(f, core, n % FORWARD_POSITIONS, 1, error);
        if (ns[n++] == 0)
            return -1;
        now_ns = clock_now_ns();
    }
    uint64_t bytes = bytes_of(reader, count) - before;
    qsort(ns, n, sizeof *ns, ascending);
    double slower = (double)ns[n / 2] / 1e9 / out->decode_s;
    if (bytes > 0) {
        out->slowdown = slower > 1 ? slower : 1;
        out->busy_bytes_per_s = (double)bytes * 1e9 / (double)(now_ns - start_ns);
    }
    return 0;
}

int reads_measure(struct forward *f, struct core *core, const struct device_reads *device,
                  uint32_t count, uint64_t bytes, struct forward_speed *out, struct error *error)
{
    struct reader *reader = calloc(count + 1, sizeof *reader);
    struct region buffers = {.base = NULL};
    bool good = reader && region_open(&buffers, bytes < BUFFERS_BYTES ? bytes : BUFFERS_BYTES, MIB);
    for (uint32_t i = 0; good && i < count; i++)
        good = device[i].chunk_bytes <= buffers.bytes && start(&reader[i], &device[i], &buffers);
    int rc = good && count > 0 ? measure(f, core, reader, count, out, error) : 0;
    bool ended = true;
    for (uint32_t i = 0; reader && i < count; i++)
        if (reader[i].device)
            ended &= stop(&reader[i]);
    if (ended) {
        free(buffers.base);
        free(reader);
    }
    return rc;
}
