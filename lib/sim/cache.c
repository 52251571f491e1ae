/* The lockstep clock: one layer of one pass after the other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sim/internal.h"

#include "lib/tensor/tier.h"

/* ---- making --------------------------------------------------------------------------------- */

static int config_check(const struct sim_config *k, const struct precision *precision,
                        struct error *error)
{
    uint32_t asked = precision_tiers(precision, k->tier_mask);
    uint64_t largest = 0;
    for (uint32_t t = 0; t < TIER__COUNT; t++)
        if ((asked & k->tier_mask) >> t & 1)
            largest = k->tier_bytes[t] > largest ? k->tier_bytes[t] : largest;
    if (strcmp(k->knobs.routing, "exact") != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "masked routing changes what is routed: a trace cannot tell");
    if (!(k->drive.bytes_per_s > 0) || !(k->drive.latency_ns >= 0) || k->drive.depth == 0)
        return error_set(error, ERR_BAD_INPUT, "the drive needs a speed, a latency and a depth");
    bool widths = precision->rule == PRECISION_EDGEMOE && k->plan.width;
    for (uint32_t i = 0; widths && i < k->layers * k->experts; i++)
        if (k->plan.width[i] >= TIER__COUNT || !(k->tier_mask >> k->plan.width[i] & 1))
            return error_set(error, ERR_BAD_INPUT,
                             "the plan gives experts a width that the trace has no size for");
    if (k->capacity / k->top_k < largest)
        return error_set(
            error, ERR_BELOW_FLOOR,
            "room for %llu bytes of experts is less than the %u of %llu that one layer "
            "needs",
            (unsigned long long)k->capacity, k->top_k, (unsigned long long)largest);
    return 0;
}

static bool make_residency(struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    struct residency_config r = {.layers = k->layers,
                                 .experts = k->experts,
                                 .top_k = k->top_k,
                                 .tiers = c->tiers,
                                 .shares = k->plan.shares};
    for (uint32_t i = 0; i < c->tiers; i++)
        r.tier_bytes[i] = k->tier_bytes[c->tier_of[i]];
    knobs_residency(&k->knobs, &c->precision, k->tier_mask, &r);
    if (strcmp(k->knobs.frequency, "profile") == 0)
        r.frequency = k->plan.tables.frequency;
    if (k->score) {
        r.eviction = "score";
        r.score = k->score;
        r.score_arg = k->score_arg;
    }
    c->residency = residency_create(&r);
    if (c->residency)
        residency_capacity(c->residency, k->capacity);
    return c->residency != NULL;
}

static bool make_arrays(struct sim_cache *c)
{
    uint32_t layers = c->config.layers, experts = c->config.experts;
    c->slot = calloc(c->slots, sizeof *c->slot);
    c->load = calloc(c->slots, sizeof *c->load);
    c->hints = calloc(layers, sizeof *c->hints);
    c->item = calloc(experts, sizeof *c->item);
    c->named = calloc((size_t)layers * experts, 1);
    c->had_guesses = calloc(layers, 1);
    bool made = c->slot && c->load && c->hints && c->item && c->named && c->had_guesses;
    for (uint32_t l = 0; made && l < layers; l++) {
        c->hints[l].guess = calloc(experts, sizeof *c->hints[l].guess);
        c->hints[l].slot = calloc(experts, sizeof *c->hints[l].slot);
        made = c->hints[l].guess && c->hints[l].slot;
    }
    return made;
}

/* The tier an expert is brought at when nobody asks yet. */
static enum tier width_of(const struct sim_cache *c, uint32_t layer, uint32_t expert)
{
    const uint8_t *width = c->config.plan.width;
    if (width)
        return (enum tier)width[layer * c->config.experts + expert];
    return c->config.tier_mask >> TIER_INT4 & 1 ? TIER_INT4 : c->tier_of[0];
}

