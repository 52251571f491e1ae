/* SPDX-License-Identifier: Apache-2.0 */
/* The history of process exits: bounded, in order, with the cause of each. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/engine/supervisor/children/exits.h"

/* A SIGKILL from outside is no crash; ours and the OOM killer's are. */
static const struct {
    struct exit_facts facts;
    const char *name;
    bool crash;
} causes[] = {
    {{.signal = 9}, "signal", false},
    {{.signal = 11}, "signal", true},
    {{.signal = 15}, "signal", true},
    {{.signal = 0}, "exit", true},
    {{.late = true, .signal = 9}, "heartbeat", true},
    {{.late = true, .requested = true, .signal = 9}, "heartbeat", true},
    {{.requested = true, .signal = 9}, "requested", false},
    {{.requested = true, .signal = 11}, "requested", false},
    {{.requested = true, .too_slow = true, .signal = 9}, "requested", false},
    {{.too_slow = true, .signal = 9}, "start", true},
    {{.oom = true, .signal = 9}, "oom", true},
    {{.oom = true, .requested = true, .signal = 9}, "oom", true},
};

START_TEST(cause)
{
    ck_assert_str_eq(exit_cause_name(exit_cause_of(&causes[_i].facts)), causes[_i].name);
    ck_assert_int_eq(exit_is_crash(&causes[_i].facts), causes[_i].crash);
}
END_TEST

/* After more exits than are stored: the newest ones, oldest first. */
START_TEST(bounded)
{
    static struct exits exits;
    ck_assert_uint_eq(exits_retained(&exits), 0);
    for (uint32_t n = 1; n <= 3 * EXITS_MAX + 5; n++) {
        exits_record(&exits, &(struct exit_record){.uptime_ms = n, .child = n % 7},
                     "signal 9 (Killed)");
        uint32_t kept = n < EXITS_MAX ? n : EXITS_MAX;
        ck_assert_uint_eq(exits.count, n);
        ck_assert_uint_eq(exits_retained(&exits), kept);
        for (uint32_t i = 0; i < kept; i++)
            ck_assert_uint_eq(exits_at(&exits, i)->uptime_ms, n - kept + 1 + i);
    }
    ck_assert_str_eq(exits_at(&exits, 0)->exit_message, "signal 9 (Killed)");
}
END_TEST

/* A restart marks the newest exit of its child, and no other. */
START_TEST(restarted)
{
    static struct exits exits;
    exits_mark_restarted(&exits, 1); /* no exit, nothing to mark */
    for (uint32_t n = 0; n < EXITS_MAX + 3; n++)
        exits_record(&exits, &(struct exit_record){.uptime_ms = n, .child = n % 3}, "");
    exits_mark_restarted(&exits, 1);
    for (uint32_t i = 0; i < EXITS_MAX; i++) {
        const struct exit_record *d = exits_at(&exits, i);
        ck_assert_int_eq(d->restarted, d->uptime_ms == EXITS_MAX + 2);
    }
    ck_assert_uint_eq((EXITS_MAX + 2) % 3, 1);
    exits_mark_restarted(&exits, 9);
    ck_assert(!exits_at(&exits, 0)->restarted);
}
END_TEST

/* Messages are truncated, but not inside a character, which would be invalid JSON. */
START_TEST(long_messages_are_cut)
{
    static struct exits exits;
    char exit_message[256];
    memset(exit_message, 'x', sizeof exit_message);
    exit_message[sizeof exit_message - 1] = 0;
    exits_record(&exits, &(struct exit_record){0}, exit_message);
    ck_assert_uint_eq(strlen(exits_at(&exits, 0)->exit_message), EXIT_MESSAGE_BYTES - 1);
    memcpy(exit_message + EXIT_MESSAGE_BYTES - 2, "\xe2\x82\xac",
           3); /* a character of three bytes */
    exits_record(&exits, &(struct exit_record){0}, exit_message);
    ck_assert_uint_eq(strlen(exits_at(&exits, 1)->exit_message), EXIT_MESSAGE_BYTES - 2);
    exit_message[EXIT_MESSAGE_BYTES - 1] = 0;
    exit_message[EXIT_MESSAGE_BYTES - 2] = 'y';
    exits_record(&exits, &(struct exit_record){0}, exit_message);
    ck_assert_str_eq(exits_at(&exits, 2)->exit_message, exit_message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor_deaths");
    TCase *tcase = tcase_create("exits");
    tcase_add_loop_test(tcase, cause, 0, (int)ARRAY_LEN(causes));
    tcase_add_test(tcase, bounded);
    tcase_add_test(tcase, restarted);
    tcase_add_test(tcase, long_messages_are_cut);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
