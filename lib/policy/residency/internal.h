/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the residency object. Private to lib/policy/residency.
 *
 * Every slot has a node: its position in the lists of its group and in the group's array of
 * resident slots. Some evictions walk lists, the others scan the array. Records belong to experts.
 *
 * An eviction is a struct residency_rule, in a file of its own if it has more than a few lines. */
#ifndef SLUICE_POLICY_RESIDENCY_INTERNAL_H
#define SLUICE_POLICY_RESIDENCY_INTERNAL_H

#include "lib/base/assert.h"
#include "lib/policy/residency/residency.h"
#include "lib/policy/sequences.h"

#define RESIDENCY_MAGIC     0x44495352u
#define RESIDENCY_SLOW_HALF 128u /* tokens in which the slow count halves */
#define RESIDENCY_HALVINGS  64u  /* after so many halvings a count is 0 */

#define RESIDENCY_LEARNED_MEANS   4 /* running means of an expert's logits */
#define RESIDENCY_LEARNED_INPUTS  (RESIDENCY_LEARNED_MEANS + 2)
#define RESIDENCY_COUNTED_INPUTS  (RESIDENCY_COUNTS + 2)
#define RESIDENCY_LOGISTIC_INPUTS RESIDENCY_LEARNED_INPUTS /* the most of a model */

/* The half-lives of an expert's counts, in tokens. */
enum residency_count { COUNT_FAST, COUNT_MIDDLE, COUNT_SLOW, RESIDENCY_COUNTS };

/* Resident slots are in T1 or T2, ghosts in B1 or B2. Evictions without lists of their own hold
 * everything in T1. */
enum residency_list { LIST_T1, LIST_T2, LIST_B1, LIST_B2, LIST__COUNT, LIST_NONE = LIST__COUNT };

struct residency_node {
    uint32_t older, newer; /* neighbours in its list; POLICY_NONE at the ends */
    uint32_t index; /* in resident[], from the group's first; POLICY_NONE when not resident */
    uint32_t group;
    uint32_t expert, layer; /* of the slot; stored because scans read them often */
    uint32_t accesses;      /* since insertion */
    uint8_t list;           /* enum residency_list */
    uint8_t ghost;          /* arc: a prefetch removed it from this ghost list; no access since */
    bool prefetched;        /* inserted for a prediction, not accessed yet */
    bool superseded;        /* resident, and so is a higher precision of the same expert */
    uint64_t last;          /* tick of insertion or last access */
    uint64_t in_step;       /* number of the step of its last access */
};

struct residency_group {
    uint32_t oldest[LIST__COUNT], youngest[LIST__COUNT], count[LIST__COUNT];
    uint32_t first, resident; /* its part of resident[] */
    uint64_t bytes, share;
    double target;         /* arc: p */
    uint32_t queried;      /* arc: the slot that needs the space; POLICY_NONE: none */
    double queried_target; /* arc: p after that request */
    uint32_t visited;
};

struct residency_counts { /* decayed counts of tokens */
    double of[RESIDENCY_COUNTS];
    uint64_t at;             /* clock value they are valid for */
    double probability;      /* last access probability; cached, because searches within a
                    token read it repeatedly */
    uint64_t probability_at; /* the version of decayed_now that it is for */
    bool probability_known;  /* and no access since */
};

struct residency_decayed_now { /* common factors of all decayed frequencies at one clock value */
    uint64_t clock;            /* UINT64_MAX: none yet */
    uint64_t version;
    double prior, whole[RESIDENCY_COUNTS];
};

/* A logistic model whose weights are learned online: every token labels every expert as accessed or
 * not. One Newton step per round, on the decayed sums of all tokens so far: there is no learning
 * rate to choose, and the same calls give the same weights. */
struct residency_logistic {
    int inputs; /* the last one is 1 */
    double weight[RESIDENCY_LOGISTIC_INPUTS];
    /* lower triangle; since the last step */
    double curvature[RESIDENCY_LOGISTIC_INPUTS][RESIDENCY_LOGISTIC_INPUTS];
    double gradient[RESIDENCY_LOGISTIC_INPUTS];
};

struct residency_record {    /* of an expert */
    uint64_t epoch;          /* sequence of the next three */
    uint64_t last;           /* R */
    uint64_t accesses, high; /* F, H */
    float frequency;         /* as of `halvings` */
    uint64_t halvings;
    struct residency_counts counts;
};

