/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table on storage. The pages that a pass needs are requested before its first layer; the
 * layer that needs the rows copies them from the page slots in which it finds their pages, and
 * waits for the others. A page is pinned only while it is copied: until then it may be replaced,
 * and is requested again. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/io/read_errors.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/compute/experts/experts.h"

#define FAILURES_LIMIT 3  /* failed loads of a page, each already retried by its loader */
#define SCAN_WAITED    16 /* parts not there, after which the later ones are not looked for yet */

struct part { /* of a row */
    struct table_part at;
    uint8_t *to;
    uint32_t entry;    /* the slot with that page when it was looked for, or ENTRY_NONE */
    uint64_t failures; /* of that slot, when the page was first seen there */
    bool done;
};

struct experts_pages {
    struct table_pages table;
    uint32_t reads; /* head->table_reads, which this process alone writes */
    uint32_t parts; /* of the wave */
    struct part part[TABLE_WAVE_PARTS];
    struct msg_pages demand;
};

/* The next read begins: time of page slots. */
static void end_read(struct experts *e)
{
    atomic_store_explicit(&e->child->directory.head->table_reads, ++e->pages->reads,
                          memory_order_release);
}

int experts_open_pages(struct experts *e, struct error *error)
{
    const struct model_index *m = e->child->model;
    const struct model_extent *x = &model_index_entries(m)[model_table_entry(m)].extent[0];
    const struct table_pages table = model_table(m);
    if (table_parts_of_row(&table) > TABLE_WAVE_PARTS)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s has rows of %" PRIu64 " bytes, which are too long",
                         model_index_tensors(m)[x->tensor].name, table.row_bytes);
    e->pages = calloc(1, sizeof *e->pages);
    if (!e->pages)
        return error_set(error, ERR_NO_MEMORY, "out of memory (pages of a table)");
    e->pages->table = table;
    e->pages->reads = atomic_load(&e->child->directory.head->table_reads);
    end_read(e);
    return 0;
}

/* ---- where a page is ------------------------------------------------------------------------- */

static bool has_page(const struct directory_entry *d, uint32_t page)
{
    return atomic_load_explicit(&d->page, memory_order_acquire) == page + 1;
}

/* The slot that has the page, in whatever state; ENTRY_NONE: none has. */
static uint32_t find_page(const struct experts *e, uint32_t page)
{
    uint32_t first = model_page_set(e->child->model, page);
    for (uint32_t i = first; i < first + MODEL_PAGE_WAYS; i++)
        if (has_page(&e->child->directory.entries[i], page))
            return i;
    return ENTRY_NONE;
}

static bool is_there_or_comes(struct experts *e, uint32_t entry)
{
    struct directory_entry *d = &e->child->directory.entries[entry];
    enum entry_state state = entry_state_of(entry_read(&d->word));
    return state == ENTRY_READY || state == ENTRY_LOADING;
}

static void mark_used(struct experts *e, uint32_t entry)
{
    atomic_store_explicit(&e->child->directory.entries[entry].used_at, e->pages->reads,
                          memory_order_relaxed);
}

/* Copies a part if its page is READY. The page of a pinned READY slot cannot change. */
static bool take_part(struct experts *e, struct part *p)
{
    p->entry = find_page(e, p->at.page);
    if (p->entry == ENTRY_NONE)
        return false;
    struct directory_entry *d = &e->child->directory.entries[p->entry];
    if (entry_state_of(entry_read(&d->word)) != ENTRY_READY)
        return false;
    uint64_t word = entry_pin(&d->word, PINNER_COMPUTE);
    if (entry_state_of(word) == ENTRY_READY && has_page(d, p->at.page)) {
        memcpy(p->to, experts_slot(e->child, p->entry) + p->at.offset, p->at.bytes);
        mark_used(e, p->entry);
        p->done = true;
    }
    entry_unpin(&d->word, PINNER_COMPUTE);
    return p->done;
}

/* ---- PAGES ----------------------------------------------------------------------------------- */

static void send_pages(struct experts *e, uint32_t attempt)
{
    struct msg_pages *m = &e->pages->demand;
    if (m->count == 0)
        return;
    m->sent_ns = clock_now_ns();
    m->attempt = attempt;
    if (channel_send(e->cache, m, MSG_PAGES) != 0)
        counter_add(e->child->process, CTR_COMPUTE_messages_dropped, 1);
    m->count = 0;
}

