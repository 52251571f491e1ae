/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of models, split into parts: the same whatever the pieces they arrive in. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/chat/answer.h"

#define TEMPLATE "{{ x }}<think></think>{{ y }}<tool_call></tool_call>"

struct collected {
    char *text;
    size_t bytes;
    FILE *out;
    int last;
};

/* R[...]C[...]name(arguments); */
static void collect(void *arg, const struct answer_piece *p)
{
    struct collected *c = arg;
    if (p->part == ANSWER_CALL) {
        fprintf(c->out, "|%s(%s)", p->name, p->arguments);
    } else {
        ck_assert_uint_gt(p->bytes, 0);
        if (c->last != (int)p->part)
            fprintf(c->out, "|%c:", p->part == ANSWER_REASONING ? 'R' : 'C');
        fwrite(p->text, 1, p->bytes, c->out);
    }
    c->last = (int)p->part;
}

static char *split(const char *chat_template, bool inside, const char *text, size_t bytes,
                   size_t piece)
{
    struct answer a;
    struct collected c = {.last = -1};
    struct answer_form form = answer_form_of(chat_template, strlen(chat_template));
    c.out = open_memstream(&c.text, &c.bytes);
    answer_open(&a, &form, inside, collect, &c);
    for (size_t at = 0; at < bytes; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        ck_assert_int_eq(answer_take(&a, text + at, n, false), 0);
        ck_assert_uint_le(a.capacity, ANSWER_BYTES_MAX);
    }
    ck_assert_int_eq(answer_take(&a, "", 0, true), 0);
    ck_assert_uint_eq(a.bytes, 0);
    answer_close(&a);
    fclose(c.out);
    return c.text;
}

static const struct {
    const char *text, *parts;
    bool inside;
} rows[] = {
    {"", "", false},
    {"Hello", "|C:Hello", false},
    {"  Hello <b> ", "|C:  Hello <b> ", false},
    {"<think>\nsum\n\n</think>\n\n4", "|R:sum|C:4", false},
    {"\n<think>a < b <c</think>x</think>", "|R:a < b <c|C:x</think>", false},
    {"sum\n</think>\n4", "|R:sum|C:4", true},
    {"sum\n  more", "|R:sum\n  more", true},
    {"<think></think>4", "|C:4", false},
    {"<thin", "|C:<thin", false},
    {"x<think>y</think>", "|C:x<think>y</think>", false},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"</x>\"]}}\n</tool_call>",
     "|f({\"a\":[1,\"</x>\"]})", false},
    {"<tool_call>{\"name\":\"f\",\"arguments\":[0.1,19.99,1e300,3]}</tool_call>",
     "|f([0.1,19.99,1e300,3])", false},
    {"Look:\n<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":"
     "\"{}\"}</tool_call>",
     "|C:Look:|f({})|g({})", false},
    {"<think>t</think><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> end",
     "|R:t|f({})|C:end", false},
    {"<tool_call>{\"name\":\"f\",\"arguments\":{}}", "|f({})", false}, /* ended before the mark */
    {"<tool_call>{\"name\":\"f\"", "|C:<tool_call>{\"name\":\"f\"", false},
    {"<tool_call>no</tool_call>x", "|C:<tool_call>no</tool_call>x", false},
    {"<tool_call>[]</tool_call><tool_call>{\"name\":1}</tool_call>",
     "|C:<tool_call>[]</tool_call><tool_call>{\"name\":1}</tool_call>", false},
    {"a<tool_cal<tool_call", "|C:a<tool_cal<tool_call", false},
};

START_TEST(parts_of_answers)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t piece = 1; piece < 80; piece++) {
            char *parts =
                split(TEMPLATE, rows[i].inside, rows[i].text, strlen(rows[i].text), piece);
            ck_assert_msg(strcmp(parts, rows[i].parts) == 0, "row %zu, pieces of %zu: '%s'", i,
                          piece, parts);
            free(parts);
        }
}
END_TEST

