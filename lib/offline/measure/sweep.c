/* SPDX-License-Identifier: Apache-2.0 */
/* Many windows, layer by layer: the experts of a layer are read once for all windows of a group, if
 * they fit. Rows do not depend on each other, so the results are those of one window after
 * another. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/offline/measure/job.h"
#include "lib/tensor/precision.h"

/* Rows of a pass that are worth another worker; rows of a trial. */
#define ROWS_MIN   128
#define PROBE_ROWS 32
/* Logits of a runner: at most, and as a part of the free memory. */
#define OUTPUT_BYTES (16 * MIB)
#define OUTPUT_SHARE 64
/* Part of the free memory for the streams that are abreast. */
#define STREAMS_SHARE 8
/* Part of the free memory that a trial may take. */
#define PROBE_SHARE 8
/* Hidden states of the windows of a mapped model. */
#define MAPPED_BYTES (256 * MIB)

/* ---- sizes ---- */

/* Of a row between two layers. */
static size_t row_floats(const struct offline_model *m)
{
    return model_residual_floats(&offline_index(m)->hparams);
}

static uint64_t window_bytes(const struct offline_evaluation *e)
{
    uint64_t row = row_floats(e->model) * sizeof(float) * (1 + e->compare);
    return e->in_order ? 0 : e->text->window * (row + e->row_bytes);
}

/* The first layer of an evaluation, and the one after its last. */
static uint32_t first_layer(const struct offline_evaluation *e)
{
    return e->part ? e->part->first : 0;
}

static uint32_t end_layer(const struct offline_evaluation *e)
{
    return e->part && e->part->end ? e->part->end : offline_index(e->model)->hparams.layers;
}

static bool is_scored(const struct offline_evaluation *e)
{
    return !e->unscored && !(e->part && e->part->end);
}

static uint32_t expert_layers(const struct offline_evaluation *e)
{
    uint32_t count = 0;
    for (uint32_t l = first_layer(e); l < end_layer(e); l++)
        count += model_layer_has_experts(offline_index(e->model), l);
    return count;
}

/* Bytes that are read when `group` windows go through the layers together and the slots have
 * `slots` bytes: what does not fit into the slots is read again for every pass, of `chunk` rows; in
 * order of time, for every pass through all layers, with the experts that its tokens need at
 * worst. */
static double reads_of(const struct offline_evaluation *e, uint32_t chunk, uint64_t group,
                       double slots)
{
    const struct model_index *m = offline_index(e->model);
    const struct model_hparams *hp = &m->hparams;
    double layer = (double)m->expert_slot_bytes / hparams_expert_layers(hp);
    double windows = e->text->windows, layers = expert_layers(e), all = layer * layers;
    if (slots >= all)
        return all;
    if (e->in_order) {
        double share = (double)chunk * hp->experts_used / hp->experts;
        double each = (e->text->window + chunk - 1) / chunk;
        return all + windows * each * (all - slots) * (share < 1 ? share : 1);
    }
    double again = layer > slots ? layer - slots : 0;
    double groups = (double)((e->text->windows + group - 1) / group);
    double passes = (double)group * ((e->text->window + chunk - 1) / chunk) * (1 + e->compare);
    return groups * layers * (layer + (passes - 1) * again);
}

/* The number of windows of a group with the fewest reads. */
static uint32_t best_group(const struct offline_evaluation *e, uint32_t chunk, uint64_t free_bytes,
                           uint64_t minimum)
{
    uint64_t each = window_bytes(e), best = 1, before = 0;
    double reads = 0;
    for (uint64_t groups = e->text->windows; groups >= 1; groups--) {
        uint64_t group = (e->text->windows + groups - 1) / groups;
        if (group == before)
            continue;
        before = group;
        if (group * each + minimum > free_bytes)
            break;
        double now = reads_of(e, chunk, group, (double)(free_bytes - group * each));
        bool as_good =
            now <= reads && group * each <= MAPPED_BYTES; /* more windows at once: more threads */
        if (group == 1 || now < reads || as_good) {
            best = group;
            reads = now;
        }
    }
    return (uint32_t)best;
}

