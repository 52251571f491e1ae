/* SPDX-License-Identifier: Apache-2.0 */
/* Cache manager and loaders as real processes: they are killed at any time, and the model file
 * changes or is cut. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/fault/cache_loader_work.h"

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
                     (int)r.pid[procs_index_of(SERVICE_LOADER, i)]);
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
    const struct process *process = rig_process(&r, SERVICE_LOADER, 0);
    ck_assert_uint_eq(atomic_load(&process->cleaned), atomic_load(&process->reaped));
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

static uint32_t absent_expert(struct rig *r)
{
    for (uint32_t e = r->model->dense_count; e < r->model->entry_count; e++)
        if (rig_state(r, e) == ENTRY_ABSENT)
            return e;
    ck_abort_msg("every expert is resident");
}

/* Waits until the entry has failed for one demand, and stays ABSENT. `from`: its failures before.
 * Each loader of a read that fails counts it, so there are 3 or a few more. Returns the failures
 * now. */
static uint64_t wait_given_up(struct rig *r, uint32_t entry, uint64_t from, int errno_value)
{
    const struct directory_entry *d = &r->directory.entries[entry];
    uint64_t deadline = rig_deadline(WAIT_MS);
    while (atomic_load(&d->failures) < from + 3 || rig_state(r, entry) != ENTRY_ABSENT)
        ck_assert_msg(rig_tick(r, deadline), "%llu failures, %llu before",
                      (unsigned long long)atomic_load(&d->failures), (unsigned long long)from);
    uint64_t failures = atomic_load(&d->failures);
    ck_assert_uint_le(failures, from + 3 + 2);
    ck_assert_int_eq((int)atomic_load(&d->last_errno), errno_value);
    return failures;
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
    uint64_t failures = wait_given_up(&r, entry, 0, ESTALE);
    rig_send_demand(&r, &entry, 1, 0); /* a new demand is retried and fails again */
    failures = wait_given_up(&r, entry, failures, ESTALE);
    ck_assert_int_eq(utimensat(AT_FDCWD, r.model_path, right, 0), 0);
    rig_send_demand(&r, &entry, 1, 0);
    wait_given_up(&r, entry, failures, ESTALE);
    rig_unpin(&r, &entry, 1);
    ck_assert_uint_eq(atomic_load(&rig_process(&r, SERVICE_LOADER, 0)->incarnation), 1);
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
    ck_assert_uint_eq(wait_given_up(&r, entry, 0, ESTALE), 3);
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

void add_failures(Suite *s)
{
    TCase *c = add_case(s, "loader_death");
    tcase_add_loop_test(c, loader_killed, 0, 4);
    tcase_add_test(c, loader_killed_at_any_time);
    tcase_add_test(c, backend_replaced);
    c = add_case(s, "cache_death");
    tcase_add_loop_test(c, cache_killed, 0, 2);
    tcase_add_test(c, cache_killed_under_a_throttle);
    tcase_add_test(c, cache_and_loader_killed);
    c = add_case(s, "file");
    tcase_add_test(c, file_changed);
    tcase_add_test(c, file_truncated);
}
