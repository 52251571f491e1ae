/* SPDX-License-Identifier: Apache-2.0 */
/* Seals and checks the heads of a cache file. */
#include "procs/engine/loader/cache/slots.h"

#include <stddef.h>
#include <string.h>
#include <xxhash.h>

void cache_head_seal(struct cache_head *head)
{
    head->hash = XXH3_64bits(head, offsetof(struct cache_head, hash));
}

void cache_slot_head_seal(struct cache_slot_head *head)
{
    head->hash = XXH3_64bits(head, offsetof(struct cache_slot_head, hash));
}

enum cache_file cache_head_judge(const struct cache_head *found, const struct cache_head *wanted)
{
    static const struct cache_head zeros; /* a start that ended before it wrote the head */
    struct cache_head same = *wanted;
    if (wanted->identity == 0)
        same.identity = found->identity;
    cache_head_seal(&same);
    if (memcmp(found, &same, sizeof same) == 0)
        return CACHE_FILE_RIGHT;
    return found->magic == wanted->magic || memcmp(found, &zeros, sizeof *found) == 0
               ? CACHE_FILE_NEW
               : CACHE_FILE_OTHER;
}

bool cache_slot_head_right(const struct cache_slot_head *head, uint64_t slot_bytes)
{
    return head->magic == CACHE_SLOT_MAGIC && head->reserved == 0 && head->bytes > 0 &&
           head->bytes % PAGE_BYTES == 0 && head->bytes <= slot_bytes - PAGE_BYTES &&
           head->hash == XXH3_64bits(head, offsetof(struct cache_slot_head, hash));
}
