/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the operations that were submitted and have not run, in the order of submission. */
#include "tests/harness/cuda/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "tests/harness/cuda/memory.h"
#include "tests/harness/tagged.h"

#define RECORDING 900 /* cudaErrorStreamCaptureUnsupported */
#define BROKEN    901 /* cudaErrorStreamCaptureInvalidated */

enum kind { COPY, FILL, LAUNCH, RECORD, WAIT };

#define FOREIGN 400 /* cudaErrorInvalidResourceHandle */

/* An event; of a stream only the address and its GPU are used. */
struct thing {
    int gpu;
    uint64_t recorded, happened; /* numbers of records */
};

struct task {
    enum kind kind;
    int gpu;
    void *stream, *to;
    const void *from; /* of a copy; with data: that */
    uint8_t *data;    /* a copy of what may change; of a launch, its argument */
    size_t bytes;
    int value;
    struct thing *event;
    uint64_t number; /* of the record */
    struct fibre_index grid, block;
    size_t shared;
    void (*thread)(const void *arg);
};

struct tasks {
    struct task *all;
    size_t count, space;
};

static struct {
    struct tasks queue;
    bool lazy; /* nothing runs before a wait */
    bool slow; /* and then only what it waits for */
    int last_error;
    bool failed; /* since the last wait */
    char error[200];
    /* What a stream records; NULL: none does. `broken`: something was done that is not legal
     * then. */
    void *recording;
    struct tasks recorded;
    bool broken;
    struct fake_counts counts;
} fake;

static void *copy_of(const void *from, size_t bytes)
{
    void *data = malloc(bytes + 1);
    sl_assert(data);
    return memcpy(data, from, bytes);
}

/* A stream or an event of another GPU than the selected one. */
static bool foreign(const void *thing)
{
    return thing && ((const struct thing *)thing)->gpu != fake_selected();
}

/* While a stream records: what may not be called then, by the thread that records. */
static int illegal(const char *what)
{
    fake.broken = true;
    snprintf(fake.error, sizeof fake.error, "%s while a stream records a graph", what);
    return RECORDING;
}

int fake_unless_recording(const char *what)
{
    return fake.recording ? illegal(what) : 0;
}

static int note_error(int status)
{
    const char *text = fibres_error();
    if (status != 0)
        snprintf(fake.error, sizeof fake.error, "%s", text ? text : "a launch failed");
    return status;
}

static void execute(const struct task *t)
{
    fake_show(t->gpu);
    switch (t->kind) {
    case COPY: memcpy(t->to, t->data ? t->data : t->from, t->bytes); break;
    case FILL: memset(t->to, t->value, t->bytes); break;
    case LAUNCH:
        if (note_error(fibres_run(t->grid, t->block, t->shared, t->thread, t->data)) != 0)
            fake.failed = true;
        break;
    case RECORD: t->event->happened = t->number; break;
    case WAIT: break;
    }
}

/* The first of a stream; count: it has none. */
static size_t first_of(const void *stream)
{
    size_t i = 0;
    while (i < fake.queue.count && fake.queue.all[i].stream != stream)
        i++;
    return i;
}

static bool may_run(size_t i)
{
    const struct task *t = &fake.queue.all[i];
    return first_of(t->stream) == i && (t->kind != WAIT || t->event->happened >= t->number);
}

static void run_task(size_t i)
{
    struct task t = fake.queue.all[i];
    memmove(&fake.queue.all[i], &fake.queue.all[i + 1], (--fake.queue.count - i) * sizeof t);
    execute(&t);
    free(t.data);
}

/* Any of the streams. */
static void run_any(void)
{
    size_t able[64], n = 0;
    for (size_t i = 0; i < fake.queue.count && n < 64; i++)
        if (may_run(i))
            able[n++] = i;
    sl_assert(n > 0); /* an event is recorded before it is waited for */
    run_task(able[fibres_draw((uint32_t)n)]);
}

static void run_some(void)
{
    for (uint32_t n = fake.lazy || fake.slow ? 0 : fibres_draw(3); n > 0 && fake.queue.count > 0;
         n--)
        run_any();
}

void fake_run_all(void)
{
    while (fake.queue.count > 0)
        run_any();
}

/* The next of a stream, or what that waits for. */
static void advance(const void *stream)
{
    size_t i = first_of(stream);
    while (!may_run(i)) {
        const struct task *wait = &fake.queue.all[i];
        size_t record = 0;
        while (fake.queue.all[record].kind != RECORD ||
               fake.queue.all[record].event != wait->event ||
               fake.queue.all[record].number != wait->number)
            record++;
        i = first_of(fake.queue.all[record].stream);
    }
    run_task(i);
}

