/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-recorder: writes the access log to a file, the trace that `sluice sim` replays. It runs
 * only with --trace.
 *
 * The log is polled every few milliseconds: compute does not wake the recorder, so that recording
 * costs it nothing. Records overwritten before they were read are counted, with a warning: the
 * trace has gaps.
 *
 * Messages   in: CONTROL (supervisor).  out: ACK.
 * Memory     reads: access log, model index. writes: its own row, the trace file.
 * On its crash: its successor continues after the last complete record of the file, without a gap
 *            while the log still has the next record.
 * On a crash of others: it waits for records; without the supervisor it exits.
 * Limits:    a write error of the trace ends the recording, not the engine. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/tensor/precision.h"
#include "lib/trace/trace.h"
#include "procs/engine/child/child.h"
#include "procs/engine/child/run_trace.h"

#define SLICE_MS      5 /* the ring holds 16384 records: a tenth of a second of a very fast model */
#define BATCH         512
#define TICK_EVERY_NS (50 * NS_PER_MS)

struct recorder {
    struct child child;
    struct access_log_reader accesses;
    uint64_t lost_seen;
    int fd; /* -1: recording has ended */
    struct trace_record batch[BATCH];
};

static struct recorder the_recorder;

static void give_up(struct recorder *r, int errno_value)
{
    log_warn("cannot write %s: %s; recording ends", r->child.params->trace, strerror(errno_value));
    close(r->fd);
    r->fd = -1;
}

static void write_all(struct recorder *r, const void *data, size_t bytes)
{
    const char *at = data;
    while (r->fd >= 0 && bytes > 0) {
        ssize_t n = write(r->fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            give_up(r, errno);
            return;
        }
        at += n;
        bytes -= (size_t)n;
        counter_add(r->child.process, CTR_RECORDER_bytes, (uint64_t)n);
    }
}

/* The records of the ring and of the trace have the same bytes. */
_Static_assert(
    sizeof(struct access_record) == sizeof(struct trace_record) &&
        offsetof(struct access_record, weight) == offsetof(struct trace_record, weight) &&
        offsetof(struct access_record, expert) == offsetof(struct trace_record, expert) &&
        offsetof(struct access_record, kind) == offsetof(struct trace_record, kind) &&
        offsetof(struct access_record, prefill) == offsetof(struct trace_record, prefill) &&
        offsetof(struct access_record, before) == offsetof(struct trace_record, before) &&
        (int)ACCESS_LOGITS == (int)TRACE_LOGITS && (int)ACCESS_VALUES == (int)TRACE_VALUES,
    "a use is a trace record");

/* What a preset routes by, if it does so by residency. */
static void state_routing(const struct recorder *r, struct access_record *start)
{
    struct knobs knobs;
    struct precision_policy policy;
    struct error error;
    uint32_t preset = start->preset;
    start->preset = 0; /* decided by the simulator */
    if (child_knobs(&r->child, preset, &knobs, &policy, &error) != 0 ||
        knobs.routing != ROUTING_RESIDENT_FIRST)
        return;
    start->rank = (uint8_t)(knobs.exact_ranks < UINT8_MAX ? knobs.exact_ranks : UINT8_MAX);
    start->weight = (float)knobs.nats;
}

static void drain(struct recorder *r)
{
    struct access_record access;
    size_t n = 0;
    bool any = false;
    while (r->fd >= 0 && access_log_read(&r->child.access_log, &r->accesses, UINT64_MAX, &access)) {
        if (access.kind == ACCESS_SEQUENCE_START)
            state_routing(r, &access);
        memcpy(&r->batch[n++], &access, sizeof access);
        any = true;
        counter_add(r->child.process, CTR_RECORDER_records, 1);
        if (n == BATCH) {
            write_all(r, r->batch, sizeof r->batch);
            n = 0;
        }
    }
    /* Dropped records are counted before the next ones are written: a successor computes its
     * position from both. */
    write_all(r, r->batch, n * sizeof *r->batch);
    if (any)
        child_progress(&r->child);
    if (r->accesses.lost > r->lost_seen) {
        if (r->lost_seen == 0)
            log_warn("trace %s: records dropped, the file cannot be written fast enough",
                     r->child.params->trace);
        counter_add(r->child.process, CTR_RECORDER_records_dropped,
                    r->accesses.lost - r->lost_seen);
        r->lost_seen = r->accesses.lost;
    }
}

