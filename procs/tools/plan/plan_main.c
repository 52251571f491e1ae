/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: computes from a profile the parameters of the lossy presets: edgemoe's precisions,
 * hobbit's thresholds, fate's boundary and shares, swapmoe's virtual experts. Every decision is
 * measured on calibration text and stored with its expected loss. Trust: model file, profile and
 * texts are untrusted; lib/model checks them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/inspected/inspected.h"
#include "procs/clients/common/options.h"
#include "procs/tools/plan/planning.h"

/* Default tokens of a text, of a synthetic stream. */
#define PLANNED_TOKENS 65536
#define FORCED_TOKENS  1024

/* The presets, in planning order, and how much they measure at most: half of the text, a quarter of
 * that. swapmoe: in addition to its random shares. */
static const struct {
    const char *name;
    int (*plan)(struct planning *p, struct error *error);
    enum { WITH_ALL, WITH_A_BUDGET, IF_NAMED } when;
    uint32_t whole, some;
} presets[] = {
    {"edgemoe", plan_edgemoe, WITH_ALL, 170, 0},
    {"hobbit", plan_hobbit, WITH_ALL, 115, 0},
    {"mixed-two", plan_mixed, WITH_ALL, 130, 0},
    {"fate", plan_fate, WITH_ALL, 37, 0},
    {"swapmoe", plan_swapmoe, WITH_A_BUDGET, 5, 14},
    {"resident-first", plan_resident_first, IF_NAMED, 24, 12}, /* decodes token by token: slow */
    {"drop", plan_drop, IF_NAMED, 36, 12},
    {"mixed-two-resident-first", plan_joint, IF_NAMED, 32, 72},
    {"auto", plan_auto, WITH_ALL, 0, 0}}; /* last: it predicts the speed of the other plans */
#define SWAPMOE 4

static int percent(const char *what, const char *value, double *out, struct error *error)
{
    if (percent_parse(value, out))
        return 0;
    return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a percentage from 0 to 100", what,
                     value);
}

static int take_text(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    if (p->texts == PLANNING_TEXTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "at most %d texts", PLANNING_TEXTS_MAX);
    p->text_path[p->texts++] = value;
    return 0;
}

static int take_domain(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    if (p->domains == PLANNING_TEXTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "at most %d domains", PLANNING_TEXTS_MAX);
    p->domain[p->domains++] = value;
    return 0;
}

static int take_loss(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    double share;
    if (percent("--max-loss", value, &share, error) != 0)
        return -1;
    p->max_loss = share / 100;
    return 0;
}

static int take_experts(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    return percent("--resident-experts", value, &p->experts_percent, error);
}

static int take_preset(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    p->preset = value;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        if (strcmp(value, presets[i].name) == 0)
            return 0;
    if (strcmp(value, "all") == 0 || strcmp(value, "uniform") == 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "--preset: '%.40s' is not one of "
                     "edgemoe|hobbit|mixed-two|fate|swapmoe|resident-first|drop|"
                     "mixed-two-resident-first|auto|all",
                     value);
}

static int take_thresholds(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    p->at_capacity = strcmp(value, "capacity") == 0;
    if (p->at_capacity || strcmp(value, "misses") == 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--thresholds: '%.40s' is not one of misses|capacity",
                     value);
}

static int take_method(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    return quant_method_option("--method", value, &p->method, error);
}

static int take_dense(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    return precision_dense_option("--dense", value, &p->dense, &p->dense_given, error);
}

static int take_kv(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    p->kv_type = kv_type_find(value);
    if (p->kv_type < KV_TYPE__COUNT && p->kv_type != KV_TYPE_F32) /* no engine has f32 */
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--kv-type: '%.80s' is not one of f16|q8_0|q4_0", value);
}

static int take_shares(void *program, const char *value, struct error *error)
{
    struct planning *p = program;
    p->forced = true;
    return shares_parse(&p->shares, value, error);
}

