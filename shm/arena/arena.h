/* The arena: a sparse file far larger than the quota. Page 0 is the signed header; then the dense
 * region (every dense entry at a fixed place), then one region per size class with equal slots, one
 * slot per entry of the class. What is large begins at a multiple of a huge page and shares none.
 * Classes compete for bytes, never for addresses. Writers of payload: loaders, into LOADING ranges.
 * compute and predictor map it read-only. The layout is a pure function of the model index; every
 * process computes the same. */
#ifndef SLUICE_SHM_ARENA_ARENA_H
#define SLUICE_SHM_ARENA_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/index/model_index.h"
#include "shm/segment/segment.h"

#define ARENA_CLASSES_MAX 256

/* What is of this size may lie in huge pages. Smaller, it would be less than half of one. */
#define ARENA_HUGE_MIN MIB

struct arena_class {
    uint64_t slot_bytes;
    uint64_t stride_bytes; /* from slot to slot: more when they may lie in huge pages */
    uint64_t region_offset;
    uint32_t slots;
};

struct arena_layout {
    uint64_t bytes;        /* of the whole sparse file */
    uint64_t dense_offset; /* of the region; places in it: arena_dense_offset */
    uint64_t dense_region_bytes;
    uint32_t classes;
    struct arena_class class[ARENA_CLASSES_MAX];
};

/* ERR_BAD_INPUT when the model has more distinct entry sizes than ARENA_CLASSES_MAX. */
int arena_layout_make(const struct model_index *model, struct arena_layout *layout,
                      struct error *error);

/* Fixed place of a dense entry. */
uint64_t arena_dense_offset(const struct model_index *model, const struct arena_layout *layout,
                            uint32_t entry);

/* Class of an expert entry by its slot size; the layout has it. */
uint32_t arena_class_of(const struct arena_layout *layout, uint64_t slot_bytes);

/* Whether slots of the class may lie in huge pages. */
static inline bool arena_class_huge(const struct arena_class *class)
{
    return class->slot_bytes >= ARENA_HUGE_MIN;
}

/* Whether a slot of the class begins there. */
bool arena_class_has(const struct arena_class *class, uint64_t offset);

/* The allocator: private memory of the cache manager, rebuilt from the directory after a restart.
 * Bytes are counted as backed from the moment a range is handed out until it is punched. */
struct arena_alloc;

struct arena_alloc_stats {
    uint64_t backed_bytes;      /* counted against the quota, dense included */
    uint64_t free_backed_bytes; /* backed but owned by nobody: waste kept for reuse */
    uint64_t punched_bytes, punch_ns, punches;
    uint64_t huge_bytes, huge_ns, huge_failed; /* of slots handed out; see segment_allocate_huge */
};

/* arena: writable; stays the caller's, attached as long as the allocator lives. huge: use huge
 * pages.
 */
struct arena_alloc *arena_alloc_create(const struct segment *arena,
                                       const struct arena_layout *layout, bool huge,
                                       struct error *error);
void arena_alloc_destroy(struct arena_alloc *a);

/* Rebuild: a range is owned by an entry (its bytes count), or must become clean. Call own() for
 * every entry that is not ABSENT, then settle(): punches every page no entry owns. It does not look
 * for data first: SEEK_DATA does not see pages that were fallocated but never written, and a punch
 * of a hole costs about a microsecond. */
void arena_alloc_own(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes);
int arena_alloc_settle(struct arena_alloc *a, struct error *error);

/* Takes a slot of a class within `quota` bytes: a free backed slot first; else an unbacked one if
 * it fits, after punching free backed slots of other classes as needed. A large one that was
 * unbacked gets its pages here, in huge ones if that is quick. False: nothing without an eviction.
 */
bool arena_alloc_take(struct arena_alloc *a, uint32_t size_class, uint64_t quota, uint64_t *offset);

/* Adds what was allocated for the allocator elsewhere to its figures. */
void arena_alloc_count_huge(struct arena_alloc *a, const struct segment_huge *huge);

/* Returns a slot, or the range of a dense entry (punched in any case). clean false: the range must
 * not be reused as it is (a dead loader): punched at once. */
void arena_alloc_give(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes, bool clean);

/* Punches free backed slots until backed <= quota or none is left; at most max_bytes per call (0:
 * no limit), so the caller's loop stays responsive. True when backed <= quota. */
bool arena_alloc_trim(struct arena_alloc *a, uint64_t quota, uint64_t max_bytes);

struct arena_range {
    uint64_t offset, bytes;
    uint64_t spare_bytes; /* counted besides: segment_allocate_huge may use them for a moment */
    bool huge;            /* to be allocated with segment_allocate_huge */
};

/* The next free unbacked range worth prefaulting within quota (whole slots, at most max_bytes),
 * marked backed; the caller allocates it (shm/segment/segment.h) and calls arena_alloc_prefaulted with the
 * same range: one is out at a time. One slot is returned even when it alone is more than max_bytes.
 * False when nothing fits. */
bool arena_alloc_prefault_next(struct arena_alloc *a, uint64_t quota, uint64_t max_bytes,
                               struct arena_range *range);
void arena_alloc_prefaulted(struct arena_alloc *a, const struct arena_range *range, bool ok);

/* The place of a dense entry: counts it as backed; arena_alloc_give of the same takes it out again.
 * Large ones get their pages as in arena_alloc_take. */
void arena_alloc_dense_take(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes,
                            uint64_t quota);

void arena_alloc_stats_get(const struct arena_alloc *a, struct arena_alloc_stats *stats);

#endif
