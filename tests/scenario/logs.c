/* SPDX-License-Identifier: Apache-2.0 */
/* The log of an engine: its formats, and its level, which changes at run time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

#define END_MS 60000

static void control(const struct engine *e, int status, const char *level)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "log-level", level, NULL});
    CHECK(c.status == status, "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* Every line is an object with a time, also those that have no level as text. */
static void json_lines(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--log-format=json", NULL});
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "predictor")));
    engine_stop(e);
    char *log = engine_log(e), *rest = NULL;
    bool ready = false, back = false;
    for (char *line = strtok_r(log, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, JSON_ALLOW_NUL, NULL);
        CHECK(object && strlen(lookup_text(object, "time")) == 24 &&
                  *lookup_text(object, "process") && *lookup_text(object, "level"),
              "line '%.300s'", line);
        ready |= strncmp(lookup_text(object, "text"), "ready: model ", 13) == 0;
        back |= strncmp(lookup_text(object, "text"), "predictor is back", 17) == 0 &&
                strcmp(lookup_text(object, "level"), "INFO") == 0;
        json_decref(object);
    }
    CHECK(ready && back, "lines are missing");
    free(log);
}

/* The reason of a failed start is found in every format. */
static void reason_of_a_failed_start(void)
{
    static const char *const formats[] = {"text", "json", "journal"};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct command c;
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"generate", "-m", "/dev/null", "-p", "x", "--log-format",
                                          formats[i], NULL});
        CHECK(c.status == 2 && strncmp(c.err, "sluice generate: ", 17) == 0 &&
                  strstr(c.err, "/dev/null is neither a regular file nor a store") &&
                  command_lines(c.err) == 1,
              "%s: status %d: %.300s", formats[i], c.status, c.err);
        command_free(&c);
    }
}

static void restart_predictor(struct engine *e)
{
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "predictor")));
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

/* "warn" hides the expected events of the supervisor; a process that starts later has the new
 * level, too. */
static void level_changes(void)
{
    struct engine *e = engine_new();
    engine_start(e, NULL);
    restart_predictor(e);
    control(e, 0, "warn");
    restart_predictor(e);
    control(e, 0, "debug");
    restart_predictor(e);
    control(e, 2, "loud");
    engine_stop(e);
    char *log = engine_log(e);
    CHECK(count(log, "Z INFO run: predictor is back") == 2, "%.2000s", log);
    CHECK(count(log, "Z DEBUG run: predictor: incarnation 4") == 1, "%.2000s", log);
    free(log);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(json_lines),
        ROW(reason_of_a_failed_start),
        ROW(level_changes),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
