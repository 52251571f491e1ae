/* SPDX-License-Identifier: Apache-2.0 */
/* Reuse of slots: the longest prefix, and which kept sequence is given up. */
#include "lib/policy/reuse/reuse.h"

/* Whether a version is all that a slot needs at its rows: of rings, windows are in checkpoints
 * only. */
static bool suffices(const struct reuse_table *t, uint32_t slot, const struct reuse_version *v)
{
    return !t->rings || v->checkpoint || v->rows >= t->slot[slot].lowest;
}

uint32_t reuse_cut(const struct reuse_table *t, uint32_t slot, uint32_t rows, uint32_t wanted)
{
    uint32_t most = wanted < rows ? wanted : rows, best = 0;
    if (!t->recurrent && (!t->rings || most >= t->slot[slot].lowest))
        return most;
    for (uint32_t i = 0; i < t->versions; i++) {
        const struct reuse_version *v = &t->version[i];
        if (v->slot == slot && v->rows <= most && v->rows > best && suffices(t, slot, v))
            best = v->rows;
    }
    return best;
}

/* Of two slots that give equally many rows. */
static bool loses_less(const struct reuse_slot *a, const struct reuse_slot *b)
{
    return a->rows != b->rows ? a->rows < b->rows : a->used < b->used;
}

struct reuse_prefix reuse_prefix(const struct reuse_table *t, const uint32_t *common)
{
    struct reuse_prefix best = {.slot = REUSE_NONE};
    for (uint32_t i = 0; i < t->slots; i++) {
        if (t->slot[i].use != REUSE_KEPT || common[i] == 0)
            continue;
        uint32_t rows = reuse_cut(t, i, t->slot[i].rows, common[i]);
        if (rows > best.rows ||
            (rows > 0 && rows == best.rows && loses_less(&t->slot[i], &t->slot[best.slot])))
            best = (struct reuse_prefix){i, rows};
    }
    return best;
}

uint32_t reuse_oldest(const struct reuse_table *t, uint32_t except)
{
    uint32_t best = REUSE_NONE;
    for (uint32_t i = 0; i < t->slots; i++)
        if (i != except && t->slot[i].use == REUSE_KEPT &&
            (best == REUSE_NONE || t->slot[i].used < t->slot[best].used))
            best = i;
    return best;
}

uint32_t reuse_slot(const struct reuse_table *t)
{
    for (uint32_t i = 0; i < t->slots; i++)
        if (t->slot[i].use == REUSE_EMPTY)
            return i;
    return reuse_oldest(t, REUSE_NONE);
}

uint64_t reuse_version_bytes(const struct reuse_table *t, uint32_t slot)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->versions; i++)
        if (t->version[i].memory && (slot == REUSE_NONE || t->version[i].slot == slot))
            bytes += t->version_bytes;
    return bytes;
}

uint32_t reuse_surplus(const struct reuse_table *t, uint32_t slot, uint32_t most, uint64_t bytes,
                       uint64_t limit)
{
    uint32_t kept = 1;
    uint64_t all = bytes;
    for (uint32_t i = 0; i < t->slots; i++) {
        if (i == slot || t->slot[i].use != REUSE_KEPT)
            continue;
        kept++;
        all += t->slot[i].bytes + reuse_version_bytes(t, i);
    }
    return kept > most || all > limit ? reuse_oldest(t, slot) : REUSE_NONE;
}
