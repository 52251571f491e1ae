/* SPDX-License-Identifier: Apache-2.0 */
/* A cloze task made of a text: a context, and four continuations of it, of which the text's own one
 * should be the most probable. It shows what perplexity hides, since a loss that is spread over all
 * choices changes no answer. Pure functions. */
#ifndef SLUICE_CLIENTS_EVAL_CLOZE_H
#define SLUICE_CLIENTS_EVAL_CLOZE_H

#include <stdint.h>

#include "lib/offline/measure/evaluate.h"
#include "lib/offline/text.h"

#define CLOZE_CHOICES        4
#define CLOZE_WINDOW_DEFAULT 64
#define CLOZE_WINDOW_MIN     4 /* the continuation has one token */
#define CLOZE_ITEMS_MAX      100000

/* Tokens of the context; the last quarter of a window is the continuation. */
uint32_t cloze_context(uint32_t window);

/* The choice of an item that is the text's own continuation: all places in turn, because with a
 * simulated cache the first choice finds less resident. */
uint32_t cloze_place(uint32_t item);

/* Turns a text of n windows into one of n items: CLOZE_CHOICES windows each, with the same context.
 * The other continuations are those of the windows that are 1/4, 2/4 and 3/4 of the windows of the
 * same file further on, cyclically. -1 with ERR_BAD_INPUT: a file has fewer than CLOZE_CHOICES
 * windows; ERR_NO_MEMORY. The text is unchanged then. */
int cloze_make(struct offline_text *text, struct error *error);

struct cloze_result {
    double right, reference_right; /* share of the items; a tie of the best ones is not right */
    double low, high;              /* 95 % interval of right - reference_right */
    double same;                   /* share of the items with the same answer */
};

/* nll, reference[items * CLOZE_CHOICES]: nats of the continuation, of the measured model and of
 * the one that it is compared with. The interval is Wald's of paired proportions (Agresti,
 * Categorical Data Analysis, 3rd ed., section 11.1). items > 0. */
struct cloze_result cloze_judge(const double *nll, const double *reference, uint32_t items);

/* Keeps the true continuations of what was measured over a text of cloze_make, so that losses are
 * those of the text. reference[losses->windows] as above; it may be losses->reference_nll. */
void cloze_keep_true(struct offline_losses *losses, double *reference);

#endif
