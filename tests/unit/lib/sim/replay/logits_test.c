/* SPDX-License-Identifier: Apache-2.0 */
/* Router logits in a trace: a replay is that of the records which an engine with the eviction
 * `learned` and routing resident-first makes of the same logits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/access/resident_first.h"
#include "lib/tensor/precision.h"
#include "tests/unit/lib/sim/sim_test.h"

#define LAYERS  3u
#define EXPERTS 18u /* neither a multiple of the values of a record, nor below them */
#define TOP_K   4u
#define TOKENS  60u
#define RECORDS (TOKENS * LAYERS * (2 * EXPERTS + TOP_K) + 100)

static struct trace raw, made; /* with logits; with what an engine makes of them */
static float bias[EXPERTS];
static uint64_t seed;

static float draw(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(seed >> 40) / (float)(1 << 24);
}

static void start(struct trace *t, const struct model_router *r)
{
    *t = (struct trace){.records = calloc(RECORDS, sizeof *t->records)};
    trace_header_init(&t->header);
    t->header.layers = LAYERS;
    t->header.experts = EXPERTS;
    t->header.top_k = TOP_K;
    t->header.precision_mask = 1u << PRECISION_NATIVE;
    t->header.precision_bytes[PRECISION_NATIVE] = EXPERT_BYTES;
    t->header.router = (struct trace_router){.gating = r->gating,
                                             .normalise = r->normalise,
                                             .scale = r->scale,
                                             .groups = r->groups,
                                             .groups_used = r->groups_used};
}

static struct trace_record *add(struct trace *t, enum trace_kind kind, uint32_t token,
                                uint32_t layer, uint32_t expert)
{
    ck_assert_uint_lt(t->count, RECORDS);
    t->records[t->count] = (struct trace_record){.kind = (uint8_t)kind,
                                                 .sequence = 1,
                                                 .position = token,
                                                 .tokens = 1,
                                                 .layer = (uint16_t)layer,
                                                 .expert = (uint16_t)expert};
    return &t->records[t->count++];
}

static void add_floats(enum trace_kind kind, uint32_t token, uint32_t layer, const float *x)
{
    for (uint32_t at = 0; at < EXPERTS; at += TRACE_FLOATS) {
        float value[TRACE_FLOATS] = {0};
        uint32_t n = EXPERTS - at < TRACE_FLOATS ? EXPERTS - at : TRACE_FLOATS;
        struct trace_record *r = add(&raw, kind, token, layer, at);
        memcpy(value, x + at, n * sizeof *x);
        trace_set_values(r, value);
        r->rank = (uint8_t)n;
    }
}

static void add_made(uint32_t token, uint32_t layer, const struct model_router *rule,
                     const float *logits, const struct route *exact, float nats)
{
    float margin[EXPERTS], scratch[RESIDENT_FIRST_SCRATCH(EXPERTS)];
    uint8_t levels[2 * TRACE_VALUES] = {0};
    struct routing_candidate c[EXPERTS];
    routing_margins(rule, logits, scratch, margin);
    residency_logit_levels(margin, EXPERTS, levels);
    for (uint32_t at = 0; at < EXPERTS; at += TRACE_VALUES) {
        struct trace_record *r = add(&made, TRACE_LOGITS, token, layer, at);
        trace_set_values(r, levels + at);
        r->rank = (uint8_t)(EXPERTS - at < TRACE_VALUES ? EXPERTS - at : TRACE_VALUES);
    }
    uint32_t count = resident_first_candidates(rule, logits, exact, nats, scratch, c);
    routing_shares(rule, logits, scratch);
    for (uint32_t i = 0; i < count; i++) {
        struct trace_record *r = add(&made, TRACE_CANDIDATE, token, layer, c[i].expert);
        r->rank = (uint8_t)i;
        r->weight = scratch[c[i].expert];
        r->before = c[i].margin;
    }
}

