/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a model split into two files. The input is the size of the first as 32 bits, then
 * both. For any bytes, building the index succeeds or fails with an error; an index that was built
 * passes its own check, and the loaders of the parts read each entry once. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/model/gguf/split.h"
#include "lib/model/index/model_index.h"
#include "tests/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_entries(const struct model_index *index)
{
    uint32_t parts = index->part_count > 0 ? index->part_count : 1;
    for (uint32_t i = 0; i < index->entry_count; i++) {
        struct model_extent runs[ENTRY_EXTENTS_MAX];
        uint64_t total = 0;
        for (uint32_t part = 0; part < parts; part++) {
            uint32_t n = model_entry_shard(&model_index_entries(index)[i], part, parts, runs);
            for (uint32_t r = 0; r < n; r++)
                total += runs[r].read_bytes;
        }
        sl_assert(total == model_index_entries(index)[i].slot_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gguf_parts parts;
    uint32_t first;
    if (size < sizeof first)
        return 0;
    memcpy(&first, data, sizeof first);
    data += sizeof first;
    size -= sizeof first;
    if (first > size)
        first = (uint32_t)size;
    struct fuzz_file files[] = {fuzz_file_open(data, first),
                                fuzz_file_open(data + first, size - first)};
    parts = (struct gguf_parts){.count = 2,
                                .fd = {files[0].fd, files[1].fd},
                                .path = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}};
    struct model_index *index = NULL;
    struct error error = {0};
    if (model_index_build_parts(&parts, &index, &error) == 0) {
        sl_assert(model_index_check(index, index->bytes, &error) == 0);
        use_entries(index);
    } else {
        sl_assert(!index && error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
    }
    free(index);
    fuzz_file_close(&files[0]);
    fuzz_file_close(&files[1]);
    return 0;
}
