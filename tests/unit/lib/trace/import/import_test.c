/* SPDX-License-Identifier: Apache-2.0 */
/* Imported recordings: every record of small ones, and what is rejected. */
#include "tests/unit/lib/trace/import/import_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/trace/import/import.h"

#define HEAD                                                                                       \
    "# route_trace v1\n# model=m n_layer=3 n_expert=8 n_expert_used=2\n"                           \
    "# layer=0 expert_bytes=0 dense_bytes=9\n# layer=1 expert_bytes=100\n"                         \
    "# layer=2 expert_bytes=201\n"                                                                 \
    "turn,phase,step,layer,slot,expert,weight,residency\n"

static int import(const char *text, const struct trace_import *how, struct trace *t,
                  struct error *error)
{
    static const struct trace_import none;
    return trace_import(text, strlen(text), how ? how : &none, t, error);
}

/* A record as text: kind, layer, expert, tokens, rank, prefill, weight and weight before. */
static void check_records(const struct trace *t, const char *const *want, size_t count)
{
    char got[128];
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_record *r = &t->records[i];
        if (r->kind == TRACE_EXPERT)
            snprintf(got, sizeof got, "%u: %u/%u x%u rank %u %s %.3f %.3f", r->position, r->layer,
                     r->expert, r->tokens, r->rank, r->prefill ? "prompt" : "token", r->weight,
                     r->prefill ? r->before : 0);
        else
            snprintf(got, sizeof got, "%u: %s %u", r->position,
                     r->kind == TRACE_SEQUENCE_START ? "start"
                     : r->kind == TRACE_SEQUENCE_END ? "end"
                     : r->prefill                    ? "prompt"
                                                     : "token",
                     r->tokens);
        ck_assert_msg(i < count && strcmp(got, want[i]) == 0, "record %zu is '%s', expected '%s'",
                      i, got, i < count ? want[i] : "none");
    }
    ck_assert_uint_eq(t->count, count);
}

/* Rows in any order; a prompt of two tokens as a chunk, most used first; NaN is no weight. */
START_TEST(rows_become_a_trace)
{
    static const char text[] = HEAD "0,1,2,2,0,1,0.5,0\n0,1,2,1,1,3,nan,0\n0,1,2,1,0,7,0.25,0\n"
                                    "0,0,0,1,0,4,0.75,0\r\n0,0,0,1,1,5,0.25\n0,0,1,1,0,5,0.5\n"
                                    "0,0,1,1,1,6,0.5\n0,0,0,2,0,0,1\n\n"
                                    "1,0,0,1,0,2,1\n1,0,0,2,0,2,1\n";
    static const char *const want[] = {"0: start 2",
                                       "0: 1/5 x2 rank 0 prompt 0.500 0.000",
                                       "0: 1/4 x1 rank 0 prompt 0.750 0.000",
                                       "0: 1/6 x1 rank 1 prompt 0.500 0.500",
                                       "0: 2/0 x1 rank 0 prompt 1.000 0.000",
                                       "0: prompt 2",
                                       "2: 1/7 x1 rank 0 token 0.250 0.000",
                                       "2: 1/3 x1 rank 1 token 0.000 0.000",
                                       "2: 2/1 x1 rank 0 token 0.500 0.000",
                                       "2: token 1",
                                       "3: 1/2 x1 rank 0 prompt 1.000 0.000",
                                       "3: 2/2 x1 rank 0 prompt 1.000 0.000",
                                       "3: prompt 1",
                                       "4: end 0"};
    struct trace t;
    struct error error;
    ck_assert_msg(import(text, NULL, &t, &error) == 0, "%s", error.text);
    check_records(&t, want, sizeof want / sizeof want[0]);
    ck_assert_uint_eq(t.header.layers, 3);
    ck_assert(!expert_layers_has(&t.header.expert_layers, 0));
    ck_assert_uint_eq(t.header.precision_bytes[PRECISION_NATIVE], 151); /* mean of 100 and 201 */
    trace_free(&t);
}
END_TEST

