/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/offline/measure/evaluate.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/tensor/precision.h"

struct job { /* what all workers share */
    const struct offline_evaluation *e;
    struct offline_losses *out;
    atomic_uint next, done, failed;
    struct error error; /* of the first failure */
};

struct worker {
    struct job *job;
    uint32_t number;
    struct offline_hooks own; /* the caller's hooks */
    uint64_t top1_same, skipped, accesses[PRECISION__COUNT];
    float *recorded; /* one row of log-probabilities of e->against */
    pthread_t thread;
    bool started;
};

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
PASS(logits, (void *arg, const struct expert_step *step, const float *logits, uint32_t experts),
     (w->own.arg, step, logits, experts))
#undef PASS

static struct offline_hooks hooks_of(struct worker *w)
{
    const struct offline_evaluation *e = w->job->e;
    const struct offline_hooks *o = &w->own;
    return (struct offline_hooks){
        .arg = w,
        .serve = o->serve || e->precision ? serve : NULL,
        .mask = o->mask || e->allowed ? mask : NULL,
        .choice = o->choice ? choice : NULL,
        .routed = o->routed ? routed : NULL,
        .layer_inputs = o->layer_inputs ? layer_inputs : NULL,
        .gate_inputs = o->gate_inputs ? gate_inputs : NULL,
        .gate_input = o->gate_input ? gate_input : NULL,
        .logits = o->logits ? logits : NULL,
    };
}

/* ---- one window ---- */

