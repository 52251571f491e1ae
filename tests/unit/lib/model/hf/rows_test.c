/* SPDX-License-Identifier: Apache-2.0 */
/* Values of converted rows, against the definition of each form: rows in turn, parts of heads,
 * turned matrices, of floats, FP8 and MXFP4. Rows are made a few at a time, of no more of the
 * source than they need. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/hf/internal.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"

/* The rows of all planes of a tensor whose (only) source is `src`. */
static char *make_all(struct hf_tensor *t, const char *src, const char *scales)
{
    static uint32_t first = 0;
    struct safetensor file = {0};
    struct hf_model hf = {.tensors = t, .tensor_count = 1, .sources = &first, .source_count = 1};
    struct error error;
    uint64_t each = t->rows * t->made_row_bytes;
    char *made = malloc(each * t->planes);
    hf.files.tensors = &file;
    t->stacked = true;
    for (uint32_t plane = 0; plane < t->planes; plane++)
        for (uint64_t row = 0; row < t->rows; row += 3) {
            uint64_t n = t->rows - row < 3 ? t->rows - row : 3;
            struct hf_part part = hf_part_of(&hf, 0, plane, row, n);
            char *copy = malloc(part.at.bytes); /* a sanitizer sees what is read beyond it */
            memcpy(copy, src + part.at.offset, part.at.bytes);
            ck_assert_int_eq(hf_make_rows(&hf, 0, plane, &part, copy, scales, row, n,
                                          made + plane * each + row * t->made_row_bytes, &error),
                             0);
            free(copy);
        }
    return made;
}

enum { HEADS = 3, NOPE = 5, VALUE = 4, RANK = 21 };

static const struct hf_shape mla = {
    .heads = HEADS, .kv_heads = HEADS, .size = {[HF_SIZE_nope] = NOPE, [HF_SIZE_value] = VALUE}};

/* kv_b_proj in FP8: row h * (NOPE + VALUE) + i, blocks of 4 rows and 8 columns that heads do not
 * begin with. */
static void split_fp8(bool keys)
{
    enum { ROWS = HEADS * (NOPE + VALUE), ACROSS = 3 };
    char src[ROWS * RANK];
    float scales[(ROWS + 3) / 4 * ACROSS];
    for (unsigned i = 0; i < sizeof src; i++)
        src[i] = (char)(0x30 |
                        (i * 7 & 0x87)); /* exponents that are the same, all fractions and signs */
    for (unsigned i = 0; i < ARRAY_LEN(scales); i++)
        scales[i] = ldexpf(1, (int)i % 13 - 6);
    struct hf_tensor t = {.form = HF_FP8,
                          .turned = keys,
                          .planes = HEADS,
                          .rows = keys ? RANK : VALUE,
                          .columns = keys ? NOPE : RANK,
                          .row_bytes = RANK,
                          .source_rows = NOPE + VALUE,
                          .source_columns = RANK,
                          .type = SAFETENSORS_F8_E4M3,
                          .made_type = TENSOR_BF16,
                          .block_rows = 4,
                          .block_columns = 8};
    t.made_row_bytes = 2 * t.columns;
    ck_assert(hf_axis_of(&t.row_axis, keys ? HF_AXIS_ALL : HF_AXIS_VALUE, &mla,
                         keys ? RANK : NOPE + VALUE));
    ck_assert(hf_axis_of(&t.column_axis, keys ? HF_AXIS_NOPE : HF_AXIS_ALL, &mla,
                         keys ? NOPE + VALUE : RANK));
    char *made = make_all(&t, src, (const char *)scales);
    for (uint64_t h = 0, at = 0; h < HEADS; h++)
        for (uint64_t r = 0; r < t.rows; r++)
            for (uint64_t c = 0; c < t.columns; c++, at += 2) {
                uint64_t row = h * (NOPE + VALUE) + (keys ? c : NOPE + r), column = keys ? r : c;
                uint8_t x = (uint8_t)src[row * RANK + column];
                float value = (1 + (float)(x & 7) / 8) / 2 * (x & 128 ? -1.0f : 1.0f);
                ck_assert_float_eq(bf16_to_f32(load_u16(made + at)),
                                   value * scales[row / 4 * ACROSS + column / 8]);
            }
    free(made);
}

