/* SPDX-License-Identifier: Apache-2.0 */
/* The model, a GGUF file or an expert store: opened once, parsed by inspect in a separate process
 * with resource limits (a malformed file can crash inspect, not the supervisor). The index is
 * checked here before use. Then the parameters that depend on the model or the machine get their
 * values. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/file/part_name.h"
#include "lib/file/skeleton.h"
#include "lib/model/index/capacity.h"
#include "lib/model/limits.h"
#include "lib/model/store/store.h"
#include "lib/policy/presets/loss.h"
#include "lib/tensor/precision.h"
#include "lib/trace/trace.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/rings/access_log.h"

#define INSPECT_NS      (60 * NS_PER_S)
#define INSPECT_POLL_MS 5
#define STORAGE_RATE_MIN                                                                           \
    (20 * MIB) /* minimum read bandwidth of a device, for the timeout, bytes per second */
#define INDEX_MAX (2 * GIB)

_Static_assert(ACCESS_LOG_RECORDS / 2 / (TRACE_TABLE_ROWS_MAX / TRACE_FLOATS) >=
                   PREFILL_CHUNK_LARGE,
               "check_trace_rows: a chunk that is chosen is small enough");

static int open_model(struct supervisor *s, struct error *error)
{
    char path[PATH_MAX];
    if (!gguf_real_path(s->options.model, path))
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open model %.200s",
                               s->options.model);
    if (strlen(path) >= sizeof s->procs->model_path)
        return error_set(error, ERR_BAD_INPUT, "the model's path is longer than %zu bytes",
                         sizeof s->procs->model_path - 1);
    strcpy(s->options.model, path);
    s->model_fd = fd_high(open(path, O_RDONLY | O_CLOEXEC));
    struct stat st;
    if (s->model_fd < 0 || fstat(s->model_fd, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open model %.200s", path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "model %.200s is neither a regular file nor a store",
                         path);
    if (S_ISREG(st.st_mode) && skeleton_is(s->model_fd) != (s->params.origin[0] != 0))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is a skeleton of a model on a server: give its URL with -m", path);
    /* inspect reads all of a store's model file, to check its hash */
    struct stat inner = {0};
    if (S_ISDIR(st.st_mode) && fstatat(s->model_fd, STORE_MODEL_FILE, &inner, 0) != 0)
        inner.st_size = 0; /* inspect reports what is missing */
    s->inspect_ns = INSPECT_NS + (uint64_t)inner.st_size / STORAGE_RATE_MIN * NS_PER_S;
    return 0;
}

/* A signal that arrives while inspect runs ends the start. */
static bool interrupted(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            return true;
    return false;
}

static int inspect_wait(struct supervisor *s, pid_t pid, struct error *error)
{
    uint64_t limit = clock_now_ns() + s->inspect_ns;
    int status;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            break;
        bool stop = interrupted(s);
        if (stop || clock_now_ns() > limit) {
            kill(pid, SIGKILL);
            return error_set(error, stop ? ERR_CANCELLED : ERR_TIMEOUT, "reading %.200s %s",
                             s->options.model, stop ? "was interrupted" : "took too long");
        }
        poll(NULL, 0, INSPECT_POLL_MS);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    /* inspect has printed the reason; this is the last line. */
    if (WIFEXITED(status))
        return error_set(error, WEXITSTATUS(status) == 2 ? ERR_BAD_INPUT : ERR_FAILED, "%s", "");
    const char *oom = WTERMSIG(status) == SIGKILL ? oom_killed(s) : NULL;
    if (oom)
        return error_set(error, ERR_NO_MEMORY, "reading %.200s: %s", s->options.model, oom);
    return error_set(error, ERR_BAD_INPUT, "reading %.200s ended by signal %d (%s)",
                     s->options.model, WTERMSIG(status), strsignal(WTERMSIG(status)));
}

/* Copies the blob into a segment of its size, and checks the copy: it cannot change any more, since
 * inspect has exited. */
static int model_segment(struct supervisor *s, int blob_fd, struct error *error)
{
    struct stat st;
    if (fstat(blob_fd, &st) != 0 || st.st_size <= 0 || (uint64_t)st.st_size > INDEX_MAX)
        return error_set(error, ERR_FAILED, "inspect wrote no index");
    uint64_t bytes = (uint64_t)st.st_size;
    struct segment *segment = &s->segments[SEGMENT_MODEL];
    if (segment_create(SEGMENT_MODEL, s->run_tag, s->boot, SEGMENT_MODEL_OFFSET + bytes, segment,
                       error) != 0)
        return -1;
    char *to = (char *)segment->base + SEGMENT_MODEL_OFFSET;
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pread(blob_fd, to + at, bytes - at, (off_t)at);
        if (n <= 0)
            return error_set_errno(error, ERR_IO, n < 0 ? errno : EIO, "cannot read the index");
        at += (uint64_t)n;
    }
    s->model = (struct model_index *)(void *)to;
    if (model_index_check(s->model, bytes, error) != 0)
        return -1;
    return plan_after_index(s->model, bytes, &s->plan, error);
}

