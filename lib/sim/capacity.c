/* SPDX-License-Identifier: Apache-2.0 */
/* Capacity of the simulated cache, and prefetches: the rules of procs/engine/cache. */
#include <string.h>

#include "lib/sim/internal.h"

struct search {
    struct sim_cache *c;
    bool spare_hinted;
    const struct prefetch_state *prefetch; /* that needs the space; NULL: a demand */
};

static bool may_evict(void *arg, uint32_t slot)
{
    const struct search *s = arg;
    const struct sim_slot *n = &s->c->slot[slot];
    struct prefetch_victim victim = {.hinted = n->hints > 0 && prefetch_protects(&s->c->limit),
                                     .prefetched = (n->flags & SIM_PREFETCHED) != 0,
                                     .layer = slot / s->c->config.experts % s->c->config.layers,
                                     .heat = s->prefetch ? sim_heat(s->c, slot) : 0};
    if (s->spare_hinted && victim.hinted)
        return false;
    if (s->prefetch && !prefetch_may_evict(&s->c->limit, s->prefetch, &victim))
        return false;
    return n->state == SIM_READY && !(n->flags & SIM_PINNED);
}

void sim_drop(struct sim_cache *c, uint32_t slot, bool evicted)
{
    residency_remove(c->residency, slot, evicted);
    if (c->slot[slot].flags & SIM_PREFETCHED) {
        c->f->prefetches_unused++;
        prefetch_limit_outcome(&c->limit, false, c->f == &c->stats[SIM_PREFILL]);
        if (c->slot[slot].state == SIM_READY)
            c->f->unused_bytes += sim_bytes(c, slot);
    }
    if (c->slot[slot].state == SIM_LOADING)
        sim_load_cancel(c, slot);
    c->slot[slot].state = SIM_ABSENT;
    c->slot[slot].flags &= (uint8_t)~SIM_PREFETCHED;
}

static bool fits(const struct sim_cache *c, uint32_t slot)
{
    return residency_resident_bytes(c->residency) + sim_bytes(c, slot) <= c->config.capacity;
}

/* Prefetches in flight are cancelled before a demand waits for space; the youngest has the fewest
 * bytes read. */
static bool cancel_one_prefetch(struct sim_cache *c)
{
    for (uint32_t i = c->loads; i > 0; i--)
        if (!c->load[i - 1].demand && !(c->slot[c->load[i - 1].slot].flags & SIM_PINNED)) {
            sim_drop(c, c->load[i - 1].slot, false);
            return true;
        }
    return false;
}

bool sim_make_space(struct sim_cache *c, uint32_t slot)
{
    struct search s = {.c = c, .spare_hinted = true};
    while (!fits(c, slot)) {
        uint32_t victim = residency_victim(c->residency, slot, may_evict, &s);
        if (victim != POLICY_NONE)
            sim_drop(c, victim, true);
        else if (s.spare_hinted)
            s.spare_hinted = false;
        else if (!cancel_one_prefetch(c))
            return false;
    }
    return true;
}

static bool nothing_pinned(void *arg, uint32_t slot)
{
    const struct sim_cache *c = arg;
    return c->slot[slot].state == SIM_READY && !(c->slot[slot].flags & SIM_PINNED);
}

void sim_expire(struct sim_cache *c)
{
    for (uint32_t slot; (slot = residency_expired(c->residency, nothing_pinned, c)) != POLICY_NONE;)
        sim_drop(c, slot, true);
}

/* ---- prefetches ----------------------------------------------------------------------------- */

void sim_forget_hints(struct sim_cache *c, struct sim_sequence *s, uint32_t layer, bool cancel)
{
    struct sim_hints *h = &s->hints[layer];
    for (uint32_t i = 0; i < h->count; i++) {
        struct sim_slot *n = &c->slot[h->slot[i]];
        n->hints--;
        if (cancel && i < h->at && n->hints == 0 && n->state == SIM_LOADING &&
            (n->flags & SIM_PREFETCHED) && !(n->flags & SIM_PINNED))
            sim_drop(c, h->slot[i], false);
    }
    h->count = h->at = 0;
}

