/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a row to the positions of its window and to entries (DeepSeek-V4). Of each query
 * head, with the keys k that all heads share:
 *   q = RMSNorm(q) without weights; its last elements are rotated as at the row's position
 *   o = sum of k p,  p = softmax of q . k / sqrt(size) over the keys and the sink
 *   the last elements of o are rotated back
 * The keys are first those of the window in the order of positions, then the entries in theirs,
 * next to each other as floats: terms are added in that order, so the bits of a row depend on what
 * it attends to, and not on the other rows of a pass or on where the keys are. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"

#define HEADS_AT_LEAST 8 /* of a part, for which it copies the keys */

/* Keys of a row; and how many. */
struct keys {
    uint32_t window, begin; /* positions of the window, the first one */
    uint32_t entries;
    const uint32_t *list; /* of the entries; NULL: the first ones */
};

static struct keys keys_of(const struct op_entry_attention *a, uint32_t row)
{
    const struct device_entries *m = &a->shape;
    const uint32_t position = a->row[row].position, *count = device_pointer(a->chosen.count);
    const uint32_t *at = device_pointer(a->chosen.at);
    uint32_t begin = kernel_attention_begin(m->window, position + 1);
    struct keys k = {.window = position + 1 - begin,
                     .begin = begin,
                     .entries = device_entries_seen(m, position)};
    if (count && m->index > 0) {
        k.entries = count[row];
        k.list = at + (size_t)row * a->chosen.stride;
    }
    return k;
}

/* Keys [begin, end) of a row, as floats. */
static void gather(const struct host_run *run, uint32_t row, const struct keys *k, uint32_t begin,
                   uint32_t end, float *to)
{
    const struct op_entry_attention *a = run->a;
    const struct device_entries *m = &a->shape;
    const struct device_sequence *s = &a->sequence[a->row[row].sequence];
    const size_t bytes = s->kv_type == KV_TYPE_F16 ? 2 : sizeof(float);
    struct kernel_matrix w = {.row_bytes = m->size * bytes,
                              .k = m->size,
                              .n = 1,
                              .type = s->kv_type == KV_TYPE_F16 ? TENSOR_F16 : TENSOR_F32};
    sl_assert(s->kv_type == s->index_type || m->unit == 0);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t position = kernel_ring_position(s->ring, k->begin + i);
        const uint8_t *from = device_pointer(s->keys);
        size_t at = (size_t)position * m->size;
        if (i >= k->window) {
            uint32_t entry = k->list ? k->list[i - k->window] : i - k->window;
            from = device_pointer(s->index);
            at = device_entry_at(m, entry, false);
        }
        w.data = from + at * bytes;
        run->h->kernels->row_to_f32(&w, 0, to + (size_t)i * m->size);
    }
}

/* cos and sin of the angles turned back. */
static void turn_back(const float *cos_sin, uint32_t n, float *back)
{
    for (uint32_t i = 0; i < n; i += 2) {
        back[i] = cos_sin[i];
        back[i + 1] = -cos_sin[i + 1];
    }
}

/* Query heads [begin, end) of a row, whose keys are there. */
static void attend(const struct host_run *run, uint32_t row, const struct keys *k,
                   const float *keys, uint32_t begin, uint32_t end)
{
    const struct op_entry_attention *a = run->a;
    const struct device_entries *m = &a->shape;
    const struct kernel_ops *kernels = run->h->kernels;
    const uint32_t size = m->size;
    const float *cos_sin = device_floats(a->angles) + row * a->angle_stride;
    float *q = device_floats(a->q) + (size_t)row * a->query_heads * size;
    float *out = rows_floats(&a->y, row * a->groups), back[KERNEL_HEAD_SIZE_MAX];
    turn_back(cos_sin, m->rope, back);
    for (uint32_t h = begin; h < end; h++) {
        float *head = q + (size_t)h * size;
        kernels->rms_norm(head, device_floats(a->ones), size, m->eps, head);
        kernel_rope_pairs(head + size - m->rope, m->rope, cos_sin);
        host_note(run->h, head, size);
    }
    const struct kernel_attention attention = {.q = q,
                                               .k = keys,
                                               .kv_type = KV_TYPE_F32,
                                               .out = out,
                                               .q_stride = (size_t)a->query_heads * size,
                                               .out_stride = (size_t)a->query_heads * size,
                                               .rows = 1,
                                               .heads = a->query_heads,
                                               .kv_heads = 1,
                                               .key_size = size,
                                               .value_size = size,
                                               .head_begin = begin,
                                               .head_end = end,
                                               .positions = k->window + k->entries,
                                               .scale = 1.0f / sqrtf((float)size),
                                               .sinks = device_floats(a->sinks)};
    kernels->attention(&attention);
    for (uint32_t h = begin; h < end; h++)
        kernel_rope_pairs(out + (size_t)(h + 1) * size - m->rope, m->rope, back);
}

