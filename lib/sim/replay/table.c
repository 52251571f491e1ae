/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table on storage, and the pages that an engine reads for them: they depend on the trace
 * alone, not on a preset or budget. The order is that of lib/core/residual/ngrams.c and
 * procs/engine/compute/experts/pages.c; which page is replaced is that of
 * lib/policy/access/pages.h. What is requested is there before the next thing happens; an engine
 * that finds more pages of a set in a block of a prompt than the set has slots reads some again, as
 * its reads end. */
#include <stdlib.h>
#include <string.h>

#include "lib/policy/access/pages.h"
#include "lib/sim/replay/replay.h"

struct slot {
    uint32_t page; /* 1 + its page; 0: none yet */
    uint32_t reserved_at, used_at;
    bool fixed; /* requested with those of the running message */
};

struct part { /* of a row */
    uint32_t page;
    bool done;
};

struct token {
    uint32_t sequence, position, first; /* row */
};

struct run_table {
    struct table_pages pages;
    uint32_t reads; /* the time of slots */
    struct slot *slot;
    uint32_t *row;       /* [largest pass]: of the running pass */
    struct token *token; /* [the same], and the end of the last one */
    uint32_t rows, tokens;
    enum sim_phase phase; /* of the pass */
    struct part part[TABLE_WAVE_PARTS];
    uint32_t parts, first; /* of the wave: all of them; those before it are done */
};

/* Rows of a pass are in consecutive records. */
static uint64_t largest_pass(const struct trace *t)
{
    uint64_t most = 0, now = 0;
    for (uint64_t i = 0; i < t->count; i++) {
        now = t->records[i].kind == TRACE_ROWS ? now + t->records[i].rank : 0;
        most = now > most ? now : most;
    }
    return most;
}

bool run_table_create(struct run *r)
{
    uint64_t rows = largest_pass(r->t);
    if (rows == 0)
        return true;
    struct run_table *t = r->table = calloc(1, sizeof *t);
    if (!t)
        return false;
    t->pages = trace_table_pages(&r->t->header);
    t->reads = 1;
    t->slot = calloc(t->pages.slots, sizeof *t->slot);
    t->row = calloc(rows, sizeof *t->row);
    t->token = calloc(rows + 1, sizeof *t->token);
    return t->slot && t->row && t->token;
}

void run_table_free(struct run *r)
{
    if (!r->table)
        return;
    free(r->table->slot);
    free(r->table->row);
    free(r->table->token);
    free(r->table);
}

void run_table_take(struct run *r, const struct trace_record *x)
{
    struct run_table *t = r->table;
    const struct token *last = t->tokens > 0 ? &t->token[t->tokens - 1] : NULL;
    uint32_t row[TRACE_FLOATS];
    trace_values(x, row);
    if (!last || x->expert == 0 || last->sequence != x->sequence || last->position != x->position)
        t->token[t->tokens++] = (struct token){x->sequence, x->position, t->rows};
    memcpy(t->row + t->rows, row, x->rank * sizeof *row);
    t->rows += x->rank;
}

/* Of a pass with rows of a prompt, all counts are in that phase: as in lib/sim/access.c. A sequence
 * with one token in the pass decodes; the tokens of each are next to each other. */
static enum sim_phase phase_of(const struct run_table *t)
{
    for (uint32_t i = 1; i < t->tokens; i++)
        if (t->token[i].sequence == t->token[i - 1].sequence)
            return SIM_PREFILL;
    return SIM_DECODE;
}

/* ---- the cache of pages ---------------------------------------------------------------------- */

static struct slot *set_of(const struct run_table *t, uint32_t page)
{
    return &t->slot[table_page_set(page, t->pages.slots)];
}

static bool use(struct run_table *t, uint32_t page)
{
    struct slot *slot = set_of(t, page);
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        if (slot[i].page == page + 1) {
            slot[i].used_at = t->reads;
            return true;
        }
    return false;
}

