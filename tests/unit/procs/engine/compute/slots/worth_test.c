/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what memory is worth to kept prefixes: what prompts take from it, and what they would have
 * taken from what was given up. */
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#define CONTEXT 400
#define COST_NS 1000000 /* of a prompt */

static const struct model_hparams shape = {
    .layers = 3, .kv_heads = 2, .head_size = 16, .vocab = 100};

static _Atomic uint64_t spare;

static void setup(void)
{
    static const struct kv_counts counts = {.sequences = 1, .kept = 6};
    struct error error;
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    ck_assert_int_eq(worth_open(&w.slots, &error), 0);
    spare = 0;
    w.slots.spare_bytes = &spare;
}

static void teardown(void)
{
    free(w.slots.worth.hash);
    rig_close();
}

/* A turn of a conversation, whose prompt took COST_NS if it was computed as a whole; returns the
 * rows that were there. */
static uint32_t converse(uint32_t row, uint32_t tokens, uint32_t conversation, uint32_t flags)
{
    static uint64_t id;
    struct kv_request *q = rig_submit(row, ++id, tokens, 0, 10 * conversation);
    q->flags = flags;
    uint32_t slot = rig_start(row, q, tokens), reused = atomic_load(&q->kv_valid);
    q->stats.prefill_ns = (uint64_t)COST_NS * (tokens - reused) / tokens;
    atomic_store(&q->kv_valid, tokens - 1);
    rig_end(row, slot, q, true);
    return reused;
}

static double within_pool(void)
{
    return w.slots.worth.balance.saved_ns[0];
}

static double beside_pool(void)
{
    double ns = 0;
    for (uint32_t i = 1; i <= BALANCE_MOST; i++)
        ns += w.slots.worth.balance.saved_ns[i];
    return ns;
}

START_TEST(what_the_pool_has_is_worth_no_more)
{
    converse(0, 200, 1, 0);
    ck_assert_uint_eq(converse(1, 201, 1, 0), 199);
    ck_assert_double_gt(within_pool(), 0.9 * COST_NS);
    ck_assert_double_eq(beside_pool(), 0);
}
END_TEST

/* Two conversations, of which the pool holds one. */
START_TEST(what_was_given_up_would_have_been_worth_memory)
{
    converse(0, 300, 1, 0);
    converse(1, 300, 2, 0);
    ck_assert_double_eq(beside_pool(), 0);
    uint32_t rows = converse(2, 320, 1, 0);
    ck_assert_uint_lt(rows, 200);
    double lost = (double)COST_NS * (256 - rows) / 300; /* of whole tiles */
    ck_assert_double_ge(beside_pool(), 0.9 * lost);
    ck_assert_double_le(beside_pool(), COST_NS);
}
END_TEST

/* Both fit beside the pool: what is saved now is counted where it was missing before. */
START_TEST(what_is_kept_beside_the_pool_is_worth_it)
{
    spare = 8 * MIB;
    converse(0, 300, 1, 0);
    converse(1, 300, 2, 0);
    ck_assert_uint_eq(converse(2, 320, 1, 0), 299);
    ck_assert_double_ge(beside_pool(), 0.9 * COST_NS);
}
END_TEST

/* A new conversation; the title of one; one that keeps nothing. */
START_TEST(nothing_is_missed_by_others)
{
    converse(0, 300, 1, 0);
    converse(1, 300, 2, 0);
    converse(2, 320, 3, 0);
    ck_assert_double_eq(beside_pool(), 0);
    converse(3, 320, 1, KV_FLAG_NO_CACHE);
    ck_assert_double_eq(beside_pool(), 0);
}
END_TEST

/* Nor what a user removed. */
START_TEST(what_was_removed_is_not_missed)
{
    converse(0, 300, 1, 0);
    converse(1, 300, 2, 0);
    kept_clear(&w.slots);
    converse(2, 320, 1, 0);
    ck_assert_double_eq(beside_pool(), 0);
}
END_TEST

/* Memory that --keep-kv forbids would not be used. */
START_TEST(what_may_not_be_kept_is_not_missed)
{
    w.params.keep_kv = kv_sequence_bytes(&w.shape, 100);
    converse(0, 300, 1, 0);
    converse(1, 90, 2, 0);
    converse(2, 320, 1, 0);
    ck_assert_double_eq(beside_pool(), 0);
}
END_TEST

/* More conversations than can be remembered, of all lengths. */
START_TEST(any_number_is_remembered_or_forgotten)
{
    for (uint32_t i = 0; i < 500; i++)
        converse(i % 8, 20 + i * 37 % 370, i % 23, 0);
    ck_assert_double_gt(beside_pool(), 0);
}
END_TEST

/* A wish follows what was missed, and none where the preset depends on what is in memory. */
START_TEST(memory_is_wished_for)
{
    struct directory_head head = {.kv_lent_max_mib = 64};
    w.child.directory.head = &head;
    converse(0, 300, 1, 0);
    converse(1, 300, 2, 0);
    worth_tick(&w.slots, 1000000000);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_wanted_bytes), 0);
    converse(2, 320, 1, 0);
    worth_tick(&w.slots, 2000000000);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_wanted_bytes), MIB);
    ck_assert_uint_gt(counter_get(&w.row, CTR_COMPUTE_kv_step_ns), 0);
    converse(3, 320, 2, 0);
    struct error error; /* a successor */
    free(w.slots.worth.hash);
    w.slots.worth = (struct worth){.hash = NULL};
    ck_assert_int_eq(worth_open(&w.slots, &error), 0);
    ck_assert_uint_eq(w.slots.worth.balance.steps, 1);
    converse(4, 320, 1, 0);
    w.slots.lossy = true;
    worth_tick(&w.slots, 3000000000);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_wanted_bytes), 0);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("worth");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_the_pool_has_is_worth_no_more);
    tcase_add_test(t, what_was_given_up_would_have_been_worth_memory);
    tcase_add_test(t, what_is_kept_beside_the_pool_is_worth_it);
    tcase_add_test(t, nothing_is_missed_by_others);
    tcase_add_test(t, what_was_removed_is_not_missed);
    tcase_add_test(t, what_may_not_be_kept_is_not_missed);
    tcase_add_test(t, any_number_is_remembered_or_forgotten);
    tcase_add_test(t, memory_is_wished_for);
    return rig_main("worth", t);
}
