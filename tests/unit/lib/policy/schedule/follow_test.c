/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that wait for rows of others, in a world of random prompts that begin alike: who waits
 * for whom, that all end however the others end, and that common rows are computed once. No time is
 * measured. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/policy/schedule/schedule.h"

#define MOST   24u
#define TOKENS 1200u
#define CHUNK  128u
#define LEAST  SCHEDULE_FOLLOW_LEAST

static struct random numbers;

static uint32_t below(uint32_t n)
{
    return (uint32_t)random_below(&numbers, n);
}

static void setup(void)
{
    random_seed(&numbers, 23, 0);
}

static const struct schedule_pace nothing_known = {0};

/* ---- one choice ------------------------------------------------------------------------------ */

static uint32_t choose(const struct schedule_leader *l, uint32_t count, uint32_t rows, bool side)
{
    const struct schedule_follower f = {.turn = 100, .rows = rows, .side = side};
    return schedule_leader(l, count, &f, &nothing_known);
}

START_TEST(it_waits_for_what_another_one_computes)
{
    const struct schedule_leader l = {.turn = 1, .rows = 10, .gives = 500};
    ck_assert_uint_eq(choose(&l, 1, 0, false), 0);
    ck_assert_uint_eq(choose(&l, 1, 10, false), 0);
    ck_assert_uint_eq(choose(&l, 0, 0, false), SCHEDULE_NONE);
}
END_TEST

START_TEST(it_does_not_wait_for_what_is_there)
{
    const struct schedule_leader l = {.turn = 1, .rows = 500, .gives = 500};
    ck_assert_uint_eq(choose(&l, 1, 0, false), SCHEDULE_NONE);
}
END_TEST

START_TEST(it_does_not_wait_for_one_that_is_behind)
{
    const struct schedule_leader l = {.turn = 1, .rows = 10, .gives = 500};
    ck_assert_uint_eq(choose(&l, 1, 11, false), SCHEDULE_NONE);
}
END_TEST

START_TEST(it_does_not_wait_for_few_rows)
{
    struct schedule_leader l = {.turn = 1, .rows = 10, .gives = 9 + LEAST};
    ck_assert_uint_eq(choose(&l, 1, 10, false), SCHEDULE_NONE);
    l.gives++;
    ck_assert_uint_eq(choose(&l, 1, 10, false), 0);
}
END_TEST

/* A pass takes as long as so many rows. */
START_TEST(it_waits_only_where_that_saves_time)
{
    static const struct {
        uint32_t pass_rows, least;
    } cases[] = {{0, LEAST},
                 {LEAST / 2, LEAST},
                 {100, 100},
                 {SCHEDULE_FOLLOW_MOST * 3, SCHEDULE_FOLLOW_MOST}};
    const struct schedule_follower f = {.turn = 100};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct schedule_pace pace = {0};
        for (uint32_t n = 1; n <= 20; n++)
            schedule_pace_add(&pace, n * 10, (cases[i].pass_rows + n * 10) * 1000000ull);
        struct schedule_leader l = {.turn = 1, .gives = cases[i].least - 2};
        ck_assert_uint_eq(schedule_leader(&l, 1, &f, &pace), SCHEDULE_NONE);
        l.gives = cases[i].least + 2; /* the line is found but for rounding */
        ck_assert_uint_eq(schedule_leader(&l, 1, &f, &pace), 0);
    }
}
END_TEST

START_TEST(it_waits_for_earlier_ones_only)
{
    struct schedule_leader l = {.turn = 99, .gives = 500};
    ck_assert_uint_eq(choose(&l, 1, 0, false), 0);
    l.turn = 101;
    ck_assert_uint_eq(choose(&l, 1, 0, false), SCHEDULE_NONE);
}
END_TEST

START_TEST(a_conversation_waits_for_no_side_request)
{
    const struct schedule_leader l = {.turn = 1, .gives = 500, .side = true};
    ck_assert_uint_eq(choose(&l, 1, 0, false), SCHEDULE_NONE);
    ck_assert_uint_eq(choose(&l, 1, 0, true), 0);
}
END_TEST

START_TEST(the_one_that_gives_most_leads)
{
    const struct schedule_leader l[] = {{.turn = 4, .gives = 500},
                                        {.turn = 5, .gives = 700},
                                        {.turn = 3, .gives = 700},
                                        {.turn = 2, .gives = 600}};
    ck_assert_uint_eq(choose(l, ARRAY_LEN(l), 0, false), 2);
}
END_TEST

/* ---- a world --------------------------------------------------------------------------------- */

struct one {
    uint32_t token[TOKENS];
    uint32_t prompt, known, rows; /* known: the prompt, and the answer so far */
    uint32_t answer;
    bool side, runs, has_slot, ended, keeps; /* keeps: its rows can be used after its end */
    uint32_t leader, leads_until;            /* without a slot; SCHEDULE_NONE: it does not wait */
    uint64_t since, served;
};

struct world {
    struct one one[MOST];
    uint32_t count, places;
    bool follows;
    uint64_t pass, computed, turn[MOST];
};

