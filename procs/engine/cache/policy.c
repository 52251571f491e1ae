/* SPDX-License-Identifier: Apache-2.0 */
/* The preset in effect: its parameters, the residency object made from them, and the measured times
 * for its prefetch limit. A record of the access log switches to another preset; resident experts
 * stay. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/model/index/capacity.h"
#include "lib/tensor/precision.h"
#include "procs/engine/cache/cache.h"

/* Step of a running median per sample, and the number of first samples with a long step. */
#define STEP       0.0625
#define LONG_STEP  0.25
#define LONG_STEPS 16

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory)
        log_fatal(1, "out of memory (tables of the cache)");
    return memory;
}

/* ---- capacity -------------------------------------------------------------------------------- */

void cache_follow_capacity(struct cache *c)
{
    uint64_t capacity =
        capacity_payload_bytes(c->child.model, cache_quota(c), cache_payload_max(c));
    if (capacity == c->capacity)
        return;
    c->capacity = capacity;
    residency_capacity(c->residency, capacity);
}

uint32_t cache_capacity_entries(const struct cache *c)
{
    return capacity_experts(c->child.model, cache_quota(c), cache_payload_max(c));
}

/* ---- the residency object -------------------------------------------------------------------- */

/* NaN: unknown in the plan, counts as 0. */
static void copy_known(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = isnan(from[i]) ? 0 : from[i];
}

/* Copies of the plan's arrays, in which single experts can be unknown. */
static void take_plan(struct cache *c, const struct knobs *k, struct residency_config *config)
{
    const struct model_hparams *h = &c->child.model->hparams;
    const struct plan *plan = c->child.plan;
    if (!plan)
        return;
    if (k->frequency == FREQUENCY_PROFILE && plan_frequency(plan)) {
        copy_known(c->frequency, plan_frequency(plan), (size_t)h->layers * h->experts);
        config->frequency = c->frequency;
    }
    const uint32_t *shares =
        k->routing == ROUTING_MASKED ? plan_virtual_experts(plan) : plan_share(plan);
    for (uint32_t l = 0; shares && l < h->layers; l++)
        c->shares[l] = (float)shares[l];
    config->shares = shares ? c->shares : NULL;
}

static void create_tables(struct cache *c)
{
    const struct model_index *m = c->child.model;
    if (c->slot_payload)
        return;
    c->slot_payload = allocate(m->expert_entry_count, sizeof *c->slot_payload);
    c->frequency = allocate((size_t)m->hparams.layers * m->hparams.experts, sizeof *c->frequency);
    c->shares = allocate(m->hparams.layers, sizeof *c->shares);
    for (uint32_t s = 0; s < m->expert_entry_count; s++) { /* absent entries have no payload */
        uint64_t payload = c->entries[m->dense_count + s].payload_bytes;
        c->slot_payload[s] = payload > 0 ? payload : 1;
    }
}

static struct residency *make_residency(struct cache *c, const struct knobs *k,
                                        const struct precision_policy *policy)
{
    const struct model_index *m = c->child.model;
    struct residency_config config = {.layers = m->hparams.layers,
                                      .expert_layers = hparams_layers_with_experts(&m->hparams),
                                      .experts = m->hparams.experts,
                                      .top_k = m->hparams.experts_used,
                                      .precisions = m->precision_count,
                                      .slot_bytes = c->slot_payload};
    knobs_residency(k, policy, m->precision_mask, &config);
    take_plan(c, k, &config);
    c->usual_precision = PRECISION_NATIVE;
    for (uint32_t t = 0, index = 0; t < PRECISION__COUNT; t++)
        if ((m->precision_mask & 1u << t) && index++ == config.high_precision)
            c->usual_precision = (enum precision)t;
    return residency_create(&config);
}

/* Resident experts are inserted in the order of their numbers; their access history is lost. */
static void move_residents(struct cache *c, struct residency *to)
{
    uint32_t slots = residency_slots(to);
    for (uint32_t s = 0; c->residency && s < slots; s++)
        if (residency_is_resident(c->residency, s))
            residency_insert(to, s, false);
    residency_destroy(c->residency);
    c->residency = to;
}

