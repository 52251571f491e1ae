/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in two kernels. ARITHMETIC.md computes segments of 512 keys, each with a running
 * softmax of its own, and joins them in ascending order. So a block has one segment of one query
 * head of one row, and in decode a long context is many blocks instead of one per head; the second
 * kernel joins them.
 *
 * A tile of 64 keys in a block of 128 threads:
 *   scores   F16, F32: 16 threads per key, the 16 sums; a step reads 16 elements of 8 keys.
 *            Q8_0, Q4_0: a thread per key; words of neighbouring keys lie together (kv_layout.h)
 *   softmax  every warp computes maximum and sum for itself, from shared memory
 *   values   a thread per element, keys ascending; neighbouring threads read neighbouring elements
 * Query heads that share keys are blocks next to each other, and share them by the L2 cache. */
#include "lib/cuda/device.cuh"

#define ATTEND_THREADS 128
#define ATTEND_EACH    ((KERNEL_VALUE_SIZE_MAX + ATTEND_THREADS - 1) / ATTEND_THREADS)

struct attend_args {
    kernel_attention a;
    float *work; /* [row][head][segment]: m, l, acc[value_size] */
    size_t key_tile, value_tile;
    uint32_t segments;        /* of a row, at most */
    const uint32_t *position; /* of the only row; NULL: by a.positions */
};

struct attend_shared {
    float q[KERNEL_HEAD_SIZE_MAX];
    int32_t code[KERNEL_HEAD_SIZE_MAX / 4]; /* of a quantised query */
    float d[KERNEL_HEAD_SIZE_MAX / QK];
    float p[KERNEL_KEY_TILE];
};

/* The keys of a tile that count, and where they are. */
struct attend_tile {
    const uint8_t *keys, *values; /* values NULL: those of the keys */
    uint32_t first, end;
};

INLINE uint32_t positions_of(const attend_args &g, uint32_t row)
{
    return (g.position ? *g.position + 1 : g.a.positions) + row;
}

/* What a block computes, in the workspace. */
INLINE float *work_of(const attend_args &g, uint32_t row, uint32_t head, uint32_t segment)
{
    uint32_t heads = g.a.head_end - g.a.head_begin;
    size_t at = ((size_t)row * heads + head - g.a.head_begin) * g.segments + segment;
    return g.work + at * (2 + (size_t)g.a.value_size);
}

INLINE void load_query(const attend_args &g, uint32_t row, uint32_t head, attend_shared *m)
{
    const kernel_attention &a = g.a;
    const float *q = a.q + row * a.q_stride + (size_t)head * a.key_size;
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t e = threadIdx.x; e < a.key_size; e += ATTEND_THREADS)
        m->q[e] = q[e];
    for (uint32_t b = threadIdx.x / WARP;
         kv_is_quantised(a.kv_type) && b < kv_padded(a.key_size) / QK; b += ATTEND_THREADS / WARP) {
        float x = b * QK + lane < a.key_size ? q[b * QK + lane] : 0;
        float max = max_of_warp(fmaxf(0.0f, fabsf(x))); /* 0 if all are NaN */
        bool zero = max < ACT_MIN;
        float inverse = zero ? 0.0f : 127.0f / max;
        ((int8_t *)m->code)[b * QK + lane] = (int8_t)round_to_i8(x * inverse);
        if (lane == 0)
            m->d[b] = zero ? 0.0f : max / 127.0f;
    }
}

INLINE float half_or_float(enum kv_type type, const uint8_t *tile, size_t i)
{
    return type == KV_TYPE_F16 ? load_half(tile + 2 * i) : load_as<float>(tile + 4 * i);
}

INLINE float cap_score(float x, float cap)
{
    if (cap == 0)
        return x;
    x = x / cap;
    return (1.0f - 2.0f / (exp_one(x + x) + 1.0f)) * cap;
}