static double log_sum_exp(const float *x, uint32_t n)
{
    float max = x[0];
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

static uint32_t largest(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* KL divergence of the row from the reference: sum p (log p - log q), nats. */
static double divergence(const float *p, const float *q, uint32_t n)
{
    double of_p = log_sum_exp(p, n), of_q = log_sum_exp(q, n), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double log_p = (double)p[i] - of_p;
        sum += exp(log_p) * (log_p - ((double)q[i] - of_q));
    }
    return sum > 0 ? sum : 0;
}

struct pair { /* the measured model, and the lossless one (or NULL) */
    struct offline_runner *test, *reference;
};

/* Compares row `row` of the window, q, with the reference, base; both are up to a constant. */
static void compare_row(struct worker *w, uint32_t window, uint32_t row, const float *base,
                        const float *q)
{
    struct offline_losses *out = w->job->out;
    uint32_t vocab = offline_index(w->job->e->model)->hparams.vocab;
    uint32_t target = offline_window(w->job->e->text, window)[row + 1];
    out->reference_nll[window] += log_sum_exp(base, vocab) - (double)base[target];
    out->kld[(size_t)window * out->scored + row] = (float)divergence(base, q, vocab);
    w->top1_same += largest(base, vocab) == largest(q, vocab);
}

/* base: the row of the lossless model; NULL when it does not run. */
static int score_row(struct worker *w, uint32_t window, uint32_t row, const float *q,
                     const float *base, struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    uint32_t vocab = offline_index(e->model)->hparams.vocab;
    uint32_t target = offline_window(e->text, window)[row + 1];
    w->job->out->nll[window] += log_sum_exp(q, vocab) - (double)q[target];
    if (e->record)
        logits_write(e->record, window, row, q);
    if (e->against && logits_read(e->against, window, row, w->recorded, error) != 0)
        return -1;
    base = e->against ? w->recorded : base;
    if (base)
        compare_row(w, window, row, base, q);
    return 0;
}

/* Scores rows [at, at + scored) of the window, which are rows 0.. of the last forward pass. */
static int score_block(struct worker *w, const struct pair *p, uint32_t window, uint32_t at,
                       uint32_t scored, struct error *error)
{
    uint32_t vocab = offline_index(w->job->e->model)->hparams.vocab, rows;
    for (uint32_t r = 0; r < scored; r += rows) {
        rows = core_output_rows(offline_core(p->test));
        rows = scored - r < rows ? scored - r : rows;
        const float *test = core_output(offline_core(p->test), r, rows), *base = NULL;
        if (p->reference) /* its last pass covered the whole window */
            base = core_output(offline_core(p->reference), at + r, rows);
        for (uint32_t i = 0; i < rows; i++)
            if (score_row(w, window, at + r + i, test + (size_t)i * vocab,
                          base ? base + (size_t)i * vocab : NULL, error) != 0)
                return -1;
    }
    return 0;
}

static int run_window(struct worker *w, const struct pair *p, uint32_t window, uint32_t chunk,
                      struct error *error)
{
    const struct offline_text *text = w->job->e->text;
    const uint32_t *ids = offline_window(text, window);
    w->job->out->nll[window] = 0;
    /* rows do not depend on their chunk: the reference runs the window in one pass, which is faster
     * */
    if (p->reference && core_forward(offline_core(p->reference), offline_sequence(p->reference),
                                     ids, 0, text->window, error) != 0)
        return -1;
    for (uint32_t at = 0, n; at < text->window; at += n) {
        n = text->window - at < chunk ? text->window - at : chunk;
        if (core_forward(offline_core(p->test), offline_sequence(p->test), ids + at, at, n,
                         error) != 0 ||
            score_block(w, p, window, at, at + n < text->window ? n : n - 1, error) != 0)
            return -1;
    }
    return 0;
}

/* ---- workers ---- */

static int open_pair(struct worker *w, struct pair *p, uint32_t *chunk, struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    struct offline_hooks hooks;
    if (e->hooks)
        e->hooks(e->arg, w->number, &w->own);
    hooks = hooks_of(w);
    *chunk = e->token_by_token                        ? 1
             : e->chunk && e->chunk < e->text->window ? e->chunk
                                                      : e->text->window;
    struct offline_runner_config config = {.threads = 1,
                                           .chunk = *chunk,
                                           .context = e->text->window,
                                           .method = e->method,
                                           .dense = e->dense,
                                           .kv_type = e->kv_type,
                                           .renormalise_skips = e->renormalise_skips,
                                           .hooks = &hooks};
    p->test = offline_runner_create(e->model, &config, error);
    config.hooks = NULL;
    config.kv_type = e->reference_kv_type;
    config.dense = PRECISION_NATIVE;
    config.chunk = e->text->window;
    p->reference = p->test && e->compare ? offline_runner_create(e->model, &config, error) : NULL;
    return p->test && (p->reference || !e->compare) ? 0 : -1;
}

static int do_window(struct worker *w, const struct pair *p, uint32_t window, uint32_t chunk,
                     struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    if (e->starts)
        e->starts(e->arg, w->number, window);
    int status = run_window(w, p, window, chunk, error);
    uint32_t done = atomic_fetch_add(&w->job->done, 1) + 1;
    if (w->number == 0 && e->progress)
        e->progress(e->arg, done, e->text->windows);
    return status;
}

static int work(struct worker *w, struct error *error)
{
    struct job *job = w->job;
    const struct offline_evaluation *e = job->e;
    struct pair p = {NULL, NULL};
    uint32_t chunk;
    int status = open_pair(w, &p, &chunk, error);
    if (e->against) {
        w->recorded = calloc(offline_index(e->model)->hparams.vocab, sizeof *w->recorded);
        if (!w->recorded)
            log_fatal(1, "out of memory (comparison of logits)");
    }
    uint32_t segment = e->segment ? e->segment : 1;
    while (status == 0 && !atomic_load(&job->failed)) {
        uint32_t first = atomic_fetch_add(&job->next, segment);
        if (first >= e->text->windows)
            break;
        for (uint32_t i = first; i < first + segment && i < e->text->windows && status == 0; i++)
            status = do_window(w, &p, i, chunk, error);
    }
    offline_runner_destroy(p.test);
    offline_runner_destroy(p.reference);
    free(w->recorded);
    return status;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct error error;
    if (work(w, &error) != 0 && atomic_exchange(&w->job->failed, 1) == 0)
        w->job->error = error;
    return NULL;
}

static int allocate(const struct offline_evaluation *e, struct offline_losses *out,
                    struct error *error)
{
    uint32_t windows = e->text->windows, scored = e->text->window - 1;
    *out = (struct offline_losses){.windows = windows, .scored = scored};
    out->nll = calloc(windows, sizeof *out->nll);
    bool compared = e->compare || e->against;
    if (compared) {
        out->kld = calloc((size_t)windows * scored, sizeof *out->kld);
        out->reference_nll = calloc(windows, sizeof *out->reference_nll);
    }
    if (out->nll && (!compared || (out->kld && out->reference_nll)))
        return 0;
    offline_losses_free(out);
    return error_set(error, ERR_NO_MEMORY, "out of memory (losses of %u windows)", windows);
}

int offline_evaluate(const struct offline_evaluation *e, struct offline_losses *out,
                     struct error *error)
{
    sl_assert(e->text->window >= 2 && !(e->compare && e->against));
    if (allocate(e, out, error) != 0)
        return -1;
    struct job job = {.e = e, .out = out};
    struct worker worker[OFFLINE_WORKERS_MAX] = {0};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = e->threads ? e->threads : processors > 0 ? (uint32_t)processors : 1;
    threads = threads > OFFLINE_WORKERS_MAX ? OFFLINE_WORKERS_MAX : threads;
    threads = threads > e->text->windows ? e->text->windows : threads;
    for (uint32_t i = 0; i < threads; i++) {
        worker[i].job = &job;
        worker[i].number = i;
    }
    for (uint32_t i = 1; i < threads; i++)
        worker[i].started = pthread_create(&worker[i].thread, NULL, worker_main, &worker[i]) == 0;
    worker_main(&worker[0]); /* threads that did not start are not needed */
    for (uint32_t i = 0; i < threads; i++) {
        if (worker[i].started)
            pthread_join(worker[i].thread, NULL);
        out->top1_same += worker[i].top1_same;
        out->skipped += worker[i].skipped;
        for (int t = 0; t < PRECISION__COUNT; t++)
            out->accesses[t] += worker[i].accesses[t];
    }
    if (!atomic_load(&job.failed))
        return 0;
    offline_losses_free(out);
    if (error)
        *error = job.error;
    return -1;
}

void offline_losses_free(struct offline_losses *l)
{
    free(l->nll);
    free(l->kld);
    free(l->reference_nll);
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
