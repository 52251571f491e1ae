/* SPDX-License-Identifier: Apache-2.0 */
/* The cache manager: one thread, a private table of slot owners, and the order of operations when a
 * loader exits and at its own start. */
#include <string.h>

#include "tests/unit/shm/directory/entry_model.h"

static enum entry_state state_of(const struct world *w, uint8_t entry)
{
    return entry_state_of(unpack(w->word[entry]));
}

static uint8_t generation_of(const struct world *w, uint8_t entry)
{
    return (uint8_t)entry_generation_of(unpack(w->word[entry]));
}

static uint32_t pending_of(const struct world *w, uint8_t entry)
{
    return entry_pending_of(unpack(w->word[entry]));
}

uint8_t loader_bits(void)
{
    return (uint8_t)((1u << m->loaders) - 1);
}

static void idle(struct cache *c)
{
    c->op = OP_IDLE;
    c->entry = c->loader = c->slot = c->generation = 0;
}

static void disown(struct cache *c, uint8_t entry)
{
    for (unsigned s = 0; s < SLOTS_MAX; s++)
        if (c->owner[s] == entry)
            c->owner[s] = NONE;
}

static bool call(struct world *w, enum entry_fn fn, uint32_t bits, int *result)
{
    struct cache *c = &w->cache;
    return call_step(w, c->entry, &c->call, (struct fn_args){fn, c->generation, bits}, result);
}

/* ---- operations in progress; each continues with its next atomic step */

static void go_reserve(struct world *w)
{
    struct cache *c = &w->cache;
    int ok;
    what = "cache: reserve";
    if (!call(w, FN_RESERVE, loader_bits(), &ok))
        return;
    if (ok && m->location_after_reserve) {
        c->op = OP_LOCATE_LATE;
        return;
    }
    if (!ok)
        c->owner[c->slot] = NONE;
    idle(c);
}

static void go_simple(struct world *w)
{
    struct cache *c = &w->cache;
    int ok;
    enum entry_fn fn = c->op == OP_EVICT ? FN_EVICT : c->op == OP_RESET ? FN_RESET : FN_DOOM;
    what = c->op == OP_EVICT ? "cache: evict" : c->op == OP_RESET ? "cache: reset" : "cache: doom";
    if (!call(w, fn, 0, &ok))
        return;
    if (ok && fn != FN_DOOM)
        disown(c, c->entry);
    idle(c);
}

static void next_debt(struct world *w)
{
    struct cache *c = &w->cache;
    c->entry++;
    c->op = OP_CLEAN_READ;
    if (c->entry < ENTRIES)
        return;
    w->uncleaned &= (uint8_t) ~(1u << c->loader);
    idle(c);
}

static void go_clean(struct world *w)
{
    struct cache *c = &w->cache;
    int ok;
    switch (c->op) {
    case OP_CLEAN_READ: {
        uint64_t word = step_read(w, c->entry);
        what = "cache: looks what the dead loader owes";
        c->generation = (uint8_t)entry_generation_of(word);
        if (entry_pending_of(word) & 1u << c->loader)
            c->op = m->absent_before_punch ? OP_CLEAN_CLEAR : OP_CLEAN_PUNCH;
        else
            next_debt(w);
        return;
    }
    case OP_CLEAN_PUNCH:
        what = "cache: punches its range";
        punch_slot(w, w->location[c->entry]);
        c->op = OP_CLEAN_CLEAR;
        return;
    case OP_CLEAN_CLEAR:
        what = "cache: dooms it, clears the dead loader's bit";
        if (!call(w, FN_DOOM, 1u << c->loader, &ok))
            return;
        if (m->absent_before_punch)
            c->op = OP_CLEAN_RESET;
        else
            next_debt(w);
        return;
    default:
        what = "cache: resets before the punch";
        if (!call(w, FN_RESET, 0, &ok))
            return;
        if (ok) {
            c->punch_later |= (uint8_t)(1u << w->location[c->entry]);
            disown(c, c->entry);
        } else {
            punch_slot(w, w->location[c->entry]);
        }
        next_debt(w);
        return;
    }
}

static void next_settled(struct world *w)
{
    struct cache *c = &w->cache;
    c->entry++;
    c->op = c->entry < ENTRIES ? OP_START_READ : OP_START_UNOWNED;
}

static void go_settle(struct world *w)
{
    struct cache *c = &w->cache;
    int ok;
    switch (c->op) {
    case OP_START_READ: {
        uint64_t word = step_read(w, c->entry);
        what = "cache: rebuilds from a word";
        c->generation = (uint8_t)entry_generation_of(word);
        if (entry_state_of(word) == ENTRY_READY)
            c->owner[w->location[c->entry]] = c->entry;
        if (entry_state_of(word) == ENTRY_LOADING || entry_state_of(word) == ENTRY_DOOMED)
            c->op = OP_START_PUNCH;
        else
            next_settled(w);
        return;
    }
    case OP_START_PUNCH:
        what = "cache: punches an unfinished range";
        punch_slot(w, w->location[c->entry]);
        c->op = OP_START_CLEAR;
        return;
    case OP_START_CLEAR:
        what = "cache: dooms it and clears all bits";
        if (call(w, FN_DOOM, loader_bits(), &ok))
            c->op = OP_START_RESET;
        return;
    case OP_START_RESET:
        what = "cache: resets it";
        if (call(w, FN_RESET, 0, &ok))
            next_settled(w);
        return;
    default:
        what = "cache: punches unowned slots";
        for (uint8_t s = 0; s < m->slots; s++)
            if (c->owner[s] == NONE)
                punch_slot(w, s);
        c->phase = CACHE_RUN;
        idle(c);
        return;
    }
}

