/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of an answer with real tokenizers: random answers fit it, and an answer that is
 * continued from its tokens, as after a restart, continues in the same way. */
#include "procs/engine/compute/constraints/constraint.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "tests/unit/lib/model/tokenizer/opened.h"

#define DATA       SLUICE_SOURCE_DIR "/tests/golden/data/tokenizers/"
#define TOKENS_MAX 300

static const char *const files[] = {DEMO, DATA "spm.gguf", DATA "olmo.gguf", DATA "nfc.gguf"};

static const struct grammar_source sources[] = {
    {.kind = GRAMMAR_JSON_SCHEMA,
     .text = "{\"type\": \"object\", \"properties\": {\"first_name\": {\"type\": \"string\", "
             "\"maxLength\": 9}, \"colours of it\": {\"enum\": [\"green\", \"grey\", \"r\xc3\xa9"
             "d\"]}}, \"required\": [\"first_name\", \"colours of it\"], \"additionalProperties\": "
             "false}"},
    {.kind = GRAMMAR_GBNF,
     .text = "root ::= \"  The answer is:\\n\" [a-z ]{1,30} (\".\" | \" and so on; it ends.\")"},
    {.kind = GRAMMAR_GBNF, .text = "root ::= \"x\"{3,40} \"end of it\"", .close = "e"},
    {.kind = GRAMMAR_GBNF, .text = "root ::= (\"word\" \" \"){8}", .trigger = "a"},
};

struct rig {
    struct opened o;
    struct grammars grammars;
    struct constraints all;
};

static void rig_open(struct rig *r, const char *file)
{
    struct error error = {0};
    r->o = open_fd(open(file, O_RDONLY | O_CLOEXEC));
    grammars_init(&r->grammars, r->o.t);
    uint32_t logits = tokenizer_vocab(r->o.t) + 64; /* models round it up */
    ck_assert_int_eq(constraints_open(&r->all, &r->grammars, logits, &error), 0);
}

static void rig_close(struct rig *r)
{
    constraints_close(&r->all);
    grammars_close(&r->grammars);
    close_both(&r->o);
}

/* One of the tokens of the mask. */
static uint32_t any_of(const struct rig *r, const uint64_t *mask, struct random *random)
{
    uint32_t first = (uint32_t)random_below(random, tokenizer_vocab(r->o.t));
    for (uint32_t i = 0;; i++) {
        uint32_t id = (first + i) % tokenizer_vocab(r->o.t);
        ck_assert_uint_lt(i, tokenizer_vocab(r->o.t));
        if (mask[id / 64] >> (id % 64) & 1)
            return id;
    }
}

/* Begun again with the same tokens, it is where the answer is. */
static void check_again(struct rig *r, struct constraint *c, const _Atomic uint32_t *log,
                        uint32_t count)
{
    struct constraint again;
    struct error error = {0};
    uint64_t mask[4096];
    ck_assert_msg(constraint_begin(&again, &r->all, r->grammars.of_row[0], log, count, &error) == 0,
                  "%s", error.text);
    ck_assert_uint_eq(constraint_forced(&again), constraint_forced(c));
    ck_assert_int_eq(constraint_is_complete(&again), constraint_is_complete(c));
    const uint64_t *found = constraint_mask(c, true);
    if (found) {
        ck_assert_uint_le(r->all.mask_words, ARRAY_LEN(mask));
        memcpy(mask, found, r->all.mask_words * sizeof *mask);
        ck_assert_mem_eq(constraint_mask(&again, true), mask, r->all.mask_words * sizeof *mask);
    }
    constraint_end(&again);
}

/* A random answer; returns how many of its tokens were forced. */
static unsigned random_answer(struct rig *r, struct random *random)
{
    static _Atomic uint32_t log[TOKENS_MAX];
    struct constraint c;
    struct error error = {0};
    uint32_t count = 0;
    unsigned forced = 0;
    ck_assert_int_eq(constraint_begin(&c, &r->all, r->grammars.of_row[0], log, 0, &error), 0);
    while (!constraint_is_complete(&c) && count < TOKENS_MAX) {
        const uint64_t *mask = constraint_mask(&c, true);
        ck_assert_ptr_nonnull(mask);
        uint32_t token = constraint_forced(&c);
        forced += token != TOKEN_NONE;
        if (token == TOKEN_NONE)
            token = any_of(r, mask, random);
        ck_assert_msg(mask[token / 64] >> (token % 64) & 1, "a forced token is not allowed");
        if (tokenizer_is_end(r->o.t, token))
            break;
        log[count++] = token;
        ck_assert_msg(constraint_take(&c, token, &error) == 0, "%s", error.text);
        if (random_below(random, 4) == 0)
            check_again(r, &c, log, count);
    }
    constraint_end(&c);
    return forced;
}

