/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json of SentencePiece vocabularies, against the package that they are of; those that
 * are rejected. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/reader.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/hf/internal.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"

#define DATA SLUICE_SOURCE_DIR "/tests/golden/data"

/* ---- SentencePiece in tokenizer.json, against the reference package ---- */

static const char *const sentencepieces[] = {"spm", "spm_across"};

static json_t *load_json(const char *name)
{
    char path[300];
    json_error_t why;
    snprintf(path, sizeof path, DATA "/tokenizers/%s.json", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &why);
    ck_assert_msg(root != NULL, "%s: %s", path, why.text);
    return root;
}

static json_t *vocab_of(const json_t *tokenizer)
{
    return json_object_get(json_object_get(tokenizer, "model"), "vocab");
}

static json_t *merges_of(const json_t *tokenizer)
{
    return json_object_get(json_object_get(tokenizer, "model"), "merges");
}

/* NULL and the error: rejected. */
static struct tokenizer *tokenizer_of(const json_t *json, void **blob, struct error *error)
{
    struct gguf_writer *w = gguf_writer_new(32);
    json_t *settings =
        json_pack("{s:s, s:s, s:b}", "bos_token", "<s>", "eos_token", "</s>", "add_bos_token", 1);
    uint32_t tokens, vocab = (uint32_t)json_object_size(vocab_of(json));
    struct tokenizer *t = NULL;
    *blob = NULL;
    const struct json_limits limits = JSON_LIMITS_DEFAULT;
    char *text = json_dumps(json, 0);
    struct json_reader *r = json_reader_text_of(text, strlen(text), &limits, error);
    if (hf_tokenizer_keys(r, settings, NULL, vocab, w, error) == 0) {
        struct gguf g;
        size_t bytes;
        ck_assert_int_eq(gguf_writer_layout(w, error), 0);
        struct gguf_source source = {
            .read = gguf_writer_read, .arg = w, .bytes = gguf_writer_bytes(w)};
        ck_assert_int_eq(gguf_open(&g, &source, error), 0);
        if (tokenizer_blob_build(&g, blob, &bytes, &tokens, error) == 0)
            t = tokenizer_open(*blob, bytes, error);
        gguf_close(&g);
    }
    json_reader_close(r);
    free(text);
    json_decref(settings);
    gguf_writer_free(w);
    return t;
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

START_TEST(sentencepiece)
{
    json_t *json = load_json(sentencepieces[_i]), *all = load_json("vectors_hf"), *vector;
    json_t *vectors = json_object_get(json_array_get(all, (size_t)_i), "vectors");
    struct error error = {0};
    void *blob;
    size_t i;
    struct tokenizer *t = tokenizer_of(json, &blob, &error);
    ck_assert_msg(t != NULL, "%s", error.text);
    ck_assert_uint_eq(tokenizer_bos(t), 1);
    ck_assert_uint_eq(tokenizer_eos(t), 2);
    ck_assert_uint_ge(json_array_size(vectors), 60);
    json_array_foreach(vectors, i, vector) compare_vector(t, vector);
    tokenizer_close(t);
    free(blob);
    json_decref(all);
    json_decref(json);
}
END_TEST

static void lose_merge(json_t *tokenizer)
{
    json_array_remove(merges_of(tokenizer), 100);
}

static void part_merges(json_t *tokenizer) /* separates the merges of one token */
{
    json_t *merges = merges_of(tokenizer), *last = json_array_get(merges, 0);
    json_array_append(merges, last);
}

static void split_spaces(json_t *tokenizer)
{
    json_object_set_new(json_object_get(tokenizer, "pre_tokenizer"), "split", json_true());
}

static void no_normalizer(json_t *tokenizer)
{
    json_object_set_new(tokenizer, "normalizer", json_null());
}

static void ignore_merges(json_t *tokenizer)
{
    json_object_set_new(json_object_get(tokenizer, "model"), "ignore_merges", json_true());
}

static void lose_byte(json_t *tokenizer)
{
    json_t *vocab = vocab_of(tokenizer);
    json_object_set(vocab, "\xc3\xbf", json_object_get(vocab, "<0x41>"));
    json_object_del(vocab, "<0x41>");
}

START_TEST(bad_sentencepiece_is_rejected)
{
    static const struct {
        const char *file;
        void (*edit)(json_t *tokenizer);
        const char *reason;
    } cases[] = {
        {"spm", lose_merge, "no merge makes token 342: not a SentencePiece vocabulary"},
        {"spm", part_merges, "its merges are not those of a SentencePiece vocabulary"},
        {"spm", no_normalizer, "its normalizer and pre-tokenizer are not those of SentencePiece"},
        {"spm_across", split_spaces, "its normalizer and pre-tokenizer are not those"},
        {"spm", ignore_merges, "ignore_merges with byte_fallback is not supported"},
        {"spm", lose_byte, "the vocabulary has no token for byte 0x41"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error error = {0};
        void *blob;
        json_t *json = load_json(cases[i].file);
        cases[i].edit(json);
        ck_assert_msg(tokenizer_of(json, &blob, &error) == NULL, "taken: %s", cases[i].reason);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, cases[i].reason) != NULL, "'%s' instead of '%s'",
                      error.text, cases[i].reason);
        json_decref(json);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hf_sentencepiece");
    TCase *t = tcase_create("hf_sentencepiece");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, sentencepiece, 0, (int)ARRAY_LEN(sentencepieces));
    tcase_add_test(t, bad_sentencepiece_is_rejected);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
