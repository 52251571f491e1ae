/* SPDX-License-Identifier: Apache-2.0 */
/* Experts from the directory and the arena (docs/architecture.md): a pin is set before the state is
 * read; READY experts are used at once, without a message; the others go into one DEMAND. A wait
 * ends with an event, with a timeout after which the DEMAND is repeated, or with an error. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/io/read_errors.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/compute/experts/experts.h"

#define WAIT_FIRST_NS (20 * NS_PER_MS)
#define WAIT_MAX_NS   (1 * NS_PER_S)
#define SLICE_MAX_NS                                                                               \
    (100 * NS_PER_MS) /* maximum interval of checks during a wait: cancel, stop, heartbeat */
#define TICK_EVERY_NS  (50 * NS_PER_MS)
#define FAILURES_LIMIT 3 /* failed loads of an entry, each already retried by its loader */

static struct directory_entry *entry_of(const struct experts *e, const struct expert_step *step,
                                        const struct expert_item *item)
{
    return &e->child->directory
                .entries[experts_entry(e, step->layer, item->expert, item->precision)];
}

const uint8_t *experts_slot(const struct child *child, uint32_t entry)
{
    const struct directory_entry *d = &child->directory.entries[entry];
    uint64_t at = atomic_load_explicit(&d->arena_offset, memory_order_relaxed);
    sl_assert(at % PAGE_BYTES == 0 && at >= PAGE_BYTES && at < child->arena.bytes &&
              (uint64_t)d->slot_pages * PAGE_BYTES <= child->arena.bytes - at);
    return (const uint8_t *)child->arena.base + at;
}

const void *experts_dense(void *self, uint32_t entry)
{
    const struct experts *e = self;
    uint64_t word = entry_read(&e->child->directory.entries[entry].word);
    sl_assert(entry_state_of(word) == ENTRY_READY);
    const struct model_extent *x = &model_index_entries(e->child->model)[entry].extent[0];
    return experts_slot(e->child, entry) + x->slot_offset + x->head_bytes;
}

/* Half of the arena's capacity for experts: while one half is computed, the other is loaded. */
static uint64_t source_pin_limit(void *self)
{
    return experts_capacity_bytes(self) / 2;
}

/* ---- DEMAND ---------------------------------------------------------------------------------- */

static void send_demand(struct experts *e, const struct expert_step *step)
{
    struct process *row = e->child->process;
    if (e->demand.count == 0)
        return;
    e->demand.access_log_position = access_log_written(&e->child->access_log);
    e->demand.sent_ns = clock_now_ns();
    e->demand.pass = step->pass;
    e->demand.sequence = step->row->sequence;
    e->demand.position = step->row->position;
    e->demand.layer = (uint16_t)step->layer;
    e->demand.attempt = e->attempt;
    counter_add(row, e->attempt ? CTR_COMPUTE_demands_retried : CTR_COMPUTE_demands, 1);
    if (channel_send(e->cache, &e->demand, MSG_DEMAND) != 0)
        counter_add(row, CTR_COMPUTE_messages_dropped, 1);
    e->demand.count = 0;
}

static void add_demand(struct experts *e, const struct expert_step *step,
                       const struct expert_item *item)
{
    e->demand.wants[e->demand.count++] =
        (struct msg_want){.entry = experts_entry(e, step->layer, item->expert, item->precision),
                          .tokens = item->tokens,
                          .need = (uint16_t)item->precision};
    if (e->demand.count == MSG_WANTS_MAX)
        send_demand(e, step);
}

/* Only when the cache waits for this number of tokens: other tokens make no system call. */
void experts_tokens_end(struct experts *e, uint32_t tokens)
{
    uint64_t now = access_log_add_tokens(&e->child->access_log, tokens);
    uint64_t bell =
        atomic_load_explicit(&e->child->directory.head->token_bell, memory_order_seq_cst);
    if (bell > now || bell <= now - tokens)
        return;
    struct msg_tokens message = {.tokens = now};
    if (channel_send(e->cache, &message, MSG_TOKENS) != 0)
        counter_add(e->child->process, CTR_COMPUTE_messages_dropped, 1);
}

