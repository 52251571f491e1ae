/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of passes over random arrivals, in a world where a pass takes a fixed time and a time per
 * row. No time is measured. */
#include <check.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/policy/schedule/schedule.h"

#define CHUNK 512u

static struct random numbers;

static uint32_t below(uint32_t n)
{
    return (uint32_t)random_below(&numbers, n);
}

static void setup(void)
{
    random_seed(&numbers, 11, 0);
}

/* ---- the gap that is chosen ------------------------------------------------------------------ */

START_TEST(a_gap_is_some_passes_of_streams)
{
    struct schedule_pace pace = {0};
    ck_assert_uint_eq(schedule_gap_ns(&pace), SCHEDULE_GAP_MAX_NS);
    for (uint32_t i = 0; i < 50; i++)
        schedule_pace_add(&pace, 1 + i % 3, 100000000);
    uint64_t gap = schedule_gap_ns(&pace);
    ck_assert_uint_ge(gap, SCHEDULE_GAP_PASSES * 99999999ull);
    ck_assert_uint_le(gap, SCHEDULE_GAP_PASSES * 100000001ull);
    for (uint32_t i = 0; i < 500; i++)
        schedule_pace_add(&pace, 1, 1000);
    ck_assert_uint_eq(schedule_gap_ns(&pace), SCHEDULE_GAP_MIN_NS);
    for (uint32_t i = 0; i < 500; i++)
        schedule_pace_add(&pace, 1, 10000000000);
    ck_assert_uint_eq(schedule_gap_ns(&pace), SCHEDULE_GAP_MAX_NS);
}
END_TEST

/* ---- a world --------------------------------------------------------------------------------- */

struct world {
    struct schedule_sequence sequences[SCHEDULE_SEQUENCES_MAX];
    uint32_t answer[SCHEDULE_SEQUENCES_MAX]; /* tokens that are still to be sampled */
    uint32_t rows[SCHEDULE_SEQUENCES_MAX];   /* of the last pass */
    uint32_t count, taken;
    struct schedule_limits limits;
    struct schedule_pace pace;
    double pass_ns, row_ns;
    uint64_t arrivals, pass_took_ns;
};

static void world_init(struct world *w, uint64_t gap_ns)
{
    *w = (struct world){
        .limits = {.pass = 1, .gap_ns = gap_ns, .rows = CHUNK}, .pass_ns = 20e6, .row_ns = 1e6};
}

static uint32_t arrive(struct world *w, uint32_t prompt, uint32_t answer, bool side)
{
    ck_assert_uint_lt(w->count, SCHEDULE_SEQUENCES_MAX);
    w->sequences[w->count] = (struct schedule_sequence){.arrival = w->arrivals++,
                                                        .since = w->limits.pass - 1,
                                                        .missing = prompt,
                                                        .rows_max = CHUNK,
                                                        .side = side};
    w->answer[w->count] = answer;
    return w->count++;
}

/* A check per row would write a mark of its own. */
static void check_rows(const struct world *w)
{
    uint32_t sum = 0, streams = 0, served = 0, wrong = 0;
    bool work = false;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct schedule_sequence *s = &w->sequences[i];
        wrong += w->rows[i] > s->missing || w->rows[i] > s->rows_max;
        sum += w->rows[i];
        streams += s->missing == 1;
        served += s->missing == 1 && w->rows[i] == 1;
        work = work || s->missing > 0;
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert(sum == w->taken && sum <= w->limits.rows && (sum > 0) == work);
    ck_assert(served == streams || streams >= w->limits.rows);
}

