/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the pool: what is given up for a slot that grows, or for a version that is written, and
 * when more is kept than may be. */
#include "lib/policy/reuse/reuse.h"

static const struct reuse_victim nothing = {REUSE_NONE, REUSE_NONE, 0};

uint64_t reuse_version_bytes(const struct reuse_table *t, uint32_t slot)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->versions; i++)
        if (t->version[i].memory && (slot == REUSE_NONE || t->version[i].slot == slot))
            bytes += t->version_bytes;
    return bytes;
}

uint64_t reuse_bytes(const struct reuse_table *t)
{
    uint64_t bytes = reuse_version_bytes(t, REUSE_NONE);
    for (uint32_t i = 0; i < t->slots; i++)
        bytes += t->slot[i].bytes - t->slot[i].counted;
    return bytes;
}

static uint64_t beyond(const struct reuse_table *t, uint64_t bytes)
{
    uint64_t most = t->pool_bytes + t->spare_bytes;
    return bytes > most ? bytes - most : 0;
}

bool reuse_has_room(const struct reuse_table *t)
{
    return beyond(t, reuse_bytes(t) + t->version_bytes) == 0;
}

/* What a running slot needs of versions: of states one to read and one to write; of windows the
 * checkpoint that its rings were cut back to, until its next pass. REUSE_NONE: a new slot. */
static uint64_t needed_versions(const struct reuse_table *t, uint32_t slot)
{
    if (t->recurrent)
        return 2 * t->version_bytes;
    bool restores = slot != REUSE_NONE && t->rings && t->slot[slot].rows < t->slot[slot].lowest;
    return restores ? t->version_bytes : 0;
}

uint64_t reuse_new_bytes(const struct reuse_table *t)
{
    return needed_versions(t, REUSE_NONE);
}

bool reuse_may_grow(const struct reuse_table *t, uint32_t slot, uint64_t bytes)
{
    uint64_t all = bytes + needed_versions(t, slot);
    if (slot != REUSE_NONE)
        all = all - t->slot[slot].counted + t->slot[slot].apart_running;
    for (uint32_t i = 0; i < t->slots; i++)
        if (i != slot && t->slot[i].use == REUSE_RUNNING)
            all += t->slot[i].bytes - t->slot[i].counted + needed_versions(t, i);
    return all <= t->pool_bytes;
}

/* By how much the pool is too small for `bytes` of keys and values in a slot. */
static uint64_t missing(const struct reuse_table *t, uint32_t slot, uint64_t bytes)
{
    uint64_t all = reuse_bytes(t) - t->slot[slot].bytes + bytes + t->slot[slot].apart;
    return beyond(t, all);
}

bool reuse_fits(const struct reuse_table *t, uint32_t slot, uint64_t bytes)
{
    return missing(t, slot, bytes) == 0;
}

static bool is_nobodys(const struct reuse_version *v)
{
    return v->slot == REUSE_NONE && !v->busy;
}

static uint32_t unused(const struct reuse_table *t)
{
    for (uint32_t i = 0; i < t->versions; i++)
        if (is_nobodys(&t->version[i]) && t->version[i].memory)
            return i;
    return REUSE_NONE;
}

/* Of a slot, no more than must. */
static struct reuse_victim at_most(struct reuse_victim v, uint64_t bytes)
{
    v.bytes = v.bytes < bytes ? v.bytes : bytes;
    return v;
}

static struct reuse_victim next(const struct reuse_table *t, uint32_t slot, uint64_t needed)
{
    struct reuse_victim v = {REUSE_NONE, unused(t), t->version_bytes};
    if (needed == 0)
        return nothing;
    if (v.version == REUSE_NONE)
        v = at_most(reuse_least_dense(t, slot, false), needed);
    if (reuse_nothing(v))
        v.version = reuse_least(t);
    return v;
}

struct reuse_victim reuse_yield(const struct reuse_table *t, uint32_t slot, uint64_t bytes)
{
    return next(t, slot, missing(t, slot, bytes));
}

struct reuse_victim reuse_excess(const struct reuse_table *t)
{
    return next(t, REUSE_NONE, beyond(t, reuse_bytes(t)));
}

/* Whether a pass of `slot` has a version to write that nobody lacks; *entry: whether one has no
 * memory. */
static bool has_spare(const struct reuse_table *t, uint32_t slot, uint32_t end, bool *entry)
{
    bool spare = false;
    *entry = false;
    for (uint32_t i = 0; i < t->versions; i++) {
        const struct reuse_version *v = &t->version[i];
        *entry = *entry || (is_nobodys(v) && !v->memory);
        spare = spare || (is_nobodys(v) && v->memory) ||
                (v->slot == slot && !v->busy && !v->checkpoint && v->rows != end);
    }
    return spare || (*entry && reuse_has_room(t));
}

struct reuse_victim reuse_room(const struct reuse_table *t, uint32_t slot, uint32_t end)
{
    bool entry;
    if (has_spare(t, slot, end, &entry))
        return nothing;
    uint64_t needed = beyond(t, reuse_bytes(t) + t->version_bytes);
    uint32_t own;
    struct reuse_victim v = reuse_least_with(t, slot, end, !entry, &own);
    if (own != REUSE_NONE) /* reuse_write takes it: its own states are worth less */
        return nothing;
    return entry ? at_most(v, needed) : v;
}

struct reuse_victim reuse_surplus(const struct reuse_table *t, uint32_t most, uint64_t limit)
{
    uint32_t kept = 0;
    uint64_t all = 0;
    for (uint32_t i = 0; i < t->slots; i++) {
        if (t->slot[i].use != REUSE_KEPT)
            continue;
        kept++;
        all += t->slot[i].bytes - t->slot[i].counted + reuse_version_bytes(t, i);
    }
    if (kept > most)
        return (struct reuse_victim){reuse_least_kept(t, REUSE_NONE), REUSE_NONE, UINT64_MAX};
    return all > limit ? at_most(reuse_least_dense(t, REUSE_NONE, false), all - limit) : nothing;
}
