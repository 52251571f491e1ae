/* SPDX-License-Identifier: Apache-2.0 */
/* Loads without a request: the preload, and the expert replacements of SwapMoE.
 *
 * Preload: what earlier runs used most (--warm-start), what the policy parameter preload names, and
 * all for a GPU that computes alone when it has all: a list of entries, loaded in order with the
 * priority of prefetches while the storage device is idle and space is free. It evicts nothing,
 * with one exception: where experts are replaced, stale entries, which another preset left or a
 * layer requested before its set was complete. They would serve forever, possibly at an unwanted
 * precision, and take the spare entry.
 *
 * Replacement (mask=swap): one pair at a time. The candidate is loaded into the spare entry; once
 * it is READY, the victim is evicted. Compute routes to READY experts, so one of the two always
 * serves. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/precision.h"
#include "procs/engine/cache/cache.h"

/* ---- the list -------------------------------------------------------------------------------- */

static uint32_t preload_entry(const struct cache *c, uint32_t layer, uint32_t expert,
                              enum precision precision)
{
    const struct model_index *m = c->child.model;
    uint32_t entry = model_entry_expert_precision(m, layer, expert, precision);
    return entry != ENTRY_NONE ? entry : model_entry_expert(m, layer, expert);
}

static void add(struct cache *c, uint32_t layer, uint32_t expert, enum precision precision)
{
    const struct model_index *m = c->child.model;
    if (!model_layer_has_experts(m, layer))
        return;
    c->fill[c->fill_count++] = preload_entry(c, layer, expert, precision);
}

static enum precision planned_precision(const struct cache *c, size_t expert)
{
    const uint8_t *planned = planned_widths(c->child.plan, &c->knobs).high;
    return planned ? (enum precision)planned[expert] : c->usual_precision;
}

static void add_numbered(struct cache *c, uint32_t expert)
{
    uint32_t experts = c->child.model->hparams.experts;
    add(c, expert / experts, expert % experts, planned_precision(c, expert));
}

static int by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The experts of earlier runs: the first `listed` of the order. Those that fit are loaded layer by
 * layer, as the first prompt needs them, then the others. */
static void add_used(struct cache *c, uint32_t *order, uint32_t listed)
{
    const struct model_index *m = c->child.model;
    uint64_t bytes = 0;
    uint32_t fitting = 0;
    for (; fitting < listed; fitting++) {
        uint32_t entry = model_entry_expert(m, order[fitting] / m->hparams.experts,
                                            order[fitting] % m->hparams.experts);
        bytes += entry == ENTRY_NONE ? 0 : c->entries[entry].payload_bytes;
        if (bytes > c->capacity)
            break;
    }
    qsort(order, fitting, sizeof *order, by_number);
    for (uint32_t i = 0; i < listed; i++)
        add_numbered(c, order[i]);
}

/* The experts that earlier runs used most, then, if `all`, the others, the plan's most frequent
 * ones first. */
static int add_most_frequent(struct cache *c, bool all, struct error *error)
{
    const struct model_hparams *h = &c->child.model->hparams;
    const float *frequency = c->child.plan ? plan_frequency(c->child.plan) : NULL;
    uint32_t count = h->layers * h->experts, listed = 0;
    uint32_t *order = calloc(count, sizeof *order);
    float *weight = calloc(count, sizeof *weight);
    if (!order || !weight) {
        free(order);
        free(weight);
        return error_set(error, ERR_NO_MEMORY, "out of memory (preload)");
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t entry = model_entry_expert(c->child.model, i / h->experts, i % h->experts);
        uint32_t rank = entry == ENTRY_NONE ? 0 : c->child.directory.entries[entry].warm_rank;
        weight[i] = rank > 0 ? (float)(2 + count) - (float)rank : frequency ? frequency[i] : 0;
        listed += rank > 0;
    }
    planned_preload_order(weight, count, order);
    add_used(c, order, listed);
    for (uint32_t i = listed; all && i < count; i++)
        add_numbered(c, order[i]);
    free(order);
    free(weight);
    return 0;
}

static void add_set(struct cache *c, const uint8_t *set, uint32_t layer)
{
    for (uint32_t e = 0; e < c->child.model->hparams.experts; e++)
        if (!set || set[e])
            add(c, layer, e, c->usual_precision);
}

