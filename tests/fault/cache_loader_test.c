/* SPDX-License-Identifier: Apache-2.0 */
/* Cache manager and loaders as real processes, under eviction pressure and at their limits.
 * cache_loader_failures_test.c kills them. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "tests/fault/cache_loader_work.h"

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
    const struct process *process = rig_process(&r, SERVICE_LOADER, 0);
    uint64_t n = atomic_load(&process->samples_count);
    ck_assert_uint_gt(n, 50);
    rig_close(&r);
}
END_TEST

/* Without any DEMAND, pins alone cause loads. */
START_TEST(pins_without_demand)
{
    struct rig r;
    run_plain(&r, &plain, 0);
    atomic_store(&rig_process(&r, SERVICE_COMPUTE, 0)->wait, WAIT_EXPERT);
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
    uint64_t deadline = rig_deadline(WAIT_MS), cancels = 0, resets = 0;
    do {
        ck_assert_msg(rig_tick(&r, deadline), "%llu cancelled, %llu reset",
                      (unsigned long long)cancels, (unsigned long long)resets);
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

static Suite *suite(void)
{
    Suite *s = suite_create("cache_loader");
    TCase *c = add_case(s, "normal");
    tcase_add_loop_test(c, payload_is_the_files, 0, 5);
    tcase_add_test(c, demand_to_submission);
    tcase_add_test(c, demand_waits_for_space);
    tcase_add_test(c, demand_overtakes_prefetch);
    tcase_add_test(c, pins_without_demand);
    c = add_case(s, "limits");
    tcase_add_loop_test(c, quota_is_obeyed, 0, 2);
    tcase_add_test(c, throttle_is_obeyed);
    tcase_add_test(c, withheld_reads_are_cancelled);
    add_failures(s);
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
