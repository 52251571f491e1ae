/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one layer. If the key heads divide evenly among the threads, each thread computes
 * its heads completely - q, k, v, norms, rotation, cache rows, attention - without a barrier,
 * because no head reads the keys of another. Otherwise, and if the norm of q and k spans all heads,
 * the same steps run as three phases. */
#include <string.h>

#include "lib/device/host/internal.h"

/* Queries of a call of the kernel, where there are as many: at most, and even if it takes long or
 * gives a thread less to do than others. */
#define ATTEND_QUERIES     96
#define ATTEND_QUERIES_MIN 32
/* Calls that each thread has, where there is enough to do. */
#define ATTEND_CALLS 8
/* Steps (internal.h) of a group of heads that one part computes, without a barrier before its
 * attention. */
#define GROUP_STEPS_MAX 16

static uint32_t q_size(const struct op_attention *a)
{
    return a->shape.heads * a->shape.key_size;
}

static uint32_t k_size(const struct op_attention *a)
{
    return a->shape.kv_heads * a->shape.key_size;
}

static uint32_t v_size(const struct op_attention *a)
{
    return a->shape.kv_heads * a->shape.value_size;
}

/* Query heads of a key head. */
static uint32_t group_of(const struct op_attention *a)
{
    return a->shape.heads / a->shape.kv_heads;
}

static const struct device_sequence *sequence_of(const struct op_attention *a, uint32_t row)
{
    return &a->sequence[a->row[row].sequence];
}

/* Where the product with the matrix of q goes. */
static float *projected_q(const struct op_attention *a)
{
    return device_floats(a->gated.address ? a->gated : a->q);
}

static void project(const struct host_run *run, const struct device_matrix *m,
                    struct device_at scale, uint32_t begin, uint32_t end, float *y)
{
    const struct op_attention *a = run->a;
    if (begin >= end || !m->data.address)
        return;
    struct kernel_matrix w = device_kernel_matrix(m);
    host_product(run->h, &w, device_floats(scale), begin, end, rows_row(&a->x, w.type, 0),
                 rows_stride(&a->x, w.type), a->rows, y, w.n);
}

/* What follows the projection of a head. */
static void add_bias(const struct host_run *run, float *head, struct device_at bias,
                     uint32_t number, uint32_t size)
{
    const struct op_attention *a = run->a;
    if (bias.address)
        run->h->kernels->axpy(1.0f, device_floats(bias) + (size_t)number * size, size, head);
    if (a->heads.clamp != 0) {
        host_note(run->h, head, size); /* an infinity would become the limit */
        kernel_clamp(head, size, a->heads.clamp);
    }
}

/* With a gate, the rows of q are those of a head, then those of its gate: moves the former
 * together. */
static void split_gates(const struct op_attention *a, uint32_t row, uint32_t head_begin,
                        uint32_t head_end)
{
    uint32_t size = a->shape.key_size;
    float *q = device_floats(a->q) + (size_t)row * q_size(a);
    const float *gated = device_floats(a->gated) + (size_t)row * a->w_q.n;
    for (uint32_t h = head_begin; h < head_end; h++)
        memcpy(q + (size_t)h * size, gated + (size_t)2 * h * size, size * sizeof *q);
}

/* One head in place: rotation, and its RMSNorm if it has one. */
static void finish_head(const struct host_run *run, float *head, const float *weight, uint32_t row)
{
    const struct op_attention *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    const float *cos_sin = device_floats(a->angles) + row * a->angle_stride;
    uint32_t size = a->shape.key_size;
    if (a->heads.qk_norm == QK_NORM_HEAD && weight)
        kernels->rms_norm(head, weight, size, a->heads.eps, head);
    if (a->heads.rope_kind == ROPE_PAIRS)
        kernel_rope_pairs(head, a->shape.rope_dims, cos_sin);
    else if (a->shape.rope_dims != 0)
        kernels->rope(head, a->shape.rope_dims, cos_sin);
    if (a->heads.qk_norm == QK_NORM_HEAD_AFTER)
        kernels->rms_norm(head, weight, size, a->heads.eps, head);
}

