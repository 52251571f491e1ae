/* SPDX-License-Identifier: Apache-2.0 */
/* Grammar, biases and most probable tokens, from one end of the engine's calls to the other. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "lib/base/bytes.h"

static json_t *sent(const struct engine_submit *s)
{
    struct error error;
    json_t *request = engine_submit_request(s, &error);
    ck_assert_msg(request != NULL, "%s", error.text);
    return request;
}

static struct engine_submit minimal(void)
{
    struct engine_submit s;
    engine_submit_defaults(&s);
    s.prompt = "x";
    s.prompt_bytes = 1;
    return s;
}

START_TEST(grammar_and_biases_arrive)
{
    static const struct sampler_bias bias[] = {{7, -100}, {0, 0.25f}};
    struct engine_submit s = minimal(), got;
    struct error error;
    s.grammar = (struct grammar_source){.kind = GRAMMAR_GBNF,
                                        .text = "root ::= \"\\\"\"",
                                        .bytes = 13,
                                        .open = "<think>",
                                        .close = "</think>"};
    s.bias = bias;
    s.bias_count = 2;
    s.top_logprobs = ENGINE_TOP_MAX;
    json_t *request = sent(&s);
    ck_assert_msg(engine_submit_parse(request, &got, &error) == 0, "%s", error.text);
    ck_assert_int_eq(got.grammar.kind, GRAMMAR_GBNF);
    ck_assert_uint_eq(got.grammar.bytes, 13);
    ck_assert_str_eq(got.grammar.text, s.grammar.text);
    ck_assert_str_eq(got.grammar.open, "<think>");
    ck_assert_str_eq(got.grammar.close, "</think>");
    ck_assert_ptr_null(got.grammar.trigger);
    ck_assert_uint_eq(got.bias_count, 2);
    ck_assert_int_eq(memcmp(got.bias, bias, sizeof bias), 0);
    ck_assert_int_eq(got.top_logprobs, ENGINE_TOP_MAX);
    engine_submit_parsed_free(&got);
    json_decref(request);
}
END_TEST

START_TEST(without_them_nothing_is_sent)
{
    struct engine_submit s = minimal(), got;
    struct error error;
    json_t *request = sent(&s);
    ck_assert_ptr_null(json_object_get(request, "grammar"));
    ck_assert_ptr_null(json_object_get(request, "logit_bias"));
    ck_assert_int_eq(engine_submit_parse(request, &got, &error), 0);
    ck_assert_int_eq(got.grammar.kind, GRAMMAR_NONE);
    engine_submit_parsed_free(&got);
    json_decref(request);
}
END_TEST

static const struct {
    const char *members, *why;
} refused[] = {
    {"'grammar':1", "must be an object"},
    {"'grammar':{}", "kind and text"},
    {"'grammar':{'kind':'lark','text':'x'}", "grammar.kind"},
    {"'grammar':{'kind':'gbnf','text':''}", "grammar.text"},
    {"'grammar':{'kind':'gbnf','text':'x','close':''}", "grammar.close"},
    {"'grammar':{'kind':'gbnf','text':'x','trigger':'a\\u0000b'}", "grammar.trigger"},
    {"'grammar':{'kind':'gbnf','text':'x','open':'<a>'}", "needs grammar.close"},
    {"'grammar':{'kind':'gbnf','text':'x','after':'<a>'}", "grammar.after"},
    {"'grammar':{'kind':'gbnf','text':'x'},'forced':[1]", "forced"},
    {"'logit_bias':{'1':2}", "logit_bias must be"},
    {"'logit_bias':[[1]]", "logit_bias[0]"},
    {"'logit_bias':[[1,2],[1,101]]", "logit_bias[1]"},
    {"'logit_bias':[[-1,2]]", "logit_bias[0]"},
    {"'top_logprobs':21", "top_logprobs"},
};

START_TEST(refusals_name_the_member)
{
    char text[400];
    struct engine_submit got;
    struct error error;
    snprintf(text, sizeof text, "{'prompt':'x','request_key':'k',%s}", refused[_i].members);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *body = json_loads(text, JSON_ALLOW_NUL, NULL);
    ck_assert_ptr_nonnull(body);
    ck_assert_int_eq(engine_submit_parse(body, &got, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, refused[_i].why) != NULL, "%s", error.text);
    engine_submit_parsed_free(&got);
    json_decref(body);
}
END_TEST

START_TEST(too_many_biases_are_refused)
{
    struct sampler_bias bias[ENGINE_BIASES_MAX + 1] = {{0, 0}};
    struct engine_submit s = minimal(), got;
    struct error error;
    s.bias = bias;
    for (size_t over = 0; over <= 1; over++) {
        s.bias_count = ENGINE_BIASES_MAX + over;
        json_t *request = sent(&s);
        ck_assert_int_eq(engine_submit_parse(request, &got, &error), over ? -1 : 0);
        engine_submit_parsed_free(&got);
        json_decref(request);
    }
}
END_TEST

START_TEST(most_probable_tokens_arrive)
{
    static const uint32_t ids[] = {3, 4};
    static const struct engine_top top[] = {
        {3, 2, -0.5, "\xc3\xa9"}, {9, 1, -1.5, "\xff"}, {4, 0, 0, ""}, {1, 1, -INFINITY, "a"}};
    struct engine_next next = {
        .ids = ids, .count = 2, .text = "", .next = 2, .top = top, .top_each = 2};
    struct engine_next got;
    struct error error;
    json_t *reply = engine_next_reply(&next);
    ck_assert_msg(engine_next_read(reply, 0, &got, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(got.top_each, 2);
    for (size_t i = 0; i < ARRAY_LEN(top); i++) {
        ck_assert_uint_eq(got.top[i].id, top[i].id);
        ck_assert_uint_eq(got.top[i].bytes, top[i].bytes);
        ck_assert_int_eq(memcmp(got.top[i].text, top[i].text, top[i].bytes), 0);
        ck_assert(got.top[i].logprob == top[i].logprob);
    }
    engine_next_free(&got);
}
END_TEST

static const char *const wrong_top[] = {
    "[]",
    "[[[1,-1,\"61\"]],[]]",
    "[[[1,-1,\"6g\"]],[[1,-1,\"61\"]]]",
    "[[[-1,-1,\"61\"]],[[1,-1,\"61\"]]]",
};

START_TEST(wrong_replies_are_refused)
{
    struct engine_next got;
    struct error error;
    json_t *reply = json_pack("{s:[i,i], s:s, s:i, s:b, s:o}", "ids", 1, 2, "text", "", "next", 2,
                              "done", 0, "top", json_loads(wrong_top[_i], 0, NULL));
    ck_assert_int_eq(engine_next_read(reply, 0, &got, &error), -1);
    ck_assert_int_eq(error.code, ERR_FAILED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("constraints");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, grammar_and_biases_arrive);
    tcase_add_test(tc, without_them_nothing_is_sent);
    tcase_add_loop_test(tc, refusals_name_the_member, 0, ARRAY_LEN(refused));
    tcase_add_test(tc, too_many_biases_are_refused);
    tcase_add_test(tc, most_probable_tokens_arrive);
    tcase_add_loop_test(tc, wrong_replies_are_refused, 0, ARRAY_LEN(wrong_top));
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
