/* SPDX-License-Identifier: Apache-2.0 */
/* Products with dense matrices, what is added to the residual stream, and the output. */
#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"

/* Of rows that are divided: those of a pass of the AMX kernels over the weights. */
#define SLICE_ROWS 128u

/* Outputs and rows of a product that are computed between two reports of progress. */
struct slice {
    uint32_t outputs, rows;
};

static struct slice slice_of(const struct host *h, const struct kernel_matrix *w, uint32_t rows)
{
    uint32_t outputs = host_step_rows(h, (uint64_t)rows * w->k) / COLUMN_UNIT * COLUMN_UNIT;
    if (outputs >= h->step_outputs)
        return (struct slice){outputs, rows};
    uint32_t some = host_step_rows(h, (uint64_t)h->step_outputs * w->k) / SLICE_ROWS * SLICE_ROWS;
    return (struct slice){h->step_outputs, smaller(rows, some > SLICE_ROWS ? some : SLICE_ROWS)};
}

static void product_in_slices(const struct host *h, const struct kernel_matrix *w, uint32_t n_begin,
                              uint32_t n_end, const void *x, size_t x_stride, uint32_t rows,
                              float *y, size_t y_stride)
{
    const struct slice slice = slice_of(h, w, rows);
    for (uint32_t begin = n_begin, end; begin < n_end; begin = end) {
        end = n_end - begin < slice.outputs ? n_end : begin + slice.outputs;
        for (uint32_t r = 0; r < rows; r += slice.rows) {
            host_alive(h, rows);
            h->kernels->matmul(w, begin, end, (const uint8_t *)x + r * x_stride, x_stride,
                               smaller(slice.rows, rows - r), y + r * y_stride, y_stride);
        }
    }
}

void host_product(const struct host *h, const struct kernel_matrix *w, const float *scale,
                  uint32_t n_begin, uint32_t n_end, const void *x, size_t x_stride, uint32_t rows,
                  float *y, size_t y_stride)
{
    if (rows == 1)
        h->kernels->matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
    else
        product_in_slices(h, w, n_begin, n_end, x, x_stride, rows, y, y_stride);
    if (!scale)
        return;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t j = n_begin; j < n_end; j++)
            y[r * y_stride + j] *= *scale;
}

static uint32_t outputs_of(const struct op_products *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->count; i++)
        n += a->product[i].w.n;
    return n;
}

/* The matrices as one range of columns. */
static void product_columns(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_products *a = run->a;
    uint32_t begin, end, base = 0;
    pool_share(outputs_of(a), COLUMN_UNIT, thread, threads, &begin, &end);
    for (uint32_t i = 0; i < a->count; base += a->product[i++].w.n) {
        const struct device_product *p = &a->product[i];
        uint32_t b = begin > base ? begin - base : 0, e = end > base ? end - base : 0;
        struct kernel_matrix w = device_kernel_matrix(&p->w);
        e = smaller(e, w.n);
        if (b < e)
            host_product(run->h, &w, device_floats(p->scale), b, e, rows_row(&a->x, w.type, 0),
                         rows_stride(&a->x, w.type), a->rows, device_floats(p->y), p->y_stride);
    }
}

void host_op_products(struct device *d, const struct op_products *a)
{
    host_run_columns(host_of(d), outputs_of(a), a->x.k, a->rows, product_columns, a);
}

static void add_columns(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_add_product *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    const struct kernel_matrix w = device_kernel_matrix(&a->w);
    const float *weight = device_floats(a->weight);
    uint32_t begin, end;
    pool_share(w.n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    host_product(run->h, &w, device_floats(a->scale), begin, end, rows_row(&a->x, w.type, 0),
                 rows_stride(&a->x, w.type), a->rows, device_floats(a->y), w.n);
    for (uint32_t r = 0; r < a->rows; r++) {
        float *y = device_floats(a->y) + (size_t)r * w.n;
        if (a->bias.address)
            kernels->axpy(1.0f, device_floats(a->bias) + begin, end - begin, y + begin);
        if (a->into.address)
            kernels->axpy(weight ? weight[r] * a->factor : a->factor, y + begin, end - begin,
                          device_floats(a->into) + (size_t)r * w.n + begin);
    }
}

void host_op_add_product(struct device *d, const struct op_add_product *a)
{
    host_run_columns(host_of(d), a->w.n, a->x.k, a->rows, add_columns, a);
}

static void add_norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_add_norm *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *y = device_floats(a->y) + (size_t)r * a->n;
        run->h->kernels->rms_norm(y, device_floats(a->weight), a->n, a->eps, y);
        run->h->kernels->axpy(a->factor, y, a->n, device_floats(a->into) + (size_t)r * a->n);
    }
}

void host_op_add_norm(struct device *d, const struct op_add_norm *a)
{
    host_run_rows(host_of(d), a->rows, add_norm_rows, a);
}

/* ---- output ---- */

static void logit_columns(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_logits *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    const struct kernel_matrix w = device_kernel_matrix(&a->w);
    uint32_t begin, end;
    pool_share(w.n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    host_product(run->h, &w, device_floats(a->scale), begin, end, rows_row(&a->x, w.type, 0),
                 rows_stride(&a->x, w.type), a->rows, device_floats(a->y), w.n);
    for (uint32_t r = 0; r < a->rows; r++) {
        float *logits = device_floats(a->y) + (size_t)r * w.n;
        if (a->bias.address)
            kernels->axpy(1.0f, device_floats(a->bias) + begin, end - begin, logits + begin);
        for (uint32_t i = begin; a->divisor != 0 && i < end; i++)
            logits[i] /= a->divisor;
        if (a->cap != 0) {
            host_note(run->h, logits + begin, end - begin); /* an infinity would become the cap */
            kernels->soft_cap(a->cap, logits + begin, end - begin, logits + begin);
        }
    }
}

void host_op_logits(struct device *d, const struct op_logits *a)
{
    host_run_columns(host_of(d), a->w.n, a->w.k, a->rows, logit_columns, a);
}

double host_log_sum_exp(const float *x, uint32_t n)
{
    float max = x[0];
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exact_exp((double)x[i] - (double)max);
    return (double)max + exact_log(sum);
}

float host_log_probability(const float *logits, uint32_t vocab, uint32_t token)
{
    return (float)((double)logits[token] - host_log_sum_exp(logits, vocab));
}

static void score_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_score *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        device_floats(a->y)[r] = host_log_probability(
            device_floats(a->logits) + (size_t)r * a->vocab, a->vocab, a->token[r]);
}

void host_op_score(struct device *d, const struct op_score *a)
{
    struct host *h = host_of(d);
    host_run_parts(h, h->threads, score_rows, a);
}