static int add_mask(struct cache *c, struct error *error)
{
    const struct model_hparams *h = &c->child.model->hparams;
    uint8_t *mask = calloc(h->layers, h->experts);
    if (!mask)
        return error_set(error, ERR_NO_MEMORY, "out of memory (preload)");
    int rv = planned_mask(c->child.plan, c->knobs.mask, h, cache_capacity_entries(c), mask, error);
    for (uint32_t l = 0; rv == 0 && l < h->layers; l++)
        add_set(c, mask + (size_t)l * h->experts, l);
    free(mask);
    return rv;
}

static int make_swap(struct cache *c, struct error *error)
{
    const struct model_hparams *h = &c->child.model->hparams;
    const struct plan *plan = c->child.plan;
    uint32_t keep[MODEL_LAYERS_MAX];
    uint8_t *set = calloc(h->layers, h->experts);
    if (!set)
        return error_set(error, ERR_NO_MEMORY, "out of memory (expert replacement)");
    if (planned_swap_sets(plan, h, cache_capacity_entries(c), keep, set, error) != 0) {
        free(set);
        return -1;
    }
    struct swap_config config = {.layers = h->layers,
                                 .experts = h->experts,
                                 .top_k = h->experts_used,
                                 .keep = keep,
                                 .norm = plan ? plan_norm(plan) : NULL,
                                 .interval = (uint32_t)c->knobs.interval,
                                 .margin = (float)c->knobs.margin,
                                 .amortise = c->knobs.amortise,
                                 .count_only = c->knobs.count_only};
    c->swap = swap_create(&config);
    for (uint32_t l = hparams_next_experts(h, 0); c->swap && l < h->layers;
         l = hparams_next_experts(h, l + 1)) {
        swap_set(c->swap, l, set + (size_t)l * h->experts);
        add_set(c, swap_serving(c->swap, l), l);
    }
    free(set);
    return c->swap ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (expert replacement)");
}

/* Rules that choose precisions by routes, or routes by what is resident, do not leave tokens to a
 * GPU (experts_whole_on_device). */
static bool gpu_takes_all(const struct cache *c)
{
    return c->knobs.routing == ROUTING_EXACT && !precision_by_route(c->knobs.precision) &&
           c->child.procs.head->gpus.takes_all >> c->usual_precision & 1;
}

/* Bytes of all experts at the precisions that are preloaded. */
static uint64_t preload_bytes(const struct cache *c)
{
    const struct model_index *m = c->child.model;
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < m->hparams.layers; l++)
        for (uint32_t e = 0; e < m->hparams.experts && model_layer_has_experts(m, l); e++)
            bytes +=
                c->entries[preload_entry(c, l, e,
                                         planned_precision(c, (size_t)l * m->hparams.experts + e))]
                    .payload_bytes;
    return bytes;
}

