/* SPDX-License-Identifier: Apache-2.0 */
/* Cache manager and loaders as real processes, under eviction pressure and under kill -9. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/fault/cache_loader_rig.h"

#define WAIT_MS 10000
#define TOP_K   4

static const struct rig_options plain = {.loaders = 1, .experts_share = 0.3};

/* K different experts of a layer, skewed so that some are accessed more often. */
static void choose(const struct rig *r, uint64_t *seed, uint32_t layer, uint32_t *entries)
{
    uint32_t experts = r->model->hparams.experts;
    for (uint32_t k = 0; k < TOP_K; k++) {
        uint32_t e, again;
        do {
            uint32_t span = 1 + rig_random(seed, experts);
            e = model_entry_expert(r->model, layer, rig_random(seed, span));
            again = 0;
            for (uint32_t i = 0; i < k; i++)
                again |= entries[i] == e;
        } while (again);
        entries[k] = e;
    }
}

/* Accesses experts as compute does for tokens; compares every payload with the file. */
static void decode(struct rig *r, uint64_t *seed, uint32_t tokens)
{
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t layer = 0; layer < r->model->hparams.layers; layer++) {
            uint32_t entries[TOP_K];
            choose(r, seed, layer, entries);
            ck_assert_msg(rig_demand(r, entries, TOP_K, WAIT_MS), "token %u, layer %u", t, layer);
            rig_access(r, entries, TOP_K);
        }
        r->position++;
        struct access_record end = {
            .sequence = 1, .position = r->position, .kind = ACCESS_TOKEN_END};
        access_log_append(&r->access_log, &end);
    }
}

static void check_quota(struct rig *r)
{
    uint64_t used = segment_allocated_bytes(r->segment[SEGMENT_ARENA].fd);
    uint64_t quota = atomic_load(&r->directory.head->quota_bytes);
    ck_assert_msg(used <= quota + PAGE_BYTES, "%llu of %llu bytes", (unsigned long long)used,
                  (unsigned long long)quota);
}

/* No two entries that are not ABSENT overlap. */
static int by_offset(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

static void check_overlap(struct rig *r)
{
    uint64_t(*range)[2] = calloc(r->model->entry_count, sizeof *range);
    uint32_t n = 0;
    for (uint32_t e = 0; e < r->model->entry_count; e++) {
        if (rig_state(r, e) == ENTRY_ABSENT)
            continue;
        range[n][0] = atomic_load(&r->directory.entries[e].arena_offset);
        range[n][1] = range[n][0] + r->entries[e].slot_bytes;
        n++;
    }
    qsort(range, n, sizeof *range, by_offset);
    for (uint32_t i = 1; i < n; i++)
        ck_assert(range[i - 1][1] <= range[i][0]);
    free(range);
}

static void run_plain(struct rig *r, const struct rig_options *options, uint32_t tokens)
{
    uint64_t seed = 7;
    rig_open(r, options);
    rig_start(r);
    ck_assert(rig_wait_dense(r, WAIT_MS));
    decode(r, &seed, tokens);
    check_quota(r);
    check_overlap(r);
}

static void throttle(struct rig *r, uint64_t rate)
{
    atomic_store(&r->directory.head->throttle_bytes_per_s[0], rate);
    rig_control(r, SERVICE_LOADER, 0, CONTROL_THROTTLE, rate);
}

/* Waits until the throttle delays a completed read. */
static void wait_withheld(struct rig *r)
{
    uint64_t deadline = rig_deadline(WAIT_MS);
    uint64_t seen = rig_counter(r, SERVICE_LOADER, 0, CTR_LOADER_throttle_ns);
    while (rig_counter(r, SERVICE_LOADER, 0, CTR_LOADER_throttle_ns) == seen)
        ck_assert(rig_tick(r, deadline));
}

START_TEST(payload_is_the_files)
{
    static const struct rig_options table[] = {
        {.loaders = 1, .experts_share = 0.3},
        {.loaders = 3, .experts_share = 0.25},
        {.loaders = 1, .experts_share = 0.5, .backend = "pread", .prefault = true},
        {.loaders = 2, .experts_share = 0.15, .chunk = 4096, .depth = 3},
        {.loaders = 16, .experts_share = 1.0, .prefault = true},
    };
    struct rig r;
    run_plain(&r, &table[_i], 20);
    uint64_t submitted = 0, published = 0;
    for (uint32_t i = 0; i < table[_i].loaders; i++) {
        submitted += rig_counter(&r, SERVICE_LOADER, i, CTR_LOADER_bytes_submitted);
        published += rig_counter(&r, SERVICE_LOADER, i, CTR_LOADER_bytes_published);
        ck_assert_uint_eq(rig_counter(&r, SERVICE_LOADER, i, CTR_LOADER_parts_failed), 0);
    }
    ck_assert_uint_eq(submitted, published);
    if (table[_i].experts_share < 0.4)
        ck_assert_uint_gt(rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_evictions), 0);
    rig_close(&r);
}
END_TEST

