/* SPDX-License-Identifier: Apache-2.0 */
/* Bookkeeping of the residency object: groups, shares, lists, records. Victims: victim.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/residency/internal.h"

/* ---- making --------------------------------------------------------------------------------- */

static bool config_is_sane(const struct residency_config *c)
{
    if (c->layers == 0 || c->experts == 0 || c->precisions == 0 ||
        c->precisions > RESIDENCY_PRECISIONS_MAX || c->high_precision >= c->precisions ||
        c->low_precision >= c->precisions || c->layers > MODEL_LAYERS_MAX ||
        expert_layers_count(&c->expert_layers, 0, c->layers) == 0)
        return false;
    for (uint32_t t = 0; t < c->precisions && !c->slot_bytes; t++)
        if (c->precision_bytes[t] == 0)
            return false;
    return (uint64_t)c->precisions * c->layers * c->experts < POLICY_NONE / 2 &&
           (c->eviction != EVICTION_SCORE || c->score);
}

static uint32_t groups_for(const struct residency_config *c)
{
    switch (c->allocation) {
    case ALLOCATE_SHARED:
    case ALLOCATE_TRANSIENT: return 1;
    case ALLOCATE_PRECISIONS: return c->precisions;
    default: return c->layers;
    }
}

static uint32_t group_for(const struct residency *r, uint32_t slot)
{
    if (r->groups_count == 1)
        return 0;
    return r->allocation == ALLOCATE_PRECISIONS ? slot / r->experts_all
                                                : residency_layer_of(r, slot);
}

/* Each group's part of resident[] is as large as the group, so entries never move between parts. */
static void init_groups(struct residency *r)
{
    for (uint32_t g = 0; g < r->groups_count; g++) {
        r->group[g].queried = POLICY_NONE;
        for (int l = 0; l < LIST__COUNT; l++)
            r->group[g].oldest[l] = r->group[g].youngest[l] = POLICY_NONE;
    }
    for (uint32_t s = 0; s < r->slots; s++) {
        uint32_t expert = s % r->experts_all;
        r->node[s] = (struct residency_node){.expert = expert,
                                             .layer = expert / r->config.experts,
                                             .index = POLICY_NONE,
                                             .list = LIST_NONE,
                                             .ghost = LIST_NONE};
        uint32_t g = r->node[s].group = group_for(r, s);
        if (g + 1 < r->groups_count)
            r->group[g + 1].first++;
    }
    for (uint32_t g = 1; g < r->groups_count; g++)
        r->group[g].first += r->group[g - 1].first;
}

static const struct residency_rule *const rules[] = {
#define RULE(id, name) [id] = &residency_rule_##id,
    EVICTION_LIST(RULE)[EVICTION_SCORE] = &residency_rule_EVICTION_SCORE
#undef RULE
};

struct residency *residency_create(const struct residency_config *config)
{
    struct residency *r = config_is_sane(config) ? calloc(1, sizeof *r) : NULL;
    if (!r)
        return NULL;
    *r = (struct residency){.magic = RESIDENCY_MAGIC,
                            .config = *config,
                            .rule = rules[config->eviction],
                            .experts_all = config->layers * config->experts,
                            .slots = config->precisions * config->layers * config->experts,
                            .groups_count = groups_for(config),
                            .random = config->seed,
                            .allocation = config->allocation,
                            .step = 1,
                            .round = 1};
    r->node = calloc(r->slots, sizeof *r->node);
    r->group = calloc(r->groups_count, sizeof *r->group);
    r->record = calloc(r->experts_all, sizeof *r->record);
    r->resident = calloc(r->slots, sizeof *r->resident);
    r->rank = config->walks ? calloc(r->slots, sizeof *r->rank) : NULL;
    if ((config->walks && !r->rank) || !residency_learned_init(r) || !residency_counted_init(r) ||
        !r->node || !r->group || !r->record || !r->resident) {
        residency_destroy(r);
        return NULL;
    }
    init_groups(r);
    residency_decayed_init(r);
    return r;
}

void residency_destroy(struct residency *r)
{
    if (!r)
        return;
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    free(r->node);
    free(r->group);
    free(r->record);
    free(r->resident);
    free(r->rank);
    residency_learned_free(r);
    residency_counted_free(r);
    r->magic = 0;
    free(r);
}

/* ---- shares --------------------------------------------------------------------------------- */

uint64_t residency_slot_bytes(const struct residency *r, uint32_t slot)
{
    sl_assert(slot < r->slots);
    return r->config.slot_bytes ? r->config.slot_bytes[slot]
                                : r->config.precision_bytes[slot / r->experts_all];
}

