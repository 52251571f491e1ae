/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a running sequence will have for another one: as many as are announced can be taken
 * once it has computed them, of each kind of state. */

#include "lib/base/random.h"
#include "procs/engine/compute/slots/alike.h"
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#define CONTEXT 2000
#define PROMPT  600

enum kind { ROWS, RECURRENT, RINGS, BOTH, KINDS };

static uint32_t chunk;

static void setup_of(enum kind kind, uint32_t every)
{
    static const struct kv_counts counts = {
        .sequences = 3, .kept = 2, .reserved = 3, .checkpoints = 8};
    struct model_hparams h = {.layers = 3,
                              .hidden = 64,
                              .heads = 2,
                              .kv_heads = 2,
                              .head_size = 16,
                              .vocab = 100,
                              .window = kind >= RINGS ? 64 : 0,
                              .conv_taps = kind == RECURRENT || kind == BOTH ? 4 : 0};
    if (kind >= RINGS)
        h.layer_kind[1] = LAYER_WINDOW;
    if (kind == RECURRENT || kind == BOTH) {
        h.layer_kind[2] = LAYER_RECURRENT;
        h.layer_mixer[2] = MIXER_SHORTCONV;
    }
    chunk = 50;
    rig_open_counts(&h, CONTEXT, chunk, &counts);
    w.params.checkpoint_tokens = every;
}

static const _Atomic uint32_t *log_of(uint32_t row)
{
    return kv_log(&w.child.kv, row);
}

/* Until it has so many rows, or more. */
static void compute(uint32_t slot, struct kv_request *q, uint32_t rows)
{
    struct state_pass p;
    struct error error;
    for (uint32_t at; (at = atomic_load(&q->kv_valid)) < rows;) {
        uint32_t left = atomic_load(&q->prompt_tokens) - at;
        uint32_t n = state_rows(&w.slots, q, at, left < chunk ? left : chunk);
        ck_assert_int_eq(state_begin(&w.slots, slot, q, at, n, &p, &error), 0);
        state_end(&w.slots, slot, q, &p, at + n);
        atomic_store(&q->kv_valid, at + n);
    }
}

static uint32_t start(uint32_t row, struct kv_request *q)
{
    return rig_start(row, q, atomic_load(&q->log_tokens));
}

/* Two prompts that differ anywhere, when the first one has any number of rows. */
START_TEST(what_is_announced_can_be_taken)
{
    struct random r;
    uint32_t announced = 0;
    random_seed(&r, 5, (uint64_t)_i);
    for (uint32_t round = 0; round < 60; round++) {
        setup_of((enum kind)_i, round % 2 ? 64 : CONTEXT);
        uint32_t tokens = 10 + (uint32_t)random_below(&r, PROMPT);
        uint32_t differs = random_below(&r, 3) ? (uint32_t)random_below(&r, PROMPT) : CONTEXT;
        struct kv_request *a = rig_submit(0, 1, tokens, CONTEXT, 0);
        uint32_t from = start(0, a);
        compute(from, a, (uint32_t)random_below(&r, tokens));
        struct kv_request *b =
            rig_submit(1, 2, 10 + (uint32_t)random_below(&r, PROMPT), differs, 7);
        uint32_t gives = alike_gives(&w.slots, from, b, log_of(1));
        uint32_t has = alike_rows(&w.slots, b, log_of(1)), rows = atomic_load(&a->kv_valid);
        ck_assert(gives == 0 || (gives > rows && gives <= differs && gives <= tokens));
        if (gives > 0) {
            alike_await(&w.slots, from, gives);
            compute(from, a, gives);
            announced++;
        }
        uint32_t to = start(1, b);
        ck_assert_uint_ge(atomic_load(&b->kv_valid), gives > has ? gives : has);
        ck_assert_uint_ne(to, from);
        compute(to, b, atomic_load(&b->prompt_tokens));
        rig_end(0, from, a, true);
        rig_end(1, to, b, true);
        rig_close();
    }
    ck_assert_uint_gt(announced, 10);
}
END_TEST

START_TEST(nothing_is_announced_where_nothing_is_kept)
{
    setup_of(ROWS, 64);
    struct kv_request *a = rig_submit(0, 1, 300, CONTEXT, 0),
                      *b = rig_submit(1, 2, 300, CONTEXT, 0);
    uint32_t slot = start(0, a);
    ck_assert_uint_eq(alike_gives(&w.slots, slot, b, log_of(1)), 299);
    b->flags = KV_FLAG_NO_CACHE;
    ck_assert_uint_eq(alike_gives(&w.slots, slot, b, log_of(1)), 0);
    b->flags = 0;
    a->flags = KV_FLAG_SCORE_PROMPT;
    ck_assert_uint_eq(alike_gives(&w.slots, slot, b, log_of(1)), 0);
    a->flags = 0;
    w.params.keep_kv = 0;
    ck_assert_uint_eq(alike_gives(&w.slots, slot, b, log_of(1)), 0);
    w.params.keep_kv = UINT64_MAX / 4;
    rig_end(0, slot, a, true); /* it computes no more */
    ck_assert_uint_eq(alike_gives(&w.slots, slot, b, log_of(1)), 0);
    rig_close();
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("alike");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_is_announced_can_be_taken, 0, KINDS);
    tcase_add_test(t, nothing_is_announced_where_nothing_is_kept);
    return rig_main("alike", t);
}
