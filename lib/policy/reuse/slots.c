/* SPDX-License-Identifier: Apache-2.0 */
/* Reuse of slots: the longest prefix, whether it moves to the new sequence, and which slot that one
 * gets. */
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

/* Of two slots that give equally many rows: a kept one that moves costs no memory; else the one
 * that loses fewest rows, then the oldest. */
static bool is_better(const struct reuse_table *t, uint32_t a, uint32_t b, const uint32_t *common,
                      bool side)
{
    bool moves = reuse_moves(t, a, common[a], side);
    if (moves != reuse_moves(t, b, common[b], side))
        return moves;
    const struct reuse_slot *x = &t->slot[a], *y = &t->slot[b];
    return x->rows != y->rows ? x->rows < y->rows : x->used < y->used;
}

/* Of all slots, or of those that move. */
static struct reuse_prefix longest(const struct reuse_table *t, const uint32_t *common, bool side,
                                   bool moving)
{
    struct reuse_prefix best = {.slot = REUSE_NONE};
    for (uint32_t i = 0; i < t->slots; i++) {
        if (t->slot[i].use == REUSE_EMPTY || common[i] == 0 ||
            (moving && !reuse_moves(t, i, common[i], side)))
            continue;
        uint32_t rows = reuse_cut(t, i, t->slot[i].rows, common[i]);
        if (rows > best.rows ||
            (rows > 0 && rows == best.rows && is_better(t, i, best.slot, common, side)))
            best = (struct reuse_prefix){i, rows};
    }
    return best;
}

struct reuse_prefix reuse_prefix(const struct reuse_table *t, const uint32_t *common, bool side)
{
    struct reuse_prefix all = longest(t, common, side, false);
    struct reuse_prefix moving = longest(t, common, side, true);
    return moving.rows > 0 && moving.rows + REUSE_BEFORE_END >= all.rows ? moving : all;
}

uint32_t reuse_branch(const struct reuse_table *t, const uint32_t *common)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->slots; i++)
        if (t->slot[i].use != REUSE_EMPTY && common[i] > most)
            most = common[i];
    return most >= REUSE_BRANCH_LEAST ? most - REUSE_BEFORE_END : 0;
}

static bool includes_prompt(const struct reuse_slot *s, uint32_t common)
{
    uint32_t response = reuse_response(s->prompt, s->turns);
    return common >= s->rows || common + REUSE_BEFORE_END >= s->prompt ||
           (response > 0 && common >= response);
}

bool reuse_moves(const struct reuse_table *t, uint32_t slot, uint32_t common, bool side)
{
    const struct reuse_slot *s = &t->slot[slot];
    return s->use == REUSE_KEPT && (!side || s->side) && includes_prompt(s, common);
}

bool reuse_takes(const struct reuse_table *t, uint32_t slot, uint32_t common, uint32_t rows,
                 bool side)
{
    const struct reuse_slot *s = &t->slot[slot];
    bool may = !side || s->side || includes_prompt(s, common);
    return s->use == REUSE_KEPT && rows >= REUSE_BRANCH_LEAST && may;
}

uint32_t reuse_slot(const struct reuse_table *t)
{
    for (uint32_t i = 0; i < t->slots; i++)
        if (t->slot[i].use == REUSE_EMPTY)
            return i;
    return reuse_least_kept(t, REUSE_NONE);
}
