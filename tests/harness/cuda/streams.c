/* SPDX-License-Identifier: Apache-2.0 */
/* What was submitted and has not run, in the order of submission. */
#include "tests/harness/cuda/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "tests/harness/cuda/memory.h"
#include "tests/harness/tagged.h"

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

static struct {
    struct task *all;
    size_t count, space;
    bool lazy; /* nothing runs before a wait */
    int last_error;
    bool failed; /* since the last wait */
    char error[200];
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
    while (i < fake.count && fake.all[i].stream != stream)
        i++;
    return i;
}

static bool may_run(size_t i)
{
    const struct task *t = &fake.all[i];
    return first_of(t->stream) == i && (t->kind != WAIT || t->event->happened >= t->number);
}

static void run_task(size_t i)
{
    struct task t = fake.all[i];
    memmove(&fake.all[i], &fake.all[i + 1], (--fake.count - i) * sizeof t);
    execute(&t);
    free(t.data);
}

/* Any of the streams. */
static void run_any(void)
{
    size_t able[64], n = 0;
    for (size_t i = 0; i < fake.count && n < 64; i++)
        if (may_run(i))
            able[n++] = i;
    sl_assert(n > 0); /* an event is recorded before it is waited for */
    run_task(able[fibres_draw((uint32_t)n)]);
}

static void run_some(void)
{
    for (uint32_t n = fake.lazy ? 0 : fibres_draw(3); n > 0 && fake.count > 0; n--)
        run_any();
}

void fake_run_all(void)
{
    while (fake.count > 0)
        run_any();
}

/* The next of a stream, or what that waits for. */
static void advance(const void *stream)
{
    size_t i = first_of(stream);
    while (!may_run(i)) {
        const struct task *wait = &fake.all[i];
        size_t record = 0;
        while (fake.all[record].kind != RECORD || fake.all[record].event != wait->event ||
               fake.all[record].number != wait->number)
            record++;
        i = first_of(fake.all[record].stream);
    }
    run_task(i);
}

static void step(const void *stream)
{
    if (fibres_draw(4) == 0)
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
    int lost = foreign(stream) ? FOREIGN : fake_lost();
    while (lost == 0 && first_of(stream) < fake.count)
        step(stream);
    return lost ? lost : result();
}

static struct task *submit(enum kind kind, void *stream)
{
    if (fake.count == fake.space) {
        fake.space = fake.space * 2 + 64;
        fake.all = realloc(fake.all, fake.space * sizeof *fake.all);
        sl_assert(fake.all);
    }
    struct task *t = &fake.all[fake.count++];
    *t = (struct task){.kind = kind, .gpu = fake_selected(), .stream = stream};
    return t;
}

int fake_upload(void *to, const void *from, size_t bytes, void *stream)
{
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
    if (foreign(stream))
        return FOREIGN;
    fake_show(fake_selected());
    if (!stream)
        return note_error(fibres_run(grid, block, shared_bytes, thread, arg)) == 0 ? 0 : 1;
    run_some();
    struct task *t = submit(LAUNCH, stream);
    t->grid = grid;
    t->block = block;
    t->shared = shared_bytes;
    t->thread = thread;
    t->data = copy_of(arg, bytes);
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
        while (fake.all[i].kind != RECORD || fake.all[i].event != e)
            i++;
        step(fake.all[i].stream);
    }
}

int fake_event_wait(void *event)
{
    if (foreign(event))
        return FOREIGN;
    run_until(event);
    return result();
}

int fake_event_done(void *event)
{
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
    return (uint32_t)fake.count;
}
