/* SPDX-License-Identifier: Apache-2.0 */
/* The clients: generate, repl, eval, profile, plan, sim, stats, ctl, inspect. */
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
    json_t *doc = json_loads(json.out, 0, NULL);
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
    json_t *a = json_loads(whole.out, 0, NULL), *b = json_loads(cut.out, 0, NULL);
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

static void repl_pipe(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    command_run(
        &c,
        "/help\n/set temperature 0\n/set tokens 8\n/set nonsense 1\n/show\n"
        "It was a dark and stormy night, and\n/stats\n\"\"\"two\nlines\"\"\"\n/dance\n/bye\n"
        "never sent\n",
        END_MS, (const char *const[]){"repl", "--name", e->run, NULL});
    expect(&c, 2); /* two lines are invalid */
    CHECK(strstr(c.out, " the sun was"), "no response: %.300s", c.out);
    CHECK(strstr(c.out, "/bye") && strstr(c.out, "temperature      0"), "%.500s", c.out);
    CHECK(strstr(c.out, "tokens/s"), "no /stats");
    CHECK(strstr(c.err, "nonsense") && strstr(c.err, "dance"), "%.300s", c.err);
    command_free(&c);
    command_run(&c, "", END_MS, (const char *const[]){"repl", "-m", test_model(), NULL});
    expect(&c, 0);
    command_free(&c);
    engine_stop(e);
}

/* ---- the others ---- */

static void eval_windows(void)
{
    struct command c;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/text", test_dir());
    FILE *f = fopen(path, "we");
    for (unsigned i = 0; i < 4; i++)
        fprintf(f, "%s\n", test_prompt(2));
    fclose(f);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"eval", "-m", test_model(), "--text", path, "--ctx-size",
                                      "128", "--max-windows", "3", "--output", "json", NULL});
    expect(&c, 0);
    json_t *doc = json_loads(c.out, 0, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    double ppl = json_number_value(json_object_get(doc, "ppl"));
    CHECK(lookup_u64(doc, "tokens") == 3 * 127, "%llu tokens",
          (unsigned long long)lookup_u64(doc, "tokens"));
    CHECK(ppl > 1 && ppl < 4096, "perplexity %g", ppl);
    json_decref(doc);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"eval", "-m", test_model(), "--text", path, "--ctx-size",
                                      "20000", NULL});
    expect(&c, 2); /* the text is shorter than a window */
    command_free(&c);
}

/* Losses per token; the tokens that were printed, given as ids, have the same. */
static void eval_per_token(void)
{
    struct command c;
    char text[PATH_MAX], ids[PATH_MAX];
    snprintf(text, sizeof text, "%s/words", test_dir());
    snprintf(ids, sizeof ids, "%s/ids.json", test_dir());
    FILE *f = fopen(text, "we");
    fprintf(f, "%s\n%s\n", test_prompt(2), test_prompt(1));
    fclose(f);
    json_t *doc[2];
    for (unsigned i = 0; i < 2; i++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"eval", "-m", test_model(), i ? "--ids" : "--text",
                                          i ? ids : text, "--ctx-size", "32", "--max-windows", "2",
                                          "--per-token", "--output", "json", NULL});
        expect(&c, 0);
        doc[i] = json_loads(c.out, 0, NULL);
        CHECK(doc[i], "not JSON: %.200s", c.out);
        CHECK(json_dump_file(doc[i], ids, 0) == 0, "cannot write %s", ids);
        command_free(&c);
    }
    json_t *losses = json_object_get(doc[0], "nll_per_token");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(losses); i++)
        sum += json_real_value(json_array_get(losses, i));
    CHECK(json_array_size(losses) == 62 && json_array_size(json_object_get(doc[0], "ids")) == 64,
          "%zu losses", json_array_size(losses));
    CHECK(fabs(sum - json_number_value(json_object_get(doc[0], "nll_sum"))) < 1e-6, "sum %g", sum);
    CHECK(json_equal(losses, json_object_get(doc[1], "nll_per_token")), "ids have other losses");
    json_decref(doc[0]);
    json_decref(doc[1]);
    f = fopen(ids, "we");
    fprintf(f, "{\"ids\": [1, -2]}");
    fclose(f);
    static const char *const bad[][3] = {{"--ids", NULL, "element 1 of 'ids' is no token id"},
                                         {"--per-token", NULL, "requires --output json"},
                                         {"--offline", "--per-token", "require an engine"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *const words[] = {"eval",         "-m",
                                     test_model(),   i ? "--text" : bad[i][0],
                                     i ? text : ids, i ? bad[i][0] : NULL,
                                     bad[i][1],      NULL};
        command_run(&c, NULL, END_MS, words);
        expect(&c, 2);
        CHECK(strstr(c.err, bad[i][2]) && command_lines(c.err) == 1, "%.300s", c.err);
        command_free(&c);
    }
}

