/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tune: its result is found by later starts; killed at any moment it ends with the same
 * plan; bad input is reported in one line, and nothing is recorded then. The model has random
 * weights: its losses mean nothing. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scenario/tuned.h"

#define KILLS 50 /* of the long form */

/* Without a terminal there is a command that makes the tuning; a shell runs it as it is. */
static void run_what_is_printed(struct command *c)
{
    char script[4096], program[PATH_MAX];
    generate(c, NULL);
    const char *line = strstr(c->err, "sluice tune -m");
    CHECK(line && !strstr(c->err, "tuning: "), "%.1000s", c->err);
    snprintf(
        script, sizeof script,
        "sluice() { shift; \"$0\" \"$@\" --tokens 256 --ctx-size 32 --minutes 10 --output json; }\n"
        "%.*s\n",
        (int)strcspn(line, "\n"), line);
    command_free(c);
    snprintf(program, sizeof program, "%s/sluice-tune", test_libexec());
    command_run(c, NULL, END_MS, (const char *const[]){"/bin/sh", "-c", script, program, NULL});
    CHECK(c->status == 0, "status %d: %.2000s", c->status, c->err);
}

/* All: those that were planned, with their bounds, and why the others were not. */
static void check_systems(const json_t *result)
{
    static const char *const names[] = {
        "edgemoe", "hobbit", "fate", "mixed-two", "mixed-two-resident-first", "drop", "swapmoe"};
    const json_t *systems = json_object_get(result, "systems");
    size_t chosen = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *s = json_array_get(systems, i);
        const char *name = json_string_value(json_object_get(s, "system"));
        bool planned = json_is_true(json_object_get(s, "planned"));
        CHECK(name && strcmp(name, names[i]) == 0 && planned == (i < 6), "system %zu", i);
        CHECK(planned ? json_is_number(json_object_get(s, "loss_high"))
                      : json_is_string(json_object_get(s, "why")),
              "%s: neither a bound nor a reason", name);
        chosen += json_is_true(json_object_get(s, "chosen"));
    }
    const char *preset = json_string_value(json_object_get(result, "preset"));
    CHECK(preset && chosen == (strcmp(preset, "default") != 0), "%zu systems are chosen", chosen);
}

/* Which one is fastest depends on the machine; either is found. */
static void later_starts_find_it(void)
{
    struct command c;
    make_model();
    run_what_is_printed(&c);
    json_t *result = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(strstr(c.err, "minutes (profile"), "no cost is stated: %.2000s", c.err);
    CHECK(json_number_value(json_object_get(result, "loss_high")) <= 40 &&
              json_number_value(json_object_get(result, "lossless_per_s")) > 0,
          "%.1000s", c.out);
    check_systems(result);
    json_decref(result);
    command_free(&c);
    check_generate(NULL, "tuning: ", "sluice tune -m");
    check_generate("--no-tune", NULL, "tuning: ");
    check_generate("--preset=default", NULL, "tuning: ");
    check_generate("--policy=prefetch=none", NULL, "tuning: ");

    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", tuned_model, "--budget", BUDGET, "--max-loss", LOSS,
                                          "--ctx-size", "64", NULL});
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cat", e->log, NULL});
    CHECK(strstr(c.out, "tuning: "), "%.1000s", c.out);
    command_free(&c);

    CHECK(tunings() == 1, "%zu tunings are listed", tunings());
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "rm", tuned_model, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    CHECK(tunings() == 0, "a tuning is left");
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "rm", tuned_model, NULL});
    CHECK(c.status == 1 && command_lines(c.err) == 1, "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* ---- kills ---- */

/* What the plan has decided, without what depends on times. */
static char *decisions(void)
{
    static const char *const names[] = {"hobbit_t1",     "hobbit_t2",         "hobbit_w_lru",
                                        "hobbit_w_lfu",  "hobbit_w_lhu",      "hobbit_w_fld",
                                        "fate_boundary", "fate_prefill_int2", "fate_loss_high"};
    struct command c;
    static const char script[] = "cd \"$XDG_CACHE_HOME\"/sluice/*/ && for plan in plan-*-40-*; do "
                                 "case $plan in *.*) ;; *) cat \"$plan\" ;; esac; done";
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/sh", "-c", script, NULL});
    json_t *plan = json_loads(c.out, JSON_DISABLE_EOF_CHECK, NULL), *made = json_object();
    json_t *width = json_object_get(json_object_get(plan, "arrays"), "width");
    CHECK(json_is_array(width), "no plan: %.300s%.300s", c.out, c.err);
    json_object_set(made, "width", width);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *number = json_object_get(json_object_get(plan, "scalars"), names[i]);
        CHECK(json_is_number(number), "no %s", names[i]);
        json_object_set(made, names[i], number);
    }
    char *text = json_dumps(made, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(made);
    json_decref(plan);
    command_free(&c);
    return text;
}

static void killed_it_ends_with_the_same_plan(void)
{
    static const char *const moments[] = {"measuring this machine",
                                          "step 1 of 4",
                                          "importance: ",
                                          "step 2 of 4",
                                          "uniform int2",
                                          "sluice plan: hobbit: ",
                                          "sluice plan: fate: ",
                                          "auto: candidate",
                                          "step 3 of 4",
                                          "step 4 of 4",
                                          "tg64"};
    struct command c;
    unsigned met = 0;
    make_model();
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        if (!test_sample(EVERY_tune_moments, &met))
            continue;
        int status = stop_at(moments[i], SIGKILL, NULL);
        CHECK(WIFSIGNALED(status), "at '%s' it had ended", moments[i]);
        CHECK(tunings() == 0, "after '%s' a tuning is recorded", moments[i]);
    }
    int status = stop_at("step 4 of 4", SIGINT, NULL);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 130, "SIGINT: status %x", status);
    tune(&c);
    command_free(&c);
    CHECK(tunings() == 1, "no tuning is recorded");
    char *killed = decisions();

    forget_all("other-cache");
    stop_at("step 3 of 4", SIGKILL, NULL);
    char *whole = decisions();
    CHECK(strcmp(killed, whole) == 0, "other plans: %.300s and %.300s", killed, whole);
    free(killed);
    free(whole);
}

