/* SPDX-License-Identifier: Apache-2.0 */
/* Tests where the messages of a prompt meet: templates of models by hand, and random prompts
 * against a list of all such places; and where passes end. */
#include <check.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/policy/reuse/reuse.h"

#define TOKENS 4000
#define ROUNDS 3000
#define LEAST  REUSE_BRANCH_LEAST

static uint32_t token[TOKENS], count;

/* Control tokens are the odd ones. */
static bool is_control(const void *arg, uint32_t id)
{
    (void)arg;
    return id % 2 == 1;
}

/* A letter is a text token, '|' a control token. */
static void put(const char *form)
{
    for (; *form; form++)
        token[count++] = *form == '|' ? 1 : 2;
}

static void put_text(uint32_t tokens)
{
    for (uint32_t i = 0; i < tokens; i++)
        token[count++] = 4;
}

static void check_turns(const uint32_t *want, uint32_t n)
{
    uint32_t at[REUSE_TURNS_MAX];
    reuse_turns(is_control, NULL, token, count, at);
    for (uint32_t i = 0; i < REUSE_TURNS_MAX; i++)
        ck_assert_uint_eq(at[i], i < n ? want[i] : 0);
}

/* ChatML: a system prompt, two turns, and the beginning of the response. */
START_TEST(messages_of_chatml)
{
    uint32_t want[5] = {0};
    count = 0;
    put("|sn");
    put_text(200);
    for (uint32_t i = 0; i < 4; i++) {
        want[i] = count;
        put("|n|rn");
        put_text(100);
    }
    want[4] = count;
    put("|n|rn");
    check_turns(want, 5);
    uint32_t at[REUSE_TURNS_MAX];
    reuse_turns(is_control, NULL, token, count, at);
    ck_assert_uint_eq(reuse_response(count, at), want[4]);
}
END_TEST

/* Harmony: a system and a developer message; channels are part of the place. */
START_TEST(messages_of_harmony)
{
    uint32_t want[4] = {0};
    count = 0;
    put("|s|");
    put_text(80);
    want[0] = count;
    put("||d|");
    put_text(1500);
    want[1] = count;
    put("||u|");
    put_text(100);
    want[2] = count;
    put("||a|f|");
    put_text(90);
    put("||u|"); /* 40 tokens before the end of the prompt: too near to the last one */
    put_text(40);
    want[3] = count;
    put("||a");
    check_turns(want, 4);
}
END_TEST

START_TEST(a_prompt_without_messages_has_no_place)
{
    count = 0;
    put("|");
    put_text(1000);
    check_turns(NULL, 0);
    count = 1;
    check_turns(NULL, 0);
    count = 0;
    check_turns(NULL, 0);
    static const uint32_t none[REUSE_TURNS_MAX];
    ck_assert_uint_eq(reuse_response(8, none), 0);
    ck_assert_uint_eq(reuse_response(9, none), 1);
}
END_TEST

/* Of a prompt that was cut, and of one that ends with a long text. */
START_TEST(the_response_begins_near_the_end)
{
    static const uint32_t turns[REUSE_TURNS_MAX] = {70, 300};
    ck_assert_uint_eq(reuse_response(332, turns), 300);
    ck_assert_uint_eq(reuse_response(333, turns), 325);
    ck_assert_uint_eq(reuse_response(301, turns), 300);
    ck_assert_uint_eq(reuse_response(300, turns), 292);
    ck_assert_uint_eq(reuse_response(80, turns), 70);
}
END_TEST

static bool is_listed(const uint32_t at[REUSE_TURNS_MAX], uint32_t place)
{
    for (uint32_t i = 0; i < REUSE_TURNS_MAX; i++)
        if (at[i] == place)
            return true;
    return false;
}

/* Every place, by its definition. */
static uint32_t all_places(uint32_t *place)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < count; i++) {
        bool alone = token[i] % 2 == 1;
        for (uint32_t j = i > 3 ? i - 3 : 0; j < i; j++)
            alone = alone && token[j] % 2 == 0;
        if (alone)
            place[n++] = i;
    }
    return n;
}

