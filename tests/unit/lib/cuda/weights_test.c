/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of weights on the device: all bytes of a row of a file, each once, and zeros. */
#include <stdio.h>

#include "lib/base/bytes.h"
#include "tests/unit/lib/cuda/cuda_test.h"

enum { ROWS = 3, GAP = 16, UNTOUCHED = 0xa5 };

static const uint32_t unit_counts[] = {1, 2, 3, 8, 9, 15, 18};

/* What is to be found out of each byte of the result: two digits of its position in the file, and
 * that it has one. */
enum { LOW, HIGH, THERE, DIGITS };

static uint8_t digit_of(int digit, size_t position)
{
    return digit == THERE ? 1 : (uint8_t)(position >> (digit == HIGH ? 8 : 0));
}

static uint8_t *rearranged(const struct kernel_matrix *m, size_t stride, int digit)
{
    uint8_t *from = (uint8_t *)(uintptr_t)m->data, *to = test_alloc(stride * ROWS);
    for (size_t i = 0; i < m->row_bytes * ROWS; i++)
        from[i] = digit_of(digit, i);
    memset(to, UNTOUCHED, stride * ROWS);
    check_launch(gpu()->rearrange(m, to, stride, NULL));
    return to;
}

static void check_row(const struct kernel_matrix *m, uint8_t *const made[DIGITS], size_t stride,
                      uint32_t row, size_t file_bytes)
{
    size_t there = (size_t)gpu()->row_bytes(m->type, m->k), found = 0;
    uint8_t *seen = test_alloc(file_bytes);
    memset(seen, 0, file_bytes);
    for (size_t i = row * stride; i < row * stride + there; i++) {
        size_t place = made[LOW][i] | (size_t)made[HIGH][i] << 8, in = place - row * m->row_bytes;
        if (made[THERE][i] == 0) {
            ck_assert(made[LOW][i] == 0 && made[HIGH][i] == 0);
            continue;
        }
        ck_assert_msg(in < file_bytes && !seen[in], "type %d k %u row %u: byte %zu is of %zu",
                      (int)m->type, m->k, row, i, place);
        seen[in] = 1;
        found++;
    }
    ck_assert_uint_eq(found, file_bytes);
    for (size_t i = row * stride + there; i < (row + 1) * stride; i++)
        ck_assert_uint_eq(made[LOW][i], UNTOUCHED);
    free(seen);
}

START_TEST(rows_are_rearranged)
{
    uint32_t types = 0;
    for (size_t t = 0; t < TEST_TYPES; t++) {
        enum tensor_type type = test_types[t];
        types += gpu()->rearranged(type);
        for (size_t i = 0; i < ARRAY_LEN(unit_counts) && gpu()->rearranged(type); i++) {
            uint32_t k = unit_counts[i] * test_activation_block(type);
            struct kernel_matrix m = gpu_matrix(type, k, ROWS);
            size_t stride = (size_t)gpu()->row_bytes(type, k) + GAP;
            uint64_t file_bytes;
            ck_assert(tensor_type_row_bytes((uint32_t)type, k, &file_bytes));
            ck_assert_uint_eq(stride - GAP, align_up(file_bytes, 16));
            uint8_t *made[DIGITS];
            for (int digit = 0; digit < DIGITS; digit++)
                made[digit] = rearranged(&m, stride, digit);
            for (uint32_t row = 0; row < ROWS; row++)
                check_row(&m, made, stride, row, file_bytes);
            for (int digit = 0; digit < DIGITS; digit++)
                free(made[digit]);
            free((void *)(uintptr_t)m.data);
        }
    }
    ck_assert_uint_eq(types, 11); /* of the quantised ones all but Q4_K and Q5_K */
}
END_TEST

/* The others have the rows of the file, so they are copied. */
START_TEST(other_rows_have_their_bytes)
{
    for (size_t t = 0; t < TEST_TYPES; t++) {
        uint64_t bytes;
        enum tensor_type type = test_types[t];
        if (!gpu_has(type) || gpu()->rearranged(type))
            continue;
        ck_assert(tensor_type_row_bytes((uint32_t)type, 3 * 256, &bytes));
        ck_assert_uint_eq(gpu()->row_bytes(type, 3 * 256), bytes);
    }
    ck_assert_uint_eq(gpu()->row_bytes(TENSOR_F32, 7), 28);
    ck_assert_uint_eq(gpu()->row_bytes(TENSOR_IQ1_S, 256), 0);
    ck_assert_uint_eq(gpu()->row_bytes(TENSOR_Q6_K, 128), 0);
    ck_assert(!gpu()->rearranged(TENSOR_IQ1_S));
}
END_TEST

START_TEST(what_is_refused)
{
    struct kernel_matrix m = gpu_matrix(TENSOR_Q8_0, 96, ROWS), other = m;
    size_t stride = (size_t)gpu()->row_bytes(TENSOR_Q8_0, 96);
    uint8_t *to = test_alloc(stride * ROWS + 16);
    ck_assert_int_eq(gpu()->rearrange(&m, to, stride, NULL), 0);
    ck_assert_int_eq(gpu()->rearrange(&m, to, stride - 16, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->rearrange(&m, to, stride + 8, NULL), GPU_UNSUPPORTED);
    ck_assert_int_eq(gpu()->rearrange(&m, to + 8, stride, NULL), GPU_UNSUPPORTED);
    other.row_bytes++;
    ck_assert_int_eq(gpu()->rearrange(&other, to, stride, NULL), GPU_UNSUPPORTED);
    other = m;
    other.data = (const uint8_t *)m.data + 1;
    ck_assert_int_eq(gpu()->rearrange(&other, to, stride, NULL), GPU_UNSUPPORTED);
    other = m;
    other.k = 48;
    ck_assert_int_eq(gpu()->rearrange(&other, to, stride, NULL), GPU_UNSUPPORTED);
    other.k = 96;
    other.type = TENSOR_F16;
    ck_assert_int_eq(gpu()->rearrange(&other, to, stride, NULL), GPU_UNSUPPORTED);
    other.type = TENSOR_IQ1_S;
    ck_assert_int_eq(gpu()->rearrange(&other, to, stride, NULL), GPU_UNSUPPORTED);
    other = m;
    other.n = 0;
    ck_assert_int_eq(gpu()->rearrange(&other, to, stride, NULL), 0);
    free(to);
    free((void *)(uintptr_t)m.data);
}
END_TEST

GPU_TESTS_MAIN("cuda_weights", rows_are_rearranged, other_rows_have_their_bytes, what_is_refused)
