/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the forward pass with everything resident: the model core itself, on weights of the
 * file's shapes and types that are not read from it. Matrices are zero, which takes the time of any
 * other values; embedding and routers are random, so that tokens choose different experts.
 *
 * A model that fits into the region has every tensor in a place of its own. Of a larger one, each
 * access takes the next part of a region that the CPU caches cannot hold, as the experts of
 * successive tokens do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/io/bulk.h"
#include "procs/tools/doctor/forward/forward.h"

#define DECODE_STEPS  128u
#define DECODE_NS     (2 * NS_PER_S)
#define STEPS_MIN     3u
#define ROUNDS_MAX    64u
#define AGAIN_NS      NS_PER_S /* small models: until this time */
#define FIRST_ROWS    16u
#define PREFILL_NS    (3 * NS_PER_S)
#define SCRATCH_LIMIT (512 * MIB) /* as compute */
#define TAIL_BYTES    64          /* the last wide read of a kernel stays inside */
#define SEED          1u

/* ---- weights ---- */

static const struct model_tensor *tensor_of(const struct forward *f, uint32_t entry)
{
    const struct model_entry *e = &model_index_entries(f->index)[entry];
    return &model_index_tensors(f->index)[e->extent[0].tensor];
}

enum place { IN_REGION, AS_VECTOR, AS_ROUTER, AS_EMBEDDING, AS_TABLE };

/* Vectors are copied by the core; an embedding that is not the output matrix and a table of n-grams
 * are read by rows: none of them is streamed. */
static enum place place_of(const struct forward *f, uint32_t entry)
{
    const struct model_entry *e = &model_index_entries(f->index)[entry];
    uint32_t globals = f->index->hparams.layers;
    if (tensor_of(f, entry)->ne[1] <= 1)
        return AS_VECTOR;
    if (e->role == DENSE_ROUTER || e->role == DENSE_EXPERT_TABLE)
        return AS_ROUTER;
    if (e->role == DENSE_NGRAM_TABLE)
        return AS_TABLE;
    if (entry == model_entry_dense(f->index, globals, DENSE_TOKEN_EMBD) &&
        model_entry_dense(f->index, globals, DENSE_OUTPUT) != ENTRY_NONE)
        return AS_EMBEDDING;
    return IN_REGION;
}

char *region_take(struct region *r, uint64_t bytes)
{
    uint64_t whole = align_up(bytes, PAGE_BYTES);
    sl_assert(whole <= r->bytes);
    if (r->used + whole > r->bytes)
        r->used = 0;
    char *at = r->base + r->used;
    r->used += whole;
    return at;
}

/* Small numbers in every type: bytes of this range make finite scales. Floats are from -1 to 1. */
static void fill_random(void *at, uint64_t bytes, enum tensor_type type, uint64_t stream)
{
    struct random random;
    random_seed(&random, SEED, stream);
    uint8_t *b = at;
    float *x = at;
    if (type == TENSOR_F32)
        for (uint64_t i = 0; i < bytes / sizeof *x; i++)
            x[i] = (float)(random_u64(&random) >> 40) * 0x1p-23f - 1;
    else
        for (uint64_t i = 0; i < bytes; i++)
            b[i] = (uint8_t)(0x10 + random_below(&random, 8));
}

/* Rows of mean 0: what all tokens have in common chooses no expert. */
static void centre_rows(float *x, uint64_t k, uint64_t n)
{
    for (uint64_t r = 0; r < n; r++, x += k) {
        double sum = 0;
        for (uint64_t i = 0; i < k; i++)
            sum += (double)x[i];
        for (uint64_t i = 0; i < k; i++)
            x[i] -= (float)(sum / (double)k);
    }
}

/* Different experts of each token; those of tokens that follow each other differ, too. */
static void fill_table(const struct forward *f, const struct model_tensor *t, uint32_t *id)
{
    for (uint64_t i = 0; i < t->ne[0] * t->ne[1]; i++)
        id[i] = (uint32_t)(i % f->index->hparams.experts);
}

static char *router(struct forward *f, uint32_t entry)
{
    const struct model_tensor *t = tensor_of(f, entry);
    uint64_t bytes = t->row_bytes * t->ne[1], whole = align_up(bytes, PAGE_BYTES);
    sl_assert(f->routers_used + whole <= f->routers_bytes);
    char *at = f->routers + f->routers_used;
    f->routers_used += whole;
    if (t->integers) {
        fill_table(f, t, (uint32_t *)(void *)at);
        return at;
    }
    fill_random(at, bytes, (enum tensor_type)t->type, f->routers_used);
    if (t->type == TENSOR_F32)
        centre_rows((float *)(void *)at, t->ne[0], t->ne[1]);
    return at;
}

