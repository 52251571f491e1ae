/* SPDX-License-Identifier: Apache-2.0 */
/* The arena's layout, and its allocator against an oracle that stores only the owner of each
 * range. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "shm/arena/arena.h"
#include "tests/unit/shm/shm_test.h"

static const uint32_t small[] = {3, 1, 7, 4};
static const uint32_t large[] = {300, 1, 850, 512}; /* in pages: all but one may be huge */
static const uint32_t *sizes = small;               /* of the open rig */
#define EXPERTS  40
#define ENTRIES  (2 * EXPERTS)
#define PAGES(n) ((uint64_t)(n)*PAGE_BYTES)

struct rig {
    struct model_index *model;
    struct arena_layout layout;
    struct segment arena;
    struct arena_alloc *a;
};

static struct rig rig_open(void)
{
    struct rig r = {.model = test_model(3, 2, EXPERTS, sizes, 4)};
    struct error e;
    ck_assert_int_eq(arena_layout_make(r.model, &r.layout, &e), 0);
    r.arena = test_segment(SEGMENT_ARENA, r.layout.bytes);
    r.a = arena_alloc_create(&r.arena, &r.layout, true, &e);
    ck_assert_ptr_nonnull(r.a);
    return r;
}

static void rig_close(struct rig *r)
{
    arena_alloc_destroy(r->a);
    segment_detach(&r->arena);
    free(r->model);
    sizes = small;
}

static struct arena_alloc_stats stats_of(const struct rig *r)
{
    struct arena_alloc_stats s;
    arena_alloc_stats_get(r->a, &s);
    return s;
}

/* Bytes the kernel has allocated, without the header page. */
static uint64_t kernel_bytes(const struct rig *r)
{
    return segment_allocated_bytes(r->arena.fd) - PAGE_BYTES;
}

START_TEST(layout)
{
    struct rig r = rig_open();
    const struct arena_layout *l = &r.layout;
    ck_assert_uint_eq(l->classes, 4);
    ck_assert_uint_eq(l->dense_offset, PAGE_BYTES);
    ck_assert_uint_eq(l->dense_region_bytes, PAGES(3));
    uint64_t at = PAGES(4);
    for (uint32_t c = 0; c < 4; c++) {
        static const uint32_t ascending[] = {1, 3, 4, 7};
        ck_assert_uint_eq(l->class[c].slot_bytes, PAGES(ascending[c]));
        ck_assert_uint_eq(l->class[c].slots, ENTRIES / 4);
        ck_assert_uint_eq(l->class[c].region_offset, at);
        ck_assert_uint_eq(arena_class_of(l, PAGES(ascending[c])), c);
        at += PAGES(ascending[c]) * (ENTRIES / 4);
    }
    ck_assert_uint_eq(l->bytes, at);
    ck_assert_uint_eq(arena_dense_offset(r.model, l, 2), PAGES(3));
    rig_close(&r);
}
END_TEST

START_TEST(large_slots_share_no_huge_page)
{
    sizes = large;
    struct rig r = rig_open();
    struct model_entry *entries = (void *)(r.model + 1);
    struct error e;
    entries[1].slot_bytes = PAGES(850); /* a dense one */
    ck_assert_int_eq(arena_layout_make(r.model, &r.layout, &e), 0);
    ck_assert_uint_eq(arena_dense_offset(r.model, &r.layout, 0), PAGE_BYTES);
    ck_assert_uint_eq(arena_dense_offset(r.model, &r.layout, 1), HUGE_PAGE_BYTES);
    ck_assert_uint_eq(arena_dense_offset(r.model, &r.layout, 2), 3 * HUGE_PAGE_BYTES);
    ck_assert_uint_eq(r.layout.dense_region_bytes, 3 * HUGE_PAGE_BYTES);
    uint64_t at = PAGE_BYTES + r.layout.dense_region_bytes;
    for (uint32_t c = 0; c < r.layout.classes; c++) {
        const struct arena_class *class = &r.layout.class[c];
        bool huge = class->slot_bytes >= ARENA_HUGE_MIN;
        uint64_t unit = huge ? HUGE_PAGE_BYTES : PAGE_BYTES;
        ck_assert_uint_eq(class->region_offset, align_up(at, unit));
        ck_assert_uint_eq(class->stride_bytes, align_up(class->slot_bytes, unit));
        ck_assert(arena_class_has(class, class->region_offset + class->stride_bytes));
        ck_assert(!arena_class_has(class, class->region_offset + PAGE_BYTES) || !huge);
        at = class->region_offset + class->slots * class->stride_bytes;
        ck_assert(!arena_class_has(class, at));
    }
    ck_assert_uint_eq(r.layout.bytes, at);
    rig_close(&r);
}
END_TEST