/* Scratch memory of the measured model's core with that chunk; its dense weights are there. */
static int scratch_of(const struct job *job, uint32_t chunk, uint64_t *bytes, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    struct offline_hooks hooks = job_hooks(&job->worker[0]); /* forms of experts */
    struct offline_runner_config config = {.threads = 1,
                                           .chunk = chunk,
                                           .context = chunk,
                                           .method = e->method,
                                           .one_layer = true,
                                           .dense = e->dense,
                                           .hooks = &hooks};
    struct offline_runner *r = offline_runner_create(e->model, &config, error);
    if (!r)
        return -1;
    *bytes = core_scratch_bytes(offline_core(r));
    offline_runner_destroy(r);
    return 0;
}

/* Keys and values of a window, as a runner allocates them. */
static uint64_t kv_of(const struct offline_evaluation *e)
{
    const struct model_hparams *hp = &offline_index(e->model)->hparams;
    uint64_t all = model_state_bytes(hp);
    for (uint32_t side = 0; side < KV_SIDE__COUNT; side++) {
        uint64_t most = 0, sum = 0;
        for (uint32_t l = 0; l < hp->layers; l++) {
            uint64_t bytes = model_kv_bytes(hp, l, side, e->kv_type, e->text->window);
            most = bytes > most ? bytes : most;
            sum += bytes;
        }
        all += e->in_order ? sum : most;
    }
    return all;
}

/* What a stream has, but for keys and values: a row that is gathered, those of the lossless model,
 * and what the hooks allocate. */
static uint64_t stream_bytes(const struct offline_evaluation *e)
{
    uint64_t row = row_floats(e->model) * sizeof(float);
    return e->abreast ? row + (e->compare ? e->text->window * row : 0) + e->stream_bytes : 0;
}

/* Segments at a time: all, divided among the workers, as far as these bytes allow. */
static void choose_streams(struct job *job, uint64_t bytes)
{
    const struct offline_evaluation *e = job->e;
    uint32_t segment = e->segment ? e->segment : 1;
    uint32_t segments = (e->text->windows + segment - 1) / segment;
    uint64_t streams = (segments + job->workers - 1) / job->workers;
    uint64_t most = e->streams ? e->streams : OFFLINE_STREAMS_MAX;
    uint64_t fit = (bytes < MAPPED_BYTES ? bytes : MAPPED_BYTES) /
                   ((kv_of(e) + stream_bytes(e)) * job->workers);
    most = fit < most ? fit : most;
    streams = streams < most ? streams : most;
    job->streams = e->abreast && streams > 0 ? (uint32_t)streams : 1;
}

/* Bytes of the largest form of an expert that the evaluation may need: a precision that is made can
 * be larger than the expert in the file. */