/* ---- pins ------------------------------------------------------------------------------------ */

static enum access_outcome pin_by_policy(struct experts *e, const struct expert_step *step,
                                         struct expert_item *item, enum precision_need *need)
{
    struct precision_choice choice = experts_precision_choice(e, step, item);
    *need = choice.need;
    return experts_pin_choice(e, step, item, &choice);
}

static void demand_waited(struct experts *e, const struct expert_step *step,
                          struct expert_item **items, uint32_t count)
{
    child_inject(e->child, INJECT_COMPUTE_PINNED);
    e->attempt = 0;
    for (uint32_t i = 0; i < count; i++)
        if (items[i]->state == ITEM_WAITED)
            add_demand(e, step, items[i]);
    send_demand(e, step);
}

void experts_pin_items(struct experts *e, const struct expert_step *step,
                       struct expert_item **items, uint32_t count, experts_pin_item *pin_item)
{
    struct access_tally tally = {0};
    bool waited = false;
    for (uint32_t i = 0; i < count; i++) {
        enum precision_need need;
        enum access_outcome outcome = pin_item(e, step, items[i], &need);
        if (items[i]->state == ITEM_WAITED && experts_drop_evicted(e, step, items[i]))
            continue;
        waited |= items[i]->state == ITEM_WAITED;
        experts_log_access(e, step, items[i], need, outcome, &tally);
    }
    experts_count_accesses(e, &tally);
    if (waited)
        demand_waited(e, step, items, count);
    experts_publish_rows(e, step);
}

static void source_pin(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count)
{
    experts_pin_items(self, step, items, count, pin_by_policy);
}

static void source_unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    entry_unpin(&entry_of(self, step, item)->word, PINNER_COMPUTE);
}

/* ---- wait ------------------------------------------------------------------------------------ */

/* Progress of all loaders as one number: bytes and ends of parts, without idle seconds. */
static uint64_t loaders_progress(const struct experts *e)
{
    const struct procs_head *head = e->child->procs.head;
    uint64_t sum = 0;
    for (uint32_t n = 0; n < head->loaders; n++) {
        const struct process *row = &head->process[procs_index_of(SERVICE_LOADER, n)];
        sum += counter_get(row, CTR_LOADER_bytes_read) + counter_get(row, CTR_LOADER_parts_done) +
               counter_get(row, CTR_LOADER_parts_failed) +
               counter_get(row, CTR_LOADER_reads_failed);
    }
    return sum;
}

static int entry_error(const struct experts *e, const struct expert_step *step,
                       const struct expert_item *item, int errno_value, struct error *error)
{
    uint32_t entry = experts_entry(e, step->layer, item->expert, item->precision);
    const struct model_extent *x = &model_index_entries(e->child->model)[entry].extent[0];
    if (errno_value == EBADMSG)
        return error_set(error, ERR_IO,
                         "expert %u of layer %u (offset %" PRIu64 " of the stripes of %.180s) does "
                         "not match its checksum, read twice: the store is damaged",
                         item->expert, step->layer, x->file_offset,
                         e->child->procs.head->model_path);
    uint32_t loader =
        atomic_load_explicit(&entry_of(e, step, item)->last_loader, memory_order_relaxed);
    if (errno_value == ESTALE) /* the supervisor sees it within a tick; this one needs it now */
        return run_changed_error(e->child->params, e->child->model,
                                 e->child->procs.head->model_path,
                                 run_changed_word(loader, RUN_EXPERTS), error);
    if (read_reported_memory(errno_value))
        return error_set(error, ERR_NO_MEMORY,
                         "%s for expert %u of layer %u: free memory there, or start the engine "
                         "with a smaller --budget",
                         run_errno_text(errno_value), item->expert, step->layer);
    char device[256];
    run_storage_text(e->child->params, e->child->model, e->child->procs.head->model_path, loader,
                     entry, device, sizeof device);
    return error_set_errno(error, ERR_IO, errno_value,
                           "expert %u of layer %u (offset %" PRIu64 ") cannot be read from %.230s",
                           item->expert, step->layer, x->file_offset + x->head_bytes, device);
}

