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
    const char *const fixed[] = {program, "-m", model, "--cgroup=off", "--print-memory"};
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        add(&args, fixed[i]);
    params_each(params, add_param, &args);
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

static int measure_forward(const char *model, const struct params *params, struct host_facts *a,
                           struct error *error)
{
    struct model_index *index = NULL;
    struct forward_speed speed;
    int fd = model_open(model, 0, error);
    if (fd < 0)
        return -1;
    int rc = inspected_index(fd, model, &index, error);
    close(fd);
    if (rc == 0)
        rc = forward_measure(index, params, host_stream_bytes(), &speed, error);
    free(index);
    if (rc != 0)
        return -1;
    a->decode_s = speed.decode_s;
    a->prefill_s = speed.prefill_s;
    a->chunk_tokens = speed.chunk;
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

static void report_estimates(struct findings *f, const struct model_facts *m,
                             const struct host_facts *a)
{
    const struct {
        double share;
        uint64_t budget;
        const char *name;
    } rows[] = {{0.25, m->budget_25, "estimate 25 %"},
                {0.5, m->budget_50, "estimate 50 %"},
                {1, m->budget_100, "estimate 100 %"}};
    json_t *all = json_array();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct estimate e = estimate_make(m, a, rows[i].share);
        char text[64], size[16];
        if (e.decode_tps <= 0)
            snprintf(text, sizeof text, "unknown");
        else
            snprintf(text, sizeof text, "%.1f, prefill %.0f", e.decode_tps, e.prefill_tps);
        finding(f, "model", rows[i].name, json_real(e.decode_tps), text,
                "tokens/s with a budget of %s; decode: %.2f ms compute, %.2f ms reads, %.2f ms "
                "waits",
                bytes_format(rows[i].budget, size), e.compute_s * 1e3, e.read_s * 1e3,
                e.wait_s * 1e3);
        json_array_append_new(all, json_pack("{s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "share",
                                             e.share, "budget", (json_int_t)rows[i].budget,
                                             "missing", e.missing, "compute_s", e.compute_s,
                                             "read_s", e.read_s, "wait_s", e.wait_s, "decode_tps",
                                             e.decode_tps, "prefill_tps", e.prefill_tps));
    }
    finding_quiet(f, "model", "estimates", all);
}

static void report_advice(struct findings *f, const struct model_facts *m,
                          const struct host_facts *a)
{
    uint32_t bits = advise(m, a);
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
    char text[32], size[16];
    double bytes = estimate_token_bytes(m), rate = a->decode_s > 0 ? bytes / a->decode_s : 0;
    snprintf(text, sizeof text, "%s/s", bytes_format((uint64_t)rate, size));
    finding(f, "model", "weights", json_real(rate), text,
            "of the %s that a token touches, decode with everything resident: %.0f %% of what the "
            "memory streams",
            bytes_format((uint64_t)bytes, size),
            a->stream_bytes_per_s > 0 ? 100 * rate / a->stream_bytes_per_s : 0);
    finding_quiet(f, "model", "token_bytes", json_real(bytes));
}

int model_examine(struct findings *f, const char *model, const struct params *params,
                  const json_t *memory_estimate, struct host_facts *a, struct error *error)
{
    struct model_facts m = model_facts_of(memory_estimate);
    if (measure_forward(model, params, a, error) != 0)
        return -1;
    a->available = lookup_u64(memory_estimate, "available");
    a->limited = json_is_integer(json_object_get(memory_estimate, "cgroup_headroom")) &&
                 lookup_u64(memory_estimate, "cgroup_headroom") <= a->available;
    a->vector_kernels = kernel_ops_select(NULL)->isa != ISA_GENERIC;
    finding(f, "model", "file", json_string(lookup_text(memory_estimate, "model")), NULL, "%s", "");
    report_budgets(f, &m, a);
    report_kv(f, memory_estimate);
    report_speed(f, &m, a);
    report_estimates(f, &m, a);
    finding_quiet(f, "model", "memory_estimate", json_deep_copy(memory_estimate));
    ranking_report(f, &m, a, params, memory_estimate);
    report_advice(f, &m, a);
    return 0;
}
