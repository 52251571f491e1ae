/* SPDX-License-Identifier: Apache-2.0 */
/* sluice sim: replays a recorded or synthetic trace under many presets, budgets and storage
 * devices.
 *
 * Reads a trace file (untrusted, checked by lib/trace); needs no engine and no model. The first
 * part of the trace is used for learning (frequencies, paths) and cache warm-up; results cover the
 * rest. They depend only on trace, options and seed: no clock is read. */
#include <errno.h>
#include <getopt.h> /* optind */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "config/params.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/policy/presets/planned.h"
#include "lib/sim/options.h"
#include "lib/tensor/precision.h"
#include "procs/tools/sim/sim_program.h"

#define DEFAULT_PRESETS          "lod-nocache,lod,default,eap,edgemoe,hobbit,fate,layerwise"
#define DEFAULT_BUDGETS          "12.5%,18.75%,25%,37.5%,50%,75%"
#define TOGETHER_PRESETS         "default" /* with --parallel */
#define TOGETHER_BUDGETS         "25%,50%,100%"
#define DEFAULT_BANDWIDTHS       "1GB/s"
#define NAME_AND_COMMA(id, name) name ","
#define ALL_EVICTIONS            EVICTION_LIST(NAME_AND_COMMA) "belady"

_Static_assert(SIM_DEFAULT_DEPTH == PARAMS_QUEUE_DEPTH,
               "simulated devices have the engine's depth");

struct program {
    const char *synthetic, *presets, *evictions, *policy, *budgets, *bandwidths;
    const char *output, *pivot, *svg_path, *write_path, *plan_path, *precisions;
    double calibrate, latency_us, layer_us, expert_us, predict_us, batch; /* < 0: not given */
    uint64_t depth;
    struct sim_gpu_options gpu;
    struct traces traces;
    struct trace trace; /* that is replayed now */
    struct grid grid;
    struct path_tables tables;
    void *tables_block;
    struct plan *plan;
    float *frequency, *shares; /* of the plan; unknown values are 0 */
    uint64_t measure;
};

static int one_of(const char *what, const char *text, const char *choices, const char **value,
                  struct error *error)
{
    size_t n = strchr(text, '|') ? 0 : strlen(text);
    for (const char *at = choices; n > 0 && at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, text, n) == 0 && (at[n] == 0 || at[n] == '|')) {
            *value = text;
            return 0;
        }
    }
    return error_set(error, ERR_BAD_INPUT, "--%s: '%.60s' is not one of %s", what, text, choices);
}

static int take_output(void *program, const char *value, struct error *error)
{
    struct program *p = program;
    return one_of("output", value, "text|md|csv|json", &p->output, error);
}

static int take_pivot(void *program, const char *value, struct error *error)
{
    struct program *p = program;
    return one_of("pivot", value, "hits|time|penalty", &p->pivot, error);
}

static int take_evictions(void *program, const char *value, struct error *error)
{
    struct program *p = program;
    (void)error;
    p->evictions = strcmp(value, "all") == 0 ? ALL_EVICTIONS : value;
    return 0;
}

enum { TRACES_PARALLEL, TRACES_GAP };

static int take_together(void *program, int n, const char *value, struct error *error)
{
    struct traces *t = &((struct program *)program)->traces;
    return n == TRACES_GAP ? traces_gap(t, value, error) : traces_parallel(t, value, error);
}

static int take_depth(void *program, const char *value, struct error *error)
{
    struct program *p = program;
    double depth = 0;
    if (sim_option_number("queue-depth", value, 1, 1024, &depth, error) != 0)
        return -1;
    p->depth = (uint64_t)depth;
    return 0;
}

enum {
    NUMBER_LATENCY,
    NUMBER_LAYER,
    NUMBER_EXPERT,
    NUMBER_PREDICT,
    NUMBER_BATCH,
    NUMBER_CALIBRATE
};

static int take_number(void *program, int n, const char *value, struct error *error)
{
    struct program *p = program;
    const struct {
        const char *name;
        double max, *out;
    } numbers[] = {
        [NUMBER_LATENCY] = {"latency", 1e9, &p->latency_us},
        [NUMBER_LAYER] = {"layer-us", 1e9, &p->layer_us},
        [NUMBER_EXPERT] = {"expert-us", 1e9, &p->expert_us},
        [NUMBER_PREDICT] = {"predict-us", 1e9, &p->predict_us},
        [NUMBER_BATCH] = {"batch", 1, &p->batch},
        [NUMBER_CALIBRATE] = {"calibrate", 90, &p->calibrate},
    };
    return sim_option_number(numbers[n].name, value, 0, numbers[n].max, numbers[n].out, error);
}

