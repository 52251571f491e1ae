/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the methods of prediction, and runs the chosen one for a layer. */
#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/prediction/activation.h"
#include "lib/policy/prediction/internal.h"

/* NaN ranks after every number. */
static bool ranks_before(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

uint32_t prediction_keep_best(struct prediction *out, uint32_t found, uint32_t want,
                              struct prediction g)
{
    uint32_t at = found;
    while (at > 0 && ranks_before(g.probability, out[at - 1].probability))
        at--;
    if (at >= want)
        return found;
    uint32_t last = found < want ? found : want - 1;
    memmove(&out[at + 1], &out[at], (last - at) * sizeof *out);
    out[at] = g;
    return found < want ? found + 1 : found;
}

/* ---- from logits ---------------------------------------------------------------------------- */

static uint32_t next_layer(const struct prediction_input *in, struct prediction *out)
{
    return in->logits ? prediction_by_router(in, in->want, out) : 0;
}

/* Shares are in the order of the choice, so ranks decide: an expert is above the percentile when it
 * is strictly greater than the interpolated value. */
static uint32_t fate(const struct prediction_input *in, struct prediction *out)
{
    uint32_t experts = in->experts, want = in->want < experts ? in->want : experts;
    if (!in->logits || want == 0)
        return 0;
    /* The interpolation reads two ranks, at most this many from the top. */
    uint32_t ranks = experts - (uint32_t)(0.75 * (experts - 1));
    uint32_t found = prediction_by_router(in, want < ranks ? want : ranks, out);
    if (found < ranks) /* bounded below the percentile: all of them are above it */
        return found;
    double at = 0.75 * (experts - 1), part = at - floor(at);
    double low = out[ranks - 1].probability;
    double high = ranks > 1 ? out[ranks - 2].probability : low;
    double line = low + part * (high - low);
    uint32_t above = 0;
    while (above < found && out[above].probability > line)
        above++;
    if (above < in->top_k && above < want)
        above = prediction_by_router(in, want < in->top_k ? want : in->top_k, out);
    return above;
}

/* ---- from counts ---------------------------------------------------------------------------- */

static uint32_t by_score(const struct prediction_input *in, const float *score,
                         struct prediction *out)
{
    uint32_t found = 0;
    double sum = 0;
    for (uint32_t i = 0; i < in->experts; i++) {
        if (!(score[i] > 0)) /* NaN: unknown */
            continue;
        sum += (double)score[i];
        found = prediction_keep_best(out, found, in->want,
                                     (struct prediction){.expert = i, .probability = score[i]});
    }
    for (uint32_t i = 0; i < found; i++) {
        double p = in->top_k * (double)out[i].probability / sum;
        out[i].probability = (float)(p < 1 ? p : 1);
    }
    return found;
}

static uint32_t frequency(const struct prediction_input *in, struct prediction *out)
{
    if (!in->tables || !in->tables->frequency)
        return 0;
    return by_score(in, in->tables->frequency + (size_t)in->layer * in->experts, out);
}

static uint32_t path1(const struct prediction_input *in, struct prediction *out)
{
    const struct path_tables *t = in->tables;
    if (!t || !t->prev1 || in->layer == 0 || in->chosen1_count == 0)
        return 0;
    memset(in->scratch, 0, in->experts * sizeof *in->scratch);
    for (uint32_t i = 0; i < in->chosen1_count; i++) {
        size_t row = (size_t)in->layer * in->experts + in->chosen1[i];
        for (uint32_t c = 0; c < in->experts; c++)
            in->scratch[c] += t->prev1[row * in->experts + c];
    }
    return by_score(in, in->scratch, out);
}

static bool sum_pairs(const struct prediction_input *in)
{
    const struct path_tables *t = in->tables;
    bool seen = false;
    memset(in->scratch, 0, in->experts * sizeof *in->scratch);
    for (uint32_t i = 0; i < in->chosen2_count; i++)
        for (uint32_t j = 0; j < in->chosen1_count; j++) {
            size_t n = ((size_t)in->layer * in->experts + in->chosen2[i]) * in->experts;
            n += in->chosen1[j];
            for (uint32_t x = t->pair_first[n]; x < t->pair_first[n + 1]; x++) {
                in->scratch[t->pair_cells[x].expert] += t->pair_cells[x].count;
                seen = true;
            }
        }
    return seen;
}

static uint32_t path2(const struct prediction_input *in, struct prediction *out)
{
    const struct path_tables *t = in->tables;
    uint32_t n = 0;
    if (t && t->pair_first && t->pair_cells && in->layer >= 2 && sum_pairs(in))
        n = by_score(in, in->scratch, out);
    if (n == 0)
        n = path1(in, out);
    return n > 0 ? n : frequency(in, out);
}

static uint32_t none(const struct prediction_input *in, struct prediction *out)
{
    (void)in;
    (void)out;
    return 0;
}

static uint32_t whole_layer(const struct prediction_input *in, struct prediction *out)
{
    uint32_t n = in->want < in->experts ? in->want : in->experts;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct prediction){.expert = i, .probability = 1};
    return n;
}