int cache_choose_fill(struct cache *c, struct error *error)
{
    const struct model_hparams *h = &c->child.model->hparams;
    if (!c->fill)
        c->fill = calloc((size_t)h->layers * h->experts, sizeof *c->fill);
    if (!c->fill)
        return error_set(error, ERR_NO_MEMORY, "out of memory (preload)");
    swap_destroy(c->swap);
    c->swap = NULL;
    c->pair_active = c->sets_broken = false;
    c->fill_count = c->fill_at = 0;
    if (planned_preload_frequent(c->knobs.preload, c->capacity, preload_bytes(c)))
        return add_most_frequent(c, true, error);
    if (c->knobs.mask == MASK_SWAP)
        return make_swap(c, error);
    if (c->knobs.preload != PRELOAD_ALL)
        return c->knobs.mask == MASK_NONE ? add_most_frequent(c, gpu_takes_all(c), error) : 0;
    if (c->knobs.mask != MASK_NONE)
        return add_mask(c, error);
    for (uint32_t l = 0; l < h->layers; l++)
        add_set(c, NULL, l);
    return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* False when there is no free space, or not yet. */
static bool load(struct cache *c, uint32_t entry)
{
    uint64_t offset;
    if (!cache_space_take_free(c, entry, &offset))
        return false;
    cache_reserve(c, entry, offset, LOAD_PREFETCH, 0);
    return true;
}

/* The entry that is loaded for an expert of a set. */
static uint32_t set_entry(const struct cache *c, uint32_t layer, uint32_t expert)
{
    return preload_entry(c, layer, expert, c->usual_precision);
}

static bool is_stale(const struct cache *c, uint32_t entry)
{
    const struct model_entry *e = &c->entries[entry];
    if (entry != set_entry(c, e->layer, e->expert))
        return true;
    bool comes = c->pair_active && e->layer == c->pair.layer && e->expert == c->pair.in;
    return !comes && !swap_serving(c->swap, e->layer)[e->expert];
}

static bool evict_stale(struct cache *c)
{
    const struct model_index *m = c->child.model;
    for (uint32_t i = 0; c->swap && i < m->expert_entry_count; i++) {
        uint32_t entry = m->dense_count + i;
        if (cache_noted(c, entry, NOTE_RESIDENT) && is_stale(c, entry) && cache_evict(c, entry))
            return true;
    }
    return false;
}

bool cache_fill_waits(const struct cache *c)
{
    return c->fill_at < c->fill_count || c->pair_active;
}

static void fill(struct cache *c)
{
    uint32_t depth = (uint32_t)c->child.params->queue_depth;
    while (c->fill_at < c->fill_count && c->prefetches_open < depth) {
        uint32_t entry = c->fill[c->fill_at];
        if (!cache_noted(c, entry, NOTE_LISTED | NOTE_WAITING | NOTE_RESIDENT) && !load(c, entry)) {
            if (cache_fits(c, entry))
                return;
            if (!evict_stale(c))
                c->fill_at = c->fill_count; /* no space is left */
            continue;
        }
        c->fill_at++;
    }
}

static void end_pair(struct cache *c, bool done)
{
    if (done) {
        cache_count(c, CTR_CACHE_expert_swaps, 1);
        swap_done(c->swap);
    } else {
        swap_abandon(c->swap);
    }
    c->pair_active = false;
}

/* Starts the read of the candidate. False: its pages are being allocated elsewhere. */
static bool start_pair(struct cache *c, uint32_t in)
{
    while (!load(c, in)) {
        if (cache_fits(c, in))
            return false;
        if (!evict_stale(c)) { /* no space is left */
            end_pair(c, false);
            break;
        }
    }
    c->pair_started = true;
    return true;
}

/* The candidate is READY: the victim is evicted as soon as it is unpinned. False: it is pinned. */
static bool finish_pair(struct cache *c)
{
    uint32_t out = set_entry(c, c->pair.layer, c->pair.out);
    if (cache_noted(c, out, NOTE_LISTED | NOTE_WAITING) ||
        (cache_noted(c, out, NOTE_RESIDENT) && !cache_evict(c, out)))
        return false;
    end_pair(c, true);
    return true;
}

/* One step of the pair in progress. False: it waits, for its read or for a pin. */
static bool advance_pair(struct cache *c)
{
    uint32_t in = set_entry(c, c->pair.layer, c->pair.in);
    if (cache_noted(c, in, NOTE_RESIDENT))
        return finish_pair(c);
    if (cache_noted(c, in, NOTE_LISTED | NOTE_WAITING))
        return false;
    if (!c->pair_started)
        return start_pair(c, in);
    end_pair(c, false); /* cancelled, or it cannot be read */
    return true;
}

/* The read of the next candidate starts as soon as the victim of the last pair is evicted, in the
 * same turn: the device's bandwidth is the limit. */
static void replace_experts(struct cache *c)
{
    do {
        while (c->pair_active && advance_pair(c))
            continue;
        if (c->pair_active)
            return;
        c->pair_active = swap_next(c->swap, &c->pair);
        c->pair_started = false;
    } while (c->pair_active);
}

/* A demand evicted experts of the sets: they are loaded again. Demands are only made before the
 * sets are complete. */
static void repair_sets(struct cache *c)
{
    c->sets_broken = false;
    c->fill_count = c->fill_at = 0;
    for (uint32_t l = 0; l < c->child.model->hparams.layers; l++)
        add_set(c, swap_serving(c->swap, l), l);
}

void cache_fill(struct cache *c)
{
    if (c->demands_open > 0 || c->waiting.count > 0)
        return;
    if (c->sets_broken && c->fill_at == c->fill_count && !c->pair_active)
        repair_sets(c);
    if (c->fill_at < c->fill_count)
        fill(c);
    else if (c->swap)
        replace_experts(c);
}