static uint64_t largest_form(const struct job *job)
{
    const struct offline_evaluation *e = job->e;
    const struct model_index *m = offline_index(e->model);
    bool any = job->worker[0].own.serve || job->worker[0].own.serve_row;
    uint64_t most = m->expert_slot_bytes_max;
    for (enum precision p = PRECISION_NATIVE + 1; p < PRECISION__COUNT; p++) {
        if (!any && !(e->precision &&
                      memchr(e->precision, (int)p, (size_t)m->hparams.layers * m->hparams.experts)))
            continue;
        for (uint32_t l = 0; l < m->hparams.layers; l++) {
            uint64_t bytes = offline_slot_bytes(e->model, l, 0, p, e->method);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static int too_small(const struct job *job, uint64_t more, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    char what[80];
    snprintf(what, sizeof what, "windows of %u tokens and %u threads", e->text->window,
             job->workers);
    return offline_too_small(e->model, offline_budget(e->model) + more, what, error);
}

struct rows { /* scratch memory of a runner: of one row, of another, and the rows of a pass */
    uint64_t one, row, flexible,
        fixed[2]; /* fixed: of the measured model, of the reference; 0: flexible */
};

/* Memory of the runners, with their windows. */
static uint64_t runners_bytes(const struct job *job, const struct rows *r)
{
    uint64_t kv = kv_of(job->e);
    uint64_t bytes = (job->streams - 1) * kv + job->streams * stream_bytes(job->e);
    for (int which = 0; which <= job->e->compare; which++)
        bytes += kv + r->one + r->row * (r->fixed[which] ? r->fixed[which] : r->flexible);
    return job->workers * bytes + window_bytes(job->e);
}

/* Half of what is left in addition to a layer's experts is for rows, in passes as large as a
 * window; with fewer workers if they get few. */
static void choose_rows(struct job *job, struct rows *r, uint64_t free_bytes)
{
    const struct offline_evaluation *e = job->e;
    const struct model_index *m = offline_index(e->model);
    uint64_t layer = m->expert_slot_bytes / hparams_expert_layers(&m->hparams) * 17 / 16;
    uint64_t experts = layer < free_bytes / 2 ? layer : free_bytes / 2;
    for (;; job->workers--) {
        uint64_t runners = (uint64_t)job->workers * (1 + e->compare);
        r->flexible = 0;
        uint64_t fixed = experts + runners_bytes(job, r);
        r->flexible = fixed < free_bytes ? (free_bytes - fixed) / (2 * runners * (r->row + 1)) : 0;
        r->flexible = r->flexible < e->text->window ? r->flexible : e->text->window;
        if (job->workers == 1 || r->flexible >= ROWS_MIN || r->flexible == e->text->window)
            break;
    }
}

int sweep_workers(struct job *job, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    struct rows r = {0};
    uint64_t more;
    choose_streams(job, UINT64_MAX);
    job->output_bytes = is_scored(e) && job_chunk(job) > 1 ? OUTPUT_BYTES : 0;
    if (offline_budget(e->model) == 0) /* mapped */
        return 0;
    if (offline_dense_prepare(e->model, e->dense, error) != 0)
        return -1;
    /* now: the heap that a trial leaves behind is used again. Earlier windows leave the slots for
     * it. */
    uint64_t free_bytes = offline_free_bytes(e->model);
    if (offline_reserve(e->model, free_bytes / PROBE_SHARE, "windows", error) != 0 ||
        scratch_of(job, 1, &r.one, error) != 0 ||
        scratch_of(job, 1 + PROBE_ROWS, &more, error) != 0)
        return -1;
    r.row = (more - r.one) / PROBE_ROWS;
    job->hook_bytes = e->hook_bytes < free_bytes / 2 ? e->hook_bytes : free_bytes / 2;
    free_bytes -= job->hook_bytes;
    choose_streams(job, free_bytes / STREAMS_SHARE);
    if (job->output_bytes > free_bytes / OUTPUT_SHARE)
        job->output_bytes = free_bytes / OUTPUT_SHARE;
    r.one += job->output_bytes;
    r.fixed[0] = job_chunk_depends(&job->worker[0]) ? job_chunk(job) : 0;
    r.fixed[1] = e->in_order ? e->text->window : 0;
    choose_rows(job, &r, free_bytes);
    job->scratch_limit = r.one + r.flexible * r.row;
    uint64_t needed = runners_bytes(job, &r),
             experts = 2 * (uint64_t)job->workers * largest_form(job);
    uint64_t most = free_bytes + offline_heap_bytes();
    if (needed + experts > most)
        return too_small(job, needed + experts - most, error);
    uint64_t now = offline_free_bytes(e->model);
    return offline_reserve(e->model, needed < now ? needed : now, "windows", error);
}

static int fit_slots(struct job *job, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    uint64_t free_bytes = offline_free_bytes(e->model), each = window_bytes(e);
    uint64_t hooks = job->hook_bytes + (uint64_t)job->workers * job->streams * e->stream_bytes;
    free_bytes -= hooks < free_bytes ? hooks : free_bytes;
    uint32_t chunk = job->worker[0].chunk[0];
    uint64_t minimum = 2 * (uint64_t)job->workers * largest_form(job);
    if (free_bytes < minimum + each) /* the workers took more than estimated */
        return too_small(job, minimum + each - free_bytes, error);
    job->group = e->in_order ? 1 : best_group(e, chunk, free_bytes, minimum);
    uint64_t slots = free_bytes - job->group * each;
    offline_slots_resize(e->model, slots);
    if (!e->announce)
        return 0;
    const struct model_index *m = offline_index(e->model);
    double reads = reads_of(e, chunk, job->group, (double)slots);
    uint64_t once = m->expert_slot_bytes / (e->in_order ? 1 : hparams_expert_layers(&m->hparams));
    struct offline_estimate estimate = {.windows = e->text->windows,
                                        .group = job->group,
                                        .threads = job->workers,
                                        .slot_bytes = slots,
                                        .read_bytes = (uint64_t)reads,
                                        .expert_bytes = m->expert_slot_bytes,
                                        .enough_bytes = offline_budget(e->model) +
                                                        (once > slots ? once - slots : 0),
                                        .bytes_per_s = offline_read_rate(e->model)};
    e->announce(e->arg, &estimate);
    return 0;
}

int sweep_prepare(struct job *job, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    uint32_t windows = e->text->windows;
    uint32_t layers = end_layer(e) - first_layer(e) + 1;
    job->of = (uint64_t)windows * (e->abreast ? e->text->window : e->in_order ? 1 : layers);
    offline_slots_from(e->model, first_layer(e));
    if (offline_budget(e->model) > 0)
        return fit_slots(job, error);
    uint64_t group = e->in_order ? 1 : MAPPED_BYTES / window_bytes(e);
    job->group = group < 1 ? 1 : group < windows ? (uint32_t)group : windows;
    return 0;
}

/* ---- steps ---- */

static float *rows_of(const struct worker *w, int which, uint32_t window)
{
    const struct offline_evaluation *e = w->job->e;
    return w->job->sweep.x[which] + (size_t)window * e->text->window * row_floats(e->model);
}

static struct core_pass pass_of(struct worker *w, const struct offline_runner *r, uint32_t at,
                                uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++)
        w->rows[at + i].prefill = core_rows_prefill(rows);
    return (struct core_pass){
        .sequences = offline_sequence(r), .sequence_count = 1, .row = w->rows + at, .rows = rows};
}

static int run_layer(struct worker *w, int which, uint32_t window, uint32_t layer,
                     struct error *error)
{
    struct offline_runner *r = which ? w->pair.reference : w->pair.test;
    uint32_t all = w->job->e->text->window, chunk = w->chunk[which];
    size_t residual = row_floats(w->job->e->model);
    for (uint32_t at = 0, n; at < all; at += n) {
        n = all - at < chunk ? all - at : chunk;
        struct core_pass pass = pass_of(w, r, at, n);
        if (core_pass_layers(offline_core(r), &pass, layer, 1,
                             rows_of(w, which, window) + at * residual, error) != 0)
            return -1;
    }
    return 0;
}

/* Logits of rows [at, at + n) of a window. */
static const float *logits_of(struct worker *w, int which, uint32_t window, uint32_t at, uint32_t n)
{
    struct offline_runner *r = which ? w->pair.reference : w->pair.test;
    const struct model_hparams *hp = &offline_index(w->job->e->model)->hparams;
    struct core_pass pass = pass_of(w, r, at, n);
    int status =
        core_pass_layers(offline_core(r), &pass, hp->layers, 0,
                         rows_of(w, which, window) + at * row_floats(w->job->e->model), NULL);
    sl_assert(status == 0);
    return core_output(offline_core(r), 0, n);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int score_window(struct worker *w, uint32_t window, struct error *error)
{
    const struct pair *p = &w->pair;
    const struct offline_evaluation *e = w->job->e;
    uint32_t vocab = offline_index(e->model)->hparams.vocab, scored = e->text->window - 1;
    uint32_t most = smaller(w->chunk[0], core_output_rows(offline_core(p->test)));
    if (p->reference)
        most = smaller(most, smaller(w->chunk[1], core_output_rows(offline_core(p->reference))));
    for (uint32_t at = 0, n; at < scored; at += n) {
        n = smaller(scored - at, most);
        const float *test = logits_of(w, 0, window, at, n);
        if (core_check_output(offline_core(p->test), test, (size_t)n * vocab, error) != 0)
            return -1;
        const float *base = p->reference ? logits_of(w, 1, window, at, n) : NULL;
        for (uint32_t i = 0; i < n; i++)
            if (score_row(w, w->job->sweep.first + window, at + i, test + (size_t)i * vocab,
                          base ? base + (size_t)i * vocab : NULL, error) != 0)
                return -1;
    }
    return 0;
}

static int step(struct worker *w, uint32_t window, uint32_t layer, struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    const uint32_t *ids = offline_window(e->text, w->job->sweep.first + window);
    for (uint32_t i = 0; i < e->text->window; i++)
        w->rows[i] = (struct core_row){.position = i, .token = ids[i]};
    if (layer == end_layer(e))
        return is_scored(e) ? score_window(w, window, error) : 0;
    if (e->starts)
        e->starts(e->arg, w->number, w->job->sweep.first + window);
    if (run_layer(w, 0, window, layer, error) != 0)
        return -1;
    return e->compare ? run_layer(w, 1, window, layer, error) : 0;
}

/* ---- workers ---- */

/* The next step; false: none is left. */
static bool take_step(struct job *job, uint32_t *window, uint32_t *layer)
{
    struct sweep *s = &job->sweep;
    uint64_t steps = (uint64_t)s->windows * (s->layers + 1);
    pthread_mutex_lock(&job->lock);
    uint64_t number = s->next;
    bool any = number < steps;
    s->next += any;
    uint32_t before = (uint32_t)(number / s->windows); /* steps of the same window */
    *layer = s->layer + before;
    *window = (uint32_t)(number % s->windows);
    while (any && s->finished[*window] < before && !atomic_load(&job->failed))
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    return any && !atomic_load(&job->failed);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct job *job = w->job;
    uint32_t window, layer;
    while (take_step(job, &window, &layer)) {
        struct error error;
        int status = step(w, window, layer, &error);
        pthread_mutex_lock(&job->lock);
        if (status != 0 && atomic_exchange(&job->failed, 1) == 0)
            job->error = error;
        job->sweep.finished[window]++;
        pthread_cond_broadcast(&job->changed);
        pthread_mutex_unlock(&job->lock);
        job_progress(w, 1);
    }
    return NULL;
}

/* ---- a part of the layers ---- */

uint64_t offline_part_bytes(const struct offline_model *m, const struct offline_text *text)
{
    return (uint64_t)text->windows * text->window * row_floats(m) * sizeof(float);
}

/* Without a name: it is gone when the program ends, however that is. */
static int nameless_file(const char *next_to)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s.XXXXXX", next_to) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

int offline_part_open(const char *next_to, uint64_t bytes, struct error *error)
{
    int fd = nameless_file(next_to);
    int why = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (why == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    error_set_errno(error, ERR_IO, why, "no file for the states between layers near %.200s",
                    next_to);
    return -1;
}

/* The stream of the windows of this sweep, to or from its place in the file. */
static int transfer(struct job *job, bool write, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    struct sweep *s = &job->sweep;
    size_t row = (size_t)e->text->window * row_floats(e->model) * sizeof(float);
    size_t bytes = s->windows * row;
    for (size_t done = 0; done < bytes;) {
        char *at = (char *)s->x[0] + done;
        off_t offset = (off_t)(s->first * row + done);
        ssize_t n = write ? pwrite(e->part->fd, at, bytes - done, offset)
                          : pread(e->part->fd, at, bytes - done, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set_errno(error, ERR_IO, n < 0 ? errno : EIO,
                                   "cannot %s the states between two layers",
                                   write ? "write" : "read");
        done += (size_t)n;
    }
    return 0;
}

/* The windows of this sweep. */
static int run_group(struct job *job, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    struct sweep *s = &job->sweep;
    s->next = 0;
    memset(s->finished, 0, s->windows * sizeof *s->finished);
    if (s->layer > 0 && transfer(job, false, error) != 0)
        return -1;
    if (e->group)
        e->group(e->arg, s->first, s->windows);
    job_run(job, worker_main);
    bool write = e->part && e->part->end && !atomic_load(&job->failed);
    return write ? transfer(job, true, error) : 0;
}

int sweep_run(struct job *job, struct error *error)
{
    const struct offline_evaluation *e = job->e;
    struct sweep *s = &job->sweep;
    sl_assert(!e->part || (!e->compare && end_layer(e) >= first_layer(e)));
    s->layer = first_layer(e);
    s->layers = end_layer(e) - s->layer;
    size_t floats = (size_t)job->group * e->text->window * row_floats(e->model);
    s->finished = calloc(job->group, sizeof *s->finished);
    for (int which = 0; which <= e->compare; which++)
        s->x[which] = malloc(floats * sizeof(float));
    int status = s->finished && s->x[0] && (s->x[1] || !e->compare)
                     ? 0
                     : error_set(error, ERR_NO_MEMORY, "out of memory (%u windows)", job->group);
    for (uint32_t at = 0; status == 0 && at < e->text->windows && !atomic_load(&job->failed);
         at += s->windows) {
        s->first = at;
        s->windows = smaller(job->group, e->text->windows - at);
        status = run_group(job, error);
    }
    free(s->finished);
    free(s->x[0]);
    free(s->x[1]);
    return status;
}
