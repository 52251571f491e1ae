/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes on storage over slots of their own, without a core: a directory, models of each kind of
 * layers, and sequences that run as those of the runner. */
#ifndef SLUICE_TESTS_PREFIXES_RIG_H
#define SLUICE_TESTS_PREFIXES_RIG_H

#include <ftw.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/clock.h"
#include "procs/engine/compute/prefixes/prefixes.h"
#include "procs/engine/compute/prefixes/worker.h"
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#define CONTEXT    2048
#define CHUNK      64
#define WINDOW     100
#define PROMPT     700
#define EVERY      128
#define ARITHMETIC 7

enum shape { ALL, RINGS, RECURRENT, INDEXED };

static char dir[64];
static struct prefixes *p;

static inline void wake(void *arg)
{
    (void)arg;
}

static uint32_t index_top_k; /* of the shape INDEXED */

static inline void open_shape(enum shape shape, uint64_t model)
{
    struct error error;
    struct model_hparams h = {.layers = 3,
                              .hidden = 64,
                              .heads = 2,
                              .kv_heads = 2,
                              .head_size = 16,
                              .vocab = 1000,
                              .window = shape == RINGS ? WINDOW : 0,
                              .conv_taps = shape == RECURRENT ? 4 : 0};
    const struct kv_counts counts = {.sequences = 1, .kept = 3, .checkpoints = 6, .versions = 4};
    if (shape == RINGS)
        h.layer_kind[1] = LAYER_WINDOW;
    if (shape == RECURRENT) {
        h.layer_kind[2] = LAYER_RECURRENT;
        h.layer_mixer[2] = MIXER_SHORTCONV;
    }
    if (shape == INDEXED) {
        h.index_heads = 2;
        h.index_top_k = index_top_k;
        h.index_size = 16;
        h.layer_flags[0] = h.layer_flags[2] = LAYER_INDEXED;
    }
    rig_open_counts(&h, CONTEXT, CHUNK, &counts);
    w.params.checkpoint_tokens = EVERY;
    w.head->model_hash[0] = model;
    strcpy(w.params.prefix_dir, dir);
    p = prefixes_open(&w.slots, ARITHMETIC, wake, NULL, &error);
    ck_assert_msg(p != NULL, "%s", error.text);
}

static inline void close_shape(void)
{
    prefixes_close(p);
    rig_close();
}

static inline void make_dir(void)
{
    strcpy(dir, "/tmp/sluice-prefixes-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static inline int remove_one(const char *name, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(name);
}

static inline void remove_dir(void)
{
    ck_assert_int_eq(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- rows ---- */

static inline uint64_t word(uint32_t layer, int side, uint32_t position)
{
    return 1 + position + 10000ull * layer + 1000000ull * (unsigned)side;
}

/* In the first head. */
static inline uint64_t *row_at(uint32_t slot, uint32_t layer, int side, uint32_t position)
{
    const struct kv *kv = &w.child.kv;
    char *base = side == KV_SIDE_KEYS     ? kv_keys(kv, slot, layer)
                 : side == KV_SIDE_VALUES ? kv_values(kv, slot, layer)
                                          : kv_index(kv, slot, layer);
    bool ring = w.head->ring > 0 && w.head->layer_kind[layer] == LAYER_WINDOW;
    uint32_t at = ring ? position % w.head->ring : position;
    uint64_t tile = side == KV_SIDE_INDEX ? w.head->index_tile_bytes[0]
                                          : w.head->tile_bytes[w.head->layer_kind[layer]][side];
    return (uint64_t *)(void *)(base + at / KV_TILE * tile + at % KV_TILE * 16 * sizeof(uint16_t));
}

static inline int sides(uint32_t layer)
{
    return w.head->layer_indexed[layer] > 0 ? KV_SIDE__COUNT : KV_SIDE_INDEX;
}

static inline bool has_rows(uint32_t layer)
{
    return w.head->layer_kind[layer] != LAYER_RECURRENT;
}

static inline void fill(uint32_t slot, uint32_t from, uint32_t to)
{
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t i = from; i < to && has_rows(layer); i++)
            for (int side = 0; side < sides(layer); side++)
                *row_at(slot, layer, side, i) = word(layer, side, i);
}

/* Runs a sequence to `end` rows, as the runner does. */
static inline void run(uint32_t slot, struct kv_request *q, uint32_t end)
{
    struct error error;
    struct state_pass pass;
    for (uint32_t at; (at = atomic_load(&q->kv_valid)) < end;) {
        uint32_t rows = state_rows(&w.slots, q, at, end - at < CHUNK ? end - at : CHUNK);
        ck_assert_int_eq(state_begin(&w.slots, slot, q, at, rows, &pass, &error), 0);
        if (pass.before)
            ck_assert_uint_eq(*(const uint64_t *)pass.before, at);
        fill(slot, at, at + rows);
        if (pass.after)
            *(uint64_t *)pass.after = at + rows;
        state_end(&w.slots, slot, q, &pass, at + rows);
        atomic_store(&q->kv_valid, at + rows);
    }
}

static inline uint64_t counter(unsigned number)
{
    return counter_get(&w.row, number);
}

static inline void turn_until(unsigned number, uint64_t n)
{
    for (unsigned i = 0; counter(number) < n; i++) {
        ck_assert_msg(i < 60000, "counter %u is %llu", number, (unsigned long long)counter(number));
        prefixes_turn(p, true, 0);
        poll(NULL, 0, 1);
    }
}

static inline struct kv_request *begin(uint64_t id, uint32_t tokens, uint32_t differs,
                                       uint32_t *slot)
{
    struct kv_request *q = rig_submit(0, id, tokens, differs, 77);
    *slot = rig_start(0, q, tokens + 1);
    q->stats.prefill_ns = 0;
    prefixes_begin(p, *slot, q, kv_log(&w.child.kv, 0));
    return q;
}

static inline void load(uint32_t slot, struct kv_request *q)
{
    for (unsigned i = 0; prefixes_loading(p, slot, q); i++) {
        ck_assert_uint_lt(i, 60000);
        poll(NULL, 0, 1);
    }
}

static inline void end(uint32_t slot, struct kv_request *q)
{
    q->stats.prefill_ns = 60 * NS_PER_S; /* worth to be stored */
    prefixes_cancel(p, slot);
    rig_end(0, slot, q, true);
}

static inline void store(void)
{
    uint32_t slot;
    for (unsigned i = 0; i < 30; i++) { /* nothing is kept yet, so nothing is begun */
        prefixes_turn(p, true, 0);
        ck_assert_uint_eq(counter(CTR_COMPUTE_prefix_files), 0);
        poll(NULL, 0, 1);
    }
    struct kv_request *q = begin(1, PROMPT, CONTEXT, &slot);
    load(slot, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 0);
    run(slot, q, PROMPT);
    end(slot, q);
    turn_until(CTR_COMPUTE_prefixes_stored, 1);
}

#endif
