/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of slots: of each region the first positions, allocated as a sequence grows, and punched.
 * Rings are at the offset of the slot, the other regions in pages (pages.h). */
#include <string.h>

#include "lib/base/assert.h"
#include "shm/kv/pages.h"
#include "shm/kv/regions.h"

uint64_t kv_region_offset(const struct kv *kv, uint32_t slot, uint32_t region)
{
    const struct kv_head *h = kv->head;
    sl_assert(slot < kv->slots && region < kv_region_count(h));
    return h->kv_offset + slot * h->kv_slot_bytes + kv_regions_bytes(h, region, h->context);
}

void *kv_region_at(const struct kv *kv, uint32_t slot, uint32_t region)
{
    return (char *)kv->segment.base + kv_region_offset(kv, slot, region);
}

void *kv_keys(const struct kv *kv, uint32_t slot, uint32_t layer)
{
    return kv_region_at(kv, slot, 2 * layer);
}

void *kv_values(const struct kv *kv, uint32_t slot, uint32_t layer)
{
    return kv_region_at(kv, slot, 2 * layer + 1);
}

void *kv_index(const struct kv *kv, uint32_t slot, uint32_t layer)
{
    return kv_region_at(kv, slot, kv_index_region(kv->head, layer));
}

/* What the slot's ring of a region has between two numbers of positions: bytes at *at; 0: none. */
static uint64_t ring_part(const struct kv *kv, uint32_t slot, uint32_t region, uint32_t from,
                          uint32_t to, uint64_t *at)
{
    const struct kv_head *h = kv->head;
    uint64_t begin = kv_region_bytes(h, region, from), end = kv_region_bytes(h, region, to);
    *at = kv_region_offset(kv, slot, region) + begin;
    return kv_region_is_ring(h, region) && begin < end ? end - begin : 0;
}

void kv_rings_drop(const struct kv *kv, uint32_t slot, uint32_t tokens, uint32_t end)
{
    for (uint32_t region = 0; region < kv_region_count(kv->head); region++) {
        uint64_t at, bytes = ring_part(kv, slot, region, tokens, end, &at);
        if (bytes == 0)
            continue;
        kv_punch(kv, at, bytes);
        segment_free_tables(&kv->segment, at, bytes);
    }
}

int kv_rings_allocate(const struct kv *kv, uint32_t slot, uint32_t before, uint32_t tokens)
{
    for (uint32_t region = 0; region < kv_region_count(kv->head); region++) {
        uint64_t at, bytes = ring_part(kv, slot, region, before, tokens, &at);
        int rc = bytes > 0 ? segment_allocate(kv->segment.fd, at, bytes) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Takes positions [tokens, end) of a slot. */
static void shrink(const struct kv *kv, uint32_t slot, uint32_t tokens, uint32_t end,
                   const struct kv_report *r)
{
    kv_rings_drop(kv, slot, tokens, end);
    kv_pages_drop(kv, slot, tokens, end, r);
}

static int grow(const struct kv *kv, uint32_t slot, uint32_t before, uint32_t tokens,
                const struct kv_report *r, struct error *error)
{
    const struct kv_head *h = kv->head;
    if (kv_page_own(kv, slot, before, tokens, error) != 0 ||
        kv_pages_assign(kv, slot, before, tokens, error) != 0)
        return -1;
    int rc = kv_rings_allocate(kv, slot, before, tokens);
    if (rc == 0)
        rc = kv_pages_allocate(kv, slot, before, tokens, r);
    if (rc == 0)
        return 0;
    shrink(kv, slot, before, tokens, r);
    return kv_no_space(kv_regions_bytes(h, kv_region_count(h), tokens) -
                           kv_regions_bytes(h, kv_region_count(h), before),
                       "KV cache", rc, error);
}

int kv_slot_resize(const struct kv *kv, uint32_t slot, uint32_t tokens, void (*alive)(void *arg),
                   void *arg, struct error *error)
{
    sl_assert(slot < kv->slots && tokens <= kv->head->context);
    struct kv_slot *s = &kv->head->slot[slot];
    const struct kv_report r = {alive, arg};
    uint32_t before = atomic_load(&s->allocated);
    if (tokens > before) {
        atomic_store(&s->allocated, tokens);
        if (grow(kv, slot, before, tokens, &r, error) == 0)
            return 0;
        atomic_store(&s->allocated, before);
        return -1;
    }
    if (tokens < before)
        shrink(kv, slot, tokens, before, &r);
    atomic_store(&s->allocated, tokens);
    return 0;
}

void kv_slot_release(const struct kv *kv, uint32_t slot, void (*alive)(void *arg), void *arg)
{
    /* All positions: what a predecessor left in the row may contradict itself. */
    shrink(kv, slot, 0, kv->head->context, &(struct kv_report){alive, arg});
    segment_free_tables(&kv->segment, kv_region_offset(kv, slot, 0), kv->head->kv_slot_bytes);
    atomic_store(&kv->head->slot[slot].allocated, 0);
}