static void add_layer(uint32_t token, uint32_t layer, const struct model_router *rule,
                      const float *logits, float nats)
{
    float scratch[ROUTING_SCRATCH(EXPERTS)];
    struct route exact[TOP_K];
    if (rule->bias && token == 0)
        add_floats(TRACE_BIAS, token, layer, rule->bias);
    add_floats(TRACE_ROUTER, token, layer, logits);
    routing_exact(rule, logits, scratch, exact);
    add_made(token, layer, rule, logits, exact, nats);
    for (uint32_t i = 0; i < TOP_K; i++)
        for (int k = 0; k < 2; k++) {
            struct trace_record *r =
                add(k ? &made : &raw, TRACE_EXPERT, token, layer, exact[i].expert);
            r->rank = (uint8_t)i;
            r->weight = exact[i].weight;
        }
}

/* Logits that change slowly. nats: with which the candidates are recorded. */
static void record(const struct model_router *rule, float nats)
{
    static float logits[LAYERS][EXPERTS];
    start(&raw, rule);
    start(&made, rule);
    add(&raw, TRACE_SEQUENCE_START, 0, 0, 0);
    struct trace_record *first = add(&made, TRACE_SEQUENCE_START, 0, 0, 0);
    first->rank = 1;
    first->weight = nats;
    for (uint32_t token = 0; token < TOKENS; token++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t e = 0; e < EXPERTS; e++)
                logits[l][e] = 0.8f * logits[l][e] + 1.5f * (draw() - 0.5f) + (e == 3 ? 0.2f : 0);
            add_layer(token, l, rule, logits[l], nats);
        }
        add(&raw, TRACE_TOKEN_END, token, 0, 0);
        add(&made, TRACE_TOKEN_END, token, 0, 0);
    }
}

static int replay(const struct trace *t, const char *knobs, struct sim_stats *out,
                  struct error *error)
{
    struct sim_result r = {.ns = 0};
    struct sim_config config = config_of("lod", knobs, LAYERS * EXPERTS / 3);
    ck_assert_msg(trace_check(&t->header, t->records, t->count, error) == 0, "%s", error->text);
    int status = sim_run(t, 0, 0, &config, false, &r, error);
    *out = r.phase[SIM_DECODE];
    return status;
}

static struct sim_stats same(const char *knobs)
{
    struct error error = {.text = ""};
    struct sim_stats a, b;
    ck_assert_msg(replay(&raw, knobs, &a, &error) == 0, "%s: %s", knobs, error.text);
    ck_assert_msg(replay(&made, knobs, &b, &error) == 0, "%s: %s", knobs, error.text);
    ck_assert_msg(memcmp(&a, &b, sizeof a) == 0, "%s: %lu and %lu hits, %lu and %lu rerouted",
                  knobs, a.hits, b.hits, a.rerouted, b.rerouted);
    return a;
}

static const struct model_router routers[] = {
    {.experts = EXPERTS, .top_k = TOP_K, .gating = ROUTER_SOFTMAX, .normalise = true},
    {.experts = EXPERTS, .top_k = TOP_K, .gating = ROUTER_SIGMOID, .scale = 2.5f, .bias = bias},
    {.experts = EXPERTS,
     .top_k = TOP_K,
     .gating = ROUTER_SIGMOID,
     .groups = 3,
     .groups_used = 2,
     .bias = bias},
    {.experts = EXPERTS, .top_k = TOP_K, .gating = ROUTER_SOFTMAX_AFTER}};

START_TEST(logits_are_what_an_engine_makes_of_them)
{
    seed = (uint64_t)_i + 1;
    for (uint32_t e = 0; e < EXPERTS; e++)
        bias[e] = 0.3f * draw();
    record(&routers[_i], 3);
    struct sim_stats counted = same("eviction=lru"), learned = same("eviction=learned");
    ck_assert(counted.hits > 0 && counted.hits != learned.hits);
    struct sim_stats some = same("routing=resident-first,nats=0.4"),
                     more = same("eviction=learned,routing=resident-first,nats=3,exact_ranks=2");
    ck_assert(some.rerouted > 0 && more.rerouted > some.rerouted);
    free(raw.records);
    free(made.records);
}
END_TEST

