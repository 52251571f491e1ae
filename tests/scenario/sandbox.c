/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox of the processes of a running engine, as the kernel reports it, and what follows a
 * forbidden system call. What each profile permits: tests/unit/lib/sandbox. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/sandbox/sandbox.h"
#include "tests/harness/harness.h"

#define END_MS   60000
#define SECRET   "SLUICE_SCENARIO_SECRET"
#define ROWS_MAX 64

/* Value of a line of /proc/PID/status. */
static int status_of(pid_t pid, const char *key)
{
    char path[64], line[256];
    int value = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    CHECK(f, "no %s", path);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
            value = atoi(line + strlen(key) + 1);
    fclose(f);
    return value;
}

/* True if the environment contains the variable. Others than those of the table are counted. */
static bool has_variable(pid_t pid, const char *name, unsigned *others)
{
    char path[64], text[65536];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    CHECK(f, "no %s", path);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    *others = 0;
    for (const char *at = text; at < text + n; at += strlen(at) + 1) {
        found = found || strncmp(at, name, strlen(name)) == 0;
        *others += strncmp(at, "MALLOC_", 7) != 0 && !sandbox_keeps_variable(at);
    }
    return found;
}

static void check_process(const json_t *process, bool on, uint32_t available)
{
    const char *service = lookup_text(process, "service");
    pid_t pid = (pid_t)lookup_u64(process, "pid");
    bool supervisor = strcmp(service, "supervisor") == 0;
    unsigned others;
    bool filters = on && (available & SANDBOX_SECCOMP);
    int wanted = filters ? 2 : 0,
        count = filters ? 2 - supervisor : 0; /* children inherit its filter */
    CHECK(status_of(pid, "Seccomp") == wanted, "%s: Seccomp is %d, expected %d", service,
          status_of(pid, "Seccomp"), wanted);
    int found = status_of(pid, "Seccomp_filters"); /* -1: an older kernel */
    CHECK(found == count || found == -1, "%s: %d filters, expected %d", service, found, count);
    CHECK(status_of(pid, "NoNewPrivs") == on, "%s: NoNewPrivs is %d", service,
          status_of(pid, "NoNewPrivs"));
    bool secret = has_variable(pid, SECRET, &others);
    CHECK(supervisor || secret == !on, "%s: the environment %s " SECRET, service,
          secret ? "has" : "lacks");
    CHECK(supervisor || !on || others == 0, "%s: %u variables that are not in the table", service,
          others);
    char text[SANDBOX_TEXT_BYTES];
    uint32_t parts = !on ? 0 : supervisor ? available & ~(uint32_t)SANDBOX_LANDLOCK : available;
    CHECK(strcmp(lookup_text(process, "sandbox"), sandbox_text(parts, text)) == 0,
          "%s: stats: '%s', expected '%s'", service, lookup_text(process, "sandbox"), text);
}

static void check_all(struct engine *e, bool on)
{
    unsigned landlock;
    uint32_t available = sandbox_available(&landlock);
    json_t *stats = engine_stats(e), *process;
    size_t i;
    json_array_foreach(json_object_get(stats, "processes"), i, process)
        check_process(process, on, available);
    CHECK(i == 7, "%zu processes", i);
    json_decref(stats);
}

static void start(struct engine *e, const char *sandbox)
{
    char trace[PATH_MAX];
    snprintf(trace, sizeof trace, "--trace=%s/trace", test_dir());
    setenv(SECRET, "1", 1);
    engine_start(e, (const char *const[]){"--http=0", trace, sandbox, NULL});
    unsetenv(SECRET);
}

static void processes(void)
{
    if (sandbox_disabled())
        test_skip("a build with sanitizers has no sandbox");
    struct engine *e = engine_new();
    start(e, NULL); /* the default */
    check_all(e, true);
    engine_stop(e);
}

static void off(void)
{
    struct engine *e = engine_new();
    start(e, "--sandbox=off");
    check_all(e, false);
    engine_stop(e);
}

