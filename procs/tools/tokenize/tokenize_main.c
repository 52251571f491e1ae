/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize: the tokens of a text, or the pieces of token ids.
 *
 * Trust: model file, text and ids are untrusted. The file is parsed by inspect in its sandbox. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/inspected/tokenizer.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/terminal/terminal.h"
#include "lib/text/ranges.h"
#include "lib/text/utf8.h"
#include "procs/clients/common/options.h"

struct tokenize {
    const char *model, *prompt, *path, *ids_list;
    bool special, count_only, ids_only, json, raw;

    char *text; /* NULL with --pieces */
    size_t bytes;
    uint32_t *ids;
    size_t count;
};

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct tokenize, model),
     "GGUF file, or a directory made by pack"},
    {'p', "prompt", "TEXT", OPTION_TEXT(struct tokenize, prompt), "the text"},
    {0, "text", "FILE", OPTION_TEXT(struct tokenize, path),
     "the text, - for standard input; at most 8 MiB"},
    {0, "pieces", "ID,...", OPTION_TEXT(struct tokenize, ids_list),
     "instead of a text, the pieces of these ids"},
    {0, "special", NULL, OPTION_FLAG(struct tokenize, special),
     "the text of a control token, such as </s>, is that token; "
     "otherwise it is ordinary text"},
    {0, "ids", NULL, OPTION_FLAG(struct tokenize, ids_only), "print only the ids, in one line"},
    {0, "count", NULL, OPTION_FLAG(struct tokenize, count_only), "print only the number of tokens"},
    {0, "json", NULL, OPTION_FLAG(struct tokenize, json),
     "print one object: count, bytes, ids, pieces; bytes that are "
     "not UTF-8 become U+FFFD"},
    {0, "raw", NULL, OPTION_FLAG(struct tokenize, raw),
     "control characters go to a terminal unchanged"},
};

static const struct option_table options = {
    .command = "tokenize",
    .before = "usage: sluice tokenize -m FILE -p TEXT [options]\n"
              "       sluice tokenize -m FILE --text FILE [options]\n"
              "       sluice tokenize -m FILE --pieces ID,... [options]\n"
              "\n"
              "The tokens of a text: per line an id and its piece, then their number. No token\n"
              "is added at the beginning or the end.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 23,
};

static int check_options(const struct tokenize *t, struct error *error)
{
    if (!t->model)
        return error_set(error, ERR_BAD_INPUT, "-m FILE is required");
    if (!!t->prompt + !!t->path + !!t->ids_list != 1)
        return error_set(error, ERR_BAD_INPUT,
                         "one of -p TEXT, --text FILE and --pieces ID,... is required");
    if (t->ids_only + t->count_only + t->json > 1)
        return error_set(error, ERR_BAD_INPUT, "--ids, --count and --json exclude each other");
    if (t->special && t->ids_list)
        return error_set(error, ERR_BAD_INPUT, "--special concerns a text, not --pieces");
    return 0;
}

static int parse(struct tokenize *t, int argc, char **argv, struct error *error)
{
    if (options_read(&options, t, argc, argv, error) != 0)
        return -1;
    if (option_model(&t->model, argc, argv, " (the text goes after -p)", error) != 0)
        return -1;
    return check_options(t, error);
}

static int read_text(struct tokenize *t, struct error *error)
{
    if (t->path)
        return option_file(t->path, TOKENIZER_TEXT_MAX, &t->text, &t->bytes, error);
    t->bytes = strlen(t->prompt);
    t->text = strdup(t->prompt);
    return t->text ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (text)");
}

static int encode(struct tokenize *t, const struct tokenizer *tokenizer, struct error *error)
{
    struct text_ranges special = {0};
    if (read_text(t, error) != 0)
        return -1;
    if (t->special && t->bytes > 0 && text_ranges_add(&special, 0, t->bytes) != 0)
        return error_set(error, ERR_NO_MEMORY, "out of memory (text)");
    int result =
        tokenizer_encode(tokenizer, t->text, t->bytes, &special, &t->ids, &t->count, error);
    text_ranges_free(&special);
    return result;
}

