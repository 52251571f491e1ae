/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer against the reference's counts, against a naive merger, and on hostile text. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/text/nfc.h"
#include "lib/text/utf8.h"
#include "tests/unit/lib/model/gguf_make.h"
#include "tests/unit/lib/model/tokenizer/opened.h"

#define DATA SLUICE_SOURCE_DIR "/tests/golden/data/"

static json_t *load(const char *name)
{
    char path[500];
    json_error_t why;
    snprintf(path, sizeof path, "%s%s", DATA, name);
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &why);
    ck_assert_msg(json != NULL, "%s: %s", path, why.text);
    return json;
}

static void expect_json(const struct tokenizer *t, const json_t *text, const json_t *ids)
{
    ck_assert(json_is_string(text) && json_is_array(ids));
    size_t n = json_array_size(ids);
    uint32_t *want = calloc(n + 1, sizeof *want);
    for (size_t i = 0; i < n; i++)
        want[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    expect_ids(t, json_string_value(text), json_string_length(text), false, want, n);
    free(want);
}

START_TEST(reference_vectors)
{
    struct opened o = open_demo();
    json_t *json = load("tokenizer_vectors.json"), *vectors = json_object_get(json, "vectors");
    ck_assert_uint_eq(json_array_size(vectors), 30);
    for (size_t i = 0; i < 30; i++)
        expect_json(o.t, json_object_get(json_array_get(vectors, i), "text"),
                    json_object_get(json_array_get(vectors, i), "ids"));
    json_decref(json);
    json = load("greedy.json");
    json_t *prompts = json_object_get(json, "prompts");
    ck_assert_uint_eq(json_array_size(prompts), 6);
    for (size_t i = 0; i < 6; i++)
        expect_json(o.t, json_object_get(json_array_get(prompts, i), "prompt"),
                    json_object_get(json_array_get(prompts, i), "prompt_ids"));
    json_decref(json);
    for (int i = 0; i < 3; i++) {
        char name[40];
        snprintf(name, sizeof name, "routing_%d.json", i);
        json = load(name);
        expect_json(o.t, json_object_get(json, "text"), json_object_get(json, "ids"));
        json_decref(json);
    }
    close_both(&o);
}
END_TEST

static char *slurp(const char *name, size_t *n)
{
    char path[500];
    snprintf(path, sizeof path, "%s%s", DATA, name);
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    char *text = malloc(1 << 20);
    *n = fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

/* Concatenated pieces of the ids. */
static char *decode(const struct tokenizer *t, const uint32_t *ids, size_t count, size_t *n)
{
    struct bytes out = {0};
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *piece = tokenizer_piece(t, ids[i], &bytes);
        bytes_add(&out, piece, bytes);
    }
    bytes_add(&out, "", 1);
    *n = out.size - 1;
    return (char *)out.data;
}

/* What the ids of a text of the demo model concatenate to; the caller frees it. */
static char *normal_form(const char *text, size_t n, size_t *bytes)
{
    char *clean = malloc(3 * n + 1);
    size_t clean_bytes = utf8_sanitise(text, n, clean);
    char *normal = nfc(clean, clean_bytes, bytes);
    free(clean);
    return normal;
}

static void expect_round_trip(const struct tokenizer *t, const char *text, size_t n)
{
    size_t count, got, want;
    char *clean = normal_form(text, n, &want);
    uint32_t *ids = encode(t, text, n, false, &count);
    char *back = decode(t, ids, count, &got);
    ck_assert_uint_eq(got, want);
    ck_assert_mem_eq(back, clean, want);
    free(back);
    free(ids);
    free(clean);
}

START_TEST(held_out_texts)
{
    static const struct {
        const char *name;
        size_t tokens; /* by the reference tokenizer */
    } texts[] = {{"heldout/novel.txt", 28881},
                 {"heldout/tales.txt", 29771},
                 {"heldout/drama.txt", 33395},
                 {"heldout/science.txt", 30174}};
    struct opened o = open_demo();
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        size_t n, count;
        char *text = slurp(texts[i].name, &n);
        free(encode(o.t, text, n, false, &count));
        ck_assert_uint_eq(count, texts[i].tokens);
        expect_round_trip(o.t, text, n);
        free(text);
    }
    close_both(&o);
}
END_TEST

