/* Residency: which expert entries are held, in what share of the room, and who leaves first. One
 * object serves the cache manager and the simulator alike.
 *
 * Slots. An expert entry of the directory is a *slot*: slot = precision_index * layers * experts + layer
 * * experts + expert, where precision_index counts the tiers that are present, best (lowest enum tier)
 * first. It is the directory's entry number less the number of dense entries.
 *
 * ---- The contract that makes the pipeline and the simulator agree
 * -------------------------------- With prefetch off, decode, one sequence at a time, the cache
 * process and `sluice sim` over the recorded trace report the same hits and misses. It takes these
 * rules, on both sides:
 *
 *  1. Uses first. Every use record up to the position a DEMAND names is passed to residency_accessed
 *     before the first victim for that DEMAND is looked for. So the use of a missed entry comes
 *     before its insertion, and hits of the same step have been counted. In decode the logits of a
 *     layer stand before its uses, and are passed to residency_logits in that order.
 *  2. Steps. residency_step is called with the place of a use (or of the DEMAND) before that use is
 *     passed on. A step is one (sequence, position, layer).
 *  3. DEMAND's order. Wanted entries are made room for and inserted one by one, in the order the
 *     DEMAND names them, which is the order of their use records.
 *  4. Insert when reserved. residency_insert is called when the entry leaves ABSENT, not when it
 *     becomes READY: the order of insertion never depends on the drive. A reservation that fails is
 *     taken back with residency_remove(r, slot, false).
 *  5. The running step is spared. Slots used in the running step are no victims while anything else
 *     may leave. (In the pipeline they are also pinned, so that `may` refuses them.)
 *  6. One victim at a time. The caller asks for a victim, removes it, and asks again while the room
 *     does not suffice. Room is bytes: the incoming entry's must fit under the capacity.
 *  7. Nothing else moves a record: looking for victims does not, except that `random` draws.
 *
 * In prefill a chunk may use more experts than fit; then entries of the running step leave, by the
 * policy's order among those the caller allows. Which pins are gone by then depends on time, so
 * there the two agree only where a chunk's experts of a layer fit.
 *
 * ---- Evictions (RESIDENCY_EVICTIONS) ---------------------------------------------------------
 *  lru, fifo, lfu (uses since insertion, ties least recently used), random: as their names say.
 *  edgemoe          highest L = -f / d leaves, d = ((i - I - 1) mod S) + 1 in 1..S (I the running
 *                   layer, i the entry's, S layers): the running layer's other experts are a whole
 *                   token away. Ties: larger d, then least recently used. f: tokens that used the
 *                   expert, halved every RESIDENCY_HALVING tokens, or the profile's frequency.
 *                   EdgeMoE §III-C2, its prose.
 *  edgemoe-printed  the same with d = (S - i + I) mod S as the paper prints it; d = 0 (the running
 *                   layer) counts as L = -infinity: such an entry leaves last. Ties: least recently
 *                   used.
 *  hobbit           lowest priority w_lru R/T + w_lfu F/T + w_lhu H/T + w_fld (1 - ((i - I + S) mod
 *                   S) / S) leaves (HOBBIT eq. 3), ties least recently used. With fld_next the last
 *                   term is 1 - (d - 1) / S with edgemoe's d. R, F, H belong to the expert, not to
 *                   the slot: R the token of its last use, F tokens that used it, H those of them
 *                   whose need was high; T tokens since the records were reset, at least 1. Reset
 *                   at every new sequence, unless records_model.
 *  arc              Megiddo and Modha's ARC in every group of the allocation: T1, T2, and ghosts
 * B1, B2; c is the number of experts at high_precision its share holds. A victim that `may`
 * refuses is passed over. An entry loaded by a guess enters T1 and its first use does not promote
 * it.
 *  decayed-frequency  highest L = -p / d leaves, d as in edgemoe, ties least recently used. p, the
 *                   chance that a token uses the expert: 1/4 of a count of tokens that halves every
 *                   token, 3/4 of one that halves every 128, each over what it could be at most,
 *                   both begun with two tokens of even use. A new sequence ages them as 128
 *                   tokens would. Our own: edgemoe's f is too slow for a topic and knows nothing
 *                   in the first tokens.
 *  learned          as decayed-frequency, but p is the chance that a logistic model gives of four running means
 *                   of the expert's router logit (nats above the midst between the last that is
 *                   chosen and the first that is not; half-lives of 1, 4, 16, 64 tokens), of the
 *                   log odds of rates' slow count, and 1. Its six weights are shared by all
 *                   experts and learnt while running: with every token all experts of all layers
 *                   tell whether they lay above the midst (the last chosen does not where the
 *                   first that is not has the same sixteenth of a nat), and a step of Newton's
 *                   method is taken. A use n tokens ahead counts 0.75^(n-1) as much as the next
 *                   token's. Means age as rates' counts do; where nothing was said of a layer in
 *                   the last 64 tokens - an old trace, a prompt, a sequence's first token - p is
 *                   rates'. Our own: a router says what it thinks of every expert, uses only which
 *                   few it chose.
 *  score            the caller's function says it (config.score): highest leaves. For belady.
 * Before all: a slot whose expert is also held at a better tier leaves first.
 *
 * ---- Allocations (RESIDENCY_ALLOCATIONS): who may hold how much
 * ------------------------------------- An allocation cuts the slots into groups, each with a share
 * of the capacity. Shares are aims, not walls: unused room may be used by anyone, and the victim is
 * looked for in the group that would be most above its share with the incoming entry counted (ties:
 * the incoming entry's own group, then the lower number); where nothing may leave, in the next.
 *  shared     one group, all of it
 *  transient  one group; besides, nothing is kept beyond the layer it was loaded for: see
 *             residency_expired
 *  tiers      one group per tier; the best tier present has `share_high` of the capacity, the
 * others the rest evenly (HOBBIT §3.4) even       one group per layer, the same share each fate one
 * group per layer; K entries are set aside for the layer that runs, the layers below `boundary` get
 * room for all their experts, in order, as far as it goes, and the deep ones divide the rest evenly
 * (Fate §4.4) planned    one group per layer, in proportion to `shares`; even when there are none
 *
 * Nothing here allocates after residency_create. Cost of a victim: O(refused) for lru, fifo and
 * arc; one scan of the held slots of a group for the others. */
