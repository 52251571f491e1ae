/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF and the automaton: what it accepts, refuses and forces. Random expressions are compared with
 * the regular expressions of the C library. */
#include <check.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/grammar/grammar.h"

static struct grammar *compile(const char *text)
{
    struct error error = {0};
    struct grammar *g = NULL;
    ck_assert_msg(grammar_from_gbnf(text, strlen(text), NULL, &g, &error) == 0, "%s: %s", text,
                  error.text);
    return g;
}

/* 2: complete, 1: a beginning, 0: does not fit. */
static int fits(const struct grammar *g, const char *text)
{
    struct grammar_state *s = grammar_start(g);
    size_t bytes = strlen(text);
    int fit = grammar_accept_text(s, text, bytes) < bytes ? 0 : grammar_is_end(s) ? 2 : 1;
    grammar_stop(s);
    return fit;
}

#define PYTHON(properties) "root ::= %python {\"properties\":{" properties "}}"

static const struct {
    const char *grammar, *text;
    int fit;
} cases[] = {
    {"root ::= \"ab\"", "ab", 2},
    {"root ::= \"ab\"", "a", 1},
    {"root ::= \"ab\"", "abc", 0},
    {"root ::= \"a\" | \"b\" \"c\"", "bc", 2},
    {"root ::= \"a\"\n  | \"b\"\nx ::= \"c\"", "b", 2},
    {"root ::= x+ # comment\nx ::= [a-c]", "abcabc", 2},
    {"root ::= [^a]", "\xc3\xa9", 2},
    {"root ::= [^a]", "\xc3", 1},
    {"root ::= [^a]", "a", 0},
    {"root ::= [^a]", "\xed\xa0\x80", 0}, /* a surrogate */
    {"root ::= [^a]", "\xe0\x80\x80", 0}, /* a longer form than needed */
    {"root ::= [^a]", "\xf4\x90\x80\x80", 0},
    {"root ::= [^a]", "\xf4\x8f\xbf\xbf", 2},
    {"root ::= [\\u00e9-\\u20ac]", "\xe2\x82\xac", 2},
    {"root ::= [\\u00e9-\\u20ac]", "\xe2\x82\xad", 0},
    {"root ::= .{2}", "\xf0\x9f\x98\x80z", 2},
    {"root ::= \"\\x41\\n\\\"\\\\\"", "A\n\"\\", 2},
    {"root ::= \"(\" root \")\" | \"\"", "((()))", 2},
    {"root ::= \"(\" root \")\" | \"\"", "((())", 1},
    {"root ::= \"(\" root \")\" | \"\"", "(()))", 0},
    {"root ::= (\"a\"*)* \"b\"", "aaab", 2},
    {"root ::= (\"a\"?){3,5}", "", 2},
    {"root ::= (\"a\"?){3,5}", "aaaaa", 2},
    {"root ::= (\"a\"?){3,5}", "aaaaaa", 0},
    {"root ::= (\"a\" | \"b\" \"\"){2}", "ab", 2},
    {"root ::= \"a\"{2,}", "a", 1},
    {"root ::= \"a\"{2,}", "aaaaaaa", 2},
    {"root ::= ([ab]{1,2} \",\"){2}", "a,bb,", 2},
    {"root ::= ([ab]{1,2} \",\"){2}", "abb", 0},
    {"root ::= a b\na ::= \"x\"?\nb ::= \"y\" a", "yx", 2},
    {"root ::= \"<\" %json {\"type\":\"integer\"} \">\"", "<12>", 2},
    {"root ::= \"<\" %json {\"type\":\"integer\"} \">\"", "<\"1\">", 0},
    {"root ::= a | %json {\"enum\":[\"}\\\"{\"]}\na ::= %json {\"$ref\":\"#/$defs/x\",\"$defs\":{"
     "\"x\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/x\"}}}}",
     "[[],[[]]]", 2},
    {"root ::= a | %json {\"enum\":[\"}\\\"{\"]}\na ::= \"b\"", "\"}\\\"{\"", 2},
    {"root ::= %gemma {\"enum\":[\"}\\\"{\",1,null,[\"a\"]]}", "<|\"|>}\"{<|\"|>", 2},
    {"root ::= %gemma {\"enum\":[\"}\\\"{\",1,null,[\"a\"]]}", "\xff<|\"|>\xff}\"{<|\"|>", 2},
    {"root ::= %gemma {\"enum\":[\"}\\\"{\",1,null,[\"a\"]]}", "[<|\"|>a<|\"|>]", 2},
    {"root ::= %gemma {\"enum\":[\"}\\\"{\",1,null,[\"a\"]]}", "None", 2},
    {"root ::= %gemma {\"enum\":[\"}\\\"{\",1,null,[\"a\"]]}", "\"a\"", 0},
    {"root ::= %gemma {\"type\":\"string\"}", "<|\"|>a <<|\"<|x\n<|\"|<|\"|>", 2},
    {"root ::= %gemma {\"type\":\"string\"}", "<|\"|><|\"|>a", 0},
    {"root ::= %gemma {\"type\":\"string\",\"maxLength\":2}", "<|\"|>\xc3\xa9\"<|\"|>", 2},
    {"root ::= %gemma {\"type\":\"string\",\"maxLength\":2}", "<|\"|>aaa", 0},
    {"root ::= %gemma {\"type\":\"string\",\"pattern\":\"a[\\\"\\n]$\"}", "<|\"|>xa\n<|\"|>", 2},
    {"root ::= %gemma {\"type\":\"string\",\"pattern\":\"a[\\\"\\n]$\"}", "<|\"|>xa\\n<", 1},
    {"root ::= %gemma {\"type\":\"string\",\"pattern\":\"a[\\\"\\n]$\"}", "<|\"|>xa\\n<|\"|>", 0},
    {"root ::= %gemma {\"type\":\"object\"}", "{a b:1}", 0},
    {"root ::= %gemma {\"type\":\"object\"}", "{a_b:{c:[true, 1.5]}}", 2},
    {PYTHON("\"a\":{\"type\":\"boolean\"},\"b\":{\"type\":[\"integer\",\"null\"]}"),
     "a=True, b=None", 2},
    {PYTHON("\"a\":{\"type\":\"boolean\"},\"b\":{\"type\":[\"integer\",\"null\"]}"), "b=7", 2},
    {PYTHON("\"a\":{\"type\":\"boolean\"},\"b\":{\"type\":[\"integer\",\"null\"]}"),
     "a=false,b=null", 2},
    {PYTHON("\"a\":{\"type\":\"boolean\"},\"b\":{\"type\":[\"integer\",\"null\"]}"), "b=7, a=True",
     0},
    {PYTHON("\"a\":{\"type\":\"boolean\"}"), "{\"a\":true}", 0},
    {PYTHON("\"a\":{\"type\":\"boolean\"}"), "a=True, c=1", 0},
    {PYTHON("\"a\":{\"enum\":[true,\"x\",null]}"), "a=True", 2},
    {PYTHON("\"a\":{\"enum\":[true,\"x\",null]}"), "a=\"x\"", 2},
    {PYTHON("\"a\":{\"enum\":[true,\"x\",null]}"), "a=False", 0},
    {PYTHON("\"a\":{\"properties\":{\"b\":{\"const\":[false]}}}"), "a={\"b\":[False]}", 2},
    {PYTHON("\"a\":{\"properties\":{\"b\":{\"const\":[false]}}}"), "a={b=[False]}", 0},
    {"root ::= %python {\"type\":\"object\"}", "a_1={\"b\": [None, True, 1.5, \"=\"]}, b=1", 2},
    {"root ::= %python {\"type\":\"object\"}", "1=2", 0},
    {"root ::= %python {\"title\":\"x\"}", "a={\"b\":1}", 2},
    {"root ::= %python {\"title\":\"x\"}", "5", 0},
    {"root ::= %python {\"properties\":{\"a\":{}},\"nullable\":true}", "null", 0},
    {PYTHON("\"a\":{\"type\":\"string\"}"), "a='x\\'\"\\n'", 2},
    {PYTHON("\"a\":{\"type\":\"string\"}"), "a='x\\d'", 0},
    {PYTHON("\"a\":{\"type\":\"string\",\"maxLength\":2}"), "a='x\\''", 2},
    {PYTHON("\"a\":{\"type\":\"string\",\"maxLength\":2}"), "a='xyz'", 0},
    {PYTHON("\"a\":{\"enum\":[\"x\",\"y'\"]}"), "a='x'", 2},
    {PYTHON("\"a\":{\"enum\":[\"x\",\"y'\"]}"), "a=\"y'\"", 2},
    {PYTHON("\"a\":{\"enum\":[\"x\",\"y'\"]}"), "a='y", 0},
    {PYTHON("\"a\":{\"properties\":{\"b\":{}}}"), "a={'b': ['c']}", 2},
    {PYTHON("\"a\":{\"type\":\"string\",\"pattern\":\"^x$\"}"), "a='", 0},
    {"root ::= %python {\"allOf\":[{\"properties\":{\"a\":{}}},{\"required\":[\"a\"]}]}", "a=[]",
     2},
    {"root ::= <\"]<]x[>[\"> \"a\"",
     "\xff]<]x[>[\xff"
     "a",
     2},
    {"root ::= <\"]<]x[>[\"> \"a\"", "]<]x[>[a", 2},
    {"root ::= <\"]<]x[>[\"> \"a\"", "\xff]<]x[>[a", 0},
    {"root ::= \"a\"\n%root x\nx ::= root \"b\"", "ab", 2},
    {"%root x\nroot ::= \"a\"\nx ::= root \"b\"", "a", 1},
};