START_TEST(demand_to_submission)
{
    struct rig r;
    run_plain(&r, &plain, 40);
    const struct proc_row *row = rig_row(&r, SERVICE_LOADER, 0);
    uint64_t n = atomic_load(&row->samples_count);
    ck_assert_uint_gt(n, 50);
    rig_close(&r);
}
END_TEST

/* Without any DEMAND, pins alone cause loads. */
START_TEST(pins_without_demand)
{
    struct rig r;
    run_plain(&r, &plain, 0);
    atomic_store(&rig_row(&r, SERVICE_COMPUTE, 0)->wait, WAIT_EXPERT);
    for (uint32_t layer = 0; layer < r.model->hparams.layers; layer++) {
        uint32_t entry = model_entry_expert(r.model, layer, 3);
        uint64_t deadline = rig_deadline(WAIT_MS);
        entry_pin(&r.directory.entries[entry].word, PINNER_COMPUTE);
        while (rig_state(&r, entry) != ENTRY_READY)
            ck_assert(rig_tick(&r, deadline));
        ck_assert(rig_payload_right(&r, entry));
        rig_unpin(&r, &entry, 1);
    }
    ck_assert_uint_eq(rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_demands), 0);
    rig_close(&r);
}
END_TEST

/* A loader crashes at each injection point, and while reads are in flight. */
START_TEST(loader_killed)
{
    static const enum injection points[] = {INJECT_LOADER_READS_PENDING,
                                            INJECT_LOADER_BEFORE_PUBLISH};
    struct rig_options options = {.loaders = 1 + (uint32_t)_i % 2, .experts_share = 0.2};
    struct rig r;
    uint64_t seed = 11;
    run_plain(&r, &options, 2);
    for (uint32_t round = 0; round < 6; round++) {
        uint32_t entries[TOP_K], victim = ENTRY_NONE;
        rig_inject(&r, points[_i / 2], round % 3);
        while (atomic_load(&r.procs.head->injection) != INJECT_NONE) {
            choose(&r, &seed, round % r.model->hparams.layers, entries);
            rig_send_demand(&r, entries, TOP_K, 0);
            uint64_t soon = rig_deadline(20);
            while (atomic_load(&r.procs.head->injection) != INJECT_NONE && rig_tick(&r, soon))
                ;
            rig_unpin(&r, entries, TOP_K);
        }
        for (uint32_t i = 0; i < options.loaders && victim == ENTRY_NONE; i++) {
            char path[64], state = 0;
            snprintf(path, sizeof path, "/proc/%d/stat",
                     (int)r.pid[procs_row_of(SERVICE_LOADER, i)]);
            uint64_t soon = rig_deadline(50);
            while (state != 'T' && rig_tick(&r, soon)) {
                FILE *f = fopen(path, "r");
                ck_assert(f != NULL && fscanf(f, "%*d %*s %c", &state) == 1);
                fclose(f);
            }
            victim = state == 'T' ? i : ENTRY_NONE;
        }
        ck_assert_uint_ne(victim, ENTRY_NONE);
        rig_replace_loader(&r, victim);
        ck_assert(rig_demand(&r, entries, TOP_K, WAIT_MS));
        rig_access(&r, entries, TOP_K);
        decode(&r, &seed, 2);
        check_quota(&r);
        check_overlap(&r);
    }
    ck_assert_uint_ge(rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_loaders_cleaned), 6);
    rig_close(&r);
}
END_TEST

