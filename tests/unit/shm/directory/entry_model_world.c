/* SPDX-License-Identifier: Apache-2.0 */
/* Compute, the supervisor, the start state, and the invariants. */
#include <string.h>

#include "lib/base/assert.h"
#include "tests/unit/shm/directory/entry_model.h"

const struct model *m;
const char *what;
bool what_is_a_fault;

/* ---- compute: pin, read the word, read the data, unpin */

unsigned compute_choices(void)
{
    return 4;
}

static bool start_access(struct world *w, uint8_t entry)
{
    struct compute *c = &w->compute;
    if (c->stage != STAGE_IDLE)
        return false;
    c->want = entry;
    if (m->read_before_pin) {
        bool ready = entry_state_of(step_read(w, entry)) == ENTRY_READY;
        what = "compute: looks";
        if (!ready)
            step_pin(w, entry, true);
        c->stage = ready ? STAGE_CHECKED : STAGE_WAITING;
        return true;
    }
    bool ready = entry_state_of(step_pin(w, entry, true)) == ENTRY_READY;
    c->stage = ready ? STAGE_READING : STAGE_WAITING;
    what = "compute: pins and looks";
    return true;
}

static bool read_again(struct world *w)
{
    struct compute *c = &w->compute;
    if (c->stage == STAGE_CHECKED) {
        step_pin(w, c->want, true);
        c->stage = STAGE_READING;
        what = "compute: pins what it has looked at";
        return true;
    }
    if (c->stage != STAGE_WAITING || entry_state_of(step_read(w, c->want)) != ENTRY_READY)
        return false;
    c->stage = STAGE_READING;
    what = "compute: sees READY";
    return true;
}

static bool end_access(struct world *w)
{
    struct compute *c = &w->compute;
    if (c->stage != STAGE_WAITING && c->stage != STAGE_READING)
        return false;
    what = c->stage == STAGE_READING ? "compute: unpins" : "compute: gives up";
    what_is_a_fault = c->stage == STAGE_WAITING;
    step_pin(w, c->want, false);
    c->stage = STAGE_IDLE;
    c->want = 0;
    return true;
}

bool compute_step(struct world *w, unsigned choice)
{
    if (w->compute.phase != COMPUTE_UP)
        return false;
    switch (choice) {
    case 0:
    case 1: return start_access(w, (uint8_t)choice);
    case 2: return read_again(w);
    default: return end_access(w);
    }
}

/* ---- supervisor */

static bool may_kill(struct world *w)
{
    if (w->kills == 0)
        return false;
    w->kills--;
    what_is_a_fault = true;
    return true;
}

static bool step_loader(struct world *w, unsigned d, unsigned choice)
{
    if (d >= m->loaders)
        return false;
    struct loader *l = &w->loader[d];
    switch (choice) {
    case 0:
        if (l->phase != LOADER_UP || !may_kill(w))
            return false;
        what = "supervisor: a loader is killed";
        l->phase = LOADER_KILLED;
        if (!m->unreaped)
            loader_reap(w, d);
        return true;
    case 1:
        if (l->phase != LOADER_KILLED)
            return false;
        what = "supervisor: reaps the loader";
        loader_reap(w, d);
        return true;
    default:
        if (l->phase != LOADER_REAPED || ((w->uncleaned & 1u << d) && !m->spawn_before_clean))
            return false;
        what = "supervisor: spawns the loader's successor";
        loader_spawn(w, d);
        return true;
    }
}

static bool kill_cache(struct world *w)
{
    if (w->cache.phase == CACHE_DEAD || !may_kill(w))
        return false;
    w->cache = (struct cache){.phase = CACHE_DEAD};
    memset(w->cache.owner, NONE, sizeof w->cache.owner);
    what = "supervisor: the cache is killed and reaped";
    return true;
}

static bool spawn_cache(struct world *w)
{
    if (w->cache.phase != CACHE_DEAD)
        return false;
    w->cache.phase = CACHE_EPOCH;
    what = "supervisor: spawns the cache's successor";
    return true;
}

