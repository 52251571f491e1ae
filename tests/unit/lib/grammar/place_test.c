/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars that begin behind free text and a mark. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/grammar/grammar.h"

#define C        "\xff" /* around a control token's name */
#define K3_OPEN  "<|open|>think<|sep|>"
#define K3_CLOSE "<|close|>think<|sep|>"

static struct grammar *compile(struct grammar_source s)
{
    struct error error = {0};
    struct grammar *g = NULL;
    s.kind = GRAMMAR_GBNF;
    s.text = s.text ? s.text : "root ::= \"{\" [a-z]* \"}\"";
    s.bytes = strlen(s.text);
    ck_assert_msg(grammar_compile(&s, NULL, &g, &error) == 0, "%s", error.text);
    return g;
}

/* 2: complete, 1: a beginning, 0: does not fit; + 4: nothing may follow. */
static int fits(const struct grammar *g, const char *text)
{
    struct grammar_state *s = grammar_start(g);
    size_t bytes = strlen(text);
    int fit = grammar_accept_text(s, text, bytes) < bytes ? 0 : grammar_is_end(s) ? 2 : 1;
    if (fit && !grammar_continues(s))
        fit += 4;
    grammar_stop(s);
    return fit;
}

static const struct {
    struct grammar_source source;
    const char *text;
    int fit;
} cases[] = {
    {{.close = "</t>"}, "anything { at all", 1},
    {{.close = "</t>"}, "a</t>{b}", 6},
    {{.close = "</t>"}, "a</t>\n\n{b}", 6},
    {{.close = "</t>"}, "a</t>\n\n\n", 0},
    {{.close = "</t>"}, "a</t>x", 0},
    {{.close = "</t>"}, "</</t></t>{b}", 0},
    {{.close = "</t>"}, "</</t>{b}", 6},
    {{.close = "</t>"}, C "</t>" C "{b}", 6},
    {{.close = "</t>"}, "\xf0\x9f" C "<x>" C "</t>{", 1},
    {{.close = "aab"}, "aaaab{b}", 6},
    {{.close = "abab"}, "abaabab{b}", 6},
    {{.open = "<t>", .close = "</t>"}, "{b}", 6},
    {{.open = "<t>", .close = "</t>"}, "<t>{</t>{b}", 6},
    {{.open = "<t>", .close = "</t>"}, C "<t>" C "x" C "</t>" C "\n{", 1},
    {{.open = "<t>", .close = "</t>"}, "x", 0},
    {{.open = "<t>in", .close = "</t>"}, C "<t>" C "in x" C "</t>" C "{b}", 6},
    {{.open = "<t>in", .close = "</t>"}, "<t>in x</t>{b}", 6},
    {{.open = "<t>in", .close = "</t>"}, C "<t>" C "x", 0},
    /* Marks of several control tokens, or with one within. */
    {{.close = K3_CLOSE}, "a " C "<|close|>" C "think" C "<|sep|>" C "{b}", 6},
    {{.close = K3_CLOSE}, "a " C "<|close|>" C "call" C "<|sep|>" C "{b}", 1},
    {{.close = K3_CLOSE}, C "<|close|>" C C "<|close|>" C "think" C "<|sep|>" C "x", 0},
    {{.close = K3_CLOSE}, "a " K3_CLOSE "{b}", 6},
    {{.open = K3_OPEN, .close = K3_CLOSE},
     C "<|open|>" C "think" C "<|sep|>" C "x" C "<|close|>" C "think" C "<|sep|>" C "{b}",
     6},
    {{.open = K3_OPEN, .close = K3_CLOSE}, K3_OPEN "x" K3_CLOSE "{b}", 6},
    {{.open = K3_OPEN, .close = K3_CLOSE}, C "<|open|>" C "call", 0},
    {{.trigger = "<a><b>"}, "x" C "<a>" C C "<b>" C "{b}", 6},
    {{.open = "<a><b>", .close = "</b>"}, C "<a>" C C "<b>" C "</b>{b}", 6},
    {{.trigger = "<|D|"}, "x <" C "|D|" C "{b}", 6},
    {{.trigger = "<|D|"}, "x <|D|{b}", 6},
    {{.trigger = "<|D|"}, "x " C "|D|" C "y", 2},
    {{.trigger = "[C]"}, "", 2},
    {{.trigger = "[C]"}, "no call", 2},
    {{.trigger = "[C]"}, "a [C]", 1},
    {{.trigger = "[C]"}, "a [C]{b}", 6},
    {{.trigger = "[C]"}, "a [C]\n", 0},
    {{.trigger = "[C]"}, "a " C "[C]" C "{b}", 6},
    {{.close = "</t>", .trigger = "[C]"}, "[C]x", 1},
    {{.close = "</t>", .trigger = "[C]"}, "[C]x</t>y", 2},
    {{.close = "</t>", .trigger = "[C]"}, "x</t>y[C]z", 0},
    {{.close = "</t>", .trigger = "[C]"}, "x</t>[C]{z}", 6},
    {{.open = "<t>", .close = "</t>", .trigger = "[C]"}, "y[C]z", 0},
    {{.open = "<t>", .close = "</t>", .trigger = "[C]"}, "<t>y</t>[C]{z}", 6},
    {{.text = "root ::= \"a\" <end>"}, "a" C "<end>" C, 6},
    {{.text = "root ::= \"a\" <end>"}, "a<end>", 6},
    {{.text = "root ::= \"a\" <end>"}, "a" C "<end>", 1},
    {{.text = "root ::= \"a\" <end>"}, "a" C "<and", 0},
    {{.text = "root ::= [^a]*"}, C, 0},
};

