/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the slots of a cache file as a list, least recently used first. */
#include "procs/engine/loader/cache/index.h"

#include <stdlib.h>

#include "lib/base/assert.h"

int index_create(struct cache_index *x, uint32_t slots, uint32_t entries)
{
    *x = (struct cache_index){.slots = slots,
                              .entries = entries,
                              .free = INDEX_NONE,
                              .oldest = INDEX_NONE,
                              .newest = INDEX_NONE};
    x->of_entry = malloc(sizeof *x->of_entry * entries);
    x->slot = calloc(slots, sizeof *x->slot);
    if (!x->of_entry || !x->slot) {
        index_destroy(x);
        return -1;
    }
    for (uint32_t i = 0; i < entries; i++)
        x->of_entry[i] = INDEX_NONE;
    for (uint32_t i = slots; i-- > 0;) { /* the first slots are taken first */
        x->slot[i] = (struct index_slot){.entry = INDEX_NONE, .newer = x->free};
        x->free = i;
    }
    return 0;
}

void index_destroy(struct cache_index *x)
{
    free(x->of_entry);
    free(x->slot);
    x->of_entry = NULL;
    x->slot = NULL;
}

/* ---- the list ------------------------------------------------------------------------ */

static void leave(struct cache_index *x, uint32_t slot)
{
    struct index_slot *s = &x->slot[slot];
    if (s->older == INDEX_NONE)
        x->oldest = s->newer;
    else
        x->slot[s->older].newer = s->newer;
    if (s->newer == INDEX_NONE)
        x->newest = s->older;
    else
        x->slot[s->newer].older = s->older;
}

static void enter_newest(struct cache_index *x, uint32_t slot)
{
    struct index_slot *s = &x->slot[slot];
    s->newer = INDEX_NONE;
    s->older = x->newest;
    if (x->newest == INDEX_NONE)
        x->oldest = slot;
    else
        x->slot[x->newest].newer = slot;
    x->newest = slot;
}

static void enter_oldest(struct cache_index *x, uint32_t slot)
{
    struct index_slot *s = &x->slot[slot];
    s->older = INDEX_NONE;
    s->newer = x->oldest;
    if (x->oldest == INDEX_NONE)
        x->newest = slot;
    else
        x->slot[x->oldest].older = slot;
    x->oldest = slot;
}

static void make_valid(struct cache_index *x, uint32_t slot, uint32_t entry)
{
    x->slot[slot].state = INDEX_VALID;
    x->slot[slot].entry = entry;
    x->of_entry[entry] = slot;
    x->used++;
}

static void make_free(struct cache_index *x, uint32_t slot)
{
    struct index_slot *s = &x->slot[slot];
    s->state = INDEX_FREE;
    s->entry = INDEX_NONE;
    s->reading = false;
    s->newer = x->free;
    x->free = slot;
}

void index_use(struct cache_index *x, uint32_t slot)
{
    sl_assert(slot < x->slots && x->slot[slot].state == INDEX_VALID);
    leave(x, slot);
    enter_newest(x, slot);
}

/* ---- slots ----------------------------------------------------------------------------------- */

uint32_t index_find(const struct cache_index *x, uint32_t entry)
{
    uint32_t slot = entry < x->entries ? x->of_entry[entry] : INDEX_NONE;
    return slot != INDEX_NONE && x->slot[slot].state == INDEX_VALID ? slot : INDEX_NONE;
}

static uint32_t oldest_unread(const struct cache_index *x)
{
    uint32_t slot = x->oldest;
    while (slot != INDEX_NONE && x->slot[slot].reading)
        slot = x->slot[slot].newer;
    return slot;
}

uint32_t index_take(struct cache_index *x, uint32_t entry, bool evict, bool *evicts)
{
    sl_assert(entry < x->entries && x->of_entry[entry] == INDEX_NONE);
    uint32_t slot = x->free != INDEX_NONE ? x->free : evict ? oldest_unread(x) : INDEX_NONE;
    if (slot == INDEX_NONE)
        return INDEX_NONE;
    struct index_slot *s = &x->slot[slot];
    *evicts = s->state == INDEX_VALID;
    if (*evicts) {
        leave(x, slot);
        x->of_entry[s->entry] = INDEX_NONE;
        x->used--;
    } else {
        x->free = s->newer;
    }
    s->state = INDEX_FILLING;
    s->filling = entry;
    x->of_entry[entry] = slot;
    return slot;
}

void index_filled(struct cache_index *x, uint32_t slot, uint64_t sum)
{
    sl_assert(slot < x->slots && x->slot[slot].state == INDEX_FILLING);
    make_valid(x, slot, x->slot[slot].filling);
    x->slot[slot].sum = sum;
    enter_newest(x, slot);
}

void index_unfilled(struct cache_index *x, uint32_t slot, bool intact)
{
    struct index_slot *s = &x->slot[slot];
    sl_assert(slot < x->slots && s->state == INDEX_FILLING);
    x->of_entry[s->filling] = INDEX_NONE;
    if (!intact || s->entry == INDEX_NONE || x->of_entry[s->entry] != INDEX_NONE) {
        make_free(x, slot);
        return;
    }
    make_valid(x, slot, s->entry);
    enter_oldest(x, slot);
}

void index_drop(struct cache_index *x, uint32_t slot)
{
    sl_assert(slot < x->slots && x->slot[slot].state == INDEX_VALID);
    leave(x, slot);
    x->of_entry[x->slot[slot].entry] = INDEX_NONE;
    x->used--;
    make_free(x, slot);
}

bool index_forget(struct cache_index *x)
{
    for (uint32_t slot = 0; slot < x->slots; slot++)
        if (x->slot[slot].state == INDEX_VALID && !x->slot[slot].reading)
            index_drop(x, slot);
    return x->used == 0;
}

/* ---- at a start ------------------------------------------------------------------------------ */

static int by_stamp(const void *a, const void *b)
{
    const struct index_found *x = a, *y = b;
    return x->stamp < y->stamp ? -1 : x->stamp > y->stamp;
}

static void take_found(struct cache_index *x, const struct index_found *f)
{
    uint32_t before = x->of_entry[f->entry];
    if (before != INDEX_NONE)
        index_drop(x, before);
    make_valid(x, f->slot, f->entry);
    x->slot[f->slot].sum = f->sum;
    enter_newest(x, f->slot);
}

void index_build(struct cache_index *x, struct index_found *found, uint32_t count)
{
    sl_assert(x->used == 0);
    qsort(found, count, sizeof *found, by_stamp);
    for (uint32_t i = 0; i < count; i++)
        if (found[i].entry < x->entries && found[i].slot < x->slots)
            take_found(x, &found[i]);
    x->free = INDEX_NONE;
    for (uint32_t i = x->slots; i-- > 0;)
        if (x->slot[i].state == INDEX_FREE)
            make_free(x, i);
}
