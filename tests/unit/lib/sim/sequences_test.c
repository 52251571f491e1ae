/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of several sequences at a time. The oracle of alternating tokens is one sequence that has
 * all of them. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/sequences.h"
#include "tests/unit/lib/sim/sim_test.h"

#define SEQUENCES 3u
#define TOKENS    80u
#define LAYERS    6u
#define EXPERTS   16u
#define TOP_K     2u
#define LOSS_MAX  0.04 /* of the accesses */

enum order { IN_TURN, BY_TOKEN, BY_LAYER, BY_EXPERT, AS_ONE };

/* Of SEQUENCES sequences with as many tokens each and no prompts, one after another. */
static struct trace make(double recall, uint64_t seed)
{
    struct trace_synthetic s;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = LAYERS, s.experts = EXPERTS, s.top_k = TOP_K, s.tokens = TOKENS, s.prompt = 0;
    s.sequences = SEQUENCES, s.seed = seed, s.expert_bytes = EXPERT_BYTES;
    s.skew = 1.0, s.locality = 0.25, s.recall = recall;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    return t;
}

/* ---- other orders of the same records ---- */

static bool is(const struct trace_record *r, uint32_t sequence, uint32_t position)
{
    return r->sequence == sequence && r->position == position && r->kind != TRACE_SEQUENCE_START &&
           r->kind != TRACE_SEQUENCE_END;
}

/* The layer that a record of a token is read in. */
static uint32_t layer_of(const struct trace_record *r)
{
    return r->kind == TRACE_TOKEN_END   ? LAYERS
           : r->kind == TRACE_PREDICTED ? r->from_layer
                                        : r->layer;
}

static void add_events(const struct trace *t, enum trace_kind kind, struct trace *to)
{
    for (uint64_t i = 0; i < t->count; i++)
        if (t->records[i].kind == kind)
            to->records[to->count++] = t->records[i];
}

static void add_part(const struct trace *t, uint32_t sequence, uint32_t position, uint32_t first,
                     uint32_t last, struct trace *to)
{
    for (uint64_t i = 0; i < t->count; i++)
        if (is(&t->records[i], sequence, position) && layer_of(&t->records[i]) >= first &&
            layer_of(&t->records[i]) <= last)
            to->records[to->count++] = t->records[i];
}

/* As an engine logs a pass: a layer expert by expert, with a record for each sequence. */
static void add_by_expert(const struct trace *t, uint32_t position, uint32_t layer,
                          struct trace *to)
{
    struct trace part = {.records = calloc(t->count, sizeof *part.records)};
    ck_assert_ptr_nonnull(part.records);
    for (uint32_t s = 1; s <= SEQUENCES; s++)
        add_part(t, s, position, layer, layer, &part);
    for (uint32_t rank = 0; rank < TOP_K; rank++)
        for (uint64_t i = 0, of = 0, n = 0; i < part.count; i++) {
            const struct trace_record *r = &part.records[i];
            n = r->sequence == of ? n : 0;
            of = r->sequence;
            if (r->kind == TRACE_EXPERT && n++ == rank)
                to->records[to->count++] = *r;
        }
    for (uint64_t i = 0; i < part.count; i++)
        if (part.records[i].kind != TRACE_EXPERT)
            to->records[to->count++] = part.records[i];
    free(part.records);
}

static void add_round(const struct trace *t, enum order order, uint32_t position, struct trace *to)
{
    for (uint32_t l = 0; l <= LAYERS && order == BY_LAYER; l++)
        for (uint32_t s = 1; s <= SEQUENCES; s++)
            add_part(t, s, position, l, l, to);
    for (uint32_t l = 0; l <= LAYERS && order == BY_EXPERT; l++)
        add_by_expert(t, position, l, to);
    bool by_token = order == BY_TOKEN || order == AS_ONE;
    for (uint32_t s = 1; s <= SEQUENCES && by_token; s++) {
        uint64_t from = to->count;
        add_part(t, s, position, 0, LAYERS, to);
        for (uint64_t i = from; i < to->count && order == AS_ONE; i++) {
            to->records[i].sequence = 1;
            to->records[i].position = position * SEQUENCES + s - 1;
        }
    }
}

static struct trace reorder(const struct trace *t, enum order order)
{
    struct trace to = {.header = t->header, .records = calloc(t->count, sizeof *t->records)};
    ck_assert_ptr_nonnull(to.records);
    add_events(t, TRACE_SEQUENCE_START, &to);
    if (order == AS_ONE)
        to.count = 1;
    for (uint32_t p = 0; p < TOKENS; p++)
        add_round(t, order, p, &to);
    if (order != AS_ONE)
        add_events(t, TRACE_SEQUENCE_END, &to);
    return to;
}

