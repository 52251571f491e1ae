/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations, attention, sampling helpers and selection of an instruction set. */
#include "tests/unit/lib/kernels/kernel_test.h"

#include "lib/tensor/tensor_type.h"

static const uint32_t lengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 100, 2048};

static bool near(double got, double want, double size)
{
    return fabs(got - want) <= 3e-6 * size + 1e-30;
}

/* A form without its type would be prepared as F32: the engine would compute wrong text. */
START_TEST(forms_have_a_type)
{
    for (int f = 0; f < FORM__COUNT; f++)
        ck_assert_int_eq(kernel_form_of(kernel_form_type((enum kernel_form)f)), f);
}
END_TEST

START_TEST(rms_norm_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float x[2048], weight[2048], y[2049];
    test_seed(31);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint32_t n = lengths[i];
        test_fill(x, n);
        test_fill(weight, n);
        y[n] = 42;
        ops->rms_norm(x, weight, n, 1e-5f, y);
        double sum = 0;
        for (uint32_t e = 0; e < n; e++)
            sum += (double)x[e] * (double)x[e];
        double scale = 1 / sqrt(sum / n + 1e-5);
        for (uint32_t e = 0; e < n; e++)
            ck_assert(near((double)y[e], (double)x[e] * scale * (double)weight[e], 4));
        ck_assert_float_eq(y[n], 42);
        ops->rms_norm(x, weight, n, 1e-5f, x);
        ck_assert_mem_eq(x, y, n * sizeof *x);
    }
}
END_TEST

START_TEST(silu_mul_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const float special[] = {0.0f, -0.0f, 50, -50, -87, -88.5f, -89, -100, 1e4f, -1e4f};
    float gate[2048], up[2048], y[2048];
    test_seed(32);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint32_t n = lengths[i];
        test_fill(up, n);
        for (uint32_t e = 0; e < n; e++)
            gate[e] = e < ARRAY_LEN(special) ? special[e] : test_uniform() * 20;
        ops->silu_mul(gate, up, n, y);
        for (uint32_t e = 0; e < n; e++) {
            double silu = (double)gate[e] / (1 + exp(-(double)gate[e]));
            ck_assert_msg(near((double)y[e], silu * (double)up[e], fabs(silu) + 1e-30),
                          "silu(%g) * %g is %g", (double)gate[e], (double)up[e], (double)y[e]);
        }
        ops->silu_mul(gate, up, n, gate);
        ck_assert_mem_eq(gate, y, n * sizeof *y);
    }
}
END_TEST

START_TEST(swiglu_clamped_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const uint32_t sizes[] = {1, 7, 16, 33, 200};
    float gate[200], up[200], y[200];
    test_seed(37);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint32_t n = sizes[s];
        test_fill(gate, n);
        test_fill(up, n);
        for (uint32_t i = 0; i < n; i++) { /* also beyond the limits, and far below */
            gate[i] *= i % 3 ? 9.0f : 150.0f;
            up[i] *= 9;
        }
        ops->swiglu_clamped(gate, up, n, y);
        for (uint32_t i = 0; i < n; i++) {
            double g = fmin((double)gate[i], 7), u = fmax(fmin((double)up[i], 7), -7);
            double want = (u + 1) * g / (1 + exp(-1.702 * g));
            ck_assert_msg(fabs((double)y[i] - want) <= 2e-6 * fabs(want) + 1e-30,
                          "gate %g, up %g: %g, not %g", (double)gate[i], (double)up[i],
                          (double)y[i], want);
        }
        ops->swiglu_clamped(gate, up, n, gate);
        ck_assert_mem_eq(gate, y, n * sizeof *y);
    }
}
END_TEST

