/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a tokenizer, and its tokens one by one. */
#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/model/tokenizer/internal.h"
#include "lib/model/tokenizer/tokenizer.h"

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    OBJ_CHECK(t, TOKENIZER_OBJ);
    words_close(t->words);
    t->magic = 0;
    free(t);
}

struct tokenizer *tokenizer_open(const void *blob, size_t blob_bytes, struct error *error)
{
    if (tokenizer_blob_check(blob, blob_bytes, error))
        return NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        error_set(error, ERR_NO_MEMORY, "out of memory (tokenizer)");
        return NULL;
    }
    t->magic = TOKENIZER_OBJ;
    t->blob = blob;
    if (t->blob->model != TOKENIZER_BPE)
        return t;
    t->words = words_open(t->blob->pre, error);
    if (t->words)
        return t;
    tokenizer_close(t);
    return NULL;
}

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    return t->blob->vocab;
}

uint32_t tokenizer_eos(const struct tokenizer *t)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    return t->blob->eos;
}

uint32_t tokenizer_bos(const struct tokenizer *t)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    return t->blob->bos;
}

bool tokenizer_is_control(const struct tokenizer *t, uint32_t id)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    return id < t->blob->vocab && blob_types(t->blob)[id] == TOKEN_CONTROL;
}

const uint32_t *tokenizer_suppressed(const struct tokenizer *t, size_t *count)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    *count = t->blob->suppressed;
    return blob_suppressed(t->blob);
}

bool tokenizer_adds_blank(const struct tokenizer *t)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    return (t->blob->flags & TOKENIZER_SPACE_PREFIX) != 0;
}

const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    *bytes = 0;
    if (id >= t->blob->vocab || tokenizer_is_control(t, id))
        return "";
    return blob_piece(t->blob, id, bytes);
}

const char *tokenizer_control_name(const struct tokenizer *t, uint32_t id, size_t *bytes)
{
    *bytes = 0;
    return tokenizer_is_control(t, id) ? blob_piece(t->blob, id, bytes) : "";
}

bool tokenizer_is_end(const struct tokenizer *t, uint32_t id)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    bool is = id == t->blob->eos;
    for (uint32_t i = 0; i < TOKENIZER_ENDS; i++)
        is = is || id == t->blob->ends[i];
    return is && id != TOKEN_NONE;
}
