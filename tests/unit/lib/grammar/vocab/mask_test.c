/* SPDX-License-Identifier: Apache-2.0 */
/* Masks: a token is allowed exactly if its bytes are accepted one after the other, whatever was
 * remembered of states before. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/grammar/vocab/vocab.h"
#include "tests/harness/sample.h"

#define TOKENS 1500

static char texts[TOKENS][16];
static struct token_text tokens[TOKENS];

static const struct {
    const char *text, *close;
} grammars[] = {
    {"root ::= (\"a\" [bc]{0,40} | \"(\" root \")\" | \"ab\" | [^a-c(){2}])*", NULL},
    {"root ::= [a-c]{5,300} \")\"{2,7}", NULL},
    {"root ::= \"(\" (root \"c\")? \")\" | \"ab\" {3} | .{0,3} \"x\"", NULL},
    {"root ::= (\"a\" | \"ab\" | \"b\")* [ab]{10,20} \"c\" .*", NULL},
    /* plain characters change nothing, or nearly nothing */
    {"root ::= (\"\\\"\" [^\\\"\\\\\\n]{0,900} \"\\\"\" [<\\n]?)*", NULL},
    {"root ::= (\"\\\"\" [^\\\"]{3,20} \"\\\"\" \"x\"?){9}", NULL},
    {"root ::= [^\u00e9\\n]* \"<\" [^x]*", NULL},
    {"root ::= [ -~]{0,300} \"\\n\" .*", NULL},
    /* in the middle of a mark, most characters lead back to free text */
    {"root ::= [a-c]{2,9} \"\\n\"", "<a"},
    {"root ::= \"(\" root? \")\"", "abac"},
    {"root ::= [^x]*", "\n\u00e9"},
};

/* Some without a text, some equal, some with parts of characters. */
static void make_tokens(struct random *r)
{
    static const char letters[] = "aabbbcc()x\"<\n\xc3\xa9\xe2";
    for (unsigned t = 0; t < TOKENS; t++) {
        uint32_t bytes = (uint32_t)random_below(r, t % 50 ? 6 : 14);
        for (unsigned i = 0; i < bytes; i++)
            texts[t][i] = letters[random_below(r, sizeof(letters) - 1)];
        tokens[t] = (struct token_text){texts[t], bytes};
    }
}

static bool fits(const struct grammar_state *s, struct token_text t)
{
    struct grammar_state *copy = grammar_clone(s);
    bool all = t.bytes && grammar_accept_text(copy, t.at, t.bytes) == t.bytes;
    grammar_stop(copy);
    return all;
}

static void compare(struct masks *m, struct grammar_state *s)
{
    const uint64_t *mask = grammar_mask(m, s);
    for (uint32_t t = 0; t < TOKENS; t++)
        ck_assert_msg((mask[t / 64] >> (t % 64) & 1) == fits(s, tokens[t]), "token %.*s",
                      (int)tokens[t].bytes, tokens[t].at);
}

START_TEST(as_each_token_by_itself)
{
    struct random r;
    struct error error = {0};
    struct grammar *g = NULL;
    random_seed(&r, (uint64_t)_i, 0);
    make_tokens(&r);
    struct grammar_source source = {.kind = GRAMMAR_GBNF,
                                    .text = grammars[_i].text,
                                    .bytes = strlen(grammars[_i].text),
                                    .close = grammars[_i].close};
    ck_assert_msg(grammar_compile(&source, NULL, &g, &error) == 0, "%s", error.text);
    struct vocab *v = vocab_new(tokens, TOKENS);
    struct masks *m = masks_new(v, 8);
    struct grammar_state *s = grammar_start(g);
    const unsigned steps = test_amount(AMOUNT_mask_steps);
    for (unsigned step = 0; step < steps && grammar_continues(s); step++) {
        compare(m, s);
        uint32_t t = (uint32_t)random_below(&r, TOKENS);
        for (unsigned i = 0; i < TOKENS && !fits(s, tokens[t]); i++)
            t = (t + 1) % TOKENS;
        if (!fits(s, tokens[t]))
            break;
        grammar_accept_text(s, tokens[t].at, tokens[t].bytes);
    }
    grammar_stop(s);
    masks_free(m);
    vocab_free(v);
    grammar_free(g);
}
END_TEST

