/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the gateway rejects, at its start and in requests: each error has its status, names
 * the cause, and states what to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"

static const char *const options[] = {"--http=0", NULL};

/* A text whose encoding needs more memory than compute has will need it again: no Retry-After is
 * sent. */
static void a_text_that_is_never_encoded(void)
{
    unsigned port;
    struct http h;
    static const size_t bytes = 900000;
    char *body = malloc(bytes + 64), *at = stpcpy(body, "{\"prompt\":\"");
    memset(at, 'a', bytes);
    strcpy(at + bytes, "\",\"max_tokens\":1}");
    struct engine *e = gateway_start(&port, options);
    http_call(&h, port, "/v1/completions", NULL, body, 400);
    CHECK(!strstr(h.raw, "Retry-After") && strstr(h.body, "\"bad_input\""), "%.300s", h.body);
    http_close(&h);
    free(body);
    free(completion_text(port, test_prompt(0), 4)); /* compute serves on */
    engine_stop(e);
}

/* Not "cannot move a descriptor": the limit has a name, and what to do about it. */
static void too_few_descriptors(void)
{
    struct rlimit own, few;
    struct command c;
    CHECK(getrlimit(RLIMIT_NOFILE, &own) == 0, "no limit");
    few = own;
    static const rlim_t limits[] = {80, 90};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        few.rlim_cur = few.rlim_max = limits[i];
        pid_t pid = fork();
        if (pid == 0) { /* its limit cannot be raised again */
            setrlimit(RLIMIT_NOFILE, &few);
            command_run(&c, NULL, END_MS,
                        (const char *const[]){"run", "-m", test_model(), "--name", "few", NULL});
            bool named = c.status != 0 && strstr(c.err, "limit of open files") &&
                         strstr(c.err, "ulimit -n") && command_lines(c.err) == 1;
            if (!named)
                fprintf(stderr, "status %d: %.300s\n", c.status, c.err);
            _exit(named ? 0 : 1);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "with %llu descriptors", (unsigned long long)limits[i]);
    }
}

/* Invalid settings are reported before any process starts. */
static void bad_options_are_rejected(void)
{
    static const char *const bad[][2] = {{"--http=0.0.0.0:0", "--http-timeout=5"},
                                         {"--http=nowhere:80", "--http-timeout=5"},
                                         {"--http=70000", "--http-timeout=5"},
                                         {"--http=0", "--http-key-file=/nonexistent"}};
    struct command c;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"run", "-m", test_model(), "--name", "rejected",
                                          bad[i][0], bad[i][1], NULL});
        CHECK(c.status == 2 && command_lines(c.err) == 1, "%s: status %d: %.300s", bad[i][0],
              c.status, c.err);
        command_free(&c);
    }
    char path[PATH_MAX], option[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/long_key", test_dir());
    snprintf(option, sizeof option, "--http-key-file=%s", path);
    FILE *f = fopen(path, "we");
    for (int i = 0; i < 512; i++)
        fputc('k', f);
    fclose(f);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "-m", test_model(), "--name", "rejected", "--http=0",
                                      option, NULL});
    CHECK(c.status == 2 && strstr(c.err, "at most 511 bytes"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
    f = fopen(path, "we");
    fputs(" \nkey\n", f);
    fclose(f);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "-m", test_model(), "--name", "rejected", "--http=0",
                                      option, NULL});
    CHECK(c.status == 2 && strstr(c.err, "first line is empty"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
}

/* ---- errors ---- */

static void check_busy(unsigned port, const char *why)
{
    struct http h;
    completion_call(&h, port, test_prompt(0), 1, "", 429);
    json_t *doc = http_json(&h);
    CHECK(strstr(h.raw, "Retry-After: 1") &&
              strcmp(lookup_text(doc, "error.type"), "rate_limit_error") == 0 &&
              strstr(lookup_text(doc, "error.message"), why),
          "%.500s", h.raw);
    json_decref(doc);
    http_close(&h);
}

/* Too many requests: 429, which clients take for a reason to wait. */
static void too_many_requests(void)
{
    static const char *const full[][2] = {{"--max-queue=1", "queue full"},
                                          {"--http-streams=2", "--http-streams"}};
    for (size_t i = 0; i < ARRAY_LEN(full); i++) {
        unsigned port;
        struct http first, second;
        struct engine *e =
            gateway_start(&port, (const char *const[]){"--http=0", "--resident-experts=25",
                                                       "--parallel=1", full[i][0], NULL});
        completion_start(&first, port, test_prompt(0), LONG);
        CHECK(http_wait(&first, "data: ", END_MS), "no event");
        completion_start(&second, port, test_prompt(0), LONG);
        engine_wait_counter(e, "compute", "sequences_queued", 1, END_MS);
        check_busy(port, full[i][1]);
        http_close(&first);
        http_close(&second);
        engine_stop(e);
    }
}

/* An error states what is wrong with this request. */
static void errors_name_the_cause(void)
{
    static const struct {
        const char *path, *headers, *body;
        int status;
        const char *text;
    } rows[] = {
        {"/v1/nothing", NULL, NULL, 404, "POST /v1/chat/completions"},
        {"/health", "Host: evil.example\r\n", NULL, 403, "no name of this machine"},
        {"/health", "Host: localhost\r\nOrigin: http://evil.example\r\n", NULL, 403,
         "another site"},
        {"/v1/completions", "X-Sluice-Class: title\r\n", "{\"prompt\": \"a\"}", 400,
         "X-Sluice-Class"},
    };
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http h;
        http_call(&h, port, rows[i].path, rows[i].headers, rows[i].body, rows[i].status);
        json_t *doc = http_json(&h);
        CHECK(strstr(lookup_text(doc, "error.message"), rows[i].text), "%.400s", h.body);
        json_decref(doc);
        http_close(&h);
    }
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(a_text_that_is_never_encoded), ROW(too_few_descriptors),
        ROW(bad_options_are_rejected),     ROW(too_many_requests),
        ROW(errors_name_the_cause),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
