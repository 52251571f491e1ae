/* SPDX-License-Identifier: Apache-2.0 */
/* Several answers to one request: each is the answer that a request with its own seed gets.
 * Responses that are stored, fetched, continued and deleted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"

#define PATH    "/v1/completions"
#define ANSWERS 4
#define TOKENS  12
#define PROMPT  "Once upon a time"
#define SAMPLED "\"max_tokens\":12,\"temperature\":1,\"ignore_eos\":true,\"prompt\":\"" PROMPT "\","

static json_t *ask(unsigned port, const char *fields, int status)
{
    struct http h;
    char body[400];
    snprintf(body, sizeof body, "{" SAMPLED "%s}", fields);
    http_call(&h, port, PATH, NULL, body, status);
    json_t *doc = http_json(&h);
    http_close(&h);
    return doc;
}

static const char *text_of(const json_t *doc, size_t index)
{
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), index);
    CHECK(lookup_u64(choice, "index") == index, "choice %zu has another index", index);
    return lookup_text(choice, "text");
}

static void check_usage(const json_t *doc, uint64_t prompt, uint64_t tokens)
{
    CHECK(lookup_u64(doc, "usage.prompt_tokens") == prompt &&
              lookup_u64(doc, "usage.completion_tokens") == tokens,
          "usage: %s", json_dumps(doc, 0));
}

/* The texts of one answer each, with consecutive seeds; returns the tokens of the prompt. */
static uint64_t expected(unsigned port, char *texts[ANSWERS])
{
    uint64_t prompt = 0;
    for (int i = 0; i < ANSWERS; i++) {
        char seed[40];
        snprintf(seed, sizeof seed, "\"seed\":%d", 7 + i);
        json_t *doc = ask(port, seed, 200);
        texts[i] = strdup(text_of(doc, 0));
        prompt = lookup_u64(doc, "usage.prompt_tokens");
        json_decref(doc);
    }
    CHECK(strcmp(texts[0], texts[1]) != 0, "two seeds, one text");
    return prompt;
}

/* Adds the texts of events to those of their answers. */
static void take_events(const struct http *h, char texts[ANSWERS][400], size_t finished[ANSWERS])
{
    for (const char *at = h->body; (at = strstr(at, "data: {")) != NULL; at++) {
        json_t *event = json_loadb(at + 6, strcspn(at, "\n") - 6, 0, NULL);
        const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
        size_t i = (size_t)lookup_u64(choice, "index");
        CHECK(event && i < ANSWERS, "%.200s", at);
        if (choice) {
            CHECK(finished[i] == 0, "answer %zu has text after its end", i);
            strcat(texts[i], lookup_text(choice, "text"));
            finished[i] += lookup_text(choice, "finish_reason")[0] != 0;
        } else {
            check_usage(event, lookup_u64(event, "usage.prompt_tokens"), ANSWERS * TOKENS);
        }
        json_decref(event);
    }
}

static void check_stream(unsigned port, char *texts[ANSWERS])
{
    struct http h;
    char got[ANSWERS][400] = {""};
    size_t finished[ANSWERS] = {0};
    http_call(&h, port, PATH, NULL,
              "{" SAMPLED
              "\"seed\":7,\"n\":4,\"stream\":true,\"stream_options\":{\"include_usage\":"
              "true}}",
              200);
    take_events(&h, got, finished);
    CHECK(strstr(h.body, "data: [DONE]\n\n"), "the stream was cut off");
    http_close(&h);
    for (int i = 0; i < ANSWERS; i++)
        CHECK(finished[i] == 1 && strcmp(got[i], texts[i]) == 0, "answer %d: '%s', not '%s'", i,
              got[i], texts[i]);
}

static void check_answers(const char *const options[])
{
    unsigned port;
    char *texts[ANSWERS];
    struct engine *e = gateway_start(&port, options);
    uint64_t prompt = expected(port, texts);
    json_t *doc = ask(port, "\"seed\":7,\"n\":4", 200);
    for (size_t i = 0; i < ANSWERS; i++)
        CHECK(strcmp(text_of(doc, i), texts[i]) == 0, "answer %zu: '%s', not '%s'", i,
              text_of(doc, i), texts[i]);
    check_usage(doc, prompt, ANSWERS * TOKENS);
    json_decref(doc);
    check_stream(port, texts);
    doc = ask(port, "\"seed\":7,\"best_of\":4", 200);
    size_t found = 0;
    for (size_t i = 0; i < ANSWERS; i++)
        found += strcmp(text_of(doc, 0), texts[i]) == 0;
    CHECK(found > 0, "the best one is none of them: '%s'", text_of(doc, 0));
    check_usage(doc, prompt, ANSWERS * TOKENS);
    json_decref(doc);
    doc = ask(port, "\"n\":5", 400);
    CHECK(strstr(lookup_text(doc, "error.message"), "at most 4"), "%s",
          lookup_text(doc, "error.message"));
    json_decref(doc);
    doc = ask(port, "\"seed\":7,\"echo\":true", 200);
    CHECK(strncmp(text_of(doc, 0), PROMPT, strlen(PROMPT)) == 0 &&
              strcmp(text_of(doc, 0) + strlen(PROMPT), texts[0]) == 0,
          "with echo: '%s'", text_of(doc, 0));
    json_decref(doc);
    for (int i = 0; i < ANSWERS; i++)
        free(texts[i]);
    engine_stop(e);
}

