/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/policy/residency/places.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

struct place {
    uint32_t expert; /* POLICY_NONE: empty */
    bool leased;
    bool ahead;    /* got it before a use, and was not used so far */
    bool reserved; /* the same, by places_reserve */
};

struct places {
    struct places_config config;
    struct residency *residency;
    struct residency_step step;
    struct place *place;
    uint32_t *place_of; /* by expert */
    uint32_t taken;
    uint32_t best;                              /* precision that was used so far */
    uint32_t lent[MODEL_TOP_K_MAX], lent_count; /* to the host */
    uint32_t behind;                            /* place of the last of these */
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

struct places *places_create(const struct places_config *config)
{
    struct places *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->config = *config;
    p->behind = PLACES_NONE;
    p->best = PRECISION__COUNT;
    struct residency_config r = {.layers = config->layers,
                                 .experts = config->experts,
                                 .top_k = config->top_k,
                                 .precisions = PRECISION__COUNT,
                                 .eviction = config->eviction,
                                 .allocation = ALLOCATE_SHARED,
                                 .boundary = 1,
                                 .w_lru = 0.4f,
                                 .w_lfu = 0.3f,
                                 .w_lhu = 0.2f,
                                 .w_fld = 0.1f};
    for (int i = 0; i < PRECISION__COUNT; i++)
        r.precision_bytes[i] = config->place_bytes;
    size_t experts = (size_t)PRECISION__COUNT * config->layers * config->experts;
    p->residency = residency_create(&r);
    p->place = calloc(config->places, sizeof *p->place);
    p->place_of = malloc(experts * sizeof *p->place_of);
    if (!p->residency || !p->place || !p->place_of) {
        places_destroy(p);
        return NULL;
    }
    memset(p->place_of, 0xff, experts * sizeof *p->place_of);
    for (uint32_t i = 0; i < config->places; i++)
        p->place[i].expert = POLICY_NONE;
    residency_capacity(p->residency, config->places * config->place_bytes);
    return p;
}

void places_destroy(struct places *p)
{
    if (!p)
        return;
    residency_destroy(p->residency);
    free(p->place);
    free(p->place_of);
    free(p);
}

/* The position of the core, as far as the policy needs it: a lower layer than before is another pass. */
static void follow(struct places *p, uint32_t layer)
{
    p->step.position += layer < p->step.layer;
    p->step.layer = layer;
    residency_step(p->residency, &p->step);
}

void places_sequence(struct places *p)
{
    p->step.sequence++;
}

static bool may_evict(void *arg, uint32_t expert)
{
    const struct places *p = arg;
    return !p->place[p->place_of[expert]].leased;
}

/* PLACES_NONE: all are leased. */
static uint32_t free_place(struct places *p, uint32_t expert)
{
    if (p->taken < p->config.places)
        return p->taken++;
    uint32_t victim = residency_victim(p->residency, expert, may_evict, p);
    if (victim == POLICY_NONE)
        return PLACES_NONE;
    uint32_t at = p->place_of[victim];
    p->counts.unused += p->place[at].ahead;
    p->counts.filled -= p->place[at].reserved;
    residency_remove(p->residency, victim, true);
    p->place_of[victim] = PLACES_NONE;
    p->counts.evicted++;
    return at;
}

/* A place for an expert. PLACES_NONE: all are leased. */
static uint32_t take_place(struct places *p, uint32_t expert, bool ahead)
{
    uint32_t at = free_place(p, expert);
    if (at == PLACES_NONE)
        return at;
    p->place[at] = (struct place){.expert = expert, .ahead = ahead};
    p->place_of[expert] = at;
    residency_insert(p->residency, expert, ahead);
    return at;
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
    p->place[r.place].leased = true;
    p->place[r.place].reserved = false;
    p->counts.filled -= reserved;
    return r;
}

/* The place that an expert that was lent to the host gets for later passes, while it is the last one lent. */
static uint32_t place_behind(const struct places *p, uint32_t expert)
{
    return p->behind != PLACES_NONE && p->place[p->behind].expert == expert ? p->behind
                                                                            : PLACES_NONE;
}

/* Whether the host computes this one: it has no place, in a pass of one row. */
static bool lend(struct places *p, uint32_t expert, uint32_t rows, struct place_result *r)
{
    for (uint32_t i = 0; i < p->lent_count; i++)
        if (p->lent[i] == expert) {
            *r = (struct place_result){.use = PLACE_ON_HOST, .place = place_behind(p, expert)};
            return true;
        }
    if (!p->config.cooperative || rows != 1 || p->place_of[expert] != PLACES_NONE ||
        p->lent_count == MODEL_TOP_K_MAX)
        return false;
    p->lent[p->lent_count++] = expert;
    note_access(p, expert);
    p->counts.on_host++;
    p->behind = p->config.space(p->config.arg) ? take_place(p, expert, false) : PLACES_NONE;
    p->counts.behind += p->behind != PLACES_NONE;
    *r = (struct place_result){
        .use = PLACE_ON_HOST, .place = p->behind, .taken = p->behind != PLACES_NONE};
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
        p->place[p->place_of[expert]].leased = true;
}

uint32_t places_ahead(struct places *p, uint32_t expert)
{
    if (places_has(p, expert) || !p->config.space(p->config.arg))
        return PLACES_NONE;
    uint32_t at = take_place(p, expert, true);
    if (at == PLACES_NONE)
        return at;
    p->place[at].leased = true;
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
    if (places_has(p, expert) || p->taken == p->config.places || p->config.cooperative ||
        !p->config.space(p->config.arg))
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
    for (uint32_t i = 0; i < p->taken; i++)
        p->place[i].leased = false;
    p->behind = PLACES_NONE;
    p->lent_count = 0;
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