/* A new prompt, or one that begins as an earlier one does. */
static void make_prompt(struct world *w, uint32_t i)
{
    struct one *s = &w->one[i];
    *s = (struct one){.prompt = 1 + below(TOKENS), .leader = SCHEDULE_NONE};
    const struct one *like = i > 0 && below(4) > 0 ? &w->one[below(i)] : NULL;
    uint32_t common = !like ? 0 : below(3) == 0 ? like->prompt : below(like->prompt);
    if (like && below(3) == 0)
        s->prompt = like->prompt;
    for (uint32_t t = 0; t < s->prompt; t++)
        s->token[t] = t < common ? like->token[t] : 1000000 * (i + 1) + t;
    s->known = s->prompt;
    s->answer = below(30);
}

static void make_world(struct world *w, uint32_t places, bool sides)
{
    memset(w, 0, sizeof *w);
    w->count = 2 + below(MOST - 1);
    w->places = places;
    w->follows = true;
    for (uint32_t i = 0; i < w->count; i++) {
        make_prompt(w, i);
        w->one[i].side = sides && below(3) == 0;
        w->turn[i] = schedule_turn(i, w->one[i].side);
    }
}

/* Tokens of b's prompt but its last one, which a's rows up to `rows` are of. */
static uint32_t common(const struct one *a, uint32_t rows, const struct one *b)
{
    uint32_t n = 0, most = rows < a->prompt ? rows : a->prompt;
    most = most < b->prompt - 1 ? most : b->prompt - 1;
    while (n < most && a->token[n] == b->token[n])
        n++;
    return n;
}

static uint32_t rows_now(const struct world *w, const struct one *s)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct one *o = &w->one[i];
        uint32_t rows =
            o != s && (o->has_slot || (o->ended && o->keeps)) ? common(o, o->rows, s) : 0;
        best = rows > best ? rows : best;
    }
    return best;
}

static uint32_t leader_of(const struct world *w, uint32_t i)
{
    struct schedule_leader l[MOST];
    uint32_t of[MOST], n = 0;
    const struct one *s = &w->one[i];
    for (uint32_t j = 0; j < w->count; j++) {
        const struct one *o = &w->one[j];
        uint32_t gives = o->has_slot ? common(o, o->prompt, s) : 0;
        if (gives == 0)
            continue;
        of[n] = j;
        l[n++] =
            (struct schedule_leader){w->turn[j], o->rows, gives > o->rows ? gives : 0, o->side};
    }
    const struct schedule_follower f = {w->turn[i], rows_now(w, s), s->side};
    uint32_t found = schedule_leader(l, n, &f, &nothing_known);
    return found == SCHEDULE_NONE ? found : of[found];
}

/* Takes rows, or waits for some. */
static void enter(struct world *w, uint32_t i)
{
    struct one *s = &w->one[i];
    const struct one *l = s->leader != SCHEDULE_NONE ? &w->one[s->leader] : NULL;
    if (l && l->has_slot && l->rows < s->leads_until)
        return;
    s->leader = w->follows ? leader_of(w, i) : SCHEDULE_NONE;
    if (s->leader != SCHEDULE_NONE) {
        s->leads_until = common(&w->one[s->leader], TOKENS, s);
        ck_assert(w->turn[s->leader] < w->turn[i]);
        return;
    }
    s->rows = rows_now(w, s);
    s->has_slot = true;
}

static void leave(struct one *s, bool keeps)
{
    s->ended = true;
    s->keeps = keeps;
    s->runs = s->has_slot = false;
}

/* Places in order of turn. */
static void admit(struct world *w)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < w->count; i++)
        running += w->one[i].runs;
    while (running < w->places) {
        uint32_t next = SCHEDULE_NONE;
        for (uint32_t i = 0; i < w->count; i++)
            if (!w->one[i].runs && !w->one[i].ended &&
                (next == SCHEDULE_NONE || w->turn[i] < w->turn[next]))
                next = i;
        if (next == SCHEDULE_NONE)
            return;
        w->one[next].runs = true;
        w->one[next].since = w->pass;
        running++;
    }
}

static void enter_all(struct world *w)
{
    uint64_t last = 0;
    for (;;) { /* in order of turn */
        uint32_t next = SCHEDULE_NONE;
        for (uint32_t i = 0; i < w->count; i++)
            if (w->one[i].runs && w->turn[i] >= last &&
                (next == SCHEDULE_NONE || w->turn[i] < w->turn[next]))
                next = i;
        if (next == SCHEDULE_NONE)
            return;
        last = w->turn[next] + 1;
        if (!w->one[next].has_slot)
            enter(w, next);
    }
}

/* What follows from the rows of a pass. */
static void note_rows(struct world *w, uint32_t i, uint32_t rows)
{
    struct one *s = &w->one[i];
    w->computed += rows;
    s->rows += rows;
    s->served = rows > 0 ? w->pass : s->served;
    if (rows == 0 || s->rows < s->known)
        return;
    if (s->answer == 0)
        leave(s, true);
    else {
        s->answer--;
        s->known++;
    }
}

