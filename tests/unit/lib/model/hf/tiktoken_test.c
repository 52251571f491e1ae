/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies of tiktoken: the ids of that package, special tokens, and files that are rejected.
 * unit_hf_tiktoken RANKS VECTORS compares another vocabulary (tests/golden/tiktoken_vectors.py). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/json_file.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/hf/internal.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "tests/unit/lib/model/hf_make.h"

#define DATA SLUICE_SOURCE_DIR "/tests/golden/data/tokenizers"

static const char *ranks_path = DATA "/ranks.tiktoken";
static const char *vectors_path = DATA "/tiktoken.json";

struct opened {
    struct gguf_writer *w;
    struct gguf g;
    void *blob;
    struct tokenizer *t;
};

static int make(struct opened *o, size_t row, const char *ranks, size_t bytes,
                const json_t *settings, uint32_t vocab, struct error *error)
{
    uint32_t tokens;
    size_t n;
    o->w = gguf_writer_new(32);
    json_t *config = json_pack("{s:i}", "bos_token_id", 1);
    int status =
        hf_tiktoken_keys(hf_tiktoken_row(row), ranks, bytes, settings, config, vocab, o->w, error);
    json_decref(config);
    if (status != 0) {
        gguf_writer_free(o->w);
        return -1;
    }
    ck_assert_int_eq(gguf_writer_layout(o->w, error), 0);
    struct gguf_source source = {
        .read = gguf_writer_read, .arg = o->w, .bytes = gguf_writer_bytes(o->w)};
    ck_assert_int_eq(gguf_open(&o->g, &source, error), 0);
    ck_assert_msg(tokenizer_blob_build(&o->g, &o->blob, &n, &tokens, error) == 0, "%s",
                  error->text);
    o->t = tokenizer_open(o->blob, n, error);
    ck_assert_msg(o->t != NULL, "%s", error->text);
    return 0;
}

static void unmake(struct opened *o)
{
    tokenizer_close(o->t);
    free(o->blob);
    gguf_close(&o->g);
    gguf_writer_free(o->w);
}

static void compare_vector(const struct tokenizer *t, const json_t *vector)
{
    const json_t *text = json_object_get(vector, "text"), *want = json_object_get(vector, "ids");
    uint32_t *ids;
    size_t count;
    struct error error;
    ck_assert_int_eq(tokenizer_encode(t, json_string_value(text), json_string_length(text), NULL,
                                      &ids, &count, &error),
                     0);
    for (size_t i = 0; i < count && i < json_array_size(want); i++)
        ck_assert_msg(ids[i] == json_integer_value(json_array_get(want, i)),
                      "'%.60s' token %zu: %u", json_string_value(text), i, ids[i]);
    ck_assert_msg(count == json_array_size(want), "'%.60s': %zu tokens", json_string_value(text),
                  count);
    free(ids);
}

START_TEST(ids_of_tiktoken)
{
    struct error error = {0};
    struct opened o;
    size_t bytes, i, compared = 0;
    json_t *vectors = json_load_file(vectors_path, JSON_ALLOW_NUL, NULL), *vector;
    char *ranks = json_file_bytes(ranks_path, HF_TIKTOKEN_MAX, &bytes, &error);
    ck_assert_msg(ranks && vectors, "%s", error.text);
    ck_assert_msg(make(&o, (size_t)_i, ranks, bytes, NULL, MODEL_VOCAB_MAX / 4, &error) == 0, "%s",
                  error.text);
    json_array_foreach(vectors, i, vector)
    {
        if (json_integer_value(json_object_get(vector, "row")) != _i)
            continue;
        compare_vector(o.t, vector);
        compared++;
    }
    ck_assert_uint_ge(compared, 100);
    printf("%s: %zu texts\n", hf_tiktoken_row((size_t)_i)->file, compared);
    unmake(&o);
    free(ranks);
    json_decref(vectors);
}
END_TEST

/* ---- special tokens ---- */

#define LINES_MAX (HF_MAKE_RANKS_BYTES + 100)

/* All bytes, and "ab". */
static size_t small_ranks(char text[LINES_MAX])
{
    size_t n = hf_make_ranks(text, LINES_MAX);
    return n + (size_t)snprintf(text + n, LINES_MAX - n, "YWI= 256\r\n\n");
}

static void expect_token(const struct opened *o, uint32_t id, const char *text, int32_t type)
{
    struct gguf_array tokens, types;
    const char *at = NULL;
    size_t n = 0;
    int32_t found = 0;
    ck_assert_int_eq(gguf_get_array(&o->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL), 1);
    ck_assert_int_eq(gguf_get_array(&o->g, "tokenizer.ggml.token_type", GGUF_I32, &types, NULL), 1);
    ck_assert_uint_gt(tokens.left, id);
    for (uint32_t i = 0; i <= id; i++) {
        gguf_array_string(&tokens, &at, &n);
        found = gguf_array_i32(&types);
    }
    ck_assert_msg(n == strlen(text) && memcmp(at, text, n) == 0, "%u: '%.*s'", id, (int)n, at);
    ck_assert_int_eq(found, type);
}

