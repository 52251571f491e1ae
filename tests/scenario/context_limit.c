/* SPDX-License-Identifier: Apache-2.0 */
/* A model in whose longer sequences a query attends only to positions that an indexer chooses: the
 * engine computes it up to the number that it chooses, and every program refuses more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"
#include "tests/scenario/completions.h"

#define LIMIT   64 /* 4 blocks of 16 positions */
#define MAKE_MS 60000
#define REASON  "sluice computes up to 64 tokens of this model: in longer sequences minimax-m3 "
#define TEXT    SLUICE_SOURCE_DIR "/launch/demo/calib.txt"

/* The weights are the same whatever the indexer chooses. */
static const char *make(char path[PATH_MAX], const char *name, const char *blocks)
{
    struct command c;
    command_run(&c, NULL, MAKE_MS,
                (const char *const[]){"synth", "-q", "-o", path_in_dir(path, name), "tiny",
                                      "arch=minimax-m3", "dense_layers=1", "dense_inner=256",
                                      "shared_count=1", "norm_top_k=1", "rope_dims=16", blocks,
                                      "index_block=16", NULL});
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
    return path;
}

static void refused(const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, MAKE_MS, argv);
    CHECK(c.status == 2 && strstr(c.err, "--ctx-size 65: " REASON), "%s: status %d: %.600s",
          argv[0], c.status, c.err);
    command_free(&c);
}

static void programs_refuse_more(void)
{
    char path[PATH_MAX], profile[PATH_MAX], plan[PATH_MAX];
    struct command c;
    const char *m = make(path, "m.gguf", "index_top_k=4");
    path_in_dir(profile, "p.profile");
    path_in_dir(plan, "p.plan");
    refused((const char *const[]){"run", "-m", m, "--ctx-size=65", NULL});
    refused(
        (const char *const[]){"generate", "-m", m, "-p", "It", "-n", "1", "--ctx-size=65", NULL});
    refused((const char *const[]){"doctor", "-m", m, "--no-device", "--ctx-size=65", NULL});
    refused((const char *const[]){"eval", "-m", m, "--text", TEXT, "--ctx-size=65", NULL});
    refused(
        (const char *const[]){"eval", "-m", m, "--text", TEXT, "--offline", "--ctx-size=65", NULL});
    refused((const char *const[]){"profile", "-m", m, "--text", TEXT, "-o", profile, "--tokens",
                                  "256", "--ctx-size", "65", NULL});
    refused((const char *const[]){"profile", "-m", m, "--synthetic", "-o", profile, "--tokens",
                                  "256", "--ctx-size", "65", NULL});
    command_run(&c, NULL, MAKE_MS,
                (const char *const[]){"profile", "-m", m, "--text", TEXT, "-o", profile, "--tokens",
                                      "256", "--ctx-size", "64", "--importance-tokens", "0", NULL});
    CHECK(c.status == 0, "profile: %.300s", c.err);
    command_free(&c);
    refused((const char *const[]){"plan", "-m", m, "--profile", profile, "--text", TEXT, "--tokens",
                                  "256", "--ctx-size", "65", "--max-loss", "20%", "--preset",
                                  "hobbit", "-o", plan, NULL});
}

/* A store has the keys of its file. */
static void store_refuses_more(void)
{
    char path[PATH_MAX], store[PATH_MAX];
    struct command c;
    const char *m = make(path, "m.gguf", "index_top_k=4");
    command_run(
        &c, NULL, MAKE_MS,
        (const char *const[]){"pack", "--quiet", "-m", m, "-o", path_in_dir(store, "store"), NULL});
    CHECK(c.status == 0, "pack: %.300s", c.err);
    command_free(&c);
    refused((const char *const[]){"run", "-m", store, "--ctx-size=65", NULL});
}

/* A prompt of so many tokens or more. */
static char *body_of(unsigned tokens)
{
    size_t n = 4 * (size_t)tokens;
    char *prompt = malloc(n + 1);
    CHECK(prompt, "no memory");
    for (size_t i = 0; i < n; i++)
        prompt[i] = i % 2 ? 'x' : ' ';
    prompt[n] = 0;
    char *body = completion_body(prompt, 4, "");
    free(prompt);
    return body;
}

static void answered(unsigned port, const char *wanted)
{
    struct http h;
    char *body = body_of(LIMIT);
    http_call(&h, port, "/v1/completions", NULL, body, 400);
    json_t *doc = http_json(&h);
    const char *message = lookup_text(doc, "error.message");
    CHECK(strstr(message, "prompt is too long: ") && strstr(message, wanted), "'%s'", message);
    CHECK(strcmp(lookup_text(doc, "error.code"), "context_length_exceeded") == 0, "%s", h.body);
    json_decref(doc);
    http_close(&h);
    free(body);
}

static void engine_grants_it(void)
{
    char path[PATH_MAX];
    const char *m = make(path, "m.gguf", "index_top_k=4");
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", m, "--http=0", NULL});
    json_t *doc = engine_stats(e);
    CHECK(lookup_u64(doc, "model.context") == LIMIT, "not the limit");
    json_decref(doc);
    answered(port, "Shorten it: " REASON);
    engine_stop(e);
    char *log = engine_log(e);
    CHECK(strstr(log, "WARN run: " REASON), "%.1000s", log);
    free(log);
    e = gateway_start(&port, (const char *const[]){"-m", m, "--http=0", "--ctx-size=32", NULL});
    answered(port, "Shorten it or use a larger context (--ctx-size)");
    engine_stop(e);
}

static void it_is_shown(void)
{
    char path[PATH_MAX];
    struct command c;
    const char *m = make(path, "m.gguf", "index_top_k=4");
    json_t *doc = command_json(
        2 * MAKE_MS, (const char *const[]){"doctor", "-m", m, "--no-device", "--json", NULL});
    CHECK(lookup_u64(doc, "model.context_limit") == LIMIT, "doctor");
    json_decref(doc);
    command_run(&c, NULL, MAKE_MS, (const char *const[]){"inspect", m, NULL});
    CHECK(strstr(c.out, REASON), "%s", c.out);
    command_free(&c);
}

static void generated(const char *m, struct text *text)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", m, "--ctx-size=64", NULL});
    engine_generate(e, test_prompt(0), LIMIT - 40, text);
    engine_stop(e);
}

/* Up to the limit, what the indexer would choose is everything. */
static void text_is_that_of_all_positions(void)
{
    char path[PATH_MAX], other[PATH_MAX];
    struct text few, all;
    generated(make(path, "m.gguf", "index_top_k=4"), &few);
    generated(make(other, "all.gguf", "index_top_k=512"), &all);
    text_check_same(&all, &few, "up to the limit");
    text_free(&few);
    text_free(&all);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(programs_refuse_more), ROW(store_refuses_more),
                                             ROW(engine_grants_it), ROW(it_is_shown),
                                             ROW(text_is_that_of_all_positions)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