static int take_gpu(void *program, int n, const char *value, struct error *error)
{
    struct program *p = program;
    return sim_gpu_option(&p->gpu, (enum sim_gpu_option)n, value, error);
}

static void more_help(FILE *out)
{
    presets_help(out);
    fprintf(out, "\nPolicy parameters:\n");
    knobs_help(out);
}

static const struct option_row rows[] = {
    {0, "presets", "A,B", OPTION_TEXT(struct program, presets),
     "presets (default " DEFAULT_PRESETS ")"},
    {0, "evictions", "A,B|all", OPTION_CALL(take_evictions),
     "evictions instead of presets: one pool, no prefetch; all is " ALL_EVICTIONS},
    {0, "policy", "K=V,...", OPTION_TEXT(struct program, policy),
     "policy parameters, override those of every preset"},
    {0, "budgets", "25%,1GiB", OPTION_TEXT(struct program, budgets),
     "capacity for experts, % of all their bytes or a size (default " DEFAULT_BUDGETS ")"},
    {0, "parallel", "1,2,4", OPTION_NTH(take_together, TRACES_PARALLEL),
     "sequences of the traces that run at a time, in passes as the "
     "engine's: a table of what they share"},
    {0, "max-token-gap", "MS", OPTION_NTH(take_together, TRACES_GAP),
     "how long a stream waits at most for its next token while prompts are read, with --parallel; "
     "0: as the engine chooses it (default: no limit)"},
    {0, "read-bandwidth", "200MB/s,...", OPTION_TEXT(struct program, bandwidths),
     "of the storage devices (default " DEFAULT_BANDWIDTHS ")"},
    {0, "latency", "US", OPTION_NTH(take_number, NUMBER_LATENCY), "of one read (default 100)"},
    {0, "queue-depth", "N", OPTION_CALL(take_depth),
     "reads in flight at the device (default " OPTION_DIGITS(SIM_DEFAULT_DEPTH) ")"},
    {0, "layer-us", "US", OPTION_NTH(take_number, NUMBER_LAYER),
     "compute time of attention and router of a layer, one token "
     "(default: top-k times that of an expert, on a GPU if there "
     "is one)"},
    {0, "expert-us", "US", OPTION_NTH(take_number, NUMBER_EXPERT),
     "compute time of one expert, one token (default: its bytes "
     "at 20 GB/s)"},
    {0, "predict-us", "US", OPTION_NTH(take_number, NUMBER_PREDICT),
     "time from a gate input to its predictions (default 20)"},
    {0, "gpu-slots", "N", OPTION_NTH(take_gpu, SIM_GPU_SLOTS),
     "a GPU computes, with slots for N of the largest experts; "
     "the engine's: gpu.slots of sluice stats --json; N,M: "
     "several GPUs"},
    {0, "gpu-layers", "N", OPTION_NTH(take_gpu, SIM_GPU_LAYERS),
     "it has the first N layers, the CPU the others (default: all); "
     "N,M: of several GPUs"},
    {0, "gpu-budget", "50%|SIZE", OPTION_NTH(take_gpu, SIM_GPU_BUDGET),
     "the same, as memory of the GPU for experts; the "
     "engine's: gpu.plan.experts; for several precisions"},
    {0, "gpu-bandwidth", "24GB/s", OPTION_NTH(take_gpu, SIM_GPU_BANDWIDTH),
     "of copies to the GPU (default 12GB/s)"},
    {0, "gpu-policy", "P", OPTION_NTH(take_gpu, SIM_GPU_POLICY),
     "gpu-centric (default), cooperative or prefetch, as in "
     "sluice run"},
    {0, "gpu-eviction", "E", OPTION_NTH(take_gpu, SIM_GPU_EVICTION),
     "which expert loses its slot there, as in sluice run "
     "(default lru)"},
    {0, "gpu-expert-us", "US", OPTION_NTH(take_gpu, SIM_GPU_EXPERT_US),
     "compute time of one expert on the GPU, one token (default: "
     "its bytes at 400 GB/s)"},
    {0, "batch", "X", OPTION_NTH(take_number, NUMBER_BATCH),
     "relative cost of each further token of a chunk (default "
     "0.25)"},
    {0, "calibrate", "PCT", OPTION_NTH(take_number, NUMBER_CALIBRATE),
     "part of the trace used for learning and warm-up "
     "(default 25)"},
    {0, "precisions", "int4=30%,...", OPTION_TEXT(struct program, precisions),
     "additional precisions of the experts, as % of the native "
     "bytes or as sizes; traces of GGUF files contain none"},
    {0, "plan", "FILE", OPTION_TEXT(struct program, plan_path),
     "plan for the model: paths, precisions, shares, thresholds"},
    {0, "output", "text|md|csv|json", OPTION_CALL(take_output), "format on stdout (default text)"},
    {0, "pivot", "hits|time|penalty", OPTION_CALL(take_pivot),
     "text and md: a row per preset, a column per budget"},
    {0, "svg", "FILE", OPTION_TEXT(struct program, svg_path),
     "plots of hits and time over the budget"},
    {0, "write-trace", "FILE", OPTION_TEXT(struct program, write_path),
     "write the (synthetic) trace"},
    {0, "synthetic", "[=SETTINGS]", OPTION_TEXT(struct program, synthetic),
     "instead of a trace: a synthetic one, below"},
    {0, "import", "[=SETTINGS]", OPTION_TEXT(struct program, traces.import),
     "the files are routing that other engines recorded, below"},
};

