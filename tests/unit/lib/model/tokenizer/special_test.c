/* SPDX-License-Identifier: Apache-2.0 */
/* Special tokens, the ranges of a text that may have them, and keys of a file that change a
 * tokenizer. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "tests/unit/lib/model/tokenizer/opened.h"

START_TEST(special_tokens)
{
    struct opened o = open_tiny(NULL);
    ck_assert_uint_eq(tokenizer_vocab(o.t), TINY_VOCAB);
    ck_assert_uint_eq(tokenizer_eos(o.t), TINY_EOS);
    ck_assert_uint_eq(tokenizer_bos(o.t), TINY_CONTROL);
    ck_assert(tokenizer_is_control(o.t, TINY_EOS));
    ck_assert(!tokenizer_is_control(o.t, TINY_USER));
    ck_assert(!tokenizer_is_control(o.t, TINY_VOCAB));
    size_t n;
    tokenizer_piece(o.t, TINY_EOS, &n);
    ck_assert_uint_eq(n, 0);
    tokenizer_piece(o.t, TINY_VOCAB, &n);
    ck_assert_uint_eq(n, 0);
    tokenizer_piece(o.t, TINY_USER, &n);
    ck_assert_uint_eq(n, 5);
#define EXPECT(text, special, ...)                                                                 \
    expect_ids(o.t, text, strlen(text), special, (const uint32_t[]){__VA_ARGS__},                  \
               ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))
    EXPECT("<|end|>", true, TINY_EOS);
    EXPECT("<|end|>>", true, TINY_CONTROL); /* the longest match */
    EXPECT("he<|end|>ll<tag>", true, TINY_HE, TINY_EOS, TINY_LL, TINY_USER);
    EXPECT("<|end|", true, '<', '|', 'e', 'n', 'd', '|');
    EXPECT("<<tag>", true, '<', TINY_USER);
    EXPECT("<|end|>", false, '<', '|', 'e', 'n', 'd', '|', '>');
    EXPECT("hell<tag>hell", false, TINY_HELL, TINY_USER, TINY_HELL);
    EXPECT("<|end|><tag>", false, '<', '|', 'e', 'n', 'd', '|', '>', TINY_USER);
    close_both(&o);

    o = open_demo();
    ck_assert_uint_eq(tokenizer_eos(o.t), 4095);
    ck_assert_uint_eq(tokenizer_bos(o.t), TOKEN_NONE); /* add_bos_token is false */
    EXPECT("<|endoftext|>", true, 4095);
    close_both(&o);
}
END_TEST

/* Ranges of the text are written in braces. */
static void expect_marked(const struct tokenizer *t, const char *marked, const uint32_t *want,
                          size_t want_count)
{
    char text[100];
    size_t n = 0, from = 0, count;
    struct text_ranges ranges = {0};
    struct error error = {0};
    uint32_t *ids;
    for (; *marked; marked++) {
        if (*marked == '{')
            from = n;
        else if (*marked == '}')
            ck_assert_int_eq(text_ranges_add(&ranges, from, n), 0);
        else
            text[n++] = *marked;
    }
    ck_assert_msg(tokenizer_encode(t, text, n, &ranges, &ids, &count, &error) == 0, "%s",
                  error.text);
    ck_assert_msg(count == want_count && memcmp(ids, want, count * sizeof *ids) == 0,
                  "'%.*s': %zu tokens, not %zu, or other ones", (int)n, text, count, want_count);
    free(ids);
    text_ranges_free(&ranges);
}

#define END_AS_TEXT '<', '|', 'e', 'n', 'd', '|', '>'
#define MARKED(text, ...)                                                                          \
    expect_marked(o.t, text, (const uint32_t[]){__VA_ARGS__},                                      \
                  ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))