static size_t lines_of(const char *log)
{
    return command_lines(read_file(log));
}

/* False: it ended before its log had so many lines. */
static bool killed_at(size_t lines)
{
    char log[PATH_MAX];
    int status = 0;
    uint64_t deadline = deadline_in(END_MS);
    path_in_dir(log, "tune.log");
    unlink(log);
    pid_t pid = start_tune(log);
    while (lines_of(log) < lines) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
            return false;
        }
        CHECK(deadline_tick(deadline), "%zu lines did not appear", lines);
    }
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFSIGNALED(status);
}

/* At pseudo-random lines of its log; a tuning that is recorded is followed by one from the
 * beginning. */
static void killed_at_many_moments(void)
{
    char *first = NULL, log[PATH_MAX], name[32];
    size_t most = 0, whole = 0;
    make_model();
    path_in_dir(log, "tune.log");
    for (unsigned kills = 0, tries = 0, ends = 0; kills < KILLS || !first;) {
        /* the number of lines of progress depends on the speed: it may end before */
        bool killed = first && killed_at(1 + tries++ * 7919u % most);
        kills += killed;
        if (killed && tunings() == 0) /* else it was recorded already, and must be whole */
            continue;
        if (!first) {
            killed_at(SIZE_MAX);
            most = lines_of(log);
        }
        char *plan = decisions();
        CHECK(!first || strcmp(first, plan) == 0, "other plans: %.300s and %.300s", first, plan);
        whole++;
        free(first);
        first = plan;
        snprintf(name, sizeof name, "cache-%u", ends++);
        forget_all(name);
    }
    test_note("%zu tunings ended", whole);
    free(first);
}

/* ---- bad input ---- */

static void expect(const char *what, int status, const char *text, const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    CHECK(strcmp(what, "budget") != 0 || command_lines(c.err) == 1, "not at once: %.1000s", c.err);
    CHECK(c.status == status && strstr(c.err, text), "%s: status %d: %.1000s", what, c.status,
          c.err);
    command_free(&c);
    CHECK(tunings() == 0, "%s: a tuning is recorded", what);
}

static void append_to_model(void)
{
    int fd = open(tuned_model, O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1, "cannot change the model");
    close(fd);
}

