/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of tokenizers against the packages they were trained with
 * (tests/golden/tokenizer_vectors.py), and SentencePiece vocabularies with one error. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "tests/unit/lib/model/gguf_make.h"
#include "tests/unit/lib/model/tokenizer/opened.h"

#define DATA SLUICE_SOURCE_DIR "/tests/golden/data/tokenizers/"

static struct opened open_tokenizer(struct model_index *index)
{
    struct error error = {0};
    struct opened o = {.index = index};
    o.t = tokenizer_open((char *)index + index->tokenizer_offset, index->tokenizer_bytes, &error);
    ck_assert_msg(o.t != NULL, "%s", error.text);
    return o;
}

static struct opened open_file(const char *name)
{
    char path[500];
    struct model_index *index;
    struct error error = {0};
    snprintf(path, sizeof path, "%s%s.gguf", DATA, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(model_index_build(fd, path, &index, &error) == 0, "%s", error.text);
    close(fd);
    return open_tokenizer(index);
}

static const char *const files[] = {"spm", "spm_across", "olmo", "nfc"};

START_TEST(reference_vectors)
{
    json_error_t why;
    json_t *root = json_load_file(DATA "vectors.json", JSON_ALLOW_NUL, &why);
    ck_assert_msg(root != NULL, "%s", why.text);
    json_t *item = json_array_get(root, (size_t)_i), *vector;
    ck_assert_str_eq(json_string_value(json_object_get(item, "name")), files[_i]);
    struct opened o = open_file(files[_i]);
    json_t *vectors = json_object_get(item, "vectors");
    size_t i;
    bool special = json_is_true(json_object_get(item, "special"));
    ck_assert_uint_ge(json_array_size(vectors), 80);
    json_array_foreach(vectors, i, vector)
    {
        const json_t *text = json_object_get(vector, "text"), *ids = json_object_get(vector, "ids");
        uint32_t want[1000];
        size_t n = json_array_size(ids);
        ck_assert_uint_le(n, ARRAY_LEN(want));
        for (size_t k = 0; k < n; k++)
            want[k] = (uint32_t)json_integer_value(json_array_get(ids, k));
        expect_ids(o.t, json_string_value(text), json_string_length(text), special, want, n);
    }
    close_both(&o);
    json_decref(root);
}
END_TEST

static size_t count_of(const struct tokenizer *t, const char *text, uint32_t ids[16], bool special)
{
    uint32_t *made;
    size_t count;
    struct error error = {0};
    ck_assert_int_eq(tokenizer_encode(t, text, strlen(text), special ? &text_ranges_all : NULL,
                                      &made, &count, &error),
                     0);
    ck_assert_uint_le(count, 16);
    memcpy(ids, made, count * sizeof *made);
    free(made);
    return count;
}

/* Ranges move with the text: a space is added before it, and U+2581 becomes a shorter one. */
START_TEST(ranges_of_control_tokens)
{
    static const char text[] = "\xe2\x96\x81"
                               "and</s></s>and<s>";
    struct text_range one = {10, 14};
    const struct text_ranges ranges = {&one, 1};
    struct opened o = open_file("spm");
    uint32_t before[16], after[16], *ids;
    size_t n = count_of(o.t, " and</s>", before, false), m = count_of(o.t, "and<s>", after, false);
    size_t count;
    ck_assert_int_eq(tokenizer_encode(o.t, text, sizeof text - 1, &ranges, &ids, &count, NULL), 0);
    ck_assert_uint_eq(count, n + 1 + m);
    ck_assert(memcmp(ids, before, n * sizeof *ids) == 0);
    ck_assert_uint_eq(ids[n], 2);
    ck_assert(memcmp(ids + n + 1, after, m * sizeof *ids) == 0);
    free(ids);
    close_both(&o);
}
END_TEST

/* The pieces concatenate to the text, with the space that was added. */
START_TEST(pieces)
{
    static const char text[] = "A text,\nwith \xe4\xb8\xad\xff two  spaces.";
    static const char want[] = " A text,\nwith \xe4\xb8\xad\xef\xbf\xbd two  spaces.";
    struct opened o = open_file("spm");
    uint32_t *ids;
    size_t count, at = 0;
    ck_assert_int_eq(tokenizer_encode(o.t, text, sizeof text - 1, NULL, &ids, &count, NULL), 0);
    for (size_t i = 0; i < count; i++) {
        size_t n;
        const char *piece = tokenizer_piece(o.t, ids[i], &n);
        ck_assert_uint_le(at + n, sizeof want - 1);
        ck_assert(memcmp(want + at, piece, n) == 0);
        at += n;
    }
    ck_assert_uint_eq(at, sizeof want - 1);
    free(ids);
    ck_assert_uint_eq(tokenizer_bos(o.t), 1); /* BOS is added unless a key disables it */
    ck_assert_uint_eq(tokenizer_eos(o.t), 2);
    close_both(&o);
}
END_TEST

/* Text after a control token is tokenized like the start of a new text. */
START_TEST(control_tokens)
{
    struct opened o = open_file("spm");
    uint32_t alone[16], after[16], both[16];
    size_t n = count_of(o.t, "and", alone, true);
    ck_assert_uint_eq(count_of(o.t, "<s>and", after, true), n + 1);
    ck_assert_uint_eq(after[0], 1);
    ck_assert(memcmp(after + 1, alone, n * sizeof *alone) == 0);
    ck_assert_uint_eq(count_of(o.t, "</s><s>", both, true), 2);
    ck_assert_uint_eq(both[0], 2);
    ck_assert_uint_eq(both[1], 1);
    ck_assert_uint_eq(count_of(o.t, "", both, true), 0);
    ck_assert_uint_gt(count_of(o.t, "</s>", both, false), 1);
    close_both(&o);
}
END_TEST

static ssize_t read_bytes(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *b = arg;
    memcpy(buf, b->data + offset, n);
    return (ssize_t)n;
}

static struct model_index *spm_index(const struct spm_tokens *v, void (*edit)(struct make *m),
                                     struct error *error)
{
    struct make m;
    struct model_index *index = NULL;
    make_arch(&m, "llama", 1, false);
    make_spm(&m, v);
    if (edit)
        edit(&m);
    struct bytes file = make_write(&m);
    struct gguf_source source = {.read = read_bytes, .arg = &file, .bytes = file.size};
    struct model_file_id id = {.bytes = file.size};
    (void)model_index_build_source(&source, &id, &index, error);
    bytes_free(&file);
    make_free(&m);
    return index;
}

/* Best score first, then leftmost; text that is not a token becomes byte tokens. */
START_TEST(merging)
{
    struct spm_tokens v;
    struct error error = {0};
    spm_tokens(&v);
    struct model_index *index = spm_index(&v, NULL, &error);
    ck_assert_msg(index, "%s", error.text);
    struct opened o = open_tokenizer(index);
    expect_ids(o.t, "ab", 2, false, (uint32_t[]){SPM_SPACE_A, SPM_B}, 2); /* " a" before "ab" */
    expect_ids(o.t, "bab", 3, false, (uint32_t[]){SPM_SPACE_ID, SPM_B, SPM_AB}, 3);
    expect_ids(o.t, "c", 1, false, (uint32_t[]){SPM_SPACE_ID, 'c'}, 2);
    expect_ids(o.t, "\xc3\xa4", 2, false, (uint32_t[]){SPM_SPACE_ID, 0xc3, 0xa4}, 3);
    expect_ids(o.t, "a" SPM_SPACE_TEXT "a", 5, false, (uint32_t[]){SPM_SPACE_A, SPM_SPACE_A}, 2);
    close_both(&o);
    v.scores[SPM_AB] = v.scores[SPM_SPACE_A]; /* equal scores: leftmost first */
    index = spm_index(&v, NULL, &error);
    o = open_tokenizer(index);
    expect_ids(o.t, "ab", 2, false, (uint32_t[]){SPM_SPACE_A, SPM_B}, 2);
    close_both(&o);
    v.scores[SPM_AB] = -1;
    index = spm_index(&v, NULL, &error);
    o = open_tokenizer(index);
    expect_ids(o.t, "ab", 2, false, (uint32_t[]){SPM_SPACE_ID, SPM_AB}, 2);
    close_both(&o);
}
END_TEST

static void no_scores(struct make *m)
{
    make_drop_key(m, "tokenizer.ggml.scores");
}
static void short_scores(struct make *m)
{
    static const float scores[3];
    make_scores(m, scores, 3);
}
static void nan_score(struct make *m)
{
    float scores[TINY_VOCAB] = {[7] = NAN};
    make_scores(m, scores, TINY_VOCAB);
}
static void scores_type(struct make *m)
{
    make_array_raw(m, "tokenizer.ggml.scores", GGUF_I32, TINY_VOCAB, (size_t)TINY_VOCAB * 4);
}
static void squeezed(struct make *m)
{
    make_bool(m, "tokenizer.ggml.remove_extra_whitespaces", 1);
}
static void byte_is_normal(struct make *m)
{
    struct spm_tokens v;
    spm_tokens(&v);
    v.types[0x41] = TOKEN_NORMAL;
    make_i32s(m, "tokenizer.ggml.token_type", v.types, TINY_VOCAB);
}
static void byte_missing(struct make *m)
{
    struct spm_tokens v;
    spm_tokens(&v);
    v.texts[0xff] = "<0xFg>";
    make_texts(m, "tokenizer.ggml.tokens", v.texts, TINY_VOCAB);
}
static void long_token(struct make *m)
{
    struct spm_tokens v;
    char text[300];
    spm_tokens(&v);
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    v.texts[SPM_A] = text;
    make_texts(m, "tokenizer.ggml.tokens", v.texts, TINY_VOCAB);
}

static const struct {
    void (*edit)(struct make *m);
    const char *message;
} wrongs[] = {
    {no_scores, "scores has 0 elements for 262 tokens"},
    {short_scores, "scores has 3 elements for 262 tokens"},
    {nan_score, "the score of token 7 is not a number"},
    {scores_type, "tokenizer.ggml.scores"},
    {byte_is_normal, "no token for byte 0x41"},
    {byte_missing, "no token for byte 0xff"},
    {long_token, "token 257 has 299 bytes"},
};

/* gemma4: merges of the file, in their order; no prefix, bytes for unknown characters. */
static void characters(struct make *m)
{
    static const char *const merges[] = {"a b", SPM_SPACE_TEXT " a"};
    make_text(m, "tokenizer.ggml.model", "gemma4");
    make_texts(m, "tokenizer.ggml.merges", merges, ARRAY_LEN(merges));
}

/* sarvam-30b: the same under another name, and no BOS if the file states that. */
static void characters_by_pre(struct make *m)
{
    characters(m);
    make_text(m, "tokenizer.ggml.model", "gpt2");
    make_text(m, "tokenizer.ggml.pre", "sarvam-moe");
    make_u32(m, "tokenizer.ggml.bos_token_id", SPM_CONTROL);
    make_bool(m, "tokenizer.ggml.add_bos_token", 0);
}

START_TEST(merges_of_characters)
{
    struct spm_tokens v;
    struct error error = {0};
    spm_tokens(&v);
    for (uint32_t i = 0; _i && i < 256; i++) /* as the converter writes them */
        v.types[i] = TOKEN_NORMAL;
    struct model_index *index = spm_index(&v, _i ? characters_by_pre : characters, &error);
    ck_assert_msg(index, "%s", error.text);
    struct opened o = open_tokenizer(index);
    expect_ids(o.t, "ab", 2, false, (uint32_t[]){SPM_AB}, 1);
    expect_ids(o.t, " ab a", 5, false, (uint32_t[]){SPM_SPACE_ID, SPM_AB, SPM_SPACE_A}, 3);
    expect_ids(o.t, "c\n\xc3\xa4", 4, false, (uint32_t[]){'c', '\n', 0xc3, 0xa4}, 4);
    close_both(&o);
}
END_TEST

/* remove_extra_whitespaces: runs of spaces are one, and there are none at the ends of a text; a
 * control token ends one. */
START_TEST(one_space)
{
    struct spm_tokens v;
    struct error error = {0};
    spm_tokens(&v);
    struct model_index *index = spm_index(&v, squeezed, &error);
    ck_assert_msg(index, "%s", error.text);
    struct opened o = open_tokenizer(index);
    static const char spaces[] = "  a " SPM_SPACE_TEXT " b  ";
    uint32_t want[] = {SPM_SPACE_A, SPM_SPACE_ID, SPM_B};
    expect_ids(o.t, spaces, sizeof spaces - 1, false, want, 3);
    expect_ids(o.t, "   ", 3, false, want, 0);
    close_both(&o);
}
END_TEST

/* A token that a user defined stays one before and between joined spaces, also of spaces alone;
 * the longest counts. */
static void squeezed_with_user_tokens(struct make *m)
{
    struct spm_tokens v;
    spm_tokens(&v);
    squeezed(m);
    v.texts[SPM_SPACE_A] = SPM_SPACE_TEXT SPM_SPACE_TEXT SPM_SPACE_TEXT;
    v.types[SPM_SPACE_A] = TOKEN_USER_DEFINED;
    v.texts[SPM_AB] = "b" SPM_SPACE_TEXT SPM_SPACE_TEXT;
    v.types[SPM_AB] = TOKEN_USER_DEFINED;
    make_texts(m, "tokenizer.ggml.tokens", v.texts, TINY_VOCAB);
    make_i32s(m, "tokenizer.ggml.token_type", v.types, TINY_VOCAB);
}

START_TEST(one_space_keeps_user_tokens)
{
    struct spm_tokens v;
    struct error error = {0};
    spm_tokens(&v);
    struct model_index *index = spm_index(&v, squeezed_with_user_tokens, &error);
    ck_assert_msg(index, "%s", error.text);
    struct opened o = open_tokenizer(index);
    uint32_t a = SPM_A, space = SPM_SPACE_ID, three = SPM_SPACE_A, b = SPM_AB;
    expect_ids(o.t, "a   a", 5, false, (uint32_t[]){space, a, three, a}, 4);
    expect_ids(o.t, "a  a", 4, false, (uint32_t[]){space, a, space, a}, 4);
    expect_ids(o.t, "a    a", 6, false, (uint32_t[]){space, a, three, a}, 4);
    expect_ids(o.t, "a" SPM_SPACE_TEXT "  a", 7, false, (uint32_t[]){space, a, three, a}, 4);
    expect_ids(o.t, "a  b   a", 8, false, (uint32_t[]){space, a, space, b, a}, 5);
    close_both(&o);
}
END_TEST

/* `rstrip` of tokenizer.json: blanks after a control token are a part of it, in a model of that
 * name, except after BOS. */
static void named_phi(struct make *m)
{
    make_text(m, "general.name", "Phi 3.5 MoE");
}

START_TEST(control_tokens_take_blanks)
{
    static const struct {
        const char *control;
        void (*edit)(struct make *m);
        bool takes;
    } rows[] = {
        {"<|user|>", named_phi, true}, {"<s>", named_phi, false}, {"<|user|>", NULL, false}};
    static const uint32_t kept[] = {SPM_CONTROL, SPM_SPACE_ID, '\n', SPM_SPACE_A};
    static const uint32_t taken[] = {SPM_CONTROL, SPM_SPACE_A};
    static const uint32_t zero[] = {SPM_CONTROL, SPM_SPACE_ID, 0, SPM_SPACE_A};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct spm_tokens v;
        struct error error = {0};
        char text[32];
        spm_tokens(&v);
        v.texts[SPM_CONTROL] = rows[i].control;
        struct model_index *index = spm_index(&v, rows[i].edit, &error);
        ck_assert_msg(index, "%s", error.text);
        struct opened o = open_tokenizer(index);
        int n = snprintf(text, sizeof text, "%s\n a", rows[i].control);
        expect_ids(o.t, text, (size_t)n, true, rows[i].takes ? taken : kept, rows[i].takes ? 2 : 4);
        text[n - 3] = 0; /* no blank */
        expect_ids(o.t, text, (size_t)n, true, zero, 4);
        close_both(&o);
    }
}
END_TEST

START_TEST(bad_tokenizers_are_rejected)
{
    struct spm_tokens v;
    struct error error = {0};
    spm_tokens(&v);
    ck_assert_ptr_null(spm_index(&v, wrongs[_i].edit, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, wrongs[_i].message), "'%s' lacks '%s'", error.text,
                  wrongs[_i].message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer models");
    TCase *tcase = tcase_create("models");
    tcase_add_loop_test(tcase, reference_vectors, 0, ARRAY_LEN(files));
    tcase_add_test(tcase, pieces);
    tcase_add_test(tcase, ranges_of_control_tokens);
    tcase_add_test(tcase, control_tokens);
    tcase_add_test(tcase, merging);
    tcase_add_test(tcase, one_space);
    tcase_add_test(tcase, one_space_keeps_user_tokens);
    tcase_add_test(tcase, control_tokens_take_blanks);
    tcase_add_loop_test(tcase, merges_of_characters, 0, 2);
    tcase_add_loop_test(tcase, bad_tokenizers_are_rejected, 0, ARRAY_LEN(wrongs));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