/* Takes the entries that became READY. Their number, or -1 when one of them cannot be read. */
static int take_ready_items(struct experts *e, const struct expert_step *step,
                            struct expert_item **items, uint32_t count, struct error *error)
{
    int found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (items[i]->state != ITEM_WAITED)
            continue;
        struct directory_entry *d = entry_of(e, step, items[i]);
        if (entry_state_of(entry_read(&d->word)) == ENTRY_READY) {
            experts_make_ready(e, step, items[i]);
            found++;
            continue;
        }
        uint64_t failures = atomic_load_explicit(&d->failures, memory_order_acquire);
        uint64_t *before = &e->failures_before[items[i]->expert];
        if (failures < *before) /* it was READY in between */
            *before = failures;
        int why = (int)atomic_load_explicit(&d->last_errno, memory_order_relaxed);
        /* The loader has already read an entry with a wrong checksum twice: no further request. */
        if (failures - *before >= (why == EBADMSG ? 1 : FAILURES_LIMIT))
            return entry_error(e, step, items[i], why, error);
    }
    return found;
}

int experts_check_model(const struct experts *e, struct error *error)
{
    const struct directory_head *head = e->child->directory.head;
    uint32_t word = atomic_load_explicit(&head->model_changed, memory_order_relaxed);
    return word == 0 ? 0
                     : run_changed_error(e->child->params, e->child->model,
                                         e->child->procs.head->model_path, word, error);
}

void experts_pass_begins(struct experts *e, struct kv_request *const *request, uint32_t requests)
{
    e->request = request;
    e->requests = requests;
}

/* A pass continues as long as a client wants one of its sequences. */
static int ended_early(const struct experts *e, struct error *error)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < e->requests; i++)
        wanted += !atomic_load_explicit(&e->request[i]->cancel, memory_order_relaxed);
    if (wanted == 0 || atomic_load_explicit(e->stop, memory_order_relaxed))
        return error_set(error, ERR_CANCELLED, "cancelled while waiting for weights");
    return 0;
}

/* Requests entries again that are ABSENT. LOADING ones are in progress, DOOMED ones become
 * ABSENT. */
static void retry_demand(struct experts *e, const struct expert_step *step,
                         struct expert_item **items, uint32_t count)
{
    e->attempt++;
    for (uint32_t i = 0; i < count; i++) {
        if (items[i]->state != ITEM_WAITED)
            continue;
        uint64_t word = entry_read(&entry_of(e, step, items[i])->word);
        if (entry_state_of(word) == ENTRY_ABSENT)
            add_demand(e, step, items[i]);
    }
    send_demand(e, step);
}

struct experts_wait experts_wait_begin(const struct experts *e)
{
    uint64_t now = clock_now_ns();
    return (struct experts_wait){.now = now,
                                 .moved_ns = now,
                                 .progress = loaders_progress(e),
                                 .timeout = WAIT_FIRST_NS,
                                 .retry_ns = now + WAIT_FIRST_NS};
}

