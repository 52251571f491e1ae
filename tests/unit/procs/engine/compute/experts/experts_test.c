/* SPDX-License-Identifier: Apache-2.0 */
/* compute's side of the directory: it pins before it reads, sends one DEMAND per missing expert,
 * and every wait ends - by event, by a named error, or by cancelling. A thread acts as cache and
 * loader. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "tests/golden/reference.h"
#include "tests/unit/lib/model/store_make.h"
#include "tests/unit/lib/policy/access/states.h"
#include "tests/unit/procs/engine/compute/experts/world.h"

static void remove_files(const char *dir)
{
    DIR *d = opendir(dir);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));)
        (void)unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* A store of the demo model with native experts and int4. */
static const struct model_index *two_precisions(void)
{
    char dir[] = "/tmp/sluice-experts-XXXXXX";
    struct store_make how = {.stripes = 1, .precision_mask = STATES_MASK};
    struct model_index *index = NULL;
    struct error error;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(rmdir(dir), 0);
    world_must(store_make(golden_demo_path(), dir, &how, &error), &error);
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    int rc = store_index_build(fd, dir, &index, &error);
    close(fd);
    remove_files(dir);
    world_must(rc, &error);
    return index;
}

static void set_state(uint32_t layer, uint32_t expert, enum precision precision,
                      enum precision_state state)
{
    uint32_t n = model_entry_expert_precision(w.child.model, layer, expert, precision);
    struct directory_entry *d = &w.child.directory.entries[n];
    uint64_t generation;
    if (state == PRECISION_ABSENT)
        return;
    atomic_store(&d->arena_offset, w.layout.class[d->size_class].region_offset);
    ck_assert(entry_reserve(&d->word, 1, &generation));
    if (state == PRECISION_READY)
        ck_assert_int_eq(entry_shard_done(&d->word, generation, 0), SHARD_READY);
}

START_TEST(ready_ones_are_hits_and_send_nothing)
{
    struct access_log_reader reader;
    struct access_record access;
    access_log_reader_start(&w.child.access_log, &reader);
    for (uint32_t i = 0; i < 4; i++)
        world_make_ready(i);
    world_pin(4);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(w.item[i].state, ITEM_READY);
        ck_assert(world_pinned(i));
        ck_assert(!entry_evict(&world_entry(i)->word));
        ck_assert(access_log_read(&w.child.access_log, &reader, UINT64_MAX, &access));
        ck_assert_uint_eq(access.expert, w.item[i].expert);
        ck_assert_uint_eq(access.outcome, ACCESS_HIT);
        ck_assert_uint_eq(access.rank, i);
        ck_assert_uint_eq(access.sequence, 9);
        ck_assert_uint_eq(access.position, 4);
        ck_assert_uint_eq(access.pass, 70001 & UINT16_MAX);
        ck_assert_uint_eq(access.prefill, 0);
    }
    ck_assert_uint_eq(world_count(CTR_COMPUTE_hits), 4);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_accesses), 4);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_demands), 0);
    for (uint32_t i = 0; i < 4; i++) {
        w.source.unpin(w.source.self, &w.step, &w.item[i]);
        ck_assert(!world_pinned(i));
    }
    const uint8_t *base = w.child.arena.base;
    const struct model_extent *x =
        model_index_entries(w.child.model)[model_entry_expert(w.child.model, LAYER, 1)].extent;
    for (uint32_t part = 0; part < EXPERT__COUNT; part++)
        ck_assert_ptr_eq(w.item[0].matrix[part].data,
                         base + atomic_load(&world_entry(0)->arena_offset) + x[part].slot_offset +
                             x[part].head_bytes);
}
END_TEST

struct loading {
    uint32_t i;
    uint64_t generation;
};

static void *publish_later(void *arg)
{
    struct loading *l = arg;
    /* when the waiter waits on the counter */
    while (atomic_load(&w.child.directory.counters[LAYER].waiters) == 0)
        sched_yield();
    world_publish(l->i, l->generation);
    return NULL;
}

