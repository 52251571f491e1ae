/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities over HTTP: of the tokens of a prompt that is echoed, as harnesses that evaluate
 * models ask for them, compared with those of a completion of each of its beginnings; and in the
 * other dialects. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/fixtures.h"

#define COMPLETIONS "/v1/completions"
#define TEXT        "It was a dark and stormy night, and the queen said that she would"
#define TOPS        20

static json_t *call(unsigned port, const char *path, json_t *body)
{
    struct http h;
    char *text = json_dumps(body, 0);
    http_call(&h, port, path, NULL, text, 200);
    json_t *doc = http_json(&h);
    http_close(&h);
    free(text);
    json_decref(body);
    return doc;
}

static const json_t *choice_of(const json_t *doc)
{
    return json_array_get(json_object_get(doc, "choices"), 0);
}

static const json_t *list(const json_t *doc, const char *name)
{
    return json_object_get(json_object_get(choice_of(doc), "logprobs"), name);
}

/* The tokens are at their offsets, and make up the text. */
static void check_offsets(const json_t *doc, size_t count)
{
    const char *text = lookup_text(choice_of(doc), "text");
    size_t at = 0;
    CHECK(json_array_size(list(doc, "tokens")) == count &&
              json_array_size(list(doc, "token_logprobs")) == count &&
              json_array_size(list(doc, "text_offset")) == count,
          "%zu tokens, not %zu", json_array_size(list(doc, "tokens")), count);
    for (size_t i = 0; i < count; i++) {
        const char *token = json_string_value(json_array_get(list(doc, "tokens"), i));
        CHECK((size_t)json_integer_value(json_array_get(list(doc, "text_offset"), i)) == at &&
                  strncmp(text + at, token, strlen(token)) == 0,
              "token %zu, '%s', is not at %zu of '%s'", i, token, at, text);
        at += strlen(token);
    }
    CHECK(!text[at], "'%s' is in no token", text + at);
}

/* Each value is that of a completion of the tokens before it, if that reports it. Returns how many
 * were compared. */
static size_t check_values(unsigned port, const json_t *doc, const json_t *ids)
{
    size_t compared = 0, count = json_array_size(ids);
    json_t *before = json_array();
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list(doc, "token_logprobs"), i),
                     *top = json_array_get(list(doc, "top_logprobs"), i);
        CHECK(i > 0 || (json_is_null(value) && json_is_null(top)), "the first token has values");
        if (i > 0) {
            json_t *one = call(port, COMPLETIONS,
                               json_pack("{s:O, s:i, s:i, s:i}", "prompt", before, "max_tokens", 1,
                                         "temperature", 0, "logprobs", TOPS));
            const json_t *all = json_array_get(list(one, "top_logprobs"), 0);
            const char *token = json_string_value(json_array_get(list(doc, "tokens"), i));
            const json_t *expected = json_object_get(all, token);
            CHECK(!expected || json_equal(expected, value), "token %zu: %.17g, not %.17g", i,
                  json_real_value(value), json_real_value(expected));
            CHECK(json_equal(top, all), "token %zu: other alternatives", i);
            compared += expected != NULL;
            json_decref(one);
        }
        json_array_append(before, json_array_get(ids, i));
    }
    json_decref(before);
    return compared;
}

static json_t *echo(unsigned port, json_t *prompt, int tokens, int tops)
{
    return call(port, COMPLETIONS,
                json_pack("{s:o, s:b, s:i, s:i, s:i, s:b}", "prompt", prompt, "echo", 1, "logprobs",
                          tops, "max_tokens", tokens, "temperature", 0, "ignore_eos", 1));
}

static json_t *ids_of(unsigned port, const char *text)
{
    json_t *doc =
        call(port, "/tokenize", json_pack("{s:s, s:b}", "content", text, "add_special", 1));
    json_t *ids = json_incref(json_object_get(doc, "tokens"));
    json_decref(doc);
    return ids;
}

/* Of ids, as a list of one list; with a kept prompt and without. */
static void echo_of_ids(void)
{
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    json_t *ids = ids_of(port, TEXT);
    size_t count = json_array_size(ids);
    json_t *doc = echo(port, json_pack("[O]", ids), 1, TOPS);
    check_offsets(doc, count + 1);
    size_t compared = check_values(port, doc, ids);
    CHECK(compared * 2 > count, "only %zu of %zu were compared", compared, count);
    json_t *again = echo(port, json_incref(ids), 1, TOPS); /* all of its prompt is kept by now */
    CHECK(json_equal(choice_of(doc), choice_of(again)), "another answer with a kept prompt");
    CHECK(lookup_u64(again, "usage.prompt_tokens") == count &&
              lookup_u64(again, "usage.completion_tokens") == 1,
          "wrong usage");
    json_decref(again);
    again = echo(port, json_incref(ids), 1, 0);
    CHECK(json_equal(list(doc, "token_logprobs"), list(again, "token_logprobs")) &&
              json_is_null(list(again, "top_logprobs")),
          "other values without alternatives");
    json_decref(again);
    json_decref(doc);
    json_decref(ids);
    engine_stop(e);
}

