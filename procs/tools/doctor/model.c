/* SPDX-License-Identifier: Apache-2.0 */
/* A model on this machine: its budgets, estimated speed, and advice. The budgets come from the
 * ledger of the supervisor (`sluice-run --print-memory`), so that they are computed in one
 * place. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/inspected/inspected.h"
#include "lib/json/lookup.h"
#include "lib/kernels/kernels.h"
#include "lib/model/index/capacity.h"
#include "lib/tunings/tunings.h"
#include "procs/tools/doctor/doctor.h"

#define ESTIMATE_BYTES 65536

extern char **environ;

/* The engine's program, in the directory of this one. */
static int supervisor_path(char out[PATH_MAX], struct error *error)
{
    static const char program[] = "sluice-run";
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - sizeof program - 1);
    if (n < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot read /proc/self/exe");
    out[n] = 0;
    char *slash = strrchr(out, '/');
    strcpy(slash ? slash + 1 : out, program);
    return 0;
}

#define ARGS_MAX 160

struct args {
    char *list[ARGS_MAX];
    size_t count;
    bool full;
};

static void add(struct args *a, const char *text)
{
    char *copy = a->count + 1 < ARGS_MAX ? strdup(text) : NULL;
    a->full = a->full || !copy;
    if (copy)
        a->list[a->count++] = copy;
}

static void add_param(const char *name, const char *value, const char *def, const char *help,
                      void *arg)
{
    char text[PARAM_TEXT_BYTES + 64];
    (void)help;
    if (strcmp(name, "http_key") == 0 || strcmp(name, "http_key_file") == 0)
        return; /* nothing is served, and others would see it among the arguments */
    snprintf(text, sizeof text, "--%s=%s", name, value);
    if (strcmp(value, def) != 0)
        add(arg, text);
}

static int spawn_memory_estimate(const char *model, const struct params *params, int out,
                                 pid_t *pid, struct error *error)
{
    char program[PATH_MAX];
    struct args args = {.count = 0};
    if (supervisor_path(program, error) != 0)
        return -1;
    const char *const fixed[] = {program, "-m", model, "--print-memory"};
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        add(&args, fixed[i]);
    params_each(params, add_param, &args);
    add(&args, "--cgroup=off"); /* last: a file of parameters may require one */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int rc = args.full ? E2BIG : posix_spawn(pid, program, &actions, NULL, args.list, environ);
    posix_spawn_file_actions_destroy(&actions);
    for (size_t i = 0; i < args.count; i++)
        free(args.list[i]);
    return rc == 0 ? 0 : error_set_errno(error, ERR_FAILED, rc, "cannot start %.200s", program);
}

