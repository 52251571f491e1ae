/* SPDX-License-Identifier: Apache-2.0 */
/* Gives kept prefixes memory beside the pool: what experts do not need, and what they lend, because
 * it saves more time there (compute measures it, slots/worth.c). A step moves in this order:
 *
 *   to prefixes:  a lower quota -> the cache evicts and punches -> prefixes may use it
 *   to experts:   prefixes may not use it -> compute gives them up, and punches -> a higher
 * quota */
#include "lib/base/bytes.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

static uint64_t compute_has(const struct supervisor *s, unsigned counter)
{
    return counter_get(&s->procs->process[procs_index_of(SERVICE_COMPUTE, 0)], counter);
}

static uint64_t kv_bytes_now(const struct supervisor *s)
{
    return compute_has(s, CTR_COMPUTE_kv_bytes);
}

/* Spare memory that the machine and /dev/shm have beside all else. */
static uint64_t spare_of_machine(const struct supervisor *s)
{
    const struct budget *b = &s->budget;
    uint64_t space = segments_space(), available = budget_available(), ours = 0;
    uint64_t kv = kv_bytes_now(s), used = kv > b->facts.kv_bytes ? kv - b->facts.kv_bytes : 0;
    uint64_t need = b->quota + b->facts.segments_bytes + b->facts.kv_bytes + used;
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        ours += segment_allocated_bytes(s->segments[kind].fd);
    if (space == UINT64_MAX)
        return 0;
    return ledger_spare_within(available > 0 && available < space ? available : space, used,
                               need > ours ? need - ours : 0);
}

/* ---- memory that experts lend to kept prefixes ---- */

/* Experts have left what the quota does not allow. */
bool lend_quota_settled(const struct supervisor *s)
{
    const struct budget *b = &s->budget;
    uint32_t applied =
        atomic_load_explicit(&s->directory.head->quota_applied, memory_order_acquire);
    return applied >= b->epoch &&
           segment_allocated_bytes(s->segments[SEGMENT_ARENA].fd) <= b->quota + PAGE_BYTES;
}

/* Of kept prefixes beside the pool, or what they may still take, because compute has not seen yet
 * that they may use less. 0: experts do not need it. */
static uint64_t lent_in_use(const struct supervisor *s)
{
    uint64_t kv = kv_bytes_now(s), pool = s->budget.facts.kv_bytes;
    uint64_t used = kv > pool ? kv - pool : 0,
             may = compute_has(s, CTR_COMPUTE_kv_spare_seen_bytes);
    uint64_t most = used > may ? used : may;
    return most > ledger_unlent(&s->budget.facts).spare ? most : 0;
}

/* Lossy presets depend on which experts are in memory, and with a plan one may be chosen at any
 * time: its set of experts is made of all that they have. */
static bool may_lend(const struct supervisor *s)
{
    return !s->params.deterministic && !s->plan && !model_requests_lossy(s);
}

/* Of so much, as far as experts and --keep-kv allow it. */
static uint64_t lent_within(const struct supervisor *s, uint64_t wanted)
{
    const struct budget *b = &s->budget;
    uint64_t kept = may_lend(s) ? s->params.keep_kv : 0;
    uint64_t most = kept > b->facts.kv_bytes ? kept - b->facts.kv_bytes : 0;
    return ledger_lend(&b->facts, wanted < most ? wanted : most);
}

/* What compute wishes for kept prefixes (slots/worth.c). While a smaller budget is not in effect,
 * they get nothing: they yield first. */
static uint64_t lent_wanted(const struct supervisor *s)
{
    const struct budget *b = &s->budget;
    uint64_t wanted = compute_has(s, CTR_COMPUTE_kv_wanted_bytes);
    return b->wanted < b->applied ? 0 : lent_within(s, wanted);
}

/* Memory is reserved before prefixes get it, and until they have left it. */
void lend_reserve(struct supervisor *s)
{
    struct budget *b = &s->budget;
    uint64_t wanted = lent_wanted(s), used = lent_in_use(s);
    uint64_t left = used < b->facts.lent_bytes ? used : b->facts.lent_bytes;
    b->facts.lent_bytes = wanted > left ? wanted : left;
    b->lent = wanted < b->lent ? wanted : b->lent;
}

/* Experts have left what prefixes get. */
void lend_settle(struct supervisor *s)
{
    struct budget *b = &s->budget;
    uint64_t wanted = lent_wanted(s);
    if (lend_quota_settled(s))
        b->lent = wanted < b->facts.lent_bytes ? wanted : b->facts.lent_bytes;
}

void lend_send(struct supervisor *s)
{
    struct budget *b = &s->budget;
    uint64_t all = ledger_beside_pool(&b->facts, spare_of_machine(s), b->lent, &b->spare);
    atomic_store_explicit(&s->directory.head->kv_lent_max_mib,
                          (uint32_t)(lent_within(s, UINT64_MAX) / MIB), memory_order_relaxed);
    atomic_store_explicit(&s->directory.head->kv_spare_bytes, all, memory_order_relaxed);
}

/* Kept prefixes have left the memory that experts need. */
bool lend_settled(const struct supervisor *s)
{
    uint64_t spare = atomic_load_explicit(&s->directory.head->kv_spare_bytes, memory_order_relaxed);
    return kv_bytes_now(s) <= budget_kv_bytes(s) + spare;
}
