/* The system that runs: its knobs, the residency object made from them, and what its prefetch limit
 * is told about time. Another system begins where the use log says so; what is held stays held. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/tier.h"
#include "procs/engine/cache/cache.h"

/* By what a new sample moves a running middle, and how many of the first do so in long steps. */
#define STEP       0.0625
#define LONG_STEP  0.25
#define LONG_STEPS 16

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory)
        log_fatal(1, "no memory for the cache's own tables");
    return memory;
}

/* ---- capacity -------------------------------------------------------------------------------- */

/* Payload bytes experts may have: residency counts payload, as --experts and traces do. The quota
 * is of slots; what pages round up is taken off in proportion. */
static uint64_t capacity_now(const struct cache *c)
{
    const struct model_index *m = c->child.model;
    uint64_t cap =
        atomic_load_explicit(&c->child.directory.head->experts_payload_max, memory_order_relaxed);
    uint64_t quota = cache_quota(c);
    uint64_t slots = quota > m->dense_bytes ? quota - m->dense_bytes : 0;
    uint64_t room = slots;
    if (m->expert_slot_bytes > 0)
        room = (uint64_t)((double)slots * ((double)m->expert_bytes / (double)m->expert_slot_bytes));
    return room < cap ? room : cap;
}

void cache_follow_capacity(struct cache *c)
{
    uint64_t capacity = capacity_now(c);
    if (capacity == c->capacity)
        return;
    c->capacity = capacity;
    residency_capacity(c->residency, capacity);
}

uint32_t cache_capacity_entries(const struct cache *c)
{
    uint64_t cap =
        atomic_load_explicit(&c->child.directory.head->experts_payload_max, memory_order_relaxed);
    return planned_capacity(c->child.model, cache_quota(c), cap);
}

/* ---- the residency object -------------------------------------------------------------------- */

/* Numbers a plan does not know count as none. */
static void copy_known(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = isnan(from[i]) ? 0 : from[i];
}

/* The plan's arrays, in tables of the cache: a plan may be silent on single experts. */
static void take_plan(struct cache *c, const struct knobs *k, struct residency_config *config)
{
    const struct model_hparams *h = &c->child.model->hparams;
    const struct plan *plan = c->child.plan;
    if (!plan)
        return;
    if (strcmp(k->frequency, "profile") == 0 && plan_frequency(plan)) {
        copy_known(c->frequency, plan_frequency(plan), (size_t)h->layers * h->experts);
        config->frequency = c->frequency;
    }
    const uint32_t *shares =
        strcmp(k->routing, "masked") == 0 ? plan_virtual_experts(plan) : plan_share(plan);
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
    c->said.levels = allocate(m->hparams.experts, sizeof *c->said.levels);
    for (uint32_t s = 0; s < m->expert_entry_count; s++) { /* absent entries have none */
        uint64_t payload = c->entries[m->dense_count + s].payload_bytes;
        c->slot_payload[s] = payload > 0 ? payload : 1;
    }
}

static struct residency *make_residency(struct cache *c, const struct knobs *k,
                                        const struct precision *precision)
{
    const struct model_index *m = c->child.model;
    struct residency_config config = {.layers = m->hparams.layers,
                                      .experts = m->hparams.experts,
                                      .top_k = m->hparams.experts_used,
                                      .tiers = m->tier_count,
                                      .slot_bytes = c->slot_payload};
    knobs_residency(k, precision, m->tier_mask, &config);
    take_plan(c, k, &config);
    c->usual_tier = TIER_NATIVE;
    for (uint32_t t = 0, index = 0; t < TIER__COUNT; t++)
        if ((m->tier_mask & 1u << t) && index++ == config.high_tier)
            c->usual_tier = (enum tier)t;
    return residency_create(&config);
}

/* What is held goes over in the order of its numbers: how it was used is told anew. */
static void hand_over(struct cache *c, struct residency *to)
{
    uint32_t slots = residency_slots(to);
    for (uint32_t s = 0; c->residency && s < slots; s++)
        if (residency_holds(c->residency, s))
            residency_insert(to, s, false);
    residency_destroy(c->residency);
    c->residency = to;
}

