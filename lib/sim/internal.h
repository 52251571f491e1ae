/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the simulated cache. Private to lib/sim. */
#ifndef SLUICE_SIM_INTERNAL_H
#define SLUICE_SIM_INTERNAL_H

#include "lib/base/assert.h"
#include "lib/policy/sequences.h"
#include "lib/sim/sim.h"
#include "lib/tensor/precision.h"

#define SIM_MAGIC 0x434d4953u

enum sim_state { SIM_ABSENT, SIM_LOADING, SIM_READY };

enum {                     /* flags of a slot */
       SIM_PREFETCHED = 2, /* loaded for a prediction, not accessed yet */
       SIM_PINNED = 4      /* accessed by the running layer, not computed yet */
};

struct sim_slot {
    uint8_t state, flags;
    uint16_t hints; /* predictions of it, in lists of all sequences */
    float heat;
    uint32_t heat_token;
};

struct sim_load {
    uint32_t slot;
    bool demand, issued;
    double ready_ns; /* earliest time of its first byte; valid while issued */
    double bytes_left;
};

struct sim_hints { /* of one sequence and target layer */
    struct prediction_place target;
    bool prefill, certain;
    uint32_t count, at;
    double valid_ns; /* time from which the cache has them */
    struct prediction *prediction;
    uint32_t *slot;
};

struct sim_sequence {         /* one that runs */
    bool in_pass;             /* a pass of it is not complete */
    uint32_t layer;           /* that it is in */
    struct sim_hints *hints;  /* [layers] */
    uint8_t *named;           /* [layers * experts]: predicted in this pass */
    uint8_t *had_predictions; /* [layers], in this pass */
};

enum sim_item_state { SIM_ITEM_UNRESERVED, SIM_ITEM_SENT, SIM_ITEM_READY, SIM_ITEM_DONE };

struct sim_item { /* one expert of the running layer */
    uint32_t slot, tokens;
    enum sim_item_state state;
};

struct sim_cache {
    uint32_t magic;
    struct sim_config config;
    struct precision_policy precision_policy;
    const struct prediction_method *prediction_method;
    struct prefetch_limit limit;
    struct residency *residency;
    uint32_t precisions, index_of[PRECISION__COUNT]; /* precision -> precision_index */
    enum precision precision_of[PRECISION__COUNT];
    uint32_t slots;
    struct sim_slot *slot;
    struct sim_load *load; /* in order of request */
    uint32_t loads, demands_open, prefetches_open;
    struct sequences sequences;
    struct sim_sequence sequence[SEQUENCES_MAX]; /* by place */
    struct sim_step step[SEQUENCES_MAX];         /* of the running layer */
    struct sim_sequence *running[SEQUENCES_MAX]; /* of the steps */
    uint32_t steps, rows;                        /* rows: tokens of all steps */
    struct sim_sequence *in_pass[SEQUENCES_MAX]; /* those with a pass that is not complete */
    uint32_t sequences_in_pass;
    struct sim_item *item;    /* [experts] */
    struct sim_item **taken;  /* [experts]: those that are computed now */
    struct sim_gpu_run *gpus; /* in the order of their layers */
    struct sim_gpu_run *gpu;  /* that has the running layer; NULL: none */
    uint32_t items;
    uint32_t token; /* token count, the clock of heat */
    double now, pass_start, stall;
    struct sim_stats stats[SIM_PHASES], *f;
};

/* storage.c: loads and time */
void sim_load_add(struct sim_cache *c, uint32_t slot, bool demand);
void sim_load_cancel(struct sim_cache *c, uint32_t slot);
void sim_load_promote(struct sim_cache *c, uint32_t slot);
void sim_advance(struct sim_cache *c, double until_ns);
/* The CPU computes what takes so long without reads. Returns the time that it took. */
double sim_work(struct sim_cache *c, double ns);
/* Advances to the next event of the device. False when there is none. */
bool sim_advance_event(struct sim_cache *c);

/* capacity.c: victims, prefetches */
bool sim_make_space(struct sim_cache *c, uint32_t slot);
void sim_prefetch(struct sim_cache *c);
/* Drops the hints of a sequence for a layer; cancel: and their prefetches that are in flight, and
 * in no other list. */
void sim_forget_hints(struct sim_cache *c, struct sim_sequence *s, uint32_t layer, bool cancel);
void sim_drop(struct sim_cache *c, uint32_t slot, bool evicted);
void sim_expire(struct sim_cache *c);

/* sequences.c */
bool sim_sequences_create(struct sim_cache *c); /* false: out of memory */
void sim_sequences_destroy(struct sim_cache *c);
/* A sequence that runs; this starts one that does not. */
struct sim_sequence *sim_sequence_of(struct sim_cache *c, uint32_t sequence);
/* The sequence joins the running pass, or begins one, whose counts are c->f. */
void sim_pass_starts(struct sim_cache *c, struct sim_sequence *s, const struct sim_step *step);

/* gpu.c. _layer: it begins; its time for attention and router, of one token. _mean_layer: of all,
 * with experts. _take: what is computed together now, to `taken`; _compute: the time without
 * computing. */
int sim_gpu_check(const struct sim_config *k, struct error *error);
bool sim_gpu_create(struct sim_cache *c);
void sim_gpu_destroy(struct sim_cache *c);
void sim_gpu_sequence(struct sim_cache *c); /* another one starts */
double sim_gpu_layer(struct sim_cache *c, uint32_t layer);
double sim_gpu_mean_layer(const struct sim_cache *c);
uint32_t sim_gpu_take(struct sim_cache *c);
double sim_gpu_compute(struct sim_cache *c, struct sim_item *const item[], uint32_t items);

/* cache.c: the precision at which an expert is preloaded, or that a plan requests */
struct precision_planned sim_planned_precision(const struct sim_cache *c, uint32_t layer,
                                               uint32_t expert);
/* access.c: the residency is told the place of a step. */
void sim_step_residency(struct sim_cache *c, uint32_t step);
/* access.c: the slot that could serve an access to a layer now; false: none */
bool sim_servable(const struct sim_cache *c, uint32_t layer, uint32_t expert, float weight_before,
                  uint32_t *slot);
/* compute time of the CPU for an expert and one token (cache.c); for several */
double sim_expert_ns(const struct sim_cache *c, uint32_t slot);
double sim_for_tokens(const struct sim_cache *c, double one_ns, uint32_t tokens);

static inline bool sim_in_prefill(const struct sim_cache *c)
{
    return c->f == &c->stats[SIM_PREFILL];
}

static inline uint64_t sim_bytes(const struct sim_cache *c, uint32_t slot)
{
    return residency_slot_bytes(c->residency, slot);
}

static inline uint32_t sim_slot_of(const struct sim_cache *c, uint32_t layer, uint32_t expert,
                                   enum precision precision)
{
    return (c->index_of[precision] * c->config.layers + layer) * c->config.experts + expert;
}

static inline float sim_heat(const struct sim_cache *c, uint32_t slot)
{
    return prefetch_heat(c->slot[slot].heat, c->token - c->slot[slot].heat_token);
}

#endif
