/* SPDX-License-Identifier: Apache-2.0 */
/* Finds size classes of experts, and divides memory into slabs for them. */
#include "lib/policy/gpu/slabs.h"

#include <stdbool.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define SLAB_LARGEST 16 /* experts of the largest size in a slab, at most */

void expert_sizes_fill(struct expert_sizes *sizes, uint32_t layers, uint32_t experts,
                       uint64_t bytes)
{
    sl_assert(layers <= MODEL_LAYERS_MAX);
    *sizes = (struct expert_sizes){.experts = experts};
    for (uint32_t p = 0; p < PRECISION__COUNT; p++)
        for (uint32_t l = 0; l < layers; l++)
            sizes->bytes[p][l] = bytes;
}

void expert_sizes_add(struct expert_sizes *sizes, uint32_t precision, uint32_t layer,
                      uint64_t bytes)
{
    sl_assert(precision < PRECISION__COUNT && layer < MODEL_LAYERS_MAX);
    uint64_t *most = &sizes->bytes[precision][layer];
    *most = bytes > *most ? bytes : *most;
}

uint64_t expert_sizes_of(const struct expert_sizes *sizes, enum precision precision)
{
    uint64_t most = 0;
    for (uint32_t l = 0; l < MODEL_LAYERS_MAX; l++)
        most = sizes->bytes[precision][l] > most ? sizes->bytes[precision][l] : most;
    return most;
}

/* All sizes, one after the other. */
static const uint64_t *flat(const struct expert_sizes *sizes)
{
    return &sizes->bytes[0][0];
}

#define FLAT (PRECISION__COUNT * MODEL_LAYERS_MAX)

uint64_t expert_sizes_largest(const struct expert_sizes *sizes)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < FLAT; i++)
        most = flat(sizes)[i] > most ? flat(sizes)[i] : most;
    return most;
}

uint32_t expert_sizes_count(const struct expert_sizes *sizes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FLAT; i++)
        count += flat(sizes)[i] > 0 ? sizes->experts : 0;
    return count;
}

/* ---- classes ---- */

/* The two neighbours with the smallest difference become one, of the larger size. */
static void merge(uint64_t *size, uint32_t *count)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i + 1 < *count; i++)
        if (size[i] - size[i + 1] < size[at] - size[at + 1])
            at = i;
    for (uint32_t i = at + 1; i + 1 < *count; i++)
        size[i] = size[i + 1];
    --*count;
}

static void find_classes(struct slabs *s, const struct expert_sizes *sizes)
{
    uint64_t size[SLABS_CLASSES_MAX + 1];
    uint64_t below = UINT64_MAX;
    for (;;) {
        uint64_t next = 0; /* the largest of those that are below */
        for (uint32_t i = 0; i < FLAT; i++)
            if (flat(sizes)[i] < below && flat(sizes)[i] > next)
                next = flat(sizes)[i];
        if (next == 0)
            break;
        below = next;
        size[s->classes++] = align_up(next, SLABS_ALIGN);
        if (s->classes > 1 && size[s->classes - 1] == size[s->classes - 2])
            s->classes--;
        if (s->classes > SLABS_CLASSES_MAX)
            merge(size, &s->classes);
    }
    sl_assert(s->classes > 0);
    memcpy(s->class_bytes, size, s->classes * sizeof *size);
}

static uint8_t class_of(const struct slabs *s, uint64_t bytes)
{
    uint32_t c = s->classes;
    while (c > 0 && bytes > s->class_bytes[c - 1])
        c--;
    return (uint8_t)(bytes > 0 ? c - 1 : s->classes);
}

static void number_classes(struct slabs *s, const struct expert_sizes *sizes)
{
    for (uint32_t p = 0; p < PRECISION__COUNT; p++)
        for (uint32_t l = 0; l < MODEL_LAYERS_MAX; l++)
            s->class_of[p][l] = class_of(s, sizes->bytes[p][l]);
}

/* ---- the size of a slab ---- */

struct counts {
    uint32_t experts[SLABS_CLASSES_MAX]; /* of each class */
};

static struct counts count_experts(const struct slabs *s, const struct expert_sizes *sizes,
                                   unsigned precisions)
{
    struct counts n = {0};
    for (uint32_t p = 0; p < PRECISION__COUNT; p++)
        for (uint32_t l = 0; l < MODEL_LAYERS_MAX && precisions >> p & 1; l++)
            if (s->class_of[p][l] < s->classes)
                n.experts[s->class_of[p][l]] += sizes->experts;
    return n;
}

static uint32_t slabs_of(const struct slabs *s, const struct counts *n)
{
    uint32_t slabs = 0;
    for (uint32_t c = 0; c < s->classes; c++)
        slabs += (n->experts[c] + s->places[c] - 1) / s->places[c];
    return slabs;
}

uint32_t slabs_for(const struct slabs *s, const struct expert_sizes *sizes, unsigned precisions)
{
    const struct counts n = count_experts(s, sizes, precisions);
    return slabs_of(s, &n);
}

struct choice {
    uint64_t slab;
    uint32_t count;
    bool all;    /* of the experts fit; then: */
    double cost; /* bytes; else the negative of those that can be used */
};

/* Of the class that this size suits worst. Each class may have a slab that is not full: half of one
 * is not used. */
static double usable(const struct slabs *s)
{
    uint64_t minimum = UINT64_MAX;
    for (uint32_t c = 0; c < s->classes; c++) {
        uint64_t bytes = (uint64_t)s->count * s->places[c] * s->class_bytes[c];
        minimum = bytes < minimum ? bytes : minimum;
    }
    return (double)minimum - (s->classes - 1) * (double)s->bytes / 2;
}

static void set_slab(struct slabs *s, uint64_t slab)
{
    s->bytes = slab;
    for (uint32_t c = 0; c < s->classes; c++)
        s->places[c] = (uint32_t)(slab / s->class_bytes[c]);
    s->places_max = s->places[s->classes - 1];
}

static struct choice try(struct slabs *s, const struct counts *experts, uint64_t slab,
                         uint64_t bytes, uint32_t minimum)
{
    set_slab(s, slab);
    uint64_t fit = bytes / slab;
    uint32_t all = slabs_of(s, experts);
    all = all > minimum ? all : minimum;
    struct choice c = {.slab = slab, .all = all <= fit};
    s->count = c.count = c.all ? all : (uint32_t)fit;
    c.cost = c.all ? (double)c.count * (double)slab : -usable(s);
    return c;
}

static bool better(const struct choice *a, const struct choice *b)
{
    if (a->all != b->all)
        return a->all;
    return a->cost < b->cost || (a->cost == b->cost && a->slab < b->slab);
}

struct slabs slabs_divide(const struct expert_sizes *sizes, uint64_t bytes, uint32_t minimum)
{
    struct slabs s = {0};
    find_classes(&s, sizes);
    number_classes(&s, sizes);
    const uint64_t largest = s.class_bytes[0];
    const struct counts all = count_experts(&s, sizes, ~0u);
    struct choice best = try(&s, &all, largest, bytes, minimum);
    for (uint32_t c = 0; c < s.classes; c++)
        for (uint64_t slab = s.class_bytes[c]; slab <= SLAB_LARGEST * largest;
             slab += s.class_bytes[c]) {
            if (slab < largest || bytes / slab < minimum)
                continue;
            const struct choice choice = try(&s, &all, slab, bytes, minimum);
            if (better(&choice, &best))
                best = choice;
        }
    set_slab(&s, best.slab);
    s.count = best.count;
    return s;
}