/* Within a long string, a counter's value makes no new mask. */
START_TEST(remembered)
{
    static const char text[] = "root ::= [a-c]{0,60000} \"x\"";
    static const char other[] = "root ::= [b-d]{0,60000} \"x\"";
    struct random r;
    struct error error = {0};
    struct grammar *g = NULL;
    random_seed(&r, 1, 0);
    make_tokens(&r);
    ck_assert_int_eq(grammar_from_gbnf(text, strlen(text), NULL, &g, &error), 0);
    struct vocab *v = vocab_new(tokens, TOKENS);
    struct masks *m = masks_new(v, 8);
    struct grammar_state *s = grammar_start(g);
    for (unsigned i = 0; i < 1000; i++) {
        ck_assert(grammar_mask(m, s) != NULL);
        ck_assert(grammar_accept(s, 'a'));
    }
    struct masks_counts counts = masks_counts(m);
    ck_assert_uint_le(counts.made, 2);
    ck_assert_uint_eq(counts.found + counts.made, 1000);
    grammar_stop(s);
    grammar_free(g); /* the next one may get its memory, but not its masks */
    ck_assert_int_eq(grammar_from_gbnf(other, strlen(other), NULL, &g, &error), 0);
    s = grammar_start(g);
    compare(m, s);
    grammar_stop(s);
    masks_free(m);
    vocab_free(v);
    grammar_free(g);
}
END_TEST

/* Text that can be read in hundreds of ways: the work for a mask ends, and what the mask has
 * fits. */
START_TEST(bounded_work)
{
    enum { MANY = 30000, LONGEST = 10, TEXT = 60 };
    static const char text[] = "root ::= [a-d]{0,300} [a-d]{0,300} [a-d]{0,300} \"z\"";
    struct random r;
    struct error error = {0};
    struct grammar *g = NULL;
    char(*long_texts)[LONGEST] = malloc(MANY * sizeof *long_texts);
    struct token_text *many = malloc(MANY * sizeof *many);
    ck_assert(long_texts && many);
    random_seed(&r, 1, 0);
    for (unsigned t = 0; t < MANY; t++) {
        for (unsigned i = 0; i < LONGEST; i++)
            long_texts[t][i] = (char)('a' + random_below(&r, 4));
        many[t] = (struct token_text){long_texts[t], LONGEST};
    }
    ck_assert_int_eq(grammar_from_gbnf(text, sizeof text - 1, NULL, &g, &error), 0);
    struct vocab *v = vocab_new(many, MANY);
    struct masks *m = masks_new(v, 1);
    struct grammar_state *s = grammar_start(g);
    for (unsigned i = 0; i < TEXT; i++)
        ck_assert(grammar_accept(s, 'a'));
    const uint64_t *mask = grammar_mask(m, s);
    struct masks_counts counts = masks_counts(m);
    uint64_t most = counts.nodes * MASK_STEPS_PER_NODE;
    ck_assert_uint_le(counts.steps_most, most > MASK_STEPS_MIN ? most : MASK_STEPS_MIN);
    unsigned allowed = 0;
    for (unsigned t = 0; t < MANY; t++)
        if (mask[t / 64] >> (t % 64) & 1) {
            allowed++;
            ck_assert(t % 100 || fits(s, many[t]));
        }
    ck_assert_uint_gt(allowed, 0);
    ck_assert_uint_lt(allowed, MANY); /* else there was less work than the bound */
    grammar_stop(s);
    masks_free(m);
    vocab_free(v);
    grammar_free(g);
    free(many);
    free(long_texts);
}
END_TEST

/* A token for the byte that is the border of control tokens is none of them. */
START_TEST(borders)
{
    static const struct token_text some[] = {{"\xff", 1},  {"\xff<x>\xff", 5},  {"<x>", 3},
                                             {"a\xff", 2}, {"\xff\xff\xff", 3}, {"\xff\xff", 2}};
    static const char text[] = "root ::= <x> \"a\"";
    struct error error = {0};
    struct grammar *g;
    ck_assert(grammar_from_gbnf(text, sizeof text - 1, NULL, &g, &error) == 0);
    struct vocab *v = vocab_new(some, ARRAY_LEN(some));
    struct masks *m = masks_new(v, 4);
    struct grammar_state *s = grammar_start(g);
    ck_assert_uint_eq(grammar_mask(m, s)[0], 1u << 1 | 1u << 2);
    grammar_stop(s);
    masks_free(m);
    vocab_free(v);
    grammar_free(g);
}
END_TEST

START_TEST(no_tokens)
{
    struct error error = {0};
    struct grammar *g = NULL;
    ck_assert_int_eq(grammar_from_gbnf("root ::= \"a\"", 12, NULL, &g, &error), 0);
    struct vocab *v = vocab_new(NULL, 0);
    struct masks *m = masks_new(v, 0);
    struct grammar_state *s = grammar_start(g);
    ck_assert(grammar_mask(m, s) != NULL);
    ck_assert_uint_eq(vocab_mask_words(v), 0);
    grammar_stop(s);
    masks_free(m);
    vocab_free(v);
    grammar_free(g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mask");
    TCase *t = tcase_create("mask");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, as_each_token_by_itself, 0, ARRAY_LEN(grammars));
    tcase_add_test(t, remembered);
    tcase_add_test(t, bounded_work);
    tcase_add_test(t, borders);
    tcase_add_test(t, no_tokens);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
