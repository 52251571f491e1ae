/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of small samples. No allocation; the bootstrap uses a fixed seed. */
#ifndef SLUICE_BASE_STATISTICS_H
#define SLUICE_BASE_STATISTICS_H

#include <stdint.h>

#define STATISTICS_SAMPLES_MAX 1024u

double statistics_mean(const double *x, uint32_t n);

/* Sample standard deviation (n - 1); 0 for fewer than two. */
double statistics_deviation(const double *x, uint32_t n);

/* 0 for none. n is at most STATISTICS_SAMPLES_MAX. */
double statistics_median(const double *x, uint32_t n);

struct statistics_ratio {
    double ratio; /* median of a / median of b */
    double low, high;
};

/* Ratio of the medians of paired samples (a[i] and b[i] were measured as a pair), and its 95 %
 * interval by the percentile bootstrap over pairs (Efron and Tibshirani, "An Introduction to the
 * Bootstrap", 1993, chapter 13). Zeros when n is 0 or a median of b is 0. */
struct statistics_ratio statistics_ratio(const double *a, const double *b, uint32_t n);

#endif
