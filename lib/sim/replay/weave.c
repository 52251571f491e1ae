/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one trace of several sequences: their passes, and the order of the records in a pass. */
#include "lib/sim/replay/weave.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/schedule/schedule.h"

_Static_assert(SEQUENCES_MAX <= SCHEDULE_SEQUENCES_MAX, "all may run");

/* ---- passes --------------------------------------------------------------------------------- */

#define NOT_RECORDED UINT64_MAX

struct member { /* a sequence that runs */
    uint32_t source;
    uint64_t at, end;       /* records that are left */
    uint64_t pass_end;      /* after the TOKEN_END of its next pass, or chunk */
    uint64_t cursor;        /* the next record of the running pass */
    uint32_t done, rows;    /* tokens of the chunk before the running pass, and in it */
    uint64_t served, since; /* as in schedule.h */
};

struct weaving {
    const struct together *from;
    struct trace *to;
    uint64_t records_max;                /* of `to` */
    struct member member[SEQUENCES_MAX]; /* in order of arrival */
    uint32_t members, arrived;
    struct member *of_pass[SEQUENCES_MAX]; /* streams first */
    uint32_t in_pass;
    uint64_t *accessed; /* [SEQUENCES_MAX][experts]: record of the layer; NOT_RECORDED */
    uint64_t pass;
    const struct together_limit *limit; /* NULL: none */
    struct schedule_pace pace, streams; /* of all passes, and of those with streams only */
    double pass_ns;                     /* of the running one */
};

static uint32_t tokens_of(const struct weaving *w, const struct member *m)
{
    uint32_t tokens = w->from->record[m->pass_end - 1].tokens;
    return tokens > 0 ? tokens : 1;
}

static bool is_part(const struct weaving *w, const struct member *m)
{
    return m->rows < tokens_of(w, m);
}

/* How many of the tokens that use the expert are among the rows of the pass. They are at equal
 * distances in the chunk, from a place that differs by expert. */
static uint32_t tokens_in_pass(const struct weaving *w, const struct member *m,
                               const struct trace_record *x)
{
    if (!is_part(w, m))
        return x->tokens;
    uint64_t chunk = tokens_of(w, m), end = m->done + m->rows;
    uint64_t phase = (x->expert * 2654435761u + x->layer * 40503u) % chunk;
    return (uint32_t)((x->tokens * end + phase) / chunk -
                      (x->tokens * (uint64_t)m->done + phase) / chunk);
}

static void put(struct weaving *w, const struct member *m, const struct trace_record *x)
{
    sl_assert(w->to->count < w->records_max);
    struct trace_record *to = &w->to->records[w->to->count++];
    *to = *x;
    if (x->kind == TRACE_EXPERT || x->kind == TRACE_TOKEN_END)
        to->position += m->done;
    if (x->kind == TRACE_EXPERT)
        to->tokens = tokens_in_pass(w, m, x);
    else if (x->kind == TRACE_TOKEN_END && is_part(w, m))
        to->tokens = m->rows;
    to->sequence = m->source + 1;
    if (x->kind == TRACE_EXPERT || x->kind == TRACE_CHOICE || x->kind == TRACE_TOKEN_END)
        to->pass = (uint16_t)w->pass;
}

static void put_event(struct weaving *w, const struct member *m, enum trace_kind kind)
{
    const struct trace_record event = {.kind = (uint8_t)kind};
    put(w, m, &event);
}

static uint64_t next_pass_end(const struct weaving *w, const struct member *m)
{
    uint64_t at = m->at;
    while (at < m->end && w->from->record[at].kind != TRACE_TOKEN_END)
        at++;
    return at + 1;
}

/* Sequences arrive while fewer than `parallel` run. */
static void admit(struct weaving *w, uint32_t parallel)
{
    for (; w->members < parallel && w->arrived < w->from->sources; w->arrived++) {
        const struct source *s = &w->from->source[w->arrived];
        struct member *m = &w->member[w->members++];
        *m = (struct member){
            .source = w->arrived, .at = s->first, .end = s->first + s->count, .since = w->pass - 1};
        m->pass_end = next_pass_end(w, m);
        put_event(w, m, TRACE_SEQUENCE_START);
    }
}

static void add_members(struct weaving *w, const uint32_t *rows, bool streams)
{
    for (uint32_t i = 0; i < w->members; i++) {
        struct member *m = &w->member[i];
        uint32_t tokens = tokens_of(w, m);
        if (rows[i] == 0 || (!w->limit && rows[i] < tokens) || (tokens == 1) != streams)
            continue;
        m->cursor = m->at;
        m->rows = rows[i];
        w->of_pass[w->in_pass++] = m;
    }
}

/* 0: none. */
static uint64_t gap_ns(const struct weaving *w)
{
    return !w->limit ? 0 : w->limit->gap_ns > 0 ? w->limit->gap_ns : schedule_gap_ns(&w->streams);
}

