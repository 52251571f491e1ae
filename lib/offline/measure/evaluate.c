/* SPDX-License-Identifier: Apache-2.0 */
/* Divides windows of a text among threads, and computes the losses of their tokens. */
#include "lib/offline/measure/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/offline/measure/job.h"
#include "lib/tensor/precision.h"

#define RESAMPLES 2000 /* of a bootstrap interval */

/* ---- hooks of static precisions and masks ---- */

static int serve(void *arg, const struct expert_step *step, const struct expert_item *item)
{
    struct worker *w = arg;
    const struct offline_evaluation *e = w->job->e;
    int precision = PRECISION_NATIVE;
    if (w->own.serve)
        precision = w->own.serve(w->own.arg, step, item);
    else if (e->precision)
        precision = e->precision[(size_t)step->layer * offline_index(e->model)->hparams.experts +
                                 item->expert];
    if (precision == OFFLINE_SKIP)
        w->skipped++;
    else
        w->accesses[precision]++;
    return precision;
}

static int serve_row(void *arg, const struct expert_step *step, uint32_t row,
                     const struct route *route, float weight_before)
{
    struct worker *w = arg;
    int precision = w->own.serve_row(w->own.arg, step, row, route, weight_before);
    if (precision == OFFLINE_SKIP)
        w->skipped++;
    else
        w->accesses[precision]++;
    return precision;
}

static bool mask(void *arg, const struct expert_step *step, bool *allowed)
{
    struct worker *w = arg;
    if (w->own.mask)
        return w->own.mask(w->own.arg, step, allowed);
    uint32_t experts = offline_index(w->job->e->model)->hparams.experts;
    memcpy(allowed, w->job->e->allowed + (size_t)step->layer * experts, experts * sizeof *allowed);
    return true;
}

#define PASS(name, args, call)                                                                     \
    static void name args                                                                          \
    {                                                                                              \
        struct worker *w = arg;                                                                    \
        w->own.name call;                                                                          \
    }
PASS(choice, (void *arg, const struct expert_step *step, const float *importance),
     (w->own.arg, step, importance))
PASS(routed, (void *arg, const struct expert_step *step, const struct route *routes),
     (w->own.arg, step, routes))
PASS(layer_inputs,
     (void *arg, const struct expert_step *step, const float *x, size_t stride, uint32_t n),
     (w->own.arg, step, x, stride, n))
PASS(gate_inputs,
     (void *arg, const struct expert_step *step, const float *x, size_t stride, uint32_t n),
     (w->own.arg, step, x, stride, n))
PASS(gate_input, (void *arg, const struct expert_step *step, const float *x, uint32_t n),
     (w->own.arg, step, x, n))
PASS(logits,
     (void *arg, const struct expert_step *step, const float *logits,
      const struct model_router *rule),
     (w->own.arg, step, logits, rule))
PASS(reroute,
     (void *arg, const struct expert_step *step, const float *logits,
      const struct model_router *rule, struct route *routes),
     (w->own.arg, step, logits, rule, routes))
#undef PASS

struct offline_hooks job_hooks(struct worker *w)
{
    const struct offline_evaluation *e = w->job->e;
    const struct offline_hooks *o = &w->own;
    return (struct offline_hooks){
        .arg = w,
        .serve = o->serve || e->precision ? serve : NULL,
        .serve_row = o->serve_row ? serve_row : NULL,
        .mask = o->mask || e->allowed ? mask : NULL,
        .choice = o->choice ? choice : NULL,
        .routed = o->routed ? routed : NULL,
        .layer_inputs = o->layer_inputs ? layer_inputs : NULL,
        .gate_inputs = o->gate_inputs ? gate_inputs : NULL,
        .gate_input = o->gate_input ? gate_input : NULL,
        .logits = o->logits ? logits : NULL,
        .reroute = o->reroute ? reroute : NULL,
    };
}

/* ---- windows in order of time ---- */