START_TEST(too_many_classes)
{
    uint32_t many[ARENA_CLASSES_MAX + 1];
    for (uint32_t i = 0; i <= ARENA_CLASSES_MAX; i++)
        many[i] = i + 1;
    struct arena_layout l;
    struct error e;
    struct model_index *max_classes = test_model(0, 1, ARENA_CLASSES_MAX, many, ARENA_CLASSES_MAX);
    ck_assert_int_eq(arena_layout_make(max_classes, &l, &e), 0);
    free(max_classes);
    struct model_index *over = test_model(0, 1, ARENA_CLASSES_MAX + 1, many, ARENA_CLASSES_MAX + 1);
    ck_assert_int_eq(arena_layout_make(over, &l, &e), -1);
    ck_assert_int_eq(e.code, ERR_BAD_INPUT);
    free(over);
}
END_TEST

START_TEST(too_large)
{
    struct model_index *m = test_model(0, 1, 4, sizes, 4);
    struct model_entry *entries = (void *)(m + 1);
    for (int i = 0; i < 4; i++)
        entries[i].slot_bytes = UINT64_C(1) << 62;
    struct arena_layout l;
    struct error e;
    ck_assert_int_eq(arena_layout_make(m, &l, &e), -1);
    ck_assert_int_eq(e.code, ERR_BAD_INPUT);
    free(m);
}
END_TEST

START_TEST(prefers_backed_and_moves_bytes)
{
    struct rig r = rig_open();
    uint64_t a, b, quota = PAGES(8);
    uint32_t three = arena_class_of(&r.layout, PAGES(3)),
             seven = arena_class_of(&r.layout, PAGES(7));
    ck_assert(arena_alloc_take(r.a, three, quota, &a));
    ck_assert_int_eq(segment_allocate(r.arena.fd, a, PAGES(3)), 0);
    ck_assert(!arena_alloc_take(r.a, seven, quota, &b)); /* 3 are owned: none can be punched */
    arena_alloc_give(r.a, a, PAGES(3), true);
    ck_assert_uint_eq(stats_of(&r).free_backed_bytes, PAGES(3));
    ck_assert(arena_alloc_take(r.a, three, quota, &b));
    ck_assert_uint_eq(a, b); /* reuses the backed slot */
    arena_alloc_give(r.a, b, PAGES(3), true);
    ck_assert(arena_alloc_take(r.a, seven, quota, &b)); /* bytes of the other class are punched */
    ck_assert_uint_eq(stats_of(&r).backed_bytes, PAGES(7));
    ck_assert_uint_eq(kernel_bytes(&r), 0);
    arena_alloc_give(r.a, b, PAGES(7), false);
    ck_assert_uint_eq(stats_of(&r).backed_bytes, 0);
    rig_close(&r);
}
END_TEST

START_TEST(unclean_is_punched_at_once)
{
    struct rig r = rig_open();
    uint64_t at;
    ck_assert(arena_alloc_take(r.a, 1, UINT64_MAX, &at));
    memset((char *)r.arena.base + at, 0x55, PAGES(3));
    arena_alloc_give(r.a, at, PAGES(3), false);
    ck_assert_uint_eq(kernel_bytes(&r), 0);
    ck_assert_int_eq(((char *)r.arena.base)[at], 0);
    rig_close(&r);
}
END_TEST

START_TEST(dense_is_counted)
{
    struct rig r = rig_open();
    uint64_t at = arena_dense_offset(r.model, &r.layout, 1);
    arena_alloc_dense_take(r.a, at, PAGE_BYTES, UINT64_MAX);
    ck_assert_int_eq(segment_allocate(r.arena.fd, at, PAGE_BYTES), 0);
    ck_assert_uint_eq(stats_of(&r).backed_bytes, PAGE_BYTES);
    arena_alloc_give(r.a, at, PAGE_BYTES, true);
    ck_assert_uint_eq(stats_of(&r).backed_bytes, 0);
    ck_assert_uint_eq(kernel_bytes(&r), 0);
    rig_close(&r);
}
END_TEST