START_TEST(gelu_mul_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const float special[] = {0.0f, -0.0f, 5, -5, -13, 1e4f, -1e4f, 1e30f, -1e30f};
    float gate[2048], up[2048], y[2048];
    test_seed(34);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint32_t n = lengths[i];
        test_fill(up, n);
        for (uint32_t e = 0; e < n; e++)
            gate[e] = e < ARRAY_LEN(special) ? special[e] : test_uniform() * 4;
        ops->gelu_mul(gate, up, n, y);
        for (uint32_t e = 0; e < n; e++) {
            double g = (double)gate[e], cube = 0.044715 * g * g * g;
            double gelu = g / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (g + cube)));
            ck_assert_msg(near((double)y[e], gelu * (double)up[e], fabs(gelu) + 0.01),
                          "gelu(%g) * %g is %g", g, (double)up[e], (double)y[e]);
        }
        ops->gelu_mul(gate, up, n, gate);
        ck_assert_mem_eq(gate, y, n * sizeof *y);
    }
}
END_TEST

START_TEST(soft_cap_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const float special[] = {0.0f, -0.0f, 30, -30, 300, -300, 1e30f, -1e30f};
    float x[2048], y[2048];
    test_seed(35);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint32_t n = lengths[i];
        for (uint32_t e = 0; e < n; e++)
            x[e] = e < ARRAY_LEN(special) ? special[e] : test_uniform() * 60;
        ops->soft_cap(30, x, n, y);
        for (uint32_t e = 0; e < n; e++)
            ck_assert_msg(near((double)y[e], 30 * tanh((double)x[e] / 30), 3), "cap(%g) is %g",
                          (double)x[e], (double)y[e]);
        ops->soft_cap(30, x, n, x);
        ck_assert_mem_eq(x, y, n * sizeof *y);
    }
}
END_TEST

START_TEST(activations_keep_nan)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float gate[17], up[17], y[17];
    for (int i = 0; i < 17; i++) {
        gate[i] = i % 2 == 0 ? NAN : 1;
        up[i] = 1;
    }
    ops->silu_mul(gate, up, 17, y);
    for (int i = 0; i < 17; i++)
        ck_assert_int_eq(isnan(y[i]) != 0, i % 2 == 0);
    ops->gelu_mul(gate, up, 17, y);
    for (int i = 0; i < 17; i++)
        ck_assert_int_eq(isnan(y[i]) != 0, i % 2 == 0);
    ops->soft_cap(30, gate, 17, y);
    for (int i = 0; i < 17; i++)
        ck_assert_int_eq(isnan(y[i]) != 0, i % 2 == 0);
    ops->swiglu_clamped(gate, up, 17, y);
    for (int i = 0; i < 17; i++)
        ck_assert_int_eq(isnan(y[i]) != 0, i % 2 == 0);
    ops->swiglu_clamped(up, gate, 17, y);
    for (int i = 0; i < 17; i++)
        ck_assert_int_eq(isnan(y[i]) != 0, i % 2 == 0);
}
END_TEST

START_TEST(axpy_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float x[2048], y[2049], before[2048];
    test_seed(33);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint32_t n = lengths[i];
        test_fill(x, n);
        test_fill(y, n);
        memcpy(before, y, n * sizeof *y);
        y[n] = 42;
        ops->axpy(-0.7f, x, n, y);
        for (uint32_t e = 0; e < n; e++)
            ck_assert(near((double)y[e], (double)before[e] + (double)-0.7f * (double)x[e], 1));
        ck_assert_float_eq(y[n], 42);
    }
}
END_TEST

START_TEST(rope_rotates)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const uint32_t sizes[] = {2, 8, 16, 20, 32, 64, 80, 128, 256};
    float x[256], y[256], table[256];
    test_seed(34);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        uint32_t n = sizes[i], position = 1234 * (uint32_t)i;
        test_fill(x, n);
        memcpy(y, x, sizeof x);
        kernel_rope_table(&(struct kernel_rope){.dims = n, .theta = 10000.0}, position, table);
        ops->rope(y, n, table);
        for (uint32_t e = 0; e < n / 2; e++) {
            double angle = position * pow(10000.0, -2.0 * e / n);
            double a = (double)x[e], b = (double)x[e + n / 2];
            ck_assert_double_le(fabs((double)table[2 * e] - cos(angle)), 0x1p-24);
            ck_assert_double_le(fabs((double)table[2 * e + 1] - sin(angle)), 0x1p-24);
            ck_assert(near((double)y[e], a * cos(angle) - b * sin(angle), 1));
            ck_assert(near((double)y[e + n / 2], a * sin(angle) + b * cos(angle), 1));
        }
    }
}
END_TEST

