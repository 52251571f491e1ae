/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: what one call writes to stderr, and the exit message of a process that ends. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "tests/unit/lib/base/base_test.h"

#define FLUSH_MS   10000
#define MANY_LINES 20000 /* more than a pipe and the queue hold */

struct ended {
    int status;
    char text[4096];
};

static char *exit_message; /* shared with the child, like the process table */

static void keep(const char *text, void *arg)
{
    snprintf(arg, 256, "%s", text);
}

/* Runs `act` in a child and returns its stderr as text. */
static struct ended run(void (*act)(void))
{
    struct ended e = {.text = ""};
    int fds[2];
    exit_message = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_int_eq(pipe(fds), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        log_init("test", LOG_LEVEL_INFO);
        log_set_exit_message_hook(keep, exit_message);
        act();
        _exit(0);
    }
    close(fds[1]);
    size_t got = 0;
    for (ssize_t n; (n = read(fds[0], e.text + got, sizeof e.text - 1 - got)) > 0;)
        got += (size_t)n;
    close(fds[0]);
    ck_assert_int_eq(waitpid(child, &e.status, 0), child);
    return e;
}

static void act_levels(void)
{
    log_debug("not %s", "printed");
    log_info("one");
    log_warn("two");
    log_error("three");
}

START_TEST(levels)
{
    struct ended e = run(act_levels);
    ck_assert_str_eq(e.text, "INFO test: one\nWARN test: two\nERROR test: three\n");
}
END_TEST

static void act_text(void)
{
    log_set_format(LOG_FORMAT_TEXT);
    log_warn("two \xc3\xa9 \xff \xed\xa0\x80");
    log_line(LOG_LEVEL_INFO, "ready \xe2\x82");
}

static void act_json(void)
{
    log_set_format(LOG_FORMAT_JSON);
    log_warn("a \"b\" \\ \n \xc3\xa9 \xff \xed\xa0\x80");
    log_line(LOG_LEVEL_ERROR, "error: x");
}

static void act_journal(void)
{
    log_set_format(LOG_FORMAT_JOURNAL);
    act_levels();
    log_line(LOG_LEVEL_ERROR, "error: \xff");
    log_fatal(2, "end");
}

/* The text with digits of time stamps as '0'. */
static const char *without_time(struct ended *e)
{
    for (char *c = strstr(e->text, "20"); c; c = strstr(c + 24, "20"))
        for (int i = 0; i < 24; i++)
            if (c[i] >= '0' && c[i] <= '9')
                c[i] = '0';
    return e->text;
}

#define REPLACED "\xef\xbf\xbd" /* U+FFFD */

START_TEST(formats)
{
    struct ended e = run(act_text);
    ck_assert_str_eq(without_time(&e), "0000-00-00T00:00:00.000Z WARN test: two \xc3\xa9 " REPLACED
                                       " " REPLACED REPLACED REPLACED "\nready " REPLACED "\n");
    e = run(act_json);
    ck_assert_str_eq(without_time(&e),
                     "{\"time\": \"0000-00-00T00:00:00.000Z\", \"level\": \"WARN\", "
                     "\"process\": \"test\", \"text\": \"a \\\"b\\\" \\\\   \xc3\xa9 " REPLACED
                     " " REPLACED REPLACED REPLACED "\"}\n"
                     "{\"time\": \"0000-00-00T00:00:00.000Z\", \"level\": \"ERROR\", "
                     "\"process\": \"test\", \"text\": \"error: x\"}\n");
    e = run(act_journal);
    ck_assert_str_eq(e.text,
                     "<6>test: one\n<4>test: two\n<3>test: three\n<3>test: error: " REPLACED "\n"
                     "<2>test: end\n");
}
END_TEST

static void act_long_json(void)
{
    char text[900];
    log_set_format(LOG_FORMAT_JSON);
    memset(text, '"', sizeof text);
    text[sizeof text - 1] = 0;
    log_info("%s", text);
    memset(text, '\xe2', sizeof text - 1);
    log_info("%s", text);
}

START_TEST(long_objects_are_whole)
{
    struct ended e = run(act_long_json);
    char *end = strchr(e.text, '\n');
    ck_assert_ptr_nonnull(end);
    ck_assert_int_lt(end - e.text, 1024);
    ck_assert_int_eq(strncmp(end - 4, "\\\"\"}", 4), 0); /* no half escape */
    ck_assert_int_eq(strncmp(e.text + strlen(e.text) - 6, REPLACED "\"}\n", 6), 0);
}
END_TEST

static void act_level_changes(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    act_levels();
    log_set_level(LOG_LEVEL_WARN);
    act_levels();
}

START_TEST(level_is_changed)
{
    struct ended e = run(act_level_changes);
    ck_assert_str_eq(e.text, "ERROR test: three\nWARN test: two\nERROR test: three\n");
}
END_TEST

static void act_control_bytes(void)
{
    log_info("a\nINFO forged: \x1b[31mb\x7f");
}

START_TEST(one_event_is_one_line)
{
    struct ended e = run(act_control_bytes);
    ck_assert_str_eq(e.text, "INFO test: a INFO forged:  [31mb \n");
}
END_TEST

static void act_long(void)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    log_info("%s", text);
    log_info("%s", "after");
}

START_TEST(long_lines_are_cut)
{
    struct ended e = run(act_long);
    char *end = strchr(e.text, '\n');
    ck_assert_ptr_nonnull(end);
    ck_assert_int_lt(end - e.text, 1024);
    ck_assert_str_eq(end + 1, "INFO test: after\n");
}
END_TEST