START_TEST(loader_killed_at_any_time)
{
    struct rig_options options = {.loaders = 2, .experts_share = 0.2, .chunk = 8192};
    struct rig r;
    uint64_t seed = 13;
    run_plain(&r, &options, 2);
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t entries[TOP_K];
        choose(&r, &seed, rig_random(&seed, r.model->hparams.layers), entries);
        rig_send_demand(&r, entries, TOP_K, 0);
        uint64_t until = clock_now_ns() + rig_random(&seed, 1500) * NS_PER_US;
        while (clock_now_ns() < until)
            ;
        rig_replace_loader(&r, round % 2);
        ck_assert(rig_demand(&r, entries, TOP_K, WAIT_MS));
        rig_access(&r, entries, TOP_K);
    }
    check_quota(&r);
    check_overlap(&r);
    rig_close(&r);
}
END_TEST

/* The cache crashes between reserve and LOAD, during clean-up, and with loads in flight. */
START_TEST(cache_killed)
{
    struct rig_options options = {.loaders = 1 + (uint32_t)_i % 2, .experts_share = 0.25};
    struct rig r;
    uint64_t seed = 17;
    run_plain(&r, &options, 2);
    for (uint32_t round = 0; round < 6; round++) {
        uint32_t entries[TOP_K];
        uint64_t ready = 0;
        do {
            choose(&r, &seed, rig_random(&seed, r.model->hparams.layers), entries);
            ready = 0;
            for (uint32_t i = 0; i < TOP_K; i++)
                ready += rig_state(&r, entries[i]) == ENTRY_READY;
        } while (ready > 1);
        if (round % 2 == 0)
            rig_inject(&r, INJECT_CACHE_RESERVED, round / 2);
        rig_send_demand(&r, entries, TOP_K, 0);
        if (round % 2 == 0)
            rig_wait_stopped(&r, SERVICE_CACHE, 0);
        rig_kill(&r, SERVICE_CACHE, 0);
        rig_spawn(&r, SERVICE_CACHE, 0, NULL);
        rig_wait_ready(&r, SERVICE_CACHE, 0);
        ck_assert(rig_demand(&r, entries, TOP_K, WAIT_MS));
        rig_access(&r, entries, TOP_K);
        decode(&r, &seed, 2);
        check_quota(&r);
        check_overlap(&r);
    }
    ck_assert_uint_eq(rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_rebuilds), 6);
    rig_close(&r);
}
END_TEST

/* A new cache cancels all reads; delayed ones end at once, without waiting for their delay. */
START_TEST(cache_killed_under_a_throttle)
{
    struct rig r;
    uint64_t seed = 41;
    run_plain(&r, &plain, 1);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t entries[MSG_WANTS_MAX], layer = round % r.model->hparams.layers;
        uint32_t n = r.model->hparams.experts < 12 ? r.model->hparams.experts : 12;
        for (uint32_t i = 0; i < n; i++)
            entries[i] = model_entry_expert(r.model, layer, i);
        throttle(&r, 128 * KIB);
        rig_send_demand(&r, entries, n, 0);
        wait_withheld(&r);
        rig_kill(&r, SERVICE_CACHE, 0);
        rig_spawn(&r, SERVICE_CACHE, 0, NULL);
        rig_wait_ready(&r, SERVICE_CACHE, 0);
        throttle(&r, 0);
        ck_assert(rig_demand(&r, entries, n, WAIT_MS));
        rig_access(&r, entries, n);
        decode(&r, &seed, 1);
        check_quota(&r);
        check_overlap(&r);
    }
    ck_assert_uint_eq(rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_rebuilds), 3);
    rig_close(&r);
}
END_TEST

