/* SPDX-License-Identifier: Apache-2.0 */
/* A dialect is told of each part of an answer, and its events are separated as it says. The dialect
 * of this test writes a word for each call. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/text/utf8.h"
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

/* ---- log-probabilities ----------------------------------------------------------------------- */

static char content[600], content_tokens[600];

static void gather_tokens(const struct buffer *tokens)
{
    struct token t;
    size_t n = strlen(content_tokens);
    for (size_t at = 0; tokens && tokens_next(tokens, &at, &t);)
        for (size_t i = 0; t.content && i < t.bytes; i++)
            content_tokens[n++] = t.text[i];
}

static void gather_text(struct completion *c, const struct answer_piece *p,
                        const struct buffer *tokens)
{
    (void)c;
    ck_assert(!tokens || (p->part == ANSWER_CONTENT && tokens->bytes > 0));
    if (p->part == ANSWER_CONTENT)
        strncat(content, p->text, p->bytes);
    gather_tokens(tokens);
}

static void gather_none(struct completion *c, const struct answer_piece *p)
{
    (void)c, (void)p;
}

static void gather_end(struct completion *c)
{
    (void)c;
}

static int gather_whole(const struct completion *c, const struct completion_parts *parts, FILE *out)
{
    (void)out;
    strncat(content, parts->text[ANSWER_CONTENT], parts->bytes[ANSWER_CONTENT]);
    gather_tokens(&c->tokens);
    return 0;
}

static const struct dialect gathers = {.framing = &framing_lines,
                                       .text = gather_text,
                                       .call = gather_none,
                                       .end = gather_end,
                                       .whole = gather_whole};

/* A reply of tokens of up to `longest` bytes each. */
static void take_tokens(struct completion *c, const char *text, size_t bytes, size_t longest)
{
    uint32_t pieces[64];
    double logprobs[64];
    size_t n = 0;
    for (size_t at = 0; at < bytes; at += pieces[n++]) {
        size_t left = bytes - at, wanted = 1 + (size_t)rand() % longest;
        pieces[n] = (uint32_t)(wanted < left ? wanted : left);
        logprobs[n] = -1;
    }
    struct engine_next next = {.count = n,
                               .text = text,
                               .text_bytes = bytes,
                               .logprobs = logprobs,
                               .logprobs_count = n,
                               .piece_bytes = pieces,
                               .piece_bytes_count = n};
    tokens_take(c, &next, n);
    completion_text(c, text, bytes, true);
}

static void answer_of_tokens(const char *text, bool stream, size_t longest)
{
    struct completion c = {.quota = &quota, .dialect = &gathers};
    quota = (struct quota){.limit = 1 << 20};
    c.request = (struct api_request){.stream = stream, .logprobs = true};
    c.request.answer.reasoning = (struct answer_marks){"<think>", "</think>"};
    c.request.answer.call =
        (struct answer_call){.open = "<call>", .close = "</call>", .call_open = ""};
    content[0] = 0;
    memset(content_tokens, 0, sizeof content_tokens);
    completion_open(&c);
    for (size_t at = 0, n; text[at]; at += n) {
        n = utf8_complete_prefix(text + at, strnlen(text + at, 4 + (size_t)rand() % 30));
        take_tokens(&c, text + at, n, longest);
    }
    completion_end(&c, FINISH_END, NULL);
    size_t bytes;
    if (!stream)
        free(completion_whole(&c, &bytes));
    ck_assert(!c.failed);
    completion_free(&c);
    ck_assert_uint_eq(quota.buffered, 0);
}

/* Tokens of one byte are exactly the content, streamed or whole, whatever is split off; longer ones
 * are those that have a byte of it, each once. */
START_TEST(tokens_are_those_of_the_content)
{
    static const char *const parts[] = {"<think>",
                                        "why",
                                        "</think>",
                                        "\n\n",
                                        "so",
                                        " ",
                                        "\xc3\xa9",
                                        "<call>",
                                        "</call>",
                                        "<",
                                        "<call>{\"name\":\"f\",\"arguments\":{}}</call>",
                                        "<call>{}</call>",
                                        "\xe2\x82\xac"};
    srand(7);
    for (int i = 0; i < 3000; i++) {
        char text[400] = "", whole[600];
        for (int n = rand() % 9; n > 0; n--)
            strcat(text, parts[(size_t)rand() % (sizeof parts / sizeof parts[0])]);
        for (int stream = 0; stream < 2; stream++) {
            answer_of_tokens(text, stream, 1);
            ck_assert_msg(strcmp(content, content_tokens) == 0, "%s: %s, not %s", text,
                          content_tokens, content);
        }
        srand((unsigned)i);
        answer_of_tokens(text, false, 5);
        ck_assert_uint_ge(strlen(content_tokens), strlen(content));
        strcpy(whole, content_tokens);
        srand((unsigned)i);
        answer_of_tokens(text, true, 5);
        ck_assert_msg(strcmp(whole, content_tokens) == 0, "%s: %s, not %s", text, content_tokens,
                      whole);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("completion");
    tcase_add_test(cases, a_dialect_of_lines);
    tcase_add_test(cases, a_dialect_with_names);
    tcase_add_test(cases, without_space);
    tcase_add_test(cases, tokens_are_those_of_the_content);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