START_TEST(the_first_and_the_last_places_are_listed)
{
    static uint32_t place[TOKENS];
    struct random rnd;
    uint32_t full = 0;
    random_seed(&rnd, 5, 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t at[REUSE_TURNS_MAX], every = 2 + (uint32_t)random_below(&rnd, 300), listed = 0;
        count = (uint32_t)random_below(&rnd, TOKENS);
        for (uint32_t i = 0; i < count; i++)
            token[i] = random_below(&rnd, every) == 0 ? 1 : 2;
        uint32_t n = all_places(place);
        reuse_turns(is_control, NULL, token, count, at);
        for (uint32_t i = 0; i < REUSE_TURNS_MAX && at[i] > 0; i++) {
            bool is_place = false;
            for (uint32_t k = 0; k < n; k++)
                is_place = is_place || place[k] == at[i];
            ck_assert(is_place);
            bool last = i + 1 == REUSE_TURNS_MAX || at[i + 1] == 0;
            ck_assert(i == 0 || at[i] >= at[i - 1] + LEAST || (last && at[i] > at[i - 1]));
            listed++;
        }
        full += listed == REUSE_TURNS_MAX;
        ck_assert(n == 0 || is_listed(at, place[n - 1]));
        for (uint32_t k = 0; k < n; k++)
            if (place[k] >= LEAST) { /* the first one that is not at the very beginning */
                ck_assert_uint_eq(at[0], place[k]);
                break;
            }
    }
    ck_assert(full > ROUNDS / 20);
}
END_TEST

/* ---- checkpoints ---- */

START_TEST(a_pass_ends_at_the_next_point)
{
    struct random rnd;
    random_seed(&rnd, 1, 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t position = (uint32_t)random_below(&rnd, 300),
                 rows = 1 + (uint32_t)random_below(&rnd, 200), want = 1;
        uint32_t turns[REUSE_TURNS_MAX] = {0};
        for (uint32_t k = 0, at = 0; k < REUSE_TURNS_MAX && (uint32_t)random_below(&rnd, 2); k++)
            turns[k] = at += 1 + (uint32_t)random_below(&rnd, 100);
        struct reuse_points p = {1 + (uint32_t)random_below(&rnd, 400),
                                 (uint32_t)random_below(&rnd, 2) *
                                     (uint32_t)random_below(&rnd, 400),
                                 16 + (uint32_t)random_below(&rnd, 100), turns};
        while (want < rows && !reuse_is_point(position + want, &p))
            want++;
        ck_assert_uint_eq(reuse_pass_rows(position, rows, &p), want);
        for (want = rows; want > 0 && !reuse_is_point(want, &p);)
            want--;
        ck_assert_uint_eq(reuse_last_point(rows, &p), want);
    }
    static const uint32_t none[REUSE_TURNS_MAX], turns[REUSE_TURNS_MAX] = {20, 95};
    static const struct reuse_points p = {100, 70, 64, none}, no_branch = {100, 0, 64, none};
    static const struct reuse_points chat = {100, 0, 64, turns};
    ck_assert(reuse_is_point(92, &p) && reuse_is_point(128, &p) && !reuse_is_point(93, &p));
    ck_assert(reuse_is_point(70, &p) && !reuse_is_point(70, &no_branch));
    ck_assert(reuse_is_point(20, &chat) && reuse_is_point(95, &chat) && !reuse_is_point(92, &chat));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("turns");
    TCase *c = tcase_create("turns");
    tcase_add_test(c, messages_of_chatml);
    tcase_add_test(c, messages_of_harmony);
    tcase_add_test(c, a_prompt_without_messages_has_no_place);
    tcase_add_test(c, the_response_begins_near_the_end);
    tcase_add_test(c, a_pass_ends_at_the_next_point);
    tcase_add_test(c, the_first_and_the_last_places_are_listed);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