/* One pass, its time, and a token of each sequence that then lacks none. */
static void pass(struct world *w)
{
    w->taken = schedule_pass(w->sequences, w->count, &w->limits, &w->pace, w->rows);
    check_rows(w);
    w->pass_took_ns = (uint64_t)(w->pass_ns + w->row_ns * w->taken);
    if (w->taken > 0)
        schedule_pace_add(&w->pace, w->taken, w->pass_took_ns);
    for (uint32_t i = 0; i < w->count; i++) {
        struct schedule_sequence *s = &w->sequences[i];
        s->missing -= w->rows[i];
        if (w->rows[i] > 0)
            s->served = w->limits.pass;
        if (w->rows[i] > 0 && s->missing == 0 && w->answer[i] > 0) {
            w->answer[i]--;
            s->missing = 1;
        }
    }
    w->limits.pass++;
}

static bool ended(const struct world *w, uint32_t i)
{
    return w->sequences[i].missing == 0;
}

static void forget_ended(struct world *w)
{
    for (uint32_t i = 0; i < w->count;) {
        if (!ended(w, i)) {
            i++;
            continue;
        }
        w->count--;
        w->sequences[i] = w->sequences[w->count];
        w->answer[i] = w->answer[w->count];
    }
}

static uint32_t passes_until(struct world *w, uint32_t i, uint32_t missing)
{
    uint32_t passes = 0;
    for (; w->sequences[i].missing > missing; passes++)
        pass(w);
    return passes;
}

/* ---- one sequence ---------------------------------------------------------------------------- */

START_TEST(a_prompt_alone_takes_whole_chunks)
{
    struct world w;
    world_init(&w, 50000000);
    arrive(&w, 2 * CHUNK + 7, 3, false);
    static const uint32_t expected[] = {CHUNK, CHUNK, 7, 1, 1, 1, 0};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        pass(&w);
        ck_assert_uint_eq(w.rows[0], expected[i]);
    }
}
END_TEST

START_TEST(a_sequence_keeps_its_limit)
{
    struct world w;
    world_init(&w, 0);
    uint32_t a = arrive(&w, 100, 0, false), b = arrive(&w, 100, 0, false);
    w.sequences[a].rows_max = 30;
    pass(&w);
    ck_assert_uint_eq(w.rows[a], 30);
    ck_assert_uint_eq(w.rows[b], 100);
}
END_TEST

/* ---- several --------------------------------------------------------------------------------- */

START_TEST(streams_go_on_beside_a_prompt)
{
    struct world w;
    world_init(&w, 100000000);
    for (unsigned i = 0; i < 5; i++)
        arrive(&w, 1, 1000, false);
    pass(&w);
    uint32_t prompt = arrive(&w, 4000, 1, false);
    uint64_t passes = 0;
    for (; w.sequences[prompt].missing > 1; passes++) {
        pass(&w);
        if (passes > 0) /* before, passes of one size told nothing of others */
            ck_assert_uint_le(w.pass_took_ns, w.limits.gap_ns + 1);
    }
    /* A pass has room for 80 rows, 75 of them of the prompt. */
    ck_assert_uint_le(passes, 4000 / 75 + 2);
}
END_TEST

/* A pass that takes longer than the gap in any case: the prompt ends nevertheless. */
START_TEST(a_gap_that_is_too_short_stops_no_prompt)
{
    struct world w;
    world_init(&w, 1000);
    arrive(&w, 1, 100000, false);
    uint32_t prompt = arrive(&w, 4000, 1, false);
    for (unsigned i = 0; w.sequences[prompt].missing > 1; i++) {
        pass(&w);
        ck_assert(w.sequences[prompt].missing == 1 || w.rows[prompt] == SCHEDULE_PROMPT_ROWS_MIN);
    }
}
END_TEST

START_TEST(without_a_gap_prompts_fill_the_pass)
{
    struct world w;
    world_init(&w, 0);
    arrive(&w, 1, 10, false);
    uint32_t prompt = arrive(&w, 4000, 1, false);
    pass(&w);
    ck_assert_uint_eq(w.rows[prompt], CHUNK - 1);
}
END_TEST

START_TEST(a_short_prompt_does_not_wait_for_a_long_one)
{
    struct world w;
    world_init(&w, 0);
    arrive(&w, 100 * CHUNK, 1, false);
    pass(&w);
    uint32_t late = arrive(&w, 50, 1, false);
    ck_assert_uint_le(passes_until(&w, late, 1), 2);
}
END_TEST