/* Those that have a part in the next pass. Without a time limit a recorded chunk is not divided: it
 * takes part with all of its rows. */
static void choose(struct weaving *w)
{
    struct schedule_sequence wants[SEQUENCES_MAX];
    uint32_t rows[SEQUENCES_MAX];
    for (uint32_t i = 0; i < w->members; i++) {
        uint32_t tokens = tokens_of(w, &w->member[i]) - w->member[i].done;
        wants[i] = (struct schedule_sequence){.arrival = w->member[i].source,
                                              .served = w->member[i].served,
                                              .since = w->member[i].since,
                                              .missing = tokens,
                                              .rows_max = tokens};
    }
    const struct schedule_limits limits = {
        .pass = w->pass, .gap_ns = gap_ns(w), .rows = w->from->rows + SEQUENCES_MAX};
    schedule_pass(wants, w->members, &limits, &w->pace, rows);
    w->in_pass = 0;
    add_members(w, rows, true);
    add_members(w, rows, false);
    sl_assert(w->in_pass > 0);
}

/* ---- the records of a layer ------------------------------------------------------------------ */

/* The layer in which an engine writes the record; UINT32_MAX: after all layers. */
static uint32_t layer_of(const struct trace_record *x)
{
    return x->kind == TRACE_ROWS                                          ? 0
           : x->kind == TRACE_TOKEN_END                                   ? UINT32_MAX
           : x->kind == TRACE_PREDICTED || x->kind == TRACE_GPU_PREDICTED ? x->from_layer
                                                                          : x->layer;
}

static bool is_access(const struct trace_record *x)
{
    return x->kind == TRACE_EXPERT;
}

/* What precedes the accesses of all members. */
static bool is_logits(const struct trace_record *x)
{
    return x->kind == TRACE_LOGITS || x->kind == TRACE_CANDIDATE || x->kind == TRACE_ROUTER;
}

/* What precedes the layers of all members: of a chunk with its first part. */
static bool is_rows(const struct trace_record *x)
{
    return x->kind == TRACE_ROWS;
}

/* What else is recorded of a chunk: with its first part. */
static bool is_other(const struct trace_record *x)
{
    return !is_access(x) && !is_logits(x) && !is_rows(x);
}

/* Writes the next records of all members up to the layer that are of this kind. */
static void put_kind(struct weaving *w, uint32_t layer, bool (*is)(const struct trace_record *x))
{
    for (uint32_t i = 0; i < w->in_pass; i++) {
        const struct member *m = w->of_pass[i];
        for (uint64_t at = m->cursor; m->done == 0 && at < m->pass_end; at++) {
            const struct trace_record *x = &w->from->record[at];
            if (layer_of(x) > layer)
                break;
            if (is(x))
                put(w, m, x);
        }
    }
}

static uint64_t *accessed(const struct weaving *w, uint32_t member, uint32_t expert)
{
    return &w->accessed[(size_t)member * w->from->header.experts + expert];
}

/* The first access of each expert; NOT_RECORDED for all others. */
static void find_accesses(struct weaving *w, uint32_t layer)
{
    for (uint32_t i = 0; i < w->in_pass; i++) {
        const struct member *m = w->of_pass[i];
        memset(accessed(w, i, 0), 0xff, w->from->header.experts * sizeof *w->accessed);
        for (uint64_t at = m->cursor; at < m->pass_end; at++) {
            const struct trace_record *x = &w->from->record[at];
            if (layer_of(x) > layer)
                break;
            if (is_access(x) && *accessed(w, i, x->expert) == NOT_RECORDED &&
                (!is_part(w, m) || tokens_in_pass(w, m, x) > 0))
                *accessed(w, i, x->expert) = at;
        }
    }
}

static void add_time(struct weaving *w, double one_ns, uint32_t tokens)
{
    if (w->limit && tokens > 0)
        w->pass_ns += sim_compute_ns(&w->limit->compute, one_ns, tokens);
}

/* All that use the expert, once. */
static void put_expert(struct weaving *w, uint32_t expert)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < w->in_pass; i++) {
        uint64_t *at = accessed(w, i, expert);
        if (*at != NOT_RECORDED) {
            put(w, w->of_pass[i], &w->from->record[*at]);
            tokens += tokens_in_pass(w, w->of_pass[i], &w->from->record[*at]);
        }
        *at = NOT_RECORDED;
    }
    add_time(w, w->limit ? w->limit->compute.expert_ns : 0, tokens);
}

/* The n-th access of a member in the layer; NULL: it has fewer. */
static const struct trace_record *nth_access(const struct weaving *w, const struct member *m,
                                             uint32_t layer, uint32_t n)
{
    for (uint64_t at = m->cursor; at < m->pass_end; at++) {
        const struct trace_record *x = &w->from->record[at];
        if (layer_of(x) > layer)
            break;
        if (is_access(x) && n-- == 0)
            return x;
    }
    return NULL;
}