static enum tier first_choice(const struct sim_cache *c, uint32_t layer, uint32_t expert)
{
    struct precision_choice choice;
    precision_choose(
        &c->precision,
        &(struct precision_input){.width = width_of(c, layer, expert), .predicted = true}, &choice);
    return choice.ask;
}

/* False when there is no room for another one. */
static bool warm_one(struct sim_cache *c, uint32_t layer, uint32_t expert)
{
    uint32_t slot = sim_slot_of(c, layer, expert, first_choice(c, layer, expert));
    uint64_t held = residency_held_bytes(c->residency);
    if (held + sim_bytes(c, slot) > c->config.capacity)
        return false;
    residency_insert(c->residency, slot, true);
    c->slot[slot].state = SIM_READY;
    return true;
}

static void warm_by_frequency(struct sim_cache *c, const float *frequency)
{
    uint32_t all = c->config.layers * c->config.experts;
    for (uint32_t n = 0; n < all; n++) {
        uint32_t best = POLICY_NONE;
        for (uint32_t i = 0; i < all; i++) {
            if (c->named[i])
                continue;
            if (best == POLICY_NONE || (frequency && frequency[i] > frequency[best]))
                best = i;
        }
        c->named[best] = 1;
        if (!warm_one(c, best / c->config.experts, best % c->config.experts))
            break;
    }
    memset(c->named, 0, all);
}

static void warm(struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    bool by_frequency = strcmp(k->knobs.warm, "frequency") == 0;
    if (by_frequency) {
        warm_by_frequency(c, k->plan.tables.frequency);
    } else if (strcmp(k->knobs.warm, "all") == 0) {
        for (uint32_t i = 0; i < k->layers * k->experts; i++)
            if (!warm_one(c, i / k->experts, i % k->experts))
                return;
    }
}

struct sim_cache *sim_cache_create(const struct sim_config *config, struct error *error)
{
    struct precision precision;
    if (knobs_precision(&config->knobs, config->tier_mask, config->tier_bytes, &precision, error) !=
            0 ||
        config_check(config, &precision, error) != 0)
        return NULL;
    struct sim_cache *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "no memory for the simulated cache");
        return NULL;
    }
    c->magic = SIM_MAGIC;
    c->config = *config;
    c->precision = precision;
    c->f = &c->figures[SIM_DECODE];
    for (uint32_t t = 0; t < TIER__COUNT; t++)
        if (config->tier_mask >> t & 1) {
            c->index_of[t] = c->tiers;
            c->tier_of[c->tiers++] = (enum tier)t;
        }
    c->slots = c->tiers * config->layers * config->experts;
    c->prediction = prediction_named(config->knobs.prediction);
    bool limited = prefetch_limit_init(&c->limit, config->knobs.limit);
    sl_assert(c->prediction && limited); /* knobs were resolved */
    if (!make_arrays(c) || !make_residency(c)) {
        sim_cache_destroy(c);
        error_set(error, ERR_NO_MEMORY, "no memory for the simulated cache");
        return NULL;
    }
    warm(c);
    return c;
}

void sim_cache_destroy(struct sim_cache *c)
{
    if (!c)
        return;
    OBJ_CHECK(c, SIM_MAGIC);
    for (uint32_t l = 0; c->hints && l < c->config.layers; l++) {
        free(c->hints[l].guess);
        free(c->hints[l].slot);
    }
    residency_destroy(c->residency);
    free(c->slot);
    free(c->load);
    free(c->hints);
    free(c->item);
    free(c->named);
    free(c->had_guesses);
    c->magic = 0;
    free(c);
}

/* ---- a layer -------------------------------------------------------------------------------- */

static double for_tokens(const struct sim_cache *c, double one_ns, uint32_t tokens)
{
    return one_ns * (1 + (tokens > 1 ? (tokens - 1) * c->config.compute.batch : 0));
}