static int inspect_run(struct supervisor *s, struct error *error)
{
    int blob_fd = fd_high(memfd_create("sluice-index", MFD_CLOEXEC));
    if (blob_fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "out of memory (model index)");
    int rc = -1;
    pid_t pid = spawn_inspect(s, blob_fd, error);
    if (pid > 0)
        rc = inspect_wait(s, pid, error);
    if (rc == 0)
        rc = model_segment(s, blob_fd, error);
    close(blob_fd);
    return rc;
}

static uint64_t cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    return n > 0 ? (uint64_t)n : 1;
}

/* A store needs one loader per stripe, a split model one per part. */
static void loaders_resolve(struct params *p, const struct model_index *m)
{
    uint32_t files = run_files(m);
    if (files == 0 || p->loaders == files)
        return;
    if (p->loaders != 1)
        log_info("--loaders %llu: the %s, one loader for each", (unsigned long long)p->loaders,
                 !m->stripe_count ? "model has parts"
                 : m->part_count  ? "store and its model file are read"
                                  : "store has stripes");
    p->loaders = files;
}

/* Under --max-loss a lossy preset runs only if the plan has measured its loss as it would run
 * here. */
static int check_loss(const struct supervisor *s, uint32_t preset, const struct served *served,
                      struct error *error)
{
    struct error why;
    double loss, allowed = s->params.max_loss / 100;
    if (!(allowed > 0))
        return 0;
    if (preset_loss(served, &loss, &why) != 0)
        return error_set(error, why.code, "--max-loss %g%%: preset '%s' rejected: %.160s",
                         s->params.max_loss, preset_at(preset)->name, why.text);
    if (loss > allowed)
        return error_set(
            error, ERR_BAD_INPUT,
            "--max-loss %g%%: preset '%s' rejected: its measured loss is up to %.3g %%",
            s->params.max_loss, preset_at(preset)->name, 100 * loss);
    return 0;
}

/* A throttle that a loader would get. */
struct limit {
    uint32_t loader;
    uint64_t bytes_per_s;
};

/* Limit of the bandwidth at which an expert is read, with `other` in place of the present throttle
 * of its loader; 0: none. Of a split model one loader reads it, else all do. */
static double throttled(struct supervisor *s, const struct limit *other)
{
    double lowest = 0;
    for (uint32_t i = 0; i < s->params.loaders; i++) {
        double throttle =
            (double)(other && other->loader == i ? other->bytes_per_s : auto_throttle(s, i));
        if (throttle > 0 && (lowest <= 0 || throttle < lowest))
            lowest = throttle;
    }
    return s->model->part_count > 0 ? lowest : lowest * (double)s->params.loaders;
}

static int check_preset(struct supervisor *s, uint32_t preset, double share,
                        const struct limit *other, struct knobs *knobs, struct error *error)
{
    struct precision_policy policy;
    if (run_knobs(&s->params, preset, s->plan, knobs, error) != 0 ||
        preset_servable(knobs, s->plan, s->model, &policy, error) != 0)
        return -1;
    const struct served served = {.knobs = knobs,
                                  .policy = &policy,
                                  .plan = s->plan,
                                  .model = s->model,
                                  .resident_share = share,
                                  .prefill_chunk = s->params.prefill_chunk,
                                  .threads = s->params.threads,
                                  .kv_type = kv_type_find(s->params.kv_type),
                                  .read_bytes_per_s = throttled(s, other),
                                  .gpu = s->gpus.count > 0};
    return check_loss(s, preset, &served, error);
}

bool model_requests_lossy(const struct supervisor *s)
{
    struct knobs knobs;
    struct error error;
    return run_knobs(&s->params, atomic_load(&s->procs->preset_requested), s->plan, &knobs,
                     &error) != 0 ||
           knobs_lossy(&knobs);
}

int model_check_preset(struct supervisor *s, uint32_t preset, double share, struct knobs *knobs,
                       struct error *error)
{
    return check_preset(s, preset, share, NULL, knobs, error);
}

int model_check_start(struct supervisor *s, double share, struct error *error)
{
    struct knobs knobs;
    if (model_check_preset(s, s->preset, share, &knobs, error) == 0)
        return 0;
    if (!s->options.tuned)
        return -1;
    log_info("the tuned preset cannot run with these options, preset auto does: %s", error->text);
    s->options.tuned = false;
    s->preset = preset_find("auto");
    return params_set(&s->params, "preset", "auto", error) == 0
               ? model_check_preset(s, s->preset, share, &knobs, error)
               : -1;
}