static const struct option_table options = {
    .command = "sim",
    .before = "usage: sluice sim TRACE... [options]\n"
              "       sluice sim --synthetic [layers=8,experts=32,top-k=4,...] [options]\n"
              "       sluice sim --import[=experts=64,dense=1,...] FILE... [options]\n"
              "\n"
              "Replays a trace of expert accesses (sluice run --trace FILE) under presets,\n"
              "budgets and storage devices: hits, bytes, and simulated time. Several traces\n"
              "of one model are replayed one after the other. The same input gives the same\n"
              "output. A narrow terminal gets the columns that presets are\n"
              "compared by.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 28,
    .after = "\n"
             "Synthetic traces: layers, experts, top-k, skew (Zipf exponent), locality (share\n"
             "of experts kept from token to token), recall (of predictions), prompt, tokens,\n"
             "sequences, predictions, expert-bytes, seed.\n"
             "Recordings of BigMoeOnEdge, warp, TierInfer, stratamoe: experts (of a layer),\n"
             "expert-bytes, dense (layers without experts before the recorded ones, of warp\n"
             "and stratamoe), prompt (chunk, tokens: decoded one by one, drop).\n"
             "\n"
             "Presets:\n",
    .more = more_help,
};

static int parse(struct program *p, int argc, char **argv, struct error *error)
{
    if (options_read(&options, p, argc, argv, error) != 0)
        return -1;
    /* --synthetic settings may follow after a blank. */
    if (p->synthetic && !*p->synthetic && optind + 1 == argc && strchr(argv[optind], '='))
        p->synthetic = argv[optind++];
    p->traces.count = p->synthetic ? 1 : 0;
    while (!p->synthetic && optind < argc && p->traces.count < TRACES_MAX)
        p->traces.path[p->traces.count++] = argv[optind++];
    if (optind < argc || p->traces.count == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "use trace files, at most %d, or --synthetic (see sluice sim --help)",
                         TRACES_MAX);
    if (p->traces.parallels > 0 && (p->pivot || p->svg_path))
        return error_set(error, ERR_BAD_INPUT,
                         "--parallel has a table of its own: use it without "
                         "--pivot and --svg");
    if (p->traces.limited && (p->traces.parallels == 0 || p->write_path))
        return error_set(error, ERR_BAD_INPUT,
                         "--max-token-gap needs --parallel, and no --write-trace");
    bool together = p->traces.parallels > 0;
    p->presets = p->presets ? p->presets : together ? TOGETHER_PRESETS : DEFAULT_PRESETS;
    p->budgets = p->budgets ? p->budgets : together ? TOGETHER_BUDGETS : DEFAULT_BUDGETS;
    return sim_gpu_options_check(&p->gpu, error);
}

/* ---- trace ------------------------------------------------------------------------------ */

/* Learns frequencies and paths from the first part of the trace. */
static int calibrate(struct program *p, struct error *error)
{
    free(p->tables_block);
    p->tables_block = NULL;
    p->tables = (struct path_tables){.layers = 0};
    p->measure = sim_split(&p->trace, p->calibrate / 100);
    if (p->measure == 0)
        return 0;
    return sim_profile(&p->trace, 0, p->measure, &p->tables, &p->tables_block, error);
}

