/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the tokenizer. The first byte chooses options; the rest is encoded, and the pieces
 * of its tokens must concatenate to the text (with U+FFFD for invalid UTF-8, and in NFC for
 * qwen2). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/text/utf8.h"
#include "tests/unit/lib/model/gguf_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Pre-tokenizers of byte-level BPE, and a SentencePiece vocabulary. */
static const char *const pre[] = {"qwen2", "gpt-2", "llama-bpe", "spm"};
#define NFC           0
#define NORMAL_GROWTH 3 /* of the bytes of a text, at most (Unicode, UAX 15) */
#define SPM           3

struct memory {
    struct bytes file;
};

static ssize_t read_memory(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct memory *m = arg;
    memcpy(buf, m->file.data + offset, n);
    return (ssize_t)n;
}

/* The tokenizer of the tiny model, cached per pre-tokenizer. */
static struct tokenizer *tiny_tokenizer(unsigned which)
{
    static struct tokenizer *made[ARRAY_LEN(pre)];
    if (made[which])
        return made[which];
    struct make m;
    make_tiny(&m, 1, false);
    make_text(&m, "tokenizer.ggml.pre", pre[which]);
    if (which == SPM) {
        struct spm_tokens tokens;
        spm_tokens(&tokens);
        make_spm(&m, &tokens);
    }
    struct memory memory = {make_write(&m)};
    struct gguf_source source = {.read = read_memory, .arg = &memory, .bytes = memory.file.size};
    struct model_file_id id = {.bytes = memory.file.size};
    struct model_index *index;
    sl_assert(model_index_build_source(&source, &id, &index, NULL) == 0);
    made[which] =
        tokenizer_open((char *)index + index->tokenizer_offset, index->tokenizer_bytes, NULL);
    sl_assert(made[which]);
    bytes_free(&memory.file);
    make_free(&m);
    return made[which]; /* refers to the index, which is not freed */
}

static void check_pieces(const struct tokenizer *t, const uint32_t *ids, size_t count,
                         const char *clean, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n;
        const char *piece = tokenizer_piece(t, ids[i], &n);
        sl_assert(n > 0 && n <= bytes - at && memcmp(piece, clean + at, n) == 0);
        at += n;
    }
    sl_assert(at == bytes);
}

/* SentencePiece's normalization, with spaces for U+2581: a space is prepended. */
static size_t spm_text(const char *clean, size_t bytes, char *out)
{
    size_t n = 0;
    if (bytes > 0)
        out[n++] = ' ';
    for (size_t i = 0; i < bytes; n++) {
        bool space = strncmp(clean + i, SPM_SPACE_TEXT, 3) == 0;
        out[n] = space ? ' ' : clean[i];
        i += space ? 3 : 1;
    }
    return n;
}

#define ADDED "<tag>" /* a token that is found in the text before the text becomes normal */

/* The library's way over a text at once is that of lib/text/nfc.h, between the added tokens. */
static size_t normal_text(const char *clean, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < bytes;) {
        const char *added = memmem(clean + at, bytes - at, ADDED, strlen(ADDED));
        size_t part = added ? (size_t)(added - clean) - at : bytes - at;
        utf8proc_uint8_t *normal = NULL;
        utf8proc_ssize_t got =
            utf8proc_map((const utf8proc_uint8_t *)clean + at, (utf8proc_ssize_t)part, &normal,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        sl_assert(got >= 0);
        memcpy(out + n, normal, (size_t)got);
        free(normal);
        n += (size_t)got;
        at += part;
        if (added) {
            memcpy(out + n, ADDED, strlen(ADDED));
            n += strlen(ADDED);
            at += strlen(ADDED);
        }
    }
    return n;
}

static void check_normal(const struct tokenizer *t, const uint32_t *ids, size_t count,
                         const char *clean, size_t bytes)
{
    char *normal = malloc(NORMAL_GROWTH * bytes + 1);
    sl_assert(normal);
    check_pieces(t, ids, count, normal, normal_text(clean, bytes, normal));
    free(normal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    unsigned which = (data[0] & 0x7f) % ARRAY_LEN(pre);
    const struct tokenizer *t = tiny_tokenizer(which);
    bool special = data[0] & 0x80;
    const char *text = (const char *)data + 1;
    size_t n = size - 1, count, ready = utf8_complete_prefix(text, n);
    uint32_t *ids;
    char *clean = malloc(3 * n + 1);
    sl_assert(clean);
    size_t clean_bytes = utf8_sanitise(text, n, clean);
    sl_assert(ready <= n && n - ready < 4);
    sl_assert(utf8_complete_prefix(clean, clean_bytes) == clean_bytes);
    sl_assert(tokenizer_encode(t, text, n, special ? &text_ranges_all : NULL, &ids, &count, NULL) ==
              0);
    if (!special && which == SPM) {
        char *spaced = malloc(clean_bytes + 1);
        sl_assert(spaced);
        check_pieces(t, ids, count, spaced, spm_text(clean, clean_bytes, spaced));
        free(spaced);
    } else if (!special && which == NFC) {
        check_normal(t, ids, count, clean, clean_bytes);
    } else if (!special) {
        check_pieces(t, ids, count, clean, clean_bytes);
    }
    free(ids);
    free(clean);
    return 0;
}