static size_t read_whole(int fd, char *text, size_t cap)
{
    size_t used = 0;
    for (ssize_t n = 1; n != 0 && used + 1 < cap;) {
        n = read(fd, text + used, cap - 1 - used);
        if (n < 0 && errno != EINTR)
            break;
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = 0;
    return used;
}

json_t *model_memory_estimate(const char *model, const struct params *params, struct error *error)
{
    int ends[2], status = 0;
    pid_t pid;
    char text[ESTIMATE_BYTES];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        error_set_errno(error, ERR_FAILED, errno, "cannot create a pipe");
        return NULL;
    }
    int rc = spawn_memory_estimate(model, params, ends[1], &pid, error);
    close(ends[1]);
    if (rc == 0) {
        read_whole(ends[0], text, sizeof text);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    if (rc != 0)
        return NULL;
    json_t *doc = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? json_loads(text, 0, NULL) : NULL;
    if (!doc) /* it printed the reason to stderr */
        error_set(error, WIFEXITED(status) && WEXITSTATUS(status) == 2 ? ERR_BAD_INPUT : ERR_FAILED,
                  "%.200s: the engine cannot run this model", model);
    return doc;
}

struct model_facts model_facts_of(const json_t *memory_estimate)
{
    return (struct model_facts){
        .layers = lookup_u64(memory_estimate, "layers"),
        .expert_layers = lookup_u64(memory_estimate, "expert_layers"),
        .table_layers = lookup_u64(memory_estimate, "table_layers"),
        .experts_used = lookup_u64(memory_estimate, "experts_used"),
        .expert_count = lookup_u64(memory_estimate, "expert_count"),
        .dense_read_bytes = lookup_u64(memory_estimate, "dense_read_bytes"),
        .expert_bytes = lookup_u64(memory_estimate, "expert_bytes"),
        .min_budget = lookup_u64(memory_estimate, "min_budget"),
        .budget_25 = lookup_u64(memory_estimate, "budgets.25"),
        .budget_50 = lookup_u64(memory_estimate, "budgets.50"),
        .budget_75 = lookup_u64(memory_estimate, "budgets.75"),
        .budget_100 = lookup_u64(memory_estimate, "budgets.100"),
    };
}

/* Bytes of one expert of each layer; all of a layer are alike. */
static uint64_t *layer_experts(const struct model_index *index)
{
    uint32_t layers = index->hparams.layers;
    uint64_t *bytes = calloc(layers, sizeof *bytes);
    for (uint32_t l = 0; bytes && l < layers; l++) {
        uint32_t entry = model_entry_expert(index, l, 0);
        if (entry != ENTRY_NONE) /* a layer with experts */
            bytes[l] = model_index_entries(index)[entry].slot_bytes;
    }
    return bytes;
}

static unsigned threads_of(const struct params *params)
{
    return params->threads ? (unsigned)params->threads : host_cpus();
}

/* What the model needs of this machine. *index, and *bytes of layer_expert_bytes: for free(). */
static int measure_model(const char *model, const struct params *params,
                         const struct forward_devices *devices, struct host_facts *a,
                         struct model_index **out, uint64_t **bytes, struct error *error)
{
    struct forward_speed speed;
    int fd = model_open(model, 0, error);
    if (fd < 0)
        return -1;
    int rc = inspected_index(fd, model, out, error);
    close(fd);
    if (rc == 0)
        rc = forward_measure(*out, params, host_stream_bytes(), devices, &speed, error);
    if (rc == 0 && !(*bytes = layer_experts(*out)))
        rc = error_set(error, ERR_NO_MEMORY, "out of memory");
    if (rc != 0)
        return -1;
    a->decode_s = speed.decode_s;
    a->prefill_s = speed.prefill_s;
    a->experts_s = speed.experts_s;
    a->output_s = speed.output_s;
    a->context_s = speed.context_s;
    a->context_measured = speed.context_measured;
    a->chunk_tokens = speed.chunk;
    a->slowdown = speed.slowdown;
    a->busy_bytes_per_s = speed.busy_bytes_per_s;
    a->spare_cpu = threads_of(params) < host_cpus();
    return 0;
}

static void report_bytes(struct findings *f, const char *name, uint64_t bytes, const char *meaning)
{
    char size[16];
    finding(f, "model", name, json_integer((json_int_t)bytes), bytes_format(bytes, size), "%s",
            meaning);
}

static void report_budgets(struct findings *f, const struct model_facts *m,
                           const struct host_facts *a)
{
    double share;
    uint64_t budget = estimate_budget(m, a, &share);
    report_bytes(f, "min_budget", m->min_budget, "minimum --budget to start");
    report_bytes(f, "everything", m->budget_100, "--budget with all experts resident");
    if (budget == 0)
        finding(f, "model", "budget", json_null(), "none",
                "less than the minimum budget is available");
    else
        report_bytes(f, "budget", budget,
                     share >= 1  ? "recommended --budget: everything fits"
                     : share > 0 ? "recommended --budget: leaves 1/5 of the available memory free"
                                 : "recommended --budget: the minimum");
    finding_quiet(f, "model", "budget_share", json_real(share));
}

static void report_kv(struct findings *f, const json_t *memory_estimate)
{
    char size[16];
    uint64_t bytes = lookup_u64(memory_estimate, "kv_bytes");
    finding(f, "model", "kv_cache", json_integer((json_int_t)bytes), bytes_format(bytes, size),
            "of each budget: keys and values of %" PRIu64 " tokens (--ctx-size), type %s "
            "(--kv-type)",
            lookup_u64(memory_estimate, "ctx_size"), lookup_text(memory_estimate, "kv_type"));
}

static uint64_t budget_at(const struct model_facts *m, size_t share)
{
    const uint64_t budgets[ESTIMATE_SHARES] = {m->budget_25, m->budget_50, m->budget_75,
                                               m->budget_100};
    return budgets[share];
}

static void report_estimates(struct findings *f, const struct model_facts *m,
                             const struct estimate estimates[ESTIMATE_SHARES])
{
    json_t *all = json_array();
    for (size_t i = 0; i < ESTIMATE_SHARES; i++) {
        const struct estimate *e = &estimates[i];
        uint64_t budget = budget_at(m, i);
        char name[32], text[64], size[16], read[16], decode[DIGITS_BYTES], prefill[DIGITS_BYTES];
        snprintf(name, sizeof name, "estimate %.0f %%", 100 * e->share);
        if (e->decode_tps <= 0)
            snprintf(text, sizeof text, "unknown");
        else
            snprintf(text, sizeof text, "%s, prefill %s", two_digits(e->decode_tps, decode),
                     two_digits(e->prefill_tps, prefill));
        if (e->decode_tps <= 0)
            finding(f, "model", name, json_real(0), text,
                    "with a budget of %s: reads were not measured, or a token needs more experts "
                    "than that share",
                    bytes_format(budget, size));
        else
            finding(
                f, "model", name, json_real(e->decode_tps), text,
                "tokens/s with a budget of %s; decode: %.2f ms compute, %.2f ms waiting for %s of "
                "reads, %.2f ms for messages",
                bytes_format(budget, size), e->compute_s * 1e3, e->stall_s * 1e3,
                bytes_format((uint64_t)e->read_bytes, read), e->load_s * 1e3);
        json_array_append_new(
            all, json_pack("{s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "share",
                           e->share, "budget", (json_int_t)budget, "missing", e->missing, "reads",
                           e->reads, "read_bytes", e->read_bytes, "read_s", e->read_s, "compute_s",
                           e->compute_s, "stall_s", e->stall_s, "load_s", e->load_s, "decode_tps",
                           e->decode_tps, "prefill_tps", e->prefill_tps));
    }
    finding_quiet(f, "model", "estimates", all);
}

/* The estimate at a budget: that of the largest share that it holds. */
static const struct estimate *estimate_at(const struct model_facts *m, uint64_t budget,
                                          const struct estimate estimates[ESTIMATE_SHARES])
{
    size_t at = 0;
    for (size_t i = 0; i < ESTIMATE_SHARES; i++)
        at = budget_at(m, i) <= budget ? i : at;
    return &estimates[at];
}

/* Sequences of a whole context each, beside the experts of the budget; and what they give. */
static void report_parallel(struct findings *f, const struct model_facts *m,
                            const struct host_facts *a,
                            const struct estimate estimates[ESTIMATE_SHARES],
                            const struct params *params, const json_t *memory_estimate)
{
    double share;
    uint64_t recommended = estimate_budget(m, a, &share), limit = params->budget;
    uint64_t ctx = lookup_u64(memory_estimate, "ctx_size");
    uint64_t kv = lookup_u64(memory_estimate, "kv_bytes");
    if (limit == 0)
        limit = a->available / 5 * 4;
    if (recommended == 0 || recommended > limit)
        return;
    uint32_t n = capacity_sequences(recommended, limit, kv);
    const struct estimate *one = estimate_at(m, recommended, estimates);
    double together = estimate_together(m, a, one, n);
    char text[32], tps[DIGITS_BYTES] = "an unknown number of";
    snprintf(text, sizeof text, "%u sequence%s", n, n == 1 ? "" : "s");
    if (together > 0)
        two_digits(together, tps);
    finding(f, "model", "parallel", json_integer(n), text,
            "of %" PRIu64 " tokens each fit into memory beside the experts (--parallel %u "
            "--ctx-size %" PRIu64 "): about %s tokens/s together",
            ctx, n, n * ctx, tps);
    finding_quiet(f, "model", "parallel_tps", json_real(together));
}

/* A token whose sequence has the whole context: what it reads of the tokens before it, and takes
 * more for it. */
static void report_context(struct findings *f, const struct model_facts *m,
                           const struct host_facts *a,
                           const struct estimate estimates[ESTIMATE_SHARES],
                           const json_t *memory_estimate)
{
    double share, tps;
    uint64_t budget = estimate_budget(m, a, &share);
    uint64_t ctx = lookup_u64(memory_estimate, "ctx_size");
    uint64_t keys = lookup_u64(memory_estimate, "context.index_read_bytes");
    uint64_t rows = lookup_u64(memory_estimate, "context.kv_read_bytes");
    uint64_t attended = lookup_u64(memory_estimate, "context.attended");
    uint64_t entries = lookup_u64(memory_estimate, "context.entries");
    char text[64] = "unknown", digits[DIGITS_BYTES], size[16], of[16], first[64] = "",
         chosen[64] = "";
    tps = budget > 0 ? estimate_in_context(a, estimate_at(m, budget, estimates)) : 0;
    if (tps > 0)
        snprintf(text, sizeof text, "%s", two_digits(tps, digits));
    if (keys > 0) {
        snprintf(first, sizeof first, "%s of the indexers' keys, and ", bytes_format(keys, of));
        snprintf(chosen, sizeof chosen, " of the %" PRIu64 " tokens that they choose", attended);
    }
    if (entries > 0)
        snprintf(chosen, sizeof chosen, " of %" PRIu64 " tokens and %" PRIu64 " entries", attended,
                 entries);
    finding(f, "model", "full context", json_real(tps), text,
            "tokens/s of decode after %" PRIu64
            " tokens (--ctx-size), with the recommended budget: "
            "each takes %.2f ms more, and reads %s%s of keys and values%s",
            ctx, a->context_s * 1e3, first, bytes_format(rows, size), chosen);
    finding_quiet(f, "model", "context",
                  json_pack("{s:I, s:f, s:f, s:I, s:O}", "tokens", (json_int_t)ctx, "context_s",
                            a->context_s, "decode_tps", tps, "measured_tokens",
                            (json_int_t)a->context_measured, "reads",
                            json_object_get(memory_estimate, "context")));
}

/* What the estimate was made from. */
static void report_measured(struct findings *f, const struct host_facts *a)
{
    json_t *rates = json_array();
    for (size_t i = 0; i < ESTIMATE_DEPTHS; i++)
        json_array_append_new(rates, json_real(a->read_bytes_per_s[i]));
    finding_quiet(f, "model", "measured",
                  json_pack("{s:f, s:f, s:f, s:f, s:I, s:b, s:f, s:f, s:o}", "decode_s",
                            a->decode_s, "experts_s", a->experts_s, "output_s", a->output_s,
                            "prefill_s", a->prefill_s, "chunk_tokens", (json_int_t)a->chunk_tokens,
                            "spare_cpu", a->spare_cpu, "slowdown", a->slowdown, "busy_bytes_per_s",
                            a->busy_bytes_per_s, "read_bytes_per_s", rates));
}

static void report_advice(struct findings *f, const struct model_facts *m,
                          const struct host_facts *a,
                          const struct estimate estimates[ESTIMATE_SHARES])
{
    uint32_t bits = advise(m, a, estimates);
    json_t *names = json_array();
    for (int i = 0; i < ADVICE__COUNT; i++)
        if (bits & 1u << i) {
            json_array_append_new(names, json_string(advice_name((enum advice)i)));
            finding(f, "advice", advice_name((enum advice)i), json_true(), "recommended", "%s",
                    advice_text((enum advice)i));
        }
    if (!bits)
        finding(f, "advice", "none", json_true(), "no change", "no limiting factor found");
    finding_quiet(f, "advice", "names", names);
}

static void report_speed(struct findings *f, const struct model_facts *m,
                         const struct host_facts *a)
{
    char text[32] = "unknown", size[16], part[64] = "";
    double bytes = estimate_token_bytes(m), rate = a->decode_s > 0 ? bytes / a->decode_s : 0;
    if (rate > 0)
        snprintf(text, sizeof text, "%s/s", bytes_format((uint64_t)rate, size));
    if (rate > 0 && a->stream_bytes_per_s > 0)
        snprintf(part, sizeof part,
                 rate > a->stream_bytes_per_s ? ": from the caches (%.0f %% of the memory's rate)"
                                              : ": %.0f %% of what the memory streams",
                 100 * rate / a->stream_bytes_per_s);
    finding(f, "model", "weights", json_real(rate), text,
            "of the %s that a token touches, decode with everything resident%s",
            bytes_format((uint64_t)bytes, size), part);
    finding_quiet(f, "model", "token_bytes", json_real(bytes));
}

static void report_model(struct findings *f, const struct model_facts *m,
                         const struct host_facts *a,
                         const struct estimate estimates[ESTIMATE_SHARES],
                         const struct params *params, const json_t *memory_estimate)
{
    finding(f, "model", "file", json_string(lookup_text(memory_estimate, "model")), NULL, "%s", "");
    report_budgets(f, m, a);
    report_kv(f, memory_estimate);
    report_speed(f, m, a);
    report_estimates(f, m, estimates);
    report_context(f, m, a, estimates, memory_estimate);
    report_parallel(f, m, a, estimates, params, memory_estimate);
    report_measured(f, a);
    finding_quiet(f, "model", "memory_estimate", json_deep_copy(memory_estimate));
    ranking_report(f, m, a, params, memory_estimate);
    report_advice(f, m, a, estimates);
}

/* What bounds a pass. Weights that the caches hold are read faster than those of a large model. */
static struct rates_machine machine_of(const struct gpu_model *m, unsigned threads)
{
    const struct host_facts *a = m->host;
    uint64_t weights = align_down(m->facts->dense_read_bytes + m->facts->expert_bytes, PAGE_BYTES);
    bool small = weights < host_stream_bytes() && weights > PAGE_BYTES * threads;
    return (struct rates_machine){
        .memory = small ? memory_rate(weights, threads) : a->stream_bytes_per_s,
        .storage = a->read_bytes_per_s[ESTIMATE_DEPTHS - 1],
        .arithmetic = a->prefill_s > 0 ? estimate_token_bytes(m->facts) / a->prefill_s : 0};
}

/* What was measured, as the engine and bench read it. */
static void store_rates(struct findings *f, const struct gpu_seen *gpu, const struct gpu_model *m,
                        const struct params *params)
{
    struct rates_cpu cpu = {.threads = threads_of(params), .rate = *m->cpu};
    tunings_cpu(cpu.name);
    rates_key(m->index, params->isa, cpu.type);
    cpu.machine = machine_of(m, cpu.threads);
    gpu_store(f, gpu, &cpu);
}

/* Keys of the file that the engine does not know. */
static void report_unread(struct findings *f, const struct model_index *index)
{
    char name[MODEL_UNREAD_BYTES];
    for (size_t at = 0; model_index_unread(index, &at, name);)
        finding(f, "model", "key not used", json_string(name), NULL,
                "if the model needs it, its text is wrong");
    finding_quiet(f, "model", "keys_not_used", json_integer((json_int_t)index->unread_count));
}

/* Fewer tokens than the model has. */
static void report_limit(struct findings *f, const struct model_index *index)
{
    char limit[MODEL_LIMIT_BYTES];
    if (model_limit_text(index, limit)[0])
        finding(f, "model", "context_limit",
                json_integer((json_int_t)model_exact_tokens(&index->hparams)), NULL, "%s", limit);
}

/* A table of which a token reads rows: what is read, and what hides it. */
static void report_table(struct findings *f, const struct model_index *index,
                         const struct host_facts *a)
{
    uint32_t pages = model_table_pages(index), layer = 0, rows = model_ngram_rows(&index->hparams);
    if (pages == 0)
        return;
    while (!index->layer[layer].ngrams)
        layer++;
    const struct model_entry *e = &model_index_entries(index)[model_table_entry(index)];
    uint64_t row_bytes = model_index_tensors(index)[e->extent[0].tensor].row_bytes;
    double before_s = a->decode_s / index->hparams.layers * layer;
    char size[16], useful[16], read[16];
    uint64_t bytes = (uint64_t)pages * PAGE_BYTES;
    finding(f, "model", "table", json_integer((json_int_t)bytes), bytes_format(bytes, size),
            "on storage: a token reads %" PRIu32 " rows of it (%s, in about %s of pages), while "
            "%.2f ms of layers before it are computed",
            rows, bytes_format(rows * row_bytes, useful),
            bytes_format((uint64_t)rows * PAGE_BYTES, read), before_s * 1e3);
    finding_quiet(f, "model", "table_rows", json_integer(rows));
    finding_quiet(f, "model", "table_hidden_s", json_real(before_s));
}

static int report_all(struct findings *f, const struct gpu_seen *gpu, const struct gpu_model *m,
                      const struct params *params, const json_t *estimate, struct error *error)
{
    struct estimate estimates[ESTIMATE_SHARES];
    progress(f, "simulating the experts that a text needs");
    if (estimate_make(m->facts, m->host, estimates, error) != 0)
        return -1;
    verdict_model(
        f, &(struct verdict){.path = m->path,
                             .model = m->facts,
                             .host = m->host,
                             .estimates = estimates,
                             .budget_given = params->budget,
                             .ctx_size = lookup_u64(estimate, "ctx_size"),
                             .reads_known =
                                 estimate_read_rate(m->host, (double)m->host->chunk_bytes) > 0});
    report_model(f, m->facts, m->host, estimates, params, estimate);
    report_table(f, m->index, m->host);
    report_limit(f, m->index);
    report_unread(f, m->index);
    return gpu_model_report(f, gpu, m, params, error);
}

int model_examine(struct findings *f, const char *model, const struct params *params,
                  const json_t *memory_estimate, struct host_facts *a, const struct gpu_seen *gpu,
                  const struct forward_devices *devices, struct error *error)
{
    struct model_facts m = model_facts_of(memory_estimate);
    struct model_index *index = NULL;
    uint64_t *bytes = NULL;
    json_t *estimate = json_deep_copy(memory_estimate);
    struct params engine = *params;
    engine.prefill_chunk = lookup_u64(memory_estimate, "prefill_chunk"); /* as it chooses them */
    engine.ctx_size = lookup_u64(memory_estimate, "ctx_size");
    progress(f, "computing with the model's shapes, about 8 s");
    int rc = measure_model(model, &engine, devices, a, &index, &bytes, error);
    m.layer_expert_bytes = bytes;
    a->available = lookup_u64(memory_estimate, "available");
    a->limited = json_is_integer(json_object_get(memory_estimate, "cgroup_headroom")) &&
                 lookup_u64(memory_estimate, "cgroup_headroom") <= a->available;
    a->vector_kernels = kernel_ops_select(NULL)->isa != ISA_GENERIC;
    const struct cost_cpu cpu = rc == 0 ? estimate_cpu(&m, a) : (struct cost_cpu){0};
    const struct gpu_model all = {model, index, &m, a, &cpu};
    if (rc == 0)
        store_rates(f, gpu, &all, params);
    if (rc == 0 && gpu->count > 0) {
        json_decref(estimate);
        estimate = model_memory_estimate(model, params, error);
        m = model_facts_of(estimate);
        m.layer_expert_bytes = bytes;
        rc = estimate ? 0 : -1;
    }
    if (rc == 0)
        rc = report_all(f, gpu, &all, params, estimate, error);
    json_decref(estimate);
    free(bytes);
    free(index);
    return rc;
}
