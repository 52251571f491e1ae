/* The residency object's inside. Private to lib/policy/residency*.c.
 *
 * Every slot has a node: where it stands in its group's lists and in the group's array of held
 * slots. lru, fifo and arc walk lists, the others scan the array. Records belong to experts. */
#ifndef SLUICE_POLICY_RESIDENCY_INTERNAL_H
#define SLUICE_POLICY_RESIDENCY_INTERNAL_H

#include "lib/base/assert.h"
#include "lib/policy/residency/residency.h"

#define RESIDENCY_MAGIC     0x44495352u
#define RESIDENCY_SLOW_HALF 128u /* tokens in which rates' slow count halves */
#define RESIDENCY_HALVINGS  64u  /* after so many nothing is left of a count */

#define RESIDENCY_LEARNED_MEANS  4 /* of an expert's logits, with half-lives of their own */
#define RESIDENCY_LEARNED_INPUTS (RESIDENCY_LEARNED_MEANS + 2)

enum residency_rule {
    RULE_LRU,
    RULE_LFU,
    RULE_FIFO,
    RULE_RANDOM,
    RULE_EDGEMOE,
    RULE_EDGEMOE_PRINTED,
    RULE_HOBBIT,
    RULE_ARC,
    RULE_DECAYED,
    RULE_LEARNED,
    RULE_SCORE
};

enum residency_allocation {
    ALLOCATE_SHARED,
    ALLOCATE_TRANSIENT,
    ALLOCATE_PRECISIONS,
    ALLOCATE_EVEN,
    ALLOCATE_FATE,
    ALLOCATE_PLANNED
};

/* arc: held slots are in T1 or T2, ghosts in B1 or B2. The others hold everything in T1. */
enum residency_list { LIST_T1, LIST_T2, LIST_B1, LIST_B2, LIST__COUNT, LIST_NONE = LIST__COUNT };

struct residency_node {
    uint32_t older, newer; /* in its list; POLICY_NONE at the ends */
    uint32_t
        index; /* in resident[], counted from the group's first; POLICY_NONE when not resident */
    uint32_t group;
    uint32_t expert, layer; /* of the slot: scans ask for them too often to divide each time */
    uint32_t accesses;      /* since insertion */
    uint8_t list;           /* enum residency_list */
    uint8_t ghost;          /* arc: a guess took it out of this ghost list, nobody used it yet */
    bool prefetched;        /* inserted by a guess, not used yet */
    bool superseded;        /* held, and so is a better tier of the same expert */
    uint64_t last;          /* tick of insertion or last use */
    uint64_t in_step;       /* number of the step it was used in last */
};

struct residency_group {
    uint32_t oldest[LIST__COUNT], youngest[LIST__COUNT], count[LIST__COUNT];
    uint32_t first, resident; /* its part of resident[] */
    uint64_t bytes, share;
    double target;         /* arc: p */
    uint32_t queried;      /* arc: the slot room is being made for; POLICY_NONE: no such thing */
    double queried_target; /* arc: p as that request makes it */
    uint32_t visited;
};

struct residency_counts { /* rates: of tokens, decaying */
    double fast, slow;
    uint64_t at; /* the clock they are right for */
    double
        probability; /* that they made last, with logits the chance they made: a token's searches ask
                    for the same ones again and again */
    uint64_t probability_at; /* the clock of it */
    bool probability_known;  /* and nothing was counted since */
};

struct residency_decayed_now { /* what all rates of a moment share */
    uint64_t clock;            /* the moment; UINT64_MAX: none yet */
    double prior, fast_whole, slow_whole;
};

struct residency_record {    /* of an expert */
    uint64_t epoch;          /* of the sequence the next three belong to */
    uint64_t last;           /* R */
    uint64_t accesses, high; /* F, H */
    float frequency;         /* as of `halvings` */
    uint64_t halvings;
    struct residency_counts counts;
};

