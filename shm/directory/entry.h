/* SPDX-License-Identifier: Apache-2.0 */
/* The entry word: state(2) | pins(6) | pending(16) | generation(40). Every change of an entry's
 * word is a function of entry.c; no other code writes it.
 *
 *            cache: reserve                 loader: shard done (last)
 *   ABSENT ------------------> LOADING -------------------------------> READY
 *     ^  ^                        |  \                                    |
 *     |  |           cache: doom  |   \ loader: shard fail                 |
 *     |  |                        v    v                                  |
 *     |  +--- cache: reset ----- DOOMED  (loaders clear their pending bits)
 *     |        (pending == 0, generation + 1)                             |
 *     +------------------------- cache: evict (pins == 0, generation + 1) +
 *
 *   compute: pin / unpin in any state.
 *   supervisor: sweep clears the bit of an exited process, after waitpid.
 *
 * Rules:
 *   (a) Only the cache returns an entry to ABSENT.
 *   (b) A range is reused only when no process that was ever sent a LOAD for it can still write it.
 *   (c) A pin is set before the state is read.
 *   (d) Every change out of LOADING is followed by an increment of the layer's counter and a wake
 *       (directory_signal).
 *
 * All operations are read-modify-write, at least acq_rel. Payload is published by the release half
 * of the CAS that clears the last pending bit and acquired by entry_pin or entry_read. */
#ifndef SLUICE_SHM_DIRECTORY_ENTRY_H
#define SLUICE_SHM_DIRECTORY_ENTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ENTRY_STATE_BITS      2
#define ENTRY_PIN_BITS        6
#define ENTRY_PENDING_BITS    16
#define ENTRY_GENERATION_BITS 40
_Static_assert(ENTRY_STATE_BITS + ENTRY_PIN_BITS + ENTRY_PENDING_BITS + ENTRY_GENERATION_BITS == 64,
               "the entry word is 64 bits");

enum entry_state { ENTRY_ABSENT, ENTRY_LOADING, ENTRY_READY, ENTRY_DOOMED };

/* One pin bit per pinning process. KEEP is the cache's, on dense tensors, and never swept. */
enum entry_pinner { PINNER_COMPUTE, PINNER_PREDICTOR, PINNER_KEEP, PINNER__COUNT };
_Static_assert(PINNER__COUNT <= ENTRY_PIN_BITS, "a bit for every pinner");

typedef _Atomic uint64_t entry_word;

static inline enum entry_state entry_state_of(uint64_t word)
{
    return (enum entry_state)(word & 3u);
}
static inline uint32_t entry_pins_of(uint64_t word)
{
    return (uint32_t)(word >> ENTRY_STATE_BITS) & ((1u << ENTRY_PIN_BITS) - 1);
}
static inline uint32_t entry_pending_of(uint64_t word)
{
    return (uint32_t)(word >> (ENTRY_STATE_BITS + ENTRY_PIN_BITS)) &
           ((1u << ENTRY_PENDING_BITS) - 1);
}
static inline uint64_t entry_generation_of(uint64_t word)
{
    return word >> (64 - ENTRY_GENERATION_BITS);
}

/* Current word (acquire). */
uint64_t entry_read(entry_word *word);

/* cache: ABSENT -> LOADING with the pending bits `pending` (not 0). arena_offset must be written
 * before. False when the entry is not ABSENT. *generation: of the reservation, for the LOAD. */
bool entry_reserve(entry_word *word, uint32_t pending, uint64_t *generation);

enum shard_result {
    SHARD_STALE,   /* another generation, or no shard of this loader pending: nothing was changed */
    SHARD_CLEARED, /* the bit is cleared, other shards are pending */
    SHARD_READY,   /* it was the last shard: the entry is READY; signal the layer */
    SHARD_DOOMED   /* the entry is DOOMED; the bit is cleared; signal the layer */
};

/* loader: its shard of `generation` was read completely. */
enum shard_result entry_shard_done(entry_word *word, uint64_t generation, unsigned loader);

/* loader: its shard cannot or should not be read. Only when it has no read for this entry in
 * flight. */
enum shard_result entry_shard_fail(entry_word *word, uint64_t generation, unsigned loader);

/* loader: true when a LOAD of this generation may be accepted, or its next chunk submitted: the
 * word is LOADING, of that generation, and this loader's shard is pending. */
bool entry_wants_shard(uint64_t word, uint64_t generation, unsigned loader);

/* loader: true when a shard of this loader is still pending in that reservation, LOADING or DOOMED.
 * If this holds but entry_wants_shard does not, and the loader has no job for the entry, it must
 * reply to a LOAD of its epoch and incarnation with entry_shard_fail at once: an entry cancelled
 * before its LOAD arrived would otherwise stay DOOMED forever. */
bool entry_shard_pending(uint64_t word, uint64_t generation, unsigned loader);

/* cache: LOADING -> DOOMED (cancel). In LOADING or DOOMED it also clears the pending bits in
 * `reaped`: loaders that were reaped (at a cache's start: or have flushed) and whose ranges were
 * punched. False when the entry is in neither state or of another generation. Signal the layer when
 * it was LOADING. */
bool entry_doom(entry_word *word, uint64_t generation, uint32_t reaped);

/* cache: DOOMED without pending shards -> ABSENT, generation + 1; pins stay. False otherwise. */
bool entry_reset(entry_word *word);

/* cache: READY with no pins -> ABSENT, generation + 1. False otherwise. */
bool entry_evict(entry_word *word);

/* Sets a pin and returns the word at that moment, with the pin: one RMW, so the pin precedes the
 * read of the state. */
uint64_t entry_pin(entry_word *word, enum entry_pinner pinner);

/* Clears a pin; idempotent. Returns the new word. */
uint64_t entry_unpin(entry_word *word, enum entry_pinner pinner);

/* supervisor: clears the pin of an exited process; after waitpid, before its successor is spawned;
 * idempotent. */
void entry_sweep(entry_word *word, enum entry_pinner pinner);

#endif
