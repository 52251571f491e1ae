/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels: included by table.h. */
/* Row operations in plain C. */

/* sum: of the first half, and of the last. */
static void quantise_block(const float *x, uint32_t b, int8_t *q, float *d, int32_t sum[2])
{
    float max = 0;
    for (uint32_t i = 0; i < QK; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    bool zero = max < ACT_MIN;
    float inverse = zero ? 0.0f : 127.0f / max;
    sum[0] = sum[1] = 0;
    for (uint32_t i = 0; i < QK; i++) {
        int32_t n = round_to_i8(x[i] * inverse);
        q[act_half(b, i / 16) + i % 16] = (int8_t)n;
        sum[i / 16] += n;
    }
    d[b] = zero ? 0.0f : max / 127.0f;
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

static void super_activation(const float *x, uint32_t k, uint8_t *out)
{
    int8_t *q = (int8_t *)out;
    float *d = (float *)(void *)(out + super_scale_offset(k));
    uint8_t *sums = out + super_sum_offset(k), *end = sums + k / 16 * sizeof(int16_t);
    memset(end, 0, kernel_activation_bytes(TENSOR_Q4_K, k) - (size_t)(end - out));
    for (uint32_t g = 0; g < k / SUPER; g++) {
        float max = 0;
        for (uint32_t i = 0; i < SUPER; i++)
            max = fabsf(x[g * SUPER + i]) > max ? fabsf(x[g * SUPER + i]) : max;
        bool zero = max < ACT_MIN;
        float inverse = zero ? 0.0f : 127.0f / max;
        d[g] = zero ? 0.0f : max / 127.0f;
        for (uint32_t at = g * SUPER; at < (g + 1) * SUPER; at += 16, sums += 2) {
            int16_t sum = 0;
            for (uint32_t i = at; i < at + 16; i++) {
                q[i] = (int8_t)round_to_i8(x[i] * inverse);
                sum = (int16_t)(sum + q[i]);
            }
            memcpy(sums, &sum, sizeof sum);
        }
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
    if (form == FORM_SUPER) {
        super_activation(x, k, dst);
        return;
    }
    uint8_t *out = dst;
    if (k / QK % ACT_PAD != 0)
        memset(out, 0, kernel_activation_bytes(type, k));
    float *d = (float *)(void *)(out + act_scale_offset(k));
    int32_t *c = (int32_t *)(void *)(out + act_corr_offset(k));
    for (uint32_t b = 0; b < k / QK; b++) {
        int32_t sum[2];
        quantise_block(x + (size_t)b * QK, b, (int8_t *)out, d, sum);
        act_put_corr(type, k, b, sum[0], sum[1], c);
    }
}

static void generic_rms_norm(const float *x, const float *weight, uint32_t n, float eps, float *y)
{
    float s[LANES] = {0};
    lanes_add(x, x, n, s);
    float scale = 1.0f / sqrtf(sum_lanes(s) / (float)n + eps);
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
        y[i] = gate[i] / (1.0f + exp_one(0.0f - gate[i])) * up[i];
}

static void generic_swiglu_clamped(const float *gate, const float *up, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i] > SWIGLU_LIMIT ? SWIGLU_LIMIT : gate[i];
        float u = up[i] > SWIGLU_LIMIT ? SWIGLU_LIMIT : up[i];
        u = u < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : u;
        y[i] = g / (1.0f + exp_one(0.0f - SWIGLU_ALPHA * g)) * (u + 1.0f);
    }
}

static void generic_gelu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i];
        y[i] = g / (1.0f + exp_one(g * fmaf(GELU_CUBE, g * g, GELU_SLOPE))) * up[i];
    }
}

static void generic_soft_cap(float cap, const float *x, uint32_t n, float *y)
{
    float slope = 2.0f / cap, range = 2.0f * cap;
    for (uint32_t i = 0; i < n; i++)
        y[i] = cap - range / (1.0f + exp_one(x[i] * slope));
}

static void generic_axpy(float a, const float *x, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

static void generic_to_f16(const float *x, uint32_t n, uint16_t *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = f32_to_f16(x[i]);
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
    case TENSOR_C8:
    case TENSOR_C4:
    case TENSOR_C2:
    case TENSOR_G4:
    case TENSOR_G2: group_row_to_f32(w, row, y); return;
    default: unpack_row((uint32_t)w->type, p, w->k, y); return;
    }
}
