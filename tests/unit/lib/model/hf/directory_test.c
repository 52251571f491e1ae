/* SPDX-License-Identifier: Apache-2.0 */
/* Whole directories: which files the tokenizer and the chat templates are read from, and what the
 * errors name. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/hf/hf.h"
#include "lib/model/tokenizer/blob.h"
#include "tests/unit/lib/model/hf_make.h"

#define MODEL SLUICE_SOURCE_DIR "/tests/golden/data/arch/qwen3moe_a.gguf" /* 264 tokens */

static char dir[] = "/tmp/sluice-hf-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static const char *const others[] = {"tokenizer_config.json",
                                     "generation_config.json",
                                     "tokenizer.model",
                                     "tiktoken.model",
                                     "hy.tiktoken",
                                     "chat_template.jinja",
                                     "chat_template.json",
                                     "additional_chat_templates/default.jinja",
                                     "additional_chat_templates/tool_use.jinja",
                                     "additional_chat_templates/rag.jinja"};

static void clear(void)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        unlink(path_of(others[i]));
}

static void setup(void)
{
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    hf_make(&(struct hf_make){.gguf = MODEL, .dir = dir});
    ck_assert_int_eq(mkdir(path_of("additional_chat_templates"), 0700), 0);
}

static void teardown(void)
{
    clear();
    rmdir(path_of("additional_chat_templates"));
    hf_unmake(dir);
    ck_assert_int_ne(access(dir, F_OK), 0);
}

