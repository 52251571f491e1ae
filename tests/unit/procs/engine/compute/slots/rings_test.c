/* SPDX-License-Identifier: Apache-2.0 */
/* Rings of layers with a window: whatever was killed, cut back, kept and continued before, a pass
 * finds the keys of the window before it; memory is bounded. Here a key is a hash of the tokens up
 * to its position. */

#include <string.h>

#include "lib/base/random.h"
#include "lib/kernels/kernels.h"
#include "procs/engine/compute/slots/kept.h"
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#define CONTEXT 2000
#define EVERY   128
#define HEADS   2
#define SIZE    16

struct kind {
    uint32_t window, chunk, checkpoints;
    bool recurrent;
};

/* Rings of one tile, of several, of a window that is no whole tiles, of a chunk that is larger. */
static const struct kind kinds[] = {{64, 1, 2, false},    {64, 50, 4, false}, {100, 29, 3, false},
                                    {128, 200, 1, false}, {1, 64, 2, false},  {65, 64, 4, true}};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

static uint32_t chunk;

static void setup_counts(const struct kind *k, uint32_t context, const struct kv_counts *counts)
{
    struct model_hparams h = {.layers = 3,
                              .hidden = 64,
                              .heads = HEADS,
                              .kv_heads = HEADS,
                              .head_size = SIZE,
                              .vocab = 100,
                              .window = k->window,
                              .conv_taps = k->recurrent ? 4 : 0};
    h.layer_kind[1] = LAYER_WINDOW;
    if (k->recurrent) {
        h.layer_kind[2] = LAYER_RECURRENT;
        h.layer_mixer[2] = MIXER_SHORTCONV;
    }
    rig_open_counts(&h, context, k->chunk, counts);
    ck_assert_uint_gt(w.shape.ring, 0);
    w.params.checkpoint_tokens = EVERY;
    chunk = k->chunk;
}

static void setup_of(const struct kind *k, uint32_t context)
{
    setup_counts(k, context,
                 &(struct kv_counts){.sequences = 1, .kept = 1, .checkpoints = k->checkpoints});
}

static void setup_with(const struct kind *k)
{
    setup_of(k, CONTEXT);
}

static struct kv_request *submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    return rig_submit(row, id, tokens, differs, (uint32_t)id);
}

/* hash[i]: of the tokens before position i. */
static void hash_log(uint32_t row, uint64_t hash[CONTEXT + 1])
{
    hash[0] = 1;
    for (uint32_t i = 0; i < w.head->context; i++)
        hash[i + 1] = hash[i] * 6364136223846793005u + atomic_load(&kv_log(&w.child.kv, row)[i]);
}

/* Of a head, in layer 0 (all positions) and layer 1. */
static uint64_t *at(uint32_t slot, uint32_t layer, uint32_t position, uint32_t head, bool values)
{
    char *base = values ? kv_values(&w.child.kv, slot, layer) : kv_keys(&w.child.kv, slot, layer);
    uint32_t p = kernel_ring_position(layer == 1 ? w.head->ring : 0, position);
    size_t row = p % KV_TILE * SIZE * sizeof(uint16_t);
    return (uint64_t *)(base + kernel_kv_tile(KV_TYPE_F16, HEADS, SIZE, p, head) + row);
}

static void check_position(uint32_t slot, uint32_t layer, uint32_t position, uint64_t want)
{
    for (uint32_t i = 0; i < 2 * HEADS; i++)
        if (*at(slot, layer, position, i / 2, i % 2) != want + i)
            ck_abort_msg("layer %u: position %u is another one's", layer, position);
}

/* Rows of a pass; each attends to its window, before and after all of the chunk is written.
 * `written`: of the rows, before compute is killed. */
static void pass(uint32_t slot, struct kv_request *q, const uint64_t hash[], uint32_t rows,
                 uint32_t written, bool commits)
{
    struct error error;
    struct state_pass p;
    uint32_t position = atomic_load(&q->kv_valid), window = w.model.hparams.window;
    rows = state_rows(&w.slots, q, position, rows);
    ck_assert_int_eq(state_begin(&w.slots, slot, q, position, rows, &p, &error), 0);
    if (p.before)
        ck_assert_uint_eq(*(const uint64_t *)p.before, hash[position]);
    for (uint32_t r = 0; r < rows && r < written; r++)
        for (uint32_t i = 0; i < 2 * HEADS; i++)
            *at(slot, 0, position + r, i / 2, i % 2) = *at(slot, 1, position + r, i / 2, i % 2) =
                hash[position + r + 1] + i;
    if (written < rows)
        return;
    for (uint32_t i = position > window - 1 ? position - (window - 1) : 0; i < position + rows; i++)
        check_position(slot, 1, i, hash[i + 1]);
    for (uint32_t i = 0; i < position; i += 101)
        check_position(slot, 0, i, hash[i + 1]);
    if (p.after)
        *(uint64_t *)p.after = hash[position + rows];
    state_end(&w.slots, slot, q, &p, position + rows);
    if (commits)
        atomic_store(&q->kv_valid, position + rows);
}

