/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the pool: what is given up for a slot that grows, or for a version that is written. */
#include "lib/policy/reuse/reuse.h"

static const struct reuse_victim nothing = {REUSE_NONE, REUSE_NONE};

uint64_t reuse_bytes(const struct reuse_table *t)
{
    uint64_t bytes = reuse_version_bytes(t, REUSE_NONE);
    for (uint32_t i = 0; i < t->slots; i++)
        bytes += t->slot[i].bytes;
    return bytes;
}

bool reuse_has_room(const struct reuse_table *t)
{
    return reuse_bytes(t) + t->version_bytes <= t->pool_bytes;
}

bool reuse_may_grow(const struct reuse_table *t, uint32_t slot, uint64_t bytes)
{
    uint64_t states = t->recurrent ? 2 * t->version_bytes : 0, all = bytes + states;
    for (uint32_t i = 0; i < t->slots; i++)
        if (i != slot && t->slot[i].use == REUSE_RUNNING)
            all += t->slot[i].bytes + states;
    return all <= t->pool_bytes;
}

bool reuse_fits(const struct reuse_table *t, uint32_t slot, uint64_t bytes)
{
    return reuse_bytes(t) - t->slot[slot].bytes + bytes <= t->pool_bytes;
}

static bool is_of(const struct reuse_version *v, uint32_t slot)
{
    return v->slot == slot && !v->busy;
}

static uint32_t unused(const struct reuse_table *t)
{
    for (uint32_t i = 0; i < t->versions; i++)
        if (is_of(&t->version[i], REUSE_NONE) && t->version[i].memory)
            return i;
    return REUSE_NONE;
}

struct reuse_victim reuse_yield(const struct reuse_table *t, uint32_t slot, uint64_t bytes)
{
    struct reuse_victim v = nothing;
    if (reuse_fits(t, slot, bytes))
        return v;
    v.version = unused(t);
    if (v.version == REUSE_NONE)
        v.slot = reuse_oldest(t, slot);
    if (reuse_nothing(v))
        v.version = reuse_least(t);
    return v;
}

/* Whether a pass of `slot` has a version to write that nobody lacks; *entry: whether one has no
 * memory. */
static bool has_spare(const struct reuse_table *t, uint32_t slot, uint32_t end, bool *entry)
{
    bool spare = false;
    *entry = false;
    for (uint32_t i = 0; i < t->versions; i++) {
        const struct reuse_version *v = &t->version[i];
        *entry = *entry || (is_of(v, REUSE_NONE) && !v->memory);
        spare = spare || (is_of(v, REUSE_NONE) && v->memory) ||
                (is_of(v, slot) && !v->checkpoint && v->rows != end);
    }
    return spare || (*entry && reuse_has_room(t));
}

/* The version of the fewest rows, and how many there are. */
static uint32_t first_of(const struct reuse_table *t, uint32_t slot, uint32_t *count)
{
    uint32_t first = REUSE_NONE;
    *count = 0;
    for (uint32_t i = 0; i < t->versions; i++) {
        if (!is_of(&t->version[i], slot))
            continue;
        ++*count;
        if (first == REUSE_NONE || t->version[i].rows < t->version[first].rows)
            first = i;
    }
    return first;
}

struct reuse_victim reuse_room(const struct reuse_table *t, uint32_t slot, uint32_t end)
{
    struct reuse_victim best = nothing;
    uint32_t oldest = UINT32_MAX;
    bool entry;
    if (has_spare(t, slot, end, &entry))
        return nothing;
    for (uint32_t i = 0; i < t->slots; i++) {
        uint32_t count, first = first_of(t, i, &count);
        if (t->slot[i].use != REUSE_KEPT || i == slot || t->slot[i].used >= oldest ||
            (count == 0 && !entry))
            continue;
        oldest = t->slot[i].used;
        /* without its last version, recurrent layers cannot continue from its rows */
        bool whole = count < (t->recurrent ? 2 : 1);
        best = (struct reuse_victim){whole ? i : REUSE_NONE, whole ? REUSE_NONE : first};
    }
    return best;
}