START_TEST(lines_of_tokens)
{
    static const char text[] = "{\"tok\": 9, \"layers\": [[1, 2], [3, 0]]}\n \n"
                               "{\"layers\": [[2, 3], [1, 0]]}\n";
    static const char *const want[] = {"0: start 0",
                                       "0: 1/1 x1 rank 0 token 0.500 0.000",
                                       "0: 1/2 x1 rank 1 token 0.500 0.000",
                                       "0: 2/3 x1 rank 0 token 0.500 0.000",
                                       "0: 2/0 x1 rank 1 token 0.500 0.000",
                                       "0: token 1",
                                       "1: 1/2 x1 rank 0 token 0.500 0.000",
                                       "1: 1/3 x1 rank 1 token 0.500 0.000",
                                       "1: 2/1 x1 rank 0 token 0.500 0.000",
                                       "1: 2/0 x1 rank 1 token 0.500 0.000",
                                       "1: token 1",
                                       "2: end 0"};
    const struct trace_import how = {.experts = 4, .dense = 1};
    struct trace t;
    struct error error;
    ck_assert_msg(import(text, &how, &t, &error) == 0, "%s", error.text);
    check_records(&t, want, sizeof want / sizeof want[0]);
    ck_assert_uint_eq(t.header.top_k, 2);
    ck_assert_uint_eq(t.header.precision_bytes[PRECISION_NATIVE], 1 << 20);
    trace_free(&t);
}
END_TEST

