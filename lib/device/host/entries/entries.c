/* SPDX-License-Identifier: Apache-2.0 */
/* Entries: keys of attention that stand for several positions (DeepSeek-V4, DeepSeek-AI 2026). Of
 * the row of a position t, with values a and gates b, and m positions of an entry:
 *   entry w of many positions:  e = sum over t of w of a_t * p_t,  p = softmax over t of b_t + bias
 *   of few: over the positions of the entries w - 1 and w. A row has two halves, of which the first
 *     is for the entry after its own, and the second for its own
 *   then e = RMSNorm(e), whose last elements are rotated as at position m w
 * The softmax is of each element by itself; the bias is that of t % m. Entry w is seen from its
 * last position on, m w + m - 1, and never changes. The indexer's keys are made in the same way.
 *
 * The rows of entries that are not complete are in the state of the sequence, as floats, so an
 * entry has the same bits whether its positions come in one pass or in several. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"
#include "lib/kernels/choose.h"

#define TERMS_MAX 128 /* of a softmax */
_Static_assert(MODEL_ENTRY_MANY <= TERMS_MAX && 2 * MODEL_ENTRY_FEW <= TERMS_MAX, "they fit");

/* ---- keys and queries of a row ---- */

static void store_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_entry_store *a = run->a;
    const struct device_entries *m = &a->shape;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const struct device_sequence *s = &a->sequence[a->row[r].sequence];
        uint32_t position = kernel_ring_position(s->ring, a->row[r].position);
        float *kv = device_floats(a->kv) + (size_t)r * m->size, *q = rows_floats(&a->query, r);
        kernels->rms_norm(q, device_floats(a->q_norm), a->query.k, m->eps, q);
        host_make_forms(run->h, &a->query, r, a->query_forms);
        kernels->rms_norm(kv, device_floats(a->kv_norm), m->size, m->eps, kv);
        kernel_rope_pairs(kv + m->size - m->rope, m->rope,
                          device_floats(a->angles) + r * a->angle_stride);
        host_note(run->h, kv, m->size);
        kernel_kv_store(kernels, s->kv_type, KV_SIDE_KEYS, kv, m->size,
                        (uint8_t *)device_pointer(s->keys) +
                            kernel_kv_tile(s->kv_type, 1, m->size, position, 0),
                        position % KERNEL_KEY_TILE);
    }
}

void host_op_entry_store(struct device *d, const struct op_entry_store *a)
{
    host_run_rows(host_of(d), a->rows, store_rows, a);
}

/* ---- entries ---- */

/* The positions of a sequence whose rows are in the pass; the others are in its state. */
struct source {
    const struct op_entry_pool *a;
    const struct device_sequence *s;
    uint32_t sequence, first;
};

/* The row of a position, from row `from` of the pass on backwards. */
static const float *row_of(const struct source *source, uint32_t from, uint32_t position)
{
    const struct op_entry_pool *a = source->a;
    const uint32_t floats = device_entry_row(&a->shape);
    if (position < source->first) {
        sl_assert(source->s->state.address);
        return device_floats(source->s->state) +
               (size_t)(position % device_entry_past(&a->shape)) * floats;
    }
    while (a->row[from].sequence != source->sequence || a->row[from].position != position)
        from--; /* it is there: positions of a sequence have no gap */
    return device_floats(a->projected) + (size_t)from * floats;
}

/* What an entry is made of: rows of values, of gates and of biases. */
struct terms {
    uint32_t count;
    const float *value[TERMS_MAX], *gate[TERMS_MAX], *bias[TERMS_MAX];
};

/* Each element: the sum of the values by the softmax of gates and biases, in their order. */
static void weigh(const struct terms *t, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float x[TERMS_MAX], top = -INFINITY;
        double sum = 0, all = 0;
        for (uint32_t j = 0; j < t->count; j++) {
            x[j] = t->gate[j][i] + t->bias[j][i];
            top = x[j] > top ? x[j] : top;
        }
        for (uint32_t j = 0; j < t->count; j++) {
            double p = exact_exp((double)(x[j] - top));
            sum += p;
            all += p * (double)t->value[j][i];
        }
        y[i] = (float)(all / sum);
    }
}

