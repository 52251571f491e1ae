/* SPDX-License-Identifier: Apache-2.0 */
/* Residency: which expert entries are resident, how the capacity is shared, and which entry is
 * evicted. The cache manager and the simulator use the same object.
 *
 * Slots. An expert entry of the directory is a *slot*:
 *   slot = precision_index * layers * experts + layer * experts + expert
 * precision_index counts the precisions that are present, best (lowest enum precision) first. The
 * slot is the entry number of the directory minus the number of dense entries.
 *
 * ---- Contract: the pipeline and the simulator agree ------------------------------------------
 * With prefetch off, in decode, the cache process and `sluice sim` over the recorded trace report
 * the same hits and misses. Both sides must follow these rules:
 *
 *  1. Accesses first. Every access record up to the position that a DEMAND names is passed to
 *     residency_accessed before the first victim for that DEMAND is searched. So the access to a
 *     missing entry precedes its insertion, and hits of the same step have been counted. In decode
 *     the logits of a sequence's layer precede its accesses and are passed to residency_logits in
 *     that order.
 *  2. Steps. residency_step is called with the position of an access (or of the DEMAND) before that
 *     access is passed. A step is one (pass, layer), whatever sequences the pass computes: it ends
 *     when the layer changes, when a sequence that took part in it steps to another position, or
 *     when such a sequence ends.
 *  3. DEMAND's order. Space is made for the wanted entries, and they are inserted, one by one in
 *     the order of the DEMAND, which is the order of their access records.
 *  4. Insert when reserved. residency_insert is called when the entry leaves ABSENT, not when it
 *     becomes READY: the order of insertion never depends on the storage. A reservation that fails
 *     is undone with residency_remove(r, slot, false).
 *  5. The running step is spared. Slots accessed in the running step are not evicted while there is
 *     another victim. (In the pipeline they are also pinned, so that `may` rejects them.)
 *  6. One victim at a time. The caller gets a victim, removes it, and repeats until the bytes of
 *     the incoming entry fit under the capacity.
 *  7. Nothing else changes a record: a search for victims does not, except that `random` draws.
 *  8. Starts and ends. residency_sequence_starts and residency_sequence_ends are called when the
 *     records of a sequence's start and end are read.
 *
 * ---- Contract: several sequences ---------------------------------------------------------------
 * Up to SEQUENCES_MAX sequences run at a time (lib/policy/sequences.h), and their steps may come in
 * any order: layer by layer in a pass of all of them, or a pass of one after a pass of another.
 *  - The policy has one memory of experts, to which all sequences add. Another number than in the
 *    step before means nothing. What a new topic changes happens once, at the first step of a
 *    sequence.
 *  - Time is counted in rounds: in one, each running sequence has at most one pass. A round is as
 *    long as its longest pass has tokens, so a record ages by a token when each sequence had one,
 *    however many there are, and whether one pass computes all of them or one after the other. An
 *    expert that both of two sequences access in a round is accessed twice.
 *  - For one sequence at a time, also one after another, a round is a pass.
 *
 * In prefill a chunk may access more experts than fit; then entries of the running step are
 * evicted, in the policy's order among those the caller allows. Which pins are released by then
 * depends on time, so in prefill the two agree only where the experts of a chunk and layer fit.
 *
 * ---- Evictions (EVICTION_LIST) ---------------------------------------------------------
 *  lru              least recently used
 *  fifo             oldest insertion
 *  lfu              fewest accesses since insertion; ties: least recently used
 *  random           uniform
 *  edgemoe          evicts the highest L = -f / d, d = ((i - I - 1) mod S) + 1 in 1..S (I the
 *                   running layer, i the entry's, S layers): the running layer's other experts are
 *                   a whole token away. Ties: larger d, then least recently used. f: tokens that
 *                   accessed the expert, halved every RESIDENCY_HALVING tokens, or the profile's
 *                   frequency. EdgeMoE §III-C2, its prose.
 *  edgemoe-printed  as edgemoe, with d = (S - i + I) mod S as the paper prints it; d = 0 (the
 *                   running layer) counts as L = -infinity: such an entry is evicted last. Ties:
 *                   least recently used.
 *  hobbit           evicts the lowest priority (HOBBIT eq. 3)
 *                     w_lru R/T + w_lfu F/T + w_lhu H/T + w_fld (1 - ((i - I + S) mod S) / S),
 *                   ties least recently used. With fld_next the last term is 1 - (d - 1) / S with
 *                   edgemoe's d. R, F, H belong to the expert, not to the slot: R the token of its
 *                   last access, F tokens that accessed it, H those of them whose need was high;
 *                   T tokens since the records were reset, at least 1. Reset at the start of every
 *                   sequence, unless records_model; then all running sequences add to them.
 *  arc              Megiddo and Modha's ARC in every group of the allocation: T1, T2, and ghosts
 *                   B1, B2; c is the number of experts at high_precision that its share holds. A
 *                   victim that `may` rejects is skipped. A prefetched entry enters T1 and its
 *                   first access does not promote it.
 *  decayed-frequency
 *                   evicts the highest L = -p / d, d as in edgemoe, ties least recently used. p is
 *                   the access probability per token: 1/4 of a count of tokens that halves every
 *                   token, 3/4 of one that halves every 128, each divided by its maximum, both
 *                   initialised with two tokens of uniform access. The start of a sequence ages
 *                   them by 128 tokens. Added by this project: edgemoe's f adapts too slowly to a
 *                   topic and has no data in the first tokens.
 *  learned          as decayed-frequency, but p comes from a logistic model. Inputs: four running
 *                   means of the expert's margin (its router logit, or with a bias or groups what
 *                   the logit is above what it needs: routing.h; nats above the midpoint between
 *                   the last chosen and the first not chosen; half-lives of 1, 4, 16, 64 tokens),
 *                   the log odds of the slow count of decayed-frequency, and 1. All experts share
 *                   the six weights, which are learned online: every token labels all experts of
 *                   all layers by whether they lay above the midpoint (the last chosen does not
 *                   where the first not chosen has the same sixteenth of a nat), followed by one
 *                   Newton step. An access n tokens ahead counts 0.75^(n-1) as much as the next
 *                   token's. Means age like the counts of decayed-frequency. Where a layer has no
 *                   logits from the last 64 tokens - an old trace, a prompt, the first token of a
 *                   sequence - p is of another model, which learns so from decoded steps without
 *                   logits: inputs are the log odds of three counts (half-lives of 1, 8 and 128
 *                   tokens) and of decayed-frequency's p, and 1. Before the first such step, p is
 *                   that of decayed-frequency. Added by this project: router logits rate every
 *                   expert, accesses only show the few that were chosen.
 *  activation       evicts the lowest priority (a + e) (1 - l / S): a the expert's share of its
 *                   layer's accesses since the last start of a sequence, l its layer, e = 1 / 1024:
 *                   experts of the first layers stay, because predictions come too late for them.
 *                   Ties: least recently used. MoE-Infinity (arXiv:2401.14361) §6
 *  s3-fifo          Yang et al.'s S3-FIFO (SOSP 2023, algorithm 1) in every group of the
 *                   allocation: a small FIFO of a tenth of its c (as arc's), a main one, and ghosts
 *                   of what left the small one. s3_fifo.c has its order
 *  score            evicts the highest value of the caller's function (config.score). For belady.
 * A slot whose expert is also resident at a higher precision is evicted before all others.
 *
 * ---- Allocations (ALLOCATION_LIST): division of the capacity ---------------------------
 * An allocation divides the slots into groups, each with a share of the capacity. Shares are
 * targets, not limits: any group may use free space. The victim is searched in the group that would
 * be most above its share with the incoming entry counted (ties: the incoming entry's own group,
 * then the lower number); if that group has no victim, in the next.
 *  shared      one group with the whole capacity
 *  transient   one group; entries are not kept beyond the layer they were loaded for: see
 *              residency_expired
 *  precisions  one group per precision; high_precision has `share_high` of the capacity,
 *              low_precision the rest, others nothing (HOBBIT §3.4); all of it when both are equal
 *  even        one group per layer, equal shares
 *  fate        one group per layer; K entries are reserved for the running layer, the layers below
 *              `boundary` get capacity for all their experts, in order, as far as it suffices, and
 *              the deep ones divide the rest evenly (Fate §4.4)
 *  planned     one group per layer, in proportion to `shares`; equal without them
 *
 * Nothing allocates after residency_create. Cost of a victim: O(rejected) for lru, fifo and arc;
 * one scan of the resident slots of a group for the others. */
