/* SPDX-License-Identifier: Apache-2.0 */
/* Invalid arguments, plans and configurations: one error line, the documented exit status, nothing
 * left behind. bad_files.c has the model files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define END_MS 30000

/* ---- plans ---- */

/* `sluice generate` and `sluice run` with an option and its value: status 2 and one line with
 * `reason` in it. */
static void option_is_rejected(const char *option, const char *value, const char *reason)
{
    struct command c;
    for (int run = 0; run < 2; run++) {
        command_run(&c, NULL, END_MS,
                    run ? (const char *const[]){"run", "--name=bad", "--log-level=error", "-m",
                                                test_model(), option, value, NULL}
                        : (const char *const[]){"generate", "-m", test_model(), option, value, "-p",
                                                "x", "-n", "4", NULL});
        CHECK(c.status == 2, "%s %s: status %d: %.300s", option, value, c.status, c.err);
        CHECK(command_lines(c.err) == 1 && strstr(c.err, reason), "%s %s: '%.400s' without '%s'",
              option, value, c.err, reason);
        CHECK(c.out_bytes == 0, "unexpected output on stdout: %.100s", c.out);
        test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
        command_free(&c);
    }
}

/* Overwrites the start of the string value of a key. */
static void overwrite_after(const char *path, const char *key, const char *with)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "cannot open %s", path);
    char *text = calloc(1, (size_t)st.st_size + 1);
    CHECK(text && read(fd, text, (size_t)st.st_size) == st.st_size, "cannot read %s", path);
    const char *at = strstr(text, key);
    CHECK(at && (at = strchr(at + strlen(key), '"')), "no %s in %s", key, path);
    at++;
    CHECK(pwrite(fd, with, strlen(with), at - text) == (ssize_t)strlen(with), "cannot write");
    free(text);
    close(fd);
}

static void plan_of_another_model(void)
{
    char path[PATH_MAX];
    plan_make(path, "other.plan", 0);
    overwrite_after(path, "\"model_hash\"", "0123456789abcdef");
    option_is_rejected("--plan", path, "other.plan");
}

static void plan_damaged(void)
{
    char path[PATH_MAX], tables[PATH_MAX], absent[PATH_MAX];
    plan_make(path, "bad.plan", 0);
    plan_tables(path, tables);
    CHECK(truncate(tables, 1000) == 0, "truncate: %s", strerror(errno));
    option_is_rejected("--plan", path, "bad.plan");
    CHECK(unlink(tables) == 0, "unlink: %s", strerror(errno));
    option_is_rejected("--plan", path, "bad.plan");
    CHECK(truncate(path, 1000) == 0, "truncate: %s", strerror(errno));
    option_is_rejected("--plan", path, "bad.plan");
    option_is_rejected("--plan", test_model(), "gguf");
    path_in_dir(absent, "absent.plan");
    option_is_rejected("--plan", absent, "absent.plan");
}

/* Presets without the plan or precisions that they need, and too small a budget. */
static void impossible_presets(void)
{
    option_is_rejected("--preset", "edgemoe", "needs a plan");
    option_is_rejected("--preset", "iq4", "int4");
    option_is_rejected("--budget", "1MiB", "budget");
}

/* The last line, without its line break. */
static const char *last_line(char *text)
{
    size_t n = strlen(text);
    if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = 0;
    const char *before = strrchr(text, '\n');
    return before ? before + 1 : text;
}

/* Nothing is measured there that a text could be chosen for. */
static void plan_without_losses(void)
{
    static const char *const presets[][3] = {{"auto", NULL}, {"edgemoe", "--shares", "int4=1"}};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        struct command c;
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"plan", "-m", "none", "-o", "none", "--domain", "prose",
                                          "--preset", presets[i][0], presets[i][1], presets[i][2],
                                          NULL});
        CHECK(c.status == 2 && strstr(c.err, "--domain") && strstr(c.err, "no loss") &&
                  command_lines(c.err) == 1,
              "%s: status %d: %.300s", presets[i][0], c.status, c.err);
        command_free(&c);
    }
}

