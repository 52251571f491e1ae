/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: head and tables of a prefix file. If the first byte has bit 1, its checksums are
 * made right, and with bit 2 its size. What is accepted has blocks that follow each other to the
 * end of the file, and gives a prompt rows that it has. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/prefix/prefix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_layout(const struct prefix_head *h)
{
    uint64_t end = PREFIX_ALIGN + prefix_tables_bytes(h);
    for (uint32_t i = 0; i < prefix_blocks(h); i++) {
        uint64_t at = prefix_block_offset(h, i);
        sl_assert(at % PREFIX_ALIGN == 0 && at >= end && at - end < PREFIX_ALIGN);
        end = at + prefix_block_bytes(h, i);
    }
    sl_assert(prefix_file_bytes(h) >= end && prefix_file_bytes(h) - end < PREFIX_ALIGN);
}

static void check_uses(const struct prefix_head *h, void *tables)
{
    const uint32_t *positions = prefix_positions(h, tables);
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t common = (uint32_t)((uint64_t)(h->tokens + 1) * i / 63);
        struct prefix_use use = prefix_use(h, positions, common, i & 1);
        sl_assert(use.rows <= common && use.rows <= h->tokens);
        sl_assert(use.state == PREFIX_NO_STATE ||
                  (use.state < h->states && positions[use.state] == use.rows));
        sl_assert(prefix_use_bytes(h, use, 0) <= prefix_file_bytes(h));
    }
}

static void check_tables(const struct prefix_head *h, const uint8_t *data, size_t size, bool right)
{
    struct error error = {0};
    size_t bytes = prefix_tables_bytes(h);
    uint8_t *tables = calloc(1, bytes);
    if (!tables)
        return;
    memcpy(tables, data, size < bytes ? size : bytes);
    struct prefix_head own = *h;
    if (right)
        prefix_seal(&own, tables); /* tokens > 0: the head was accepted */
    if (prefix_check_tables(&own, tables, &error) == 0) {
        check_layout(&own);
        check_uses(&own, tables);
    } else {
        sl_assert(error.code == ERR_BAD_INPUT && !strchr(error.text, '\n'));
    }
    free(tables);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prefix_head h;
    struct error error = {0};
    if (size < 1 + sizeof h)
        return 0;
    memcpy(&h, data + 1, sizeof h);
    if (data[0] & 1)
        h.checksum = XXH3_64bits(&h, offsetof(struct prefix_head, checksum));
    bool fits = h.tokens <= PREFIX_TOKENS_MAX && h.states <= PREFIX_STATES_MAX;
    uint64_t file_bytes = data[0] & 2 && fits ? prefix_file_bytes(&h) : size - 1;
    if (prefix_check_head(&h, file_bytes, &error) != 0) {
        sl_assert(error.code == ERR_BAD_INPUT && !strchr(error.text, '\n'));
        return 0;
    }
    check_tables(&h, data + 1 + sizeof h, size - 1 - sizeof h, data[0] & 1);
    return 0;
}
