/* SPDX-License-Identifier: Apache-2.0 */
/* A two-layer network that predicts the loss from the shares, and a genetic search over it (SwapMoE
 * §3.4.2, §3.5.2). Deterministic for a seed; no I/O. */
#ifndef SLUICE_TOOLS_PLAN_NETWORK_H
#define SLUICE_TOOLS_PLAN_NETWORK_H

#include <stdint.h>

#define NETWORK_INPUTS_MAX 512
#define NETWORK_HIDDEN     16

struct network {
    uint32_t inputs;
    double mean, scale; /* of the targets */
    double w1[NETWORK_HIDDEN][NETWORK_INPUTS_MAX], b1[NETWORK_HIDDEN];
    double w2[NETWORK_HIDDEN], b2;
};

/* Fits n samples (x: [n][inputs], in 0..1) by least squares with Adam (Kingma & Ba 2015). Returns
 * the root mean square error in units of y. */
double network_fit(struct network *net, uint32_t inputs, const double *x, const double *y,
                   uint32_t n, uint64_t seed);
double network_predict(const struct network *net, const double *x);

/* Finds the shares v[l] (min..max per layer, sum <= total) with the minimum predicted loss and
 * returns that loss: population 50, mutation 0.5, crossover 0.01 by exchange or average. `first`
 * (or NULL) is a member of the first population. */
struct genetic {
    const struct network *net;
    uint32_t layers, min, max, generations;
    uint64_t total, seed;
    const uint32_t *first;
};
double genetic_search(const struct genetic *g, uint32_t *v);

/* Random shares with sum == total where the bounds allow it. */
struct random;
void random_shares(struct random *r, uint32_t layers, uint32_t min, uint32_t max, uint64_t total,
                   uint32_t *v);

#endif