/* Control tokens are those of the ranges only; ranges change nothing else. */
START_TEST(ranges_of_control_tokens)
{
    struct opened o = open_tiny(NULL);
    MARKED("{<|end|>}he<|end|>", TINY_EOS, TINY_HE, END_AS_TEXT);
    MARKED("<|end|>{<|end|>}<|end|>{<|end|>}", END_AS_TEXT, TINY_EOS, END_AS_TEXT, TINY_EOS);
    MARKED("{<|end|>}>", TINY_EOS, '>'); /* the longer token is not completely in the range */
    MARKED("{<|end|>>}", TINY_CONTROL);
    MARKED("{<|end|}>", END_AS_TEXT);
    MARKED("<{|end|>}", END_AS_TEXT);
    MARKED("<|e{}nd|>", END_AS_TEXT);
    MARKED("{<|end|>he}ll{<|end|>}", TINY_EOS, TINY_HELL, TINY_EOS); /* merged across the border */
    MARKED("{he}{ll<|end}|>", TINY_HELL, END_AS_TEXT);
    MARKED("{x}<tag>", 'x', TINY_USER); /* user-defined tokens are found everywhere */
    MARKED("\xff{<|end|>}", 0xef, 0xbf, 0xbd, TINY_EOS); /* U+FFFD is longer */
    close_both(&o);
}
END_TEST

static void name_ends(struct make *m)
{
    make_u32(m, "tokenizer.ggml.eot_token_id", TINY_USER);
    make_u32(m, "tokenizer.ggml.eom_token_id", 'x');
}

/* The names of harmony's marks, as control tokens or as text. */
static void name_calls(struct make *m, int32_t type)
{
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    tiny_tokens(texts, types);
    texts[TINY_CONTROL] = "<|return|>";
    texts[TINY_USER] = "<|call|>";
    types[TINY_USER] = type;
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
    make_i32s(m, "tokenizer.ggml.token_type", types, TINY_VOCAB);
}

static void name_call(struct make *m)
{
    name_calls(m, TOKEN_CONTROL);
}

static void name_end_of_message(struct make *m)
{
    name_calls(m, TOKEN_CONTROL);
    make_u32(m, "tokenizer.ggml.eos_token_id", 'x');
    make_u32(m, "tokenizer.ggml.eot_token_id", TINY_EOS);
    make_u32(m, "tokenizer.ggml.eom_token_id", 'y');
}

/* Phi 3: it has no <|return|>. */
static void name_end_of_turn(struct make *m)
{
    make_u32(m, "tokenizer.ggml.eos_token_id", 'x');
    make_u32(m, "tokenizer.ggml.eot_token_id", TINY_EOS);
}

static void name_call_as_text(struct make *m)
{
    name_calls(m, TOKEN_NORMAL);
}

static void name_call_as_users(struct make *m)
{
    name_calls(m, TOKEN_USER_DEFINED);
}

/* The last three tokens of the vocabulary, of which only the last one is user-defined. */
static void name_last(struct make *m, const char *eos, const char *control, const char *user)
{
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    tiny_tokens(texts, types);
    texts[TINY_EOS] = eos;
    texts[TINY_CONTROL] = control;
    texts[TINY_USER] = user;
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
}

static void name_gemma4(struct make *m)
{
    name_last(m, "<turn|>", "<eos>", "<|tool_response>");
}

static void name_without_turn(struct make *m)
{
    name_last(m, "<end>", "<eos>", "<|tool_response>");
}

/* eos is <|end|>, which closes the thoughts. */
static void name_solar(struct make *m)
{
    name_last(m, "<|end|>", "<|flush|>", "<|calls|>");
}

static void name_solar_text(struct make *m)
{
    name_solar(m);
    make_u32(m, "tokenizer.ggml.eos_token_id", TINY_CONTROL);
}

/* Tokens that end an answer: those of the file, and harmony's call. */
START_TEST(ends_of_answers)
{
    struct opened o = open_tiny(NULL);
    size_t n;
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) == (id == TINY_EOS));
    ck_assert(!tokenizer_is_end(o.t, TOKEN_NONE));
    ck_assert_mem_eq(tokenizer_control_name(o.t, TINY_EOS, &n), "<|end|>", 7);
    ck_assert_uint_eq(n, 7);
    tokenizer_control_name(o.t, TINY_USER, &n);
    ck_assert_uint_eq(n, 0);
    tokenizer_control_name(o.t, TINY_VOCAB, &n);
    ck_assert_uint_eq(n, 0);
    close_both(&o);
    o = open_tiny(name_ends);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) == (id == TINY_EOS || id == TINY_USER || id == 'x'));
    close_both(&o);
    o = open_tiny(name_call_as_text);
    ck_assert(!tokenizer_is_end(o.t, TINY_USER));
    close_both(&o);
    o = open_tiny(name_call_as_users);
    ck_assert(tokenizer_is_end(o.t, TINY_USER));
    close_both(&o);
}
END_TEST

