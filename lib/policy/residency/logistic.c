/* SPDX-License-Identifier: Apache-2.0 */
/* Logistic models that learn while they run: inputs of an expert to its access probability. */
#include <math.h>
#include <string.h>

#include "lib/policy/residency/internal.h"

#define INPUTS RESIDENCY_LOGISTIC_INPUTS

/* The target is more than the next token's accesses: an access n tokens ahead counts FURTHER^(n-1)
 * as much, because an evicted expert is absent for longer than a token. */
#define FURTHER 0.75
/* Weight of the prior for each input, and decay of the observations per token. */
#define FIRST_WORTH 100.0
#define REMEMBERED  0.999
#define WEIGHT_MAX  8.0 /* reached only with synthetic logits */

double residency_log_odds(double p)
{
    p = p < 1e-4 ? 1e-4 : p > 1 - 1e-4 ? 1 - 1e-4 : p;
    return log(p / (1 - p));
}

void residency_logistic_init(struct residency_logistic *m, int inputs, const double *weights)
{
    sl_assert(inputs > 0 && inputs <= INPUTS);
    *m = (struct residency_logistic){.inputs = inputs};
    memcpy(m->weight, weights, (size_t)inputs * sizeof *weights);
    for (int i = 0; i < inputs; i++)
        m->curvature[i][i] = FIRST_WORTH;
}

double residency_logistic_probability(const struct residency_logistic *m, const double *in)
{
    double sum = 0;
    for (int i = 0; i < m->inputs; i++)
        sum += m->weight[i] * in[i];
    return 1 / (1 + exp(-sum));
}

void residency_logistic_observe(struct residency_logistic *m, const double *in, float *trace,
                                bool used)
{
    double p = residency_logistic_probability(m, in), slope = p * (1 - p);
    for (int i = 0; i < m->inputs; i++) {
        trace[i] = (float)(FURTHER * (double)trace[i] + (1 - FURTHER) * in[i]);
        m->gradient[i] += (used ? (double)trace[i] : 0) - p * in[i];
        for (int j = 0; j <= i; j++)
            m->curvature[i][j] += slope * in[i] * in[j];
    }
}

/* Cholesky's factor of the curvature, which is positive definite: FIRST_WORTH never fades. */
static void factorise(const struct residency_logistic *m, double l[INPUTS][INPUTS])
{
    for (int i = 0; i < m->inputs; i++)
        for (int j = 0; j <= i; j++) {
            double sum = m->curvature[i][j];
            for (int k = 0; k < j; k++)
                sum -= l[i][k] * l[j][k];
            l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
        }
}

/* step = curvature^-1 gradient */
static void newton_step(const struct residency_logistic *m, double step[INPUTS])
{
    double l[INPUTS][INPUTS] = {0};
    factorise(m, l);
    for (int i = 0; i < m->inputs; i++) {
        step[i] = m->gradient[i];
        for (int k = 0; k < i; k++)
            step[i] -= l[i][k] * step[k];
        step[i] /= l[i][i];
    }
    for (int i = m->inputs - 1; i >= 0; i--) {
        for (int k = i + 1; k < m->inputs; k++)
            step[i] -= l[k][i] * step[k];
        step[i] /= l[i][i];
    }
}

bool residency_logistic_step(struct residency_logistic *m)
{
    double step[INPUTS];
    if (m->gradient[m->inputs - 1] == 0) /* no observation */
        return false;
    newton_step(m, step);
    for (int i = 0; i < m->inputs; i++) {
        double w = m->weight[i] + step[i];
        m->weight[i] = w > WEIGHT_MAX ? WEIGHT_MAX : w < -WEIGHT_MAX ? -WEIGHT_MAX : w;
        for (int j = 0; j <= i; j++) {
            double first = i == j ? FIRST_WORTH : 0;
            m->curvature[i][j] = first + REMEMBERED * (m->curvature[i][j] - first);
        }
    }
    memset(m->gradient, 0, sizeof m->gradient);
    return true;
}
