/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels of lib/cuda as host code, and compares them with the generic ones. */
#include "tests/unit/lib/cuda/cuda_test.h"

#include <stdio.h>

const struct gpu_kernels *gpu(void)
{
    return gpu_kernels();
}

const struct kernel_ops *cpu(void)
{
    return kernel_ops_of(ISA_GENERIC);
}

bool gpu_has(enum tensor_type type)
{
    return gpu()->alignment(type) != 0;
}

struct kernel_matrix gpu_matrix(enum tensor_type type, uint32_t k, uint32_t n)
{
    struct kernel_matrix m = {.k = k, .n = n, .type = type};
    uint64_t row;
    ck_assert(tensor_type_row_bytes((uint32_t)type, k, &row));
    m.row_bytes = row + gpu()->alignment(type);
    uint8_t *data = test_alloc(m.row_bytes * n);
    for (uint32_t j = 0; j < n; j++)
        test_weights(type, data + j * m.row_bytes, row);
    m.data = data;
    return m;
}

struct kernel_matrix on_gpu(const struct kernel_matrix *m)
{
    struct kernel_matrix there = *m;
    size_t row = (size_t)gpu()->row_bytes(m->type, m->k);
    there.row_bytes = row + gpu()->alignment(m->type);
    uint8_t *data = test_alloc(there.row_bytes * m->n);
    memset(data, 0xff, there.row_bytes * m->n);
    for (uint32_t j = 0; j < m->n && !gpu()->rearranged(m->type); j++)
        memcpy(data + j * there.row_bytes, (const uint8_t *)m->data + j * m->row_bytes, row);
    if (gpu()->rearranged(m->type))
        check_launch(gpu()->rearrange(m, data, there.row_bytes, NULL));
    there.data = data;
    return there;
}

size_t first_difference(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return i;
    return n;
}

void fill_edges(float *x, size_t n)
{
    static const float edges[] = {0.0f,   -0.0f, 1e-40f,  -1e-44f, 3e38f, -2e30f,
                                  1e-30f, 89.5f, -151.0f, 7.0f,    -7.25f};
    for (size_t i = 0; i < n; i++)
        x[i] = test_random() % 5 == 0 ? edges[test_random() % ARRAY_LEN(edges)]
                                      : test_uniform() * (float)(1 + test_random() % 20);
}

int gpu_tests_run(const char *name, const TTest *const *tests, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 120);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
