/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of slots: of each region the first positions, allocated as a sequence grows, or punched. */
#include <string.h>

#include "lib/base/assert.h"
#include "shm/kv/regions.h"

static uint64_t region_offset(const struct kv *kv, uint32_t slot, uint32_t region)
{
    const struct kv_head *h = kv->head;
    sl_assert(slot < kv->slots && region < 2 * h->layers);
    return h->kv_offset + slot * h->kv_slot_bytes + kv_regions_bytes(h, region, h->context);
}

void *kv_keys(const struct kv *kv, uint32_t slot, uint32_t layer)
{
    return (char *)kv->segment.base + region_offset(kv, slot, 2 * layer);
}

void *kv_values(const struct kv *kv, uint32_t slot, uint32_t layer)
{
    return (char *)kv->segment.base + region_offset(kv, slot, 2 * layer + 1);
}

struct report {
    void (*alive)(void *arg);
    void *arg;
};

static void report(const struct report *r)
{
    if (r->alive)
        r->alive(r->arg);
}

/* Punches positions [tokens, end) of a slot. */
static void shrink(const struct kv *kv, uint32_t slot, uint32_t tokens, uint32_t end,
                   const struct report *r)
{
    const struct kv_head *h = kv->head;
    for (uint32_t region = 0; region < 2 * h->layers; region++) {
        uint64_t from = kv_region_bytes(h, region, tokens), to = kv_region_bytes(h, region, end);
        if (from >= to)
            continue;
        kv_punch(kv, region_offset(kv, slot, region) + from, to - from);
        segment_free_tables(&kv->segment, region_offset(kv, slot, region) + from, to - from);
        report(r);
    }
}

static int grow(const struct kv *kv, uint32_t slot, uint32_t before, uint32_t tokens,
                const struct report *r, struct error *error)
{
    const struct kv_head *h = kv->head;
    for (uint32_t region = 0; region < 2 * h->layers; region++) {
        uint64_t from = kv_region_bytes(h, region, before), to = kv_region_bytes(h, region, tokens);
        if (from >= to)
            continue;
        int rc =
            segment_allocate(kv->segment.fd, region_offset(kv, slot, region) + from, to - from);
        report(r);
        if (rc == 0)
            continue;
        shrink(kv, slot, before, tokens, r);
        return kv_no_space(kv_regions_bytes(h, 2 * h->layers, tokens) -
                               kv_regions_bytes(h, 2 * h->layers, before),
                           "KV cache", rc, error);
    }
    return 0;
}

int kv_slot_resize(const struct kv *kv, uint32_t slot, uint32_t tokens, void (*alive)(void *arg),
                   void *arg, struct error *error)
{
    sl_assert(slot < kv->slots && tokens <= kv->head->context);
    struct kv_slot *s = &kv->head->slot[slot];
    const struct report r = {alive, arg};
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
    shrink(kv, slot, 0, kv->head->context, &(struct report){alive, arg});
    segment_free_tables(&kv->segment, region_offset(kv, slot, 0), kv->head->kv_slot_bytes);
    atomic_store(&kv->head->slot[slot].allocated, 0);
}

void kv_slot_copy(const struct kv *kv, uint32_t from, uint32_t to, uint32_t tokens,
                  void (*alive)(void *arg), void *arg)
{
    const struct kv_head *h = kv->head;
    const struct report r = {alive, arg};
    char *base = kv->segment.base;
    sl_assert(from != to && tokens <= atomic_load(&h->slot[to].allocated));
    for (uint32_t region = 0; region < 2 * h->layers; region++) {
        memcpy(base + region_offset(kv, to, region), base + region_offset(kv, from, region),
               kv_region_bytes(h, region, tokens));
        report(&r);
    }
}
