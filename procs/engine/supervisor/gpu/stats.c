/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of the GPUs, for compute and for statistics. */
#include <stdio.h>
#include <string.h>

#include "lib/device/cuda/cuda.h"
#include "lib/policy/gpu/policy.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/supervisor.h"

_Static_assert((int)CUDA_PART__COUNT <= PROCS_GPU_PARTS, "the process table has all parts");

/* Precisions with which the GPU computes tokens alone, once it has all experts
 * (lib/device/cuda/token.c). */
static uint32_t takes_all(const struct supervisor *s, const struct gpu_layout *layout)
{
    enum gpu_policy policy = gpu_policy_of(s->params.gpu_policy, s->params.deterministic);
    bool fills = policy == GPU_POLICY__COUNT || policy == GPU_CENTRIC;
    bool whole = layout->first_layer == 0 && layout->end_layer == layout->layers &&
                 layout->kv_layers == layout->layers;
    return fills && whole && !s->params.deterministic ? gpu_layout_precisions(layout) : 0;
}

void gpu_publish(const struct supervisor *s, struct procs_gpus *out)
{
    const struct gpu_layout *first = &s->gpus.gpu[0].layout; /* what all have in common */
    if (s->gpus.count == 0)
        return;
    *out = (struct procs_gpus){.count = s->gpus.count,
                               .required = gpu_required(s),
                               .positions = first->positions,
                               .layers = first->layers,
                               .experts = first->experts,
                               .top_k = first->top_k,
                               .takes_all = takes_all(s, first)};
    for (uint32_t i = 0; i < s->gpus.count; i++) {
        const struct gpu_layout *layout = &s->gpus.gpu[i].layout;
        struct procs_gpu *g = &out->gpu[i];
        g->number = layout->number;
        g->first_layer = layout->first_layer;
        g->end_layer = layout->end_layer;
        g->kv_layers = layout->kv_layers;
        memcpy(g->bytes, layout->bytes, sizeof layout->bytes);
    }
    snprintf(out->module, sizeof out->module, "%s", s->gpus.module);
}

/* ---- statistics ---- */

struct total {
    uint64_t memory, budget, bytes[CUDA_PART__COUNT], slots, slots_used, slot_bytes, best;
    uint64_t precision[PRECISION__COUNT]; /* slots of each */
    uint32_t layers, kv_layers;
};

