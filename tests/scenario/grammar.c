/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that keep to a grammar, of real engines: random schemas, greedy and sampled, validated by
 * the Python package jsonschema; the same text after kills of compute, beside others, and with and
 * without the tokens that the grammar forces; marks, biases, most probable tokens, and refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/grammar.h"
#include "procs/clients/common/stream.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/scripted.h"

#define FINISH_MS 300000
#define TOOL_MS   600000
#define SCRIPT    SLUICE_SOURCE_DIR "/tests/scenario/grammar_schemas.py"
#define TOKENS    160
#define LONGEST   400 /* tokens of an answer to a random schema */

static const char person[] =
    "{\"type\": \"object\", \"properties\": {\"the_full_name_of_the_person\": {\"type\": "
    "\"string\", "
    "\"maxLength\": 20}, \"years_since_birth\": {\"type\": \"integer\", \"minimum\": 0, "
    "\"maximum\": "
    "120}, \"favourite_colours\": {\"type\": \"array\", \"items\": {\"enum\": [\"red\", \"green\", "
    "\"blue\"]}, \"minItems\": 2, \"maxItems\": 4}}, \"required\": "
    "[\"the_full_name_of_the_person\", "
    "\"years_since_birth\", \"favourite_colours\"], \"additionalProperties\": false}";
static const char words[] = "root ::= \"* \" [a-z]{1,12} (\"\\n* \" [a-z]{1,12}){3}";
static const char date[] = "{\"type\": \"string\", \"format\": \"date\"}";
static const char endless[] = "root ::= ([a-z]+ \" \")*";

static struct grammar_source source_of(const char *text)
{
    return (struct grammar_source){.kind = text[0] == 'r' ? GRAMMAR_GBNF : GRAMMAR_JSON_SCHEMA,
                                   .text = text,
                                   .bytes = strlen(text)};
}

/* Greedy, or sampled with that seed. grammar NULL: free. */
static struct engine_submit request(const char *grammar, uint64_t seed)
{
    struct engine_submit s;
    engine_submit_defaults(&s);
    s.prompt = test_prompt(0);
    s.prompt_bytes = strlen(s.prompt);
    s.max_tokens = TOKENS;
    s.sampling.temperature = seed ? 1.0 : 0;
    s.sampling.seed = seed ? (int64_t)seed : -1;
    if (grammar)
        s.grammar = source_of(grammar);
    return s;
}

static void answer(struct engine *e, const struct engine_submit *s, struct text *out)
{
    generation_finish(generation_start_submit(e, s), FINISH_MS, out);
    CHECK(out->error.code == ERR_NONE, "%s", out->error.text);
}

/* The answer is a text of the grammar, or the beginning of one if its tokens ended. */
static void check_fits(const struct grammar_source *source, const struct text *t)
{
    struct error error;
    struct grammar *g;
    CHECK(grammar_compile(source, NULL, &g, &error) == 0, "%s", error.text);
    struct grammar_state *state = grammar_start(g);
    size_t bytes = strlen(t->text), taken = grammar_accept_text(state, t->text, bytes);
    bool cut = strcmp(t->finish, "length") == 0 && bytes - taken <= 3; /* U+FFFD of half a
                                                                        * character */
    CHECK(taken == bytes || cut, "the answer leaves the grammar at byte %zu: '%.200s', %.300s",
          taken, t->text, source->text);
    CHECK(strcmp(t->finish, "stop") != 0 || grammar_is_end(state), "not complete: '%.200s', %.300s",
          t->text, source->text);
    grammar_stop(state);
    grammar_free(g);
}

/* ---- random schemas ---- */

static void add_case(FILE *out, const char *schema, const struct text *t)
{
    json_t *line = json_pack("{s:s, s:s}", "schema", schema, "answer", t->text);
    CHECK(line && json_dumpf(line, out, JSON_COMPACT) == 0 && fputc('\n', out) == '\n',
          "cannot write an answer");
    json_decref(line);
}

/* An answer to a schema: whether it is complete. One that is not is counted only: its tokens ended,
 * because a model that repeats itself does not close a text. */