static void put_bytes(const char *name, const char *text, size_t bytes)
{
    FILE *f = fopen(path_of(name), "wb");
    ck_assert(f && fwrite(text, 1, bytes, f) == bytes && fclose(f) == 0);
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static void expect_rejected(enum error_code code, const char *reason)
{
    struct hf_model hf;
    struct error error = {0};
    ck_assert_msg(hf_open(&hf, dir, &error) == -1, "taken: %s", reason);
    ck_assert_msg(strstr(error.text, reason) != NULL, "'%s' instead of '%s'", error.text, reason);
    ck_assert_int_eq(error.code, code);
    ck_assert_ptr_null(strchr(error.text, '\n'));
}

struct opened {
    struct hf_model hf;
    struct gguf g;
};

static void open_directory(struct opened *o)
{
    struct error error = {0};
    ck_assert_msg(hf_open(&o->hf, dir, &error) == 0, "%s", error.text);
    struct gguf_source source = {
        .read = gguf_writer_read, .arg = o->hf.gguf, .bytes = gguf_writer_bytes(o->hf.gguf)};
    ck_assert_msg(gguf_open(&o->g, &source, &error) == 0, "%s", error.text);
}

static void close_directory(struct opened *o)
{
    gguf_close(&o->g);
    hf_close(&o->hf);
}

/* expected NULL: the key is absent. */
static void expect_text(const struct opened *o, const char *key, const char *expected, size_t row)
{
    const char *text = "";
    size_t n = 0;
    int found = gguf_get_string(&o->g, key, &text, &n, NULL);
    ck_assert_msg(found == (expected != NULL), "row %zu: %s is %s", row, key,
                  found ? "there" : "absent");
    ck_assert_msg(!expected || (n == strlen(expected) && memcmp(text, expected, n) == 0),
                  "row %zu: %s is '%.*s'", row, key, (int)n, text);
}

/* ---- tokenizers ---- */

#define LINES_MAX (HF_MAKE_RANKS_BYTES + 100)

/* All bytes, and "ab". */
static size_t ranks(char text[LINES_MAX])
{
    size_t n = hf_make_ranks(text, LINES_MAX);
    return n + (size_t)snprintf(text + n, LINES_MAX - n, "YWI= 256\n");
}

static void expect_token(const struct opened *o, uint32_t id, const char *text)
{
    struct gguf_array tokens;
    const char *at = NULL;
    size_t n = 0;
    ck_assert_int_eq(gguf_get_array(&o->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL), 1);
    ck_assert_uint_eq(tokens.left, 264);
    for (uint32_t i = 0; i <= id; i++)
        gguf_array_string(&tokens, &at, &n);
    ck_assert_msg(n == strlen(text) && memcmp(at, text, n) == 0, "%u: '%.*s'", id, (int)n, at);
}

START_TEST(tokenizer_json)
{
    struct opened o;
    put("tiktoken.model", "no ranks");
    put("hy.tiktoken", "no ranks");
    put("tokenizer.model", "no vocabulary");
    open_directory(&o);
    expect_text(&o, "tokenizer.ggml.model", "gpt2", 0);
    expect_text(&o, "tokenizer.ggml.pre", "qwen2", 0);
    close_directory(&o);
}
END_TEST

/* The pre-tokenizer qwen2 has NFC: the key is written where tokenizer.json has not. */
START_TEST(normalizers)
{
    static const struct {
        const char *normalizer;
        int found; /* the key, which is false then */
    } rows[] = {{"null", 1},
                {"{\"type\": \"NFC\"}", 0},
                {"{\"type\": \"Sequence\", \"normalizers\": []}", 1},
                {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}", 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct opened o;
        bool nfc = true;
        json_t *root = json_load_file(path_of("tokenizer.json"), 0, NULL);
        ck_assert_ptr_nonnull(root);
        json_object_set_new(root, "normalizer",
                            json_loads(rows[i].normalizer, JSON_DECODE_ANY, NULL));
        ck_assert_int_eq(json_dump_file(root, path_of("tokenizer.json"), 0), 0);
        json_decref(root);
        open_directory(&o);
        expect_text(&o, "tokenizer.ggml.pre", "qwen2", i);
        ck_assert_int_eq(gguf_get_bool(&o.g, TOKENIZER_NFC_KEY, &nfc, NULL), rows[i].found);
        ck_assert(nfc == (rows[i].found == 0));
        close_directory(&o);
    }
}
END_TEST

#define SPLIT(expression)                                                                          \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" expression                                     \
    "\"},\"behavior\":\"Isolated\",\"invert\":false},"
/* As published for Trinity: digits in three steps, escapes instead of characters. */
#define TRINITY_DIGITS                                                                             \
    SPLIT("\\\\p{Nd}{1,510}(?=(?>\\\\p{Nd}{510})*(?:\\\\P{Nd}|$))|\\\\G\\\\p{Nd}{510}")            \
    SPLIT("\\\\A\\\\p{Nd}{1,2}(?=\\\\p{Nd}{3}+\\\\z)")                                             \
    SPLIT("\\\\A\\\\p{Nd}{3}|\\\\G\\\\p{Nd}{3}")
#define TRINITY_SCRIPTS                                                                            \
    SPLIT("(?:[\\\\u4E00-\\\\u9FFF\\\\u3040-\\\\u309F\\\\u30A0-\\\\u30FF\\\\u3400-"                \
          "\\\\u4DBF\\\\uf900-"                                                                    \
          "\\\\uFAFF\\\\uFF65-\\\\uFF9F\\\\u2F00-\\\\u2FDF]+|[\\\\u0E00-\\\\u0E7F]+|[\\\\u0E80-"   \
          "\\\\u0EFF]+"                                                                            \
          "|[\\\\u1780-\\\\u17FF]+|[\\\\u1000-\\\\u109F\\\\uAA60-\\\\uAA7F\\\\uA9E0-\\\\uA9FF]+"   \
          "|[\\\\uAC00-\\\\uD7AF\\\\u1100-\\\\u11FF]+)")
#define DEEPSEEK_WORDS(line_feeds)                                                                 \
    SPLIT("[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^" line_feeds        \
          "\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[" line_feeds        \
          "]*|\\\\s*[" line_feeds "]+|\\\\s+(?!\\\\S)|\\\\s+")
#define ESCAPED "\\\\r\\\\n"
#define RAW     "\\r\\n"

#define LINES(behavior)                                                                            \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:\\\\r?\\\\n)+(?!\\\\r?\\\\n)\"},"             \
    "\"behavior\":\"" behavior "\",\"invert\":false},"
#define QWEN2_WORDS                                                                                \
    SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?"       \
          "[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")

static void put_splits(const char *splits)
{
    char text[4000];
    snprintf(text, sizeof text,
             "{\"type\":\"Sequence\",\"pretokenizers\":[%s{\"type\":\"ByteLevel\","
             "\"add_prefix_space\":false,\"use_regex\":false}]}",
             splits);
    json_t *root = json_load_file(path_of("tokenizer.json"), 0, NULL),
           *pre = json_loads(text, 0, NULL);
    ck_assert_msg(root && pre, "%s", text);
    json_object_set_new(root, "pre_tokenizer", pre);
    ck_assert_int_eq(json_dump_file(root, path_of("tokenizer.json"), 0), 0);
    json_decref(root);
}

START_TEST(published_pretokenizers)
{
    static const struct {
        const char *splits, *pre; /* NULL: rejected */
    } rows[] = {
        {TRINITY_DIGITS TRINITY_SCRIPTS DEEPSEEK_WORDS(ESCAPED), "afmoe"},
        {TRINITY_DIGITS TRINITY_SCRIPTS DEEPSEEK_WORDS(RAW), "afmoe"},
        {LINES("MergedWithNext") QWEN2_WORDS, "laguna"},
        {LINES("Isolated") QWEN2_WORDS, NULL},
        {TRINITY_DIGITS DEEPSEEK_WORDS(RAW), NULL},
        {TRINITY_SCRIPTS DEEPSEEK_WORDS(RAW), NULL},
        {SPLIT("\\\\A\\\\p{Nd}{3}|\\\\G\\\\p{Nd}{3}") TRINITY_SCRIPTS DEEPSEEK_WORDS(RAW), NULL},
        {TRINITY_DIGITS TRINITY_SCRIPTS DEEPSEEK_WORDS(RAW) SPLIT("x"), NULL},
        {SPLIT("\\\\p{N}")
             SPLIT("'(?:[sdmt]|ll|ve|re)| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+"
                   "|\\\\s+(?!\\\\S)|\\\\s+"),
         "refact"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct opened o;
        put_splits(rows[i].splits);
        if (!rows[i].pre) {
            expect_rejected(ERR_BAD_INPUT, "its pre-tokenizer is not one of those supported");
            continue;
        }
        open_directory(&o);
        expect_text(&o, "tokenizer.ggml.pre", rows[i].pre, i);
        close_directory(&o);
    }
}
END_TEST

/* One expression, that of a row of the table. */
static void put_words(const char *pre, bool ignore_merges)
{
    const char *words = pretokenizer_expression(pretokenizer_find(pre, strlen(pre)), 0);
    json_t *root = json_load_file(path_of("tokenizer.json"), 0, NULL);
    json_t *parts = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}", "type",
                              "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                              words, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                              "add_prefix_space", 0, "use_regex", 0);
    ck_assert(root && parts);
    json_object_set_new(root, "pre_tokenizer", parts);
    json_object_set_new(json_object_get(root, "model"), "ignore_merges",
                        json_boolean(ignore_merges));
    ck_assert_int_eq(json_dump_file(root, path_of("tokenizer.json"), 0), 0);
    json_decref(root);
}

/* A row with the flag of the file is taken if there is one, else the key is written. */
START_TEST(words_that_are_not_merged)
{
    static const struct {
        const char *expression;
        bool ignore_merges;
        const char *pre;
        int found; /* the key, with the flag of the file */
    } rows[] = {{"gpt-4o", true, "gpt-4o", 1},       {"gpt-4o", false, "gpt-4o", 0},
                {"llama-bpe", true, "llama-bpe", 0}, {"llama-bpe", false, "dbrx", 0},
                {"qwen2", true, "hunyuan", 0},       {"tekken", false, "tekken", 1}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct opened o;
        bool flag = rows[i].ignore_merges;
        put_words(rows[i].expression, flag);
        open_directory(&o);
        expect_text(&o, "tokenizer.ggml.pre", rows[i].pre, i);
        ck_assert_int_eq(gguf_get_bool(&o.g, TOKENIZER_IGNORE_MERGES_KEY, &flag, NULL),
                         rows[i].found);
        ck_assert(flag == rows[i].ignore_merges);
        close_directory(&o);
    }
}
END_TEST

START_TEST(tiktoken)
{
    static const char *const rows[][3] = {{"tiktoken.model", "kimi-k2", "<|reserved_token_257|>"},
                                          {"hy.tiktoken", "hunyuan", "<|endoftext|>"}};
    struct opened o;
    char text[LINES_MAX];
    size_t bytes = ranks(text);
    unlink(path_of("tokenizer.json"));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        put_bytes(rows[i][0], text, bytes);
        open_directory(&o);
        expect_text(&o, "tokenizer.ggml.model", "gpt2", i);
        expect_text(&o, "tokenizer.ggml.pre", rows[i][1], i);
        expect_token(&o, 256, "ab");
        expect_token(&o, 257, rows[i][2]);
        close_directory(&o);
        unlink(path_of(rows[i][0]));
    }
    put_bytes("tiktoken.model", text, bytes);
    put("tokenizer_config.json",
        "{\"added_tokens_decoder\":{\"260\":{\"content\":\"[BOS]\",\"special\":true}},"
        "\"chat_template\":\"{{ x }}\"}");
    open_directory(&o);
    expect_token(&o, 260, "[BOS]");
    expect_text(&o, "tokenizer.chat_template", "{{ x }}", 0);
    close_directory(&o);
}
END_TEST

START_TEST(bad_tokenizers)
{
    char text[LINES_MAX], named[400];
    size_t bytes = ranks(text);
    unlink(path_of("tokenizer.json"));
    snprintf(named, sizeof named, "%s: no tokenizer: tokenizer.json, tiktoken.model or hy.tiktoken",
             dir);
    expect_rejected(ERR_BAD_INPUT, named);
    put("tokenizer.model", "\n\x0e");
    expect_rejected(ERR_BAD_INPUT, "hy.tiktoken (a tokenizer.model is not read");
    put("tiktoken.model", "YWI= 1\n");
    expect_rejected(ERR_BAD_INPUT, "/tiktoken.model: line of rank 0: not a token and that rank");
    unlink(path_of("tiktoken.model"));
    put("hy.tiktoken", "*** 0\n");
    expect_rejected(ERR_BAD_INPUT, "/hy.tiktoken: line of rank 0: not a token of 1 to 512 bytes");
    ck_assert_int_eq(unlink(path_of("hy.tiktoken")) | mkdir(path_of("hy.tiktoken"), 0700), 0);
    expect_rejected(ERR_BAD_INPUT, "/hy.tiktoken: not a regular file");
    ck_assert_int_eq(rmdir(path_of("hy.tiktoken")), 0);
    put_bytes("hy.tiktoken", text, bytes);
    put("tokenizer_config.json", "{\"added_tokens_decoder\":{\"3\":{\"content\":\"x\"}}}");
    expect_rejected(ERR_BAD_INPUT, "/hy.tiktoken: added_tokens_decoder: '3' is not the number");
    put("tokenizer_config.json", "{");
    expect_rejected(ERR_BAD_INPUT, "/tokenizer_config.json: invalid JSON");
    put("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":300}}}");
    put("tokenizer_config.json", "{}");
    expect_rejected(ERR_BAD_INPUT, "/tokenizer.json: token 'a' has no number below the 264");
    unlink(path_of("config.json"));
    expect_rejected(ERR_BAD_INPUT, "/config.json");
}
END_TEST

