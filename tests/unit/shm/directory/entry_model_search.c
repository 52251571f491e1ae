/* SPDX-License-Identifier: Apache-2.0 */
/* Breadth-first search over every reachable world. A world is stored as a 64-bit fingerprint (a
 * collision would hide a state: for N states its probability is below N^2 / 2^65); parents and step
 * numbers are stored, so that a violation prints the shortest path to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "tests/unit/shm/directory/entry_model.h"

struct edge {
    uint32_t from, to;
};

struct search {
    uint64_t *prints; /* hash table; 0 is free */
    uint32_t *number; /* of the state in that slot */
    uint64_t hash_slots, states;
    uint32_t *parent; /* by state number */
    uint16_t *step;   /* step from the parent */
    uint64_t capacity;
    struct world *queue; /* ring */
    uint64_t queue_slots, head, tail;
    struct edge *edges; /* liveness only, without faults */
    uint64_t edge_count, edge_capacity;
    uint8_t *open,
        *done; /* liveness: compute waits here and may expect an end; the wait has ended */
};

static void *grow(void *old, uint64_t count, size_t size)
{
    void *grown = realloc(old, count * size);
    sl_assert(grown != NULL);
    return grown;
}

static void *zeroes(uint64_t count, size_t size)
{
    void *p = calloc(count, size);
    sl_assert(p != NULL);
    return p;
}

/* ---- steps: one number encodes actor and choice */

static unsigned step_count(void)
{
    return storage_choices() + m->loaders * loader_choices() + cache_choices() + compute_choices() +
           supervisor_choices();
}

static bool take_step(struct world *w, unsigned step)
{
    what_is_a_fault = false;
    if (step < storage_choices())
        return storage_step(w, step);
    step -= storage_choices();
    if (step < m->loaders * loader_choices())
        return loader_step(w, step / loader_choices(), step % loader_choices());
    step -= m->loaders * loader_choices();
    if (step < cache_choices())
        return cache_step(w, step);
    step -= cache_choices();
    if (step < compute_choices())
        return compute_step(w, step);
    return supervisor_step(w, step - compute_choices());
}

static void print_world(const struct world *w)
{
    static const char letter[] = "ALRD";
    for (unsigned e = 0; e < ENTRIES; e++) {
        uint64_t word = unpack(w->word[e]);
        printf("  %c:%c%s owed %x gen %u at %u", "AB"[e], letter[entry_state_of(word)],
               entry_pins_of(word) ? " pinned" : "", entry_pending_of(word),
               (unsigned)entry_generation_of(word), w->location[e]);
    }
    for (unsigned s = 0; s < m->slots; s++)
        for (unsigned c = 0; c < m->chunks; c++)
            printf(" %c", "-AB"[w->content[s][c]]);
    printf("\n");
}

static void print_trace(const struct search *s, uint32_t state)
{
    uint32_t path[1000], length = 0;
    for (; state != 0 && length < 1000; state = s->parent[state])
        path[length++] = state;
    struct world w;
    world_start(&w);
    world_normal(&w);
    for (unsigned i = 1; length > 0; i++) {
        bool taken = take_step(&w, s->step[path[--length]]);
        sl_assert(taken);
        printf("    %2u %-55s", i, what);
        print_world(&w);
        world_normal(&w);
    }
}

/* ---- the set of states */

static uint64_t print_of(const struct world *w)
{
    uint64_t h = XXH3_64bits(w, sizeof *w);
    return h ? h : 1;
}

static uint64_t find_slot(const struct search *s, uint64_t print)
{
    uint64_t at = print & (s->hash_slots - 1);
    while (s->prints[at] != 0 && s->prints[at] != print)
        at = (at + 1) & (s->hash_slots - 1);
    return at;
}

static void rehash(struct search *s)
{
    struct search larger = *s;
    larger.hash_slots = s->hash_slots * 2;
    larger.prints = zeroes(larger.hash_slots, sizeof *s->prints);
    larger.number = zeroes(larger.hash_slots, sizeof *s->number);
    for (uint64_t i = 0; i < s->hash_slots; i++)
        if (s->prints[i]) {
            uint64_t at = find_slot(&larger, s->prints[i]);
            larger.prints[at] = s->prints[i];
            larger.number[at] = s->number[i];
        }
    free(s->prints);
    free(s->number);
    *s = larger;
}

static void push(struct search *s, const struct world *w)
{
    if (s->tail - s->head == s->queue_slots) {
        struct world *larger = grow(NULL, s->queue_slots * 2, sizeof *larger);
        for (uint64_t i = s->head; i < s->tail; i++)
            larger[i & (s->queue_slots * 2 - 1)] = s->queue[i & (s->queue_slots - 1)];
        free(s->queue);
        s->queue = larger;
        s->queue_slots *= 2;
    }
    s->queue[s->tail++ & (s->queue_slots - 1)] = *w;
}

/* Number of the state; *fresh when it is new. */
static uint32_t remember(struct search *s, const struct world *w, uint32_t from, unsigned step,
                         bool *fresh)
{
    uint64_t print = print_of(w), at = find_slot(s, print);
    *fresh = s->prints[at] == 0;
    if (!*fresh)
        return s->number[at];
    if (s->states == s->capacity) {
        s->capacity *= 2;
        s->parent = grow(s->parent, s->capacity, sizeof *s->parent);
        s->step = grow(s->step, s->capacity, sizeof *s->step);
        s->open = grow(s->open, s->capacity, 1);
        s->done = grow(s->done, s->capacity, 1);
    }
    uint32_t number = (uint32_t)s->states++;
    s->prints[at] = print;
    s->number[at] = number;
    s->parent[number] = from;
    s->step[number] = (uint16_t)step;
    push(s, w);
    if (s->states * 3 > s->hash_slots * 2)
        rehash(s);
    return number;
}

