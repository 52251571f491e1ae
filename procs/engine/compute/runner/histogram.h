/* SPDX-License-Identifier: Apache-2.0 */
/* Durations in bins of about 1 %: percentiles of any number of tokens in fixed memory. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_HISTOGRAM_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_HISTOGRAM_H

#include <stdint.h>
#include <string.h>

#define HISTOGRAM_STEPS   64 /* bins per doubling */
#define HISTOGRAM_OCTAVES 34 /* from 1024 ns to hours */
#define HISTOGRAM_SHIFT   10

struct histogram {
    uint32_t bin[HISTOGRAM_STEPS * HISTOGRAM_OCTAVES];
    uint64_t count;
};

static inline void histogram_clear(struct histogram *h)
{
    memset(h, 0, sizeof *h);
}

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    uint64_t v = ns < (1u << HISTOGRAM_SHIFT) ? (1u << HISTOGRAM_SHIFT) : ns;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(v);
    uint32_t step = (uint32_t)((v - (1ull << octave)) * HISTOGRAM_STEPS >> octave);
    uint32_t i = (octave - HISTOGRAM_SHIFT) * HISTOGRAM_STEPS + step;
    if (octave - HISTOGRAM_SHIFT >= HISTOGRAM_OCTAVES)
        i = HISTOGRAM_STEPS * HISTOGRAM_OCTAVES - 1;
    h->bin[i]++;
    h->count++;
}

/* The middle of the bin in which the q-quantile lies, in ns; 0 when empty. */
static inline double histogram_quantile(const struct histogram *h, double q)
{
    uint64_t rank = (uint64_t)(q * (double)h->count), seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_STEPS * HISTOGRAM_OCTAVES; i++) {
        seen += h->bin[i];
        if (seen > rank || (seen == h->count && h->count > 0)) {
            double base = (double)(1ull << (i / HISTOGRAM_STEPS + HISTOGRAM_SHIFT));
            return base * (1.0 + ((double)(i % HISTOGRAM_STEPS) + 0.5) / HISTOGRAM_STEPS);
        }
    }
    return 0;
}

#endif
