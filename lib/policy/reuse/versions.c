/* SPDX-License-Identifier: Apache-2.0 */
/* Versions of a state that cannot be cut back: where checkpoints are made, and which version a pass
 * writes. */
#include "lib/policy/reuse/reuse.h"

static bool is_turn(uint32_t rows, const uint32_t turns[REUSE_TURNS_MAX])
{
    for (uint32_t i = 0; i < REUSE_TURNS_MAX && turns[i] > 0; i++)
        if (turns[i] == rows)
            return true;
    return false;
}

bool reuse_is_point(uint32_t rows, const struct reuse_points *points)
{
    return rows % points->every == 0 ||
           (rows > 0 && (rows == reuse_response(points->prompt, points->turns) ||
                         rows == points->branch || is_turn(rows, points->turns)));
}

static uint32_t later(uint32_t best, uint32_t point, uint32_t rows)
{
    return point <= rows && point > best ? point : best;
}

uint32_t reuse_last_point(uint32_t rows, const struct reuse_points *points)
{
    uint32_t best = later(rows - rows % points->every, points->branch, rows);
    best = later(best, reuse_response(points->prompt, points->turns), rows);
    for (uint32_t i = 0; i < REUSE_TURNS_MAX; i++)
        best = later(best, points->turns[i], rows);
    return best;
}

/* Of `rows` rows from `position` on, those up to `point`, if it is among them. */
static uint32_t up_to(uint32_t position, uint32_t rows, uint32_t point)
{
    return position < point && position + rows > point ? point - position : rows;
}

uint32_t reuse_pass_rows(uint32_t position, uint32_t rows, const struct reuse_points *points)
{
    uint32_t next = points->every - position % points->every;
    rows = rows < next ? rows : next;
    rows = up_to(position, rows, reuse_response(points->prompt, points->turns));
    for (uint32_t i = 0; i < REUSE_TURNS_MAX; i++)
        rows = up_to(position, rows, points->turns[i]);
    return up_to(position, rows, points->branch);
}

uint32_t reuse_version(const struct reuse_table *t, uint32_t slot, uint32_t rows)
{
    for (uint32_t i = 0; i < t->versions; i++)
        if (t->version[i].slot == slot && t->version[i].rows == rows)
            return i;
    return REUSE_NONE;
}

/* Of `end` rows, in how many a prompt would continue from here that differs, where the version
 * above begins `gap` rows later: a conversation continues where it was left, much more often than
 * another one begins like it. */
static uint32_t chances(const struct reuse_slot *s, uint32_t rows, uint32_t gap, uint32_t end)
{
    if (rows == s->shared)
        return 0;
    if (rows == reuse_response(s->prompt, s->turns))
        return end;
    bool edited = rows == s->start || rows == s->given || is_turn(rows, s->turns);
    uint32_t least = rows == s->branch ? end / REUSE_OTHERS : edited ? end / REUSE_EDITS : 0;
    return least > gap ? least : gap;
}

uint64_t reuse_loss(const struct reuse_table *t, uint32_t slot, uint32_t rows, uint32_t end)
{
    uint32_t below = 0, above = UINT32_MAX;
    for (uint32_t i = 0; i < t->versions; i++) {
        uint32_t other = t->version[i].rows;
        if (t->version[i].slot != slot)
            continue;
        if (other < rows && other > below)
            below = other;
        if (other > rows && other < above)
            above = other;
    }
    bool last = above == UINT32_MAX;
    return (uint64_t)(rows - below) *
           (last ? end : chances(&t->slot[slot], rows, above - rows, end));
}

uint32_t reuse_weakest(const struct reuse_table *t, uint32_t slot, uint32_t end)
{
    uint32_t best = REUSE_NONE;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < t->versions; i++) {
        if (t->version[i].slot != slot || t->version[i].rows == end)
            continue;
        uint64_t loss = reuse_loss(t, slot, t->version[i].rows, end);
        if (loss < least) {
            least = loss;
            best = i;
        }
    }
    return best;
}