static bool answer_one(struct engine *e, const char *schema, uint64_t seed, FILE *out)
{
    struct text t;
    struct engine_submit s = request(schema, seed);
    s.grammar.kind = GRAMMAR_JSON_SCHEMA;
    s.max_tokens = LONGEST;
    answer(e, &s, &t);
    check_fits(&s.grammar, &t);
    bool complete = strcmp(t.finish, "stop") == 0;
    if (complete)
        add_case(out, schema, &t);
    text_free(&t);
    return complete;
}

/* Greedy and sampled answers to each schema, which a line of `schemas` has. */
static void answer_all(struct engine *e, char *schemas, FILE *out)
{
    unsigned complete = 0, number = 0;
    char *rest = schemas;
    for (char *schema; (schema = strsep(&rest, "\n")) != NULL;)
        if (*schema) {
            complete += answer_one(e, schema, 0, out);
            complete += answer_one(e, schema, 1 + number++, out);
        }
    test_note("%u schemas, 2 answers each: %u are complete, %u are too long", number, complete,
              2 * number - complete);
    CHECK(4 * complete >= 3 * 2 * number, "only %u of %u answers are complete", complete,
          2 * number);
}

static void random_schemas(unsigned first, const char *const options[])
{
    struct command made, checked;
    char count[16], seed[16], path[PATH_MAX];
    snprintf(count, sizeof count, "%u", test_amount(AMOUNT_grammar_schemas));
    snprintf(seed, sizeof seed, "%u", first);
    command_run(
        &made, NULL, TOOL_MS,
        (const char *const[]){"/usr/bin/env", "python3", "-B", SCRIPT, "make", count, seed, NULL});
    if (made.status == 77)
        test_skip("%s", made.out);
    CHECK(made.status == 0, "%.300s", made.err);
    FILE *out = fopen(path_in_dir(path, "answers"), "w");
    CHECK(out, "cannot write %s", path);
    struct engine *e = engine_new();
    engine_start(e, options);
    answer_all(e, made.out, out);
    fclose(out);
    engine_stop(e);
    command_run(
        &checked, NULL, TOOL_MS,
        (const char *const[]){"/usr/bin/env", "python3", "-B", SCRIPT, "check", path, NULL});
    CHECK(checked.status == 0, "%.500s%.300s", checked.out, checked.err);
    command_free(&made);
    command_free(&checked);
}

static void schemas_on_the_demo_model(void)
{
    random_schemas(1000, (const char *const[]){"--ctx-size=1024", NULL});
}

static void schemas_on_random_weights(void)
{
    char model[PATH_MAX];
    continued_make(model, (const char *const[]){NULL});
    random_schemas(2000, (const char *const[]){"--ctx-size=1024", "-m", model, NULL});
}

/* ---- the same text ---- */

static void killed_in_the_middle(void)
{
    static const char *const grammars[] = {person, words};
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=1024", NULL});
    for (unsigned i = 0; i < 2 * ARRAY_LEN(grammars); i++) {
        struct engine_submit s = request(grammars[i / 2], i % 2 ? 7 + i : 0);
        struct text alone, got;
        answer(e, &s, &alone);
        check_fits(&s.grammar, &alone);
        for (size_t at = 2; at < alone.count; at += alone.count / 3 + 1) {
            pid_t pid = engine_pid(e, "compute", 0, 0);
            struct generation *g = generation_start_submit(e, &s);
            uint64_t deadline = deadline_in(FINISH_MS);
            while (generation_tokens(g) < at && !generation_done(g))
                CHECK(deadline_tick(deadline), "no tokens");
            continued_kill(e, pid);
            generation_finish(g, FINISH_MS, &got);
            text_check_same(&alone, &got, "after a kill of compute");
            text_free(&got);
        }
        text_free(&alone);
    }
    engine_stop(e);
}

