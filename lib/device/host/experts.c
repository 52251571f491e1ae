/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of experts: gate and up of all in one phase, down in a second. Work is divided by cost
 * over experts and outputs, so a batch of few large and many small experts is balanced. */
#include <string.h>

#include "lib/device/host/internal.h"

struct job_range { /* outputs [begin, end) of a job, assigned to a thread */
    uint32_t begin, end;
};

/* The batch is a range of sum(rows * n) products; a thread owns [low, high) of it. Cuts inside a
 * job are at multiples of COLUMN_UNIT outputs; both neighbours compute the same cut. */
static struct job_range range_of(const struct device_job *job, uint32_t n, uint64_t start,
                                 uint64_t low, uint64_t high)
{
    uint64_t end = start + (uint64_t)job->rows * n;
    if (high <= start || low >= end)
        return (struct job_range){0, 0};
    uint64_t b = low <= start ? 0 : (low - start) / job->rows / COLUMN_UNIT * COLUMN_UNIT;
    uint64_t e = high >= end ? n : (high - start) / job->rows / COLUMN_UNIT * COLUMN_UNIT;
    return (struct job_range){(uint32_t)b, (uint32_t)e};
}

static uint64_t cost_of(const struct device_job *job, uint32_t jobs, uint32_t n)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < jobs; i++)
        cost += (uint64_t)job[i].rows * n;
    return cost;
}

/* Copies the rows `first` .. first + rows - 1 of a job's list next to each other. */
static void gather_rows(const struct op_expert_gate_up *a, const struct device_rows *to,
                        const struct device_job *job, uint32_t first, uint32_t rows, uint32_t forms)
{
    for (int f = 0; f < FORM__COUNT; f++) {
        if ((forms & (1u << f)) == 0)
            continue;
        size_t stride = a->x.stride[f];
        uint8_t *out = device_pointer(to->base[f]);
        const uint8_t *in = device_pointer(a->x.base[f]);
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t row = a->pair_row[job->pair_base + first + r];
            memcpy(out + r * stride, in + row * stride, stride);
        }
    }
}

/* Adds the bias of the outputs [begin, end) of a matrix of n outputs, if it has one. */
static void add_bias(const struct host *h, const struct device_job *job, enum expert_matrix m,
                     struct job_range range, uint32_t n, uint32_t rows, float *y)
{
    const float *bias = device_floats(job->bias[m]);
    for (uint32_t r = 0; bias && r < rows; r++)
        h->kernels->axpy(1.0f, bias + range.begin, range.end - range.begin,
                         y + (size_t)r * n + range.begin);
}

static void gate_up_job(const struct host_run *run, const struct device_job *job,
                        struct job_range range)
{
    const struct op_expert_gate_up *a = run->a;
    struct host *h = run->h;
    struct kernel_matrix gate = device_kernel_matrix(&job->matrix[EXPERT_GATE]);
    struct kernel_matrix up = device_kernel_matrix(&job->matrix[EXPERT_UP]);
    uint32_t forms = host_form_bit(gate.type) | (up.n > 0 ? host_form_bit(up.type) : 0);
    for (uint32_t first = 0; first < job->rows; first += DEVICE_GATHER_ROWS) {
        uint32_t rows = smaller(job->rows - first, DEVICE_GATHER_ROWS);
        host_alive(h, a->rows);               /* of many experts, each may have one row */
        const struct device_rows *in = &a->x; /* a pass of one row needs no gathering */
        if (a->rows > 1) {
            in = &h->thread[pool_me()].gather;
            gather_rows(a, in, job, first, rows, forms);
        }
        float *g = device_floats(a->gate) + (size_t)(job->inner_base + first) * gate.n;
        float *u = g;
        host_product(h, &gate, device_floats(job->scale[EXPERT_GATE]), range.begin, range.end,
                     rows_row(in, gate.type, 0), rows_stride(in, gate.type), rows, g, gate.n);
        add_bias(h, job, EXPERT_GATE, range, gate.n, rows, g);
        if (up.n > 0) {
            u = device_floats(a->up) + (size_t)(job->inner_base + first) * up.n;
            host_product(h, &up, device_floats(job->scale[EXPERT_UP]), range.begin, range.end,
                         rows_row(in, up.type, 0), rows_stride(in, up.type), rows, u, up.n);
            add_bias(h, job, EXPERT_UP, range, up.n, rows, u);
        }
        for (uint32_t r = 0; r < rows; r++) {
            size_t at = (size_t)r * gate.n + range.begin;
            host_activate_noted(h, a->activation, a->limit, g + at, u + at, range.end - range.begin,
                                g + at);
        }
    }
}

