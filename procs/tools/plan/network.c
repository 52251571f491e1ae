/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the network to measured losses, and searches for shares with it. */
#include "procs/tools/plan/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/random.h"

#define EPOCHS     3000
#define RATE       0.01
#define DECAY      1e-3 /* of the weights, because samples are few */
#define POPULATION 50
#define MUTATION   0.5
#define CROSSOVER  0.01

/* ---- network: tanh, then linear; parameters as one flat vector for the optimiser ---- */

static uint32_t parameters(uint32_t inputs)
{
    return NETWORK_HIDDEN * (inputs + 2) + 1;
}

/* Parameter i of the flat vector. */
static double *parameter(struct network *net, uint32_t i)
{
    uint32_t in = net->inputs;
    if (i < NETWORK_HIDDEN * in)
        return &net->w1[i / in][i % in];
    i -= NETWORK_HIDDEN * in;
    if (i < NETWORK_HIDDEN)
        return &net->b1[i];
    return i < 2 * NETWORK_HIDDEN ? &net->w2[i - NETWORK_HIDDEN] : &net->b2;
}

static double forward(const struct network *net, const double *x, double hidden[NETWORK_HIDDEN])
{
    double y = net->b2;
    for (int h = 0; h < NETWORK_HIDDEN; h++) {
        double a = net->b1[h];
        for (uint32_t i = 0; i < net->inputs; i++)
            a += net->w1[h][i] * x[i];
        hidden[h] = tanh(a);
        y += net->w2[h] * hidden[h];
    }
    return y;
}

double network_predict(const struct network *net, const double *x)
{
    double hidden[NETWORK_HIDDEN];
    return net->mean + net->scale * forward(net, x, hidden);
}

/* Gradient of the mean squared error and the decay, in the order of parameter(). */
static void gradient(struct network *net, const double *x, const double *y, uint32_t n, double *out)
{
    uint32_t in = net->inputs, count = parameters(in);
    for (uint32_t i = 0; i < count; i++)
        out[i] = DECAY * *parameter(net, i);
    for (uint32_t s = 0; s < n; s++) {
        double hidden[NETWORK_HIDDEN];
        const double *row = x + (size_t)s * in;
        double off = 2 * (forward(net, row, hidden) - (y[s] - net->mean) / net->scale) / n;
        for (uint32_t h = 0; h < NETWORK_HIDDEN; h++) {
            double back = off * net->w2[h] * (1 - hidden[h] * hidden[h]);
            for (uint32_t i = 0; i < in; i++)
                out[h * in + i] += back * row[i];
            out[NETWORK_HIDDEN * in + h] += back;
            out[NETWORK_HIDDEN * (in + 1) + h] += off * hidden[h];
        }
        out[count - 1] += off;
    }
}

static void standardise(struct network *net, const double *y, uint32_t n)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += y[i];
    net->mean = sum / n;
    for (uint32_t i = 0; i < n; i++)
        square += (y[i] - net->mean) * (y[i] - net->mean);
    net->scale = square > 0 ? sqrt(square / n) : 1;
}

double network_fit(struct network *net, uint32_t inputs, const double *x, const double *y,
                   uint32_t n, uint64_t seed)
{
    sl_assert(inputs >= 1 && inputs <= NETWORK_INPUTS_MAX && n >= 1);
    struct random random;
    uint32_t count = parameters(inputs);
    double *g = calloc(3 * (size_t)count, sizeof *g), *m = g + count, *v = m + count;
    sl_assert(g);
    random_seed(&random, seed, 0);
    memset(net, 0, sizeof *net);
    net->inputs = inputs;
    standardise(net, y, n);
    for (uint32_t i = 0; i < count; i++)
        *parameter(net, i) = (2 * random_unit(&random) - 1) / sqrt(inputs);
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        gradient(net, x, y, n, g);
        for (uint32_t i = 0; i < count; i++) {
            m[i] = 0.9 * m[i] + 0.1 * g[i];
            v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
            double mean = m[i] / (1 - pow(0.9, epoch)), square = v[i] / (1 - pow(0.999, epoch));
            *parameter(net, i) -= RATE * mean / (sqrt(square) + 1e-8);
        }
    }
    free(g);
    double error = 0;
    for (uint32_t s = 0; s < n; s++)
        error += pow(network_predict(net, x + (size_t)s * inputs) - y[s], 2);
    return sqrt(error / n);
}

