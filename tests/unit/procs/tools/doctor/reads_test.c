/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that doctor takes for reads beside decode: one region, whatever the number of devices,
 * within what the caller allows; all buffers are in it, and it is freed. The pass and the devices
 * are those of this file. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/io.h"
#include "procs/tools/doctor/forward/forward.h"

#define DEVICES   3u
#define CHUNK     (2 * MIB)
#define IN_FLIGHT 64u
#define PASS_NS   NS_PER_S

static struct {
    uint32_t regions;
    char *base;
    uint64_t bytes;
    _Atomic uint32_t outside, reads, open;
} seen;

bool region_open(struct region *r, uint64_t bytes, uint64_t slot_bytes)
{
    ck_assert_uint_eq(slot_bytes, MIB);
    seen.regions++;
    seen.bytes = bytes;
    seen.base = malloc(bytes);
    *r = (struct region){.base = seen.base, .bytes = bytes};
    return seen.base != NULL;
}

char *region_take(struct region *r, uint64_t bytes)
{
    if (r->used + bytes > r->bytes)
        r->used = 0;
    r->used += bytes;
    return r->base + r->used - bytes;
}

uint64_t forward_pass(struct forward *f, struct core *core, uint32_t position, uint32_t rows,
                      struct error *error)
{
    (void)f, (void)core, (void)position, (void)rows, (void)error;
    uint32_t before = atomic_load(&seen.reads);
    while (atomic_load(&seen.open) > 0 && atomic_load(&seen.reads) < before + DEVICES)
        ;
    return PASS_NS;
}

/* A device that reads at once. */
struct io {
    int fd;
    uint32_t count;
    struct io_done done[IN_FLIGHT];
};

static struct io *open_device(const struct io_source *source, int *fd, struct error *error)
{
    (void)source, (void)error;
    struct io *io = calloc(1, sizeof *io);
    *fd = io->fd = eventfd(1, EFD_CLOEXEC); /* always readable */
    atomic_fetch_add(&seen.open, 1);
    return io;
}

static uint32_t submit(struct io *io, const struct io_read *read, uint32_t count)
{
    ck_assert(count == 1 && io->count < IN_FLIGHT);
    const char *at = read->buffer;
    if (at < seen.base || at + read->bytes > seen.base + seen.bytes)
        atomic_fetch_add(&seen.outside, 1);
    io->done[io->count++] = (struct io_done){.result = read->bytes};
    return 1;
}

static uint32_t take(struct io *io, struct io_done *done, uint32_t max)
{
    uint32_t n = io->count < max ? io->count : max;
    memcpy(done, io->done, n * sizeof *done);
    memmove(io->done, io->done + n, (io->count - n) * sizeof *done);
    io->count -= n;
    atomic_fetch_add(&seen.reads, n);
    return n;
}

static void close_device(struct io *io)
{
    close(io->fd);
    free(io);
    atomic_fetch_sub(&seen.open, 1);
}

static const struct io_backend backend = {
    .open = open_device, .submit = submit, .poll = take, .close = close_device};

static struct forward_speed measure(uint32_t devices, uint64_t bytes)
{
    struct device_reads device[DEVICES];
    struct forward_speed out = {.decode_s = 1};
    struct error error;
    memset(&seen, 0, sizeof seen);
    for (uint32_t i = 0; i < devices; i++)
        device[i] =
            (struct device_reads){.chunk_bytes = CHUNK, .bytes = 16 * CHUNK, .backend = &backend};
    ck_assert_int_eq(reads_measure(NULL, NULL, device, devices, bytes, &out, &error), 0);
    ck_assert_uint_eq(atomic_load(&seen.open), 0);
    ck_assert_uint_eq(atomic_load(&seen.outside), 0);
    return out;
}

START_TEST(devices_have_one_buffer)
{
    struct forward_speed out = measure(DEVICES, 1000 * MIB);
    ck_assert_uint_eq(seen.regions, 1);
    ck_assert_uint_eq(seen.bytes, 128 * MIB);
    ck_assert(out.busy_bytes_per_s > 0 && out.slowdown >= 1);
}
END_TEST

START_TEST(the_buffer_is_within_the_limit)
{
    struct forward_speed out = measure(DEVICES, 5 * MIB);
    ck_assert_uint_eq(seen.regions, 1);
    ck_assert_uint_eq(seen.bytes, 5 * MIB);
    ck_assert(out.busy_bytes_per_s > 0);
    out = measure(DEVICES, CHUNK - 1); /* no read fits */
    ck_assert_uint_eq(atomic_load(&seen.reads), 0);
    ck_assert(out.busy_bytes_per_s == 0 && out.slowdown == 0);
}
END_TEST

START_TEST(no_device)
{
    struct forward_speed out = measure(0, 1000 * MIB);
    ck_assert(out.busy_bytes_per_s == 0 && out.slowdown == 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("doctor_reads");
    TCase *t = tcase_create("doctor_reads");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, devices_have_one_buffer);
    tcase_add_test(t, the_buffer_is_within_the_limit);
    tcase_add_test(t, no_device);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
