/* SPDX-License-Identifier: Apache-2.0 */
/* Counts paths of experts in hash tables, one per layer. */
#include "lib/plan/paths.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"

#define PATHS_MAGIC 0x48544150u
#define SLOTS_FIRST 4096u

#define COUNT_BITS 27u
#define COUNT_MAX  ((1u << COUNT_BITS) - 1)

/* A path and its count in one word: key << COUNT_BITS | count. The key is
 * (a * experts + b) * experts + c, plus 1; word 0: free. */
struct path_slot {
    uint64_t word;
};
_Static_assert((uint64_t)MODEL_EXPERTS_MAX *MODEL_EXPERTS_MAX *MODEL_EXPERTS_MAX <
                   UINT64_C(1) << (64 - COUNT_BITS),
               "keys fit");

static inline uint64_t key_of(struct path_slot s)
{
    return s.word >> COUNT_BITS;
}

static inline uint32_t count_of(struct path_slot s)
{
    return (uint32_t)(s.word & COUNT_MAX);
}

struct path_table { /* of one layer */
    pthread_mutex_t lock;
    struct path_slot *slot; /* NULL until the first path */
    uint32_t slots, used;   /* a power of two */
    uint64_t dropped;
};

struct path_counts {
    uint32_t magic;
    uint32_t layers, experts;
    uint32_t slots_max; /* of a table */
    struct path_table table[];
};

struct path_counts *path_counts_create(uint32_t layers, uint32_t experts, uint64_t max_bytes,
                                       struct error *error)
{
    struct path_counts *p = calloc(1, sizeof *p + layers * sizeof p->table[0]);
    if (!p) {
        error_set(error, ERR_NO_MEMORY, "out of memory (counts of paths)");
        return NULL;
    }
    p->magic = PATHS_MAGIC;
    p->layers = layers;
    p->experts = experts;
    /* Together at most half of what a plan's file may have. */
    max_bytes = max_bytes < PLAN_TABLES_MAX ? max_bytes : PLAN_TABLES_MAX;
    p->slots_max = SLOTS_FIRST;
    while (2 * p->slots_max * (uint64_t)layers * sizeof(struct path_slot) <= max_bytes)
        p->slots_max *= 2;
    for (uint32_t l = 0; l < layers; l++)
        pthread_mutex_init(&p->table[l].lock, NULL);
    return p;
}

void path_counts_destroy(struct path_counts *p)
{
    if (!p)
        return;
    OBJ_CHECK(p, PATHS_MAGIC);
    for (uint32_t l = 0; l < p->layers; l++) {
        pthread_mutex_destroy(&p->table[l].lock);
        free(p->table[l].slot);
    }
    p->magic = 0;
    free(p);
}

/* ---- a table --------------------------------------------------------------------------------- */

/* The slot of the key, or the free one where it belongs. */
static struct path_slot *find(struct path_slot *slot, uint32_t slots, uint64_t key)
{
    uint32_t at = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (slots - 1);
    while (slot[at].word != 0 && key_of(slot[at]) != key)
        at = (at + 1) & (slots - 1);
    return &slot[at];
}

/* Moves paths of more than `above` accesses into a table of `slots`. False: no memory. */
static bool rebuild(struct path_table *t, uint32_t slots, uint32_t above)
{
    struct path_slot *more = calloc(slots, sizeof *more);
    if (!more)
        return false;
    uint32_t used = 0;
    for (uint32_t i = 0; i < t->slots; i++) {
        if (count_of(t->slot[i]) <= above) {
            t->dropped += count_of(t->slot[i]);
            continue;
        }
        *find(more, slots, key_of(t->slot[i])) = t->slot[i];
        used++;
    }
    free(t->slot);
    t->slot = more;
    t->slots = slots;
    t->used = used;
    return true;
}

static uint32_t paths_above(const struct path_table *t, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->slots; i++)
        n += count_of(t->slot[i]) > count;
    return n;
}

/* Space for one more path: a larger table, or one without the rarest paths. False when there is
 * none; then the path is dropped. */
static bool make_space(struct path_counts *p, struct path_table *t)
{
    if (t->used < t->slots / 4 * 3)
        return true;
    if (t->slots < p->slots_max)
        return rebuild(t, t->slots ? 2 * t->slots : SLOTS_FIRST, 0) || t->used + 1 < t->slots;
    uint32_t above = 1;
    while (paths_above(t, above) > t->slots / 2)
        above++;
    return rebuild(t, t->slots, above);
}