static struct trace_table table_of(const struct model_index *m)
{
    uint32_t entry = model_table_entry(m), layer = 0;
    if (entry == ENTRY_NONE)
        return (struct trace_table){.tables = 0};
    const struct model_extent *x = &model_index_entries(m)[entry].extent[0];
    const struct table_pages t = model_table(m);
    while (layer < m->hparams.layers - 1 && !m->layer[layer].ngrams)
        layer++;
    return (struct trace_table){.tables = 1,
                                .rows_of_token = model_ngram_rows(&m->hparams),
                                .rows = model_index_tensors(m)[x->tensor].ne[1],
                                .row_bytes = (uint32_t)t.row_bytes,
                                .head_bytes = t.head_bytes,
                                .slots = t.slots,
                                .layer = layer};
}

static void write_header(struct recorder *r)
{
    const struct model_index *m = r->child.model;
    struct trace_header h = {.magic = TRACE_MAGIC,
                             .version = TRACE_VERSION,
                             .header_bytes = sizeof h,
                             .record_bytes = sizeof(struct trace_record),
                             .layers = m->hparams.layers,
                             .expert_layers = hparams_layers_with_experts(&m->hparams),
                             .experts = m->hparams.experts,
                             .top_k = m->hparams.experts_used,
                             .table_layers = m->hparams.table_layers,
                             .precision_mask = m->precision_mask,
                             .hidden = m->hparams.hidden,
                             .router = {.gating = m->hparams.gating,
                                        .normalise = m->hparams.norm_top_k != 0,
                                        .scale = m->hparams.expert_scale,
                                        .groups = m->hparams.groups,
                                        .groups_used = m->hparams.groups_used},
                             .table = table_of(m)};
    for (int t = 0; t < PRECISION__COUNT; t++)
        h.precision_bytes[t] =
            m->precision_entries[t] ? m->precision_bytes[t] / m->precision_entries[t] : 0;
    if (r->child.plan)
        memcpy(h.model_hash, r->child.plan->model_hash, sizeof h.model_hash);
    write_all(r, &h, sizeof h);
}

/* A successor: its position in the log is the number of records in the file plus those dropped.
 * False when its predecessor did not create the file. */
static bool resume_trace(struct recorder *r)
{
    struct trace_header h;
    struct stat st;
    if (fstat(r->fd, &st) != 0 || pread(r->fd, &h, sizeof h, 0) != (ssize_t)sizeof h ||
        h.magic != TRACE_MAGIC)
        return false;
    uint64_t records = ((uint64_t)st.st_size - sizeof h) / sizeof(struct trace_record);
    uint64_t position = records + counter_get(r->child.process, CTR_RECORDER_records_dropped);
    if (position > access_log_written(&r->child.access_log) ||
        ftruncate(r->fd, (off_t)(sizeof h + records * sizeof(struct trace_record))) != 0)
        return false;
    counter_set(r->child.process, CTR_RECORDER_records, records);
    r->accesses.next = position;
    return true;
}

/* The first recorder of an engine creates the file, from the start of the log; a successor
 * appends. */
static void open_trace(struct recorder *r)
{
    const char *path = r->child.params->trace;
    const mode_t others = run_trace_follows_text(r->child.params) ? 0 : 0044;
    r->accesses = (struct access_log_reader){0};
    r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600 | others);
    if (r->fd < 0)
        log_fatal(2, "cannot write --trace %.300s: %s", path, strerror(errno));
    if (r->child.incarnation > 1 && resume_trace(r))
        return;
    if (ftruncate(r->fd, 0) != 0 && errno != EINVAL) /* a pipe or a device has no length */
        log_fatal(2, "cannot write --trace %.300s: %s", path, strerror(errno));
    write_header(r);
}

static void handle_controls(struct recorder *r)
{
    struct msg_control control;
    while (child_control(&r->child, &control)) {
        counter_add(r->child.process, CTR_RECORDER_messages, 1);
        child_ack(&r->child, &control);
    }
}

static void loop(struct recorder *r)
{
    uint64_t tick_due = 0;
    child_wait(&r->child, WAIT_IDLE);
    while (!r->child.stop) {
        struct pollfd supervisor = {.fd = child_fd(&r->child), .events = POLLIN};
        if (poll(&supervisor, 1, SLICE_MS) < 0 && errno != EINTR)
            sl_panic("poll: %s", strerror(errno));
        drain(r);
        uint64_t now = clock_now_ns();
        if (now < tick_due && supervisor.revents == 0)
            continue;
        handle_controls(r);
        child_tick(&r->child);
        tick_due = now + TICK_EVERY_NS;
    }
    drain(r); /* the last records of compute, which is stopped before the recorder */
    if (r->fd >= 0 && close(r->fd) != 0)
        log_warn("%s: %s", r->child.params->trace, strerror(errno));
}

int main(int argc, char **argv)
{
    struct recorder *r = &the_recorder;
    child_start(&r->child, SERVICE_RECORDER, argc, argv);
    open_trace(r);
    child_ready(&r->child);
    loop(r);
    child_exit(&r->child);
}
