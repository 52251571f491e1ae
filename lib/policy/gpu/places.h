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
/* Experts are copied through pinned memory of the host, in pieces of so many bytes. */
#define PLACES_PIECE ((uint64_t)2 << 20)

/* The largest number of pieces that an expert is copied in. A piece holds whole rows of some types,
 * so each but the last one of a matrix may leave up to a sixteenth unused. */
static inline uint32_t places_pieces(uint64_t place_bytes)
{
    return (uint32_t)(place_bytes / (PLACES_PIECE / 16 * 15)) + PLACES_MATRICES;
}

/* The number of pieces of the pinned memory: enough for two experts, and at least 8. */
static inline uint32_t places_ring(uint64_t place_bytes)
{
    uint32_t two = 2 * places_pieces(place_bytes);
    return two > 8 ? two : 8;
}

struct places_config {
    uint32_t layers, experts, top_k;
    const struct expert_sizes *sizes; /* read by places_create only */
    uint64_t bytes;                   /* of the memory; at least top_k experts of the largest
                                       * size */
    enum eviction eviction;
    /* cooperative: in passes of one row the host computes experts without a place. Such an expert
     * gets a place for later passes if space(arg) is true, which says that all pieces it needs are
     * unused now. */
    bool cooperative;
    bool (*space)(void *arg);
    /* Called at the first use of an expert that got its place by places_ahead: says whether its
     * copy has ended. NULL if places_ahead is not used. */
    bool (*arrived)(void *arg, uint32_t place);
    void *arg;
};

struct places_counts {
    uint64_t hits, uploaded; /* uses of experts that had a place, and that were copied for it */
    uint64_t evicted;        /* experts that these replaced */
    uint64_t on_host;        /* uses that the host computed */
    uint64_t background;     /* experts that were copied after such a use */
    /* Experts that got a place ahead of a use; those whose copy had ended at their first use, had
     * not ended, and those that were replaced before any use. */
    uint64_t ahead, timely, late, unused;
    uint64_t filled; /* by places_reserve, and not used so far */
};

enum place_use {
    PLACE_LEASED, /* it is leased already */
    PLACE_HIT,
    PLACE_UPLOAD,
    PLACE_ON_HOST, /* the host computes it, or does so already */
};

struct place_result {
    enum place_use use;
    uint32_t place; /* PLACE_ON_HOST: its place for later passes, or PLACES_NONE */
    bool taken;     /* by this call: the bytes of another expert there are gone */
};

struct places;

/* The evictions of --gpu-eviction, for messages: each name after a blank. */
#define PLACES_EVICTION_NAME(id, name) " " name
#define PLACES_EVICTIONS               EVICTION_LIST_OF_ACCESSES(PLACES_EVICTION_NAME)

/* Finds an eviction by its name. False: none has that name. */
bool places_eviction_find(const char *name, enum eviction *out);

/* Allocates everything. Returns NULL when memory is short. The caller calls places_destroy. */
struct places *places_create(const struct places_config *config);
void places_destroy(struct places *p);

/* Another sequence begins: evictions that keep records per sequence reset them. */
void places_sequence(struct places *p);

/* A pass of `rows` rows (0: not known) uses the expert: it is leased, or left to the host. Pre: the
 * expert is leased already, or fewer than places_lent_max are. */
struct place_result places_use(struct places *p, uint32_t expert, uint32_t rows);

/* The expert is probably used next, while experts of the running layer are leased: its place, if it
 * has one, is kept until the leases end. */
void places_keep(struct places *p, uint32_t expert);
/* Gives such an expert a place, which is kept until the leases end. PLACES_NONE: it has one
 * already, or there is no space for it. */
uint32_t places_ahead(struct places *p, uint32_t expert);
/* places_keep and places_ahead for a list of experts, none of which replaces another one of it.
 * Calls `copy` for each expert that gets a place, and stops when there is no space for one. at: the
 * position in the list. */
void places_prefetch(struct places *p, const uint32_t *expert, uint32_t count,
                     void (*copy)(void *arg, uint32_t at, uint32_t place), void *arg);
/* Whether the expert has a place. */
bool places_has(const struct places *p, uint32_t expert);
/* The place of the expert; PLACES_NONE: it has none. */
uint32_t places_at(const struct places *p, uint32_t expert);
/* Gives an expert without a place one that no other expert has. Its first use counts as its copy.
 * PLACES_NONE: as for places_ahead; also if the host computes experts, because it would not compute
 * one that has a place. */
uint32_t places_reserve(struct places *p, uint32_t expert);

/* Ends all leases: no further operation is submitted with these experts. */
void places_end_leases(struct places *p);

/* The number of experts that can be leased at once, whatever their sizes: that of the slabs. */
uint32_t places_lent_max(const struct places *p);
/* The numbers of all places are below this one. */
uint32_t places_count(const struct places *p);
/* The number of experts that have a place. */
uint32_t places_used(const struct places *p);
/* The number of experts, at most all, for which there are places as the slabs are divided now.
 * Slabs that no class has count as if the largest class had them. */
uint32_t places_capacity(const struct places *p);

/* The offset of a place in the memory, in bytes. Pre: an expert has the place. */
uint64_t places_offset(const struct places *p, uint32_t place);
/* The size of a place, in bytes. Pre: an expert has the place. */
uint64_t places_bytes(const struct places *p, uint32_t place);
/* The place that contains this offset. Pre: an expert has it. */
uint32_t places_with(const struct places *p, uint64_t offset);

/* Changes places_config.cooperative. Pre: nothing is leased or lent. */
void places_cooperate(struct places *p, bool cooperative);

/* The counts since places_create. */
struct places_counts places_counts(const struct places *p);

#endif
