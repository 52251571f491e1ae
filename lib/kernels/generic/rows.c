/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations and attention in plain C. */
#include "lib/kernels/internal.h"

#include "lib/tensor/tensor_type.h"

/* exp(x) = 2^n * e^r, |r| <= ln 2 / 2, e^r by its Taylor series up to r^7 (error below 2^-27). */
static float exp_one(float x)
{
    if (x != x)
        return x;
    x = x < -150.0f ? -150.0f : x > 89.0f ? 89.0f : x;
    /* the last bit of the sum is worth 1, so adding and subtracting rounds to an integer */
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* two factors: where the result is subnormal or inf, 2^n alone exceeds the exponent's range */
    int32_t e = (int32_t)n, half = e / 2;
    return p * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(e - half + 127) << 23);
}

static int32_t round_to_i8(float v)
{
    v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v;
    return v != v ? 0 : (int32_t)((v + 12582912.0f) - 12582912.0f);
}

static void quantise_block(const float *x, uint32_t b, int32_t factor, int8_t *q, float *d,
                           int32_t *c)
{
    float max = 0;
    for (uint32_t i = 0; i < QK; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    bool zero = max < ACT_MIN;
    float inverse = zero ? 0.0f : 127.0f / max;
    int32_t sum = 0;
    for (uint32_t i = 0; i < QK; i++) {
        int32_t n = round_to_i8(x[i] * inverse);
        q[act_half(b, i / 16) + i % 16] = (int8_t)n;
        sum += n;
    }
    d[b] = zero ? 0.0f : max / 127.0f;
    c[b] = factor * sum;
}

static void group_activation(const float *x, uint32_t k, uint8_t *out)
{
    int8_t *q = (int8_t *)out;
    float *d = (float *)(void *)(out + group_scale_offset(k));
    float *s = (float *)(void *)(out + group_sum_offset(k));
    memset(s + k / GROUP, 0, kernel_activation_bytes(TENSOR_C8, k) - k - k / GROUP * 2 * sizeof *s);
    for (uint32_t g = 0; g < k / GROUP; g++, x += GROUP, q += GROUP) {
        float max = 0;
        int32_t sum = 0;
        for (uint32_t i = 0; i < GROUP; i++)
            max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        bool zero = max < ACT_MIN;
        float inverse = zero ? 0.0f : 127.0f / max;
        for (uint32_t i = 0; i < GROUP; i++) {
            q[i] = (int8_t)round_to_i8(x[i] * inverse);
            sum += q[i];
        }
        d[g] = zero ? 0.0f : max / 127.0f;
        s[g] = (float)sum;
    }
}

static void generic_activation(enum tensor_type type, const float *x, uint32_t k, void *dst)
{
    enum kernel_form form = kernel_form_of(type);
    if (form == FORM_F32) {
        memcpy(dst, x, (size_t)k * sizeof *x);
        return;
    }
    if (form == FORM_GROUP) {
        group_activation(x, k, dst);
        return;
    }
    uint8_t *out = dst;
    if (k / QK % ACT_PAD != 0)
        memset(out, 0, kernel_activation_bytes(type, k));
    float *d = (float *)(void *)(out + act_scale_offset(k));
    int32_t *c = (int32_t *)(void *)(out + act_corr_offset(k));
    for (uint32_t b = 0; b < k / QK; b++)
        quantise_block(x + (size_t)b * QK, b, act_corr_factor(type), (int8_t *)out, d, c);
}

static void generic_rms_norm(const float *x, const float *weight, uint32_t n, float eps, float *y)
{
    float s[4] = {0};
    for (uint32_t i = 0; i < n; i++)
        s[i % 4] += x[i] * x[i];
    float scale = 1.0f / sqrtf(((s[0] + s[2]) + (s[1] + s[3])) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * scale * weight[i];
}

static void generic_rope(float *x, uint32_t n, const float *cos_sin)
{
    uint32_t half = n / 2;
    for (uint32_t i = 0; i < half; i++) {
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = a * s + b * c;
    }
}

static void generic_silu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0f + exp_one(-gate[i])) * up[i];
}

