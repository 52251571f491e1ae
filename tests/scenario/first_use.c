/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a new user sees: figures, warnings, the log of a requested restart, Ctrl-C. */
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

#define END_MS 60000

static char *file_text(const char *path)
{
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cat", path, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    char *text = strdup(c.out);
    CHECK(text, "no memory");
    command_free(&c);
    return text;
}

static void expect_log(const struct engine *e, const char *wanted)
{
    char *log = file_text(e->log);
    CHECK(strstr(log, wanted), "'%s' is not in the log: %.1000s", wanted, log);
    free(log);
}

static void expect_not_in_log(const struct engine *e, const char *unwanted)
{
    char *log = file_text(e->log);
    const char *at = strstr(log, unwanted);
    CHECK(!at, "in the log: %.200s", at);
    free(log);
}

/* The first layer has no prediction from a previous one. */
static void profile_has_no_nan(void)
{
    static const char *const outputs[] = {"text", "json"};
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
        struct command c;
        char profile[PATH_MAX];
        snprintf(profile, sizeof profile, "%s/%s.profile", test_dir(), outputs[i]);
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"profile", "-m", test_model(), "--text",
                                          SLUICE_SOURCE_DIR "/launch/demo/calib.txt", "-o", profile,
                                          "--tokens", "128", "--ctx-size", "64",
                                          "--importance-tokens", "0", "--output", outputs[i],
                                          NULL});
        CHECK(c.status == 0 && c.out_bytes > 100, "status %d: %.300s", c.status, c.err);
        CHECK(!strstr(c.out, "nan") && !strstr(c.out, "null"), "%.1000s", c.out);
        command_free(&c);
    }
}

static void figures_are_one_line(void)
{
    struct command c;
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"generate", "-m", test_model(), "-p", "It was", "-n", "8", NULL});
    CHECK(c.status == 0 && command_lines(c.err) == 1 && strstr(c.err, "8 tokens at "),
          "status %d: %.600s", c.status, c.err);
    CHECK(c.err_bytes <= 140, "%zu bytes: %.300s", c.err_bytes, c.err);
    test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    command_free(&c);
}

/* No rates of 0 where no token was computed. */
static void no_token_has_no_rates(void)
{
    struct command c;
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"generate", "-m", test_model(), "-p", "It was", "-n", "0", NULL});
    CHECK(c.status == 0 && strncmp(c.err, "no token; prompt of 2 tokens; memory ", 37) == 0,
          "status %d: %.600s", c.status, c.err);
    command_free(&c);
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"generate", "-m", test_model(), "-p", "It was", "-n", "1", NULL});
    CHECK(c.status == 0 && strncmp(c.err, "1 token at ", 11) == 0, "%.300s", c.err);
    command_free(&c);
}

static unsigned occurrences(const char *text, const char *of)
{
    unsigned n = 0;
    for (; (text = strstr(text, of)); text += strlen(of))
        n++;
    return n;
}

/* Of a start that fails, with the log of the engine and without. */
static void an_error_is_printed_once(void)
{
    struct sockaddr_in taken = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof taken;
    char option[32], reason[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&taken, bytes) == 0 && listen(fd, 1) == 0 &&
              getsockname(fd, (struct sockaddr *)&taken, &bytes) == 0,
          "no port");
    snprintf(option, sizeof option, "--http=%u", ntohs(taken.sin_port));
    snprintf(reason, sizeof reason, "cannot listen on %u: Address", ntohs(taken.sin_port));
    const struct {
        const char *option, *reason;
        int status;
    } t[] = {{option, reason, 1},
             {"--budget=20MiB", "--budget 20MiB is too small for this model", 2}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        for (int verbose = 0; verbose < 2; verbose++) {
            struct command c;
            command_run(&c, NULL, END_MS,
                        (const char *const[]){"generate", "-m", test_model(), "-p", "x",
                                              t[i].option, verbose ? "-v" : NULL, NULL});
            CHECK(c.status == t[i].status && occurrences(c.err, t[i].reason) == 1,
                  "status %d: %.900s", c.status, c.err);
            CHECK(!verbose || strstr(c.err, "its log above has the reason"), "%.900s", c.err);
            command_free(&c);
        }
    close(fd);
}

static void requested_restart_is_no_crash(void)
{
    struct engine *e = engine_new();
    engine_start(e, NULL);
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "predictor")));
    json_t *doc = engine_stats(e);
    CHECK(lookup_exits(doc) == 1, "%zu exits", lookup_exits(doc));
    const json_t *record = lookup_exit(doc, 0);
    CHECK(strcmp(lookup_text(record, "cause"), "requested") == 0, "cause '%s'",
          lookup_text(record, "cause"));
    json_decref(doc);
    engine_stop(e);
    expect_log(e, ") ended: on request");
    expect_not_in_log(e, "WARN run: predictor");
}