START_TEST(cache_and_loader_killed)
{
    struct rig r;
    uint64_t seed = 19;
    run_plain(&r, &plain, 2);
    uint32_t entries[TOP_K];
    choose(&r, &seed, 1, entries);
    rig_inject(&r, INJECT_LOADER_READS_PENDING, 0);
    while (atomic_load(&r.procs.head->injection) != INJECT_NONE) {
        rig_unpin(&r, entries, TOP_K);
        choose(&r, &seed, 1, entries);
        rig_send_demand(&r, entries, TOP_K, 0);
        uint64_t soon = rig_deadline(20);
        while (atomic_load(&r.procs.head->injection) != INJECT_NONE && rig_tick(&r, soon))
            ;
    }
    rig_wait_stopped(&r, SERVICE_LOADER, 0);
    rig_inject(&r, INJECT_CACHE_CLEANING, 0);
    rig_kill(&r, SERVICE_LOADER, 0);
    rig_wait_stopped(&r, SERVICE_CACHE, 0);
    rig_kill(&r, SERVICE_CACHE, 0);
    rig_spawn(&r, SERVICE_CACHE, 0, NULL);
    rig_wait_ready(&r, SERVICE_CACHE, 0);
    const struct proc_row *row = rig_row(&r, SERVICE_LOADER, 0);
    ck_assert_uint_eq(atomic_load(&row->cleaned), atomic_load(&row->reaped));
    rig_spawn(&r, SERVICE_LOADER, 0, NULL);
    rig_wait_ready(&r, SERVICE_LOADER, 0);
    ck_assert(rig_demand(&r, entries, TOP_K, WAIT_MS));
    rig_access(&r, entries, TOP_K);
    decode(&r, &seed, 3);
    check_quota(&r);
    check_overlap(&r);
    rig_close(&r);
}
END_TEST

START_TEST(quota_is_obeyed)
{
    struct rig_options options = {.loaders = 1, .experts_share = 1.0, .prefault = _i == 1};
    struct rig r;
    uint64_t seed = 23;
    run_plain(&r, &options, 30);
    uint64_t full = atomic_load(&r.directory.head->quota_bytes);
    for (uint32_t i = 0; i < 12; i++) {
        uint64_t experts = full - r.model->dense_bytes;
        uint64_t quota =
            r.model->dense_bytes + align_up(experts * (1 + rig_random(&seed, 8)) / 8, PAGE_BYTES);
        uint64_t freed = full > quota ? full - quota : 0;
        uint64_t took = rig_control(&r, SERVICE_CACHE, 0, CONTROL_QUOTA, quota);
        check_quota(&r);
        ck_assert_uint_lt(took, NS_PER_S + freed * (NS_PER_S / 2) / GIB);
        ck_assert_uint_eq(atomic_load(&r.directory.head->quota_applied),
                          atomic_load(&r.directory.head->quota_epoch));
        decode(&r, &seed, 2);
        check_quota(&r);
    }
    rig_close(&r);
}
END_TEST

/* Everything pinned: the demand waits for space and gets it with the first unpin. */
START_TEST(demand_waits_for_space)
{
    struct rig_options options = {.loaders = 1, .experts_share = 0.05};
    struct rig r;
    rig_open(&r, &options);
    rig_start(&r);
    ck_assert(rig_wait_dense(&r, WAIT_MS));
    uint64_t left = atomic_load(&r.directory.head->quota_bytes) - r.model->dense_bytes;
    uint32_t pinned[MSG_WANTS_MAX], fitting = 0;
    for (; fitting < ARRAY_LEN(pinned) - 1; fitting++) {
        pinned[fitting] = r.model->dense_count + fitting;
        if (r.entries[pinned[fitting]].slot_bytes > left)
            break;
        left -= r.entries[pinned[fitting]].slot_bytes;
    }
    ck_assert(rig_demand(&r, pinned, fitting, WAIT_MS));
    rig_send_demand(&r, &pinned[fitting], 1, 0);
    uint64_t deadline = rig_deadline(WAIT_MS);
    while (rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_waiting_entries) != 1)
        ck_assert(rig_tick(&r, deadline));
    ck_assert_int_eq(rig_state(&r, pinned[fitting]), ENTRY_ABSENT);
    rig_unpin(&r, &pinned[0], 1);
    ck_assert(rig_demand(&r, &pinned[fitting], 1, WAIT_MS));
    ck_assert_int_eq(rig_state(&r, pinned[0]), ENTRY_ABSENT);
    rig_unpin(&r, pinned, fitting + 1);
    rig_close(&r);
}
END_TEST

