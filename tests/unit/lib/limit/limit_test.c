/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which fact decides what limits the speed, and the facts between two snapshots. */
#include "lib/limit/limit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

/* One fact after the other; the first that holds decides. */
START_TEST(one_thing_limits_the_speed)
{
    static const struct {
        struct limit_facts facts;
        enum limit limit;
        const char *text;
    } rows[] = {
        {{0}, LIMIT_NONE, "none: no sequence is computed"},
        {{.computing = 0.1, .stall = 0.09},
         LIMIT_NONE,
         "none: nothing is computed 90% of the time"},
        {{.computing = 0.8, .stall = 0.5, .busy = 0.91},
         LIMIT_STORAGE,
         "storage: compute waits 62% of the time, disk busy 91%; more budget helps"},
        {{.computing = 0.8, .stall = 0.5, .busy = 1, .throttled = true},
         LIMIT_STORAGE,
         "storage: compute waits 62% of the time, disk busy 100% (throttled)"},
        {{.computing = 0.8, .stall = 0.5, .busy = 1, .all_resident = true},
         LIMIT_STORAGE,
         "storage: compute waits 62% of the time, disk busy 100%"},
        /* A pass that is longer than the interval has only waited so far. */
        {{.stall = 0.9, .busy = 0.5, .running = true, .throttled = true},
         LIMIT_STORAGE,
         "storage: compute waits 100% of the time, disk busy 50% (throttled)"},
        {{.computing = 1, .stall = 0.2, .rows_per_expert = 1.25, .running = true},
         LIMIT_MEMORY,
         "memory: weights are read from RAM for 1.2 rows each"},
        {{.running = true}, LIMIT_MEMORY, "memory: weights are read from RAM for few rows each"},
        {{.computing = 1, .stall = 0.2, .rows_per_expert = 64},
         LIMIT_COMPUTE,
         "compute: an expert is computed for 64 rows at once"},
        {{.computing = 1, .rows_per_expert = 1, .gpu_busy = 0.75},
         LIMIT_COMPUTE,
         "compute: the GPU is busy 75% of the time"},
    };
    char text[128];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        enum limit limit = limit_now(&rows[i].facts);
        ck_assert_msg(limit == rows[i].limit, "row %zu: %s", i, limit_name(limit));
        ck_assert_str_eq(limit_text(&rows[i].facts, limit, text, sizeof text), rows[i].text);
        ck_assert_int_eq(strncmp(text, limit_name(limit), strlen(limit_name(limit))), 0);
        ck_assert_uint_le(strlen(text) + strlen("limit "), 80);
    }
}
END_TEST

/* A snapshot of an engine with two loaders, after `n` units of work. */
static json_t *snapshot(int n, int resident, int throttle)
{
    json_t *compute =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "prefill_ns", n * 1000, "decode_ns",
                  n * 3000, "stall_ns", n * 2000, "gpu_busy_ns", n * 500, "pass_experts", n * 10,
                  "pass_expert_rows", n * 30, "sequences_running", 2);
    return json_pack("{s:{s:i, s:i}, s:{s:[i, i]}, s:[{s:s, s:i, s:o}, {s:s, s:i, s:{s:i}}, "
                     "{s:s, s:i, s:{s:i}}, {s:s, s:i, s:{s:i}}]}",
                     "model", "layers", 2, "experts", 8, "directory", "throttle_bytes_per_s", 0,
                     throttle, "processes", "service", "compute", "number", 0, "counters", compute,
                     "service", "cache", "number", 0, "counters", "resident_entries", resident,
                     "service", "loader", "number", 0, "counters", "busy_ns", n * 100, "service",
                     "loader", "number", 1, "counters", "busy_ns", n * 4000);
}

static struct limit_mark mark_of(json_t *doc)
{
    struct limit_mark mark;
    limit_mark(doc, &mark);
    json_decref(doc);
    return mark;
}

START_TEST(facts_are_of_the_time_between)
{
    struct limit_mark before = mark_of(snapshot(1000, 15, 0)), now = mark_of(snapshot(3000, 15, 7));
    struct limit_facts f;
    limit_between(&before, &now, 0.01, &f); /* 10 ms, 2000 units of work */
    ck_assert_double_eq_tol(f.computing, 0.8, 1e-9);
    ck_assert_double_eq_tol(f.stall, 0.4, 1e-9);
    ck_assert_double_eq_tol(f.gpu_busy, 0.1, 1e-9);
    ck_assert_double_eq_tol(f.rows_per_expert, 3, 1e-9);
    ck_assert_double_eq_tol(f.busy, 0.8, 1e-9); /* the busiest device */
    ck_assert(f.running && f.throttled && !f.all_resident);
    ck_assert(!before.throttled);
    now = mark_of(snapshot(3000, 16, 0));
    limit_between(&before, &now, 0.01, &f);
    ck_assert(f.all_resident && !f.throttled);
}
END_TEST

/* Nothing before: since the start of the engine. Counters that are smaller: since their restart. */
START_TEST(counters_begin_at_zero)
{
    struct limit_mark none, now = mark_of(snapshot(1000, 0, 0)),
                            later = mark_of(snapshot(500, 0, 0));
    struct limit_facts f;
    limit_mark(NULL, &none);
    limit_between(&none, &now, 0.01, &f);
    ck_assert_double_eq_tol(f.computing, 0.4, 1e-9);
    limit_between(&now, &later, 0.01, &f);
    ck_assert_double_eq_tol(f.computing, 0.2, 1e-9);
    limit_between(&now, &later, 0, &f);
    ck_assert_double_eq(f.computing, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limit");
    TCase *cases = tcase_create("limit");
    tcase_add_test(cases, one_thing_limits_the_speed);
    tcase_add_test(cases, facts_are_of_the_time_between);
    tcase_add_test(cases, counters_begin_at_zero);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