void job_progress(struct worker *w, uint64_t steps)
{
    struct job *job = w->job;
    pthread_mutex_lock(&job->lock);
    job->done += steps;
    struct offline_progress p = {.done = job->done, .of = job->of};
    pthread_mutex_unlock(&job->lock);
    if (w->number != 0 || !job->e->progress)
        return;
    uint64_t took = clock_now_ns() - job->started_ns;
    p.left_ns = (uint64_t)((double)took * (double)(p.of - p.done) / (double)p.done);
    p.read_bytes = offline_read_bytes(job->e->model);
    job->e->progress(job->e->arg, &p);
}

/* Scores rows [at, at + scored) of the window, which are rows 0.. of the last forward pass. */
static int score_block(struct worker *w, uint32_t window, uint32_t at, uint32_t scored,
                       struct error *error)
{
    const struct pair *p = &w->pair;
    uint32_t vocab = offline_index(w->job->e->model)->hparams.vocab, rows;
    for (uint32_t r = 0; r < scored; r += rows) {
        rows = core_output_rows(offline_core(p->test));
        rows = scored - r < rows ? scored - r : rows;
        const float *test = core_output(offline_core(p->test), r, rows), *base = NULL;
        if (core_check_output(offline_core(p->test), test, (size_t)rows * vocab, error) != 0)
            return -1;
        if (p->reference) /* its last pass covered the whole window */
            base = core_output(offline_core(p->reference), at + r, rows);
        for (uint32_t i = 0; i < rows; i++)
            if (score_row(w, window, at + r + i, test + (size_t)i * vocab,
                          base ? base + (size_t)i * vocab : NULL, error) != 0)
                return -1;
    }
    return 0;
}

static int run_window(struct worker *w, uint32_t window, struct error *error)
{
    const struct pair *p = &w->pair;
    const struct offline_text *text = w->job->e->text;
    const uint32_t *ids = offline_window(text, window);
    /* rows do not depend on their chunk: the reference runs the window in one pass, which is
     * faster */
    if (p->reference && core_forward(offline_core(p->reference), offline_sequence(p->reference),
                                     ids, 0, text->window, error) != 0)
        return -1;
    for (uint32_t at = 0, n; at < text->window; at += n) {
        n = text->window - at < w->chunk[0] ? text->window - at : w->chunk[0];
        if (core_forward(offline_core(p->test), offline_sequence(p->test), ids + at, at, n,
                         error) != 0 ||
            score_block(w, window, at, at + n < text->window ? n : n - 1, error) != 0)
            return -1;
    }
    return 0;
}

static int work_in_order(struct worker *w, struct error *error)
{
    struct job *job = w->job;
    const struct offline_evaluation *e = job->e;
    uint32_t segment = e->segment ? e->segment : 1;
    int status = 0;
    while (status == 0 && !atomic_load(&job->failed)) {
        uint32_t first = atomic_fetch_add(&job->next, segment);
        if (first >= e->text->windows)
            break;
        for (uint32_t i = first; i < first + segment && i < e->text->windows && status == 0; i++) {
            if (e->starts)
                e->starts(e->arg, w->number, i);
            status = run_window(w, i, error);
            job_progress(w, 1);
        }
    }
    return status;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct error error;
    int status = w->job->e->abreast ? abreast_run(w, &error) : work_in_order(w, &error);
    if (status != 0 && atomic_exchange(&w->job->failed, 1) == 0)
        w->job->error = error;
    return NULL;
}

void job_run(struct job *job, void *(*loop)(void *worker))
{
    for (uint32_t i = 1; i < job->workers; i++) {
        struct worker *w = &job->worker[i];
        w->started = pthread_create(&w->thread, NULL, loop, w) == 0;
    }
    loop(&job->worker[0]); /* threads that did not start are not needed */
    for (uint32_t i = 1; i < job->workers; i++)
        if (job->worker[i].started)
            pthread_join(job->worker[i].thread, NULL);
}

/* ---- workers ---- */

uint32_t job_chunk(const struct job *job)
{
    const struct offline_evaluation *e = job->e;
    uint32_t chunk = e->token_by_token ? 1 : e->chunk ? e->chunk : e->text->window;
    if (e->abreast)
        return job->streams;
    return chunk < e->text->window ? chunk : e->text->window;
}