static void act_fatal(void)
{
    log_fatal(2, "cannot open %s", "x");
}

START_TEST(fatal)
{
    struct ended e = run(act_fatal);
    ck_assert(WIFEXITED(e.status) && WEXITSTATUS(e.status) == 2);
    ck_assert_str_eq(e.text, "FATAL test: cannot open x\n");
    ck_assert_str_eq(exit_message, "cannot open x");
}
END_TEST

static void act_assert(void)
{
    int one = 1;
    sl_assert(one == 1);
    sl_assert(one == 2);
}

START_TEST(assertions)
{
    struct ended e = run(act_assert);
    ck_assert(WIFSIGNALED(e.status) && WTERMSIG(e.status) == 6);
    ck_assert_msg(strstr(e.text, "(act_assert): assertion failed: one == 2\n") != NULL, "%s",
                  e.text);
    ck_assert_msg(strstr(exit_message, "assertion failed: one == 2") != NULL, "%s", exit_message);
}
END_TEST

START_TEST(level_names)
{
    enum log_level level;
    ck_assert(log_level_parse("warn", &level) && level == LOG_LEVEL_WARN);
    ck_assert(log_level_parse("none", &level) && level == LOG_LEVEL_NONE);
    ck_assert(!log_level_parse("loud", &level));
    atomic_flag once = ATOMIC_FLAG_INIT;
    ck_assert(log_once(&once));
    ck_assert(!log_once(&once));
}
END_TEST

/* ---- the log thread ---- */

static void act_queued(void)
{
    ck_assert_int_eq(log_start_thread(), 0);
    act_levels();
    log_line(LOG_LEVEL_INFO, "four %d", 4);
    log_flush(FLUSH_MS);
}

START_TEST(queued_lines_keep_their_order)
{
    struct ended e = run(act_queued);
    ck_assert_str_eq(e.text, "INFO test: one\nWARN test: two\nERROR test: three\nfour 4\n");
}
END_TEST

static void act_queued_fatal(void)
{
    ck_assert_int_eq(log_start_thread(), 0);
    log_info("before");
    log_fatal(3, "the end");
}

START_TEST(the_last_line_is_written)
{
    struct ended e = run(act_queued_fatal);
    ck_assert(WIFEXITED(e.status) && WEXITSTATUS(e.status) == 3);
    ck_assert_str_eq(e.text, "INFO test: before\nFATAL test: the end\n");
}
END_TEST

static void act_queued_assert(void)
{
    ck_assert_int_eq(log_start_thread(), 0);
    act_assert();
}

START_TEST(a_panic_is_written)
{
    struct ended e = run(act_queued_assert);
    ck_assert(WIFSIGNALED(e.status) && WTERMSIG(e.status) == 6);
    ck_assert_msg(strstr(e.text, "assertion failed: one == 2\n") != NULL, "%s", e.text);
}
END_TEST

/* Logs more than pipe and queue hold while nothing is read, reports that, then lets the reader
 * catch up. */
static void log_much(int done_fd)
{
    log_init("test", LOG_LEVEL_INFO);
    if (log_start_thread() != 0)
        _exit(1);
    for (int i = 0; i < MANY_LINES; i++)
        log_info("line %d", i);
    ssize_t n = write(done_fd, "x", 1);
    (void)n;
    log_flush(FLUSH_MS);
    log_info("after"); /* after the report of the dropped lines */
    log_flush(FLUSH_MS);
    _exit(log_dropped_lines() > 0 ? 0 : 2);
}

START_TEST(a_reader_that_stops_blocks_nothing)
{
    static char text[MANY_LINES * 40];
    int err[2], done[2], status;
    ck_assert_int_eq(pipe(err), 0);
    ck_assert_int_eq(pipe(done), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(err[1], STDERR_FILENO);
        close(err[0]);
        close(err[1]);
        log_much(done[1]);
    }
    close(err[1]);
    struct pollfd p = {.fd = done[0], .events = POLLIN};
    bool blocked = poll(&p, 1, FLUSH_MS) != 1;
    size_t got = 0;
    for (ssize_t n; (n = read(err[0], text + got, sizeof text - 1 - got)) > 0;)
        got += (size_t)n;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(!blocked, "logging waited for the reader");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    unsigned lines = 0, dropped = 0, more;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        lines += strncmp(line, "INFO test: line ", 16) == 0;
        if (sscanf(line, "WARN test: %u log lines dropped", &more) == 1)
            dropped += more;
    }
    ck_assert_uint_gt(dropped, 0);
    ck_assert_uint_eq(lines + dropped, MANY_LINES);
}
END_TEST

Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *t = tcase_create("log");
    tcase_add_test(t, levels);
    tcase_add_test(t, formats);
    tcase_add_test(t, long_objects_are_whole);
    tcase_add_test(t, level_is_changed);
    tcase_add_test(t, one_event_is_one_line);
    tcase_add_test(t, long_lines_are_cut);
    tcase_add_test(t, fatal);
    tcase_add_test(t, assertions);
    tcase_add_test(t, level_names);
    tcase_add_test(t, queued_lines_keep_their_order);
    tcase_add_test(t, the_last_line_is_written);
    tcase_add_test(t, a_panic_is_written);
    tcase_add_test(t, a_reader_that_stops_blocks_nothing);
    suite_add_tcase(suite, t);
    return suite;
}
