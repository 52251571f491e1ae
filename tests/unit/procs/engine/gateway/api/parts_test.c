/* SPDX-License-Identifier: Apache-2.0 */
/* Answers in parts, as one message and as events. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/gateway.h"

static json_t *deltas;

/* Instead of that of stream.c, which sends it. */
void stream_delta(struct stream *s, json_t *delta)
{
    (void)s;
    json_array_append_new(deltas, delta);
}

static const struct answer_form form = {
    .reasoning = {"<think>", "</think>"},
    .call = {.open = "<tool_call>", .close = "</tool_call>", .call_open = ""}};

static void open_stream(struct stream *s, bool inside)
{
    *s = (struct stream){.magic = STREAM_MAGIC, .request = {.answer = form, .inside = inside}};
    strcpy(s->id, "x");
    parts_open(s);
}

static void check_json(const json_t *got, const char *expected)
{
    json_t *want = json_loads(expected, 0, NULL);
    char *text = json_dumps(got, JSON_COMPACT);
    ck_assert_ptr_nonnull(want);
    ck_assert_msg(json_equal(got, want), "%s, not %s", text, expected);
    free(text);
    json_decref(want);
}

static void check_message(bool inside, const char *text, const char *expected, unsigned calls)
{
    struct stream s;
    char copy[200];
    open_stream(&s, inside);
    strcpy(copy, text);
    s.out.data = copy;
    s.out.bytes = strlen(copy);
    parts_message(&s);
    check_json(s.message, expected);
    ck_assert_uint_eq(s.calls, calls);
    parts_free(&s);
}

#define CALL(n) "<tool_call>{\"name\":\"f" n "\",\"arguments\":{\"a\":" n "}}</tool_call>"
#define CALLED(n, index)                                                                           \
    "{\"id\":\"call_x_" n "\",\"type\":\"function\"" index ",\"function\":{\"name\":\"f" n         \
    "\",\"arguments\":\"{\\\"a\\\":" n "}\"}}"

START_TEST(one_message)
{
    check_message(false, "Hi", "{\"role\":\"assistant\",\"content\":\"Hi\"}", 0);
    check_message(false, "<think>a</think>b",
                  "{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":\"a\"}", 0);
    check_message(true, "a",
                  "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"a\"}", 0);
    check_message(false, CALL("0") "\n" CALL("1"),
                  "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALLED(
                      "0", "") "," CALLED("1", "") "]}",
                  2);
}
END_TEST

START_TEST(events)
{
    static const char text[] = "<think>a b</think>" CALL("0") CALL("1") "c <";
    struct stream s;
    deltas = json_array();
    open_stream(&s, false);
    for (size_t i = 0; i + 1 < sizeof text; i += 6)
        parts_take(&s, text + i, sizeof text - 1 - i < 6 ? sizeof text - 1 - i : 6, false);
    parts_take(&s, "", 0, true);
    ck_assert(!s.failed);
    check_json(deltas, "[{\"reasoning_content\":\"a b\"},{\"tool_calls\":[" CALLED(
                           "0", ",\"index\":0") "]},"
                                                "{\"tool_calls\":[" CALLED(
                                                    "1", ",\"index\":1") "]},{\"content\":\"c\"},"
                                                                         "{\"content\":\" <\"}]");
    parts_free(&s);
    json_decref(deltas);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parts");
    TCase *cases = tcase_create("parts");
    tcase_add_test(cases, one_message);
    tcase_add_test(cases, events);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
