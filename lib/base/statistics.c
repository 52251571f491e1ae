/* SPDX-License-Identifier: Apache-2.0 */
/* Computes mean, deviation, median, and the bootstrap interval of a ratio. */
#include "lib/base/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/random.h"

#define ROUNDS 2000u
#define SEED   1u

double statistics_mean(const double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i];
    return n > 0 ? sum / n : 0;
}

double statistics_deviation(const double *x, uint32_t n)
{
    double mean = statistics_mean(x, n), sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

static int ascending(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double median_in_place(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, ascending);
    return n == 0 ? 0 : n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double statistics_median(const double *x, uint32_t n)
{
    double sorted[STATISTICS_SAMPLES_MAX];
    sl_assert(n <= STATISTICS_SAMPLES_MAX);
    memcpy(sorted, x, n * sizeof *x);
    return median_in_place(sorted, n);
}

struct statistics_ratio statistics_ratio(const double *a, const double *b, uint32_t n)
{
    double of_a[STATISTICS_SAMPLES_MAX], of_b[STATISTICS_SAMPLES_MAX], drawn[ROUNDS];
    struct random random;
    if (n == 0 || statistics_median(b, n) == 0)
        return (struct statistics_ratio){0};
    random_seed(&random, SEED, 0);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        for (uint32_t i = 0; i < n; i++) {
            uint64_t at = random_below(&random, n);
            of_a[i] = a[at];
            of_b[i] = b[at];
        }
        double bottom = median_in_place(of_b, n);
        drawn[r] = bottom > 0 ? median_in_place(of_a, n) / bottom : 0;
    }
    qsort(drawn, ROUNDS, sizeof *drawn, ascending);
    return (struct statistics_ratio){.ratio = statistics_median(a, n) / statistics_median(b, n),
                                     .low = drawn[(uint32_t)(ROUNDS * 0.025)],
                                     .high = drawn[(uint32_t)(ROUNDS * 0.975) - 1]};
}