#ifndef SLUICE_POLICY_RESIDENCY_RESIDENCY_H
#define SLUICE_POLICY_RESIDENCY_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NONE UINT32_MAX

#define RESIDENCY_EVICTIONS                                                                        \
    "lru|lfu|fifo|random|edgemoe|edgemoe-printed|hobbit|arc|decayed-frequency|learned"
#define RESIDENCY_ALLOCATIONS    "shared|transient|precisions|even|fate|planned"
#define RESIDENCY_PRECISIONS_MAX 4
#define RESIDENCY_HALVING        256 /* tokens between halvings of edgemoe's f */

struct residency;

struct residency_config {
    uint32_t layers, experts, top_k;
    uint32_t precisions; /* present: slots = tiers * layers * experts */
    uint64_t precision_bytes
        [RESIDENCY_PRECISIONS_MAX]; /* of a slot, by precision_index; all must be > 0 ... */
    const uint64_t *slot_bytes; /* ... or of each slot (borrowed), where they differ; else NULL */
    uint32_t high_precision,
        low_precision; /* precision_index of those the system asks for; equal when it is one.
                                     Shares are counted in experts at high_precision */
    const char *eviction, *allocation;
    uint64_t seed;                             /* of random */
    const float *frequency;                    /* edgemoe: [layers * experts], of a profile,
                                                  borrowed; NULL: counted online */
    const float *shares;                       /* planned: [layers], any unit, borrowed; or NULL */
    double share_high;                         /* tiers: 0..1 */
    uint32_t boundary;                         /* fate: layers below it are shallow; at least 1 */
    float w_lru, w_lfu, w_lhu, w_fld;          /* hobbit */
    bool fld_next, records_model;              /* hobbit */
    double (*score)(void *arg, uint32_t slot); /* eviction "score" only */
    void *score_arg;
};

