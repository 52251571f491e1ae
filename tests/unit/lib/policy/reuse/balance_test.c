/* SPDX-License-Identifier: Apache-2.0 */
/* Memory between experts and kept prefixes, in a world whose savings are known: it goes where it
 * saves most, by the oracle that tries every number of steps, and stays there. */
#include <check.h>
#include <math.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/policy/reuse/balance.h"

#define SECOND 1000000000ull

static struct random numbers;

static double between(double low, double high)
{
    return low + (high - low) * (double)random_below(&numbers, 1000001) / 1e6;
}

static void setup(void)
{
    random_seed(&numbers, 31, 0);
}

/* Prefixes get what is decided at once. */
static uint32_t decide(struct balance *b, uint32_t most)
{
    return balance_decide(b, b->steps, most);
}

/* ---- single decisions ------------------------------------------------------------------------ */

static void learn(struct balance *b)
{
    for (uint32_t i = 0; i < BALANCE_LEARNS; i++)
        decide(b, 0);
}

START_TEST(nothing_known_moves_nothing)
{
    struct balance b = {.steps = 7};
    for (uint32_t i = 0; i < 2 * BALANCE_LEARNS; i++)
        ck_assert_uint_eq(decide(&b, BALANCE_MOST), 7);
}
END_TEST

START_TEST(prefixes_get_what_they_need_and_no_more)
{
    struct balance b = {0};
    balance_prefix(&b, 4.2, SECOND);
    for (uint32_t i = 1; i <= 5; i++)
        ck_assert_uint_eq(decide(&b, BALANCE_MOST), i);
    for (uint32_t i = 0; i < 50; i++)
        ck_assert_uint_eq(decide(&b, BALANCE_MOST), 5);
}
END_TEST

START_TEST(what_the_pool_holds_needs_no_step)
{
    struct balance b = {0};
    balance_prefix(&b, 0, SECOND);
    balance_prefix(&b, -3, SECOND);
    ck_assert_uint_eq(decide(&b, BALANCE_MOST), 0);
}
END_TEST

START_TEST(what_never_fits_needs_no_step)
{
    struct balance b = {0};
    balance_prefix(&b, BALANCE_MOST + 0.5, SECOND);
    ck_assert_uint_eq(decide(&b, BALANCE_MOST), 0);
}
END_TEST

START_TEST(dear_experts_keep_their_memory)
{
    struct balance b = {0};
    balance_prefix(&b, 1, SECOND);
    balance_experts(&b, 2 * SECOND, 0.5);
    ck_assert_uint_eq(decide(&b, BALANCE_MOST), 0);
    balance_prefix(&b, 1, SECOND / 2 - SECOND / 100); /* not yet BALANCE_FACTOR times as dear */
    ck_assert_uint_eq(decide(&b, BALANCE_MOST), 0);
    balance_prefix(&b, 1, SECOND / 50);
    ck_assert_uint_eq(decide(&b, BALANCE_MOST), 1);
}
END_TEST

START_TEST(prefixes_that_nobody_continues_give_it_back)
{
    struct balance b = {0};
    learn(&b);
    balance_prefix(&b, 3, SECOND);
    for (uint32_t i = 0; i < 3; i++)
        decide(&b, BALANCE_MOST);
    ck_assert_uint_eq(b.steps, 3);
    uint32_t decisions = 0;
    for (; b.steps > 0 && decisions < 10000; decisions++) {
        balance_experts(&b, SECOND / 100, 1);
        decide(&b, BALANCE_MOST);
    }
    ck_assert(b.steps == 0 && decisions > 20);
}
END_TEST

START_TEST(a_successor_waits_before_it_takes)
{
    struct balance b = {.steps = 3};
    for (uint32_t i = 0; i < BALANCE_LEARNS; i++) {
        balance_experts(&b, SECOND, 1);
        ck_assert_uint_eq(decide(&b, BALANCE_MOST), 3);
    }
    decide(&b, BALANCE_MOST);
    ck_assert_uint_eq(b.steps, 2);
}
END_TEST

START_TEST(a_limit_holds_at_once)
{
    struct balance b = {.steps = 9};
    balance_prefix(&b, 20, SECOND);
    ck_assert_uint_eq(decide(&b, 4), 4);
    ck_assert_uint_eq(decide(&b, 4), 4);
    ck_assert_uint_eq(decide(&b, 19), 4); /* fewer than 20 save nothing */
    ck_assert_uint_eq(decide(&b, UINT32_MAX), 5);
}
END_TEST

START_TEST(a_step_waits_for_the_last_one)
{
    struct balance b = {0};
    balance_prefix(&b, 3, SECOND);
    ck_assert_uint_eq(balance_decide(&b, 0, BALANCE_MOST), 1);
    for (uint32_t i = 0; i < 10; i++)
        ck_assert_uint_eq(balance_decide(&b, 0, BALANCE_MOST), 1);
    ck_assert_uint_eq(balance_decide(&b, 1, BALANCE_MOST), 2);
}
END_TEST

/* ---- a world --------------------------------------------------------------------------------- */

/* Experts wait less with more memory, and each step saves less than the one before. Conversations
 * need a number of steps, and come back with a probability. */
