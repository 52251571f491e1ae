/* SPDX-License-Identifier: Apache-2.0 */
/* The access log where files are full, missing, or replaced. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procs/engine/gateway/http/http.h"

static char directory[] = "/tmp/sluice-http-log-test.XXXXXX", path[64], old[64];
static struct http http;
static struct child child;
static struct params params;
static struct process row;
static uint64_t now_ns;

/* Instead of that of the library: without a connection. */
const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType type, ...)
{
    (void)connection, (void)type;
    return NULL;
}

static void start(void)
{
    struct error error;
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/log", directory);
    snprintf(old, sizeof old, "%s/old", directory);
    snprintf(params.http_log, sizeof params.http_log, "%s", path);
    child = (struct child){.process = &row, .params = &params};
    http = (struct http){.child = &child};
    ck_assert_int_eq(http_log_open(&http, &error), 0);
}

static void end(void)
{
    close(http.log.fd);
    unlink(path);
    unlink(old);
    ck_assert_int_eq(rmdir(directory), 0);
}

/* Later than the file is looked at again. */
static void tick(void)
{
    http_log_tick(&http, now_ns += 2 * NS_PER_S);
}

static void request(const char *method, const char *where, uint64_t bytes)
{
    struct exchange x = {.magic = EXCHANGE_MAGIC, .http = &http, .status = 200};
    http_log_begin(&x, method, where);
    x.sent_bytes = bytes;
    http_log_end(&x);
}

static uint64_t lost(void)
{
    return row.counters[CTR_GATEWAY_access_lines_lost];
}

/* The requests of a file, each with a blank after it: whole lines only. */
static const char *requests(const char *file)
{
    static char text[400];
    char line[600], where[200];
    FILE *f = fopen(file, "re");
    text[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        ck_assert_msg(line[10] == 'T' && line[23] == 'Z' && line[strlen(line) - 1] == '\n' &&
                          sscanf(line, "%*s - GET %199s 200 5 %*s 0 0", where) == 1,
                      "not a line: '%s'", line);
        strcat(strcat(text, where), " ");
    }
    if (f)
        fclose(f);
    return text;
}

/* Until it is removed, the test library cannot write its reports either: no assertions
 * meanwhile. */
static void limit_file(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static off_t size(void)
{
    struct stat about;
    return stat(path, &about) == 0 ? about.st_size : -1;
}

/* A write that ends inside a line: what was written is not lost, and its rest follows, whenever
 * there is space again. */
START_TEST(a_full_disk)
{
    signal(SIGXFSZ, SIG_IGN);
    start();
    request("GET", "/a", 5);
    tick();
    off_t line = size();
    request("GET", "/b", 5);
    request("GET", "/c", 5);
    limit_file((rlim_t)line * 2 + 7);
    tick();
    off_t part = size();
    uint64_t lost_before = lost();
    request("GET", "/d", 5);
    tick(); /* no byte of it */
    limit_file(RLIM_INFINITY);
    ck_assert_int_eq(part, 2 * line + 7);
    ck_assert_uint_eq(lost_before, 0);
    ck_assert_uint_eq(lost(), 1);
    request("GET", "/e", 5);
    tick();
    ck_assert_str_eq(requests(path), "/a /b /c /e ");
    ck_assert_uint_eq(lost(), 1);
    end();
}
END_TEST

/* The old file stays open until there is a new one. */
START_TEST(a_directory_that_is_renamed)
{
    char away[64], there[72];
    start();
    request("GET", "/a", 5);
    tick();
    snprintf(away, sizeof away, "%s.1", directory);
    snprintf(there, sizeof there, "%s/log", away);
    ck_assert_int_eq(rename(directory, away), 0);
    request("GET", "/b", 5);
    tick();
    ck_assert_str_eq(requests(there), "/a /b ");
    ck_assert_uint_eq(lost(), 0);
    ck_assert_int_eq(rename(away, directory), 0);
    ck_assert_int_eq(rename(path, old), 0);
    request("GET", "/c", 5);
    tick();
    ck_assert_str_eq(requests(path), "/c ");
    ck_assert_str_eq(requests(old), "/a /b ");
    end();
}
END_TEST

/* Lines to a file that nobody can read any more are lost. */
START_TEST(a_directory_that_is_removed)
{
    start();
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(directory), 0);
    request("GET", "/a", 5);
    tick();
    ck_assert_uint_eq(lost(), 1);
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    request("GET", "/b", 5);
    tick();
    ck_assert_str_eq(requests(path), "/b ");
    end();
}
END_TEST

/* The response to HEAD has no body, whatever that of GET has. */
START_TEST(head_has_no_body)
{
    char line[300] = "";
    start();
    request("HEAD", "/a", 5);
    tick();
    FILE *f = fopen(path, "re");
    ck_assert(f && fgets(line, sizeof line, f));
    fclose(f);
    ck_assert_msg(strstr(line, " HEAD /a 200 0 ") != NULL, "%s", line);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_log");
    TCase *cases = tcase_create("http_log");
    tcase_add_test(cases, a_full_disk);
    tcase_add_test(cases, a_directory_that_is_renamed);
    tcase_add_test(cases, a_directory_that_is_removed);
    tcase_add_test(cases, head_has_no_body);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
