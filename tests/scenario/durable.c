/* SPDX-License-Identifier: Apache-2.0 */
/* Files that must outlive a power failure: each is written under another name, synced, renamed, and
 * its directory is synced, in this order. Read from the system calls of the real programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

#define END_MS    120000
#define LINES_MAX 4096
#define ARGS_MAX  32

static const char *line[LINES_MAX];
static size_t lines;
static char *trace;

/* Runs a program of this build under strace. */
static void run_traced(const char *program, const char *const options[])
{
    static const char *const paths[] = {"/usr/bin/strace", "/bin/strace"};
    const char *args[ARGS_MAX] = {NULL};
    char log[PATH_MAX], path[PATH_MAX];
    struct command c;
    for (size_t i = 0; i < ARRAY_LEN(paths) && !args[0]; i++)
        if (access(paths[i], X_OK) == 0)
            args[0] = paths[i];
    if (!args[0])
        test_skip("strace is not installed");
    snprintf(log, sizeof log, "%s/trace", test_dir());
    snprintf(path, sizeof path, "%s/sluice-%s", test_libexec(), program);
    size_t n = 1;
    for (const char *const *o = (const char *const[]){"-f", "-y", "-qq", "-o", log, "-e",
                                                      "trace=fsync,fdatasync,rename,renameat,"
                                                      "renameat2,link,linkat",
                                                      path, NULL};
         *o; o++)
        args[n++] = *o;
    for (size_t i = 0; options[i] && n + 1 < ARGS_MAX; i++)
        args[n++] = options[i];
    command_run(&c, NULL, END_MS, args);
    if (c.status != 0 && strstr(c.err, "ptrace"))
        test_skip("strace may not trace here");
    CHECK(c.status == 0, "%s: status %d: %.300s", program, c.status, c.err);
    command_free(&c);
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cat", log, NULL});
    free(trace);
    trace = strdup(c.out);
    CHECK(c.status == 0 && trace, "%.300s", c.err);
    command_free(&c);
    char *rest = NULL;
    lines = 0;
    for (char *l = strtok_r(trace, "\n", &rest); l && lines < LINES_MAX;
         l = strtok_r(NULL, "\n", &rest))
        if (strstr(l, ") ") && strstr(l, "= 0"))
            line[lines++] = l;
}

/* The n-th text in quotes of a line; false: it has none. */
static bool quoted(const char *l, unsigned n, char *text, size_t cap)
{
    for (unsigned i = 0;; i++) {
        const char *start = strchr(l, '"');
        const char *end = start ? strchr(start + 1, '"') : NULL;
        if (!end)
            return false;
        if (i == n) {
            const char *name = start + 1;
            for (const char *at = name; at < end; at++)
                if (*at == '/')
                    name = at + 1;
            snprintf(text, cap, "%.*s", (int)(end - name), name);
            return true;
        }
        l = end + 1;
    }
}

static bool syncs(const char *l, const char *path)
{
    return (strstr(l, " fsync(") || strstr(l, " fdatasync(")) && strstr(l, path);
}

/* `dir`/`name`: the newest rename to it, the sync before, the sync of the directory after. */
static void check_durable(const char *dir, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX], file[PATH_MAX + 8], place[PATH_MAX + 8];
    size_t renamed = lines;
    for (size_t i = 0; i < lines; i++)
        if ((strstr(line[i], " rename") || strstr(line[i], " link")) &&
            quoted(line[i], 1, to, sizeof to) && strcmp(to, name) == 0)
            renamed = i;
    CHECK(renamed < lines, "no rename to %s", name);
    CHECK(quoted(line[renamed], 0, from, sizeof from), "%s", line[renamed]);
    snprintf(file, sizeof file, "/%s>)", from);
    snprintf(place, sizeof place, "<%s>)", dir);
    bool before = false, after = false;
    for (size_t i = 0; i < lines; i++) {
        before |= i < renamed && syncs(line[i], file);
        after |= i > renamed && syncs(line[i], place);
    }
    CHECK(before, "%s is renamed to %s and was not synced", from, name);
    CHECK(after, "%s is not synced after the rename to %s", dir, name);
}

static void profile_and_plan(void)
{
    static const char text[] = SLUICE_SOURCE_DIR "/launch/demo/calib.txt";
    char profile[PATH_MAX], plan[PATH_MAX];
    snprintf(profile, sizeof profile, "%s/a.profile", test_dir());
    snprintf(plan, sizeof plan, "%s/a.plan", test_dir());
    run_traced("profile",
               (const char *const[]){"-m", test_model(), "--text", text, "-o", profile, "--tokens",
                                     "256", "--ctx-size", "64", "--importance-tokens", "0", NULL});
    check_durable(test_dir(), "a.profile");
    run_traced("plan",
               (const char *const[]){"-m", test_model(), "--profile", profile, "--text", text,
                                     "--tokens", "256", "--ctx-size", "64", "--max-loss", "50%",
                                     "--preset", "hobbit", "-o", plan, NULL});
    check_durable(test_dir(), "a.plan");
}

static void store(void)
{
    static const char *const files[] = {"model.gguf", "entries.bin", "manifest.json"};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/store", test_dir());
    run_traced("pack", (const char *const[]){"-m", test_model(), "-o", path, "--quiet", NULL});
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        check_durable(path, files[i]);
    /* The bytes of experts are written in place: synced before the manifest that names them. */
    bool synced = false;
    for (size_t i = 0; i < lines; i++) {
        synced |= syncs(line[i], "/experts.0.bin>)");
        CHECK(synced || !strstr(line[i], "\"manifest.json\""), "the manifest comes first");
    }
    CHECK(synced, "the stripe is not synced");
}

static void synthetic_model(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/a.gguf", test_dir());
    run_traced("synth",
               (const char *const[]){"-q", "-o", path, "tiny", "layers=3", "experts=16", NULL});
    check_durable(test_dir(), "a.gguf");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(profile_and_plan), ROW(store),
                                             ROW(synthetic_model)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