START_TEST(side_requests_delay_no_conversation)
{
    struct world w;
    world_init(&w, 0);
    for (unsigned i = 0; i < 4; i++)
        arrive(&w, 10 * CHUNK, 0, true);
    pass(&w);
    uint32_t prompt = arrive(&w, 8 * CHUNK, 1, false);
    ck_assert_uint_eq(passes_until(&w, prompt, 1), 8);
}
END_TEST

/* A side request that conversations always leave nothing to. */
START_TEST(side_requests_do_not_starve)
{
    struct world w;
    world_init(&w, 0);
    arrive(&w, 1u << 20, 0, false);
    arrive(&w, 1u << 20, 0, false);
    uint32_t side = arrive(&w, CHUNK, 1, true);
    ck_assert_uint_le(passes_until(&w, side, 1), SCHEDULE_SIDE_PASSES + 1);
}
END_TEST

/* In random queues: by arrival among those of a class; a side request lets no more than so many
 * pass, and nobody waits for a side request that arrived later. */
START_TEST(side_requests_let_some_pass)
{
    bool side[200];
    uint64_t turn[200];
    for (uint32_t i = 0; i < ARRAY_LEN(turn); i++) {
        side[i] = below(3) == 0;
        turn[i] = schedule_turn(i, side[i]);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(turn); i++) {
        uint32_t passed = 0, wrong = 0;
        for (uint32_t j = i + 1; j < ARRAY_LEN(turn); j++) {
            passed += turn[j] < turn[i];
            wrong += turn[j] == turn[i] || (turn[j] < turn[i] && (side[j] || !side[i]));
        }
        ck_assert(wrong == 0 && passed <= SCHEDULE_SIDE_REQUESTS);
    }
}
END_TEST

START_TEST(side_requests_leave_a_place)
{
    for (uint32_t places = 1; places <= SCHEDULE_SEQUENCES_MAX; places++) {
        uint32_t sides = 0;
        while (sides < places && schedule_has_place(places, sides, true))
            sides++;
        ck_assert_uint_eq(sides, places == 1 ? 1 : places - 1);
        ck_assert(schedule_has_place(places, sides, false));
    }
}
END_TEST

/* More streams than rows, and a prompt: each is served in its turn. */
START_TEST(few_rows_are_shared)
{
    struct world w;
    world_init(&w, 50000000);
    w.limits.rows = 2;
    for (unsigned i = 0; i < 5; i++)
        arrive(&w, 1, 1000, false);
    arrive(&w, 100, 1000, false);
    for (unsigned i = 0; i < 6; i++)
        pass(&w);
    for (uint32_t i = 0; i < w.count; i++)
        ck_assert_uint_gt(w.sequences[i].served, 0);
}
END_TEST

/* ---- random arrivals ------------------------------------------------------------------------- */

static void arrive_at_random(struct world *w)
{
    while (w->count < SCHEDULE_SEQUENCES_MAX && below(3) == 0)
        arrive(w, 1 + below(below(4) == 0 ? 4000 : 100), below(200), below(4) == 0);
}

/* How long each of them waited for a row: the others that wait as long, and a side request's
 * delay. */
START_TEST(none_starves)
{
    struct world w;
    world_init(&w, 40000000);
    w.limits.rows = (uint32_t[]){1, 2, 16, 64, CHUNK}[_i];
    uint64_t ended_of_all = 0, longest = 0;
    for (unsigned i = 0; i < 3000; i++) {
        arrive_at_random(&w);
        pass(&w);
        for (uint32_t s = 0; s < w.count; s++) {
            const struct schedule_sequence *q = &w.sequences[s];
            uint64_t since = q->served > q->since ? q->served : q->since;
            longest = w.limits.pass - since > longest ? w.limits.pass - since : longest;
        }
        uint32_t before = w.count;
        forget_ended(&w);
        ended_of_all += before - w.count;
    }
    ck_assert_uint_le(longest, SCHEDULE_SEQUENCES_MAX + SCHEDULE_SIDE_PASSES + 1);
    ck_assert_uint_gt(ended_of_all, 0);
}
END_TEST