START_TEST(loading_and_missing_experts_are_waited_for)
{
    struct loading loading = {.i = 1};
    struct error error;
    pthread_t thread;
    world_make_ready(0);
    world_reserve(1, &loading.generation);
    world_pin(3);
    ck_assert_int_eq(w.item[0].state, ITEM_READY);
    ck_assert_int_eq(w.item[1].state, ITEM_WAITED);
    ck_assert_int_eq(w.item[2].state, ITEM_WAITED);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_hits), 1);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_hits_inflight), 1);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_misses), 1);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_demands), 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, publish_later, &loading), 0);
    ck_assert_int_eq(world_wait_any(3, &error), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(w.item[1].state, ITEM_READY);
    ck_assert_int_eq(w.item[2].state, ITEM_WAITED);
    world_make_ready(2);
    ck_assert_int_eq(world_wait_any(3, &error), 0);
    ck_assert_int_eq(w.item[2].state, ITEM_READY);
    ck_assert_uint_gt(w.request.stats.stall_ns, 0);
}
END_TEST

START_TEST(absent_entries_are_demanded_again)
{
    uint64_t generation;
    struct error error;
    world_pin(1); /* stays ABSENT: requested again until the stall limit */
    ck_assert_int_eq(world_wait_any(1, &error), -1);
    ck_assert_int_eq(error.code, ERR_NO_PROGRESS);
    ck_assert_uint_gt(world_count(CTR_COMPUTE_demands_retried), 0);
    uint64_t retried = world_count(CTR_COMPUTE_demands_retried);
    w.source.unpin(w.source.self, &w.step, &w.item[0]);
    world_reserve(1, &generation); /* LOADING: the load is in progress */
    w.items[0] = &w.item[1];
    world_pin(1);
    ck_assert_int_eq(world_wait_any(1, &error), -1);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_demands_retried), retried);
}
END_TEST

static void *read_slowly(void *arg)
{
    struct process *loader = &w.child.procs.head->process[procs_index_of(SERVICE_LOADER, 0)];
    struct loading *l = arg;
    uint64_t start = clock_now_ns();
    while (clock_now_ns() - start < 900 * NS_PER_MS) { /* three stall limits */
        counter_add(loader, CTR_LOADER_bytes_read, 1);
        sched_yield();
    }
    world_publish(l->i, l->generation);
    return NULL;
}

START_TEST(slow_storage_is_no_error)
{
    struct loading loading = {.i = 0};
    struct error error;
    pthread_t thread;
    world_reserve(0, &loading.generation);
    world_pin(1);
    ck_assert_int_eq(pthread_create(&thread, NULL, read_slowly, &loading), 0);
    ck_assert_int_eq(world_wait_any(1, &error), 0);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(an_unreadable_expert_is_named)
{
    struct error error;
    atomic_store(&world_entry(0)->failures, 5); /* of an earlier request: not counted */
    world_pin(1);
    atomic_fetch_add(&world_entry(0)->failures, 3);
    atomic_store(&world_entry(0)->last_errno, EIO);
    ck_assert_int_eq(world_wait_any(1, &error), -1);
    ck_assert_int_eq(error.code, ERR_IO);
    ck_assert_ptr_nonnull(strstr(error.text, "expert 1 of layer 2"));
    ck_assert_ptr_nonnull(strstr(error.text, "model.gguf"));
    ck_assert_ptr_nonnull(strstr(error.text, strerror(EIO)));
}
END_TEST

static void *cancel_later(void *arg)
{
    (void)arg;
    while (atomic_load(&w.child.directory.counters[LAYER].waiters) == 0)
        sched_yield();
    atomic_store(&w.request.cancel, 1);
    return NULL;
}

START_TEST(a_cancel_ends_the_wait)
{
    struct error error;
    pthread_t thread;
    world_pin(1);
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_later, NULL), 0);
    ck_assert_int_eq(world_wait_any(1, &error), -1);
    ck_assert_int_eq(error.code, ERR_CANCELLED);
    pthread_join(thread, NULL);
}
END_TEST

/* ---- masked routing ---- */