static void begin_pass(struct sim_cache *c, const struct sim_step *step)
{
    uint32_t layers = c->config.layers;
    for (uint32_t l = 0; l < layers; l++)
        sim_forget_hints(c, l);
    memset(c->named, 0, (size_t)layers * c->config.experts);
    memset(c->had_guesses, 0, layers);
    c->in_pass = true;
    c->pass_began = c->now;
    c->f = &c->figures[step->prefill || step->tokens > 1 ? SIM_PREFILL : SIM_DECODE];
    c->f->passes++;
    c->f->tokens += step->tokens;
}

static void tell_limit(struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    double expert = (double)k->tier_bytes[c->tier_of[0]];
    for (uint32_t t = 0; t < TIER__COUNT; t++)
        if (precision_tiers(&c->precision, k->tier_mask) >> t & 1) {
            expert = (double)k->tier_bytes[t];
            break;
        }
    prefetch_limit_layer(
        &c->limit,
        for_tokens(c, k->compute.layer_ns, c->step.tokens) + k->top_k * k->compute.expert_ns,
        expert * 1e9 / k->drive.bytes_per_s + k->drive.latency_ns / k->drive.depth, k->top_k);
}

void sim_cache_layer(struct sim_cache *c, const struct sim_step *step)
{
    OBJ_CHECK(c, SIM_MAGIC);
    sl_assert(step->layer < c->config.layers && step->tokens > 0);
    if (!c->in_pass)
        begin_pass(c, step);
    c->step = *step;
    c->items = 0;
    residency_step(c->residency,
                   &(struct residency_step){step->sequence, step->position, step->layer});
    sim_expire(c);
    tell_limit(c);
    double ns = for_tokens(c, c->config.compute.layer_ns, step->tokens);
    c->f->compute_ns += ns;
    sim_advance(c, c->now + ns);
}

void sim_cache_logits(struct sim_cache *c, uint32_t first, const uint8_t *levels, uint32_t count)
{
    OBJ_CHECK(c, SIM_MAGIC);
    residency_logits(c->residency, c->step.layer, first, levels, count);
}

static void count_guess(struct sim_cache *c, uint32_t expert)
{
    if (!c->had_guesses[c->step.layer])
        return;
    c->f->guessed_uses++;
    c->f->guess_hits += c->named[c->step.layer * c->config.experts + expert];
}

/* What serves the use now, or what is asked for. */
static enum sim_outcome look(struct sim_cache *c, uint32_t expert,
                             const struct precision_choice *choice, enum tier *tier)
{
    for (uint32_t i = 0; i < choice->accept_count; i++) {
        *tier = choice->accept[i];
        if (c->slot[sim_slot_of(c, c->step.layer, expert, *tier)].state == SIM_READY)
            return SIM_HIT;
    }
    if (choice->need == NEED_SKIP)
        return SIM_SKIPPED;
    *tier = choice->ask;
    uint32_t slot = sim_slot_of(c, c->step.layer, expert, *tier);
    return c->slot[slot].state == SIM_LOADING ? SIM_LATE : SIM_MISS;
}

static void count_use(struct sim_cache *c, uint32_t slot, enum sim_outcome outcome, enum tier tier)
{
    struct sim_figures *f = c->f;
    struct sim_slot *n = &c->slot[slot];
    double high = (double)c->config.tier_bytes[c->tier_of[0]];
    f->hits += outcome == SIM_HIT;
    f->late += outcome == SIM_LATE;
    f->misses += outcome == SIM_MISS;
    f->low_uses += tier > c->precision.high;
    if (outcome != SIM_HIT)
        f->penalty += (double)sim_bytes(c, slot) / high;
    if (n->flags & SIM_PREFETCHED) {
        f->prefetches_used++;
        f->prefetch_hits += outcome == SIM_HIT;
        n->flags &= (uint8_t)~SIM_PREFETCHED;
    }
    n->heat = sim_heat(c, slot) + PREFETCH_HEAT_GAIN;
    n->heat_token = c->token;
}

