/* SPDX-License-Identifier: Apache-2.0 */
/* The table of homes, and the mappings that follow from it. In this process, a page is mapped at
 * its home; pages without one, and rings, are mapped at the offset of the slot, as at the start. */
#include "shm/kv/pages.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/assert.h"
#include "shm/kv/regions.h"

#define NO_HOME UINT32_MAX /* a page without memory */

_Static_assert(KV_SLOTS_MAX < UINT8_MAX, "homes are bytes");

uint32_t kv_page_tokens(const struct kv_head *h)
{
    uint32_t tiles = 1;
    for (uint32_t region = 0; region < kv_region_count(h); region++)
        while (!kv_region_is_ring(h, region) &&
               tiles * kv_region_tile_bytes(h, region) % PAGE_BYTES != 0)
            tiles *= 2;
    return tiles * KV_TILE;
}

uint32_t kv_page_count(const struct kv_head *h)
{
    return (h->context + h->page_tokens - 1) / h->page_tokens;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t page_of(const struct kv *kv, uint32_t token)
{
    return token / kv->head->page_tokens;
}

static uint32_t pages_up_to(const struct kv *kv, uint32_t token)
{
    return (token + kv->head->page_tokens - 1) / kv->head->page_tokens;
}

/* The last page of a slot may be smaller than the others. */
static uint32_t first_of(const struct kv *kv, uint32_t page)
{
    return least(page * kv->head->page_tokens, kv->head->context);
}

/* ---- the table ---- */

/* Home + 1; 0: none. */
static _Atomic uint8_t *entry_of(const struct kv *kv, uint32_t slot, uint32_t page)
{
    const struct kv_head *h = kv->head;
    sl_assert(slot < kv->slots && page < h->pages);
    char *homes = (char *)kv->segment.base + h->homes_offset;
    return (_Atomic uint8_t *)(void *)homes + (size_t)slot * h->pages + page;
}

static uint32_t home_of(const struct kv *kv, uint32_t slot, uint32_t page)
{
    uint32_t entry = atomic_load(entry_of(kv, slot, page));
    return entry > 0 && entry <= kv->slots ? entry - 1 : NO_HOME;
}

static void set_home(const struct kv *kv, uint32_t slot, uint32_t page, uint32_t home)
{
    atomic_store(entry_of(kv, slot, page), (uint8_t)(home == NO_HOME ? 0 : home + 1));
}

/* A slot but `except` that has the page at this home; NO_HOME: none. */
static uint32_t user_of(const struct kv *kv, uint32_t home, uint32_t page, uint32_t except)
{
    for (uint32_t slot = 0; slot < kv->slots; slot++)
        if (slot != except && home_of(kv, slot, page) == home)
            return slot;
    return NO_HOME;
}

/* Up to which position slots but `except` use the page at this home. */
static uint32_t used_to(const struct kv *kv, uint32_t home, uint32_t page, uint32_t except)
{
    uint32_t most = first_of(kv, page), end = first_of(kv, page + 1);
    for (uint32_t slot = 0; slot < kv->slots; slot++) {
        if (slot == except || home_of(kv, slot, page) != home)
            continue;
        uint32_t to = least(atomic_load(&kv->head->slot[slot].allocated), end);
        most = to > most ? to : most;
    }
    return most;
}

/* The slot's own place, which is mapped already; else the one of the page before, so that one
 * mapping serves both; else any. There are as many as slots, of which this one has none. */
static uint32_t free_home(const struct kv *kv, uint32_t slot, uint32_t page)
{
    if (user_of(kv, slot, page, NO_HOME) == NO_HOME)
        return slot;
    uint32_t before = page > 0 ? home_of(kv, slot, page - 1) : NO_HOME;
    if (before != NO_HOME && user_of(kv, before, page, NO_HOME) == NO_HOME)
        return before;
    for (uint32_t home = 0; home < kv->slots; home++)
        if (user_of(kv, home, page, slot) == NO_HOME && home_of(kv, slot, page) != home)
            return home;
    sl_panic("kv page %" PRIu32 ": more homes than slots", page);
}

/* ---- mappings, and memory ---- */

/* A part of all regions but rings: positions [from, to), whose memory is at this home. */
struct part {
    uint32_t home, from, to;
};

/* Positions from `from` on, up to `end`, as far as their pages have one home. */
static struct part part_at(const struct kv *kv, uint32_t slot, uint32_t from, uint32_t end)
{
    struct part p = {home_of(kv, slot, page_of(kv, from)), from, from};
    while (p.to < end && home_of(kv, slot, page_of(kv, p.to)) == p.home)
        p.to = least(end, first_of(kv, page_of(kv, p.to) + 1));
    return p;
}

/* Bytes of the part in a region, relative to that of its home; false: it has none there. */
static bool range_of(const struct kv_head *h, uint32_t region, const struct part *p, uint64_t *at,
                     uint64_t *bytes)
{
    if (kv_region_is_ring(h, region))
        return false;
    *at = kv_region_bytes(h, region, p->from);
    *bytes = kv_region_bytes(h, region, p->to) - *at;
    return *bytes > 0;
}

static void report(const struct kv_report *r)
{
    if (r && r->alive)
        r->alive(r->arg);
}

/* 0 or -errno. Whole pages. */
static int map_part(const struct kv *kv, uint32_t slot, const struct part *p,
                    const struct kv_report *r)
{
    uint64_t at, bytes;
    for (uint32_t region = 0; region < kv_region_count(kv->head); region++) {
        if (!range_of(kv->head, region, p, &at, &bytes))
            continue;
        int rc = segment_map(&kv->segment, kv_region_offset(kv, slot, region) + at, bytes,
                             kv_region_offset(kv, p->home, region) + at);
        report(r);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void punch_part(const struct kv *kv, const struct part *p, const struct kv_report *r)
{
    uint64_t at, bytes;
    for (uint32_t region = 0; region < kv_region_count(kv->head); region++) {
        if (!range_of(kv->head, region, p, &at, &bytes))
            continue;
        kv_punch(kv, kv_region_offset(kv, p->home, region) + at, bytes);
        report(r);
    }
}

static int allocate_part(const struct kv *kv, const struct part *p, const struct kv_report *r)
{
    uint64_t at, bytes;
    for (uint32_t region = 0; region < kv_region_count(kv->head); region++) {
        if (!range_of(kv->head, region, p, &at, &bytes))
            continue;
        int rc =
            segment_allocate(kv->segment.fd, kv_region_offset(kv, p->home, region) + at, bytes);
        report(r);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int cannot_map(int rc, struct error *error)
{
    return error_set_errno(error, ERR_NO_MEMORY, -rc,
                           "cannot map keys and values (vm.max_map_count bounds the mappings)");
}

/* At the offset of the slot, as before anything was shared; this also frees page tables. Of pages
 * that were mapped there all the time, only page tables are freed. */
static void map_back(const struct kv *kv, uint32_t slot, uint32_t first, uint32_t end, bool moved,
                     const struct kv_report *r)
{
    struct part p = {slot, first_of(kv, first), first_of(kv, end)};
    uint64_t at, bytes;
    int rc = moved ? map_part(kv, slot, &p, r) : 0;
    if (rc != 0) /* there may be no mapping at all now */
        sl_panic("cannot map the kv segment again: %s", strerror(-rc));
    for (uint32_t region = 0; !moved && region < kv_region_count(kv->head); region++)
        if (range_of(kv->head, region, &p, &at, &bytes))
            segment_free_tables(&kv->segment, kv_region_offset(kv, slot, region) + at, bytes);
}

/* ---- pages of a slot ---- */

int kv_pages_allocate(const struct kv *kv, uint32_t slot, uint32_t from, uint32_t end,
                      const struct kv_report *r)
{
    while (from < end) {
        struct part p = part_at(kv, slot, from, end);
        sl_assert(p.home != NO_HOME);
        int rc = allocate_part(kv, &p, r);
        if (rc != 0)
            return rc;
        from = p.to;
    }
    return 0;
}

static void forget(const struct kv *kv, uint32_t slot, uint32_t first, uint32_t end)
{
    for (uint32_t page = first; page < end; page++)
        set_home(kv, slot, page, NO_HOME);
}

/* The pages of positions [from, end), where their home is not the slot's own place. */
static int map_homes(const struct kv *kv, uint32_t slot, uint32_t from, uint32_t end)
{
    while (from < end) {
        struct part p = part_at(kv, slot, from, end);
        int rc = p.home != slot && p.home != NO_HOME ? map_part(kv, slot, &p, NULL) : 0;
        if (rc != 0)
            return rc;
        from = p.to;
    }
    return 0;
}

int kv_pages_assign(const struct kv *kv, uint32_t slot, uint32_t from, uint32_t end,
                    struct error *error)
{
    uint32_t first = page_of(kv, from), last = pages_up_to(kv, end);
    if (first < last && home_of(kv, slot, first) != NO_HOME)
        first++;
    for (uint32_t page = first; page < last; page++)
        set_home(kv, slot, page, free_home(kv, slot, page));
    int rc = first < last ? map_homes(kv, slot, first_of(kv, first), first_of(kv, last)) : 0;
    if (rc == 0)
        return 0;
    forget(kv, slot, first, last);
    map_back(kv, slot, first, last, true, NULL);
    return cannot_map(rc, error);
}

/* What no other slot uses of a page that this one has up to `tokens` only. */
static struct part unused_of(const struct kv *kv, uint32_t slot, uint32_t page, uint32_t tokens)
{
    uint32_t home = home_of(kv, slot, page), from = used_to(kv, home, page, slot);
    return (struct part){home, from > tokens ? from : tokens, first_of(kv, page + 1)};
}

void kv_pages_drop(const struct kv *kv, uint32_t slot, uint32_t tokens, uint32_t end,
                   const struct kv_report *r)
{
    uint32_t first = page_of(kv, tokens), last = pages_up_to(kv, end);
    struct part hole = {NO_HOME, 0, 0};
    bool moved = false;
    for (uint32_t page = first; page < last; page++) {
        if (home_of(kv, slot, page) == NO_HOME) {
            set_home(kv, slot, page, NO_HOME);
            continue;
        }
        struct part p = unused_of(kv, slot, page, tokens);
        if (first_of(kv, page) >= tokens) {
            moved = moved || p.home != slot;
            set_home(kv, slot, page, NO_HOME);
        }
        if (p.home == hole.home && p.from == hole.to) {
            hole.to = p.to;
            continue;
        }
        punch_part(kv, &hole, r);
        hole = p;
    }
    punch_part(kv, &hole, r);
    map_back(kv, slot, pages_up_to(kv, tokens), last, moved, r);
}

/* The positions of a page before `token`, from a slot that has the same page. */
static void copy_rows(const struct kv *kv, uint32_t from, uint32_t to, uint32_t page,
                      uint32_t token)
{
    const struct kv_head *h = kv->head;
    char *base = kv->segment.base;
    struct part p = {to, first_of(kv, page), token};
    uint64_t at, bytes;
    for (uint32_t region = 0; region < kv_region_count(h); region++)
        if (range_of(h, region, &p, &at, &bytes))
            memcpy(base + kv_region_offset(kv, to, region) + at,
                   base + kv_region_offset(kv, from, region) + at, bytes);
}

/* The table is stored last: until then, a successor finds the page that the others have. */
int kv_page_own(const struct kv *kv, uint32_t slot, uint32_t token, uint32_t end,
                struct error *error)
{
    uint32_t page = page_of(kv, token), home = home_of(kv, slot, page);
    if (first_of(kv, page) == token)
        return 0;
    sl_assert(home != NO_HOME);
    uint32_t other = user_of(kv, home, page, slot);
    if (other == NO_HOME)
        return 0;
    struct part all = {free_home(kv, slot, page), first_of(kv, page), first_of(kv, page + 1)};
    struct part used = {all.home, all.from, least(end, all.to)};
    int rc = allocate_part(kv, &used, NULL);
    if (rc != 0) {
        punch_part(kv, &all, NULL);
        return kv_no_space(
            kv_regions_bytes(kv->head, kv_region_count(kv->head), used.to - used.from), "KV cache",
            rc, error);
    }
    rc = map_part(kv, slot, &all, NULL);
    if (rc != 0) { /* as before: what was mapped is mapped again */
        punch_part(kv, &all, NULL);
        all.home = home;
        if (map_part(kv, slot, &all, NULL) != 0)
            sl_panic("cannot map the kv segment again: %s", strerror(-rc));
        return cannot_map(rc, error);
    }
    copy_rows(kv, other, slot, page, token);
    set_home(kv, slot, page, all.home);
    return 0;
}

/* ---- what slots have in common ---- */

uint64_t kv_pages_bytes(const struct kv *kv, uint32_t tokens)
{
    const struct part p = {0, 0, tokens};
    uint64_t all = 0, at, bytes;
    for (uint32_t region = 0; region < kv_region_count(kv->head); region++)
        all += range_of(kv->head, region, &p, &at, &bytes) ? bytes : 0;
    return all;
}

static bool same_page(const struct kv *kv, uint32_t a, uint32_t b, uint32_t page)
{
    uint32_t home = home_of(kv, a, page);
    return home != NO_HOME && home == home_of(kv, b, page);
}

/* By bisection: below where they part, all are in common, and above none. */
uint32_t kv_pages_common(const struct kv *kv, uint32_t a, uint32_t b)
{
    const struct kv_slot *s = kv->head->slot;
    uint32_t low = 0,
             high =
                 pages_up_to(kv, least(atomic_load(&s[a].allocated), atomic_load(&s[b].allocated)));
    if (high == 0 || !same_page(kv, a, b, 0))
        return 0;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (same_page(kv, a, b, middle - 1))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

bool kv_page_is_shared(const struct kv *kv, uint32_t slot, uint32_t token)
{
    uint32_t page = page_of(kv, token);
    uint32_t home = page < kv->head->pages ? home_of(kv, slot, page) : NO_HOME;
    return home != NO_HOME && user_of(kv, home, page, slot) != NO_HOME;
}

/* ---- a slot shares another one ---- */

static void copy_rings(const struct kv *kv, uint32_t from, uint32_t to, uint32_t tokens)
{
    const struct kv_head *h = kv->head;
    char *base = kv->segment.base;
    for (uint32_t region = 0; region < kv_region_count(h); region++)
        if (kv_region_is_ring(h, region))
            memcpy(base + kv_region_offset(kv, to, region),
                   base + kv_region_offset(kv, from, region), kv_region_bytes(h, region, tokens));
}

/* `allocated` first: a successor finds at most what there is. */
static int share_pages(const struct kv *kv, uint32_t from, uint32_t to, uint32_t pages,
                       struct error *error)
{
    uint32_t tokens = first_of(kv, pages);
    atomic_store(&kv->head->slot[to].allocated, tokens);
    for (uint32_t page = 0; page < pages; page++)
        set_home(kv, to, page, home_of(kv, from, page));
    int rc = map_homes(kv, to, 0, tokens);
    if (rc != 0)
        return cannot_map(rc, error);
    rc = kv_rings_allocate(kv, to, 0, tokens);
    return rc == 0 ? 0 : kv_no_space(kv_region_bytes(kv->head, 0, tokens), "rings", rc, error);
}

int kv_slot_share(const struct kv *kv, uint32_t from, uint32_t to, uint32_t tokens,
                  void (*alive)(void *arg), void *arg, struct error *error)
{
    uint32_t pages = page_of(kv, tokens), shared = first_of(kv, pages);
    sl_assert(from != to && tokens <= atomic_load(&kv->head->slot[from].allocated));
    sl_assert(atomic_load(&kv->head->slot[to].allocated) == 0);
    if (share_pages(kv, from, to, pages, error) != 0 ||
        kv_slot_resize(kv, to, tokens, alive, arg, error) != 0) {
        kv_slot_release(kv, to, alive, arg);
        return -1;
    }
    copy_rings(kv, from, to, tokens);
    if (shared < tokens)
        copy_rows(kv, from, to, pages, tokens);
    return 0;
}

/* ---- after a restart ---- */

/* Of a slot that grew when compute was killed, the last positions have no page yet. */
int kv_slot_map(const struct kv *kv, uint32_t slot, struct error *error)
{
    struct kv_slot *s = &kv->head->slot[slot];
    uint32_t end = least(atomic_load(&s->allocated), kv->head->context), page = 0;
    while (page < pages_up_to(kv, end) && home_of(kv, slot, page) != NO_HOME)
        page++;
    end = least(end, first_of(kv, page));
    atomic_store(&s->allocated, end);
    forget(kv, slot, page, kv->head->pages);
    kv_rings_drop(kv, slot, end, kv->head->context);
    int rc = map_homes(kv, slot, 0, first_of(kv, page));
    return rc == 0 ? 0 : cannot_map(rc, error);
}

void kv_pages_settle(const struct kv *kv, void (*alive)(void *arg), void *arg)
{
    const struct kv_report r = {alive, arg};
    for (uint32_t home = 0; home < kv->slots; home++) {
        struct part hole = {home, 0, 0};
        for (uint32_t page = 0; page < kv->head->pages; page++) {
            if (user_of(kv, home, page, NO_HOME) == NO_HOME) {
                hole.to = first_of(kv, page + 1);
                continue;
            }
            punch_part(kv, &hole, &r);
            hole.from = hole.to = first_of(kv, page + 1);
        }
        punch_part(kv, &hole, &r);
    }
}