static void beside_others(void)
{
    static const char *const grammars[] = {person, NULL, words, date, endless};
    struct text alone[ARRAY_LEN(grammars)], got;
    struct generation *g[ARRAY_LEN(grammars)];
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=2048", "--parallel=5", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(grammars); i++) {
        struct engine_submit s = request(grammars[i], i % 2 ? 3 + i : 0);
        answer(e, &s, &alone[i]);
    }
    for (unsigned i = 0; i < ARRAY_LEN(grammars); i++) {
        struct engine_submit s = request(grammars[i], i % 2 ? 3 + i : 0);
        g[i] = generation_start_submit(e, &s);
    }
    for (unsigned i = 0; i < ARRAY_LEN(grammars); i++) {
        generation_finish(g[i], FINISH_MS, &got);
        text_check_same(&alone[i], &got, "beside others");
        text_free(&got);
        text_free(&alone[i]);
    }
    engine_stop(e);
}

static void forced_tokens_one_by_one(void)
{
    static const char *const grammars[] = {person, date, words};
    struct text ahead[6], got;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=1024", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(ahead); i++) {
        struct engine_submit s = request(grammars[i / 2], i % 2 ? 11 + i : 0);
        answer(e, &s, &ahead[i]);
        check_fits(&s.grammar, &ahead[i]);
    }
    uint64_t forced = engine_counter(e, "compute", "tokens_forced");
    uint64_t passes = engine_counter(e, "compute", "passes");
    CHECK(forced > 20, "only %llu tokens were forced", (unsigned long long)forced);
    json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", "COMPUTE_ONE_BY_ONE")));
    for (unsigned i = 0; i < ARRAY_LEN(ahead); i++) {
        struct engine_submit s = request(grammars[i / 2], i % 2 ? 11 + i : 0);
        answer(e, &s, &got);
        text_check_same(&ahead[i], &got, "one by one");
        text_free(&got);
        text_free(&ahead[i]);
    }
    CHECK(engine_counter(e, "compute", "tokens_forced") == forced, "tokens were forced");
    uint64_t more = engine_counter(e, "compute", "passes") - passes;
    test_note("%llu passes, one by one %llu", (unsigned long long)passes, (unsigned long long)more);
    CHECK(more > passes, "forced tokens saved no pass");
    engine_stop(e);
}

/* ---- where it begins, and what else a request may demand ---- */

/* The free text before a mark is that of a request without a grammar. */
static void behind_a_mark(void)
{
    struct text whole, got;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=1024", NULL});
    struct engine_submit s = request(NULL, 0);
    s.ignore_eos = true;
    answer(e, &s, &whole);
    char mark[4] = ""; /* ends where a token does: a longer one would not fit */
    const char *stop = strchr(whole.text + 2, '.');
    CHECK(stop, "a text without an end: %s", whole.text);
    memcpy(mark, stop - 2, 3);
    size_t at = (size_t)(strstr(whole.text, mark) - whole.text);
    s = request(words, 0);
    s.grammar.close = mark;
    answer(e, &s, &got);
    check_fits(&s.grammar, &got);
    CHECK(strncmp(got.text, whole.text, at + strlen(mark)) == 0,
          "not the free text, '%.200s': '%.200s'", whole.text, got.text);
    const char *rest = got.text + at + strlen(mark);
    rest += strspn(rest, "\n");
    CHECK(strncmp(rest, "* ", 2) == 0 && strcmp(got.finish, "stop") == 0, "behind the mark: %s",
          rest);
    text_free(&got);
    s.grammar.close = NULL;
    s.grammar.trigger = "\x01 never";
    s.ignore_eos = true;
    answer(e, &s, &got);
    CHECK(strcmp(got.text, whole.text) == 0, "a trigger that never comes changed the text: %s",
          got.text);
    text_free(&got);
    text_free(&whole);
    engine_stop(e);
}

struct tops {
    size_t tokens, lists;
};

static void check_tops(const struct engine_next *next, void *arg)
{
    struct tops *t = arg;
    for (size_t i = 0; i < next->count; i++, t->lists++) {
        const struct engine_top *top = next->top + i * next->top_each;
        CHECK(next->top_each == ENGINE_TOP_MAX, "%u tokens", next->top_each);
        CHECK(top[0].id == next->ids[i], "the greedy token is not the first");
        CHECK(fabs(top[0].logprob - next->logprobs[i]) < 1e-6, "two log-probabilities");
        for (uint32_t j = 1; j < next->top_each; j++)
            CHECK(top[j].logprob <= top[j - 1].logprob, "not in order");
    }
    t->tokens += next->count;
}

