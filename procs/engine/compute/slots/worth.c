/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the worth of memory, and remembers prefixes that were given up. */
#include "procs/engine/compute/slots/worth.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/table.h"

#define DECIDE_NS (250 * NS_PER_MS)
#define STEP_MIN  MIB /* a step of a small budget */

static uint32_t tiles_most(const struct slots *p)
{
    return p->child->kv.head->context / KV_TILE + 1;
}

static uint32_t *hashes_of(const struct slots *p, uint32_t ghost)
{
    return p->worth.hash + (size_t)ghost * tiles_most(p);
}

/* Of the tokens up to the end of each tile. Two prompts with one hash would only be counted
 * wrongly. Returns the number of tiles. */
static uint32_t hash_tiles(const _Atomic uint32_t *log, uint32_t tokens, uint32_t *out)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (uint32_t tile = 0; tile < tokens / KV_TILE; tile++) {
        for (uint32_t i = 0; i < KV_TILE; i++)
            h = (h ^ atomic_load_explicit(&log[tile * KV_TILE + i], memory_order_relaxed)) *
                0x9e3779b97f4a7c15ull;
        out[tile] = (uint32_t)(h >> 32);
    }
    return tokens / KV_TILE;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint64_t counter_of(const struct slots *p, enum service service, unsigned counter)
{
    return counter_get(&p->child->procs.head->process[procs_index_of(service, 0)], counter);
}

static uint64_t step_bytes(const struct slots *p)
{
    uint64_t budget = counter_of(p, SERVICE_SUPERVISOR, CTR_SUPERVISOR_budget_bytes);
    uint64_t step = align_up(budget / BALANCE_STEPS, PAGE_BYTES);
    return step > STEP_MIN ? step : STEP_MIN;
}

static double steps_beside_pool(const struct slots *p, uint64_t bytes)
{
    return ((double)bytes - (double)p->child->kv.pool_bytes) / (double)step_bytes(p);
}

/* ---- prefixes -------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct reuse_table *t, uint32_t slot)
{
    return t->slot[slot].bytes - t->slot[slot].counted + reuse_version_bytes(t, slot);
}

/* What is kept longer than something that was used then: running ones, and what was used since. */
static uint64_t bytes_since(const struct slots *p, uint32_t used)
{
    struct slots_table s;
    const struct reuse_table *t = slots_table(p, &s);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->slots; i++)
        if (t->slot[i].use == REUSE_RUNNING ||
            (t->slot[i].use == REUSE_KEPT && t->slot[i].used >= used))
            bytes += bytes_of(t, i);
    return bytes;
}

void worth_takes(struct slots *p, uint32_t slot, uint32_t rows)
{
    const struct kv_slot *s = &p->child->kv.head->slot[slot];
    uint32_t all = atomic_load(&s->rows);
    if (!p->worth.hash || !slots_is_kept(p, slot))
        return;
    balance_prefix(&p->worth.balance, steps_beside_pool(p, bytes_since(p, s->used)),
                   (uint64_t)((double)s->cost_ns * rows / all));
    p->worth.counted = true;
}

/* The one that is forgotten for another one: that was used longest ago. */
static uint32_t oldest(const struct worth *w)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < WORTH_GHOSTS; i++) {
        if (w->ghost[i].tiles == 0)
            return i;
        if (w->ghost[i].used < w->ghost[found].used)
            found = i;
    }
    return found;
}

/* One whose tokens these are the beginning of. */
static bool is_known(const struct slots *p, const uint32_t *hash, uint32_t tiles)
{
    for (uint32_t i = 0; i < WORTH_GHOSTS; i++)
        if (p->worth.ghost[i].tiles >= tiles && hashes_of(p, i)[tiles - 1] == hash[tiles - 1])
            return true;
    return false;
}

void worth_given_up(struct slots *p, uint32_t slot)
{
    struct slots_table s;
    const struct kv_slot *k = &p->child->kv.head->slot[slot];
    if (!p->worth.hash)
        return;
    uint32_t *hash = hashes_of(p, WORTH_GHOSTS), rows = atomic_load(&k->rows);
    uint32_t tiles = hash_tiles(kv_slot_log(&p->child->kv, slot), rows, hash);
    if (tiles == 0 || k->side || is_known(p, hash, tiles))
        return;
    uint32_t to = oldest(&p->worth);
    memcpy(hashes_of(p, to), hash, tiles * sizeof *hash);
    p->worth.ghost[to] = (struct ghost){.bytes = bytes_of(slots_table(p, &s), slot),
                                        .cost_ns = k->cost_ns,
                                        .tiles = tiles,
                                        .rows = rows,
                                        .used = k->used};
}

void worth_forget(struct slots *p)
{
    for (uint32_t i = 0; i < WORTH_GHOSTS; i++)
        p->worth.ghost[i].tiles = 0;
    if (p->worth.hash)
        memset(p->worth.hash, 0,
               (size_t)(WORTH_GHOSTS + 1) * tiles_most(p) * sizeof *p->worth.hash);
}

/* Those given up that were used since. */
static uint64_t given_up_since(const struct worth *w, uint32_t used)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < WORTH_GHOSTS; i++)
        if (w->ghost[i].tiles > 0 && w->ghost[i].used >= used)
            bytes += w->ghost[i].bytes;
    return bytes;
}

