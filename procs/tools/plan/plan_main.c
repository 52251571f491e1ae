/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: computes from a profile the parameters of the lossy presets: edgemoe's precisions,
 * hobbit's thresholds, fate's boundary and shares, swapmoe's virtual experts. Every decision is
 * measured on calibration text and stored with its expected loss. Trust: model file, profile and
 * texts are untrusted; lib/model checks them. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_error.h"
#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/inspected/inspected.h"
#include "procs/clients/common/options.h"
#include "procs/tools/plan/planning.h"

/* Default tokens of a text, of a synthetic stream. */
#define PLANNED_TOKENS 65536
#define FORCED_TOKENS  1024

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: sluice plan -m FILE --profile PROFILE --text FILE... --max-loss P -o PLAN\n"
        "                   [--budget B | --resident-experts PCT%%] [--preset S] [options]\n"
        "       sluice plan -m FILE --preset S --shares PRECISION=SHARE,... -o PLAN\n"
        "                   [--profile PROFILE]\n"
        "       sluice plan -m FILE --profile PLAN --preset auto [--text FILE...] -o PLAN\n"
        "\n"
        "Plans the lossy presets for a model and reports the expected loss of each. What was\n"
        "measured is kept in PLAN.measured: an interrupted run continues with the same command.\n"
        "\n"
        "  -m, --model FILE         GGUF file, or a directory made by pack\n"
        "      --profile FILE       of sluice profile, for this model, or an earlier plan\n"
        "      --text FILE          calibration text of one domain; repeatable\n"
        "      --max-loss P         allowed increase of perplexity, such as 1%%: of the bound on\n"
        "                           held-out text\n"
        "      --budget BYTES       budget of the engine (swapmoe; the shares of fate's layers)\n"
        "      --resident-experts PCT%%  instead of --budget: resident share of the expert bytes\n"
        "      --preset S           edgemoe|hobbit|fate|swapmoe|auto|all (default all)\n"
        "  -o FILE                  the plan: the profile extended by the decisions\n"
        "      --method METHOD      quantisation of int4 and int2: channel (default) or hqq; the\n"
        "                           store must have the same (sluice pack --method)\n"
        "      --dense PRECISION    of attention, embeddings and shared experts: native, int8 or\n"
        "                           int4, or auto (default): edgemoe searches it together with\n"
        "                           the experts' precisions, the other presets use its choice;\n"
        "                           the store must have the same (sluice pack --dense)\n"
        "      --kv-type TYPE       KV cache of what is measured: f16 (default), q8_0 or q4_0; "
        "the\n"
        "                           losses hold for it and for more bits\n"
        "      --tokens N           tokens used, the same number of each file (default 65536):\n"
        "                           half to plan with, half to judge the plan\n"
        "  -c, --ctx-size N         tokens per window (default 512)\n"
        "      --configurations N   swapmoe: random shares to measure (default 40)\n"
        "      --generations N      swapmoe: generations of the genetic search (default 5000)\n"
        "      --gpu-slots N        auto: the engine computes on a GPU with slots for N of the\n"
        "                           largest experts (gpu.slots of sluice stats --json)\n"
        "      --gpu-budget BYTES|PCT%%  the same, as memory of the GPU for experts\n"
        "                           (gpu.plan.experts; for several precisions)\n"
        "      --gpu-bandwidth BYTES/s  of copies to it (default 12GB/s)\n"
        "      --gpu-policy P       gpu-centric (default), cooperative or prefetch\n"
        "      --gpu-eviction E     which expert loses its slot there (default lru)\n"
        "      --gpu-expert-us US   an expert on it, one token (default: its bytes at 400 GB/s);\n"
        "                           the rest of a layer is faster by the same factor\n"
        "      --curve              hobbit: also compare replace and skip, 5 to 30 %% of the "
        "accesses\n"
        "      --curve-only         hobbit: only this comparison, without a plan\n"
        "      --shares LIST        for random weights, whose loss is meaningless: shares of\n"
        "                           native|int8|int4|int2|skip, such as int4=0.8,int2=0.2.\n"
        "                           edgemoe: random precisions; hobbit: thresholds for a\n"
        "                           synthetic token stream; fate: the fraction in prefill;\n"
        "                           uniform: one precision. --max-loss: the loss to store\n"
        "      --seed N             of random precisions and streams (default 1)\n"
        "      --trace FILE         hobbit: fit eviction to this trace, not to the text's routing\n"
        "      --eviction-only      hobbit: keep the thresholds of the profile, fit eviction\n"
        "      --memory BYTES       maximum memory of this program; experts are read as they are\n"
        "                           needed (default: the model is mapped if it fits with all its\n"
        "                           precisions, else most of the available memory)\n"
        "      --threads N          (default: all CPUs)\n"
        "      --output text|json   format on stdout (default text)\n");
}