/* Without marks in the template nothing is split. */
START_TEST(templates_without_marks)
{
    static const char text[] = "<think>a</think><tool_call>{\"name\":\"f\"}</tool_call>";
    char *parts = split("{{ x }}", false, text, sizeof text - 1, 3);
    ck_assert_str_eq(parts + 3, text);
    free(parts);
    parts = split("</tool_call>", false, text, sizeof text - 1, 3);
    ck_assert_str_eq(parts, "|C:<think>a</think>|f({})");
    free(parts);
}
END_TEST

/* The list of a form has each of its marks; without calls only those of reasoning. */
START_TEST(marks_of_forms)
{
    static const struct {
        const char *text, *marks;
        bool calls;
    } forms[] = {
        {"{{ x }}", "", true},
        {TEMPLATE, "<think> </think> <tool_call> </tool_call> ", true},
        {TEMPLATE, "<think> </think> ", false},
        {"<|channel|>analysis<|message|>",
         "<|end|> <|return|> <|call|> <|start|> <|channel|> <|constrain|> <|message|> ", false},
        {"<|tool_calls_section_begin|>",
         "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> "
         "<|tool_call_argument_begin|> <|tool_call_end|> ",
         true},
        {"<tool_call|>", "<|tool_call> <tool_call|> call: { <|\"|> ", true},
        {"<|END_TEXT|><|START_ACTION|>",
         "<|START_TEXT|> <|END_TEXT|> <|START_ACTION|> <|END_ACTION|> ", true},
        {"<|END_TEXT|><|START_ACTION|>", "<|START_TEXT|> <|END_TEXT|> ", false},
        {"[CALL_ID][ARGS]", "[TOOL_CALLS] [ARGS] [CALL_ID] ", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        const char *marks[ANSWER_MARKS_MAX];
        char joined[1024] = "";
        struct answer_form f = answer_form_of(forms[i].text, strlen(forms[i].text));
        if (!forms[i].calls)
            f.call = (struct answer_call){0};
        uint32_t n = answer_marks(&f, marks);
        for (uint32_t k = 0; k < n; k++) {
            ck_assert_uint_le(strlen(marks[k]), ANSWER_MARK_BYTES_MAX);
            strcat(strcat(joined, marks[k]), " ");
        }
        ck_assert_str_eq(joined, forms[i].marks);
    }
    static const char *const signs[] = {
#define CHANNELS(sign)       sign,
#define REASONING(sign, ...) sign,
#define CONTENT(sign, ...)   sign,
#define CALL(sign, ...)      sign,
#include "lib/model/chat/answer.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(signs); i++) { /* of every row */
        const char *marks[ANSWER_MARKS_MAX];
        struct answer_form f = answer_form_of(signs[i], strlen(signs[i]));
        uint32_t n = answer_marks(&f, marks);
        ck_assert(n > 0 || answer_is_unmarked(&f.call));
        for (uint32_t k = 0; k < n; k++)
            ck_assert_uint_le(strlen(marks[k]), ANSWER_MARK_BYTES_MAX);
    }
}
END_TEST

static bool left_open(const struct answer_form *f, const char *text)
{
    return answer_left_open(f, text, strlen(text));
}

START_TEST(prompts_that_start_reasoning)
{
    struct answer_form f = answer_form_of(TEMPLATE, strlen(TEMPLATE)), none = {0};
    ck_assert_uint_eq(answer_front(&f, "x<think>\n", 9), 8);
    ck_assert_uint_eq(answer_front(&f, "<think>", 7), 7);
    ck_assert(!answer_front(&f, "<think>\n\n</think>\n\n", 20));
    ck_assert(!answer_front(&f, "think>", 6));
    ck_assert(!answer_front(&none, "<think>", 7));
    ck_assert(left_open(&f, "<think>a"));
    ck_assert(left_open(&f, "<think>a</think>b<think>"));
    ck_assert(!left_open(&f, "<think>a</think>b"));
    ck_assert(!left_open(&f, "a") && !left_open(&none, "<think>a"));
}
END_TEST

/* A call without an end is content, and what is held back is bounded. */
START_TEST(endless_calls)
{
    size_t bytes = (size_t)1 << 20;
    char *text = malloc(bytes + 1);
    memset(text, 'x', bytes);
    text[bytes] = 0;
    memcpy(text, "<tool_call>", 11);
    char *parts = split(TEMPLATE, false, text, bytes, 1000);
    ck_assert_uint_eq(strlen(parts), bytes + 3);
    ck_assert_str_eq(parts + 3, text);
    free(parts);
    memset(text, ' ', bytes);
    parts = split(TEMPLATE, true, text, bytes, bytes);
    ck_assert_uint_eq(strlen(parts), 0);
    free(parts);
    free(text);
}
END_TEST

/* The longest call, and one that is longer by a byte: the same parts whatever the pieces. */
START_TEST(longest_call)
{
    static const size_t pieces[] = {1, 7, 1000, 4096, 1 << 20};
    const char *front = "<tool_call>{\"name\":\"", *back = "\"}</tool_call>";
    for (size_t more = 0; more < 2; more++) {
        size_t n = ANSWER_CALL_BYTES_MAX - strlen(front) - strlen(back) + more;
        char *text = malloc(ANSWER_BYTES_MAX), *name = malloc(n + 1);
        memset(name, 'n', n);
        name[n] = 0;
        int bytes = snprintf(text, ANSWER_BYTES_MAX, "%s%s%s \xc3\xa9", front, name, back);
        for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
            char *parts = split(TEMPLATE, false, text, (size_t)bytes, pieces[i]);
            ck_assert_msg(strncmp(parts, more ? "|C:" : "|nnn", 3) == 0, "pieces of %zu",
                          pieces[i]);
            if (more)
                ck_assert_str_eq(parts + 3, text);
            else
                ck_assert_str_eq(parts + 1 + n, "({})|C:\xc3\xa9");
            free(parts);
        }
        free(text);
        free(name);
    }
}
END_TEST