/* A simulated device; recorded logits and a comparison with them; output formats; invalid input. */
static void eval_modelled(void)
{
    static const struct {
        const char *option, *value, *line;
    } bad[] = {{"--read-bandwidth", "fast", "not a bandwidth"},
               {"--resident-experts", "1%", "below the 4"},
               {"--against", "/nonexistent", "cannot open /nonexistent"},
               {"--against", "TEXT", "not a logits record"},
               {"--record", "/nonexistent/a", "cannot write"},
               {"--output", "xml", "text|json|csv|md"}};
    struct command c;
    char path[PATH_MAX], logits[PATH_MAX];
    snprintf(path, sizeof path, "%s/modelled", test_dir());
    snprintf(logits, sizeof logits, "%s/logits", test_dir());
    FILE *f = fopen(path, "we");
    fprintf(f, "%s\n", test_prompt(2));
    fclose(f);
#define EVAL(...)                                                                                  \
    command_run(&c, NULL, END_MS,                                                                  \
                (const char *const[]){"eval", "-m", test_model(), "--text", path, "--ctx-size",    \
                                      "32", "--max-windows", "1", __VA_ARGS__, NULL})
    EVAL("--read-bandwidth", "500MB/s", "--resident-experts", "25%", "--preset", "hobbit",
         "--record", logits, "--kld", "--output", "json");
    expect(&c, 0);
    json_t *doc = json_loads(c.out, 0, NULL);
    double hits = json_number_value(json_object_get(doc, "hit_rate"));
    CHECK(lookup_u64(doc, "tokens") == 31 && hits > 0 && hits < 1, "%.400s", c.out);
    json_decref(doc);
    command_free(&c);
    EVAL("--offline", "--against", logits, "--output", "md");
    expect(&c, 0);
    CHECK(strncmp(c.out, "| preset |", 10) == 0 && strstr(c.out, "\n| default |"), "%.400s", c.out);
    command_free(&c);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *value = strcmp(bad[i].value, "TEXT") == 0 ? path : bad[i].value;
        EVAL("--read-bandwidth", "1GB/s", bad[i].option, value);
        expect(&c, 2);
        CHECK(strstr(c.err, bad[i].line), "%s %s: %.300s", bad[i].option, value, c.err);
        command_free(&c);
    }
#undef EVAL
}

static double plan_scalar(const char *path, const char *name)
{
    json_t *doc = json_load_file(path, 0, NULL);
    json_t *value = json_object_get(json_object_get(doc, "scalars"), name);
    CHECK(json_is_number(value), "%s has no %s", path, name);
    double number = json_number_value(value);
    json_decref(doc);
    return number;
}

/* The confidence interval of hobbit's loss ends below --max-loss less the margin: half of 8 %. The
 * first candidate here, 3.1 % (interval 1.3 .. 4.5), must be rejected. */
static void hobbit_keeps_the_margin(const char *profile, const char *text)
{
    struct command c;
    char plan[PATH_MAX];
    snprintf(plan, sizeof plan, "%s/margin.plan", test_dir());
    command_run(&c, NULL, END_MS,
                (const char *const[]){"plan",   "-m",         test_model(), "--profile",
                                      profile,  "--text",     text,         "--tokens",
                                      "256",    "--ctx-size", "64",         "--max-loss",
                                      "8%",     "--margin",   "50%",        "--preset",
                                      "hobbit", "-o",         plan,         NULL});
    expect(&c, 0);
    command_free(&c);
    double low = plan_scalar(plan, "hobbit_loss_low"), high = plan_scalar(plan, "hobbit_loss_high");
    CHECK(low < high && high <= 0.04, "%g to %g", low, high);
}