START_TEST(rope_rotates_pairs)
{
    float x[128], y[128], table[128], factors[64];
    test_seed(35);
    test_fill(x, 128);
    memcpy(y, x, sizeof x);
    for (uint32_t i = 0; i < 64; i++)
        factors[i] = 1 + (float)i / 8;
    struct kernel_rope rope = {.dims = 128, .theta = 1e6, .factors = factors};
    kernel_rope_table(&rope, 777, table);
    kernel_rope_pairs(y, 128, table);
    for (uint32_t i = 0; i < 64; i++) {
        double angle = 777 * pow(1e6, -2.0 * i / 128) / (double)factors[i];
        double a = (double)x[2 * i], b = (double)x[2 * i + 1];
        ck_assert(near((double)y[2 * i], a * cos(angle) - b * sin(angle), 1));
        ck_assert(near((double)y[2 * i + 1], a * sin(angle) + b * cos(angle), 1));
    }
}
END_TEST

/* LayerNorm: centred, then the RMSNorm of every instruction set. */
START_TEST(layer_norm_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    float x[2048], weight[2048], y[2048];
    test_seed(36);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint32_t n = lengths[i];
        double mean = 0, square = 0;
        test_fill(x, n);
        test_fill(weight, n);
        for (uint32_t e = 0; e < n; e++)
            mean += (double)(x[e] += 3) / n;
        for (uint32_t e = 0; e < n; e++)
            square += ((double)x[e] - mean) * ((double)x[e] - mean) / n;
        kernel_center(x, n, y);
        ops->rms_norm(y, weight, n, 1e-5f, y);
        for (uint32_t e = 0; e < n; e++) {
            double norm = ((double)x[e] - mean) / sqrt(square + 1e-5);
            ck_assert(near((double)y[e], norm * (double)weight[e], fabs(norm) + 1));
        }
        kernel_center(x, n, x);
        ops->rms_norm(x, weight, n, 1e-5f, x);
        ck_assert_mem_eq(x, y, n * sizeof *x);
    }
}
END_TEST

START_TEST(clamp_and_relu)
{
    float x[5] = {-3, -2, 0.5f, 2.5f, NAN}, up[5] = {1, 2, 3, 4, 5};
    float gate[5] = {-1, -0.0f, 0.5f, 2, NAN};
    kernel_clamp(x, 5, 2);
    ck_assert(x[0] == -2 && x[1] == -2 && x[2] == 0.5f && x[3] == 2 && isnan(x[4]));
    kernel_relu_mul(gate, up, 5, gate);
    ck_assert(gate[0] == 0 && gate[1] == 0 && gate[2] == 1.5f && gate[3] == 8 && isnan(gate[4]));
}
END_TEST

/* All 65536 values, in both directions. */
START_TEST(f16_round_trip)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static uint16_t all[65536], back[65536];
    static float value[65536];
    for (uint32_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    struct kernel_matrix m = {all, sizeof all, 65536, 1, TENSOR_F16};
    ops->row_to_f32(&m, 0, value);
    ops->to_f16(value, 65536, back);
    for (uint32_t i = 0; i < 65536; i++) {
        double want = test_f16_value((uint16_t)i);
        if (isnan(want)) {
            ck_assert(isnan(value[i]));
            ck_assert_uint_eq(back[i], i | 0x200u); /* becomes a quiet NaN */
        } else {
            ck_assert(memcmp(&value[i], &(float){(float)want}, sizeof(float)) == 0);
            ck_assert_uint_eq(back[i], i);
        }
    }
}
END_TEST