/* All experts of a layer at the precision that shares are counted in. */
static uint64_t layer_bytes(const struct residency *r, uint32_t layer)
{
    uint64_t bytes = 0;
    uint32_t first = r->config.high_precision * r->experts_all + layer * r->config.experts;
    for (uint32_t e = 0; e < r->config.experts; e++)
        bytes += residency_slot_bytes(r, first + e);
    return bytes;
}

static void share_by_precision(struct residency *r)
{
    const struct residency_config *c = &r->config;
    for (uint32_t g = 0; g < r->groups_count; g++)
        r->group[g].share = 0;
    uint64_t high = (uint64_t)((double)r->capacity * c->share_high);
    if (high > r->capacity || c->high_precision == c->low_precision)
        high = r->capacity;
    r->group[c->low_precision].share = r->capacity - high;
    r->group[c->high_precision].share = high;
}

/* A group per layer, of a layer without experts. */
static bool without(const struct residency *r, uint32_t group)
{
    return r->groups_count > 1 && !expert_layers_has(&r->config.expert_layers, group);
}

static uint32_t expert_layers_of(const struct residency *r)
{
    return expert_layers_count(&r->config.expert_layers, 0, r->config.layers);
}

static void share_fate(struct residency *r)
{
    const struct residency_config *c = &r->config;
    uint32_t layers = c->layers, boundary = c->boundary < layers ? c->boundary : layers;
    uint64_t left = r->capacity, largest = 0;
    uint32_t first = expert_layers_next(&c->expert_layers, 0, layers);
    boundary = boundary > first ? boundary : first + 1; /* the first layer has no predictor */
    for (uint32_t l = first; l < layers; l++) {
        if (without(r, l))
            continue;
        uint64_t one = layer_bytes(r, l) / c->experts;
        largest = one > largest ? one : largest;
    }
    left -=
        largest * c->top_k < left ? largest * c->top_k : left; /* reserve of the running layer */
    for (uint32_t l = 0; l < boundary; l++) {
        uint64_t all = without(r, l) ? 0 : layer_bytes(r, l);
        r->group[l].share = all < left ? all : left;
        left -= r->group[l].share;
    }
    uint32_t deep = expert_layers_count(&c->expert_layers, boundary, layers);
    for (uint32_t l = boundary; l < layers; l++)
        r->group[l].share = without(r, l) ? 0 : left / deep;
}

static void share_planned(struct residency *r)
{
    const float *shares = r->config.shares;
    double sum = 0, even = 1.0 / expert_layers_of(r);
    for (uint32_t l = 0; l < r->groups_count; l++)
        sum += shares[l] > 0 ? (double)shares[l] : 0;
    for (uint32_t l = 0; l < r->groups_count; l++) {
        double part = sum > 0         ? (shares[l] > 0 ? (double)shares[l] : 0) / sum
                      : without(r, l) ? 0
                                      : even;
        r->group[l].share = (uint64_t)((double)r->capacity * part);
    }
}

void residency_capacity(struct residency *r, uint64_t bytes)
{
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    r->capacity = bytes;
    if (r->allocation == ALLOCATE_PRECISIONS) {
        share_by_precision(r);
    } else if (r->allocation == ALLOCATE_FATE) {
        share_fate(r);
    } else if (r->allocation == ALLOCATE_PLANNED && r->config.shares) {
        share_planned(r);
    } else {
        uint32_t shared = r->groups_count > 1 ? expert_layers_of(r) : 1;
        for (uint32_t g = 0; g < r->groups_count; g++)
            r->group[g].share = without(r, g) ? 0 : bytes / shared;
    }
}

/* ---- lists ---------------------------------------------------------------------------------- */

void residency_list_append(struct residency *r, uint32_t slot, enum residency_list list)
{
    struct residency_node *n = &r->node[slot];
    struct residency_group *g = &r->group[n->group];
    sl_assert(n->list == LIST_NONE);
    n->older = g->youngest[list];
    n->newer = POLICY_NONE;
    if (n->older != POLICY_NONE)
        r->node[n->older].newer = slot;
    else
        g->oldest[list] = slot;
    g->youngest[list] = slot;
    g->count[list]++;
    n->list = (uint8_t)list;
}

void residency_list_remove(struct residency *r, uint32_t slot)
{
    struct residency_node *n = &r->node[slot];
    struct residency_group *g = &r->group[n->group];
    sl_assert(n->list != LIST_NONE);
    if (n->older != POLICY_NONE)
        r->node[n->older].newer = n->newer;
    else
        g->oldest[n->list] = n->newer;
    if (n->newer != POLICY_NONE)
        r->node[n->newer].older = n->older;
    else
        g->youngest[n->list] = n->older;
    g->count[n->list]--;
    n->list = LIST_NONE;
}