START_TEST(kv_b_of_fp8)
{
    split_fp8(true);
    split_fp8(false);
}
END_TEST

/* gate and up of experts, outputs as columns in turn: [expert][input][output]. */
START_TEST(turned_floats)
{
    enum { EXPERTS = 2, INPUTS = 7, OUTPUTS = 5 };
    static const uint32_t types[] = {TENSOR_F16, TENSOR_BF16, TENSOR_F32};
    char src[EXPERTS * INPUTS * 2 * OUTPUTS * 4];
    for (unsigned i = 0; i < sizeof src; i++)
        src[i] = (char)(i * 37 + i / 256);
    for (unsigned odd = 0; odd < 2; odd++)
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
            uint64_t each = types[i] == TENSOR_F32 ? 4 : 2;
            struct hf_tensor t = {.turned = true,
                                  .planes = EXPERTS,
                                  .rows = OUTPUTS,
                                  .columns = INPUTS,
                                  .row_bytes = 2 * OUTPUTS * each,
                                  .source_rows = INPUTS,
                                  .source_columns = 2 * OUTPUTS,
                                  .type = types[i],
                                  .made_type = types[i],
                                  .made_row_bytes = INPUTS * each};
            ck_assert(hf_axis_of(&t.row_axis, odd ? HF_AXIS_ODD : HF_AXIS_EVEN, &mla, 2 * OUTPUTS));
            ck_assert(hf_axis_of(&t.column_axis, HF_AXIS_ALL, &mla, INPUTS));
            char *made = make_all(&t, src, NULL), *at = made;
            for (uint64_t e = 0; e < EXPERTS; e++)
                for (uint64_t r = 0; r < OUTPUTS; r++)
                    for (uint64_t c = 0; c < INPUTS; c++, at += each)
                        ck_assert_mem_eq(
                            at, src + ((e * INPUTS + c) * 2 * OUTPUTS + 2 * r + odd) * each, each);
            free(made);
        }
}
END_TEST

static unsigned nibble(const char *bytes, uint64_t i)
{
    return (unsigned)(uint8_t)bytes[i / 2] >> (i % 2 * 4) & 15;
}

/* Every other row of an expert's blocks; GGUF: an exponent, then byte j has elements j and j +
 * 16. */
START_TEST(rows_of_mxfp4)
{
    enum { EXPERTS = 2, ROWS = 5, BLOCKS = 3 };
    char src[EXPERTS * 2 * ROWS * BLOCKS * 16], scales[EXPERTS * 2 * ROWS * BLOCKS];
    for (unsigned i = 0; i < sizeof src; i++)
        src[i] = (char)(i * 37 + i / 256);
    for (unsigned i = 0; i < sizeof scales; i++)
        scales[i] = (char)(100 + i);
    for (uint64_t e = 0; e < EXPERTS; e++)
        for (unsigned odd = 0; odd < 2; odd++) {
            struct hf_tensor t = {.form = HF_MXFP4,
                                  .planes = 1,
                                  .rows = ROWS,
                                  .columns = 32 * BLOCKS,
                                  .row_bytes = 16 * BLOCKS,
                                  .source_rows = 2 * ROWS,
                                  .source_columns = 32 * BLOCKS,
                                  .type = SAFETENSORS_U8,
                                  .made_type = TENSOR_MXFP4,
                                  .made_row_bytes = 17 * BLOCKS};
            ck_assert(hf_axis_of(&t.row_axis, odd ? HF_AXIS_ODD : HF_AXIS_EVEN, &mla, 2 * ROWS));
            ck_assert(hf_axis_of(&t.column_axis, HF_AXIS_ALL, &mla, 32 * BLOCKS));
            const char *from = src + e * sizeof src / EXPERTS;
            const char *exponents = scales + e * sizeof scales / EXPERTS;
            char *made = make_all(&t, from, exponents), *at = made;
            for (uint64_t r = 0; r < ROWS; r++)
                for (uint64_t b = 0; b < BLOCKS; b++, at += 17) {
                    uint64_t block = (2 * r + odd) * BLOCKS + b;
                    ck_assert_int_eq(at[0], exponents[block]);
                    for (uint64_t i = 0; i < 32; i++)
                        ck_assert_uint_eq((unsigned)(uint8_t)at[1 + i % 16] >> (i / 16 * 4) & 15,
                                          nibble(from, 32 * block + i));
                }
            free(made);
        }
}
END_TEST

