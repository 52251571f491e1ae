/* SPDX-License-Identifier: Apache-2.0 */
/* Reads texts, and cuts their tokens into windows that are evenly spread. */
#include "lib/offline/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/model/tokenizer/tokenizer.h"

static char *read_text(const char *path, size_t *bytes, struct error *error)
{
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(TOKENIZER_TEXT_MAX + 1) : NULL;
    if (!f || !text) {
        error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s", path);
        if (f)
            fclose(f);
        return NULL;
    }
    *bytes = fread(text, 1, TOKENIZER_TEXT_MAX + 1, f);
    bool good = !ferror(f) && *bytes <= TOKENIZER_TEXT_MAX;
    fclose(f);
    if (good)
        return text;
    error_set(error, ERR_BAD_INPUT, "cannot read %.200s, or it has more than %u bytes", path,
              TOKENIZER_TEXT_MAX);
    free(text);
    return NULL;
}

static int add_ids(struct offline_text *t, uint16_t path, const uint32_t *ids, size_t count,
                   struct error *error)
{
    size_t had = (size_t)t->windows * t->window, more = count - count % t->window;
    uint32_t windows = t->windows + (uint32_t)(more / t->window);
    uint32_t *all = realloc(t->ids, (had + more + 1) * sizeof *all);
    t->ids = all ? all : t->ids;
    uint16_t *paths = realloc(t->path, (windows + 1) * sizeof *paths);
    t->path = paths ? paths : t->path;
    if (!all || !paths)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tokens of a text)");
    memcpy(all + had, ids, more * sizeof *all);
    while (t->windows < windows)
        paths[t->windows++] = path;
    t->tokens_in_files += count;
    return 0;
}

static int add_file(struct offline_text *t, const struct tokenizer *tokenizer,
                    const char *const *paths, size_t at, struct error *error)
{
    size_t bytes, count;
    uint32_t *ids;
    char *text = read_text(paths[at], &bytes, error);
    if (!text)
        return -1;
    int status = tokenizer_encode(tokenizer, text, bytes, NULL, &ids, &count, error);
    free(text);
    if (status != 0)
        return -1;
    status = add_ids(t, (uint16_t)at, ids, count, error);
    free(ids);
    return status;
}

/* Keeps `wanted` windows, evenly spread. */
static void thin_out(struct offline_text *t, uint32_t wanted)
{
    for (uint32_t i = 0; i < wanted; i++) {
        uint32_t from = (uint32_t)((uint64_t)i * t->windows / wanted);
        memmove(t->ids + (size_t)i * t->window, t->ids + (size_t)from * t->window,
                t->window * sizeof *t->ids);
        t->path[i] = t->path[from];
    }
    t->windows = wanted;
}

int offline_text_load(const struct model_index *model, const char *const *paths, size_t count,
                      uint32_t window, uint64_t tokens_max, struct offline_text *t,
                      struct error *error)
{
    *t = (struct offline_text){.window = window};
    if (model_check_tokens(model, window, "--ctx-size", error) != 0)
        return -1;
    struct tokenizer *tokenizer = tokenizer_open((const char *)model + model->tokenizer_offset,
                                                 model->tokenizer_bytes, error);
    int status = tokenizer ? 0 : -1;
    for (size_t i = 0; i < count && status == 0; i++)
        status = add_file(t, tokenizer, paths, i, error);
    if (tokenizer)
        tokenizer_close(tokenizer);
    if (status == 0 && t->windows == 0)
        status =
            error_set(error, ERR_BAD_INPUT,
                      "the text has %llu tokens, less than one window of %u; use a longer text",
                      (unsigned long long)t->tokens_in_files, window);
    if (status != 0) {
        offline_text_free(t);
        return -1;
    }
    uint64_t wanted = tokens_max / window > 0 ? tokens_max / window : 1;
    if (tokens_max && wanted < t->windows)
        thin_out(t, (uint32_t)wanted);
    offline_text_rehash(t);
    return 0;
}

int offline_text_alloc(const struct model_index *model, uint32_t windows, uint32_t window,
                       struct offline_text *t, struct error *error)
{
    if (model_check_tokens(model, window, "--ctx-size", error) != 0)
        return -1;
    *t = (struct offline_text){.windows = windows ? windows : 1, .window = window};
    t->ids = calloc((size_t)t->windows * window, sizeof *t->ids);
    if (!t->ids)
        log_fatal(1, "out of memory (tokens of a text)");
    return 0;
}

void offline_text_rehash(struct offline_text *t)
{
    t->hash = XXH3_64bits_withSeed(t->ids, (size_t)t->windows * t->window * sizeof *t->ids,
                                   t->window); /* other windows, other contexts */
}

void offline_text_free(struct offline_text *t)
{
    free(t->ids);
    free(t->path);
    *t = (struct offline_text){0};
}

/* A text for at most `windows` windows of another. */
static struct offline_text text_like(const struct offline_text *from, uint32_t windows)
{
    struct offline_text t = {.window = from->window, .tokens_in_files = from->tokens_in_files};
    t.ids = malloc((size_t)windows * t.window * sizeof *t.ids);
    t.path = from->path ? malloc(windows * sizeof *t.path) : NULL;
    if (!t.ids || (from->path && !t.path))
        log_fatal(1, "out of memory (tokens of a text)");
    return t;
}

static void take_window(struct offline_text *t, const struct offline_text *from, uint32_t window)
{
    memcpy(t->ids + (size_t)t->windows * t->window, offline_window(from, window),
           t->window * sizeof *t->ids);
    if (t->path)
        t->path[t->windows] = from->path[window];
    t->windows++;
}

struct offline_text offline_text_some(const struct offline_text *from, uint32_t first, uint32_t n)
{
    sl_assert(n > 0 && first < from->windows);
    struct offline_text t = text_like(from, from->windows / n + 1);
    for (uint32_t w = first; w < from->windows; w += n)
        take_window(&t, from, w);
    offline_text_rehash(&t);
    return t;
}

struct offline_text offline_text_chosen(const struct offline_text *from, const uint8_t *roles,
                                        uint8_t role)
{
    struct offline_text t = text_like(from, from->windows);
    for (uint32_t w = 0; w < from->windows; w++)
        if (roles[w] == role)
            take_window(&t, from, w);
    sl_assert(t.windows > 0);
    offline_text_rehash(&t);
    return t;
}