/* A character of random UTF-8 length, mostly letters and spaces. */
static size_t random_character(char *out)
{
    uint32_t c;
    switch (rand() % 8) {
    case 0: c = 0x80 + (uint32_t)rand() % 0x700; break;
    case 1: c = 0x800 + (uint32_t)rand() % 0xd000; break; /* below the surrogates */
    case 2: c = 0x10000 + (uint32_t)rand() % 0x100000; break;
    case 3: c = (uint32_t)rand() % 0x80; break;
    default: c = (uint32_t) "etaoin shrdlu\n'h"[rand() % 16]; break;
    }
    if (c < 0x80)
        return out[0] = (char)c, 1;
    if (c < 0x800)
        return out[0] = (char)(0xc0 | c >> 6), out[1] = (char)(0x80 | (c & 0x3f)), 2;
    size_t n = c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

START_TEST(random_text)
{
    struct opened o = open_demo();
    char text[2000];
    srand(5);
    for (int round = 0; round < 2000; round++) {
        size_t n = 0, max = 1 + (size_t)rand() % 400;
        while (n + 4 <= max)
            n += random_character(text + n);
        char clean[3 * sizeof text + 1];
        ck_assert_uint_eq(utf8_sanitise(text, n, clean), n); /* it is valid */
        expect_round_trip(o.t, text, n);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(rand() % 4 ? rand() : text[i]);
        expect_round_trip(o.t, text, n);
    }
    expect_round_trip(o.t, "", 0);
    expect_round_trip(o.t, "\0", 1);
    close_both(&o);
}
END_TEST

/* Text shown token by token: always whole characters, and in the end all of the text. */
START_TEST(never_split)
{
    struct opened o = open_demo();
    char text[400], pending[900];
    srand(6);
    for (int round = 0; round < 300; round++) {
        size_t n = 0, count, shown = 0, pending_bytes = 0;
        while (n + 4 <= sizeof text)
            n += random_character(text + n);
        uint32_t *ids = encode(o.t, text, n, false, &count);
        char *normal = normal_form(text, n, &n);
        for (size_t i = 0; i < count; i++) {
            size_t bytes;
            const char *piece = tokenizer_piece(o.t, ids[i], &bytes);
            memcpy(pending + pending_bytes, piece, bytes);
            pending_bytes += bytes;
            size_t ready = utf8_complete_prefix(pending, pending_bytes);
            char clean[3 * sizeof pending + 1];
            ck_assert_uint_eq(utf8_sanitise(pending, ready, clean), ready); /* already valid */
            ck_assert_mem_eq(clean, normal + shown, ready);
            shown += ready;
            pending_bytes -= ready;
            ck_assert_uint_lt(pending_bytes, 4);
            memmove(pending, pending + ready, pending_bytes);
        }
        ck_assert_uint_eq(shown, n);
        free(normal);
        free(ids);
    }
    close_both(&o);
}
END_TEST

START_TEST(utf8_cases)
{
    static const struct {
        const char *text;
        size_t complete;
        const char *clean;
    } cases[] = {
        {"", 0, ""},
        {"abc", 3, "abc"},
        {"\xc3\xa4", 2, "\xc3\xa4"},
        {"a\xc3", 1, "a\xef\xbf\xbd"},
        {"\xe2\x82", 0, "\xef\xbf\xbd"},
        {"a\xf0\x9f\x98", 1, "a\xef\xbf\xbd"},
        {"\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80"},
        {"\x80", 1, "\xef\xbf\xbd"},
        {"\x80\x80\x80\x80", 4, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\xaf", 2, "\xef\xbf\xbd\xef\xbf\xbd"}, /* overlong */
        {"\xe0\x80", 2, "\xef\xbf\xbd\xef\xbf\xbd"}, /* no continuation makes it valid */
        {"\xed\xa0", 2, "\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xf4\x90", 2, "\xef\xbf\xbd\xef\xbf\xbd"}, /* beyond U+10FFFF */
        {"\xf5", 1, "\xef\xbf\xbd"},
        {"\xe2\x82z", 3, "\xef\xbf\xbdz"},
        {"\xe2\xe2\x82", 1, "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf1\x80\x80\xe1\x80\xc0", 6, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char clean[100];
        size_t n = strlen(cases[i].text);
        ck_assert_msg(utf8_complete_prefix(cases[i].text, n) == cases[i].complete, "case %zu", i);
        ck_assert_uint_eq(utf8_sanitise(cases[i].text, n, clean), strlen(cases[i].clean));
        ck_assert_str_eq(clean, cases[i].clean);
    }
}
END_TEST

/* Merging by its definition: repeatedly merges the leftmost pair of lowest rank. */
static size_t merge_naively(const struct tokenizer_blob *b, uint32_t *ids, size_t n)
{
    for (;;) {
        const struct merge_slot *best = NULL;
        size_t where = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t s = merge_hash(ids[i], ids[i + 1]) & (b->merge_slots - 1);
                 blob_merges(b)[s].left != TOKEN_NONE; s = (s + 1) & (b->merge_slots - 1)) {
                const struct merge_slot *m = &blob_merges(b)[s];
                if (m->left == ids[i] && m->right == ids[i + 1] && (!best || m->rank < best->rank))
                    best = m, where = i;
            }
        if (!best)
            return n;
        ids[where] = best->merged;
        memmove(ids + where + 1, ids + where + 2, (--n - where - 1) * sizeof *ids);
    }
}

START_TEST(merging)
{
    struct opened o = open_demo();
    const struct tokenizer_blob *b =
        (const void *)((const char *)o.index + o.index->tokenizer_offset);
    char word[120];
    uint32_t ids[120];
    srand(7);
    for (int round = 0; round < 4000; round++) {
        size_t n = 1 + (size_t)rand() % sizeof word;
        for (size_t i = 0; i < n; i++) {
            word[i] = "eeeettaaoinshrdluinging"[rand() % 23]; /* letters only: one word */
            ids[i] = b->byte_ids[(unsigned char)word[i]];
        }
        expect_ids(o.t, word, n, false, ids, merge_naively(b, ids, n));
    }
    close_both(&o);
}
END_TEST

static void merge_runs(struct make *m)
{
    make_texts(m, "tokenizer.ggml.merges", (const char *[]){"h e", "l l", "he ll", "l e"}, 4);
    const char *texts[TINY_VOCAB + 1];
    int32_t types[TINY_VOCAB + 1];
    tiny_tokens(texts, types);
    texts[TINY_VOCAB] = "le";
    types[TINY_VOCAB] = 1;
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB + 1);
    make_i32s(m, "tokenizer.ggml.token_type", types, TINY_VOCAB + 1);
    make_drop_key(m, "qwen3moe.vocab_size");
    struct make_tensor *t = make_tensor(m, "token_embd.weight");
    t->ne[1]++;
    t->bytes += t->bytes / TINY_VOCAB;
}

/* Long words are tokenized correctly within the time limit of the test case. */
START_TEST(long_words)
{
    struct opened o = open_tiny(merge_runs);
    size_t n = 1 << 20, count;
    char *text = malloc(TOKENIZER_TEXT_MAX + 1);
    memset(text, 'l', n);
    uint32_t *ids = encode(o.t, text, n, false, &count);
    ck_assert_uint_eq(count, n / 2);
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_eq(ids[i], TINY_LL);
    free(ids);
    for (size_t i = 0; i < n; i++)
        text[i] = "hell"[i % 4];
    ids = encode(o.t, text, n, false, &count);
    ck_assert_uint_eq(count, n / 4);
    ck_assert_uint_eq(ids[count - 1], TINY_HELL);
    free(ids);
    static const char fills[] = {'a', ' ', '\n', '<', '1', (char)0xff, 0};
    for (size_t k = 0; k < sizeof fills; k++) {
        memset(text, fills[k], n);
        expect_round_trip(o.t, text, n);
    }
    struct error error = {0};
    ck_assert_int_eq(
        tokenizer_encode(o.t, text, TOKENIZER_TEXT_MAX + 1, NULL, &ids, &count, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_ptr_null(ids);
    free(text);
    close_both(&o);
}
END_TEST

/* All expressions of the table compile and accept any text. */
static const char *current_pre;
static void use_current(struct make *m)
{
    make_text(m, "tokenizer.ggml.pre", current_pre);
}

START_TEST(every_pretokenizer)
{
    static const char *const names[] = {
#define PRETOKENIZER(name, ...) name,
#include "lib/model/tokenizer/tokenizers.tbl.h"
    };
    static const char odd[] = "\xe3\x80\x80 \xc2\xa0\t\n\r\n x1234567 I'LL \xef\xbf\xbd";
    size_t n;
    char *text = slurp("heldout/drama.txt", &n);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        current_pre = names[i];
        struct opened o = open_tiny(use_current);
        expect_round_trip(o.t, text, n);
        expect_round_trip(o.t, odd, sizeof odd - 1);
        close_both(&o);
    }
    free(text);
}
END_TEST

/* The key of our own is stronger than the pre-tokenizer's column. */
static void no_nfc(struct make *m)
{
    make_bool(m, TOKENIZER_NFC_KEY, false);
}
static void gpt2(struct make *m)
{
    make_text(m, "tokenizer.ggml.pre", "gpt-2");
}
static void gpt2_with_nfc(struct make *m)
{
    gpt2(m);
    make_bool(m, TOKENIZER_NFC_KEY, true);
}

START_TEST(normalisation_by_key)
{
    static const struct {
        void (*edit)(struct make *m);
        bool nfc;
    } rows[] = {{NULL, true}, {no_nfc, false}, {gpt2, false}, {gpt2_with_nfc, true}};
    static const uint32_t composed[] = {0xc3, 0xa9}, as_is[] = {'e', 0xcc, 0x81};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct opened o = open_tiny(rows[i].edit);
        expect_ids(o.t, "e\xcc\x81", 3, false, rows[i].nfc ? composed : as_is, rows[i].nfc ? 2 : 3);
        close_both(&o);
    }
}
END_TEST

static void no_pre(struct make *m)
{
    make_drop_key(m, "tokenizer.ggml.pre");
}

/* What opening a file writes to stderr. */
static void lines_of(void (*edit)(struct make *m), char *lines, size_t size)
{
    FILE *into = tmpfile();
    int saved = dup(STDERR_FILENO);
    ck_assert(into && saved >= 0);
    ck_assert_int_ge(dup2(fileno(into), STDERR_FILENO), 0);
    struct opened o = open_tiny(edit);
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    close(saved);
    close_both(&o);
    rewind(into);
    lines[fread(lines, 1, size - 1, into)] = 0;
    fclose(into);
}

START_TEST(missing_pretokenizer_is_a_warning)
{
    char lines[2000];
    lines_of(no_pre, lines, sizeof lines);
    ck_assert_msg(strstr(lines, "no tokenizer.ggml.pre") != NULL, "'%s'", lines);
    lines_of(NULL, lines, sizeof lines);
    ck_assert_msg(strstr(lines, "tokenizer.ggml.pre") == NULL, "'%s'", lines);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("tokenizer");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, reference_vectors);
    tcase_add_test(c, held_out_texts);
    tcase_add_test(c, random_text);
    tcase_add_test(c, never_split);
    tcase_add_test(c, utf8_cases);
    tcase_add_test(c, merging);
    tcase_add_test(c, long_words);
    tcase_add_test(c, every_pretokenizer);
    tcase_add_test(c, normalisation_by_key);
    tcase_add_test(c, missing_pretokenizer_is_a_warning);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
