/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of a table on storage, and the places that they may have in memory: for compute, the
 * cache, loaders, traces and the simulator. */
#ifndef SLUICE_MODEL_TABLE_PAGES_H
#define SLUICE_MODEL_TABLE_PAGES_H

#include <stdint.h>

#include "lib/base/bytes.h"

/* Page slots of a table: so many at most, which is 8 MiB, in sets. A page of the table is in one of
 * the slots of its set (table_page_set), so that whoever looks for it reads few entries. */
#define MODEL_PAGE_SLOTS 2048u
#define MODEL_PAGE_WAYS  8u

/* What an engine looks for, and waits for, together: so many parts of rows at most, each what one
 * page has of a row. With those that are requested ahead, half of the page slots: few pages find no
 * place in their set. */
#define TABLE_WAVE_PARTS (MODEL_PAGE_SLOTS / 4)

/* Rows of so many tokens are read together, and those of as many more requested ahead. */
#define TABLE_BLOCK_TOKENS 64u

struct table_pages {
    uint64_t row_bytes;
    uint32_t head_bytes; /* the first row begins there in the first page */
    uint32_t slots;      /* page slots: whole sets */
};

struct table_part { /* of a row: what one page has of it */
    uint32_t page, offset, bytes;
};

/* The first of the MODEL_PAGE_WAYS slots, from 0, one of which may have this page. */
static inline uint32_t table_page_set(uint32_t page, uint32_t slots)
{
    return page % (slots / MODEL_PAGE_WAYS) * MODEL_PAGE_WAYS;
}

/* Parts of a row, at most. */
static inline uint64_t table_parts_of_row(const struct table_pages *t)
{
    return (t->row_bytes + PAGE_BYTES - 2) / PAGE_BYTES + 1;
}

/* The part of a row that begins at byte `from` of it, < row_bytes. The table has fewer than
 * UINT32_MAX pages. */
static inline struct table_part table_part_at(const struct table_pages *t, uint32_t row,
                                              uint64_t from)
{
    uint64_t at = t->head_bytes + row * t->row_bytes + from, offset = at % PAGE_BYTES;
    uint64_t left = t->row_bytes - from, room = PAGE_BYTES - offset;
    return (struct table_part){.page = (uint32_t)(at / PAGE_BYTES),
                               .offset = (uint32_t)offset,
                               .bytes = (uint32_t)(left < room ? left : room)};
}

#endif