static void biases_and_most_probable(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=1024", NULL});
    struct text t;
    struct engine_submit s = request(NULL, 0);
    struct sampler_bias bias = {65, (float)ENGINE_BIAS_MAX};
    s.bias = &bias;
    s.bias_count = 1;
    s.max_tokens = 5;
    answer(e, &s, &t);
    for (size_t i = 0; i < t.count; i++)
        CHECK(t.ids[i] == 65, "token %u in spite of the bias", t.ids[i]);
    text_free(&t);
    bias.id = 1u << 30;
    generation_finish(generation_start_submit(e, &s), FINISH_MS, &t);
    CHECK(t.error.code == ERR_BAD_INPUT, "a bias of no token: %s", t.error.text);
    text_free(&t);
    s = request(NULL, 0);
    s.top_logprobs = ENGINE_TOP_MAX;
    s.max_tokens = 300; /* several replies, and more than one step of memory */
    s.ignore_eos = true;
    struct session session = {.log_fd = -1, .engine = NULL};
    struct stream_result result;
    struct error error;
    struct tops tops = {0};
    snprintf(session.run, sizeof session.run, "%s", e->run);
    session.engine = engine_client_open(e->run, &error);
    CHECK(session.engine, "%s", error.text);
    CHECK(stream_run(&session, &s, check_tops, &tops, &result, &error) == 0, "%s", error.text);
    CHECK(tops.lists == 300 && tops.tokens == 300, "%zu lists of %zu tokens", tops.lists,
          tops.tokens);
    stream_result_free(&result);
    rpc_client_close(session.engine);
    engine_stop(e);
}

/* ---- refusals ---- */

static const struct {
    const char *grammar, *why;
} refused[] = {
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"not\": {}}}}", "$.properties.a"},
    {"{\"type\": \"string\", \"pattern\": \"(?=x)y\"}", "pattern"},
    {"{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 4}", "minimum"},
    {"{\"type\": ", "JSON Schema"},
    {"root ::= \"a", "line 1"},
    {"root ::= root \"a\"", "begins with itself"},
};

static void refused_before_it_is_computed(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=1024", NULL});
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct text t;
        struct engine_submit s = request(refused[i].grammar, 0);
        generation_finish(generation_start_submit(e, &s), FINISH_MS, &t);
        CHECK(t.error.code == ERR_BAD_INPUT && strstr(t.error.text, refused[i].why), "%s: %s",
              refused[i].grammar, t.error.text);
        text_free(&t);
    }
    CHECK(engine_counter(e, "compute", "passes") == 0, "something was computed");
    CHECK(engine_counter(e, "compute", "grammar_errors") == ARRAY_LEN(refused), "errors");
    CHECK(engine_counter(e, "compute", "sequences_constrained") == 0, "sequences");
    engine_stop(e);
}

/* A vocabulary without a byte of the text: the pass has no token, so that a successor must find the
 * reason again. */
static void no_token_fits(void)
{
    static const struct script_token tokens[] = {{"<|end|>", SCRIPT_CONTROL}, {NULL, SCRIPT_TEXT}};
    static const struct script script = {.tokens = tokens,
                                         .missing = "\xf1",
                                         .eos = "<|end|>",
                                         .chat_template = "{{ messages[0].content }}"};
    static const char *const grammars[] = {"root ::= [\\U00040000-\\U00040001]",
                                           "root ::= [a-c]{5} [\\U00040000-\\U00040001]"};
    char path[PATH_MAX];
    scripted_model_make(path, "missing.gguf", &script);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--ctx-size=512", NULL});
    for (unsigned i = 0; i < 2 * ARRAY_LEN(grammars); i++) {
        struct text t;
        struct engine_submit s = request(grammars[i / 2], 0);
        s.prompt = "one two";
        s.prompt_bytes = strlen(s.prompt);
        pid_t pid = engine_pid(e, "compute", 0, 0);
        if (i % 2)
            json_decref(engine_control(
                e, "inject",
                json_pack("{s:s, s:i}", "point", "COMPUTE_ROWS_COMMITTED", "arg", i / 2 * 5)));
        struct generation *g = generation_start_submit(e, &s);
        for (uint64_t deadline = deadline_in(FINISH_MS); i % 2 && process_state(pid) != 'T';)
            CHECK(deadline_tick(deadline), "compute did not reach the point");
        if (i % 2)
            continued_kill(e, pid);
        generation_finish(g, FINISH_MS, &t);
        CHECK(t.error.code == ERR_GRAMMAR && strstr(t.error.text, "no token of the vocabulary"),
              "row %u: %s", i, t.error.text);
        text_free(&t);
    }
    engine_stop(e);
}