static void step(const void *stream)
{
    if (!fake.slow && fibres_draw(4) == 0)
        run_any();
    else
        advance(stream);
}

static int result(void)
{
    int status = fake_lost();
    if (status == 0 && fake.failed)
        status = 1;
    fake.failed = false;
    fake.lazy = fibres_draw(2) != 0;
    return status;
}

int fake_wait(void *stream)
{
    if (fake.recording)
        return illegal("a wait");
    int lost = foreign(stream) ? FOREIGN : fake_lost();
    while (lost == 0 && first_of(stream) < fake.queue.count)
        step(stream);
    return lost ? lost : result();
}

static struct task *add(struct tasks *list, const struct task *task)
{
    if (list->count == list->space) {
        list->space = list->space * 2 + 64;
        list->all = realloc(list->all, list->space * sizeof *list->all);
        sl_assert(list->all);
    }
    list->all[list->count] = *task;
    return &list->all[list->count++];
}

static bool records(const void *stream)
{
    return fake.recording && stream == fake.recording;
}

static struct task *submit(enum kind kind, void *stream)
{
    return add(records(stream) ? &fake.recorded : &fake.queue,
               &(struct task){.kind = kind, .gpu = fake_selected(), .stream = stream});
}

/* The default stream would wait for the one that records; of other memory a copy would be made at
 * once. */
static int check_copy(const void *host, size_t bytes, const void *stream)
{
    if (fake.recording && !stream)
        return illegal("a copy in the default stream");
    if (records(stream) && !fake_pinned(host, bytes))
        return illegal("a copy of memory that is not pinned");
    return 0;
}

int fake_upload(void *to, const void *from, size_t bytes, void *stream)
{
    int status = check_copy(from, bytes, stream);
    if (status != 0)
        return status;
    run_some();
    if (foreign(stream))
        return FOREIGN;
    if (!fake_on_device(to, bytes))
        return 1;
    fake_show(fake_selected());
    if (!stream) {
        memcpy(to, untagged(from), bytes);
        return 0;
    }
    struct task *t = submit(COPY, stream);
    t->to = to;
    t->from = from;
    t->bytes = bytes;
    if (!fake_pinned(from, bytes))
        t->data = copy_of(untagged(from), bytes);
    run_some();
    return 0;
}

int fake_download(void *to, const void *from, size_t bytes, void *stream)
{
    int status = check_copy(to, bytes, stream);
    if (status != 0)
        return status;
    run_some();
    if (foreign(stream))
        return FOREIGN;
    if (!fake_on_device(from, bytes))
        return 1;
    fake_show(fake_selected());
    struct task *t = submit(COPY, stream);
    t->to = untagged(to);
    t->from = from;
    t->bytes = bytes;
    if (!stream) /* later launches there do not wait for it */
        t->data = copy_of(from, bytes);
    run_some();
    return 0;
}

int fake_fill(void *to, int value, size_t bytes, void *stream)
{
    if (fake.recording && !stream)
        return illegal("a fill in the default stream");
    run_some();
    if (foreign(stream))
        return FOREIGN;
    if (!fake_on_device(to, bytes))
        return 1;
    fake_show(fake_selected());
    if (!stream) {
        memset(to, value, bytes);
        return 0;
    }
    struct task *t = submit(FILL, stream);
    t->to = to;
    t->value = value;
    t->bytes = bytes;
    return 0;
}

int fake_launch(struct fibre_index grid, struct fibre_index block, size_t shared_bytes,
                void (*thread)(const void *arg), const void *arg, size_t bytes, void *stream)
{
    if (fake.recording && !stream)
        return illegal("a launch in the default stream");
    if (foreign(stream))
        return FOREIGN;
    fake_show(fake_selected());
    fake.counts.launches += !records(stream);
    if (!stream)
        return note_error(fibres_run(grid, block, shared_bytes, thread, arg)) == 0 ? 0 : 1;
    run_some();
    struct task *t = submit(LAUNCH, stream);
    t->grid = grid;
    t->block = block;
    t->shared = shared_bytes;
    t->thread = thread;
    t->data = copy_of(arg, bytes);
    t->bytes = bytes;
    return fake_last_error();
}

/* ---- events ---- */