static bool prefetch_fits(void *owner, uint32_t slot)
{
    return fits(owner, slot);
}

static bool prefetch_victim(void *owner, uint32_t slot, const struct prefetch_state *state,
                            uint32_t *victim, float *heat)
{
    struct sim_cache *c = owner;
    struct search s = {.c = c, .prefetch = state};
    *victim = residency_victim(c->residency, slot, may_evict, &s);
    *heat = *victim == POLICY_NONE ? 0 : sim_heat(c, *victim);
    return *victim != POLICY_NONE;
}

static void prefetch_evict(void *owner, uint32_t victim)
{
    sim_drop(owner, victim, true);
}

/* Bytes of prefetches for layers that compute has not reached. */
static uint64_t prefetched_bytes(const struct sim_cache *c)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < c->sequences_in_pass; p++)
        for (uint32_t l = 0; l < c->config.layers; l++) {
            const struct sim_hints *h = &c->in_pass[p]->hints[l];
            for (uint32_t i = 0; i < h->at; i++)
                if (c->slot[h->slot[i]].flags & SIM_PREFETCHED)
                    bytes += sim_bytes(c, h->slot[i]);
        }
    return bytes;
}

static struct prefetch_state state_now(const struct sim_cache *c, const struct sim_sequence *s,
                                       uint32_t layer)
{
    const struct sim_hints *h = &s->hints[layer];
    float p = h->prediction[h->at].probability;
    return (struct prefetch_state){
        .demands_open = c->demands_open,
        .prefetches_open = c->prefetches_open,
        .queue_depth = c->config.storage.depth,
        .top_k = c->config.top_k,
        .layer_now = s->layer,
        .layer_predicted = layer,
        .layers = c->config.layers,
        .expert_layers = c->config.expert_layers,
        .probability = prediction_access_probability(c->prediction_method, p, c->config.top_k),
        .prefill = h->prefill,
        .certain = h->certain,
        .prefetched_bytes = h->prefill ? prefetched_bytes(c) : 0,
        .capacity_bytes = c->config.capacity};
}

/* False when no further prefetch is allowed now. */
static bool prefetch_one(struct sim_cache *c, const struct sim_sequence *s, uint32_t layer)
{
    struct sim_hints *h = &s->hints[layer];
    struct prefetch_space space = {
        .owner = c, .fits = prefetch_fits, .victim = prefetch_victim, .evict = prefetch_evict};
    uint32_t slot = h->slot[h->at];
    if (c->slot[slot].state != SIM_ABSENT) {
        h->at++;
        return true;
    }
    struct prefetch_state state = state_now(c, s, layer);
    if (!prefetch_limit_allows(&c->limit, &state))
        return false;
    bool taken = prefetch_make_space(&c->limit, &state, &space, slot);
    if (!taken && prefetch_waits_for_space(&c->limit, &state))
        return false;
    h->at++; /* a prediction that cannot be loaded now is not tried again */
    if (!taken)
        return true;
    residency_insert(c->residency, slot, true);
    c->slot[slot].flags |= SIM_PREFETCHED;
    c->f->prefetches++;
    sim_load_add(c, slot, false);
    prefetch_limit_sent(&c->limit, &state);
    return true;
}

void sim_prefetch(struct sim_cache *c)
{
    if (c->limit.rule == PREFETCH_NONE || c->sequences_in_pass == 0)
        return;
    uint32_t layers = c->config.layers;
    for (uint32_t ahead = 1; ahead < layers; ahead++) /* the nearest layer first */
        for (uint32_t i = 0; i < c->sequences_in_pass; i++) {
            const struct sim_sequence *s = c->in_pass[i];
            uint32_t layer = (s->layer + ahead) % layers;
            const struct sim_hints *h = &s->hints[layer];
            while (h->at < h->count && h->valid_ns <= c->now)
                if (!prefetch_one(c, s, layer))
                    return;
        }
}
