/* The history of deaths: bounded, in order, and the cause of each. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/engine/supervisor/children/exits.h"

static const struct {
    struct death_facts facts;
    const char *word;
} causes[] = {
    {{.signal = 9}, "signal"},
    {{.signal = 0}, "exit"},
    {{.late = true, .signal = 9}, "heartbeat"},
    {{.late = true, .asked = true, .signal = 9}, "heartbeat"},
    {{.asked = true, .signal = 9}, "asked"},
    {{.asked = true, .too_slow = true, .signal = 9}, "asked"},
    {{.too_slow = true, .signal = 9}, "start"},
};

START_TEST(cause)
{
    ck_assert_str_eq(death_word(death_cause_of(&causes[_i].facts)), causes[_i].word);
}
END_TEST

/* After more deaths than are kept: the newest, the oldest of them first. */
START_TEST(bounded)
{
    static struct deaths deaths;
    ck_assert_uint_eq(deaths_kept(&deaths), 0);
    for (uint32_t n = 1; n <= 3 * DEATHS_KEPT + 5; n++) {
        deaths_note(&deaths, &(struct death){.uptime_ms = n, .child = n % 7}, "signal 9 (Killed)");
        uint32_t kept = n < DEATHS_KEPT ? n : DEATHS_KEPT;
        ck_assert_uint_eq(deaths.count, n);
        ck_assert_uint_eq(deaths_kept(&deaths), kept);
        for (uint32_t i = 0; i < kept; i++)
            ck_assert_uint_eq(deaths_at(&deaths, i)->uptime_ms, n - kept + 1 + i);
    }
    ck_assert_str_eq(deaths_at(&deaths, 0)->words, "signal 9 (Killed)");
}
END_TEST

/* A successor is of the newest death of its child, and of no other. */
START_TEST(restarted)
{
    static struct deaths deaths;
    deaths_restarted(&deaths, 1); /* no death, nothing to say */
    for (uint32_t n = 0; n < DEATHS_KEPT + 3; n++)
        deaths_note(&deaths, &(struct death){.uptime_ms = n, .child = n % 3}, "");
    deaths_restarted(&deaths, 1);
    for (uint32_t i = 0; i < DEATHS_KEPT; i++) {
        const struct death *d = deaths_at(&deaths, i);
        ck_assert_int_eq(d->restarted, d->uptime_ms == DEATHS_KEPT + 2);
    }
    ck_assert_uint_eq((DEATHS_KEPT + 2) % 3, 1);
    deaths_restarted(&deaths, 9);
    ck_assert(!deaths_at(&deaths, 0)->restarted);
}
END_TEST

/* Words are cut, but not inside a character: JSON takes no half ones. */
START_TEST(words_are_cut)
{
    static struct deaths deaths;
    char words[256];
    memset(words, 'x', sizeof words);
    words[sizeof words - 1] = 0;
    deaths_note(&deaths, &(struct death){0}, words);
    ck_assert_uint_eq(strlen(deaths_at(&deaths, 0)->words), DEATHS_WORDS_BYTES - 1);
    memcpy(words + DEATHS_WORDS_BYTES - 2, "\xe2\x82\xac", 3); /* a character of three bytes */
    deaths_note(&deaths, &(struct death){0}, words);
    ck_assert_uint_eq(strlen(deaths_at(&deaths, 1)->words), DEATHS_WORDS_BYTES - 2);
    words[DEATHS_WORDS_BYTES - 1] = 0;
    words[DEATHS_WORDS_BYTES - 2] = 'y';
    deaths_note(&deaths, &(struct death){0}, words);
    ck_assert_str_eq(deaths_at(&deaths, 2)->words, words);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor_deaths");
    TCase *tcase = tcase_create("deaths");
    tcase_add_loop_test(tcase, cause, 0, (int)ARRAY_LEN(causes));
    tcase_add_test(tcase, bounded);
    tcase_add_test(tcase, restarted);
    tcase_add_test(tcase, words_are_cut);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
