/* SPDX-License-Identifier: Apache-2.0 */
/* Experts of a pass of one row that are not on the GPU, computed by the host while the GPU computes
 * the others. The host has the arithmetic of the GPU, and their sum is the GPU's: in the order of
 * the terms, as without this. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

void cuda_cooperate(struct device *d, struct device *host)
{
    struct cuda *c = cuda_of(d);
    sl_assert(host->is_host && !c->scratch.memory);
    c->cooperate.host = host;
    c->cooperate.on = true;
}

void cuda_policy(struct device *d, bool cooperative, bool prefetch)
{
    struct cuda *c = cuda_of(d);
    sl_assert(c->cooperate.host || !cooperative);
    c->cooperate.on = cooperative;
    if (c->slots.places)
        places_cooperate(c->slots.places, cooperative);
    d->prefetches = prefetch && c->layout.slot_bytes > 0;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The input in each form; of each job gate, up, y, and scales and biases of its matrices. */
static size_t memory_bytes(const struct device_limits *l)
{
    size_t x = 0, job = 2 * (size_t)l->inner + l->expert_width + EXPERT__COUNT +
                        EXPERT__COUNT * larger(l->inner, l->expert_width);
    x += align_up(l->expert_width * sizeof(float), DEVICE_ALIGN);
    for (int f = FORM_F32 + 1; f < FORM__COUNT; f++)
        if (l->gather_forms & (1u << f))
            x += align_up(
                kernel_activation_bytes(kernel_form_type((enum kernel_form)f), l->expert_width),
                DEVICE_ALIGN);
    return x + l->top_k * (job * sizeof(float) + 3 * (1 + EXPERT__COUNT) * DEVICE_ALIGN);
}

void cuda_cooperate_open(struct cuda *c, const struct device_limits *limits)
{
    struct cooperate *h = &c->cooperate;
    void *memory;
    if (!h->host)
        return;
    size_t workspace = h->host->ops->workspace(h->host, limits);
    h->workspace = aligned_alloc(64, align_up(workspace + 1, 64));
    sl_assert(h->workspace);
    h->host->ops->use_workspace(h->host, limits, device_address(h->workspace));
    h->bytes = memory_bytes(limits);
    cuda_check(c, c->k->host_allocate(h->bytes, &memory), "pinned memory");
    cuda_check(c, c->k->event_create(&h->fetched), "an event");
    h->memory = memory;
}

void cuda_cooperate_close(struct cuda *c)
{
    struct cooperate *h = &c->cooperate;
    if (h->memory)
        cuda_check(c, c->k->host_release(h->memory), "a release of memory");
    if (h->fetched)
        cuda_check(c, c->k->event_destroy(h->fetched), "an event");
    free(h->workspace);
}

static void *take(struct cuda *c, size_t bytes)
{
    struct cooperate *h = &c->cooperate;
    uint8_t *memory = h->memory + h->used;
    h->used += align_up(bytes, DEVICE_ALIGN);
    sl_assert(h->used <= h->bytes);
    return memory;
}

/* Memory of the device, in that of the host after `fetched`. */
static struct device_at fetch(struct cuda *c, struct device_at at, size_t bytes)
{
    if (!at.address)
        return at;
    void *to = take(c, bytes);
    cuda_to_host(c, to, device_pointer(at), bytes);
    return device_address(to);
}

static void take_job(struct cuda *c, const struct device_job *job)
{
    struct cooperate *h = &c->cooperate;
    struct device_job *mine = &h->job[h->jobs];
    sl_assert(h->jobs < MODEL_TOP_K_MAX && job->rows == 1);
    *mine = *job;
    h->pair[h->jobs] = job->pair_base;
    mine->pair_base = mine->inner_base = h->jobs++;
    for (int m = 0; m < EXPERT__COUNT; m++) {
        if (job->matrix[m].n == 0)
            continue;
        mine->matrix[m].data = device_address(c->pointer(device_pointer(job->matrix[m].data)));
        mine->scale[m] = fetch(c, job->scale[m], sizeof(float));
        mine->bias[m] = fetch(c, job->bias[m], job->matrix[m].n * sizeof(float));
    }
}

/* The forms of the input that the jobs read. */
static struct device_rows fetch_rows(struct cuda *c, const struct device_rows *x)
{
    const struct cooperate *h = &c->cooperate;
    struct device_rows mine = *x;
    uint32_t forms = 0;
    for (uint32_t i = 0; i < h->jobs; i++)
        forms |= 1u << kernel_form_of(h->job[i].matrix[EXPERT_GATE].type) |
                 1u << kernel_form_of(h->job[i].matrix[EXPERT_UP].type);
    for (int f = 0; f < FORM__COUNT; f++)
        mine.base[f] =
            forms & (1u << f) ? fetch(c, x->base[f], x->stride[f]) : (struct device_at){0};
    return mine;
}

void cuda_cooperate_begin(struct cuda *c, const struct op_expert_gate_up *a)
{
    struct cooperate *h = &c->cooperate;
    h->jobs = 0;
    h->used = 0;
    for (uint32_t i = 0; i < a->jobs; i++)
        if (!cuda_in_slot(c, device_pointer(a->job[i].matrix[EXPERT_GATE].data)))
            take_job(c, &a->job[i]);
    if (h->jobs == 0)
        return;
    sl_assert(a->rows == 1);
    h->op = *a;
    h->op.x = fetch_rows(c, &a->x);
    h->op.jobs = h->op.pairs = h->op.inner_rows = h->jobs;
    h->op.job = h->job;
    h->op.pair_row = NULL; /* of one row: not read */
    h->op.gate = device_address(take(c, (size_t)h->jobs * a->n * sizeof(float)));
    h->op.up = device_address(take(c, (size_t)h->jobs * a->n * sizeof(float)));
    cuda_check(c, c->k->event_record(h->fetched, c->stream), "an event");
}

void cuda_cooperate_end(struct cuda *c, const struct op_expert_down *a)
{
    struct cooperate *h = &c->cooperate;
    if (h->jobs == 0)
        return;
    float *y = take(c, (size_t)h->jobs * a->n * sizeof(float));
    const struct op_expert_down down = {.rows = 1,
                                        .inner = a->inner,
                                        .n = a->n,
                                        .jobs = h->jobs,
                                        .job = h->job,
                                        .inner_rows = h->jobs,
                                        .gate = h->op.gate,
                                        .pairs = h->jobs,
                                        .y = device_address(y)};
    cuda_check(c, c->k->event_wait(h->fetched), "an operation");
    h->host->ops->expert_gate_up(h->host, &h->op);
    h->host->ops->expert_down(h->host, &down);
    for (uint32_t i = 0; i < h->jobs; i++)
        cuda_to_device(c, device_floats(a->y) + (size_t)h->pair[i] * a->n, y + (size_t)i * a->n,
                       a->n * sizeof *y);
    h->jobs = 0;
}
