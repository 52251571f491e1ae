/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of sequences that ran alone, as one of several at a time: nothing is lost or added, and
 * each sequence keeps its order. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/schedule/schedule.h"
#include "lib/policy/sequences.h"
#include "lib/sim/replay/together.h"
#include "tests/unit/lib/sim/sim_test.h"

#define LAYERS  4u
#define EXPERTS 16u
#define TOP_K   2u

static struct trace make(uint32_t sequences, uint32_t tokens, uint32_t prompt, uint64_t seed)
{
    struct trace_synthetic s;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = LAYERS, s.experts = EXPERTS, s.top_k = TOP_K, s.tokens = tokens, s.prompt = prompt;
    s.sequences = sequences, s.seed = seed, s.expert_bytes = EXPERT_BYTES, s.recall = 0.5;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    return t;
}

static struct trace weave_within(const struct trace *traces, uint32_t count, uint32_t least,
                                 uint32_t parallel, const struct together_limit *limit,
                                 uint32_t *sequences)
{
    struct error error;
    struct trace out;
    struct together *t = together_create(traces, count, least, &error);
    ck_assert_msg(t != NULL, "%s", error.text);
    *sequences = together_sequences(t);
    ck_assert_int_eq(together_trace(t, parallel, limit, &out, &error), 0);
    together_destroy(t);
    ck_assert_int_eq(trace_check(&out.header, out.records, out.count, &error), 0);
    return out;
}

static struct trace weave(const struct trace *traces, uint32_t count, uint32_t least,
                          uint32_t parallel, uint32_t *sequences)
{
    return weave_within(traces, count, least, parallel, NULL, sequences);
}

/* The n-th record of a kind of a sequence; NULL: it has fewer. */
static const struct trace_record *nth(const struct trace *t, uint32_t sequence, uint32_t kind,
                                      uint64_t n)
{
    for (uint64_t i = 0; i < t->count; i++)
        if (t->records[i].sequence == sequence && t->records[i].kind == kind && n-- == 0)
            return &t->records[i];
    return NULL;
}

static bool same(const struct trace_record *a, const struct trace_record *b)
{
    return a->position == b->position && a->layer == b->layer && a->expert == b->expert &&
           a->tokens == b->tokens && (a->kind != TRACE_PREDICTED || a->from_layer == b->from_layer);
}

/* Each sequence has the records of a kind that it had, in their order. */
static void check_kind(const struct trace *from, const struct trace *to, uint32_t sequences,
                       uint32_t kind)
{
    for (uint32_t s = 1; s <= sequences; s++)
        for (uint64_t n = 0;; n++) {
            const struct trace_record *a = nth(from, s, kind, n), *b = nth(to, s, kind, n);
            ck_assert((a == NULL) == (b == NULL));
            if (!a)
                break;
            ck_assert(same(a, b));
        }
}

/* Accesses of a layer may change their order, as an engine computes by expert. */
static void check_accesses(const struct trace *from, const struct trace *to)
{
    uint64_t found = 0, accesses = 0;
    for (uint64_t i = 0; i < from->count; i++) {
        const struct trace_record *x = &from->records[i];
        if (x->kind != TRACE_EXPERT)
            continue;
        accesses++;
        for (uint64_t k = 0; k < to->count; k++) {
            const struct trace_record *y = &to->records[k];
            found += y->kind == TRACE_EXPERT && y->sequence == x->sequence &&
                     y->position == x->position && y->layer == x->layer && y->expert == x->expert &&
                     y->rank == x->rank;
        }
    }
    ck_assert_uint_eq(found, accesses);
}

/* At most so many sequences at a time; records of an expert and layer of a pass are consecutive. */
static void check_passes(const struct trace *t, uint32_t parallel)
{
    uint32_t running = 0, most = 0, last[EXPERTS] = {0}, layer = 0, pass = 0, group = 1;
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i], *before = x - (i > 0);
        running += x->kind == TRACE_SEQUENCE_START;
        running -= x->kind == TRACE_SEQUENCE_END;
        most = running > most ? running : most;
        if (x->kind != TRACE_EXPERT)
            continue;
        group += x->layer != layer || x->pass != pass;
        layer = x->layer;
        pass = x->pass;
        if (last[x->expert] == group)
            ck_assert(before->kind == TRACE_EXPERT && before->expert == x->expert);
        last[x->expert] = group;
    }
    ck_assert_uint_eq(most, parallel);
    ck_assert_uint_eq(running, 0);
}