static void generic_axpy(float a, const float *x, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void generic_to_f16(const float *x, uint32_t n, uint16_t *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = f32_to_f16(x[i]);
}

static void quant_row_to_f32(enum tensor_type type, const uint8_t *row, uint32_t k, float *y)
{
    for (uint32_t b = 0; b < k / QK; b++, y += QK) {
        const uint8_t *block = row + (size_t)b * quant_block_bytes(type);
        float d = f16_to_f32(load_u16(block));
        for (uint32_t i = 0; i < QK; i++) {
            int q = type == TENSOR_Q8_0 ? (int8_t)block[2 + i]
                                        : (i < 16 ? block[2 + i] & 15 : block[i - 14] >> 4) - 8;
            y[i] = (float)q * d;
        }
    }
}

static void generic_row_to_f32(const struct kernel_matrix *w, uint32_t row, float *y)
{
    const uint8_t *p = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    switch (w->type) {
    case TENSOR_F32: memcpy(y, p, (size_t)w->k * sizeof *y); return;
    case TENSOR_F16:
        for (uint32_t i = 0; i < w->k; i++)
            y[i] = f16_to_f32(load_u16(p + 2 * (size_t)i));
        return;
    case TENSOR_BF16:
        for (uint32_t i = 0; i < w->k; i++)
            y[i] = bf16_to_f32(load_u16(p + 2 * (size_t)i));
        return;
    case TENSOR_Q8_0:
    case TENSOR_Q4_0: quant_row_to_f32(w->type, p, w->k, y); return;
    case TENSOR_C8:
    case TENSOR_C4:
    case TENSOR_C2:
    case TENSOR_G4:
    case TENSOR_G2: group_row_to_f32(w, row, y); return;
    default: sl_panic("type %d has no kernels", (int)w->type);
    }
}

/* Converts n F16 values to F32, padded with zeros to a multiple of 8. */
static void halves_to_f32(const uint16_t *restrict h, uint32_t n, float *restrict y)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        UNROLL for (uint32_t l = 0; l < 8; l++) y[i + l] = f16_to_f32(h[i + l]);
    for (uint32_t end = (n + 7) / 8 * 8; i < end; i++)
        y[i] = i < n ? f16_to_f32(h[i]) : 0.0f;
}

/* Dot product of a query and a key, both padded with zeros to a multiple of 8. */
static float key_score(const float *restrict q, const float *restrict key, uint32_t n)
{
    float s[8] = {0};
    for (uint32_t i = 0; i < n; i += 8)
        UNROLL for (uint32_t l = 0; l < 8; l++) s[l] += q[i + l] * key[i + l];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void add_value(float p, const float *restrict v, uint32_t n, float *restrict acc)
{
    for (uint32_t i = 0; i < n; i += 8)
        UNROLL for (uint32_t l = 0; l < 8; l++) acc[i + l] += p * v[i + l];
}

/* One head: running maximum m, sum of exponentials l, weighted values acc, rescaled for each tile.
 */
static void head_attention(const struct kernel_attention *a, uint32_t head)
{
    size_t stride = (size_t)a->kv_heads * a->head_size;
    size_t first = (size_t)(head / (a->heads / a->kv_heads)) * a->head_size;
    float q[KERNEL_HEAD_SIZE_MAX] = {0}, acc[KERNEL_HEAD_SIZE_MAX] = {0}, row[KERNEL_HEAD_SIZE_MAX];
    float m = -INFINITY, l = 0;
    memcpy(q, a->q + (size_t)head * a->head_size, a->head_size * sizeof *q);
    for (uint32_t at = 0; at < a->positions; at += KERNEL_KEY_TILE) {
        uint32_t left = a->positions - at, count = left < KERNEL_KEY_TILE ? left : KERNEL_KEY_TILE;
        float p[KERNEL_KEY_TILE], top = m, sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            halves_to_f32(a->k + (at + i) * stride + first, a->head_size, row);
            p[i] = key_score(q, row, a->head_size) * a->scale;
            top = p[i] > top ? p[i] : top;
        }
        float old = exp_one(m - top);
        for (uint32_t d = 0; d < a->head_size; d++)
            acc[d] *= old;
        for (uint32_t i = 0; i < count; i++) {
            halves_to_f32(a->v + (at + i) * stride + first, a->head_size, row);
            p[i] = exp_one(p[i] - top);
            sum += p[i];
            add_value(p[i], row, a->head_size, acc);
        }
        l = l * old + sum;
        m = top;
    }
    for (uint32_t d = 0; d < a->head_size; d++)
        a->out[(size_t)head * a->head_size + d] = acc[d] / l;
}

static void generic_attention(const struct kernel_attention *a)
{
    sl_assert(a->head_size <= KERNEL_HEAD_SIZE_MAX && a->positions > 0);
    for (uint32_t head = a->head_begin; head < a->head_end; head++)
        head_attention(a, head);
}

const struct kernel_ops generic_ops = {
    .isa = ISA_GENERIC,
    .name = "generic",
    .activation = generic_activation,
    .matmul = generic_matmul,
    .rms_norm = generic_rms_norm,
    .rope = generic_rope,
    .silu_mul = generic_silu_mul,
    .attention = generic_attention,
    .axpy = generic_axpy,
    .to_f16 = generic_to_f16,
    .row_to_f32 = generic_row_to_f32,
};
