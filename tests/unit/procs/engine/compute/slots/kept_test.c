/* SPDX-License-Identifier: Apache-2.0 */
/* Kept keys and values: how much of a kept sequence serves a prompt, who gets which slot, and what
 * a successor of compute does with slots in any state. */

#include "lib/base/random.h"
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#define CONTEXT 400

/* A position has 64 bytes in each of 6 regions: 64 positions are a page of each. */
static const struct model_hparams shape = {
    .layers = 3, .kv_heads = 2, .head_size = 16, .vocab = 100};

static void setup(void)
{
    rig_open(&shape, CONTEXT, 256, 0);
}

static uint64_t slots_bytes(void)
{
    return counter_get(&w.row, CTR_COMPUTE_kv_bytes);
}

static struct kv_request *submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    return rig_submit(row, id, tokens, differs, 50);
}

static uint32_t start(uint32_t row, struct kv_request *q)
{
    return rig_start(row, q, atomic_load(&q->log_tokens));
}

static void finish(uint32_t row, uint32_t slot, struct kv_request *q, bool keep)
{
    atomic_store(&q->kv_valid, atomic_load(&q->log_tokens) - 1);
    rig_end(row, slot, q, keep);
}

static uint32_t run(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    struct kv_request *q = submit(row, id, tokens, differs);
    uint32_t slot = start(row, q), reused = atomic_load(&q->kv_valid);
    ck_assert_uint_eq(q->stats.cached, reused);
    finish(row, slot, q, true);
    return reused;
}

/* A sequence of a conversation of its own from position `differs` on; returns the rows that were
 * reused. */
static uint32_t converse(uint64_t id, uint32_t tokens, uint32_t differs, uint32_t conversation)
{
    struct kv_request *q = rig_submit(id % 8, 100 + id, tokens, differs, 10 * conversation);
    uint32_t slot = start(id % 8, q), reused = atomic_load(&q->kv_valid);
    finish(id % 8, slot, q, true);
    return reused;
}

START_TEST(prefix_ends_at_the_first_difference)
{
    static const _Atomic uint32_t kept[] = {5, 6, 7, 8}, log[] = {5, 6, 9, 8, 5, 6, 7, 8};
    ck_assert_uint_eq(kept_prefix(kept, 4, log, 8), 2);
    ck_assert_uint_eq(kept_prefix(kept, 1, log, 8), 1);
    ck_assert_uint_eq(kept_prefix(kept, 0, log, 8), 0);
    ck_assert_uint_eq(kept_prefix(kept + 1, 3, log, 8), 0);
    /* the last token is always computed */
    ck_assert_uint_eq(kept_prefix(kept, 4, log + 4, 4), 3);
    ck_assert_uint_eq(kept_prefix(kept, 4, log + 4, 1), 0);
    ck_assert_uint_eq(kept_prefix(kept, 4, log, 2), 1);
}
END_TEST

START_TEST(a_longer_prompt_reuses_all)
{
    ck_assert_uint_eq(run(0, 1, 100, CONTEXT), 0);
    ck_assert_uint_eq(slots_bytes(), kv_sequence_bytes(&w.shape, 99));
    ck_assert_uint_eq(run(1, 2, 150, CONTEXT), 99);
    ck_assert_uint_eq(run(2, 3, 150, CONTEXT), 149);
    ck_assert_uint_eq(run(3, 4, 150, 70), 70);      /* diverges */
    ck_assert_uint_eq(run(4, 5, 150, 70), 149);     /* and is itself kept */
    ck_assert_uint_eq(run(5, 6, 40, CONTEXT), 39);  /* shorter */
    ck_assert_uint_eq(run(6, 7, 150, CONTEXT), 39); /* what was left of it */
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_sequences_reused), 6);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_tokens_reused), 99 + 149 + 70 + 149 + 78);
    ck_assert_uint_eq(slots_bytes(), counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes));
}
END_TEST

/* With more slots, more conversations are kept; the one that was used longest ago goes first. */
START_TEST(several_are_kept)
{
    static const struct kv_counts counts = {.sequences = 1, .kept = 3};
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    for (uint32_t i = 1; i <= 3; i++)
        ck_assert_uint_eq(converse(i, 50 + i, 0, i), 0);
    for (uint32_t i = 1; i <= 3; i++)
        ck_assert_uint_eq(converse(i, 70 + i, 0, i), 49 + i);
    ck_assert_uint_eq(converse(4, 90, 0, 4), 0); /* instead of 1 */
    ck_assert_uint_eq(converse(5, 74, 0, 3), 72);
    ck_assert_uint_eq(converse(6, 74, 0, 2), 71);
    ck_assert_uint_eq(converse(7, 74, 0, 1), 0); /* instead of 4 */
    ck_assert_uint_eq(converse(8, 74, 0, 4), 0); /* instead of 3 */
    ck_assert_uint_eq(slots_bytes(), counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes));
    kept_check(&w.slots); /* a successor */
    ck_assert_uint_eq(converse(9, 74, 0, 2), 73);
    ck_assert_uint_eq(converse(10, 390, 0, 5), 0); /* has the memory of all */
    ck_assert_uint_eq(converse(11, 74, 0, 2), 0);
    w.params.keep_kv = kv_sequence_bytes(&w.shape, 64) * 2;
    for (uint32_t i = 6; i <= 8; i++)
        ck_assert_uint_eq(converse(i, 60, 0, i), 0);
    ck_assert_uint_eq(slots_bytes(), w.params.keep_kv);
    ck_assert_uint_eq(converse(9, 60, 0, 7), 59);
    ck_assert_uint_eq(converse(10, 60, 0, 8), 59);
    ck_assert_uint_eq(converse(11, 60, 0, 6), 0);
}
END_TEST