/* A profile of a short text, a plan from it, and an engine that uses the plan. */
static void profile_plan_generate(void)
{
    struct command c;
    char profile[PATH_MAX], plan[PATH_MAX];
    static const char text[] = SLUICE_SOURCE_DIR "/launch/demo/calib.txt";
    snprintf(profile, sizeof profile, "%s/a.profile", test_dir());
    snprintf(plan, sizeof plan, "%s/a.plan", test_dir());
    for (int round = 0; round < 2; round++) { /* the second adds to the profile */
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"profile", "-m", test_model(), "--text", text, "-o",
                                          profile, "--tokens", "256", "--ctx-size", "64",
                                          "--importance-tokens", "0", NULL});
        expect(&c, 0);
        CHECK(strstr(c.out, "256 tokens, perplexity ") && strstr(c.out, "recall per layer"),
              "%.400s", c.out);
        CHECK((strstr(c.err, "routing statistics") != NULL) == (round == 0), "round %d: %.300s",
              round, c.err);
        command_free(&c);
    }
    command_run(&c, NULL, END_MS,
                (const char *const[]){"plan", "-m", test_model(), "--profile", profile, "--text",
                                      text, "--tokens", "256", "--ctx-size", "64", "--max-loss",
                                      "50%", "--preset", "hobbit", "-o", plan, NULL});
    expect(&c, 0);
    CHECK(strstr(c.out, "hobbit: T1 ") && strstr(c.out, "expected loss"), "%.400s", c.out);
    command_free(&c);
    hobbit_keeps_the_margin(profile, text);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", test_model(), "--plan", plan, "-p",
                                      "It was", "-n", "4", "--temp", "0", NULL});
    expect(&c, 0);
    command_free(&c);
    /* A profile of another model (a changed hash) is rejected. */
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/bin/sed", "-i", "s/\\(\"model_hash\": *\"\\)..../\\10000/",
                                      plan, NULL});
    expect(&c, 0);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", test_model(), "--plan", plan, "-p",
                                      "It was", "-n", "4", NULL});
    CHECK(c.status == 2 && strstr(c.err, "is for another model"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
}

static size_t file_lines_with(const char *path, const char *text)
{
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/grep", "-c", text, path, NULL});
    size_t lines = strtoul(c.out, NULL, 10);
    command_free(&c);
    return lines;
}

/* The trace of a response, simulated with two presets and two budgets: a table and an SVG. */
static void trace_and_sim(void)
{
    struct command c;
    struct text got;
    char trace[PATH_MAX], option[PATH_MAX + 16], picture[PATH_MAX];
    snprintf(trace, sizeof trace, "%s/an.trace", test_dir());
    snprintf(picture, sizeof picture, "%s/a.svg", test_dir());
    snprintf(option, sizeof option, "--trace=%s", trace);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){option, NULL});
    engine_generate(e, test_prompt(0), 32, &got);
    text_free(&got);
    engine_stop(e);
    static const char *const output[] = {"text", "md", "csv"};
    for (size_t i = 0; i < ARRAY_LEN(output); i++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"sim", trace, "--presets", "lod,default", "--budgets",
                                          "25%,50%", "--read-bandwidth", "200MB/s", "--output",
                                          output[i], "--svg", picture, NULL});
        expect(&c, 0);
        CHECK(strstr(c.out, "lod") && strstr(c.out, "default") && command_lines(c.out) >= 5,
              "%s: %.600s", output[i], c.out);
        command_free(&c);
    }
    CHECK(file_lines_with(picture, "<svg ") == 1 && file_lines_with(picture, "</svg>") == 1,
          "no picture");
    command_run(&c, NULL, END_MS, (const char *const[]){"sim", trace, "--presets", "moon", NULL});
    expect(&c, 2);
    CHECK(strstr(c.err, "moon"), "%.300s", c.err);
    command_free(&c);
}