int fake_make(void **out)
{
    struct thing *t = calloc(1, sizeof *t);
    sl_assert(t);
    t->gpu = fake_selected();
    *out = t;
    return 0;
}

int fake_drop(void *thing)
{
    if (foreign(thing))
        return FOREIGN;
    fake_run_all();
    free(thing);
    return 0;
}

int fake_record(void *event, void *stream)
{
    if (records(stream))
        return illegal("an event");
    struct thing *e = event;
    if (foreign(event) || foreign(stream))
        return FOREIGN;
    struct task *t = submit(RECORD, stream);
    t->event = e;
    t->number = ++e->recorded;
    return 0;
}

int fake_stream_wait(void *stream, void *event)
{
    if (records(stream))
        return illegal("an event");
    struct thing *e = event;
    if (foreign(event) || foreign(stream))
        return FOREIGN;
    struct task *t = submit(WAIT, stream);
    t->event = e;
    t->number = e->recorded;
    return 0;
}

static void run_until(const struct thing *e)
{
    while (e->happened < e->recorded) {
        size_t i = 0;
        while (fake.queue.all[i].kind != RECORD || fake.queue.all[i].event != e)
            i++;
        step(fake.queue.all[i].stream);
    }
}

int fake_event_wait(void *event)
{
    if (fake.recording)
        return illegal("a wait for an event");
    if (foreign(event))
        return FOREIGN;
    run_until(event);
    return result();
}

int fake_event_done(void *event)
{
    if (fake.recording)
        return illegal("a query of an event");
    const struct thing *e = event;
    if (foreign(event))
        return FOREIGN;
    if (fake_prompt())
        run_until(e);
    run_some();
    if (e->happened >= e->recorded)
        return 0;
    fake.last_error = 600; /* cudaErrorNotReady */
    return fake.last_error;
}

/* ---- graphs ---- */

/* What was recorded, with the arguments of then. */
struct graph {
    struct tasks tasks;
};

static struct task copy_of_task(const struct task *t)
{
    struct task copy = *t;
    if (t->data)
        copy.data = copy_of(t->data, t->bytes);
    return copy;
}

int fake_capture_begin(void *stream)
{
    if (foreign(stream))
        return FOREIGN;
    if (fake.recording || !stream)
        return illegal("a second recording, or one of the default stream,");
    fake.recording = stream;
    fake.recorded = (struct tasks){0};
    fake.broken = false;
    return 0;
}

int fake_capture_end(void *stream, void **graph)
{
    if (!records(stream))
        return illegal("the end of another recording");
    struct graph *g = calloc(1, sizeof *g);
    sl_assert(g);
    g->tasks = fake.recorded;
    fake.recorded = (struct tasks){0};
    fake.recording = NULL;
    if (fake.broken) {
        fake_graph_drop(g);
        return BROKEN;
    }
    *graph = g;
    return 0;
}

int fake_graph_copy(const void *graph, void **out)
{
    const struct graph *from = graph;
    struct graph *g = calloc(1, sizeof *g);
    sl_assert(g);
    for (size_t i = 0; i < from->tasks.count; i++) {
        struct task copy = copy_of_task(&from->tasks.all[i]);
        add(&g->tasks, &copy);
    }
    *out = g;
    return 0;
}

int fake_graph_launch(void *graph, void *stream)
{
    const struct graph *g = graph;
    if (fake.recording)
        return illegal("a launch of a graph");
    sl_assert(stream); /* nothing needs the default one */
    if (foreign(stream))
        return FOREIGN;
    fake.counts.graphs++;
    run_some();
    for (size_t i = 0; i < g->tasks.count; i++) {
        struct task copy = copy_of_task(&g->tasks.all[i]);
        copy.stream = stream;
        add(&fake.queue, &copy);
    }
    return fake_last_error();
}

int fake_graph_drop(void *graph)
{
    struct graph *g = graph;
    for (size_t i = 0; i < g->tasks.count; i++)
        free(g->tasks.all[i].data);
    free(g->tasks.all);
    free(g);
    return 0;
}

struct fake_counts fake_counts(void)
{
    return fake.counts;
}

void fake_slow(bool on)
{
    fake.slow = on;
}

int fake_last_error(void)
{
    int status = fake.last_error;
    fake.last_error = 0;
    return status;
}

const char *fake_error_text(void)
{
    return fake.error[0] ? fake.error : "a copy that is not within one allocation";
}

uint32_t fake_pending(void)
{
    return (uint32_t)fake.queue.count;
}