static int take_gpu(void *program, int n, const char *value, struct error *error)
{
    struct planning *p = program;
    return sim_gpu_option(&p->gpu, (enum sim_gpu_option)n, value, error);
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct planning, model_path),
     "GGUF file, or a directory made by pack"},
    {0, "profile", "FILE", OPTION_TEXT(struct planning, profile_path),
     "of sluice profile, for this model, or an earlier plan"},
    {0, "text", "FILE", OPTION_CALL(take_text), "calibration text of one domain; repeatable"},
    {0, "domain", "NAME", OPTION_CALL(take_domain),
     "keep --max-loss on the --text of this name only (with or without its suffix; repeatable); "
     "the "
     "others are reported. Default: all that the model can read"},
    {0, "max-loss", "P", OPTION_CALL(take_loss),
     "allowed increase of perplexity, such as 1%: of the bound on "
     "held-out text"},
    {0, "budget", "SIZE", OPTION_BYTES(struct planning, budget_bytes),
     "budget of the engine (swapmoe; the shares of fate's layers)"},
    {0, "resident-experts", "PCT%", OPTION_CALL(take_experts),
     "instead of --budget: resident share of the expert bytes"},
    {0, "preset", "S", OPTION_CALL(take_preset),
     "edgemoe|hobbit|mixed-two|fate|swapmoe|auto|all (default all), or resident-first, drop or "
     "mixed-two-resident-first, which all leaves out: they decode the text token by token"},
    {'o', NULL, "FILE", OPTION_TEXT(struct planning, out_path),
     "the plan: the profile extended by the decisions"},
    {0, "method", "METHOD", OPTION_CALL(take_method),
     "quantisation of int4 and int2: channel (default) or hqq; the "
     "store must have the same (sluice pack --method)"},
    {0, "dense", "PRECISION", OPTION_CALL(take_dense),
     "of attention, embeddings and shared experts: native, int8 or "
     "int4, or auto (default): edgemoe searches it together with "
     "the experts' precisions, the other presets use its choice; "
     "the store must have the same (sluice pack --dense)"},
    {0, "kv-type", "TYPE", OPTION_CALL(take_kv),
     "KV cache of what is measured: f16 (default), q8_0 or q4_0; the "
     "losses hold for it and for more bits"},
    {0, "tokens", "N", OPTION_NUMBER(struct planning, tokens_max, 1, INT64_MAX),
     "tokens used, the same number of each file (default 65536): "
     "half to plan with, half to judge the plan"},
    {'c', "ctx-size", "N", OPTION_NUMBER(struct planning, window, 2, 65536),
     "tokens per window (default 512)"},
    {0, "configurations", "N", OPTION_NUMBER(struct planning, configurations, 8, 10000),
     "swapmoe: random shares to measure (default 40)"},
    {0, "generations", "N", OPTION_NUMBER(struct planning, generations, 1, 1000000),
     "swapmoe: generations of the genetic search (default 5000)"},
    {0, "gpu-slots", "N", OPTION_NTH(take_gpu, SIM_GPU_SLOTS),
     "auto: the engine computes on a GPU with slots for N of the "
     "largest experts (gpu.slots of sluice stats --json)"},
    {0, "gpu-budget", "SIZE|PCT%", OPTION_NTH(take_gpu, SIM_GPU_BUDGET),
     "the same, as memory of the GPU for experts "
     "(gpu.plan.experts; for several precisions)"},
    {0, "gpu-bandwidth", "BYTES/s", OPTION_NTH(take_gpu, SIM_GPU_BANDWIDTH),
     "of copies to it (default 12GB/s)"},
    {0, "gpu-policy", "P", OPTION_NTH(take_gpu, SIM_GPU_POLICY),
     "gpu-centric (default), cooperative or prefetch"},
    {0, "gpu-eviction", "E", OPTION_NTH(take_gpu, SIM_GPU_EVICTION),
     "which expert loses its slot there (default lru)"},
    {0, "gpu-expert-us", "US", OPTION_NTH(take_gpu, SIM_GPU_EXPERT_US),
     "an expert on it, one token (default: its bytes at 400 GB/s); "
     "the rest of a layer is faster by the same factor"},
    {0, "thresholds", "misses|capacity", OPTION_CALL(take_thresholds),
     "hobbit, mixed-two: the loss if every access misses (default), or with the share of the "
     "experts resident that --budget or --resident-experts gives, without prefetch: lower "
     "precisions, and a loss that holds for at least that share. mixed-two-resident-first: of "
     "12.5, 25 and 50 % resident (default), or of that share and the larger ones"},
    {0, "curve", NULL, OPTION_FLAG(struct planning, curve),
     "hobbit: also compare replace and skip, 5 to 30 % of the accesses"},
    {0, "curve-only", NULL, OPTION_FLAG(struct planning, curve_only),
     "hobbit: only this comparison, without a plan"},
    {0, "shares", "LIST", OPTION_CALL(take_shares),
     "for random weights, whose loss is meaningless: shares of "
     "native|int8|int4|int2|skip, such as int4=0.8,int2=0.2. "
     "edgemoe: random precisions; hobbit: thresholds for a "
     "synthetic token stream; fate: the fraction in prefill; "
     "uniform: one precision. --max-loss: the loss to store"},
    {0, "seed", "N", OPTION_NUMBER(struct planning, seed, 0, INT64_MAX),
     "of random precisions and streams (default 1)"},
    {0, "trace", "FILE", OPTION_TEXT(struct planning, trace_path),
     "hobbit: fit eviction to this trace, not to the text's routing"},
    {0, "eviction-only", NULL, OPTION_FLAG(struct planning, eviction_only),
     "hobbit: keep the thresholds of the profile, fit eviction"},
    {0, "memory", "SIZE", OPTION_BYTES(struct planning, memory),
     "maximum memory of this program; experts are read as they are "
     "needed (default: the model is mapped if it fits with all its "
     "precisions, else most of the available memory)"},
    {0, "threads", "N", OPTION_NUMBER(struct planning, threads, 1, 64), "(default: all CPUs)"},
    {0, "output", "text|json", OPTION_JSON(struct planning, json),
     "format on stdout (default text)"},
};