START_TEST(some_sequences_neither_use_nor_leave)
{
    run(0, 1, 100, CONTEXT);
    static const uint32_t flags[] = {KV_FLAG_NO_CACHE, KV_FLAG_SCORE_PROMPT};
    for (uint32_t i = 0; i < 2; i++) {
        struct kv_request *q = submit(1, 10 + i, 100, CONTEXT);
        q->flags = flags[i];
        uint32_t slot = start(1, q);
        ck_assert_uint_eq(atomic_load(&q->kv_valid), 0);
        finish(1, slot, q, true);
    }
    struct kv_request *q = submit(1, 20, 100, 0); /* failed: nothing of it is kept */
    finish(1, start(1, q), q, false);
    ck_assert_uint_eq(run(2, 30, 100, CONTEXT), 99);
    w.params.deterministic = true;
    ck_assert_uint_eq(run(2, 31, 100, CONTEXT), 0);
    w.params.deterministic = false;
    w.params.keep_kv = 0;
    ck_assert_uint_eq(run(2, 32, 100, CONTEXT), 0);
}
END_TEST

START_TEST(rows_of_another_lossy_preset_are_not_used)
{
    run(0, 1, 100, CONTEXT);
    w.slots.preset = 1; /* lossless, too */
    ck_assert_uint_eq(run(0, 2, 100, CONTEXT), 99);
    w.slots.lossy = true;
    w.slots.preset = 2;
    ck_assert_uint_eq(run(0, 3, 100, CONTEXT), 0);
    ck_assert_uint_eq(run(0, 4, 100, CONTEXT), 99); /* the same lossy one */
    w.slots.lossy = false;
    w.slots.preset = 0;
    ck_assert_uint_eq(run(0, 5, 100, CONTEXT), 0);
}
END_TEST

START_TEST(memory_is_bounded_and_yields)
{
    uint64_t reserved = kv_sequence_bytes(&w.shape, CONTEXT);
    w.params.keep_kv = kv_sequence_bytes(&w.shape, 128);
    run(0, 1, 300, CONTEXT);
    ck_assert_uint_eq(slots_bytes(), kv_sequence_bytes(&w.shape, 128));
    ck_assert_uint_eq(run(1, 2, 300, CONTEXT), 128); /* its beginning */

    struct kv_request *q = submit(2, 3, 200, 0); /* both fit */
    uint32_t slot = start(2, q);
    ck_assert_uint_gt(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), 0);
    struct error error;
    for (uint32_t tokens = 200; tokens <= CONTEXT; tokens += 50) {
        ck_assert_int_eq(kept_resize(&w.slots, slot, tokens, &error), 0);
        ck_assert_uint_le(slots_bytes(), reserved);
    }
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), 0); /* it yielded */
    finish(2, slot, q, true);
}
END_TEST

START_TEST(a_successor_continues)
{
    run(0, 1, 100, CONTEXT);
    kept_check(&w.slots);
    struct kv_request *q = submit(1, 2, 300, CONTEXT);
    uint32_t slot = start(1, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 99);
    atomic_store(&q->kv_valid, 200);
    memset(&w.row, 0, sizeof w.row);
    kept_check(&w.slots); /* killed here */
    q->stats.resumes = 1;
    ck_assert_uint_eq(start(1, q), slot);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 200);
    ck_assert_uint_eq(q->stats.cached, 99);
    ck_assert_uint_eq(kept_owned(&w.slots, q), slot); /* to be freed if it is not computed again */

    atomic_store(&w.head->slot[slot].owner, 0); /* killed after it was kept, before the end state */
    atomic_store(&w.head->slot[slot].rows, 0);
    kept_check(&w.slots);
    ck_assert_uint_eq(slots_bytes(), 0);
    start(1, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 0); /* computed again */
}
END_TEST

START_TEST(contradictory_slots_are_emptied)
{
    struct random r;
    random_seed(&r, 4, 0);
    for (int round = 0; round < 2000; round++) {
        for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
            atomic_store(&w.head->request[i].state, KV_FREE);
        run(0, 1, 300, CONTEXT);
        struct kv_request *q = submit(1, 2, 300, CONTEXT);
        for (uint32_t i = 0; i < w.head->slots; i++) {
            struct kv_slot *s = &w.head->slot[i];
            if (random_u64(&r) % 2)
                atomic_store(&s->owner, random_u64(&r) % 4);
            if (random_u64(&r) % 2)
                atomic_store(&s->rows, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
            if (random_u64(&r) % 4 == 0)
                atomic_store(&s->allocated, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
        }
        atomic_store(&q->kv_valid, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
        kept_check(&w.slots);
        q->stats.resumes = 1;
        uint32_t slot = start(1, q);
        ck_assert_uint_lt(slot, w.head->slots);
        ck_assert_uint_le(atomic_load(&q->kv_valid), 300);
        ck_assert_uint_le(slots_bytes(), kv_sequence_bytes(&w.shape, CONTEXT));
        finish(1, slot, q, true);
        ck_assert_uint_le(slots_bytes(), kv_sequence_bytes(&w.shape, CONTEXT));
    }
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("kept");
    tcase_add_checked_fixture(t, setup, rig_close);
    tcase_add_test(t, prefix_ends_at_the_first_difference);
    tcase_add_test(t, a_longer_prompt_reuses_all);
    tcase_add_test(t, several_are_kept);
    tcase_add_test(t, some_sequences_neither_use_nor_leave);
    tcase_add_test(t, rows_of_another_lossy_preset_are_not_used);
    tcase_add_test(t, memory_is_bounded_and_yields);
    tcase_add_test(t, a_successor_continues);
    tcase_add_test(t, contradictory_slots_are_emptied);
    return rig_main("kept", t);
}