/* Ends that belong to others of the vocabulary, some of them user-defined tokens: of Gemma 4, the
 * response of a tool and the end of the document beside that of the turn; of Solar Open, calls and
 * the text, but not the end of thoughts. */
START_TEST(ends_with_others)
{
    struct opened o = open_tiny(name_gemma4);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) ==
                  (id == TINY_EOS || id == TINY_CONTROL || id == TINY_USER));
    ck_assert_uint_eq(tokenizer_eos(o.t), TINY_EOS);
    close_both(&o);
    o = open_tiny(name_without_turn);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) == (id == TINY_EOS));
    close_both(&o);
    void (*const solar[])(struct make * m) = {name_solar, name_solar_text};
    for (size_t i = 0; i < ARRAY_LEN(solar); i++) {
        o = open_tiny(solar[i]);
        for (uint32_t id = 0; id <= TINY_VOCAB; id++)
            ck_assert(tokenizer_is_end(o.t, id) == (id == TINY_CONTROL || id == TINY_USER));
        ck_assert_uint_eq(tokenizer_eos(o.t), TINY_CONTROL);
        close_both(&o);
    }
}
END_TEST

/* Ends of turns and documents, which the file does not name; one is text. */
static void name_turns(struct make *m)
{
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    tiny_tokens(texts, types);
    texts[TINY_EOS] = "<|im_end|>";
    texts[TINY_CONTROL] = "<|endoftext|>";
    texts[TINY_USER] = "<|eot_id|>";
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
    make_u32(m, "tokenizer.ggml.eos_token_id", 'x');
}

static void name_turns_and_ends(struct make *m)
{
    name_turns(m);
    make_u32(m, "tokenizer.ggml.eot_token_id", TINY_EOS);
    make_u32(m, "tokenizer.ggml.eom_token_id", 'y');
}

#define RARE_BYTE 0xf5 /* a vocabulary may lack it and the next one */

/* More ends than there is place for: those of the file first. */
static void name_many(struct make *m)
{
    static const struct {
        uint32_t id;
        const char *text;
    } names[] = {{RARE_BYTE, "<|im_end|>"},    {RARE_BYTE + 1, "<|end|>"},
                 {TINY_HE, "<|end_of_text|>"}, {TINY_LL, "<|endoftext|>"},
                 {TINY_HELL, "<end_of_turn>"}, {TINY_EOS, "<turn|>"},
                 {TINY_CONTROL, "<|eom_id|>"}, {TINY_USER, "<|eot_id|>"}};
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    tiny_tokens(texts, types);
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        texts[names[i].id] = names[i].text;
        types[names[i].id] = TOKEN_CONTROL;
    }
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
    make_i32s(m, "tokenizer.ggml.token_type", types, TINY_VOCAB);
    make_texts(m, "tokenizer.ggml.merges", NULL, 0);
    make_u32(m, "tokenizer.ggml.eos_token_id", 'x');
    make_u32(m, "tokenizer.ggml.eot_token_id", 'y');
    make_u32(m, "tokenizer.ggml.eom_token_id", 'z');
}

START_TEST(ends_by_name)
{
    struct opened o = open_tiny(name_turns);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) == (id == 'x' || id == TINY_EOS || id == TINY_CONTROL));
    ck_assert_uint_eq(tokenizer_eos(o.t), 'x');
    close_both(&o);
    o = open_tiny(name_turns_and_ends);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) ==
                  (id == 'x' || id == 'y' || id == TINY_EOS || id == TINY_CONTROL));
    close_both(&o);
    o = open_tiny(name_many);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert_msg(tokenizer_is_end(o.t, id) ==
                          ((id >= 'x' && id <= 'z') || id == RARE_BYTE || id == RARE_BYTE + 1 ||
                           (id >= TINY_LL && id <= TINY_EOS) || id == TINY_USER),
                      "%u", id);
    close_both(&o);
}
END_TEST

/* Harmony: a call and the end of the answer are ends, that of a message is none, whatever the file
 * states. */
