/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that begin alike: each has its own rows, and what they have in common is there once. */
#include <string.h>

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

static uint64_t shared_bytes(void)
{
    return counter_get(&w.row, CTR_COMPUTE_kv_shared_bytes);
}

static struct kv_request *submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    return rig_submit(row, id, tokens, differs, 50);
}

static uint32_t start(uint32_t row, struct kv_request *q)
{
    return rig_start(row, q, atomic_load(&q->log_tokens));
}

static void fill(uint32_t slot, uint32_t tokens, unsigned byte)
{
    for (uint32_t layer = 0; layer < shape.layers; layer++) {
        memset(kv_keys(&w.child.kv, slot, layer), (int)byte, tokens * 64ul);
        memset(kv_values(&w.child.kv, slot, layer), (int)byte + 1, tokens * 64ul);
    }
}

/* As the passes of a sequence do. */
static void write_from(uint32_t slot, uint32_t from, uint32_t to, unsigned byte)
{
    for (uint32_t layer = 0; layer < shape.layers; layer++) {
        memset((char *)kv_keys(&w.child.kv, slot, layer) + from * 64ul, (int)byte,
               (to - from) * 64ul);
        memset((char *)kv_values(&w.child.kv, slot, layer) + from * 64ul, (int)byte + 1,
               (to - from) * 64ul);
    }
}

static void check_filled(uint32_t slot, uint32_t tokens, unsigned byte)
{
    for (uint32_t layer = 0; layer < shape.layers; layer++) {
        const unsigned char *k = kv_keys(&w.child.kv, slot, layer);
        const unsigned char *v = kv_values(&w.child.kv, slot, layer);
        for (uint32_t i = 0; i < tokens * 64; i++)
            ck_assert(k[i] == byte && v[i] == byte + 1);
    }
}

/* With one that runs, or that is kept for its own conversation: each writes its own rows. */
START_TEST(a_prefix_is_shared)
{
    static const struct kv_counts counts = {.sequences = 2, .kept = 1};
    for (int kept = 0; kept < 2; kept++) {
        rig_close();
        rig_open_counts(&shape, CONTEXT, 256, &counts);
        struct kv_request *a = submit(0, 1, 150, CONTEXT), *b = submit(1, 2, 180, 128);
        uint32_t from = start(0, a);
        atomic_store(&a->kv_valid, 149);
        fill(from, 149, 1);
        if (kept)
            rig_end(0, from, a, true);
        uint32_t to = start(1, b);
        ck_assert_uint_ne(from, to);
        ck_assert_uint_eq(atomic_load(&b->kv_valid), 128);
        ck_assert_uint_eq(b->stats.cached, 128);
        check_filled(to, 128, 1);
        ck_assert_uint_eq(shared_bytes(), kv_sequence_bytes(&w.shape, 128));
        write_from(to, 128, 180, 7);
        check_filled(from, 149, 1);
        check_filled(to, 128, 1);
        kept_check(&w.slots); /* killed */
        ck_assert_uint_eq(kept_owned(&w.slots, b), to);
        ck_assert_uint_eq(kept_owned(&w.slots, a), kept ? KEPT_NONE : from);
        atomic_store(&b->kv_valid, 179);
        rig_end(1, to, b, true);
        if (!kept)
            rig_end(0, from, a, true);
    }
}
END_TEST

/* Sixteen sequences with one prompt have it in memory once, and their own rows; whoever of them
 * ends, and wherever compute is killed, the others keep theirs. */
START_TEST(many_share_one_prompt)
{
    enum { MANY = 16, COMMON = 320, ALL = 384 };
    static const struct kv_counts counts = {.sequences = MANY, .kept = 1};
    struct kv_request *q[MANY];
    uint32_t slot[MANY];
    rig_close();
    rig_open_counts(&shape, 2000, 256, &counts); /* the memory of 2000 tokens, for 6144 */
    for (uint32_t i = 0; i < MANY; i++) {
        q[i] = rig_submit(i, 1 + i, ALL, COMMON, 2 + i);
        ck_assert(kept_admits(&w.slots, q[i], kv_log(&w.child.kv, i), ALL, 0));
        slot[i] = start(i, q[i]);
        ck_assert_uint_eq(atomic_load(&q[i]->kv_valid), i > 0 ? COMMON : 0);
        write_from(slot[i], i > 0 ? COMMON : 0, ALL, i > 0 ? i : 99);
        atomic_store(&q[i]->kv_valid, ALL - 1);
    }
    uint64_t one = kv_sequence_bytes(&w.shape, ALL), common = kv_sequence_bytes(&w.shape, COMMON);
    ck_assert_uint_eq(slots_bytes(), common + MANY * (one - common));
    ck_assert_uint_eq(shared_bytes(), (MANY - 1) * common);
    rig_end(0, slot[0], q[0], false); /* it computed the prompt */
    ck_assert_uint_eq(slots_bytes(), common + (MANY - 1) * (one - common));
    kept_check(&w.slots); /* killed */
    for (uint32_t i = 1; i < MANY; i++) {
        ck_assert_uint_eq(kept_take(&w.slots, q[i], kv_log(&w.child.kv, i)), slot[i]);
        ck_assert_uint_eq(atomic_load(&q[i]->kv_valid), ALL - 1);
        check_filled(slot[i], COMMON, 99);
        const unsigned char *k = kv_keys(&w.child.kv, slot[i], 1);
        ck_assert_uint_eq(k[64 * (ALL - 1)], i);
    }
    ck_assert_uint_eq(slots_bytes(), common + (MANY - 1) * (one - common));
}
END_TEST

/* Rows that are read from a file are written from the start, or from the middle of a page. */
START_TEST(rows_are_its_own_before_they_are_written)
{
    static const struct kv_counts counts = {.sequences = 2, .kept = 1};
    static const uint32_t rows[] = {0, 100, 128, 64};
    struct error error;
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    struct kv_request *a = submit(0, 1, 150, CONTEXT), *b = submit(1, 2, 180, 128);
    uint32_t from = start(0, a);
    atomic_store(&a->kv_valid, 149);
    fill(from, 149, 1);
    uint32_t to = start(1, b);
    ck_assert_uint_gt(shared_bytes(), 0);
    ck_assert_int_eq(kept_own(&w.slots, to, rows[_i], &error), 0);
    ck_assert_uint_eq(shared_bytes(), kv_sequence_bytes(&w.shape, rows[_i] / 64 * 64));
    ck_assert_uint_eq(slots_bytes(), kv_sequence_bytes(&w.shape, 150) +
                                         kv_sequence_bytes(&w.shape, 180) - shared_bytes());
    write_from(to, rows[_i], 180, 7);
    check_filled(from, 149, 1);
    check_filled(to, rows[_i], 1);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, rig_close);
    tcase_add_test(t, a_prefix_is_shared);
    tcase_add_test(t, many_share_one_prompt);
    tcase_add_loop_test(t, rows_are_its_own_before_they_are_written, 0, 4);
    return rig_main("shared", t);
}