START_TEST(accepted)
{
    struct grammar *g = compile(cases[_i].grammar);
    ck_assert_int_eq(fits(g, cases[_i].text), cases[_i].fit);
    grammar_free(g);
}
END_TEST

static const struct {
    const char *grammar, *why;
} refused[] = {
    {"", "no rule root"},
    {"x ::= \"a\"", "no rule root"},
    {"root ::= x", "line 1: the rule x is not defined"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2: a rule that was defined before"},
    {"root ::= root \"a\" | \"b\"", "begins with itself"},
    {"root ::= x? root \"a\" | \"b\"\nx ::= \"y\"", "begins with itself"},
    {"root ::= (root \"b\"){2} | \"a\"", "begins with itself"},
    {"root ::= \"a\" root", "no text fits"},
    {"root ::= []", "no text fits"},
    {"root ::= %json 7", "an object"},
    {"root ::= %jsonx {}", "an object"},
    {"root ::= <\"a\"", "> behind it"},
    {"root ::= <\"\">", "has a name"},
    {"root ::= %python {\"anyOf\":[{},{}]}", "the arguments of one object"},
    {"root ::= %python {\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{}}}",
     "the arguments of one object"},
    {"root ::= %python {\"type\":[\"object\",\"null\"]}", "arguments are an object"},
    {PYTHON("\"a b\":{}"), "names without quotes"},
    {"root ::= %json {\"type\":\n\"integer\"}", "no end in its line"},
    {"root ::= x\nx ::= %json {\"properties\":{\"a\":{\"not\":{}}}}",
     "GBNF, line 2: JSON Schema, at $.properties.a, not: this keyword"},
    {"root ::= \"a", "no closing quote"},
    {"root ::= [a", "no closing bracket"},
    {"root ::= [b-a]", "ends before it begins"},
    {"root ::= (\"a\"", "no closing parenthesis"},
    {"root ::= \"a\"{3,2}", "m at most n"},
    {"root ::= \"a\"{99999999999}", "above the limit"},
    {"root ::= \"\\q\"", "an escape"},
    {"root ::= \"\\ud800\"", "no character"},
    {"root ::= <[12]>", "numbers"},
    {"root ::= <[A>", "numbers"},
    {"root ::= <[]>", "numbers"},
    {"root ::= <", "<name>"},
    {"root ::= <>", "<name>"},
    {"root ::= !<a>", "left out"},
    {"root = \"a\"", "::="},
    {"root ::= \"a\" )", "belongs to no rule"},
    {"root ::= \"\xff\"", "UTF-8"},
};

START_TEST(refusals)
{
    struct error error = {0};
    struct grammar *g = NULL;
    ck_assert_int_eq(
        grammar_from_gbnf(refused[_i].grammar, strlen(refused[_i].grammar), NULL, &g, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, refused[_i].why) != NULL, "%s: %s", refused[_i].grammar,
                  error.text);
}
END_TEST

/* A random expression, which GBNF and POSIX write alike but for the quotes. */
static void random_expression(struct random *r, unsigned depth, char *gbnf, char *posix,
                              size_t room)
{
    static const char *const counts[] = {"*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}"};
    char g1[500], p1[500], g2[500], p2[500];
    uint64_t kind = random_below(r, depth ? 5 : 2);
    if (kind < 2) {
        char c = (char)('a' + random_below(r, 3));
        snprintf(gbnf, room, "\"%c\"", c);
        snprintf(posix, room, "%c", c);
        return;
    }
    random_expression(r, depth - 1, g1, p1, sizeof(g1));
    if (kind == 2) {
        const char *count = counts[random_below(r, ARRAY_LEN(counts))];
        snprintf(gbnf, room, "(%.400s)%s", g1, count);
        snprintf(posix, room, "(%.400s)%s", p1, count);
        return;
    }
    random_expression(r, depth - 1, g2, p2, sizeof(g2));
    snprintf(gbnf, room, kind == 3 ? "(%.240s %.240s)" : "(%.240s | %.240s)", g1, g2);
    snprintf(posix, room, kind == 3 ? "(%.240s%.240s)" : "(%.240s|%.240s)", p1, p2);
}

START_TEST(as_posix)
{
    struct random r;
    random_seed(&r, (uint64_t)_i, 0);
    char gbnf[500], posix[500], root[600], anchored[600];
    random_expression(&r, 3, gbnf, posix, sizeof(gbnf));
    snprintf(root, sizeof(root), "root ::= %s", gbnf);
    snprintf(anchored, sizeof(anchored), "^(%s)$", posix);
    struct grammar *g = compile(root);
    regex_t regex;
    ck_assert_int_eq(regcomp(&regex, anchored, REG_EXTENDED | REG_NOSUB), 0);
    for (unsigned n = 0; n < 3 * 364; n++) { /* texts of up to 5 of a, b, c */
        char text[8] = {0};
        unsigned left = n, i = 0;
        for (; left && i < 6; left /= 4)
            if (left % 4)
                text[i++] = (char)('a' + left % 4 - 1);
        ck_assert_msg((fits(g, text) == 2) == (regexec(&regex, text, 0, NULL, 0) == 0), "%s: %s",
                      gbnf, text);
    }
    regfree(&regex);
    grammar_free(g);
}
END_TEST

START_TEST(a_counter_costs_nothing)
{
    struct grammar *small = compile("root ::= \"x\" .{0,20} \"y\"");
    struct grammar *large = compile("root ::= \"x\" .{0,65536} \"y\"");
    ck_assert_uint_eq(grammar_memory_bytes(small), grammar_memory_bytes(large));
    struct grammar_state *s = grammar_start(large);
    ck_assert(grammar_accept(s, 'x'));
    for (unsigned i = 0; i < 65536; i++)
        ck_assert(grammar_accept(s, 'a'));
    ck_assert(!grammar_accept(s, 'a'));
    ck_assert(grammar_accept(s, 'y') && grammar_is_end(s) && !grammar_continues(s));
    grammar_stop(s);
    grammar_free(small);
    grammar_free(large);
}
END_TEST

START_TEST(depth_is_bounded_and_completed)
{
    struct grammar_limits limits = GRAMMAR_LIMITS_DEFAULT;
    struct error error = {0};
    struct grammar *g = NULL;
    static const char text[] =
        "root ::= \"(\" root \")\" | \"[\" \"<\" (root \".\") \">\" \"]\" | \"\"";
    limits.depth = 10;
    ck_assert_int_eq(grammar_from_gbnf(text, strlen(text), &limits, &g, &error), 0);
    struct grammar_state *s = grammar_start(g);
    unsigned depth = 0;
    while (grammar_accept(s, '('))
        depth++;
    ck_assert_uint_eq(depth, 10);
    ck_assert(!grammar_accept(s, '['));
    while (depth-- > 0)
        ck_assert(grammar_accept(s, ')'));
    ck_assert(grammar_is_end(s));
    grammar_stop(s);
    grammar_free(g);
}
END_TEST

/* Ambiguous texts have many stacks: some are dropped, but the text continues and ends. */
START_TEST(too_many_stacks_go_on)
{
    struct grammar *g = compile("root ::= [ab]* \"a\" [ab]{0,5000} \"c\" [ab]{900}");
    struct grammar_state *s = grammar_start(g);
    for (unsigned i = 0; i < 3000; i++)
        ck_assert(grammar_accept(s, 'a'));
    ck_assert(grammar_accept(s, 'c'));
    for (unsigned i = 0; i < 900; i++)
        ck_assert(grammar_accept(s, 'b'));
    ck_assert(grammar_is_end(s));
    grammar_stop(s);
    grammar_free(g);
}
END_TEST

START_TEST(forced_bytes)
{
    struct grammar *g =
        compile("root ::= \"name: \" [a-z] \"x\"{3} (\"!\" | \"?\") | \"name: 7.\"");
    struct grammar_state *s = grammar_start(g);
    char out[32];
    ck_assert_uint_eq(grammar_forced(s, out, sizeof(out), NULL), 6);
    ck_assert(memcmp(out, "name: ", 6) == 0);
    ck_assert_uint_eq(grammar_forced(s, out, 2, NULL), 2);
    ck_assert_uint_eq(grammar_accept_text(s, "name: q", 7), 7);
    ck_assert_uint_eq(grammar_forced(s, out, sizeof(out), NULL), 3);
    ck_assert_uint_eq(grammar_accept_text(s, "xxx!", 4), 4);
    ck_assert_uint_eq(grammar_forced(s, out, sizeof(out), NULL), 0);
    grammar_stop(s);
    grammar_free(g);
}
END_TEST

START_TEST(a_clone_goes_its_own_way)
{
    struct grammar *g = compile("root ::= \"a\" (\"b\" | \"c\")");
    struct grammar_state *s = grammar_start(g), *copy;
    ck_assert(grammar_accept(s, 'a'));
    copy = grammar_clone(s);
    ck_assert(grammar_accept(s, 'b') && grammar_is_end(s));
    ck_assert(!grammar_is_end(copy) && grammar_accept(copy, 'c'));
    grammar_stop(s);
    grammar_stop(copy);
    grammar_free(g);
}
END_TEST

static const struct {
    const char *grammar;
    struct grammar_limits limits;
} explosive[] = {
    {"root ::= \"aaaaaaaaaaaaaaaaaaaa\"", {10, 99, 99, 9, 9, 9}},
    {"root ::= \"a\" \"b\" \"c\" \"d\" \"e\" \"f\"", {99, 9, 99, 9, 9, 9}},
    {"root ::= \"aaaaaaaaaaaaaaaaaaaa\"", {99, 99, 9, 9, 9, 9}},
    {"root ::= [\\u0100] [\\u0200] [\\u1000]", {99, 99, 99, 2, 9, 9}},
};

START_TEST(limits_hold)
{
    struct error error = {0};
    struct grammar *g = NULL;
    ck_assert_int_eq(grammar_from_gbnf(explosive[_i].grammar, strlen(explosive[_i].grammar),
                                       &explosive[_i].limits, &g, &error),
                     -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gbnf");
    TCase *t = tcase_create("gbnf");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, accepted, 0, ARRAY_LEN(cases));
    tcase_add_loop_test(t, refusals, 0, ARRAY_LEN(refused));
    tcase_add_loop_test(t, as_posix, 0, 60);
    tcase_add_test(t, a_counter_costs_nothing);
    tcase_add_test(t, depth_is_bounded_and_completed);
    tcase_add_test(t, too_many_stacks_go_on);
    tcase_add_test(t, forced_bytes);
    tcase_add_test(t, a_clone_goes_its_own_way);
    tcase_add_loop_test(t, limits_hold, 0, ARRAY_LEN(explosive));
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