START_TEST(prefault)
{
    struct rig r = rig_open();
    struct arena_range range;
    uint64_t total = 0, quota = PAGES(100);
    while (arena_alloc_prefault_next(r.a, quota, PAGES(6), &range)) {
        ck_assert(!range.huge && range.spare_bytes == 0);
        ck_assert(range.bytes <= PAGES(6) || range.bytes == PAGES(7)); /* one larger slot */
        ck_assert_int_eq(segment_allocate(r.arena.fd, range.offset, range.bytes), 0);
        arena_alloc_prefaulted(r.a, &range, true);
        total += range.bytes;
        ck_assert_uint_eq(stats_of(&r).backed_bytes, total);
    }
    ck_assert_uint_eq(total, PAGES(100)); /* slots of one page fill the rest */
    ck_assert_uint_eq(stats_of(&r).free_backed_bytes, total);
    ck_assert_uint_eq(kernel_bytes(&r), total);
    ck_assert(!arena_alloc_trim(r.a, PAGES(50), PAGES(10))); /* in slices */
    ck_assert_uint_lt(stats_of(&r).backed_bytes, PAGES(91));
    ck_assert(arena_alloc_trim(r.a, PAGES(50), 0));
    ck_assert_uint_eq(kernel_bytes(&r), stats_of(&r).backed_bytes);
    ck_assert(arena_alloc_prefault_next(r.a, PAGES(60), PAGES(6), &range));
    uint64_t before = stats_of(&r).backed_bytes;
    arena_alloc_prefaulted(r.a, &range, false); /* /dev/shm was full */
    ck_assert_uint_eq(stats_of(&r).backed_bytes, before - range.bytes);
    rig_close(&r);
}
END_TEST

/* ---- random operations ---------------------------------------------------------------------- */

struct oracle {
    uint64_t offset[ENTRIES]; /* 0: the entry owns nothing */
    uint64_t owned_bytes;
    uint32_t random;
};

static uint32_t draw(struct oracle *o, uint32_t below)
{
    o->random = o->random * 1664525u + 1013904223u;
    return (o->random >> 8) % below;
}

static uint64_t bytes_of(uint32_t entry)
{
    return PAGES(sizes[entry % 4]);
}

static void check_no_overlap(const struct rig *r, const struct oracle *o, uint32_t entry)
{
    const struct arena_class *c = &r->layout.class[arena_class_of(&r->layout, bytes_of(entry))];
    uint64_t at = o->offset[entry];
    ck_assert_uint_ge(at, c->region_offset);
    ck_assert_uint_le(at + c->slot_bytes, c->region_offset + c->slots * c->stride_bytes);
    ck_assert_uint_eq((at - c->region_offset) % c->stride_bytes, 0);
    for (uint32_t i = 0; i < ENTRIES; i++)
        ck_assert(i == entry || o->offset[i] == 0 || at + bytes_of(entry) <= o->offset[i] ||
                  o->offset[i] + bytes_of(i) <= at);
}

static void random_take(struct rig *r, struct oracle *o, uint32_t entry, uint64_t quota)
{
    uint64_t bytes = bytes_of(entry), at;
    if (o->offset[entry])
        return;
    bool fits = o->owned_bytes + bytes <= quota;
    bool taken = arena_alloc_take(r->a, arena_class_of(&r->layout, bytes), quota, &at);
    ck_assert_int_eq(taken, fits); /* every entry has its own slot: only bytes can run out */
    if (!taken)
        return;
    o->offset[entry] = at;
    o->owned_bytes += bytes;
    check_no_overlap(r, o, entry);
    ck_assert_int_eq(segment_allocate(r->arena.fd, at, bytes), 0); /* as a loader's reads do */
    memset((char *)r->arena.base + at, (int)entry + 1, bytes);
}

