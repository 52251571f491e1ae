/* SPDX-License-Identifier: Apache-2.0 */
/* Clients and tools: eval, profile, plan, sim, stats, ctl, inspect. */
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
#include "tests/scenario/continued.h"

#define END_MS 120000

static void expect(const struct command *c, int status)
{
    CHECK(c->status == status, "status %d instead of %d: %.400s", c->status, status, c->err);
}

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
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
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
        doc[i] = json_loads(c.out, JSON_ALLOW_NUL, NULL);
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
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
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

static void write_repeated(const char *path, const char *text, unsigned times)
{
    FILE *f = fopen(path, "we");
    CHECK(f, "%s", path);
    for (unsigned i = 0; i < times; i++)
        fprintf(f, "%s\n", text);
    fclose(f);
}

/* --max-windows keeps windows of each text; a record is of those alone. */
static void eval_of_texts(void)
{
    static const char *const names[] = {"first", "long", "short", "other"};
    char path[4][PATH_MAX], logits[PATH_MAX];
    struct command c;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        path_in_dir(path[i], names[i]);
        write_repeated(path[i], test_prompt(i == 3 ? 0 : 2), i == 2 ? 1 : 4);
    }
    path_in_dir(logits, "texts.logits");
    for (size_t i = 1; i < ARRAY_LEN(names); i++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"eval", "-m", test_model(), "--text", path[0], "--text",
                                          path[i], "--ctx-size", "16", "--max-windows", "1",
                                          "--offline", i == 1 ? "--record" : "--against", logits,
                                          NULL});
        expect(&c, i == 3 ? 2 : 0);
        CHECK(i != 3 || strstr(c.err, "another text"), "%s: %.300s", names[i], c.err);
        command_free(&c);
    }
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

/* The bound of hobbit's loss on the text that is held out is within --max-loss; the report has the
 * text by name. */
static void hobbit_keeps_the_bound(const char *profile, const char *text)
{
    struct command c;
    char plan[PATH_MAX];
    snprintf(plan, sizeof plan, "%s/margin.plan", test_dir());
    command_run(&c, NULL, END_MS,
                (const char *const[]){"plan",   "-m",         test_model(), "--profile",
                                      profile,  "--text",     text,         "--tokens",
                                      "256",    "--ctx-size", "64",         "--max-loss",
                                      "20%",    "--output",   "json",       "--preset",
                                      "hobbit", "-o",         plan,         NULL});
    expect(&c, 0);
    CHECK(strstr(c.out, "\"held_out\"") && strstr(c.out, "\"kld\"") &&
              strstr(c.out, "\"top1_same\""),
          "%.400s", c.out);
    command_free(&c);
    double low = plan_scalar(plan, "hobbit_loss_low"), high = plan_scalar(plan, "hobbit_loss_high");
    CHECK(low < high && high <= 0.2, "%g to %g", low, high);
}

/* Decode is measured, also in windows that are as short as its first tokens, which do not count. */
static void profile_of_short_windows(void)
{
    static const char *const windows[] = {"2", "16", "17"};
    for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
        char profile[PATH_MAX];
        snprintf(profile, sizeof profile, "%s/%s.profile", test_dir(), windows[i]);
        json_t *out =
            command_json(END_MS, (const char *const[]){"profile", "-m", test_model(), "--synthetic",
                                                       "--tokens", "34", "--ctx-size", windows[i],
                                                       "-o", profile, "--output=json", NULL});
        double token_ns = json_real_value(json_object_get(out, "token_ns"));
        CHECK(token_ns > 0, "windows of %s: %g ns", windows[i], token_ns);
        json_decref(out);
    }
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
    CHECK(strstr(c.out, "hobbit: T1 ") && strstr(c.out, "expected loss") &&
              strstr(c.out, "the lower half of the ranks has "),
          "%.400s", c.out);
    command_free(&c);
    hobbit_keeps_the_bound(profile, text);
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
/* What a profile says of routing, as elements of an array of its JSON. */
static double element(const json_t *doc, const char *array, size_t at)
{
    const json_t *x = json_array_get(json_object_get(json_object_get(doc, "arrays"), array), at);
    CHECK(json_is_number(x), "no element %zu of %s", at, array);
    return json_number_value(x);
}

