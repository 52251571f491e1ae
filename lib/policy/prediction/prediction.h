/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions: which experts a later layer will access, in descending probability.
 *
 *  none        no predictions
 *  next-layer  the `want` experts that the rule of the target layer's router (lib/model/router.h:
 *              gating, bias, groups) puts first, for the logits of an earlier layer's gate input.
 *              The probability is a share of 1 that all experts have together (router.c; without a
 *              bias and groups the softmax of the logits, HOBBIT §3.3; 1 / top_k where a table
 *              names the experts, which are certain, and no others are in the list);
 *              prediction_access_probability converts it to an access probability. For p layers
 *              ahead the caller calls once per layer, nearest first, and continues only while all
 *              experts predicted for the last one are resident.
 *  fate        from the same logits: every expert whose share is above the 75th percentile
 *              of the layer's shares (linear interpolation between ranks), at least top_k of them
 *              (Fate §4.2). `want` is an upper bound only.
 *  path1       eap: sum of count(b -> c) over the experts b chosen in the previous layer
 *  path2       edgemoe: sum of count(a, b -> c) over pairs (a chosen two layers before, b chosen in
 *              the previous layer); without data path1; without data there, frequency
 *  frequency   the experts of the layer with the highest access frequency
 *  layer       every expert of the layer, ascending (whole layers are streamed)
 *
 *  activation  moe-infinity: the experts that the layer accessed in an earlier sequence similar to
 *              this one, by frequency (activation.h)
 *
 * The counting methods return access probabilities: min(1, top_k * score / sum of the layer's
 * scores). Ties go to the lower index. All functions are pure,
 * except that activation remembers its match. */
#ifndef SLUICE_POLICY_PREDICTION_PREDICTION_H
#define SLUICE_POLICY_PREDICTION_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/router.h"
#include "lib/policy/choice.h"

#define PREDICTION_LIST(X)                                                                         \
    X(PREDICTION_NONE, "none")                                                                     \
    X(PREDICTION_NEXT_LAYER, "next-layer")                                                         \
    X(PREDICTION_FATE, "fate")                                                                     \
    X(PREDICTION_PATH1, "path1")                                                                   \
    X(PREDICTION_PATH2, "path2")                                                                   \
    X(PREDICTION_FREQUENCY, "frequency")                                                           \
    X(PREDICTION_LAYER, "layer")                                                                   \
    X(PREDICTION_ACTIVATION, "activation")

enum prediction_kind { PREDICTION_LIST(CHOICE_ID) };

/* Predictions for a chunk of a prompt: `popularity` names the experts that its tokens will probably
 * access (Fate §4.3), `layer` these and then all others of the layer (HOBBIT §5.5.2: a prompt
 * accesses nearly all of them), unless the chunk has fewer accesses than the layer has experts. */
#define PREFILL_PREDICTION_LIST(X)                                                                 \
    X(PREFILL_PREDICTION_POPULARITY, "popularity")                                                 \
    X(PREFILL_PREDICTION_LAYER, "layer")

enum prefill_prediction { PREFILL_PREDICTION_LIST(CHOICE_ID) };

#define PREDICTIONS_MAX             256u /* of one list: what a HINT carries */
#define PREDICTION_SCRATCH(experts) (3 * (size_t)(experts))

struct prediction {
    uint32_t expert;
    float probability; /* for a chunk: its predicted tokens */
    /* s of precision.h, as if the predictions were right: the sum of the weights ranked before the
     * expert, for a chunk the minimum over its tokens */
    float weight_before;
};

/* Counts of a profile. Any pointer may be NULL: that table is absent. */
struct path_cell {
    uint16_t expert, count;
};

struct path_tables {
    uint32_t layers, experts;
    /* [layers][experts][experts]: prev1[(l*E + b)*E + c] = tokens that chose b in the layer with
     * experts before l and c in layer l; row 0 unused. */
    const uint16_t *prev1;
    /* Pairs, sparse: the cells of (l, a, b) are pair_cells[pair_first[n] .. pair_first[n + 1]) with
     * n = (l*E + a)*E + b; b chosen in the layer with experts before l, a in the one before that.
     * pair_first has layers*experts*experts + 1 numbers. */
    const uint32_t *pair_first;
    const struct path_cell *pair_cells;
    const float *frequency; /* [layers * experts], accesses per token */
};

/* Input of a prediction. */
enum prediction_source {
    PREDICT_NOTHING,   /* none */
    PREDICT_LOGITS,    /* logits of the target layer's router */
    PREDICT_CHOSEN,    /* experts chosen in the one or two layers before, and tables */
    PREDICT_TABLES,    /* tables only */
    PREDICT_LAYER,     /* the layer number only */
    PREDICT_ACTIVATION /* the accesses of this and earlier sequences */
};

struct activation;

