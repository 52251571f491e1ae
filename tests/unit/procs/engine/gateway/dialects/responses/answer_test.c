/* SPDX-License-Identifier: Apache-2.0 */
/* Responses and their events: each item is the same wherever it occurs. */
#include <stdio.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/responses/responses.h"
#include "tests/unit/procs/engine/gateway/dialects/recorded.h"

#define TEXT "<think>ab</think>cd" RECORDED_CALL("f", "{\"a\": 1}")

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* The events of a stream; names and types agree, and the numbers rise from 0. */
static json_t *events_of(const struct completion *c)
{
    json_t *all = json_array();
    char *out = strndup(c->out.data, c->out.bytes), *rest = out;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
        char *data = strsep(&rest, "\n");
        ck_assert(strncmp(line, "event: ", 7) == 0 && strncmp(data, "data: ", 6) == 0);
        json_t *event = json_loads(data + 6, 0, NULL);
        ck_assert_str_eq(line + 7, text_of(event, "type"));
        ck_assert_uint_eq((size_t)json_integer_value(json_object_get(event, "sequence_number")),
                          json_array_size(all));
        json_array_append_new(all, event);
        ck_assert_str_eq(strsep(&rest, "\n"), "");
    }
    free(out);
    return all;
}

static bool with_logprobs; /* of the answers that follow */

static json_t *streamed(const char *text, enum finish finish)
{
    struct recorded r = {.dialect = &responses, .text = text, .logprobs = with_logprobs};
    struct quota quota;
    struct completion c;
    recorded_open(&c, &r, true, &quota);
    recorded_take(&c, r.text);
    completion_end(&c, finish, NULL);
    ck_assert(!c.failed);
    json_t *events = events_of(&c);
    completion_free(&c);
    ck_assert_uint_eq(quota.buffered, 0);
    return events;
}

static json_t *whole(const char *text, enum finish finish)
{
    struct recorded r = {.dialect = &responses, .text = text, .logprobs = with_logprobs};
    struct quota quota;
    struct completion c;
    size_t bytes;
    recorded_open(&c, &r, false, &quota);
    recorded_take(&c, r.text);
    completion_end(&c, finish, NULL);
    char *body = completion_whole(&c, &bytes);
    json_t *doc = json_loads(body, 0, NULL);
    ck_assert_ptr_nonnull(doc);
    free(body);
    completion_free(&c);
    return doc;
}

static json_t *last_response(const json_t *events)
{
    return json_object_get(json_array_get(events, json_array_size(events) - 1), "response");
}

START_TEST(items)
{
    static const char *const types[] = {"reasoning", "message", "function_call"};
    json_t *events = streamed(TEXT, FINISH_END), *event, *response = last_response(events);
    size_t i, ended = 0, added = 0;
    ck_assert_uint_eq(json_array_size(json_object_get(response, "output")), ARRAY_LEN(types));
    json_array_foreach(events, i, event)
    {
        const json_t *item = json_object_get(event, "item");
        if (strcmp(text_of(event, "type"), "response.output_item.added") == 0) {
            ck_assert_str_eq(text_of(item, "type"), types[added++]);
            ck_assert_str_eq(text_of(item, "status"), "in_progress");
        }
        if (strcmp(text_of(event, "type"), "response.output_item.done") != 0)
            continue;
        const json_t *same = json_array_get(json_object_get(response, "output"), ended++);
        ck_assert(json_equal(item, same) && ended == added);
    }
    ck_assert_uint_eq(ended, ARRAY_LEN(types));
    json_t *doc = whole(TEXT, FINISH_END);
    ck_assert(json_equal(json_object_get(doc, "output"), json_object_get(response, "output")));
    ck_assert(json_equal(doc, response));
    json_decref(doc);
    json_decref(events);
}
END_TEST

/* Log-probabilities are in the deltas, and in a response that is not streamed; where a stream
 * repeats a text, it has none. */
START_TEST(logprobs)
{
    with_logprobs = true;
    json_t *events = streamed(TEXT, FINISH_END), *event, *doc = whole(TEXT, FINISH_END);
    json_t *item = json_array_get(json_object_get(doc, "output"), 1);
    json_t *all = json_object_get(json_array_get(json_object_get(item, "content"), 0), "logprobs");
    size_t i, deltas = 0;
    ck_assert_uint_eq(json_array_size(all), 2);
    ck_assert_str_eq(text_of(json_array_get(all, 1), "token"), "d");
    json_array_foreach(events, i, event)
    {
        json_t *own = json_object_get(event, "logprobs");
        if (strcmp(text_of(event, "type"), "response.output_text.delta") == 0)
            ck_assert(json_equal(json_array_get(own, 0), json_array_get(all, deltas++)));
        else if (strcmp(text_of(event, "type"), "response.output_text.done") == 0)
            ck_assert(json_is_array(own) && json_array_size(own) == 0);
        else
            ck_assert_ptr_null(own);
    }
    ck_assert_uint_eq(deltas, 2);
    json_array_clear(all);
    ck_assert(json_equal(doc, last_response(events)));
    json_decref(events);
    json_decref(doc);
    with_logprobs = false;
}
END_TEST