static void run_to(uint32_t slot, struct kv_request *q, const uint64_t hash[], uint32_t end)
{
    while (atomic_load(&q->kv_valid) < end) {
        uint32_t left = end - atomic_load(&q->kv_valid);
        pass(slot, q, hash, left < chunk ? left : chunk, UINT32_MAX, true);
    }
}

/* A prompt and `more` tokens of a response; returns the rows that were taken over. */
static uint32_t run(uint64_t id, uint32_t tokens, uint32_t more, uint32_t differs)
{
    uint64_t hash[CONTEXT + 1];
    uint32_t row = (uint32_t)id % 8;
    struct kv_request *q = submit(row, id, tokens, differs);
    hash_log(row, hash);
    uint32_t slot = rig_start(row, q, tokens), reused = atomic_load(&q->kv_valid);
    run_to(slot, q, hash, tokens);
    rig_extend(slot, q, tokens + more + 1);
    run_to(slot, q, hash, tokens + more);
    rig_end(row, slot, q, true);
    return reused;
}

/* The end of the sequence, positions that the ring still has, a checkpoint, none. */
START_TEST(a_prompt_continues_within_the_ring_or_from_a_checkpoint)
{
    setup_with(&kinds[1]); /* a ring of 128: 64 + 50 - 1 */
    ck_assert_uint_eq(w.head->ring, 128);
    ck_assert_uint_eq(run(1, 1000, 200, CONTEXT), 0);
    ck_assert_uint_eq(run(2, 1300, 0, CONTEXT), 1200);   /* extends */
    ck_assert_uint_eq(run(3, 1300, 0, 1280), 1280);      /* 1300 - 128 + 63 = 1235 or more */
    ck_assert_uint_eq(run(4, 1330, 270, CONTEXT), 1300); /* the second, of which it has a part */
    ck_assert_uint_eq(run(5, 1340, 470, 1330), 1322);    /* before the end of the prompt */
    ck_assert_uint_eq(run(6, 700, 0, 90), 0);
    rig_close();
}
END_TEST

/* A sequence of one position more than the ring, which is one less than the context: its last token
 * has no row. */
START_TEST(a_context_barely_longer_than_the_ring)
{
    setup_of(&(const struct kind){64, 129, 0, false}, 194);
    ck_assert_uint_eq(w.head->ring, 192);
    ck_assert_uint_eq(run(1, 190, 3, CONTEXT), 0);
    ck_assert_uint_eq(run(2, 190, 3, 100), 100);
    ck_assert_uint_eq(run(3, 190, 3, 64), 64); /* 193 - 192 + 63 */
    ck_assert_uint_eq(run(4, 190, 3, 63), 0);
    rig_close();
}
END_TEST

/* Killed while the rings get the window of a checkpoint, if they are to: anything is in them. */
static bool torn(uint32_t row, uint32_t slot, struct kv_request *q, uint32_t end)
{
    uint32_t position = atomic_load(&q->kv_valid);
    if (position == 0 || position >= atomic_load(&w.head->slot[slot].lowest))
        return false;
    for (uint32_t p = 0; p < w.head->ring; p++)
        for (uint32_t i = 0; i < 2 * HEADS; i++)
            *at(slot, 1, p, i / 2, i % 2) = ~0ull;
    kept_check(&w.slots);
    q->stats.resumes = 1;
    ck_assert_uint_eq(rig_start(row, q, end + 1), slot);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), position);
    return true;
}