struct residency_rank { /* the order of a slot */
    double score;
    uint64_t last;
    uint32_t distance, slot;
    uint32_t phase; /* of residency_victim's search */
};

struct residency_sequence { /* one that runs */
    bool stepped;           /* it has a position */
    uint32_t position;
    uint64_t pass_tokens; /* of its running pass, as far as its accesses show; at least 1 */
    uint64_t in_step;     /* number of the last step that it took part in */
    uint64_t in_round;    /* of the last round */
};

struct residency_search { /* for a victim */
    struct residency *r;
    uint32_t incoming;
    bool running; /* search entries of the running step, instead of all others */
    bool (*may)(void *arg, uint32_t slot);
    void *arg;
};

/* An eviction. Its resident slots have an order, which is that of a score, or that in which
 * `victim` searches lists. Members that are NULL have the stated default. */
struct residency_rule {
    /* The highest score is evicted, ties: least recently used. NULL: the ties alone. */
    double (*score)(struct residency *r, uint32_t slot);
    bool far_first; /* ties of scores: first the larger residency_distance */
    /* The first slot of a group in the rule's order for which residency_candidate is true. It
     * removes nothing, because the caller may take another one; it may keep state of its own
     * (random, ARC). NULL: by score. */
    uint32_t (*victim)(const struct residency_search *s, struct residency_group *g);
    /* A slot becomes resident: puts it in a list. NULL: LIST_T1. */
    void (*insert)(struct residency *r, uint32_t slot, bool prefetched);
    /* An access to a resident slot. NULL: it becomes the youngest of LIST_T1. */
    void (*accessed)(struct residency *r, uint32_t slot);
    /* A slot that was accessed is evicted: puts it in the list of a ghost, or in none. NULL: in
     * none. */
    void (*evicted)(struct residency *r, uint32_t slot);
};

/* EVICTION_RULE(ID) = {...}; defines the rule of a row of EVICTION_LIST. */
#define EVICTION_RULE(id) const struct residency_rule residency_rule_##id
#define DECLARE(id, name) extern EVICTION_RULE(id);
EVICTION_LIST(DECLARE)
extern EVICTION_RULE(EVICTION_SCORE);
#undef DECLARE

struct residency {
    uint32_t magic;
    struct residency_config config;
    const struct residency_rule *rule;
    enum allocation allocation;
    uint32_t experts_all; /* layers * experts */
    uint32_t slots, resident_count, groups_count, superseded_count;
    uint64_t resident_bytes, capacity;
    struct residency_node *node;
    struct residency_group *group;
    struct residency_record *record;
    uint32_t *resident;
    struct residency_rank *rank; /* residency_walk */
    /* remaining part of each count after i tokens, less than its half-life */
    double decay[RESIDENCY_COUNTS][RESIDENCY_SLOW_HALF];
    double halved[RESIDENCY_HALVINGS];   /* 2 to the -i */
    struct residency_counts max_counts;  /* of an expert that a token of every round accesses */
    struct residency_counts more_counts; /* the further tokens of rounds */
    struct residency_decayed_now decayed_now;
    struct residency_learned *learned; /* NULL except for eviction "learned" */
    struct residency_counted *counted; /* the same */
    uint64_t gap_tokens;               /* by which new sequences aged the counts */
    uint64_t tick, random;
    /* position of compute */
    struct sequences sequences;
    struct residency_sequence sequence[SEQUENCES_MAX]; /* by place */
    struct residency_sequence *running;                /* of the step `now` */
    struct residency_step now;
    bool stepped, round_over;
    uint64_t step;         /* number of the running step, from 1 */
    uint64_t round;        /* number of the running round, from 1 */
    uint64_t epoch;        /* sequences so far */
    uint64_t tokens;       /* of completed rounds */
    uint64_t round_tokens; /* of the running round: of its longest pass */
    uint64_t reset_at;     /* tokens at the last reset of the records */
    uint32_t visit;
};

/* ---- residency.c ---- */
void residency_list_append(struct residency *r, uint32_t slot, enum residency_list list);
void residency_list_remove(struct residency *r, uint32_t slot);
/* Experts at high_precision that the share of a group holds, at least 1. */
uint32_t residency_group_entries(const struct residency *r, const struct residency_group *g);