/* ---- files that are none ---- */

/* A pipe without a writer is not waited for (the test has a time limit). */
START_TEST(only_regular_files)
{
    static const char *const files[] = {"config.json",
                                        "tokenizer.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "tokenizer_config.json",
                                        "generation_config.json",
                                        "chat_template.json",
                                        "chat_template.jinja",
                                        "additional_chat_templates/default.jinja",
                                        "additional_chat_templates/tool_use.jinja"};
    char moved[sizeof dir + 8];
    snprintf(moved, sizeof moved, "%s/moved", dir);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        bool there = rename(path_of(files[i]), moved) == 0;
        for (int link = 0; link < 2; link++) {
            ck_assert_int_eq(link ? symlink("/dev/zero", path_of(files[i]))
                                  : mkfifo(path_of(files[i]), 0600),
                             0);
            char reason[400];
            snprintf(reason, sizeof reason, "%s: not a regular file", path_of(files[i]));
            expect_rejected(ERR_BAD_INPUT, reason);
            ck_assert_int_eq(unlink(path_of(files[i])), 0);
        }
        ck_assert(!there || rename(moved, path_of(files[i])) == 0);
    }
}
END_TEST

/* ---- ends of answers ---- */

#define NAMED_END "{\"eos_token\":\"A\"}"

