/* SPDX-License-Identifier: Apache-2.0 */
/* The cache process's allocator. Every slot of a class is in exactly one of four states; free slots
 * are in one of the class's two lists (indices into arrays, so nothing is allocated after create).
 * The caller keeps rule (b) of shm/directory/entry.h: a range that an exited process may still
 * write is returned with clean == false and is punched before reuse. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "shm/arena/arena.h"

#define NIL          UINT32_MAX
#define ALLOC_MAGIC  0x41524e41u
#define HUGE_SLOW_NS (10 * NS_PER_MS) /* per huge page; 4 ms when a hypervisor must back it first */
#define HUGE_PAUSE   10         /* pause after a slow or failed one, as a multiple of its time */
#define BEAT_BYTES   (64 * MIB) /* allocated between two heartbeats: a second of a busy machine */
#define EMPTY_FAMILY ((struct family){{NIL, NIL, 0}, {NIL, NIL, 0}, 0})

enum slot_state {
    SLOT_UNBACKED, /* free, not backed */
    SLOT_BACKED,   /* free, pages charged */
    SLOT_OWNED,    /* belongs to an entry; pages charged, written or not */
    SLOT_PREFAULT  /* outstanding prefault; pages charged */
};

struct list {
    uint32_t head, tail; /* slot numbers over all classes */
    uint32_t count;
};

struct family { /* of one size class */
    struct list unbacked, backed;
    uint32_t first; /* number of its first slot */
};

struct arena_alloc {
    uint32_t magic;
    struct segment arena; /* owned by the caller: not detached here */
    struct arena_layout layout;
    struct family family[ARENA_CLASSES_MAX];
    uint32_t slots;
    uint32_t *next, *previous; /* [slots] */
    uint8_t *state;            /* [slots] */
    uint8_t *dense_owned;      /* a bit per page of the dense region */
    uint64_t backed_bytes, free_backed_bytes;
    uint64_t punched_bytes, punch_ns, punches;
    uint64_t huge_bytes, huge_ns, huge_failed;
    uint64_t huge_after_ns; /* no huge pages before this time */
    _Atomic uint64_t *beat_ns;
    uint32_t punch_cursor; /* class at which the next punch starts */
    bool huge;
};

/* ---- lists -------------------------------------------------------------------------------- */

static void link_head(struct arena_alloc *a, struct list *l, uint32_t slot)
{
    a->previous[slot] = NIL;
    a->next[slot] = l->head;
    *(l->head == NIL ? &l->tail : &a->previous[l->head]) = slot;
    l->head = slot;
    l->count++;
}

static void link_tail(struct arena_alloc *a, struct list *l, uint32_t slot)
{
    a->next[slot] = NIL;
    a->previous[slot] = l->tail;
    *(l->tail == NIL ? &l->head : &a->next[l->tail]) = slot;
    l->tail = slot;
    l->count++;
}

static void unlink_slot(struct arena_alloc *a, struct list *l, uint32_t slot)
{
    *(a->previous[slot] == NIL ? &l->head : &a->next[a->previous[slot]]) = a->next[slot];
    *(a->next[slot] == NIL ? &l->tail : &a->previous[a->next[slot]]) = a->previous[slot];
    l->count--;
}

/* ---- offsets ----------------------------------------------------------------------------- */

static uint64_t slot_bytes_of(const struct arena_alloc *a, uint32_t class)
{
    return a->layout.class[class].slot_bytes;
}

static uint64_t stride_of(const struct arena_alloc *a, uint32_t class)
{
    return a->layout.class[class].stride_bytes;
}

static uint64_t offset_of(const struct arena_alloc *a, uint32_t class, uint32_t slot)
{
    return a->layout.class[class].region_offset +
           (uint64_t)(slot - a->family[class].first) * stride_of(a, class);
}

static bool is_dense(const struct arena_alloc *a, uint64_t offset)
{
    return offset >= a->layout.dense_offset &&
           offset < a->layout.dense_offset + a->layout.dense_region_bytes;
}

