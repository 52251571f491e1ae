/* SPDX-License-Identifier: Apache-2.0 */
/* Gives experts places on a device and takes them away, as the eviction decides. */
#include "lib/policy/gpu/places.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

struct place {
    uint32_t expert; /* POLICY_NONE: empty */
    uint32_t seen;   /* number of the search that has met its expert */
    bool leased;
    bool ahead;    /* got it before a use, and was not used so far */
    bool reserved; /* the same, by places_reserve */
};

struct slab {
    uint32_t class, used; /* used: its places that have an expert */
    uint32_t seen, met; /* number of the last search here, and how many of its experts it has met */
};

/* For space for an expert. */
struct search {
    uint32_t class, number;
    uint32_t own, owns; /* the first expert of the class, and how many were met */
    uint32_t slab;      /* of another class, all met; else PLACES_NONE */
};

struct places {
    struct places_config config;
    struct residency *residency;
    struct residency_step step;
    struct slabs slabs;
    uint64_t *expert_bytes; /* of each expert, that of its class */
    struct slab *slab;
    uint32_t slabs_taken;             /* by a class */
    uint32_t open[SLABS_CLASSES_MAX]; /* slab with an empty place; PLACES_NONE */
    struct search search;
    struct place *place;                        /* [slabs][slabs.places_max] */
    uint32_t *place_of;                         /* by expert */
    uint32_t *leased, leased_count;             /* places */
    uint32_t best;                              /* precision that was used so far */
    uint32_t lent[MODEL_TOP_K_MAX], lent_count; /* to the host */
    uint32_t background;                        /* place of the last of these */
    uint32_t used;                              /* places */
    uint32_t experts_all;                       /* that may come */
    bool holds_all;
    struct places_counts counts;
};