START_TEST(nothing_is_lost)
{
    static const uint32_t parallel[] = {1, 2, 3, 5};
    static const uint32_t kinds[] = {TRACE_TOKEN_END, TRACE_PREDICTED};
    struct trace t = make(5, 12, _i ? 6 : 0, 3);
    uint32_t sequences;
    for (uint32_t i = 0; i < ARRAY_LEN(parallel); i++) {
        struct trace out = weave(&t, 1, 1, parallel[i], &sequences);
        ck_assert_uint_eq(sequences, 5);
        ck_assert_uint_eq(out.count, t.count);
        for (uint32_t k = 0; k < ARRAY_LEN(kinds); k++)
            check_kind(&t, &out, 5, kinds[k]);
        check_accesses(&t, &out);
        check_passes(&out, parallel[i]);
        trace_free(&out);
    }
    trace_free(&t);
}
END_TEST

static struct sim_result replay(const struct trace *t)
{
    struct sim_config c = config_of("default", NULL, LAYERS * EXPERTS / 2);
    struct sim_result r;
    struct error error;
    ck_assert_int_eq(sim_run(t, 0, 0, &c, false, &r, &error), 0);
    return r;
}

/* One at a time is the trace as it was; together the same rows take fewer passes. */
START_TEST(one_at_a_time_changes_nothing)
{
    struct trace t = make(4, 30, 6, 9);
    uint32_t sequences;
    struct trace one = weave(&t, 1, 1, 1, &sequences), all = weave(&t, 1, 1, 4, &sequences);
    struct sim_result a = replay(&t), b = replay(&one), c = replay(&all);
    ck_assert_mem_eq(&a.phase[SIM_DECODE], &b.phase[SIM_DECODE], sizeof a.phase[0]);
    ck_assert_mem_eq(&a.phase[SIM_PREFILL], &b.phase[SIM_PREFILL], sizeof a.phase[0]);
    ck_assert_uint_eq(c.phase[0].tokens + c.phase[1].tokens, a.phase[0].tokens + a.phase[1].tokens);
    ck_assert_uint_eq(c.phase[0].accesses + c.phase[1].accesses,
                      a.phase[0].accesses + a.phase[1].accesses);
    ck_assert_uint_le(c.phase[0].passes, 30 + 4);
    ck_assert_uint_lt(c.phase[0].experts, a.phase[0].experts);
    trace_free(&one);
    trace_free(&all);
    trace_free(&t);
}
END_TEST

/* Parts of one sequence have all of its passes, each once. */
START_TEST(one_sequence_is_cut)
{
    struct trace t = make(1, 50, 0, 2);
    uint32_t sequences, passes[50] = {0};
    struct trace out = weave(&t, 1, 8, 8, &sequences);
    ck_assert_uint_eq(sequences, 8);
    for (uint64_t i = 0; i < out.count; i++)
        if (out.records[i].kind == TRACE_TOKEN_END)
            passes[out.records[i].position]++;
    for (uint32_t i = 0; i < ARRAY_LEN(passes); i++)
        ck_assert_uint_eq(passes[i], 1);
    check_passes(&out, 8);
    trace_free(&out);
    trace_free(&t);
}
END_TEST