void sim_cache_use(struct sim_cache *c, const struct sim_use *use, struct sim_answer *answer)
{
    OBJ_CHECK(c, SIM_MAGIC);
    sl_assert(use->expert < c->config.experts && c->items < c->config.experts);
    struct precision_choice choice;
    struct precision_input in = {
        .weight_before = use->weight_before,
        .popularity = use->popularity,
        .width = width_of(c, c->step.layer, use->expert),
        .prefill = c->f == &c->figures[SIM_PREFILL],
        .predicted = c->named[c->step.layer * c->config.experts + use->expert] != 0};
    precision_choose(&c->precision, &in, &choice);
    enum tier tier = TIER_NATIVE;
    enum sim_outcome outcome = look(c, use->expert, &choice, &tier);
    c->f->uses++;
    count_guess(c, use->expert);
    *answer = (struct sim_answer){.outcome = outcome, .tier = tier};
    if (outcome == SIM_SKIPPED) {
        c->f->skipped++;
        return;
    }
    uint32_t slot = sim_slot_of(c, c->step.layer, use->expert, tier);
    residency_used(
        c->residency, slot,
        &(struct residency_use){.tokens = use->tokens, .high = choice.need == NEED_HIGH});
    count_use(c, slot, outcome, tier);
    c->slot[slot].flags |= SIM_PINNED;
    if (outcome == SIM_LATE)
        sim_load_raise(c, slot);
    c->item[c->items++] = (struct sim_item){.slot = slot,
                                            .tokens = use->tokens,
                                            .state = outcome == SIM_HIT    ? SIM_ITEM_THERE
                                                     : outcome == SIM_LATE ? SIM_ITEM_SENT
                                                                           : SIM_ITEM_ROOMLESS};
}

uint32_t sim_cache_guesses(const struct sim_cache *c)
{
    if (c->prediction->lists)
        return c->config.experts;
    uint32_t want = c->config.knobs.guesses ? (uint32_t)c->config.knobs.guesses : c->config.top_k;
    return want < c->config.experts ? want : c->config.experts;
}

const struct prediction *sim_cache_prediction(const struct sim_cache *c)
{
    return c->prediction;
}

/* The tier a guess is loaded at: by the same scores as a use, the probabilities in the weights'
 * place. False: it would be skipped. */
static bool guess_tier(const struct sim_cache *c, uint32_t layer, const struct guess *guesses,
                       uint32_t at, uint32_t count, enum tier *tier)
{
    struct precision_choice choice;
    float before = 0, all = 0;
    for (uint32_t i = 0; i < count && i < c->config.top_k; i++) {
        before += i < at ? guesses[i].probability : 0;
        all += guesses[i].probability;
    }
    struct precision_input in = {.weight_before = at > 0 && all > 0 ? before / all : 0,
                                 .width = width_of(c, layer, guesses[at].expert),
                                 .predicted = true};
    precision_choose(&c->precision, &in, &choice);
    *tier = choice.ask;
    return choice.need != NEED_SKIP;
}

bool sim_cache_hint(struct sim_cache *c, uint32_t layer, const struct guess *guesses,
                    uint32_t count)
{
    OBJ_CHECK(c, SIM_MAGIC);
    sl_assert(layer < c->config.layers && layer > c->step.layer);
    struct sim_hints *h = &c->hints[layer];
    uint32_t want = sim_cache_guesses(c);
    bool all_there = true;
    sim_forget_hints(c, layer);
    h->valid_ns = c->now + c->config.compute.predict_ns;
    count = count < want ? count : want;
    c->had_guesses[layer] |= count > 0;
    for (uint32_t i = 0; i < count; i++) {
        enum tier tier;
        sl_assert(guesses[i].expert < c->config.experts);
        c->named[layer * c->config.experts + guesses[i].expert] = 1;
        c->f->guesses++;
        if (!guess_tier(c, layer, guesses, i, count, &tier))
            continue;
        uint32_t slot = sim_slot_of(c, layer, guesses[i].expert, tier);
        all_there &= c->slot[slot].state == SIM_READY;
        h->guess[h->count] = guesses[i];
        h->slot[h->count++] = slot;
        c->slot[slot].flags |= SIM_HINTED;
    }
    return all_there;
}