struct prediction_input {
    uint32_t layer;                /* the target */
    uint32_t now;                  /* activation: the running layer */
    uint32_t sequence, position;   /* activation: of the token */
    struct activation *activation; /* activation: whose accesses so far are counted */
    uint32_t experts, top_k;
    uint32_t want;       /* predictions requested; capacity of `out` */
    const float *logits; /* [experts] */
    /* The target's; NULL: softmax, without a bias and groups. */
    const struct model_router *router;
    const uint16_t *chosen1; /* in the layer with experts before (of this token) */
    uint32_t chosen1_count;
    const uint16_t *chosen2; /* in the one before that */
    uint32_t chosen2_count;
    const struct path_tables *tables;
    float *scratch; /* PREDICTION_SCRATCH(experts) floats; previous contents are not read */
};

struct prediction_method {
    enum prediction_source source;
    bool lists; /* the method decides how many it names; `want` should be `experts` */
    uint32_t (*predict)(const struct prediction_input *in, struct prediction *out);
};

/* The method of a kind; it is static. */
const struct prediction_method *prediction_method_of(enum prediction_kind kind);

/* Predictions requested per layer: predict_k, or by default top_k, and every expert when the method
 * decides how many it names. */
uint32_t prediction_want(const struct prediction_method *p, uint64_t predict_k, uint32_t top_k,
                         uint32_t experts);

/* Layers ahead that the method may predict: `lookahead` from routers and activations, else 1. */
uint32_t prediction_layers(const struct prediction_method *p, uint64_t lookahead);

/* Makes predictions in decode: writes at most in->want of them to out, in descending probability,
 * and returns their number. It is 0 when the source of the method is missing (logits NULL, no
 * tables). */
uint32_t prediction_run(const struct prediction_method *p, const struct prediction_input *in,
                        struct prediction *out);

/* Sets weight_before of a list of decode from its probabilities. Not needed after prediction_run,
 * which has done so, or has set it from the gate weights of the predicted choice where these are
 * not proportional to the probabilities. */
void prediction_weights_before(struct prediction *list, uint32_t count, uint32_t top_k);

/* Whether the method makes predictions for a chunk of a prompt. Methods that read routers do, and
 * `layer`. Those of EdgeMoE and of expert paths predict from the experts of one token, in decode
 * only. */
bool prediction_for_chunks(const struct prediction_method *p);

struct prediction_chunk {
    const float *tokens;        /* [experts]: predicted accesses, from the next layer's router */
    const float *weight_before; /* [experts]: see struct prediction; read where tokens > 0 */
    uint32_t experts;
    bool whole; /* prefill_prediction=layer */
};

/* Makes predictions for a chunk: writes at most PREDICTIONS_MAX of them to out and returns their
 * number. Those with the most tokens come first, ties in order of the index; with `layer` all are
 * in order of the index. */
uint32_t prediction_chunk_run(const struct prediction_method *p, const struct prediction_chunk *in,
                              struct prediction *out);

/* Experts that a table names for the rows of a sequence in a pass, known before the pass: tokens
 * [experts], how many rows use each. Those with the most come first, ties in order of the index. At
 * most PREDICTIONS_MAX; returns their number. Their probability is at least 1; weights are not
 * known, so that each may be the first of its token. */
uint32_t prediction_known(const uint32_t *tokens, uint32_t experts, struct prediction *out);

/* ---- lists of predictions --------------------------------------------------------------------
 * A list belongs to a sequence and a target layer. Contract for several sequences: the lists of a
 * sequence end when it passes their layer, when a newer list replaces them, or when it ends. What
 * other sequences access, predict or pass does not touch them. An expert in lists of several
 * sequences is protected, and its read continues, until the last of them has ended. */

/* A token position (first of its chunk) and a layer: of compute, or the target of a list. */
struct prediction_place {
    uint32_t sequence, position, layer;
};

/* Compute has reached the target: its router has run, so the list serves no longer. Prefetches of
 * it that are in flight and not accessed are cancelled. False for places of different sequences:
 * where one is says nothing about another. */
bool prediction_passed(const struct prediction_place *now, const struct prediction_place *target);

/* A list replaces an older one for its layer. True when the loads of the older one in flight
 * continue: it is for the same token, made from a more distant layer, and the newer one contains
 * most of it. */
bool prediction_keeps_loads(const struct prediction_place *older,
                            const struct prediction_place *newer);

/* Probability that a predicted expert is accessed, 0 to 1. The router's softmax is shared by all
 * experts, and top_k of them are accessed: p = min(1, top_k * softmax). This is conservative:
 * predictions of the next layer with p of 0.2 to 0.3 are correct in 49 to 58 % of cases, with p of
 * 0.5 in 82 to 94 % (demo model, and synthetic weights of OLMoE's shape). Counting methods return
 * probabilities already; those for the tokens of a chunk may exceed 1. */
static inline float prediction_access_probability(const struct prediction_method *p,
                                                  float probability, uint32_t top_k)
{
    float scaled = p->source == PREDICT_LOGITS ? probability * (float)top_k : probability;
    return scaled < 1 ? scaled : 1;
}

#endif