/* Of a text, which the answer begins with; without a new token, and with stop texts and several
 * answers. */
static void echo_of_a_text(void)
{
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    json_t *ids = ids_of(port, TEXT), *doc = echo(port, json_string(TEXT), 0, 1);
    size_t count = json_array_size(ids);
    check_offsets(doc, count);
    CHECK(strcmp(lookup_text(choice_of(doc), "text"), TEXT) == 0 &&
              strcmp(lookup_text(choice_of(doc), "finish_reason"), "length") == 0 &&
              lookup_u64(doc, "usage.completion_tokens") == 0,
          "'%s'", lookup_text(choice_of(doc), "text"));
    json_decref(doc);
    json_decref(ids);
    char *next = completion_text(port, TEXT, 12);
    doc = echo(port, json_string(TEXT), 12, 1);
    check_offsets(doc, count + 12);
    CHECK(strcmp(lookup_text(choice_of(doc), "text") + strlen(TEXT), next) == 0, "'%s', not '%s'",
          lookup_text(choice_of(doc), "text"), next);
    json_t *two = call(port, COMPLETIONS,
                       json_pack("{s:s, s:b, s:i, s:i, s:i, s:b, s:i, s:[s]}", "prompt", TEXT,
                                 "echo", 1, "logprobs", 1, "max_tokens", 12, "temperature", 0,
                                 "ignore_eos", 1, "n", 2, "stop", "the queen"));
    for (size_t i = 0; i < 2; i++) /* the stop text is in the prompt, and does not end the answer */
        CHECK(strcmp(lookup_text(json_array_get(json_object_get(two, "choices"), i), "text"),
                     lookup_text(choice_of(doc), "text")) == 0,
              "answer %zu differs", i);
    CHECK(lookup_u64(two, "usage.completion_tokens") == 24, "wrong usage");
    json_decref(two);
    json_decref(doc);
    free(next);
    engine_stop(e);
}

/* Control tokens of a text have the names that the client wrote, and its blanks stay. */
static void echo_of_control_tokens(void)
{
    unsigned port;
    static const char *const prompts[] = {"<|endoftext|> hi", "a<|endoftext|>", "  hi"};
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
        json_t *doc = call(port, COMPLETIONS,
                           json_pack("{s:s, s:b, s:b, s:i, s:i}", "prompt", prompts[i], "special",
                                     1, "echo", 1, "logprobs", 0, "max_tokens", 0));
        const char *text = lookup_text(choice_of(doc), "text");
        CHECK(strcmp(text, prompts[i]) == 0, "'%s', not '%s'", text, prompts[i]);
        check_offsets(doc, lookup_u64(doc, "usage.prompt_tokens"));
        json_decref(doc);
    }
    engine_stop(e);
}

/* Events have the same text and tokens together, and the prompt is none of the new tokens. */
static void echo_streamed(void)
{
    unsigned port;
    struct http h;
    struct events got;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    json_t *doc = echo(port, json_string(TEXT), 5, 0);
    completion_call(&h, port, TEXT, 5,
                    "\"echo\":true,\"logprobs\":0,\"stream\":true,"
                    "\"stream_options\":{\"include_usage\":true}",
                    200);
    http_events(&h, &got);
    CHECK(strcmp(got.text, lookup_text(choice_of(doc), "text")) == 0 && got.done &&
              got.completion_tokens == 5,
          "%.300s", h.body);
    free(got.text);
    http_close(&h);
    json_decref(doc);
    engine_stop(e);
}

/* Killed while it computes the prompt or the answer, compute returns the same values. */
static void killed(void)
{
    unsigned port;
    struct http h;
    struct events got, expected;
    static const char more[] = "\"echo\":true,\"logprobs\":2,\"stream\":true";
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--resident-experts=25", NULL});
    completion_call(&h, port, TEXT, 40, more, 200);
    http_events(&h, &expected);
    http_close(&h);
    for (int round = 0; round < 2; round++) {
        pid_t pid = engine_pid(e, "compute", 0, 0);
        char *body = completion_body(TEXT, 40, more);
        http_open(&h, port, COMPLETIONS, NULL, body);
        CHECK(http_wait_times(&h, "data: ", round ? 3 : 1, END_MS), "no event");
        kill(pid, SIGKILL);
        http_finish(&h, END_MS);
        http_events(&h, &got);
        CHECK(strcmp(got.text, expected.text) == 0 && got.done, "'%s', not '%s'", got.text,
              expected.text);
        free(got.text);
        free(body);
        http_close(&h);
        engine_pid(e, "compute", 0, pid);
    }
    free(expected.text);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(echo_of_ids), ROW(echo_of_a_text),
                                             ROW(echo_of_control_tokens), ROW(echo_streamed),
                                             ROW(killed)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