static bool is_over(const struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (!w->one[i].ended)
            return false;
    return true;
}

/* At least one row is computed: never do all wait for each other. */
static void pass(struct world *w)
{
    struct schedule_sequence wants[MOST];
    uint32_t rows[MOST], of[MOST], n = 0;
    w->pass++;
    admit(w);
    enter_all(w);
    for (uint32_t i = 0; i < w->count; i++) {
        const struct one *s = &w->one[i];
        if (!s->has_slot)
            continue;
        of[n] = i;
        wants[n++] = (struct schedule_sequence){.arrival = w->turn[i],
                                                .served = s->served,
                                                .since = s->since,
                                                .missing = s->known - s->rows,
                                                .rows_max = CHUNK,
                                                .side = s->side};
    }
    const struct schedule_limits limits = {.pass = w->pass + 1, .rows = CHUNK};
    ck_assert_uint_gt(schedule_pass(wants, n, &limits, &nothing_known, rows), 0);
    for (uint32_t i = 0; i < n; i++)
        note_rows(w, of[i], rows[i]);
}

static void run(struct world *w)
{
    while (!is_over(w))
        pass(w);
}

/* ---- properties ------------------------------------------------------------------------------ */

/* Distinct beginnings of the prompts: what would be computed if every row were computed once. */
static uint64_t distinct(const struct world *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t known = 0;
        for (uint32_t j = 0; j < i; j++) {
            uint32_t rows = common(&w->one[j], TOKENS, &w->one[i]);
            known = rows > known ? rows : known;
        }
        n += w->one[i].prompt - known;
    }
    return n;
}

static uint64_t answers(const struct world *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->count; i++)
        n += w->one[i].answer;
    return n;
}

/* All are there at once, and have a place: a beginning is computed once, but for as many rows as
 * are not waited for. */
START_TEST(common_rows_are_computed_once)
{
    struct world w;
    for (uint32_t i = 0; i < 300; i++) {
        make_world(&w, MOST, false);
        uint64_t least = distinct(&w) + answers(&w);
        run(&w);
        ck_assert_uint_ge(w.computed, least);
        ck_assert_uint_le(w.computed, least + (uint64_t)w.count * LEAST);
    }
}
END_TEST

/* Some are cancelled or fail at any time, with side requests, in few places: the others continue,
 * and nobody waits for one that is gone. */
START_TEST(none_starves_behind_a_leader)
{
    struct world w;
    uint64_t waited = 0;
    for (uint32_t i = 0; i < 300; i++) {
        make_world(&w, 1 + below(MOST), true);
        while (!is_over(&w)) {
            pass(&w);
            uint32_t gone = below(w.count * 8);
            if (gone < w.count && w.one[gone].runs)
                leave(&w.one[gone], below(2) == 0);
            for (uint32_t s = 0; s < w.count; s++)
                waited += w.one[s].runs && !w.one[s].has_slot;
        }
    }
    ck_assert_uint_gt(waited, 0);
}
END_TEST

/* The same prompt for all: the last of them has its first token no more than a pass later than
 * when each computes its own rows, and most of them much earlier. */
START_TEST(equal_prompts_wait_no_longer)
{
    for (uint32_t i = 0; i < 50; i++) {
        struct world w[2];
        uint64_t passes[2];
        make_world(&w[0], MOST, false);
        if (w[0].one[0].prompt <= LEAST) /* nobody waits for so few */
            continue;
        for (uint32_t s = 0; s < w[0].count; s++) {
            memcpy(w[0].one[s].token, w[0].one[0].token, sizeof w[0].one[s].token);
            w[0].one[s].known = w[0].one[s].prompt = w[0].one[0].prompt;
            w[0].one[s].answer = 0;
        }
        w[1] = w[0];
        w[1].follows = false;
        for (uint32_t k = 0; k < 2; k++) {
            run(&w[k]);
            passes[k] = w[k].pass;
        }
        ck_assert_uint_le(passes[0], passes[1] + 1);
        ck_assert_uint_le(passes[0], (w[0].one[0].prompt - 1) / CHUNK + 2);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("follow");
    TCase *t = tcase_create("follow");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, it_waits_for_what_another_one_computes);
    tcase_add_test(t, it_does_not_wait_for_what_is_there);
    tcase_add_test(t, it_does_not_wait_for_one_that_is_behind);
    tcase_add_test(t, it_does_not_wait_for_few_rows);
    tcase_add_test(t, it_waits_only_where_that_saves_time);
    tcase_add_test(t, it_waits_for_earlier_ones_only);
    tcase_add_test(t, a_conversation_waits_for_no_side_request);
    tcase_add_test(t, the_one_that_gives_most_leads);
    tcase_add_test(t, common_rows_are_computed_once);
    tcase_add_test(t, none_starves_behind_a_leader);
    tcase_add_test(t, equal_prompts_wait_no_longer);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
