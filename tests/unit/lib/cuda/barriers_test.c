/* SPDX-License-Identifier: Apache-2.0 */
/* Linked with the kernels without their barriers: the comparison with the CPU notices it. */
#include "tests/unit/lib/cuda/cuda_test.h"

enum { SEEDS = 5 };

static int wrong_products(enum tensor_type type)
{
    enum { K = 512, N = 5, ROWS = 9 };
    float x[ROWS * K], expected[ROWS * N], y[ROWS * N];
    struct kernel_matrix m = gpu_matrix(type, K, N), there = on_gpu(&m);
    size_t stride;
    int wrong = 0;
    test_fill(x, (size_t)ROWS * K);
    void *act = test_prepare(cpu(), type, x, K, ROWS, &stride);
    ck_assert_uint_eq(stride % 64, 0);
    cpu()->matmul(&m, 0, N, act, stride, ROWS, expected, N);
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        fibres_seed(seed);
        check_launch(gpu()->matmul(&there, 0, N, act, stride, ROWS, y, N, NULL));
        wrong += first_difference(y, expected, (size_t)ROWS * N) < (size_t)ROWS * N;
    }
    free(act);
    free((void *)(uintptr_t)m.data);
    free((void *)(uintptr_t)there.data);
    return wrong;
}

START_TEST(products_are_noticed)
{
    test_seed(41);
    ck_assert_int_eq(wrong_products(TENSOR_Q4_0), SEEDS);
    ck_assert_int_eq(wrong_products(TENSOR_Q6_K), SEEDS);
    ck_assert_int_eq(wrong_products(TENSOR_G4), SEEDS);
}
END_TEST

START_TEST(norms_are_noticed)
{
    enum { N = 300 };
    float x[N], expected[N], y[N];
    test_seed(42);
    test_fill(x, N);
    cpu()->rms_norm(x, x, N, 1e-6f, expected);
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        fibres_seed(seed);
        check_launch(gpu()->rms_norm(x, N, x, N, 1e-6f, 1, y, N, NULL));
        ck_assert_uint_lt(first_difference(y, expected, N), N);
    }
}
END_TEST

GPU_TESTS_MAIN("cuda_barriers", products_are_noticed, norms_are_noticed)