/* ---- decayed_frequency.c ---- */
void residency_decayed_init(struct residency *r);
/* A sequence starts; called before its first step. */
void residency_decayed_sequence(struct residency *r);
/* `tokens` tokens were added to the running round, which did not become longer. */
void residency_decayed_more(struct residency *r, uint64_t tokens);
/* `tokens` tokens of the running sequence's pass access the expert. */
void residency_decayed_count(const struct residency *r, struct residency_counts *counts,
                             uint32_t tokens);
/* Accesses of the slot's expert per token, about 0 to 1; with `learned` the probability of the
 * model, where it is known. */
double residency_access_probability(struct residency *r, uint32_t slot);
/* The same by decayed-frequency, of an expert; and by one of the counts only. */
double residency_decayed_probability(struct residency *r, uint32_t expert);
double residency_frequency_by(struct residency *r, uint32_t expert, enum residency_count count);

/* ---- learned.c ---- */
bool residency_learned_init(struct residency *r); /* false: out of memory */
void residency_learned_free(struct residency *r);
/* Another round begins: applies what the one before contributed to the weights. */
void residency_learned_pass(struct residency *r);
/* The step of a sequence's place: its logits that were passed before it are learned now. */
void residency_learned_step(struct residency *r, uint32_t place);
/* Whether logits of the layer were learned in this round. */
bool residency_learned_now(const struct residency *r, uint32_t layer);
/* Probability that a token accesses the expert. False: the layer has no recent logits. */
bool residency_learned_probability(struct residency *r, uint32_t slot, double *probability);

/* ---- counted.c ---- */
bool residency_counted_init(struct residency *r); /* false: out of memory */
void residency_counted_free(struct residency *r);
void residency_counted_pass(struct residency *r);
/* A step begins, with its position in r->now; those logits of it that came were learned. */
void residency_counted_begins(struct residency *r);
/* The running step is over: its accesses are known. Called before r->step grows. */
void residency_counted_ends(struct residency *r);
/* An access shows that the running step is of a prompt. */
void residency_counted_prompt(struct residency *r);
/* False: no token came without logits yet. */
bool residency_counted_probability(struct residency *r, uint32_t slot, double *probability);

/* ---- logistic.c ---- */
void residency_logistic_init(struct residency_logistic *m, int inputs, const double *weights);
double residency_logistic_probability(const struct residency_logistic *m, const double *in);
/* The inputs of an expert from before a token, and whether this one accesses it. trace: [inputs],
 * the decayed inputs of earlier tokens; 0 at first. */
void residency_logistic_observe(struct residency_logistic *m, const double *in, float *trace,
                                bool used);
/* Applies what was observed to the weights. Returns whether there was anything. */
bool residency_logistic_step(struct residency_logistic *m);
double residency_log_odds(double p); /* of p within 1e-4 to 1 - 1e-4 */

/* ---- victim.c ---- */
/* Whether this slot is a victim of the search, now and for its caller. */
bool residency_candidate(const struct residency_search *s, uint32_t slot);
/* The oldest victim in a list; POLICY_NONE: there is none. */
uint32_t residency_oldest(const struct residency_search *s, const struct residency_group *g,
                          enum residency_list list);
double residency_score(struct residency *r, uint32_t slot); /* the highest is evicted */
/* Groups one after the other, without those that a higher precision supersedes. */
uint32_t residency_in_all_groups(const struct residency_search *s);

static inline uint32_t residency_expert_of(const struct residency *r, uint32_t slot)
{
    return r->node[slot].expert; /* layer * experts + expert */
}

static inline uint32_t residency_layer_of(const struct residency *r, uint32_t slot)
{
    return r->node[slot].layer;
}

/* edgemoe's d: 1 for the next layer, `layers` for the running one. */
static inline uint32_t residency_distance(const struct residency *r, uint32_t layer)
{
    return layer > r->now.layer ? layer - r->now.layer : layer + r->config.layers - r->now.layer;
}

static inline uint64_t residency_tokens_now(const struct residency *r)
{
    return r->tokens + r->round_tokens;
}

/* The tokens so far, plus those that starts of sequences count as. */
static inline uint64_t residency_clock(const struct residency *r)
{
    return residency_tokens_now(r) + r->gap_tokens;
}

#endif