#define CONVERSATIONS 6u
struct world {
    double stall_ns, steepness, first; /* per decision, with all steps */
    double steps[CONVERSATIONS], ns[CONVERSATIONS], chance[CONVERSATIONS];
};

static void make_world(struct world *w)
{
    w->stall_ns = pow(10, between(5, 9));
    w->steepness = between(1, 4);
    w->first = between(0, 60);
    for (uint32_t i = 0; i < CONVERSATIONS; i++) {
        w->steps[i] = between(-5, BALANCE_MOST + 5.0);
        w->ns[i] = pow(10, between(5, 9.5));
        w->chance[i] = between(0.005, 0.2);
    }
}

/* What experts wait when they lack so many steps. */
static double stalls(const struct world *w, double steps)
{
    return w->stall_ns * pow((w->first + steps) / BALANCE_STEPS, w->steepness);
}

static double saved(const struct world *w, uint32_t steps)
{
    double ns = 0;
    for (uint32_t i = 0; i < CONVERSATIONS; i++)
        ns += w->steps[i] > 0 && ceil(w->steps[i]) <= steps ? w->ns[i] * w->chance[i] : 0;
    return ns;
}

/* One decision's time, with noise. */
static void live(const struct world *w, struct balance *b, bool random)
{
    double now = stalls(w, b->steps);
    double next = b->steps > 0 || w->first >= 1 ? stalls(w, b->steps - 1.0) : 0;
    double noise = random ? between(0.8, 1.2) : 1;
    if (now > 0)
        balance_experts(b, (uint64_t)(now * noise), (now - next) / now);
    for (uint32_t i = 0; i < CONVERSATIONS; i++)
        if (!random)
            balance_prefix(b, w->steps[i], (uint64_t)(w->ns[i] * w->chance[i]));
        else if (between(0, 1) < w->chance[i])
            balance_prefix(b, w->steps[i], (uint64_t)w->ns[i]);
}

/* After a while, memory stays where it is, and no other number of steps would save much more: what
 * the oracle finds by trying all of them. Second, where everything comes by chance: then memory
 * turns seldom. */
START_TEST(memory_goes_where_it_saves_most)
{
    const uint32_t allowed = _i == 1 ? 8 : 2;
    uint32_t moved_to_prefixes = 0, stayed = 0;
    for (uint32_t round = 0; round < 60; round++) {
        struct world w;
        struct balance b = {0};
        uint32_t turns = 0;
        int direction = 0;
        make_world(&w);
        for (uint32_t i = 0; i < 12000; i++) {
            live(&w, &b, _i == 1);
            uint32_t before = b.steps, after = decide(&b, BALANCE_MOST);
            int moved = after > before ? 1 : after < before ? -1 : 0;
            turns += i > 4000 && moved != 0 && direction != 0 && moved != direction;
            direction = moved != 0 ? moved : direction;
        }
        ck_assert_uint_le(turns, allowed);
        double step = stalls(&w, b.steps + 1.0) - stalls(&w, b.steps), slack = 2;
        for (uint32_t n = 0; n <= BALANCE_MOST; n++) {
            if (n > b.steps) /* it would have to cost what is saved, and more */
                ck_assert_double_le(saved(&w, n) - saved(&w, b.steps),
                                    b.factor * slack * (n - b.steps) * step + 1);
            else if (n < b.steps && stalls(&w, b.steps - 1.0) > 0)
                ck_assert_double_ge(b.factor * slack * (saved(&w, b.steps) - saved(&w, n)) + 1,
                                    stalls(&w, b.steps) - stalls(&w, n));
        }
        moved_to_prefixes += b.steps > 0;
        stayed += b.steps == 0;
    }
    ck_assert_uint_gt(moved_to_prefixes, 5);
    ck_assert_uint_gt(stayed, 5);
}
END_TEST

/* Memory is never above the limit, and moves by one step. */
START_TEST(it_moves_by_steps)
{
    struct balance b = {0};
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t most = (uint32_t)random_below(&numbers, BALANCE_MOST + 10), before = b.steps;
        balance_prefix(&b, between(-3, 50), (uint64_t)between(0, 1e9));
        balance_experts(&b, (uint64_t)between(0, 1e9), between(0, 0.3));
        uint32_t after = decide(&b, most);
        ck_assert(after <= most && after <= BALANCE_MOST);
        ck_assert(after == most || (after <= before + 1 && after + 1 >= before));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("balance");
    TCase *t = tcase_create("balance");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, nothing_known_moves_nothing);
    tcase_add_test(t, prefixes_get_what_they_need_and_no_more);
    tcase_add_test(t, what_the_pool_holds_needs_no_step);
    tcase_add_test(t, what_never_fits_needs_no_step);
    tcase_add_test(t, dear_experts_keep_their_memory);
    tcase_add_test(t, prefixes_that_nobody_continues_give_it_back);
    tcase_add_test(t, a_successor_waits_before_it_takes);
    tcase_add_test(t, a_limit_holds_at_once);
    tcase_add_test(t, a_step_waits_for_the_last_one);
    tcase_add_loop_test(t, memory_goes_where_it_saves_most, 0, 2);
    tcase_add_test(t, it_moves_by_steps);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