/* The rows of keys and values of key head g. */
static void store_group(const struct host_run *run, uint32_t row, uint32_t g, const float *k,
                        const float *v)
{
    const struct op_attention *a = run->a;
    const struct device_sequence *s = sequence_of(a, row);
    uint32_t size = a->shape.key_size, values = a->shape.value_size;
    uint32_t position = kernel_ring_position(s->ring, a->row[row].position);
    uint8_t *keys = (uint8_t *)device_pointer(s->keys) +
                    kernel_kv_tile(s->kv_type, a->shape.kv_heads, size, position, g);
    uint8_t *rows = (uint8_t *)device_pointer(s->values) +
                    kernel_kv_tile(s->kv_type, a->shape.kv_heads, values, position, g);
    kernel_kv_store(run->h->kernels, s->kv_type, KV_SIDE_KEYS, k, size, keys,
                    position % KERNEL_KEY_TILE);
    kernel_kv_store(run->h->kernels, s->kv_type, KV_SIDE_VALUES, v, values, rows,
                    position % KERNEL_KEY_TILE);
}

/* Bias, norm, rotation and cache row of key head g and its query heads, one token row. */
static void finish_group(const struct host_run *run, uint32_t row, uint32_t g)
{
    const struct op_attention *a = run->a;
    uint32_t size = a->shape.key_size, values = a->shape.value_size, group = group_of(a);
    float *k = device_floats(a->k) + (size_t)row * k_size(a) + (size_t)g * size;
    float *v = device_floats(a->v) + (size_t)row * v_size(a) + (size_t)g * values;
    if (!a->w_v.data.address)
        memcpy(v, k, values * sizeof *v);
    add_bias(run, k, a->k_bias, g, size);
    add_bias(run, v, a->v_bias, g, values);
    finish_head(run, k, device_floats(a->k_norm), row);
    if (a->heads.v_norm)
        run->h->kernels->rms_norm(v, device_floats(a->ones), values, a->heads.eps, v);
    host_note(run->h, k, size);
    host_note(run->h, v, values);
    store_group(run, row, g, k, v);
    float *q = device_floats(a->q) + (size_t)row * q_size(a);
    if (a->gated.address)
        split_gates(a, row, g * group, (g + 1) * group);
    for (uint32_t h = g * group; h < (g + 1) * group; h++) {
        add_bias(run, q + (size_t)h * size, a->q_bias, h, size);
        finish_head(run, q + (size_t)h * size, device_floats(a->q_norm), row);
    }
    host_note(run->h, q + (size_t)g * group * size, (size_t)group * size);
}

/* Rows [row, row + rows): consecutive positions of one sequence, with one scale, in one chunk. */
static void attend_run(const struct host_run *run, uint32_t row, uint32_t rows, float scale,
                       uint32_t head_begin, uint32_t head_end, uint32_t list)
{
    const struct op_attention *a = run->a;
    const struct device_sequence *s = sequence_of(a, row);
    uint32_t begin = device_chunk_begin(&a->shape, a->row[row].position);
    struct kernel_attention attention = {
        .q = device_floats(a->q) + (size_t)row * q_size(a),
        .k = device_keys_from(&a->shape, s, begin),
        .v = device_values_from(&a->shape, s, begin),
        .kv_type = s->kv_type,
        .out = rows_floats(&a->mix, row),
        .q_stride = q_size(a),
        .out_stride = a->mix.stride[FORM_F32] / sizeof(float),
        .rows = rows,
        .heads = a->shape.heads,
        .kv_heads = a->shape.kv_heads,
        .key_size = a->shape.key_size,
        .value_size = a->shape.value_size,
        .head_begin = head_begin,
        .head_end = head_end,
        .positions = a->row[row].position - begin + 1,
        .window = a->shape.chunks ? 0 : a->shape.window,
        .ring = a->shape.chunks ? 0 : s->ring,
        .scale = scale,
        .cap = a->heads.cap,
        .sinks = device_floats(a->sinks),
        .chosen = host_chosen(&a->chosen, row, list),
    };
    run->h->kernels->attention(&attention);
}

/* Each key head may have lists of its own. */
static void attend_lists(const struct host_run *run, uint32_t row, uint32_t rows, float scale,
                         uint32_t head_begin, uint32_t head_end)
{
    const struct op_attention *a = run->a;
    uint32_t group = a->chosen.lists > 1 ? group_of(a) : a->shape.heads;
    for (uint32_t head = head_begin, end; head < head_end; head = end) {
        end = smaller((head / group + 1) * group, head_end);
        attend_run(run, row, rows, scale, head, end, head / group);
    }
}