static void add_edge(struct search *s, uint32_t from, uint32_t to)
{
    if (s->edge_count == s->edge_capacity) {
        s->edge_capacity = s->edge_capacity ? s->edge_capacity * 2 : 1 << 20;
        s->edges = grow(s->edges, s->edge_capacity, sizeof *s->edges);
    }
    s->edges[s->edge_count++] = (struct edge){from, to};
}

/* ---- liveness: from every world in which compute waits, without further faults and without giving
 * up, a world in which the wait has ended is reachable */

static bool exhausted(const struct world *w)
{
    for (unsigned e = 0; e < ENTRIES; e++)
        if (entry_generation_of(unpack(w->word[e])) >= m->generations)
            return true; /* the bound of the search, not of the protocol */
    return false;
}

static bool waits(const struct world *w)
{
    return w->compute.phase == COMPUTE_UP && w->compute.stage == STAGE_WAITING;
}

/* Propagates `done` backwards over the edges; returns a state whose wait can never end, or 0. */
static uint32_t find_stuck(struct search *s)
{
    uint32_t n = (uint32_t)s->states;
    uint32_t *first = zeroes((uint64_t)n + 2, sizeof *first), *from = NULL, *stack = NULL;
    from = zeroes(s->edge_count + 1, sizeof *from);
    stack = zeroes((uint64_t)n + 1, sizeof *stack);
    for (uint64_t i = 0; i < s->edge_count; i++)
        first[s->edges[i].to + 2]++;
    for (uint32_t i = 2; i <= n; i++)
        first[i] += first[i - 1];
    for (uint64_t i = 0; i < s->edge_count; i++)
        from[first[s->edges[i].to + 1]++] = s->edges[i].from;
    uint32_t depth = 0, stuck = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s->done[i])
            stack[depth++] = i;
    while (depth > 0) {
        uint32_t to = stack[--depth];
        for (uint32_t i = first[to]; i < first[to + 1]; i++)
            if (!s->done[from[i]]) {
                s->done[from[i]] = 1;
                stack[depth++] = from[i];
            }
    }
    for (uint32_t i = 0; i < n && stuck == 0; i++)
        if (s->open[i] && !s->done[i])
            stuck = i;
    free(first);
    free(from);
    free(stack);
    return stuck;
}

/* ---- search */

static void open_search(struct search *s)
{
    *s = (struct search){.hash_slots = 1 << 16, .capacity = 1 << 16, .queue_slots = 1 << 12};
    s->prints = zeroes(s->hash_slots, sizeof *s->prints);
    s->number = zeroes(s->hash_slots, sizeof *s->number);
    s->parent = zeroes(s->capacity, sizeof *s->parent);
    s->step = zeroes(s->capacity, sizeof *s->step);
    s->open = zeroes(s->capacity, 1);
    s->done = zeroes(s->capacity, 1);
    s->queue = zeroes(s->queue_slots, sizeof *s->queue);
}

static void close_search(struct search *s)
{
    free(s->prints);
    free(s->number);
    free(s->parent);
    free(s->step);
    free(s->open);
    free(s->done);
    free(s->queue);
    free(s->edges);
}

/* All successors of one world. The reason of a violation among them, its state in *bad. */
static const char *expand(struct search *s, const struct world *w, uint32_t self,
                          struct search_result *r, uint32_t *bad)
{
    unsigned steps = step_count();
    bool moved = false;
    for (unsigned step = 0; step < steps; step++) {
        struct world next = *w;
        if (!take_step(&next, step))
            continue;
        bool fault = what_is_a_fault, fresh;
        moved |= !fault;
        r->steps++;
        world_normal(&next);
        uint32_t number = remember(s, &next, self, step, &fresh);
        if (m->liveness && !fault && number != self)
            add_edge(s, self, number);
        const char *reason = fresh ? world_bad(&next) : NULL;
        if (reason) {
            *bad = number;
            return reason;
        }
    }
    *bad = self;
    return !moved && waits(w) && !exhausted(w) ? "compute waits and nothing can move" : NULL;
}

void model_search(const struct model *model, bool trace, struct search_result *result)
{
    struct search s;
    struct world w;
    uint32_t bad = 0;
    uint64_t start = clock_now_ns();
    m = model;
    *result = (struct search_result){.complete = true};
    open_search(&s);
    world_start(&w);
    world_normal(&w);
    bool fresh;
    remember(&s, &w, 0, 0, &fresh);
    while (s.head < s.tail && !result->violation) {
        if (s.states > model->states_max) {
            result->complete = false;
            break;
        }
        uint32_t self = (uint32_t)s.head;
        w = s.queue[s.head++ & (s.queue_slots - 1)];
        bool reads = w.compute.phase == COMPUTE_UP && w.compute.stage == STAGE_READING;
        result->reading += reads;
        s.open[self] = waits(&w) && !exhausted(&w);
        s.done[self] = reads || exhausted(&w);
        result->violation = expand(&s, &w, self, result, &bad);
    }
    if (model->liveness && result->complete && !result->violation && (bad = find_stuck(&s)) != 0)
        result->violation = "compute waits and the wait can never end";
    result->states = s.states;
    for (uint32_t i = result->violation ? bad : (uint32_t)s.states - 1; i != 0; i = s.parent[i])
        result->depth++;
    if (trace && result->violation)
        print_trace(&s, bad);
    result->seconds = (double)(clock_now_ns() - start) / NS_PER_S;
    close_search(&s);
}