int experts_wait_check(struct experts *e, struct experts_wait *w, bool *again, const char *what,
                       struct error *error)
{
    if (ended_early(e, error) != 0)
        return -1;
    *again = w->now >= w->retry_ns;
    if (*again) {
        if (procs_check(e->child->procs.head, error) != 0)
            return -1;
        w->timeout = w->timeout < WAIT_MAX_NS / 2 ? w->timeout * 2 : WAIT_MAX_NS;
        w->retry_ns = w->now + w->timeout;
    }
    uint64_t progress = loaders_progress(e);
    if (progress != w->progress)
        w->moved_ns = w->now;
    w->progress = progress;
    if (w->now - w->moved_ns < e->load_timeout_ns)
        return 0;
    return error_set(error, ERR_NO_PROGRESS,
                     "timed out: no loader made progress for %" PRIu64
                     " ms while waiting for %s (--load-timeout)",
                     e->load_timeout_ns / NS_PER_MS, what);
}

void experts_wait_sleep(struct experts *e, struct experts_wait *w, uint32_t counter, uint32_t seen)
{
    uint64_t left = w->retry_ns > w->now ? w->retry_ns - w->now : 1;
    directory_wait(&e->child->directory, counter, seen, left < e->slice_ns ? left : e->slice_ns);
    w->now = clock_now_ns();
    experts_tick(e, w->now);
}

static int wait_for_any(struct experts *e, const struct expert_step *step,
                        struct expert_item **items, uint32_t count, struct error *error)
{
    struct experts_wait w = experts_wait_begin(e);
    char what[48];
    snprintf(what, sizeof what, "an expert of layer %u", step->layer);
    for (;;) {
        uint32_t seen = directory_counter_now(&e->child->directory, step->layer);
        int found = take_ready_items(e, step, items, count, error);
        if (found != 0)
            return found > 0 ? 0 : -1;
        bool again;
        if (experts_wait_check(e, &w, &again, what, error) != 0)
            return -1;
        if (again)
            retry_demand(e, step, items, count);
        experts_wait_sleep(e, &w, step->layer, seen);
    }
}

static int source_wait(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count, struct error *error)
{
    struct experts *e = self;
    uint64_t start = clock_now_ns();
    child_wait(e->child, WAIT_EXPERT);
    int result = wait_for_any(e, step, items, count, error);
    child_wait(e->child, WAIT_NONE);
    uint64_t stalled = clock_now_ns() - start;
    for (uint32_t i = 0; i < e->requests; i++) /* each of them waited */
        e->request[i]->stats.stall_ns += stalled;
    counter_add(e->child->process, CTR_COMPUTE_stall_ns, stalled);
    return result;
}

/* ---- heartbeat ------------------------------------------------------------------------------- */

void experts_tick(struct experts *e, uint64_t now_ns)
{
    atomic_store_explicit(e->beat_ns, now_ns, memory_order_relaxed);
    if (now_ns < e->tick_due_ns)
        return;
    e->tick_due_ns = now_ns + TICK_EVERY_NS;
    channel_tick(e->cache, now_ns);
}

void experts_layer_starts(void *self, const struct expert_step *step)
{
    struct experts *e = self;
    /* Checks of the channel make system calls: they run during waits, not on hits. */
    atomic_store_explicit(e->beat_ns, clock_now_ns(), memory_order_relaxed);
    atomic_store_explicit(e->pass_layer, step->layer, memory_order_relaxed);
    if (step->decode && step->layer > 0)
        child_inject(e->child, INJECT_COMPUTE_MID_TOKEN);
    if (step->prefill && (step->layer > 0 || step->row->position > 0))
        child_inject(e->child, INJECT_COMPUTE_PREFILL);
}

static void source_alive(void *self)
{
    struct experts *e = self;
    atomic_store_explicit(e->beat_ns, clock_now_ns(), memory_order_relaxed);
}