int cache_set_preset(struct cache *c, uint32_t preset, struct error *error)
{
    struct knobs knobs;
    struct precision_policy policy;
    if (child_knobs(&c->child, preset, &knobs, &policy, error) != 0)
        return -1;
    create_tables(c);
    struct residency *residency = make_residency(c, &knobs, &policy);
    if (!residency)
        return error_set(error, ERR_FAILED,
                         "no eviction policy '%s' for allocation '%s', or out of memory",
                         knobs_choice(&knobs, "eviction"), knobs_choice(&knobs, "allocation"));
    c->preset = preset;
    c->knobs = knobs;
    move_residents(c, residency);
    c->capacity = 0;
    cache_follow_capacity(c);
    prefetch_limit_init(&c->limit, knobs.prefetch);
    return cache_choose_fill(c, error);
}

void cache_follow_preset(struct cache *c, uint32_t preset)
{
    struct error error;
    if (preset == c->preset)
        return;
    /* compute has rejected presets that cannot run here. */
    if (preset >= preset_count() || cache_set_preset(c, preset, &error) != 0)
        log_warn("preset %u: %s", preset, preset >= preset_count() ? "unknown" : error.text);
    else
        log_info("preset %s", preset_at(preset)->name);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A running median. Not a mean: a process that was stopped has a sample 1000 times the others. */
static void note(struct cache_median *of, double sample)
{
    double step = of->samples < LONG_STEPS ? LONG_STEP : STEP;
    if (of->samples == 0)
        of->value = sample;
    else
        of->value *= sample > of->value ? 1 + step : 1 / (1 + step);
    of->samples += of->samples < LONG_STEPS;
}

/* From the loaders' counters: bytes per busy time, without time in queues. */
static void note_reads(struct cache *c)
{
    double rate = 0;
    for (uint32_t i = 0; i < c->loader_count; i++) {
        const struct process *process =
            &c->child.procs.head->process[procs_index_of(SERVICE_LOADER, i)];
        struct cache_reads now = {.bytes = counter_get(process, CTR_LOADER_bytes_read),
                                  .busy_ns = counter_get(process, CTR_LOADER_busy_ns)};
        struct cache_reads then = c->reads[i];
        c->reads[i] = now;
        if (now.bytes > then.bytes && now.busy_ns > then.busy_ns) /* else: idle, or restarted */
            rate += (double)(now.bytes - then.bytes) / (double)(now.busy_ns - then.busy_ns);
    }
    if (rate > 0)
        note(&c->bytes_per_ns, rate);
}

double cache_expert_ns(const struct cache *c)
{
    const struct model_index *m = c->child.model;
    uint32_t entries = m->precision_entries[c->usual_precision];
    if (entries == 0 || !(c->bytes_per_ns.value > 0))
        return 0;
    return (double)(m->precision_slot_bytes[c->usual_precision] / entries) / c->bytes_per_ns.value;
}

/* Time per token, and the part of it that was waiting, from compute's counters. */
void cache_note_tokens(struct cache *c, uint32_t ended)
{
    const struct process *process =
        &c->child.procs.head->process[procs_index_of(SERVICE_COMPUTE, 0)];
    struct cache_times now = {.decode_ns = counter_get(process, CTR_COMPUTE_decode_ns),
                              .prefill_ns = counter_get(process, CTR_COMPUTE_prefill_ns),
                              .stall_ns = counter_get(process, CTR_COMPUTE_stall_ns)};
    struct cache_times then = c->times;
    c->times = now;
    note_reads(c);
    if (ended == 0 || now.decode_ns <= then.decode_ns || now.stall_ns < then.stall_ns)
        return; /* a restarted compute counts from 0 */
    double token_ns = (double)(now.decode_ns - then.decode_ns) / ended;
    double stall_ns = (double)(now.stall_ns - then.stall_ns) / ended;
    if (now.prefill_ns == then.prefill_ns && stall_ns < token_ns)
        note(&c->layer_ns, (token_ns - stall_ns) / c->child.model->hparams.layers);
    for (uint32_t i = 0; i < ended; i++)
        prefetch_limit_token(&c->limit, token_ns);
}