static bool has(const struct run_table *t, uint32_t page)
{
    const struct slot *slot = set_of(t, page);
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        if (slot[i].page == page + 1)
            return true;
    return false;
}

/* True: it got a slot. */
static bool request(struct run *r, const struct part *p)
{
    struct run_table *t = r->table;
    struct slot *slot = set_of(t, p->page);
    struct page_slot of[MODEL_PAGE_WAYS];
    if (has(t, p->page))
        return false;
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        of[i] = (struct page_slot){.empty = slot[i].page == 0,
                                   .fixed = slot[i].fixed,
                                   .reserved_at = slot[i].reserved_at,
                                   .used_at = slot[i].used_at};
    uint32_t chosen = page_slot_choose(of, t->reads);
    if (chosen == PAGE_SLOT_NONE)
        return false;
    slot[chosen].page = p->page + 1;
    slot[chosen].reserved_at = t->reads;
    slot[chosen].used_at = page_slot_unused(t->reads);
    slot[chosen].fixed = true;
    sim_cache_count_table(r->cache, t->phase, 0, 0, 1);
    return true;
}

/* The parts of the wave that are not done, in one message; those after the one with which every
 * slot has been given away get none. */
static void request_missing(struct run *r)
{
    struct run_table *t = r->table;
    uint32_t end = t->first;
    for (uint32_t given = 0; end < t->parts && given < t->pages.slots; end++)
        if (!t->part[end].done)
            given += request(r, &t->part[end]);
    for (uint32_t i = t->first; i < end; i++) {
        struct slot *slot = set_of(t, t->part[i].page);
        for (uint32_t w = 0; w < MODEL_PAGE_WAYS; w++)
            slot[w].fixed = false;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* As many rows as fit a wave. Their number. */
static uint32_t cut_wave(struct run_table *t, uint32_t first, uint32_t end)
{
    uint32_t n = 0;
    t->parts = t->first = 0;
    while (first + n < end && t->parts + table_parts_of_row(&t->pages) <= TABLE_WAVE_PARTS) {
        uint32_t row = t->row[first + n];
        for (uint64_t from = 0; from < t->pages.row_bytes;) {
            const struct table_part at = table_part_at(&t->pages, row, from);
            t->part[t->parts++] = (struct part){.page = at.page};
            from += at.bytes;
        }
        n++;
    }
    return n;
}

/* True: all parts of the wave are in memory. */
static bool use_parts(struct run_table *t)
{
    for (uint32_t i = t->first; i < t->parts; i++)
        t->part[i].done = t->part[i].done || use(t, t->part[i].page);
    while (t->first < t->parts && t->part[t->first].done)
        t->first++;
    return t->first == t->parts;
}

static void ask(struct run *r, uint32_t first, uint32_t end)
{
    (void)cut_wave(r->table, first, end);
    if (!use_parts(r->table))
        request_missing(r);
}

static void read_rows(struct run *r, uint32_t first, uint32_t end)
{
    struct run_table *t = r->table;
    for (uint32_t n; first < end; first += n) {
        n = cut_wave(t, first, end);
        sim_cache_count_table(r->cache, t->phase, n, t->parts, 0);
        while (!use_parts(t))
            request_missing(r);
    }
    t->reads++;
}

void run_table_read(struct run *r)
{
    struct run_table *t = r->table;
    if (!t || t->tokens == 0)
        return;
    t->token[t->tokens].first = t->rows;
    t->phase = phase_of(t);
    for (uint32_t first = 0; first < t->tokens; first += TABLE_BLOCK_TOKENS) {
        uint32_t end[3];
        for (uint32_t i = 0; i < ARRAY_LEN(end); i++) {
            uint32_t token = first + i * TABLE_BLOCK_TOKENS;
            end[i] = t->token[token < t->tokens ? token : t->tokens].first;
        }
        if (first == 0)
            ask(r, end[0], end[1]);
        if (end[1] < end[2])
            ask(r, end[1], end[2]);
        read_rows(r, end[0], end[1]);
    }
    t->rows = t->tokens = 0;
}
