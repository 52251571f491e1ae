/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a batch of experts: one launch for all matrices of a type and a similar number of
 * rows. */
#include <stdlib.h>

#include "lib/device/cuda/internal.h"

/* A batch has a row of each expert at least. */
uint32_t cuda_batch_jobs(const struct device_limits *l)
{
    uint32_t rows = l->rows > l->top_k ? l->rows : l->top_k;
    return l->experts < rows ? l->experts : rows;
}

void cuda_batch_open(struct cuda *c, const struct device_limits *limits)
{
    struct expert_batch *b = &c->batch;
    b->space = cuda_batch_jobs(limits);
    b->product = calloc(2 * (size_t)b->space + 1, sizeof *b->product);
    b->job = calloc(2 * (size_t)b->space + 1, sizeof *b->job);
    b->finish = calloc((size_t)b->space + 1, sizeof *b->finish);
    sl_assert(b->product && b->job && b->finish);
}

void cuda_batch_close(struct cuda *c)
{
    free(c->batch.product);
    free(c->batch.job);
    free(c->batch.finish);
}

void cuda_batch_product(struct cuda *c, const struct device_matrix *m, struct gpu_job job)
{
    struct expert_batch *b = &c->batch;
    sl_assert(b->products < 2 * b->space);
    struct expert_product *p = &b->product[b->products++];
    *p = (struct expert_product){.w = device_kernel_matrix(m), .job = job};
    p->job.w = p->w.data;
    p->w.data = NULL;
}

void cuda_batch_finish(struct cuda *c, struct gpu_finish_job job)
{
    struct expert_batch *b = &c->batch;
    sl_assert(b->finishes < b->space);
    b->finish[b->finishes++] = job;
}

/* Kernels differ by the number of rows. */
static int kernel_of(uint32_t rows)
{
    return (rows > 1) + (rows > GPU_FEW_ROWS) + (rows > GPU_SOME_ROWS);
}

static bool alike(const struct expert_product *a, const struct expert_product *b)
{
    return a->w.type == b->w.type && a->w.k == b->w.k && a->w.n == b->w.n &&
           a->w.row_bytes == b->w.row_bytes && kernel_of(a->job.rows) == kernel_of(b->job.rows);
}

/* Those that are alike next to each other. */
static void group(struct expert_batch *b)
{
    uint32_t end = 1;
    for (uint32_t i = 0; i < b->products; i++) {
        end = end > i + 1 ? end : i + 1;
        for (uint32_t j = end; j < b->products; j++) {
            struct expert_product p = b->product[j];
            if (!alike(&b->product[i], &p))
                continue;
            b->product[j] = b->product[end];
            b->product[end++] = p;
        }
    }
}

void cuda_batch_products(struct cuda *c, const struct device_rows *x, const uint32_t *index)
{
    struct expert_batch *b = &c->batch;
    group(b);
    for (uint32_t i = 0; i < b->products; i++)
        b->job[i] = b->product[i].job;
    const struct gpu_job *jobs = cuda_upload(c, b->job, b->products * sizeof *b->job);
    for (uint32_t i = 0, count; i < b->products; i += count) {
        const struct expert_product *first = &b->product[i];
        enum kernel_form form = kernel_form_of(first->w.type);
        uint32_t rows = 0;
        for (count = 0; i + count < b->products && alike(first, first + count); count++)
            rows = first[count].job.rows > rows ? first[count].job.rows : rows;
        const struct gpu_products p = {.w = first->w,
                                       .x = device_pointer(x->base[form]),
                                       .index = index,
                                       .jobs = jobs + i,
                                       .x_stride = x->stride[form],
                                       .y_stride = first->w.n,
                                       .n_end = first->w.n,
                                       .rows = rows,
                                       .count = count};
        cuda_check(c, c->k->products(&p, c->stream), "products of experts");
    }
    b->products = 0;
}

void cuda_batch_end(struct cuda *c, enum gpu_pointwise op, struct ffn_limit limit, uint32_t n)
{
    struct expert_batch *b = &c->batch;
    struct gpu_finish f = {
        .op = op, .value = cuda_limit(limit), .second = limit.cap_up, .count = b->finishes, .n = n};
    for (uint32_t i = 0; i < b->finishes; i++)
        f.rows = b->finish[i].rows > f.rows ? b->finish[i].rows : f.rows;
    f.jobs = cuda_upload(c, b->finish, b->finishes * sizeof *b->finish);
    cuda_check(c, c->k->finish(&f, c->stream), "outputs of experts");
    b->finishes = 0;
}
