/* SPDX-License-Identifier: Apache-2.0 */
/* The guarantees of the supervisor's state table. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/engine/supervisor/children/fsm.h"
#include "shm/kv/kv.h"

static const struct {
    enum proc_state state;
    enum fsm_event event;
    enum proc_state next;
    enum fsm_action action;
} promises[] = {
    {PROC_DOWN, EVENT_GO, PROC_STARTING, ACTION_SPAWN},
    {PROC_STARTING, EVENT_READY, PROC_READY, ACTION_ANNOUNCE},
    {PROC_STARTING, EVENT_SLOW_START, PROC_KILLED, ACTION_KILL},
    {PROC_STARTING, EVENT_EXITED_EARLY, PROC_BACKOFF, ACTION_CLEAN_UP_WAIT},
    {PROC_STARTING, EVENT_EXITED_OFTEN, PROC_FAILED, ACTION_GIVE_UP},
    {PROC_STARTING, EVENT_EXITED_FATAL, PROC_FAILED, ACTION_GIVE_UP},
    {PROC_STARTING, EVENT_STOP, PROC_KILLED, ACTION_KILL},
    {PROC_READY, EVENT_LATE, PROC_KILLED, ACTION_KILL},
    {PROC_READY, EVENT_RESTART, PROC_KILLED, ACTION_KILL},
    {PROC_READY, EVENT_STOP, PROC_STOPPING, ACTION_REQUEST_STOP},
    {PROC_READY, EVENT_EXITED, PROC_DOWN, ACTION_CLEAN_UP},
    {PROC_READY, EVENT_EXITED_EARLY, PROC_BACKOFF, ACTION_CLEAN_UP_WAIT},
    {PROC_STOPPING, EVENT_SLOW_STOP, PROC_KILLED, ACTION_KILL},
    {PROC_STOPPING, EVENT_EXITED, PROC_DOWN, ACTION_CLEAN_UP},
    {PROC_BACKOFF, EVENT_BACKOFF_OVER, PROC_DOWN, ACTION_NONE},
    {PROC_BACKOFF, EVENT_STOP, PROC_DOWN, ACTION_NONE},
    {PROC_KILLED, EVENT_EXITED, PROC_DOWN, ACTION_CLEAN_UP},
    {PROC_KILLED, EVENT_STOP, PROC_KILLED, ACTION_NONE},
    {PROC_FAILED, EVENT_RESTART, PROC_DOWN, ACTION_NONE},
    {PROC_FAILED, EVENT_STOP, PROC_FAILED, ACTION_NONE},
};

START_TEST(promise)
{
    struct fsm_step step = fsm_step(promises[_i].state, promises[_i].event);
    ck_assert_int_eq(step.next, promises[_i].next);
    ck_assert_int_eq(step.action, promises[_i].action);
}
END_TEST

static bool has_process(enum proc_state state)
{
    return state == PROC_STARTING || state == PROC_READY || state == PROC_STOPPING ||
           state == PROC_KILLED;
}

static bool is_exit(enum fsm_event event)
{
    return event == EVENT_EXITED || event == EVENT_EXITED_EARLY || event == EVENT_EXITED_OFTEN ||
           event == EVENT_EXITED_FATAL;
}

/* For every cell: a process exists in exactly the states that have one, its exit is recorded
 * exactly when it was reaped, it is killed only when it exists; and STOP and RESTART, which users
 * send at any time, are always valid. */
START_TEST(every_cell)
{
    for (int state = 0; state < PROC_STATES; state++) {
        for (int event = 0; event < EVENT__COUNT; event++) {
            struct fsm_step step = fsm_step((enum proc_state)state, (enum fsm_event)event);
            bool broken = step.action == ACTION_BROKEN;
            if (broken) {
                ck_assert_int_eq(step.next, state);
                ck_assert(event != EVENT_STOP && event != EVENT_RESTART);
                continue;
            }
            bool before = has_process((enum proc_state)state);
            bool after = has_process((enum proc_state)step.next);
            bool cleaned_up = step.action == ACTION_CLEAN_UP ||
                              step.action == ACTION_CLEAN_UP_WAIT || step.action == ACTION_GIVE_UP;
            ck_assert_int_eq(cleaned_up, is_exit((enum fsm_event)event));
            ck_assert_int_eq(before && !after, cleaned_up);
            ck_assert_int_eq(!before && after, step.action == ACTION_SPAWN);
            if (step.action == ACTION_KILL)
                ck_assert(before && step.next == PROC_KILLED);
        }
    }
}
END_TEST

/* A killed process has no successor before it was reaped. */
START_TEST(killed_waits_for_reaping)
{
    for (int event = 0; event < EVENT__COUNT; event++) {
        struct fsm_step step = fsm_step(PROC_KILLED, (enum fsm_event)event);
        if (step.action != ACTION_BROKEN && step.next != PROC_KILLED)
            ck_assert(is_exit((enum fsm_event)event));
    }
}
END_TEST

START_TEST(backoff_doubles_to_ten_seconds)
{
    static const uint64_t expected_ms[] = {50, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    struct exit_tally tally = {0};
    for (size_t i = 0; i < ARRAY_LEN(expected_ms); i++) {
        tally_note(&tally, (i + 1) * 100 * NS_PER_S);
        ck_assert_uint_eq(tally_backoff_ns(&tally), expected_ms[i] * NS_PER_MS);
    }
    tally_clear(&tally);
    tally_note(&tally, 5000 * NS_PER_S);
    ck_assert_uint_eq(tally_backoff_ns(&tally), 50 * NS_PER_MS);
}
END_TEST

START_TEST(five_early_exits_in_a_minute)
{
    struct exit_tally tally = {0};
    for (int i = 0; i < 4; i++)
        ck_assert(!tally_note(&tally, (uint64_t)(100 + i) * NS_PER_S));
    ck_assert(tally_note(&tally, 104 * NS_PER_S));

    tally_clear(&tally);
    for (int i = 0; i < 20; i++) /* one per 16 s: never five in 60 s */
        ck_assert(!tally_note(&tally, (uint64_t)(200 + 16 * i) * NS_PER_S));
}
END_TEST

/* One crash more than one request may cause: then the process is at fault. Progress ends it. */
START_TEST(crashes_in_a_row)
{
    struct exit_tally tally = {0};
    for (int i = 0; i < SEQUENCE_CRASHES_MAX; i++) {
        tally_note(&tally, (uint64_t)(100 + i) * NS_PER_S);
        ck_assert(!tally_loops(&tally));
    }
    tally_note(&tally, 110 * NS_PER_S);
    ck_assert(tally_loops(&tally));
    tally_clear(&tally);
    ck_assert(!tally_loops(&tally));
}
END_TEST

/* An exit that is no crash waits for the shortest time. */
START_TEST(backoff_without_a_crash)
{
    struct exit_tally tally = {0};
    ck_assert_uint_eq(tally_backoff_ns(&tally), 50 * NS_PER_MS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor_machine");
    TCase *tcase = tcase_create("machine");
    tcase_add_loop_test(tcase, promise, 0, (int)ARRAY_LEN(promises));
    tcase_add_test(tcase, every_cell);
    tcase_add_test(tcase, killed_waits_for_reaping);
    tcase_add_test(tcase, backoff_doubles_to_ten_seconds);
    tcase_add_test(tcase, five_early_exits_in_a_minute);
    tcase_add_test(tcase, crashes_in_a_row);
    tcase_add_test(tcase, backoff_without_a_crash);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