/* The one with most of these tokens; WORTH_GHOSTS: none has any. */
static uint32_t longest(const struct slots *p, const uint32_t *hash, uint32_t tiles,
                        uint32_t *common)
{
    uint32_t found = WORTH_GHOSTS;
    *common = 0;
    for (uint32_t i = 0; i < WORTH_GHOSTS; i++) {
        uint32_t n = p->worth.ghost[i].tiles < tiles ? p->worth.ghost[i].tiles : tiles;
        while (n > *common && hashes_of(p, i)[n - 1] != hash[n - 1])
            n--;
        if (n > *common) {
            *common = n;
            found = i;
        }
    }
    return found;
}

void worth_lacks(struct slots *p, const struct kv_request *q, const _Atomic uint32_t *log,
                 uint32_t rows)
{
    if (!p->worth.hash)
        return;
    uint32_t *hash = hashes_of(p, WORTH_GHOSTS), common;
    uint32_t tiles = hash_tiles(log, atomic_load(&q->prompt_tokens), hash);
    uint32_t found = longest(p, hash, tiles, &common);
    if (found == WORTH_GHOSTS || common * KV_TILE <= rows)
        return;
    struct ghost *g = &p->worth.ghost[found];
    uint64_t bytes = bytes_since(p, g->used) + given_up_since(&p->worth, g->used);
    balance_prefix(&p->worth.balance, steps_beside_pool(p, bytes),
                   (uint64_t)((double)g->cost_ns * (common * KV_TILE - rows) / g->rows));
    p->worth.counted = true;
    if (common == g->tiles) /* it will be kept again */
        g->tiles = 0;
}

/* ---- experts, and the wish ------------------------------------------------------------------- */

static uint64_t grown(uint64_t *seen, uint64_t now)
{
    uint64_t more = now > *seen ? now - *seen : 0;
    *seen = now;
    return more;
}

/* The part of the misses that a step more would have avoided: those whose expert was evicted not
 * long before, by the cache's count; at least as if those that are absent were used alike. */
static double avoidable(const struct slots *p, uint64_t misses, uint64_t near)
{
    const struct directory_head *d = p->child->directory.head;
    double step = (double)step_bytes(p);
    double window = (double)(atomic_load_explicit(&d->quota_bytes, memory_order_relaxed) / 64);
    uint64_t resident = atomic_load_explicit(&d->resident_payload_bytes, memory_order_relaxed);
    uint64_t experts = p->child->model->expert_bytes;
    double evicted = misses > 0 && window > 0 ? (double)near / (double)misses * step / window : 0;
    double alike = experts > resident ? step / (double)(experts - resident) : 0;
    uint64_t all = p->child->model->dense_bytes + p->child->model->expert_slot_bytes;
    if (atomic_load_explicit(&d->quota_bytes, memory_order_relaxed) >= all - all / 100)
        return 0; /* all have memory, but for noise, and are only not read yet */
    return evicted > alike ? evicted : alike;
}

static void note_experts(struct slots *p)
{
    struct worth *w = &p->worth;
    uint64_t stall = grown(&w->stall_ns, counter_get(p->child->process, CTR_COMPUTE_stall_ns));
    uint64_t misses = grown(&w->misses, counter_get(p->child->process, CTR_COMPUTE_misses));
    uint64_t near = grown(&w->near_misses, counter_of(p, SERVICE_CACHE, CTR_CACHE_misses_near));
    if (stall == 0)
        return;
    balance_experts(&w->balance, stall, avoidable(p, misses, near));
    w->counted = true;
}

static uint32_t steps_in(const struct slots *p, uint64_t bytes)
{
    uint64_t steps = bytes / step_bytes(p);
    return steps < BALANCE_MOST ? (uint32_t)steps : BALANCE_MOST;
}

/* Where the computation depends on which experts are in memory, they keep theirs. */
static uint32_t most_steps(const struct slots *p)
{
    const struct directory_head *d = p->child->directory.head;
    uint64_t most = atomic_load_explicit(&d->kv_lent_max_mib, memory_order_relaxed) * MIB;
    return p->lossy ? 0 : steps_in(p, most);
}

void worth_tick(struct slots *p, uint64_t now_ns)
{
    struct worth *w = &p->worth;
    if (now_ns < w->next_ns)
        return;
    w->next_ns = now_ns + DECIDE_NS;
    note_experts(p);
    if (!w->hash || !w->counted)
        return;
    w->counted = false;
    uint32_t steps = balance_decide(&w->balance, steps_in(p, slots_spare_bytes(p)), most_steps(p));
    struct process *row = p->child->process;
    counter_set(row, CTR_COMPUTE_kv_wanted_bytes, steps * step_bytes(p));
    counter_set(row, CTR_COMPUTE_kv_step_ns, (uint64_t)balance_step_ns(&w->balance));
    counter_set(row, CTR_COMPUTE_experts_step_ns, (uint64_t)w->balance.stall_ns);
}

/* What a predecessor wished for stays until it is known to be worth less. */
int worth_open(struct slots *p, struct error *error)
{
    _Static_assert(KV_TILE == 64, "WORTH_BYTES");
    const struct process *row = p->child->process;
    struct worth *w = &p->worth;
    w->hash = calloc((size_t)(WORTH_GHOSTS + 1) * tiles_most(p), sizeof *w->hash);
    if (!w->hash)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prefixes given up)");
    w->balance.steps = steps_in(p, counter_get(row, CTR_COMPUTE_kv_wanted_bytes));
    w->stall_ns = counter_get(row, CTR_COMPUTE_stall_ns);
    w->misses = counter_get(row, CTR_COMPUTE_misses);
    w->near_misses = counter_of(p, SERVICE_CACHE, CTR_CACHE_misses_near);
    return 0;
}