static void random_give(struct rig *r, struct oracle *o, uint32_t entry, bool clean)
{
    uint64_t at = o->offset[entry];
    if (!at)
        return;
    for (uint64_t i = 0; i < bytes_of(entry); i += PAGE_BYTES) /* no other writes */
        ck_assert_int_eq(((unsigned char *)r->arena.base)[at + i], entry + 1);
    arena_alloc_give(r->a, at, bytes_of(entry), clean);
    o->offset[entry] = 0;
    o->owned_bytes -= bytes_of(entry);
    unsigned char byte = 1;
    ck_assert_int_eq(pread(r->arena.fd, &byte, 1, (off_t)at), 1); /* a CPU load would back it */
    ck_assert_int_eq(byte, clean ? entry + 1 : 0);
}

static void random_prefault(struct rig *r, struct oracle *o, uint64_t quota)
{
    struct arena_range range;
    struct segment_huge huge = {0};
    if (!arena_alloc_prefault_next(r->a, quota, PAGES(1 + draw(o, 12)), &range))
        return;
    ck_assert_uint_le(stats_of(r).backed_bytes, quota); /* spare bytes included */
    bool ok = draw(o, 4) != 0;
    if (ok && range.huge)
        ck_assert_int_eq(
            segment_allocate_huge(&r->arena, range.offset, range.bytes, range.spare_bytes, &huge),
            0);
    else if (ok)
        ck_assert_int_eq(segment_allocate(r->arena.fd, range.offset, range.bytes), 0);
    else if (draw(o, 2)) /* fails half-way */
        ck_assert_int_eq(segment_allocate(r->arena.fd, range.offset, PAGE_BYTES), 0);
    arena_alloc_prefaulted(r->a, &range, ok);
}

