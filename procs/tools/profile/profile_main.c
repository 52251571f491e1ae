/* SPDX-License-Identifier: Apache-2.0 */
/* sluice profile: measures the properties of a model that plan, cache and predictor use.
 *
 * Stages, each saved when it is done: routing statistics (one pass over the text), norms, compute
 * and device timings, importance (many passes over a part of the text). An interrupted run is
 * resumed with the same model, text and file. Trust: model file, texts and an earlier profile are
 * untrusted; lib/model checks them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/inspected/inspected.h"
#include "lib/synthetic/token_stream.h"
#include "procs/clients/common/options.h"
#include "procs/tools/profile/profile.h"

#define PROGRESS_NS      (2 * NS_PER_S)
#define SYNTHETIC_TOKENS 4096
#define SYNTHETIC_SEED   1

static int take_text(void *program, const char *value, struct error *error)
{
    struct profile *p = program;
    if (p->texts == PROFILE_TEXTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "at most %d texts", PROFILE_TEXTS_MAX);
    p->text_path[p->texts++] = value;
    return 0;
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct profile, model_path),
     "GGUF file, or a directory made by pack"},
    {0, "text", "FILE", OPTION_CALL(take_text), "calibration text; repeatable"},
    {0, "synthetic", NULL, OPTION_FLAG(struct profile, synthetic),
     "instead of --text: tokens as in sluice bench, for files with "
     "random weights; no importance, default 4096 tokens"},
    {'o', NULL, "FILE", OPTION_TEXT(struct profile, out_path),
     "the profile (JSON; tables go to FILE.*.tables)"},
    {'c', "ctx-size", "N", OPTION_NUMBER(struct profile, window, 2, 65536),
     "tokens per window (default 512)"},
    {0, "tokens", "N", OPTION_NUMBER(struct profile, tokens_max, 1, INT64_MAX),
     "maximum number of tokens, spread over the text (default all)"},
    {0, "importance-tokens", "N", OPTION_NUMBER(struct profile, importance_tokens, 0, INT64_MAX),
     "tokens per measurement of importance (default 8192; 0: none)"},
    {0, "importance-experts", "N", OPTION_NUMBER(struct profile, importance_experts, 0, INT32_MAX),
     "experts measured alone, those of the most important groups "
     "first; the others by group (default: all)"},
    {0, "importance-group", "N", OPTION_NUMBER(struct profile, importance_group, 1, INT32_MAX),
     "neighbouring experts that are measured together first "
     "(default " OPTION_DIGITS(OFFLINE_IMPORTANCE_GROUP) ")"},
    {0, "importance-seconds", "N", OPTION_NUMBER(struct profile, importance_seconds, 1, INT32_MAX),
     "stop refining groups after this time (default: no limit)"},
    {0, "pair-mib", "N", OPTION_NUMBER(struct profile, pair_mib, 0, 65536),
     "memory for counting paths over two layers; the rarest "
     "are dropped when it is full (default 256)"},
    {0, "memory", "SIZE", OPTION_BYTES(struct profile, budget),
     "maximum memory of this program; experts are read as they are "
     "needed (default: the model is mapped if it fits with all its "
     "precisions, else most of the available memory)"},
    {0, "budget", "SIZE", OPTION_BYTES(struct profile, budget), "the same as --memory"},
    {0, "threads", "N", OPTION_NUMBER(struct profile, threads, 1, 64), "(default: all CPUs)"},
    {0, "output", "text|json", OPTION_JSON(struct profile, json),
     "format of the summary on stdout (default text)"},
};

static const struct option_table options = {
    .command = "profile",
    .before = "usage: sluice profile -m FILE --text FILE [--text FILE...] -o PROFILE [options]\n"
              "       sluice profile -m FILE --synthetic -o PROFILE [options]\n"
              "\n"
              "Measures a model on calibration text: routing, paths, recall of predictions,\n"
              "norms, importance of experts, timings. An interrupted run is resumed with the\n"
              "same arguments. Do not use the text on which results will be evaluated.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 29,
};

static int parse(struct profile *p, int argc, char **argv, struct error *error)
{
    if (options_read(&options, p, argc, argv, error) != 0)
        return -1;
    if (option_model(&p->model_path, argc, argv, "", error) != 0)
        return -1;
    if (!p->model_path || (!p->texts && !p->synthetic) || !p->out_path)
        return error_set(error, ERR_BAD_INPUT,
                         "use -m FILE, --text FILE (or --synthetic) and -o PROFILE");
    if (p->texts && p->synthetic)
        return error_set(error, ERR_BAD_INPUT, "--text and --synthetic cannot be combined");
    if (p->synthetic) {
        p->importance_tokens = 0;
        p->tokens_max = p->tokens_max ? p->tokens_max : SYNTHETIC_TOKENS;
    }
    return 0;
}

int profile_save(struct profile *p, struct error *error)
{
    if (offline_reserve(p->model, plan_write_bytes(p->plan), "the arrays of the profile", error) !=
        0)
        return -1;
    return plan_write(p->plan, p->out_path, error);
}

void profile_progress(struct profile *p, const char *what, const struct offline_progress *progress)
{
    char text[OFFLINE_TEXT_BYTES];
    uint64_t now = clock_now_ns();
    if (now - p->progress_ns < PROGRESS_NS && progress->done < progress->of)
        return;
    p->progress_ns = now;
    fprintf(stderr, "sluice profile: %s: %s\n", what, offline_progress_text(progress, text));
}

void profile_steps(struct profile *p, const char *what, uint64_t started_ns, uint64_t first,
                   uint64_t done, uint64_t of)
{
    double step_ns = (double)(clock_now_ns() - started_ns) / (double)(done - first);
    struct offline_progress progress = {.done = done,
                                        .of = of,
                                        .left_ns = (uint64_t)(step_ns * (double)(of - done)),
                                        .read_bytes = offline_read_bytes(p->model)};
    profile_progress(p, what, &progress);
}

void profile_announce(const struct profile *p, const char *what,
                      const struct offline_estimate *estimate)
{
    char text[OFFLINE_TEXT_BYTES];
    (void)p;
    fprintf(stderr, "sluice profile: %s: %s\n", what, offline_estimate_text(estimate, text));
}

/* Resumes the file of an earlier run with the same model and text; any other file is rejected, not
 * overwritten. */
