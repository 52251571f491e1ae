/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that tune runs: output, status, signals. They are scripts here, started by a tether that
 * only executes them. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procs/tools/tune/tune.h"

static struct tune t;
static struct error error;
static char *out;
static int status;

static void script(const char *name, const char *text)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/sluice-%s", t.programs, name);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, 0700), 0);
}

static void setup(void)
{
    memset(&t, 0, sizeof t);
    tune_stop = 0;
    out = NULL;
    snprintf(t.programs, sizeof t.programs, "/tmp/sluice-tune-run-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(t.programs));
    script("tether", "shift; exec \"$@\"");
}

static void teardown(void)
{
    static const char *const names[] = {"tether", "one"};
    char path[PATH_MAX + 64];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/sluice-%s", t.programs, names[i]);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(t.programs), 0);
    free(out);
}

static int run(const char *text)
{
    static const char *const argv[] = {"-m", "a b", "it's", NULL};
    script("one", text);
    return run_program(&t, "one", argv, &out, &status, &error);
}

START_TEST(output_and_status)
{
    ck_assert_int_eq(run("printf '%s|' \"$@\"; exit 3"), 0);
    ck_assert_int_eq(status, 3);
    ck_assert_str_eq(out, "-m|a b|it's|");
}
END_TEST

START_TEST(a_signal_is_no_status)
{
    ck_assert_int_eq(run("kill -9 $$"), -1);
    ck_assert_int_eq(error.code, ERR_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, "sluice one"));
}
END_TEST

START_TEST(a_program_that_is_not_there)
{
    static const char *const argv[] = {NULL};
    ck_assert_int_eq(run_program(&t, "none", argv, &out, &status, &error), 0);
    ck_assert_int_eq(status, 127); /* of the tether */
    free(out);
    out = NULL;
    strcat(t.programs, "/none");
    ck_assert_int_eq(run_program(&t, "one", argv, &out, &status, &error), -1);
    ck_assert_int_eq(error.code, ERR_FAILED);
    *strrchr(t.programs, '/') = 0;
}
END_TEST

/* Without a reader, a program that writes too much ends. */
START_TEST(too_much_output)
{
    ck_assert_int_eq(run("exec head -c 9000000 /dev/zero"), -1);
    ck_assert_int_eq(error.code, ERR_FAILED);
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(quiet_has_no_messages)
{
    char path[PATH_MAX + 64];
    int saved = dup(STDERR_FILENO);
    snprintf(path, sizeof path, "%s/err", t.programs);
    t.quiet = true;
    ck_assert_ptr_nonnull(freopen(path, "w", stderr));
    ck_assert_int_eq(run("echo message >&2; echo text"), 0);
    ck_assert_int_eq(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_str_eq(out, "text\n");
    close(saved);
    unlink(path);
}
END_TEST

static void on_signal(int number)
{
    tune_stop = number;
}

/* The signal may arrive while no call waits: it is repeated until the program is ended. */
START_TEST(interrupted)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    ck_assert_int_eq(run("trap 'exit 0' TERM; while :; do kill -INT $PPID; done"), -1);
    ck_assert_int_eq(error.code, ERR_CANCELLED);
    ck_assert_int_eq(run("exit 0"), -1); /* nothing is started then */
    ck_assert_int_eq(error.code, ERR_CANCELLED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tune_run");
    TCase *tests = tcase_create("run");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, output_and_status);
    tcase_add_test(tests, a_signal_is_no_status);
    tcase_add_test(tests, a_program_that_is_not_there);
    tcase_add_test(tests, too_much_output);
    tcase_add_test(tests, quiet_has_no_messages);
    tcase_add_test(tests, interrupted);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
