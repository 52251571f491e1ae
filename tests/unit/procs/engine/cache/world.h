/* SPDX-License-Identifier: Apache-2.0 */
/* A cache over real segments and channels, without its process. The test acts as compute, the
 * predictor and one loader: it holds the other ends of the channels. An entry "arrives" when the
 * test publishes its shard, as a loader does. */
#ifndef SLUICE_TESTS_UNIT_PROCS_ENGINE_CACHE_WORLD_H
#define SLUICE_TESTS_UNIT_PROCS_ENGINE_CACHE_WORLD_H

#include <check.h>

#include "procs/engine/cache/cache.h"
#include "tests/golden/image.h"

#define LAYER 3u

struct world {
    struct image image;
    struct arena_layout layout;
    struct child child; /* what the cache process has at its start */
    char dir[64];
    struct channel *compute, *predictor, *loader; /* the other ends */
    struct cache cache;
};

extern struct world w;

/* A checked fixture: segments before every case, no open channels after it. */
void setup(void);
/* Of another model, which has a table on storage, as if that had so many pages and page slots. */
void setup_model(const char *path, uint32_t page_slots, uint32_t pages);
void teardown(void);
/* Opens cache and channels with space for `experts` experts; the dense entries are resident. */
void start(const char *preset, uint32_t experts);
void open_cache(const char *preset);
void close_cache(void);
void open_channels(void);
void close_channels(void);
/* The directory of the channels: made once before, removed after all cases. */
bool make_dir(void);
void remove_dir(void);

uint32_t expert(uint32_t layer, uint32_t number); /* its entry */
uint64_t slot_bytes(uint32_t entry);
uint64_t word(uint32_t entry);
enum entry_state state(uint32_t entry);
uint64_t count(unsigned counter);

void arrive(uint32_t entry);     /* the loader has read its shard */
void load_fails(uint32_t entry); /* a failed read, as a loader reports it */
void pin(uint32_t entry);
void unpin(uint32_t entry);
void demand(uint32_t entry);
/* Experts of LAYER that are loaded and not pinned. */
void make_resident(uint32_t first, uint32_t count);

#endif
