/* SPDX-License-Identifier: Apache-2.0 */
/* Transitions of the entry word. This file only accesses the word and never waits or allocates,
 * because tests/unit/shm runs it through every interleaving. Each transition is one
 * compare-and-swap loop: read the word, decide from all of it, try; if another process changed the
 * word, decide again. */
#include "shm/directory/entry.h"

#include "lib/base/assert.h"

#define PIN_SHIFT        ENTRY_STATE_BITS
#define PENDING_SHIFT    (ENTRY_STATE_BITS + ENTRY_PIN_BITS)
#define GENERATION_SHIFT (64 - ENTRY_GENERATION_BITS)
#define STATE_MASK       UINT64_C(3)
#define PENDING_MASK     (((UINT64_C(1) << ENTRY_PENDING_BITS) - 1) << PENDING_SHIFT)
#define PINS_MASK        (((UINT64_C(1) << ENTRY_PIN_BITS) - 1) << PIN_SHIFT)
#define GENERATION_ONE   (UINT64_C(1) << GENERATION_SHIFT)

static uint64_t with_state(uint64_t word, enum entry_state state)
{
    return (word & ~STATE_MASK) | (uint64_t)state;
}

static uint64_t pending_bit(unsigned loader)
{
    sl_assert(loader < ENTRY_PENDING_BITS);
    return UINT64_C(1) << (PENDING_SHIFT + loader);
}

static uint64_t pin_bit(enum entry_pinner pinner)
{
    sl_assert((unsigned)pinner < PINNER__COUNT);
    return UINT64_C(1) << (PIN_SHIFT + (unsigned)pinner);
}

/* On failure *seen is the current word. acq_rel: the release half publishes this process's earlier
 * stores (payload, offset, punch), the acquire half sees those of the word's last writer. */
static bool swap(entry_word *word, uint64_t *seen, uint64_t next)
{
    return atomic_compare_exchange_weak_explicit(word, seen, next, memory_order_acq_rel,
                                                 memory_order_acquire);
}

uint64_t entry_read(entry_word *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

bool entry_reserve(entry_word *word, uint32_t pending, uint64_t *generation)
{
    sl_assert(pending != 0 && pending < (1u << ENTRY_PENDING_BITS));
    uint64_t seen = entry_read(word);
    do {
        if (entry_state_of(seen) != ENTRY_ABSENT)
            return false;
    } while (!swap(word, &seen,
                   with_state(seen & ~PENDING_MASK, ENTRY_LOADING) | (uint64_t)pending
                                                                         << PENDING_SHIFT));
    *generation = entry_generation_of(seen);
    return true;
}

bool entry_wants_shard(uint64_t word, uint64_t generation, unsigned loader)
{
    return entry_state_of(word) == ENTRY_LOADING && entry_generation_of(word) == generation &&
           (word & pending_bit(loader)) != 0;
}

/* A loader may change a word only under this condition. */
bool entry_shard_pending(uint64_t word, uint64_t generation, unsigned loader)
{
    enum entry_state state = entry_state_of(word);
    return (state == ENTRY_LOADING || state == ENTRY_DOOMED) &&
           entry_generation_of(word) == generation && (word & pending_bit(loader)) != 0;
}

enum shard_result entry_shard_done(entry_word *word, uint64_t generation, unsigned loader)
{
    uint64_t bit = pending_bit(loader);
    uint64_t seen = entry_read(word), next;
    do {
        if (!entry_shard_pending(seen, generation, loader))
            return SHARD_STALE;
        next = seen & ~bit;
        if (entry_state_of(seen) == ENTRY_LOADING && entry_pending_of(next) == 0)
            next = with_state(next, ENTRY_READY);
    } while (!swap(word, &seen, next));
    switch (entry_state_of(next)) {
    case ENTRY_READY: return SHARD_READY;
    case ENTRY_DOOMED: return SHARD_DOOMED;
    default: return SHARD_CLEARED;
    }
}

enum shard_result entry_shard_fail(entry_word *word, uint64_t generation, unsigned loader)
{
    uint64_t bit = pending_bit(loader);
    uint64_t seen = entry_read(word);
    do {
        if (!entry_shard_pending(seen, generation, loader))
            return SHARD_STALE;
    } while (!swap(word, &seen, with_state(seen & ~bit, ENTRY_DOOMED)));
    return SHARD_DOOMED;
}

bool entry_doom(entry_word *word, uint64_t generation, uint32_t reaped)
{
    sl_assert(reaped < (1u << ENTRY_PENDING_BITS));
    uint64_t seen = entry_read(word);
    do {
        enum entry_state state = entry_state_of(seen);
        if ((state != ENTRY_LOADING && state != ENTRY_DOOMED) ||
            entry_generation_of(seen) != generation)
            return false;
    } while (
        !swap(word, &seen, with_state(seen & ~((uint64_t)reaped << PENDING_SHIFT), ENTRY_DOOMED)));
    return true;
}

bool entry_reset(entry_word *word)
{
    uint64_t seen = entry_read(word);
    do {
        if (entry_state_of(seen) != ENTRY_DOOMED || (seen & PENDING_MASK) != 0)
            return false;
    } while (!swap(word, &seen, with_state(seen, ENTRY_ABSENT) + GENERATION_ONE));
    return true;
}

bool entry_evict(entry_word *word)
{
    uint64_t seen = entry_read(word);
    do {
        if (entry_state_of(seen) != ENTRY_READY || (seen & PINS_MASK) != 0)
            return false;
    } while (!swap(word, &seen, with_state(seen, ENTRY_ABSENT) + GENERATION_ONE));
    return true;
}

uint64_t entry_pin(entry_word *word, enum entry_pinner pinner)
{
    uint64_t bit = pin_bit(pinner);
    return atomic_fetch_or_explicit(word, bit, memory_order_acq_rel) | bit;
}

uint64_t entry_unpin(entry_word *word, enum entry_pinner pinner)
{
    uint64_t bit = pin_bit(pinner);
    return atomic_fetch_and_explicit(word, ~bit, memory_order_acq_rel) & ~bit;
}

void entry_sweep(entry_word *word, enum entry_pinner pinner)
{
    sl_assert(pinner != PINNER_KEEP);       /* KEEP is never swept */
    if (entry_read(word) & pin_bit(pinner)) /* avoid taking the cache line exclusively without
                                             * need */
        entry_unpin(word, pinner);
}