/* The cache died: a new allocator reads which ranges are owned and cleans up the rest. */
static void random_restart(struct rig *r, struct oracle *o)
{
    struct error e = {.text = ""};
    arena_alloc_destroy(r->a);
    r->a = arena_alloc_create(&r->arena, &r->layout, true, &e);
    ck_assert_ptr_nonnull(r->a);
    for (uint32_t i = 0; i < ENTRIES; i++)
        if (o->offset[i])
            arena_alloc_own(r->a, o->offset[i], bytes_of(i));
    ck_assert_msg(arena_alloc_settle(r->a, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(stats_of(r).backed_bytes, o->owned_bytes);
    ck_assert_uint_eq(stats_of(r).free_backed_bytes, 0);
}

static void random_steps(uint32_t seed, int steps, uint64_t quota_pages)
{
    struct rig r = rig_open();
    struct oracle o = {.random = seed};
    uint64_t quota = PAGES(quota_pages);
    for (int step = 0; step < steps; step++) {
        uint32_t entry = draw(&o, ENTRIES), kind = draw(&o, 100);
        if (kind < 45)
            random_take(&r, &o, entry, quota);
        else if (kind < 80)
            random_give(&r, &o, entry, draw(&o, 4) != 0);
        else if (kind < 92)
            random_prefault(&r, &o, quota);
        else if (kind < 98) {
            quota = PAGES(quota_pages / 3 + draw(&o, 2 * (uint32_t)quota_pages));
            bool obeyed = arena_alloc_trim(r.a, quota, 0);
            ck_assert_int_eq(obeyed, o.owned_bytes <= quota);
        } else {
            random_restart(&r, &o);
        }
        struct arena_alloc_stats s = stats_of(&r);
        ck_assert_uint_eq(s.backed_bytes - s.free_backed_bytes, o.owned_bytes);
        /* Always exact to the byte; small slots have no pages before they are written. */
        ck_assert_uint_eq(s.backed_bytes, kernel_bytes(&r));
    }
    rig_close(&r);
}

START_TEST(random_operations)
{
    random_steps((uint32_t)_i + 1, 4000, 120);
}
END_TEST

START_TEST(random_operations_large)
{
    sizes = large;
    random_steps((uint32_t)_i + 1, 600, 12000);
}
END_TEST

/* Whether this machine supports huge pages in segments. */
static bool huge_pages_here(void)
{
    struct segment s = test_segment(SEGMENT_ARENA, 4 * HUGE_PAGE_BYTES);
    struct segment_huge huge;
    ck_assert_int_eq(segment_allocate_huge(&s, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, 0, &huge), 0);
    ck_assert_uint_eq(segment_allocated_bytes(s.fd), PAGE_BYTES + HUGE_PAGE_BYTES);
    segment_detach(&s);
    if (huge.status != 0)
        fprintf(stderr, "SKIP huge pages: %s\n", strerror(-huge.status));
    return huge.status == 0;
}

/* Whether the kernel had any for this arena: it may run out at any time. */
static bool huge_pages_had(const struct rig *r)
{
    if (stats_of(r).huge_failed > 0)
        fprintf(stderr, "SKIP huge pages: the kernel has none now\n");
    return stats_of(r).huge_failed == 0;
}

/* A large slot consists of huge pages, allocates exactly its size, and leaves nothing allocated. */
START_TEST(large_slots_are_huge)
{
    sizes = large;
    struct rig r = rig_open();
    uint64_t at, quota = PAGES(2048);
    uint32_t class = arena_class_of(&r.layout, PAGES(850));
    ck_assert(arena_alloc_take(r.a, class, quota, &at));
    ck_assert_uint_eq(at % HUGE_PAGE_BYTES, 0);
    ck_assert_uint_eq(kernel_bytes(&r), PAGES(850));
    for (uint64_t i = 0; i < PAGES(850); i++)
        ck_assert_int_eq(((char *)r.arena.base)[at + i], 0);
    if (huge_pages_had(&r))
        ck_assert_uint_eq(stats_of(&r).huge_bytes, PAGES(850));
    memset((char *)r.arena.base + at, 0x55, PAGES(850));
    arena_alloc_give(r.a, at, PAGES(850), false);
    ck_assert_uint_eq(kernel_bytes(&r), 0);
    ck_assert_int_eq(((char *)r.arena.base)[at], 0);
    rig_close(&r);
}
END_TEST

/* A slot of several parts: each of them is a heartbeat, and all of its pages are there. */
START_TEST(large_slots_keep_the_heartbeat)
{
    static const uint32_t parts[] = {3, 1, 40000, 4}; /* 156 MiB */
    _Atomic uint64_t beat_ns = 0;
    sizes = parts;
    struct rig r = rig_open();
    uint64_t at, before = clock_now_ns();
    arena_alloc_beat(r.a, &beat_ns);
    ck_assert(arena_alloc_take(r.a, arena_class_of(&r.layout, PAGES(40000)), PAGES(50000), &at));
    ck_assert_uint_ge(atomic_load(&beat_ns), before);
    ck_assert_uint_eq(kernel_bytes(&r), PAGES(40000));
    rig_close(&r);
}
END_TEST

/* When the quota has no space for the tail of the last huge page, it is never allocated. */
START_TEST(no_space_for_the_end_of_a_huge_page)
{
    sizes = large;
    struct rig r = rig_open();
    uint64_t at;
    ck_assert(arena_alloc_take(r.a, arena_class_of(&r.layout, PAGES(850)), PAGES(1000), &at));
    ck_assert_uint_eq(kernel_bytes(&r), PAGES(850));
    if (huge_pages_had(&r))
        ck_assert_uint_eq(stats_of(&r).huge_bytes, HUGE_PAGE_BYTES);
    rig_close(&r);
}
END_TEST

/* A process with huge pages disabled gets them during this call only. */
START_TEST(huge_pages_where_they_are_forbidden)
{
    bool here = huge_pages_here();
    ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    struct segment s = test_segment(SEGMENT_ARENA, 4 * HUGE_PAGE_BYTES);
    struct segment_huge huge;
    ck_assert_int_eq(segment_allocate_huge(&s, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, 0, &huge), 0);
    ck_assert_int_eq(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
    ck_assert_uint_eq(huge.bytes, here ? HUGE_PAGE_BYTES : 0);
    segment_detach(&s);
}
END_TEST

/* The cache died before it freed the tail of a huge page. */
START_TEST(settle_sees_after_a_slot)
{
    sizes = large;
    struct rig r = rig_open();
    struct error e = {.text = ""};
    uint64_t at;
    ck_assert(arena_alloc_take(r.a, arena_class_of(&r.layout, PAGES(850)), PAGES(2048), &at));
    ck_assert_int_eq(segment_allocate(r.arena.fd, at, 2 * HUGE_PAGE_BYTES), 0);
    arena_alloc_destroy(r.a);
    r.a = arena_alloc_create(&r.arena, &r.layout, true, &e);
    arena_alloc_own(r.a, at, PAGES(850));
    ck_assert_msg(arena_alloc_settle(r.a, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(kernel_bytes(&r), PAGES(850));
    rig_close(&r);
}
END_TEST

START_TEST(huge_pages_off)
{
    sizes = large;
    struct rig r = rig_open();
    struct error e;
    uint64_t at;
    arena_alloc_destroy(r.a);
    r.a = arena_alloc_create(&r.arena, &r.layout, false, &e);
    ck_assert(arena_alloc_take(r.a, arena_class_of(&r.layout, PAGES(850)), PAGES(2048), &at));
    ck_assert_uint_eq(kernel_bytes(&r), 0); /* allocated by a loader's reads */
    ck_assert_uint_eq(stats_of(&r).huge_bytes, 0);
    rig_close(&r);
}
END_TEST

START_TEST(settle_sees_what_was_never_written)
{
    struct rig r = rig_open();
    struct error e;
    uint64_t at;
    ck_assert(arena_alloc_take(r.a, 0, UINT64_MAX, &at));
    ck_assert_int_eq(segment_allocate(r.arena.fd, PAGE_BYTES, r.layout.bytes - PAGE_BYTES), 0);
    arena_alloc_destroy(r.a);
    r.a = arena_alloc_create(&r.arena, &r.layout, true, &e);
    arena_alloc_own(r.a, at, PAGE_BYTES);
    arena_alloc_own(r.a, arena_dense_offset(r.model, &r.layout, 1), PAGE_BYTES);
    ck_assert_int_eq(arena_alloc_settle(r.a, &e), 0);
    ck_assert_uint_eq(kernel_bytes(&r), PAGES(2));
    rig_close(&r);
}
END_TEST

START_TEST(two_entries_in_one_range)
{
    struct rig r = rig_open();
    uint64_t at = r.layout.class[0].region_offset;
    arena_alloc_own(r.a, at, PAGE_BYTES);
    arena_alloc_own(r.a, at, PAGE_BYTES); /* an assertion */
}
END_TEST

START_TEST(many_slots)
{
    static const uint32_t one[] = {1};
    struct model_index *m = test_model(0, 50, 4096, one, 1); /* 204 800 slots */
    struct arena_layout l;
    struct error e;
    ck_assert_int_eq(arena_layout_make(m, &l, &e), 0);
    struct segment arena = test_segment(SEGMENT_ARENA, l.bytes);
    struct arena_alloc *a = arena_alloc_create(&arena, &l, true, &e);
    ck_assert_ptr_nonnull(a);
    uint64_t at, first = 0;
    for (uint32_t i = 0; i < 50 * 4096; i++) {
        ck_assert(arena_alloc_take(a, 0, UINT64_MAX, &at));
        first = i == 0 ? at : first;
    }
    ck_assert(!arena_alloc_take(a, 0, UINT64_MAX, &at));
    arena_alloc_give(a, first, PAGE_BYTES, true);
    ck_assert(arena_alloc_take(a, 0, UINT64_MAX, &at));
    ck_assert_uint_eq(at, first);
    arena_alloc_destroy(a);
    segment_detach(&arena);
    free(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *t = tcase_create("arena");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, layout);
    tcase_add_test(t, large_slots_share_no_huge_page);
    tcase_add_test(t, too_many_classes);
    tcase_add_test(t, too_large);
    tcase_add_test(t, prefers_backed_and_moves_bytes);
    tcase_add_test(t, unclean_is_punched_at_once);
    tcase_add_test(t, dense_is_counted);
    tcase_add_test(t, prefault);
    tcase_add_test(t, large_slots_are_huge);
    tcase_add_test(t, large_slots_keep_the_heartbeat);
    tcase_add_test(t, no_space_for_the_end_of_a_huge_page);
    tcase_add_test(t, huge_pages_where_they_are_forbidden);
    tcase_add_test(t, huge_pages_off);
    tcase_add_test(t, settle_sees_after_a_slot);
    tcase_add_loop_test(t, random_operations, 0, 8);
    tcase_add_loop_test(t, random_operations_large, 0, 4);
    tcase_add_test(t, settle_sees_what_was_never_written);
    tcase_add_test_raise_signal(t, two_entries_in_one_range, 6);
    tcase_add_test(t, many_slots);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
