/* SPDX-License-Identifier: Apache-2.0 */
/* The rule by which a page of a table on storage gives its slot to another one: that which compute
 * has not used for longest. The cache and the simulator decide by it.
 *
 * Time is a count of reads: of a block of rows, or of a part of it (struct directory_head,
 * table_reads), so that what is replaced depends on the order of the accesses alone. Before a read,
 * the pages of its block are requested, and those that have a slot count as used from then on; in a
 * prompt those of the next block are requested, too. */
#ifndef SLUICE_POLICY_ACCESS_PAGES_H
#define SLUICE_POLICY_ACCESS_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/table_pages.h"

struct page_slot {                 /* one of the set of a page */
    bool empty;                    /* it has no page, or one whose read failed */
    bool fixed;                    /* its page is being read, or copied: it cannot be replaced */
    uint32_t reserved_at, used_at; /* count of reads when its page was requested; last used */
};

#define PAGE_SLOT_NONE UINT32_MAX

/* What used_at of a slot is when it is given to a page: no read has used that, whatever its former
 * page was used for. now: the count of reads. */
uint32_t page_slot_unused(uint32_t now);

/* The slot for a page that none of them has: an empty one, else the page used longest ago, the
 * first one of several. What was requested for a read to come goes last. PAGE_SLOT_NONE: all are
 * fixed. now: the count of reads. */
uint32_t page_slot_choose(const struct page_slot slot[MODEL_PAGE_WAYS], uint32_t now);

#endif