static uint32_t slot_at(const struct arena_alloc *a, uint32_t class, uint64_t offset)
{
    const struct arena_class *c = &a->layout.class[class];
    sl_assert(arena_class_has(c, offset));
    return a->family[class].first + (uint32_t)((offset - c->region_offset) / c->stride_bytes);
}

static void punch(struct arena_alloc *a, uint64_t offset, uint64_t bytes)
{
    uint64_t start = clock_now_ns();
    int rc = segment_punch(a->arena.fd, offset, bytes);
    if (rc != 0) /* continuing would allocate bytes that an exited process may still write */
        sl_panic("cannot punch the arena at %llu: %s", (unsigned long long)offset, strerror(-rc));
    a->punched_bytes += bytes;
    a->punch_ns += clock_now_ns() - start;
    a->punches++;
}

/* ---- create and rebuild ------------------------------------------------------------------- */

static void fill_lists(struct arena_alloc *a)
{
    uint32_t slot = 0;
    for (uint32_t c = 0; c < a->layout.classes; c++) {
        a->family[c] = EMPTY_FAMILY;
        a->family[c].first = slot;
        for (uint32_t i = 0; i < a->layout.class[c].slots; i++)
            link_tail(a, &a->family[c].unbacked, slot++);
    }
}

struct arena_alloc *arena_alloc_create(const struct segment *arena,
                                       const struct arena_layout *layout, bool huge,
                                       struct error *error)
{
    uint64_t slots = 0;
    for (uint32_t c = 0; c < layout->classes; c++)
        slots += layout->class[c].slots;
    sl_assert(slots < NIL);
    struct arena_alloc *a = calloc(1, sizeof *a);
    if (a) {
        a->next = calloc(slots + 1, sizeof *a->next);
        a->previous = calloc(slots + 1, sizeof *a->previous);
        a->state = calloc(slots + 1, sizeof *a->state);
        a->dense_owned = calloc(layout->dense_region_bytes / PAGE_BYTES / 8 + 1, 1);
    }
    if (!a || !a->next || !a->previous || !a->state || !a->dense_owned) {
        arena_alloc_destroy(a);
        error_set(error, ERR_NO_MEMORY, "out of memory (%llu arena slots)",
                  (unsigned long long)slots);
        return NULL;
    }
    a->magic = ALLOC_MAGIC;
    a->arena = *arena;
    a->huge = huge;
    a->layout = *layout;
    a->slots = (uint32_t)slots;
    fill_lists(a);
    return a;
}

void arena_alloc_destroy(struct arena_alloc *a)
{
    if (!a)
        return;
    free(a->next);
    free(a->previous);
    free(a->state);
    free(a->dense_owned);
    a->magic = 0;
    free(a);
}

static void mark_dense(struct arena_alloc *a, uint64_t offset, uint64_t bytes, bool owned)
{
    uint64_t page = (offset - a->layout.dense_offset) / PAGE_BYTES;
    uint64_t end = page + bytes / PAGE_BYTES;
    sl_assert(offset % PAGE_BYTES == 0 && end <= a->layout.dense_region_bytes / PAGE_BYTES);
    for (; page < end; page++) {
        if (owned)
            a->dense_owned[page / 8] |= (uint8_t)(1u << page % 8);
        else
            a->dense_owned[page / 8] &= (uint8_t) ~(1u << page % 8);
    }
}

void arena_alloc_own(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    if (is_dense(a, offset)) {
        mark_dense(a, offset, slot_bytes, true);
    } else {
        uint32_t class = arena_class_of(&a->layout, slot_bytes);
        uint32_t slot = slot_at(a, class, offset);
        sl_assert(a->state[slot] == SLOT_UNBACKED); /* otherwise two entries share a range */
        unlink_slot(a, &a->family[class].unbacked, slot);
        a->state[slot] = SLOT_OWNED;
    }
    a->backed_bytes += slot_bytes;
}

struct sweep { /* adjacent unowned ranges, punched as one */
    struct arena_alloc *a;
    uint64_t from, to;
};

