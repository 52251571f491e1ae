/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a table on storage (lib/model/index/model_index.h). Compute names pages; each is read
 * into a slot of its set, whose identity is set while it is ABSENT. All else, from the reservation
 * to the clean-up after a crash, is as for experts. A page is not pinned while it is read: compute
 * looks for it and demands it again if it is not there. */
#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"

#define AHEAD_MS 1000
#define UNREAD_MS                                                                                  \
    1000 /* what compute requested and does not read in this time is of an ended pass */

static atomic_flag invalid_logged = ATOMIC_FLAG_INIT;

void cache_take_pages(struct cache *c)
{
    uint64_t bytes = (uint64_t)c->child.model->page_count * PAGE_BYTES;
    if (bytes == 0)
        return;
    arena_alloc_own(c->alloc, c->layout.pages_offset, bytes);
    c->owned_bytes += bytes;
}

static uint32_t page_of(struct cache *c, uint32_t entry)
{
    /* Relaxed: only this thread of the cache writes it. */
    return atomic_load_explicit(&cache_directory_entry(c, entry)->page, memory_order_relaxed);
}

static void read_page(struct cache *c, uint32_t entry, uint64_t demand_ns)
{
    c->notes[entry].reserved_ms = directory_now_ms();
    cache_set_demanded(c, entry, true);
    cache_count(c, CTR_CACHE_page_loads, 1);
    cache_reserve(c, entry, cache_offset(c, entry), LOAD_DEMAND, demand_ns);
}

void cache_page_was_reset(struct cache *c, uint32_t entry, bool failed)
{
    cache_set_demanded(c, entry, false);
    if (!failed)
        read_page(c, entry, c->notes[entry].demand_ns);
}

/* Milliseconds since compute read the page, or since it was requested, and 2; 0: it cannot be
 * replaced now. 1: it was requested and not read yet, so that one which was read goes first. */
static uint32_t age_of(struct cache *c, uint32_t entry, uint32_t now_ms)
{
    const struct directory_entry *d = cache_directory_entry(c, entry);
    uint64_t word = cache_entry_word(c, entry);
    if (!cache_noted(c, entry, NOTE_RESIDENT) || entry_state_of(word) != ENTRY_READY ||
        entry_pins_of(word) != 0)
        return 0;
    uint32_t reserved = now_ms - c->notes[entry].reserved_ms;
    uint32_t used = now_ms - atomic_load_explicit(&d->used_ms, memory_order_relaxed);
    if (-used < AHEAD_MS) /* compute read it after now_ms was taken */
        used = 0;
    if (used > reserved && reserved < UNREAD_MS)
        return 1;
    uint32_t age = used < reserved ? used : reserved;
    return age < UINT32_MAX - 2 ? age + 2 : age;
}

/* READY -> ABSENT, with its memory. */
static bool empty_slot(struct cache *c, uint32_t entry)
{
    if (!entry_evict(&cache_directory_entry(c, entry)->word))
        return false;
    c->notes[entry].flags &= (uint16_t)~NOTE_RESIDENT;
    cache_count(c, CTR_CACHE_page_evictions, 1);
    return true;
}

/* An ABSENT slot for a page: an empty one, or that of the page not read for longest. ENTRY_NONE:
 * all of its set are being read, or used; compute asks again. */
static uint32_t find_slot(struct cache *c, uint32_t page)
{
    uint32_t first = model_page_set(c->child.model, page), oldest = ENTRY_NONE, age = 0;
    uint32_t now_ms = directory_now_ms();
    for (uint32_t e = first; e < first + MODEL_PAGE_WAYS; e++) {
        if (entry_state_of(cache_entry_word(c, e)) == ENTRY_ABSENT)
            return e;
        uint32_t its = age_of(c, e, now_ms);
        if (its > age) {
            age = its;
            oldest = e;
        }
    }
    return oldest != ENTRY_NONE && empty_slot(c, oldest) ? oldest : ENTRY_NONE;
}

/* True: a slot has it, READY or soon. An ABSENT one had it, and is used for it again, so that its
 * failures are counted in one place. */
static bool is_there(struct cache *c, uint32_t page, uint32_t *slot)
{
    uint32_t first = model_page_set(c->child.model, page);
    *slot = ENTRY_NONE;
    for (uint32_t e = first; e < first + MODEL_PAGE_WAYS; e++) {
        cache_observe(c, e);
        if (page_of(c, e) != page + 1)
            continue;
        *slot = e;
        return entry_state_of(cache_entry_word(c, e)) != ENTRY_ABSENT;
    }
    return false;
}

static void demand_page(struct cache *c, uint32_t page, uint64_t demand_ns)
{
    uint32_t slot;
    if (is_there(c, page, &slot))
        return;
    if (slot == ENTRY_NONE)
        slot = find_slot(c, page);
    if (slot == ENTRY_NONE)
        return;
    atomic_store_explicit(&cache_directory_entry(c, slot)->page, page + 1, memory_order_release);
    read_page(c, slot, demand_ns);
}

void cache_demand_pages(struct cache *c, const struct msg_pages *demand)
{
    uint32_t pages = model_table_pages(c->child.model);
    cache_count(c, CTR_CACHE_page_demands, 1);
    for (uint32_t i = 0; i < demand->count; i++) {
        if (demand->page[i] < pages) {
            demand_page(c, demand->page[i], demand->sent_ns);
            continue;
        }
        cache_count(c, CTR_CACHE_messages_invalid, 1);
        if (log_once(&invalid_logged))
            log_warn("PAGES for page %u rejected: the table has %u pages", demand->page[i], pages);
    }
}