static void expect_number(const struct opened *o, const char *key, int64_t expected, size_t row)
{
    uint64_t value = 0;
    int found = gguf_get_uint(&o->g, key, &value, NULL);
    ck_assert_msg(found == (expected >= 0) && (!found || value == (uint64_t)expected),
                  "row %zu: %s is %d", row, key, found ? (int)value : -1);
}

/* Ends of generation_config.json go before that of config.json, which has the end of the model
 * only; the token that tokenizer_config.json names goes before both, and they stay ends. */
START_TEST(ends_of_answers)
{
    static const struct {
        const char *generation;
        int64_t eos, eot, eom;
        const char *settings;
    } rows[] = {
        {NULL, 256, -1, -1, NULL},
        {"{}", 256, -1, -1, NULL},
        {"{\"eos_token_id\":null}", 256, -1, -1, NULL},
        {"{\"eos_token_id\":7}", 7, -1, -1, NULL},
        {"{\"eos_token_id\":[256,7]}", 256, 7, -1, NULL},
        {"{\"eos_token_id\":[256,264,-1,\"x\",256,7,8,9]}", 256, 7, 8, NULL},
        {"{\"eos_token_id\":[264,7,8]}", 7, 8, -1, NULL},
        {"{\"eos_token_id\":[256,7,7,256,8]}", 256, 7, 8, NULL},
        {NULL, 'A', 256, -1, NAMED_END},
        {"{\"eos_token_id\":7}", 'A', 7, -1, NAMED_END},
        {"{\"eos_token_id\":65}", 'A', -1, -1, NAMED_END},
        {"{\"eos_token_id\":264}", 'A', -1, -1, NAMED_END},
        {"{\"eos_token_id\":[264,7,65,8]}", 'A', 7, 8, NAMED_END},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct opened o;
        if (rows[i].generation)
            put("generation_config.json", rows[i].generation);
        if (rows[i].settings)
            put("tokenizer_config.json", rows[i].settings);
        open_directory(&o);
        expect_number(&o, "tokenizer.ggml.eos_token_id", rows[i].eos, i);
        expect_number(&o, "tokenizer.ggml.eot_token_id", rows[i].eot, i);
        expect_number(&o, "tokenizer.ggml.eom_token_id", rows[i].eom, i);
        close_directory(&o);
        clear();
    }
    put("generation_config.json", "{\"suppress_tokens\":[7,\"x\",-1,256]}");
    struct opened o;
    struct gguf_array ids;
    open_directory(&o);
    ck_assert_int_eq(gguf_get_array(&o.g, "tokenizer.ggml.suppress_tokens", GGUF_I32, &ids, NULL),
                     1);
    ck_assert(ids.left == 2 && gguf_array_i32(&ids) == 7 && gguf_array_i32(&ids) == 256);
    close_directory(&o);
    put("generation_config.json", "[]");
    expect_rejected(ERR_BAD_INPUT, "/generation_config.json: not a JSON object");
}
END_TEST