/* ---- starts of operations */

static bool start_reserve(struct world *w, uint8_t entry, uint8_t slot)
{
    struct cache *c = &w->cache;
    if (slot >= m->slots || c->owner[slot] != NONE || state_of(w, entry) != ENTRY_ABSENT ||
        generation_of(w, entry) >= m->generations)
        return false;
    c->owner[slot] = entry;
    if (!m->location_after_reserve)
        w->location[entry] = slot;
    c->op = OP_RESERVE;
    c->entry = entry;
    c->slot = slot;
    what = "cache: writes the location";
    return true;
}

static bool send_load(struct world *w, uint8_t entry, unsigned d)
{
    if (d >= m->loaders || w->loader[d].phase == LOADER_REAPED ||
        !(pending_of(w, entry) & 1u << d)) /* LOADING or DOOMED */
        return false;
    unsigned bit = load_bit(entry, w->location[entry], generation_of(w, entry), w->epoch,
                            w->loader[d].incarnation);
    if (w->sent[d] >> bit & 1)
        return false;
    w->sent[d] |= UINT64_C(1) << bit;
    what = "cache: LOAD";
    return true;
}

static bool start_simple(struct world *w, uint8_t entry, enum cache_op op)
{
    enum entry_state needs = op == OP_EVICT   ? ENTRY_READY
                             : op == OP_RESET ? ENTRY_DOOMED
                                              : ENTRY_LOADING;
    if (state_of(w, entry) != needs || (op == OP_RESET && pending_of(w, entry) != 0))
        return false; /* the call would return false and change nothing */
    w->cache.op = (uint8_t)op;
    w->cache.entry = entry;
    w->cache.generation = generation_of(w, entry);
    go_simple(w);
    return true;
}

static bool start_clean(struct world *w, unsigned d)
{
    if (d >= m->loaders)
        return false;
    bool gone = w->loader[d].phase == LOADER_REAPED && (w->uncleaned & 1u << d);
    if (m->clean_killed && w->loader[d].phase == LOADER_KILLED)
        gone = true;
    if (!gone)
        return false;
    w->cache.op = OP_CLEAN_READ;
    w->cache.loader = (uint8_t)d;
    go_clean(w);
    return true;
}

static bool late_punch(struct world *w, uint8_t slot)
{
    if (!(w->cache.punch_later & 1u << slot))
        return false;
    w->cache.punch_later &= (uint8_t) ~(1u << slot);
    punch_slot(w, slot);
    what = "cache: punches at last";
    return true;
}

static bool start_step(struct world *w)
{
    struct cache *c = &w->cache;
    if (c->phase == CACHE_EPOCH) {
        w->epoch++;
        c->phase = m->start_without_flush ? CACHE_SETTLE : CACHE_FLUSH;
        c->op = m->start_without_flush ? OP_START_READ : OP_IDLE;
        what = "cache: starts, raises the epoch";
        return true;
    }
    if (w->flush_sent < w->epoch) {
        w->flush_sent = w->epoch;
        what = "cache: FLUSH";
        return true;
    }
    for (unsigned d = 0; d < m->loaders; d++)
        if (w->loader[d].phase != LOADER_REAPED && w->loader[d].flush_replied != w->epoch)
            return false;
    c->phase = CACHE_SETTLE;
    c->op = OP_START_READ;
    what = "cache: every loader has flushed or was reaped";
    return true;
}

unsigned cache_choices(void)
{
    return 19;
}

bool cache_step(struct world *w, unsigned choice)
{
    struct cache *c = &w->cache;
    if (c->phase == CACHE_DEAD)
        return false;
    if (c->phase == CACHE_EPOCH || c->phase == CACHE_FLUSH)
        return choice == 0 && start_step(w);
    if (c->op != OP_IDLE) {
        if (choice != 0)
            return false;
        if (c->op == OP_RESERVE) {
            go_reserve(w);
        } else if (c->op == OP_LOCATE_LATE) {
            w->location[c->entry] = c->slot;
            idle(c);
            what = "cache: writes the location late";
        } else if (c->op <= OP_RESET) {
            go_simple(w);
        } else if (c->op < OP_START_READ) {
            go_clean(w);
        } else {
            go_settle(w);
        }
        return true;
    }
    uint8_t e = choice & 1, x = choice >> 1 & 1;
    switch (choice >> 2) {
    case 0: return start_reserve(w, e, x);
    case 1: return send_load(w, e, x);
    case 2: return start_simple(w, e, x ? OP_EVICT : OP_CANCEL);
    case 3: return x ? start_simple(w, e, OP_RESET) : start_clean(w, e);
    default: return !x && late_punch(w, e);
    }
}