static void sweep_flush(struct sweep *s)
{
    if (s->to > s->from)
        punch(s->a, s->from, s->to - s->from);
    s->from = s->to = 0;
}

static void sweep_add(struct sweep *s, uint64_t offset, uint64_t bytes)
{
    if (offset != s->to)
        sweep_flush(s);
    if (s->to == s->from)
        s->from = offset;
    s->to = offset + bytes;
}

int arena_alloc_settle(struct arena_alloc *a, struct error *error)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    struct sweep sweep = {.a = a};
    for (uint64_t page = 0; page < a->layout.dense_region_bytes / PAGE_BYTES; page++)
        if (!(a->dense_owned[page / 8] & 1u << page % 8))
            sweep_add(&sweep, a->layout.dense_offset + page * PAGE_BYTES, PAGE_BYTES);
    for (uint32_t c = 0; c < a->layout.classes; c++)
        for (uint32_t i = 0; i < a->layout.class[c].slots; i++) {
            uint32_t slot = a->family[c].first + i;
            uint64_t owned = a->state[slot] == SLOT_UNBACKED ? 0 : slot_bytes_of(a, c);
            if (stride_of(a, c) > owned)
                sweep_add(&sweep, offset_of(a, c, slot) + owned, stride_of(a, c) - owned);
        }
    sweep_flush(&sweep);
    uint64_t used = segment_allocated_bytes(a->arena.fd), accounted = PAGE_BYTES + a->backed_bytes;
    if (used > accounted)
        return error_set(error, ERR_FAILED,
                         "the arena has %llu bytes allocated, but its entries account for %llu",
                         (unsigned long long)used, (unsigned long long)accounted);
    return 0;
}

/* ---- allocating and freeing -------------------------------------------------------------- */

static void punch_free(struct arena_alloc *a, uint32_t class, uint32_t slot)
{
    unlink_slot(a, &a->family[class].backed, slot);
    punch(a, offset_of(a, class, slot), slot_bytes_of(a, class));
    a->state[slot] = SLOT_UNBACKED;
    link_head(a, &a->family[class].unbacked, slot);
    a->backed_bytes -= slot_bytes_of(a, class);
    a->free_backed_bytes -= slot_bytes_of(a, class);
}

/* Punches the least recently freed backed slot of the next class that has one. False when none
 * has. */
static bool punch_one(struct arena_alloc *a)
{
    for (uint32_t i = 0; i < a->layout.classes; i++) {
        uint32_t class = (a->punch_cursor + i) % a->layout.classes;
        if (a->family[class].backed.count == 0)
            continue;
        punch_free(a, class, a->family[class].backed.tail);
        a->punch_cursor = (class + 1) % a->layout.classes;
        return true;
    }
    return false;
}

void arena_alloc_beat(struct arena_alloc *a, _Atomic uint64_t *beat_ns)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    a->beat_ns = beat_ns;
}

/* In parts, with a heartbeat for each: a matrix of a gigabyte takes seconds on a busy machine.
 * Where the kernel has no huge pages for a part, the others get single pages at once. */
static void back_parts(struct arena_alloc *a, uint64_t offset, uint64_t bytes, uint64_t spare,
                       struct segment_huge *all)
{
    *all = (struct segment_huge){0};
    for (uint64_t done = 0, part; done < bytes; done += part) {
        struct segment_huge huge = {0};
        part = bytes - done < BEAT_BYTES ? bytes - done : BEAT_BYTES;
        int rc = all->status == 0 ? segment_allocate_huge(&a->arena, offset + done, part,
                                                          done + part == bytes ? spare : 0, &huge)
                                  : segment_allocate(a->arena.fd, offset + done, part);
        segment_huge_add(all, &huge);
        if (a->beat_ns)
            atomic_store_explicit(a->beat_ns, clock_now_ns(), memory_order_relaxed);
        if (rc != 0)
            return; /* the loader's reads allocate the rest, or report that there is no memory */
    }
}