static void too_much_is_warned_of(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=65536", "--budget=900TiB", NULL});
    engine_stop(e);
    expect_log(e, "WARN run: --ctx-size 65536 is beyond the model's context of ");
    expect_log(e, "WARN run: --budget 943718400MiB is more than this machine's memory of ");
}

/* A client's user does not see the log of the engine. */
static void too_much_is_stated_by_clients(void)
{
    static const char wanted[] = "warning: a budget of 2.0 TiB is more than this machine's memory";
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "budget", "2048GiB", NULL});
    CHECK(c.status == 0 && strstr(c.err, wanted) && strstr(c.out, "in effect"), "%.300s", c.err);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "budget", "875", NULL});
    CHECK(c.status == 2 && strstr(c.err, "budget: 875 bytes; did you mean 875MiB?"), "%.300s",
          c.err);
    command_free(&c);
    command_run(&c, "/budget 2048GiB\n", END_MS,
                (const char *const[]){"repl", "--name", e->run, NULL});
    CHECK(c.status == 0 && strstr(c.err, wanted), "%.300s", c.err);
    command_free(&c);
    engine_stop(e);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", test_model(), "--budget", "2048GiB", "-p",
                                      "It was", "-n", "1", NULL});
    CHECK(c.status == 0 && strstr(c.err, wanted), "%.300s", c.err);
    command_free(&c);
}

/* Stated before the wait for the first one's end, and how to have both. */
static void second_engine_is_told_of_name(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "--name", e->run, "-m", test_model(), NULL});
    CHECK(c.status == 1 && strstr(c.err, "is already running in ") &&
              strstr(c.err, "s for its end. --name NAME starts a second engine") &&
              strstr(c.err, "use another --name, or stop it with 'sluice ctl stop'"),
          "status %d: %.600s", c.status, c.err);
    command_free(&c);
    engine_stop(e);
}

static void no_tunings_are_stated(void)
{
    struct command c;
    setenv("XDG_CACHE_HOME", test_dir(), 1);
    command_run(&c, NULL, END_MS, (const char *const[]){"models", NULL});
    CHECK(c.status == 0 && strncmp(c.out, "no tunings; 'sluice tune -m FILE", 32) == 0, "'%.200s'",
          c.out);
    command_free(&c);
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "--output", "json", NULL});
    CHECK(c.status == 0 && strcmp(c.out, "[]\n") == 0, "'%.200s'", c.out);
    command_free(&c);
}

/* All columns are 198 wide. */
static void sim_fits_a_terminal(void)
{
    struct terminal *t = terminal_open(
        24, 80, -1,
        (const char *const[]){"sim", "--synthetic", "layers=4,experts=8,top-k=2,tokens=32",
                              "--presets", "lod,default", "--budgets", "50%", NULL});
    terminal_wait(t, "\r\npreset                 experts     hits MiB/token      used   recall",
                  END_MS);
    terminal_wait(t, "  ms/token\r\nlod  ", END_MS);
    terminal_wait(t, "All columns: --output md, csv or json", END_MS);
    CHECK(terminal_end(t, END_MS) == 0, "the exit status is not 0");
}

static void ctrl_c_stops_the_engine(void)
{
    struct terminal *t = terminal_open(
        24, 200, -1, (const char *const[]){"run", "--name", "first-use", "-m", test_model(), NULL});
    terminal_wait(t, "ready: model", END_MS);
    terminal_type(t, "\003");
    terminal_wait(t, "stopping", END_MS);
    int status = terminal_end(t, END_MS);
    CHECK(status == 0, "status %d", status);
}

/* The same while inspect reads the model: here it is replaced by a program that does not end. */
static void ctrl_c_during_the_start(void)
{
    char dir[PATH_MAX], inspect[PATH_MAX + 32], program[PATH_MAX + 32];
    struct command c;
    snprintf(dir, sizeof dir, "%s/programs", test_dir());
    snprintf(program, sizeof program, "%s/sluice-run", test_libexec());
    CHECK(mkdir(dir, 0700) == 0, "mkdir");
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cp", program, dir, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    snprintf(inspect, sizeof inspect, "%s/sluice-inspect", dir);
    FILE *f = fopen(inspect, "we");
    CHECK(f && fputs("#!/bin/sh\n: >\"$0.runs\"\nexec sleep 600\n", f) >= 0 && fclose(f) == 0 &&
              chmod(inspect, 0700) == 0,
          "cannot write %s", inspect);
    static const char script[] =
        "\"$0/sluice-run\" --name first-use -m \"$1\" & "
        "while [ ! -e \"$0/sluice-inspect.runs\" ]; do :; done; kill -INT $!; wait $!";
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/bin/bash", "-m", "-c", script, dir, test_model(), NULL});
    CHECK(c.status == 0, "status %d: %.300s", c.status, c.err);
    CHECK(strstr(c.err, "stopping during the start"), "%.300s", c.err);
    command_free(&c);
}

