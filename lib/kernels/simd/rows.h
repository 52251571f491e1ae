/* SPDX-License-Identifier: Apache-2.0 */
/* Template of row operations over the vector primitives of vec.h; included once per instruction
 * set. Row ends are masked vectors, so an element's arithmetic does not depend on where the row
 * ends. */

/* Loop over the vectors of `count` elements: `i` is the first element, `n` the number of lanes. */
#define FOR_VECTORS(i, n, count)                                                                   \
    for (uint32_t i = 0, n; i < (count) && (n = (count)-i < VL ? (count)-i : VL, true); i += VL)

static void simd_group_activation(const float *x, uint32_t k, uint8_t *out)
{
    int8_t *q = (int8_t *)out;
    float *d = (float *)(void *)(out + group_scale_offset(k));
    float *s = (float *)(void *)(out + group_sum_offset(k));
    memset(s + k / GROUP, 0, kernel_activation_bytes(TENSOR_C8, k) - k - k / GROUP * 2 * sizeof *s);
    for (uint32_t g = 0; g < k / GROUP; g++, x += GROUP, q += GROUP) {
        vf top = vf_abs(vf_load(x));
        UNROLL for (int i = VL; i < GROUP; i += VL) top = vf_max(top, vf_abs(vf_load(x + i)));
        float max = vf_max_lane(top);
        bool zero = max < ACT_MIN;
        float inverse = zero ? 0.0f : 127.0f / max;
        int32_t sum = 0;
        UNROLL for (int i = 0; i < GROUP; i += 16) sum += quantise_half(x + i, inverse, q + i);
        d[g] = zero ? 0.0f : max / 127.0f;
        s[g] = (float)sum;
    }
}

static void simd_super_activation(const float *x, uint32_t k, uint8_t *out)
{
    float *d = (float *)(void *)(out + super_scale_offset(k));
    uint8_t *sums = out + super_sum_offset(k), *end = sums + k / 16 * sizeof(int16_t);
    memset(end, 0, kernel_activation_bytes(TENSOR_Q4_K, k) - (size_t)(end - out));
    for (uint32_t g = 0; g < k / SUPER; g++, x += SUPER) {
        vf top = vf_abs(vf_load(x));
        for (int i = VL; i < SUPER; i += VL)
            top = vf_max(top, vf_abs(vf_load(x + i)));
        float max = vf_max_lane(top);
        bool zero = max < ACT_MIN;
        float inverse = zero ? 0.0f : 127.0f / max;
        d[g] = zero ? 0.0f : max / 127.0f;
        for (uint32_t i = 0; i < SUPER; i += 16, sums += 2) {
            int16_t sum =
                (int16_t)quantise_half(x + i, inverse, (int8_t *)out + (size_t)g * SUPER + i);
            memcpy(sums, &sum, sizeof sum);
        }
    }
}

static void simd_activation(enum tensor_type type, const float *x, uint32_t k, void *dst)
{
    enum kernel_form form = kernel_form_of(type);
    if (form == FORM_F32) {
        memcpy(dst, x, (size_t)k * sizeof *x);
        return;
    }
    if (form == FORM_GROUP) {
        simd_group_activation(x, k, dst);
        return;
    }
    if (form == FORM_SUPER) {
        simd_super_activation(x, k, dst);
        return;
    }
    uint8_t *out = dst;
    if (k / QK % ACT_PAD != 0)
        memset(out, 0, kernel_activation_bytes(type, k));
    float *d = (float *)(void *)(out + act_scale_offset(k));
    int32_t *c = (int32_t *)(void *)(out + act_corr_offset(k));
    for (uint32_t b = 0; b < k / QK; b++, x += QK) {
        vf top = vf_abs(vf_load(x));
        UNROLL for (int i = VL; i < QK; i += VL) top = vf_max(top, vf_abs(vf_load(x + i)));
        float max = vf_max_lane(top);
        bool zero = max < ACT_MIN;
        float inverse = zero ? 0.0f : 127.0f / max;
        int32_t first = quantise_half(x, inverse, (int8_t *)out + act_half(b, 0));
        int32_t last = quantise_half(x + 16, inverse, (int8_t *)out + act_half(b, 1));
        d[b] = zero ? 0.0f : max / 127.0f;
        act_put_corr(type, k, b, first, last, c);
    }
}

static void simd_rms_norm(const float *x, const float *weight, uint32_t n, float eps, float *y)
{
    vf sum[HALVES];
    UNROLL for (int half = 0; half < HALVES; half++) sum[half] = vf_set1(0);
    uint32_t at = 0;
    for (; at + 16 <= n; at += 16) {
        UNROLL for (int half = 0; half < HALVES; half++)
        {
            vf v = vf_load(x + at + half * VL);
            sum[half] = vf_fma(v, v, sum[half]);
        }
    }
    for (int half = 0; at < n; half++, at += VL) {
        uint32_t lanes = n - at < VL ? n - at : VL;
        vf v = vf_load_n(x + at, lanes);
        sum[half] = vf_fma_n(v, v, sum[half], lanes);
    }
    vf scale = vf_set1(1.0f / sqrtf(vf_sum16(sum) / (float)n + eps));
    FOR_VECTORS(i, lanes, n)
    {
        vf v = vf_mul(vf_load_n(x + i, lanes), scale);
        vf_store_n(y + i, vf_mul(v, vf_load_n(weight + i, lanes)), lanes);
    }
}