static void add_page(struct experts *e, uint32_t page, uint32_t attempt)
{
    struct msg_pages *m = &e->pages->demand;
    m->page[m->count++] = page;
    if (attempt == 0)
        counter_add(e->child->process, CTR_COMPUTE_table_misses, 1);
    if (m->count == MSG_PAGES_MAX)
        send_pages(e, attempt);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Divides the bytes of a row among pages, the next parts of the wave. to: NULL if they are only
 * asked for. */
static void cut_row(struct experts_pages *p, uint32_t row, uint8_t *to)
{
    for (uint64_t from = 0; from < p->table.row_bytes;) {
        const struct table_part at = table_part_at(&p->table, row, from);
        sl_assert(p->parts < TABLE_WAVE_PARTS);
        p->part[p->parts++] =
            (struct part){.at = at, .to = to ? to + from : NULL, .entry = ENTRY_NONE};
        from += at.bytes;
    }
}

/* As many rows as fit a wave. Their number. */
static uint32_t cut_wave(struct experts_pages *p, const uint32_t *row, uint32_t rows, uint8_t *to)
{
    uint32_t n = 0;
    p->parts = 0;
    while (n < rows && p->parts + table_parts_of_row(&p->table) <= TABLE_WAVE_PARTS) {
        cut_row(p, row[n], to);
        to = to ? to + p->table.row_bytes : NULL;
        n++;
    }
    return n;
}

/* What is there counts as used before anything is requested, so that the cache does not replace it
 * by what is requested with it. */
void experts_table_ask(void *self, const uint32_t *row, uint32_t rows)
{
    struct experts *e = self;
    struct experts_pages *p = e->pages;
    (void)cut_wave(p, row, rows, NULL);
    for (uint32_t i = 0; i < p->parts; i++) {
        struct part *part = &p->part[i];
        part->entry = find_page(e, part->at.page);
        part->done = part->entry != ENTRY_NONE && is_there_or_comes(e, part->entry);
        if (part->done)
            mark_used(e, part->entry);
    }
    for (uint32_t i = 0; i < p->parts; i++)
        if (!p->part[i].done)
            add_page(e, p->part[i].at.page, 0);
    send_pages(e, 0);
}

static int page_error(const struct experts *e, const struct part *p, struct error *error)
{
    const struct child *child = e->child;
    const struct model_index *m = child->model;
    const struct directory_entry *d = &child->directory.entries[p->entry];
    const struct model_extent *x = &model_index_entries(m)[model_table_entry(m)].extent[0];
    uint32_t loader = atomic_load_explicit(&d->last_loader, memory_order_relaxed);
    int why = (int)atomic_load_explicit(&d->last_errno, memory_order_relaxed);
    const char *path = child->procs.head->model_path,
               *name = model_index_tensors(m)[x->tensor].name;
    enum run_source source = m->stripe_count > 0 ? RUN_DENSE : RUN_EXPERTS;
    if (why == ESTALE)
        return run_changed_error(child->params, m, path, run_changed_word(loader, source), error);
    char device[256];
    run_storage_text(child->params, m, path, loader, p->entry, device, sizeof device);
    return error_set_errno(error, read_reported_memory(why) ? ERR_NO_MEMORY : ERR_IO, why,
                           "rows of %s (offset %" PRIu64 ") cannot be read from %.200s", name,
                           x->file_offset + (uint64_t)p->at.page * PAGE_BYTES, device);
}

/* Whether the page of a part that is not there failed too often in the slot that it has. */
static bool failed_too_often(struct experts *e, struct part *p, uint32_t entry_before)
{
    if (p->entry == ENTRY_NONE)
        return false;
    uint64_t failures =
        atomic_load_explicit(&e->child->directory.entries[p->entry].failures, memory_order_acquire);
    if (p->entry != entry_before || failures < p->failures)
        p->failures = failures;
    return failures - p->failures >= FAILURES_LIMIT;
}

struct scan {
    uint32_t first;  /* parts before it are done */
    uint32_t taken;  /* by the last scan */
    uint32_t absent; /* parts without a slot in the last scan of all */
};

/* Takes what is READY. all: looks for every part, and requests those that no slot has. -1 with
 * *error: one of them cannot be read. */
static int scan_parts(struct experts *e, struct scan *s, bool all, uint32_t attempt,
                      struct error *error)
{
    struct experts_pages *p = e->pages;
    uint32_t waited = 0;
    s->taken = 0;
    s->absent = all ? 0 : s->absent;
    for (uint32_t i = s->first; i < p->parts && (all || waited < SCAN_WAITED); i++) {
        struct part *part = &p->part[i];
        uint32_t before = part->entry;
        if (part->done)
            continue;
        if (take_part(e, part)) {
            s->taken++;
            continue;
        }
        if (failed_too_often(e, part, before)) {
            p->demand.count = 0;
            return page_error(e, part, error);
        }
        waited++;
        if (all && (part->entry == ENTRY_NONE || !is_there_or_comes(e, part->entry))) {
            add_page(e, part->at.page, attempt);
            s->absent++;
        }
    }
    send_pages(e, attempt);
    while (s->first < p->parts && p->part[s->first].done)
        s->first++;
    return 0;
}

/* Takes all parts of the wave. */
static int wait_for_parts(struct experts *e, struct scan *s, struct error *error)
{
    struct directory *d = &e->child->directory;
    uint32_t counter = d->head->layer_count, attempt = 0;
    struct experts_wait w = experts_wait_begin(e);
    for (bool again = false;;) {
        uint32_t seen = directory_counter_now(d, counter);
        /* What was taken may have left a slot to what had none. */
        bool all = again || (s->taken > 0 && s->absent > 0);
        attempt += all;
        if (scan_parts(e, s, all, attempt, error) != 0)
            return -1;
        if (s->first == e->pages->parts)
            return 0;
        if (experts_wait_check(e, &w, &again, "rows of a table", error) != 0)
            return -1;
        if (s->taken == 0 && !again)
            experts_wait_sleep(e, &w, counter, seen);
    }
}

int experts_table_read(void *self, const uint32_t *row, uint32_t rows, uint8_t *to,
                       struct error *error)
{
    struct experts *e = self;
    struct experts_pages *p = e->pages;
    struct process *process = e->child->process;
    for (uint32_t first = 0, n; first < rows; first += n) {
        struct scan s = {.first = 0};
        n = cut_wave(p, row + first, rows - first, to + first * p->table.row_bytes);
        counter_add(process, CTR_COMPUTE_table_rows, n);
        counter_add(process, CTR_COMPUTE_table_pages, p->parts);
        if (scan_parts(e, &s, true, 0, error) != 0)
            return -1;
        if (s.first == p->parts)
            continue;
        uint64_t start = clock_now_ns();
        child_wait(e->child, WAIT_PAGES);
        int status = wait_for_parts(e, &s, error);
        child_wait(e->child, WAIT_NONE);
        counter_add(process, CTR_COMPUTE_table_wait_ns, clock_now_ns() - start);
        if (status != 0)
            return -1;
    }
    end_read(e);
    return 0;
}