static const json_t *last_exit(const json_t *stats, const char *service)
{
    const json_t *exits = json_object_get(stats, "exits");
    for (size_t i = json_array_size(exits); i-- > 0;) {
        const json_t *record = json_array_get(exits, i);
        if (strcmp(lookup_text(record, "service"), service) == 0)
            return record;
    }
    test_fail("no exit record of %s", service);
}

/* The process ends, its exit record names the call, its successor works. */
static void forbidden_call(void)
{
    static const char *const names[] = {"cache",   "loader",   "predictor",
                                        "compute", "recorder", "gateway"};
    unsigned landlock;
    if (sandbox_disabled() || !(sandbox_available(&landlock) & SANDBOX_SECCOMP))
        test_skip("no seccomp here");
    struct engine *e = engine_new();
    start(e, "--sandbox=require");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        pid_t pid = engine_pid(e, names[i], 0, 0);
        json_decref(engine_control(
            e, "inject", json_pack("{s:s, s:i}", "point", "FORBIDDEN_CALL", "arg", (int)pid)));
        engine_pid(e, names[i], 0, pid);
        json_t *stats = engine_stats(e);
        const json_t *record = last_exit(stats, names[i]);
        CHECK(strstr(lookup_text(record, "exit_message"), "forbidden system call ptrace"),
              "%s: '%s'", names[i], lookup_text(record, "exit_message"));
        CHECK(lookup_u64(record, "signal") == 31, "%s: signal %" PRIu64, names[i],
              lookup_u64(record, "signal"));
        json_decref(stats);
    }
    struct text got;
    engine_generate(e, test_prompt(0), 8, &got);
    text_free(&got);
    engine_stop(e);
}

/* ---- commands ---- */

static void shell(struct command *c, const char *script, const char *argument)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){"/bin/sh", "-c", script, test_libexec(), argument, NULL});
}

/* Every command that reads a model has it parsed by sluice-inspect: with another program in its
 * place, its error is that of the command. */
static void commands_inspect(void)
{
    static const char *const lines[] = {
        "profile -m \"$1\" --text \"$d/text\" -o \"$d/out\"",
        "plan -m \"$1\" --text \"$d/text\" --profile \"$1\" --max-loss 1% -o \"$d/out\"",
        "eval -m \"$1\" --text \"$d/text\" --offline",
        "bench -m \"$1\" --text \"$d/text\" --variant nice=1",
        "doctor -m \"$1\"",
        "run -m \"$1\""};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct command c;
        char script[512];
        snprintf(
            script, sizeof script,
            "d=$(mktemp -d) && echo text > \"$d/text\" && cp \"$0\"/sluice-%.*s \"$0\"/sluice-run "
            "\"$d\" && "
            "printf '#!/bin/sh\\necho error: not parsed >&2; exit 2\\n' > \"$d/sluice-inspect\" && "
            "chmod 755 \"$d/sluice-inspect\"; SLUICE_RUN_DIR=$d \"$d\"/sluice-%s; s=$?; "
            "rm -rf \"$d\"; exit $s",
            (int)strcspn(lines[i], " "), lines[i], lines[i]);
        shell(&c, script, test_model());
        CHECK(strstr(c.err, "not parsed") || strstr(c.out, "not parsed"), "%s: status %d: %.200s",
              lines[i], c.status, c.err);
        command_free(&c);
    }
}

/* pack reads and writes files, so it has a sandbox of its own. */
static void pack_is_confined(void)
{
    unsigned landlock;
    struct command c;
    if (sandbox_disabled() || !(sandbox_available(&landlock) & SANDBOX_SECCOMP))
        test_skip("no seccomp here");
    shell(&c,
          "d=$(mktemp -d); \"$0\"/sluice-pack -m \"$1\" -o \"$d/store\" --rate 262144 --quiet & "
          "p=$!; "
          "s=1; while kill -0 $p 2>/dev/null; do grep -q '^Seccomp:.2' /proc/$p/status && s=0 && "
          "break; sleep 0.05; done; kill $p; wait $p; rm -rf \"$d\"; exit $s",
          test_model());
    CHECK(c.status == 0, "no filter: %.200s", c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(processes), ROW(off), ROW(forbidden_call),
                                             ROW(commands_inspect), ROW(pack_is_confined)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