static void generate_with_a_schema(void)
{
    char good[PATH_MAX], bad[PATH_MAX];
    struct command c;
    FILE *f = fopen(path_in_dir(good, "good.json"), "w");
    CHECK(f && fputs(person, f) >= 0 && fclose(f) == 0, "cannot write %s", good);
    f = fopen(path_in_dir(bad, "bad.json"), "w");
    CHECK(f && fputs(refused[0].grammar, f) >= 0 && fclose(f) == 0, "cannot write %s", bad);
    json_t *value =
        command_json(FINISH_MS, (const char *const[]){"generate", "-q", "-m", test_model(), "-p",
                                                      "A person:", "--temperature", "0",
                                                      "--json-schema", good, NULL});
    CHECK(json_is_string(json_object_get(value, "the_full_name_of_the_person")) &&
              json_array_size(json_object_get(value, "favourite_colours")) >= 2,
          "not the object of the schema");
    json_decref(value);
    command_run(
        &c, NULL, TOOL_MS,
        (const char *const[]){"generate", "-m", "/nowhere", "-p", "x", "--json-schema", bad, NULL});
    CHECK(c.status == 2 && strstr(c.err, "$.properties.a") && strstr(c.err, "not"), "status %d: %s",
          c.status, c.err);
    command_free(&c);
}

/* With and without a grammar in turn, both sampled. */
static void bench_with_and_without(void)
{
    char schema[PATH_MAX];
    struct command c;
    FILE *f = fopen(path_in_dir(schema, "schema"), "we");
    CHECK(f &&
              fputs("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":9},"
                    "\"minItems\":9}",
                    f) >= 0 &&
              fclose(f) == 0,
          "cannot write %s", schema);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        command_run(&c, NULL, TOOL_MS,
                    (const char *const[]){"bench", "-m", test_model(), "-p", "0", "-n", "24", "-r",
                                          "2", "--vary", "grammar=on,off", "--json-schema", schema,
                                          "--compare", "1,2", "-o", "json",
                                          interleaved ? "--interleave=4" : NULL, NULL});
        CHECK(c.status == 0, "%.400s", c.err);
        json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
        CHECK(doc, "not JSON: %.200s", c.out);
        for (size_t i = 0; i < 4; i++) {
            const json_t *test = json_array_get(
                json_object_get(json_array_get(json_object_get(doc, "variants"), i / 2), "tests"),
                0);
            const json_t *counters = json_object_get(
                json_array_get(json_object_get(test, "samples"), i % 2), "counters");
            CHECK(lookup_u64(counters, "compute.sequences_constrained") == (i < 2 ? 1 : 0),
                  "variant %zu: the grammar", i / 2 + 1);
        }
        CHECK(json_number_value(json_object_get(
                  json_array_get(json_object_get(doc, "comparisons"), 0), "cpu_ratio")) > 0,
              "no ratio by CPU time");
        json_decref(doc);
        command_free(&c);
    }
    command_run(
        &c, NULL, TOOL_MS,
        (const char *const[]){"bench", "-m", test_model(), "--vary", "grammar=on,off", NULL});
    CHECK(c.status == 2 && strstr(c.err, "--json-schema or --grammar"), "%.300s", c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(schemas_on_the_demo_model), ROW(schemas_on_random_weights),
        ROW(killed_in_the_middle),      ROW(beside_others),
        ROW(forced_tokens_one_by_one),  ROW(behind_a_mark),
        ROW(biases_and_most_probable),  ROW(refused_before_it_is_computed),
        ROW(generate_with_a_schema),    ROW(no_token_fits),
        ROW(bench_with_and_without),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