bool job_chunk_depends(const struct worker *w)
{
    return w->job->e->in_order || w->own.serve || w->own.mask || w->own.choice;
}

static int open_pair(struct worker *w, struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    struct offline_hooks hooks;
    struct pair *p = &w->pair;
    if (e->hooks && w->number > 0)
        e->hooks(e->arg, w->number, &w->own);
    hooks = job_hooks(w);
    struct offline_runner_config config = {.threads = 1,
                                           .chunk = job_chunk(w->job),
                                           .sequences = w->job->streams,
                                           .context = e->text->window,
                                           .method = e->method,
                                           .dense = e->dense,
                                           .kv_type = e->kv_type,
                                           .renormalise_skips = e->renormalise_skips,
                                           .one_layer = !e->in_order,
                                           .output_bytes = w->job->output_bytes,
                                           .worker = w->number,
                                           .share = w->job->workers,
                                           .hooks = &hooks};
    config.scratch_limit = job_chunk_depends(w) ? 0 : w->job->scratch_limit;
    p->test = offline_runner_create(e->model, &config, error);
    if (!p->test)
        return -1;
    w->chunk[0] = core_chunk(offline_core(p->test));
    config.hooks = NULL;
    config.sequences = 1;
    config.kv_type = e->reference_kv_type;
    config.dense = PRECISION_NATIVE;
    config.chunk = e->text->window;
    config.scratch_limit = e->in_order ? 0 : w->job->scratch_limit;
    p->reference = e->compare ? offline_runner_create(e->model, &config, error) : NULL;
    if (p->reference)
        w->chunk[1] = core_chunk(offline_core(p->reference));
    return p->reference || !e->compare ? 0 : -1;
}

static int open_worker(struct worker *w, struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    w->rows = calloc((size_t)e->text->window + w->job->streams, sizeof *w->rows);
    w->recorded = calloc(offline_index(e->model)->hparams.vocab, sizeof *w->recorded);
    if (!w->rows || !w->recorded)
        return error_set(error, ERR_NO_MEMORY, "out of memory (rows of a window)");
    if (e->abreast && abreast_open(w, error) != 0)
        return -1;
    return open_pair(w, error);
}

static void close_worker(struct worker *w)
{
    offline_runner_destroy(w->pair.test);
    offline_runner_destroy(w->pair.reference);
    abreast_close(w);
    free(w->rows);
    free(w->recorded);
}

static int allocate(const struct offline_evaluation *e, struct offline_losses *out,
                    struct error *error)
{
    uint32_t windows = e->text->windows, scored = e->text->window - 1 - e->score_from;
    *out = (struct offline_losses){.windows = windows, .scored = scored};
    out->nll = calloc(windows, sizeof *out->nll);
    bool compared = e->compare || e->against;
    if (compared) {
        out->kld = calloc((size_t)windows * scored, sizeof *out->kld);
        out->reference_nll = calloc(windows, sizeof *out->reference_nll);
        out->same = calloc(windows, sizeof *out->same);
    }
    if (out->nll && (!compared || (out->kld && out->reference_nll && out->same)))
        return 0;
    offline_losses_free(out);
    return error_set(error, ERR_NO_MEMORY, "out of memory (losses of %u windows)", windows);
}

static uint32_t threads_of(const struct offline_evaluation *e)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = e->threads ? e->threads : processors > 0 ? (uint32_t)processors : 1;
    threads = threads > OFFLINE_WORKERS_MAX ? OFFLINE_WORKERS_MAX : threads;
    return threads > e->text->windows ? e->text->windows : threads;
}

static int run(struct job *job, struct error *error)
{
    if (job->e->hooks) /* the sizes depend on them */
        job->e->hooks(job->e->arg, 0, &job->worker[0].own);
    if (sweep_workers(job, error) != 0)
        return -1;
    for (uint32_t i = 0; i < job->workers; i++)
        if (open_worker(&job->worker[i], error) != 0)
            return -1;
    if (sweep_prepare(job, error) != 0)
        return -1;
    job->started_ns = clock_now_ns();
    if (!job->e->in_order)
        return sweep_run(job, error);
    job_run(job, worker_main);
    return 0;
}

