/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tune: its result is found by later starts; killed at several moments it ends with the same plan; bad input is
 * reported in one line, and nothing is recorded then. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/harness.h"

#define END_MS 240000
#define BUDGET "30MiB"
#define LOSS   "20%"

extern char **environ;

static char model[PATH_MAX];

static void copy_model(void)
{
    struct command c;
    path_in_dir(model, "model.gguf");
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cp", test_model(), model, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

#define TUNE                                                                                       \
    "tune", "-m", model, "--budget", BUDGET, "--max-loss", LOSS, "--tokens", "1024", "--ctx-size", \
        "128", "--minutes", "1"

static void tune(struct command *c)
{
    command_run(c, NULL, END_MS, (const char *const[]){TUNE, "--yes", "--output", "json", NULL});
    CHECK(c->status == 0, "status %d: %.2000s", c->status, c->err);
}

static size_t tunings(void)
{
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "--output", "json", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    json_t *all = json_loads(c.out, 0, NULL);
    size_t n = json_array_size(all);
    CHECK(json_is_array(all), "%.300s", c.out);
    json_decref(all);
    command_free(&c);
    return n;
}

static void generate(struct command *c, const char *more)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){"generate", "-m", model, "--budget", BUDGET, "--max-loss",
                                      LOSS, "--ctx-size", "64", "-p", "It was", "-n", "8", "--temp",
                                      "0", more, NULL});
    CHECK(c->status == 0, "status %d: %.1000s", c->status, c->err);
}

static void check_generate(const char *more, const char *wanted, const char *unwanted)
{
    struct command c;
    generate(&c, more);
    CHECK(!wanted || strstr(c.err, wanted), "'%s' is missing: %.1000s", wanted, c.err);
    CHECK(!unwanted || !strstr(c.err, unwanted), "'%s' in: %.1000s", unwanted, c.err);
    command_free(&c);
}

/* Which one is fastest depends on the machine; either is found. */
static void later_starts_find_it(void)
{
    struct command c;
    copy_model();
    check_generate(NULL, "sluice tune -m", "tuning: "); /* no terminal: lossless, and a hint */
    tune(&c);
    json_t *result = json_loads(c.out, 0, NULL);
    CHECK(strstr(c.err, "minutes (profile"), "no cost is stated: %.2000s", c.err);
    CHECK(json_number_value(json_object_get(result, "loss_high")) <= 20 &&
              json_number_value(json_object_get(result, "lossless_per_s")) > 0,
          "%.1000s", c.out);
    json_decref(result);
    command_free(&c);
    check_generate(NULL, "tuning: ", "sluice tune -m");
    check_generate("--no-tune", NULL, "tuning: ");
    check_generate("--preset=default", NULL, "tuning: ");
    check_generate("--policy=prefetch=none", NULL, "tuning: ");

    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){"--budget", BUDGET, "--max-loss", LOSS, "--ctx-size", "64", NULL});
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cat", e->log, NULL});
    CHECK(strstr(c.out, "tuning: "), "%.1000s", c.out);
    command_free(&c);

    CHECK(tunings() == 1, "%zu tunings are listed", tunings());
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "rm", model, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    CHECK(tunings() == 0, "a tuning is left");
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "rm", model, NULL});
    CHECK(c.status == 1 && command_lines(c.err) == 1, "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* ---- kills ---- */

static pid_t start_tune(const char *log)
{
    char program[PATH_MAX];
    pid_t pid;
    snprintf(program, sizeof program, "%s/sluice-tune", test_libexec());
    const char *const args[] = {TUNE, "--yes", NULL};
    char *argv[sizeof args / sizeof args[0]];
    memcpy(argv, args, sizeof args);
    argv[0] = program;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    CHECK(posix_spawn(&pid, program, &actions, NULL, argv, environ) == 0, "cannot start tune");
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static bool contains(const char *path, const char *text)
{
    char buffer[65536];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, buffer, sizeof buffer - 1) : 0;
    if (fd >= 0)
        close(fd);
    buffer[n > 0 ? n : 0] = 0;
    return strstr(buffer, text) != NULL;
}

/* Starts tune, and sends a signal when `text` is in its log; returns its status of waitpid. */
static int stop_at(const char *text, int signal_number, void (*act)(void))
{
    char log[PATH_MAX];
    int status;
    uint64_t deadline = deadline_in(END_MS);
    path_in_dir(log, "tune.log");
    unlink(log);
    pid_t pid = start_tune(log);
    while (!contains(log, text))
        if (!deadline_tick(deadline) || waitpid(pid, &status, WNOHANG) == pid)
            test_fail("'%s' did not appear", text);
    if (act)
        act();
    if (signal_number)
        kill(pid, signal_number);
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

static char *precisions(void)
{
    struct command c;
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"/bin/sh", "-c", "cat \"$XDG_CACHE_HOME\"/sluice/*/plan-*-20", NULL});
    json_t *plan = json_loads(c.out, JSON_DISABLE_EOF_CHECK, NULL);
    json_t *width = json_object_get(json_object_get(plan, "arrays"), "width");
    CHECK(json_is_array(width), "no plan: %.300s%.300s", c.out, c.err);
    char *text = json_dumps(width, JSON_COMPACT);
    json_decref(plan);
    command_free(&c);
    return text;
}