START_TEST(special_tokens)
{
    char text[LINES_MAX];
    size_t n = small_ranks(text);
    struct error error = {0};
    struct opened o;
    uint64_t bos = 0, eos = 0;
    ck_assert_int_eq(make(&o, 1, text, n, NULL, 257 + 210 + 1, &error), 0);
    expect_token(&o, 256, "ab", TOKEN_NORMAL);
    expect_token(&o, 257, "<|endoftext|>", TOKEN_CONTROL);
    expect_token(&o, 261, "<|pad|>", TOKEN_CONTROL);
    expect_token(&o, 262, "<|extra_0|>", TOKEN_CONTROL);
    expect_token(&o, 466, "<|extra_204|>", TOKEN_CONTROL);
    expect_token(&o, 467, "[PAD467]", TOKEN_UNUSED);
    ck_assert_int_eq(gguf_get_uint(&o.g, "tokenizer.ggml.bos_token_id", &bos, &error), 1);
    ck_assert_uint_eq(bos, 259);
    unmake(&o);
    json_t *settings =
        json_pack("{s:s, s:{s:{s:s, s:b}, s:{s:s, s:b}, s:{s:s, s:b}}}", "eos_token", "[EOS]",
                  "added_tokens_decoder", "257", "content", "[BOS]", "special", 1, "258", "content",
                  "[EOS]", "special", 1, "300", "content", "<|tool_call_begin|>", "special", 0);
    ck_assert_int_eq(make(&o, 0, text, n, settings, 257 + 256, &error), 0);
    expect_token(&o, 257, "[BOS]", TOKEN_CONTROL);
    expect_token(&o, 259, "<|reserved_token_259|>", TOKEN_CONTROL);
    expect_token(&o, 300, "<|tool_call_begin|>", TOKEN_USER_DEFINED);
    expect_token(&o, 512, "<|reserved_token_512|>", TOKEN_CONTROL);
    ck_assert_int_eq(gguf_get_uint(&o.g, "tokenizer.ggml.bos_token_id", &bos, &error), 1);
    ck_assert_int_eq(gguf_get_uint(&o.g, "tokenizer.ggml.eos_token_id", &eos, &error), 1);
    ck_assert(bos == 257 && eos == 258);
    unmake(&o);
    json_decref(settings);
}
END_TEST

/* ---- rejected ---- */

static void expect_rejected(const char *text, size_t n, const char *added, const char *reason)
{
    struct error error = {0};
    struct opened o;
    json_t *settings =
        added ? json_pack("{s:{s:{s:s}}}", "added_tokens_decoder", added, "content", "x") : NULL;
    ck_assert_msg(make(&o, 0, text, n, settings, 300, &error) == -1, "taken: %s", reason);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, reason) != NULL, "'%s' instead of '%s'", error.text, reason);
    ck_assert_ptr_null(strchr(error.text, '\n'));
    json_decref(settings);
}

START_TEST(bad_files_are_rejected)
{
    static const struct {
        const char *line, *reason;
    } cases[] = {
        {"YWI=\n", "line of rank 257: not a token and that rank"},
        {"YWI= \n", "not a token and that rank"},
        {"YWM= 258\n", "not a token and that rank"},
        {"YWM= -257\n", "not a token and that rank"},
        {"YWM= 99999999999999999999\n", "not a token and that rank"},
        {"YWM 257\n", "not a token of 1 to 512 bytes in base64"},
        {"YW*= 257\n", "not a token of 1 to 512 bytes in base64"},
        {"Y=M= 257\n", "not a token of 1 to 512 bytes in base64"},
        {"==== 257\n", "not a token of 1 to 512 bytes in base64"},
        {" 257\n", "not a token of 1 to 512 bytes in base64"},
        {"YWI= 257\n", "the token has another rank, too"},
    };
    char text[2 * LINES_MAX], more[1000];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t n = small_ranks(text);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", cases[i].line);
        expect_rejected(text, n, NULL, cases[i].reason);
    }
    size_t n = small_ranks(text);
    memset(more, 'A', sizeof more);
    snprintf(text + n, sizeof text - n, "%.688s 257", more); /* 516 bytes */
    expect_rejected(text, strlen(text), NULL, "not a token of 1 to 512 bytes");
    expect_rejected(text, n, "256", "'256' is not the number of a token after the 257 ranks");
    expect_rejected(text, n, "300", "added_tokens_decoder");
    expect_rejected(text, n, "258x", "added_tokens_decoder");
    for (unsigned i = 257; i < 302; i++) /* "1000" and so on: three bytes each */
        n += (size_t)snprintf(text + n, sizeof text - n, "%u %u\n", 1000 + i, i);
    expect_rejected(text, n, NULL, "more tokens than the 300 of config.json");
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("hf_tiktoken");
    TCase *t = tcase_create("tiktoken");
    if (argc == 3) {
        ranks_path = argv[1];
        vectors_path = argv[2];
    } else {
        tcase_add_test(t, special_tokens);
        tcase_add_test(t, bad_files_are_rejected);
    }
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, ids_of_tiktoken, 0, 2);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
