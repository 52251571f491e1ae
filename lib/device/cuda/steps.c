/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on any number of rows: a launch has at most GPU_ROWS_MAX of them. */
#include "lib/device/cuda/internal.h"

static uint32_t some_rows(uint32_t rows)
{
    return rows < GPU_ROWS_MAX ? rows : GPU_ROWS_MAX;
}

static const float *rows_from(const float *x, size_t stride, uint32_t row)
{
    return x ? x + stride * row : NULL;
}

void cuda_point(struct cuda *c, enum gpu_pointwise op, struct gpu_rows rows)
{
    for (uint32_t at = 0, n; at < rows.rows; at += n) {
        struct gpu_rows part = rows;
        n = part.rows = some_rows(rows.rows - at);
        part.a = rows_from(rows.a, rows.a_stride, at);
        part.b = rows_from(rows.b, rows.b_stride, at);
        part.factor = rows_from(rows.factor, 1, at);
        part.y = rows.y + rows.y_stride * at;
        cuda_check(c, c->k->pointwise(op, &part, c->stream), "an operation on elements");
    }
}

void cuda_axpy(struct cuda *c, float factor, const float *x, size_t x_stride, uint32_t n,
               uint32_t rows, float *y, size_t y_stride)
{
    cuda_point(c, GPU_AXPY,
               (struct gpu_rows){.a = x,
                                 .b = y,
                                 .y = y,
                                 .a_stride = x_stride,
                                 .b_stride = y_stride,
                                 .y_stride = y_stride,
                                 .n = n,
                                 .rows = rows,
                                 .value = factor});
}

void cuda_copy(struct cuda *c, const float *x, size_t x_stride, uint32_t n, uint32_t rows, float *y,
               size_t y_stride)
{
    cuda_point(
        c, GPU_COPY,
        (struct gpu_rows){
            .a = x, .y = y, .a_stride = x_stride, .y_stride = y_stride, .n = n, .rows = rows});
}

void cuda_rms(struct cuda *c, const float *x, size_t x_stride, struct device_at weight, uint32_t n,
              float eps, uint32_t rows, float *y, size_t y_stride)
{
    cuda_check(
        c, c->k->rms_norm(x, x_stride, device_floats(weight), n, eps, rows, y, y_stride, c->stream),
        "a norm");
}

enum gpu_pointwise cuda_activation(enum ffn_activation activation, struct ffn_limit limit)
{
    static const enum gpu_pointwise ops[ACTIVATION__COUNT] = {[ACTIVATION_SILU] = GPU_SILU_MUL,
                                                              [ACTIVATION_SWIGLU_CLAMPED] =
                                                                  GPU_SWIGLU_CLAMPED,
                                                              [ACTIVATION_GELU] = GPU_GELU_MUL,
                                                              [ACTIVATION_RELU] = GPU_RELU_MUL,
                                                              [ACTIVATION_SITU] = GPU_SITU_MUL};
    if (limit.value == 0)
        return ops[activation];
    sl_assert(activation == ACTIVATION_SILU); /* no architecture has limits of another one */
    return limit.result ? GPU_SILU_LIMITED : GPU_LIMITED_SILU;
}

/* A network has a cap of its gate or limits, not both. */
float cuda_limit(struct ffn_limit limit)
{
    return limit.cap_gate > 0 ? limit.cap_gate : limit.value;
}

void cuda_activate(struct cuda *c, enum ffn_activation activation, struct ffn_limit limit,
                   const float *gate, const float *up, uint32_t n, uint32_t rows, float *y)
{
    cuda_point(c, cuda_activation(activation, limit),
               (struct gpu_rows){.a = gate,
                                 .b = up,
                                 .y = y,
                                 .a_stride = n,
                                 .b_stride = n,
                                 .y_stride = n,
                                 .n = n,
                                 .rows = rows,
                                 .value = cuda_limit(limit),
                                 .second = limit.cap_up});
}

static void make_form(struct cuda *c, enum tensor_type type, const float *x, size_t x_stride,
                      uint32_t k, uint32_t rows, uint8_t *y, size_t stride)
{
    for (uint32_t at = 0, n; at < rows; at += n) {
        n = some_rows(rows - at);
        cuda_check(c,
                   c->k->activation(type, x + x_stride * at, x_stride, k, n, y + stride * at,
                                    stride, c->stream),
                   "an activation");
    }
}

void cuda_forms(struct cuda *c, const struct device_rows *rows, uint32_t count, uint32_t forms)
{
    for (int i = FORM_F32 + 1; i < FORM__COUNT; i++)
        if (forms & (1u << i))
            make_form(c, kernel_form_type((enum kernel_form)i), device_floats(rows->base[FORM_F32]),
                      cuda_stride(rows), rows->k, count, device_pointer(rows->base[i]),
                      rows->stride[i]);
}

size_t cuda_prepare(struct cuda *c, enum tensor_type type, const float *floats, size_t stride,
                    uint32_t k, uint32_t rows, const void **x)
{
    *x = floats;
    if (kernel_form_of(type) == FORM_F32)
        return stride * sizeof(float);
    size_t bytes = kernel_activation_bytes(type, k);
    uint8_t *made = cuda_scratch(c, bytes * rows);
    make_form(c, type, floats, stride, k, rows, made, bytes);
    *x = made;
    return bytes;
}

void cuda_product(struct cuda *c, const struct kernel_matrix *w, struct device_at scale,
                  const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    cuda_check(c, c->k->matmul(w, 0, w->n, x, x_stride, rows, y, y_stride, c->stream), "a product");
    if (scale.address)
        cuda_point(c, GPU_MUL,
                   (struct gpu_rows){.a = y,
                                     .b = device_floats(scale),
                                     .y = y,
                                     .a_stride = y_stride,
                                     .y_stride = y_stride,
                                     .n = w->n,
                                     .rows = rows,
                                     .b_is_one = true});
}

void cuda_product_rows(struct cuda *c, const struct device_matrix *w, struct device_at scale,
                       const struct device_rows *x, uint32_t rows, float *y, size_t y_stride)
{
    enum kernel_form form = kernel_form_of(w->type);
    struct kernel_matrix matrix = device_kernel_matrix(w);
    cuda_product(c, &matrix, scale, device_pointer(x->base[form]), x->stride[form], rows, y,
                 y_stride);
}
