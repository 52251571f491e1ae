/* Eviction: the order in which held entries leave.
 *
 * All policies share one table: per entry its place in a list ordered by age (oldest at the head)
 * and its place in a dense array of held entries. lru and fifo walk the list, lfu scans the array,
 * random draws from it. The policies differ in two functions only: what a use changes, and how a
 * victim is found. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/policy.h"

#define EVICTION_MAGIC 0x54435645u

struct node {
    uint32_t older, newer; /* neighbours in age; POLICY_NONE at the ends */
    uint32_t place;        /* in held[]; POLICY_NONE when not held */
    uint32_t uses;         /* since insertion */
    uint64_t last;         /* tick of insertion or last use */
};

struct rule {
    const char *name;
    bool touch_renews; /* a use moves the entry to the young end */
    uint32_t (*victim)(struct eviction *e, bool (*may)(void *, uint32_t), void *arg);
};

struct eviction {
    uint32_t magic;
    const struct rule *rule;
    uint32_t count, held_count;
    uint32_t oldest, youngest;
    uint64_t tick, random;
    uint32_t *held; /* numbers of the held entries, in no order */
    struct node *node;
};

static void list_append(struct eviction *e, uint32_t entry)
{
    struct node *n = &e->node[entry];
    n->older = e->youngest;
    n->newer = POLICY_NONE;
    if (e->youngest != POLICY_NONE)
        e->node[e->youngest].newer = entry;
    else
        e->oldest = entry;
    e->youngest = entry;
}

static void list_remove(struct eviction *e, uint32_t entry)
{
    const struct node *n = &e->node[entry];
    if (n->older != POLICY_NONE)
        e->node[n->older].newer = n->newer;
    else
        e->oldest = n->newer;
    if (n->newer != POLICY_NONE)
        e->node[n->newer].older = n->older;
    else
        e->youngest = n->older;
}

static void held_swap(struct eviction *e, uint32_t a, uint32_t b)
{
    uint32_t x = e->held[a], y = e->held[b];
    e->held[a] = y;
    e->held[b] = x;
    e->node[y].place = a;
    e->node[x].place = b;
}

/* lru, fifo: the list is the order. */
static uint32_t victim_oldest(struct eviction *e, bool (*may)(void *, uint32_t), void *arg)
{
    for (uint32_t i = e->oldest; i != POLICY_NONE; i = e->node[i].newer)
        if (may(arg, i))
            return i;
    return POLICY_NONE;
}

/* The tick breaks ties, so the order is total and may() is asked only about better candidates. */
static uint32_t victim_least_used(struct eviction *e, bool (*may)(void *, uint32_t), void *arg)
{
    uint32_t best = POLICY_NONE;
    for (uint32_t i = 0; i < e->held_count; i++) {
        uint32_t entry = e->held[i];
        const struct node *n = &e->node[entry];
        if (best != POLICY_NONE) {
            const struct node *b = &e->node[best];
            if (n->uses > b->uses || (n->uses == b->uses && n->last > b->last))
                continue;
        }
        if (may(arg, entry))
            best = entry;
    }
    return best;
}

/* splitmix64: every seed, also 0, is a good one. */
static uint64_t random_next(struct eviction *e)
{
    uint64_t z = e->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Draws without replacement: refused entries are swapped out of the range still drawn from. */
static uint32_t victim_random(struct eviction *e, bool (*may)(void *, uint32_t), void *arg)
{
    for (uint32_t left = e->held_count; left > 0; left--) {
        uint32_t place = (uint32_t)(((random_next(e) >> 32) * left) >> 32);
        uint32_t entry = e->held[place];
        if (may(arg, entry))
            return entry;
        held_swap(e, place, left - 1);
    }
    return POLICY_NONE;
}

static const struct rule rules[] = {
    {"lru", true, victim_oldest},
    {"lfu", true, victim_least_used},
    {"fifo", false, victim_oldest},
    {"random", false, victim_random},
};

const char *eviction_names(void)
{
    return "lru|lfu|fifo|random";
}

static const struct rule *rule_find(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].name, name) == 0)
            return &rules[i];
    return NULL;
}

struct eviction *eviction_create(const char *name, uint32_t count, uint64_t seed)
{
    const struct rule *rule = rule_find(name);
    struct eviction *e = rule ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    *e = (struct eviction){
        .magic = EVICTION_MAGIC,
        .rule = rule,
        .count = count,
        .oldest = POLICY_NONE,
        .youngest = POLICY_NONE,
        .random = seed,
        .held = calloc(count + 1u, sizeof *e->held),
        .node = calloc(count + 1u, sizeof *e->node),
    };
    if (!e->held || !e->node) {
        eviction_destroy(e);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        e->node[i].place = POLICY_NONE;
    return e;
}

void eviction_destroy(struct eviction *e)
{
    if (!e)
        return;
    OBJ_CHECK(e, EVICTION_MAGIC);
    free(e->held);
    free(e->node);
    e->magic = 0;
    free(e);
}

const char *eviction_name(const struct eviction *e)
{
    OBJ_CHECK(e, EVICTION_MAGIC);
    return e->rule->name;
}

bool eviction_holds(const struct eviction *e, uint32_t entry)
{
    OBJ_CHECK(e, EVICTION_MAGIC);
    sl_assert(entry < e->count);
    return e->node[entry].place != POLICY_NONE;
}

void eviction_insert(struct eviction *e, uint32_t entry)
{
    sl_assert(!eviction_holds(e, entry));
    struct node *n = &e->node[entry];
    n->place = e->held_count;
    n->uses = 0;
    n->last = ++e->tick;
    e->held[e->held_count++] = entry;
    list_append(e, entry);
}

void eviction_touch(struct eviction *e, uint32_t entry)
{
    sl_assert(eviction_holds(e, entry));
    struct node *n = &e->node[entry];
    if (n->uses < UINT32_MAX)
        n->uses++;
    n->last = ++e->tick;
    if (e->rule->touch_renews) {
        list_remove(e, entry);
        list_append(e, entry);
    }
}

void eviction_remove(struct eviction *e, uint32_t entry)
{
    sl_assert(eviction_holds(e, entry));
    list_remove(e, entry);
    held_swap(e, e->node[entry].place, e->held_count - 1);
    e->held_count--;
    e->node[entry].place = POLICY_NONE;
}

uint32_t eviction_victim(struct eviction *e, bool (*may)(void *arg, uint32_t entry), void *arg)
{
    OBJ_CHECK(e, EVICTION_MAGIC);
    return e->rule->victim(e, may, arg);
}
