/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a batch of experts in launches: kernels that only note what they are given. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

enum { EXPERTS = 12, PRODUCTS = 2 * EXPERTS };

/* By number: what a product is, and where it was launched. */
static struct {
    enum tensor_type type;
    uint32_t rows, launches;
    const uint8_t *data;
} product[PRODUCTS];
static uint32_t launches;
static float outputs[PRODUCTS];

static int upload(void *to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

static uint32_t kernel_of(uint32_t rows)
{
    return rows == 1 ? 1 : rows <= GPU_FEW_ROWS ? 2 : rows <= GPU_SOME_ROWS ? 3 : 4;
}

static int note_products(const struct gpu_products *p, void *stream)
{
    uint32_t most = 0;
    (void)stream;
    launches++;
    ck_assert_uint_gt(p->count, 0);
    for (uint32_t i = 0; i < p->count; i++) {
        const struct gpu_job *job = &p->jobs[i];
        size_t number = (size_t)(job->y - outputs);
        ck_assert_uint_lt(number, PRODUCTS);
        product[number].launches++;
        ck_assert_int_eq(p->w.type, product[number].type);
        ck_assert_ptr_eq(job->w, product[number].data);
        ck_assert_uint_eq(job->rows, product[number].rows);
        ck_assert_uint_eq(kernel_of(job->rows), kernel_of(p->rows));
        most = job->rows > most ? job->rows : most;
    }
    ck_assert_uint_eq(p->rows, most);
    return 0;
}

/* Types and numbers of rows alternate in different periods: a launch for each pair of both. */
START_TEST(alike_products_are_one_launch)
{
    static const enum tensor_type types[] = {TENSOR_Q4_0, TENSOR_Q6_K, TENSOR_F16};
    static const uint32_t rows[] = {1, GPU_FEW_ROWS, 2, GPU_SOME_ROWS, 33};
    static _Alignas(DEVICE_ALIGN) uint8_t memory[8 * DEVICE_ALIGN];
    const struct gpu_kernels kernels = {.upload = upload, .products = note_products};
    const struct device_limits limits = {.rows = 64, .top_k = 2, .experts = EXPERTS};
    struct cuda *c = calloc(1, sizeof *c);
    ck_assert_ptr_nonnull(c);
    c->k = &kernels;
    c->scratch = (struct area){.memory = memory, .bytes = sizeof memory};
    cuda_batch_open(c, &limits);
    bool seen[ARRAY_LEN(types)][5] = {{false}};
    uint32_t expected = 0;
    for (uint32_t i = 0; i < PRODUCTS; i++) {
        uint32_t t = i % ARRAY_LEN(types), r = i % ARRAY_LEN(rows), kernel = kernel_of(rows[r]);
        product[i].type = types[t];
        product[i].rows = rows[r];
        product[i].data = (const uint8_t *)&product[i];
        expected += !seen[t][kernel];
        seen[t][kernel] = true;
        const struct device_matrix m = {{(uintptr_t)product[i].data}, 512, 256, 3, types[t]};
        cuda_batch_product(c, &m, (struct gpu_job){.y = &outputs[i], .rows = rows[r]});
    }
    const struct device_rows x = {.k = 256};
    cuda_batch_products(c, &x, NULL);
    for (uint32_t i = 0; i < PRODUCTS; i++)
        ck_assert_uint_eq(product[i].launches, 1);
    ck_assert_uint_eq(launches, expected);
    cuda_batch_products(c, &x, NULL); /* none is left */
    ck_assert_uint_eq(launches, expected);
    cuda_batch_close(c);
    free(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda_batches");
    TCase *tcase = tcase_create("batches");
    tcase_add_test(tcase, alike_products_are_one_launch);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