static void killed_it_ends_with_the_same_plan(void)
{
    static const struct {
        const char *text;
        bool always; /* in the short form, too */
    } moments[] = {{"measuring this machine", false},
                   {"step 1 of 4", false},
                   {"importance: ", true},
                   {"step 2 of 4", false},
                   {"uniform int2", true},
                   {"step 3 of 4", false},
                   {"step 4 of 4", true},
                   {"tg64", false}};
    struct command c;
    char other[PATH_MAX];
    copy_model();
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        if (!moments[i].always && !test_long())
            continue;
        int status = stop_at(moments[i].text, SIGKILL, NULL);
        CHECK(WIFSIGNALED(status), "at '%s' it had ended", moments[i].text);
        CHECK(tunings() == 0, "after '%s' a tuning is recorded", moments[i].text);
    }
    int status = stop_at("step 4 of 4", SIGINT, NULL);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 130, "SIGINT: status %x", status);
    tune(&c);
    command_free(&c);
    CHECK(tunings() == 1, "no tuning is recorded");
    char *killed = precisions();

    path_in_dir(other, "other-cache");
    CHECK(mkdir(other, 0700) == 0 && setenv("XDG_CACHE_HOME", other, 1) == 0, "%s", other);
    tune(&c);
    command_free(&c);
    char *whole = precisions();
    CHECK(strcmp(killed, whole) == 0, "other precisions: %.300s and %.300s", killed, whole);
    free(killed);
    free(whole);
}

/* ---- bad input ---- */

static void expect(const char *what, int status, const char *text, const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == status && strstr(c.err, text), "%s: status %d: %.1000s", what, c.status,
          c.err);
    command_free(&c);
    CHECK(tunings() == 0, "%s: a tuning is recorded", what);
}

static void append_to_model(void)
{
    int fd = open(model, O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1, "cannot change the model");
    close(fd);
}

static void bad_input(void)
{
    char text[PATH_MAX], log[PATH_MAX], cache[PATH_MAX];
    copy_model();
    path_in_dir(text, "short.txt");
    FILE *f = fopen(text, "w");
    CHECK(f && fputs("Too short a text to measure anything on. ", f) >= 0, "%s", text);
    fclose(f);
    expect("short text", 2, "less than one window",
           (const char *const[]){TUNE, "--yes", "--text", text, NULL});
    expect("few windows", 2, "too short",
           (const char *const[]){TUNE, "--yes", "--tokens", "512", NULL});
    expect("no terminal", 3, "--yes", (const char *const[]){TUNE, NULL});
    expect("directory", 2, "is a directory",
           (const char *const[]){"tune", "-m", test_dir(), "--max-loss", "1%", NULL});
    expect("loss", 2, "percentage above 0",
           (const char *const[]){"tune", "-m", model, "--max-loss", "0", NULL});
    expect("limit", 2, "--store-limit",
           (const char *const[]){TUNE, "--yes", "--store-limit", "1MiB", NULL});

    stop_at("step 2 of 4", 0, append_to_model); /* the plan is there since the case before */
    path_in_dir(log, "tune.log");
    CHECK(contains(log, "was replaced or changed"), "it did not notice the change");
    CHECK(tunings() == 0, "a tuning of a changed model is recorded");

    snprintf(cache, sizeof cache, "%s", getenv("XDG_CACHE_HOME"));
    setenv("XDG_CACHE_HOME", text, 1); /* a file: nothing can be written there, by root either */
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){TUNE, "--yes", NULL});
    setenv("XDG_CACHE_HOME", cache, 1);
    CHECK(c.status != 0 && command_lines(c.err) == 1, "cache: status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* With a terminal there is a question, and "no" is served losslessly. */
static void a_terminal_is_asked(void)
{
    copy_model();
    struct terminal *t = terminal_open(
        30, 120, -1,
        (const char *const[]){"generate", "-m", model, "--budget", BUDGET, "--max-loss", LOSS,
                              "--ctx-size", "64", "-p", "It was", "-n", "8", NULL});
    terminal_wait(t, "begin? [y/N]", END_MS);
    terminal_type(t, "n\n");
    terminal_wait(t, "--max-loss has no effect yet", END_MS);
    terminal_wait(t, "tokens at", END_MS);
    CHECK(terminal_end(t, END_MS) == 0, "generate failed");
    CHECK(tunings() == 0, "a tuning was made");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(later_starts_find_it),
                                             ROW(killed_it_ends_with_the_same_plan), ROW(bad_input),
                                             ROW(a_terminal_is_asked)};
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