/* Scales that are exponents or have 16 bits: the bits of FP8 with the same numbers as floats, and
 * none that is no number. */
START_TEST(fp8_with_scales_of_each_type)
{
    enum { ROWS = 5, COLUMNS = 40, ACROSS = 3 };
    static const uint8_t exponents[] = {127, 120, 130, 114, 113, 126};
    uint8_t src[ROWS * COLUMNS], bad[] = {127, 255, 127, 127, 127, 127};
    float scales[ARRAY_LEN(exponents)];
    uint16_t half[ARRAY_LEN(exponents)], short_float[ARRAY_LEN(exponents)];
    uint16_t made[2][ROWS * COLUMNS];
    struct error error;
    struct hf_tensor t = {.form = HF_FP8,
                          .made_type = TENSOR_BF16,
                          .made_row_bytes = 2 * COLUMNS,
                          .source_columns = COLUMNS,
                          .block_rows = 3,
                          .block_columns = 16};
    for (unsigned i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)((i & 127) == 127 ? 0 : i);
    for (unsigned i = 0; i < ARRAY_LEN(scales); i++) {
        scales[i] = ldexpf(1, exponents[i] - 127);
        half[i] = f32_to_f16(scales[i]);
        short_float[i] = (uint16_t)(exponents[i] << 7);
    }
    const struct {
        uint32_t type;
        const void *scales;
    } others[] = {{TENSOR_F16, half}, {TENSOR_BF16, short_float}, {SAFETENSORS_F8_E8M0, exponents}};
    ck_assert_int_eq(hf_fp8_rows(&t, src, scales, 0, ROWS, made[0], &error), 0);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        t.factor_type = others[i].type;
        ck_assert_int_eq(hf_fp8_rows(&t, src, others[i].scales, 0, ROWS, made[1], &error), 0);
        ck_assert_mem_eq(made[0], made[1], sizeof made[0]);
    }
    ck_assert_int_eq(hf_fp8_rows(&t, src, bad, 0, ROWS, made[1], &error), -1);
}
END_TEST

/* Numbers of experts in 32 or in 64 bits; what is no number of 31 bits becomes -1. */
START_TEST(rows_of_ids)
{
    enum { ROWS = 4, COLUMNS = 3 };
    static const int64_t wide[ROWS * COLUMNS] = {
        0, 1, 2, 255, 7, 3, INT32_MAX, -5, (int64_t)1 << 31, (int64_t)1 << 40, 9, 8};
    int32_t narrow[ROWS * COLUMNS];
    for (unsigned i = 0; i < ARRAY_LEN(narrow); i++)
        narrow[i] = (int32_t)wide[i];
    for (unsigned is_wide = 0; is_wide < 2; is_wide++) {
        struct hf_tensor t = {.form = HF_IDS,
                              .planes = 1,
                              .rows = ROWS,
                              .columns = COLUMNS,
                              .row_bytes = COLUMNS * (is_wide ? 8 : 4),
                              .source_rows = ROWS,
                              .source_columns = COLUMNS,
                              .type = is_wide ? SAFETENSORS_I64 : SAFETENSORS_I32,
                              .made_type = TENSOR_F32,
                              .made_row_bytes = COLUMNS * 4};
        ck_assert(hf_axis_of(&t.row_axis, HF_AXIS_ALL, &mla, ROWS));
        ck_assert(hf_axis_of(&t.column_axis, HF_AXIS_ALL, &mla, COLUMNS));
        char *made = make_all(&t, is_wide ? (const char *)wide : (const char *)narrow, NULL);
        for (unsigned i = 0; i < ARRAY_LEN(narrow); i++) {
            int64_t from = is_wide ? wide[i] : narrow[i];
            int32_t id;
            memcpy(&id, made + 4 * i, sizeof id);
            ck_assert_int_eq(id, from >= 0 && from <= INT32_MAX ? (int32_t)from : -1);
        }
        free(made);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hf_rows");
    TCase *t = tcase_create("hf_rows");
    tcase_add_test(t, kv_b_of_fp8);
    tcase_add_test(t, turned_floats);
    tcase_add_test(t, rows_of_mxfp4);
    tcase_add_test(t, fp8_with_scales_of_each_type);
    tcase_add_test(t, rows_of_ids);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