/* In the order in which versions are taken; the last one is not. */
enum class { CLASS_UNUSED, CLASS_BEFORE, CLASS_EMPTY, CLASS_CHECKPOINT, CLASS_NEEDED };

/* The lowest is taken first: by class, then by what is lost. */
struct rank {
    enum class class;
    uint64_t loss;
};

static bool is_below(const struct rank *a, const struct rank *b)
{
    return a->class != b->class ? a->class < b->class : a->loss < b->loss;
}

static struct rank rank_own(const struct reuse_table *t, const struct reuse_version *v,
                            uint32_t end)
{
    if (v->rows == end)
        return (struct rank){.class = CLASS_NEEDED};
    if (!v->checkpoint)
        return (struct rank){.class = CLASS_BEFORE};
    const struct reuse_slot *s = &t->slot[v->slot];
    if (!t->recurrent && v->rows == reuse_response(s->prompt, s->turns))
        return (struct rank){.class =
                                 CLASS_NEEDED}; /* a later one is worth less: the ring is there */
    return (struct rank){CLASS_CHECKPOINT, reuse_loss(t, v->slot, v->rows, end)};
}

/* Of others than checkpoints nothing is lost. */
static struct rank rank_running(const struct reuse_table *t, const struct reuse_version *v)
{
    const struct reuse_slot *s = &t->slot[v->slot];
    if (v->rows == s->rows && (t->recurrent || s->rows < s->lowest))
        return (struct rank){.class = CLASS_NEEDED};
    return (struct rank){CLASS_CHECKPOINT,
                         v->checkpoint ? reuse_loss(t, v->slot, v->rows, s->rows) : 0};
}

static struct rank rank_of(const struct reuse_table *t, const struct reuse_version *v,
                           uint32_t slot, uint32_t end)
{
    if (v->busy)
        return (struct rank){.class = CLASS_NEEDED};
    if (v->slot == REUSE_NONE)
        return (struct rank){.class = v->memory ? CLASS_UNUSED : CLASS_EMPTY};
    if (v->slot == slot)
        return rank_own(t, v, end);
    if (t->slot[v->slot].use == REUSE_RUNNING)
        return rank_running(t, v);
    return (struct rank){.class = CLASS_NEEDED};
}

uint32_t reuse_least(const struct reuse_table *t)
{
    uint32_t best = REUSE_NONE;
    struct rank lowest = {.class = CLASS_NEEDED};
    for (uint32_t i = 0; i < t->versions; i++) {
        const struct reuse_version *v = &t->version[i];
        if (v->busy || v->slot == REUSE_NONE || t->slot[v->slot].use != REUSE_RUNNING)
            continue;
        struct rank rank = rank_running(t, v);
        if (is_below(&rank, &lowest)) {
            lowest = rank;
            best = i;
        }
    }
    return best;
}

uint32_t reuse_weakest_checkpoint(const struct reuse_table *t, uint32_t slot, uint32_t end)
{
    uint32_t best = REUSE_NONE;
    struct rank lowest = {.class = CLASS_NEEDED};
    for (uint32_t i = 0; i < t->versions && slot != REUSE_NONE; i++) {
        const struct reuse_version *v = &t->version[i];
        if (v->slot != slot || v->busy || !v->checkpoint)
            continue;
        struct rank rank = rank_own(t, v, end);
        if (is_below(&rank, &lowest)) {
            lowest = rank;
            best = i;
        }
    }
    return best;
}

uint32_t reuse_write(const struct reuse_table *t, uint32_t slot, uint32_t end)
{
    uint32_t best = REUSE_NONE;
    struct rank lowest = {.class = CLASS_NEEDED};
    bool room = reuse_has_room(t);
    for (uint32_t i = 0; i < t->versions; i++) {
        struct rank rank = rank_of(t, &t->version[i], slot, end);
        if (is_below(&rank, &lowest) && (room || rank.class != CLASS_EMPTY)) {
            lowest = rank;
            best = i;
        }
    }
    return best;
}