static const struct option_table options = {
    .command = "plan",
    .before = "usage: sluice plan -m FILE --profile PROFILE --text FILE... --max-loss P -o PLAN\n"
              "                   [--budget B | --resident-experts PCT%] [--preset S] [options]\n"
              "       sluice plan -m FILE --preset S --shares PRECISION=SHARE,... -o PLAN\n"
              "                   [--profile PROFILE]\n"
              "       sluice plan -m FILE --profile PLAN --preset auto [--text FILE...] -o PLAN\n"
              "\n"
              "Plans the lossy presets for a model and reports the expected loss of each. What\n"
              "was measured is kept in PLAN.measured: an interrupted run continues with the\n"
              "same command.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 27,
};

/* Only auto depends on times. */
static int check_gpu(const struct planning *p, struct error *error)
{
    bool automatic =
        !p->forced && (strcmp(p->preset, "auto") == 0 || strcmp(p->preset, "all") == 0);
    for (int i = 0; i < SIM_GPU__COUNT; i++)
        if (p->gpu.given[i] && !automatic)
            return error_set(error, ERR_BAD_INPUT,
                             "options --gpu-*: only the preset auto depends on the GPU");
    return sim_gpu_options_check(&p->gpu, error);
}

static int parse(struct planning *p, int argc, char **argv, struct error *error)
{
    if (options_read(&options, p, argc, argv, error) != 0)
        return -1;
    if (option_model(&p->model_path, argc, argv, "", error) != 0)
        return -1;
    if (check_gpu(p, error) != 0)
        return -1;
    p->plain = p->forced || strcmp(p->preset, "auto") == 0;
    if (p->plain && (!p->model_path || !p->out_path))
        return error_set(error, ERR_BAD_INPUT, "use -m FILE, --preset S and -o PLAN");
    if (p->plain && p->domains > 0)
        return error_set(error, ERR_BAD_INPUT,
                         "--domain: %s measures no loss that could be kept on a text",
                         p->forced ? "a plan with --shares" : "--preset auto");
    if (p->plain) {
        p->tokens_max = p->tokens_max ? p->tokens_max : FORCED_TOKENS;
        return 0;
    }
    if (strcmp(p->preset, "uniform") == 0)
        return error_set(error, ERR_BAD_INPUT, "--preset uniform needs --shares");
    p->tokens_max = p->tokens_max ? p->tokens_max : PLANNED_TOKENS;
    if (!p->model_path || !p->profile_path || !p->texts || !p->out_path || p->max_loss <= 0)
        return error_set(error, ERR_BAD_INPUT,
                         "use -m FILE, --profile PROFILE, --text FILE, --max-loss P and -o PLAN");
    return 0;
}

