/* SPDX-License-Identifier: Apache-2.0 */
/* Runs routers and experts on a GPU. */
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

_Static_assert(sizeof(struct gpu_term) == sizeof(struct device_term) &&
                   offsetof(struct gpu_term, row) == offsetof(struct device_term, pair) &&
                   offsetof(struct gpu_term, factor) == offsetof(struct device_term, factor) &&
                   GPU_NO_ROW == DEVICE_NO_PAIR,
               "terms are uploaded as they are");

/* Gate and up of a job, for the next launch. */
static void add_gate_up(struct cuda *c, const struct op_expert_gate_up *a,
                        const struct device_job *job)
{
    size_t at = (size_t)job->inner_base * a->n;
    bool two = job->matrix[EXPERT_UP].n == 0; /* gate is up, too */
    float *gate = device_floats(a->gate) + at, *up = two ? gate : device_floats(a->up) + at;
    int second = two ? EXPERT_GATE : EXPERT_UP;
    cuda_await(c, device_pointer(job->matrix[EXPERT_GATE].data));
    for (int m = EXPERT_GATE; m <= second; m++)
        cuda_batch_product(c, &job->matrix[m],
                           (struct gpu_job){.y = m == EXPERT_GATE ? gate : up,
                                            .first = a->rows == 1 ? 0 : job->pair_base,
                                            .rows = job->rows});
    cuda_batch_finish(c, (struct gpu_finish_job){.a = gate,
                                                 .b = up,
                                                 .a_factor = device_floats(job->scale[EXPERT_GATE]),
                                                 .b_factor = device_floats(job->scale[second]),
                                                 .a_bias = device_floats(job->bias[EXPERT_GATE]),
                                                 .b_bias = device_floats(job->bias[second]),
                                                 .rows = job->rows});
}

static void submit_gate_up(struct cuda *c, const struct op_expert_gate_up *a, const uint32_t *index)
{
    cuda_batch_products(c, &a->x, index);
    cuda_batch_end(c, cuda_activation(a->activation, a->limit), a->limit, a->n);
}

/* First those that are there, together, while the others arrive; those one by one. A pass of one
 * row has no index: all use it. */
void cuda_op_expert_gate_up(struct cuda *c, const struct op_expert_gate_up *a)
{
    const uint32_t *index =
        a->rows == 1 ? NULL : cuda_upload(c, a->pair_row, a->pairs * sizeof *a->pair_row);
    bool late[MODEL_EXPERTS_MAX];
    sl_assert(a->jobs <= MODEL_EXPERTS_MAX);
    cuda_cooperate_begin(c, a);
    for (uint32_t i = 0; i < a->jobs; i++) {
        const void *matrix = device_pointer(a->job[i].matrix[EXPERT_GATE].data);
        late[i] = cuda_in_slot(c, matrix) && cuda_arrives(c, matrix);
        if (cuda_in_slot(c, matrix) && !late[i])
            add_gate_up(c, a, &a->job[i]);
    }
    submit_gate_up(c, a, index);
    for (uint32_t i = 0; i < a->jobs; i++)
        if (late[i]) {
            add_gate_up(c, a, &a->job[i]);
            submit_gate_up(c, a, index);
        }
}

static void add_terms(struct cuda *c, const struct device_term *term, uint32_t rows, uint32_t terms,
                      uint32_t n, struct device_at y, struct device_at into)
{
    const struct gpu_terms t = {.term = cuda_upload(c, term, (size_t)rows * terms * sizeof *term),
                                .y = device_floats(y),
                                .into = device_floats(into),
                                .rows = rows,
                                .terms = terms,
                                .n = n};
    cuda_check(c, c->k->add_terms(&t, c->stream), "a sum");
}

static void add_down(struct cuda *c, const struct op_expert_down *a, const struct device_job *job)
{
    struct device_at factor = job->scale[EXPERT_DOWN], bias = job->bias[EXPERT_DOWN];
    float *y = device_floats(a->y) + (size_t)job->pair_base * a->n;
    cuda_batch_product(c, &job->matrix[EXPERT_DOWN],
                       (struct gpu_job){.y = y, .first = job->inner_base, .rows = job->rows});
    if (factor.address || bias.address)
        cuda_batch_finish(c, (struct gpu_finish_job){.a = y,
                                                     .a_factor = device_floats(factor),
                                                     .a_bias = device_floats(bias),
                                                     .rows = job->rows});
}

void cuda_op_expert_down(struct cuda *c, const struct op_expert_down *a)
{
    struct device_rows x = device_rows_of_floats(a->gate, a->inner);
    uint32_t forms = 0, rows = 0;
    for (uint32_t i = 0; i < a->jobs; i++) {
        const struct device_job *job = &a->job[i];
        if (!cuda_in_slot(c, device_pointer(job->matrix[EXPERT_DOWN].data)))
            continue;
        forms |= 1u << kernel_form_of(job->matrix[EXPERT_DOWN].type);
        rows = job->inner_base + job->rows > rows ? job->inner_base + job->rows : rows;
        add_down(c, a, job);
    }
    for (int form = FORM_F32 + 1; form < FORM__COUNT; form++) {
        const void *made;
        if (!(forms & (1u << form)))
            continue;
        x.stride[form] = cuda_prepare(c, kernel_form_type((enum kernel_form)form),
                                      device_floats(a->gate), a->inner, a->inner, rows, &made);
        x.base[form] = device_address(made);
    }
    cuda_batch_products(c, &x, NULL);
    cuda_batch_end(c, GPU_SILU_MUL, (struct ffn_limit){0}, a->n); /* without an operation */
    cuda_cooperate_end(c, a);
    add_terms(c, a->term, 1, a->terms, a->n, a->y, a->into);
}

void cuda_op_add_terms(struct cuda *c, const struct op_add_terms *a)
{
    add_terms(c, a->term, a->rows, a->terms, a->n, a->y, a->into);
}