START_TEST(random_answers)
{
    struct rig r;
    struct random random;
    struct error error = {0};
    unsigned forced = 0;
    rig_open(&r, files[_i]);
    random_seed(&random, (uint64_t)_i, 0);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct grammar_source s = sources[i];
        s.bytes = strlen(s.text);
        ck_assert_msg(grammars_take(&r.grammars, &s, 0, &error) == 0, "%s", error.text);
        for (unsigned n = 0; n < 12; n++)
            forced += random_answer(&r, &random);
        grammars_drop(&r.grammars, 0);
    }
    ck_assert_uint_gt(forced, 50); /* also by a tokenizer that begins texts with a blank */
    rig_close(&r);
}
END_TEST

/* The same source is compiled once; others are given up when no row has them. */
START_TEST(sources_are_shared)
{
    struct rig r;
    struct error error = {0};
    rig_open(&r, DEMO);
    struct grammar_source s = sources[0];
    s.bytes = strlen(s.text);
    ck_assert_int_eq(grammars_take(&r.grammars, &s, 3, &error), 0);
    ck_assert_int_eq(grammars_take(&r.grammars, &s, 4, &error), 0);
    ck_assert_ptr_eq(r.grammars.of_row[3], r.grammars.of_row[4]);
    s.close = "</think>";
    ck_assert_int_eq(grammars_take(&r.grammars, &s, 5, &error), 0);
    ck_assert_ptr_ne(r.grammars.of_row[3], r.grammars.of_row[5]);
    grammars_drop(&r.grammars, 3);
    grammars_drop(&r.grammars, 3); /* it has none any more */
    grammars_drop(&r.grammars, 5);
    char text[100];
    for (unsigned i = 0; i < 3000; i++) { /* each takes more than 2 KiB */
        snprintf(text, sizeof text, "root ::= \"%u\" [a-c]{5} | \"%u\" [\\u0400-\\uFFFF]", i, i);
        s = (struct grammar_source){.kind = GRAMMAR_GBNF, .text = text, .bytes = strlen(text)};
        ck_assert_int_eq(grammars_take(&r.grammars, &s, 5, &error), 0);
        grammars_drop(&r.grammars, 5);
        ck_assert_uint_le(r.grammars.bytes, GRAMMARS_KEPT_BYTES);
    }
    ck_assert_ptr_nonnull(r.grammars.of_row[4]);
    grammars_drop(&r.grammars, 4);
    s.text = "root ::= (";
    s.bytes = strlen(s.text);
    ck_assert_int_eq(grammars_take(&r.grammars, &s, 4, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_ptr_null(r.grammars.of_row[4]);
    rig_close(&r);
}
END_TEST

/* A vocabulary without the bytes of the text: there is no token to sample, and no hang. */
START_TEST(no_token_continues)
{
    struct rig r;
    struct constraint c;
    struct error error = {0};
    rig_open(&r, DEMO);
    struct token_text *texts = calloc(tokenizer_vocab(r.o.t), sizeof *texts);
    texts[1] = (struct token_text){"y", 1};
    r.grammars.vocab = vocab_new(texts, tokenizer_vocab(r.o.t));
    free(texts);
    struct grammar_source s = {
        .kind = GRAMMAR_GBNF, .text = "root ::= [\\u20ac\\u20ad] \"x\"", .bytes = 27};
    ck_assert_int_eq(grammars_take(&r.grammars, &s, 0, &error), 0);
    ck_assert_int_eq(constraint_begin(&c, &r.all, r.grammars.of_row[0], NULL, 0, &error), 0);
    ck_assert_uint_eq(constraint_forced(&c), TOKEN_NONE);
    ck_assert_ptr_null(constraint_mask(&c, true));
    ck_assert_int_eq(constraint_take(&c, 0, &error), -1);
    ck_assert_int_eq(error.code, ERR_FAILED);
    constraint_end(&c);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("constraint");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, random_answers, 0, ARRAY_LEN(files));
    tcase_add_test(tc, sources_are_shared);
    tcase_add_test(tc, no_token_continues);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