INLINE void scores_of_floats(const kernel_attention &a, const attend_tile &t, attend_shared *m)
{
    uint32_t lane = threadIdx.x % LANES;
    for (uint32_t base = t.first; base < t.end; base += ATTEND_THREADS / LANES) {
        uint32_t i = base + threadIdx.x / LANES;
        float sum = 0;
        for (uint32_t e = lane; i < t.end && e < a.key_size; e += LANES)
            sum = fmaf(m->q[e], half_or_float(a.kv_type, t.keys, (size_t)i * a.key_size + e), sum);
        sum = sum_16(sum);
        if (lane == 0 && i < t.end)
            m->p[i] = cap_score(sum * a.scale, a.cap);
    }
}

/* Σ code * q of a block of a key. */
INLINE int32_t key_dot(enum kv_type type, const uint8_t *keys, uint32_t padded, uint32_t key,
                       uint32_t b, const int32_t *q)
{
    int32_t dot = 0;
    if (type == KV_TYPE_Q8_0) {
        for (uint32_t e = b * QK; e < (b + 1) * QK; e += 4)
            dot = __dp4a((int32_t)load_as<uint32_t>(keys + kv_key_word(type, padded, key, e)),
                         q[e / 4], dot);
        return dot;
    }
    int32_t sum = 0;
    for (uint32_t e = b * QK; e < (b + 1) * QK; e += 8) {
        uint32_t w = load_as<uint32_t>(keys + kv_key_word(type, padded, key, e));
        dot = __dp4a((int32_t)(w & 0x0f0f0f0fu), q[e / 4], dot);
        dot = __dp4a((int32_t)(w >> 4 & 0x0f0f0f0fu), q[e / 4 + 1], dot);
        sum = __dp4a(0x08080808, q[e / 4], __dp4a(0x08080808, q[e / 4 + 1], sum));
    }
    return dot - sum;
}

INLINE void scores_of_codes(const kernel_attention &a, const attend_tile &t, attend_shared *m)
{
    uint32_t i = threadIdx.x, padded = kv_padded(a.key_size);
    if (i < t.first || i >= t.end)
        return;
    float sum = 0;
    for (uint32_t b = 0; b < padded / QK; b++) {
        float dk = load_half(t.keys + kv_scale_offset(a.kv_type, padded, b, i));
        int32_t dot = key_dot(a.kv_type, t.keys, padded, i, b, m->code);
        sum = fmaf((float)dot * dk, m->d[b], sum);
    }
    m->p[i] = cap_score(a.scale * sum, a.cap);
}

/* Element d of the value of a key. */
INLINE float value_at(const kernel_attention &a, const attend_tile &t, uint32_t key, uint32_t d)
{
    bool own = t.values != NULL;
    const uint8_t *tile = own ? t.values : t.keys;
    uint32_t size = own ? a.value_size : a.key_size, padded = kv_padded(size);
    if (!kv_is_quantised(a.kv_type))
        return half_or_float(a.kv_type, tile, (size_t)key * size + d);
    float scale = load_half(tile + kv_scale_offset(a.kv_type, padded, d / QK, key));
    bool q4 = a.kv_type == KV_TYPE_Q4_0;
    uint32_t byte, high;
    if (own) {
        byte = tile[kv_value_row(a.kv_type, padded, key) +
                    (q4 ? d / QK * (QK / 2) + d % (QK / 2) : d)];
        high = d / (QK / 2) % 2;
    } else {
        byte = tile[kv_key_word(a.kv_type, padded, key, d / 4 * 4) + d % 4];
        high = d / 4 % 2;
    }
    int32_t code = q4 ? (int32_t)(byte >> 4 * high & 15) - 8 : (int8_t)byte;
    return scale * (float)code;
}

/* The running softmax of a segment; m and l are the same in all threads. */
struct attend_state {
    float m, l, acc[ATTEND_EACH];
};