#ifndef SLUICE_POLICY_RESIDENCY_RESIDENCY_H
#define SLUICE_POLICY_RESIDENCY_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/model/expert_layers.h"
#include "lib/policy/choice.h"

#define POLICY_NONE UINT32_MAX

/* Of accesses alone: a GPU uses these, too (lib/policy/gpu/places.h). */
#define EVICTION_LIST_OF_ACCESSES(X)                                                               \
    X(EVICTION_FIFO, "fifo")                                                                       \
    X(EVICTION_LRU, "lru")                                                                         \
    X(EVICTION_LFU, "lfu")                                                                         \
    X(EVICTION_RANDOM, "random")                                                                   \
    X(EVICTION_EDGEMOE, "edgemoe")                                                                 \
    X(EVICTION_EDGEMOE_PRINTED, "edgemoe-printed")                                                 \
    X(EVICTION_HOBBIT, "hobbit")                                                                   \
    X(EVICTION_ARC, "arc")                                                                         \
    X(EVICTION_S3FIFO, "s3-fifo")                                                                  \
    X(EVICTION_DECAYED, "decayed-frequency")                                                       \
    X(EVICTION_ACTIVATION, "activation")
#define EVICTION_LIST(X) EVICTION_LIST_OF_ACCESSES(X) X(EVICTION_LEARNED, "learned")
#define ALLOCATION_LIST(X)                                                                         \
    X(ALLOCATE_SHARED, "shared")                                                                   \
    X(ALLOCATE_TRANSIENT, "transient")                                                             \
    X(ALLOCATE_PRECISIONS, "precisions")                                                           \
    X(ALLOCATE_EVEN, "even")                                                                       \
    X(ALLOCATE_FATE, "fate")                                                                       \
    X(ALLOCATE_PLANNED, "planned")