/* Kills, and sequences that are cancelled, also before their first pass and after a part of one. */
START_TEST(kills_at_every_point)
{
    struct random r;
    uint32_t reused = 0, restored = 0, tears = 0;
    setup_with(&kinds[_i]);
    random_seed(&r, 11, (uint64_t)_i);
    for (uint32_t round = 1; round < 60; round++) {
        uint64_t hash[CONTEXT + 1];
        uint32_t row = round % 8, tokens = 20 + (uint32_t)(random_u64(&r) % 1200);
        uint32_t differs = random_u64(&r) % 2 ? (uint32_t)(random_u64(&r) % CONTEXT) : CONTEXT;
        uint32_t end = tokens + (uint32_t)(random_u64(&r) % 600);
        struct kv_request *q = submit(row, round, tokens, differs);
        hash_log(row, hash);
        uint32_t slot = rig_start(row, q, end + 1), first = atomic_load(&q->kv_valid);
        reused += first > 0;
        restored += first > 0 && first < atomic_load(&w.head->slot[slot].lowest);
        tears += random_u64(&r) % 2 && torn(row, slot, q, end);
        bool cancelled = random_u64(&r) % 6 == 0;
        while (!cancelled && atomic_load(&q->kv_valid) < end) {
            uint32_t before = atomic_load(&q->kv_valid), left = end - before;
            uint32_t rows = 1 + (uint32_t)(random_u64(&r) % chunk);
            bool killed = random_u64(&r) % 8 == 0;
            uint32_t written = killed ? (uint32_t)(random_u64(&r) % (rows + 2)) : UINT32_MAX;
            pass(slot, q, hash, rows < left ? rows : left, written, !killed);
            cancelled = random_u64(&r) % 32 == 0;
            if (!killed || cancelled)
                continue;
            kept_check(&w.slots);
            q->stats.resumes = 1;
            ck_assert_uint_eq(rig_start(row, q, end + 1), slot);
            ck_assert_uint_eq(atomic_load(&q->kv_valid), before);
        }
        rig_end(row, slot, q, random_u64(&r) % 8 > 0);
        if (random_u64(&r) % 4 == 0)
            kept_check(&w.slots);
        ck_assert_uint_le(counter_get(&w.row, CTR_COMPUTE_kv_bytes),
                          kv_sequence_bytes(&w.shape, CONTEXT) +
                              kv_states_bytes(&w.shape, w.shape.states));
    }
    ck_assert_uint_gt(reused, 10);
    ck_assert_uint_gt(restored, 0);
    ck_assert_uint_gt(tears, 0);
    rig_close();
}
END_TEST

/* Whatever the limit, what is kept is within it, and serves a prompt: the end of the sequence, or
 * its beginning up to a checkpoint. */
START_TEST(a_limit_keeps_the_beginning)
{
    setup_with(&kinds[_i]);
    uint64_t one = kv_states_bytes(&w.shape, 1), whole = kv_sequence_bytes(&w.shape, 1000);
    uint32_t id = 1, parts = 0, reused = 0;
    for (uint64_t limit = one / 2; limit < whole + 3 * one; limit += one / 3, id++) {
        w.params.keep_kv = limit;
        run(id, 1000, 0, 0);
        ck_assert_uint_le(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), limit);
        w.params.keep_kv = UINT64_MAX / 4;
        reused = run(id, 1001, 0, 0);
        parts += reused > 0 && reused < 1000;
        /* One limit at a time: beside what is kept without a limit, which a prompt has continued
         * from, the next sequence makes no checkpoint, because its own are worth less. */
        kept_clear(&w.slots);
    }
    ck_assert_uint_gt(parts, 0);
    ck_assert_uint_eq(reused, 1000);
    rig_close();
}
END_TEST

/* Claims no more than there is: nothing, or a version without windows. */
static void damage(uint32_t version)
{
    struct kv_version *s = &w.head->state[version];
    char *windows = (char *)kv_state_at(&w.child.kv, version) + w.head->windows_offset;
    bool kept = atomic_load(&s->tag) >> 63;
    atomic_store(&s->tag, w.head->windows_offset > 0 ? atomic_load(&s->tag) & INT64_MAX : 0);
    if (kept)
        memset(windows, 0xff, w.head->state_bytes - w.head->windows_offset);
}

/* Whatever is in the segment: a successor continues where it may, from a checkpoint or from the
 * start. Where only less is claimed to be there than is, with the same keys. */