START_TEST(end_of_a_message)
{
    struct opened o = open_tiny(name_call); /* eos is <|end|> */
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) == (id == TINY_USER || id == TINY_CONTROL));
    ck_assert_uint_eq(tokenizer_eos(o.t), TINY_CONTROL);
    close_both(&o);
    o = open_tiny(name_end_of_message);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) ==
                  (id == TINY_USER || id == TINY_CONTROL || id == 'x' || id == 'y'));
    ck_assert_uint_eq(tokenizer_eos(o.t), 'x');
    close_both(&o);
    o = open_tiny(name_end_of_turn);
    for (uint32_t id = 0; id <= TINY_VOCAB; id++)
        ck_assert(tokenizer_is_end(o.t, id) == (id == TINY_EOS || id == 'x'));
    close_both(&o);
}
END_TEST

static void suppress(struct make *m)
{
    static const int32_t ids[] = {TINY_USER, 'x', -1, TINY_VOCAB, 'b', 'x', 1 << 30};
    make_i32s(m, "tokenizer.ggml.suppress_tokens", ids, ARRAY_LEN(ids));
}

static void suppress_none(struct make *m)
{
    make_i32s(m, "tokenizer.ggml.suppress_tokens", NULL, 0);
}

/* Those within the vocabulary, each once; and tables with others are rejected. */
START_TEST(suppressed_tokens)
{
    struct opened o = open_tiny(suppress);
    struct error error = {0};
    size_t n;
    const uint32_t *ids = tokenizer_suppressed(o.t, &n);
    ck_assert(n == 3 && ids[0] == 'b' && ids[1] == 'x' && ids[2] == TINY_USER);
    void *blob = (char *)o.index + o.index->tokenizer_offset;
    uint32_t *at = (uint32_t *)(uintptr_t)ids;
    at[2] = TINY_VOCAB;
    ck_assert_int_eq(tokenizer_blob_check(blob, o.index->tokenizer_bytes, &error), -1);
    at[2] = 'x';
    ck_assert_int_eq(tokenizer_blob_check(blob, o.index->tokenizer_bytes, &error), -1);
    close_both(&o);
    o = open_tiny(suppress_none);
    tokenizer_suppressed(o.t, &n);
    ck_assert_uint_eq(n, 0);
    close_both(&o);
    o = open_tiny(NULL);
    tokenizer_suppressed(o.t, &n);
    ck_assert_uint_eq(n, 0);
    close_both(&o);
}
END_TEST

/* A user-defined token that is a part of a character, and a control token that is none. */
static void name_parts(struct make *m)
{
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    tiny_tokens(texts, types);
    texts[TINY_USER] = "\xc3";
    texts[TINY_CONTROL] = "\x96\x81";
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
}

static void name_parts_gpt2(struct make *m)
{
    name_parts(m);
    make_text(m, "tokenizer.ggml.pre", "gpt-2");
}

static void name_parts_spm(struct make *m)
{
    struct spm_tokens tokens;
    spm_tokens(&tokens);
    tokens.texts[SPM_AB] = "\xc3";
    tokens.types[SPM_AB] = TOKEN_USER_DEFINED;
    make_spm(m, &tokens);
}

/* They would cut a character in two. The model can still generate them. */
START_TEST(parts_of_characters_are_not_matched)
{
    static const char text[] = "\xc3\xa9\xe2\x96\x81 \xc3\xa9";
    struct opened o = open_tiny(name_parts);
    size_t n;
    EXPECT(text, true, 0xc3, 0xa9, 0xe2, 0x96, 0x81, ' ', 0xc3, 0xa9);
    ck_assert_mem_eq(tokenizer_piece(o.t, TINY_USER, &n), "\xc3", 1);
    ck_assert_uint_eq(n, 1);
    close_both(&o);
    o = open_tiny(name_parts_gpt2);
    EXPECT(text, true, 0xc3, 0xa9, 0xe2, 0x96, 0x81, ' ', 0xc3, 0xa9);
    close_both(&o);
    o = open_tiny(name_parts_spm);
    EXPECT("\xc3\xa9", true, SPM_SPACE_ID, 0xc3, 0xa9);
    close_both(&o);
}
END_TEST

