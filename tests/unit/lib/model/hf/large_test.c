/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer.json of 40 MiB opens in 300 MiB of memory, and one of 60 MiB that is made to take
 * much more gives an error of one line, or opens, within the same limit. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/json/json_file.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/gguf/write.h"
#include "lib/model/hf/internal.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/sandbox/sandbox.h"

#define MEMORY_BYTES  (300 * MIB)
#define LARGE_BYTES   (40 * MIB)
#define HOSTILE_BYTES (60 * MIB)
#define VOCAB         290000u
#define LETTERS       26u
#define ADDED         512u
#define MADE          (VOCAB - 256 - ADDED)

static char path[] = "/tmp/hf-large-XXXXXX";

static FILE *create(void)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    ck_assert(f != NULL);
    return f;
}

/* ---- a real one: bytes, then tokens with merges for all their splits, as in new files ---- */

/* The character that stands for a byte in such vocabularies: printable ones for themselves. */
static void put_byte_token(FILE *f, unsigned byte)
{
    static unsigned others;
    bool printed = (byte > ' ' && byte <= '~') || (byte > 0xa0 && byte != 0xad);
    unsigned c = byte == 0 ? 256 + (others = 0) : printed ? byte : 256 + ++others;
    if (c == '"' || c == '\\')
        fprintf(f, "\\%c", (int)c);
    else if (c < 0x80)
        fputc((int)c, f);
    else
        fprintf(f, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 0x3f)));
}

/* A text of letters for each number from 26 on: that of the prefix and one letter. */
static const char *name_of(uint32_t i, char out[16])
{
    char reversed[16];
    size_t n = 0;
    for (uint64_t v = i + 1; v > 0; v = (v - 1) / LETTERS)
        reversed[n++] = (char)('a' + (v - 1) % LETTERS);
    for (size_t k = 0; k < n; k++)
        out[k] = reversed[n - 1 - k];
    out[n] = 0;
    return out;
}

static const char pre[] =
    "  \"normalizer\": {\"type\": \"NFC\"},\n"
    "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
    "\"trim_offsets\": true, \"use_regex\": true},\n"
    "  \"post_processor\": null,\n  \"decoder\": {\"type\": \"ByteLevel\"},\n";

static void write_large(FILE *f)
{
    char name[16];
    fprintf(f, "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [");
    for (uint32_t i = 0; i < ADDED; i++)
        fprintf(f,
                "%s\n    {\n      \"id\": %u,\n      \"content\": \"<|reserved_%u|>\",\n      "
                "\"single_word\": false,\n      \"lstrip\": false,\n      \"special\": true\n    }",
                i ? "," : "", VOCAB - ADDED + i, i);
    fprintf(f, "\n  ],\n%s  \"model\": {\n    \"type\": \"BPE\",\n    \"vocab\": {", pre);
    for (unsigned byte = 0; byte < 256; byte++) {
        fprintf(f, "%s\n      \"", byte ? "," : "");
        put_byte_token(f, byte);
        fprintf(f, "\": %u", byte);
    }
    for (uint32_t i = 0; i < MADE; i++)
        fprintf(f, ",\n      \"%s\": %u", name_of(LETTERS + i, name), 256 + i);
    fprintf(f, "\n    },\n    \"merges\": [");
    for (uint32_t i = 0, n = 0; i < MADE; i++) {
        uint32_t bytes = (uint32_t)strlen(name_of(LETTERS + i, name));
        for (uint32_t cut = bytes - 1; cut > 0; cut--)
            fprintf(f, "%s\n      [\n        \"%.*s\",\n        \"%s\"\n      ]", n++ ? "," : "",
                    (int)cut, name, name + cut);
    }
    fprintf(f, "\n    ]\n  }");
    fprintf(f, "}\n");
}

/* ---- opening within the limit, in a process of its own ---- */

