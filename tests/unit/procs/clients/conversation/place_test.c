/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of answers in channels, whose headers come before the text that the client's grammar is
 * of. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/clients/conversation/conversation.h"

#define CHANNELS "<|channel|>analysis<|message|>"
#define THOUGHT  "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"
#define FINAL    "<|channel|>final<|message|>"

/* 0, or -1 with an error. *made is freed by the caller in any case. */
static int place(enum grammar_kind kind, const char *text, struct grammar_source *g, char **made,
                 struct error *error)
{
    struct answer_form form = answer_form_of(CHANNELS, strlen(CHANNELS));
    struct chat_prompt prompt = {.text = NULL};
    *g = (struct grammar_source){.kind = kind, .text = text, .bytes = strlen(text)};
    ck_assert(form.channels);
    return conversation_place_grammar(&form, &prompt, g, made, error);
}

static bool fits(const struct grammar *g, const char *header, const char *text)
{
    char all[300];
    struct grammar_state *s = grammar_start(g);
    size_t n = (size_t)snprintf(all, sizeof all, "%s%s", header, text);
    bool fit = grammar_accept_text(s, all, n) == n && grammar_is_end(s);
    grammar_stop(s);
    return fit;
}

/* The grammar and a text that it takes and one that it does not take. */
static const struct {
    enum grammar_kind kind;
    const char *grammar, *right, *wrong;
} rows[] = {
    {GRAMMAR_GBNF, "root ::= \"ja\"", "ja", "no"},
    {GRAMMAR_GBNF, "%root x\nx ::= \"ja\"", "ja", "no"},
    {GRAMMAR_GBNF, "%root x\nroot ::= \"no\"\nx ::= \"ja\" # end", "ja", "no"},
    {GRAMMAR_GBNF, "%root y\n%root x\ny ::= \"no\"\nx ::= \"ja\"\n", "ja", "no"},
    {GRAMMAR_JSON_SCHEMA, "{\n\"type\":\n\"integer\"}", "7", "\"x\""},
    {GRAMMAR_JSON_SCHEMA, " true ", "[7]", "x"},
};

START_TEST(placed)
{
    struct grammar_source g;
    struct grammar *compiled = NULL;
    struct error error = {0};
    char *made;
    ck_assert_msg(place(rows[_i].kind, rows[_i].grammar, &g, &made, &error) == 0, "%s", error.text);
    ck_assert_msg(grammar_compile(&g, NULL, &compiled, &error) == 0, "%s\n%s", error.text, made);
    ck_assert_msg(fits(compiled, FINAL, rows[_i].right), "%s", made);
    ck_assert_msg(fits(compiled, THOUGHT FINAL, rows[_i].right), "%s", made);
    ck_assert_msg(!fits(compiled, FINAL, rows[_i].wrong), "%s", made);
    ck_assert_msg(!fits(compiled, "", rows[_i].right), "%s", made);
    grammar_free(compiled);
    free(made);
}
END_TEST

START_TEST(rejected)
{
    static const struct {
        enum grammar_kind kind;
        const char *grammar, *why;
    } wrong[] = {
        {GRAMMAR_JSON_SCHEMA, "7", "no object and not true: it is another value"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\"", "no object and not true: "},
        {GRAMMAR_JSON_SCHEMA, "{\"const\":\"a\\u0000b\"}", "no object and not true: "},
        {GRAMMAR_GBNF, "x ::= \"a\"", "there is no rule root"},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct grammar_source g;
        struct error error = {0};
        char *made;
        ck_assert_int_eq(place(wrong[i].kind, wrong[i].grammar, &g, &made, &error), -1);
        ck_assert_msg(error.code == ERR_BAD_INPUT && strstr(error.text, wrong[i].why), "%s",
                      error.text);
        free(made);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conversation");
    TCase *cases = tcase_create("place");
    tcase_add_loop_test(cases, placed, 0, (int)ARRAY_LEN(rows));
    tcase_add_test(cases, rejected);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
