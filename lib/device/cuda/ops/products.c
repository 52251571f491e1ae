/* SPDX-License-Identifier: Apache-2.0 */
/* Products with dense matrices, what is added to the residual stream, and the output. */
#include <stdlib.h>

#include "lib/device/cuda/internal.h"
#include "lib/device/host/host.h"

void cuda_op_products(struct cuda *c, const struct op_products *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        cuda_product_rows(c, &a->product[i].w, a->product[i].scale, &a->x, a->rows,
                          device_floats(a->product[i].y), a->product[i].y_stride);
}

void cuda_op_add_product(struct cuda *c, const struct op_add_product *a)
{
    uint32_t n = a->w.n;
    float *y = device_floats(a->y), *into = device_floats(a->into);
    cuda_product_rows(c, &a->w, a->scale, &a->x, a->rows, y, n);
    if (a->bias.address)
        cuda_axpy(c, 1.0f, device_floats(a->bias), 0, n, a->rows, y, n);
    if (into)
        cuda_point(c, GPU_AXPY,
                   (struct gpu_rows){.a = y,
                                     .b = into,
                                     .y = into,
                                     .factor = device_floats(a->weight),
                                     .a_stride = n,
                                     .b_stride = n,
                                     .y_stride = n,
                                     .n = n,
                                     .rows = a->rows,
                                     .value = a->factor});
}

void cuda_op_add_norm(struct cuda *c, const struct op_add_norm *a)
{
    float *y = device_floats(a->y);
    cuda_rms(c, y, a->n, a->weight, a->n, a->eps, a->rows, y, a->n);
    cuda_axpy(c, a->factor, y, a->n, a->n, a->rows, device_floats(a->into), a->n);
}

/* ---- a network that every row uses ---- */

void cuda_op_gate_up(struct cuda *c, const struct op_gate_up *a)
{
    float *y = device_floats(a->y.base[FORM_F32]), *up = a->up.n > 0 ? device_floats(a->up_y) : y;
    cuda_product_rows(c, &a->gate, a->gate_scale, &a->x, a->rows, y, a->gate.n);
    if (a->up.n > 0)
        cuda_product_rows(c, &a->up, a->up_scale, &a->x, a->rows, up, a->up.n);
    cuda_activate(c, a->activation, a->limit, y, up, a->gate.n, a->rows, y);
}

void cuda_op_row_gates(struct cuda *c, const struct op_row_gates *a)
{
    float *weight = device_floats(a->weight);
    cuda_forms(c, &a->y, a->rows, a->forms);
    if (a->w.data.address) {
        struct device_matrix one = a->w;
        one.n = 1;
        cuda_product_rows(c, &one, (struct device_at){0}, &a->x, a->rows, weight, 1);
        cuda_point(c, GPU_LOGISTIC,
                   (struct gpu_rows){.a = weight, .y = weight, .n = a->rows, .rows = 1});
        return;
    }
    if (cuda_in_token(c)) {
        cuda_copy(c, &c->token.block->one, 1, 1, 1, weight, 1);
        return;
    }
    float *ones = malloc(a->rows * sizeof *ones);
    sl_assert(ones);
    for (uint32_t r = 0; r < a->rows; r++)
        ones[r] = 1.0f;
    cuda_to_device(c, weight, ones, a->rows * sizeof *ones);
    free(ones);
}

void cuda_op_join(struct cuda *c, const struct op_join *a)
{
    uint32_t n = a->n, rows = a->rows;
    float *x = device_floats(a->x), *dense = device_floats(a->dense),
          *experts = device_floats(a->experts);
    cuda_rms(c, dense, n, a->dense_weight, n, a->eps, rows, dense, n);
    cuda_rms(c, experts, n, a->experts_weight, n, a->eps, rows, experts, n);
    cuda_axpy(c, 1.0f, experts, n, n, rows, dense, n);
    cuda_rms(c, dense, n, a->weight, n, a->eps, rows, dense, n);
    cuda_axpy(c, 1.0f, dense, n, n, rows, x, n);
    if (a->scale.address)
        cuda_point(c, GPU_MUL,
                   (struct gpu_rows){.a = x,
                                     .b = device_floats(a->scale),
                                     .y = x,
                                     .a_stride = n,
                                     .y_stride = n,
                                     .n = n,
                                     .rows = rows,
                                     .b_is_one = true});
}

/* ---- output ---- */

void cuda_op_logits(struct cuda *c, const struct op_logits *a)
{
    uint32_t n = a->w.n;
    float *y = device_floats(a->y);
    struct gpu_rows in_place = {
        .a = y, .y = y, .a_stride = n, .y_stride = n, .n = n, .rows = a->rows};
    cuda_product_rows(c, &a->w, a->scale, &a->x, a->rows, y, n);
    if (a->bias.address)
        cuda_axpy(c, 1.0f, device_floats(a->bias), 0, n, a->rows, y, n);
    in_place.value = a->divisor;
    if (a->divisor != 0)
        cuda_point(c, GPU_DIVIDE, in_place);
    in_place.value = a->cap;
    if (a->cap != 0)
        cuda_point(c, GPU_SOFT_CAP, in_place);
}

/* On the host, row by row: only evaluation asks for it. */
void cuda_op_score(struct cuda *c, const struct op_score *a)
{
    float *logits = malloc(a->vocab * sizeof *logits);
    sl_assert(logits);
    for (uint32_t r = 0; r < a->rows; r++) {
        cuda_to_host(c, logits, device_floats(a->logits) + (size_t)r * a->vocab,
                     a->vocab * sizeof *logits);
        cuda_wait(c);
        float score = host_log_probability(logits, a->vocab, a->token[r]);
        cuda_to_device(c, device_floats(a->y) + r, &score, sizeof score);
    }
    free(logits);
}