/* The tables of a file that lists one are rejected. */
START_TEST(tables_with_parts_of_characters)
{
    struct opened o = open_tiny(NULL);
    struct error error = {0};
    char *blob = (char *)o.index + o.index->tokenizer_offset;
    struct tokenizer_blob *b = (struct tokenizer_blob *)(void *)blob;
    size_t n;
    char *piece = (char *)(uintptr_t)blob_piece(b, TINY_USER, &n);
    ck_assert_int_eq(tokenizer_blob_check(b, o.index->tokenizer_bytes, &error), 0);
    piece[n - 1] = '\xc3'; /* "<tag\xc3": the order stays */
    ck_assert_int_eq(tokenizer_blob_check(b, o.index->tokenizer_bytes, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    close_both(&o);
}
END_TEST

START_TEST(lists_of_ranges)
{
    struct text_ranges r = {0};
    for (size_t i = 0; i < 100; i++) {
        ck_assert_int_eq(text_ranges_add(&r, 3 * i, 3 * i), 0); /* empty */
        ck_assert_int_eq(text_ranges_add(&r, 3 * i, 3 * i + 1), 0);
        ck_assert_int_eq(text_ranges_add(&r, 3 * i + 1, 3 * i + 2), 0); /* joined */
    }
    ck_assert_uint_eq(r.count, 100);
    ck_assert(r.at[99].from == 297 && r.at[99].to == 299);
    ck_assert(text_ranges_valid(&r, 299) && !text_ranges_valid(&r, 298));
    r.at[50].from = r.at[49].to;
    ck_assert(!text_ranges_valid(&r, 299));
    text_ranges_free(&r);
    ck_assert(text_ranges_valid(&r, 0));
    ck_assert(text_ranges_valid(&text_ranges_all, UINT32_MAX));
}
END_TEST

static void use_llama3(struct make *m)
{
    make_text(m, "tokenizer.ggml.pre", "llama-bpe");
    make_texts(m, "tokenizer.ggml.merges", (const char *[]){"h e"}, 1);
}

static void use_gpt2(struct make *m)
{
    make_text(m, "tokenizer.ggml.pre", "gpt-2");
}

/* Keys that override the pre-tokenizer. */
static void drop_ignoring(struct make *m)
{
    use_llama3(m);
    make_bool(m, TOKENIZER_IGNORE_MERGES_KEY, 0);
}

static void add_ignoring(struct make *m)
{
    use_llama3(m);
    use_gpt2(m);
    make_bool(m, TOKENIZER_IGNORE_MERGES_KEY, 1);
}

/* With ignore_merges, a word that is a token is taken whole, although no merges produce it. */
START_TEST(ignore_merges)
{
    struct opened o = open_tiny(use_llama3);
    EXPECT("hell", false, TINY_HELL);
    EXPECT("hello", false, TINY_HE, 'l', 'l', 'o');
    EXPECT("12345", false, '1', '2', '3', '4', '5');
    close_both(&o);
    o = open_tiny(use_gpt2);
    EXPECT("hell", false, TINY_HELL);
    EXPECT("he'll", false, TINY_HE, '\'', TINY_LL);
    close_both(&o);
    o = open_tiny(drop_ignoring);
    EXPECT("hell", false, TINY_HE, 'l', 'l');
    close_both(&o);
    o = open_tiny(add_ignoring);
    EXPECT("hell", false, TINY_HELL);
    close_both(&o);
}
END_TEST

/* Without the key, the pre-tokenizer decides. */
static void drop_add_bos(struct make *m)
{
    make_drop_key(m, "tokenizer.ggml.add_bos_token");
}
static void llama3_without_key(struct make *m)
{
    use_llama3(m);
    drop_add_bos(m);
}
static void gpt2_without_key(struct make *m)
{
    use_gpt2(m);
    drop_add_bos(m);
}

START_TEST(bos_by_default)
{
    struct opened o = open_tiny(llama3_without_key);
    ck_assert_uint_eq(tokenizer_bos(o.t), TINY_CONTROL);
    close_both(&o);
    o = open_tiny(gpt2_without_key);
    ck_assert_uint_eq(tokenizer_bos(o.t), TOKEN_NONE);
    close_both(&o);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer_special");
    TCase *c = tcase_create("tokenizer");
    tcase_add_test(c, special_tokens);
    tcase_add_test(c, ranges_of_control_tokens);
    tcase_add_test(c, ends_of_answers);
    tcase_add_test(c, ends_with_others);
    tcase_add_test(c, end_of_a_message);
    tcase_add_test(c, suppressed_tokens);
    tcase_add_test(c, ends_by_name);
    tcase_add_test(c, parts_of_characters_are_not_matched);
    tcase_add_test(c, tables_with_parts_of_characters);
    tcase_add_test(c, lists_of_ranges);
    tcase_add_test(c, ignore_merges);
    tcase_add_test(c, bos_by_default);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