START_TEST(contradictory_rings_are_not_used)
{
    struct random r;
    setup_with(&kinds[_i]);
    random_seed(&r, 12, (uint64_t)_i);
    for (uint32_t round = 1; round < 200; round++) {
        uint64_t hash[CONTEXT + 1];
        bool less = round % 2;
        for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
            atomic_store(&w.head->request[i].state, KV_FREE);
        uint32_t end = 200 + (uint32_t)(random_u64(&r) % 600);
        struct kv_request *q = submit(0, round, end + 40, 0);
        hash_log(0, hash);
        uint32_t slot = rig_start(0, q, end + 41);
        run_to(slot, q, hash, end);
        _Atomic uint32_t *lowest = &w.head->slot[slot].lowest;
        if (less)
            atomic_store(lowest, atomic_load(lowest) + (uint32_t)(random_u64(&r) % 400));
        else
            atomic_store(lowest, (uint32_t)random_u64(&r) >> random_u64(&r) % 32);
        for (uint32_t i = 0; i < w.head->states; i++)
            if (random_u64(&r) % 3 == 0 && less)
                damage(i);
            else if (random_u64(&r) % 3 == 0 && !less)
                atomic_store(
                    &w.head->state[i].tag,
                    KV_STATE_TAG(random_u64(&r) % 3, random_u64(&r) % 801, random_u64(&r) % 2));
        kept_check(&w.slots);
        q->stats.resumes = 1;
        rig_start(0, q, end + 41);
        uint32_t valid = atomic_load(&q->kv_valid);
        ck_assert_uint_le(valid, end);
        struct state_pass p;
        struct error error;
        if (less)
            run_to(slot, q, hash, end + 40);
        else
            ck_assert_int_eq(state_begin(&w.slots, slot, q, valid, 1, &p, &error), 0);
        rig_end(0, slot, q, less);
    }
    rig_close();
}
END_TEST

/* Two that are kept share their beginning, and have rings of their own. A sequence that needs all
 * of the memory gets it. */
START_TEST(rings_beside_shared_rows_yield)
{
    setup_counts(&kinds[_i], CONTEXT,
                 &(struct kv_counts){.sequences = 2, .kept = 3, .checkpoints = 4, .versions = 8});
    run(1, 900, 0, CONTEXT);
    run(2, 900, 0, 700);
    run(3, 900, 0, 600);
    kept_publish(&w.slots);
    ck_assert_uint_gt(counter_get(&w.row, CTR_COMPUTE_kv_shared_bytes), 0);
    struct kv_request *q = submit(4, 4, 100, 1);
    uint32_t slot = rig_start(4, q, 100);
    for (uint32_t tokens = 100; tokens < CONTEXT; tokens += KV_TILE)
        rig_extend(slot, q, tokens);
    rig_end(4, slot, q, false);
    run(5, CONTEXT - 1, 0, 2);
    kept_clear(&w.slots);
    run(6, 900, 0, CONTEXT);
    run(7, 900, 0, 700);
    run(8, 900, 0, 600);
    for (uint32_t i = 0; i < w.child.kv.slots;
         i++) { /* whoever asks for memory gets some each time */
        const _Atomic uint32_t *rows = &w.head->slot[i].rows;
        for (uint32_t before; (before = atomic_load(rows)) > 0;) {
            kept_cut(&w.slots, i, kv_sequence_bytes(&w.shape, KV_TILE));
            ck_assert_uint_lt(atomic_load(rows), before);
        }
    }
    kept_publish(&w.slots);
    ck_assert_uint_le(counter_get(&w.row, CTR_COMPUTE_kv_bytes), w.child.kv.pool_bytes);
    rig_close();
}
END_TEST

/* A side request that borrows the rows of a conversation overwrites its windows: it gives back all
 * rows nevertheless. */
START_TEST(borrowed_rows_keep_their_windows)
{
    enum { ROWS = 1000, TOKENS = 1600 };
    static const struct kind kind = {64, 400, 4, false};
    uint64_t hash[CONTEXT + 1];
    setup_counts(&kind, CONTEXT,
                 &(struct kv_counts){.sequences = 2, .kept = 1, .checkpoints = kind.checkpoints});
    run(1, ROWS - 300, 300, CONTEXT);
    rig_leave(7, 7, TOKENS, ROWS);
    struct kv_request *q = submit(2, 2, TOKENS, CONTEXT);
    q->flags = KV_FLAG_SIDE;
    hash_log(2, hash);
    uint32_t slot = rig_start(2, q, TOKENS);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), ROWS);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_sequences_copied), 0);
    run_to(slot, q, hash, TOKENS - 1);
    ck_assert_uint_gt(atomic_load(&w.head->slot[slot].lowest), ROWS);
    rig_end(2, slot, q, true);
    ck_assert_uint_eq(atomic_load(&w.head->slot[slot].rows), ROWS);
    ck_assert_uint_eq(run(3, ROWS + 300, 0, CONTEXT), ROWS);
    rig_close();
}
END_TEST