static void add(struct path_counts *p, struct path_table *t, uint64_t key)
{
    struct path_slot *slot = t->slots ? find(t->slot, t->slots, key) : NULL;
    if (!slot || slot->word == 0) {
        if (!make_space(p, t)) {
            t->dropped++;
            return;
        }
        slot = find(t->slot, t->slots, key);
        slot->word = key << COUNT_BITS;
        t->used++;
    }
    slot->word += count_of(*slot) < COUNT_MAX;
}

void path_counts_add(struct path_counts *p, uint32_t layer, const uint16_t *a, const uint16_t *b,
                     const uint16_t *c, uint32_t k)
{
    OBJ_CHECK(p, PATHS_MAGIC);
    sl_assert(layer < p->layers);
    struct path_table *t = &p->table[layer];
    pthread_mutex_lock(&t->lock);
    for (uint32_t x = 0; x < k; x++)
        for (uint32_t y = 0; y < k; y++)
            for (uint32_t z = 0; z < k; z++)
                add(p, t, ((uint64_t)a[x] * p->experts + b[y]) * p->experts + c[z] + 1);
    pthread_mutex_unlock(&t->lock);
}

/* ---- results --------------------------------------------------------------------------------- */

static unsigned shift_of(const struct path_counts *p)
{
    uint32_t max = 0;
    unsigned shift = 0;
    for (uint32_t l = 0; l < p->layers; l++)
        for (uint32_t i = 0; i < p->table[l].slots; i++)
            max = count_of(p->table[l].slot[i]) > max ? count_of(p->table[l].slot[i]) : max;
    while (max >> shift > UINT16_MAX)
        shift++;
    return shift;
}

uint64_t path_counts_cells(const struct path_counts *p)
{
    uint64_t cells = 0;
    for (uint32_t l = 0; l < p->layers; l++)
        cells += p->table[l].slots ? paths_above(&p->table[l], (1u << shift_of(p)) - 1) : 0;
    return cells;
}

uint64_t path_counts_dropped(const struct path_counts *p)
{
    uint64_t dropped = 0;
    for (uint32_t l = 0; l < p->layers; l++)
        dropped += p->table[l].dropped;
    return dropped;
}

static int by_key(const void *a, const void *b)
{
    const struct path_slot *x = a, *y = b;
    return x->word < y->word ? -1 : x->word > y->word;
}

static int by_count(const void *a, const void *b)
{
    const struct plan_cell *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

/* The cells of one layer, from sorted paths; returns the number of cells so far. */
static uint32_t take_layer(const struct path_counts *p, uint32_t layer,
                           const struct path_slot *path, uint32_t paths, unsigned shift,
                           uint32_t cells, struct plan *plan)
{
    uint32_t e = p->experts, at = 0;
    uint32_t *first = plan_pair_first(plan) + (size_t)layer * e * e;
    struct plan_cell *cell = plan_pair_cells(plan);
    for (uint64_t pair = 0; pair < (uint64_t)e * e; pair++) {
        first[pair] = cells;
        for (; at < paths && (key_of(path[at]) - 1) / e == pair; at++)
            if (count_of(path[at]) >> shift)
                cell[cells++] =
                    (struct plan_cell){.expert = (uint16_t)((key_of(path[at]) - 1) % e),
                                       .count = (uint16_t)(count_of(path[at]) >> shift)};
        qsort(cell + first[pair], cells - first[pair], sizeof *cell, by_count);
    }
    return cells;
}

int path_counts_take(const struct path_counts *p, struct plan *plan, struct error *error)
{
    unsigned shift = shift_of(p);
    uint32_t cells = 0;
    sl_assert(plan->layers == p->layers && plan->experts == p->experts &&
              plan->cells == path_counts_cells(p));
    for (uint32_t l = 0; l < p->layers; l++) {
        const struct path_table *t = &p->table[l];
        uint32_t paths = 0;
        struct path_slot *path = malloc(((size_t)t->used + 1) * sizeof *path);
        if (!path)
            return error_set(error, ERR_NO_MEMORY, "out of memory (paths of a layer)");
        for (uint32_t i = 0; i < t->slots; i++)
            if (t->slot[i].word)
                path[paths++] = t->slot[i];
        qsort(path, paths, sizeof *path, by_key);
        cells = take_layer(p, l, path, paths, shift, cells, plan);
        free(path);
    }
    plan_pair_first(plan)[(size_t)p->layers * p->experts * p->experts] = cells;
    return 0;
}
