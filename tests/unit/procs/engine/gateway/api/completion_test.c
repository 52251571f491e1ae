/* SPDX-License-Identifier: Apache-2.0 */
/* A dialect is told of each part of an answer, and its events are separated as it says. The dialect
 * of this test writes a word for each call. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/completion.h"

static struct quota quota;

static void word(struct completion *c, const char *name, const char *text, size_t bytes)
{
    completion_event(c, c->dialect->framing->named ? name : NULL,
                     json_pack("{s:s, s:s%}", "is", name, "text", text, bytes));
}

static void begin(struct completion *c)
{
    word(c, "begin", "", 0);
}

static void text(struct completion *c, const struct answer_piece *p, const struct buffer *tokens)
{
    ck_assert_ptr_null(tokens);
    word(c, p->part == ANSWER_CONTENT ? "content" : "reasoning", p->text, p->bytes);
}

static void call(struct completion *c, const struct answer_piece *p)
{
    ck_assert_uint_eq(c->calls, 0);
    word(c, "call", p->name, strlen(p->name));
}

static void keep_alive(struct completion *c)
{
    word(c, "ping", "", 0);
}

static void end(struct completion *c)
{
    static const char *const names[] = {"length", "end", "stop", "calls"};
    word(c, "end", names[c->finish], strlen(names[c->finish]));
}

static void break_off(struct completion *c, unsigned status, const struct error *error)
{
    ck_assert_uint_eq(status, 503);
    word(c, "fail", error->text, strlen(error->text));
}

static const struct dialect lines = {.framing = &framing_lines,
                                     .begin = begin,
                                     .text = text,
                                     .call = call,
                                     .keep_alive = keep_alive,
                                     .end = end,
                                     .fail = break_off};
static const struct dialect named = {.framing = &framing_events,
                                     .begin = begin,
                                     .text = text,
                                     .call = call,
                                     .keep_alive = keep_alive,
                                     .end = end,
                                     .fail = break_off};

static void start(struct completion *c, const struct dialect *dialect)
{
    quota = (struct quota){.limit = 4096};
    *c = (struct completion){
        .dialect = dialect,
        .quota = &quota,
        .request = {.stream = true,
                    .answer = {.reasoning = {"<think>", "</think>"},
                               .call = {.open = "<call>", .close = "</call>", .call_open = ""}}}};
    completion_open(c);
    completion_begin(c);
}

static void check_sent(struct completion *c, const char *expected)
{
    ck_assert(!c->failed);
    ck_assert_msg(c->out.bytes == strlen(expected) &&
                      memcmp(c->out.data, expected, c->out.bytes) == 0,
                  "%.*s", (int)c->out.bytes, c->out.data);
    completion_free(c);
    ck_assert_uint_eq(quota.buffered, 0);
}

#define WORD(name, text) "{\"is\":\"" name "\",\"text\":\"" text "\"}"
#define LINE(name, text) WORD(name, text) "\n"

START_TEST(a_dialect_of_lines)
{
    static const char answer[] =
        "<think>why</think>so<call>{\"name\":\"f\",\"arguments\":{}}</call>";
    struct completion c;
    start(&c, &lines);
    completion_keep_alive(&c);
    completion_progress(&c, &(struct engine_progress){.known = true}); /* it sends none */
    completion_text(&c, answer, strlen(answer), true);
    completion_end(&c, FINISH_END, NULL);
    ck_assert_uint_eq(c.calls, 1);
    check_sent(&c, LINE("begin", "") LINE("ping", "") LINE("reasoning", "why") LINE("content", "so")
                       LINE("call", "f") LINE("end", "calls"));
}
END_TEST

START_TEST(a_dialect_with_names)
{
    struct completion c;
    start(&c, &named);
    completion_text(&c, "so", 2, true);
    completion_end(&c, FINISH_STOP_TEXT, NULL);
    check_sent(&c, "event: begin\ndata: " WORD("begin", "") "\n\nevent: content\ndata: " WORD(
                       "content", "so") "\n\nevent: end\ndata: " WORD("end", "stop") "\n\n");
}
END_TEST

/* What does not fit is dropped where that is harmless; a failure replaces events that were not
 * sent. */
START_TEST(without_space)
{
    struct completion c;
    struct error error;
    error_set(&error, ERR_GONE, "no");
    start(&c, &lines);
    size_t limit = quota.limit;
    quota.limit = quota.buffered;
    while (!c.failed)
        completion_text(&c, "more ", 5, true);
    c.failed = false;
    size_t before = c.out.bytes;
    completion_keep_alive(&c);
    ck_assert(!c.failed);
    ck_assert_uint_eq(c.out.bytes, before);
    completion_fail(&c, 503, &error);
    ck_assert(!c.broken);
    quota.limit = limit;
    check_sent(&c, LINE("begin", "") LINE("fail", "no"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("completion");
    tcase_add_test(cases, a_dialect_of_lines);
    tcase_add_test(cases, a_dialect_with_names);
    tcase_add_test(cases, without_space);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
