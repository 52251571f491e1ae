/* SPDX-License-Identifier: Apache-2.0 */
/* Versions of a state that cannot be cut back: where checkpoints are made, and which version a pass
 * writes. */
#include "lib/policy/reuse/reuse.h"

/* A template often writes the last tokens of a prompt in another way once the response follows:
 * the checkpoint is so many tokens before its end. */
#define BEFORE_END 8

uint32_t reuse_prompt_point(uint32_t prompt)
{
    return prompt > BEFORE_END ? prompt - BEFORE_END : 0;
}

bool reuse_is_point(uint32_t rows, uint32_t prompt, uint32_t every)
{
    return rows % every == 0 || rows == reuse_prompt_point(prompt);
}

uint32_t reuse_pass_rows(uint32_t position, uint32_t rows, uint32_t prompt, uint32_t every)
{
    uint32_t next = every - position % every, point = reuse_prompt_point(prompt);
    rows = rows < next ? rows : next;
    return position < point && position + rows > point ? point - position : rows;
}

uint32_t reuse_version(const struct reuse_table *t, uint32_t slot, uint32_t rows)
{
    for (uint32_t i = 0; i < t->versions; i++)
        if (t->version[i].slot == slot && t->version[i].rows == rows)
            return i;
    return REUSE_NONE;
}

uint32_t reuse_gap(const struct reuse_table *t, uint32_t slot, uint32_t rows, uint32_t end)
{
    uint32_t below = 0, above = end;
    for (uint32_t i = 0; i < t->versions; i++) {
        uint32_t other = t->version[i].rows;
        if (t->version[i].slot != slot || other == rows)
            continue;
        if (other < rows && other > below)
            below = other;
        if (other > rows && other < above)
            above = other;
    }
    return above - below;
}

uint32_t reuse_weakest(const struct reuse_table *t, uint32_t slot, uint32_t end, uint32_t point)
{
    uint32_t best = REUSE_NONE, best_gap = UINT32_MAX;
    for (uint32_t i = 0; i < t->versions; i++) {
        uint32_t rows = t->version[i].rows;
        if (t->version[i].slot != slot || rows == end || rows == point)
            continue;
        uint32_t gap = reuse_gap(t, slot, rows, end);
        if (gap < best_gap) {
            best_gap = gap;
            best = i;
        }
    }
    return best;
}

/* In the order in which versions are taken; the last one is not. */
enum class {
    CLASS_UNUSED,
    CLASS_BEFORE,
    CLASS_EMPTY,
    CLASS_OWN,
    CLASS_RUNNING,
    CLASS_POINT,
    CLASS_NEEDED
};

/* The lowest is taken first: by class, then by what the version is worth. */
struct rank {
    enum class class;
    uint32_t worth;
};

static bool is_below(const struct rank *a, const struct rank *b)
{
    return a->class != b->class ? a->class < b->class : a->worth < b->worth;
}

static struct rank rank_own(const struct reuse_table *t, const struct reuse_version *v,
                            uint32_t end, uint32_t point)
{
    if (v->rows == end)
        return (struct rank){.class = CLASS_NEEDED};
    if (!v->checkpoint)
        return (struct rank){.class = CLASS_BEFORE};
    if (v->rows == point)
        return (struct rank){.class = t->recurrent ? CLASS_POINT : CLASS_NEEDED};
    return (struct rank){.class = CLASS_OWN, .worth = reuse_gap(t, v->slot, v->rows, end)};
}

static struct rank rank_running(const struct reuse_table *t, const struct reuse_version *v)
{
    const struct reuse_slot *s = &t->slot[v->slot];
    if (v->rows == s->rows && (t->recurrent || s->rows < s->lowest))
        return (struct rank){.class = CLASS_NEEDED};
    return (struct rank){.class = CLASS_RUNNING,
                         .worth = v->checkpoint ? reuse_gap(t, v->slot, v->rows, s->rows) : 0};
}

static struct rank rank_of(const struct reuse_table *t, const struct reuse_version *v,
                           uint32_t slot, uint32_t end, uint32_t point)
{
    if (v->busy)
        return (struct rank){.class = CLASS_NEEDED};
    if (v->slot == REUSE_NONE)
        return (struct rank){.class = v->memory ? CLASS_UNUSED : CLASS_EMPTY};
    if (v->slot == slot)
        return rank_own(t, v, end, point);
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

uint32_t reuse_write(const struct reuse_table *t, uint32_t slot, uint32_t end, uint32_t point)
{
    uint32_t best = REUSE_NONE;
    struct rank lowest = {.class = CLASS_NEEDED};
    bool room = reuse_has_room(t);
    for (uint32_t i = 0; i < t->versions; i++) {
        struct rank rank = rank_of(t, &t->version[i], slot, end, point);
        if (is_below(&rank, &lowest) && (room || rank.class != CLASS_EMPTY)) {
            lowest = rank;
            best = i;
        }
    }
    return best;
}