static void put(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

static struct total total_of(const struct supervisor *s, uint32_t number, bool lost)
{
    const struct gpu *g = &s->gpus.gpu[number];
    struct total t = {.memory = g->memory,
                      .budget = g->budget,
                      .slots = gpu_layout_slots(&g->layout),
                      .slot_bytes = g->layout.slot_bytes,
                      .best = gpu_layout_experts_best(&g->layout),
                      .layers = g->layout.end_layer - g->layout.first_layer,
                      .kv_layers = g->layout.kv_layers};
    memcpy(t.bytes, g->layout.bytes, sizeof t.bytes);
    for (int p = 0; p < PRECISION__COUNT; p++)
        t.precision[p] = expert_sizes_of(&g->layout.sizes, (enum precision)p);
    const struct procs_gpu *shown = s->procs ? &s->procs->gpus.gpu[number] : NULL;
    if (!shown || lost) /* before anything is started, for --print-memory: as planned */
        return t;
    uint64_t slots = atomic_load(&shown->slots);
    t.slots = slots > 0 ? slots : t.slots;
    t.slots_used = atomic_load(&shown->slots_used);
    return t;
}

static void add(struct total *sum, const struct total *t)
{
    sum->memory += t->memory;
    sum->budget += t->budget;
    sum->slots += t->slots;
    sum->slots_used += t->slots_used;
    sum->best += t->best;
    for (int p = 0; p < PRECISION__COUNT; p++)
        sum->precision[p] =
            t->precision[p] > sum->precision[p] ? t->precision[p] : sum->precision[p];
    sum->slot_bytes = t->slot_bytes > sum->slot_bytes ? t->slot_bytes : sum->slot_bytes;
    sum->layers += t->layers;
    sum->kv_layers += t->kv_layers;
    for (int i = 0; i < CUDA_PART__COUNT; i++)
        sum->bytes[i] += t->bytes[i];
}

static void put_total(json_t *object, const struct total *t)
{
    json_t *layout = json_object();
    for (int i = 0; i < CUDA_PART__COUNT; i++)
        put(layout, cuda_part_name((enum cuda_part)i), t->bytes[i]);
    put(object, "memory_bytes", t->memory);
    put(object, "budget_bytes", t->budget);
    json_object_set_new(object, "plan", layout);
    put(object, "layers", t->layers);
    put(object, "kv_layers", t->kv_layers);
    put(object, "slots", t->slots);
    put(object, "slots_used", t->slots_used);
    put(object, "slot_bytes", t->slot_bytes);
    put(object, "all_experts_bytes", t->best);
    json_t *precisions = json_object();
    for (int p = 0; p < PRECISION__COUNT; p++)
        if (t->precision[p] > 0)
            put(precisions, precision_name((enum precision)p), t->precision[p]);
    json_object_set_new(object, "precision_bytes", precisions);
}

static void put_name(json_t *object, const struct gpu *g)
{
    put(object, "number", g->number);
    json_object_set_new(object, "name", json_string(g->name));
}

/* What compute does now, and what it measured for that. */
static void put_policy(struct supervisor *s, json_t *object)
{
    static const struct {
        unsigned tokens, token_ns;
    } counters[] = {
        [GPU_CENTRIC] = {CTR_COMPUTE_gpu_centric_tokens, CTR_COMPUTE_gpu_centric_token_ns},
        [GPU_COOPERATIVE] = {CTR_COMPUTE_gpu_cooperative_tokens,
                             CTR_COMPUTE_gpu_cooperative_token_ns},
        [GPU_PREFETCH] = {CTR_COMPUTE_gpu_prefetch_tokens, CTR_COMPUTE_gpu_prefetch_token_ns}};
    if (s->children_count == 0)
        return;
    const struct process *process = child_of(s, SERVICE_COMPUTE, 0)->process;
    json_t *all = json_object();
    uint64_t policy = counter_get(process, CTR_COMPUTE_gpu_policy);
    for (int i = 0; i < GPU_POLICY__COUNT; i++)
        json_object_set_new(
            all, gpu_policy_name((enum gpu_policy)i),
            json_pack("{s:I, s:f}", "tokens", (json_int_t)counter_get(process, counters[i].tokens),
                      "token_us", (double)counter_get(process, counters[i].token_ns) / 1e3));
    json_object_set_new(
        object, "policy",
        json_string(policy < GPU_POLICY__COUNT ? gpu_policy_name((enum gpu_policy)policy) : "?"));
    json_object_set_new(object, "trials",
                        json_integer((json_int_t)counter_get(process, CTR_COMPUTE_gpu_trials)));
    json_object_set_new(object, "measured", all);
    json_object_set_new(object, "eviction", json_string(s->params.gpu_eviction));
}

/* "0", or "0,1" */
static void put_numbers(json_t *object, const struct gpus *g)
{
    char text[8 * PROCS_GPUS_MAX];
    size_t at = 0;
    for (uint32_t i = 0; i < g->count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i ? "," : "", g->gpu[i].number);
    json_object_set_new(object, "numbers", json_string(text));
}

json_t *gpu_stats(struct supervisor *s)
{
    if (s->gpus.count == 0)
        return NULL;
    const struct process *compute =
        s->children_count > 0 ? child_of(s, SERVICE_COMPUTE, 0)->process : NULL;
    bool lost = compute && counter_get(compute, CTR_COMPUTE_gpu_lost) != 0;
    json_t *object = json_object(), *each = json_array();
    struct total sum = {0};
    for (uint32_t i = 0; i < s->gpus.count; i++) {
        struct total t = total_of(s, i, lost);
        json_t *one = json_object();
        put_name(one, &s->gpus.gpu[i]);
        put(one, "first_layer", s->gpus.gpu[i].layout.first_layer);
        put_total(one, &t);
        json_array_append_new(each, one);
        add(&sum, &t);
    }
    put_name(object, &s->gpus.gpu[0]);
    put_numbers(object, &s->gpus);
    put_total(object, &sum);
    put(object, "layers_on_cpu", s->model->hparams.layers - sum.layers);
    json_object_set_new(object, "lost", json_boolean(lost));
    json_object_set_new(object, "each", each);
    put_policy(s, object);
    return object;
}

json_t *gpu_choice_stats(const struct supervisor *s)
{
    static const char *const by[] = {
        [GPU_BY_OPTION] = "option", [GPU_BY_BYTES] = "bytes", [GPU_BY_TIMES] = "times"};
    const struct gpu_choice *c = &s->gpus.choice;
    if (c->most == 0)
        return NULL;
    json_t *object = json_object();
    json_object_set_new(object, "by", json_string(by[c->by]));
    put(object, "layers", c->layers);
    put(object, "most", c->most);
    put(object, "budget_bytes", c->budget);
    put(object, "memory_bytes", c->memory);
    put(object, "whole_bytes", s->gpus.whole_bytes);
    if (c->token_s > 0)
        json_object_update_new(object, json_pack("{s:f, s:f, s:f}", "token_s", c->token_s, "most_s",
                                                 c->most_s, "cpu_s", c->cpu_s));
    return object;
}
