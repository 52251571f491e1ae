/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the page of a table on storage that gives its slot to another one. */
#include "lib/policy/access/pages.h"

/* A block is read after the one during whose read it was requested. What is not read by then is of
 * a pass that ended. */
#define READS_AHEAD 2

/* Reads since then. Counts begin again at 0 after 2^32; a later one than `now` is of a read that
 * began meanwhile. */
static uint32_t since(uint32_t then, uint32_t now)
{
    uint32_t reads = now - then;
    return reads > UINT32_MAX / 2 ? 0 : reads;
}

/* 0: it cannot be replaced; 1: only if no other can. */
static uint32_t age_of(const struct page_slot *s, uint32_t now)
{
    uint32_t reserved = since(s->reserved_at, now), used = since(s->used_at, now);
    if (s->fixed)
        return 0;
    if (used > reserved && reserved < READS_AHEAD)
        return 1;
    return (used < reserved ? used : reserved) + 2;
}

uint32_t page_slot_unused(uint32_t now)
{
    return now - READS_AHEAD;
}

uint32_t page_slot_choose(const struct page_slot slot[MODEL_PAGE_WAYS], uint32_t now)
{
    uint32_t oldest = PAGE_SLOT_NONE, age = 0;
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++) {
        if (slot[i].empty)
            return i;
        uint32_t its = age_of(&slot[i], now);
        if (its > age) {
            age = its;
            oldest = i;
        }
    }
    return oldest;
}
