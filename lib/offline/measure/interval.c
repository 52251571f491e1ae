/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap intervals and quantiles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/random.h"
#include "lib/offline/measure/evaluate.h"

#define RESAMPLES 2000

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_float(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* exp(mean of d per token) - minus, and its interval. */
static struct offline_interval of_differences(const double *d, uint32_t windows, uint32_t scored,
                                              double minus, double level)
{
    static double sample[RESAMPLES];
    sl_assert(windows > 0 && level > 0 && level < 1);
    struct random random;
    random_seed(&random, 1, 0);
    double sum = 0, tokens = (double)windows * scored;
    for (uint32_t i = 0; i < windows; i++)
        sum += d[i];
    struct offline_interval out = {.value = exp(sum / tokens) - minus};
    for (int s = 0; s < RESAMPLES; s++) {
        double total = 0;
        for (uint32_t i = 0; i < windows; i++)
            total += d[random_below(&random, windows)];
        sample[s] = exp(total / tokens) - minus;
    }
    qsort(sample, RESAMPLES, sizeof *sample, by_double);
    out.low = sample[(int)((1 - level) / 2 * RESAMPLES)];
    out.high = sample[(int)((1 + level) / 2 * (RESAMPLES - 1))];
    return out;
}

struct offline_interval offline_loss_interval(const double *nll_a, const double *nll_b,
                                              uint32_t windows, uint32_t scored, double level)
{
    double *d = malloc(windows * sizeof *d);
    sl_assert(d);
    for (uint32_t i = 0; i < windows; i++)
        d[i] = nll_b[i] - nll_a[i];
    struct offline_interval out = of_differences(d, windows, scored, 1, level);
    free(d);
    return out;
}

struct offline_interval offline_perplexity_interval(const double *nll, uint32_t windows,
                                                    uint32_t scored, double level)
{
    return of_differences(nll, windows, scored, 0, level);
}

float offline_quantile(float *values, size_t n, double fraction)
{
    sl_assert(n > 0);
    qsort(values, n, sizeof *values, by_float);
    size_t i = (size_t)(fraction * (double)n);
    return values[i < n ? i : n - 1];
}