/* Bytes per second of loader 0, between two completions about a second apart. */
static double measure_rate(struct rig *r)
{
    uint64_t deadline = rig_deadline(WAIT_MS), start = 0, from = 0;
    uint64_t seen = rig_counter(r, SERVICE_LOADER, 0, CTR_LOADER_bytes_read);
    for (;;) {
        ck_assert(rig_tick(r, deadline));
        uint64_t now = clock_now_ns();
        uint64_t bytes = rig_counter(r, SERVICE_LOADER, 0, CTR_LOADER_bytes_read);
        if (bytes == seen)
            continue;
        seen = bytes;
        if (start == 0) {
            start = now;
            from = bytes;
        } else if (now - start >= NS_PER_S) {
            return (double)(bytes - from) * (double)NS_PER_S / (double)(now - start);
        }
    }
}

START_TEST(throttle_is_obeyed)
{
    struct rig_options options = {.loaders = 1, .experts_share = 1.0};
    struct rig r;
    rig_open(&r, &options);
    rig_start(&r);
    ck_assert(rig_wait_dense(&r, WAIT_MS));
    const uint64_t rate = 4 * MIB;
    throttle(&r, rate);
    uint32_t n =
        r.model->expert_entry_count < MSG_WANTS_MAX ? r.model->expert_entry_count : MSG_WANTS_MAX;
    uint32_t entries[MSG_WANTS_MAX];
    for (uint32_t i = 0; i < n; i++)
        entries[i] = r.model->dense_count + i;
    rig_send_demand(&r, entries, n, 0);
    /* Never faster, and at the rate in at least one window: other processes may delay the rest. */
    double best = 0;
    for (int window = 0; window < 5 && best < 0.95 * (double)rate; window++) {
        double measured = measure_rate(&r);
        ck_assert_msg(measured < 1.05 * (double)rate, "%.0f of %llu bytes/s", measured,
                      (unsigned long long)rate);
        best = measured > best ? measured : best;
    }
    ck_assert_msg(best >= 0.95 * (double)rate, "%.0f of %llu bytes/s", best,
                  (unsigned long long)rate);
    atomic_store(&r.directory.head->throttle_bytes_per_s[0], 0);
    ck_assert(rig_demand(&r, entries, n, WAIT_MS));
    rig_close(&r);
}
END_TEST

/* Delayed reads of prefetches for a layer that has passed are cancelled: they end at once, the
 * demand queued after them is loaded, and cancelled entries can be loaded again. */
START_TEST(withheld_reads_are_cancelled)
{
    struct rig_options options = {.loaders = 1, .experts_share = 1.0};
    struct rig r;
    uint64_t seed = 37;
    uint32_t entries[TOP_K], predicted[TOP_K];
    rig_open(&r, &options);
    rig_start(&r);
    ck_assert(rig_wait_dense(&r, WAIT_MS));
    choose(&r, &seed, 0, entries);
    ck_assert(rig_demand(&r, entries, TOP_K, WAIT_MS));
    rig_access(&r, entries, TOP_K);
    throttle(&r, 256 * KIB);
    choose(&r, &seed, 1, predicted);
    rig_hint(&r, 1, predicted, TOP_K);
    wait_withheld(&r);
    choose(&r, &seed, 2, entries);
    rig_send_demand(&r, entries, TOP_K, 0);
    uint64_t deadline = rig_deadline(WAIT_MS), cancels, resets;
    do {
        ck_assert(rig_tick(&r, deadline));
        cancels = rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_cancels);
        resets = rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_resets);
    } while (cancels == 0 || resets < cancels);
    ck_assert(rig_demand(&r, entries, TOP_K, WAIT_MS));
    rig_access(&r, entries, TOP_K);
    throttle(&r, 0);
    ck_assert(rig_demand(&r, predicted, TOP_K, WAIT_MS));
    rig_access(&r, predicted, TOP_K);
    check_overlap(&r);
    rig_close(&r);
}
END_TEST