/* Rows that decode, as the core orders them: the first choices of all, then the second ones. */
static void put_by_rank(struct weaving *w, uint32_t layer)
{
    bool more = true;
    for (uint32_t rank = 0; more; rank++) {
        more = false;
        for (uint32_t i = 0; i < w->in_pass; i++) {
            const struct trace_record *x = nth_access(w, w->of_pass[i], layer, rank);
            if (x)
                put_expert(w, x->expert);
            more |= x != NULL;
        }
    }
}

/* With prompts the order depends on what is resident: it is that of the records. */
static void put_as_recorded(struct weaving *w, uint32_t layer)
{
    for (uint32_t i = 0; i < w->in_pass; i++) {
        const struct member *m = w->of_pass[i];
        for (uint64_t at = m->cursor; at < m->pass_end; at++) {
            const struct trace_record *x = &w->from->record[at];
            if (layer_of(x) > layer)
                break;
            if (is_access(x))
                put_expert(w, x->expert);
        }
    }
}

/* ---- the records of a pass ------------------------------------------------------------------- */

static void put_layer(struct weaving *w, uint32_t layer, bool prompts)
{
    put_kind(w, layer, is_rows);
    put_kind(w, layer, is_logits);
    find_accesses(w, layer);
    if (prompts)
        put_as_recorded(w, layer);
    else
        put_by_rank(w, layer);
    put_kind(w, layer, is_other);
    for (uint32_t i = 0; i < w->in_pass; i++) {
        struct member *m = w->of_pass[i];
        while (m->cursor < m->pass_end && layer_of(&w->from->record[m->cursor]) <= layer)
            m->cursor++;
    }
}

/* The sequence is at the next part of its chunk, or at its next pass. */
static void advance(struct weaving *w, struct member *m)
{
    m->served = w->pass;
    m->done += m->rows;
    if (m->done < tokens_of(w, m))
        return;
    m->done = 0;
    m->at = m->pass_end;
    m->pass_end = next_pass_end(w, m);
}

/* What the next passes are chosen by. */
static void learn(struct weaving *w, uint32_t rows, bool prompts)
{
    schedule_pace_add(&w->pace, rows, (uint64_t)w->pass_ns);
    if (!prompts)
        schedule_pace_add(&w->streams, rows, (uint64_t)w->pass_ns);
}

static void put_pass(struct weaving *w)
{
    bool prompts = false;
    uint32_t rows = 0;
    w->pass_ns = 0;
    for (uint32_t i = 0; i < w->in_pass; i++) {
        prompts |= tokens_of(w, w->of_pass[i]) > 1;
        rows += w->of_pass[i]->rows;
    }
    for (uint32_t layer = 0; layer < w->from->header.layers; layer++) {
        if (w->limit && expert_layers_has(&w->from->header.expert_layers, layer))
            add_time(w, w->limit->compute.layer_ns, rows);
        put_layer(w, layer, prompts);
    }
    for (uint32_t i = 0; i < w->in_pass; i++) {
        struct member *m = w->of_pass[i];
        put(w, m, &w->from->record[m->pass_end - 1]);
        advance(w, m);
    }
    if (w->limit)
        learn(w, rows, prompts);
}

static void end_members(struct weaving *w)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < w->members; i++) {
        if (w->member[i].at < w->member[i].end)
            w->member[left++] = w->member[i];
        else
            put_event(w, &w->member[i], TRACE_SEQUENCE_END);
    }
    w->members = left;
}

/* A chunk of n tokens may become n parts, each with the experts of its tokens. */
static uint64_t most_records(const struct together *t, bool limited)
{
    uint64_t n = t->records + 2 * (uint64_t)t->sources;
    for (uint64_t i = 0; limited && i < t->records; i++)
        if (t->record[i].kind == TRACE_EXPERT || t->record[i].kind == TRACE_TOKEN_END)
            n += t->record[i].tokens;
    return n;
}

int together_trace(const struct together *t, uint32_t parallel, const struct together_limit *limit,
                   struct trace *out, struct error *error)
{
    struct weaving w = {.from = t, .to = out, .pass = 1, .limit = limit};
    sl_assert(parallel > 0 && parallel <= SEQUENCES_MAX);
    *out = (struct trace){.header = t->header};
    w.accessed = calloc((size_t)SEQUENCES_MAX * t->header.experts, sizeof *w.accessed);
    w.records_max = most_records(t, limit != NULL);
    out->records = malloc(w.records_max * sizeof *out->records);
    if (!w.accessed || !out->records) {
        free(w.accessed);
        trace_free(out);
        return error_set(error, ERR_NO_MEMORY, "out of memory (trace of several sequences)");
    }
    for (admit(&w, parallel); w.members > 0; admit(&w, parallel)) {
        choose(&w);
        put_pass(&w);
        end_members(&w);
        w.pass++;
    }
    free(w.accessed);
    return 0;
}