static void bad_input(void)
{
    char text[PATH_MAX], log[PATH_MAX], cache[PATH_MAX];
    make_model();
    path_in_dir(text, "short.txt");
    FILE *f = fopen(text, "w");
    CHECK(f && fputs("Too short.", f) >= 0, "%s", text);
    fclose(f);
    expect("short text", 2, "less than one window",
           (const char *const[]){TUNE, "--yes", "--text", text, NULL});
    expect("few windows", 2, "too short",
           (const char *const[]){TUNE, "--yes", "--ctx-size", "64", NULL});
    expect("no terminal", 3, "--yes", (const char *const[]){TUNE, NULL});
    expect("budget", 2, "is too small for a tuning of this model: minimum",
           (const char *const[]){"tune", "-m", tuned_model, "--max-loss", "1%", "--budget", "4MiB",
                                 "--yes", NULL});
    expect("directory", 2, "is a directory",
           (const char *const[]){"tune", "-m", test_dir(), "--max-loss", "1%", NULL});
    expect("loss", 2, "percentage above 0",
           (const char *const[]){"tune", "-m", tuned_model, "--max-loss", "0", NULL});
    expect("limit", 2, "--store-limit",
           (const char *const[]){TUNE, "--yes", "--store-limit", "300KiB", NULL});

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

/* The store goes to a device that has space for it, but not for what pack leaves free: known before
 * the profile. The directory and the mount namespace end with this process. */
static void storage_full(void)
{
    char dir[PATH_MAX];
    make_model();
    path_in_dir(dir, "small");
    CHECK(mkdir(dir, 0700) == 0, "mkdir: %s", strerror(errno));
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("small", dir, "tmpfs", 0, "size=8m") != 0)
        test_skip("a mount namespace needs root: %s", strerror(errno));
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){TUNE, "--yes", "--store-dir", dir, NULL});
    CHECK(c.status == 1 && strstr(c.err, "no space for the store") && !strstr(c.err, "step 1 of 4"),
          "status %d: %.1000s", c.status, c.err);
    command_free(&c);
    CHECK(tunings() == 0, "a tuning is recorded");
    CHECK(umount2(dir, MNT_DETACH) == 0, "umount: %s", strerror(errno));
    CHECK(listed(true) == 0, "a store is listed");
}

/* With a terminal there is a question, and "no" is served losslessly. */
static void a_terminal_is_asked(void)
{
    make_model();
    struct terminal *t = terminal_open(
        30, 120, -1,
        (const char *const[]){"generate", "-m", tuned_model, "--budget", BUDGET, "--max-loss", LOSS,
                              "--ctx-size", "64", "-p", "It was", "-n", "8", NULL});
    terminal_wait(t, "begin? [y/N]", END_MS);
    terminal_type(t, "n\n");
    terminal_wait(t, "--max-loss has no effect yet", END_MS);
    terminal_wait(t, "tokens at", END_MS);
    CHECK(terminal_end(t, END_MS) == 0, "generate failed");
    CHECK(tunings() == 0, "a tuning was made");
}

/* The smallest budget of an engine with this model and the defaults of everything else. */
static void least_of(const char *model, char budget[32])
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "-m", model, "--cgroup=off", "--no-tune",
                                      "--print-memory", NULL});
    json_t *memory = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    snprintf(budget, 32, "%lld",
             (long long)json_integer_value(json_object_get(memory, "min_budget")));
    json_decref(memory);
    command_free(&c);
}

/* The minimum that is stated is that of a later start with a store, and with the context that it
 * has by default; not that of the model file, nor of the measured run alone. */
static void smallest_budget(void)
{
    struct command c;
    char budget[32];
    make_model();
    least_of(test_model(),
             budget); /* whose keys and values take more than the difference of a store */
    expect("budget", 2, "is too small for a tuning of this model: minimum",
           (const char *const[]){"tune", "-m", test_model(), "--max-loss", "1%", AMOUNT, "--budget",
                                 budget, "--yes", NULL});
    least_of(tuned_model, budget);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"tune", "-m", tuned_model, "--max-loss", LOSS, AMOUNT,
                                      "--yes", "--budget", budget, NULL});
    const char *stated = strstr(c.err, "minimum ");
    CHECK(c.status == 2 && stated, "status %d: %.900s", c.status, c.err);
    snprintf(budget, sizeof budget, "%.2f", strtod(stated + strlen("minimum "), NULL));
    strcat(budget, "MiB");
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"tune", "-m", tuned_model, "--max-loss", LOSS, AMOUNT,
                                      "--yes", "--budget", budget, NULL});
    CHECK(c.status == 0 && strstr(c.err, "edgemoe: ") && !strstr(c.err, "needs a budget"),
          "--budget %s: status %d: %.2000s", budget, c.status, c.err);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", tuned_model, "--max-loss", LOSS, "--budget",
                                      budget, "-p", "It was", "-n", "8", NULL});
    CHECK(c.status == 0 && strstr(c.err, "tuning: "), "a later start: status %d: %.900s", c.status,
          c.err);
    command_free(&c);
}

/* A quarter of the experts is less than a token accesses in one layer. */
static void few_layers(void)
{
    struct command c;
    path_in_dir(tuned_model, "few.gguf");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", tuned_model, "tiny", "layers=1",
                                      "experts=4", "--type", "Q8_0", "--seed", "2", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    tune_for(&c, "100%");
    command_free(&c);
    CHECK(tunings() == 1, "no tuning is recorded");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(later_starts_find_it),
                                             ROW(killed_it_ends_with_the_same_plan),
                                             ROW(killed_at_many_moments),
                                             ROW(smallest_budget),
                                             ROW(few_layers),
                                             ROW(bad_input),
                                             ROW(storage_full),
                                             ROW(a_terminal_is_asked)};
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