/* sluice plan reports in one line what cannot be planned. */
static void plan_impossible(void)
{
    static const struct {
        const char *loss, *capacity, *amount, *preset, *reason;
    } cases[] = {
        {"0%", "--resident-experts", "50%", "hobbit", "--max-loss"},
        {"-1%", "--resident-experts", "50%", "hobbit", "--max-loss"},
        {"101%", "--resident-experts", "50%", "hobbit", "--max-loss"},
        {"much", "--resident-experts", "50%", "hobbit", "--max-loss"},
        {"1%", "--resident-experts", "50%", "fate", "no recall"},
        {"1%", "--resident-experts", "50%", "edgemoe", "no importance"},
        {"1%", "--dense", "int2", "edgemoe", "--dense: 'int2' is not one of native|int8|int4|auto"},
        {"1%", "--budget", "1MiB", "swapmoe", "too small"},
        {"1%", "--budget", "none", "swapmoe", "--budget"},
        {"1%", "--resident-experts", "1%", "swapmoe", "expert"},
    };
    char profile[PATH_MAX], out[PATH_MAX], text[PATH_MAX];
    plan_make(profile, "a.profile", 0);
    path_in_dir(out, "out.plan");
    snprintf(text, sizeof text, "%s/launch/demo/calib.txt", SLUICE_SOURCE_DIR);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct command c;
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"plan",
                                          "-m",
                                          test_model(),
                                          "--profile",
                                          profile,
                                          "--text",
                                          text,
                                          "--tokens",
                                          "512",
                                          "--ctx-size",
                                          "128",
                                          "--configurations",
                                          "8",
                                          "--generations",
                                          "10",
                                          "--max-loss",
                                          cases[i].loss,
                                          cases[i].capacity,
                                          cases[i].amount,
                                          "--preset",
                                          cases[i].preset,
                                          "-o",
                                          out,
                                          NULL});
        CHECK(c.status == 2, "%s, %s %s: status %d: %.300s", cases[i].loss, cases[i].capacity,
              cases[i].amount, c.status, c.err);
        /* progress lines can precede the error */
        const char *line = last_line(c.err);
        CHECK(strstr(line, cases[i].reason), "'%.300s' without '%s'", line, cases[i].reason);
        test_note("%s", line);
        command_free(&c);
    }
}

/* A second engine of the same name is rejected after a wait, with the pid of the first, which
 * continues. */
static void second_run(void)
{
    struct engine *e = engine_new();
    struct command c;
    char pid[32];
    engine_start(e, NULL);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "--name", e->run, "--log-level=error", "-m",
                                      test_model(), NULL});
    CHECK(c.status == 1, "status %d: %.300s", c.status, c.err);
    CHECK(command_lines(c.err) == 1, "%zu lines: %.300s", command_lines(c.err), c.err);
    snprintf(pid, sizeof pid, "%d", (int)e->pid);
    CHECK(strstr(c.err, pid), "the holder %s is not named: %.300s", pid, c.err);
    command_free(&c);
    struct text got;
    engine_generate(e, test_prompt(0), 16, &got);
    text_free(&got);
    engine_stop(e);
}

/* The minimum budget in an error line, in bytes. */
static uint64_t number_that_would_do(const char *line)
{
    for (const char *c = line; *c; c++) {
        char word[40] = "";
        uint64_t bytes;
        if (*c < '0' || *c > '9' || (c > line && strchr("0123456789.", c[-1])))
            continue;
        size_t n = strspn(c, "0123456789.");
        size_t gap = c[n] == ' ';
        size_t unit = strspn(c + n + gap, "KMGiB");
        if (n + unit >= sizeof word)
            continue;
        snprintf(word, sizeof word, "%.*s%.*s", (int)n, c, (int)unit, c + n + gap);
        /* Skips the requested budget of 1 MiB, which is in the line too. */
        if (bytes_parse(word, &bytes) && bytes > 2 * MIB)
            return bytes;
    }
    return 0;
}

static void too_small_budget_is_rejected(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "--name=low", "--log-level=error", "--budget=1MiB",
                                      "-m", test_model(), NULL});
    CHECK(c.status == 2, "status %d: %.300s", c.status, c.err);
    CHECK(command_lines(c.err) == 1, "%zu lines: %.300s", command_lines(c.err), c.err);
    uint64_t min_budget = number_that_would_do(c.err);
    test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    CHECK(min_budget > 0, "no minimum budget in: %.300s", c.err);
    command_free(&c);
    /* The engine starts with that minimum. */
    struct engine *e = engine_new();
    char option[64];
    snprintf(option, sizeof option, "--budget=%" PRIu64, min_budget);
    engine_start(e, (const char *const[]){option, NULL});
    baseline_compare(e, 0, "the smallest budget");
    /* A running engine rejects 1 MiB too and keeps its budget. */
    struct error error;
    json_t *reply = NULL;
    CHECK(control_call(e->control, "budget", json_pack("{s:i}", "bytes", 1 << 20), &reply,
                       &error) != 0,
          "1 MiB was accepted");
    CHECK(error.code == ERR_BUDGET_TOO_SMALL && number_that_would_do(error.text) > 0, "%s",
          error.text);
    engine_stop(e);
}