/* Multiplications of a row and a head. */
static uint64_t row_work(const struct op_attention *a, uint32_t row)
{
    uint64_t positions = host_positions(&a->chosen, a->row + row), window = a->shape.window;
    positions = window > 0 && window < positions ? window : positions;
    return positions * (a->shape.key_size + a->shape.value_size);
}

/* Rows [row, row + rows). */
static void attend(const struct host_run *run, uint32_t row, uint32_t rows, uint32_t head_begin,
                   uint32_t head_end)
{
    const struct op_attention *a = run->a;
    for (uint32_t r = row, n; r < row + rows; r += n) {
        uint64_t each = row_work(a, r) * (head_end - head_begin);
        uint32_t most = smaller(row + rows - r, host_attend_rows(run->h, each, rows));
        float scale;
        n = device_scaled_run(&a->heads.scale, a->row + r,
                              device_chunk_rows(&a->shape, a->row[r].position, most), &scale);
        attend_lists(run, r, n, scale, head_begin, head_end);
        host_attended(run->h, a->rows, each * n);
    }
}

/* Rows of a call, at most `share` if that is not too few: as many queries as read a key together,
 * and soon a report of progress. */
static uint32_t attend_block(const struct host_run *run, uint64_t share)
{
    const struct op_attention *a = run->a;
    uint32_t group = group_of(a), minimum = ATTEND_QUERIES_MIN / group;
    uint64_t each = row_work(a, a->rows - 1) * group;
    uint32_t steps = host_step_rows(run->h, each / STEPS_PER_PART);
    uint32_t block = smaller(ATTEND_QUERIES / group, steps);
    block = share < block ? (uint32_t)share : block;
    if (block < minimum)
        block = host_portable(run->h) ? smaller(minimum, steps) : minimum;
    if (block <= 1)
        return 1;
    uint32_t blocks = (a->rows + block - 1) / block; /* of equal size */
    return (a->rows + blocks - 1) / blocks;
}

/* Key heads [g0, g1). A single row in one call, which reads their keys in the order of memory;
 * portable kernels take too long for that. */
static void attend_groups(const struct host_run *run, uint32_t g0, uint32_t g1)
{
    const struct op_attention *a = run->a;
    uint32_t group = group_of(a), block = attend_block(run, a->rows);
    uint32_t begin = g0 * group, end = g1 * group, heads = host_portable(run->h) ? 1 : end - begin;
    for (uint32_t head = begin; head < end && a->rows == 1; head += heads)
        attend(run, 0, 1, head, head + heads);
    for (uint32_t g = g0; g < g1 && a->rows > 1; g++)
        for (uint32_t r = 0; r < a->rows; r += block)
            attend(run, r, smaller(block, a->rows - r), g * group, (g + 1) * group);
}

static void whole_groups(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_attention *a = run->a;
    uint32_t g0, g1, size = a->shape.key_size, values = a->shape.value_size;
    pool_share(a->shape.kv_heads, 1, thread, threads, &g0, &g1);
    uint32_t rows = a->w_q.n / a->shape.kv_heads; /* of a group */
    project(run, &a->w_q, a->q_scale, g0 * rows, g1 * rows, projected_q(a));
    project(run, &a->w_k, a->k_scale, g0 * size, g1 * size, device_floats(a->k));
    project(run, &a->w_v, a->v_scale, g0 * values, g1 * values, device_floats(a->v));
    for (uint32_t r = 0; r < a->rows; r++)
        for (uint32_t g = g0; g < g1; g++)
            finish_group(run, r, g);
    attend_groups(run, g0, g1);
}