/* As hf_open and the index do it. */
static int open_tokenizer(struct error *error)
{
    const struct json_limits limits = {
        .bytes = HF_TOKENIZER_MAX, .string = MIB, .values = MIB, .depth = 32};
    struct json_reader *r = json_reader_file(path, &limits, error);
    struct gguf_writer *w = gguf_writer_new(32);
    struct gguf g;
    void *blob;
    size_t bytes;
    uint32_t tokens;
    if (!r || !w || hf_tokenizer_keys(r, NULL, NULL, VOCAB, w, error) != 0)
        return -1;
    json_reader_close(r);
    if (gguf_writer_layout(w, error) != 0)
        return -1;
    struct gguf_source source = {.read = gguf_writer_read, .arg = w, .bytes = gguf_writer_bytes(w)};
    if (gguf_open(&g, &source, error) != 0 ||
        tokenizer_blob_build(&g, &blob, &bytes, &tokens, error) != 0)
        return -1;
    return tokens == VOCAB && tokenizer_open(blob, bytes, error) ? 0 : -1;
}

static int open_document(struct error *error)
{
    return json_file(path, HF_TOKENIZER_MAX, error) ? 0 : -1;
}

/* 0: opened, 1: an error in one line, 2: anything else. */
static int within_limit(int (*open_it)(struct error *))
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct error error = {0};
        setrlimit(RLIMIT_DATA, &(struct rlimit){MEMORY_BYTES, MEMORY_BYTES});
        int status = open_it(&error);
        if (status != 0)
            fprintf(stderr, "# %s\n", error.text);
        bool line = error.code == ERR_BAD_INPUT && error.text[0] && !strchr(error.text, '\n');
        _exit(status == 0 ? 0 : line ? 1 : 2);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

START_TEST(large_file)
{
    struct stat st;
    if (sandbox_disabled()) { /* their allocators have other limits */
        printf("SKIP large_file: a build with sanitizers\n");
        return;
    }
    FILE *f = create();
    write_large(f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_ge((uint64_t)st.st_size, LARGE_BYTES);
    int status = within_limit(open_tokenizer), document = within_limit(open_document);
    unlink(path);
    ck_assert_msg(status == 0, "status %d", status);
    ck_assert_msg(document != 0, "a document of jansson fits: the limit shows nothing");
}
END_TEST

/* ---- hostile ones ---- */

static const struct {
    const char *head, *repeated, *tail;
    int expected; /* 0: opens or is rejected later, 1: must be rejected while it is read */
} hostile[] = {
    {"{\"normalizer\": [[]", ",[]", "]}", 1},
    {"{\"pre_tokenizer\": ", "[", "", 1},
    {"{\"post_processor\": {\"a\":\"", "aaaaaaaa", "\"}}", 1},
    {"{\"added_tokens\": [{\"id\":1,\"content\":\"a\"}", ",{\"id\":1,\"content\":\"a\"}", "]}", 1},
    {"{\"added_tokens\": [[{}", ",{}", "]]}", 1},
    {"{\"model\": {\"type\":\"BPE\",\"merges\": [\"a b\"", ",\"a b\"", "]}}", 1},
    {"{\"model\": {\"type\":\"BPE\",\"vocab\": {\"a\":0", ",\"a\":0", "}}}", 1},
    {"{\"model\": {\"type\":\"BPE\",\"unk_token\": [0", ",0", "]}}", 1},
    {"{\"unknown\": [[]", ",[]", "]}", 1}, /* skipped; has no model */
};

START_TEST(hostile_files)
{
    if (sandbox_disabled()) {
        printf("SKIP hostile_files: a build with sanitizers\n");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        FILE *f = create();
        fputs(hostile[i].head, f);
        for (uint64_t at = 0; at < HOSTILE_BYTES; at += strlen(hostile[i].repeated))
            fputs(hostile[i].repeated, f);
        fputs(hostile[i].tail, f);
        ck_assert_int_eq(fclose(f), 0);
        int status = within_limit(open_tokenizer);
        unlink(path);
        ck_assert_msg(status == hostile[i].expected, "'%s...': status %d", hostile[i].head, status);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hf large");
    TCase *c = tcase_create("large");
    tcase_set_timeout(c, 200);
    tcase_add_test(c, large_file);
    tcase_add_test(c, hostile_files);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
