/* SPDX-License-Identifier: Apache-2.0 */
/* Values what is kept in the pool by the seconds that it can be expected to save. */
#include "lib/policy/reuse/reuse.h"

/* A prefix from which prompts continued several times is a conversation, a system prompt; most
 * prompts are continued never, such as those of titles. */
#define USES_MAX 3

static uint32_t newest(const struct reuse_table *t)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < t->slots; i++)
        if (t->slot[i].use == REUSE_KEPT && t->slot[i].used > used)
            used = t->slot[i].used;
    return used;
}

static double chance(const struct reuse_table *t, const struct reuse_slot *s)
{
    uint32_t uses = s->uses < USES_MAX ? s->uses : USES_MAX, last = newest(t);
    double age = last > s->used ? last - s->used : 0;
    return (1.0 + uses) / (1.0 + age);
}

/* Of `rows` of its rows. */
static double seconds(const struct reuse_slot *s, uint32_t rows)
{
    return s->rows > 0 ? (double)s->cost_ns * 1e-9 * rows / s->rows : 0;
}

double reuse_value(const struct reuse_table *t, uint32_t slot)
{
    const struct reuse_slot *s = &t->slot[slot];
    return chance(t, s) * seconds(s, reuse_cut(t, slot, s->rows, s->rows));
}

double reuse_version_value(const struct reuse_table *t, uint32_t version)
{
    const struct reuse_version *v = &t->version[version];
    const struct reuse_slot *s = &t->slot[v->slot];
    double rows = (double)reuse_loss(t, v->slot, v->rows, s->rows) / s->rows;
    return chance(t, s) * (double)s->cost_ns * 1e-9 * rows / s->rows;
}

/* Without its only version, recurrent layers cannot continue from any row of a slot. */
static bool is_only(const struct reuse_table *t, uint32_t version)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->versions; i++)
        count += t->version[i].slot == t->version[version].slot;
    return t->recurrent && count == 1;
}

/* What is given up before what. */
struct worth {
    bool side;
    double value; /* of all, or per byte */
    uint32_t used;
};

static bool is_lower(const struct worth *a, const struct worth *b)
{
    if (a->side != b->side)
        return a->side;
    return a->value < b->value || (a->value == b->value && a->used < b->used);
}

static struct worth worth_of(const struct reuse_slot *s, double value)
{
    return (struct worth){.side = s->side, .value = value, .used = s->used};
}

uint32_t reuse_least_kept(const struct reuse_table *t, uint32_t except)
{
    uint32_t found = REUSE_NONE;
    struct worth least = {0};
    for (uint32_t i = 0; i < t->slots; i++) {
        if (i == except || t->slot[i].use != REUSE_KEPT)
            continue;
        struct worth worth = worth_of(&t->slot[i], reuse_value(t, i));
        if (found != REUSE_NONE && !is_lower(&worth, &least))
            continue;
        found = i;
        least = worth;
    }
    return found;
}

struct candidate {
    struct reuse_victim victim;
    struct worth worth;
};

static void consider(struct candidate *best, const struct candidate *c)
{
    if (reuse_nothing(best->victim) || is_lower(&c->worth, &best->worth))
        *best = *c;
}

static struct candidate least_dense(const struct reuse_table *t, uint32_t except, bool versions)
{
    struct candidate best = {.victim = {REUSE_NONE, REUSE_NONE, 0}};
    for (uint32_t i = 0; i < t->slots; i++) {
        uint64_t states = reuse_version_bytes(t, i);
        uint64_t bytes = t->slot[i].bytes - t->slot[i].joint + states; /* that are freed */
        if (i == except || t->slot[i].use != REUSE_KEPT || (versions && states == 0))
            continue;
        double density = reuse_value(t, i) / (double)(bytes + 1);
        consider(&best, &(struct candidate){.victim = {i, REUSE_NONE, UINT64_MAX},
                                            .worth = worth_of(&t->slot[i], density)});
    }
    for (uint32_t i = 0; i < t->versions; i++) {
        uint32_t slot = t->version[i].slot;
        if (slot == REUSE_NONE || slot == except || t->slot[slot].use != REUSE_KEPT ||
            t->version[i].busy || is_only(t, i))
            continue;
        double density = reuse_version_value(t, i) / (double)(t->version_bytes + 1);
        consider(&best, &(struct candidate){.victim = {REUSE_NONE, i, t->version_bytes},
                                            .worth = worth_of(&t->slot[slot], density)});
    }
    return best;
}

struct reuse_victim reuse_least_dense(const struct reuse_table *t, uint32_t except, bool versions)
{
    return least_dense(t, except, versions).victim;
}

/* Of a slot that runs, rows cost as those of the slot that would lose something: how long its own
 * took is not known before it ends. */
static double running_density(const struct reuse_table *t, uint32_t version, uint32_t end,
                              const struct reuse_slot *other)
{
    const struct reuse_slot *s = &t->slot[t->version[version].slot];
    uint32_t uses = s->uses < USES_MAX ? s->uses : USES_MAX;
    double rows = (double)reuse_loss(t, t->version[version].slot, t->version[version].rows, end);
    double row_seconds = other->rows > 0 ? (double)other->cost_ns * 1e-9 / other->rows : 0;
    return (1.0 + uses) * rows / end * row_seconds / (double)(t->version_bytes + 1);
}

struct reuse_victim reuse_least_with(const struct reuse_table *t, uint32_t slot, uint32_t end,
                                     bool versions, uint32_t *own)
{
    struct candidate best = least_dense(t, slot, versions);
    *own = reuse_weakest_checkpoint(t, slot, end);
    if (reuse_nothing(best.victim) || *own == REUSE_NONE)
        return best.victim;
    const struct reuse_victim *v = &best.victim;
    const struct reuse_slot *other =
        &t->slot[v->slot != REUSE_NONE ? v->slot : t->version[v->version].slot];
    struct worth mine = worth_of(&t->slot[slot], running_density(t, *own, end, other));
    mine.used = other->used;
    if (!is_lower(&mine, &best.worth))
        *own = REUSE_NONE;
    return best.victim;
}