START_TEST(f16_rounds_to_nearest_even)
{
    enum { COUNT = 20000 };
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static float x[COUNT];
    static uint16_t y[COUNT];
    static const float special[] = {0.0f,       -0.0f,      65504,      65519.996f, 65520,
                                    -65520,     1e9f,       INFINITY,   -INFINITY,  0x1p-14f,
                                    0x1p-24f,   0x1p-25f,   0x1.8p-25f, 0x1.8p-24f, 0x1p-26f,
                                    0x1.ffcp0f, 0x1.ffep0f, 0x1.002p0f, 0x1.006p0f, 0x1.ffep-15f,
                                    1e-45f,     3e38f};
    test_seed(35);
    for (size_t i = 0; i < COUNT; i++) {
        uint16_t h = (uint16_t)(test_random() >> 8);
        double mid =
            (test_f16_value(h) + test_f16_value(h + 1)) / 2; /* ties and their neighbours */
        x[i] = i < ARRAY_LEN(special) ? special[i] : isfinite(mid) ? (float)mid : 1.0f;
        if (i % 3 != 0 && i >= ARRAY_LEN(special))
            x[i] = nextafterf(x[i], i % 3 == 1 ? INFINITY : -INFINITY);
    }
    ops->to_f16(x, COUNT, y);
    for (size_t i = 0; i < COUNT; i++)
        ck_assert_msg(y[i] == test_f16_round((double)x[i]), "%a -> %04x, not %04x", (double)x[i],
                      y[i], test_f16_round((double)x[i]));
}
END_TEST

static void attention_oracle(const struct kernel_attention *a, uint32_t head, double *out)
{
    uint32_t kv_head = head / (a->heads / a->kv_heads);
    double score[300], max = -INFINITY, sum = 0;
    for (uint32_t p = 0; p < a->positions; p++) {
        size_t at = test_kv_at(a->kv_heads, a->key_size, p, kv_head);
        score[p] = 0;
        for (uint32_t d = 0; d < a->key_size; d++)
            score[p] += (double)a->q[(size_t)head * a->key_size + d] *
                        test_f16_value(((const uint16_t *)a->k)[at + d]);
        score[p] *= (double)a->scale;
        max = fmax(max, score[p]);
    }
    memset(out, 0, sizeof *out * a->key_size);
    for (uint32_t p = 0; p < a->positions; p++) {
        size_t at = test_kv_at(a->kv_heads, a->key_size, p, kv_head);
        double e = exp(score[p] - max);
        sum += e;
        for (uint32_t d = 0; d < a->key_size; d++)
            out[d] += e * test_f16_value(((const uint16_t *)a->v)[at + d]);
    }
    for (uint32_t d = 0; d < a->key_size; d++)
        out[d] /= sum;
}

/* K and V end at the end of a mapping. */
static void check_attention(const struct kernel_ops *ops, uint32_t heads, uint32_t kv_heads,
                            uint32_t head_size, uint32_t positions, float spread)
{
    size_t kv = test_kv_elements(positions, kv_heads, head_size);
    float *q = test_alloc(sizeof *q * heads * head_size);
    float *out = test_alloc(sizeof *q * heads * head_size);
    uint8_t *k = test_guarded(2 * kv), *v = test_guarded(2 * kv);
    double want[KERNEL_HEAD_SIZE_MAX];
    test_fill(q, (size_t)heads * head_size);
    for (size_t i = 0; i < kv; i++) {
        ((uint16_t *)(void *)k)[i] = test_f16_round((double)(test_uniform() * spread));
        ((uint16_t *)(void *)v)[i] = test_f16_round((double)test_uniform());
    }
    struct kernel_attention a = {.q = q,
                                 .k = k,
                                 .v = v,
                                 .out = out,
                                 .rows = 1,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .key_size = head_size,
                                 .value_size = head_size,
                                 .head_end = heads,
                                 .positions = positions,
                                 .scale = 1 / sqrtf((float)head_size)};
    ops->attention(&a);
    for (uint32_t h = 0; h < heads; h++) {
        attention_oracle(&a, h, want);
        for (uint32_t d = 0; d < head_size; d++)
            ck_assert_msg(fabs((double)out[h * head_size + d] - want[d]) < 2e-5 * (double)spread,
                          "head %u of %u/%u, size %u, %u positions: %g, not %g", h, heads, kv_heads,
                          head_size, positions, (double)out[h * head_size + d], want[d]);
    }
    free(q);
    free(out);
    test_guarded_free(k, 2 * kv);
    test_guarded_free(v, 2 * kv);
}

