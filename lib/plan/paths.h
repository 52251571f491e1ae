/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of paths over two layers, (a, b -> c): a token chose expert a, then b in the next layer
 * and c in the one after. Sparse: only paths that occurred take memory, in a hash table per layer
 * with a lock of its own. Counting densely takes layers * experts^3 numbers, which is 400 MB for 48
 * layers of 128 experts.
 *
 * When a table may not grow any more, its rarest paths are dropped. */
#ifndef SLUICE_PLAN_PATHS_H
#define SLUICE_PLAN_PATHS_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/plan/plan.h"

struct path_counts;

/* max_bytes: of all tables together, at least one small table per layer. NULL with
 * ERR_NO_MEMORY. */
struct path_counts *path_counts_create(uint32_t layers, uint32_t experts, uint64_t max_bytes,
                                       struct error *error);
void path_counts_destroy(struct path_counts *p);

/* Any thread. The `k` experts that a token chose in `layer` (c) and in the two layers with
 * experts before it: counts every combination. */
void path_counts_add(struct path_counts *p, uint32_t layer, const uint16_t *a, const uint16_t *b,
                     const uint16_t *c, uint32_t k);

/* The results; no thread counts any more. Counts are stored in 16 bits: they are shifted until the
 * largest fits, and paths that become 0 are left out. */
uint64_t path_counts_cells(const struct path_counts *p);
uint64_t path_counts_dropped(const struct path_counts *p); /* accesses of dropped paths */

/* Fills pair_first and pair_cells of a plan that has them with path_counts_cells cells: the cells
 * of a pair in descending count, ties to the lower expert. -1 with ERR_NO_MEMORY. */
int path_counts_take(const struct path_counts *p, struct plan *plan, struct error *error);

#endif