static bool mask(bool allowed[])
{
    w.experts->knobs.routing = ROUTING_MASKED;
    return w.source.mask(w.source.self, &w.step, allowed);
}

/* An expert evicted between routing and its pin is neither waited for nor requested. */
START_TEST(what_has_left_is_lost)
{
    bool allowed[MODEL_EXPERTS_MAX];
    struct access_log_reader reader;
    struct access_record access;
    access_log_reader_start(&w.child.access_log, &reader);
    for (uint32_t i = 0; i < 5; i++)
        world_make_ready(i);
    ck_assert(mask(allowed));
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_int_eq(allowed[w.item[i].expert], i < 5);
    ck_assert(entry_evict(&world_entry(1)->word));
    world_pin(4);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(w.item[i].state, i == 1 ? ITEM_LOST : ITEM_READY);
        ck_assert_int_eq(world_pinned(i), i != 1);
    }
    ck_assert_uint_eq(world_count(CTR_COMPUTE_demands), 0);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_accesses), 3);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_hits), 3);
    for (uint32_t n = 0; n < 3; n++)
        ck_assert(access_log_read(&w.child.access_log, &reader, UINT64_MAX, &access));
    ck_assert(!access_log_read(&w.child.access_log, &reader, UINT64_MAX, &access));
    ck_assert(mask(allowed)); /* four are left: the core routes again among them */
    ck_assert(!allowed[w.item[1].expert]);
}
END_TEST

/* With fewer residents than top-k there is no mask: exact routing, requests, waits. */
START_TEST(too_few_residents_are_waited_for)
{
    bool allowed[MODEL_EXPERTS_MAX];
    for (uint32_t i = 0; i < 2; i++)
        world_make_ready(i);
    ck_assert(!mask(allowed));
    world_pin(4);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(w.item[i].state, i < 2 ? ITEM_READY : ITEM_WAITED);
        ck_assert(world_pinned(i));
    }
    ck_assert_uint_eq(world_count(CTR_COMPUTE_demands), 1);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_misses), 2);
}
END_TEST

/* A chunk is not routed again: what its mask allows stays until the layer is computed. */
START_TEST(the_mask_of_a_chunk_pins)
{
    bool allowed[MODEL_EXPERTS_MAX];
    struct route routes[2 * MODEL_TOP_K_MAX];
    uint32_t k = w.child.model->hparams.experts_used;
    world_set_rows(2, true);
    for (uint32_t i = 0; i < k + 1; i++)
        world_make_ready(i);
    ck_assert(mask(allowed));
    for (uint32_t i = 0; i < k + 1; i++)
        ck_assert(!entry_evict(&world_entry(i)->word));
    for (uint32_t i = 0; i < 2 * k; i++)
        routes[i] = (struct route){.expert = w.item[i % k].expert, .weight = 0.1f};
    w.source.routed(w.source.self, &w.step, routes);
    for (uint32_t i = 0; i < k + 1; i++)
        ck_assert_int_eq(world_pinned(i), i < k); /* no row uses the last */
    world_pin(k);
    for (uint32_t i = 0; i < k; i++) {
        ck_assert_int_eq(w.item[i].state, ITEM_READY);
        w.source.unpin(w.source.self, &w.step, &w.item[i]);
        ck_assert(!world_pinned(i));
    }
    ck_assert_uint_eq(world_count(CTR_COMPUTE_demands), 0);
    ck_assert(mask(allowed));
    experts_release(w.experts); /* the pass failed */
    for (uint32_t i = 0; i < k + 1; i++)
        ck_assert(!world_pinned(i));
}
END_TEST

/* One message when the count is reached, none before and none after. */
START_TEST(the_cache_is_woken_at_its_number_of_tokens)
{
    uint64_t before = world_count(CTR_COMPUTE_messages_dropped); /* no cache listens here */
    experts_tokens_end(w.experts, 1);
    atomic_store(&w.child.directory.head->token_bell, 300);
    for (uint32_t tokens = 1; tokens < 600; tokens += 7) {
        experts_tokens_end(w.experts, 7);
        ck_assert_uint_eq(world_count(CTR_COMPUTE_messages_dropped) - before, tokens + 7 >= 300);
    }
    ck_assert_uint_ge(access_log_tokens(&w.child.access_log), 600);
}
END_TEST