static int resume(struct profile *p, struct error *error)
{
    if (access(p->out_path, F_OK) != 0)
        return 0;
    p->plan = plan_read(p->out_path, error);
    if (!p->plan)
        return -1;
    if (plan_matches(p->plan, offline_index(p->model), offline_hash(p->model), p->out_path, error))
        return -1;
    if (p->plan->text_hash != p->text.hash)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is a profile of another text or --ctx-size: remove it or use "
                         "another file",
                         p->out_path);
    fprintf(stderr, "sluice profile: resuming %s\n", p->out_path);
    return 0;
}

static int load_text(struct profile *p, struct error *error)
{
    const struct model_index *m = offline_index(p->model);
    uint32_t window = (uint32_t)p->window;
    if (!p->synthetic)
        return offline_text_load(m, p->text_path, p->texts, window, (uint64_t)p->tokens_max,
                                 &p->text, error);
    if (offline_text_alloc(m, (uint32_t)(p->tokens_max / p->window), window, &p->text, error) != 0)
        return -1;
    token_stream_fill(SYNTHETIC_SEED, TOKEN_STREAM_STAY, m->hparams.vocab, p->text.ids,
                      (size_t)p->text.windows * window);
    offline_text_rehash(&p->text);
    return 0;
}

static int start(struct profile *p, struct error *error)
{
    static const enum plan_array arrays[] = {PLAN_ARRAY_frequency,
                                             PLAN_ARRAY_norm,
                                             PLAN_ARRAY_importance,
                                             PLAN_ARRAY_importance_measured,
                                             PLAN_ARRAY_recall_gate,
                                             PLAN_ARRAY_recall_gate_list,
                                             PLAN_ARRAY_recall_attention,
                                             PLAN_ARRAY_recall_attention_list,
                                             PLAN_ARRAY_recall_attention_before,
                                             PLAN_ARRAY_recall_attention_before_list,
                                             PLAN_ARRAY_rank_share};
    uint64_t bits = 0;
    for (size_t i = 0; i < ARRAY_LEN(arrays); i++)
        bits |= plan_array_bit(arrays[i]);
    p->model = offline_open_within(p->model_path, inspected_index,
                                   p->budget ? p->budget : OFFLINE_MEMORY_DEFAULT, error);
    if (!p->model || offline_check_precisions(p->model, error) != 0 || load_text(p, error) != 0 ||
        resume(p, error) != 0)
        return -1;
    const struct model_hparams *hp = &offline_index(p->model)->hparams;
    struct plan *plan = p->plan ? plan_extended(p->plan, bits, p->plan->cells, error)
                                : plan_create(hp->layers, hp->experts, hp->experts_used,
                                              offline_hash(p->model), bits, 0, error);
    if (!plan)
        return -1;
    free(p->plan);
    p->plan = plan;
    p->plan->text_hash = p->text.hash;
    return 0;
}

static double mean_of(const float *x, uint32_t n)
{
    double sum = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(x[i])) {
            sum += (double)x[i];
            known++;
        }
    return known ? sum / known : 0;
}

/* A share in per cent; "-" where a layer has no such prediction: nothing precedes the first one. */
#define PERCENT_BYTES 16
#define PERCENT(x)    percent((x), (char[PERCENT_BYTES]){0})
static const char *percent(float share, char text[PERCENT_BYTES])
{
    if (isnan(share))
        return "-";
    snprintf(text, PERCENT_BYTES, "%.1f %%", 100 * (double)share);
    return text;
}

static void print_recall(const struct plan *plan)
{
    const float *const recall[] = {plan_recall_gate(plan),
                                   plan_recall_gate_list(plan),
                                   plan_recall_attention(plan),
                                   plan_recall_attention_list(plan),
                                   plan_recall_attention_before(plan),
                                   plan_recall_attention_before_list(plan)};
    printf("recall per layer (top-K, list): previous gate input | attention input | previous "
           "attention input\n");
    for (uint32_t l = 0; l < plan->layers; l++) {
        printf("  layer %2u", l);
        for (size_t i = 0; i < ARRAY_LEN(recall); i++)
            printf("%s%8s", i % 2 ? "" : "  ", PERCENT(recall[i][l]));
        printf("\n");
    }
}