/* The rows of the tokens that are used. */
static void fill_embedding(const struct model_tensor *t, char *at)
{
    uint64_t rows = t->ne[1] < FORWARD_POSITIONS ? t->ne[1] : FORWARD_POSITIONS;
    fill_random(at, rows * t->row_bytes, (enum tensor_type)t->type, 0);
}

static const void *source_dense(void *self, uint32_t entry)
{
    struct forward *f = self;
    const struct model_entry *e = &model_index_entries(f->index)[entry];
    char *at = NULL;
    switch (place_of(f, entry)) {
    case AS_VECTOR: return f->ones;
    case AS_ROUTER: return router(f, entry);
    case AS_EMBEDDING: at = f->embedding; break;
    case AS_TABLE: return f->table;
    case IN_REGION: at = region_take(&f->dense, e->slot_bytes) + e->extent[0].head_bytes; break;
    }
    if (e->role == DENSE_TOKEN_EMBD)
        fill_embedding(tensor_of(f, entry), at);
    return at;
}

static uint64_t source_pin_limit(void *self)
{
    (void)self;
    return UINT64_MAX;
}

static bool source_resident(void *self, uint32_t layer, uint32_t expert)
{
    (void)self, (void)layer, (void)expert;
    return true;
}

static void source_pin(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count)
{
    struct forward *f = self;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t entry = model_entry_expert(f->index, step->layer, items[i]->expert);
        const struct model_entry *e = &model_index_entries(f->index)[entry];
        char *slot =
            f->place ? f->experts.base + f->place[entry] : region_take(&f->experts, e->slot_bytes);
        expert_matrices(e, slot, items[i]->matrix);
        items[i]->precision = (enum precision)e->precision;
        items[i]->state = ITEM_READY;
    }
    f->pinned_ns = clock_now_ns();
}

static int source_wait(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count, struct error *error)
{
    (void)self, (void)step, (void)items, (void)count;
    return error_set(error, ERR_FAILED, "a resident expert was waited for");
}

static void source_unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct forward *f = self;
    uint64_t now = clock_now_ns();
    (void)step, (void)item;
    f->experts_ns += now - f->pinned_ns;
    f->pinned_ns = now;
}

/* ---- memory ---- */

