/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the clients generate and repl. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"
#include "tests/scenario/baseline.h"

#define END_MS 120000

static void expect(const struct command *c, int status)
{
    CHECK(c->status == status, "status %d instead of %d: %.400s", c->status, status, c->err);
}

/* generate with a private engine, in every output form; no process is left running. */
static void generate_own_engine(void)
{
    struct command text, ids, json;
    const char *const base[] = {"generate", "-m", test_model(), "-p", test_prompt(0),
                                "-n",       "16", "--temp",     "0",  "--ignore-eos",
                                "--output"};
    const char *args[ARRAY_LEN(base) + 2] = {0};
    memcpy(args, base, sizeof base);
    args[ARRAY_LEN(base)] = "text";
    command_run(&text, NULL, END_MS, args);
    expect(&text, 0);
    args[ARRAY_LEN(base)] = "ids";
    command_run(&ids, NULL, END_MS, args);
    expect(&ids, 0);
    args[ARRAY_LEN(base)] = "json";
    command_run(&json, NULL, END_MS, args);
    expect(&json, 0);
    json_t *doc = json_loads(json.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", json.out);
    static const char *const keys[] = {"text",
                                       "ids",
                                       "prompt_tokens",
                                       "tokens",
                                       "ttft_ms",
                                       "prefill_tps",
                                       "decode_tps",
                                       "tpot_ms",
                                       "hits",
                                       "hits_inflight",
                                       "misses",
                                       "skipped",
                                       "low_precision_accesses",
                                       "evictions",
                                       "bytes_read",
                                       "stall_ms",
                                       "preset",
                                       "restarts",
                                       "budget_bytes",
                                       "peak_memory_bytes",
                                       "arena_bytes"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        CHECK(json_object_get(doc, keys[i]), "no \"%s\" in the JSON output", keys[i]);
    CHECK(lookup_u64(doc, "tokens") == 16 && json_array_size(json_object_get(doc, "ids")) == 16,
          "not 16 tokens");
    CHECK(lookup_u64(doc, "prompt_tokens") == 11, "%llu prompt tokens",
          (unsigned long long)lookup_u64(doc, "prompt_tokens"));
    CHECK(lookup_u64(doc, "budget_bytes") > 0 && lookup_u64(doc, "peak_memory_bytes") > 0 &&
              lookup_u64(doc, "arena_bytes") > 0,
          "memory sizes are zero");
    CHECK(json_number_value(json_object_get(doc, "decode_tps")) > 0, "no decode rate");
    size_t n = strlen(lookup_text(doc, "text"));
    CHECK(strncmp(text.out, lookup_text(doc, "text"), n) == 0, "text and JSON differ: %.80s",
          text.out);
    char *rest = ids.out;
    for (size_t i = 0; i < 16; i++) {
        json_int_t id = json_integer_value(json_array_get(json_object_get(doc, "ids"), i));
        CHECK(strtoll(rest, &rest, 10) == id, "ids and JSON differ at %zu", i);
    }
    json_decref(doc);
    command_free(&text);
    command_free(&ids);
    command_free(&json);
}

static uint64_t sum_of_phases(const json_t *doc, const char *name)
{
    char prompt[64], decode[64];
    snprintf(prompt, sizeof prompt, "phases.prompt.%s", name);
    snprintf(decode, sizeof decode, "phases.decode.%s", name);
    return lookup_u64(doc, prompt) + lookup_u64(doc, decode);
}

/* What was read at the start, for the prompt and in decode apart; and a budget that holds few
 * experts. */
static void generate_phases(void)
{
    static const char *const counts[] = {"bytes_read", "hits", "hits_inflight", "misses",
                                         "skipped"};
    struct command json, text;
    const char *args[] = {"generate",
                          "-m",
                          test_model(),
                          "-p",
                          test_prompt(1),
                          "-n",
                          "32",
                          "--temp=0",
                          "--ignore-eos",
                          "--budget=44MiB",
                          "--warm-start=off",
                          "--output",
                          "json",
                          NULL};
    command_run(&json, NULL, END_MS, args);
    expect(&json, 0);
    json_t *doc = json_loads(json.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", json.out);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        CHECK(sum_of_phases(doc, counts[i]) == lookup_u64(doc, counts[i]), "%s: %llu of %llu",
              counts[i], (unsigned long long)sum_of_phases(doc, counts[i]),
              (unsigned long long)lookup_u64(doc, counts[i]));
    uint64_t decode = lookup_u64(doc, "phases.decode.bytes_read");
    CHECK(lookup_u64(doc, "phases.start.bytes_read") >= MIB, "no dense weights at the start");
    CHECK(lookup_u64(doc, "phases.prompt.misses") > 0 && decode > 0, "nothing was read");
    CHECK(lookup_u64(doc, "phases.decode.bytes_read_per_token") == decode / 31, "%llu of %llu",
          (unsigned long long)lookup_u64(doc, "phases.decode.bytes_read_per_token"),
          (unsigned long long)decode);
    uint64_t budget = lookup_u64(doc, "budget_bytes");
    CHECK(lookup_u64(doc, "resident_budget_bytes") == budget, "beyond the budget");
    CHECK(lookup_u64(doc, "all_experts_budget_bytes") > budget, "all experts fit");
    json_decref(doc);
    command_free(&json);
    args[ARRAY_LEN(args) - 2] = "text";
    command_run(&text, NULL, END_MS, args);
    expect(&text, 0);
    CHECK(strstr(text.err, "% of accesses were hits") && strstr(text.err, "read per decoded token"),
          "%.300s", text.err);
    command_free(&text);
}

static void generate_prompt_forms(void)
{
    struct engine *e = engine_new();
    struct command file, ids, pipe;
    char path[PATH_MAX];
    engine_start(e, NULL);
    snprintf(path, sizeof path, "%s/prompt", test_dir());
    FILE *f = fopen(path, "we");
    fputs(test_prompt(0), f);
    fclose(f);
    command_run(&file, NULL, END_MS,
                (const char *const[]){"generate", "--name", e->run, "-f", path, "-n", "8", "--temp",
                                      "0", NULL});
    expect(&file, 0);
    command_run(&pipe, test_prompt(0), END_MS,
                (const char *const[]){"generate", "--name", e->run, "-f", "-", "-n", "8",
                                      "--temp=0", NULL});
    expect(&pipe, 0);
    command_run(&ids, NULL, END_MS,
                (const char *const[]){"generate", "--name", e->run, "--ids",
                                      "1063,326,258,1263,275,343,2073,88,878,11,275", "-n", "8",
                                      "--temp", "0", NULL});
    expect(&ids, 0);
    CHECK(strcmp(file.out, ids.out) == 0 && strcmp(pipe.out, ids.out) == 0,
          "the prompt from a file, a pipe and ids gave different texts: %.60s | %.60s | %.60s",
          file.out, pipe.out, ids.out);
    command_free(&file);
    command_free(&ids);
    command_free(&pipe);
    /* Equal seeds give equal texts; another seed gives another text. */
    struct command a, b, c;
    const char *args[] = {"generate", "--name", e->run, "-p", "Once", "-n",
                          "24",       "--seed", "5",    "-q", NULL};
    command_run(&a, NULL, END_MS, args);
    command_run(&b, NULL, END_MS, args);
    args[8] = "6";
    command_run(&c, NULL, END_MS, args);
    CHECK(a.status == 0 && strcmp(a.out, b.out) == 0, "the same seed gave different texts");
    CHECK(strcmp(a.out, c.out) != 0, "two seeds gave the same text");
    command_free(&a);
    command_free(&b);
    command_free(&c);
    engine_stop(e);
}

static void generate_stops_at_a_text(void)
{
    struct command whole, cut;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    const char *args[] = {"generate", "--name", e->run,         "-p", test_prompt(0),
                          "-n",       "24",     "--temp",       "0",  "--output",
                          "json",     "--stop", "no such text", NULL};
    command_run(&whole, NULL, END_MS, args);
    expect(&whole, 0);
    args[12] = "shining";
    command_run(&cut, NULL, END_MS, args);
    expect(&cut, 0);
    json_t *a = json_loads(whole.out, JSON_ALLOW_NUL, NULL),
           *b = json_loads(cut.out, JSON_ALLOW_NUL, NULL);
    const char *text = lookup_text(a, "text"), *start = strstr(text, "shining");
    CHECK(start && strncmp(text, lookup_text(b, "text"), (size_t)(start - text)) == 0 &&
              strlen(lookup_text(b, "text")) == (size_t)(start - text),
          "'%s' instead of '%.*s'", lookup_text(b, "text"), (int)(start - text), text);
    CHECK(strcmp(lookup_text(a, "finish"), "length") == 0 &&
              strcmp(lookup_text(b, "finish"), "stop") == 0,
          "finish '%s'", lookup_text(b, "finish"));
    json_decref(a);
    json_decref(b);
    command_free(&whole);
    command_free(&cut);
    engine_stop(e);
}

/* Signals a program after its first output; returns its exit status. */
static int interrupt_after_output(const char *const argv[], int signal_number, pid_t *engine)
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0, "no pipe");
    pid_t pid = spawn_program(argv, -1, ends[1], STDERR_FILENO);
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1, "no output");
    if (engine) { /* the only child */
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
        FILE *f = fopen(path, "re");
        int child = 0;
        CHECK(f && fscanf(f, "%d", &child) == 1, "generate has no child process");
        fclose(f);
        *engine = (pid_t)child;
    }
    kill(pid, signal_number);
    int status;
    uint64_t deadline = deadline_in(END_MS);
    while (waitpid(pid, &status, WNOHANG) == 0)
        CHECK(deadline_tick(deadline), "the program does not end");
    close(ends[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void generate_interrupted(void)
{
    char program[PATH_MAX];
    struct engine *e = engine_new();
    engine_start(e, NULL);
    snprintf(program, sizeof program, "%s/sluice-generate", test_libexec());
    const char *const args[] = {program, "--name", e->run,         "-p", "Once upon a time",
                                "-n",    "1500",   "--ignore-eos", NULL};
    CHECK(interrupt_after_output(args, SIGINT, NULL) == 1, "Ctrl-C does not end with status 1");
    engine_wait_counter(e, "compute", "sequences_cancelled", 1, 5000);
    uint64_t deadline = deadline_in(2000);
    while (engine_counter(e, "compute", "sequences_running") != 0)
        CHECK(deadline_tick(deadline), "the sequence still runs");
    struct text got;
    engine_generate(e, test_prompt(0), 8, &got);
    text_free(&got);
    engine_stop(e);
}

/* A private engine ends with its client, by Ctrl-C and by kill -9. */
static void generate_takes_its_engine_along(void)
{
    char program[PATH_MAX];
    pid_t engine = 0;
    snprintf(program, sizeof program, "%s/sluice-generate", test_libexec());
    const char *const args[] = {program, "-m",   test_model(),   "-p", "Once upon a time",
                                "-n",    "1500", "--ignore-eos", NULL};
    CHECK(interrupt_after_output(args, SIGTERM, &engine) == 1, "the exit status is not 1");
    CHECK(!process_alive(engine), "the engine %d still runs after SIGTERM", (int)engine);
    CHECK(interrupt_after_output(args, SIGKILL, &engine) == 128 + SIGKILL, "not killed");
    process_wait_gone(engine, 10000);
}

static void generate_uses_a_running_engine(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"generate", "--name", e->run, "--budget", "1GiB", "-p", "x", NULL});
    expect(&c, 2); /* engine options are rejected with --name */
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "--name", "no-engine", "-p", "x", NULL});
    expect(&c, 1);
    CHECK(strstr(c.err, "no-engine"), "%.200s", c.err);
    command_free(&c);
    engine_stop(e);
}