struct residency_step {
    uint32_t sequence; /* another one than before resets the records of sequences */
    uint32_t position; /* of the token; of the chunk's first in prefill */
    uint32_t layer;
};

struct residency_access {
    uint32_t tokens; /* 1 in decode; of the chunk that use it, in prefill */
    bool high;       /* its need was the high tier (lossless: always) */
};

/* NULL when a name is unknown, a count is 0, or memory is short. Arrays of the config are borrowed
 * until residency_destroy, its words are not. The capacity is 0 until residency_capacity is called.
 */
struct residency *residency_create(const struct residency_config *config);
void residency_destroy(struct residency *r);

/* Bytes that all held slots together may have; the caller keeps to it, here it only makes the
 * shares. May change at any time. */
void residency_capacity(struct residency *r, uint64_t bytes);

/* Compute is there now. Repeating the same place changes nothing. */
void residency_step(struct residency *r, const struct residency_step *step);

/* One use that was served by `slot`, or asked for it; held or not. Not for skipped uses. */
void residency_accessed(struct residency *r, uint32_t slot, const struct residency_access *access);

/* How far each of n logits of a layer lies below the largest, in sixteenths of a nat; 255 is that
 * far or farther. What logs and traces hold of logits. */
void residency_logit_levels(const float *logits, uint32_t n, uint8_t *levels);

/* What the router of a layer said of the experts from `first` on, as such levels: before the uses
 * of the same token and layer, after their residency_step. Whole layers, in any pieces; a layer
 * nothing is said of is judged by its uses. Nothing without eviction "learned". */
void residency_logits(struct residency *r, uint32_t layer, uint32_t first, const uint8_t *levels,
                      uint32_t count);

/* Pre: not held. guessed: it was asked for by a guess, nobody has used it yet. */
void residency_insert(struct residency *r, uint32_t slot, bool prefetched);

/* Pre: held. evicted: by the policy's choice or because room shrank, arc remembers it as a ghost;
 * false: the reservation came to nothing. */
void residency_remove(struct residency *r, uint32_t slot, bool evicted);

bool residency_is_resident(const struct residency *r, uint32_t slot);

/* The first in order of leaving for which may(arg, slot) is true; POLICY_NONE when there is none.
 * incoming: the slot room is made for, or POLICY_NONE when the capacity shrinks. Does not remove
 * it. `may` must not call back. */
uint32_t residency_victim(struct residency *r, uint32_t incoming,
                          bool (*may)(void *arg, uint32_t slot), void *arg);

/* transient: a held slot of another layer than the running one, for which may is true; it is to be
 * evicted now although there is room. POLICY_NONE with every other allocation. To be asked after
 * every residency_step until it returns POLICY_NONE. */
uint32_t residency_expired(struct residency *r, bool (*may)(void *arg, uint32_t slot), void *arg);

uint32_t residency_slots(const struct residency *r);
uint32_t residency_resident_count(const struct residency *r);
uint64_t residency_resident_bytes(const struct residency *r);
uint64_t residency_slot_bytes(const struct residency *r, uint32_t slot);

/* Tokens that used the expert lately (edgemoe's f: halved every RESIDENCY_HALVING tokens), kept for
 * every eviction. */
float residency_frequency(const struct residency *r, uint32_t slot);

/* What the shares are, for tests and statistics: groups, and the bytes aimed at and held. */
uint32_t residency_groups(const struct residency *r);
uint32_t residency_group_of(const struct residency *r, uint32_t slot);
uint64_t residency_group_share(const struct residency *r, uint32_t group);
uint64_t residency_group_bytes(const struct residency *r, uint32_t group);

#endif
