/* Predictions: which experts a later layer will access, in descending probability.
 *
 *  none        no predictions
 *  next-layer  the `want` largest logits of the target layer's router on an earlier layer's gate
 *              input. The probability is the softmax over all experts (HOBBIT §3.3), a share of 1
 *              that all experts have together; prediction_access_probability converts it to an
 *              access probability. For p layers ahead the caller calls once per layer, nearest
 *              first, and continues only while all experts predicted for the last one are resident.
 *  fate        from the same logits: every expert whose softmax weight is above the 75th percentile
 *              of the layer's weights (linear interpolation between ranks), at least top_k of them
 *              (Fate §4.2). `want` is an upper bound only.
 *  path1       eap: sum of count(b -> c) over the experts b chosen in the previous layer
 *  path2       edgemoe: sum of count(a, b -> c) over pairs (a chosen two layers before, b chosen in
 *              the previous layer); without data path1; without data there, frequency
 *  frequency   the experts of the layer with the highest access frequency
 *  layer       every expert of the layer, ascending (whole layers are streamed)
 *
 * The counting methods return access probabilities: min(1, top_k * score / sum of the layer's
 * scores). Ties go to the lower index. All functions are pure. */
#ifndef SLUICE_POLICY_PREDICTION_PREDICTION_H
#define SLUICE_POLICY_PREDICTION_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>

#define PREDICTIONS "none|next-layer|fate|path1|path2|frequency|layer"

struct prediction {
    uint32_t expert;
    float probability;
};

/* Counts of a profile. Any pointer may be NULL: that table is absent. */
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
    const float *frequency; /* [layers * experts], accesses per token */
};

/* Input of a prediction. */
enum prediction_source {
    PREDICT_NOTHING, /* none */
    PREDICT_LOGITS,  /* logits of the target layer's router */
    PREDICT_CHOSEN,  /* experts chosen in the one or two layers before, and tables */
    PREDICT_TABLES,  /* tables only */
    PREDICT_LAYER    /* the layer number only */
};

struct prediction_input {
    uint32_t layer; /* the target */
    uint32_t experts, top_k;
    uint32_t want;           /* predictions requested; capacity of `out` */
    const float *logits;     /* [experts] */
    const uint16_t *chosen1; /* in layer - 1 (of this token) */
    uint32_t chosen1_count;
    const uint16_t *chosen2; /* in layer - 2 */
    uint32_t chosen2_count;
    const struct path_tables *tables;
    float *scratch; /* [experts]; previous contents are not read */
};

struct prediction_method {
    const char *name;
    enum prediction_source source;
    bool lists; /* the method decides how many it names; `want` should be `experts` */
    uint32_t (*predict)(const struct prediction_input *in, struct prediction *out);
};

const struct prediction_method *prediction_method_named(const char *name); /* NULL when unknown */

/* Returns the number of predictions written to out (at most in->want), in descending probability: 0
 * when the source is missing (logits NULL, no tables). */
static inline uint32_t prediction_run(const struct prediction_method *p,
                                      const struct prediction_input *in, struct prediction *out)
{
    return p->predict(in, out);
}

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
