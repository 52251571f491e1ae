/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of cache-aware routing: replayed with exact routing they have the accesses of exact
 * routing; candidates are those of one sequence only. */
#include <string.h>

#include "lib/tensor/precision.h"
#include "tests/unit/lib/sim/sim_test.h"

#define EXPERTS 8u
#define RECORDS 64u

static struct trace_record records[RECORDS];
static struct trace trace;

static void add(enum trace_kind kind, uint32_t sequence, uint32_t expert, uint32_t rank)
{
    ck_assert_uint_lt(trace.count, RECORDS);
    records[trace.count++] = (struct trace_record){.kind = (uint8_t)kind,
                                                   .sequence = sequence,
                                                   .tokens = 1,
                                                   .weight = 1,
                                                   .expert = (uint16_t)expert,
                                                   .rank = (uint8_t)rank};
    if (kind == TRACE_CANDIDATE)
        records[trace.count - 1].before = -(float)rank / 10;
}

static void start(void)
{
    trace = (struct trace){.records = records};
    trace_header_init(&trace.header);
    trace.header.layers = 1;
    trace.header.experts = EXPERTS;
    trace.header.top_k = 2;
    trace.header.precision_mask = 1u << PRECISION_NATIVE;
    trace.header.precision_bytes[PRECISION_NATIVE] = EXPERT_BYTES;
}

/* A sequence of one token: its candidates, if there are any, and what it was routed to. */
static void add_token(uint32_t sequence, const uint32_t *candidate, const uint32_t chosen[2])
{
    add(TRACE_SEQUENCE_START, sequence, 0, 0);
    for (uint32_t i = 0; candidate && i < 3; i++)
        add(TRACE_CANDIDATE, sequence, candidate[i], i);
    for (uint32_t i = 0; i < 2; i++)
        add(TRACE_EXPERT, sequence, chosen[i], i);
    add(TRACE_TOKEN_END, sequence, 0, 0);
    add(TRACE_SEQUENCE_END, sequence, 0, 0);
}

static struct sim_stats replayed(const char *knobs)
{
    struct error error = {0};
    struct sim_result r;
    struct sim_config config = config_of("lod", knobs, EXPERTS);
    ck_assert_msg(trace_check(&trace.header, records, trace.count, &error) == 0, "%s", error.text);
    ck_assert_msg(sim_run(&trace, 0, 0, &config, false, &r, &error) == 0, "%s", error.text);
    return r.phase[SIM_DECODE];
}

static const uint32_t all[] = {0, 1, 2}, exact[] = {0, 1}, other[] = {0, 2};

/* The second token has the experts that the first one would have had without the cache. */
START_TEST(exact_routing_of_a_rerouted_trace)
{
    struct error error = {0};
    struct sim_result r;
    struct sim_config config = config_of("lod", NULL, EXPERTS);
    start();
    add_token(1, all, other);
    add_token(2, all, exact);
    struct sim_stats f = replayed("routing=exact");
    ck_assert_uint_eq(f.accesses, 4);
    ck_assert_uint_eq(f.hits, 2);
    ck_assert_uint_eq(f.rerouted, 0);
    ck_assert_int_eq(sim_run(&trace, 0, 0, &config, true, &r, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "the accesses of exact routing"));
    start();
    add_token(1, all, exact);
    add_token(2, all, exact);
    ck_assert_int_eq(sim_run(&trace, 0, 0, &config, true, &r, &error), 0);
    ck_assert_uint_eq(r.phase[SIM_DECODE].hits, 2);
}
END_TEST

/* The third sequence has the place of the first one, at the same position and layer, and its
 * candidates were lost. */
START_TEST(candidates_of_another_sequence)
{
    static const uint32_t far[] = {6, 7};
    start();
    add_token(1, all, exact);
    add_token(2, all, exact);
    add_token(3, NULL, far);
    struct sim_stats f = replayed("routing=resident-first");
    ck_assert_uint_eq(f.accesses, 6);
    ck_assert_uint_eq(f.hits, 2);
}
END_TEST

TCase *sim_reroute_case(void)
{
    TCase *c = tcase_create("reroute");
    tcase_add_test(c, exact_routing_of_a_rerouted_trace);
    tcase_add_test(c, candidates_of_another_sequence);
    return c;
}
