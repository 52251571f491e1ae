/* SPDX-License-Identifier: Apache-2.0 */
/* Seals and checks the head and the tables of a prefix file. */
#include <inttypes.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/prefix/prefix.h"

static uint64_t head_sum(const struct prefix_head *h)
{
    return XXH3_64bits(h, offsetof(struct prefix_head, checksum));
}

void prefix_seal(struct prefix_head *h, const void *tables)
{
    sl_assert(h->tokens > 0);
    h->magic = PREFIX_MAGIC;
    h->version = PREFIX_VERSION;
    h->tables_checksum = XXH3_64bits(tables, prefix_tables_bytes(h));
    h->checksum = head_sum(h);
}

static bool counts_fit(const struct prefix_head *h)
{
    return h->tokens > 0 && h->tokens <= PREFIX_TOKENS_MAX && h->states <= PREFIX_STATES_MAX &&
           h->tile_bytes <= PREFIX_BLOCK_MAX && h->ring_bytes <= PREFIX_BLOCK_MAX &&
           h->state_bytes <= PREFIX_BLOCK_MAX && (h->states == 0 || h->state_bytes > 0) &&
           h->lowest <= h->tokens + 1 && h->prompt <= h->tokens && h->cost_ns < 1ull << 62;
}

/* The version before the checksum: a later one may have another head. */
int prefix_check_head(const struct prefix_head *h, uint64_t file_bytes, struct error *error)
{
    if (file_bytes < sizeof *h || h->magic != PREFIX_MAGIC)
        return error_set(error, ERR_BAD_INPUT, "it is not a prefix file");
    if (h->version != PREFIX_VERSION)
        return error_set(error, ERR_BAD_INPUT,
                         "it has version %" PRIu32 " of the format, and this program reads %u",
                         h->version, PREFIX_VERSION);
    if (h->checksum != head_sum(h))
        return error_set(error, ERR_BAD_INPUT, "its head is damaged");
    if (!counts_fit(h))
        return error_set(error, ERR_BAD_INPUT, "its head has a number beyond its limits");
    if (prefix_file_bytes(h) != file_bytes)
        return error_set(error, ERR_BAD_INPUT, "it has %" PRIu64 " bytes instead of %" PRIu64,
                         file_bytes, prefix_file_bytes(h));
    return 0;
}

int prefix_check_tables(const struct prefix_head *h, const void *tables, struct error *error)
{
    const uint32_t *positions = (const uint32_t *)tables + h->tokens;
    if (XXH3_64bits(tables, prefix_tables_bytes(h)) != h->tables_checksum)
        return error_set(error, ERR_BAD_INPUT, "its tokens are damaged");
    for (uint32_t i = 0; i < h->states; i++)
        if (positions[i] > h->tokens || positions[i] <= (i > 0 ? positions[i - 1] : 0))
            return error_set(error, ERR_BAD_INPUT, "its states are not in order");
    return 0;
}