int cache_take_system(struct cache *c, uint32_t system, struct error *error)
{
    const struct model_index *m = c->child.model;
    uint64_t bytes[TIER__COUNT];
    struct knobs knobs;
    struct precision precision;
    for (int t = 0; t < TIER__COUNT; t++)
        bytes[t] = m->tier_entries[t] ? m->tier_slot_bytes[t] / m->tier_entries[t] : 0;
    if (child_knobs(&c->child, system, &knobs, error) != 0 ||
        knobs_precision(&knobs, m->tier_mask, bytes, &precision, error) != 0)
        return -1;
    create_tables(c);
    struct residency *residency = make_residency(c, &knobs, &precision);
    if (!residency)
        return error_set(error, ERR_FAILED, "no residency policy '%s' in '%s', or no memory for it",
                         knobs.eviction, knobs.allocation);
    c->system = system;
    c->knobs = knobs;
    hand_over(c, residency);
    c->capacity = 0;
    cache_follow_capacity(c);
    bool known = prefetch_limit_init(&c->limit, knobs.limit);
    sl_assert(known); /* knobs are checked */
    return cache_plan_fill(c, error);
}

void cache_follow_system(struct cache *c, uint32_t system)
{
    struct error error;
    if (system == c->system)
        return;
    /* What cannot run here compute has refused already. */
    if (system >= system_count() || cache_take_system(c, system, &error) != 0)
        log_warn("system %u: %s", system, system >= system_count() ? "unknown" : error.text);
    else
        log_info("system %s", system_at(system)->name);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Half of the samples lie above it. No mean: who was stopped for a while, or asleep, has a sample a
 * thousand times the others. */
static void note(struct cache_middle *of, double sample)
{
    double step = of->samples < LONG_STEPS ? LONG_STEP : STEP;
    if (of->samples == 0)
        of->value = sample;
    else
        of->value *= sample > of->value ? 1 + step : 1 / (1 + step);
    of->samples += of->samples < LONG_STEPS;
}

/* From the loaders' own counters: what a read takes by itself, and not behind others. */
static void note_reads(struct cache *c)
{
    double rate = 0;
    for (uint32_t i = 0; i < c->loader_count; i++) {
        const struct proc_row *row = &c->child.procs.head->row[procs_row_of(SERVICE_LOADER, i)];
        struct cache_reads now = {.bytes = counter_get(row, CTR_LOADER_bytes_read),
                                  .busy_ns = counter_get(row, CTR_LOADER_busy_ns)};
        struct cache_reads then = c->reads[i];
        c->reads[i] = now;
        if (now.bytes > then.bytes && now.busy_ns > then.busy_ns) /* else: nothing, or a new one */
            rate += (double)(now.bytes - then.bytes) / (double)(now.busy_ns - then.busy_ns);
    }
    if (rate > 0)
        note(&c->bytes_per_ns, rate);
}

double cache_expert_ns(const struct cache *c)
{
    const struct model_index *m = c->child.model;
    uint32_t entries = m->tier_entries[c->usual_tier];
    if (entries == 0 || !(c->bytes_per_ns.value > 0))
        return 0;
    return (double)(m->tier_slot_bytes[c->usual_tier] / entries) / c->bytes_per_ns.value;
}

/* Compute's own counters tell how long tokens took, and how much of it was waiting. */
void cache_note_tokens(struct cache *c, uint32_t ended)
{
    const struct proc_row *row = &c->child.procs.head->row[procs_row_of(SERVICE_COMPUTE, 0)];
    struct cache_times now = {.decode_ns = counter_get(row, CTR_COMPUTE_decode_ns),
                              .prefill_ns = counter_get(row, CTR_COMPUTE_prefill_ns),
                              .stall_ns = counter_get(row, CTR_COMPUTE_stall_ns)};
    struct cache_times then = c->times;
    c->times = now;
    note_reads(c);
    if (ended == 0 || now.decode_ns <= then.decode_ns || now.stall_ns < then.stall_ns)
        return; /* a new compute counts from nothing */
    double token_ns = (double)(now.decode_ns - then.decode_ns) / ended;
    double stall_ns = (double)(now.stall_ns - then.stall_ns) / ended;
    if (now.prefill_ns == then.prefill_ns && stall_ns < token_ns)
        note(&c->layer_ns, (token_ns - stall_ns) / c->child.model->hparams.layers);
    for (uint32_t i = 0; i < ended; i++)
        prefetch_limit_token(&c->limit, token_ns);
}
