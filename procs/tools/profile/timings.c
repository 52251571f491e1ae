/* SPDX-License-Identifier: Apache-2.0 */
/* Compute times of decode, and read times of experts. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "procs/tools/profile/profile.h"

#define DECODED_TOKENS 128
#define WARM_TOKENS    16 /* before those that are measured, or half of a short window */
#define READS          96
#define READ_DEPTH     8

/* ---- compute: time stamps at the start of a layer, before and after its router ---- */

struct stamps {
    const struct offline_runner *runner;
    uint64_t last, attention, router, experts;
    uint32_t first; /* layer with experts; the layers before it are not counted */
    bool counting;
};

/* Time without the waits for experts. */
static uint64_t now_ns(const struct stamps *s)
{
    return clock_now_ns() - offline_waited_ns(s->runner);
}

static void add(struct stamps *s, uint64_t *to)
{
    uint64_t now = now_ns(s);
    if (s->counting && s->last)
        *to += now - s->last;
    s->last = now;
}

static void at_layer(void *arg, const struct expert_step *step, const float *x, size_t stride,
                     uint32_t n)
{
    (void)x, (void)stride, (void)n;
    struct stamps *s = arg;
    if (step->layer > s->first)
        add(s, &s->experts);
    s->last = now_ns(s);
}

static void before_router(void *arg, const struct expert_step *step, const float *x, uint32_t n)
{
    (void)step, (void)x, (void)n;
    struct stamps *s = arg;
    add(s, &s->attention);
}

static void after_router(void *arg, const struct expert_step *step, const float *x, size_t stride,
                         uint32_t n)
{
    (void)step, (void)x, (void)stride, (void)n;
    struct stamps *s = arg;
    add(s, &s->router);
}

static int by_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int profile_timings(struct profile *p, struct error *error)
{
    struct plan *plan = p->plan;
    if (plan_knows(plan, PLAN_token_ns))
        return 0;
    uint32_t tokens = DECODED_TOKENS < p->text.window ? DECODED_TOKENS : p->text.window;
    uint32_t warm = WARM_TOKENS < tokens / 2 ? WARM_TOKENS : tokens / 2;
    uint64_t took[DECODED_TOKENS], counted = 0, started = clock_now_ns();
    uint32_t first = model_expert_layer(offline_index(p->model), 0), layers = plan->layers - first;
    struct stamps s = {.first = first};
    struct offline_hooks hooks = {.arg = &s,
                                  .layer_inputs = at_layer,
                                  .gate_input = before_router,
                                  .gate_inputs = after_router};
    struct offline_runner_config config = {
        .threads = p->threads ? (uint32_t)p->threads : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
        .chunk = 1,
        .context = p->text.window,
        .hooks = &hooks};
    struct offline_runner *r = offline_runner_create(p->model, &config, error);
    if (!r)
        return -1;
    int status = 0;
    s.runner = r;
    for (uint32_t i = 0; i < tokens && status == 0; i++) {
        s.counting = i >= warm;
        uint64_t start = now_ns(&s);
        status = core_forward(offline_core(r), offline_sequence(r), p->text.ids + i, i, 1, error);
        if (status == 0)
            core_output(offline_core(r), 0, 1);
        if (s.counting)
            took[counted++] = now_ns(&s) - start;
        profile_steps(p, "timings of decode", started, 0, i + 1, tokens);
    }
    offline_runner_destroy(r);
    if (status != 0)
        return status;
    sl_assert(counted > 0); /* a window has tokens */
    qsort(took, counted, sizeof *took, by_u64);
    double n = (double)counted * layers;
    plan->scalar[PLAN_token_ns] = (double)took[counted / 2];
    plan->scalar[PLAN_threads] = config.threads;
    plan->scalar[PLAN_layer_attention_ns] = (double)s.attention / n;
    plan->scalar[PLAN_layer_router_ns] = (double)s.router / n;
    plan->scalar[PLAN_layer_experts_ns] =
        (double)s.experts / ((double)counted * (layers > 1 ? layers - 1 : 1));
    return 0;
}

/* ---- storage device: reads of whole experts, as by the loaders ---- */

struct reading {
    const struct model_index *model;
    const int *fds; /* by part, or stripe */
    uint32_t first; /* expert of this thread */
    uint32_t step, count;
    uint64_t bytes, took[READS];
    int failed;
};

/* Reads a run of a file; `needed`: what must be there, the rest may be after the end. */
static int read_run(struct reading *r, uint32_t file, const struct model_extent *x, uint64_t needed,
                    void *buffer, uint64_t cap)
{
    if (x->read_bytes > cap)
        return EINVAL;
    ssize_t n = pread(r->fds[file], buffer, x->read_bytes, (off_t)x->file_offset);
    if (n < 0 || (uint64_t)n < needed)
        return n < 0 ? errno : EIO;
    r->bytes += x->read_bytes;
    return 0;
}