uint32_t residency_group_entries(const struct residency *r, const struct residency_group *g)
{
    uint32_t layer = r->groups_count == r->config.layers ? (uint32_t)(g - r->group) : 0;
    uint32_t slot = r->config.high_precision * r->experts_all + layer * r->config.experts;
    uint64_t c = g->share / residency_slot_bytes(r, slot);
    return c < 1 ? 1 : c > r->slots ? r->slots : (uint32_t)c;
}

/* ---- time and records ----------------------------------------------------------------------- */

/* The pass of a sequence has so many tokens, as far as it is known. */
static void show_tokens(struct residency *r, struct residency_sequence *s, uint64_t tokens)
{
    if (tokens <= s->pass_tokens)
        return;
    uint64_t longer = tokens > r->round_tokens ? tokens - r->round_tokens : 0;
    uint64_t more = tokens - s->pass_tokens;
    r->round_tokens += longer;
    s->pass_tokens = tokens;
    if (more > longer)
        residency_decayed_more(r, more - longer);
}

/* A sequence loses its place. The accesses of its last step are spared no longer, and no other
 * joins its last round, unless one is in it already. */
static void end_at(struct residency *r, uint32_t place)
{
    struct residency_sequence *s = &r->sequence[place];
    bool shared = false;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++)
        shared |= i != place && r->sequence[i].in_round == r->round;
    r->round_over |= s->in_round == r->round && !shared;
    if (s->in_step == r->step) {
        residency_counted_ends(r);
        r->step++;
    }
    r->running = r->running == s ? NULL : r->running;
    *s = (struct residency_sequence){0};
}

static uint32_t start(struct residency *r, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_start(&r->sequences, sequence, &displaced);
    if (displaced)
        end_at(r, place);
    return place;
}

/* What the start of a sequence changes, at its first step: one that is cancelled or fails before it
 * changes nothing. */
static void start_topic(struct residency *r)
{
    if (r->stepped)
        residency_decayed_sequence(r);
    r->epoch += !r->config.records_model;
    uint64_t now = r->round_over ? residency_tokens_now(r) : r->tokens; /* or it joins the round */
    r->reset_at = r->config.records_model ? 0 : now;
}

void residency_sequence_starts(struct residency *r, uint32_t sequence)
{
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    if (sequences_find(&r->sequences, sequence) == SEQUENCE_NONE)
        (void)start(r, sequence);
}

void residency_sequence_ends(struct residency *r, uint32_t sequence)
{
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    uint32_t place = sequences_end(&r->sequences, sequence);
    if (place != SEQUENCE_NONE)
        end_at(r, place);
}

/* Another round begins when a sequence of the running one begins another pass, which shows how many
 * tokens its pass had. */
static void start_round(struct residency *r, const struct residency_sequence *s, uint32_t position)
{
    bool known = s->in_round == r->round && position > s->position;
    uint64_t passed = known ? position - s->position : 0;
    r->tokens += passed > r->round_tokens ? passed : r->round_tokens;
    r->round_tokens = 0;
    r->round++;
    r->round_over = false;
    if (r->stepped) {
        residency_learned_pass(r);
        residency_counted_pass(r);
    }
}

static void start_pass(struct residency *r, struct residency_sequence *s, uint32_t position)
{
    if (s->in_round == r->round || r->round_over)
        start_round(r, s, position);
    s->pass_tokens = 0;
    show_tokens(r, s, 1);
    s->in_round = r->round;
    s->stepped = true;
    s->position = position;
}

void residency_step(struct residency *r, const struct residency_step *step)
{
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    sl_assert(step->layer < r->config.layers);
    uint32_t place = sequences_find(&r->sequences, step->sequence);
    if (place == SEQUENCE_NONE)
        place = start(r, step->sequence);
    struct residency_sequence *s = r->running = &r->sequence[place];
    if (!s->stepped)
        start_topic(r);
    bool other_pass = !s->stepped || step->position != s->position;
    bool other_step =
        step->layer != r->now.layer || (other_pass && s->in_step == r->step) || !r->stepped;
    if (other_step)
        residency_counted_ends(r);
    if (other_pass)
        start_pass(r, s, step->position);
    r->step += other_step;
    s->in_step = r->step;
    r->now = *step;
    r->stepped = true;
    residency_learned_step(r, place);
    if (other_step)
        residency_counted_begins(r);
}