static bool kill_compute(struct world *w)
{
    struct compute *c = &w->compute;
    if (c->phase != COMPUTE_UP || c->sweep_next != NONE || !may_kill(w))
        return false;
    *c = (struct compute){.phase = m->sweep_after_spawn ? COMPUTE_UP : COMPUTE_DEAD};
    what = "supervisor: compute is killed and reaped";
    return true;
}

static bool sweep(struct world *w)
{
    struct compute *c = &w->compute;
    int result;
    if (c->sweep_next == NONE)
        return false;
    what = "supervisor: sweeps";
    if (!call_step(w, c->sweep_next, &c->sweep, (struct fn_args){.fn = FN_SWEEP}, &result))
        return true;
    if (++c->sweep_next == ENTRIES) {
        c->sweep_next = NONE;
        c->phase = COMPUTE_UP;
        what = "supervisor: sweeps the last entry, spawns compute's successor";
    }
    return true;
}

unsigned supervisor_choices(void)
{
    return LOADERS_MAX * 3 + 4;
}

bool supervisor_step(struct world *w, unsigned choice)
{
    if (choice < LOADERS_MAX * 3)
        return step_loader(w, choice / 3, choice % 3);
    switch (choice - LOADERS_MAX * 3) {
    case 0: return kill_cache(w);
    case 1: return spawn_cache(w);
    case 2: return kill_compute(w);
    default: return sweep(w);
    }
}

/* ---- the whole world */

void world_start(struct world *w)
{
    memset(w, 0, sizeof *w);
    for (unsigned d = 0; d < LOADERS_MAX; d++)
        for (unsigned j = 0; j < JOBS; j++)
            w->loader[d].job[j].entry = NONE;
    memset(w->cache.owner, NONE, sizeof w->cache.owner);
    w->cache.phase = CACHE_RUN;
    w->compute.sweep_next = NONE;
    w->kills = m->kills;
}

static void swap_jobs(struct loader *l)
{
    struct job first = l->job[0];
    l->job[0] = l->job[1];
    l->job[1] = first;
    if (l->call.active)
        l->call_job = (uint8_t)(1 - l->call_job);
}

/* LOADs that every check will reject forever are dropped: generations, epochs and incarnations only
 * grow, and a cleared pending bit is not set again in its generation. */
static uint64_t live_loads(const struct world *w, unsigned d)
{
    uint64_t live = 0;
    for (uint8_t e = 0; e < ENTRIES; e++) {
        uint64_t word = unpack(w->word[e]);
        uint64_t generation = entry_generation_of(word);
        if (generation >= m->generations || !m->ops->pending(word, generation, d))
            continue;
        for (uint8_t s = 0; s < m->slots; s++)
            live |= UINT64_C(1) << load_bit(e, s, (uint8_t)generation, w->epoch,
                                            w->loader[d].incarnation);
    }
    return live;
}

void world_normal(struct world *w)
{
    for (unsigned d = 0; d < m->loaders; d++) {
        struct loader *l = &w->loader[d];
        if (memcmp(&l->job[0], &l->job[1], sizeof l->job[0]) > 0)
            swap_jobs(l);
        if (!m->take_unchecked)
            w->sent[d] &= live_loads(w, d);
    }
}

const char *world_bad(const struct world *w)
{
    if (w->evicted_pinned)
        return "a pinned READY entry was taken away";
    uint64_t a = unpack(w->word[0]), b = unpack(w->word[1]);
    if (entry_state_of(a) != ENTRY_ABSENT && entry_state_of(b) != ENTRY_ABSENT &&
        w->location[0] == w->location[1])
        return "two entries that are not ABSENT overlap";
    const struct compute *c = &w->compute;
    if (c->phase != COMPUTE_UP || c->stage != STAGE_READING)
        return NULL;
    uint64_t word = unpack(w->word[c->want]);
    if (entry_state_of(word) != ENTRY_READY || entry_pins_of(word) == 0)
        return "compute reads an entry that is not READY and pinned";
    for (unsigned chunk = 0; chunk < m->chunks; chunk++)
        if (w->content[w->location[c->want]][chunk] != c->want + 1)
            return "compute reads bytes that are not the entry's";
    return NULL;
}