/* More nats than recorded: with the logits there are all candidates, without them some lack. */
START_TEST(more_nats_than_recorded)
{
    struct error error = {.text = ""};
    struct sim_stats few, more, f;
    seed = 5;
    record(&routers[0], 1.5f);
    few = same("routing=resident-first,nats=1.5");
    ck_assert_int_eq(replay(&raw, "routing=resident-first,nats=4", &more, &error), 0);
    ck_assert_uint_gt(more.rerouted, few.rerouted);
    ck_assert_int_eq(replay(&made, "routing=resident-first,nats=4", &f, &error), -1);
    ck_assert_msg(strstr(error.text, "recorded with nats=1.5, and has no candidates for nats=4"),
                  "%s", error.text);
    made.records[0].weight = 1.3f; /* less than the number 1.3 */
    ck_assert_int_eq(replay(&made, "routing=resident-first,nats=1.3", &f, &error), 0);
    made.records[0].weight = 0.4f; /* within 1 there are always all */
    ck_assert_int_eq(replay(&made, "routing=resident-first,nats=1", &f, &error), 0);
    made.records[0].rank = 0; /* unknown */
    ck_assert_int_eq(replay(&made, "routing=resident-first,nats=4", &f, &error), 0);
    free(raw.records);
    free(made.records);
}
END_TEST

/* A layer whose logits are not complete, as a recorder leaves it that was too slow, is replayed as
 * it was recorded. */
START_TEST(lost_logits)
{
    struct error error = {.text = ""};
    struct sim_stats all, some;
    seed = 6;
    record(&routers[0], 0);
    ck_assert_int_eq(replay(&raw, "routing=resident-first,nats=2", &all, &error), 0);
    for (uint64_t i = 0; i < raw.count; i++)
        if (raw.records[i].kind == TRACE_ROUTER && raw.records[i].layer == 1 &&
            raw.records[i].expert == TRACE_FLOATS)
            raw.records[i] =
                (struct trace_record){.kind = TRACE_CHOICE, .sequence = 1, .layer = 1, .expert = 0};
    ck_assert_int_eq(replay(&raw, "routing=resident-first,nats=2", &some, &error), 0);
    ck_assert_uint_eq(some.accesses, all.accesses);
    ck_assert(some.rerouted > 0 && some.rerouted < all.rerouted);
    free(raw.records);
    free(made.records);
}
END_TEST

/* Of a layer whose bias is not whole, no logits are used. */
START_TEST(lost_bias)
{
    struct error error = {.text = ""};
    struct sim_stats all, some, none;
    struct trace_record *lost = NULL;
    seed = 7;
    for (uint32_t e = 0; e < EXPERTS; e++)
        bias[e] = 0.3f * draw();
    record(&routers[1], 0);
    ck_assert_int_eq(replay(&raw, "routing=resident-first,nats=2", &all, &error), 0);
    for (uint64_t i = raw.count; i-- > 0;) {
        struct trace_record *x = &raw.records[i];
        if (x->kind == TRACE_BIAS && x->layer == 1 && x->expert == TRACE_FLOATS)
            lost = x;
    }
    ck_assert_ptr_nonnull(lost);
    *lost = (struct trace_record){.kind = TRACE_CHOICE, .layer = 1};
    ck_assert_int_eq(replay(&raw, "routing=resident-first,nats=2", &some, &error), 0);
    ck_assert_uint_eq(some.accesses, all.accesses);
    ck_assert(some.rerouted > 0 && some.rerouted < all.rerouted);
    for (uint64_t i = 0; i < raw.count; i++)
        if (raw.records[i].kind == TRACE_ROUTER && raw.records[i].layer == 1)
            raw.records[i] = (struct trace_record){.kind = TRACE_CHOICE, .layer = 1};
    ck_assert_int_eq(replay(&raw, "routing=resident-first,nats=2", &none, &error), 0);
    ck_assert_mem_eq(&some, &none, sizeof none);
    free(raw.records);
    free(made.records);
}
END_TEST

TCase *sim_logits_case(void)
{
    TCase *c = tcase_create("logits");
    tcase_add_loop_test(c, logits_are_what_an_engine_makes_of_them, 0,
                        (int)(sizeof routers / sizeof routers[0]));
    tcase_add_test(c, more_nats_than_recorded);
    tcase_add_test(c, lost_logits);
    tcase_add_test(c, lost_bias);
    return c;
}