bool places_eviction_find(const char *name, enum eviction *out)
{
    static const char *const names[] = {EVICTION_LIST(CHOICE_NAME)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (i != EVICTION_LEARNED && strcmp(names[i], name) == 0) {
            *out = (enum eviction)i;
            return true;
        }
    return false;
}

static uint32_t class_of(const struct places *p, uint32_t expert)
{
    uint32_t layer = expert / p->config.experts % p->config.layers;
    uint32_t precision = expert / p->config.experts / p->config.layers;
    return p->slabs.class_of[precision][layer];
}

/* Those that never come have the largest size. */
static void set_bytes(struct places *p, uint32_t experts)
{
    for (uint32_t e = 0; e < experts; e++) {
        uint32_t class = class_of(p, e);
        p->expert_bytes[e] = p->slabs.class_bytes[class < p->slabs.classes ? class : 0];
    }
}

static struct residency *make_residency(const struct places *p)
{
    const struct places_config *c = &p->config;
    return residency_create(&(struct residency_config){.layers = c->layers,
                                                       .experts = c->experts,
                                                       .top_k = c->top_k,
                                                       .precisions = PRECISION__COUNT,
                                                       .slot_bytes = p->expert_bytes,
                                                       .eviction = c->eviction,
                                                       .allocation = ALLOCATE_SHARED,
                                                       .boundary = 1,
                                                       .w_lru = 0.4f,
                                                       .w_lfu = 0.3f,
                                                       .w_lhu = 0.2f,
                                                       .w_fld = 0.1f,
                                                       .walks = p->slabs.classes > 1});
}

struct places *places_create(const struct places_config *config)
{
    struct places *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->config = *config;
    p->background = PLACES_NONE;
    p->best = PRECISION__COUNT;
    p->slabs = slabs_divide(config->sizes, config->bytes, config->top_k);
    p->experts_all = expert_sizes_count(config->sizes);
    p->holds_all = slabs_for(&p->slabs, config->sizes, ~0u) <= p->slabs.count;
    p->config.sizes = NULL;
    uint32_t experts = PRECISION__COUNT * config->layers * config->experts;
    uint32_t places = p->slabs.count * p->slabs.places_max;
    p->expert_bytes = calloc(experts, sizeof *p->expert_bytes);
    p->slab = calloc(p->slabs.count, sizeof *p->slab);
    p->place = calloc(places, sizeof *p->place);
    p->place_of = malloc(experts * sizeof *p->place_of);
    p->leased = calloc(places, sizeof *p->leased);
    if (p->expert_bytes) {
        set_bytes(p, experts);
        p->residency = make_residency(p);
    }
    if (!p->residency || !p->slab || !p->place || !p->place_of || !p->leased) {
        places_destroy(p);
        return NULL;
    }
    memset(p->place_of, 0xff, experts * sizeof *p->place_of);
    memset(p->open, 0xff, sizeof p->open);
    for (uint32_t i = 0; i < places; i++)
        p->place[i].expert = POLICY_NONE;
    residency_capacity(p->residency, p->slabs.count * p->slabs.bytes);
    return p;
}

void places_destroy(struct places *p)
{
    if (!p)
        return;
    residency_destroy(p->residency);
    free(p->expert_bytes);
    free(p->slab);
    free(p->place);
    free(p->place_of);
    free(p->leased);
    free(p);
}

/* The position of the core, as far as the policy needs it: a lower layer than before is another
 * pass. */
static void follow(struct places *p, uint32_t layer)
{
    p->step.position += layer < p->step.layer;
    p->step.layer = layer;
    residency_step(p->residency, &p->step);
}

void places_sequence(struct places *p)
{
    residency_sequence_ends(p->residency, p->step.sequence);
    residency_sequence_starts(p->residency, ++p->step.sequence);
}

/* ---- space ---- */

static struct slab *slab_of(const struct places *p, uint32_t place)
{
    return &p->slab[place / p->slabs.places_max];
}

static bool may_evict(void *arg, uint32_t expert)
{
    const struct places *p = arg;
    return !p->place[p->place_of[expert]].leased;
}

/* The empty place of an expert that is evicted. */
static uint32_t evict(struct places *p, uint32_t expert)
{
    uint32_t at = p->place_of[expert];
    p->counts.unused += p->place[at].ahead;
    p->counts.filled -= p->place[at].reserved;
    residency_remove(p->residency, expert, true);
    p->place_of[expert] = PLACES_NONE;
    p->place[at] = (struct place){.expert = POLICY_NONE};
    p->counts.evicted++;
    p->used--;
    slab_of(p, at)->used--;
    return at;
}

/* A slab whose places are empty becomes one of that class: its first place. */
static uint32_t give_slab(struct places *p, uint32_t number, uint32_t class)
{
    struct slab *slab = &p->slab[number];
    sl_assert(slab->used == 0);
    *slab = (struct slab){.class = class};
    p->open[class] = number;
    return number * p->slabs.places_max;
}

/* Without an eviction; PLACES_NONE: there is none. */
static uint32_t empty_place(struct places *p, uint32_t class)
{
    uint32_t number = p->open[class];
    if (number == PLACES_NONE)
        return p->slabs_taken < p->slabs.count ? give_slab(p, p->slabs_taken++, class)
                                               : PLACES_NONE;
    uint32_t at = number * p->slabs.places_max;
    while (p->place[at].expert != POLICY_NONE)
        at++;
    return at;
}

/* The next expert in the policy's order: whether enough are known. Those that are leased are not
 * met, so their slabs keep them. */
static bool meet(void *arg, uint32_t expert)
{
    struct places *p = arg;
    struct search *s = &p->search;
    uint32_t at = p->place_of[expert];
    struct place *place = &p->place[at];
    struct slab *slab = slab_of(p, at);
    if (place->leased || place->seen == s->number)
        return false;
    place->seen = s->number;
    if (slab->class == s->class) {
        s->own = s->owns == 0 ? expert : s->own;
        return ++s->owns == p->slabs.places[s->class];
    }
    slab->met = slab->seen == s->number ? slab->met + 1 : 1;
    slab->seen = s->number;
    if (slab->met < slab->used)
        return false;
    s->slab = at / p->slabs.places_max;
    return true;
}

static uint32_t take_slab(struct places *p, uint32_t number, uint32_t class)
{
    uint32_t first = number * p->slabs.places_max;
    struct slab *slab = &p->slab[number];
    for (uint32_t i = first; slab->used > 0; i++)
        if (p->place[i].expert != POLICY_NONE)
            evict(p, p->place[i].expert);
    if (p->open[slab->class] == number)
        p->open[slab->class] = PLACES_NONE;
    return give_slab(p, number, class);
}

/* By an eviction; PLACES_NONE: all are leased. */
static uint32_t make_place(struct places *p, uint32_t expert, uint32_t class)
{
    if (p->slabs.classes == 1) {
        uint32_t victim = residency_victim(p->residency, expert, may_evict, p);
        return victim == POLICY_NONE ? PLACES_NONE : evict(p, victim);
    }
    struct search *s = &p->search;
    *s = (struct search){
        .class = class, .number = s->number + 1, .own = POLICY_NONE, .slab = PLACES_NONE};
    residency_walk(p->residency, expert, meet, p);
    if (s->slab != PLACES_NONE)
        return take_slab(p, s->slab, class);
    return s->own == POLICY_NONE ? PLACES_NONE : evict(p, s->own);
}

/* A place for an expert. PLACES_NONE: all are leased. */
static uint32_t take_place(struct places *p, uint32_t expert, bool ahead)
{
    uint32_t class = class_of(p, expert);
    sl_assert(class < p->slabs.classes); /* its size is known */
    uint32_t at = empty_place(p, class);
    if (at == PLACES_NONE)
        at = make_place(p, expert, class);
    if (at == PLACES_NONE)
        return at;
    struct slab *slab = slab_of(p, at);
    p->place[at] = (struct place){.expert = expert, .ahead = ahead};
    p->place_of[expert] = at;
    p->used++;
    slab->used++;
    if (p->open[class] == at / p->slabs.places_max && slab->used == p->slabs.places[class])
        p->open[class] = PLACES_NONE;
    residency_insert(p->residency, expert, ahead);
    return at;
}

static void lease_place(struct places *p, uint32_t at)
{
    if (!p->place[at].leased)
        p->leased[p->leased_count++] = at;
    p->place[at].leased = true;
}

static void note_access(struct places *p, uint32_t expert)
{
    uint32_t precision = expert / p->config.experts / p->config.layers;
    p->best = precision < p->best ? precision : p->best;
    follow(p, expert / p->config.experts % p->config.layers);
    residency_accessed(p->residency, expert,
                       &(struct residency_access){.tokens = 1, .high = precision == p->best});
}

static void end_ahead(struct places *p, uint32_t at)
{
    if (!p->place[at].ahead)
        return;
    bool here = p->config.arrived(p->config.arg, at);
    p->counts.timely += here;
    p->counts.late += !here;
    p->place[at].ahead = false;
}

static struct place_result lease(struct places *p, uint32_t expert)
{
    uint32_t at = p->place_of[expert];
    if (at != PLACES_NONE && p->place[at].leased)
        return (struct place_result){.use = PLACE_LEASED, .place = at};
    bool reserved = at != PLACES_NONE && p->place[at].reserved;
    struct place_result r = {.use = at == PLACES_NONE ? PLACE_UPLOAD : PLACE_HIT,
                             .place = at,
                             .taken = at == PLACES_NONE};
    note_access(p, expert);
    p->counts.hits += r.use == PLACE_HIT && !reserved;
    p->counts.uploaded += r.taken || reserved;
    if (r.taken)
        r.place = take_place(p, expert, false);
    else
        end_ahead(p, at);
    sl_assert(r.place !=
              PLACES_NONE); /* the source of experts keeps to the limit of those that are leased */
    lease_place(p, r.place);
    p->place[r.place].reserved = false;
    p->counts.filled -= reserved;
    return r;
}

/* The place that an expert that was lent to the host gets for later passes, while it is the last
 * one lent. */
static uint32_t background_place(const struct places *p, uint32_t expert)
{
    return p->background != PLACES_NONE && p->place[p->background].expert == expert ? p->background
                                                                                    : PLACES_NONE;
}

/* Whether the host computes this one: it has no place, in a pass of one row. */
static bool lend(struct places *p, uint32_t expert, uint32_t rows, struct place_result *r)
{
    for (uint32_t i = 0; i < p->lent_count; i++)
        if (p->lent[i] == expert) {
            *r = (struct place_result){.use = PLACE_ON_HOST, .place = background_place(p, expert)};
            return true;
        }
    if (!p->config.cooperative || rows != 1 || p->place_of[expert] != PLACES_NONE ||
        p->lent_count == MODEL_TOP_K_MAX)
        return false;
    p->lent[p->lent_count++] = expert;
    note_access(p, expert);
    p->counts.on_host++;
    p->background = p->config.space(p->config.arg) ? take_place(p, expert, false) : PLACES_NONE;
    p->counts.background += p->background != PLACES_NONE;
    *r = (struct place_result){
        .use = PLACE_ON_HOST, .place = p->background, .taken = p->background != PLACES_NONE};
    return true;
}

struct place_result places_use(struct places *p, uint32_t expert, uint32_t rows)
{
    struct place_result r;
    return lend(p, expert, rows, &r) ? r : lease(p, expert);
}

void places_keep(struct places *p, uint32_t expert)
{
    if (places_has(p, expert))
        lease_place(p, p->place_of[expert]);
}

uint32_t places_ahead(struct places *p, uint32_t expert)
{
    if (places_has(p, expert) || !p->config.space(p->config.arg))
        return PLACES_NONE;
    uint32_t at = take_place(p, expert, true);
    if (at == PLACES_NONE)
        return at;
    lease_place(p, at);
    p->counts.ahead++;
    return at;
}

void places_prefetch(struct places *p, const uint32_t *expert, uint32_t count,
                     void (*copy)(void *arg, uint32_t at, uint32_t place), void *arg)
{
    for (uint32_t i = 0; i < count; i++)
        places_keep(p, expert[i]);
    for (uint32_t i = 0; i < count; i++) {
        if (places_has(p, expert[i]))
            continue;
        uint32_t place = places_ahead(p, expert[i]);
        if (place == PLACES_NONE)
            return;
        copy(arg, i, place);
    }
}

uint32_t places_reserve(struct places *p, uint32_t expert)
{
    uint32_t class = class_of(p, expert);
    bool empty = p->open[class] != PLACES_NONE || p->slabs_taken < p->slabs.count;
    if (places_has(p, expert) || !empty || p->config.cooperative || !p->config.space(p->config.arg))
        return PLACES_NONE;
    uint32_t at = take_place(p, expert, false);
    p->place[at].reserved = true;
    p->counts.filled++;
    return at;
}

bool places_has(const struct places *p, uint32_t expert)
{
    return p->place_of[expert] != PLACES_NONE;
}

uint32_t places_at(const struct places *p, uint32_t expert)
{
    return p->place_of[expert];
}

void places_end_leases(struct places *p)
{
    while (p->leased_count > 0)
        p->place[p->leased[--p->leased_count]].leased = false;
    p->background = PLACES_NONE;
    p->lent_count = 0;
}

uint32_t places_lent_max(const struct places *p)
{
    return p->slabs.count;
}

uint32_t places_count(const struct places *p)
{
    return p->slabs.count * p->slabs.places_max;
}

uint32_t places_used(const struct places *p)
{
    return p->used;
}

uint32_t places_capacity(const struct places *p)
{
    uint32_t places = (p->slabs.count - p->slabs_taken) * p->slabs.places[0];
    for (uint32_t i = 0; i < p->slabs_taken; i++)
        places += p->slabs.places[p->slab[i].class];
    return p->holds_all || places > p->experts_all ? p->experts_all : places;
}

uint64_t places_offset(const struct places *p, uint32_t place)
{
    uint32_t slab = place / p->slabs.places_max, i = place % p->slabs.places_max;
    return slab * p->slabs.bytes + i * p->slabs.class_bytes[p->slab[slab].class];
}

uint64_t places_bytes(const struct places *p, uint32_t place)
{
    return p->slabs.class_bytes[slab_of(p, place)->class];
}

uint32_t places_with(const struct places *p, uint64_t offset)
{
    uint32_t slab = (uint32_t)(offset / p->slabs.bytes);
    sl_assert(slab < p->slabs.count);
    uint64_t in = offset % p->slabs.bytes;
    return slab * p->slabs.places_max + (uint32_t)(in / p->slabs.class_bytes[p->slab[slab].class]);
}

void places_cooperate(struct places *p, bool cooperative)
{
    sl_assert(p->lent_count == 0);
    p->config.cooperative = cooperative;
}

struct places_counts places_counts(const struct places *p)
{
    return p->counts;
}
