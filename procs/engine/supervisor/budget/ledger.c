/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a budget into margin, fixed costs and arena, and finds the largest quota that fits. */
#include "procs/engine/supervisor/budget/ledger.h"

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define MARGIN_MIN     (4 * MIB)
#define MARGIN_DIVISOR 50 /* 2 % */

/* Quotas change in these steps, so that a few pages of private memory do not evict an expert. */
#define QUOTA_STEP (64 * KIB)

/* tmpfs keeps one 576-byte node per 64 pages, and the upper levels: 0.22 %, taken as 0.25 %. */
#define NODE_DIVISOR 400

/* One 8-byte page-table entry per page. */
#define PAGE_TABLE_DIVISOR 512
#define SPARE_STEP         MIB
#define SPARE_DIVISOR      32 /* a part of spare memory that is left for page tables */

uint64_t ledger_margin(uint64_t budget)
{
    uint64_t share = budget / MARGIN_DIVISOR;
    return share > MARGIN_MIN ? share : MARGIN_MIN;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t page_tables(const struct ledger_facts *f, uint64_t quota)
{
    uint64_t own = (uint64_t)f->processes * LEDGER_PAGE_TABLE_BYTES;
    uint64_t arena = align_up(quota / PAGE_TABLE_DIVISOR, PAGE_BYTES) * f->mappers;
    /* Slots have addresses of their own, and page tables stay when memory is punched; those of
     * more slots than two are measured as they grow. */
    uint64_t kv = align_up(2 * f->kv_bytes / PAGE_TABLE_DIVISOR, PAGE_BYTES);
    return max_u64(own + arena + kv, f->page_tables);
}

/* Pages that reads of a crashed loader still pin, in addition to the quota. Only experts count:
 * while dense tensors load there is no sequence, and the KV cache reserved for one covers the
 * overlap. */
static uint64_t flight(const struct ledger_facts *f, uint64_t quota)
{
    uint64_t experts = quota > f->dense_bytes ? quota - f->dense_bytes : 0;
    return min_u64(f->loaders * f->loader_flight, experts);
}

static uint64_t cost(const struct ledger_facts *f, uint64_t quota)
{
    return quota + align_up(quota / NODE_DIVISOR, PAGE_BYTES) + page_tables(f, quota) +
           flight(f, quota);
}

static uint64_t quota_most(const struct ledger_facts *f)
{
    return align_up(f->dense_bytes + f->expert_slot_bytes, QUOTA_STEP);
}

/* Memory in which nothing else has an interest: that of keys and values costs page tables, one for
 * each address at which it is mapped. */
static uint64_t spare_within(const struct ledger_facts *f, uint64_t quota, uint64_t limit)
{
    uint64_t used = cost(f, quota);
    if (quota < quota_most(f) || limit <= used)
        return 0;
    return align_down((limit - used) / SPARE_DIVISOR * (SPARE_DIVISOR - 1), PAGE_BYTES);
}

uint64_t ledger_spare_within(uint64_t available, uint64_t used, uint64_t missing)
{
    uint64_t all = available + used;
    return all > missing ? (all - missing) / 8 * 7 : 0;
}

uint64_t ledger_spare_step(uint64_t spare, uint64_t now)
{
    if (spare >= now && spare - now < 2 * SPARE_STEP)
        return now;
    return align_down(spare, SPARE_STEP);
}

/* The largest quota whose cost fits, found by bisection: cost() rises with the quota. */
static uint64_t quota_within(const struct ledger_facts *f, uint64_t limit)
{
    uint64_t low = 0, high = quota_most(f) / QUOTA_STEP;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (cost(f, middle * QUOTA_STEP) <= limit)
            low = middle;
        else
            high = middle - 1;
    }
    return low * QUOTA_STEP;
}