/* The terms of an entry, in rows whose values of `n` elements begin at `at`. */
static void find_terms(const struct source *source, uint32_t row, uint32_t at, uint32_t n,
                       const float *bias, struct terms *t)
{
    const struct device_entries *m = &source->a->shape;
    uint32_t parts = device_entry_parts(m), end = source->a->row[row].position + 1;
    uint32_t begin = end > parts * m->unit ? end - parts * m->unit : 0;
    t->count = end - begin;
    for (uint32_t j = 0; j < t->count; j++) {
        uint32_t position = begin + j;
        const float *own = row_of(source, row, position) + at;
        uint32_t half = parts > 1 && position + m->unit >= end ? n : 0;
        t->value[j] = own + half;
        t->gate[j] = own + (size_t)parts * n + half;
        t->bias[j] = bias + (size_t)(position % m->unit) * parts * n + half;
    }
}

/* An entry, or its key, of n elements. */
static void store(struct host *h, const struct op_entry_pool *a, const struct device_sequence *s,
                  uint32_t entry, bool key, float *y)
{
    const struct device_entries *m = &a->shape;
    const uint32_t n = key ? m->index : m->size;
    const bool half = s->index_type == KV_TYPE_F16;
    const size_t at = device_entry_at(m, entry, key);
    uint8_t *to = (uint8_t *)device_pointer(s->index) + at * (half ? 2 : sizeof(float));
    float cos_sin[KERNEL_HEAD_SIZE_MAX];
    sl_assert(half || s->index_type == KV_TYPE_F32);
    h->kernels->rms_norm(y, device_floats(key ? a->index_norm : a->norm), n, m->eps, y);
    kernel_rope_table(&a->rope, entry * m->unit, cos_sin);
    kernel_rope_pairs(y + n - m->rope, m->rope, cos_sin);
    host_note(h, y, n);
    if (half)
        h->kernels->to_f16(y, n, (uint16_t *)(void *)to);
    else
        memcpy(to, y, n * sizeof *y);
}

/* The entry that ends with a row. */
static void make_entry(struct host *h, const struct op_entry_pool *a, uint32_t row)
{
    const struct device_entries *m = &a->shape;
    const uint32_t sequence = a->row[row].sequence, entry = a->row[row].position / m->unit;
    const struct device_sequence *s = &a->sequence[sequence];
    const struct source source = {a, s, sequence, device_span_of(a->row, a->rows, sequence).first};
    struct terms t;
    float y[KERNEL_HEAD_SIZE_MAX];
    find_terms(&source, row, 0, m->size, device_floats(a->bias), &t);
    weigh(&t, m->size, y);
    store(h, a, s, entry, false, y);
    if (m->index == 0)
        return;
    find_terms(&source, row, 2 * device_entry_parts(m) * m->size, m->index,
               device_floats(a->index_bias), &t);
    weigh(&t, m->index, y);
    store(h, a, s, entry, true, y);
}

static void make_entries(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_entry_pool *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        if ((a->row[r].position + 1) % a->shape.unit == 0) {
            make_entry(run->h, a, r);
            host_alive(run->h, a->rows);
        }
}

/* What entries that are not complete need is kept; the rest of a state is zeros. Slots [first,
 * last) of a state. */
static void keep_rows(const struct op_entry_pool *a, uint32_t sequence, uint32_t first,
                      uint32_t last)
{
    const struct device_entries *m = &a->shape;
    const struct device_sequence *s = &a->sequence[sequence];
    const struct device_span span = device_span_of(a->row, a->rows, sequence);
    const struct source source = {a, s, sequence, span.first};
    const uint32_t past = device_entry_past(m), floats = device_entry_row(m);
    const uint32_t whole = span.end - span.end % m->unit;
    const uint32_t reach = (device_entry_parts(m) - 1) * m->unit;
    const uint32_t begin = whole > reach ? whole - reach : 0;
    float *state = device_floats(s->next_state);
    for (uint32_t slot = first; slot < last && span.end > 0; slot++) {
        uint32_t position = begin + (slot + past - begin % past) % past;
        float *to = state + (size_t)slot * floats;
        const float *from = position < span.end ? row_of(&source, a->rows - 1, position) : NULL;
        if (from && from != to)
            memcpy(to, from, floats * sizeof *to);
        else if (!from)
            memset(to, 0, floats * sizeof *to);
    }
}

