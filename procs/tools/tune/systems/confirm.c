/* SPDX-License-Identifier: Apache-2.0 */
/* The measured run: decode with the model file, lossless, and with the store under the presets of
 * the systems that are stored. The fastest is recorded; the lossless engine unless a lossy one is 3
 * % faster, as in preset auto. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/json_file.h"
#include "procs/tools/tune/tune.h"

#define GAIN_MIN 1.03
#define ROUNDS   "3"

/* The median of variant i; 0: none. */
static double rate_of(const json_t *document, size_t i)
{
    const json_t *variant = json_array_get(json_object_get(document, "variants"), i);
    const json_t *test = json_array_get(json_object_get(variant, "tests"), 0);
    double rate = json_number_value(json_object_get(test, "tps_median"));
    return rate > 0 ? rate : 0;
}

static json_t *bench(const struct tune *t, const char *const argv[], struct error *error)
{
    char *out = NULL;
    int status = 0;
    if (run_program(t, "bench", argv, &out, &status, error) != 0)
        return NULL;
    json_t *document = status == 0 && out ? json_text(out, strlen(out), error) : NULL;
    free(out);
    if (!document)
        error_set(error, status == 2 ? ERR_BAD_INPUT : ERR_FAILED,
                  "the measured run failed (see its message above); nothing is recorded");
    return document;
}

/* The context of a later start with this model or store: its memory is not left for experts. */
static int context(struct tune *t, const char *model, char option[48], struct error *error)
{
    struct engine_facts facts;
    if (engine_ask(t, model, true, &facts, error) != 0)
        return -1;
    snprintf(option, 48, "--ctx-size=%llu", (unsigned long long)facts.context);
    return facts.context > 0
               ? 0
               : error_set(error, ERR_FAILED, "an engine with %.200s does not start", model);
}

static int lossless(struct tune *t, const char *budget, struct error *error)
{
    char ctx[48];
    if (context(t, t->model, ctx, error) != 0)
        return -1;
    const char *argv[] = {"-m",           t->model, "--budget", budget, "-p",   "0", "-n",
                          TUNE_CONFIRM_N, "-r",     ROUNDS,     "-o",   "json", ctx, NULL};
    json_t *document = bench(t, argv, error);
    if (!document)
        return -1;
    t->result.lossless_per_s = rate_of(document, 0);
    t->result.tokens_per_s = t->result.lossless_per_s;
    json_decref(document);
    return 0;
}

/* The candidates of stored systems. */
static uint32_t measured(const struct tune *t, const struct candidate *out[TUNE_CANDIDATES])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->candidates; i++)
        if (t->system[t->candidate[i].system].stored)
            out[n++] = &t->candidate[i];
    return n;
}

static void take(struct tune *t, const struct candidate *c, double rate)
{
    struct system *s = &t->system[c->system];
    fprintf(stderr, "sluice tune: %s: %.1f tokens/s\n", c->preset, rate);
    if (rate > s->tokens_per_s) {
        s->tokens_per_s = rate;
        snprintf(s->preset, sizeof s->preset, "%s", c->preset);
    }
    if (rate > GAIN_MIN * t->result.lossless_per_s && rate > t->result.tokens_per_s) {
        t->result.tokens_per_s = rate;
        t->result.loss_high = s->loss_high;
        snprintf(t->result.preset, sizeof t->result.preset, "%s", c->preset);
    }
}

static int lossy(struct tune *t, const char *budget, struct error *error)
{
    const struct candidate *candidate[TUNE_CANDIDATES];
    char loss[32], ctx[48], variant[TUNE_CANDIDATES][64];
    uint32_t n = measured(t, candidate);
    const char *argv[21 + 2 * TUNE_CANDIDATES] = {
        "-m", t->store, "--plan", t->plan,        "--max-loss", loss,   "--budget", budget,
        "-p", "0",      "-n",     TUNE_CONFIRM_N, "-r",         ROUNDS, "-o",       "json"};
    size_t at = 0;
    if (n == 0)
        return 0;
    if (context(t, t->store, ctx, error) != 0)
        return -1;
    while (argv[at])
        at++;
    argv[at++] = ctx;
    snprintf(loss, sizeof loss, "%.10g", t->max_loss);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(variant[i], sizeof variant[i], "preset=%s", candidate[i]->preset);
        argv[at++] = "--variant";
        argv[at++] = variant[i];
    }
    json_t *document = bench(t, argv, error);
    for (uint32_t i = 0; document && i < n; i++)
        take(t, candidate[i], rate_of(document, i));
    json_decref(document);
    return document ? 0 : -1;
}

int stage_confirm(struct tune *t, struct error *error)
{
    char budget[32];
    fprintf(stderr, "sluice tune: step 4 of 4: measured run, about %.1f minutes\n",
            t->left.confirm / 60);
    snprintf(budget, sizeof budget, "%llu", (unsigned long long)t->budget);
    snprintf(t->result.preset, sizeof t->result.preset, "default");
    if (lossless(t, budget, error) != 0 || lossy(t, budget, error) != 0)
        return -1;
    fprintf(stderr, "sluice tune: lossless: %.1f tokens/s; chosen: %s\n", t->result.lossless_per_s,
            t->result.preset);
    return model_unchanged(t, error);
}
