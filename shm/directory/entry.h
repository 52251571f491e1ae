/* The entry word: state(2) | pins(6) | owed(16) | generation(40). Every change of every entry's
 * word is a function of this file's .c; nobody else touches it.
 *
 *            cache: reserve                 loader: part done (last)
 *   ABSENT ------------------> LOADING -------------------------------> READY
 *     ^  ^                        |  \                                    |
 *     |  |           cache: doom  |   \ loader: part fail                 |
 *     |  |                        v    v                                  |
 *     |  +--- cache: reset ----- DOOMED  (loaders clear their owed bits)  |
 *     |        (owed == 0, generation + 1)                                |
 *     +------------------------- cache: evict (pins == 0, generation + 1) +
 *
 *   compute: pin / unpin in any state.  supervisor: sweep clears a dead process's bit, after
 * waitpid.
 *
 * Rules (DESIGN.md §3): (a) only the cache returns an entry to ABSENT; (b) a range is reused only
 * when no process that was ever told to write it can still do so; (c) a pin is set before the state
 * is looked at; (d) every change out of LOADING is followed by the layer's counter++ and a wake
 * (directory_signal). All operations are read-modify-write, at least acq_rel; publication of
 * payload is the release half of the CAS that clears the last owed bit, its acquisition is
 * entry_pin or entry_read. */
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

/* One pin bit per pinning process; KEEP is the cache's own, on dense tensors, and never swept. */
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

/* The word as it is (acquire). */
uint64_t entry_read(entry_word *word);

/* cache: ABSENT -> LOADING with the pending bits of `pending` (not 0). The location must have been
 * written before. Returns false when it is not ABSENT. *generation: of the reservation, to go into
 * LOAD. */
bool entry_reserve(entry_word *word, uint32_t pending, uint64_t *generation);

enum part_result {
    PART_STALE,   /* another generation, or this loader owes nothing here: nothing was changed */
    PART_CLEARED, /* the bit is cleared, others still owe */
    PART_READY,   /* it was the last: the entry is READY; signal the layer */
    PART_DOOMED   /* the entry is DOOMED; the bit is cleared; signal the layer */
};

/* loader: its part of `generation` is completely read. */
enum part_result entry_part_done(entry_word *word, uint64_t generation, unsigned loader);

/* loader: its part cannot or should not be read. Only when none of its reads for this entry is in
 * flight. */
enum part_result entry_part_fail(entry_word *word, uint64_t generation, unsigned loader);

/* loader: true when a LOAD for this generation may be taken, or its next chunk submitted: the word
 * is LOADING, of that generation, and this loader owes a part. */
bool entry_wants_part(uint64_t word, uint64_t generation, unsigned loader);

/* loader: true when this loader still owes a part of that reservation, LOADING or DOOMED. A LOAD of
 * its epoch and incarnation for which this holds but entry_wants_part does not is answered with
 * entry_part_fail at once when the loader has no job for the entry: an entry that was cancelled
 * before its LOAD arrived would otherwise stay DOOMED for ever. */
bool entry_part_pending(uint64_t word, uint64_t generation, unsigned loader);

/* cache: LOADING -> DOOMED (cancel); in LOADING or DOOMED also clears the owed bits in `reaped`:
 * loaders that were reaped (at a cache's start: or have flushed) and whose ranges were punched.
 * False when the entry is neither or of
 * another generation. Signal the layer when it was LOADING. */
bool entry_doom(entry_word *word, uint64_t generation, uint32_t reaped);

/* cache: DOOMED with owed == 0 -> ABSENT, generation + 1; pins stay. False otherwise. */
bool entry_reset(entry_word *word);

/* cache: READY with no pins -> ABSENT, generation + 1. False otherwise. */
bool entry_evict(entry_word *word);

/* Sets a pin and returns the word as it was then with the pin in it: one RMW, so pin precedes look.
 */
uint64_t entry_pin(entry_word *word, enum entry_pinner pinner);

/* Clears a pin; idempotent. Returns the word after. */
uint64_t entry_unpin(entry_word *word, enum entry_pinner pinner);

/* supervisor: clears a dead process's pin; after waitpid, before its successor is spawned;
 * idempotent. */
void entry_sweep(entry_word *word, enum entry_pinner pinner);

#endif
