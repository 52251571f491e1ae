/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over arrays of rows that describe models (arch/table.h, hf/internal.h). A row may be a
 * group: the rows of another array are in its place. ROW_WALK(NAME) defines the walk over arrays of
 * struct NAME_row, whose members `kind` (an enum: ROW_END, ROW_GROUP, and others below 64) and
 * `group` it uses:
 *
 *     struct NAME_row *row;
 *     ROW_EACH (NAME, row, rows, kinds)  the head of a loop over the rows of these kinds (ROW_BIT)
 *     NAME_first(rows, kinds)            the first of them; NULL: there is none */
#ifndef SLUICE_MODEL_ROWS_H
#define SLUICE_MODEL_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/assert.h"

#define ROW_END   0
#define ROW_GROUP 1

#define ROW_BIT(kind) (1ull << (kind))
#define ROW_DEPTH     8 /* an array, a group in it, a group in that, and so on */

/* A walk reads our own tables, no foreign bytes; with what the fuzzer counts in each of its steps,
 * it takes two thirds of the time of a file. */
#ifdef __clang__
#define ROW_UNCOUNTED __attribute__((no_sanitize("coverage")))
#else
#define ROW_UNCOUNTED
#endif

#define ROW_WALK(name)                                                                             \
    struct name##_walk {                                                                           \
        uint64_t kinds;                                                                            \
        uint32_t depth;                                                                            \
        const struct name##_row *next[ROW_DEPTH];                                                  \
    };                                                                                             \
    ROW_UNCOUNTED static inline const struct name##_row *name##_next(struct name##_walk *w)        \
    {                                                                                              \
        for (;;) {                                                                                 \
            const struct name##_row *row = w->next[w->depth];                                      \
            if (row->kind == ROW_END && w->depth == 0)                                             \
                return NULL;                                                                       \
            w->next[w->depth]++;                                                                   \
            if (row->kind == ROW_END) {                                                            \
                w->depth--;                                                                        \
            } else if (row->kind == ROW_GROUP) {                                                   \
                sl_assert(w->depth + 1 < ROW_DEPTH);                                               \
                w->next[++w->depth] = row->group;                                                  \
            } else if (w->kinds & ROW_BIT(row->kind)) {                                            \
                return row;                                                                        \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static inline const struct name##_row *name##_first(const struct name##_row *rows,             \
                                                        uint64_t kinds)                            \
    {                                                                                              \
        struct name##_walk w = {.kinds = kinds, .next = {rows}};                                   \
        return name##_next(&w);                                                                    \
    }

#define ROW_EACH(name, row, rows, bits)                                                            \
    for (struct name##_walk walk_ = {.kinds = (bits), .next = {(rows)}};                           \
         ((row) = name##_next(&walk_)) != NULL;)

#endif