/* A slot needs none of the others. */
static void keep_part(void *arg, uint32_t part, uint32_t parts)
{
    const struct op_entry_pool *a = ((const struct host_run *)arg)->a;
    uint32_t begin, end;
    pool_share(device_entry_past(&a->shape), 1, part, parts, &begin, &end);
    for (uint32_t i = 0; i < a->sequences; i++)
        keep_rows(a, i, begin, end);
}

void host_op_entry_pool(struct device *d, const struct op_entry_pool *a)
{
    struct host *h = host_of(d);
    uint64_t floats = (uint64_t)device_entry_past(&a->shape) * device_entry_row(&a->shape);

    sl_assert(a->shape.unit > 0 && device_entry_past(&a->shape) <= TERMS_MAX &&
              a->shape.size <= KERNEL_HEAD_SIZE_MAX && a->shape.index <= KERNEL_HEAD_SIZE_MAX &&
              a->rope.dims == a->shape.rope);
    host_run_rows(h, a->rows, make_entries, a);
    host_run_parts(h, pool_parts(h->pool, floats * a->sequences), keep_part, a);
}

/* ---- the choice ---- */

/* This part's share of the tiles of keys that a row sees. */
static void score_row(const struct host_run *run, uint32_t row, uint32_t part, uint32_t parts)
{
    const struct op_entry_scores *a = run->a;
    const struct device_entries *m = &a->shape;
    const struct device_sequence *s = &a->sequence[a->row[row].sequence];
    const uint32_t seen = device_entries_seen(m, a->row[row].position), tile = KV_TILE / m->unit;
    const size_t bytes = s->index_type == KV_TYPE_F16 ? 2 : sizeof(float);
    uint32_t begin, end;
    sl_assert(seen <= a->stride);
    pool_share((seen + tile - 1) / tile, 1, part, parts, &begin, &end);
    for (uint32_t t = begin; t < end; t++) {
        const struct kernel_index index = {
            .form = INDEX_WEIGHTED,
            .q = device_floats(a->q) + (size_t)row * m->heads * m->index,
            .weights = device_floats(a->weights) + (size_t)row * m->heads,
            .keys = (const uint8_t *)device_pointer(s->index) +
                    device_entry_at(m, t * tile, true) * bytes,
            .type = s->index_type,
            .rows = 1,
            .heads = m->heads,
            .size = m->index,
            .score = device_floats(a->score) + row * a->stride + (size_t)t * tile,
            .stride = a->stride};
        kernel_index_scores(run->h->kernels, &index, 0, smaller(tile, seen - t * tile));
    }
    host_attended(run->h, a->rows, (uint64_t)(end - begin) * tile * m->heads * m->index);
}

static void score_part(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_entry_scores *a = run->a;
    for (uint32_t r = 0; r < a->rows; r++)
        score_row(run, r, part, parts);
}

void host_op_entry_scores(struct device *d, const struct op_entry_scores *a)
{
    struct host *h = host_of(d);
    uint64_t work = 0;
    for (uint32_t r = 0; r < a->rows; r++)
        work += (uint64_t)device_entries_seen(&a->shape, a->row[r].position) * a->shape.heads *
                a->shape.index;
    if (work < SERIAL_WORK)
        score_part(&(struct host_run){h, a}, 0, 1);
    else
        host_run_parts(h, pool_parts(h->pool, work), score_part, a);
}

static void choose_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_entry_choice *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        uint32_t *at = (uint32_t *)device_pointer(a->at) + (size_t)r * a->list_stride;
        uint32_t seen = device_entries_seen(&a->shape, a->row[r].position), count = 0;
        sl_assert(seen <= a->stride && smaller(seen, a->shape.chosen) <= a->list_stride);
        if (seen > a->shape.chosen)
            count =
                kernel_choose(device_floats(a->score) + r * a->stride, seen, a->shape.chosen, at);
        for (; seen <= a->shape.chosen && count < seen; count++)
            at[count] = count;
        ((uint32_t *)device_pointer(a->count))[r] = count;
    }
}

void host_op_entry_choice(struct device *d, const struct op_entry_choice *a)
{
    host_run_rows(host_of(d), a->rows, choose_rows, a);
}