/* Huge pages as in the arena. */
bool region_open(struct region *r, uint64_t bytes, uint64_t slot_bytes)
{
    r->bytes = align_up(bytes, HUGE_PAGE_BYTES);
    r->base = aligned_alloc(HUGE_PAGE_BYTES, r->bytes + HUGE_PAGE_BYTES);
    if (!r->base)
        return false;
    (void)madvise(r->base, r->bytes, slot_bytes >= MIB ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(r->base, 0, r->bytes + TAIL_BYTES);
    return true;
}

struct sizes {
    uint64_t dense, dense_largest, experts, expert_largest, routers, vector, embedding, table;
};

static struct sizes sizes_of(const struct forward *f)
{
    struct sizes s = {.experts = f->index->expert_slot_bytes,
                      .expert_largest = f->index->expert_slot_bytes_max};
    for (uint32_t i = 0; i < f->index->dense_count; i++) {
        const struct model_tensor *t = tensor_of(f, i);
        uint64_t slot = model_index_entries(f->index)[i].slot_bytes;
        switch (place_of(f, i)) {
        case AS_VECTOR: s.vector = t->ne[0] > s.vector ? t->ne[0] : s.vector; break;
        case AS_ROUTER: s.routers += align_up(t->row_bytes * t->ne[1], PAGE_BYTES); break;
        case AS_EMBEDDING: s.embedding = FORWARD_POSITIONS * t->row_bytes; break;
        case AS_TABLE: s.table = slot; break;
        case IN_REGION:
            s.dense += slot;
            s.dense_largest = slot > s.dense_largest ? slot : s.dense_largest;
            break;
        }
    }
    return s;
}

/* Every expert in a place of its own, if they fit. */
static bool place_experts(struct forward *f, uint64_t bytes)
{
    uint64_t at = 0;
    if (bytes > f->experts.bytes)
        return true;
    f->place = calloc(f->index->entry_count, sizeof *f->place);
    if (!f->place)
        return false;
    for (uint32_t i = 0; i < f->index->hparams.layers * f->index->hparams.experts; i++) {
        uint32_t experts = f->index->hparams.experts;
        uint32_t entry = model_entry_expert(f->index, i / experts, i % experts);
        if (entry == ENTRY_NONE) /* a layer without experts */
            continue;
        f->place[entry] = at;
        at += model_index_entries(f->index)[entry].slot_bytes;
    }
    return true;
}

static uint64_t within(uint64_t wanted, uint64_t min, uint64_t max)
{
    uint64_t bytes = wanted < max ? wanted : max;
    return bytes > min ? bytes : min;
}

static bool open_kv(struct forward *f)
{
    const struct model_hparams *hp = &f->index->hparams;
    f->keys = calloc(hp->layers, sizeof *f->keys);
    f->values = calloc(hp->layers, sizeof *f->values);
    f->index_keys = calloc(hp->layers, sizeof *f->index_keys);
    f->state = bulk_buffer((size_t)model_state_bytes(hp) + 1);
    bool good = f->keys && f->values && f->index_keys && f->state;
    for (uint32_t i = 0; good && i < hp->layers; i++) {
        f->keys[i] =
            bulk_buffer((size_t)model_kv_bytes(hp, i, KV_SIDE_KEYS, f->kv_type, FORWARD_POSITIONS));
        f->values[i] = bulk_buffer(
            (size_t)model_kv_bytes(hp, i, KV_SIDE_VALUES, f->kv_type, FORWARD_POSITIONS));
        f->index_keys[i] = bulk_buffer(
            (size_t)model_kv_bytes(hp, i, KV_SIDE_INDEX, f->kv_type, FORWARD_POSITIONS));
        good = f->keys[i] && f->values[i] && f->index_keys[i];
    }
    return good;
}

static bool open_table(struct forward *f, uint64_t bytes)
{
    if (bytes == 0)
        return true;
    f->table_bytes = bytes + TAIL_BYTES;
    f->table =
        mmap(NULL, f->table_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->table == MAP_FAILED)
        f->table = NULL;
    return f->table != NULL;
}

/* Dense weights and experts take at most `bytes` each. */
static int open_memory(struct forward *f, uint64_t bytes, struct error *error)
{
    struct sizes s = sizes_of(f);
    f->ones = bulk_buffer(s.vector * sizeof *f->ones);
    f->routers = bulk_buffer(s.routers + TAIL_BYTES);
    f->routers_bytes = s.routers;
    f->embedding = bulk_buffer(s.embedding + TAIL_BYTES);
    if (!f->ones || !f->routers || !f->embedding || !open_kv(f) || !open_table(f, s.table) ||
        !region_open(&f->dense, within(s.dense, s.dense_largest, bytes), s.dense_largest) ||
        !region_open(&f->experts, within(s.experts, s.expert_largest, bytes), s.expert_largest) ||
        !place_experts(f, s.experts))
        return error_set(error, ERR_NO_MEMORY, "out of memory (weights of the measurement)");
    for (uint64_t i = 0; i < s.vector; i++)
        f->ones[i] = 1;
    for (uint32_t i = 0; i < FORWARD_POSITIONS; i++)
        f->tokens[i] = i % f->index->hparams.vocab;
    return 0;
}

static void close_memory(struct forward *f)
{
    for (uint32_t i = 0; i < f->index->hparams.layers; i++) {
        if (f->keys)
            free(f->keys[i]);
        if (f->values)
            free(f->values[i]);
        if (f->index_keys)
            free(f->index_keys[i]);
    }
    free(f->keys);
    free(f->values);
    free(f->index_keys);
    free(f->state);
    free(f->place);
    free(f->ones);
    free(f->routers);
    free(f->embedding);
    if (f->table)
        munmap(f->table, f->table_bytes);
    free(f->dense.base);
    free(f->experts.base);
}

/* ---- measurement ---- */

uint64_t forward_pass(struct forward *f, struct core *core, uint32_t position, uint32_t rows,
                      struct error *error)
{
    struct core_sequence sequence = {.kv_type = f->kv_type,
                                     .keys = f->keys,
                                     .values = f->values,
                                     .index = f->index_keys,
                                     .state = f->state,
                                     .next_state = f->state};
    uint32_t first = position + rows <= FORWARD_POSITIONS ? position : 0;
    uint64_t start_ns = clock_now_ns();
    if (core_forward(core, &sequence, f->tokens + first, position, rows, error) != 0)
        return 0;
    uint64_t output_ns = clock_now_ns();
    core_output(core, rows - 1, 1);
    uint64_t end_ns = clock_now_ns(), ns = end_ns - start_ns;
    f->output_ns += end_ns - output_ns;
    f->all_ns += ns;
    return ns > 0 ? ns : 1;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static uint64_t median(uint64_t *values, uint32_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

/* Medians: other load makes single steps longer. A small model repeats the round, because the speed
 * of a machine changes within a second. */
static int measure_decode(struct forward *f, struct core *core, struct forward_speed *out,
                          struct error *error)
{
    f->all_ns = f->experts_ns = f->output_ns = 0;
    uint64_t ns[DECODE_STEPS], rounds[ROUNDS_MAX], start_ns = clock_now_ns();
    uint32_t count = 0;
    while (count < ROUNDS_MAX && (count == 0 || clock_now_ns() - start_ns < AGAIN_NS)) {
        uint32_t n = 0;
        while (n < DECODE_STEPS && (n < STEPS_MIN || clock_now_ns() - start_ns < DECODE_NS)) {
            ns[n] = forward_pass(f, core, n, 1, error);
            if (ns[n++] == 0)
                return -1;
        }
        rounds[count++] = median(ns, n);
    }
    out->decode_s = (double)median(rounds, count) / 1e9;
    out->experts_s = out->decode_s * (double)f->experts_ns / (double)f->all_ns;
    out->output_s = out->decode_s * (double)f->output_ns / (double)f->all_ns;
    return 0;
}

/* One chunk after the other until the context is full: time per row in *row_ns, of all in *ns. */
static int prefill_round(struct forward *f, struct core *core, uint32_t rows, double *row_ns,
                         uint64_t *ns, struct error *error)
{
    uint32_t done = 0;
    *ns = 0;
    while (done + rows <= FORWARD_POSITIONS && (done == 0 || *ns < PREFILL_NS)) {
        uint64_t took_ns = forward_pass(f, core, done, rows, error);
        if (took_ns == 0)
            return -1;
        *ns += took_ns;
        done += rows;
    }
    *row_ns = (double)*ns / done;
    return 0;
}

/* The best of several rounds: what else runs on the machine only makes a round longer, and a chunk
 * is too long for a median to leave it out. */
static int prefill_rounds(struct forward *f, struct core *core, uint32_t rows, double *seconds,
                          struct error *error)
{
    double best_ns = INFINITY, row_ns;
    uint64_t total_ns = 0, ns;
    uint32_t rounds = 0;
    do {
        if (prefill_round(f, core, rows, &row_ns, &ns, error) != 0)
            return -1;
        best_ns = row_ns < best_ns ? row_ns : best_ns;
        total_ns += ns;
        rounds++;
    } while (total_ns < AGAIN_NS || (rounds == 1 && total_ns < PREFILL_NS));
    *seconds = best_ns / 1e9;
    return 0;
}

/* Chunks of an engine's size, smaller ones if these would take several times as long as wanted. */
static int measure_prefill(struct forward *f, struct core *core, double *seconds,
                           struct error *error)
{
    uint32_t rows = core_chunk(core) < FORWARD_POSITIONS ? core_chunk(core) : FORWARD_POSITIONS;
    uint32_t first = rows < FIRST_ROWS ? rows : FIRST_ROWS;
    uint64_t ns = forward_pass(f, core, 0, first, error);
    if (ns == 0)
        return -1;
    while (rows > first && ns / first * rows > 3 * PREFILL_NS)
        rows = (rows + 1) / 2;
    return prefill_rounds(f, core, rows, seconds, error);
}

struct core *forward_core(struct forward *f, const struct params *params, uint32_t chunk,
                          uint32_t positions, struct error *error)
{
    struct core_config config = {
        .model = f->index,
        .ops = kernel_ops_select(params->isa),
        .source = {.self = f,
                   .dense = source_dense,
                   .pin_limit = source_pin_limit,
                   .resident = source_resident,
                   .pin = source_pin,
                   .wait = source_wait,
                   .unpin = source_unpin},
        .threads = params->threads ? (uint32_t)params->threads : host_cpus(),
        .chunk = chunk,
        .positions = positions,
        .scratch_limit = SCRATCH_LIMIT,
        .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY),
    };
    if (!config.ops) {
        error_set(error, ERR_BAD_INPUT, "this CPU lacks the instruction set %s", params->isa);
        return NULL;
    }
    f->dense.used = f->routers_used = 0;
    return core_create(&config, error);
}

static int measure(struct forward *f, const struct params *params, uint64_t bytes,
                   const struct forward_devices *devices, struct forward_speed *out,
                   struct error *error)
{
    struct core *core =
        forward_core(f, params, params_prefill_chunk(params), FORWARD_POSITIONS, error);
    if (!core)
        return -1;
    int rc = measure_prefill(f, core, &out->prefill_s, error);
    if (rc == 0)
        rc = measure_decode(f, core, out, error);
    if (rc == 0)
        rc = reads_measure(f, core, devices->device, devices->count, bytes, out, error);
    out->chunk = core_chunk(core);
    core_destroy(core);
    return rc;
}

int forward_measure(const struct model_index *index, const struct params *params, uint64_t bytes,
                    const struct forward_devices *devices, struct forward_speed *out,
                    struct error *error)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    f->index = index;
    f->kv_type = kv_type_find(params->kv_type);
    *out = (struct forward_speed){0};
    int rc = open_memory(f, bytes, error);
    if (rc == 0)
        rc = measure(f, params, bytes, devices, out, error);
    if (rc == 0)
        rc = context_measure(f, params, bytes / 2, out, error);
    close_memory(f);
    free(f);
    return rc;
}