/* Allocates huge pages for a slot. Otherwise the loader's reads allocate single pages, one fault at
 * a time, which is slower. With fragmented memory huge pages may take long: after a slow or failed
 * attempt there is a pause, so that at most a tenth of the time is spent here. */
static void back(struct arena_alloc *a, uint64_t offset, uint64_t bytes, uint64_t quota)
{
    if (!a->huge || bytes < ARENA_HUGE_MIN)
        return;
    uint64_t start = clock_now_ns();
    if (start < a->huge_after_ns)
        return;
    struct segment_huge huge;
    back_parts(a, offset, bytes, quota > a->backed_bytes ? quota - a->backed_bytes : 0, &huge);
    arena_alloc_count_huge(a, &huge);
    uint64_t took = clock_now_ns() - start, pages = align_up(bytes, HUGE_PAGE_BYTES);
    if (huge.status != 0 || took > pages / HUGE_PAGE_BYTES * HUGE_SLOW_NS)
        a->huge_after_ns = start + HUGE_PAUSE * took;
}

void arena_alloc_count_huge(struct arena_alloc *a, const struct segment_huge *huge)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    a->huge_bytes += huge->bytes;
    a->huge_ns += huge->ns;
    a->huge_failed += huge->status != 0;
}

bool arena_alloc_take(struct arena_alloc *a, uint32_t size_class, uint64_t quota, uint64_t *offset)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    sl_assert(size_class < a->layout.classes);
    struct family *f = &a->family[size_class];
    uint64_t bytes = slot_bytes_of(a, size_class);
    if (a->backed_bytes - a->free_backed_bytes + bytes > quota)
        return false; /* owned bytes alone would exceed it: only an eviction helps */
    uint32_t slot;
    if (f->backed.count > 0) {
        slot = f->backed.head; /* the most recently freed */
        unlink_slot(a, &f->backed, slot);
        a->free_backed_bytes -= bytes;
    } else if (f->unbacked.count > 0) {
        while (a->backed_bytes + bytes > quota) {
            bool freed = punch_one(a);
            sl_assert(freed); /* free_backed_bytes covers it */
        }
        slot = f->unbacked.head;
        unlink_slot(a, &f->unbacked, slot);
        a->backed_bytes += bytes;
        back(a, offset_of(a, size_class, slot), bytes, quota);
    } else {
        return false; /* the last free slots of the class are being prefaulted */
    }
    a->state[slot] = SLOT_OWNED;
    *offset = offset_of(a, size_class, slot);
    return true;
}

void arena_alloc_give(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes, bool clean)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    if (is_dense(a, offset)) { /* a fixed offset: no reuse by other entries */
        punch(a, offset, slot_bytes);
        mark_dense(a, offset, slot_bytes, false);
        sl_assert(a->backed_bytes >= slot_bytes);
        a->backed_bytes -= slot_bytes;
        return;
    }
    uint32_t class = arena_class_of(&a->layout, slot_bytes);
    uint32_t slot = slot_at(a, class, offset);
    sl_assert(a->state[slot] == SLOT_OWNED);
    a->state[slot] = SLOT_BACKED;
    link_head(a, &a->family[class].backed, slot);
    a->free_backed_bytes += slot_bytes;
    if (!clean)
        punch_free(a, class, slot);
}

bool arena_alloc_trim(struct arena_alloc *a, uint64_t quota, uint64_t max_bytes)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    uint64_t start = a->backed_bytes;
    while (a->backed_bytes > quota && (max_bytes == 0 || start - a->backed_bytes < max_bytes))
        if (!punch_one(a))
            break;
    return a->backed_bytes <= quota;
}

/* Class with the smallest backed share of its slots, so that no class starves; NIL: none. */
static uint32_t poorest_class(const struct arena_alloc *a, uint64_t headroom)
{
    uint32_t best = NIL;
    double best_share = 2;
    for (uint32_t c = 0; c < a->layout.classes; c++) {
        const struct list *l = &a->family[c].unbacked;
        if (l->count == 0 || slot_bytes_of(a, c) > headroom)
            continue;
        double share = 1 - (double)l->count / a->layout.class[c].slots;
        if (share < best_share) {
            best_share = share;
            best = c;
        }
    }
    return best;
}