/* Hashes are not compared: the trace may be of another quantisation of the plan's model. */
static int take_plan(struct program *p, struct error *error)
{
    const struct trace_header *h = &p->trace.header;
    size_t all = (size_t)h->layers * h->experts;
    if (!p->plan_path)
        return 0;
    if (!(p->plan = plan_read(p->plan_path, error)))
        return -1;
    if (p->plan->layers != h->layers || p->plan->experts != h->experts)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is a plan for %u layers of %u experts, the trace has %u of %u",
                         p->plan_path, p->plan->layers, p->plan->experts, h->layers, h->experts);
    p->frequency = calloc(all, sizeof *p->frequency);
    p->shares = calloc(h->layers, sizeof *p->shares);
    if (!p->frequency || !p->shares)
        return error_set(error, ERR_NO_MEMORY, "out of memory (plan)");
    for (size_t i = 0; plan_frequency(p->plan) && i < all; i++)
        p->frequency[i] = isnan(plan_frequency(p->plan)[i]) ? 0 : plan_frequency(p->plan)[i];
    for (uint32_t l = 0; plan_share(p->plan) && l < h->layers; l++)
        p->shares[l] = (float)plan_share(p->plan)[l];
    return 0;
}

/* Values of the plan take precedence over those learned from the trace. */
static struct sim_plan known(const struct program *p)
{
    struct sim_plan k = {.tables = p->tables};
    const struct plan *plan = p->plan;
    if (!plan)
        return k;
    k.tables.layers = plan->layers;
    k.tables.experts = plan->experts;
    if (plan_frequency(plan))
        k.tables.frequency = p->frequency;
    if (plan_prev1(plan))
        k.tables.prev1 = plan_prev1(plan);
    if (plan_pair_first(plan) && plan_pair_cells(plan)) {
        k.tables.pair_first = plan_pair_first(plan);
        k.tables.pair_cells = (const struct path_cell *)(const void *)plan_pair_cells(plan);
    }
    k.shares = plan_share(plan) ? p->shares : NULL;
    return k;
}

/* ---- grid ------------------------------------------------------------------------------- */