int offline_evaluate(const struct offline_evaluation *e, struct offline_losses *out,
                     struct error *error)
{
    sl_assert(e->text->window >= 2 && !(e->compare && e->against));
    sl_assert(e->score_from < e->text->window - 1 && (!e->abreast || e->in_order));
    if (allocate(e, out, error) != 0)
        return -1;
    struct worker worker[OFFLINE_WORKERS_MAX] = {0};
    struct job job = {.e = e, .out = out, .worker = worker, .workers = threads_of(e), .streams = 1};
    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.changed, NULL);
    for (uint32_t i = 0; i < job.workers; i++) {
        worker[i].job = &job;
        worker[i].number = i;
    }
    int status = run(&job, error);
    for (uint32_t i = 0; i < job.workers; i++) {
        close_worker(&worker[i]);
        out->skipped += worker[i].skipped;
        for (int t = 0; t < PRECISION__COUNT; t++)
            out->accesses[t] += worker[i].accesses[t];
    }
    for (uint32_t i = 0; out->same && i < out->windows; i++)
        out->top1_same += out->same[i];
    pthread_cond_destroy(&job.changed);
    pthread_mutex_destroy(&job.lock);
    if (status == 0 && !atomic_load(&job.failed))
        return 0;
    offline_losses_free(out);
    if (status == 0 && error)
        *error = job.error;
    return -1;
}

void offline_losses_free(struct offline_losses *l)
{
    free(l->nll);
    free(l->kld);
    free(l->reference_nll);
    free(l->same);
    *l = (struct offline_losses){0};
}

double offline_mean_nll(const struct offline_losses *l)
{
    double sum = 0;
    for (uint32_t i = 0; i < l->windows; i++)
        sum += l->nll[i];
    return sum / ((double)l->windows * l->scored);
}

double offline_perplexity(const struct offline_losses *l)
{
    return exp(offline_mean_nll(l));
}

/* ---- bootstrap intervals and quantiles ---- */

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_float(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* exp(mean of d per token) - minus, and its interval. */
static struct offline_interval of_differences(const double *d, uint32_t windows, uint32_t scored,
                                              double minus, double level)
{
    static double sample[RESAMPLES];
    sl_assert(windows > 0 && level > 0 && level < 1);
    struct random random;
    random_seed(&random, 1, 0);
    double sum = 0, tokens = (double)windows * scored;
    for (uint32_t i = 0; i < windows; i++)
        sum += d[i];
    struct offline_interval out = {.value = exp(sum / tokens) - minus};
    for (int s = 0; s < RESAMPLES; s++) {
        double total = 0;
        for (uint32_t i = 0; i < windows; i++)
            total += d[random_below(&random, windows)];
        sample[s] = exp(total / tokens) - minus;
    }
    qsort(sample, RESAMPLES, sizeof *sample, by_double);
    out.low = sample[(int)((1 - level) / 2 * RESAMPLES)];
    out.high = sample[(int)((1 + level) / 2 * (RESAMPLES - 1))];
    return out;
}

struct offline_interval offline_loss_interval(const double *nll_a, const double *nll_b,
                                              uint32_t windows, uint32_t scored, double level)
{
    double *d = malloc(windows * sizeof *d);
    sl_assert(d);
    for (uint32_t i = 0; i < windows; i++)
        d[i] = nll_b[i] - nll_a[i];
    struct offline_interval out = of_differences(d, windows, scored, 1, level);
    free(d);
    return out;
}

struct offline_interval offline_perplexity_interval(const double *nll, uint32_t windows,
                                                    uint32_t scored, double level)
{
    return of_differences(nll, windows, scored, 0, level);
}

float offline_quantile(float *values, size_t n, double fraction)
{
    sl_assert(n > 0);
    qsort(values, n, sizeof *values, by_float);
    size_t i = (size_t)(fraction * (double)n);
    return values[i < n ? i : n - 1];
}
