/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which tokens belong to the text that is sent. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/completion.h"

#define TOKENS_MAX 8

static struct quota quota;
static struct completion completion;

static void start(bool logprobs)
{
    quota = (struct quota){.limit = 1 << 20};
    completion = (struct completion){.quota = &quota, .request = {.logprobs = logprobs}};
}

static void end(void)
{
    completion_free(&completion);
    ck_assert_uint_eq(quota.buffered, 0);
    ck_assert(!completion.failed);
}

/* Takes a reply: its tokens, with those that were taken before. */
static size_t taken(const struct engine_next *next, size_t count, struct token tokens[TOKENS_MAX])
{
    size_t n = 0;
    tokens_take(&completion, next, count);
    for (size_t at = 0; tokens_next(&completion.tokens, &at, &tokens[n]); n++)
        ck_assert_uint_lt(n + 1, TOKENS_MAX);
    return n;
}

/* Takes the first `joined` tokens of a reply, `|` between its tokens. */
static void reply(const char *tokens, size_t joined)
{
    static const double values[] = {-1, -2, -INFINITY, -4};
    uint32_t pieces[4] = {0};
    char text[64];
    size_t count = 0, bytes = 0;
    for (const char *at = tokens; *at; at += strcspn(at, "|"), at += *at == '|') {
        pieces[count] = (uint32_t)strcspn(at, "|");
        memcpy(text + bytes, at, pieces[count]);
        bytes += pieces[count++];
    }
    struct engine_next next = {.count = count,
                               .text = text,
                               .text_bytes = bytes,
                               .logprobs = values,
                               .logprobs_count = count,
                               .piece_bytes = pieces,
                               .piece_bytes_count = count};
    tokens_take(&completion, &next, joined);
}

/* Tokens of a stop text at the end of a reply are left out; offsets count characters of the
 * response. */
START_TEST(tokens_of_the_text)
{
    static const struct {
        const char *text;
        double logprob;
        size_t offset;
    } expected[] = {
        {"a", -1, 0}, {"\xc3\xa9t", -2, 1}, {"x", -1, 3}, {"y", -2, 4}, {"z", -INFINITY, 5}};
    struct token t;
    size_t at = 0;
    start(true);
    reply("a|\xc3\xa9t|c|", 2);
    reply("x|y|z", 3);
    reply("a|b", 0);
    for (size_t i = 0; i < 5; i++) {
        ck_assert(tokens_next(&completion.tokens, &at, &t));
        ck_assert_msg(t.bytes == strlen(expected[i].text) &&
                          memcmp(t.text, expected[i].text, t.bytes) == 0 &&
                          t.logprob == expected[i].logprob && t.offset == expected[i].offset,
                      "token %zu: '%.*s', %g, %zu", i, (int)t.bytes, t.text, t.logprob, t.offset);
    }
    ck_assert(!tokens_next(&completion.tokens, &at, &t));
    end();
    start(false);
    reply("a", 1);
    ck_assert_uint_eq(completion.tokens.bytes, 0);
    end();
}
END_TEST

/* Where bytes were replaced, tokens have theirs; offsets count characters of the text. */
START_TEST(tokens_with_replaced_bytes)
{
    static const double values[] = {-1, -2, -3};
    static const uint32_t pieces[] = {4, 3, 1};
    static const char *const bytes[] = {"Caf\xc3", "\xa9 \xe6", "\xff"};
    static const size_t offsets[] = {0, 4, 6};
    struct token tokens[TOKENS_MAX];
    start(true);
    struct engine_next next = {.count = 3,
                               .text = "Caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd",
                               .text_bytes = 12,
                               .raw = "Caf\xc3\xa9 \xe6\xff",
                               .raw_bytes = 8,
                               .logprobs = values,
                               .logprobs_count = 3,
                               .piece_bytes = pieces,
                               .piece_bytes_count = 3};
    ck_assert_uint_eq(taken(&next, 3, tokens), 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(tokens[i].bytes, pieces[i]);
        ck_assert_mem_eq(tokens[i].text, bytes[i], pieces[i]);
        ck_assert_uint_eq(tokens[i].offset, offsets[i]);
    }
    ck_assert_uint_eq(completion.characters, 7);
    end();
}
END_TEST

/* A part of a sequence that one U+FFFD replaces is one character of the text, whatever tokens it
 * is in. */
START_TEST(offsets_after_replaced_bytes)
{
    static const struct {
        const char *raw;
        uint32_t pieces[3];
        size_t offsets[3];
        size_t end;
    } rows[] = {
        {"\xe2\x82"
         "A!",
         {2, 1, 1},
         {0, 1, 2},
         3},
        {"\xf0\x9f\x98"
         "A!",
         {3, 1, 1},
         {0, 1, 2},
         3},
        {"\xe2\xe2\x82"
         "A",
         {1, 2, 1},
         {0, 1, 2},
         3},
        {"\xf0\x9f"
         "\xf0\x9f\x98\x80"
         "A",
         {2, 4, 1},
         {0, 1, 2},
         3},
        {"a\xe2\x82",
         {1, 1, 1},
         {0, 1, 2},
         2}, /* the last one begins inside it, and ends with it */
    };
    static const double values[] = {-1, -2, -3};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct token tokens[TOKENS_MAX];
        start(true);
        struct engine_next next = {.count = 3,
                                   .text = "",
                                   .raw = rows[i].raw,
                                   .raw_bytes = strlen(rows[i].raw),
                                   .logprobs = values,
                                   .logprobs_count = 3,
                                   .piece_bytes = rows[i].pieces,
                                   .piece_bytes_count = 3};
        ck_assert_uint_eq(taken(&next, 3, tokens), 3);
        for (size_t k = 0; k < 3; k++)
            ck_assert_msg(tokens[k].offset == rows[i].offsets[k], "row %zu, token %zu", i, k);
        ck_assert_uint_eq(completion.characters, rows[i].end);
        end();
    }
}
END_TEST

/* They count towards the buffer limit: exceeding it fails the response. */
START_TEST(what_does_not_fit)
{
    start(true);
    quota.limit = 2000;
    for (int i = 0; i < 200 && !completion.failed; i++)
        reply("a", 1);
    ck_assert(completion.failed && completion_bytes(&completion) > quota.limit / 2);
    ck_assert_uint_le(quota.buffered, 2000);
    completion.failed = false;
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *t = tcase_create("tokens");
    tcase_add_test(t, tokens_of_the_text);
    tcase_add_test(t, tokens_with_replaced_bytes);
    tcase_add_test(t, offsets_after_replaced_bytes);
    tcase_add_test(t, what_does_not_fit);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
