/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps which expert is in which slot of a cache file, and the least recently used one. In memory
 * only; at a start it is made from the heads of the slots. Pure.
 *
 *   FREE --(index_take)--> FILLING --(index_filled)--> VALID --(index_take, least recently used)-->
 *   FILLING --(index_unfilled)--> FREE, or VALID with the earlier expert if nothing was written
 *   VALID --(index_drop: damaged)--> FREE
 *
 * A slot that is being read (`reading`) is not taken. */
#ifndef SLUICE_ENGINE_LOADER_CACHE_INDEX_H
#define SLUICE_ENGINE_LOADER_CACHE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#define INDEX_NONE UINT32_MAX

enum index_state { INDEX_FREE, INDEX_FILLING, INDEX_VALID };

struct index_slot {
    uint32_t entry;        /* VALID: what it has; FILLING: what it had, or INDEX_NONE */
    uint32_t filling;      /* FILLING: what it will have */
    uint32_t older, newer; /* VALID: used before and after; FREE: newer is the next free one */
    uint64_t sum;          /* of the payload */
    uint8_t state;
    bool reading;
};

struct cache_index {
    uint32_t slots, entries;
    uint32_t used; /* VALID */
    uint32_t free, oldest, newest;
    uint32_t *of_entry; /* slot that has it or will have it; INDEX_NONE: none */
    struct index_slot *slot;
};

/* What a slot of a file has, as its head says. */
struct index_found {
    uint32_t entry; /* INDEX_NONE: nothing */
    uint32_t slot;
    uint64_t stamp, bytes, sum;
};

/* 0, or -1 when out of memory. */
int index_create(struct cache_index *x, uint32_t slots, uint32_t entries);
void index_destroy(struct cache_index *x);

/* Takes what was found into an empty index: a higher stamp counts as used later. Sorts `found`. */
void index_build(struct cache_index *x, struct index_found *found, uint32_t count);

/* The slot that has the expert; INDEX_NONE: none. */
uint32_t index_find(const struct cache_index *x, uint32_t entry);
/* The expert was used: its slot is taken last. */
void index_use(struct cache_index *x, uint32_t slot);

/* A slot for an expert that has none: a free one, or with `evict` the least recently used one.
 * INDEX_NONE: there is none. *evicts: it has another expert until then. */
uint32_t index_take(struct cache_index *x, uint32_t entry, bool evict, bool *evicts);
void index_filled(struct cache_index *x, uint32_t slot, uint64_t sum);
/* intact: nothing was written to it. */
void index_unfilled(struct cache_index *x, uint32_t slot, bool intact);
/* Pre: VALID. */
void index_drop(struct cache_index *x, uint32_t slot);
/* Drops every slot that is VALID and not being read. True: none is VALID any more. */
bool index_forget(struct cache_index *x);

#endif