/* ---- chat templates ---- */

#define CONFIG   "tokenizer_config.json"
#define JINJA    "chat_template.jinja"
#define MORE_DIR "additional_chat_templates"
#define MORE     MORE_DIR "/"
#define IN_TWO                                                                                     \
    "[{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":\"default\",\"template\":\"D\"}]"
#define OF(text) "{\"chat_template\":" text "}"

static const struct {
    const char *files[5][2];
    const char *plain, *tools;
} template_rows[] = {
    {{{NULL}}, NULL, NULL},
    {{{CONFIG, OF("\"C\"")}}, "C", NULL},
    {{{CONFIG, OF("null")}, {"chat_template.json", OF("\"J\"")}}, "J", NULL},
    {{{CONFIG, OF(IN_TWO)}}, "D", "T"},
    {{{CONFIG, OF("{\"default\":\"D\",\"tool_use\":\"T\",\"rag\":\"R\"}")}}, "D", "T"},
    {{{CONFIG, OF("[{\"name\":\"rag\",\"template\":\"R\"}]")}}, NULL, NULL},
    {{{CONFIG, OF("[7,{\"name\":7,\"template\":7}]")}}, NULL, NULL},
    {{{"chat_template.json", OF("null")}}, NULL, NULL},
    {{{"chat_template.json", "{}"}}, NULL, NULL},
    {{{"chat_template.json", OF("\"J\"")}}, "J", NULL},
    {{{"chat_template.json", OF(IN_TWO)}}, "D", "T"},
    {{{CONFIG, OF("\"C\"")}, {"chat_template.json", OF("\"J\"")}}, "C", NULL},
    {{{JINJA, "F"}}, "F", NULL},
    {{{CONFIG, OF("\"C\"")}, {JINJA, "F"}, {"chat_template.json", OF("\"J\"")}}, "F", NULL},
    {{{CONFIG, OF(IN_TWO)}, {JINJA, "F\n"}}, "F\n", NULL},
    {{{CONFIG, OF(IN_TWO)}, {JINJA, "F"}, {MORE "tool_use.jinja", "U"}, {MORE "rag.jinja", "R"}},
     "F",
     "U"},
    {{{JINJA, "F"}, {MORE "default.jinja", "A"}}, "A", NULL},
};