/* ---- repl ---- */

/* No line is longer than that of a usual terminal, which would break it in a word. */
static void lines_fit(const char *text, const char *end)
{
    for (const char *line = text; line < end; line += strspn(line, "\n")) {
        size_t n = strcspn(line, "\n");
        CHECK(n <= 80, "a line of %zu columns: %.*s", n, (int)n, line);
        line += n;
    }
}

static void repl_pipe(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    command_run(
        &c,
        "/help\n/set temperature 0\n/set temp\n/set tokens 8\n/set num_predct 1\n/show\n"
        "It was a dark and stormy night, and\n/stats\n\"\"\"two\nlines\"\"\"\n/dance\n/bye\n"
        "never sent\n",
        END_MS, (const char *const[]){"repl", "--name", e->run, NULL});
    expect(&c, 2); /* two lines are invalid */
    CHECK(strstr(c.out, " the sun was"), "no response: %.300s", c.out);
    CHECK(strstr(c.out, "/bye") && strstr(c.out, "temperature       0"), "%.500s", c.out);
    CHECK(strstr(c.out, "tokens/s"), "no /stats");
    const char *shown = strstr(c.out, "  temperature ");
    CHECK(shown && strstr(shown + 1, "  temperature "), "/set without a value: %.500s", c.out);
    lines_fit(c.out, strstr(c.out, " the sun was")); /* what follows is as long as the numbers */
    CHECK(strstr(c.err, "unknown setting 'num_predct'; did you mean num_predict?") &&
              strstr(c.err, "dance"),
          "%.300s", c.err);
    command_free(&c);
    command_run(&c, "", END_MS, (const char *const[]){"repl", "-m", test_model(), NULL});
    expect(&c, 0);
    command_free(&c);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(generate_own_engine),
        ROW(generate_phases),
        ROW(generate_prompt_forms),
        ROW(generate_interrupted),
        ROW(generate_stops_at_a_text),
        ROW(generate_takes_its_engine_along),
        ROW(generate_uses_a_running_engine),
        ROW(repl_pipe),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