static void record_access(struct residency *r, uint32_t slot, const struct residency_access *access)
{
    struct residency_record *record = &r->record[residency_expert_of(r, slot)];
    sl_assert(r->running); /* rule 2 */
    show_tokens(r, r->running, access->tokens);
    if (access->tokens > 1)
        residency_counted_prompt(r);
    if (record->epoch != r->epoch)
        record->last = record->accesses = record->high = 0;
    record->epoch = r->epoch;
    record->last = residency_tokens_now(r) - r->reset_at;
    record->accesses += access->tokens;
    record->high += access->high ? access->tokens : 0;
    record->frequency = residency_frequency(r, slot) + (float)access->tokens;
    record->halvings = residency_tokens_now(r) / RESIDENCY_HALVING;
    residency_decayed_count(r, &record->counts, access->tokens);
}

float residency_frequency(const struct residency *r, uint32_t slot)
{
    sl_assert(slot < r->slots);
    const struct residency_record *record = &r->record[residency_expert_of(r, slot)];
    uint64_t halvings = residency_tokens_now(r) / RESIDENCY_HALVING - record->halvings;
    if (halvings == 0)
        return record->frequency;
    return halvings < 100 ? ldexpf(record->frequency, -(int)halvings) : 0;
}

/* ---- residency ------------------------------------------------------------------------------ */

bool residency_is_resident(const struct residency *r, uint32_t slot)
{
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    sl_assert(slot < r->slots);
    return r->node[slot].index != POLICY_NONE;
}

void residency_accessed(struct residency *r, uint32_t slot, const struct residency_access *access)
{
    struct residency_node *n = &r->node[slot];
    bool resident = residency_is_resident(r, slot);
    sl_assert(access->tokens > 0);
    record_access(r, slot, access);
    n->in_step = r->step;
    if (!resident)
        return;
    n->last = ++r->tick;
    n->accesses += n->accesses < UINT32_MAX;
    if (r->rule->accessed) {
        r->rule->accessed(r, slot);
    } else {
        residency_list_remove(r, slot);
        residency_list_append(r, slot, LIST_T1);
    }
    n->prefetched = false;
}

/* Lower precisions of an expert are useless while a higher one is resident. */
static void mark_superseded(struct residency *r, uint32_t slot)
{
    bool better = false;
    for (uint32_t s = residency_expert_of(r, slot); s < r->slots; s += r->experts_all) {
        struct residency_node *n = &r->node[s];
        bool resident = n->index != POLICY_NONE, superseded = resident && better;
        r->superseded_count += (uint32_t)superseded - (uint32_t)n->superseded;
        n->superseded = superseded;
        better |= resident;
    }
}

void residency_insert(struct residency *r, uint32_t slot, bool prefetched)
{
    sl_assert(!residency_is_resident(r, slot));
    struct residency_node *n = &r->node[slot];
    struct residency_group *g = &r->group[n->group];
    n->index = g->resident;
    r->resident[g->first + g->resident++] = slot;
    n->accesses = 0;
    n->last = ++r->tick;
    n->prefetched = prefetched;
    g->bytes += residency_slot_bytes(r, slot);
    r->resident_bytes += residency_slot_bytes(r, slot);
    r->resident_count++;
    if (r->rule->insert)
        r->rule->insert(r, slot, prefetched);
    else
        residency_list_append(r, slot, LIST_T1);
    mark_superseded(r, slot);
}

void residency_remove(struct residency *r, uint32_t slot, bool evicted)
{
    sl_assert(residency_is_resident(r, slot));
    struct residency_node *n = &r->node[slot];
    struct residency_group *g = &r->group[n->group];
    uint32_t last = r->resident[g->first + --g->resident];
    r->resident[g->first + n->index] = last;
    r->node[last].index = n->index;
    n->index = POLICY_NONE;
    g->bytes -= residency_slot_bytes(r, slot);
    r->resident_bytes -= residency_slot_bytes(r, slot);
    r->resident_count--;
    if (r->rule->evicted && evicted && !n->prefetched)
        r->rule->evicted(r, slot);
    else
        residency_list_remove(r, slot);
    n->prefetched = false;
    n->ghost = LIST_NONE;
    mark_superseded(r, slot);
}

/* ---- statistics ----------------------------------------------------------------------------- */

uint32_t residency_slots(const struct residency *r)
{
    return r->slots;
}

uint32_t residency_resident_count(const struct residency *r)
{
    return r->resident_count;
}

uint64_t residency_resident_bytes(const struct residency *r)
{
    return r->resident_bytes;
}

uint32_t residency_groups(const struct residency *r)
{
    return r->groups_count;
}

uint32_t residency_group_of(const struct residency *r, uint32_t slot)
{
    sl_assert(slot < r->slots);
    return r->node[slot].group;
}

uint64_t residency_group_share(const struct residency *r, uint32_t group)
{
    sl_assert(group < r->groups_count);
    return r->group[group].share;
}

uint64_t residency_group_bytes(const struct residency *r, uint32_t group)
{
    sl_assert(group < r->groups_count);
    return r->group[group].bytes;
}
