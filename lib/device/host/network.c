/* SPDX-License-Identifier: Apache-2.0 */
/* The network that every row of a layer uses, and its sum with experts. */
#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"

/* Outputs begin .. end - 1 of gate and up, and their product. */
static void gate_up_columns(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_gate_up *a = run->a;
    const struct kernel_matrix gate = device_kernel_matrix(&a->gate),
                               up = device_kernel_matrix(&a->up);
    float *up_y = up.n > 0 ? device_floats(a->up_y) : NULL;
    uint32_t begin, end;
    pool_share(gate.n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    host_product(run->h, &gate, device_floats(a->gate_scale), begin, end,
                 rows_row(&a->x, gate.type, 0), rows_stride(&a->x, gate.type), a->rows,
                 rows_floats(&a->y, 0), gate.n);
    if (up_y)
        host_product(run->h, &up, device_floats(a->up_scale), begin, end,
                     rows_row(&a->x, up.type, 0), rows_stride(&a->x, up.type), a->rows, up_y, up.n);
    for (uint32_t r = 0; r < a->rows; r++) {
        float *at = rows_floats(&a->y, r) + begin;
        host_activate_noted(run->h, a->activation, a->limit, at,
                            up_y ? up_y + (size_t)r * up.n + begin : at, end - begin, at);
    }
}

void host_op_gate_up(struct device *d, const struct op_gate_up *a)
{
    host_run_columns(host_of(d), a->gate.n + a->up.n, a->x.k, a->rows, gate_up_columns, a);
}

static void gate_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_row_gates *a = run->a;
    const struct kernel_matrix w = device_kernel_matrix(&a->w);
    float *weight = device_floats(a->weight);
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float logit;
        host_make_forms(run->h, &a->y, r, a->forms);
        weight[r] = 1.0f;
        if (!w.data)
            continue;
        run->h->kernels->matmul(&w, 0, 1, rows_row(&a->x, w.type, r), rows_stride(&a->x, w.type), 1,
                                &logit, 1);
        host_note(run->h, &logit, 1);
        weight[r] = (float)(1.0 / (1.0 + exact_exp(-(double)logit)));
    }
}

void host_op_row_gates(struct device *d, const struct op_row_gates *a)
{
    host_run_rows(host_of(d), a->rows, gate_rows, a);
}

static void join_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_join *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t begin, end, n = a->n;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        size_t at = (size_t)r * n;
        float *x = device_floats(a->x) + at;
        float *dense = device_floats(a->dense) + at, *experts = device_floats(a->experts) + at;
        kernels->rms_norm(dense, device_floats(a->dense_weight), n, a->eps, dense);
        kernels->rms_norm(experts, device_floats(a->experts_weight), n, a->eps, experts);
        kernels->axpy(1.0f, experts, n, dense);
        kernels->rms_norm(dense, device_floats(a->weight), n, a->eps, dense);
        kernels->axpy(1.0f, dense, n, x);
        for (uint32_t i = 0; a->scale.address && i < n; i++)
            x[i] *= *device_floats(a->scale);
    }
}

void host_op_join(struct device *d, const struct op_join *a)
{
    host_run_rows(host_of(d), a->rows, join_rows, a);
}