START_TEST(attention_matches_double)
{
    const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)_i);
    static const uint32_t positions[] = {1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 128, 129, 257};
    static const uint32_t sizes[] = {4, 8, 16, 20, 32, 64, 72, 80, 128, 256};
    test_seed(36);
    for (size_t p = 0; p < ARRAY_LEN(positions); p++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
            check_attention(ops, 4, (uint32_t)(1 << p % 3), sizes[s], positions[p], 1.0f);
    check_attention(ops, 2, 2, 64, 200, 60.0f); /* scores far apart: most weights underflow */
}
END_TEST

/* Buffers of any form: short rows are padded, so that the form of floats is not always the
 * largest. */
START_TEST(largest_activation)
{
    for (uint32_t k = 32; k <= 4096; k += 32) {
        size_t largest = kernel_activation_bytes_largest(k);
        for (uint32_t type = 0; type < TENSOR_TYPE_END; type++) {
            uint64_t row_bytes;
            if (!tensor_type_computed(type) || !tensor_type_row_bytes(type, k, &row_bytes))
                continue;
            ck_assert_uint_le(kernel_activation_bytes((enum tensor_type)type, k), largest);
        }
    }
    ck_assert_uint_gt(kernel_activation_bytes_largest(32), kernel_activation_bytes(TENSOR_F32, 32));
}
END_TEST

START_TEST(select_by_name)
{
    const struct kernel_ops *best = kernel_ops_select(NULL);
    ck_assert_ptr_nonnull(best);
    ck_assert_ptr_eq(kernel_ops_select("auto"), best);
    ck_assert_ptr_null(kernel_ops_select("sse9"));
    ck_assert_ptr_null(kernel_ops_select(""));
    ck_assert_ptr_null(kernel_ops_of(ISA__COUNT));
#ifdef __aarch64__
    static const char *const name[ISA__COUNT] = {"generic", "neon", "dotprod"};
#else
    static const char *const name[ISA__COUNT] = {"generic", "avx2",       "avxvnni",
                                                 "avx512",  "avx512vbmi", "amx"};
#endif
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        ck_assert_ptr_eq(kernel_ops_select(name[isa]), ops);
        if (ops != NULL) {
            ck_assert_int_eq(ops->isa, isa);
            ck_assert_str_eq(ops->name, name[isa]);
            ck_assert_int_ge(best->isa, isa);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels.rows");
    TCase *tcase = tcase_create("rows");
    tcase_set_timeout(tcase, 120);
    test_add_isa(tcase, forms_have_a_type);
    test_add_isa(tcase, rms_norm_matches_double);
    test_add_isa(tcase, layer_norm_matches_double);
    tcase_add_test(tcase, clamp_and_relu);
    test_add_isa(tcase, silu_mul_matches_double);
    test_add_isa(tcase, gelu_mul_matches_double);
    test_add_isa(tcase, soft_cap_matches_double);
    test_add_isa(tcase, activations_keep_nan);
    test_add_isa(tcase, swiglu_clamped_matches_double);
    test_add_isa(tcase, axpy_matches_double);
    test_add_isa(tcase, rope_rotates);
    test_add_isa(tcase, f16_round_trip);
    test_add_isa(tcase, f16_rounds_to_nearest_even);
    test_add_isa(tcase, attention_matches_double);
    tcase_add_test(tcase, rope_rotates_pairs);
    tcase_add_test(tcase, largest_activation);
    tcase_add_test(tcase, select_by_name);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