/* A window that is copied to a version and back is that of any row, wherever the ring began. */
START_TEST(windows_are_saved_and_restored)
{
    struct error error;
    setup_with(&kinds[_i]);
    uint32_t ring = w.head->ring, window = w.head->window, slot = 1;
    ck_assert_int_eq(kv_slot_resize(&w.child.kv, slot, CONTEXT, NULL, NULL, &error), 0);
    ck_assert_int_eq(kv_state_allocate(&w.child.kv, 0, &error), 0);
    for (uint32_t rows = 1; rows < 3 * ring && rows < CONTEXT; rows++) {
        uint32_t first = rows > window - 1 ? rows - (window - 1) : 0;
        for (uint32_t p = rows > ring ? rows - ring : 0; p < rows; p++)
            for (uint32_t i = 0; i < 2 * HEADS; i++)
                *at(slot, 1, p, i / 2, i % 2) = p * 1000ull + i;
        kv_windows_save(&w.child.kv, slot, rows, 0);
        memset(kv_keys(&w.child.kv, slot, 1), 0xff, ring * HEADS * SIZE * 2);
        memset(kv_values(&w.child.kv, slot, 1), 0xff, ring * HEADS * SIZE * 2);
        kv_windows_restore(&w.child.kv, slot, rows, 0);
        for (uint32_t p = first; p < rows; p++)
            check_position(slot, 1, p, p * 1000ull);
    }
    rig_close();
}
END_TEST

/* Rings only where they need less memory; then the same whatever the context. */
START_TEST(memory_is_bounded)
{
    static const struct model_hparams h = {.layers = 2,
                                           .heads = 2,
                                           .kv_heads = 2,
                                           .head_size = 64,
                                           .vocab = 9,
                                           .window = 128,
                                           .layer_kind = {LAYER_WINDOW, LAYER_WINDOW}};
    static const struct kv_counts none = {1, 1, 0, 0, 0}, four = {1, 1, 4, 0, 0};
    struct kv_shape little = kv_shape_of(&h, KV_TYPE_F16, 384, 257, &none);
    ck_assert_uint_eq(little.ring, 0); /* 128 + 257 - 1: the context */
    ck_assert_uint_eq(kv_shape_of(&h, KV_TYPE_F16, 385, 257, &none).ring, 384);
    /* 384 positions, and 4 versions of 3 tiles, are more than 1024 positions */
    ck_assert_uint_eq(kv_shape_of(&h, KV_TYPE_F16, 1024, 256, &four).ring, 0);
    ck_assert_uint_eq(kv_shape_of(&h, KV_TYPE_F16, 1024, 256, &four).states, 0);
    struct kv_shape a = kv_shape_of(&h, KV_TYPE_F16, 2048, 256, &four);
    struct kv_shape b = kv_shape_of(&h, KV_TYPE_F16, 100000, 256, &four);
    ck_assert_uint_eq(a.ring, 384);
    ck_assert_uint_eq(a.states, 4);
    ck_assert_uint_eq(kv_sequence_bytes(&a, 2048), 2 * 384 * 2 * 2 * 64 * 2);
    ck_assert_uint_eq(kv_sequence_bytes(&b, 100000), kv_sequence_bytes(&a, 2048));
    ck_assert_uint_eq(kv_sequence_bytes(&a, 64), 2 * 64 * 2 * 2 * 64 * 2);
    ck_assert_uint_eq(kv_states_bytes(&a, 1), 2 * 192 * 2 * 2 * 64 * 2);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("rings");
    tcase_add_test(t, a_prompt_continues_within_the_ring_or_from_a_checkpoint);
    tcase_add_test(t, a_context_barely_longer_than_the_ring);
    tcase_add_loop_test(t, kills_at_every_point, 0, KINDS);
    tcase_add_loop_test(t, a_limit_keeps_the_beginning, 0, KINDS);
    tcase_add_loop_test(t, contradictory_rings_are_not_used, 0, KINDS);
    tcase_add_loop_test(t, rings_beside_shared_rows_yield, 0, KINDS);
    tcase_add_test(t, borrowed_rows_keep_their_windows);
    tcase_add_loop_test(t, windows_are_saved_and_restored, 0, KINDS);
    tcase_add_test(t, memory_is_bounded);
    return rig_main("rings", t);
}