enum eviction {
    EVICTION_LIST(CHOICE_ID) EVICTION_SCORE /* simulator only: the lowest config.score (belady) */
};
enum allocation { ALLOCATION_LIST(CHOICE_ID) };

#define RESIDENCY_PRECISIONS_MAX 4
#define RESIDENCY_HALVING        256 /* tokens between halvings of edgemoe's f */

struct residency;

struct residency_config {
    uint32_t layers, experts, top_k;
    struct expert_layers expert_layers; /* the last one is below MODEL_LAYERS_MAX */
    uint32_t precisions;                /* present: slots = precisions * layers * experts */
    /* Bytes of a slot, by precision_index; all above 0. */
    uint64_t precision_bytes[RESIDENCY_PRECISIONS_MAX];
    /* Bytes of each slot, borrowed, where slots of a precision differ; else NULL. */
    const uint64_t *slot_bytes;
    /* The precision_index of those that the policy requests; equal when it is only one. Shares are
     * counted in experts at high_precision. */
    uint32_t high_precision, low_precision;
    enum eviction eviction;
    enum allocation allocation;
    uint64_t seed;                             /* of random */
    const float *frequency;                    /* edgemoe: [layers * experts], of a profile,
                                                  borrowed; NULL: counted online */
    const float *shares;                       /* planned: [layers], any unit, borrowed; or NULL */
    double share_high;                         /* precisions: 0..1 */
    uint32_t boundary;                         /* fate: layers below it are shallow; at least 1 */
    float w_lru, w_lfu, w_lhu, w_fld;          /* hobbit */
    bool fld_next, records_model;              /* hobbit */
    double (*score)(void *arg, uint32_t slot); /* EVICTION_SCORE only */
    void *score_arg;
    bool walks; /* residency_walk is used */
};

struct residency_step {
    uint32_t sequence;
    uint32_t position; /* of the token; of the chunk's first in prefill */
    uint32_t layer;
};

struct residency_access {
    uint32_t tokens; /* decode: 1; prefill: tokens of the chunk that access it */
    bool high;       /* it needed high precision (lossless: always) */
};

/* Returns NULL when a count is 0 or memory is short. Arrays of the config are borrowed until
 * residency_destroy. The capacity is 0 until residency_capacity is called. */