START_TEST(several_traces)
{
    struct trace t[] = {make(1, 10, 0, 1), make(2, 20, 5, 2)};
    uint32_t sequences;
    struct error error;
    struct trace out = weave(t, 2, 3, 3, &sequences);
    ck_assert_uint_eq(sequences, 3);
    ck_assert_uint_eq(out.count, t[0].count + t[1].count);
    trace_free(&out);
    t[1].header.experts++;
    ck_assert_ptr_null(together_create(t, 2, 1, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    t[0].count = 1; /* only a start */
    ck_assert_ptr_null(together_create(t, 1, 1, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    trace_free(&t[0]);
    trace_free(&t[1]);
}
END_TEST

/* ---- a time limit ---- */

#define PROMPT 240u

/* 1 ms of a layer and 1 ms of an expert for each token. */
static const struct together_limit one_ms = {
    .gap_ns = 60000000, .compute = {.layer_ns = 1e6, .expert_ns = 1e6, .batch = 1}};

struct passes {
    uint32_t rows[4096], streams[4096], count;
    double ns[4096];
};

/* Rows of each pass, those of streams, and what it takes. */
static struct passes passes_of(const struct trace *t)
{
    struct passes p = {.count = 0};
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        if (x->kind != TRACE_EXPERT && x->kind != TRACE_TOKEN_END)
            continue;
        ck_assert_uint_lt(x->pass, ARRAY_LEN(p.rows));
        p.count = x->pass + 1u > p.count ? x->pass + 1u : p.count;
        if (x->kind == TRACE_EXPERT) {
            p.ns[x->pass] += 1e6 * x->tokens;
            continue;
        }
        p.rows[x->pass] += x->tokens;
        p.streams[x->pass] += x->tokens == 1;
        p.ns[x->pass] += 1e6 * LAYERS * x->tokens;
    }
    return p;
}

/* Tokens of a sequence, and how many use each expert of each layer. */
static uint64_t uses_of(const struct trace *t, uint32_t sequence, uint32_t layer, uint32_t expert)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        if (x->sequence == sequence && x->kind == TRACE_EXPERT && x->layer == layer &&
            x->expert == expert)
            n += x->tokens;
    }
    return n;
}

/* The parts of a chunk follow each other, and have all of its tokens. */
static void check_positions(const struct trace *t, uint32_t sequences)
{
    uint32_t next[8] = {0};
    ck_assert_uint_lt(sequences, ARRAY_LEN(next));
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        if (x->kind != TRACE_TOKEN_END)
            continue;
        ck_assert_uint_eq(x->position, next[x->sequence]);
        next[x->sequence] += x->tokens;
    }
}

START_TEST(a_limit_divides_prompts)
{
    struct trace t = make(4, 4 * PROMPT, PROMPT, 5);
    uint32_t sequences;
    struct trace free_of = weave(&t, 1, 1, 4, &sequences);
    struct trace out = weave_within(&t, 1, 1, 4, &one_ms, &sequences);
    for (uint32_t s = 1; s <= sequences; s++)
        for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
            ck_assert_uint_eq(uses_of(&out, s, i / EXPERTS, i % EXPERTS),
                              uses_of(&free_of, s, i / EXPERTS, i % EXPERTS));
    check_positions(&out, sequences);
    check_passes(&out, 4);
    struct passes p = passes_of(&out);
    uint32_t with_streams = 0;
    for (uint32_t i = 20; i < p.count; i++) { /* the pace is known */
        if (p.streams[i] == 0 || p.streams[i] == p.rows[i])
            continue;
        with_streams++;
        ck_assert_msg(p.ns[i] <= 1.5 * (double)one_ms.gap_ns ||
                          p.rows[i] <= p.streams[i] + SCHEDULE_PROMPT_ROWS_MIN,
                      "pass %u of %u rows takes %g ms", i, p.rows[i], p.ns[i] / 1e6);
    }
    ck_assert_uint_gt(with_streams, 20);
    ck_assert_uint_gt(p.count, passes_of(&free_of).count);
    trace_free(&free_of);
    trace_free(&out);
    trace_free(&t);
}
END_TEST

TCase *sim_together_case(void)
{
    TCase *c = tcase_create("together");
    tcase_add_loop_test(c, nothing_is_lost, 0, 2);
    tcase_add_test(c, one_at_a_time_changes_nothing);
    tcase_add_test(c, one_sequence_is_cut);
    tcase_add_test(c, several_traces);
    tcase_add_test(c, a_limit_divides_prompts);
    return c;
}
