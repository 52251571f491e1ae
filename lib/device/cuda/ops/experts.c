/* SPDX-License-Identifier: Apache-2.0 */
/* Routers and experts. */
#include <stdlib.h>

#include "lib/device/cuda/internal.h"
#include "lib/device/host/host.h"
#include "lib/model/limits.h"

/* ---- router ---- */

static void choose(struct cuda *c, struct model_router rule, struct device_at choice_bias,
                   const float *logits, const bool *allowed, uint32_t rows, struct device_at routes)
{
    rule.bias = device_floats(choice_bias);
    struct route *to = device_pointer(routes);
    struct gpu_route g = {.router = rule,
                          .logits = logits,
                          .expert = &to->expert,
                          .weight = &to->weight,
                          .allowed = allowed,
                          .stride = rule.experts,
                          .step = ROUTE_STRIDE,
                          .rows = rows};
    cuda_check(c, c->k->route(&g, c->stream), "a router");
}

void cuda_op_route(struct cuda *c, const struct op_route *a)
{
    float *logits = device_floats(a->logits);
    cuda_product_rows(c, &a->w, (struct device_at){0}, &a->x, a->rows, logits, a->w.n);
    if (a->bias.address)
        cuda_axpy(c, 1.0f, device_floats(a->bias), 0, a->w.n, a->rows, logits, a->w.n);
    choose(c, a->rule, a->choice_bias, logits, NULL, a->rows, a->routes);
}

void cuda_op_choose(struct cuda *c, const struct op_choose *a)
{
    const bool *allowed = NULL;
    if (a->masked > 0)
        allowed = cuda_upload(c, a->allowed, a->masked * sizeof *a->allowed);
    choose(c, a->rule, a->choice_bias, device_floats(a->logits), allowed, a->rows, a->routes);
}

/* Float memory of the device, in new memory of the host, after a wait. */
static float *fetch(struct cuda *c, struct device_at at, size_t floats)
{
    float *to = malloc(floats * sizeof *to + 1);
    sl_assert(to);
    cuda_to_host(c, to, device_pointer(at), floats * sizeof *to);
    cuda_wait(c);
    return to;
}

/* On the host: only masked routing asks for it. */
void cuda_op_importance(struct cuda *c, const struct op_importance *a)
{
    uint32_t experts = a->rule.experts;
    struct model_router rule = a->rule;
    float *bias = a->choice_bias.address ? fetch(c, a->choice_bias, experts) : NULL;
    float *logits = fetch(c, a->logits, (size_t)a->rows * experts);
    float *x = fetch(c, a->x.base[FORM_F32], a->rows * cuda_stride(&a->x));
    float *sum = calloc(experts, sizeof *sum);
    float *scratch = malloc(ROUTING_SCRATCH(experts) * sizeof *scratch);
    sl_assert(sum && scratch);
    rule.bias = bias;
    for (uint32_t r = 0; r < a->rows; r++)
        host_add_importance(&rule, logits + (size_t)r * experts, x + r * cuda_stride(&a->x), a->x.k,
                            scratch, sum);
    cuda_to_device(c, device_pointer(a->importance), sum, experts * sizeof *sum);
    free(scratch);
    free(sum);
    free(x);
    free(logits);
    free(bias);
}

/* ---- experts ---- */

/* The rows of a job in the form that a type reads; a pass of one row needs no gathering. */
static const void *job_rows(struct cuda *c, const struct op_expert_gate_up *a,
                            const struct device_job *job, const uint32_t *pair_row,
                            enum tensor_type type)
{
    enum kernel_form form = kernel_form_of(type);
    size_t stride = a->x.stride[form];
    if (a->rows == 1)
        return device_pointer(a->x.base[form]);
    void *to = cuda_scratch(c, stride * job->rows);
    cuda_check(c,
               c->k->gather(device_pointer(a->x.base[form]), stride, pair_row + job->pair_base,
                            job->rows, to, c->stream),
               "rows of an expert");
    return to;
}