/* The three projections as one range of columns. */
static void project_columns(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_attention *a = run->a;
    const struct device_matrix *w[3] = {&a->w_q, &a->w_k, &a->w_v};
    struct device_at scale[3] = {a->q_scale, a->k_scale, a->v_scale};
    float *y[3] = {projected_q(a), device_floats(a->k), device_floats(a->v)};
    uint32_t begin, end, base = 0;
    pool_share(a->w_q.n + k_size(a) + v_size(a), COLUMN_UNIT, thread, threads, &begin, &end);
    for (int i = 0; i < 3; base += w[i++]->n) {
        uint32_t b = begin > base ? begin - base : 0;
        uint32_t e = end > base ? end - base : 0;
        project(run, w[i], scale[i], b, smaller(e, w[i]->n), y[i]);
    }
}

static void finish_groups(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_attention *a = run->a;
    uint32_t begin, end, groups = a->shape.kv_heads;
    pool_share(a->rows * groups, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++)
        finish_group(run, u / groups, u % groups);
}

/* If the norm spans all heads, a row is one piece of work. */
static void finish_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_attention *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *q = device_floats(a->q) + (size_t)r * q_size(a);
        float *k = device_floats(a->k) + (size_t)r * k_size(a);
        kernels->rms_norm(q, device_floats(a->q_norm), q_size(a), a->heads.eps, q);
        kernels->rms_norm(k, device_floats(a->k_norm), k_size(a), a->heads.eps, k);
        for (uint32_t g = 0; g < a->shape.kv_heads; g++)
            finish_group(run, r, g);
    }
}

/* Later rows have more keys, so blocks of rows are assigned round-robin. */
static void attend_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_attention *a = run->a;
    const struct layer_attention *s = &a->shape;
    bool one = a->rows == 1 && host_portable(run->h); /* a group would take too long */
    bool by_head = one || a->rows * s->kv_heads < 2 * run->h->threads;
    uint32_t parts = by_head ? s->heads : s->kv_heads;
    uint32_t heads = by_head ? 1 : group_of(a), block = 1;
    if (!by_head)
        block = attend_block(run, (uint64_t)a->rows * parts / (ATTEND_CALLS * run->h->threads));
    uint32_t blocks = (a->rows + block - 1) / block;
    for (uint32_t u = thread; u < blocks * parts; u += threads) {
        uint32_t row = u / parts * block;
        attend(run, row, smaller(block, a->rows - row), u % parts * heads, (u % parts + 1) * heads);
    }
}

/* Number of parts among which the key heads divide evenly. A row with many keys has few parts: a
 * part reads what is adjacent in memory. */
static uint32_t even_parts(const struct host *h, const struct op_attention *a, uint32_t outputs)
{
    uint32_t parts = pool_parts(h->pool, (uint64_t)outputs * a->x.k * a->rows);
    if (a->rows == 1 && a->row[0].position >= KERNEL_KEY_SEGMENT)
        parts = smaller(parts, 2 * h->threads);
    while (a->shape.kv_heads % parts != 0)
        parts -= h->threads; /* ends at h->threads */
    return parts;
}

static void compute(struct host *h, const struct op_attention *a)
{
    uint32_t outputs = a->w_q.n + k_size(a) + v_size(a), kv_heads = a->shape.kv_heads;
    uint64_t work = a->rows * row_work(a, a->rows - 1) * a->shape.heads;
    bool divide = a->rows > 1 || host_portable(h);
    bool few_parts = divide && work / kv_heads > GROUP_STEPS_MAX * h->step_work;
    if (a->heads.qk_norm != QK_NORM_ROW && kv_heads % h->threads == 0 && !few_parts) {
        host_run_parts(h, even_parts(h, a, outputs), whole_groups, a);
        return;
    }
    host_run_columns(h, outputs, a->x.k, a->rows, project_columns, a);
    if (a->heads.qk_norm == QK_NORM_ROW)
        host_run_rows(h, a->rows, finish_rows, a);
    else
        host_run_rows(h, a->rows * kv_heads, finish_groups, a);
    host_run_parts(h, divide ? pool_parts(h->pool, work) : h->threads, attend_rows, a);
}

void host_op_attention(struct device *d, const struct op_attention *a)
{
    struct op_attention all = *a;
    sl_assert(!a->chosen.count.address || !a->shape.chunks);
    sl_assert(a->chosen.lists <= 1 || a->chosen.lists == a->shape.kv_heads);
    if (host_attends_all(&a->chosen, a->row, a->rows))
        all.chosen = (struct device_chosen){.stride = 0};
    compute(host_of(d), &all);
}