INLINE void add_tile(const kernel_attention &a, const attend_tile &t, attend_shared *m,
                     attend_state *s)
{
    uint32_t lane = threadIdx.x % WARP;
    float top = s->m, sum = 0;
    __syncthreads(); /* the tile before is not read any more; the query is there */
    if (kv_is_quantised(a.kv_type))
        scores_of_codes(a, t, m);
    else
        scores_of_floats(a, t, m);
    __syncthreads();
    for (uint32_t i = lane; i < KERNEL_KEY_TILE; i += WARP)
        if (i >= t.first && i < t.end)
            top = fmaxf(top, m->p[i]);
    top = max_of_warp(top);
    __syncthreads(); /* every warp has the maximum */
    if (threadIdx.x >= t.first && threadIdx.x < t.end)
        m->p[threadIdx.x] = exp_one(m->p[threadIdx.x] - top);
    __syncthreads();
    for (uint32_t i = lane % LANES; i < t.end; i += LANES)
        if (i >= t.first)
            sum += m->p[i];
    sum = sum_16(sum);
    float old = exp_one(s->m - top);
#pragma unroll
    for (int c = 0; c < ATTEND_EACH; c++) {
        uint32_t d = threadIdx.x + c * ATTEND_THREADS;
        s->acc[c] *= old;
        for (uint32_t i = t.first; d < a.value_size && i < t.end; i++)
            s->acc[c] = fmaf(m->p[i], value_at(a, t, i, d), s->acc[c]);
    }
    s->l = fmaf(s->l, old, sum);
    s->m = top;
}

/* Segment x of those of a row, head y, row z. */
__global__ void __launch_bounds__(ATTEND_THREADS) attend_segments(attend_args g)
{
    const kernel_attention &a = g.a;
    attend_shared *m = (attend_shared *)(void *)shared_memory();
    uint32_t row = blockIdx.z, head = a.head_begin + blockIdx.y, positions = positions_of(g, row);
    uint32_t begin = kernel_attention_begin(a.window, positions);
    uint32_t segment = begin / KERNEL_KEY_SEGMENT + blockIdx.x;
    uint32_t kv_head = head / (a.heads / a.kv_heads), at = segment * KERNEL_KEY_SEGMENT;
    if (at >= positions) /* a shorter row: for the whole block */
        return;
    uint32_t end = positions - at < KERNEL_KEY_SEGMENT ? positions : at + KERNEL_KEY_SEGMENT;
    if (begin > at)
        at = begin / KERNEL_KEY_TILE * KERNEL_KEY_TILE;
    load_query(g, row, head, m);
    attend_state s = {-INFINITY, 0, {0}};
    for (; at < end; at += KERNEL_KEY_TILE) {
        size_t number =
            (size_t)(kernel_ring_position(a.ring, at) / KERNEL_KEY_TILE) * a.kv_heads + kv_head;
        attend_tile t = {(const uint8_t *)a.k + number * g.key_tile,
                         a.v ? (const uint8_t *)a.v + number * g.value_tile : NULL,
                         begin > at ? begin - at : 0,
                         positions - at < KERNEL_KEY_TILE ? positions - at : KERNEL_KEY_TILE};
        add_tile(a, t, m, &s);
    }
    float *work = work_of(g, row, head, blockIdx.x);
    if (threadIdx.x == 0) {
        work[0] = s.m;
        work[1] = s.l;
    }
#pragma unroll
    for (int c = 0; c < ATTEND_EACH; c++) {
        uint32_t d = threadIdx.x + c * ATTEND_THREADS;
        if (d < a.value_size)
            work[2 + d] = s.acc[c];
    }
}

/* Joins the segments of head x of row y, then the sink. */
__global__ void __launch_bounds__(ATTEND_THREADS) attend_join(attend_args g)
{
    const kernel_attention &a = g.a;
    uint32_t row = blockIdx.y, head = a.head_begin + blockIdx.x, positions = positions_of(g, row);
    uint32_t first = kernel_attention_begin(a.window, positions) / KERNEL_KEY_SEGMENT;
    uint32_t segments = (positions - 1) / KERNEL_KEY_SEGMENT + 1 - first;
    for (uint32_t d = threadIdx.x; d < a.value_size; d += ATTEND_THREADS) {
        const float *work = work_of(g, row, head, 0);
        float m = work[0], l = work[1], acc = work[2 + d];
        for (uint32_t s = 1; s < segments; s++) {
            work = work_of(g, row, head, s);
            float top = work[0] > m ? work[0] : m;
            float old = exp_one(m - top), now = exp_one(work[0] - top);
            acc = fmaf(work[2 + d], now, acc * old);
            l = fmaf(work[1], now, l * old);
            m = top;
        }
        if (a.sinks) {
            float sink = a.sinks[head], top = sink > m ? sink : m, old = exp_one(m - top);
            acc = acc * old;
            l = l * old + exp_one(sink - top);
        }
        a.out[row * a.out_stride + (size_t)head * a.value_size + d] = acc / l;
    }
}

