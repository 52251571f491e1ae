/* SPDX-License-Identifier: Apache-2.0 */
/* Places for experts on a device: which expert has one, which one loses it, and which experts the
 * host computes. lib/device/cuda has their memory, lib/sim counts what it would do: the same
 * decisions.
 *
 * A place is a part of a slab (slabs.h), of the size class of its expert. An expert for which its
 * class has no place gets a slab that no class has. If there is none, something is evicted: in the
 * policy's order of all experts, what comes first decides: the experts of its class that fill a
 * slab, of which the first one loses its place; or all experts of a slab of another class, which
 * then loses the slab. Both have the same bytes, so a class shrinks where its experts are worth
 * less. Experts that are leased are not in that order, so their slabs stay.
 *
 * An expert here is a slot of a residency object (residency.h) with the precisions of enum
 * precision. It keeps its place until another one needs it. What operations are being submitted
 * with is leased, and keeps it.
 *
 * Evictions are those of residency.h. A token is a pass here, of any number of rows; an access
 * needs high precision if it has the best that was used so far; hobbit has the weights of the
 * preset. learned has no logits here, so it is not among the names. */
#ifndef SLUICE_POLICY_GPU_PLACES_H
#define SLUICE_POLICY_GPU_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/policy/gpu/slabs.h"
#include "lib/policy/residency/residency.h"

#define PLACES_NONE     UINT32_MAX
#define PLACES_MATRICES 3 /* of an expert */
#define PLACES_PIECE                                                                               \
    ((uint64_t)2 << 20) /* of the pinned memory of the host that they are copied through */

/* Pieces that an expert has at most: each but the last one of a matrix leaves less than a sixteenth
 * unused, as some have whole rows. And those of the pinned memory: of two experts, and at least
 * 8. */
static inline uint32_t places_pieces(uint64_t place_bytes)
{
    return (uint32_t)(place_bytes / (PLACES_PIECE / 16 * 15)) + PLACES_MATRICES;
}

static inline uint32_t places_ring(uint64_t place_bytes)
{
    uint32_t two = 2 * places_pieces(place_bytes);
    return two > 8 ? two : 8;
}

struct places_config {
    uint32_t layers, experts, top_k;
    const struct expert_sizes *sizes; /* read by places_create */
    uint64_t bytes;                   /* of the memory; at least top_k of the largest */
    enum eviction eviction;
    /* cooperative: in passes of one row the host computes experts without a place. It gets one for
     * later passes if space(arg) is true: all of its pieces are unused now. */
    bool cooperative;
    bool (*space)(void *arg);
    /* At the first use of an expert that got its place by places_ahead: whether its copy has ended.
     * Else NULL. */
    bool (*arrived)(void *arg, uint32_t place);
    void *arg;
};

/* Uses of experts that had a place, that were copied, and experts that these replaced; uses that
 * the host computed, and experts that were copied after them. Experts that got a place ahead of a
 * use, and what became of these: they were there at the first use, or not yet; they were replaced
 * before. */
struct places_counts {
    uint64_t hits, uploaded, evicted, on_host, background;
    uint64_t ahead, timely, late, unused;
    uint64_t filled; /* by places_reserve, and not used so far */
};

enum place_use {
    PLACE_LEASED, /* it is leased already */
    PLACE_HIT,
    PLACE_UPLOAD,
    PLACE_ON_HOST, /* or lent to the host already */
};

struct place_result {
    enum place_use use;
    uint32_t place; /* on the host: that which it gets for later passes, or PLACES_NONE */
    bool taken;     /* by this call: what another expert had there is gone */
};

struct places;

/* The evictions of --gpu-eviction, for help. */
#define PLACES_EVICTIONS                                                                           \
    "lru|fifo|lfu|random|edgemoe|edgemoe-printed|hobbit|arc|decayed-frequency|activation"

/* False: there is none of that name. */
bool places_eviction_find(const char *name, enum eviction *out);

/* NULL: out of memory. */
struct places *places_create(const struct places_config *config);
void places_destroy(struct places *p);

/* Another sequence begins: the records of evictions that have them by sequence are reset. */
void places_sequence(struct places *p);

/* One use of an expert by a pass of so many rows (0: not known). Pre: fewer than places_lent_max
 * are leased, unless the expert is. */
struct place_result places_use(struct places *p, uint32_t expert, uint32_t rows);

/* Of an expert that is probably used next, while those of the running layer are leased. Its place,
 * if it has one, is kept until the leases end. places_ahead: a place for one that has none, kept
 * likewise; PLACES_NONE: it has one, or there is no space for it. */
void places_keep(struct places *p, uint32_t expert);
uint32_t places_ahead(struct places *p, uint32_t expert);
/* Both for a list of them, none of which replaces another: `copy` is called for those that get a
 * place, until there is no space for one. at: in the list. */
void places_prefetch(struct places *p, const uint32_t *expert, uint32_t count,
                     void (*copy)(void *arg, uint32_t at, uint32_t place), void *arg);
bool places_has(const struct places *p, uint32_t expert);
uint32_t places_at(const struct places *p, uint32_t expert); /* PLACES_NONE: it has none */
/* A place that no other expert has, for one that has none: its first use counts as its copy.
 * PLACES_NONE as for places_ahead, and if the host computes experts, as it would not compute this
 * one. */
uint32_t places_reserve(struct places *p, uint32_t expert);

/* No operation is submitted with those that are leased or lent any more. */
void places_end_leases(struct places *p);

/* Experts that can be leased at once, whatever their sizes: so many slabs. */
uint32_t places_lent_max(const struct places *p);
/* Numbers of places are below it. */
uint32_t places_count(const struct places *p);
/* Experts that have a place. */
uint32_t places_used(const struct places *p);
/* Experts that have space as the slabs are divided now; slabs that no class has count with the
 * largest. At most all. */
uint32_t places_capacity(const struct places *p);

/* Where a place is in the memory, and its size. Pre: an expert has it. */
uint64_t places_offset(const struct places *p, uint32_t place);
uint64_t places_bytes(const struct places *p, uint32_t place);
/* The place at this address, which is in one that an expert has. */
uint32_t places_with(const struct places *p, uint64_t offset);

/* Changes places_config.cooperative, while nothing is leased or lent. */
void places_cooperate(struct places *p, bool cooperative);

struct places_counts places_counts(const struct places *p);

#endif
