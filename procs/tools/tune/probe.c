/* SPDX-License-Identifier: Apache-2.0 */
/* Measures this machine with this model: two passes of different length over the text, the short
 * one in two halves of the layers, with all experts at int4 as in measurements of importance (as
 * they are in the model, if the measurements will read a store: its experts are smaller), and the
 * quantisation of an expert. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/inspected/inspected.h"
#include "lib/offline/measure/evaluate.h"
#include "procs/tools/tune/tune.h"

#define ENCODED   4  /* experts that are quantised for the rate */
#define LONG_PASS 4u /* times as many windows as the short one */

static int pass(struct offline_model *m, const struct offline_text *text,
                const struct offline_part *part, const uint8_t *precision, double *seconds,
                struct error *error)
{
    struct offline_evaluation e = {.model = m,
                                   .text = text,
                                   .part = part,
                                   .method = QUANT_METHOD_DEFAULT,
                                   .precision = precision};
    struct offline_losses losses;
    uint64_t begun = clock_now_ns();
    if (offline_evaluate(&e, &losses, error) != 0)
        return -1;
    offline_losses_free(&losses);
    *seconds = (double)(clock_now_ns() - begun) / NS_PER_S;
    return 0;
}

/* A pass in two parts. *late_s: of the second, which begins in the middle of the layers: the mean
 * of measurements that change one layer. */
static int halves(struct tune *t, struct offline_model *m, const struct offline_text *text,
                  const uint8_t *precision, double *seconds, double *late_s, struct error *error)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    struct offline_part part = {.end = hparams_expert_layer_at(hp, hparams_expert_layers(hp) / 2)};
    double early_s = 0;
    if (part.end == 0) { /* a single layer */
        int status = pass(m, text, NULL, precision, seconds, error);
        *late_s = *seconds;
        return status;
    }
    part.fd = offline_part_open(t->job_path, offline_part_bytes(m, text), error);
    if (part.fd < 0)
        return -1;
    int status = pass(m, text, &part, precision, &early_s, error);
    part.first = part.end;
    part.end = 0;
    if (status == 0)
        status = pass(m, text, &part, precision, late_s, error);
    close(part.fd);
    *seconds = early_s + *late_s;
    return status;
}

static int passes(struct tune *t, struct offline_model *m, const struct offline_text *text,
                  struct error *error)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    size_t cells = (size_t)hp->layers * hp->experts;
    uint8_t *precision = malloc(cells);
    double few_s = 0, many_s = 0, late_s = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct offline_text few = *text, many = *text;
    few.windows = cpus > 0 && cpus < 64 ? (uint32_t)cpus : 1;
    if (few.windows * LONG_PASS > text->windows)
        few.windows = text->windows / LONG_PASS;
    many.windows = few.windows * LONG_PASS;
    if (!precision)
        return error_set(error, ERR_NO_MEMORY, "out of memory (precisions)");
    memset(precision, t->job.forms ? PRECISION_NATIVE : PRECISION_INT4, cells);
    int status = halves(t, m, &few, precision, &few_s, &late_s, error);
    if (status == 0)
        status = pass(m, &many, NULL, precision, &many_s, error);
    free(precision);
    double all = (double)many.windows * text->window,
           more = all - (double)few.windows * text->window;
    t->job.token_s = many_s > few_s ? (many_s - few_s) / more : many_s / all;
    t->job.fixed_s = fmax(0, many_s - t->job.token_s * all);
    t->job.late = few_s > 0 ? late_s / few_s : 1;
    t->job.read_bytes_per_s = offline_read_rate(m);
    return status;
}

static int encoder(struct tune *t, struct offline_model *m, struct error *error)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    struct kernel_matrix matrices[EXPERT__COUNT];
    uint64_t bytes = 0, begun = clock_now_ns();
    for (uint32_t e = 0; e < ENCODED && e < hp->experts; e++) {
        uint32_t layer = hparams_next_experts(hp, 0);
        if (offline_hold(m, layer, e, PRECISION_INT2, QUANT_METHOD_DEFAULT, matrices, error) != 0)
            return -1;
        offline_release(m, layer, e, PRECISION_INT2, QUANT_METHOD_DEFAULT);
        bytes += offline_expert_bytes(m, layer, e, PRECISION_NATIVE, QUANT_METHOD_DEFAULT);
    }
    t->job.encode_bytes_per_s = (double)bytes * NS_PER_S / (double)(clock_now_ns() - begun + 1);
    return 0;
}

static void sizes(struct tune *t, const struct offline_model *m)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    uint32_t group = OFFLINE_IMPORTANCE_GROUP, layers = hparams_expert_layers(hp);
    for (uint32_t l = 0; l < hp->layers; l++)
        t->job.expert_bytes +=
            (double)offline_expert_bytes(m, l, 0, PRECISION_NATIVE, QUANT_METHOD_DEFAULT) *
            hp->experts;
    t->job.layer_experts = hp->experts;
    t->job.group = group;
    t->job.groups = (double)layers * ((hp->experts + group - 1) / group);
    t->job.importance_experts = (double)layers * hp->experts; /* until job_choose */
    forms_choose(t, m);
}

static int measure(struct tune *t, struct offline_model *m, struct error *error)
{
    struct offline_text text;
    const struct model_index *index = offline_index(m);
    if (index->hparams.experts == 0)
        return error_set(error, ERR_BAD_INPUT, "%.200s has no experts: nothing to tune", t->model);
    if (offline_text_load(index, t->text, t->texts, (uint32_t)t->window, (uint64_t)t->tokens, &text,
                          error) != 0)
        return -1;
    int status = 0;
    if (text.windows < TUNE_WINDOWS_MIN)
        status = error_set(error, ERR_BAD_INPUT,
                           "the calibration text is too short: %u windows of %lld tokens, at the "
                           "minimum %d are needed",
                           text.windows, (long long)t->window, TUNE_WINDOWS_MIN);
    if (status == 0 && !job_has_windows(t, (uint64_t)text.windows * text.window))
        status = error_set(error, ERR_BAD_INPUT,
                           "--ctx-size %lld is too large: a tuning uses 65536 tokens of text, and "
                           "plans on some windows and tests with others, of each text",
                           (long long)t->window);
    if (status == 0) {
        sizes(t, m);
        status = passes(t, m, &text, error);
    }
    if (status == 0)
        status = encoder(t, m, error);
    if (status == 0)
        job_choose(t, (uint64_t)text.windows * text.window);
    offline_text_free(&text);
    return status;
}

int probe_run(struct tune *t, struct error *error)
{
    fprintf(stderr, "sluice tune: measuring this machine with the model\n");
    struct offline_model *m = offline_open_within(t->model, inspected_index, t->memory, error);
    int status = m ? offline_check_precisions(m, error) : -1;
    if (status == 0)
        status = measure(t, m, error);
    if (m)
        offline_close(m);
    return status;
}
