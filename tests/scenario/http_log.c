/* SPDX-License-Identifier: Apache-2.0 */
/* The access log of the gateway: a line per request, also after its file was renamed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"

static char path[PATH_MAX], option[PATH_MAX + 16];

static void set_path(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    snprintf(option, sizeof option, "--http-log=%s", path);
}

/* What a file has, once it has so many lines. */
static char *wait_lines(const char *file, size_t lines)
{
    uint64_t deadline = deadline_in(END_MS);
    for (;;) {
        char *text = calloc(1, 65536);
        FILE *f = fopen(file, "re");
        size_t n = f ? fread(text, 1, 65535, f) : 0, have = 0;
        if (f)
            fclose(f);
        for (size_t i = 0; i < n; i++)
            have += text[i] == '\n';
        if (have >= lines)
            return text;
        CHECK(deadline_tick(deadline), "%zu lines of %zu: %s", have, lines, text);
        free(text);
    }
}

/* The line has this request; *number: its BYTES, prompt tokens and tokens. */
static void check_line(const char *text, const char *request, uint64_t number[3])
{
    char client[64], method[16], what[256];
    unsigned status;
    double seconds;
    const char *at = strstr(text, request), *line = at;
    CHECK(at, "no line of '%s': %s", request, text);
    while (line > text && line[-1] != '\n')
        line--;
    CHECK(sscanf(line, "%*s %63s %15s %255s %u %" SCNu64 " %lf %" SCNu64 " %" SCNu64, client,
                 method, what, &status, &number[0], &seconds, &number[1], &number[2]) == 8 &&
              strcmp(client, "127.0.0.1") == 0 && line[10] == 'T' && line[23] == 'Z',
          "not a line: %.200s", line);
}

static void call(unsigned port, const char *where, int status)
{
    struct http h;
    http_call(&h, port, where, NULL, NULL, status);
    http_close(&h);
}

static void a_line_per_request(void)
{
    unsigned port;
    uint64_t number[3];
    struct http h;
    set_path("access");
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", option, NULL});
    call(port, "/v1/nothing?a=b", 404);
    call(port, "/a%20b%0a", 404);
    call(port, "/web/page.css", 200);
    completion_call(&h, port, test_prompt(0), 5, "", 200);
    uint64_t bytes = h.body_bytes;
    http_close(&h);
    char *body = completion_body(test_prompt(0), 5, "\"stream\":true");
    http_open(&h, port, "/v1/completions", "X-Sluice-Class: side\r\n", body);
    http_finish(&h, END_MS);
    http_close(&h);
    free(body);
    /* The start of the test may have called /health. */
    char *text = wait_lines(path, 4);
    while (!strstr(text, "/completions 200") ||
           !strstr(strstr(text, "/completions 200") + 1, "/completions 200")) {
        free(text);
        text = wait_lines(path, 4);
    }
    CHECK(strstr(text, " 5 conversation\n") && strstr(text, " 5 side\n") &&
              strstr(text, " 0 0 -\n"),
          "classes: %s", text);
    check_line(text, "GET /v1/nothing 404 ", number);
    CHECK(number[0] > 20 && number[1] == 0 && number[2] == 0, "%s", text);
    check_line(text, "GET /a?b? 404 ", number);
    check_line(text, "GET /web/page.css 200 ", number);
    CHECK(number[0] > 1000, "%s", text);
    check_line(text, "POST /v1/completions 200 ", number);
    CHECK(number[0] == bytes && number[1] > 0 && number[2] == 5, "%" PRIu64 " bytes: %s", bytes,
          text);
    check_line(strstr(text, "POST /v1/completions 200 ") + 1, "POST /v1/completions 200 ", number);
    CHECK(number[0] > 200 && number[1] > 0 && number[2] == 5, "%s",
          text); /* events may be joined */
    free(text);
    CHECK(engine_counter(e, "gateway", "access_lines_lost") == 0, "lines were lost");
    engine_stop(e);
}

/* Rotation: the old file keeps its lines, requests after that are in a new one. */
static void a_renamed_file_is_made_again(void)
{
    unsigned port;
    char old[PATH_MAX + 8];
    set_path("rotated");
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", option, NULL});
    call(port, "/before", 404);
    free(wait_lines(path, 1));
    snprintf(old, sizeof old, "%s.1", path);
    CHECK(rename(path, old) == 0, "cannot rename %s", path);
    uint64_t deadline = deadline_in(END_MS);
    while (access(path, F_OK) != 0)
        CHECK(deadline_tick(deadline), "the file is not made again");
    call(port, "/after", 404);
    char *text = wait_lines(path, 1);
    CHECK(strstr(text, "/after 404") && !strstr(text, "/before"), "%s", text);
    free(text);
    text = wait_lines(old, 1);
    CHECK(strstr(text, "/before 404") && !strstr(text, "/after"), "%s", text);
    free(text);
    CHECK(engine_restarts(e, "gateway", 0) == 0, "the gateway was restarted");
    engine_stop(e);
}

static void a_file_that_cannot_be_made(void)
{
    static const char *const bad[][2] = {
        {"--http-log=/nonexistent/log", "/nonexistent/log: No such"},
        {"--http-log=/dev/null", "not a regular file"}};
    struct command c;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"run", "-m", test_model(), "--name", "rejected",
                                          "--http=0", bad[i][0], NULL});
        CHECK(c.status == 2 && strstr(c.err, bad[i][1]), "status %d: %.300s", c.status, c.err);
        command_free(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(a_line_per_request),
        ROW(a_renamed_file_is_made_again),
        ROW(a_file_that_cannot_be_made),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
