/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the loader: order of reads, retries and ends of jobs, the throttle; and the
 * model file, which may change while it is read. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/model/limits.h"
#include "procs/engine/loader/chunk.h"
#include "procs/engine/loader/jobs.h"
#include "procs/engine/loader/storage.h"
#include "procs/engine/loader/throttle.h"

#define CHUNK     (64 * 1024)
#define FILE_SIZE (1ull << 40)

static struct jobs jobs;

static struct job *add(uint32_t entry, uint16_t priority, uint32_t pages)
{
    struct msg_load load = {.entry = entry,
                            .priority = priority,
                            .demand_ns = 5,
                            .runs_count = 1,
                            .runs = {{entry * MIB, entry * MIB, pages * PAGE_BYTES}}};
    struct job *job = jobs_add(&jobs, &load, 1, 1);
    ck_assert_ptr_nonnull(job);
    return job;
}

static struct chunk *next(uint64_t now)
{
    struct job *job = jobs_pick(&jobs, now, false);
    return job ? jobs_cut(&jobs, job, now, CHUNK) : NULL;
}

static void open_jobs(void)
{
    ck_assert_int_eq(jobs_create(&jobs, 64, 16, 8), 0);
}

static void close_jobs(void)
{
    jobs_destroy(&jobs);
}

START_TEST(demand_before_dense_before_prefetch)
{
    static const uint32_t expected[] = {3, 4, 1, 0, 2};
    add(0, LOAD_PREFETCH, 1);
    add(1, LOAD_DENSE, 1);
    add(2, LOAD_PREFETCH, 1);
    add(3, LOAD_DEMAND, 1);
    add(4, LOAD_DEMAND, 1);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        struct chunk *c = next(i);
        ck_assert_ptr_nonnull(c);
        struct job *job = c->job;
        ck_assert_uint_eq(job->entry, expected[i]);
        ck_assert_int_eq(jobs_complete(&jobs, c, PAGE_BYTES, i, FILE_SIZE), CHUNK_DONE);
        ck_assert(job_ended(job));
        jobs_remove(&jobs, job);
    }
    ck_assert_ptr_null(next(9));
    ck_assert_uint_eq(jobs.job_count, 0);
}
END_TEST

START_TEST(prefetch_gives_way)
{
    struct job *prefetch = add(0, LOAD_PREFETCH, 256);
    struct chunk *a = next(1), *b = next(1);
    ck_assert(a && b);
    ck_assert_ptr_null(next(1)); /* at most two in flight at the device */
    ck_assert_uint_eq(jobs.inflight_prefetch, PREFETCH_CHUNKS_MAX);
    struct job *need = add(1, LOAD_DEMAND, 2 * CHUNK / PAGE_BYTES);
    struct chunk *d = next(2);
    ck_assert_ptr_eq(d->job, need);
    jobs_complete(&jobs, a, CHUNK, 3, FILE_SIZE);
    ck_assert_ptr_eq(jobs_pick(&jobs, 3, false), need); /* it has more chunks */
    struct chunk *e = next(3);
    ck_assert_ptr_eq(e->job, need);
    ck_assert_ptr_null(jobs_pick(&jobs, 4, false)); /* both would wait for the device */
    jobs_complete(&jobs, d, CHUNK, 4, FILE_SIZE);
    ck_assert_ptr_null(jobs_pick(&jobs, 4, false)); /* one of its two */
    jobs_complete(&jobs, e, CHUNK, 5, FILE_SIZE);
    ck_assert_ptr_null(jobs_pick(&jobs, 5, true)); /* an entry waits for free space */
    ck_assert_ptr_eq(next(5)->job, prefetch);      /* next to the other prefetch's chunk */
    ck_assert_ptr_null(next(5));
}
END_TEST

START_TEST(no_small_rest)
{
    static const uint64_t pieces[] = {CHUNK, 40 * KIB, 36 * KIB}; /* 64 and 12 KiB are also valid */
    add(0, LOAD_DEMAND, 35);
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        ck_assert_uint_eq(next(1)->bytes, pieces[i]);
    ck_assert_ptr_null(next(1));
}
END_TEST