/* Adjacent slots without a gap. */
static uint64_t unbacked_run(struct arena_alloc *a, uint32_t class, uint64_t max)
{
    struct family *f = &a->family[class];
    uint32_t slot = f->unbacked.head, end = f->first + a->layout.class[class].slots;
    uint64_t slot_bytes = slot_bytes_of(a, class), total = 0;
    do {
        unlink_slot(a, &f->unbacked, slot);
        a->state[slot++] = SLOT_PREFAULT;
        total += slot_bytes;
    } while (slot < end && stride_of(a, class) == slot_bytes && a->state[slot] == SLOT_UNBACKED &&
             total + slot_bytes <= max);
    return total;
}

bool arena_alloc_prefault_next(struct arena_alloc *a, uint64_t quota, uint64_t max_bytes,
                               struct arena_range *range)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    uint64_t headroom = quota > a->backed_bytes ? quota - a->backed_bytes : 0;
    uint32_t class = poorest_class(a, headroom);
    if (class == NIL)
        return false;
    uint64_t offset = offset_of(a, class, a->family[class].unbacked.head);
    uint64_t spare = stride_of(a, class) - slot_bytes_of(a, class);
    bool huge = a->huge && arena_class_huge(&a->layout.class[class]);
    *range = (struct arena_range){
        .offset = offset,
        .bytes = unbacked_run(a, class, max_bytes < headroom ? max_bytes : headroom),
        .huge = huge,
    };
    if (huge && range->bytes + spare <= headroom)
        range->spare_bytes = spare;
    a->backed_bytes += range->bytes + range->spare_bytes;
    return true;
}

static uint32_t class_at(const struct arena_alloc *a, uint64_t offset)
{
    uint32_t low = 0, high = a->layout.classes;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (a->layout.class[middle].region_offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void arena_alloc_prefaulted(struct arena_alloc *a, const struct arena_range *range, bool ok)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    uint32_t class = class_at(a, range->offset);
    uint64_t slot_bytes = slot_bytes_of(a, class);
    sl_assert(range->bytes > 0 && range->bytes % slot_bytes == 0);
    if (!ok) /* part of it may be allocated */
        punch(a, range->offset, range->bytes);
    uint32_t first = slot_at(a, class, range->offset);
    for (uint32_t slot = first; slot < first + range->bytes / slot_bytes; slot++) {
        sl_assert(a->state[slot] == SLOT_PREFAULT);
        a->state[slot] = ok ? SLOT_BACKED : SLOT_UNBACKED;
        if (ok)
            link_tail(a, &a->family[class].backed, slot);
        else
            link_tail(a, &a->family[class].unbacked, slot);
    }
    a->backed_bytes -= range->spare_bytes;
    if (ok)
        a->free_backed_bytes += range->bytes;
    else
        a->backed_bytes -= range->bytes;
}

void arena_alloc_dense_take(struct arena_alloc *a, uint64_t offset, uint64_t slot_bytes,
                            uint64_t quota)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    sl_assert(is_dense(a, offset));
    a->backed_bytes += slot_bytes;
    back(a, offset, slot_bytes, quota);
}

void arena_alloc_stats_get(const struct arena_alloc *a, struct arena_alloc_stats *stats)
{
    OBJ_CHECK(a, ALLOC_MAGIC);
    *stats = (struct arena_alloc_stats){.backed_bytes = a->backed_bytes,
                                        .free_backed_bytes = a->free_backed_bytes,
                                        .punched_bytes = a->punched_bytes,
                                        .punch_ns = a->punch_ns,
                                        .punches = a->punches,
                                        .huge_bytes = a->huge_bytes,
                                        .huge_ns = a->huge_ns,
                                        .huge_failed = a->huge_failed};
}