/* Prefetches fill the capacity; a demand cancels prefetches to get space and waits for at most two
 * chunks. */
START_TEST(demand_overtakes_prefetch)
{
    struct rig_options options = {.loaders = 1, .experts_share = 0.06, .chunk = 8192};
    struct rig r;
    uint64_t seed = 29;
    run_plain(&r, &options, 1);
    uint32_t layers = r.model->hparams.layers;
    for (uint32_t t = 0; t < 60; t++) {
        for (uint32_t layer = 0; layer < layers; layer++) {
            uint32_t entries[TOP_K], predicted[TOP_K];
            choose(&r, &seed, layer, entries);
            if (layer + 1 < layers) {
                choose(&r, &seed, layer + 1, predicted);
                rig_hint(&r, layer + 1, predicted, TOP_K);
            }
            ck_assert(rig_demand(&r, entries, TOP_K, WAIT_MS));
            rig_access(&r, entries, TOP_K);
        }
        r.position++;
    }
    ck_assert_uint_gt(rig_counter(&r, SERVICE_CACHE, 0, CTR_CACHE_prefetches), 0);
    ck_assert_uint_le(rig_counter(&r, SERVICE_LOADER, 0, CTR_LOADER_demand_waited_chunks_max), 2);
    check_quota(&r);
    check_overlap(&r);
    rig_close(&r);
}
END_TEST

static uint32_t absent_expert(struct rig *r)
{
    for (uint32_t e = r->model->dense_count; e < r->model->entry_count; e++)
        if (rig_state(r, e) == ENTRY_ABSENT)
            return e;
    ck_abort_msg("every expert is resident");
}

/* Waits until the entry has failed `failures` times and stays ABSENT. */
static void wait_given_up(struct rig *r, uint32_t entry, uint64_t failures, int errno_value)
{
    const struct directory_entry *d = &r->directory.entries[entry];
    uint64_t deadline = rig_deadline(WAIT_MS);
    while (atomic_load(&d->failures) < failures || rig_state(r, entry) != ENTRY_ABSENT)
        ck_assert_msg(rig_tick(r, deadline), "%llu failures",
                      (unsigned long long)atomic_load(&d->failures));
    ck_assert_uint_eq(atomic_load(&d->failures), failures);
    ck_assert_int_eq((int)atomic_load(&d->last_errno), errno_value);
}

/* The file changes: entries fail with an errno, also after the old mtime was set again; no process
 * exits. */
