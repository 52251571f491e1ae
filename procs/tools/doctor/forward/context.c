/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what a token takes more when its sequence has many: attention over what it reads of
 * them, and, where an indexer chooses positions, its scores of all and the choice. It is decode_s
 * times the share by which passes at the last position take more processor time than passes at the
 * first one, which compute everything else alike. Other programs change that share least; of times
 * it would be a small difference.
 *
 * Keys and values are zeros in memory that the CPU caches do not hold; layers share it if it is
 * too small for all. Queries are zeros, too, because matrices are, so that scores would be equal
 * and the choice the first positions, which is faster to read than a list. Therefore keys of an
 * indexer are hidden but for as many as are chosen, at random over all (hidden.h). */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/tools/doctor/forward/forward.h"
#include "procs/tools/doctor/forward/hidden.h"

#define PAIRS_MIN 4u
#define PAIRS_NS  (2 * NS_PER_S)

struct context {
    void **keys, **values, **index;      /* a layer each */
    struct region rows, pieces;          /* keys and values; keys of indexers, a piece per layer */
    uint64_t layer_bytes, piece_bytes;   /* the largest of all layers */
    uint64_t all_bytes, all_piece_bytes; /* of all layers together */
    uint32_t positions;
};

static uint64_t row_bytes(const struct forward *f, uint32_t layer, uint64_t positions)
{
    const struct model_hparams *h = &f->index->hparams;
    return model_kv_bytes(h, layer, KV_SIDE_KEYS, f->kv_type, positions) +
           model_kv_bytes(h, layer, KV_SIDE_VALUES, f->kv_type, positions);
}

/* As many positions as fit into `bytes` in the largest layer, in whole tiles. */
static uint32_t positions_within(const struct forward *f, uint64_t bytes, uint64_t wanted)
{
    uint64_t tile = 1;
    for (uint32_t i = 0; i < f->index->hparams.layers; i++) {
        uint64_t one = row_bytes(f, i, KV_TILE);
        tile = one > tile ? one : tile;
    }
    uint64_t most = bytes / tile * KV_TILE;
    return (uint32_t)(most < wanted ? most : wanted);
}

static void set_sizes(const struct forward *f, struct context *c)
{
    const struct model_hparams *h = &f->index->hparams;
    for (uint32_t i = 0; i < h->layers; i++) {
        uint64_t rows = align_up(row_bytes(f, i, c->positions), PAGE_BYTES) + PAGE_BYTES;
        uint64_t piece =
            align_up(model_kv_bytes(h, i, KV_SIDE_INDEX, f->kv_type, c->positions), PAGE_BYTES);
        c->layer_bytes = rows > c->layer_bytes ? rows : c->layer_bytes;
        c->piece_bytes = piece > c->piece_bytes ? piece : c->piece_bytes;
        c->all_bytes += rows;
        c->all_piece_bytes += piece;
    }
}

static bool set_layers(struct forward *f, struct context *c)
{
    const struct model_hparams *h = &f->index->hparams;
    c->keys = calloc(h->layers, sizeof *c->keys);
    c->values = calloc(h->layers, sizeof *c->values);
    c->index = calloc(h->layers, sizeof *c->index);
    if (!c->keys || !c->values || !c->index)
        return false;
    for (uint32_t i = 0; i < h->layers; i++) {
        uint64_t keys = model_kv_bytes(h, i, KV_SIDE_KEYS, f->kv_type, c->positions);
        uint64_t values = model_kv_bytes(h, i, KV_SIDE_VALUES, f->kv_type, c->positions);
        c->keys[i] = region_take(&c->rows, keys);
        c->values[i] = region_take(&c->rows, values);
        if (model_kv_bytes(h, i, KV_SIDE_INDEX, f->kv_type, c->positions) == 0)
            continue;
        c->index[i] = region_take(&c->pieces, c->piece_bytes);
        memset(c->index[i], 0, c->piece_bytes); /* a layer before it may have the same piece */
        if (model_chooses(h, c->positions) && !model_has_entries(h))
            hidden_keys(h, f->kv_type, c->positions, i, c->index[i]);
    }
    return true;
}

static uint64_t within(uint64_t all, uint64_t least, uint64_t most)
{
    uint64_t bytes = all < most ? all : most;
    return bytes > least ? bytes : least;
}

static bool open_context(struct forward *f, struct context *c, uint64_t bytes)
{
    set_sizes(f, c);
    return region_open(&c->rows, within(c->all_bytes, c->layer_bytes, bytes), c->layer_bytes) &&
           region_open(&c->pieces, within(c->all_piece_bytes, c->piece_bytes, bytes / 2),
                       c->piece_bytes) &&
           set_layers(f, c);
}

static void close_context(struct context *c)
{
    free(c->keys);
    free(c->values);
    free(c->index);
    free(c->rows.base);
    free(c->pieces.base);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The processor time of a pass, the least of several. */
static int shortest(struct forward *f, struct core *core, uint32_t position, uint64_t *least,
                    struct error *error)
{
    uint64_t start_ns = cpu_ns();
    if (forward_pass(f, core, position, 1, error) == 0)
        return -1;
    uint64_t ns = cpu_ns() - start_ns;
    *least = ns < *least ? ns : *least;
    return 0;
}

/* How much more the last position takes, of a pass at the first one. */
static int measure_pairs(struct forward *f, struct core *core, uint32_t position, double *more,
                         struct error *error)
{
    uint64_t near_ns = UINT64_MAX, far_ns = UINT64_MAX, start_ns = clock_now_ns();
    for (uint32_t i = 0; i < PAIRS_MIN || clock_now_ns() - start_ns < PAIRS_NS; i++)
        if (shortest(f, core, 0, &near_ns, error) != 0 ||
            shortest(f, core, position, &far_ns, error) != 0)
            return -1;
    *more = far_ns > near_ns && near_ns > 0 ? (double)(far_ns - near_ns) / (double)near_ns : 0;
    return 0;
}

static double products(const struct model_hparams *h, uint64_t positions)
{
    double all = 0;
    for (uint32_t i = 0; i < h->layers; i++)
        all += (double)model_read_products(h, i, positions);
    return all;
}

/* With the memory of *c in place of that of short sequences. */
static int measure(struct forward *f, const struct params *params, struct context *c, double *more,
                   struct error *error)
{
    const struct forward kept = *f;
    f->keys = c->keys;
    f->values = c->values;
    f->index_keys = c->index;
    struct core *core = forward_core(f, params, 1, c->positions, error);
    int rc = core ? measure_pairs(f, core, c->positions - 1, more, error) : -1;
    if (core)
        core_destroy(core);
    f->keys = kept.keys;
    f->values = kept.values;
    f->index_keys = kept.index_keys;
    return rc;
}

int context_measure(struct forward *f, const struct params *params, uint64_t bytes,
                    struct forward_speed *out, struct error *error)
{
    const struct model_hparams *h = &f->index->hparams;
    struct context c = {.positions = positions_within(f, bytes, params->ctx_size)};
    double more = 0;
    if (c.positions <= 1 || products(h, c.positions) == 0)
        return 0;
    int rc = open_context(f, &c, bytes)
                 ? measure(f, params, &c, &more, error)
                 : error_set(error, ERR_NO_MEMORY, "out of memory (context of the measurement)");
    close_context(&c);
    out->context_measured = rc == 0 ? c.positions : 0;
    out->context_s =
        out->decode_s * more * products(h, params->ctx_size) / products(h, c.positions);
    return rc;
}