struct weights_source experts_source(struct experts *e)
{
    struct weights_source source = {.self = e,
                                    .dense = experts_dense,
                                    .pin_limit = source_pin_limit,
                                    .resident = experts_resident,
                                    .pin = source_pin,
                                    .pin_ready = experts_pin_ready,
                                    .wait = source_wait,
                                    .unpin = source_unpin,
                                    .mask = experts_mask,
                                    .choice = experts_choice,
                                    .whole_on_device = experts_whole_on_device,
                                    .used = experts_used,
                                    .logits = experts_logits,
                                    .reroutes = experts_reroutes,
                                    .reroute = experts_reroute,
                                    .routed = experts_routed,
                                    .gate_input = experts_gate_input,
                                    .next_counts = experts_next_counts,
                                    .layer_starts = experts_layer_starts,
                                    .alive = source_alive};
    if (e->known)
        source.known = experts_known;
    if (e->pages) {
        source.table_ask = experts_table_ask;
        source.table_read = experts_table_read;
        source.table_rows = experts_log_table;
    }
    if (e->child->params->deterministic)
        experts_simulate(&source);
    return source;
}

/* ---- start ----------------------------------------------------------------------------------- */

int experts_open(struct experts *e, struct child *child, const _Atomic uint32_t *stop,
                 struct error *error)
{
    const struct params *p = child->params;
    char path[ENDPOINT_BYTES];
    if (endpoint_path(child->run_dir, ENDPOINT_CACHE_COMPUTE, 0, path, error) != 0)
        return -1;
    e->child = child;
    e->stop = stop;
    e->load_timeout_ns = p->load_timeout * NS_PER_MS;
    e->slice_ns = p->heartbeat_timeout * NS_PER_MS / 4;
    e->slice_ns = e->slice_ns < SLICE_MAX_NS ? e->slice_ns : SLICE_MAX_NS;
    e->failures_before = calloc(child->model->hparams.experts, sizeof *e->failures_before);
    e->mask = calloc((size_t)child->model->hparams.layers * child->model->hparams.experts, 1);
    e->levels = calloc(child->model->hparams.experts, 1);
    e->margins = calloc(child->model->hparams.experts +
                            ROUTING_MARGIN_SCRATCH(child->model->hparams.experts),
                        sizeof *e->margins);
    e->held = calloc(child->model->hparams.experts, sizeof *e->held);
    bool reroutes = resident_first_work_create(&e->reroute, child->model->hparams.experts);
    if (!e->failures_before || !e->mask || !e->levels || !e->margins || !e->held || !reroutes)
        return error_set(error, ERR_NO_MEMORY, "out of memory (expert records)");
    if (experts_open_known(e, error) != 0)
        return -1;
    if (child->model->page_count > 0 && experts_open_pages(e, error) != 0)
        return -1;
    if (experts_set_preset(e, atomic_load(&child->procs.head->preset_active), error) != 0)
        return -1;
    e->cache = channel_dial(path, ROLE_COMPUTE, child->incarnation, error);
    return e->cache ? 0 : -1;
}

static void wait_dense_entry(struct child *child, uint32_t entry)
{
    struct directory *d = &child->directory;
    struct directory_entry *it = &d->entries[entry];
    const char *name =
        model_index_tensors(child->model)[model_index_entries(child->model)[entry].extent[0].tensor]
            .name;
    uint32_t counter = directory_counter_of(d, entry);
    for (;;) {
        uint32_t seen = directory_counter_now(d, counter);
        if (entry_state_of(entry_read(&it->word)) == ENTRY_READY)
            return;
        if (atomic_load_explicit(&it->failures, memory_order_acquire) >= FAILURES_LIMIT)
            log_fatal(
                1, "tensor %s cannot be read: %s", name,
                run_errno_text((int)atomic_load_explicit(&it->last_errno, memory_order_relaxed)));
        struct msg_control control;
        while (child_control(child, &control))
            child_ack(child, &control);
        if (child->stop)
            child_exit(child);
        child_tick(child);
        directory_wait(d, counter, seen, SLICE_MAX_NS);
    }
}

void experts_wait_dense(struct child *child)
{
    child_wait(child, WAIT_DENSE);
    for (uint32_t i = 0; i < child->model->dense_count; i++)
        if (i != model_table_entry(child->model))
            wait_dense_entry(child, i);
    child_wait(child, WAIT_START);
}
