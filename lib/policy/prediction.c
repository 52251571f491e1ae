#include <math.h>
#include <string.h>

#include "lib/policy/policy.h"

/* A NaN is no guess at all: it ranks behind every number. */
static bool ranks_before(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Keeps out[0..held-1] in descending order; a later equal goes behind an earlier one, which is the
 * tie rule. Returns the new number held. */
static uint32_t keep_best(struct guess *out, uint32_t held, uint32_t want, struct guess g)
{
    uint32_t at = held;
    while (at > 0 && ranks_before(g.probability, out[at - 1].probability))
        at--;
    if (at >= want)
        return held;
    uint32_t last = held < want ? held : want - 1;
    memmove(&out[at + 1], &out[at], (last - at) * sizeof *out);
    out[at] = g;
    return held < want ? held + 1 : held;
}

/* Until the end `probability` holds the logit: order by logits does not suffer from underflow. */
static uint32_t next_layer(const float *logits, uint32_t experts, uint32_t want, struct guess *out)
{
    uint32_t held = 0;
    float top = -INFINITY;
    for (uint32_t i = 0; i < experts; i++) {
        held = keep_best(out, held, want, (struct guess){i, logits[i]});
        if (logits[i] > top)
            top = logits[i];
    }
    float sum = 0;
    for (uint32_t i = 0; i < experts; i++)
        sum += isnan(logits[i]) ? 0 : expf(logits[i] - top);
    for (uint32_t i = 0; i < held; i++) {
        float p = expf(out[i].probability - top) / sum;
        out[i].probability = isfinite(p) ? p : 0;
    }
    return held;
}

static uint32_t none(const float *logits, uint32_t experts, uint32_t want, struct guess *out)
{
    (void)logits;
    (void)experts;
    (void)want;
    (void)out;
    return 0;
}

prediction_fn prediction_find(const char *name)
{
    if (strcmp(name, "next-layer") == 0)
        return next_layer;
    return strcmp(name, "none") == 0 ? none : NULL;
}
