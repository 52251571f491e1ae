/* SPDX-License-Identifier: Apache-2.0 */
/* The measured importance of a single expert is mostly noise: 8 k tokens resolve an increase of
 * 0.05 % from one of 0.1 %, not less, and picking the smallest of noisy numbers selects noise. So
 * each is shrunk towards the mean of its group (empirical Bayes, Efron & Morris 1975). The true
 * variance, within groups as between them, is estimated as the variance of the group means minus
 * the part explained by noise. */
#include <stdlib.h>

#include "lib/base/assert.h"
#include "procs/tools/plan/planning.h"

struct variance {
    double sum, square;
    uint64_t n;
};

static void add(struct variance *v, double x)
{
    v->sum += x;
    v->square += x * x;
    v->n++;
}

static double of(const struct variance *v)
{
    double mean = v->n ? v->sum / (double)v->n : 0;
    return v->n > 1 ? (v->square - mean * v->sum) / (double)(v->n - 1) : 0;
}

static uint32_t group_end(uint32_t first, uint32_t group, uint32_t experts)
{
    return first + group < experts ? first + group : experts;
}

static double group_mean(const float *x, uint32_t first, uint32_t end)
{
    double sum = 0;
    for (uint32_t e = first; e < end; e++)
        sum += (double)x[e];
    return sum / (end - first);
}

double importance_shrunk(const float *x, const uint8_t *measured, uint32_t layers, uint32_t experts,
                         uint32_t group, double *out)
{
    struct variance between = {0}, within = {0};
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t g = 0, end; g < experts; g = end) {
            const float *row = x + (size_t)l * experts;
            end = group_end(g, group, experts);
            double mean = group_mean(row, g, end);
            add(&between, mean);
            for (uint32_t e = g; e < end; e++)
                if (measured[(size_t)l * experts + e])
                    add(&within, (double)row[e] - mean);
        }
    double real = of(&between) - of(&within) / group;
    double keep = of(&within) <= 0 ? 1 : real > 0 ? real / (real + of(&within)) : 0;
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t g = 0, end; g < experts; g = end) {
            const float *row = x + (size_t)l * experts;
            end = group_end(g, group, experts);
            double mean = group_mean(row, g, end);
            for (uint32_t e = g; e < end; e++)
                out[(size_t)l * experts + e] = mean + keep * ((double)row[e] - mean);
        }
    return keep;
}
