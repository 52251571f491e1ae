/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer on data of other packages (packages.sh):
 *   peer_tokens vocabulary FILE   the vocabulary FILE (GGUF) on the texts of FILE.inp; prints how
 *                                 many have the ids of FILE.out; 0: all, 1: not all, 3: not a
 *                                 tokenizer of ours
 *   peer_tokens split NAME        texts from standard input, each after its length in bytes as a
 *                                 decimal number and a newline; prints the lengths of the words of
 *                                 each text under pre-tokenizer NAME */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/model/gguf/gguf.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/model/tokenizer/words.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static void die(const char *what)
{
    fprintf(stderr, "peer_tokens: %s\n", what);
    exit(2);
}

static char *read_all(const char *path, size_t *bytes)
{
    char *text = NULL;
    FILE *in = fopen(path, "r"), *out = open_memstream(&text, bytes);
    if (!in || !out)
        die(path);
    for (int c; (c = getc(in)) != EOF;)
        putc(c, out);
    fclose(in);
    fclose(out);
    return text;
}

static ssize_t read_file(void *arg, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)arg, buf, n, (off_t)offset);
}

/* The next line of ids equals `ids`; moves *line after it. */
static bool same_ids(char **line, const uint32_t *ids, size_t count)
{
    char *end = strchr(*line, '\n');
    if (end)
        *end = '\0';
    char *at = *line;
    bool same = true;
    for (size_t i = 0; i < count && same; i++) {
        char *to;
        same = strtoul(at, &to, 10) == ids[i] && to != at;
        at = to;
    }
    same &= at[strspn(at, " ")] == '\0';
    *line = end ? end + 1 : *line + strlen(*line);
    return same;
}

static int compare(const struct tokenizer *t, const char *path)
{
    char name[1000];
    struct error error = {0};
    size_t inp_bytes, out_bytes;
    unsigned lines = 0, same = 0;
    snprintf(name, sizeof name, "%s.inp", path);
    char *texts = read_all(name, &inp_bytes);
    snprintf(name, sizeof name, "%s.out", path);
    char *wanted = read_all(name, &out_bytes), *line = wanted;
    for (char *text = texts, *end; text; text = end ? end + strlen(SEPARATOR) : NULL, lines++) {
        end = strstr(text, SEPARATOR);
        uint32_t *ids;
        size_t count, n = end ? (size_t)(end - text) : inp_bytes - (size_t)(text - texts);
        if (!end && n == 0) /* the file ends with a separator */
            break;
        if (tokenizer_encode(t, text, n, NULL, &ids, &count, &error))
            die(error.text);
        bool good = same_ids(&line, ids, count);
        if (!good)
            printf("  differs: '%.*s'\n", (int)n, text);
        same += good;
        free(ids);
    }
    printf("%u of %u texts\n", same, lines);
    free(texts);
    free(wanted);
    return lines > 0 && same == lines ? 0 : 1;
}

static int vocabulary(const char *path)
{
    struct gguf g;
    struct error error = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    struct gguf_source source = {.read = read_file, .arg = &fd, .bytes = (uint64_t)end};
    if (end < 0)
        die(path);
    if (gguf_open(&g, &source, &error))
        die(error.text);
    void *blob;
    size_t bytes;
    uint32_t tokens;
    if (tokenizer_blob_build(&g, &blob, &bytes, &tokens, &error)) {
        printf("%s\n", error.text);
        return 3;
    }
    /* llama.cpp, by which the ids were checked, does not normalise. */
    ((struct tokenizer_blob *)blob)->flags &= ~TOKENIZER_NFC;
    struct tokenizer *t = tokenizer_open(blob, bytes, &error);
    if (!t)
        die(error.text);
    int status = compare(t, path);
    tokenizer_close(t);
    free(blob);
    gguf_close(&g);
    close(fd);
    return status;
}

static int print_length(void *arg, const char *word, size_t bytes)
{
    (void)arg;
    (void)word;
    printf("%zu ", bytes);
    return 0;
}

static int split(const char *name)
{
    struct error error = {0};
    uint32_t row = pretokenizer_find(name, strlen(name));
    struct words *w = row == UINT32_MAX ? NULL : words_open(row, &error);
    if (!w)
        die(name);
    size_t n;
    while (scanf("%zu", &n) == 1 && getchar() == '\n') {
        char *text = malloc(n + 1);
        if (!text || fread(text, 1, n, stdin) != n)
            die("a text is cut off");
        if (words_split(w, text, n, print_length, NULL, &error))
            die(error.text);
        putchar('\n');
        free(text);
    }
    words_close(w);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "vocabulary") == 0)
        return vocabulary(argv[2]);
    if (argc == 3 && strcmp(argv[1], "split") == 0)
        return split(argv[2]);
    die("usage: peer_tokens vocabulary FILE | split NAME");
}