START_TEST(templates)
{
    for (size_t i = 0; i < ARRAY_LEN(template_rows); i++) {
        struct opened o;
        struct gguf_array names;
        for (size_t k = 0; k < ARRAY_LEN(template_rows[i].files) && template_rows[i].files[k][0];
             k++)
            put(template_rows[i].files[k][0], template_rows[i].files[k][1]);
        open_directory(&o);
        expect_text(&o, "tokenizer.chat_template", template_rows[i].plain, i);
        expect_text(&o, "tokenizer.chat_template.tool_use", template_rows[i].tools, i);
        int found = gguf_get_array(&o.g, "tokenizer.chat_templates", GGUF_STRING, &names, NULL);
        ck_assert_msg(found == (template_rows[i].tools != NULL) && (!found || names.left == 1),
                      "row %zu", i);
        close_directory(&o);
        clear();
    }
}
END_TEST

START_TEST(bad_templates)
{
    put_bytes(JINJA, "a\0b", 3);
    expect_rejected(ERR_BAD_INPUT, "/chat_template.jinja: a chat template with a NUL byte");
    ck_assert_int_eq(truncate(path_of(JINJA), (4 << 20) + 1), 0);
    expect_rejected(ERR_BAD_INPUT, "/chat_template.jinja: not a regular file of at most 4194304");
    clear();
    put_bytes(MORE "tool_use.jinja", "\0", 1);
    expect_rejected(ERR_BAD_INPUT, "/tool_use.jinja: a chat template with a NUL byte");
    clear();
    put("chat_template.json", "[]");
    expect_rejected(ERR_BAD_INPUT, "/chat_template.json: not a JSON object");
    clear();
    put(JINJA, "caf\xe9 {{ messages }}");
    expect_rejected(ERR_BAD_INPUT, "/chat_template.jinja: a chat template that is not UTF-8");
    clear();
    put(MORE "tool_use.jinja", "\xed\xa0\x80");
    expect_rejected(ERR_BAD_INPUT, "/tool_use.jinja: a chat template that is not UTF-8");
}
END_TEST

