/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a text: ascending, without overlaps, none empty, no two adjacent. */
#ifndef SLUICE_TEXT_RANGES_H
#define SLUICE_TEXT_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_range {
    uint32_t from, to; /* bytes [from, to) */
};

struct text_ranges {
    struct text_range *at; /* malloc'ed; NULL: none */
    size_t count;
};

/* One range that has all bytes of any text; not to be freed. */
extern const struct text_ranges text_ranges_all;

/* Adds bytes after those of all others; joins them with the last range if they are adjacent. -1:
 * out of memory. */
int text_ranges_add(struct text_ranges *r, size_t from, size_t to);
void text_ranges_free(struct text_ranges *r);

/* Whether they are as described above, within a text of so many bytes. */
bool text_ranges_valid(const struct text_ranges *r, size_t bytes);

#endif