/* The smallest budget B with B - margin(B) >= need, rounded up to MiB. */
static uint64_t budget_for(uint64_t need)
{
    uint64_t budget = need + MARGIN_MIN;
    if (ledger_margin(budget) > MARGIN_MIN)
        budget = need + need / (MARGIN_DIVISOR - 1) + 1;
    budget = align_up(budget, MIB);
    sl_assert(budget - ledger_margin(budget) >= need);
    return budget;
}

static uint64_t kernel_bytes(const struct ledger_facts *f)
{
    return (uint64_t)f->threads * LEDGER_THREAD_BYTES +
           (uint64_t)f->processes * LEDGER_PROCESS_BYTES + f->sockets_bytes;
}

static uint64_t fixed_bytes(const struct ledger_facts *f)
{
    return f->segments_bytes + f->kv_bytes + align_up(f->kv_bytes / NODE_DIVISOR, PAGE_BYTES) +
           f->private_bytes + f->text_bytes + kernel_bytes(f);
}

uint64_t ledger_budget_for(const struct ledger_facts *f, uint64_t expert_bytes)
{
    /* Whole steps, so that the budget gives that quota. */
    uint64_t quota =
        align_up(f->dense_bytes + max_u64(expert_bytes, f->experts_min_bytes), QUOTA_STEP);
    return budget_for(fixed_bytes(f) + cost(f, quota));
}

/* Keys and values beside the pool, with their nodes and page tables. */
static uint64_t lent_cost(const struct ledger_facts *f)
{
    return f->lent_bytes + align_up(f->lent_bytes / NODE_DIVISOR, PAGE_BYTES) +
           align_up(2 * f->lent_bytes / PAGE_TABLE_DIVISOR, PAGE_BYTES);
}

uint64_t ledger_lend(const struct ledger_facts *f, uint64_t wanted)
{
    struct ledger_result none = ledger_unlent(f);
    uint64_t most = none.quota > none.quota_min ? none.quota - none.quota_min : 0;
    uint64_t half = none.quota > f->dense_bytes ? (none.quota - f->dense_bytes) / 2 : 0;
    most = min_u64(most, half) + none.spare;
    if (wanted <= none.spare)
        return 0;
    return align_down(min_u64(wanted, most / SPARE_DIVISOR * (SPARE_DIVISOR - 1)), PAGE_BYTES);
}

struct ledger_result ledger_make(const struct ledger_facts *f)
{
    sl_assert(f->experts_min_bytes > 0);
    struct ledger_result p = {0};
    p.margin = ledger_margin(f->budget);
    p.kernel = kernel_bytes(f);
    p.fixed = fixed_bytes(f);
    p.quota_min = align_up(f->dense_bytes + f->experts_min_bytes, QUOTA_STEP);
    p.min_budget = ledger_budget_for(f, 0);
    uint64_t taken = p.margin + p.fixed + lent_cost(f);
    if (f->budget >= taken)
        p.quota = quota_within(f, f->budget - taken);
    if (p.quota > 0)
        p.spare = spare_within(f, p.quota, f->budget - taken);
    p.page_tables = page_tables(f, p.quota);
    p.nodes = align_up(p.quota / NODE_DIVISOR, PAGE_BYTES);
    p.flight = flight(f, p.quota);
    return p;
}

struct ledger_result ledger_unlent(const struct ledger_facts *f)
{
    struct ledger_facts facts = *f;
    facts.lent_bytes = 0;
    return ledger_make(&facts);
}

uint64_t ledger_beside_pool(const struct ledger_facts *f, uint64_t machine, uint64_t lent,
                            uint64_t *spare)
{
    *spare = ledger_spare_step(min_u64(ledger_unlent(f).spare, machine), *spare);
    return max_u64(*spare, min_u64(lent, align_down(machine, MIB)));
}

bool ledger_quota_moves(uint64_t now, uint64_t wanted)
{
    if (wanted <= now)
        return wanted < now;
    uint64_t noise = now / 100;
    return wanted - now >= (noise > 4 * QUOTA_STEP ? noise : 4 * QUOTA_STEP);
}