/* Neither an empty template nor none. */
START_TEST(templates_that_are_no_texts)
{
    static const char *const rows[][2] = {
        {OF("7"), "'default'"},
        {OF("false"), "'default'"},
        {OF("{\"default\":[]}"), "'default'"},
        {OF("[{\"name\":\"default\"}]"), "'default'"},
        {OF("[{\"name\":\"default\",\"template\":null}]"), "'default'"},
        {OF("{\"default\":\"D\",\"tool_use\":7}"), "'tool_use'"},
        {OF("[{\"name\":\"tool_use\",\"template\":{}},{\"name\":\"default\",\"template\":\"D\"}]"),
         "'tool_use'"},
    };
    static const char *const files[] = {CONFIG, "chat_template.json"};
    for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        char reason[400];
        snprintf(reason, sizeof reason, "/%s: the chat template %s is not a text", files[i % 2],
                 rows[i / 2][1]);
        put(files[i % 2], rows[i / 2][0]);
        expect_rejected(ERR_BAD_INPUT, reason);
        clear();
    }
}
END_TEST

/* As in a directory of links of which the files were deleted. */
START_TEST(links_to_nothing)
{
    static const char *const files[] = {
        JINJA,  MORE "default.jinja",     MORE "tool_use.jinja",          "chat_template.json",
        CONFIG, "generation_config.json", "model.safetensors.index.json",
    };
    char reason[400];
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(reason, sizeof reason, "cannot open %s: ", path_of(files[i]));
        ck_assert_int_eq(symlink("deleted", path_of(files[i])), 0);
        expect_rejected(ERR_BAD_INPUT, reason);
        ck_assert_int_eq(unlink(path_of(files[i])), 0);
    }
    ck_assert_int_eq(rmdir(path_of(MORE_DIR)) | symlink("deleted", path_of(MORE_DIR)), 0);
    expect_rejected(ERR_BAD_INPUT, "cannot open ");
    ck_assert_int_eq(unlink(path_of(MORE_DIR)) | mkdir(path_of(MORE_DIR), 0700), 0);
    unlink(path_of("tokenizer.json"));
    ck_assert_int_eq(symlink("deleted", path_of("tokenizer.json")), 0);
    expect_rejected(ERR_BAD_INPUT, "cannot open ");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hf_directory");
    TCase *c = tcase_create("directory");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, tokenizer_json);
    tcase_add_test(c, normalizers);
    tcase_add_test(c, published_pretokenizers);
    tcase_add_test(c, words_that_are_not_merged);
    tcase_add_test(c, tiktoken);
    tcase_add_test(c, bad_tokenizers);
    tcase_add_test(c, only_regular_files);
    tcase_add_test(c, ends_of_answers);
    tcase_add_test(c, templates);
    tcase_add_test(c, bad_templates);
    tcase_add_test(c, templates_that_are_no_texts);
    tcase_add_test(c, links_to_nothing);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