START_TEST(raised_chunks_count_as_demands)
{
    struct job *job = add(0, LOAD_PREFETCH, 256);
    next(1);
    next(1);
    ck_assert(jobs_raise(&jobs, job, LOAD_DEMAND, 77));
    ck_assert(!jobs_raise(&jobs, job, LOAD_PREFETCH, 78)); /* never lowered */
    ck_assert_uint_eq(jobs.inflight_prefetch, 0);
    ck_assert_uint_eq(job->demand_ns, 77);
    uint32_t more = 0;
    while (next(2))
        more++;
    ck_assert_uint_eq(more, 6); /* up to the depth */
    ck_assert_uint_eq(jobs.inflight, 8);
}
END_TEST

START_TEST(short_reads_go_on_at_the_page)
{
    struct job *job = add(0, LOAD_DEMAND, 4);
    struct chunk *c = next(1);
    ck_assert_int_eq(jobs_complete(&jobs, c, PAGE_BYTES + 17, 2, FILE_SIZE), CHUNK_SHORT);
    c = next(3);
    ck_assert_uint_eq(c->file_offset, PAGE_BYTES);
    ck_assert_uint_eq(c->arena_offset, PAGE_BYTES);
    ck_assert_uint_eq(c->bytes, 3 * PAGE_BYTES);
    ck_assert_int_eq(jobs_complete(&jobs, c, 3 * PAGE_BYTES, 4, FILE_SIZE), CHUNK_DONE);
    ck_assert(job_ended(job) && job->status == 0);
}
END_TEST

START_TEST(the_end_of_the_file)
{
    struct job *job = add(0, LOAD_DEMAND, 4);
    uint64_t file_bytes = 3 * PAGE_BYTES + 100; /* the last page is a partial one */
    struct chunk *c = next(1);
    ck_assert_int_eq(jobs_complete(&jobs, c, 3 * PAGE_BYTES + 100, 2, file_bytes), CHUNK_DONE);
    ck_assert(job_ended(job) && job->status == 0);
    jobs_remove(&jobs, job);
    job = add(1, LOAD_DEMAND, 4);
    c = next(3);
    ck_assert_int_eq(jobs_complete(&jobs, c, 0, 4, FILE_SIZE), CHUNK_FAILED); /* truncated */
    ck_assert(job_ended(job));
    ck_assert_int_eq(job->status, ENODATA);
}
END_TEST

START_TEST(errors_are_retried_with_growing_pauses)
{
    struct job *job = add(0, LOAD_DEMAND, 1);
    uint64_t now = 1, pause = 10 * NS_PER_MS;
    struct chunk *c = next(now);
    for (int i = 0; i < CHUNK_TRIES_MAX - 1; i++) {
        ck_assert_int_eq(jobs_complete(&jobs, c, -EIO, now, FILE_SIZE), CHUNK_RETRY);
        ck_assert_uint_eq(jobs_pause_ns(&jobs, now), pause);
        ck_assert_ptr_null(next(now + pause - 1));
        ck_assert(!job_ended(job));
        now += pause;
        c = next(now);
        ck_assert_ptr_nonnull(c);
        pause *= 4;
    }
    ck_assert_int_eq(jobs_complete(&jobs, c, -EIO, now, FILE_SIZE), CHUNK_FAILED);
    ck_assert(job_ended(job));
    ck_assert_int_eq(job->status, EIO);
}
END_TEST

/* Errors that are not the device's: tried more often, with pauses that stay short, and reported as
 * what they are. */
START_TEST(errors_of_memory_wait_for_it)
{
    static const struct {
        int error, reported;
    } errors[] = {
        {EFAULT, ENOSPC}, {ENOMEM, ENOMEM}, {EAGAIN, EAGAIN}, {EINTR, EINTR}, {ECANCELED, EINTR}};
    for (uint32_t n = 0; n < ARRAY_LEN(errors); n++) {
        struct job *job = add(n, LOAD_DEMAND, 1);
        uint64_t now = 1, longest = 0;
        struct chunk *c = next(now);
        int tries = 1;
        for (; jobs_complete(&jobs, c, -errors[n].error, now, FILE_SIZE) == CHUNK_RETRY; tries++) {
            uint64_t pause = jobs_pause_ns(&jobs, now);
            longest = pause > longest ? pause : longest;
            ck_assert_ptr_null(next(now + pause - 1));
            c = next(now += pause);
            ck_assert_ptr_nonnull(c);
        }
        ck_assert_int_gt(tries, CHUNK_TRIES_MAX);
        ck_assert_uint_le(longest, NS_PER_S / 4);
        ck_assert_uint_ge(now, NS_PER_S); /* as long as a moment may last */
        ck_assert(job_ended(job));
        ck_assert_int_eq(job->status, errors[n].reported);
        jobs_remove(&jobs, job);
    }
}
END_TEST

