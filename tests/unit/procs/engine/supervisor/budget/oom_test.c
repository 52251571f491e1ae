/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which exits are the OOM killer's, its counters as the kernel prints them, and scores. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/engine/supervisor/budget/oom.h"

static void note(struct oom_watch *w, uint64_t kills, uint64_t hits, uint64_t ns)
{
    oom_watch_note(w, &(struct oom_counts){kills, hits}, ns);
}

/* Kills before the start explain nothing; each kill explains one exit. */
START_TEST(one_exit_per_kill)
{
    struct oom_watch w;
    oom_watch_start(&w, &(struct oom_counts){.kills = 7, .hits = 3});
    note(&w, 7, 3, 1);
    ck_assert(!oom_watch_explains(&w));
    note(&w, 9, 4, 2);
    ck_assert(oom_watch_explains(&w));
    ck_assert(w.at_limit);
    note(&w, 9, 4, 3);
    ck_assert(oom_watch_explains(&w));
    ck_assert(!oom_watch_explains(&w));
}
END_TEST

/* One hit of the limit may end several processes, one after the other, and is seen before the first
 * kill or with it; a kill long after it was not for this limit. */
START_TEST(kills_of_one_hit)
{
    struct oom_watch w;
    oom_watch_start(&w, &(struct oom_counts){.kills = 9, .hits = 3});
    note(&w, 10, 3, 1); /* before any hit: not for this limit */
    ck_assert(oom_watch_explains(&w));
    ck_assert(!w.at_limit);
    note(&w, 10, 4, NS_PER_S);
    note(&w, 11, 4, 2 * NS_PER_S);
    ck_assert(oom_watch_explains(&w));
    ck_assert(w.at_limit);
    note(&w, 12, 4, 3 * NS_PER_S);
    ck_assert(oom_watch_explains(&w));
    ck_assert(w.at_limit);
    note(&w, 13, 4, NS_PER_S + OOM_RECENT_NS + 1);
    ck_assert(oom_watch_explains(&w));
    ck_assert(!w.at_limit);
}
END_TEST

/* The tick may see the counter before the exit is seen; a kill of another process is forgotten. */
START_TEST(recent_kills_only)
{
    struct oom_watch w;
    oom_watch_start(&w, &(struct oom_counts){0});
    note(&w, 1, 0, NS_PER_S);
    note(&w, 1, 0, NS_PER_S + OOM_RECENT_NS);
    ck_assert(oom_watch_explains(&w));
    note(&w, 2, 0, 20 * NS_PER_S);
    note(&w, 2, 0, 20 * NS_PER_S + OOM_RECENT_NS + 1);
    ck_assert(!oom_watch_explains(&w));
}
END_TEST

static const struct {
    const char *text, *key;
    bool found;
    uint64_t count;
} files[] = {
    {"low 0\nhigh 0\nmax 14\noom 2\noom_kill 3\noom_group_kill 4\n", "oom_kill", true, 3},
    {"low 0\nhigh 0\nmax 14\noom 2\noom_kill 3\noom_group_kill 4\n", "oom", true, 2},
    {"oom_kill_disable 1\nunder_oom 0\noom_kill 5\n", "oom_kill", true, 5},
    {"oom_kill_disable 0\nunder_oom 0\n", "oom_kill", false, 0}, /* before Linux 4.13 */
    {"oom_kill x\n", "oom_kill", false, 0},
    {"oom_kill", "oom_kill", false, 0},
    {"", "oom_kill", false, 0},
};

START_TEST(counts)
{
    uint64_t count = 0;
    ck_assert_int_eq(oom_count_parse(files[_i].text, files[_i].key, &count), files[_i].found);
    ck_assert_uint_eq(count, files[_i].count);
}
END_TEST

START_TEST(scores)
{
    ck_assert_int_eq(oom_score_raised(0, 1000), 1000);
    ck_assert_int_eq(oom_score_raised(200, 1000), 1000);
    ck_assert_int_eq(oom_score_raised(200, 15), 215);
    ck_assert_int_eq(oom_score_raised(-900, 5), -895);
    ck_assert_int_eq(oom_score_raised(1000, 5), 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor_oom");
    TCase *tcase = tcase_create("oom");
    tcase_add_test(tcase, one_exit_per_kill);
    tcase_add_test(tcase, kills_of_one_hit);
    tcase_add_test(tcase, recent_kills_only);
    tcase_add_loop_test(tcase, counts, 0, (int)ARRAY_LEN(files));
    tcase_add_test(tcase, scores);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