static struct sim_result run(const struct trace *t, const char *preset, const char *knobs,
                             bool belady)
{
    struct sim_result r;
    struct error error;
    struct sim_config c = config_of(preset, knobs, LAYERS * EXPERTS / 3);
    int rv = sim_run(t, 0, 0, &c, belady, &r, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    return r;
}

static struct sim_result run_in(const struct trace *t, enum order order, const char *preset,
                                const char *knobs, bool belady)
{
    struct trace other = reorder(t, order);
    struct sim_result r = run(&other, preset, knobs, belady);
    trace_free(&other);
    return r;
}

/* ---- cases ---- */

static const char *const evictions[] = {"eviction=lru", "eviction=edgemoe", "eviction=hobbit",
                                        "eviction=decayed-frequency", "eviction=activation"};

/* Alternating sequences have less locality than the same ones in turn. What it explains is what one
 * sequence with the same accesses loses; a policy must not lose much more. */
START_TEST(alternating_loses_locality_only)
{
    static const char *const presets[] = {"default", "eap", "edgemoe", "hobbit", "fate"};
    struct trace t = make(0.7, (uint64_t)_i + 1);
    for (uint32_t i = 0; i < ARRAY_LEN(evictions) + ARRAY_LEN(presets); i++) {
        bool alone = i < ARRAY_LEN(evictions);
        const char *preset = alone ? "lod" : presets[i - ARRAY_LEN(evictions)];
        const char *knobs = alone ? evictions[i] : NULL;
        struct sim_stats one = run_in(&t, AS_ONE, preset, knobs, false).phase[SIM_DECODE],
                         many = run_in(&t, BY_TOKEN, preset, knobs, false).phase[SIM_DECODE];
        ck_assert_uint_eq(many.tokens, SEQUENCES * TOKENS);
        ck_assert_uint_eq(many.passes, SEQUENCES * TOKENS);
        ck_assert_uint_eq(many.accesses, one.accesses);
        ck_assert_msg((double)many.hits >= (double)one.hits - LOSS_MAX * (double)one.accesses,
                      "%s %s: %llu hits, as one %llu", preset, knobs ? knobs : "",
                      (unsigned long long)many.hits, (unsigned long long)one.hits);
        if (i == 0) /* lru knows no sequences */
            ck_assert_uint_eq(many.hits, one.hits);
    }
    trace_free(&t);
}
END_TEST

/* A pass of all sequences, layer by layer. Predictions are right: each sequence keeps its own, and
 * every access in a layer with predictions was predicted. */
START_TEST(lists_survive_other_sequences)
{
    struct trace t = make(1, (uint64_t)_i + 1);
    const char *knobs = "prediction=next-layer,prefetch=all,lookahead=1,predict_k=2";
    struct sim_result r = run_in(&t, BY_LAYER, "lod", knobs, false);
    const struct sim_stats *f = &r.phase[SIM_DECODE];
    ck_assert_uint_eq(f->passes, TOKENS);
    ck_assert_uint_eq(f->tokens, SEQUENCES * TOKENS);
    ck_assert_uint_eq(f->accesses, SEQUENCES * TOKENS * LAYERS * TOP_K);
    ck_assert_uint_eq(f->predicted_accesses, SEQUENCES * TOKENS * (LAYERS - 1) * TOP_K);
    ck_assert_uint_eq(f->predicted_hits, f->predicted_accesses);
    ck_assert_uint_gt(f->prefetches, 100);
    ck_assert_uint_ge(f->prefetches_used + f->prefetches_unused + 64, f->prefetches);
    trace_free(&t);
}
END_TEST

/* The simulator puts the records of a layer that an engine wrote into the order of sequences. */
START_TEST(expert_by_expert_is_layer_by_layer)
{
    static const char *const knobs[] = {
        "eviction=learned", "prediction=next-layer,prefetch=all,lookahead=1,predict_k=2",
        "eviction=activation,prediction=activation,prefetch=all,lookahead=1"};
    struct trace t = make(1, (uint64_t)_i + 1);
    for (uint32_t i = 0; i < ARRAY_LEN(knobs); i++) {
        struct sim_result a = run_in(&t, BY_LAYER, "lod", knobs[i], false);
        struct sim_result b = run_in(&t, BY_EXPERT, "lod", knobs[i], false);
        const struct sim_stats *x = &a.phase[SIM_DECODE], *y = &b.phase[SIM_DECODE];
        ck_assert_uint_eq(y->passes, TOKENS);
        ck_assert_uint_eq(x->hits, y->hits);
        ck_assert_uint_eq(x->misses, y->misses);
        ck_assert_uint_eq(x->prefetches, y->prefetches);
        ck_assert_uint_eq(x->predicted_hits, y->predicted_hits);
    }
    trace_free(&t);
}
END_TEST

/* More sequences than places, without starts and ends: nothing is lost but their own state. */
START_TEST(more_than_there_are_places)
{
    struct trace t = make(0.5, 1);
    for (uint64_t i = 0; i < t.count; i++) {
        t.records[i].sequence = 7 * t.records[i].sequence + 1000 * (t.records[i].position % 100);
        if (t.records[i].kind == TRACE_SEQUENCE_START || t.records[i].kind == TRACE_SEQUENCE_END)
            t.records[i].kind = TRACE_CHOICE;
    }
    for (uint32_t i = 0; i < ARRAY_LEN(evictions); i++) {
        struct sim_result r = run(&t, "default", evictions[i], false);
        const struct sim_stats *f = &r.phase[SIM_DECODE];
        ck_assert_uint_eq(f->tokens, SEQUENCES * TOKENS);
        ck_assert_uint_eq(f->hits + f->hits_inflight + f->misses,
                          SEQUENCES * TOKENS * LAYERS * TOP_K);
    }
    trace_free(&t);
}
END_TEST

TCase *sim_sequences_case(void)
{
    TCase *c = tcase_create("sequences");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, alternating_loses_locality_only, 0, 3);
    tcase_add_loop_test(c, lists_survive_other_sequences, 0, 2);
    tcase_add_loop_test(c, expert_by_expert_is_layer_by_layer, 0, 2);
    tcase_add_test(c, more_than_there_are_places);
    return c;
}