static void stats_and_ctl(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--budget=512MiB", NULL});
    command_run(&c, NULL, END_MS, (const char *const[]){"stats", "--name", e->run, "--json", NULL});
    expect(&c, 0);
    json_t *doc = json_loads(c.out, 0, NULL);
    CHECK(doc && lookup_processes(doc) >= 5, "not the stats as JSON: %.200s", c.out);
    CHECK(lookup_counter(doc, "supervisor", "budget_bytes") == 512 * MIB, "budget_bytes");
    json_decref(doc);
    command_free(&c);
    command_run(&c, NULL, END_MS, (const char *const[]){"stats", "--name", e->run, NULL});
    expect(&c, 0);
    CHECK(strstr(c.out, "predictor") && strstr(c.out, "512.0 MiB"), "%.600s", c.out);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "budget", "400MiB", NULL});
    expect(&c, 0);
    CHECK(strstr(c.out, "400.0 MiB"), "%.200s", c.out);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "budget", "1MiB", NULL});
    expect(&c, 2);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "restart", "moon", NULL});
    expect(&c, 1);
    command_free(&c);
    command_run(&c, NULL, END_MS, (const char *const[]){"ctl", "--name", e->run, "status", NULL});
    expect(&c, 0);
    CHECK(strstr(c.out, "ready"), "%.300s", c.out);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "throttle", "0", "20MB", NULL});
    expect(&c, 0);
    command_free(&c);
    engine_stop(e);
}

/* ctl commands: replace, drain, stop. */
static void ctl_to_the_end(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    pid_t cache = engine_pid(e, "cache", 0, 0);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"ctl", "--name", e->run, "restart", "cache", NULL});
    expect(&c, 0);
    command_free(&c);
    engine_pid(e, "cache", 0, cache);
    command_run(&c, NULL, END_MS, (const char *const[]){"ctl", "--name", e->run, "drain", NULL});
    expect(&c, 0);
    command_free(&c);
    uint64_t deadline = deadline_in(5000);
    for (;;) { /* until the control message arrives */
        command_run(
            &c, NULL, END_MS,
            (const char *const[]){"generate", "--name", e->run, "-p", "It was", "-n", "1", NULL});
        if (c.status != 0)
            break;
        command_free(&c);
        CHECK(deadline_tick(deadline), "a draining engine still accepts requests");
    }
    expect(&c, 1);
    CHECK(strstr(c.err, "drain"), "%.300s", c.err);
    command_free(&c);
    command_run(&c, NULL, END_MS, (const char *const[]){"ctl", "--name", e->run, "stop", NULL});
    expect(&c, 0);
    command_free(&c);
    process_wait_state(e->pid, 'Z', END_MS);
    int status;
    CHECK(waitpid(e->pid, &status, 0) == e->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the engine stopped with status %#x", (unsigned)status);
    e->pid = 0;
    engine_check_gone(e, 1000);
}

/* drain: running sequences finish, new requests are rejected. */
static void drain(void)
{
    struct engine *e = engine_new();
    struct error error;
    struct text got;
    baseline(0);
    engine_start(e, NULL);
    struct generation *g = generation_start(e, test_prompt(0), BASELINE_TOKENS);
    uint64_t deadline = deadline_in(END_MS), id;
    while (generation_tokens(g) < 5 && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    json_decref(engine_control(e, "drain", NULL));
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client, "%s", error.text);
    struct engine_submit submit;
    engine_submit_defaults(&submit);
    submit.prompt = "x";
    submit.prompt_bytes = 1;
    deadline = deadline_in(5000); /* until the control message arrives */
    for (;;) {                    /* a queue full of cancelled sequences also rejects */
        if (engine_submit(client, &submit, &id, &error) == 0)
            engine_cancel(client, id, &error);
        else if (strstr(error.text, "draining"))
            break;
        CHECK(deadline_tick(deadline), "a draining engine still accepts requests");
    }
    rpc_client_close(client);
    generation_finish(g, END_MS, &got);
    text_check_same(baseline(0), &got, "while draining");
    text_free(&got);
    engine_stop(e);
}

static void inspect_demo(void)
{
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){"inspect", test_model(), NULL});
    expect(&c, 0);
    CHECK(strstr(c.out, "qwen3moe") && strstr(c.out, "32"), "%.400s", c.out);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(generate_own_engine),
        ROW(generate_prompt_forms),
        ROW(generate_interrupted),
        ROW(generate_stops_at_a_text),
        ROW(generate_takes_its_engine_along),
        ROW(generate_uses_a_running_engine),
        ROW(repl_pipe),
        ROW(eval_windows),
        ROW(eval_per_token),
        ROW(eval_modelled),
        ROW(profile_plan_generate),
        ROW(trace_and_sim),
        ROW(stats_and_ctl),
        ROW(ctl_to_the_end),
        ROW(drain),
        ROW(inspect_demo),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