/* ---- genetic search ---- */

/* Changes the sum to `total`, one expert of a random layer at a time. */
static void fit_total(struct random *r, uint32_t layers, uint32_t min, uint32_t max, uint64_t total,
                      uint32_t *v)
{
    uint64_t sum = 0, tries = 0, floor = (uint64_t)layers * min, top = (uint64_t)layers * max;
    total = total < floor ? floor : total > top ? top : total;
    for (uint32_t l = 0; l < layers; l++)
        sum += v[l];
    while (sum != total && tries++ < 1000ull * layers * max) {
        uint32_t l = (uint32_t)random_below(r, layers);
        if (sum > total && v[l] > min) {
            v[l]--;
            sum--;
        } else if (sum < total && v[l] < max) {
            v[l]++;
            sum++;
        }
    }
}

void random_shares(struct random *r, uint32_t layers, uint32_t min, uint32_t max, uint64_t total,
                   uint32_t *v)
{
    for (uint32_t l = 0; l < layers; l++)
        v[l] = min + (uint32_t)random_below(r, max - min + 1);
    fit_total(r, layers, min, max, total, v);
}

struct member {
    uint32_t v[NETWORK_INPUTS_MAX];
    double loss;
};

static void evaluate(const struct genetic *g, struct member *m)
{
    double x[NETWORK_INPUTS_MAX];
    for (uint32_t l = 0; l < g->layers; l++)
        x[l] = (double)m->v[l] / g->max;
    m->loss = network_predict(g->net, x);
}

static void mutate(const struct genetic *g, struct random *r, struct member *m)
{
    uint32_t l = (uint32_t)random_below(r, g->layers);
    m->v[l] = g->min + (uint32_t)random_below(r, g->max - g->min + 1);
}

static void cross(const struct genetic *g, struct random *r, struct member *m,
                  const struct member *other)
{
    bool average = random_below(r, 2) != 0;
    for (uint32_t l = 0; l < g->layers; l++)
        if (average)
            m->v[l] = (m->v[l] + other->v[l]) / 2;
        else if (random_below(r, 2))
            m->v[l] = other->v[l];
}

static int by_loss(const void *a, const void *b)
{
    double x = ((const struct member *)a)->loss, y = ((const struct member *)b)->loss;
    return (x > y) - (x < y);
}

double genetic_search(const struct genetic *g, uint32_t *v)
{
    struct random r;
    struct member *all = calloc(2 * POPULATION, sizeof *all);
    sl_assert(all && g->layers <= NETWORK_INPUTS_MAX && g->min <= g->max);
    random_seed(&r, g->seed, 1);
    for (int i = 0; i < POPULATION; i++) {
        random_shares(&r, g->layers, g->min, g->max, g->total, all[i].v);
        if (i == 0 && g->first)
            memcpy(all[0].v, g->first, g->layers * sizeof *v);
        evaluate(g, &all[i]);
    }
    for (uint32_t generation = 0; generation < g->generations; generation++) {
        for (int i = 0; i < POPULATION; i++) {
            struct member *child = &all[POPULATION + i];
            *child = all[i];
            if (random_unit(&r) < MUTATION)
                mutate(g, &r, child);
            if (random_unit(&r) < CROSSOVER)
                cross(g, &r, child, &all[random_below(&r, POPULATION)]);
            fit_total(&r, g->layers, g->min, g->max, g->total, child->v);
            evaluate(g, child);
        }
        qsort(all, 2 * POPULATION, sizeof *all, by_loss);
    }
    memcpy(v, all[0].v, g->layers * sizeof *v);
    double loss = all[0].loss;
    free(all);
    return loss;
}