/* /dev/shm too small for the segments: rejected with one line, in a private mount namespace. */
static void shm_too_small(void)
{
    struct command c;
    char script[PATH_MAX + 400];
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/usr/bin/unshare", "-m", "mount", "-t", "tmpfs", "-o",
                                      "size=1m", "tmpfs", "/dev/shm", NULL});
    bool allowed = c.status == 0;
    command_free(&c);
    if (!allowed)
        test_skip("cannot create a mount namespace here");
    snprintf(script, sizeof script,
             "mount -t tmpfs -o size=4m tmpfs /dev/shm && "
             "\"%.400s\"/sluice-run --name small --log-level=error -m \"$0\"; s=$?; "
             "ls -A /dev/shm | grep -q . && exit 99; exit $s",
             test_libexec());
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"/usr/bin/unshare", "-m", "sh", "-c", script, test_model(), NULL});
    CHECK(c.status != 99, "files are left in /dev/shm");
    CHECK(c.status == 1 || c.status == 2, "status %d: %.300s", c.status, c.err);
    CHECK(command_lines(c.err) == 1 && strstr(c.err, "/dev/shm"), "%.400s", c.err);
    test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    command_free(&c);
}

/* ---- bad arguments ---- */

static void bad_arguments(void)
{
    static const char *const lines[][6] = {
        {"generate", "-p", "x", "-n", "-1", NULL},
        {"generate", "-p", "x", "--output", "pdf", NULL},
        {"generate", "-p", "x", "--temp", "hot", NULL},
        {"generate", "-p", "x", "--budget", "much", NULL},
        {"generate", "--ids", "1,x", NULL},
        {"generate", NULL},
        {"generate", "-p", "x", "--no-such-option", NULL},
        {"generate", "-p", "x", "--name", "../../etc", NULL},
        {"run", "--threads", "x", NULL},
        {"run", NULL},
        {"eval", "--text", "/nonexistent", NULL},
        {"ctl", "dance", NULL},
        {"ctl", "budget", "lots", NULL},
        {"stats", "--watch", "never", NULL},
        {"repl", "--seed", "x", NULL},
        {"inspect", "/nonexistent", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct command c;
        command_run(&c, NULL, END_MS, lines[i]);
        CHECK(c.status == 2, "%s %s: status %d: %.300s", lines[i][0],
              lines[i][1] ? lines[i][1] : "", c.status, c.err);
        CHECK(c.err_bytes > 0, "%s: nothing on stderr", lines[i][0]);
        command_free(&c);
    }
}

/* Only a text can be printed before a text. */
static void echo_is_of_a_text(void)
{
    static const char *const lines[][6] = {{"generate", "-p", "x", "--echo", "--output=ids", NULL},
                                           {"generate", "-p", "x", "--echo", "--output=json", NULL},
                                           {"generate", "--ids", "1", "--echo", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct command c;
        command_run(&c, NULL, END_MS, lines[i]);
        CHECK(c.status == 2 && strstr(c.err, "--echo prints"), "status %d: %.300s", c.status,
              c.err);
        command_free(&c);
    }
}

/* getopt_long stops inside a group of short options: the message names the group, not the argument
 * before it. */
static void unknown_option_is_named(void)
{
    static const char *const lines[][6] = {{"run", "-m", "M", "-ngl", "99", NULL},
                                           {"run", "-ngl", "99", "-m", "M", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct command c;
        command_run(&c, NULL, END_MS, lines[i]);
        CHECK(c.status == 2 && strstr(c.err, "unknown option -ngl"), "status %d: %.300s", c.status,
              c.err);
        command_free(&c);
    }
}

/* A key with a blank: rejected at the start, with file and line. */
static void key_with_a_blank(void)
{
    struct command c;
    char path[PATH_MAX], expected[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/a.conf", test_dir());
    FILE *f = fopen(path, "we");
    CHECK(f && fputs("# why\nqueue depth = 8\n", f) >= 0 && fclose(f) == 0, "%s", path);
    command_run(&c, NULL, 20000,
                (const char *const[]){"run", "-m", test_model(), "--config", path, NULL});
    snprintf(expected, sizeof expected, "%s:2: unknown parameter 'queue depth'", path);
    CHECK(c.status == 2 && strstr(c.err, expected), "status %d: %.400s", c.status, c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(plan_of_another_model),
        ROW(plan_damaged),
        ROW(impossible_presets),
        ROW(plan_without_losses),
        ROW(plan_impossible),
        ROW(second_run),
        ROW(too_small_budget_is_rejected),
        ROW(shm_too_small),
        ROW(bad_arguments),
        ROW(echo_is_of_a_text),
        ROW(unknown_option_is_named),
        ROW(key_with_a_blank),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