/* ---- run ---- */

static int start(struct planning *p, struct error *error)
{
    p->measured = measured_open(p->out_path, error); /* before the profile: it may be the plan */
    if (!p->measured || planning_open(p, error) != 0)
        return -1;
    p->plan = plan_read(p->profile_path, error);
    if (!p->plan || plan_matches(p->plan, offline_index(p->model), offline_hash(p->model),
                                 p->profile_path, error) != 0)
        return -1;
    if (!plan_has(p->plan, PLAN_ARRAY_frequency) || !plan_has(p->plan, PLAN_ARRAY_norm) ||
        !plan_knows(p->plan, PLAN_tokens))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is an incomplete profile; run sluice profile again",
                         p->profile_path);
    if (planning_divide_text(p, error) != 0)
        return -1;
    planning_take_dense(p);
    p->native_bytes = serving_bytes(p->model, NULL, p->method);
    p->plan->scalar[PLAN_experts_bytes] = (double)p->native_bytes;
    if (planning_measure_native(p, error) != 0)
        return -1;
    planning_note(p, "lossless perplexity %.4f over %llu tokens of calibration text",
                  offline_perplexity(&p->native),
                  (unsigned long long)p->native.windows * p->native.scored);
    p->plan->scalar[PLAN_max_loss] = p->max_loss;
    if (p->budget_bytes)
        p->plan->scalar[PLAN_budget_bytes] = (double)p->budget_bytes;
    return 0;
}

static bool is_of_all(size_t preset, bool has_budget)
{
    return presets[preset].when == WITH_ALL ||
           (presets[preset].when == WITH_A_BUDGET && has_budget);
}

/* It is about this preset: the others can be planned. */
static bool is_of_one(enum error_code code)
{
    return code == ERR_BAD_INPUT || code == ERR_NO_PLAN || code == ERR_BUDGET_TOO_SMALL;
}

static int run(struct planning *p, struct error *error)
{
    if ((p->plain ? planning_start_plain(p, error) : start(p, error)) != 0)
        return -1;
    bool all = strcmp(p->preset, "all") == 0,
         has_budget = p->budget_bytes || p->experts_percent > 0;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (!all && strcmp(p->preset, presets[i].name) != 0)
            continue;
        if (all && !is_of_all(i, has_budget))
            continue;
        struct error why;
        uint32_t random = i == SWAPMOE ? (uint32_t)p->configurations : 0;
        planning_begin(p, presets[i].name, p->plain ? 0 : presets[i].whole,
                       p->plain ? 0 : presets[i].some + random);
        if (presets[i].plan(p, &why) != 0) {
            if (!all || !is_of_one(why.code))
                return error_set(error, why.code, "%s", why.text);
            planning_note(p, "%s: not planned: %s", presets[i].name, why.text);
        }
        if (planning_write(p, error) != 0)
            return -1;
    }
    return 0;
}

static void print_report(const struct planning *p)
{
    if (!p->json)
        return;
    json_dumpf(p->report, stdout, JSON_INDENT(2));
    printf("\n");
}

int main(int argc, char **argv)
{
    struct planning p = {.preset = "all",
                         .method = QUANT_METHOD_DEFAULT,
                         .window = 512,
                         .seed = 1,
                         .configurations = 40,
                         .generations = 5000};
    struct error error;
    log_init("plan", LOG_LEVEL_INFO);
    p.report = json_object();
    int status = parse(&p, argc, argv, &error);
    if (status == 0)
        status = p.forced ? plan_forced(&p, &error) : run(&p, &error);
    if (status == 0)
        print_report(&p);
    else
        status = report("plan", &error);
    json_decref(p.report);
    offline_losses_free(&p.native);
    offline_losses_free(&p.native_some);
    offline_losses_free(&p.native_held);
    offline_text_free(&p.text);
    offline_text_free(&p.some);
    offline_text_free(&p.held);
    offline_text_free(&p.other);
    free(p.plan);
    measured_close(p.measured);
    if (p.model)
        offline_close(p.model);
    return status;
}