/* A chunk that had no memory often has all its tries when the device then fails, and the
 * reverse. */
START_TEST(tries_and_waits_are_counted_apart)
{
    struct job *job = add(0, LOAD_DEMAND, 1);
    uint64_t now = 1;
    int error = 0;
    for (int i = 0; i < CHUNK_TRIES_MAX - 1 + CHUNK_WAITS_MAX - 1; i++) {
        struct chunk *c = next(now);
        ck_assert_ptr_nonnull(c);
        error = i < CHUNK_WAITS_MAX - 1 ? ENOMEM : EIO;
        ck_assert_int_eq(jobs_complete(&jobs, c, -error, now, FILE_SIZE), CHUNK_RETRY);
        if (i == 0 || i == CHUNK_WAITS_MAX - 1) /* the pauses of each begin as the shortest */
            ck_assert_uint_eq(jobs_pause_ns(&jobs, now), 10 * NS_PER_MS);
        now += jobs_pause_ns(&jobs, now);
    }
    ck_assert_int_eq(jobs_complete(&jobs, next(now), -EIO, now, FILE_SIZE), CHUNK_FAILED);
    ck_assert(job_ended(job));
    ck_assert_int_eq(job->status, EIO);
}
END_TEST

START_TEST(a_failed_job_waits_for_its_reads)
{
    struct job *job = add(0, LOAD_DEMAND, 64);
    struct chunk *a = next(1), *b = next(1);
    jobs_complete(&jobs, a, -EIO, 1, FILE_SIZE); /* waits for its retry */
    jobs_fail(&jobs, job, ECANCELED);
    jobs_fail(&jobs, job, EIO);
    ck_assert_int_eq(job->status, ECANCELED); /* the first error stays */
    ck_assert(!job_ended(job));
    ck_assert_ptr_null(next(NS_PER_S));
    jobs_complete(&jobs, b, -EIO, 2, FILE_SIZE);
    ck_assert(job_ended(job));
    jobs_remove(&jobs, job);
    ck_assert_ptr_null(jobs_find(&jobs, 0));
    ck_assert_uint_eq(jobs.inflight, 0);
    ck_assert_uint_eq(jobs.inflight_bytes, 0);
}
END_TEST

/* On another copy the job reads everything again, and one wrong checksum is allowed there, too. */
START_TEST(a_failed_job_goes_on_at_another_copy)
{
    struct job *job = add(0, LOAD_DEMAND, CHUNK / PAGE_BYTES);
    struct chunk *c = next(1);
    jobs_complete(&jobs, c, CHUNK, 1, FILE_SIZE);
    jobs_restart(job);
    c = next(1);
    jobs_fail(&jobs, job, EIO);
    jobs_complete(&jobs, c, CHUNK, 1, FILE_SIZE);
    ck_assert(job_ended(job));
    jobs_move(job, 2);
    ck_assert(!job_ended(job));
    ck_assert_int_eq(job->status, 0);
    ck_assert_uint_eq(job->copy, 2);
    c = next(2);
    ck_assert_ptr_nonnull(c);
    ck_assert_uint_eq(c->file_offset, 0);
    jobs_complete(&jobs, c, CHUNK, 2, FILE_SIZE);
    ck_assert(job_ended(job));
    jobs_restart(job); /* allowed again */
    jobs_fail(&jobs, job, EBADMSG);
    jobs_remove(&jobs, job);
}
END_TEST

START_TEST(rejected_chunks_go_back)
{
    struct job *job = add(0, LOAD_DEMAND, 1);
    struct chunk *c = next(1);
    jobs_put_back(&jobs, c);
    ck_assert_uint_eq(jobs.inflight, 0);
    ck_assert_ptr_eq(jobs_pick(&jobs, 1, false), job);
}
END_TEST

START_TEST(the_table_is_bounded)
{
    for (uint32_t i = 0; i < 16; i++)
        add(i, LOAD_DEMAND, 1);
    struct msg_load load = {.entry = 20, .runs_count = 1, .runs = {{0, 0, PAGE_BYTES}}};
    ck_assert_ptr_null(jobs_add(&jobs, &load, 1, 1));
}
END_TEST

