/* SPDX-License-Identifier: Apache-2.0 */
/* Compute time of an expert at each precision relative to native, measured on one thread with
 * several experts of one layer in sequence, so that weights come from memory. */
#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/plan/papers/auto.h"

#define EXPERTS_TIMED 16
#define ROUNDS        5 /* the fastest counts: other load only adds time */

struct bench {
    struct planning *p;
    const struct kernel_ops *ops;
    struct kernel_matrix matrix[EXPERTS_TIMED][EXPERT__COUNT];
    uint32_t layer, experts;
    float *x, *gate, *up, *y;
    float *bias; /* zeros, added where experts have biases; NULL: they have none */
    void *activation;
};

static void product(const struct bench *b, const struct kernel_matrix *m, float *y)
{
    b->ops->matmul(m, 0, m->n, b->activation, 0, 1, y, 0);
    if (b->bias)
        b->ops->axpy(1.0f, b->bias, m->n, y);
}

/* As lib/core computes it; a scale of a matrix is left out. */
static void one_expert(struct bench *b, const struct kernel_matrix *m)
{
    const struct model_hparams *hp = &offline_index(b->p->model)->hparams;
    uint32_t width = hparams_expert_width(hp);
    b->ops->activation(m[EXPERT_GATE].type, b->x, width, b->activation);
    product(b, &m[EXPERT_GATE], b->gate);
    bool three = m[EXPERT_UP].n > 0;
    if (three && kernel_form_of(m[EXPERT_UP].type) != kernel_form_of(m[EXPERT_GATE].type))
        b->ops->activation(m[EXPERT_UP].type, b->x, width, b->activation);
    if (three)
        product(b, &m[EXPERT_UP], b->up);
    core_apply_activation(b->ops, hp, b->gate, three ? b->up : b->gate, hp->expert_inner, b->gate);
    b->ops->activation(m[EXPERT_DOWN].type, b->gate, hp->expert_inner, b->activation);
    product(b, &m[EXPERT_DOWN], b->y);
}

/* Within a budget: so many experts that the others always fit next to those that are held, wherever
 * these are. */
static uint32_t experts_held(const struct bench *b, enum precision precision)
{
    uint64_t slots = offline_slots_bytes(b->p->model);
    if (slots == 0)
        return b->experts;
    uint64_t n =
        (slots / offline_slot_bytes(b->p->model, b->layer, 0, precision, b->p->method) + 1) / 2;
    return n < 1 ? 1 : n < b->experts ? (uint32_t)n : b->experts;
}

static int time_precision(struct bench *b, enum precision precision, double *ns,
                          struct error *error)
{
    uint64_t best = UINT64_MAX;
    uint32_t held = 0, experts = experts_held(b, precision);
    struct offline_model *m = b->p->model;
    while (held < experts &&
           offline_hold(m, b->layer, held, precision, b->p->method, b->matrix[held], error) == 0)
        held++;
    for (int round = 0; round < ROUNDS && held == experts; round++) {
        uint64_t start = clock_now_ns();
        for (uint32_t e = 0; e < experts; e++)
            one_expert(b, b->matrix[e]);
        uint64_t took = clock_now_ns() - start;
        best = took < best ? took : best;
    }
    bool good = held == experts;
    while (held > 0)
        offline_release(m, b->layer, --held, precision, b->p->method);
    *ns = (double)best / experts;
    return good ? 0 : -1;
}

/* The largest activations of the layer's matrices: rows of a type may be padded to its block. */
static size_t activation_bytes(const struct planning *p, uint32_t k)
{
    const struct model_index *m = offline_index(p->model);
    uint32_t entry = model_entry_expert(m, model_expert_layer(m, 0), 0);
    size_t largest = 0;
    for (int i = 0; i < EXPERT__COUNT; i++) {
        size_t bytes = kernel_activation_bytes(
            (enum tensor_type)model_index_entries(m)[entry].matrix[i].type, k);
        largest = bytes > largest ? bytes : largest;
    }
    for (enum precision t = PRECISION_INT8; t < PRECISION__COUNT; t++) {
        size_t bytes = kernel_activation_bytes(offline_type(t, p->method), k);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static bool has_biases(const struct planning *p)
{
    const struct model_index *m = offline_index(p->model);
    return model_entry_dense(m, model_expert_layer(m, 0), DENSE_EXPERT_GATE_BIAS) != ENTRY_NONE;
}

static int measure(struct planning *p, double ratio[PRECISION__COUNT], struct error *error)
{
    const struct model_hparams *hp = &offline_index(p->model)->hparams;
    uint32_t max = hp->hidden > hp->expert_inner ? hp->hidden : hp->expert_inner;
    struct bench b = {.p = p,
                      .ops = kernel_ops_select(NULL),
                      .layer = model_expert_layer(offline_index(p->model), 0)};
    b.experts = hp->experts < EXPERTS_TIMED ? hp->experts : EXPERTS_TIMED;
    b.x = calloc(max, sizeof(float));
    b.gate = calloc(max, sizeof(float));
    b.up = calloc(max, sizeof(float));
    b.y = calloc(max, sizeof(float));
    b.activation = aligned_alloc(64, align_up(activation_bytes(p, max), 64));
    sl_assert(b.x && b.gate && b.up && b.y && b.activation);
    if (has_biases(p)) {
        b.bias = calloc(max, sizeof(float));
        sl_assert(b.bias);
    }
    for (uint32_t i = 0; i < hp->hidden; i++)
        b.x[i] = (float)(i % 17) / 17 - 0.5f;
    int status = 0;
    for (enum precision t = PRECISION_NATIVE; t < PRECISION__COUNT && status == 0; t++)
        status = time_precision(&b, t, &ratio[t], error);
    for (int t = PRECISION__COUNT - 1; t >= 0; t--)
        ratio[t] /= ratio[PRECISION_NATIVE];
    free(b.x);
    free(b.gate);
    free(b.up);
    free(b.y);
    free(b.bias);
    free(b.activation);
    return status;
}

int auto_precision_ratios(struct planning *p, double ratio[PRECISION__COUNT], struct error *error)
{
    static const struct measured_range ratios = {0.001, 1000};
    uint8_t key[MEASURED_KEY_BYTES];
    const char what[] = {'r', 'a', 't', 'i', 'o', (char)p->method};
    planning_key(p, NULL, what, sizeof what, key);
    if (measured_find(p->measured, key, ratios, ratio, PRECISION__COUNT))
        return 0;
    if (measure(p, ratio, error) != 0)
        return -1;
    return measured_add(p->measured, key, ratio, PRECISION__COUNT, error);
}