static void url_is_printed(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--http=0", NULL});
    json_t *status = engine_control(e, "status", NULL);
    char url[80];
    snprintf(url, sizeof url, "%s", lookup_text(status, "url"));
    json_decref(status);
    CHECK(strncmp(url, "http://127.0.0.1:", 17) == 0 && atoi(url + 17) > 0, "URL '%s'", url);
    expect_log(e, url);
    command_run(&c, NULL, END_MS, (const char *const[]){"ps", NULL});
    CHECK(c.status == 0 && command_lines(c.out) == 2 && strstr(c.out, url) && strstr(c.out, e->run),
          "status %d: %.400s%.300s", c.status, c.out, c.err);
    command_free(&c);
    command_run(&c, NULL, END_MS, (const char *const[]){"ps", "--json", NULL});
    json_t *list = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    const json_t *only = json_array_get(list, 0);
    CHECK(json_array_size(list) == 1 && strcmp(lookup_text(only, "url"), url) == 0 &&
              strcmp(lookup_text(only, "state"), "ready") == 0 &&
              strcmp(lookup_text(only, "model"), test_model()) == 0 &&
              lookup_u64(only, "budget_bytes") > 0,
          "%.400s", c.out);
    json_decref(list);
    command_free(&c);
    engine_stop(e);
}

/* A process that is gone may leave threads that end later, and they hold the lock. */
static void wait_unlocked(const struct engine *e)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/lock", e->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "no %s", path);
    uint64_t deadline = deadline_in(END_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0)
        CHECK(deadline_tick(deadline), "%s is still locked", path);
    close(fd);
}

/* Of an engine that was killed; those of a running engine and of other programs stay. */
static void dead_run_directories_are_removed(void)
{
    char other[PATH_MAX], file[PATH_MAX + 32], lock[PATH_MAX + 32];
    struct engine *running = engine_new(), *killed = engine_new(), *next = engine_new();
    engine_start(running, NULL);
    engine_start(killed, NULL);
    CHECK(kill(killed->pid, SIGKILL) == 0 && waitpid(killed->pid, NULL, 0) == killed->pid, "kill");
    killed->pid = 0;
    engine_check_gone(killed, END_MS);
    wait_unlocked(killed);
    CHECK(access(killed->dir, F_OK) == 0, "the directory is gone already");
    snprintf(other, sizeof other, "%s/other", test_dir());
    snprintf(file, sizeof file, "%s/file", other);
    snprintf(lock, sizeof lock, "%s/lock", running->dir);
    CHECK(mkdir(other, 0700) == 0 && fclose(fopen(file, "we")) == 0, "cannot make %s", file);
    engine_start(next, NULL);
    CHECK(access(killed->dir, F_OK) != 0, "%s is still there", killed->dir);
    CHECK(access(file, F_OK) == 0 && access(lock, F_OK) == 0, "%s or %s was removed", file, lock);
    engine_stop(next);
    engine_stop(running);
}

static void trace_is_not_overwritten(void)
{
    char path[PATH_MAX], option[PATH_MAX + 8];
    struct command c;
    snprintf(path, sizeof path, "%s/trace", test_dir());
    snprintf(option, sizeof option, "--trace=%s", path);
    CHECK(fclose(fopen(path, "we")) == 0, "cannot make %s", path);
    const char *argv[] = {"generate", "-m", test_model(), "-p", "It was",
                          "-n",       "4",  option,       NULL, NULL};
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == 2 && strstr(c.err, "exists already; --force overwrites it"),
          "status %d: %.300s", c.status, c.err);
    command_free(&c);
    argv[8] = "--force";
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == 0, "status %d: %.300s", c.status, c.err);
    command_free(&c);
    char *trace = file_text(path);
    CHECK(trace[0], "the trace is empty");
    free(trace);
}

