/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the next pass: against a search for who is served next, and until all sequences are
 * computed. */
#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/random.h"
#include "procs/engine/compute/runner/batch.h"

#define MOST   16
#define ROUNDS 3000

static struct random rnd;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(random_u64(&rnd) % n);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Arrivals are all different. */
static struct batch_sequence any(uint32_t i)
{
    struct batch_sequence s = {.prompt = 1 + below(60), .most = 1 + below(50)};
    s.known = s.prompt + below(3) * below(20);
    s.computed = below(2) ? s.known - 1 : below(s.known);
    s.arrival = below(100) * (uint64_t)MOST + i;
    return s;
}

static uint32_t alone(const struct batch_sequence *s)
{
    uint32_t left = s->known - s->computed;
    if (s->computed < s->prompt)
        left = smaller(left, s->prompt - s->computed);
    return smaller(left, s->most);
}

START_TEST(one_sequence_gets_all)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct batch_sequence s = any(0);
        uint32_t limit = 1 + below(64), want = smaller(alone(&s), limit);
        ck_assert_uint_eq(batch_fill(&s, 1, limit), want);
        ck_assert_uint_eq(s.rows, want);
    }
    ck_assert_uint_eq(batch_fill(NULL, 0, 64), 0);
}
END_TEST

/* Whether a must not have less than it wants while b has rows. */
static bool is_before(const struct batch_sequence *a, const struct batch_sequence *b)
{
    bool a_step = a->known - a->computed == 1, b_step = b->known - b->computed == 1;
    return a_step != b_step ? a_step : a->arrival < b->arrival;
}

START_TEST(the_order_is_steps_then_arrival)
{
    uint32_t full = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct batch_sequence s[MOST];
        uint32_t count = 1 + below(MOST), limit = 1 + below(100), sum = 0, all = 0;
        for (uint32_t i = 0; i < count; i++) {
            s[i] = any(i);
            s[i].rows = below(9); /* is not read */
            all += alone(&s[i]);
        }
        uint32_t given = batch_fill(s, count, limit);
        for (uint32_t i = 0; i < count; i++) {
            sum += s[i].rows;
            ck_assert_uint_le(s[i].rows, alone(&s[i]));
            for (uint32_t j = 0; j < count; j++)
                if (i != j && is_before(&s[i], &s[j]) && s[j].rows > 0)
                    ck_assert_uint_eq(s[i].rows, alone(&s[i]));
        }
        ck_assert_uint_eq(sum, given);
        ck_assert_uint_eq(sum, smaller(all, limit)); /* nothing is left free */
        full += all > limit;
    }
    ck_assert_uint_gt(full, ROUNDS / 10);
}
END_TEST

/* Prompts catch up while responses grow: every response gets a token in every pass that has room
 * for all. */
START_TEST(all_of_them_end)
{
    for (int round = 0; round < 300; round++) {
        struct batch_sequence s[MOST];
        uint32_t end[MOST], count = 1 + below(MOST), limit = MOST + below(64), passes = 0, left = 0;
        for (uint32_t i = 0; i < count; i++) {
            s[i] = any(i);
            s[i].known = s[i].prompt;
            s[i].computed = 0;
            end[i] = s[i].prompt + below(30);
            left += end[i];
        }
        while (count > 0) {
            ck_assert_uint_le(++passes, left);
            ck_assert_uint_gt(batch_fill(s, count, limit), 0);
            for (uint32_t i = 0; i < count; i++) {
                if (s[i].known - s[i].computed == 1)
                    ck_assert_uint_eq(s[i].rows, 1);
                s[i].computed += s[i].rows;
                if (s[i].computed == s[i].known)
                    s[i].known++;
            }
            for (uint32_t i = count; i-- > 0;)
                if (s[i].known > end[i]) {
                    s[i] = s[--count];
                    end[i] = end[count];
                }
        }
    }
}
END_TEST

static void setup(void)
{
    random_seed(&rnd, 5, 0);
}

int main(void)
{
    Suite *s = suite_create("batch");
    TCase *t = tcase_create("batch");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, one_sequence_gets_all);
    tcase_add_test(t, the_order_is_steps_then_arrival);
    tcase_add_test(t, all_of_them_end);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
