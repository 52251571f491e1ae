/* SPDX-License-Identifier: Apache-2.0 */
/* Computes name and shape of a cache file. */
#include "procs/engine/child/run_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "procs/engine/child/run_storage.h"

/* The largest shard of an expert that this loader reads, and the number of its experts. */
static uint64_t shard_max(const struct model_index *m, uint32_t loader, uint32_t loaders,
                          uint32_t *experts)
{
    uint64_t max = 0;
    *experts = 0;
    for (uint32_t entry = 0; entry < model_experts_end(m); entry++) {
        const struct model_entry *e = &model_index_entries(m)[entry];
        struct model_extent shard[ENTRY_EXTENTS_MAX];
        uint32_t runs = e->kind == ENTRY_EXPERT ? model_entry_shard(e, loader, loaders, shard) : 0;
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < runs; i++)
            bytes += shard[i].read_bytes;
        max = bytes > max ? bytes : max;
        *experts += runs > 0;
    }
    return max;
}

static void set_path(struct run_cache *c, const uint8_t identity[16], uint32_t loader,
                     uint32_t loaders)
{
    char hex[33];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", identity[i]);
    snprintf(c->path, sizeof c->path, "%s/sluice-%s-%" PRIu32 "-of-%" PRIu32 ".cache", c->directory,
             hex, loader, loaders);
}

static bool given(const struct params *params, uint32_t loader, struct run_cache *cache)
{
    struct params *own = malloc(sizeof *own); /* too large for a stack */
    struct error ignored;
    bool any = own && storage_take(params, loader, own, NULL, &ignored) == 0 &&
               storage_cache(own, cache->directory, &cache->bytes, &ignored) == 0 &&
               cache->directory[0];
    free(own);
    return any;
}

bool run_cache(const struct params *params, const struct model_index *model, const char *model_path,
               const uint8_t identity[16], uint32_t loader, struct run_cache *cache)
{
    struct run_copies copies;
    struct error ignored;
    uint32_t loaders = (uint32_t)params->loaders, experts;
    *cache = (struct run_cache){.slots = 0};
    if (!given(params, loader, cache) ||
        run_copies(params, model, model_path, loader, RUN_EXPERTS, &copies, &ignored) != 0 ||
        copies.count == 0 || !io_url_is(copies.path[0]))
        return false;
    set_path(cache, identity, loader, loaders);
    cache->slot_bytes = PAGE_BYTES + shard_max(model, loader, loaders, &experts);
    cache->idle = experts == 0;
    if (cache->idle)
        return false;
    uint64_t slots =
        cache->bytes > PAGE_BYTES ? (cache->bytes - PAGE_BYTES) / cache->slot_bytes : 0;
    cache->slots = slots < experts ? (uint32_t)slots : experts;
    return true;
}

uint64_t run_cache_memory(const struct run_cache *cache, const struct model_index *model)
{
    return RUN_CACHE_FIXED_BYTES + 2 * cache->slot_bytes +
           (uint64_t)RUN_CACHE_SLOT_BYTES * cache->slots +
           (uint64_t)RUN_CACHE_ENTRY_BYTES * model_experts_end(model);
}