static void at_once(void)
{
    check_answers((const char *const[]){"--http=0", "--http-streams=4", NULL});
}

/* Two of the four wait for room in the queue. */
static void one_by_one(void)
{
    check_answers((const char *const[]){"--http=0", "--http-streams=4", "--parallel=1",
                                        "--max-queue=1", NULL});
}

/* Three of the four slots are taken. */
static void check_slots(unsigned port)
{
    struct http h;
    size_t busy = 0;
    http_call(&h, port, "/slots", NULL, NULL, 200);
    CHECK(!strstr(h.body, PROMPT), "another client's text: %.300s", h.body);
    json_t *all = http_json(&h);
    for (size_t i = 0; i < json_array_size(all); i++)
        busy += json_is_true(json_object_get(json_array_get(all, i), "is_processing"));
    CHECK(json_array_size(all) == 4 && busy == 3, "%zu of %zu slots", busy, json_array_size(all));
    json_decref(all);
    http_close(&h);
    http_call(&h, port, "/slots?fail_on_no_slot=1", NULL, NULL, 200);
    http_close(&h);
}

/* All sequences end when the client leaves. */
static void client_leaves(void)
{
    unsigned port;
    struct http h;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--parallel=4", NULL});
    http_open(&h, port, PATH, NULL,
              "{\"prompt\":\"" PROMPT "\",\"max_tokens\":100000,\"ignore_eos\":true,\"n\":3,"
              "\"stream\":true}");
    CHECK(http_wait(&h, "\"index\":2", END_MS), "no third answer");
    check_slots(port);
    http_close(&h);
    engine_wait_counter(e, "compute", "sequences_cancelled", 3, END_MS);
    engine_stop(e);
}

/* ---- stored responses ---- */

/* Steals the fields. */
static json_t *respond(unsigned port, json_t *fields, int status)
{
    struct http h;
    json_object_set_new(fields, "max_output_tokens", json_integer(8));
    json_object_set_new(fields, "temperature", json_integer(0));
    char *body = json_dumps(fields, 0);
    http_call(&h, port, "/v1/responses", NULL, body, status);
    json_t *doc = http_json(&h);
    http_close(&h);
    json_decref(fields);
    free(body);
    return doc;
}

/* The response, or an error. */
static json_t *stored(unsigned port, const char *method, const char *id, int status)
{
    struct http h = {.fd = http_connect(port)};
    char head[200];
    int n = snprintf(head, sizeof head, "%s /v1/responses/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                     method, id);
    http_write(h.fd, head, (size_t)n);
    http_finish(&h, END_MS);
    CHECK(h.status == status, "%s %s: status %d", method, id, h.status);
    json_t *doc = http_json(&h);
    http_close(&h);
    return doc;
}

static void check_missing(json_t *error)
{
    CHECK(strstr(lookup_text(error, "error.message"), "not found") &&
              strcmp(lookup_text(error, "error.code"), "not_found") == 0,
          "%s", lookup_text(error, "error.message"));
    json_decref(error);
}

static const char *output_text(const json_t *response)
{
    const json_t *item = json_array_get(json_object_get(response, "output"), 0);
    return lookup_text(json_array_get(json_object_get(item, "content"), 0), "text");
}

/* A continued response has the prompt of the whole conversation. */
static void check_continued(unsigned port, const json_t *first)
{
    json_t *next = respond(
        port,
        json_pack("{s:s, s:s}", "input", "More", "previous_response_id", lookup_text(first, "id")),
        200);
    json_t *whole =
        respond(port,
                json_pack("{s:b, s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]}", "store", 0, "input",
                          "role", "user", "content", "Hello", "role", "assistant", "content",
                          output_text(first), "role", "user", "content", "More"),
                200);
    CHECK(lookup_u64(next, "usage.input_tokens") == lookup_u64(whole, "usage.input_tokens") &&
              strcmp(output_text(next), output_text(whole)) == 0 &&
              strcmp(lookup_text(next, "previous_response_id"), lookup_text(first, "id")) == 0,
          "'%s', not '%s'", output_text(next), output_text(whole));
    check_missing(stored(port, "GET", lookup_text(whole, "id"), 404));
    json_decref(next);
    json_decref(whole);
}

static void responses(void)
{
    unsigned port;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--http-stored-count=2", NULL});
    json_t *first = respond(port, json_pack("{s:s}", "input", "Hello"), 200);
    const char *id = lookup_text(first, "id");
    json_t *got = stored(port, "GET", id, 200);
    CHECK(json_equal(first, got), "another response was stored");
    json_decref(got);
    check_continued(port, first);
    got = stored(port, "DELETE", id, 200);
    CHECK(json_is_true(json_object_get(got, "deleted")), "it is not deleted");
    json_decref(got);
    check_missing(stored(port, "GET", id, 404));
    check_missing(stored(port, "DELETE", id, 404));
    check_missing(
        respond(port, json_pack("{s:s, s:s}", "input", "x", "previous_response_id", id), 404));
    json_decref(first);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(at_once), ROW(one_by_one), ROW(client_leaves),
                                             ROW(responses)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