/* Mistyped commands and options, in programs of each kind. */
static void nearest_name_is_suggested(void)
{
    static const struct {
        const char *argv[5], *hint;
    } t[] = {
        {{"repl", "--sytem", "x"}, "did you mean --system?"},
        {{"/bin/bash", SLUICE_SOURCE_DIR "/launch/sluice", "gnerate"}, "did you mean generate?"},
        {{"run", "--budgt", "1GiB"}, "did you mean --budget?"},
        {{"generate", "--temprature=1", "-p", "x"}, "did you mean --temperature?"},
        {{"inspect", "--tensor-list", "x"}, "unknown option --tensor-list (see"},
        {{"pack", "--verfy"}, "did you mean --verify?"},
        {{"ctl", "statsu"}, "did you mean status?"},
        {{"ctl", "--nmae", "x", "status"}, "did you mean --name?"},
        {{"sim", "--preset", "x"}, "use trace files"}, /* an abbreviation of --presets */
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct command c;
        const char *argv[6] = {0};
        memcpy(argv, t[i].argv, sizeof t[i].argv);
        command_run(&c, NULL, END_MS, argv);
        CHECK(c.status == 2 && strstr(c.err, t[i].hint) && command_lines(c.err) == 1,
              "status %d, '%.300s' without '%s'", c.status, c.err, t[i].hint);
        command_free(&c);
    }
}

/* ---- names that control a terminal ---- */

#define TITLE_SEQUENCE "\033]2;" /* sets the title of a terminal */
#define ODD_NAME       TITLE_SEQUENCE "-books-moe"
#define ODD_NAME_SHOWN "^[]2;-books-moe"

/* A copy of the demo model whose name, and whose file's name, has an escape sequence. */
static void odd_model_make(char path[PATH_MAX])
{
    static const char wanted[] = "tiny-books-moe";
    char start[4096];
    struct command c;
    snprintf(path, PATH_MAX, "%s/" ODD_NAME ".gguf", test_dir());
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cp", test_model(), path, NULL});
    CHECK(c.status == 0, "%s", c.err);
    command_free(&c);
    FILE *f = fopen(path, "r+e");
    size_t n = f ? fread(start, 1, sizeof start, f) : 0;
    const char *name = memmem(start, n, wanted, sizeof wanted - 1);
    CHECK(name, "the model has another name");
    CHECK(fseek(f, name - start, SEEK_SET) == 0 &&
              fwrite(TITLE_SEQUENCE, 1, sizeof TITLE_SEQUENCE - 1, f) == sizeof TITLE_SEQUENCE - 1,
          "cannot write %s", path);
    fclose(f);
}

static void shows(const char *const argv[], const char *keys, const char *text)
{
    struct terminal *t = terminal_open(24, 200, -1, argv);
    if (keys)
        terminal_type(t, keys);
    terminal_wait(t, text, END_MS);
    int status = terminal_end(t, END_MS);
    CHECK(status == 0, "%s: status %d", argv[0], status);
}

/* Control characters of a file do not reach the terminal, unless requested, and only the terminal
 * is guarded. */
static void names_on_a_terminal(void)
{
    char path[PATH_MAX], keys[PATH_MAX + 32];
    struct command c;
    odd_model_make(path);
    shows((const char *const[]){"inspect", path, NULL}, NULL, ODD_NAME_SHOWN);
    shows((const char *const[]){"inspect", "--raw", path, NULL}, NULL, ODD_NAME);
    command_run(&c, NULL, END_MS, (const char *const[]){"inspect", path, NULL});
    CHECK(c.status == 0 && strstr(c.out, ODD_NAME), "status %d: %.300s", c.status, c.out);
    command_free(&c);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, NULL});
    shows((const char *const[]){"ps", NULL}, NULL, ODD_NAME_SHOWN);
    shows((const char *const[]){"ps", "--raw", NULL}, NULL, ODD_NAME);
    snprintf(path, sizeof path, "%s/talk.json", test_dir());
    FILE *f = fopen(path, "we");
    CHECK(f &&
              fputs("{\"format\": \"sluice conversation 1\", \"turns\": [], "
                    "\"settings\": {\"stop\": [\"\\u001b]2;-books-moe\"]}}",
                    f) > 0 &&
              fclose(f) == 0,
          "cannot write %s", path);
    snprintf(keys, sizeof keys, "/load %s\r/show\r/bye\r", path);
    shows((const char *const[]){"repl", "--name", e->run, "-q", NULL}, keys, ODD_NAME_SHOWN);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(profile_has_no_nan),
        ROW(figures_are_one_line),
        ROW(no_token_has_no_rates),
        ROW(an_error_is_printed_once),
        ROW(requested_restart_is_no_crash),
        ROW(too_much_is_warned_of),
        ROW(too_much_is_stated_by_clients),
        ROW(second_engine_is_told_of_name),
        ROW(no_tunings_are_stated),
        ROW(sim_fits_a_terminal),
        ROW(ctrl_c_stops_the_engine),
        ROW(ctrl_c_during_the_start),
        ROW(nearest_name_is_suggested),
        ROW(url_is_printed),
        ROW(trace_is_not_overwritten),
        ROW(dead_run_directories_are_removed),
        ROW(names_on_a_terminal),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