/* The JSON library recurses: what is nested too deep for the stack of a thread is no call, nor what
 * takes megabytes. Brackets in texts do not count. */
START_TEST(deep_calls)
{
    char text[16000], flat[200], *at = text, *parts;
    at = stpcpy(at, "<tool_call>{\"name\":\"f\",\"arguments\":");
    for (int i = 0; i < 2000; i++)
        *at++ = '[';
    for (int i = 0; i < 2000; i++)
        *at++ = ']';
    strcpy(at, "}</tool_call>");
    parts = split(TEMPLATE, false, text, strlen(text), 4096);
    ck_assert_msg(strncmp(parts, "|C:", 3) == 0 && strcmp(parts + 3, text) == 0, "a call");
    free(parts);
    at = text + strlen("<tool_call>{\"name\":\"f\",\"arguments\":");
    strcpy(at, "[[]");
    for (at += 3; at + 3 < text + sizeof text - 20; at += 3)
        strcpy(at, ",[]");
    strcpy(at, "]}</tool_call>");
    parts = split(TEMPLATE, false, text, strlen(text), 4096);
    ck_assert_msg(strncmp(parts, "|C:", 3) == 0 && strcmp(parts + 3, text) == 0, "5000 arrays");
    free(parts);
    memset(flat, '[', sizeof flat);
    snprintf(text, sizeof text,
             "<tool_call>{\"name\":\"f\",\"arguments\":\"\\\"%.*s\"}</tool_call>", (int)sizeof flat,
             flat);
    parts = split(TEMPLATE, false, text, strlen(text), 4096);
    ck_assert_msg(strncmp(parts, "|f(\"[[[", 7) == 0, "%s", parts);
    free(parts);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("answer");
    TCase *cases = tcase_create("answer");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, parts_of_answers);
    tcase_add_test(cases, templates_without_marks);
    tcase_add_test(cases, marks_of_forms);
    tcase_add_test(cases, prompts_that_start_reasoning);
    tcase_add_test(cases, endless_calls);
    tcase_add_test(cases, longest_call);
    tcase_add_test(cases, deep_calls);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