/* Equal arguments give equal rows, whatever the order in the table. */
START_TEST(the_order_of_the_table_does_not_matter)
{
    struct world w;
    world_init(&w, 40000000);
    for (unsigned i = 0; i < 2000; i++) {
        arrive_at_random(&w);
        struct schedule_sequence turned[SCHEDULE_SEQUENCES_MAX];
        uint32_t rows[SCHEDULE_SEQUENCES_MAX];
        for (uint32_t s = 0; s < w.count; s++)
            turned[w.count - 1 - s] = w.sequences[s];
        schedule_pass(turned, w.count, &w.limits, &w.pace, rows);
        uint32_t count = w.count;
        pass(&w);
        uint32_t equal = 0;
        for (uint32_t s = 0; s < count; s++)
            equal += rows[count - 1 - s] == w.rows[s];
        ck_assert_uint_eq(equal, count);
        forget_ended(&w);
    }
}
END_TEST

/* ---- pace ------------------------------------------------------------------------------------ */

START_TEST(pace_finds_the_line)
{
    struct schedule_pace p = {0};
    ck_assert_uint_eq(schedule_pace_rows(&p, 1000000000, CHUNK), 0);
    for (unsigned i = 0; i < 50; i++) {
        uint32_t rows = 1 + below(CHUNK);
        schedule_pace_add(&p, rows, 30000000 + (uint64_t)rows * 500000);
    }
    ck_assert_uint_eq(schedule_pace_rows(&p, 80200000, CHUNK), 100);
    ck_assert_uint_eq(schedule_pace_rows(&p, 30000000, CHUNK), 0);
    ck_assert_uint_eq(schedule_pace_rows(&p, UINT64_MAX, CHUNK), CHUNK);
}
END_TEST

START_TEST(pace_of_passes_of_one_size)
{
    struct schedule_pace p = {0};
    for (unsigned i = 0; i < 50; i++)
        schedule_pace_add(&p, 4, 40000000);
    ck_assert_uint_eq(schedule_pace_rows(&p, 90500000, CHUNK), 9);
}
END_TEST

/* Passes become faster, for example because the cache is full now. */
START_TEST(pace_follows)
{
    struct schedule_pace p = {0};
    for (unsigned i = 0; i < 400; i++) {
        uint32_t rows = 1 + below(CHUNK);
        schedule_pace_add(&p, rows, (i < 200 ? 300000000 : 30000000) + (uint64_t)rows * 500000);
    }
    uint32_t rows = schedule_pace_rows(&p, 80200000, CHUNK);
    ck_assert(rows >= 90 && rows <= 110);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *t = tcase_create("schedule");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_gap_is_some_passes_of_streams);
    tcase_add_test(t, a_prompt_alone_takes_whole_chunks);
    tcase_add_test(t, a_sequence_keeps_its_limit);
    tcase_add_test(t, streams_go_on_beside_a_prompt);
    tcase_add_test(t, a_gap_that_is_too_short_stops_no_prompt);
    tcase_add_test(t, without_a_gap_prompts_fill_the_pass);
    tcase_add_test(t, a_short_prompt_does_not_wait_for_a_long_one);
    tcase_add_test(t, side_requests_delay_no_conversation);
    tcase_add_test(t, side_requests_do_not_starve);
    tcase_add_test(t, side_requests_let_some_pass);
    tcase_add_test(t, side_requests_leave_a_place);
    tcase_add_test(t, few_rows_are_shared);
    tcase_add_loop_test(t, none_starves, 0, 5);
    tcase_add_test(t, the_order_of_the_table_does_not_matter);
    tcase_add_test(t, pace_finds_the_line);
    tcase_add_test(t, pace_of_passes_of_one_size);
    tcase_add_test(t, pace_follows);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
