/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of lib/cuda: the kernels as host code, and the generic ones. */
#ifndef SLUICE_TESTS_UNIT_LIB_CUDA_CUDA_TEST_H
#define SLUICE_TESTS_UNIT_LIB_CUDA_CUDA_TEST_H

#include "lib/cuda/cuda.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/unit/lib/kernels/kernel_test.h"

/* The table of the module, and what it is compared with. */
const struct gpu_kernels *gpu(void);
const struct kernel_ops *cpu(void);

/* The types that have kernels. */
bool gpu_has(enum tensor_type type);

/* Random weights as a file has them, with a row stride larger than the row. Free with free((void
 * *)m.data). */
struct kernel_matrix gpu_matrix(enum tensor_type type, uint32_t k, uint32_t n);
/* The same with the layout of the device. */
struct kernel_matrix on_gpu(const struct kernel_matrix *m);

/* The launch went well. */
#define check_launch(status) ck_assert_msg((status) == 0, "%s", fibres_error())

/* Values that are NaN in both are equal. */
size_t first_difference(const float *a, const float *b, size_t n);
#define check_bits(a, b, n, ...)                                                                   \
    do {                                                                                           \
        size_t at_ = first_difference(a, b, n);                                                    \
        if (at_ < (n)) {                                                                           \
            char what_[120];                                                                       \
            snprintf(what_, sizeof what_, __VA_ARGS__);                                            \
            ck_assert_msg(false, "%s: [%zu] is %a, not %a", what_, at_, (double)(a)[at_],          \
                          (double)(b)[at_]);                                                       \
        }                                                                                          \
    } while (0)

/* Uniform numbers, and among them zeros of both signs, subnormal, huge and tiny ones. */
void fill_edges(float *x, size_t n);

/* One suite of one case of the tests; the exit status. */
int gpu_tests_run(const char *name, const TTest *const *tests, size_t count);
#define GPU_TESTS_MAIN(name, ...)                                                                  \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
        return gpu_tests_run(name, tests, ARRAY_LEN(tests));                                       \
    }

#endif
