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

/* LRU as a list, in which all sequences of a pass are in a layer together: experts in the order of
 * their first record, and what is missing is inserted once, after all accesses. */
struct lru {
    uint32_t list[LAYERS * EXPERTS], resident, capacity;
    uint32_t expert[EXPERTS], users[EXPERTS], experts; /* of the layer */
    uint64_t hits, demands;
};

static uint32_t find_in(const uint32_t *list, uint32_t count, uint32_t e)
{
    uint32_t at = 0;
    while (at < count && list[at] != e)
        at++;
    return at;
}

static void end_layer(struct lru *l)
{
    uint32_t missing[EXPERTS], missed = 0;
    for (uint32_t i = 0; i < l->experts; i++) {
        uint32_t at = find_in(l->list, l->resident, l->expert[i]);
        if (at == l->resident) {
            missing[missed++] = l->expert[i];
            continue;
        }
        l->hits += l->users[i];
        memmove(l->list + at, l->list + at + 1, (l->resident - at - 1) * sizeof *l->list);
        l->list[l->resident - 1] = l->expert[i];
    }
    for (uint32_t m = 0; m < missed; m++) {
        if (l->resident == l->capacity)
            memmove(l->list, l->list + 1, --l->resident * sizeof *l->list);
        l->list[l->resident++] = missing[m];
    }
    l->demands += missed;
    l->experts = 0;
}

static struct lru together(const struct trace *t, uint32_t capacity)
{
    struct lru l = {.capacity = capacity};
    uint32_t layer = 0;
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *x = &t->records[i];
        if (x->kind == TRACE_TOKEN_END || (x->kind == TRACE_EXPERT && x->layer != layer))
            end_layer(&l);
        if (x->kind != TRACE_EXPERT)
            continue;
        layer = x->layer;
        uint32_t e = layer * EXPERTS + x->expert, at = find_in(l.expert, l.experts, e);
        l.expert[at] = e;
        l.users[at] = at == l.experts ? 1 : l.users[at] + 1;
        l.experts += at == l.experts;
    }
    return l;
}

START_TEST(sequences_of_a_pass_demand_together)
{
    static const enum order orders[] = {BY_LAYER, BY_EXPERT};
    struct trace t = make(0, (uint64_t)_i + 1);
    for (uint32_t i = 0; i < ARRAY_LEN(orders); i++) {
        struct trace other = reorder(&t, orders[i]);
        struct lru l = together(&other, LAYERS * EXPERTS / 3);
        struct sim_result r = run(&other, "lod", "eviction=lru", false);
        const struct sim_stats *f = &r.phase[SIM_DECODE];
        ck_assert_uint_eq(f->passes, TOKENS);
        ck_assert_uint_eq(f->accesses, (uint64_t)SEQUENCES * TOKENS * LAYERS * TOP_K);
        ck_assert_uint_eq(f->hits, l.hits);
        ck_assert_uint_eq(f->misses, f->accesses - l.hits);
        ck_assert_uint_eq(f->demands, l.demands);
        ck_assert_uint_eq(f->demand_bytes, l.demands * EXPERT_BYTES);
        ck_assert_uint_lt(f->experts, f->accesses);
        ck_assert_uint_lt(f->demands, f->misses);
        trace_free(&other);
    }
    trace_free(&t);
}
END_TEST

/* A read and an expert count once for all sequences of a pass. */
START_TEST(an_expert_of_two_sequences_is_read_once)
{
    static const struct sim_step steps[] = {{1, 0, 0, 1, false}, {2, 7, 0, 1, false}};
    static const struct sim_part parts[] = {{0, 1}, {1, 1}};
    struct sim_config k = config_of("lod", NULL, 8);
    struct error error;
    struct sim_access_result result;
    k.layers = 1, k.experts = 8, k.top_k = 1, k.precision_mask = 1;
    k.precision_bytes[0] = EXPERT_BYTES;
    struct sim_cache *c = sim_cache_create(&k, &error);
    ck_assert_ptr_nonnull(c);
    sim_cache_layer(c, steps, 2);
    sim_cache_access(c, &(struct sim_access){.expert = 3, .tokens = 2, .part = parts, .parts = 2},
                     &result);
    ck_assert_int_eq(result.outcome, SIM_MISS);
    /* latency and 1 ms; a layer and an expert take 1.25 times as long for two rows */
    ck_assert_double_eq_tol(sim_cache_compute(c), 1.1e6, 1);
    ck_assert_double_eq_tol(sim_cache_now(c), 1.25 * 4e5 + 1.1e6 + 1.25 * 1e5, 1);
    sim_cache_token(c);
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_uint_eq(f->passes, 1);
    ck_assert_uint_eq(f->tokens, 2);
    ck_assert_uint_eq(f->misses, 2);
    ck_assert_uint_eq(f->experts, 1);
    ck_assert_uint_eq(f->demands, 1);
    sim_cache_destroy(c);
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
    tcase_add_loop_test(c, sequences_of_a_pass_demand_together, 0, 3);
    tcase_add_test(c, an_expert_of_two_sequences_is_read_once);
    tcase_add_test(c, more_than_there_are_places);
    return c;
}