/* Compute's answer to every row of the table that the policy, the simulator and the offline
 * evaluation answer, too. */
START_TEST(states_of_the_directory)
{
    static const unsigned counters[] = {[PRECISION_HIT] = CTR_COMPUTE_hits,
                                        [PRECISION_INFLIGHT] = CTR_COMPUTE_hits_inflight,
                                        [PRECISION_MISS] = CTR_COMPUTE_misses,
                                        [PRECISION_SKIPPED] = CTR_COMPUTE_skipped};
    static const int states[] = {[PRECISION_HIT] = ITEM_READY,
                                 [PRECISION_INFLIGHT] = ITEM_WAITED,
                                 [PRECISION_MISS] = ITEM_WAITED,
                                 [PRECISION_SKIPPED] = ITEM_SKIPPED};
    world_open_with(two_precisions());
    for (uint32_t i = 0; i < (uint32_t)STATES_ROWS; i++) {
        const struct states_row *row = &states_rows[i];
        uint32_t before = (uint32_t)world_count(counters[row->outcome]);
        uint32_t experts = w.child.model->hparams.experts;
        world_set_rows(row->prefill ? 4 : 1, row->prefill);
        w.step.layer = i / experts;
        w.item[0] = (struct expert_item){.expert = i % experts,
                                         .tokens = 1,
                                         .row = &only_row,
                                         .prefill = row->prefill,
                                         .rank = 1,
                                         .weight_before = row->weight_before,
                                         .popularity = row->popularity};
        set_state(w.step.layer, i % experts, PRECISION_NATIVE, row->high);
        set_state(w.step.layer, i % experts, PRECISION_INT4, row->low);
        w.experts->precision_policy = states_policy(row);
        world_pin(1);
        ck_assert_msg((int)w.item[0].state == states[row->outcome], "row %u: state %d", i,
                      (int)w.item[0].state);
        ck_assert_msg(world_count(counters[row->outcome]) == before + 1, "row %u: outcome", i);
        if (row->outcome != PRECISION_SKIPPED)
            ck_assert_msg(w.item[0].precision == row->precision, "row %u: precision %d", i,
                          (int)w.item[0].precision);
    }
}
END_TEST

START_TEST(pin_limit_is_half_of_the_expert_capacity)
{
    struct directory_head *head = w.child.directory.head;
    atomic_store(&head->quota_bytes, w.child.model->dense_bytes + 1000000);
    ck_assert_uint_eq(w.source.pin_limit(w.source.self), 500000);
    atomic_store(&head->experts_payload_max, 600000);
    ck_assert_uint_eq(w.source.pin_limit(w.source.self), 300000);
    atomic_store(&head->quota_bytes, 10);
    ck_assert_uint_eq(w.source.pin_limit(w.source.self), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("experts");
    TCase *c = tcase_create("experts");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, world_setup, NULL); /* each test runs in a process of its own */
    tcase_add_test(c, ready_ones_are_hits_and_send_nothing);
    tcase_add_test(c, loading_and_missing_experts_are_waited_for);
    tcase_add_test(c, absent_entries_are_demanded_again);
    tcase_add_test(c, slow_storage_is_no_error);
    tcase_add_test(c, an_unreadable_expert_is_named);
    tcase_add_test(c, a_cancel_ends_the_wait);
    tcase_add_test(c, what_has_left_is_lost);
    tcase_add_test(c, too_few_residents_are_waited_for);
    tcase_add_test(c, the_mask_of_a_chunk_pins);
    tcase_add_test(c, the_cache_is_woken_at_its_number_of_tokens);
    tcase_add_test(c, pin_limit_is_half_of_the_expert_capacity);
    suite_add_tcase(suite, c);
    TCase *two = tcase_create("two precisions");
    tcase_set_timeout(two, 60);
    tcase_add_test(two, states_of_the_directory);
    suite_add_tcase(suite, two);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