struct residency {
    uint32_t magic;
    struct residency_config config;
    enum residency_rule rule;
    enum residency_allocation allocation;
    uint32_t experts_all; /* layers * experts */
    uint32_t slots, resident_count, groups_count, superseded_count;
    uint64_t resident_bytes, capacity;
    struct residency_node *node;
    struct residency_group *group;
    struct residency_record *record;
    uint32_t *resident;
    double slow_decay[RESIDENCY_SLOW_HALF]; /* rates: what is left after so many tokens */
    double halved[RESIDENCY_HALVINGS];      /* rates: 2 to the -i */
    struct residency_counts max_counts;     /* of an expert that every token used */
    struct residency_decayed_now decayed_now;
    struct residency_learned *learned; /* NULL but for logits */
    uint64_t gap_tokens;               /* that new sequences counted as */
    uint64_t tick, random;
    /* where compute is */
    struct residency_step now;
    bool stepped;
    uint64_t step;        /* number of the running step, from 1 */
    uint64_t epoch;       /* sequences so far */
    uint64_t tokens;      /* of the passes that are complete, all sequences */
    uint64_t pass_tokens; /* of the running one, as far as its uses tell; at least 1 */
    uint64_t reset_at;    /* `tokens` when the records were reset */
    uint32_t visit;
};

/* ---- residency.c ---- */
void residency_list_append(struct residency *r, uint32_t slot, enum residency_list list);
void residency_list_remove(struct residency *r, uint32_t slot);

/* ---- residency_arc.c ---- */
void arc_insert(struct residency *r, uint32_t slot, bool prefetched);
void arc_accessed(struct residency *r, uint32_t slot);
void arc_evicted(struct residency *r, uint32_t slot); /* the slot is in no list any more */
/* The list of the group that REPLACE would take from. Remembers what p becomes by the request: the
 * paper adapts it before the victim becomes a ghost. */
enum residency_list arc_list_to_shrink(struct residency *r, struct residency_group *g,
                                       uint32_t incoming);

/* ---- residency_rates.c ---- */
void residency_decayed_init(struct residency *r);
/* Another sequence begins; the step is still the last one's. */
void residency_decayed_sequence(struct residency *r);
/* `tokens` tokens of the running pass use the expert. */
void residency_decayed_count(const struct residency *r, struct residency_counts *counts,
                             uint32_t tokens);
/* About 0..1: uses per token; with logits the chance they say, where they are known. */
double residency_access_probability(struct residency *r, uint32_t slot);
double residency_slow_frequency(struct residency *r, uint32_t expert); /* by the slow count alone */

/* ---- residency_logits.c ---- */
bool residency_learned_init(struct residency *r); /* false: no memory */
void residency_learned_free(struct residency *r);
/* Another pass begins: what the last one taught takes effect. */
void residency_learned_pass(struct residency *r);
/* Chance that a token uses the expert. False: nothing fresh is known of its layer. */
bool residency_learned_probability(struct residency *r, uint32_t slot, double *probability);

/* ---- residency_victim.c ---- */
double residency_score(struct residency *r, uint32_t slot); /* highest leaves */

static inline uint32_t residency_expert_of(const struct residency *r, uint32_t slot)
{
    return r->node[slot].expert; /* layer * experts + expert */
}

static inline uint32_t residency_layer_of(const struct residency *r, uint32_t slot)
{
    return r->node[slot].layer;
}

/* edgemoe's d: 1 for the layer needed next, layers for the running one. */
static inline uint32_t residency_distance(const struct residency *r, uint32_t layer)
{
    return layer > r->now.layer ? layer - r->now.layer : layer + r->config.layers - r->now.layer;
}

static inline uint64_t residency_tokens_now(const struct residency *r)
{
    return r->tokens + r->pass_tokens;
}

/* Tokens, and those that new sequences counted as. */
static inline uint64_t residency_clock(const struct residency *r)
{
    return residency_tokens_now(r) + r->gap_tokens;
}

#endif
