/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a table on storage (lib/model/index/model_index.h). Compute names pages; each is read
 * into a slot of its set, whose identity is set while it is ABSENT. All else, from the reservation
 * to the clean-up after a crash, is as for experts. A page is not pinned while it is read: compute
 * looks for it and demands it again if it is not there. */
#include "lib/policy/access/pages.h"
#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"

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

static uint32_t reads_now(struct cache *c)
{
    return atomic_load_explicit(&c->child.directory.head->table_reads, memory_order_acquire);
}

static void read_page(struct cache *c, uint32_t entry, uint64_t demand_ns)
{
    c->notes[entry].reserved_at = reads_now(c);
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

/* READY -> ABSENT, with its memory. */
static bool empty_slot(struct cache *c, uint32_t entry)
{
    if (!entry_evict(&cache_directory_entry(c, entry)->word))
        return false;
    c->notes[entry].flags &= (uint16_t)~NOTE_RESIDENT;
    cache_count(c, CTR_CACHE_page_evictions, 1);
    return true;
}

static struct page_slot slot_of(struct cache *c, uint32_t entry)
{
    const struct directory_entry *d = cache_directory_entry(c, entry);
    uint64_t word = cache_entry_word(c, entry);
    return (struct page_slot){.empty = entry_state_of(word) == ENTRY_ABSENT,
                              .fixed = !cache_noted(c, entry, NOTE_RESIDENT) ||
                                       entry_state_of(word) != ENTRY_READY ||
                                       entry_pins_of(word) != 0,
                              .reserved_at = c->notes[entry].reserved_at,
                              .used_at = atomic_load_explicit(&d->used_at, memory_order_relaxed)};
}

/* An ABSENT slot for a page. ENTRY_NONE: all of its set are being read, or used; compute asks
 * again. */
static uint32_t find_slot(struct cache *c, uint32_t page)
{
    uint32_t first = model_page_set(c->child.model, page);
    struct page_slot slot[MODEL_PAGE_WAYS];
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        slot[i] = slot_of(c, first + i);
    uint32_t chosen = page_slot_choose(slot, reads_now(c));
    if (chosen == PAGE_SLOT_NONE)
        return ENTRY_NONE;
    return slot[chosen].empty || empty_slot(c, first + chosen) ? first + chosen : ENTRY_NONE;
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
    struct directory_entry *d = cache_directory_entry(c, slot);
    atomic_store_explicit(&d->used_at, page_slot_unused(reads_now(c)), memory_order_relaxed);
    atomic_store_explicit(&d->page, page + 1, memory_order_release);
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