static void gate_up_phase(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_expert_gate_up *a = run->a;
    uint64_t cost = cost_of(a->job, a->jobs, a->n), start = 0;
    for (uint32_t i = 0; i < a->jobs; i++) {
        struct job_range range =
            range_of(&a->job[i], a->n, start, cost * part / parts, cost * (part + 1) / parts);
        if (range.begin < range.end)
            gate_up_job(run, &a->job[i], range);
        start += (uint64_t)a->job[i].rows * a->n;
    }
}

void host_op_expert_gate_up(struct device *d, const struct op_expert_gate_up *a)
{
    struct host *h = host_of(d);
    uint64_t one = cost_of(a->job, a->jobs, a->n) * a->x.k; /* one matrix of every job */
    uint64_t matrices = a->jobs > 0 && a->job->matrix[EXPERT_UP].n == 0 ? 1 : 2;
    host_run_parts(h, pool_parts(h->pool, matrices * one), gate_up_phase, a);
}

static void down_job(const struct host_run *run, const struct device_job *job,
                     struct job_range range)
{
    const struct op_expert_down *a = run->a;
    struct host *h = run->h;
    struct kernel_matrix down = device_kernel_matrix(&job->matrix[EXPERT_DOWN]);
    const struct device_rows *inner = &h->thread[pool_me()].inner;
    for (uint32_t first = 0; first < job->rows; first += DEVICE_GATHER_ROWS) {
        uint32_t rows = smaller(job->rows - first, DEVICE_GATHER_ROWS);
        host_alive(h, a->rows); /* of many experts, each may have one row */
        float *g = device_floats(a->gate) + (size_t)(job->inner_base + first) * down.k;
        const void *x = g;
        if (kernel_form_of(down.type) != FORM_F32) {
            struct device_rows made =
                *inner; /* floats in place, blocks in the buffer of the thread */
            made.base[FORM_F32] = device_address(g);
            for (uint32_t r = 0; r < rows; r++)
                host_make_forms(h, &made, r, host_form_bit(down.type));
            x = rows_row(&made, down.type, 0);
        }
        float *y = device_floats(a->y) + (size_t)(job->pair_base + first) * down.n;
        host_product(h, &down, device_floats(job->scale[EXPERT_DOWN]), range.begin, range.end, x,
                     rows_stride(inner, down.type), rows, y, down.n);
        add_bias(h, job, EXPERT_DOWN, range, down.n, rows, y);
    }
}

/* into[begin..end) += the terms of a row, in their order, so that the result does not depend on the
 * order of loads. */
static void sum_terms(const struct host *h, const struct device_term *term, uint32_t terms,
                      uint32_t n, const float *y, uint32_t begin, uint32_t end, float *into)
{
    for (uint32_t i = 0; i < terms; i++)
        if (term[i].pair != DEVICE_NO_PAIR)
            h->kernels->axpy(term[i].factor, y + (size_t)term[i].pair * n + begin, end - begin,
                             into + begin);
}

/* With terms, a thread owns the same outputs of every job, and can add them. */
static void down_phase(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_expert_down *a = run->a;
    uint64_t cost = cost_of(a->job, a->jobs, a->n), start = 0;
    struct job_range own = {0, 0};
    if (a->terms > 0) {
        pool_share(a->n, COLUMN_UNIT, part, parts, &own.begin, &own.end);
        if (own.begin == own.end)
            return;
    }
    for (uint32_t i = 0; i < a->jobs; i++) {
        struct job_range range = own;
        if (a->terms == 0)
            range =
                range_of(&a->job[i], a->n, start, cost * part / parts, cost * (part + 1) / parts);
        if (range.begin < range.end)
            down_job(run, &a->job[i], range);
        start += (uint64_t)a->job[i].rows * a->n;
    }
    if (a->terms > 0)
        sum_terms(run->h, a->term, a->terms, a->n, device_floats(a->y), own.begin, own.end,
                  device_floats(a->into));
}

void host_op_expert_down(struct device *d, const struct op_expert_down *a)
{
    struct host *h = host_of(d);
    uint64_t one = cost_of(a->job, a->jobs, a->inner) * a->n;
    host_run_parts(h, pool_parts(h->pool, one), down_phase, a);
}

static void term_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_add_terms *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        sum_terms(run->h, a->term + (size_t)r * a->terms, a->terms, a->n, device_floats(a->y), 0,
                  a->n, device_floats(a->into) + (size_t)r * a->n);
}

void host_op_add_terms(struct device *d, const struct op_add_terms *a)
{
    host_run_rows(host_of(d), a->rows, term_rows, a);
}