static void add_bias(struct cuda *c, const struct device_job *job, enum expert_matrix m, float *y)
{
    uint32_t n = job->matrix[m].n;
    if (job->bias[m].address)
        cuda_axpy(c, 1.0f, device_floats(job->bias[m]), 0, n, job->rows, y, n);
}

static void gate_up_job(struct cuda *c, const struct op_expert_gate_up *a,
                        const struct device_job *job, const uint32_t *pair_row)
{
    float *y[2];
    cuda_await(c, device_pointer(job->matrix[EXPERT_GATE].data));
    for (int m = EXPERT_GATE; m <= EXPERT_UP; m++) {
        const struct kernel_matrix w = device_kernel_matrix(&job->matrix[m]);
        y[m] = device_floats(m == EXPERT_GATE ? a->gate : a->up) + (size_t)job->inner_base * a->n;
        cuda_product(c, &w, job->scale[m], job_rows(c, a, job, pair_row, w.type),
                     a->x.stride[kernel_form_of(w.type)], job->rows, y[m], w.n);
        add_bias(c, job, (enum expert_matrix)m, y[m]);
    }
    cuda_activate(c, a->activation, y[EXPERT_GATE], y[EXPERT_UP], a->n, job->rows, y[EXPERT_GATE]);
}

/* First those that are there, while the others arrive. */
void cuda_op_expert_gate_up(struct cuda *c, const struct op_expert_gate_up *a)
{
    const uint32_t *pair_row = cuda_upload(c, a->pair_row, a->pairs * sizeof *a->pair_row);
    bool late[MODEL_EXPERTS_MAX];
    sl_assert(a->jobs <= MODEL_EXPERTS_MAX);
    cuda_cooperate_begin(c, a);
    for (uint32_t i = 0; i < a->jobs; i++) {
        const void *matrix = device_pointer(a->job[i].matrix[EXPERT_GATE].data);
        late[i] = cuda_in_slot(c, matrix) && cuda_arrives(c, matrix);
        if (cuda_in_slot(c, matrix) && !late[i])
            gate_up_job(c, a, &a->job[i], pair_row);
    }
    for (uint32_t i = 0; i < a->jobs; i++)
        if (late[i])
            gate_up_job(c, a, &a->job[i], pair_row);
}

/* into += the terms of a row, in their order. */
static void add_row(struct cuda *c, const struct device_term *term, uint32_t terms, uint32_t n,
                    const float *y, float *into)
{
    for (uint32_t i = 0; i < terms; i++)
        if (term[i].pair != DEVICE_NO_PAIR)
            cuda_axpy(c, term[i].factor, y + (size_t)term[i].pair * n, n, n, 1, into, n);
}

void cuda_op_expert_down(struct cuda *c, const struct op_expert_down *a)
{
    for (uint32_t i = 0; i < a->jobs; i++) {
        const struct device_job *job = &a->job[i];
        const struct kernel_matrix w = device_kernel_matrix(&job->matrix[EXPERT_DOWN]);
        if (!cuda_in_slot(c, w.data))
            continue;
        const float *gate = device_floats(a->gate) + (size_t)job->inner_base * a->inner;
        float *y = device_floats(a->y) + (size_t)job->pair_base * a->n;
        const void *x;
        size_t stride = cuda_prepare(c, w.type, gate, a->inner, a->inner, job->rows, &x);
        cuda_product(c, &w, job->scale[EXPERT_DOWN], x, stride, job->rows, y, a->n);
        add_bias(c, job, EXPERT_DOWN, y);
    }
    cuda_cooperate_end(c, a);
    add_row(c, a->term, a->terms, a->n, device_floats(a->y), device_floats(a->into));
}

void cuda_op_add_terms(struct cuda *c, const struct op_add_terms *a)
{
    for (uint32_t r = 0; r < a->rows; r++)
        add_row(c, a->term + (size_t)r * a->terms, a->terms, a->n, device_floats(a->y),
                device_floats(a->into) + (size_t)r * a->n);
}
