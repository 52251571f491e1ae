/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a forward pass, and compares its routing and logits with a reference. */
#include "tests/golden/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define WEIGHT_DELTA 5e-3

struct routing { /* the routing of a forward pass: [layer][position][top_k] */
    struct route *routes;
    uint32_t layers, positions, top_k;
};

static void record_routing(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct routing *r = arg;
    for (uint32_t i = 0; i < step->rows && step->row[i].position < r->positions; i++)
        memcpy(&r->routes[((size_t)step->layer * r->positions + step->row[i].position) * r->top_k],
               &routes[(size_t)i * r->top_k], r->top_k * sizeof *routes);
}

static bool same_experts(const struct route *ours, const json_t *theirs, uint32_t top_k)
{
    for (uint32_t i = 0; i < top_k; i++) {
        bool found = false;
        for (uint32_t j = 0; j < top_k; j++)
            found |= json_integer_value(json_array_get(theirs, j)) == (json_int_t)ours[i].expert;
        if (!found)
            return false;
    }
    return true;
}

static double weight_delta(const struct route *ours, const json_t *experts, const json_t *weights,
                           uint32_t top_k)
{
    double delta = 0;
    for (uint32_t i = 0; i < top_k; i++)
        for (uint32_t j = 0; j < top_k; j++)
            if (json_integer_value(json_array_get(experts, j)) == (json_int_t)ours[i].expert)
                delta = fmax(delta, fabs((double)ours[i].weight -
                                         json_real_value(json_array_get(weights, j))));
    return delta;
}

/* Compares routing up to the first near-tie with another expert; returns its position. */
static uint32_t check_routing(const struct routing *r, const struct golden_expected *want)
{
    double delta = 0;
    uint32_t ok_until = r->positions;
    for (uint32_t t = 0; t < ok_until; t++) {
        for (uint32_t l = 0; l < r->layers; l++) {
            json_t *layer = json_array_get(want->layers, l);
            if (json_is_null(layer))
                continue;
            json_t *experts = json_array_get(json_object_get(layer, "experts"), t);
            json_t *weights = json_array_get(json_object_get(layer, "weights"), t);
            double gap =
                json_number_value(json_array_get(json_object_get(layer, want->gap_key), t));
            const struct route *ours = &r->routes[((size_t)l * r->positions + t) * r->top_k];
            sl_assert(json_array_size(experts) == r->top_k);
            if (same_experts(ours, experts, r->top_k)) {
                delta = fmax(delta, weight_delta(ours, experts, weights, r->top_k));
                continue;
            }
            golden_check(gap < GOLDEN_GAP, "%s layer %u position %u: the experts differ, gap %g",
                         want->name, l, t, gap);
            printf("  %s: near-tie (gap %g) chose another expert in layer %u at position %u\n",
                   want->name, gap, l, t);
            ok_until = t;
            break;
        }
    }
    golden_check(delta < WEIGHT_DELTA, "%s: gate weights differ by %g", want->name, delta);
    printf("  %s: %u of %u positions with equal routing, maximum gate weight difference %.2g\n",
           want->name, ok_until, r->positions, delta);
    return ok_until;
}

void golden_top_two(const float *x, size_t n, size_t *best, float *margin)
{
    size_t first = 0;
    for (size_t i = 1; i < n; i++)
        first = x[i] > x[first] ? i : first;
    float second = -INFINITY;
    for (size_t i = 0; i < n; i++)
        second = i != first && x[i] > second ? x[i] : second;
    *best = first;
    *margin = x[first] - second;
}

static double compare_row(const float *ours, const float *theirs, size_t n, const char *name,
                          uint32_t position)
{
    const float *logit = theirs + 2, margin = theirs[1];
    float unused;
    double delta = 0;
    for (size_t i = position % GOLDEN_STRIDE; i < n; i += GOLDEN_STRIDE)
        delta = fmax(delta, fabs((double)ours[i] - (double)*logit++));
    size_t best = (size_t)theirs[0], own;
    golden_top_two(ours, n, &own, &unused);
    golden_check(margin < GOLDEN_MARGIN || own == best, "%s position %u: top-1 %zu, not %zu (%g)",
                 name, position, own, best, (double)margin);
    return delta;
}

/* [positions][vocab] logits of the ids; caller frees. */
static float *logits_of(struct image *image, struct core *core, const struct golden_expected *want)
{
    uint32_t vocab = image->model->hparams.vocab, max = core_chunk(core);
    float *logits = calloc((size_t)want->positions * vocab, sizeof *logits);
    sl_assert(logits);
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    for (uint32_t at = 0, n; at < want->positions; at += n) {
        n = want->positions - at < max ? want->positions - at : max;
        sl_assert(core_forward(core, &sequence, want->ids + at, at, n, &error) == 0);
        for (uint32_t r = 0; r < n; r++)
            memcpy(logits + (size_t)(at + r) * vocab, core_output(core, r, 1),
                   vocab * sizeof *logits);
    }
    return logits;
}

uint32_t golden_compare(struct image *image, struct core *core, const struct golden_expected *want)
{
    const struct model_hparams *hp = &image->model->hparams;
    struct routing routing = {NULL, hp->layers, want->positions, hp->experts_used};
    sl_assert(json_array_size(want->layers) == hp->layers);
    routing.routes =
        calloc((size_t)want->positions * hp->layers * hp->experts_used, sizeof *routing.routes);
    sl_assert(routing.routes);
    image->routed = record_routing;
    image->routed_arg = &routing;
    float *ours = logits_of(image, core, want);
    image->routed = NULL;
    uint32_t until = check_routing(&routing, want);
    double delta = 0;
    for (uint32_t t = 0; t < until; t++) {
        delta = fmax(delta, compare_row(ours + (size_t)t * hp->vocab,
                                        want->logits + t * golden_columns(hp->vocab), hp->vocab,
                                        want->name, t));
    }
    double allowed = want->logit_delta > 0 ? want->logit_delta : GOLDEN_LOGIT_DELTA;
    golden_check(delta <= allowed, "%s: logits differ by %g", want->name, delta);
    printf("  %s: max |logit difference| %.5f over %u of %u positions\n", want->name, delta, until,
           want->positions);
    free(ours);
    free(routing.routes);
    return until;
}
