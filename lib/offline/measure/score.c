/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of rows of logits. */
#include <math.h>

#include "lib/offline/measure/job.h"

static double log_sum_exp(const float *x, uint32_t n)
{
    float max = x[0];
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

static uint32_t largest(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* KL divergence of the row from the reference: sum p (log p - log q), nats. */
static double divergence(const float *p, const float *q, uint32_t n)
{
    double of_p = log_sum_exp(p, n), of_q = log_sum_exp(q, n), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double log_p = (double)p[i] - of_p;
        sum += exp(log_p) * (log_p - ((double)q[i] - of_q));
    }
    return sum > 0 ? sum : 0;
}

/* Compares row `row` of the window, q, with the reference, base; both are up to a constant. */
static void compare_row(struct worker *w, uint32_t window, uint32_t row, const float *base,
                        const float *q)
{
    struct offline_losses *out = w->job->out;
    uint32_t vocab = offline_index(w->job->e->model)->hparams.vocab;
    uint32_t target = offline_window(w->job->e->text, window)[row + 1];
    out->reference_nll[window] += log_sum_exp(base, vocab) - (double)base[target];
    uint32_t at = row - w->job->e->score_from;
    out->kld[(size_t)window * out->scored + at] = (float)divergence(base, q, vocab);
    out->same[window] += largest(base, vocab) == largest(q, vocab);
}

int score_row(struct worker *w, uint32_t window, uint32_t row, const float *q, const float *base,
              struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    uint32_t vocab = offline_index(e->model)->hparams.vocab;
    if (row < e->score_from)
        return 0;
    uint32_t target = offline_window(e->text, window)[row + 1];
    w->job->out->nll[window] += log_sum_exp(q, vocab) - (double)q[target];
    if (e->record)
        logits_write(e->record, window, row, q);
    if (e->npy)
        logits_write(e->npy, window, row, q);
    if (e->against && logits_read(e->against, window, row, w->recorded, error) != 0)
        return -1;
    base = e->against ? w->recorded : base;
    if (base)
        compare_row(w, window, row, base, q);
    return 0;
}