START_TEST(file_changed)
{
    struct rig_options options = {.loaders = 2, .experts_share = 0.3, .own_copy = true};
    struct rig r;
    run_plain(&r, &options, 1);
    struct stat st;
    ck_assert_int_eq(stat(r.model_path, &st), 0);
    struct timespec other[2] = {{.tv_nsec = UTIME_OMIT}, {12345, 0}};
    struct timespec right[2] = {{.tv_nsec = UTIME_OMIT}, st.st_mtim};
    ck_assert_int_eq(utimensat(AT_FDCWD, r.model_path, other, 0), 0);
    uint32_t entry;
    uint64_t deadline = rig_deadline(WAIT_MS);
    do { /* until the loaders have noticed */
        entry = absent_expert(&r);
        rig_send_demand(&r, &entry, 1, 0);
        uint64_t soon = rig_deadline(200);
        while (rig_state(&r, entry) != ENTRY_READY && rig_tick(&r, soon))
            ;
        if (rig_state(&r, entry) == ENTRY_READY)
            rig_unpin(&r, &entry, 1);
        ck_assert(rig_tick(&r, deadline));
    } while (rig_state(&r, entry) == ENTRY_READY);
    wait_given_up(&r, entry, atomic_load(&r.directory.entries[entry].failures), ESTALE);
    uint64_t failures = atomic_load(&r.directory.entries[entry].failures);
    ck_assert_uint_ge(failures, 3);
    rig_send_demand(&r, &entry, 1, 0); /* a new demand is retried and fails again */
    wait_given_up(&r, entry, failures + failures, ESTALE);
    ck_assert_int_eq(utimensat(AT_FDCWD, r.model_path, right, 0), 0);
    rig_send_demand(&r, &entry, 1, 0);
    wait_given_up(&r, entry, 3 * failures, ESTALE);
    rig_unpin(&r, &entry, 1);
    ck_assert_uint_eq(atomic_load(&rig_row(&r, SERVICE_LOADER, 0)->incarnation), 1);
    rig_close(&r);
}
END_TEST

START_TEST(file_truncated)
{
    struct rig_options options = {.loaders = 1, .experts_share = 0.3, .own_copy = true};
    struct rig r;
    run_plain(&r, &options, 0);
    ck_assert_int_eq(truncate(r.model_path, 4096), 0);
    uint32_t entry = r.model->entry_count - 1;
    rig_send_demand(&r, &entry, 1, 0);
    uint64_t deadline = rig_deadline(WAIT_MS);
    while (atomic_load(&r.directory.entries[entry].failures) < 3)
        ck_assert(rig_tick(&r, deadline));
    wait_given_up(&r, entry, 3, ESTALE);
    rig_unpin(&r, &entry, 1);
    rig_close(&r);
}
END_TEST

/* Requested replacement: the old loader stops in order, its successor uses another back end. */
START_TEST(backend_replaced)
{
    struct rig r;
    uint64_t seed = 31;
    run_plain(&r, &plain, 2);
    ck_assert_uint_eq(rig_counter(&r, SERVICE_LOADER, 0, CTR_LOADER_backend), 1);
    rig_stop(&r, SERVICE_LOADER, 0);
    rig_wait_cleaned(&r, 0);
    rig_spawn(&r, SERVICE_LOADER, 0, "pread");
    rig_wait_ready(&r, SERVICE_LOADER, 0);
    decode(&r, &seed, 3);
    ck_assert_uint_eq(rig_counter(&r, SERVICE_LOADER, 0, CTR_LOADER_backend), 2);
    rig_close(&r);
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
    TCase *c = tcase_create(name);
    tcase_set_timeout(c, 120);
    suite_add_tcase(s, c);
    return c;
}

static Suite *suite(void)
{
    Suite *s = suite_create("cache_loader");
    TCase *c = add_case(s, "normal");
    tcase_add_loop_test(c, payload_is_the_files, 0, 5);
    tcase_add_test(c, demand_to_submission);
    tcase_add_test(c, demand_waits_for_space);
    tcase_add_test(c, demand_overtakes_prefetch);
    tcase_add_test(c, pins_without_demand);
    c = add_case(s, "loader_death");
    tcase_add_loop_test(c, loader_killed, 0, 4);
    tcase_add_test(c, loader_killed_at_any_time);
    tcase_add_test(c, backend_replaced);
    c = add_case(s, "cache_death");
    tcase_add_loop_test(c, cache_killed, 0, 2);
    tcase_add_test(c, cache_killed_under_a_throttle);
    tcase_add_test(c, cache_and_loader_killed);
    c = add_case(s, "limits");
    tcase_add_loop_test(c, quota_is_obeyed, 0, 2);
    tcase_add_test(c, throttle_is_obeyed);
    tcase_add_test(c, withheld_reads_are_cancelled);
    c = add_case(s, "file");
    tcase_add_test(c, file_changed);
    tcase_add_test(c, file_truncated);
    return s;
}

int main(void)
{
    rig_cases_start();
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_cases_end();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
