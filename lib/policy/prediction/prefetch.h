/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetch limits: whether a predicted expert may be loaded now. One object per cache; times are
 * arguments.
 *
 *  none          never
 *  idle          the queue has a free entry and the layer is at most four ahead. If a victim is
 *                needed, the access probability p must exceed the victim's access frequency and be
 *                at least min(0.8, 0.2 / n), n being the fraction of the read of an expert that one
 *                layer's compute hides (at most 1). Demands may be pending: the prefetch is queued
 *                after them and read when they leave the storage device idle. In decode it pauses
 *                while its reads are not used (judge.h)
 *  demand-first  decode: no demand is pending, and idle without the conditions on the victim
 *                (HOBBIT)
 *  until-router  one at a time, for the next layer only, until its router has run (EdgeMoE §III-C1)
 *  credit        decode: at most n = T / t_expert loads per layer, T = t_moe + t_attn + t_gate: as
 *                many as one layer's compute hides. What a layer does not use is lost, and with n
 *                below 1 nothing is loaded (Fate §4.3)
 *  all           whenever the queue has a free entry, with or without demands (whole layers are
 *                streamed)
 *  auto          idle, while it reduces the token time (judge.h)
 *
 * Prefill differs: a chunk accesses most experts of a layer, so predictions are nearly always right
 * and all that counts is that the storage device never idles (Fate §4.3, HOBBIT §5.5.2).
 * demand-first and credit queue prefetches after pending demands, up to the queue depth; loaders
 * read them as soon as no demand is in flight. */
#ifndef SLUICE_POLICY_PREDICTION_PREFETCH_H
#define SLUICE_POLICY_PREDICTION_PREFETCH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/model/expert_layers.h"
#include "lib/policy/choice.h"
#include "lib/policy/prediction/judge.h"

#define PREFETCH_CREDIT_MAX 1024u

struct prefetch_state {
    uint32_t demands_open; /* demanded entries not yet READY */
    uint32_t prefetches_open;
    uint32_t queue_depth, top_k;
    uint32_t layer_now; /* running layer of compute */
    uint32_t layer_predicted;
    uint32_t layers;
    struct expert_layers expert_layers; /* which of them have experts */
    float probability;
    bool prefill;        /* the prediction is for a chunk */
    bool certain;        /* a table names the expert (prediction_known) */
    bool needs_eviction; /* no free space: a resident entry must be evicted */
    float victim_heat;   /* heat of that victim, 0 when unknown */
    /* Prefetched and not accessed yet, in flight or resident; what experts may occupy. */
    uint64_t prefetched_bytes, capacity_bytes;
};

/* Heat: decayed access frequency of an entry in accesses per token, a moving average over tokens
 * with this half-life. The owner stores the token of the last access and decays the value before it
 * compares or adds. An access adds PREFETCH_HEAT_GAIN, 1 - 2^(-1 / half-life), so that one access
 * per token is heat 1. */
#define PREFETCH_HEAT_HALF_LIFE 16.0f
#define PREFETCH_HEAT_GAIN      0.0424f

static inline float prefetch_heat(float heat, uint32_t tokens_since)
{
    return heat * exp2f(-(float)tokens_since / PREFETCH_HEAT_HALF_LIFE);
}

#define PREFETCH_LIST(X)                                                                           \
    X(PREFETCH_NONE, "none")                                                                       \
    X(PREFETCH_IDLE, "idle")                                                                       \
    X(PREFETCH_DEMAND_FIRST, "demand-first")                                                       \
    X(PREFETCH_UNTIL_ROUTER, "until-router")                                                       \
    X(PREFETCH_CREDIT, "credit")                                                                   \
    X(PREFETCH_ALL, "all")                                                                         \
    X(PREFETCH_AUTO, "auto")

enum prefetch_rule { PREFETCH_LIST(CHOICE_ID) };

struct prefetch_limit {
    enum prefetch_rule rule;
    uint32_t credit;             /* credit: loads allowed in the running layer */
    float worth;                 /* idle, auto: minimum access probability for an eviction */
    struct prefetch_judge judge; /* idle, auto */
};

/* Starts a limit with this rule, without measured times. */
void prefetch_limit_init(struct prefetch_limit *l, enum prefetch_rule rule);

/* Whether the prediction in *s may be loaded now. It is called before space is searched, with
 * needs_eviction false, and again once the victim is known; it changes nothing. */
bool prefetch_limit_allows(const struct prefetch_limit *l, const struct prefetch_state *s);

/* The most prefetches that may be in flight: the queue depth, and but for whole layers and chunks
 * also not more than the experts of two tokens. */
uint32_t prefetch_open_max(const struct prefetch_limit *l, const struct prefetch_state *s);

/* A prefetch was sent. */
void prefetch_limit_sent(struct prefetch_limit *l, const struct prefetch_state *s);

/* Whether predicted experts are spared by evictions while there is another victim (HOBBIT §3.3).
 * Not under until-router: its lists name nearly the whole layer, and EdgeMoE evicts by frequency
 * and layer distance alone. */
bool prefetch_protects(const struct prefetch_limit *l);

/* ---- space for a prefetch -------------------------------------------------------------------- */

/* A resident entry that might be evicted for it. */
struct prefetch_victim {
    bool hinted;     /* predicted for a layer that compute has not reached */
    bool prefetched; /* loaded for a prediction, not accessed yet */
    uint32_t layer;
    float heat;
};

/* Whether the entry may be evicted for a prefetch. In prefill only if compute has passed its layer:
 * the chunk will access nearly every expert of the layers ahead. */
bool prefetch_may_evict(const struct prefetch_limit *l, const struct prefetch_state *s,
                        const struct prefetch_victim *victim);

/* The owner's side of prefetch_make_space. */
struct prefetch_space {
    void *owner;
    bool (*fits)(void *owner, uint32_t entry);
    /* Entry to evict, by the residency policy among those that prefetch_may_evict allows, and its
     * heat. False: none. */
    bool (*victim)(void *owner, uint32_t entry, const struct prefetch_state *s, uint32_t *victim,
                   float *heat);
    void (*evict)(void *owner, uint32_t victim); /* can fail: the next round finds another */
};

/* Evicts until the entry fits, as far as the limit allows. False when it does not fit. */
bool prefetch_make_space(const struct prefetch_limit *l, struct prefetch_state *s,
                         const struct prefetch_space *space, uint32_t entry);

/* Without space: whether the prediction is tried again when an entry has been freed. In prefill,
 * compute frees experts all the time, and prefetches follow the order of the list. */
bool prefetch_waits_for_space(const struct prefetch_limit *l, const struct prefetch_state *s);

/* Compute entered another layer. layer_ns: time of a layer's own compute in decode, without waiting
 * for experts; expert_ns: time to read one expert. The caller keeps both up to date; 0 means
 * unknown: no credit, and the required probability stays as it is. */
void prefetch_limit_layer(struct prefetch_limit *l, double layer_ns, double expert_ns);

/* A decode token ended; token_ns is the time since the one before, waiting included. */
void prefetch_limit_token(struct prefetch_limit *l, double token_ns);

/* A prefetched expert was accessed (used), or it was evicted or its read cancelled without an
 * access. prefill: it happened while a chunk was computed; such prefetches do not count. */
void prefetch_limit_outcome(struct prefetch_limit *l, bool used, bool prefill);

#endif