struct residency *residency_create(const struct residency_config *config);
void residency_destroy(struct residency *r);

/* Sets the maximum bytes of all resident slots. The caller enforces it; here it only determines the
 * shares. May change at any time. */
void residency_capacity(struct residency *r, uint64_t bytes);

/* A sequence starts or ends. Starting one that runs changes nothing, nor does ending one that does
 * not. Without a start, the first step or the first logits of a sequence start it. */
void residency_sequence_starts(struct residency *r, uint32_t sequence);
void residency_sequence_ends(struct residency *r, uint32_t sequence);

/* Reports the position of compute. Repeating the same position changes nothing. */
void residency_step(struct residency *r, const struct residency_step *step);

/* Reports an access of the sequence that was stepped last: `slot`, resident or not, served it or
 * was requested. Skipped accesses are not reported. */
void residency_accessed(struct residency *r, uint32_t slot, const struct residency_access *access);

/* Computes how far each of the n margins of a layer (routing_margins) is below the largest, in
 * sixteenths of a nat, at most 255. Access logs and traces have margins in this form. */
void residency_logit_levels(const float *logits, uint32_t n, uint8_t *levels);

/* Reports the margins of a layer as such levels, for `count` experts from `first` on. It is called
 * before the residency_step of the same sequence, position and layer, which learns them: only then
 * is compute known to have pinned the layer's experts. A layer is reported whole, in any pieces, in
 * ascending order; one without logits is judged by its accesses. Only eviction "learned" uses
 * them. */
void residency_logits(struct residency *r, const struct residency_step *at, uint32_t first,
                      const uint8_t *levels, uint32_t count);

/* The slot becomes resident. prefetched: it is loaded for a prediction, and was not accessed so
 * far. Pre: it is not resident. */
void residency_insert(struct residency *r, uint32_t slot, bool prefetched);

/* The slot is no longer resident. evicted: by the policy's choice or because the capacity shrank,
 * so that arc keeps it as a ghost; false: its reservation failed. Pre: it is resident. */
void residency_remove(struct residency *r, uint32_t slot, bool evicted);

bool residency_is_resident(const struct residency *r, uint32_t slot);

/* Returns the first slot in eviction order for which may(arg, slot) is true, or POLICY_NONE; the
 * caller removes it. incoming: the slot that needs the space, or POLICY_NONE when the capacity
 * shrinks. `may` must not call functions of this object. */
uint32_t residency_victim(struct residency *r, uint32_t incoming,
                          bool (*may)(void *arg, uint32_t slot), void *arg);

/* Calls `visit` for resident slots in eviction order, until it returns true. A slot may come twice.
 * With eviction `random` each one is drawn. Cost: one scan of the resident slots, and the logarithm
 * of their number for each visit; for lru, fifo and arc only the visits. `visit` must not call
 * functions of this object. Pre: config.walks is set, and the allocation has one group. */
void residency_walk(struct residency *r, uint32_t incoming, bool (*visit)(void *arg, uint32_t slot),
                    void *arg);

/* With allocation `transient`: returns a resident slot of another layer than the running one for
 * which `may` is true. It must be evicted now although there is free space. Every other allocation
 * gives POLICY_NONE. To be called after every residency_step until it returns POLICY_NONE. */
uint32_t residency_expired(struct residency *r, bool (*may)(void *arg, uint32_t slot), void *arg);

/* The number of slots, resident or not. */
uint32_t residency_slots(const struct residency *r);
/* The number of resident slots, and their bytes. */
uint32_t residency_resident_count(const struct residency *r);
uint64_t residency_resident_bytes(const struct residency *r);
uint64_t residency_slot_bytes(const struct residency *r, uint32_t slot);

/* The number of recent tokens that accessed the expert (edgemoe's f, halved every RESIDENCY_HALVING
 * tokens). It is maintained for every eviction. */
float residency_frequency(const struct residency *r, uint32_t slot);

/* Shares, for tests and statistics: the number of groups, the group of a slot, and the target and
 * resident bytes of a group. */
uint32_t residency_groups(const struct residency *r);
uint32_t residency_group_of(const struct residency *r, uint32_t slot);
uint64_t residency_group_share(const struct residency *r, uint32_t group);
uint64_t residency_group_bytes(const struct residency *r, uint32_t group);

#endif