/* No fused multiply-add, so that the scalar tail rounds like the vectors. */
static void simd_rope(float *x, uint32_t n, const float *cos_sin)
{
    uint32_t half = n / 2, i = 0;
    for (; i + VL <= half; i += VL) {
        vf c, s, a = vf_load(x + i), b = vf_load(x + half + i);
        vf_pairs(cos_sin + 2 * (size_t)i, &c, &s);
        vf_store(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
        vf_store(x + half + i, vf_add(vf_mul(a, s), vf_mul(b, c)));
    }
    for (; i < half; i++) {
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = a * s + b * c;
    }
}

static void simd_silu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
    vf one = vf_set1(1);
    FOR_VECTORS(i, lanes, n)
    {
        vf g = vf_load_n(gate + i, lanes);
        vf silu = vf_div(g, vf_add(one, vf_exp(vf_sub(vf_set1(0), g))));
        vf_store_n(y + i, vf_mul(silu, vf_load_n(up + i, lanes)), lanes);
    }
}

/* min(x, SWIGLU_LIMIT). NaN stays NaN: max then returns its second operand. */
static ALWAYS_INLINE vf below_limit(vf x)
{
    return vf_sub(vf_set1(0), vf_max(vf_set1(-SWIGLU_LIMIT), vf_sub(vf_set1(0), x)));
}

static void simd_swiglu_clamped(const float *gate, const float *up, uint32_t n, float *y)
{
    vf one = vf_set1(1), alpha = vf_set1(SWIGLU_ALPHA);
    FOR_VECTORS(i, lanes, n)
    {
        vf g = below_limit(vf_load_n(gate + i, lanes));
        vf u = vf_max(vf_set1(-SWIGLU_LIMIT), below_limit(vf_load_n(up + i, lanes)));
        vf s = vf_div(g, vf_add(one, vf_exp(vf_sub(vf_set1(0), vf_mul(alpha, g)))));
        vf_store_n(y + i, vf_mul(s, vf_add(u, one)), lanes);
    }
}

static void simd_gelu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
    vf one = vf_set1(1), cube = vf_set1(GELU_CUBE), slope = vf_set1(GELU_SLOPE);
    FOR_VECTORS(i, lanes, n)
    {
        vf g = vf_load_n(gate + i, lanes);
        vf e = vf_exp(vf_mul(g, vf_fma(cube, vf_mul(g, g), slope)));
        vf gelu = vf_div(g, vf_add(one, e));
        vf_store_n(y + i, vf_mul(gelu, vf_load_n(up + i, lanes)), lanes);
    }
}

static void simd_soft_cap(float cap, const float *x, uint32_t n, float *y)
{
    vf one = vf_set1(1), all = vf_set1(cap), slope = vf_set1(2.0f / cap),
       range = vf_set1(2.0f * cap);
    FOR_VECTORS(i, lanes, n)
    {
        vf e = vf_exp(vf_mul(vf_load_n(x + i, lanes), slope));
        vf_store_n(y + i, vf_sub(all, vf_div(range, vf_add(one, e))), lanes);
    }
}

static void simd_axpy(float a, const float *x, uint32_t n, float *y)
{
    vf factor = vf_set1(a);
    FOR_VECTORS(i, lanes, n)
    vf_store_n(y + i, vf_fma(factor, vf_load_n(x + i, lanes), vf_load_n(y + i, lanes)), lanes);
}

static void simd_to_f16(const float *x, uint32_t n, uint16_t *y)
{
    FOR_VECTORS(i, lanes, n)
    vh_store_n(y + i, vf_load_n(x + i, lanes), lanes);
}

static void simd_quant_row(enum tensor_type type, const uint8_t *row, uint32_t k, float *y)
{
    uint32_t bytes = tensor_type_info((uint32_t)type)->block_bytes;
    for (uint32_t b = 0; b < k / QK; b++, row += bytes, y += QK) {
        const uint8_t *codes = row + 2;
        vf d = vf_set1(f16_to_f32(load_u16(row)));
        UNROLL for (int i = 0; i < QK; i += VL)
        {
            vf code = type == TENSOR_Q8_0 ? vf_from_i8(codes + i)
                                          : vf_from_nibbles(codes + i % 16, i >= 16);
            vf_store(y + i, vf_mul(code, d));
        }
    }
}

static void simd_row_to_f32(const struct kernel_matrix *w, uint32_t row, float *y)
{
    const uint8_t *p = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    switch (w->type) {
    case TENSOR_F32: memcpy(y, p, (size_t)w->k * sizeof *y); return;
    case TENSOR_F16:
        FOR_VECTORS(i, lanes, w->k)
        vf_store_n(y + i, vh_load_n(p + 2 * (size_t)i, lanes), lanes);
        return;
    case TENSOR_BF16:
        FOR_VECTORS(i, lanes, w->k)
        vf_store_n(y + i, vb_load_n(p + 2 * (size_t)i, lanes), lanes);
        return;
    case TENSOR_Q8_0:
    case TENSOR_Q4_0: simd_quant_row(w->type, p, w->k, y); return;
    case TENSOR_C8:
    case TENSOR_C4:
    case TENSOR_C2:
    case TENSOR_G4:
    case TENSOR_G2: group_row_to_f32(w, row, y); return;
    default: unpack_row((uint32_t)w->type, p, w->k, y); return;
    }
}