/* The pieces of each text make up its item. */
START_TEST(deltas)
{
    static const struct {
        const char *delta, *done, *member, *text;
    } rows[] = {
        {"response.reasoning_text.delta", "response.reasoning_text.done", "text", "ab"},
        {"response.output_text.delta", "response.output_text.done", "text", "cd"},
        {"response.function_call_arguments.delta", "response.function_call_arguments.done",
         "arguments", "{\"a\":1}"},
    };
    json_t *events = streamed(TEXT, FINISH_END), *event;
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        char sum[40] = "";
        const char *done = "";
        size_t i;
        json_array_foreach(events, i, event)
        {
            if (strcmp(text_of(event, "type"), rows[k].delta) == 0)
                strcat(sum, text_of(event, "delta"));
            if (strcmp(text_of(event, "type"), rows[k].done) == 0)
                done = text_of(event, rows[k].member);
        }
        ck_assert_str_eq(sum, rows[k].text);
        ck_assert_str_eq(done, rows[k].text);
    }
    json_decref(events);
}
END_TEST

static json_t *member_of_event(const json_t *snapshot, const json_t *event, const char *member)
{
    size_t item = (size_t)json_integer_value(json_object_get(event, "output_index"));
    return json_object_get(json_array_get(json_object_get(snapshot, "output"), item), member);
}

static void append_text(json_t *object, const char *member, const json_t *event)
{
    ck_assert(json_is_string(json_object_get(object, member)));
    json_object_set_new(object, member,
                        json_sprintf("%s%s", text_of(object, member), text_of(event, "delta")));
}

/* As openai-node does: a response replaces what is gathered, and text is added to a part that has
 * to be there. A new reference: the response before the last event. */
static json_t *gather(const json_t *events)
{
    json_t *snapshot = NULL, *event, *all = (json_t *)(uintptr_t)events;
    size_t i, left = json_array_size(events) - 1;
    json_array_foreach(all, i, event)
    {
        const char *type = text_of(event, "type");
        json_t *content = snapshot ? member_of_event(snapshot, event, "content") : NULL;
        if (left-- == 0)
            break;
        if (json_object_get(event, "response")) {
            json_decref(snapshot);
            snapshot = json_deep_copy(json_object_get(event, "response"));
        } else if (strcmp(type, "response.output_item.added") == 0) {
            json_array_append_new(json_object_get(snapshot, "output"),
                                  json_deep_copy(json_object_get(event, "item")));
        } else if (strcmp(type, "response.content_part.added") == 0) {
            json_array_append_new(content, json_deep_copy(json_object_get(event, "part")));
        } else if (strcmp(type, "response.function_call_arguments.delta") == 0) {
            json_t *output = json_object_get(snapshot, "output");
            append_text(json_array_get(output, json_array_size(output) - 1), "arguments", event);
        } else if (json_object_get(event, "delta")) {
            ck_assert_uint_eq(json_array_size(content), 1);
            append_text(json_array_get(content, 0), "text", event);
        }
    }
    return snapshot;
}

/* What a client gathers is the output, also where events are sent to keep the connection. */
START_TEST(gathered)
{
    static const char *const pieces[] = {
        "<think>a", "b", "</think>", "c", "d", RECORDED_CALL("f", "{\"a\": 1}"), "e"};
    struct recorded r = {.dialect = &responses};
    struct quota quota;
    struct completion c;
    recorded_open(&c, &r, true, &quota);
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        completion_keep_alive(&c);
        completion_text(&c, pieces[i], strlen(pieces[i]), true);
        completion_keep_alive(&c);
    }
    completion_end(&c, FINISH_END, NULL);
    json_t *events = events_of(&c), *snapshot = gather(events), *item;
    size_t i;
    json_array_foreach(json_object_get(snapshot, "output"), i, item)
        json_object_set_new(item, "status", json_string("completed"));
    ck_assert_uint_eq(i, 4);
    ck_assert(json_equal(json_object_get(snapshot, "output"),
                         json_object_get(last_response(events), "output")));
    json_decref(snapshot);
    json_decref(events);
    completion_free(&c);
    ck_assert_uint_eq(quota.buffered, 0);
}
END_TEST

/* A keep-alive that does not fit leaves no gap in the numbers, which events_of checks. */
START_TEST(dropped)
{
    struct recorded r = {.dialect = &responses};
    struct quota quota;
    struct completion c;
    recorded_open(&c, &r, true, &quota);
    size_t limit = quota.limit, before = 0;
    quota.limit = quota.buffered;
    while (c.out.bytes != before) {
        before = c.out.bytes;
        completion_keep_alive(&c);
    }
    ck_assert(!c.failed);
    quota.limit = limit;
    recorded_take(&c, "x");
    completion_end(&c, FINISH_END, NULL);
    json_t *events = events_of(&c);
    ck_assert_str_eq(text_of(last_response(events), "status"), "completed");
    json_decref(events);
    completion_free(&c);
}
END_TEST