/* ---- computing ------------------------------------------------------------------------------ */

/* Reserves what has no room yet, in order of use; stops at the first that finds none. */
static void send_misses(struct sim_cache *c)
{
    for (uint32_t i = 0; i < c->items; i++) {
        struct sim_item *item = &c->item[i];
        if (item->state != SIM_ITEM_ROOMLESS)
            continue;
        if (!sim_room(c, item->slot))
            return;
        residency_insert(c->residency, item->slot, false);
        c->f->demand_bytes += sim_bytes(c, item->slot);
        sim_load_add(c, item->slot, true);
        item->state = SIM_ITEM_SENT;
    }
}

static struct sim_item *next_there(struct sim_cache *c, bool *left)
{
    struct sim_item *found = NULL;
    *left = false;
    for (uint32_t i = 0; i < c->items; i++) {
        struct sim_item *item = &c->item[i];
        if (item->state == SIM_ITEM_SENT && c->slot[item->slot].state == SIM_READY)
            item->state = SIM_ITEM_THERE;
        *left |= item->state != SIM_ITEM_DONE;
        if (!found && item->state == SIM_ITEM_THERE)
            found = item;
    }
    return found;
}

static double expert_ns(const struct sim_cache *c, uint32_t slot)
{
    const struct sim_compute *k = &c->config.compute;
    enum tier tier = c->tier_of[slot / (c->config.layers * c->config.experts)];
    return k->tier_ns[tier] > 0 ? k->tier_ns[tier] : k->expert_ns;
}

double sim_cache_compute(struct sim_cache *c)
{
    OBJ_CHECK(c, SIM_MAGIC);
    double stall = 0;
    bool left;
    sim_forget_hints(c, c->step.layer);
    send_misses(c);
    for (;;) {
        struct sim_item *item = next_there(c, &left);
        if (!left)
            break;
        if (item) {
            double ns = for_tokens(c, expert_ns(c, item->slot), item->tokens);
            c->f->compute_ns += ns;
            sim_advance(c, c->now + ns);
            item->state = SIM_ITEM_DONE;
            c->slot[item->slot].flags &= (uint8_t)~SIM_PINNED;
            send_misses(c);
        } else {
            double from = c->now;
            bool moved = sim_advance_event(c);
            sl_assert(moved); /* somebody is always on the way: room for top_k was checked */
            stall += c->now - from;
        }
    }
    c->f->stall_ns += stall;
    return stall;
}

void sim_cache_token(struct sim_cache *c)
{
    OBJ_CHECK(c, SIM_MAGIC);
    if (!c->in_pass)
        return;
    c->in_pass = false;
    c->token += 1;
    if (c->f == &c->figures[SIM_DECODE])
        prefetch_limit_token(&c->limit, c->now - c->pass_began);
}

/* ---- figures -------------------------------------------------------------------------------- */

double sim_cache_now(const struct sim_cache *c)
{
    return c->now;
}

const struct sim_figures *sim_cache_figures(const struct sim_cache *c, enum sim_phase phase)
{
    return &c->figures[phase];
}

void sim_cache_forget(struct sim_cache *c)
{
    memset(c->figures, 0, sizeof c->figures);
}

bool sim_cache_resident(const struct sim_cache *c, uint32_t layer, uint32_t expert)
{
    for (uint32_t i = 0; i < c->tiers; i++)
        if (c->slot[sim_slot_of(c, layer, expert, c->tier_of[i])].state == SIM_READY)
            return true;
    return false;
}

struct residency *sim_cache_residency(struct sim_cache *c)
{
    return c->residency;
}