static int add_preset(struct program *p, const char *name, struct error *error)
{
    struct contender *c = &p->grid.contender[p->grid.contenders];
    if (p->grid.contenders == LABELS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %d presets", LABELS_MAX);
    if (planned_knobs(p->plan, name, p->policy, &c->knobs, error) != 0)
        return omit_preset(name, p->policy, error);
    snprintf(c->label, sizeof c->label, "%.23s", name);
    p->grid.contenders++;
    return 0;
}

static int add_eviction(struct program *p, const char *name, struct error *error)
{
    struct contender *c = &p->grid.contender[p->grid.contenders];
    if (p->grid.contenders == LABELS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %d evictions", LABELS_MAX);
    if (knobs_resolve("lod", NULL, p->policy, &c->knobs, error) != 0)
        return -1;
    c->belady = strcmp(name, "belady") == 0;
    c->eviction = true;
    if (!c->belady && knobs_set(&c->knobs, "eviction", name, error) != 0)
        return -1;
    snprintf(c->label, sizeof c->label, "%.23s", name);
    p->grid.contenders++;
    return 0;
}

static int add_budget(struct program *p, const char *item, struct error *error)
{
    struct budget *b = &p->grid.budget[p->grid.budgets];
    uint64_t all = sim_all_bytes(&p->trace.header);
    if (p->grid.budgets == BUDGETS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %d budgets", BUDGETS_MAX);
    if (sim_option_share("budgets", item, &b->bytes, &b->percent, error) != 0)
        return -1;
    if (b->bytes > 0)
        b->percent = 100 * (double)b->bytes / (double)all;
    else
        b->bytes = percent_of(b->percent, all);
    p->grid.budgets++;
    return 0;
}

static int add_bandwidth(struct program *p, const char *item, struct error *error)
{
    struct sim_storage *d = &p->grid.storage[p->grid.storages];
    if (p->grid.storages == GRID_STORAGE_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %d read bandwidths", GRID_STORAGE_MAX);
    *d = (struct sim_storage){.latency_ns = p->latency_us * 1e3, .depth = (uint32_t)p->depth};
    if (sim_option_bandwidth("read-bandwidth", item, &d->bytes_per_s, error) != 0)
        return -1;
    p->grid.storages++;
    return 0;
}

#define NO_TIME_NS 1e-3 /* 0 is that of the CPU */

static bool cpu_has_layers(const struct program *p)
{
    const struct sim_gpu *last = &p->grid.gpus[0];
    while (last->next)
        last = last->next;
    return last->end_layer > 0 && last->end_layer < p->trace.header.layers;
}

/* Where the CPU has layers, too, those of GPUs have times of their own, unless one is given for
 * all. */
static void set_layer_times(struct program *p)
{
    for (int i = 0; i < SIM_GPUS_MAX; i++)
        if (p->layer_us < 0 && cpu_has_layers(p))
            p->grid.gpus[i].layer_ns =
                fmax(p->grid.gpus[i].expert_ns * p->trace.header.top_k, NO_TIME_NS);
}

static int make_grid(struct program *p, struct error *error)
{
    char item[ITEM_BYTES];
    int rv = 0;
    const char *list = p->evictions ? p->evictions : p->presets;
    p->grid.header = p->trace.header;
    if (sim_gpu_of(&p->gpu, &p->grid.header, p->grid.gpus, error) != 0)
        return -1;
    set_layer_times(p);
    while (rv == 0 && value_next(&list, item))
        rv = p->evictions ? add_eviction(p, item, error) : add_preset(p, item, error);
    if (rv == 0)
        rv = traces_contenders(&p->traces, &p->grid, error);
    for (const char *at = p->budgets; rv == 0 && value_next(&at, item);)
        rv = add_budget(p, item, error);
    for (const char *at = p->bandwidths; rv == 0 && value_next(&at, item);)
        rv = add_bandwidth(p, item, error);
    if (rv != 0)
        return -1;
    if (p->grid.contenders == 0 || p->grid.budgets == 0 || p->grid.storages == 0)
        return error_set(error, ERR_BAD_INPUT, "nothing to replay: a list is empty");
    size_t cells = (size_t)p->grid.contenders * p->grid.budgets * p->grid.storages;
    p->grid.cell = calloc(cells, sizeof *p->grid.cell);
    return p->grid.cell ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (results)");
}

static struct sim_compute compute_model(const struct program *p)
{
    const struct trace_header *h = &p->trace.header;
    double bytes = (double)sim_all_bytes(h) / trace_expert_layers(h) / h->experts;
    double expert =
        p->expert_us >= 0 ? p->expert_us * 1e3 : bytes * 1e9 / SIM_DEFAULT_WEIGHTS_PER_S;
    bool gpu = p->grid.gpus[0].places > 0 && !cpu_has_layers(p);
    double device = gpu ? p->grid.gpus[0].expert_ns : expert;
    return (struct sim_compute){.expert_ns = expert,
                                .layer_ns =
                                    p->layer_us >= 0 ? p->layer_us * 1e3 : device * h->top_k,
                                .predict_ns = p->predict_us * 1e3,
                                .batch = p->batch};
}

/* Fate's lists have at least top_k experts and mostly more. Those of other predictions have top_k,
 * and a trace does not say which made them. */
static void warn_of_short_lists(const struct program *p, uint32_t who)
{
    const struct contender *c = &p->grid.contender[who];
    uint32_t longest = traces_longest_list(&p->trace);
    if (c->knobs.prediction != PREDICTION_FATE || longest == 0 || longest > p->trace.header.top_k)
        return;
    fprintf(stderr,
            "sluice sim: %s: the trace has lists of %u predicted experts, as another prediction "
            "makes them; fate's are longer: record it with --policy prediction=fate\n",
            c->label, longest);
}

/* Cells that cannot be replayed are omitted; the reason is printed once per contender. */
static int run_contender(struct program *p, uint32_t who, uint32_t *made, struct error *error)
{
    struct grid *g = &p->grid;
    bool reported = false;
    warn_of_short_lists(p, who);
    for (uint32_t b = 0; b < g->budgets; b++)
        for (uint32_t d = 0; d < g->storages; d++) {
            struct cell *cell = &g->cell[(who * g->budgets + b) * g->storages + d];
            struct sim_config config = {.knobs = g->contender[who].knobs,
                                        .capacity = g->budget[b].bytes,
                                        .storage = g->storage[d],
                                        .compute = p->grid.compute,
                                        .gpu = g->gpus[0],
                                        .plan = known(p)};
            config.plan.precision = planned_widths(p->plan, &config.knobs);
            if (sim_run(&p->trace, 0, p->measure, &config, g->contender[who].belady, &cell->result,
                        error) == 0) {
                cell->made = true;
                ++*made;
                continue;
            }
            if (error_exit_status(error->code) != 2)
                return -1;
            if (!reported)
                fprintf(stderr, "sluice sim: omitting %s at %.4g %%: %s\n", g->contender[who].label,
                        g->budget[b].percent, error->text);
            reported = true;
        }
    return 0;
}

/* Those with this number of sequences. */
static int run_with(struct program *p, uint32_t parallel, uint32_t *made, struct error *error)
{
    if (calibrate(p, error) != 0)
        return -1;
    for (uint32_t i = 0; i < p->grid.contenders; i++)
        if (p->grid.contender[i].parallel == parallel && run_contender(p, i, made, error) != 0)
            return -1;
    return 0;
}

static int run_grid(struct program *p, struct error *error)
{
    const struct traces *t = &p->traces;
    uint32_t made = 0;
    p->grid.compute = compute_model(p);
    if (t->parallels == 0 && run_with(p, 0, &made, error) != 0)
        return -1;
    for (uint32_t i = 0; i < t->parallels; i++)
        if (((i > 0 || t->limited) &&
             traces_together(t, t->parallel[i], &p->grid.compute, &p->trace, error) != 0) ||
            run_with(p, t->parallel[i], &made, error) != 0)
            return -1;
    return made > 0 ? 0 : error_set(error, ERR_BAD_INPUT, "nothing could be replayed");
}

/* ---- output --------------------------------------------------------------------------------- */

static int show(const struct program *p, struct error *error)
{
    int rv;
    if (strcmp(p->output, "md") == 0 && p->grid.together)
        rv = print_together(stdout, &p->grid, true);
    else if (strcmp(p->output, "md") == 0)
        rv = print_md(stdout, &p->grid, p->pivot);
    else if (strcmp(p->output, "csv") == 0)
        rv = print_csv(stdout, &p->grid);
    else if (strcmp(p->output, "json") == 0)
        rv = print_json(stdout, &p->grid);
    else if (p->grid.together)
        rv = print_together(stdout, &p->grid, false);
    else
        rv = print_text(stdout, &p->grid, p->pivot);
    return rv == 0 ? 0 : error_set(error, ERR_IO, "cannot write the result");
}

static int plot(const struct program *p, struct error *error)
{
    if (!p->svg_path)
        return 0;
    FILE *f = fopen(p->svg_path, "we");
    if (!f)
        return error_set_errno(error, ERR_IO, errno, "cannot write %.200s", p->svg_path);
    int rv = plot_svg(f, &p->grid);
    rv |= fclose(f);
    return rv == 0 ? 0 : error_set(error, ERR_IO, "cannot write %.200s", p->svg_path);
}

static int run(struct program *p, struct error *error)
{
    int rv = p->synthetic ? make_synthetic(p->synthetic, &p->traces.trace[0], error) : 0;
    if (rv == 0)
        rv = traces_read(&p->traces, &p->trace, error);
    if (rv == 0 && p->write_path)
        rv = trace_write(p->write_path, &p->trace, error);
    if (rv != 0 || take_precisions(p->precisions, &p->trace.header, error) != 0 ||
        take_plan(p, error) != 0 || make_grid(p, error) != 0 || run_grid(p, error) != 0)
        return -1;
    return show(p, error) != 0 || plot(p, error) != 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    static struct program p = {.bandwidths = DEFAULT_BANDWIDTHS,
                               .output = "text",
                               .calibrate = 25,
                               .latency_us = SIM_DEFAULT_LATENCY_NS / 1e3,
                               .layer_us = -1,
                               .expert_us = -1,
                               .predict_us = SIM_DEFAULT_PREDICT_NS / 1e3,
                               .batch = SIM_DEFAULT_BATCH,
                               .depth = SIM_DEFAULT_DEPTH};
    struct error error;
    log_init("sim", LOG_LEVEL_WARN);
    int status = 0;
    if (parse(&p, argc, argv, &error) != 0 || run(&p, &error) != 0) {
        fprintf(stderr, "sluice sim: %s\n", error.text);
        status = error_exit_status(error.code);
    }
    trace_free(&p.trace);
    traces_free(&p.traces);
    free(p.tables_block);
    free(p.plan);
    free(p.frequency);
    free(p.shares);
    free(p.grid.cell);
    return status;
}
