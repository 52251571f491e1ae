/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the time of a token for a division of layers, from measured rates. */
#include "lib/policy/gpu/cost.h"

#include <math.h>

#include "lib/base/assert.h"

const enum tensor_type cost_types[COST_TYPES] = {TENSOR_F16, TENSOR_Q8_0, TENSOR_Q4_K,
                                                 TENSOR_MXFP4};

unsigned cost_class(enum tensor_type type)
{
    unsigned i = 0;
    while (i < COST_TYPES && cost_types[i] != type)
        i++;
    return i;
}

uint64_t cost_bytes_sum(const struct cost_bytes *b)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < COST_TYPE_CLASSES; i++)
        sum += b->of[i];
    return sum;
}

/* ---- rates ---- */

static double slowest(const struct cost_gpu *g)
{
    double rate = 0;
    for (unsigned i = 0; i < COST_TYPES; i++)
        if (g->product[i] > 0 && (rate == 0 || g->product[i] < rate))
            rate = g->product[i];
    return rate;
}

bool cost_gpu_known(const struct cost_gpu *g)
{
    return slowest(g) > 0 && g->pinned > 0 && g->pageable > 0 && g->wait_s >= 0;
}

bool cost_cpu_known(const struct cost_cpu *c)
{
    return c->dense > 0 && c->experts > 0;
}

double cost_on_gpu(const struct cost_bytes *b, const struct cost_gpu *g)
{
    double s = 0, other = slowest(g);
    for (unsigned i = 0; i < COST_TYPE_CLASSES; i++)
        if (b->of[i] > 0)
            s += (double)b->of[i] / (i < COST_TYPES && g->product[i] > 0 ? g->product[i] : other);
    return s;
}

/* ---- layers ---- */

uint32_t cost_expert_layers(const struct cost_model *m, uint32_t first, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t l = first; l < end; l++)
        n += cost_bytes_sum(&m->layer[l].expert) > 0;
    return n;
}

double cost_dense_on_gpu(const struct cost_model *m, const struct cost_gpu *g, uint32_t first,
                         uint32_t end)
{
    double s = end == m->layers && first < end ? cost_on_gpu(&m->output, g) : 0;
    for (uint32_t l = first; l < end; l++)
        s += cost_on_gpu(&m->layer[l].dense, g);
    return s;
}

double cost_expert_on_gpu(const struct cost_model *m, const struct cost_gpu *g, uint32_t first,
                          uint32_t end)
{
    double s = 0;
    uint32_t n = cost_expert_layers(m, first, end);
    for (uint32_t l = first; l < end; l++)
        s += cost_on_gpu(&m->layer[l].expert, g);
    return n > 0 ? s / n : 0;
}

/* Linear between two numbers of slots. */
double cost_hits(const struct cost_model *m, const struct cost_part *p)
{
    uint32_t n = cost_expert_layers(m, p->first, p->end);
    double slots = n > 0 ? (double)p->slots / n : m->experts;
    if (slots >= m->experts)
        return 1;
    uint32_t whole = (uint32_t)slots;
    return m->hits[whole] + (slots - whole) * (m->hits[whole + 1] - m->hits[whole]);
}

/* Nothing of a token needs the host: lib/device/cuda/token.c. */
static bool computes_alone(const struct cost_model *m, const struct cost_part *p)
{
    return p->first == 0 && p->end == m->layers && p->kv_layers == m->layers &&
           p->slots >= (uint64_t)cost_expert_layers(m, 0, m->layers) * m->experts;
}

/* The experts of a layer on a GPU. */
static double gpu_experts(const struct cost_model *m, const struct cost_cpu *cpu,
                          const struct cost_gpu *g, const struct cost_layer *l, double hits)
{
    double bytes = (double)cost_bytes_sum(&l->expert), one = cost_on_gpu(&l->expert, g);
    double missing = m->top_k * (1 - hits);
    double centric = fmax(m->top_k * one, missing * bytes / g->pinned + fmin(missing, 1) * one);
    double both = fmax(m->top_k * hits * one, missing * bytes / cpu->experts);
    if (m->policy == GPU_COOPERATIVE)
        return both;
    return m->policy == GPU_POLICY__COUNT ? fmin(centric, both) : centric;
}

/* ---- parts ---- */

void cost_overhead(const struct cost_model *m, const struct cost_part *p, struct cost *out)
{
    uint64_t bytes = 0;
    for (uint32_t l = p->first + p->kv_layers; l < p->end; l++)
        bytes += m->layer[l].kv;
    out->kv_s = (double)bytes / p->gpu->pageable;
    out->waits_s = p->gpu->wait_s * (computes_alone(m, p) ? 1 : 1 + p->end - p->first);
}

static struct cost on_cpu(const struct cost_model *m, const struct cost_cpu *cpu,
                          const struct cost_part *p)
{
    uint64_t dense = p->end == m->layers ? cost_bytes_sum(&m->output) : 0, experts = 0;
    for (uint32_t l = p->first; l < p->end; l++) {
        dense += cost_bytes_sum(&m->layer[l].dense);
        experts += cost_bytes_sum(&m->layer[l].expert) * m->top_k;
    }
    return (struct cost){.weights_s = (double)dense / cpu->dense,
                         .experts_s = (double)experts / cpu->experts};
}

struct cost cost_of_part(const struct cost_model *m, const struct cost_cpu *cpu,
                         const struct cost_part *p)
{
    struct cost c = {0};
    sl_assert(p->first <= p->end && p->end <= m->layers && cost_cpu_known(cpu));
    if (p->first == p->end)
        return c;
    if (!p->gpu)
        return on_cpu(m, cpu, p);
    double hits = cost_hits(m, p);
    sl_assert(cost_gpu_known(p->gpu) && p->kv_layers <= p->end - p->first);
    c.weights_s = cost_dense_on_gpu(m, p->gpu, p->first, p->end);
    for (uint32_t l = p->first; l < p->end; l++)
        if (cost_bytes_sum(&m->layer[l].expert) > 0)
            c.experts_s += gpu_experts(m, cpu, p->gpu, &m->layer[l], hits);
    cost_overhead(m, p, &c);
    return c;
}

double cost_of_token(const struct cost_model *m, const struct cost_cpu *cpu,
                     const struct cost_part *part, uint32_t parts)
{
    double s = 0;
    for (uint32_t i = 0, next = 0; i < parts; i++) {
        sl_assert(part[i].first == next);
        next = part[i].end;
        sl_assert(i + 1 < parts || next == m->layers);
        struct cost c = cost_of_part(m, cpu, &part[i]);
        s += cost_sum(&c);
    }
    return s;
}