/* Of the gate weights of a rank, the mean over all layers; NaN: an earlier profile has none. */
static double share_of_rank(const struct plan *plan, uint32_t rank)
{
    double sum = 0;
    uint32_t layers = 0;
    for (uint32_t l = 0; l < plan->layers; l++) {
        float share = plan_rank_share(plan)[(size_t)l * plan->experts_used + rank];
        sum += isnan(share) ? 0 : (double)share;
        layers += !isnan(share);
    }
    return layers > 0 ? sum / layers : (double)NAN;
}

static void print_shares(const struct plan *plan)
{
    printf("gate weights by rank:");
    for (uint32_t i = 0; i < plan->experts_used; i++)
        printf(" %s", PERCENT((float)share_of_rank(plan, i)));
    if (plan->experts_used > 1)
        printf("; the lower half of the ranks: %s", PERCENT((float)plan_tail_share(plan)));
    printf("\n");
}

static json_t *shares_json(const struct plan *plan)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < plan->experts_used; i++) {
        double share = share_of_rank(plan, i);
        json_array_append_new(out, isnan(share) ? json_null() : json_real(share));
    }
    return out;
}

/* null: it is unknown, or no number of JSON. */
static json_t *number_json(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static int print_json(const struct profile *p, uint64_t measured, uint64_t cells,
                      struct error *error)
{
    const struct plan *plan = p->plan;
    const double *scalar = plan->scalar;
    json_t *out = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o}", "profile", p->out_path,
        "tokens", number_json(scalar[PLAN_tokens]), "ppl", number_json(exp(scalar[PLAN_nats])),
        "token_ns", number_json(scalar[PLAN_token_ns]), "expert_read_ns",
        number_json(scalar[PLAN_expert_read_ns]), "read_bytes_per_s",
        number_json(scalar[PLAN_drive_bytes_per_s]), "recall",
        number_json(mean_of(plan_recall_gate(plan), plan->layers)), "recall_list",
        number_json(mean_of(plan_recall_gate_list(plan), plan->layers)), "importance_measured",
        (json_int_t)measured, "experts", (json_int_t)cells, "pair_cells", (json_int_t)plan->cells,
        "rank_shares", shares_json(plan));
    if (!out)
        return error_set(error, ERR_FAILED, "cannot make JSON of the summary");
    json_dumpf(out, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(out);
    return 0;
}

static int print_result(const struct profile *p, struct error *error)
{
    const struct plan *plan = p->plan;
    uint32_t layers = plan->layers;
    uint64_t measured = 0, all = (uint64_t)layers * plan->experts;
    uint64_t cells = profile_experts(p);
    for (uint64_t i = 0; i < all; i++)
        measured += profile_has(p, i) ? plan_importance_measured(plan)[i] : 0;
    if (p->json)
        return print_json(p, measured, cells, error);
    printf("%s: %.0f tokens, perplexity %.4f\n", p->out_path, plan->scalar[PLAN_tokens],
           exp(plan->scalar[PLAN_nats]));
    print_recall(plan);
    print_shares(plan);
    printf("importance: %llu of %llu experts measured individually, the others by group\n",
           (unsigned long long)measured, (unsigned long long)cells);
    printf("paths: %u pair cells (%.1f MiB)\n", plan->cells,
           (double)plan->cells * sizeof(struct plan_cell) / (double)MIB);
    printf("compute: %.0f us per token; per layer: attention %.1f us, router %.1f us, experts %.1f "
           "us\n",
           plan->scalar[PLAN_token_ns] / 1e3, plan->scalar[PLAN_layer_attention_ns] / 1e3,
           plan->scalar[PLAN_layer_router_ns] / 1e3, plan->scalar[PLAN_layer_experts_ns] / 1e3);
    printf("device: %.0f us per expert, %.0f MB/s at depth 8\n",
           plan->scalar[PLAN_expert_read_ns] / 1e3, plan->scalar[PLAN_drive_bytes_per_s] / 1e6);
    return 0;
}

static int run(struct profile *p, struct error *error)
{
    if (start(p, error) != 0 || profile_statistics(p, error) != 0)
        return -1;
    if (profile_norms(p, error) != 0 || profile_timings(p, error) != 0 ||
        profile_storage(p, error) != 0 || profile_save(p, error) != 0 ||
        profile_importance(p, error) != 0)
        return -1;
    return print_result(p, error);
}

int main(int argc, char **argv)
{
    struct profile p = {
        .window = 512, .importance_tokens = 8192, .importance_experts = -1, .pair_mib = 256};
    struct error error;
    log_init("profile", LOG_LEVEL_INFO);
    int status =
        parse(&p, argc, argv, &error) == 0 && run(&p, &error) == 0 ? 0 : report("profile", &error);
    free(p.plan);
    offline_text_free(&p.text);
    if (p.model)
        offline_close(p.model);
    return status;
}