int model_check_throttle(struct supervisor *s, uint32_t loader, uint64_t bytes_per_s,
                         struct error *error)
{
    const struct limit other = {loader, bytes_per_s};
    const uint32_t preset = atomic_load(&s->procs->preset_requested);
    const uint64_t now = auto_throttle(s, loader);
    const double share = budget_share_now(s);
    struct knobs knobs;
    if (auto_follows(s) || bytes_per_s == 0 || (now > 0 && bytes_per_s >= now) ||
        check_preset(s, preset, share, NULL, &knobs, error) != 0) /* for another reason */
        return 0;
    return check_preset(s, preset, share, &other, &knobs, error);
}

/* Largest chunk that may be chosen: the smaller one on a GPU, whose memory holds the activations,
 * too; and at most that with which the plan has measured fate's loss. */
static uint64_t chunk_max(const struct supervisor *s)
{
    uint64_t max = s->gpus.count > 0 ? PREFILL_CHUNK : PREFILL_CHUNK_LARGE;
    if (!s->plan || !plan_knows(s->plan, PLAN_fate_loss))
        return max;
    double most = preset_measured_chunk(s->plan, PLAN_fate_chunk);
    return most < (double)max ? (uint64_t)most : max;
}

/* --ctx-size. A model may be computed up to fewer tokens than it has. */
static int context_resolve(struct supervisor *s, struct error *error)
{
    struct params *p = &s->params;
    uint32_t context = s->model->hparams.context;
    char limit[MODEL_LIMIT_BYTES];
    if (p->ctx_size > 0 && p->ctx_size < CONTEXT_MIN)
        return error_set(error, ERR_BAD_INPUT, "--ctx-size: at least %u tokens", CONTEXT_MIN);
    if (model_check_tokens(s->model, p->ctx_size, "--ctx-size", error) != 0)
        return -1;
    if (model_limit_text(s->model, limit)[0])
        log_warn("%s", limit);
    s->budget.context_chosen = p->ctx_size == 0;
    if (s->budget.context_chosen)
        p->ctx_size = budget_context(s);
    if (p->ctx_size > context) {
        log_warn("--ctx-size %llu is beyond the model's context of %u tokens; using %u",
                 (unsigned long long)p->ctx_size, context, context);
        p->ctx_size = context;
    }
    return 0;
}

/* Rows of a table are recorded for a whole pass at once, while the cache reads the same ring: it
 * loses nothing that is within half of it. */
static int check_trace_rows(const struct supervisor *s, struct error *error)
{
    const struct params *p = &s->params;
    const uint32_t rows = model_ngram_rows(&s->model->hparams);
    if (!p->trace[0] || !p->trace_rows || s->model->page_count == 0)
        return 0;
    const uint64_t most = ACCESS_LOG_RECORDS / 2 / ((rows + TRACE_FLOATS - 1) / TRACE_FLOATS);
    return p->prefill_chunk <= most
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "--trace-rows: a token reads %u rows of the table, and those of %llu "
                           "tokens at once are too many for the recorder: --prefill-chunk must "
                           "be %llu at most",
                           rows, (unsigned long long)p->prefill_chunk, (unsigned long long)most);
}

static int params_resolve(struct supervisor *s, struct error *error)
{
    struct params *p = &s->params;
    if (p->threads == 0)
        p->threads = cores();
    s->budget.parallel_given = p->parallel > 0;
    if (!s->budget.parallel_given)
        p->parallel = PARALLEL_DEFAULT;
    if (p->deterministic) /* what a sequence gets must not depend on others */
        p->parallel = 1;
    if (context_resolve(s, error) != 0)
        return -1;
    if (p->prefill_chunk == 0) {
        s->budget.chunk_max = chunk_max(s);
        p->prefill_chunk = budget_chunk(s);
    }
    loaders_resolve(p, s->model);
    if (check_trace_rows(s, error) != 0 || storage_resolve(s, error) != 0)
        return -1;
    s->preset = preset_find(p->preset);
    if (s->preset == POLICY_NONE)
        return error_set(error, ERR_BAD_INPUT,
                         "--preset: unknown preset '%.40s'; expected one of %s", p->preset,
                         preset_names());
    uint64_t resident = capacity_payload_max(s->model, p->resident_experts);
    return model_check_start(s, budget_share_of(s, resident), error);
}

int model_take(struct supervisor *s, struct error *error)
{
    if (getrandom(&s->boot, sizeof s->boot, 0) != (ssize_t)sizeof s->boot)
        s->boot = clock_now_ns();
    s->boot |= 1; /* 0 means "any" to segment_attach */
    if (open_model(s, error) != 0 || inspect_run(s, error) != 0)
        return -1;
    /* The file that inspect has read; those of a store and of a split model are checked by
     * files_open. */
    if (run_files(s->model) == 0 && model_file_unchanged(s->model_fd, &s->model->file, error) != 0)
        return -1;
    return params_resolve(s, error) == 0 ? files_open(s, error) : -1;
}
