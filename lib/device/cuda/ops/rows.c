/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows: embeddings, angles, norms, forms. */
#include <stdlib.h>

#include "lib/device/cuda/internal.h"

/* The numbers 0 .. n - 1, as the rows of a matrix. */
static const uint32_t *all_rows(struct cuda *c, uint32_t n)
{
    uint32_t *number = malloc((size_t)n * sizeof *number + 1);
    sl_assert(number);
    for (uint32_t i = 0; i < n; i++)
        number[i] = i;
    const uint32_t *there = cuda_upload(c, number, (size_t)n * sizeof *number);
    free(number);
    return there;
}

static void to_floats(struct cuda *c, const struct kernel_matrix *w, const uint32_t *token,
                      uint32_t rows, float *y, size_t y_stride)
{
    cuda_check(c, c->k->rows_to_f32(w, token, rows, y, y_stride, c->stream), "rows of a matrix");
}

void cuda_op_unpack(struct cuda *c, const struct op_unpack *a)
{
    const struct kernel_matrix w = device_kernel_matrix(&a->w);
    const uint32_t *rows = all_rows(c, w.n);
    float *y = device_floats(a->y);
    if (a->stride == 1) {
        to_floats(c, &w, rows, w.n, y, a->row_stride);
        return;
    }
    float *as_stored = cuda_scratch_floats(c, (size_t)w.n * w.k);
    sl_assert(a->row_stride == 1); /* a matrix with its rows as columns */
    to_floats(c, &w, rows, w.n, as_stored, w.k);
    for (uint32_t i = 0; i < w.k; i++)
        cuda_point(
            c, GPU_COPY,
            (struct gpu_rows){
                .a = as_stored + i, .a_step = w.k, .y = y + i * a->stride, .n = w.n, .rows = 1});
}

void cuda_op_clear(struct cuda *c, const struct op_clear *a)
{
    cuda_check(c, c->k->clear(device_pointer(a->y), a->bytes, c->stream), "clearing memory");
}

static const uint32_t *tokens(struct cuda *c, const struct op_embed *a)
{
    uint32_t *token = malloc(a->rows * sizeof *token);
    sl_assert(token);
    for (uint32_t r = 0; r < a->rows; r++)
        token[r] = a->row[r].token;
    const uint32_t *there = cuda_upload(c, token, a->rows * sizeof *token);
    free(token);
    return there;
}

void cuda_op_embed(struct cuda *c, const struct op_embed *a)
{
    const struct kernel_matrix w = device_kernel_matrix(&a->w);
    const uint32_t *there = cuda_in_token(c) ? &c->token.block->token : tokens(c, a);
    float *x = device_floats(a->x);
    to_floats(c, &w, there, a->rows, x, w.k);
    if (a->factor != 0)
        cuda_point(c, GPU_SCALE,
                   (struct gpu_rows){.a = x,
                                     .y = x,
                                     .a_stride = w.k,
                                     .y_stride = w.k,
                                     .n = w.k,
                                     .rows = a->rows,
                                     .value = a->factor});
}

/* In double on the host, as everywhere: a few hundred numbers per row, once per pass. */
void cuda_op_angles(struct cuda *c, const struct op_angles *a)
{
    size_t floats = (a->rows - 1) * a->stride + a->rope.dims;
    float *y = calloc(floats, sizeof *y), *factors = NULL;
    struct kernel_rope rope = a->rope;
    sl_assert(y);
    if (a->factors.address) {
        factors = malloc(a->rope.dims / 2 * sizeof *factors);
        sl_assert(factors);
        cuda_to_host(c, factors, device_pointer(a->factors), a->rope.dims / 2 * sizeof *factors);
        cuda_wait(c);
    }
    rope.factors = factors;
    for (uint32_t r = 0; r < a->rows; r++)
        kernel_rope_table(&rope, a->row[r].position, y + r * a->stride);
    cuda_to_device(c, device_pointer(a->y), y, floats * sizeof *y);
    free(factors);
    free(y);
}

void cuda_op_norm(struct cuda *c, const struct op_norm *a)
{
    const float *x = device_floats(a->x);
    float *y = device_floats(a->y.base[FORM_F32]);
    uint32_t n = a->y.k;
    if (a->kind == NORM_LAYER) {
        cuda_check(c, c->k->center(x, n, n, a->rows, y, n, c->stream), "a norm");
        x = y;
    }
    cuda_rms(c, x, n, a->weight, n, a->eps, a->rows, y, n);
    if (a->bias.address)
        cuda_axpy(c, 1.0f, device_floats(a->bias), 0, n, a->rows, y, n);
    cuda_forms(c, &a->y, a->rows, a->forms);
}

static void scale(struct cuda *c, const float *x, struct device_at by, uint32_t n, uint32_t rows,
                  float *y)
{
    cuda_point(c, GPU_MUL,
               (struct gpu_rows){.a = x,
                                 .b = device_floats(by),
                                 .y = y,
                                 .a_stride = n,
                                 .y_stride = n,
                                 .n = n,
                                 .rows = rows});
}

void cuda_op_gate_norm(struct cuda *c, const struct op_gate_norm *a)
{
    uint32_t n = a->y.k;
    float *u = device_floats(a->u);
    cuda_rms(c, device_floats(a->x), n, a->weight, n, a->eps, a->rows, u, n);
    scale(c, u, a->scale, n, a->rows, device_floats(a->y.base[FORM_F32]));
}

void cuda_op_scale_rows(struct cuda *c, const struct op_scale_rows *a)
{
    scale(c, device_floats(a->x), a->scale, a->y.k, a->rows, device_floats(a->y.base[FORM_F32]));
}

void cuda_op_forms(struct cuda *c, const struct op_forms *a)
{
    cuda_forms(c, &a->y, a->rows, a->forms);
}

void cuda_op_gate_heads(struct cuda *c, const struct op_gate_heads *a)
{
    const struct gate_layout gates = device_gates_of(&a->shape, &a->mix);
    bool sigmoid = a->shape.gate == HEAD_GATE_SIGMOID;
    float *mix = device_floats(a->mix.base[FORM_F32]);
    uint32_t size = gates.floats > 0 ? a->mix.k / a->shape.heads : 0;
    if (a->gates.address) /* heads of all rows are equally far apart */
        cuda_point(c, sigmoid ? GPU_SIGMOID_MUL : GPU_SOFTPLUS_MUL,
                   (struct gpu_rows){.a = device_floats(a->gates) + gates.first,
                                     .b = mix,
                                     .y = mix,
                                     .a_stride = gates.step,
                                     .b_stride = size,
                                     .y_stride = size,
                                     .n = size,
                                     .rows = a->rows * a->shape.heads,
                                     .a_is_one = gates.one});
    cuda_forms(c, &a->mix, a->rows, a->forms);
}
