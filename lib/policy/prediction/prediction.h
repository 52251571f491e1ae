/* Predictions: which experts a coming layer will use, as guesses in descending probability.
 *
 *  none        no guesses
 *  next-layer  the `want` largest logits of the target layer's router on an earlier layer's gate
 *              input; probability is the softmax over all experts (HOBBIT §3.3), a share of 1 that
 *              top_k experts have between them: prediction_access_probability makes the chance of a use of it.
 *              For p layers ahead the caller asks once per layer, nearest first, and goes on to the
 *              next only when all guesses of the one before are resident.
 *  fate        from the same logits: every expert whose softmax weight is above the 75th percentile
 *              of the layer's weights (linear interpolation between ranks), at least top_k of them
 *              (Fate §4.2). `want` only bounds it.
 *  path1       eap: sum over the experts b chosen in the layer before of count(b -> c)
 *  path2       edgemoe: sum over pairs (a chosen two layers before, b chosen in the layer before)
 * of count(a, b -> c); where no pair was ever seen path1, where that knows nothing either frequency
 *  frequency   the most used experts of the layer
 *  layer       every expert of the layer, ascending (whole layers streamed)
 *
 * The probability of the counted kinds is a chance: min(1, top_k * score / sum of the layer's
 * scores). Ties go to the lower index. Everything is pure. */
#ifndef SLUICE_POLICY_PREDICTION_PREDICTION_H
#define SLUICE_POLICY_PREDICTION_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>

#define PREDICTIONS "none|next-layer|fate|path1|path2|frequency|layer"

struct prediction {
    uint32_t expert;
    float probability;
};

/* Counts of a profile. Any pointer may be NULL: that table is not there. */
struct path_cell {
    uint16_t expert, count;
};

struct path_tables {
    uint32_t layers, experts;
    /* [layers][experts][experts]: prev1[(l*E + b)*E + c] = tokens that chose b in layer l-1 and c
     * in layer l; row 0 unused. */
    const uint16_t *prev1;
    /* Pairs, sparse: the cells of (l, a, b) are pair_cells[pair_first[n] .. pair_first[n + 1]) with
     * n = (l*E + a)*E + b; a chosen in layer l-2, b in l-1; l = 0 and 1 are empty. pair_first has
     * layers*experts*experts + 1 numbers. */
    const uint32_t *pair_first;
    const struct path_cell *pair_cells;
    const float *frequency; /* [layers * experts], uses per token */
};

/* What a prediction looks at. */
enum prediction_source {
    PREDICT_NOTHING, /* none */
    PREDICT_LOGITS,  /* logits of the target layer's router */
    PREDICT_CHOSEN,  /* experts chosen in the one or two layers before, and tables */
    PREDICT_TABLES,  /* tables alone */
    PREDICT_LAYER    /* nothing but the layer's number */
};

struct prediction_input {
    uint32_t layer; /* the target */
    uint32_t experts, top_k;
    uint32_t want;           /* guesses asked for; `out` has room for as many */
    const float *logits;     /* [experts] */
    const uint16_t *chosen1; /* in layer - 1 (of this token) */
    uint32_t chosen1_count;
    const uint16_t *chosen2; /* in layer - 2 */
    uint32_t chosen2_count;
    const struct path_tables *tables;
    float *scratch; /* [experts]; not looked at before */
};

struct prediction_method {
    const char *name;
    enum prediction_source source;
    bool lists; /* it decides itself how many it names; `want` should be `experts` */
    uint32_t (*predict)(const struct prediction_input *in, struct prediction *out);
};

const struct prediction_method *prediction_method_named(const char *name); /* NULL when unknown */

/* Guesses written to out (at most in->want), descending probability. What the source lacks (logits
 * NULL, no tables) gives no guesses. */
static inline uint32_t prediction_run(const struct prediction_method *p,
                                      const struct prediction_input *in, struct prediction *out)
{
    return p->predict(in, out);
}

/* The chance that what was guessed will be used, 0 to 1. The router's softmax is shared by all
 * experts, and top_k of them are used: top_k times the share, at most 1. That is still careful:
 * guesses of the next layer with 0.2 to 0.3 of it came true in 49 to 58 of 100 cases, with 0.5 in
 * 82 to 94 (demo model, and made-up weights of OLMoE's shape). Counts are chances as they are;
 * those of a chunk's tokens are above 1. */
static inline float prediction_access_probability(const struct prediction_method *p,
                                                  float probability, uint32_t top_k)
{
    float scaled = p->source == PREDICT_LOGITS ? probability * (float)top_k : probability;
    return scaled < 1 ? scaled : 1;
}

#endif