/* The last layer of the prompt was computed for its last token only. */
START_TEST(lines_of_passes)
{
    static const char text[] =
        "{\"decode\":1,\"layer\":0,\"n_tokens\":1,\"n_used\":1,\"experts\":[[3]]}\n"
        "{\"decode\":0,\"layer\":0,\"n_tokens\":2,\"n_used\":1,\"experts\":[[1],[2]]}\n"
        "{\"decode\":0,\"layer\":1,\"n_tokens\":1,\"n_used\":1,\"experts\":[[0]]}\n"
        "{\"decode\":1,\"layer\":1,\"n_tokens\":1,\"n_used\":1,\"experts\":[[2]]}\n";
    static const char *const want[] = {"0: start 0",
                                       "0: 0/1 x1 rank 0 token 1.000 0.000",
                                       "0: token 1",
                                       "1: 0/2 x1 rank 0 token 1.000 0.000",
                                       "1: 1/0 x1 rank 0 token 1.000 0.000",
                                       "1: token 1",
                                       "2: 0/3 x1 rank 0 token 1.000 0.000",
                                       "2: 1/2 x1 rank 0 token 1.000 0.000",
                                       "2: token 1",
                                       "3: end 0"};
    const struct trace_import how = {.experts = 4, .prompt = TRACE_IMPORT_TOKENS};
    const struct trace_import chunk = {.experts = 4};
    struct trace t;
    struct error error;
    ck_assert_msg(import(text, &how, &t, &error) == 0, "%s", error.text);
    check_records(&t, want, sizeof want / sizeof want[0]);
    trace_free(&t);
    ck_assert_msg(import(text, &chunk, &t, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(t.records[0].tokens, 2);
    ck_assert_uint_eq(t.records[1].prefill, 1);
    trace_free(&t);
    /* A prompt of one token is decoded. */
    ck_assert_int_eq(import("{\"decode\":0,\"layer\":0,\"experts\":[[1]]}\n", &chunk, &t, &error),
                     0);
    ck_assert_uint_eq(t.records[1].prefill, 0);
    trace_free(&t);
}
END_TEST

START_TEST(one_object)
{
    static const char text[] = "{\n \"layers\": 2, \"expertsPerLayer\": 3, \"topK\": 1,\n"
                               " \"selections\": [[[2], [0]], [[1], [0]]]\n}\n";
    static const char *const want[] = {"0: start 0",
                                       "0: 0/2 x1 rank 0 token 1.000 0.000",
                                       "0: 1/0 x1 rank 0 token 1.000 0.000",
                                       "0: token 1",
                                       "1: 0/1 x1 rank 0 token 1.000 0.000",
                                       "1: 1/0 x1 rank 0 token 1.000 0.000",
                                       "1: token 1",
                                       "2: end 0"};
    struct trace t;
    struct error error;
    ck_assert_msg(import(text, NULL, &t, &error) == 0, "%s", error.text);
    check_records(&t, want, sizeof want / sizeof want[0]);
    ck_assert_uint_eq(t.header.experts, 3);
    trace_free(&t);
}
END_TEST

static const struct {
    const char *text, *message;
    uint32_t experts; /* setting */
} rejected[] = {
    {"", "invalid JSON", 0},
    {"[1]", "neither selections", 0},
    {"SLCTRACE", "not a trace: only 8 bytes", 0},
    {"SLCTRACE", "is a trace of sluice", 4},
    {HEAD, "no token uses", 0},
    {HEAD "0,1,0,1,0,8,1\n", "there are 3, 8 and 2", 0},
    {HEAD "0,1,0,3,0,1,1\n", "there are 3, 8 and 2", 0},
    {HEAD "0,1,0,1,0,1,1\n0,1,0,1,1,2,1\n0,1,0,1,2,3,1\n", "there are 3, 8 and 2", 0},
    {HEAD "0,1,0,1,0,1,1\n0,1,0,1,1,1,1\n", "turn 0, step 0: layer 1 has expert 1 or rank 1 twice",
     0},
    {HEAD "0,1,0,1,0,1,1\n0,1,0,1,0,2,1\n", "twice", 0},
    {HEAD "4,0,7,1,0,1,1\n4,1,9,2,0,1,1\n4,1,9,2,1,1,1\n", "turn 4, step 9: layer 2 has", 0},
    {"{\"layers\": [[0]]}\n{\"layers\": [[2, 1, 2]]}\n", "line 2: an expert twice", 4},
    {"{\"expertsPerLayer\": 3, \"topK\": 2, \"selections\": [[[1, 1]]]}", "token 0: an expert", 0},
    {HEAD "0,1,0,1,0,1\n", "line 7: not a row", 0},
    {HEAD "0,1,0,1,0,1,x\n", "the weight is not", 0},
    {HEAD "0,1,0,1,0,1,-1\n", "out of range", 0},
    {HEAD "0,1,0,1,0,1,inf\n", "out of range", 0},
    {HEAD "0,2,0,1,0,1,1\n", "out of range", 0},
    {HEAD "0,1,0,1,0,99999,1\n", "out of range", 0},
    {HEAD "0,1,99999999999,1,0,1,1\n", "not a row", 0},
    {HEAD "0,-1,0,1,0,1,1\n", "not a row", 0},
    {"# route_trace v1\nturn,step\n", "line 2: the columns", 0},
    {"# n_layer=99999 n_expert=8 n_expert_used=1\n0,1,0,1,0,1,1\n", "out of range", 0},
    {"# layer=0 expert_bytes=99999999999999\n", "size of an expert", 0},
    {"{\"layers\": [[0]]}\n", "does not say how many experts a layer has (it uses 1)", 0},
    {"{\"layers\": [[0]]}\n{\"layers\": [[0], 3]}\n", "line 2: no list of experts", 4},
    {"{\"layers\": [[0]]}\n{\"layers\": [[-1]]}\n", "line 2: not the number", 4},
    {"{\"layers\": [[0]]}\n{\"layers\": []}\n", "line 2: no list of layers", 4},
    {"{\"layers\": [[0]]}\n{]\n", "line 2: invalid JSON", 4},
    {"{\"layers\": [[0]]}\n{\"x\": 1}\n", "line 2: neither", 4},
    {"{\"layers\": [[0, 5]]}\n", "there are 1, 4 and 2", 4},
    {"{\"decode\": 1, \"layer\": 0}\n", "line 1: no pass", 4},
    {"{\"selections\": []}\n", "no selections", 0},
};

/* One of this engine, byte for byte. */
START_TEST(a_trace)
{
    static const struct trace_import none;
    struct trace_synthetic s;
    struct trace t, back;
    struct error error = {.text = ""};
    trace_synthetic_defaults(&s);
    s.tokens = 20;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    size_t records = t.count * sizeof *t.records, bytes = sizeof t.header + records;
    char *text = malloc(bytes);
    memcpy(text, &t.header, sizeof t.header);
    memcpy(text + sizeof t.header, t.records, records);
    ck_assert_msg(trace_import(text, bytes, &none, &back, &error) == 0, "%s", error.text);
    ck_assert_mem_eq(&back.header, &t.header, sizeof t.header);
    ck_assert_uint_eq(back.count, t.count);
    ck_assert_mem_eq(back.records, t.records, records);
    trace_free(&back);
    trace_free(&t);
    free(text);
}
END_TEST

START_TEST(wrong_recordings_are_rejected)
{
    const struct trace_import how = {.experts = rejected[_i].experts};
    struct trace t;
    struct error error;
    ck_assert_int_eq(import(rejected[_i].text, &how, &t, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, rejected[_i].message), "'%s' does not contain '%s'",
                  error.text, rejected[_i].message);
    ck_assert_ptr_null(t.records);
}
END_TEST

static void check_refused(const char *text, const struct trace_import *how, const char *message)
{
    struct trace t;
    struct error error;
    ck_assert_int_eq(import(text, how, &t, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, message), "'%s' does not contain '%s'", error.text, message);
    ck_assert_ptr_null(t.records);
}

/* Layers that have numbers are where these say, and a recording of prompts has nothing else. */
START_TEST(settings_that_do_not_apply)
{
    const struct trace_import dense = {.experts = 4, .dense = 1},
                              drop = {.prompt = TRACE_IMPORT_DROP};
    check_refused(HEAD "0,1,0,1,0,1,1\n", &dense, "warp and stratamoe");
    check_refused("{\"decode\":1,\"layer\":0,\"experts\":[[3]]}\n", &dense, "warp and stratamoe");
    check_refused(HEAD "0,0,0,1,0,1,1\n1,0,0,1,0,1,1\n", &drop, "no token is left");
}
END_TEST

START_TEST(files)
{
    static const char text[] = "{\"layers\": [[0]]}\n";
    char path[] = "/tmp/sluice-import-XXXXXX";
    const struct trace_import how = {.experts = 1}, none = {.experts = 0};
    struct trace t;
    struct error error;
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    ck_assert_int_eq(trace_import_file(path, &how, &t, &error), 0);
    ck_assert_uint_eq(t.count, 4);
    trace_free(&t);
    ck_assert_int_eq(trace_import_file(path, &none, &t, &error), -1);
    ck_assert_msg(strstr(error.text, path), "%s", error.text);
    unlink(path);
    ck_assert_int_eq(trace_import_file(path, &how, &t, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("import");
    TCase *c = tcase_create("import");
    tcase_add_test(c, rows_become_a_trace);
    tcase_add_test(c, lines_of_tokens);
    tcase_add_test(c, lines_of_passes);
    tcase_add_test(c, one_object);
    tcase_add_test(c, a_trace);
    tcase_add_loop_test(c, wrong_recordings_are_rejected, 0,
                        (int)(sizeof rejected / sizeof rejected[0]));
    tcase_add_test(c, settings_that_do_not_apply);
    tcase_add_test(c, files);
    suite_add_tcase(s, c);
    suite_add_tcase(s, recorded_case());
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