/* ---- chunks ---- */

START_TEST(prefetch_reads_take_a_short_storage_time)
{
    static const struct {
        uint64_t rate, throttle, low, high;
    } t[] = {
        {1500 * MIB, 0, MIB, MIB},                     /* as large as allowed */
        {350 * MIB, 0, 700 * KIB, 720 * KIB},          /* 2 ms */
        {100 * MIB, 0, 256 * KIB, 256 * KIB},          /* minimum on a slow device */
        {1500 * MIB, 350 * MIB, 700 * KIB, 720 * KIB}, /* limited by the throttle */
        {350 * MIB, 1500 * MIB, 700 * KIB, 720 * KIB},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct chunk_pace p = {0};
        ck_assert_uint_eq(chunk_pace_bytes(&p, LOAD_PREFETCH, MIB, 0), 256 * KIB); /* unknown */
        for (int n = 0; n < 1000; n++) /* a different device before */
            chunk_pace_note(&p, MIB, NS_PER_S);
        for (int n = 0; n < 1000; n++)
            chunk_pace_note(&p, t[i].rate / 1000, NS_PER_MS);
        uint64_t prefetch = chunk_pace_bytes(&p, LOAD_PREFETCH, MIB, t[i].throttle);
        ck_assert_uint_ge(prefetch, t[i].low);
        ck_assert_uint_le(prefetch, t[i].high);
        ck_assert_uint_eq(prefetch % PAGE_BYTES, 0);
        ck_assert_uint_eq(chunk_pace_bytes(&p, LOAD_DEMAND, MIB, t[i].throttle), MIB);
        ck_assert_uint_eq(chunk_pace_bytes(&p, LOAD_PREFETCH, 64 * KIB, 0), 64 * KIB);
    }
}
END_TEST

/* ---- throttle: time advances in steps; reads as the loader submits them, `DEPTH` at once ---- */

#define DEPTH 4

/* Bytes of the completed reads. */
static uint64_t read_for(struct throttle *t, uint64_t *now, uint64_t ns, uint64_t step)
{
    uint64_t bytes = 0, end = *now + ns, chunk = throttle_chunk(t, 256 * 1024);
    double line[DEPTH];
    uint32_t waiting = 0;
    for (; *now < end; *now += step) {
        while (waiting > 0 && throttle_left_ns(t, line[0], *now) == 0) {
            memmove(line, line + 1, --waiting * sizeof *line);
            bytes += chunk;
        }
        while (waiting < DEPTH)
            line[waiting++] = throttle_take(t, chunk, *now);
    }
    return bytes;
}

START_TEST(throttle_keeps_its_rate)
{
    static const uint64_t rates[] = {300000, MIB, 10 * MIB, 333 * MIB, 3 * GIB};
    static const uint64_t steps[] = {50 * NS_PER_US, 200 * NS_PER_US};
    for (size_t r = 0; r < ARRAY_LEN(rates); r++)
        for (size_t s = 0; s < ARRAY_LEN(steps); s++) {
            struct throttle t = {0};
            uint64_t now = 1000;
            throttle_set(&t, rates[r], now);
            uint64_t got = read_for(&t, &now, 4 * NS_PER_S, steps[s]);
            ck_assert_msg(got > 4 * rates[r] * 95 / 100 && got <= 4 * rates[r], "%llu of %llu",
                          (unsigned long long)got, (unsigned long long)rates[r]);
        }
}
END_TEST

/* A single read takes the time of its bytes; the next one is serialized after it; also after a
 * pause. */
START_TEST(throttle_serves_in_line)
{
    struct throttle t = {0};
    uint64_t now = 1000;
    throttle_set(&t, GIB, now);
    for (int i = 0; i < 3; i++) {
        double first = throttle_take(&t, MIB, now), second = throttle_take(&t, 2 * MIB, now);
        uint64_t one = throttle_left_ns(&t, first, now), three = throttle_left_ns(&t, second, now);
        ck_assert_uint_le(one - NS_PER_S / 1024, 2);
        ck_assert_uint_le(three - 3 * NS_PER_S / 1024, 4);
        ck_assert_uint_gt(throttle_left_ns(&t, first, now + one / 2), 0);
        ck_assert_uint_eq(throttle_left_ns(&t, first, now + one), 0);
        ck_assert_uint_gt(throttle_left_ns(&t, second, now + one), 0);
        now += 10 * NS_PER_S; /* unused time is not saved up */
    }
}
END_TEST