START_TEST(texts)
{
    struct grammar *g = compile(cases[_i].source);
    ck_assert_msg(fits(g, cases[_i].text) == cases[_i].fit, "%s: %d", cases[_i].text,
                  fits(g, cases[_i].text));
    grammar_free(g);
}
END_TEST

/* The machine of a mark finds its first place as strstr does. */
START_TEST(first_place_of_random_marks)
{
    struct random r;
    char mark[8] = "", text[64] = "";
    random_seed(&r, (uint64_t)_i, 0);
    for (unsigned i = 0, n = 1 + (unsigned)random_below(&r, 6); i < n; i++)
        mark[i] = (char)('a' + random_below(&r, 2));
    for (unsigned i = 0; i < 40; i++)
        text[i] = (char)('a' + random_below(&r, 2));
    struct grammar *g = compile((struct grammar_source){.text = "root ::= \"!\"", .close = mark});
    const char *found = strstr(text, mark);
    for (size_t at = 0; at <= strlen(text); at++) {
        char whole[64];
        snprintf(whole, sizeof whole, "%.*s!", (int)at, text);
        bool ends = found && at == (size_t)(found - text) + strlen(mark);
        bool free = !found || at < (size_t)(found - text) + strlen(mark);
        ck_assert_msg(fits(g, whole) == (ends   ? 6
                                         : free ? 1
                                                : 0),
                      "%s in %s: %d", mark, whole, fits(g, whole));
    }
    grammar_free(g);
}
END_TEST

START_TEST(wrong_marks_are_refused)
{
    static const struct grammar_source wrong[] = {
        {.close = ""},
        {.open = "<t>"},
        {.trigger = "0123456789012345678901234567890123456789012345678901234567890123x"}};
    struct error error = {0};
    struct grammar *g = NULL;
    struct grammar_source s = wrong[_i];
    s.kind = GRAMMAR_GBNF;
    s.text = "root ::= \"a\"";
    s.bytes = strlen(s.text);
    ck_assert_int_eq(grammar_compile(&s, NULL, &g, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("place");
    TCase *tc = tcase_create("all");
    tcase_add_loop_test(tc, texts, 0, ARRAY_LEN(cases));
    tcase_add_loop_test(tc, first_place_of_random_marks, 0, 50);
    tcase_add_loop_test(tc, wrong_marks_are_refused, 0, 3);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