enum {
    OPT_PROFILE = 256,
    OPT_TEXT,
    OPT_LOSS,
    OPT_BUDGET,
    OPT_MEMORY,
    OPT_EXPERTS,
    OPT_PRESET,
    OPT_TOKENS,
    OPT_CONFIGURATIONS,
    OPT_GENERATIONS,
    OPT_CURVE,
    OPT_CURVE_ONLY,
    OPT_SHARES,
    OPT_SEED,
    OPT_TRACE,
    OPT_EVICTION,
    OPT_METHOD,
    OPT_DENSE,
    OPT_KV,
    OPT_THREADS,
    OPT_OUTPUT,
    OPT_GPU /* the first of enum sim_gpu_option */
};

static const struct option options[] = {{"model", 1, NULL, 'm'},
                                        {"profile", 1, NULL, OPT_PROFILE},
                                        {"text", 1, NULL, OPT_TEXT},
                                        {"max-loss", 1, NULL, OPT_LOSS},
                                        {"budget", 1, NULL, OPT_BUDGET},
                                        {"memory", 1, NULL, OPT_MEMORY},
                                        {"resident-experts", 1, NULL, OPT_EXPERTS},
                                        {"preset", 1, NULL, OPT_PRESET},
                                        {"tokens", 1, NULL, OPT_TOKENS},
                                        {"ctx-size", 1, NULL, 'c'},
                                        {"configurations", 1, NULL, OPT_CONFIGURATIONS},
                                        {"generations", 1, NULL, OPT_GENERATIONS},
                                        {"curve", 0, NULL, OPT_CURVE},
                                        {"curve-only", 0, NULL, OPT_CURVE_ONLY},
                                        {"shares", 1, NULL, OPT_SHARES},
                                        {"seed", 1, NULL, OPT_SEED},
                                        {"trace", 1, NULL, OPT_TRACE},
                                        {"method", 1, NULL, OPT_METHOD},
                                        {"dense", 1, NULL, OPT_DENSE},
                                        {"kv-type", 1, NULL, OPT_KV},
                                        {"eviction-only", 0, NULL, OPT_EVICTION},
                                        {"threads", 1, NULL, OPT_THREADS},
                                        {"output", 1, NULL, OPT_OUTPUT},
                                        {"gpu-slots", 1, NULL, OPT_GPU + SIM_GPU_SLOTS},
                                        {"gpu-budget", 1, NULL, OPT_GPU + SIM_GPU_BUDGET},
                                        {"gpu-bandwidth", 1, NULL, OPT_GPU + SIM_GPU_BANDWIDTH},
                                        {"gpu-policy", 1, NULL, OPT_GPU + SIM_GPU_POLICY},
                                        {"gpu-eviction", 1, NULL, OPT_GPU + SIM_GPU_EVICTION},
                                        {"gpu-expert-us", 1, NULL, OPT_GPU + SIM_GPU_EXPERT_US},
                                        {"help", 0, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

/* The presets, in planning order, and how much they measure at most: half of the text, a quarter of that. swapmoe: in
 * addition to its random shares. */
static const struct {
    const char *name;
    int (*plan)(struct planning *p, struct error *error);
    bool needs_budget;
    uint32_t whole, some;
} presets[] = {
    {"edgemoe", plan_edgemoe, false, 170, 0},
    {"hobbit", plan_hobbit, false, 115, 0},
    {"fate", plan_fate, false, 37, 0},
    {"swapmoe", plan_swapmoe, true, 5, 14},
    {"auto", plan_auto, false, 0, 0}}; /* last: it predicts the speed of the other plans */
#define SWAPMOE 3

static int percent(const char *what, const char *value, double *out, struct error *error)
{
    if (percent_parse(value, out))
        return 0;
    return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a percentage from 0 to 100", what,
                     value);
}

static int choice_option(struct planning *p, int option, const char *value, struct error *error)
{
    if (option == OPT_OUTPUT) {
        p->json = strcmp(value, "json") == 0;
        if (p->json || strcmp(value, "text") == 0)
            return 0;
        return error_set(error, ERR_BAD_INPUT, "--output: '%.80s' is not one of text|json", value);
    }
    p->preset = value;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        if (strcmp(value, presets[i].name) == 0)
            return 0;
    if (strcmp(value, "all") == 0 || strcmp(value, "uniform") == 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "--preset: '%.40s' is not one of edgemoe|hobbit|fate|swapmoe|auto|all", value);
}

static int kv_option(struct planning *p, const char *value, struct error *error)
{
    p->kv_type = kv_type_find(value);
    if (p->kv_type < KV_TYPE__COUNT && p->kv_type != KV_TYPE_F32) /* no engine has f32 */
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--kv-type: '%.80s' is not one of f16|q8_0|q4_0", value);
}

static int one_option(struct planning *p, int option, const char *value, struct error *error)
{
    double share;
    if (option >= OPT_GPU && option < OPT_GPU + SIM_GPU__COUNT)
        return sim_gpu_option(&p->gpu, (enum sim_gpu_option)(option - OPT_GPU), value, error);
    switch (option) {
    case 'm': p->model_path = value; return 0;
    case 'o': p->out_path = value; return 0;
    case OPT_PROFILE: p->profile_path = value; return 0;
    case OPT_TEXT:
        if (p->texts == PLANNING_TEXTS_MAX)
            return error_set(error, ERR_BAD_INPUT, "at most %d texts", PLANNING_TEXTS_MAX);
        p->text_path[p->texts++] = value;
        return 0;
    case OPT_LOSS:
        if (percent("--max-loss", value, &share, error) != 0)
            return -1;
        p->max_loss = share / 100;
        return 0;
    case OPT_EXPERTS: return percent("--resident-experts", value, &p->experts_percent, error);
    case OPT_BUDGET: return option_bytes("--budget", value, &p->budget_bytes, error);
    case OPT_MEMORY: return option_bytes("--memory", value, &p->memory, error);
    case OPT_TOKENS: return option_i64("--tokens", value, 1, INT64_MAX, &p->tokens_max, error);
    case 'c': return option_i64("--ctx-size", value, 2, 65536, &p->window, error);
    case OPT_CONFIGURATIONS:
        return option_i64("--configurations", value, 8, 10000, &p->configurations, error);
    case OPT_GENERATIONS:
        return option_i64("--generations", value, 1, 1000000, &p->generations, error);
    case OPT_THREADS: return option_i64("--threads", value, 1, 64, &p->threads, error);
    case OPT_SEED: return option_i64("--seed", value, 0, INT64_MAX, &p->seed, error);
    case OPT_SHARES: p->forced = true; return shares_parse(&p->shares, value, error);
    case OPT_METHOD: return quant_method_option("--method", value, &p->method, error);
    case OPT_DENSE:
        return precision_dense_option("--dense", value, &p->dense, &p->dense_given, error);
    case OPT_KV: return kv_option(p, value, error);
    case OPT_CURVE: p->curve = true; return 0;
    case OPT_CURVE_ONLY: p->curve_only = true; return 0;
    case OPT_TRACE: p->trace_path = value; return 0;
    case OPT_EVICTION: p->eviction_only = true; return 0;
    case OPT_PRESET:
    case OPT_OUTPUT: return choice_option(p, option, value, error);
    case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
    default: sl_panic("option %d of the table is not handled", option);
    }
}

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
    int option;
    while ((option = getopt_long(argc, argv, ":m:o:c:h", options, NULL)) != -1)
        if ((option == '?' || option == ':'
                 ? option_error("plan", option, argv, options, false, NULL, error)
                 : one_option(p, option, optarg, error)) != 0)
            return -1;
    if (option_model(&p->model_path, argc, argv, "", error) != 0)
        return -1;
    if (check_gpu(p, error) != 0)
        return -1;
    p->plain = p->forced || strcmp(p->preset, "auto") == 0;
    if (p->plain && (!p->model_path || !p->out_path))
        return error_set(error, ERR_BAD_INPUT, "use -m FILE, --preset S and -o PLAN");
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

static int run(struct planning *p, struct error *error)
{
    if ((p->plain ? planning_start_plain(p, error) : start(p, error)) != 0)
        return -1;
    bool all = strcmp(p->preset, "all") == 0,
         has_budget = p->budget_bytes || p->experts_percent > 0;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (!all && strcmp(p->preset, presets[i].name) != 0)
            continue;
        if (all && presets[i].needs_budget && !has_budget)
            continue; /* these presets need a budget */
        struct error why;
        uint32_t random = i == SWAPMOE ? (uint32_t)p->configurations : 0;
        planning_begin(p, presets[i].name, p->plain ? 0 : presets[i].whole,
                       p->plain ? 0 : presets[i].some + random);
        if (presets[i].plan(p, &why) != 0) {
            if (!all || (why.code != ERR_BAD_INPUT && why.code != ERR_NO_PLAN))
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
    free(p.plan);
    measured_close(p.measured);
    if (p.model)
        offline_close(p.model);
    return status;
}
