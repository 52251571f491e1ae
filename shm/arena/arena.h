/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: a sparse file far larger than the quota. Page 0 is the signed header; then the dense
 * region, with a fixed offset for every dense entry and every page slot; then one region per size
 * class with equal slots, one slot per entry of the class. Large entries start at a multiple of a
 * huge page and share none. Classes compete for bytes, never for addresses. Payload is written by
 * loaders only, into LOADING ranges; compute and predictor map the arena read-only. The layout is a
 * pure function of the model index, computed alike by every process. */
#ifndef SLUICE_SHM_ARENA_ARENA_H
#define SLUICE_SHM_ARENA_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/index/model_index.h"
#include "shm/segment/segment.h"

#define ARENA_CLASSES_MAX 256

/* Entries of at least this size may use huge pages; smaller ones would fill less than half of
 * one. */
#define ARENA_HUGE_MIN MIB

struct arena_class {
    uint64_t slot_bytes;
    uint64_t stride_bytes; /* distance of slots; larger than slot_bytes for slots in huge pages */
    uint64_t region_offset;
    uint32_t slots;
};

struct arena_layout {
    uint64_t bytes;        /* size of the sparse file */
    uint64_t dense_offset; /* of the region; offsets in it: arena_dense_offset */
    uint64_t dense_region_bytes;
    uint64_t pages_offset; /* of the page slots, at the end of that region */
    uint32_t classes;
    struct arena_class class[ARENA_CLASSES_MAX];
};

/* Computes the layout. -1 with ERR_BAD_INPUT when the model has more than ARENA_CLASSES_MAX
 * distinct entry sizes or is too large. */
int arena_layout_make(const struct model_index *model, struct arena_layout *layout,
                      struct error *error);

/* Fixed arena offset of a dense entry or page slot; 0: of a table on storage, which has none. */
uint64_t arena_dense_offset(const struct model_index *model, const struct arena_layout *layout,
                            uint32_t entry);

/* Class of a slot size, which must be in the layout. */
uint32_t arena_class_of(const struct arena_layout *layout, uint64_t slot_bytes);

/* True when slots of the class may use huge pages. */
static inline bool arena_class_huge(const struct arena_class *class)
{
    return class->slot_bytes >= ARENA_HUGE_MIN;
}

/* True when a slot of the class starts at `offset`. */
bool arena_class_has(const struct arena_class *class, uint64_t offset);

/* The allocator, in private memory of the cache process and rebuilt from the directory after a
 * restart. A range counts as backed from its allocation until it is punched. */
struct arena_alloc;

struct arena_alloc_stats {
    uint64_t backed_bytes;      /* charged to the quota, dense entries included */
    uint64_t free_backed_bytes; /* backed but without an entry: kept for reuse */
    uint64_t punched_bytes, punch_ns, punches;
    uint64_t huge_bytes, huge_ns, huge_failed; /* of allocated slots; see segment_allocate_huge */
};

/* arena: writable, owned by the caller, must stay attached while the allocator exists. huge: use
 * huge pages. */
struct arena_alloc *arena_alloc_create(const struct segment *arena,
                                       const struct arena_layout *layout, bool huge,
                                       struct error *error);
void arena_alloc_destroy(struct arena_alloc *a);

/* While a large slot gets its pages, the time is stored here: the heartbeat of the caller, who must
 * keep it as long as the allocator. NULL (at first): nowhere. */
void arena_alloc_beat(struct arena_alloc *a, _Atomic uint64_t *beat_ns);

/* Rebuild after a restart: a range either belongs to an entry (its bytes count) or must be punched.
 * Call own() for every entry that is not ABSENT, then settle(), which punches every other page. It
 * does not search for data first: SEEK_DATA does not report pages that were fallocated but never
 * written, and punching a hole costs about a microsecond. */
void arena_alloc_own(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes);
int arena_alloc_settle(struct arena_alloc *a, struct error *error);

/* Allocates a slot of a class within `quota` bytes: a free backed slot first; otherwise an unbacked
 * one if it fits, after punching free backed slots of other classes as needed. A large unbacked
 * slot gets its pages here, in huge pages if that is fast. False: nothing is available without an
 * eviction. */
bool arena_alloc_take(struct arena_alloc *a, uint32_t size_class, uint64_t quota, uint64_t *offset);

/* Adds huge pages allocated outside the allocator to its statistics. */
void arena_alloc_count_huge(struct arena_alloc *a, const struct segment_huge *huge);

/* Frees a slot, or the range of a dense entry (always punched). clean false: the range may still be
 * written by an exited loader's reads and is punched at once instead of reused. */
void arena_alloc_give(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes, bool clean);

/* Punches free backed slots until backed <= quota or none is left, at most max_bytes per call (0:
 * no limit) so that the caller's loop stays responsive. True when backed <= quota. */
bool arena_alloc_trim(struct arena_alloc *a, uint64_t quota, uint64_t max_bytes);

struct arena_range {
    uint64_t offset, bytes;
    uint64_t spare_bytes; /* also charged: segment_allocate_huge may use them temporarily */
    bool huge;            /* allocate with segment_allocate_huge */
};

/* Next free unbacked range to prefault within quota (whole slots, at most max_bytes, but at least
 * one slot), marked backed. The caller allocates it (shm/segment/segment.h) and then calls
 * arena_alloc_prefaulted with the same range; only one range may be outstanding. False when nothing
 * fits. */
bool arena_alloc_prefault_next(struct arena_alloc *a, uint64_t quota, uint64_t max_bytes,
                               struct arena_range *range);
void arena_alloc_prefaulted(struct arena_alloc *a, const struct arena_range *range, bool ok);

/* Charges the range of a dense entry as backed; arena_alloc_give reverses it. Large ones get their
 * pages as in arena_alloc_take. */
void arena_alloc_dense_take(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes,
                            uint64_t quota);

void arena_alloc_stats_get(const struct arena_alloc *a, struct arena_alloc_stats *stats);

#endif