/* ---- parts ---- */

static uint64_t head_work(const struct op_entry_attention *a, uint32_t row)
{
    const struct keys k = keys_of(a, row);
    return 2 * (uint64_t)(k.window + k.entries) * a->shape.size;
}

/* Parts of the only row: of its keys, then of its heads. */
static void gather_part(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct keys k = keys_of(run->a, 0);
    uint32_t begin, end;
    pool_share(k.window + k.entries, 1, part, parts, &begin, &end);
    gather(run, 0, &k, begin, end, run->h->thread[0].keys);
}

static void heads_part(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_entry_attention *a = run->a;
    const struct keys k = keys_of(a, 0);
    uint32_t begin, end;
    pool_share(a->query_heads, 1, part, parts, &begin, &end);
    if (begin < end)
        attend(run, 0, &k, run->h->thread[0].keys, begin, end);
    host_attended(run->h, 1, head_work(a, 0) * (end - begin));
}

/* Blocks of heads of a row: few rows have several, so that all threads have one. */
static uint32_t blocks_of(const struct host *h, const struct op_entry_attention *a)
{
    uint32_t most = (a->query_heads + HEADS_AT_LEAST - 1) / HEADS_AT_LEAST;
    uint32_t wanted = (2 * h->threads + a->rows - 1) / a->rows;
    uint32_t steps = host_portable(h) ? most : 1;
    wanted = wanted > steps ? wanted : steps;
    return smaller(wanted, most);
}

static void row_parts(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_entry_attention *a = run->a;
    const uint32_t blocks = blocks_of(run->h, a);
    float *keys = run->h->thread[pool_me()].keys;
    uint32_t begin, end, last = UINT32_MAX;
    struct keys k = {0};
    pool_share(a->rows * blocks, 1, part, parts, &begin, &end);
    for (uint32_t u = begin; u < end; u++) {
        uint32_t row = u / blocks, from, to;
        if (row != last) {
            k = keys_of(a, row);
            gather(run, row, &k, 0, k.window + k.entries, keys);
            last = row;
        }
        pool_share(a->query_heads, 1, u % blocks, blocks, &from, &to);
        attend(run, row, &k, keys, from, to);
        host_attended(run->h, a->rows, head_work(a, row) * (to - from));
    }
}

void host_op_entry_attention(struct device *d, const struct op_entry_attention *a)
{
    struct host *h = host_of(d);
    sl_assert(a->shape.size <= KERNEL_VALUE_SIZE_MAX && a->chosen.lists <= 1);
    sl_assert(a->y.k * a->groups == a->query_heads * a->shape.size &&
              a->y.stride[FORM_F32] == a->y.k * sizeof(float));
    if (a->rows == 1) {
        host_run_parts(h, h->threads, gather_part, a);
        host_run_parts(h, smaller(h->threads, a->query_heads), heads_part, a);
        return;
    }
    host_run_parts(
        h,
        smaller(pool_parts(h->pool, head_work(a, a->rows - 1) * a->query_heads * a->rows),
                a->rows * blocks_of(h, a)),
        row_parts, a);
}