static uint32_t activation(const struct prediction_input *in, struct prediction *out)
{
    if (!in->activation)
        return 0;
    struct prediction_place now = {in->sequence, in->position, in->now};
    return activation_predict(in->activation, &now, in->layer, in->want, in->top_k, out);
}

static const struct prediction_method methods[] = {
    [PREDICTION_NONE] = {PREDICT_NOTHING, false, none},
    [PREDICTION_NEXT_LAYER] = {PREDICT_LOGITS, false, next_layer},
    [PREDICTION_FATE] = {PREDICT_LOGITS, true, fate},
    [PREDICTION_PATH1] = {PREDICT_CHOSEN, false, path1},
    [PREDICTION_PATH2] = {PREDICT_CHOSEN, true, path2},
    [PREDICTION_FREQUENCY] = {PREDICT_TABLES, false, frequency},
    [PREDICTION_LAYER] = {PREDICT_LAYER, true, whole_layer},
    [PREDICTION_ACTIVATION] = {PREDICT_ACTIVATION, false, activation},
};

const struct prediction_method *prediction_method_of(enum prediction_kind kind)
{
    sl_assert((size_t)kind < sizeof methods / sizeof methods[0]);
    return &methods[kind];
}

/* ---- running -------------------------------------------------------------------------------- */

uint32_t prediction_want(const struct prediction_method *p, uint64_t predict_k, uint32_t top_k,
                         uint32_t experts)
{
    uint64_t want = predict_k ? predict_k : p->lists ? experts : top_k;
    want = want < experts ? want : experts;
    return (uint32_t)(want < PREDICTIONS_MAX ? want : PREDICTIONS_MAX);
}

uint32_t prediction_layers(const struct prediction_method *p, uint64_t lookahead)
{
    bool ahead = p->source == PREDICT_LOGITS || p->source == PREDICT_ACTIVATION;
    return ahead ? (uint32_t)lookahead : 1;
}

void prediction_weights_before(struct prediction *list, uint32_t count, uint32_t top_k)
{
    float before[PREDICTIONS_MAX];
    uint32_t n = count < top_k ? count : top_k;
    sl_assert(n <= PREDICTIONS_MAX);
    if (count == 0)
        return;
    precision_weights_before(&list->probability, sizeof *list / sizeof(float), n, before);
    for (uint32_t i = 0; i < count; i++)
        list[i].weight_before = i < n ? before[i] : 1;
}

uint32_t prediction_run(const struct prediction_method *p, const struct prediction_input *in,
                        struct prediction *out)
{
    uint32_t n = p->predict(in, out);
    if (p->source == PREDICT_LOGITS && in->logits && !prediction_router_is_plain(in->router))
        prediction_gate_weights_before(in, out, n);
    else
        prediction_weights_before(out, n, in->top_k);
    return n;
}

bool prediction_for_chunks(const struct prediction_method *p)
{
    return p->source == PREDICT_LOGITS || p->source == PREDICT_LAYER;
}

uint32_t prediction_chunk_run(const struct prediction_method *p, const struct prediction_chunk *in,
                              struct prediction *out)
{
    uint32_t found = 0, max = in->experts < PREDICTIONS_MAX ? in->experts : PREDICTIONS_MAX;
    double accesses = 0;
    if (p->source == PREDICT_LAYER)
        return whole_layer(&(struct prediction_input){.want = max, .experts = in->experts}, out);
    for (uint32_t e = 0; e < in->experts; e++)
        accesses += (double)in->tokens[e];
    for (uint32_t e = 0; e < in->experts && prediction_for_chunks(p); e++) {
        bool predicted = in->tokens[e] > 0;
        struct prediction g = {.expert = e,
                               .probability = predicted ? in->tokens[e] : 0,
                               .weight_before = predicted ? in->weight_before[e] : 1};
        if (predicted || (in->whole && accesses >= in->experts))
            found = prediction_keep_best(out, found, max, g);
    }
    return found;
}

uint32_t prediction_known(const uint32_t *tokens, uint32_t experts, struct prediction *out)
{
    uint32_t found = 0, max = experts < PREDICTIONS_MAX ? experts : PREDICTIONS_MAX;
    for (uint32_t e = 0; e < experts; e++)
        if (tokens[e] > 0)
            found = prediction_keep_best(
                out, found, max, (struct prediction){.expert = e, .probability = (float)tokens[e]});
    return found;
}

/* ---- lists ---------------------------------------------------------------------------------- */

bool prediction_passed(const struct prediction_place *now, const struct prediction_place *target)
{
    if (now->sequence != target->sequence)
        return false;
    return target->position < now->position ||
           (target->position == now->position && target->layer <= now->layer);
}

bool prediction_keeps_loads(const struct prediction_place *older,
                            const struct prediction_place *newer)
{
    return older->sequence == newer->sequence && older->position == newer->position;
}