/* Gate weights by rank fall and sum to 1. Where a table chooses the experts by token, as in the
 * second layer here, a prediction names all of them: it is made for a known token. */
static void profile_of_routing(void)
{
    enum { LAYERS = 3, USED = 4 };
    struct command c;
    json_error_t where;
    char model[PATH_MAX], profile[PATH_MAX];
    continued_make(model, (const char *const[]){"arch=deepseek4",
                                                "layers=3",
                                                "kv_heads=1",
                                                "head_size=32",
                                                "q_rank=32",
                                                "output_groups=2",
                                                "output_rank=32",
                                                "window=32",
                                                "rope_dims=8",
                                                "index_heads=4",
                                                "index_size=32",
                                                "index_top_k=8",
                                                "gating=4",
                                                "norm_top_k=1",
                                                "shared_count=1",
                                                "table_layers=2",
                                                "streams=4",
                                                "stream_steps=20",
                                                "stream_eps=1e-6",
                                                "experts_used=4",
                                                "rope_theta=160000",
                                                "rope_theta_window=10000",
                                                NULL});
    snprintf(profile, sizeof profile, "%s/routing.profile", test_dir());
    command_run(&c, NULL, END_MS,
                (const char *const[]){"profile", "-m", model, "--synthetic", "--tokens", "128",
                                      "--ctx-size", "64", "-o", profile, NULL});
    expect(&c, 0);
    CHECK(strstr(c.out, "gate weights by rank: ") && strstr(c.out, "the lower half of the ranks: "),
          "%.600s", c.out);
    command_free(&c);
    json_t *doc = json_load_file(profile, 0, &where);
    CHECK(doc, "%s", where.text);
    for (size_t l = 0; l < LAYERS; l++) {
        double sum = 0, before = 1;
        for (size_t i = 0; i < USED; i++) {
            double share = element(doc, "rank_share", l * USED + i);
            CHECK(share > 0 && share <= before, "layer %zu: rank %zu has %g", l, i, share);
            sum += before = share;
        }
        CHECK(fabs(sum - 1) < 1e-5, "layer %zu: the shares sum to %g", l, sum);
    }
    CHECK(element(doc, "recall_gate", 1) == 1, "recall %g of a table",
          element(doc, "recall_gate", 1));
    json_decref(doc);
}

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
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
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
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
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

/* ctl returns when the sequences that were accepted have ended. */
static void ctl_drain_waits(void)
{
    struct engine *e = engine_new();
    struct command c;
    struct text got;
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    struct generation *g = generation_start(e, test_prompt(0), 400);
    uint64_t deadline = deadline_in(END_MS);
    while (generation_tokens(g) < 5 && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    command_run(&c, NULL, END_MS, (const char *const[]){"ctl", "--name", e->run, "drain", NULL});
    expect(&c, 0);
    CHECK(engine_counter(e, "compute", "sequences_running") == 0 &&
              engine_counter(e, "compute", "sequences_done") == 1,
          "drain returned while a sequence ran: %.300s", c.err);
    test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    command_free(&c);
    generation_finish(g, END_MS, &got);
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
        ROW(eval_windows),
        ROW(eval_per_token),
        ROW(eval_modelled),
        ROW(eval_of_texts),
        ROW(profile_plan_generate),
        ROW(trace_and_sim),
        ROW(stats_and_ctl),
        ROW(ctl_to_the_end),
        ROW(drain),
        ROW(ctl_drain_waits),
        ROW(inspect_demo),
        ROW(profile_of_routing),
        ROW(profile_of_short_windows),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