START_TEST(throttle_changes)
{
    struct throttle t = {0};
    ck_assert_uint_eq(throttle_left_ns(&t, throttle_take(&t, MIB, 5), 5), 0); /* none */
    throttle_set(&t, PAGE_BYTES, 10);
    double position = throttle_take(&t, 100 * PAGE_BYTES, 10);
    ck_assert_uint_ge(throttle_left_ns(&t, position, 10), 100 * NS_PER_S);
    throttle_set(&t, 200 * PAGE_BYTES, 10); /* the rest continues at the new rate */
    ck_assert_uint_lt(throttle_left_ns(&t, position, 10), NS_PER_S);
    throttle_set(&t, 1, 10); /* but not indefinitely */
    ck_assert_uint_le(throttle_left_ns(&t, position, 10), NS_PER_S + 1);
    throttle_set(&t, 0, 10);
    ck_assert_uint_eq(throttle_left_ns(&t, position, 10), 0);
}
END_TEST

/* ---- the file ---- */

static char dir[64], path[96], copy[96];

static void write_file(const char *name, size_t bytes)
{
    FILE *f = fopen(name, "w");
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(i % 251), f);
    fclose(f);
}

static void open_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/sluice-loader-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/model", dir);
    snprintf(copy, sizeof copy, "%s/copy", dir);
    write_file(path, 10000);
}

static void close_dir(void)
{
    unlink(path);
    unlink(copy);
    rmdir(dir);
}

static struct directory_file seen;

/* As the supervisor passes a file. */
static int held(const char *name)
{
    struct stat st;
    struct error error;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ck_assert(fd >= 0 && fstat(fd, &st) == 0);
    struct model_file_id id = {.bytes = (uint64_t)st.st_size};
    ck_assert_int_eq(run_file_accept(fd, name, &id, &seen, &error), 0);
    return fd;
}

START_TEST(a_changed_file_stays_changed)
{
    struct storage d;
    storage_open(&d, path, true, held(path), &seen, false);
    ck_assert(!d.missing && d.fd >= 0);
    storage_tick(&d, NS_PER_S);
    ck_assert(!d.changed);
    ck_assert_int_eq(truncate(path, 5000), 0);
    storage_tick(&d, NS_PER_S + 1); /* not due */
    ck_assert(!d.changed);
    storage_suspect(&d);
    storage_tick(&d, NS_PER_S + 2);
    ck_assert(d.changed);
    ck_assert_int_eq(truncate(path, 10000), 0);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {seen.mtime_ns / 1000000000, seen.mtime_ns % 1000000000}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    ck_assert(!storage_unchanged(&d)); /* what was read in between is not known */
    close(d.fd);
}
END_TEST

/* What the path names does not matter, neither at the start nor later. */
START_TEST(a_replaced_file_is_still_read)
{
    struct storage d;
    unsigned char byte[2] = "";
    int inherited = held(path);
    write_file(copy, 9999);
    ck_assert_int_eq(rename(copy, path), 0);
    storage_open(&d, path, false, inherited, &seen, false);
    ck_assert(storage_unchanged(&d));
    ck_assert(d.moved);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(storage_unchanged(&d));
    ck_assert_int_eq(pread(d.fd, byte, 2, 9999), 1);
    ck_assert_int_eq(byte[0], 9999 % 251);
    ck_assert_int_eq(fcntl(inherited, F_GETFD), -1); /* taken */
    close(d.fd);
}
END_TEST

START_TEST(a_file_that_is_not_held_is_missing)
{
    struct storage d;
    seen = (struct directory_file){.held = 0};
    storage_open(&d, path, true, STDIN_FILENO, &seen, false);
    ck_assert(d.missing && d.fd == -1);
    ck_assert_int_ge(fcntl(STDIN_FILENO, F_GETFD), 0); /* not ours to close */
    storage_tick(&d, NS_PER_S);
    ck_assert(d.missing && !d.changed);
}
END_TEST

