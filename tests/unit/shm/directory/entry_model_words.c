/* SPDX-License-Identifier: Apache-2.0 */
/* Words and the functions of entry.c run on them, one atomic operation at a time.
 *
 * A function in progress is stored as the last value it read. Its next step runs the function again
 * from its start: its first load returns that value, then one operation is executed, and the one
 * after that ends the run. This is correct only if the next operation depends on nothing but the
 * last value read; so every function left in progress is replayed at once, and must request the
 * same operation. */
#include "tests/unit/shm/directory/entry_model.h"

#include "lib/base/assert.h"

struct shim_run shim;

/* packed: state 2 | compute's pin 1 | pending of two loaders 2 | generation 3 */
uint64_t unpack(uint8_t packed)
{
    uint64_t p = packed;
    return (p & 3) | (p >> 2 & 1) << 2 | (p >> 3 & 3) << 8 | (p >> 5) << 24;
}

uint8_t pack(uint64_t word)
{
    sl_assert((word & ~(UINT64_C(7) | UINT64_C(3) << 8 | UINT64_C(7) << 24)) == 0);
    return (uint8_t)((word & 7) | (word >> 8 & 3) << 3 | (word >> 24) << 5);
}

/* True when one more operation may be executed. After the last one every operation "succeeds"
 * without effect, so that the function's loop ends; its result is discarded. */
static bool spend(uint64_t desired)
{
    if (shim.unfinished)
        return false;
    if (shim.budget == 0) {
        shim.unfinished = true;
        shim.desired = desired;
        return false;
    }
    shim.budget--;
    return true;
}

uint64_t shim_load(entry_word *word)
{
    if (shim.replay) {
        shim.replay = false;
        return shim.seen;
    }
    if (!spend(0))
        return shim.seen;
    return shim.seen = atomic_load(word);
}

bool shim_cas(entry_word *word, uint64_t *seen, uint64_t next)
{
    if (!spend(next))
        return true;
    if (atomic_compare_exchange_strong(word, seen, next))
        return true;
    shim.seen = *seen;
    return false;
}

uint64_t shim_or(entry_word *word, uint64_t bits)
{
    return spend(bits) ? atomic_fetch_or(word, bits) : 0;
}

uint64_t shim_and(entry_word *word, uint64_t bits)
{
    return spend(bits) ? atomic_fetch_and(word, bits) : 0;
}

bool shim_store(entry_word *word, uint64_t next)
{
    if (spend(next))
        atomic_store(word, next);
    return true;
}

static int run(entry_word *word, struct fn_args a)
{
    uint64_t generation;
    switch (a.fn) {
    case FN_RESERVE: return m->ops->reserve(word, a.bits, &generation);
    case FN_DONE: return (int)m->ops->done(word, a.generation, a.bits);
    case FN_FAIL: return (int)m->ops->fail(word, a.generation, a.bits);
    case FN_DOOM: return m->ops->doom(word, a.generation, a.bits);
    case FN_RESET: return m->ops->reset(word);
    case FN_EVICT: return m->ops->evict(word);
    case FN_SWEEP: m->ops->sweep(word, PINNER_COMPUTE); return 0;
    }
    sl_panic("function %d", (int)a.fn);
}

static void check_replay(entry_word *word, struct fn_args args)
{
    struct shim_run left = shim;
    uint64_t before = atomic_load(word);
    shim = (struct shim_run){.replay = true, .seen = left.seen};
    run(word, args);
    sl_assert(shim.unfinished && shim.desired == left.desired && atomic_load(word) == before);
    shim = left;
}

bool call_step(struct world *w, uint8_t entry, struct call *call, struct fn_args args, int *result)
{
    uint64_t before = unpack(w->word[entry]);
    entry_word word = before;
    shim = (struct shim_run){.budget = m->whole_calls ? 1000 : 1};
    if (call->active) {
        shim.replay = true;
        shim.seen = unpack(call->seen);
    }
    *result = run(&word, args);
    uint64_t after = atomic_load(&word);
    w->word[entry] = pack(after);
    if (entry_state_of(before) == ENTRY_READY && entry_pins_of(before) != 0 &&
        entry_state_of(after) != ENTRY_READY)
        w->evicted_pinned = 1;
    if (!shim.unfinished) {
        *call = (struct call){0, 0};
        return true;
    }
    check_replay(&word, args);
    call->active = 1;
    call->seen = pack(shim.seen);
    return false;
}

uint64_t step_read(struct world *w, uint8_t entry)
{
    entry_word word = unpack(w->word[entry]);
    shim = (struct shim_run){.budget = 1};
    uint64_t seen = m->ops->read_word(&word);
    sl_assert(!shim.unfinished);
    return seen;
}

uint64_t step_pin(struct world *w, uint8_t entry, bool set)
{
    entry_word word = unpack(w->word[entry]);
    shim = (struct shim_run){.budget = 1};
    uint64_t seen = set ? m->ops->pin(&word, PINNER_COMPUTE) : m->ops->unpin(&word, PINNER_COMPUTE);
    sl_assert(!shim.unfinished); /* pin and read are one operation, else rule (c) is broken */
    w->word[entry] = pack(atomic_load(&word));
    return seen;
}
