/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the sequences of several traces, and cuts them into parts where there are too few. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/sim/replay/weave.h"

/* ---- the sequences of a trace ---------------------------------------------------------------- */

/* Which sequence each record belongs to. */
struct owners {
    const struct trace *trace;
    uint32_t *number; /* [sources]: as in the trace */
    uint32_t *open;   /* [SEQUENCES_MAX]: source by place; valid for one that runs */
    uint32_t sources;
    struct sequences running;
};

/* The source of a record; UINT32_MAX: of none. *begins: it is a new one. */
static uint32_t owner_of(struct owners *o, const struct trace_record *x, bool *begins)
{
    *begins = false;
    if (x->kind == TRACE_SEQUENCE_END) {
        (void)sequences_end(&o->running, x->sequence);
        return UINT32_MAX;
    }
    uint32_t place = sequences_find(&o->running, x->sequence);
    if (place == SEQUENCE_NONE) {
        bool displaced;
        place = sequences_start(&o->running, x->sequence, &displaced);
        o->open[place] = o->sources++;
        *begins = true;
    }
    return x->kind == TRACE_SEQUENCE_START ? UINT32_MAX : o->open[place];
}

static bool reserve(struct together *t, uint32_t sources)
{
    if (sources <= t->sources_max)
        return true;
    uint32_t max = 2 * sources + 16;
    struct source *more = realloc(t->source, max * sizeof *more);
    if (!more)
        return false;
    memset(more + t->sources_max, 0, (max - t->sources_max) * sizeof *more);
    t->source = more;
    t->sources_max = max;
    return true;
}

/* Counts the records of each sequence of a trace. False: out of memory. */
static bool count_records(struct together *t, const struct trace *trace)
{
    uint32_t open[SEQUENCES_MAX];
    struct owners o = {.trace = trace, .open = open, .sources = t->sources};
    for (uint64_t i = 0; i < trace->count; i++) {
        bool begins;
        uint32_t owner = owner_of(&o, &trace->records[i], &begins);
        if (begins && !reserve(t, o.sources))
            return false;
        t->sources = o.sources;
        if (owner != UINT32_MAX)
            t->source[owner].count++;
    }
    return true;
}

/* Copies the records of a trace whose first sequence is `sources`. Returns the number after its
 * last one. Pre: each source has the place of its first record. */
static uint32_t copy_records(struct together *t, const struct trace *trace, uint32_t sources)
{
    uint32_t open[SEQUENCES_MAX];
    struct owners o = {.trace = trace, .open = open, .sources = sources};
    for (uint64_t i = 0; i < trace->count; i++) {
        bool begins;
        uint32_t owner = owner_of(&o, &trace->records[i], &begins);
        if (owner == UINT32_MAX)
            continue;
        struct source *s = &t->source[owner];
        t->record[s->first + s->count++] = trace->records[i];
        if (trace->records[i].kind == TRACE_TOKEN_END && trace->records[i].tokens > t->rows)
            t->rows = trace->records[i].tokens;
    }
    return o.sources;
}

/* Sets the place of each sequence's records, and empties them for copy_records. */
static void place_records(struct together *t)
{
    t->records = 0;
    for (uint32_t i = 0; i < t->sources; i++) {
        t->source[i].first = t->records;
        t->records += t->source[i].count;
        t->source[i].count = 0;
    }
}

/* ---- cutting --------------------------------------------------------------------------------- */

static uint64_t passes_of(const struct together *t, const struct source *s)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->count; i++)
        n += t->record[s->first + i].kind == TRACE_TOKEN_END;
    return n;
}

/* Sequences without a complete pass, and what follows the last complete pass of the others, are
 * left out. */
static void keep_passes(struct together *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->sources; i++) {
        struct source s = t->source[i];
        while (s.count > 0 && t->record[s.first + s.count - 1].kind != TRACE_TOKEN_END)
            s.count--;
        if (s.count > 0)
            t->source[kept++] = s;
    }
    t->sources = kept;
}

/* The first `passes` passes of *s, which then has the others. */
static struct source cut_off(const struct together *t, struct source *s, uint64_t passes)
{
    struct source part = {.first = s->first};
    while (passes > 0 && s->count > 0) {
        passes -= t->record[s->first].kind == TRACE_TOKEN_END;
        s->first++;
        s->count--;
        part.count++;
    }
    return part;
}

/* Cuts each sequence into so many parts. */
static bool cut(struct together *t, uint32_t parts)
{
    uint32_t whole = t->sources;
    struct source *all = calloc((size_t)whole * parts + 1, sizeof *all);
    if (!all)
        return false;
    t->sources = 0;
    for (uint32_t i = 0; i < whole; i++) {
        uint64_t passes = passes_of(t, &t->source[i]);
        for (uint32_t p = 0; p < parts; p++) {
            uint64_t n = passes * (p + 1) / parts - passes * p / parts;
            struct source part = cut_off(t, &t->source[i], n);
            if (part.count > 0)
                all[t->sources++] = part;
        }
    }
    free(t->source);
    t->source = all;
    t->sources_max = whole * parts + 1;
    return true;
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool same_model(const struct trace_header *a, const struct trace_header *b)
{
    return a->layers == b->layers && a->experts == b->experts && a->top_k == b->top_k &&
           a->precision_mask == b->precision_mask &&
           memcmp(&a->expert_layers, &b->expert_layers, sizeof a->expert_layers) == 0 &&
           memcmp(&a->table, &b->table, sizeof a->table) == 0 &&
           memcmp(a->precision_bytes, b->precision_bytes, sizeof a->precision_bytes) == 0;
}

/* False: out of memory. */
static bool collect(struct together *t, const struct trace *traces, uint32_t count, uint32_t least)
{
    uint32_t sources = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!count_records(t, &traces[i]))
            return false;
    place_records(t);
    t->record = malloc((t->records + 1) * sizeof *t->record);
    if (!t->record)
        return false;
    for (uint32_t i = 0; i < count; i++)
        sources = copy_records(t, &traces[i], sources);
    keep_passes(t);
    return t->sources == 0 || t->sources >= least || cut(t, (least + t->sources - 1) / t->sources);
}

struct together *together_create(const struct trace *traces, uint32_t count, uint32_t least,
                                 struct error *error)
{
    sl_assert(count > 0);
    for (uint32_t i = 1; i < count; i++)
        if (!same_model(&traces[0].header, &traces[i].header)) {
            error_set(error, ERR_BAD_INPUT, "trace %u is of another model than the first one",
                      i + 1);
            return NULL;
        }
    struct together *t = calloc(1, sizeof *t);
    if (!t || !collect(t, traces, count, least)) {
        together_destroy(t);
        error_set(error, ERR_NO_MEMORY, "out of memory (sequences of the traces)");
        return NULL;
    }
    if (t->sources == 0) {
        together_destroy(t);
        error_set(error, ERR_BAD_INPUT, "the traces have no complete pass");
        return NULL;
    }
    t->header = traces[0].header;
    return t;
}

void together_destroy(struct together *t)
{
    if (!t)
        return;
    free(t->record);
    free(t->source);
    free(t);
}

uint32_t together_sequences(const struct together *t)
{
    return t->sources;
}
