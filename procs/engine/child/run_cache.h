/* SPDX-License-Identifier: Apache-2.0 */
/* The cache file of a loader whose experts are on a server (the parameter device_cache): its name,
 * size and memory, as supervisor and loader compute them. What is in it: the loader's directory
 * cache/. */
#ifndef SLUICE_ENGINE_CHILD_RUN_CACHE_H
#define SLUICE_ENGINE_CHILD_RUN_CACHE_H

#include <stdbool.h>

#include "config/storage.h"
#include "lib/model/index/model_index.h"

/* Memory of a loader with a cache, beside two slots. */
#define RUN_CACHE_SLOT_BYTES  64u /* of a slot in the index, with what was found in it */
#define RUN_CACHE_ENTRY_BYTES 4u
#define RUN_CACHE_FIXED_BYTES (192 * KIB) /* queues, the stack of its thread */

/* The first bytes of a cache file, little-endian. */
#define RUN_CACHE_MAGIC 0x45484341434c5300ull

struct run_cache {
    char path[2 * STORAGE_PATH_BYTES]; /* DIRECTORY/sluice-MODEL-LOADER-of-LOADERS.cache */
    char directory[STORAGE_PATH_BYTES];
    uint64_t bytes;      /* of the file at most, as given */
    uint64_t slot_bytes; /* of a slot: a page, and the loader's largest shard of an expert */
    uint32_t slots;      /* that fit; at most one for each expert. 0: the size is too small */
    bool idle;           /* given, but this loader reads no experts: it has none */
};

/* False: this loader has none, because none was given, its first copy is no server, or it is idle.
 * params have been checked. */
bool run_cache(const struct params *params, const struct model_index *model, const char *model_path,
               const uint8_t identity[16], uint32_t loader, struct run_cache *cache);

uint64_t run_cache_memory(const struct run_cache *cache, const struct model_index *model);

#endif