static int take_ids(struct tokenize *t, const struct tokenizer *tokenizer, struct error *error)
{
    if (option_ids(t->ids_list, &t->ids, &t->count, error) != 0)
        return -1;
    for (size_t i = 0; i < t->count; i++) {
        size_t bytes;
        if (t->ids[i] >= tokenizer_vocab(tokenizer))
            return error_set(error, ERR_BAD_INPUT,
                             "--pieces: the vocabulary has %" PRIu32 " tokens, no %" PRIu32,
                             tokenizer_vocab(tokenizer), t->ids[i]);
        tokenizer_piece(tokenizer, t->ids[i], &bytes);
        t->bytes += bytes;
    }
    return 0;
}

/* NULL: no memory. */
static json_t *piece_json(const struct tokenizer *tokenizer, uint32_t id)
{
    size_t bytes;
    const char *piece = tokenizer_piece(tokenizer, id, &bytes);
    char *valid = malloc(3 * bytes + 1);
    if (!valid)
        return NULL;
    json_t *text = json_stringn_nocheck(valid, utf8_sanitise(piece, bytes, valid));
    free(valid);
    return text;
}

static void print_ids(const struct tokenize *t)
{
    for (size_t i = 0; i < t->count; i++)
        printf("%s%" PRIu32, i ? " " : "", t->ids[i]);
    printf("\n");
}

static int print_json(const struct tokenize *t, const struct tokenizer *tokenizer,
                      struct error *error)
{
    json_t *ids = json_array(), *pieces = json_array();
    int failed = 0;
    for (size_t i = 0; i < t->count; i++) {
        failed |= json_array_append_new(ids, json_integer(t->ids[i]));
        failed |= json_array_append_new(pieces, piece_json(tokenizer, t->ids[i]));
    }
    json_t *doc = json_pack("{s:I, s:I, s:o, s:o}", "count", (json_int_t)t->count, "bytes",
                            (json_int_t)t->bytes, "ids", ids, "pieces", pieces);
    if (doc && !failed)
        failed = json_dumpf(doc, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(doc);
    return doc && !failed ? 0
                          : error_set(error, ERR_NO_MEMORY, "out of memory (%zu tokens)", t->count);
}

/* A piece that is part of a character is shown as its bytes. */
static int print_piece(const struct tokenizer *tokenizer, uint32_t id)
{
    size_t bytes;
    const char *piece = tokenizer_piece(tokenizer, id, &bytes);
    json_t *text = piece_json(tokenizer, id);
    if (!text)
        return -1;
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    bool whole =
        json_string_length(text) == bytes && memcmp(json_string_value(text), piece, bytes) == 0;
    json_decref(text);
    if (!quoted)
        return -1;
    printf("%s", whole ? quoted : "bytes");
    for (size_t i = 0; !whole && i < bytes; i++)
        printf(" %02x", (unsigned char)piece[i]);
    free(quoted);
    return 0;
}

static int print_lines(const struct tokenize *t, const struct tokenizer *tokenizer,
                       struct error *error)
{
    for (size_t i = 0; i < t->count; i++) {
        printf("%7" PRIu32 "  ", t->ids[i]);
        if (tokenizer_is_control(tokenizer, t->ids[i]))
            printf("control token");
        else if (print_piece(tokenizer, t->ids[i]) != 0)
            return error_set(error, ERR_NO_MEMORY, "out of memory (piece)");
        printf("\n");
    }
    printf("%zu token%s, %zu bytes\n", t->count, t->count == 1 ? "" : "s", t->bytes);
    return 0;
}

static int print(const struct tokenize *t, const struct tokenizer *tokenizer, struct error *error)
{
    int result = 0;
    if (t->count_only)
        printf("%zu\n", t->count);
    else if (t->ids_only)
        print_ids(t);
    else
        result = (t->json ? print_json : print_lines)(t, tokenizer, error);
    return result == 0 ? output_end(error) : result;
}

static int run(struct tokenize *t, struct error *error)
{
    struct inspected_tokenizer opened;
    if (inspected_tokenizer_open(&opened, t->model, error) != 0)
        return -1;
    int result = (t->ids_list ? take_ids : encode)(t, opened.tokenizer, error);
    if (result == 0)
        result = print(t, opened.tokenizer, error);
    inspected_tokenizer_close(&opened);
    return result;
}

int main(int argc, char **argv)
{
    struct tokenize t = {0};
    struct error error;
    int status = parse(&t, argc, argv, &error);
    if (status == 0) {
        terminal_guard(t.raw);
        status = run(&t, &error);
    }
    if (status != 0)
        status = report("tokenize", &error);
    free(t.text);
    free(t.ids);
    return status;
}