/* Clients know a tool by its namespace, too. */
START_TEST(namespaces)
{
    for (int stream = 0; stream < 2; stream++) {
        struct recorded r = {.dialect = &responses};
        struct quota quota;
        struct completion c;
        size_t bytes, found = 0, i;
        recorded_open(&c, &r, stream, &quota);
        c.request.tool_names = json_pack("{s:[s, s]}", "n__f", "n", "f");
        recorded_take(&c, RECORDED_CALL("n__f", "{}") RECORDED_CALL("f", "{}"));
        completion_end(&c, FINISH_END, NULL);
        char *body = stream ? NULL : completion_whole(&c, &bytes);
        json_t *all = stream ? events_of(&c)
                             : json_pack("[{s:o}]", "response", json_loads(body, 0, NULL)),
               *event;
        json_t *output = json_object_get(last_response(all), "output");
        ck_assert_str_eq(text_of(json_array_get(output, 0), "namespace"), "n");
        ck_assert_str_eq(text_of(json_array_get(output, 0), "name"), "f");
        ck_assert_ptr_null(json_object_get(json_array_get(output, 1), "namespace"));
        ck_assert_str_eq(text_of(json_array_get(output, 1), "name"), "f");
        json_array_foreach(all, i, event)
        {
            const json_t *item = json_object_get(event, "item");
            found += strcmp(text_of(item, "namespace"), "n") == 0 &&
                     strcmp(text_of(item, "name"), "f") == 0;
        }
        ck_assert_uint_eq(found, stream ? 2 : 0);
        free(body);
        json_decref(all);
        completion_free(&c);
    }
}
END_TEST

START_TEST(ends)
{
    static const struct {
        enum finish finish;
        const char *event, *status;
    } rows[] = {{FINISH_LENGTH, "response.incomplete", "incomplete"},
                {FINISH_END, "response.completed", "completed"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *events = streamed("x", rows[i].finish), *response = last_response(events);
        const json_t *last = json_array_get(events, json_array_size(events) - 1);
        ck_assert_str_eq(text_of(last, "type"), rows[i].event);
        ck_assert_str_eq(text_of(response, "status"), rows[i].status);
        ck_assert(json_integer_value(
                      json_object_get(json_object_get(response, "usage"), "total_tokens")) == 13);
        json_decref(events);
    }
    json_t *events = streamed("", FINISH_END);
    ck_assert_uint_eq(json_array_size(json_object_get(last_response(events), "output")), 0);
    json_decref(events);
}
END_TEST

START_TEST(failure)
{
    struct recorded r = {.dialect = &responses};
    struct quota quota;
    struct completion c;
    struct error error;
    error_set(&error, ERR_GONE, "why");
    recorded_open(&c, &r, true, &quota);
    recorded_take(&c, "x");
    completion_keep_alive(&c);
    completion_fail(&c, 503, &error);
    json_t *events = events_of(&c), *response = last_response(events);
    ck_assert_str_eq(text_of(response, "status"), "failed");
    ck_assert_str_eq(text_of(json_object_get(response, "error"), "message"), "why");
    json_decref(events);
    completion_free(&c);
}
END_TEST

/* What is stored is the response that the client got, and the conversation with its items. */
START_TEST(stored_responses)
{
    for (int stream = 0; stream < 2; stream++) {
        struct recorded r = {.dialect = &responses, .text = "so"};
        struct quota quota;
        struct completion c;
        struct stored stored;
        size_t bytes;
        ck_assert(stored_open(&stored, 2, 4096));
        recorded_open(&c, &r, stream, &quota);
        c.stored = &stored;
        c.request.conversation = strdup("[{\"role\":\"user\",\"content\":\"hi\"}]");
        recorded_take(&c, r.text);
        completion_end(&c, FINISH_END, NULL);
        char *body = stream ? NULL : completion_whole(&c, &bytes);
        const struct stored_response *kept = stored_find(&stored, "resp_x");
        ck_assert_ptr_nonnull(kept);
        json_t *sent = stream ? events_of(&c) : json_loads(body, 0, NULL);
        json_t *expected = stream ? last_response(sent) : sent,
               *got = json_loads(kept->body, 0, NULL),
               *all = json_loads(kept->conversation, 0, NULL);
        ck_assert(json_equal(expected, got) && json_is_true(json_object_get(got, "store")));
        ck_assert_uint_eq(json_array_size(all), 2);
        ck_assert(
            json_equal(json_array_get(all, 1), json_array_get(json_object_get(got, "output"), 0)));
        json_decref(all);
        json_decref(got);
        json_decref(sent);
        free(body);
        completion_free(&c);
        stored_close(&stored);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("responses");
    tcase_add_test(cases, items);
    tcase_add_test(cases, logprobs);
    tcase_add_test(cases, deltas);
    tcase_add_test(cases, gathered);
    tcase_add_test(cases, dropped);
    tcase_add_test(cases, namespaces);
    tcase_add_test(cases, ends);
    tcase_add_test(cases, failure);
    tcase_add_test(cases, stored_responses);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
