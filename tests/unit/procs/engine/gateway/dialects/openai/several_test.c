/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for several answers, and for an answer that begins with the prompt. */
#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/openai/openai.h"
#include "tests/unit/procs/engine/gateway/dialects/bodies.h"

#define PROMPT(more) "{\"prompt\":\"x\"" more "}"

START_TEST(how_many)
{
    static const struct {
        const char *body;
        unsigned answers, tries;
        const char *front;
    } rows[] = {
        {PROMPT(""), 1, 1, NULL},
        {PROMPT(",\"n\":3,\"echo\":true"), 3, 3, "x"},
        {PROMPT(",\"best_of\":4,\"n\":2"), 2, 4, NULL},
        {PROMPT(",\"best_of\":2,\"n\":2,\"stream\":true"), 2, 2, NULL},
    };
    struct bodies b;
    bodies_open(&b, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bodies_check(&b, &openai_completion, rows[i].body, "x");
        ck_assert(b.request.answers == rows[i].answers && b.request.tries == rows[i].tries);
        ck_assert_pstr_eq(b.request.front, rows[i].front);
    }
    bodies_check(&b, &openai_chat, "{\"n\":2,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                 "User: a\nAssistant:");
    ck_assert(b.request.answers == 2 && b.request.tries == 2);
    bodies_close(&b);
}
END_TEST

/* The tokens of the gap are the model's, those in the texts are not. */
START_TEST(gaps)
{
    struct bodies b;
    bodies_open(&b, NULL);
    bodies_reject(&b, &openai_completion, PROMPT(",\"suffix\":\"y\""), "suffix",
                  "no tokens for a gap");
    bodies_check(&b, &openai_completion, PROMPT(",\"suffix\":\"\""), "x");
    static const char *const tokens[] = {"<P>", "<SUF>", "<M>"};
    for (size_t i = 0; i < CHAT_GAP_TOKENS; i++)
        strcpy(b.format.model.gap[i], tokens[i]);
    bodies_check(&b, &openai_completion, PROMPT(",\"suffix\":\"<M>y\",\"echo\":true"),
                 "<P>x<SUF><M>y<M>");
    ck_assert_str_eq(b.request.front, "x");
    const struct text_ranges *r = &b.request.special;
    ck_assert(r->count == 3 && r->at[0].to == 3 && r->at[1].from == 4 && r->at[1].to == 9 &&
              r->at[2].from == 13 && r->at[2].to == 16);
    bodies_reject(&b, &openai_completion, "{\"prompt\":[5],\"suffix\":\"y\"}", "suffix", "a text");
    bodies_close(&b);
}
END_TEST

START_TEST(impossible)
{
    static const char *const rows[][3] = {
        {PROMPT(",\"n\":0"), "n", "from 1 to 64"},
        {PROMPT(",\"n\":65"), "n", "from 1 to 64"},
        {PROMPT(",\"n\":true"), "n", "from 1 to 64"},
        {PROMPT(",\"n\":3,\"best_of\":2"), "best_of", "at least n, 3"},
        {PROMPT(",\"best_of\":2,\"stream\":true"), "best_of", "stream is true"},
        {"{\"prompt\":[5],\"echo\":true}", "echo", "a text"},
        {"{\"prompt\":[[5],[6]]}", "prompt", "only one prompt"},
        {"{\"prompt\":[[[5]]]}", "prompt", "an array of token ids"},
        {PROMPT(",\"echo\":true,\"logprobs\":0,\"suffix\":\"y\""), "echo", "a suffix"},
    };
    struct bodies b;
    bodies_open(&b, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bodies_reject(&b, &openai_completion, rows[i][0], rows[i][1], rows[i][2]);
    bodies_close(&b);
}
END_TEST

/* With log-probabilities the tokens of the prompt come from the engine; without, its text from
 * here. */
START_TEST(echoes)
{
    static const struct {
        const char *body;
        bool scored, front;
    } rows[] = {
        {PROMPT(",\"echo\":true"), false, true},
        {PROMPT(",\"logprobs\":1"), false, false},
        {PROMPT(",\"echo\":true,\"logprobs\":0"), true, false},
        {"{\"prompt\":[\"  x\"],\"echo\":true,\"logprobs\":1,\"max_tokens\":0}", true, false},
        {"{\"prompt\":[[5,6]],\"echo\":true,\"logprobs\":1}", true, false},
    };
    struct bodies b;
    bodies_open(&b, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(bodies_parse(&b, &openai_completion, rows[i].body) == 0, "%s", b.error.text);
        const struct api_request *r = &b.request;
        ck_assert_msg(r->scored == rows[i].scored && (r->front != NULL) == rows[i].front, "row %zu",
                      i);
    }
    ck_assert(b.request.ids_count == 2 && b.request.ids[1] == 6);
    ck_assert_str_eq(b.param, ""); /* a later error is about no field */
    bodies_close(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("several");
    tcase_add_test(cases, how_many);
    tcase_add_test(cases, gaps);
    tcase_add_test(cases, impossible);
    tcase_add_test(cases, echoes);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
