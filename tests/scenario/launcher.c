/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher, and what all programs take: a model as the first word, commands and options of
 * other programs, help. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

#define END_MS   60000
#define LAUNCHER SLUICE_SOURCE_DIR "/launch/sluice"
#define WORDS    10

static char installed[PATH_MAX]; /* a launcher as in an installation */

static void install(void)
{
    char script[] =
        "mkdir -p \"$0/bin\" \"$0/libexec\" \"$0/share\" && cp \"$2\" \"$0/bin/sluice\" && "
        "ln -s \"$1\" \"$0/libexec/sluice\" && ln -s \"$3\" \"$0/share/sluice\"";
    char prefix[PATH_MAX - 32];
    struct command c;
    snprintf(prefix, sizeof prefix, "%s/prefix", test_dir());
    snprintf(installed, sizeof installed, "%s/bin/sluice", prefix);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/bin/sh", "-c", script, prefix, test_libexec(), LAUNCHER,
                                      SLUICE_SOURCE_DIR "/launch", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

static void run(struct command *c, const char *launcher, const char *const words[])
{
    const char *argv[WORDS + 3] = {"/bin/bash", launcher};
    for (size_t i = 0; words[i] && i < WORDS; i++)
        argv[2 + i] = words[i];
    command_run(c, NULL, END_MS, argv);
}

/* Each ends with 2, prints nothing on stdout, and answers with what there is instead. */
static void other_names_are_answered(void)
{
    static const struct {
        const char *words[4], *answer;
    } t[] = {
        {{"pull", "owner/model"}, "sluice downloads nothing. Download a GGUF file first"},
        {{"-hf", "owner/model"}, "sluice doctor -m FILE.gguf"},
        {{"https://example.org/model.gguf"}, "sluice downloads nothing"},
        {{"list"}, "'sluice ps' lists the running engines"},
        {{"stop"}, "use 'sluice ctl stop'"},
        {{"show"}, "sluice inspect FILE"},
        {{"quantize"}, "sluice pack"},
        {{"-p", "x"}, "name a command first, for example 'sluice generate -p ...'"},
        {{"srve"}, "did you mean serve?"},
        {{"chta"}, "did you mean chat?"},
        {{"help", "gnerate"}, "did you mean generate?"},
        {{"test", "--lnog"}, "did you mean --long?"},
        {{"build", "--compilr=gcc"}, "did you mean --compiler?"},
        {{"generate", "-hf", "owner/model"}, "-hf: sluice downloads nothing"},
        {{"doctor", "-hf", "owner/model"}, "-hf: sluice downloads nothing"},
        {{"run", "--model-url=x"}, "--model-url=x: sluice downloads nothing"},
        {{"tokenize", "-m", "hf.co/owner/model"}, "is a URL; sluice downloads nothing"},
        {{"bench", "https://huggingface.co/x.gguf"}, "is a URL; sluice downloads nothing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct command c;
        run(&c, LAUNCHER, t[i].words);
        CHECK(c.status == 2 && strstr(c.err, t[i].answer) && c.out_bytes == 0,
              "%s: status %d, '%.600s' without '%s'", t[i].words[0], c.status, c.err, t[i].answer);
        command_free(&c);
    }
}

/* A path is the model, also before the options; the prompt decides between generate and repl. */
static void a_path_is_the_model(void)
{
    const char *const model = test_model();
    const struct {
        const char *words[WORDS];
        const char *input, *out, *err;
        int status;
    } t[] = {
        {{model, "-p", "It was", "-n", "4", "--temp", "0"}, NULL, " ", "4 tokens at", 0},
        {{"-m", model, "-p", "It was", "-n", "4"}, NULL, "", "4 tokens at", 0},
        {{model, "--temp", "0", "-n", "4"}, "It was\n", " ", "context ", 0},
        {{"chat", model, "-n", "4"}, "It was\n", "", "context ", 0},
        {{"generate", model, "-p", "It was", "-n", "4", "-c", "64", "-t", "1"},
         NULL,
         "",
         "4 tokens at",
         0},
        {{"generate", model, "-p", "It was", "-n", "4", "-c64", "-s", "1"},
         NULL,
         "",
         "4 tokens",
         0},
        {{"generate", model, "-c", "much"}, NULL, "", "--ctx-size: 'much' is not a whole", 2},
        {{"run", model, "--print-memory", "-c", "64"}, NULL, "\"ctx_size\": 64", "", 0},
        {{"tokenize", model, "-p", "It was"}, NULL, "It", "", 0},
        {{"generate", model, model, "-p", "x"}, NULL, "", "one model only", 2},
        {{"generate", "It was", "-m", model, "-p", "x"}, NULL, "", "the prompt goes after -p", 2},
        {{"pack", "a.gguf", "b.gguf", "-o", "d"}, NULL, "", "one model only (a.gguf is given)", 2},
        {{"absent.gguf", "-p", "x"}, NULL, "", "cannot read absent.gguf", 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct command c;
        const char *argv[WORDS + 3] = {"/bin/bash", LAUNCHER};
        memcpy(argv + 2, t[i].words, sizeof t[i].words);
        command_run(&c, t[i].input, END_MS, argv);
        CHECK(c.status == t[i].status && strstr(c.out, t[i].out) && strstr(c.err, t[i].err),
              "row %zu: status %d, '%.300s' without '%s', or '%.500s' without '%s'", i, c.status,
              c.out, t[i].out, c.err, t[i].err);
        command_free(&c);
    }
}

static bool lists(const char *help, const char *command)
{
    char line[32];
    snprintf(line, sizeof line, "\n  %s ", command);
    return strstr(help, line) != NULL;
}

/* `help` is the common part, `help --all` everything that exists there; both fit 80 columns. */
static void help_has_two_parts(void)
{
    struct command common, all, inst, alias;
    install();
    run(&common, LAUNCHER, (const char *const[]){"help", NULL});
    run(&all, LAUNCHER, (const char *const[]){"help", "--all", NULL});
    run(&inst, installed, (const char *const[]){"help", "--all", NULL});
    CHECK(lists(common.out, "generate") && !lists(common.out, "eval") &&
              !lists(common.out, "test") && strstr(common.out, "help --all"),
          "%s", common.out);
    CHECK(lists(all.out, "generate") && lists(all.out, "eval") && lists(all.out, "test") &&
              lists(all.out, "build") && strstr(all.out, "serve is short for run"),
          "%s", all.out);
    CHECK(lists(inst.out, "eval") && !lists(inst.out, "test") && !lists(inst.out, "build"), "%s",
          inst.out);
    for (const char *line = all.out; *line; line += strcspn(line, "\n") + 1)
        CHECK(strcspn(line, "\n") <= 80, "more than 80 columns: %.120s", line);
    run(&alias, LAUNCHER, (const char *const[]){"serve", "--help", NULL});
    CHECK(alias.status == 0 && strncmp(alias.out, "usage: sluice run", 17) == 0, "%.100s",
          alias.out);
    command_free(&common);
    command_free(&all);
    command_free(&inst);
    command_free(&alias);
}

/* The prompt is printed with the response, and not when there is none. */
static void demo_prints_its_prompt_once(void)
{
    struct command c;
    install();
    run(&c, installed, (const char *const[]){"demo", "--bogus", NULL});
    CHECK(c.status == 2 && c.out_bytes == 0 && strstr(c.err, "unknown option --bogus"),
          "status %d: '%.200s' '%.300s'", c.status, c.out, c.err);
    command_free(&c);
    run(&c, installed, (const char *const[]){"demo", "-n", "4", "--temp", "0", NULL});
    CHECK(c.status == 0 && strncmp(c.out, "It was a dark and stormy night, and", 35) == 0 &&
              c.out_bytes > 40,
          "status %d: '%.200s' '%.300s'", c.status, c.out, c.err);
    command_free(&c);
}

/* With stdout closed, the next file that is opened would become stdout. */
static void closed_output_is_an_error(void)
{
    static const char *const scripts[] = {
        "exec \"$0/sluice-generate\" -m \"$1\" -p 'It was' -n 4 >&-",
        "exec \"$0/sluice-generate\" -m \"$1\" -p 'It was' -n 4 >&- <&-",
        "exec \"$0/sluice-tokenize\" -m \"$1\" -p 'It was' >&-",
    };
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct command c;
        command_run(
            &c, NULL, END_MS,
            (const char *const[]){"/bin/sh", "-c", scripts[i], test_libexec(), test_model(), NULL});
        CHECK(c.status == 1 && strstr(c.err, "cannot write to standard output"),
              "script %zu: status %d: %.300s", i, c.status, c.err);
        command_free(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(other_names_are_answered),    ROW(a_path_is_the_model),       ROW(help_has_two_parts),
        ROW(demo_prints_its_prompt_once), ROW(closed_output_is_an_error),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
