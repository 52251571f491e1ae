/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a model file. For any bytes, building the index succeeds or fails with an error; an
 * index that was built passes its own check, and its tokenizer works. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory {
    const uint8_t *data;
    size_t size;
};

/* Returns at most 1000 bytes per call, to test short reads. */
static ssize_t read_memory(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct memory *m = arg;
    sl_assert(offset <= m->size);
    if (n > m->size - offset)
        n = m->size - offset;
    if (n > 1000)
        n = 1000;
    memcpy(buf, m->data + offset, n);
    return (ssize_t)n;
}

static void use_tokenizer(const struct model_index *index)
{
    static const char text[] = "hello <|end|> \xe2\x82\xac\xe3\x81\x8b 12\n\n <tag>";
    struct error error;
    struct tokenizer *t = tokenizer_open((const char *)index + index->tokenizer_offset,
                                         index->tokenizer_bytes, &error);
    sl_assert(t);
    uint32_t *ids;
    size_t count, bytes;
    if (tokenizer_encode(t, text, sizeof text - 1, &text_ranges_all, &ids, &count, &error) == 0) {
        for (size_t i = 0; i < count; i++) {
            sl_assert(ids[i] < tokenizer_vocab(t));
            (void)tokenizer_piece(t, ids[i], &bytes);
        }
        free(ids);
    }
    tokenizer_close(t);
}

static void use_entries(const struct model_index *index)
{
    for (uint32_t i = 0; i < index->entry_count; i++) {
        struct model_extent runs[ENTRY_EXTENTS_MAX];
        uint64_t total = 0;
        for (uint32_t part = 0; part < 3; part++) {
            uint32_t n = model_entry_shard(&model_index_entries(index)[i], part, 3, runs);
            for (uint32_t r = 0; r < n; r++)
                total += runs[r].read_bytes;
        }
        sl_assert(total == model_index_entries(index)[i].slot_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory memory = {data, size};
    struct gguf_source source = {.read = read_memory, .arg = &memory, .bytes = size};
    struct model_file_id id = {.dev = 1, .ino = 2, .bytes = size, .mtime_ns = 3};
    struct model_index *index = NULL;
    struct error error = {0};
    if (model_index_build_source(&source, &id, &index, &error)) {
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
        return 0;
    }
    sl_assert(model_index_check(index, index->bytes, &error) == 0);
    use_entries(index);
    use_tokenizer(index);
    free(index);
    return 0;
}