START_TEST(one_bad_offset_does_not_fail_the_storage)
{
    struct storage d = {.failed_entry = ENTRY_NONE};
    for (int i = 0; i < 100; i++)
        ck_assert(!storage_failed(&d, 7, 3));
    ck_assert(!storage_failed(&d, 8, 3));
    ck_assert(!storage_failed(&d, 8, 3));
    storage_delivered(&d);
    ck_assert(!storage_failed(&d, 8, 3)); /* the count of failures started again */
    ck_assert(!storage_failed(&d, 9, 3));
    ck_assert(storage_failed(&d, 7, 3));
    d = (struct storage){.failed_entry = ENTRY_NONE};
    ck_assert(storage_failed(&d, 0, 1));
}
END_TEST

START_TEST(a_stall_is_silence_with_reads)
{
    struct storage d = {.fd = -1};
    ck_assert(!storage_stalled(&d, 1000, 0, 10)); /* no reads, no stall */
    storage_read_started(&d, 1000);
    storage_read_started(&d, 1008); /* silent since the first read */
    ck_assert(!storage_stalled(&d, 1009, 0, 10));
    ck_assert(storage_stalled(&d, 1010, 0, 10));
    ck_assert(!storage_stalled(&d, 1010, 1005, 10)); /* the loop did not poll until 1005 */
    storage_read_ended(&d, 1011);
    ck_assert(!storage_stalled(&d, 1020, 0, 10)); /* slow, but reads complete */
    ck_assert(storage_stalled(&d, 1021, 0, 10));
    storage_read_ended(&d, 1030);
    ck_assert(!storage_stalled(&d, 9000, 0, 10));
    storage_read_started(&d, 9000);
    ck_assert(!storage_stalled(&d, 9009, 0, 10)); /* idle time does not count */
    d.server = true;
    ck_assert(storage_note_link(&d, false, 9005, 9011));
    ck_assert(!storage_stalled(&d, 9900, 0, 10)); /* it waits for a connection */
    ck_assert(storage_note_link(&d, true, 0, 9900));
    ck_assert(!storage_stalled(&d, 9909, 0, 10));
    ck_assert(storage_stalled(&d, 9910, 0, 10));
}
END_TEST

/* The file of a quarantined device is not opened. */
START_TEST(quarantine_touches_nothing)
{
    struct storage d;
    storage_open(&d, path, true, held(path), &seen, true);
    ck_assert_int_eq(d.fd, -1);
    ck_assert(d.quarantined && !d.missing);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("loader");
    TCase *c = tcase_create("jobs");
    tcase_add_checked_fixture(c, open_jobs, close_jobs);
    tcase_add_test(c, demand_before_dense_before_prefetch);
    tcase_add_test(c, prefetch_gives_way);
    tcase_add_test(c, no_small_rest);
    tcase_add_test(c, raised_chunks_count_as_demands);
    tcase_add_test(c, short_reads_go_on_at_the_page);
    tcase_add_test(c, the_end_of_the_file);
    tcase_add_test(c, errors_are_retried_with_growing_pauses);
    tcase_add_test(c, errors_of_memory_wait_for_it);
    tcase_add_test(c, tries_and_waits_are_counted_apart);
    tcase_add_test(c, a_failed_job_waits_for_its_reads);
    tcase_add_test(c, a_failed_job_goes_on_at_another_copy);
    tcase_add_test(c, rejected_chunks_go_back);
    tcase_add_test(c, the_table_is_bounded);
    suite_add_tcase(s, c);
    c = tcase_create("chunks");
    tcase_add_test(c, prefetch_reads_take_a_short_storage_time);
    suite_add_tcase(s, c);
    c = tcase_create("throttle");
    tcase_add_test(c, throttle_keeps_its_rate);
    tcase_add_test(c, throttle_serves_in_line);
    tcase_add_test(c, throttle_changes);
    suite_add_tcase(s, c);
    c = tcase_create("device");
    tcase_add_checked_fixture(c, open_dir, close_dir);
    tcase_add_test(c, a_changed_file_stays_changed);
    tcase_add_test(c, a_replaced_file_is_still_read);
    tcase_add_test(c, a_file_that_is_not_held_is_missing);
    tcase_add_test(c, one_bad_offset_does_not_fail_the_storage);
    tcase_add_test(c, a_stall_is_silence_with_reads);
    tcase_add_test(c, quarantine_touches_nothing);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