/* Reads the runs of one expert in sequence, in all stripes of a store. */
static int read_expert(struct reading *r, uint32_t number, void *buffer, uint64_t cap)
{
    const struct model_hparams *hp = &r->model->hparams;
    uint32_t cells = hparams_expert_layers(hp) * hp->experts;
    uint32_t cell = (uint32_t)((uint64_t)number * 7919 % cells);
    uint32_t layer = hparams_expert_layer_at(hp, cell / hp->experts);
    const struct model_entry *e = model_index_entries(r->model) + r->model->dense_count +
                                  layer * hp->experts + cell % hp->experts;
    int failed = 0;
    for (uint32_t x = 0; !e->in_store && x < e->extents && !failed; x++)
        failed = read_run(r, e->extent[x].part, &e->extent[x],
                          e->extent[x].head_bytes + e->extent[x].payload_bytes, buffer, cap);
    for (uint32_t shard = 0; e->in_store && shard < r->model->stripe_count && !failed; shard++) {
        struct model_extent run[ENTRY_EXTENTS_MAX];
        uint32_t runs = model_entry_shard(e, shard, r->model->stripe_count, run);
        for (uint32_t i = 0; i < runs && !failed; i++)
            failed = read_run(r, shard, &run[i], 1, buffer, cap);
    }
    return failed;
}

static void *read_experts(void *arg)
{
    struct reading *r = arg;
    uint64_t cap = r->model->expert_slot_bytes_max;
    void *buffer = aligned_alloc(PAGE_BYTES, align_up(cap, PAGE_BYTES));
    r->failed = buffer ? 0 : ENOMEM;
    for (uint32_t i = 0; i < r->count && !r->failed; i++) {
        uint64_t start = clock_now_ns();
        r->failed = read_expert(r, r->first + i * r->step, buffer, cap);
        r->took[i] = clock_now_ns() - start;
    }
    free(buffer);
    return NULL;
}

static int read_deep(struct profile *p, const int *fds, double *rate)
{
    struct reading r[READ_DEPTH];
    pthread_t thread[READ_DEPTH];
    uint64_t bytes = 0, start = clock_now_ns();
    uint32_t started = 0;
    int failed = 0;
    for (uint32_t i = 0; i < READ_DEPTH; i++) {
        r[i] = (struct reading){.model = offline_index(p->model),
                                .fds = fds,
                                .first = 1000 + i,
                                .step = READ_DEPTH,
                                .count = READS / 4};
        if (pthread_create(&thread[i], NULL, read_experts, &r[i]) != 0)
            break;
        started++;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        bytes += r[i].bytes;
        failed = failed ? failed : r[i].failed;
    }
    *rate = (double)bytes * 1e9 / (double)(clock_now_ns() - start);
    return started ? failed : EAGAIN;
}

/* Uses O_DIRECT if the file system supports it, to bypass the page cache. */
static int open_direct(const char *path)
{
    struct error ignored;
    int fd = model_open(path, O_DIRECT, &ignored);
    if (fd < 0 && errno == EINVAL) {
        log_warn("O_DIRECT is not supported: the read times include the page cache");
        fd = model_open(path, 0, &ignored);
    }
    return fd;
}

static int open_file(const struct profile *p, uint32_t part)
{
    const struct model_stripe *file = model_loader_file(offline_index(p->model), part);
    bool store = offline_index(p->model)->stripe_count > 0;
    if (!file || (part == 0 && !store))
        return open_direct(p->model_path);
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    return fd < 0 && errno == EINVAL ? open(file->path, O_RDONLY | O_CLOEXEC) : fd;
}

int profile_storage(struct profile *p, struct error *error)
{
    if (plan_knows(p->plan, PLAN_drive_bytes_per_s))
        return 0;
    int fds[MODEL_PARTS_MAX], failed = 0;
    const struct model_index *m = offline_index(p->model);
    uint32_t opened = 0, parts = m->part_count + m->stripe_count;
    do {
        fds[opened] = open_file(p, opened);
        failed = fds[opened] < 0 ? errno : 0;
    } while (failed == 0 && ++opened < parts);
    struct reading r = {.model = m, .fds = fds, .step = 1, .count = READS};
    double rate = 0;
    if (failed == 0)
        read_experts(&r);
    if (failed == 0)
        failed = r.failed ? r.failed : read_deep(p, fds, &rate);
    while (opened > 0)
        close(fds[--opened]);
    if (failed)
        return error_set_errno(error, ERR_IO, failed, "cannot read %.200s", p->model_path);
    qsort(r.took, READS, sizeof *r.took, by_u64);
    p->plan->scalar[PLAN_expert_read_ns] = (double)r.took[READS / 2];
    p->plan->scalar[PLAN_drive_bytes_per_s] = rate;
    return 0;
}