/* At most that many: rows begin at different keys, so one more than the last row's. */
static uint32_t segments_of(const struct kernel_attention *a)
{
    uint32_t begin = kernel_attention_begin(a->window, a->positions);
    return (a->positions + a->rows - 2) / KERNEL_KEY_SEGMENT - begin / KERNEL_KEY_SEGMENT + 1;
}

/* Those of attention_check, and what a grid is limited to. */
static bool attention_fits(const struct kernel_attention *a)
{
    bool sizes = (uint32_t)a->kv_type < KV_TYPE__COUNT && a->key_size <= KERNEL_HEAD_SIZE_MAX &&
                 a->value_size <= KERNEL_VALUE_SIZE_MAX && (a->v || a->value_size <= a->key_size);
    bool heads = rows_fit(a->heads) && a->kv_heads > 0 && a->heads % a->kv_heads == 0 &&
                 a->head_begin <= a->head_end && a->head_end <= a->heads;
    bool rows =
        rows_fit(a->rows) && a->positions > 0 && count_fits((uint64_t)a->positions + a->rows);
    bool ring = a->ring == 0 || (a->ring % KERNEL_KEY_TILE == 0 && a->window > 0 &&
                                 (uint64_t)a->window + a->rows - 1 <= a->ring);
    return sizes && heads && rows && ring;
}

/* Without rows, heads or elements there is no result. */
static bool attention_is_empty(const struct kernel_attention *a)
{
    return a->rows == 0 || a->head_begin == a->head_end || a->value_size == 0;
}

extern "C" size_t gpu_attention_workspace(const struct kernel_attention *a)
{
    if (!attention_fits(a) || attention_is_empty(a))
        return 0;
    return (size_t)a->rows * (a->head_end - a->head_begin) * segments_of(a) *
           (2 + (size_t)a->value_size) * sizeof(float);
}

static int attend(const struct kernel_attention *a, const uint32_t *position, uint32_t segments,
                  void *workspace, void *stream)
{
    attend_args g = {*a,
                     (float *)workspace,
                     (size_t)kv_tile_bytes(a->kv_type, a->key_size),
                     (size_t)kv_tile_bytes(a->kv_type, a->value_size),
                     segments,
                     position};
    uint32_t heads = a->head_end - a->head_begin;
    int status = LAUNCH(attend_segments, dim3(g.segments, heads, a->rows), dim3(ATTEND_THREADS),
                        sizeof(attend_shared), stream, g);
    if (status != 0)
        return status;
    return LAUNCH(attend_join, dim3(heads, a->rows), dim3(ATTEND_THREADS), 0, stream, g);
}

extern "C" int gpu_attention(const struct kernel_attention *a, void *workspace, void *stream)
{
    if (!attention_fits(a))
        return GPU_UNSUPPORTED;
    if (attention_is_empty(a))
        return 0;
    return attend(a, NULL, segments_of(a), workspace, stream);
}

/* Segments of a row at any position: those of a window may begin and end within one. */
extern "C" int gpu_attention_at(const struct kernel_attention *a, const uint32_t *position,
                                void *workspace, void *stream)
{
    if (!attention_fits(a) || a->rows > 1)
        return GPU_UNSUPPORTED;
    if (attention_is_empty(a))
        return 0;
    uint32_t segments = (a->positions - 1) / KERNEL_KEY_SEGMENT + 1;
    uint32_t of_window =
        (uint32_t)(((uint64_t)a->window + KERNEL_KEY_SEGMENT - 2) / KERNEL_KEY_SEGMENT) + 1;
    if (a->window != 0 && of_window < segments)
        segments = of_window;
    return attend(a, position, segments, workspace, stream);
}
