/* Fuzz target: text. The first byte chooses options; the rest is encoded, and its pieces must give
 * the text again (with U+FFFD for what is not UTF-8). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/gguf.h"
#include "lib/model/model_index.h"
#include "lib/model/tokenizer.h"
#include "tests/unit/model/gguf_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pre[] = {"qwen2", "gpt-2", "llama-bpe"};

struct memory {
    struct bytes file;
};

static ssize_t read_memory(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct memory *m = arg;
    memcpy(buf, m->file.data + offset, n);
    return (ssize_t)n;
}

/* The tokenizer of the tiny model; made once per pre-tokenizer and kept. */
static struct tokenizer *tiny_tokenizer(unsigned which)
{
    static struct tokenizer *made[ARRAY_LEN(pre)];
    if (made[which])
        return made[which];
    struct make m;
    make_tiny(&m, 1, false);
    make_text(&m, "tokenizer.ggml.pre", pre[which]);
    struct memory memory = {make_write(&m)};
    struct gguf_source source = {read_memory, &memory, memory.file.size};
    struct model_file_id id = {.bytes = memory.file.size};
    struct model_index *index;
    sl_assert(model_index_build_source(&source, &id, &index, NULL) == 0);
    made[which] =
        tokenizer_open((char *)index + index->tokenizer_offset, index->tokenizer_bytes, NULL);
    sl_assert(made[which]);
    bytes_free(&memory.file);
    make_free(&m);
    return made[which]; /* borrows from the index, which is kept, too */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct tokenizer *t = tiny_tokenizer(data[0] % ARRAY_LEN(pre));
    bool special = data[0] & 0x80;
    const char *text = (const char *)data + 1;
    size_t n = size - 1, count, ready = utf8_complete_prefix(text, n);
    uint32_t *ids;
    char *clean = malloc(3 * n + 1);
    sl_assert(clean);
    size_t clean_bytes = utf8_sanitise(text, n, clean);
    sl_assert(ready <= n && n - ready < 4);
    sl_assert(utf8_complete_prefix(clean, clean_bytes) == clean_bytes);
    sl_assert(tokenizer_encode(t, text, n, special, &ids, &count, NULL) == 0);
    if (!special)
        check_pieces(t, ids, count, clean, clean_bytes);
    free(ids);
    free(clean);
    return 0;
}
