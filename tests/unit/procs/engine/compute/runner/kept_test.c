/* SPDX-License-Identifier: Apache-2.0 */
/* Kept keys and values: how much of a kept sequence serves a prompt, who gets which slot, and what
 * a successor of compute does with slots in any state. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/random.h"
#include "procs/engine/compute/compute.h"
#include "procs/engine/compute/runner/kept.h"

#define BOOT    9u
#define CONTEXT 400

/* A position has 64 bytes in each of 6 regions: 64 positions are a page of each. */
static const struct model_hparams shape = {
    .layers = 3, .kv_heads = 2, .head_size = 16, .vocab = 100};

static struct {
    struct child child;
    struct runner runner;
    struct params params;
    struct proc_row row;
    struct procs_head *procs;
    struct model_index model;
    struct kv_head *head;
    struct kv_shape shape;
} w;

static void setup(void)
{
    struct segment s;
    struct error error;
    memset(&w, 0, sizeof w);
    w.shape = kv_shape_of(&shape, KV_TYPE_F16, CONTEXT, 256, 0);
    ck_assert_msg(segment_create(SEGMENT_KV, "kept", BOOT, kv_bytes(&w.shape), &s, &error) == 0,
                  "%s", error.text);
    kv_format(s.base, &w.shape);
    int fd = dup(s.fd);
    segment_detach(&s);
    ck_assert_msg(kv_attach(fd, true, BOOT, &w.child.kv, &error) == 0, "%s", error.text);
    w.procs = calloc(1, sizeof *w.procs);
    ck_assert_ptr_nonnull(w.procs);
    params_defaults(&w.params);
    w.model.hparams = shape;
    w.child.model = &w.model;
    w.child.params = &w.params;
    w.child.row = &w.row;
    w.child.procs.head = w.procs;
    w.runner.child = &w.child;
    w.head = w.child.kv.head;
}

static void teardown(void)
{
    segment_detach(&w.child.kv.segment);
    free(w.procs);
}

static uint64_t slots_bytes(void)
{
    return counter_get(&w.row, CTR_COMPUTE_kv_bytes);
}

/* A request in row `row` with a log of `tokens` tokens: 1, 2, 3 ..., different from `differs` on. */
static struct kv_request *submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    struct error error;
    struct kv_request *q = &w.head->request[row];
    ck_assert_int_eq(kv_log_allocate(&w.child.kv, row, CONTEXT, &error), 0);
    _Atomic uint32_t *log = kv_log(&w.child.kv, row);
    for (uint32_t i = 0; i < CONTEXT; i++)
        atomic_store(&log[i], (i + (i >= differs ? 50 : 0)) % shape.vocab);
    memset(&q->stats, 0, sizeof q->stats);
    q->flags = 0;
    atomic_store(&q->id, id);
    atomic_store(&q->prompt_tokens, tokens);
    atomic_store(&q->log_tokens, tokens);
    atomic_store(&q->kv_valid, 0);
    atomic_store(&q->state, KV_RUNNING);
    return q;
}

static uint32_t start(uint32_t row, struct kv_request *q)
{
    struct error error;
    uint32_t slot = kept_take(&w.runner, q, kv_log(&w.child.kv, row));
    ck_assert_int_eq(kept_resize(&w.runner, slot, atomic_load(&q->log_tokens), &error), 0);
    return slot;
}

static void finish(uint32_t row, uint32_t slot, struct kv_request *q, bool keep)
{
    atomic_store(&q->kv_valid, atomic_load(&q->log_tokens) - 1);
    kept_end(&w.runner, slot, q, kv_log(&w.child.kv, row), keep);
    atomic_store(&q->state, KV_DONE);
}

static uint32_t run(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    struct kv_request *q = submit(row, id, tokens, differs);
    uint32_t slot = start(row, q), reused = atomic_load(&q->kv_valid);
    ck_assert_uint_eq(q->stats.cached, reused);
    finish(row, slot, q, true);
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
    w.runner.experts.preset = 1; /* lossless, too */
    ck_assert_uint_eq(run(0, 2, 100, CONTEXT), 99);
    w.runner.experts.knobs.precision = PRECISION_RULE_HOBBIT;
    w.runner.experts.preset = 2;
    ck_assert_uint_eq(run(0, 3, 100, CONTEXT), 0);
    ck_assert_uint_eq(run(0, 4, 100, CONTEXT), 99); /* the same lossy one */
    w.runner.experts.knobs.precision = PRECISION_RULE_LOSSLESS;
    w.runner.experts.preset = 0;
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
        ck_assert_int_eq(kept_resize(&w.runner, slot, tokens, &error), 0);
        ck_assert_uint_le(slots_bytes(), reserved);
    }
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), 0); /* it yielded */
    finish(2, slot, q, true);
}
END_TEST

START_TEST(a_successor_continues)
{
    run(0, 1, 100, CONTEXT);
    kept_check(&w.runner);
    struct kv_request *q = submit(1, 2, 300, CONTEXT);
    uint32_t slot = start(1, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 99);
    atomic_store(&q->kv_valid, 200);
    memset(&w.row, 0, sizeof w.row);
    kept_check(&w.runner); /* killed here */
    q->stats.resumes = 1;
    ck_assert_uint_eq(start(1, q), slot);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 200);
    ck_assert_uint_eq(q->stats.cached, 99);
    ck_assert_uint_eq(kept_owned(&w.runner, q), slot); /* to be freed if it is not computed again */

    atomic_store(&w.head->slot[slot].owner, 0); /* killed after it was kept, before the end state */
    atomic_store(&w.head->slot[slot].rows, 0);
    kept_check(&w.runner);
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
        for (uint32_t i = 0; i < KV_SLOTS; i++) {
            struct kv_slot *s = &w.head->slot[i];
            if (random_u64(&r) % 2)
                atomic_store(&s->owner, random_u64(&r) % 4);
            if (random_u64(&r) % 2)
                atomic_store(&s->rows, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
            if (random_u64(&r) % 4 == 0)
                atomic_store(&s->allocated, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
        }
        atomic_store(&q->kv_valid, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
        kept_check(&w.runner);
        q->stats.resumes = 1;
        uint32_t slot = start(1, q);
        ck_assert_uint_lt(slot, KV_SLOTS);
        ck_assert_uint_le(atomic_load(&q->kv_valid), 300);
        ck_assert_uint_le(slots_bytes(), kv_sequence_bytes(&w.shape, CONTEXT));
        finish(1, slot, q, true);
        ck_assert_uint_le(slots_bytes(), kv_sequence_bytes(&w.shape, CONTEXT));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kept");
    TCase *t = tcase_create("kept");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, prefix_ends_at_the_first_difference);
    tcase_add_test(t, a_longer_prompt_reuses_all);
    tcase_add_test(t, some_sequences_neither_use_nor_leave);
    tcase_add_test(t, rows_of_another_lossy_preset_are_not_used);
    tcase_add_test(t, memory_is_bounded_and_yields);
    tcase_add_test(t, a_successor_continues);
    tcase_add_test(t, contradictory_slots_are_emptied);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
