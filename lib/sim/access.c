/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cache: where the sequences of a pass are, and what they access and predict in a
 * layer. */
#include <string.h>

#include "lib/sim/internal.h"

#include "lib/tensor/precision.h"

/* ---- a layer -------------------------------------------------------------------------------- */

double sim_compute_ns(const struct sim_compute *c, double one_ns, uint32_t tokens)
{
    return one_ns * (1 + (tokens > 1 ? (tokens - 1) * c->batch : 0));
}

double sim_for_tokens(const struct sim_cache *c, double one_ns, uint32_t tokens)
{
    return sim_compute_ns(&c->config.compute, one_ns, tokens);
}

static void update_limit(struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    double expert = (double)k->precision_bytes[c->precision_of[0]];
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if (precision_policy_mask(&c->precision_policy, k->precision_mask) >> t & 1) {
            expert = (double)k->precision_bytes[t];
            break;
        }
    prefetch_limit_layer(&c->limit, sim_gpu_mean_layer(c),
                         expert * 1e9 / k->storage.bytes_per_s +
                             k->storage.latency_ns / k->storage.depth);
}

static bool is_prefill(const struct sim_step *step)
{
    return step->prefill || step->tokens > 1;
}

/* Of a pass with rows of a prompt, all counts are in that phase. */
static void choose_phase(struct sim_cache *c)
{
    bool prefill = false;
    for (uint32_t i = 0; i < c->steps; i++)
        prefill |= is_prefill(&c->step[i]);
    c->f = &c->stats[prefill ? SIM_PREFILL : SIM_DECODE];
}

static void take_steps(struct sim_cache *c, const struct sim_step *step, uint32_t steps)
{
    sl_assert(steps > 0 && steps <= SEQUENCES_MAX);
    c->steps = steps;
    c->rows = 0;
    memcpy(c->step, step, steps * sizeof *step);
    choose_phase(c);
    for (uint32_t i = 0; i < steps; i++) {
        sl_assert(step[i].layer == step->layer && step[i].tokens > 0);
        struct sim_sequence *s = c->running[i] = sim_sequence_of(c, step[i].sequence);
        if (!s->in_pass)
            sim_pass_starts(c, s, &step[i]);
        c->rows += step[i].tokens;
    }
}

void sim_step_residency(struct sim_cache *c, uint32_t step)
{
    const struct sim_step *s = &c->step[step];
    residency_step(c->residency, &(struct residency_step){s->sequence, s->position, s->layer});
}

void sim_cache_layer(struct sim_cache *c, const struct sim_step *step, uint32_t steps)
{
    OBJ_CHECK(c, SIM_MAGIC);
    sl_assert(step->layer < c->config.layers);
    take_steps(c, step, steps);
    /* Until the router has run, the cache does not know that compute is here: predictions for this
     * layer are still loaded. */
    double ns = sim_for_tokens(c, sim_gpu_layer(c, step->layer), c->rows);
    if (c->gpu)
        sim_advance(c, c->now + ns);
    else
        ns = sim_work(c, ns);
    c->f->compute_ns += ns;
    for (uint32_t i = 0; i < steps; i++)
        c->running[i]->layer = step->layer;
    c->items = 0;
    sim_step_residency(c, 0);
    sim_expire(c);
    update_limit(c);
}

void sim_cache_logits(struct sim_cache *c, const struct residency_step *at, uint32_t first,
                      const uint8_t *levels, uint32_t count)
{
    OBJ_CHECK(c, SIM_MAGIC);
    (void)sim_sequence_of(c, at->sequence);
    residency_logits(c->residency, at, first, levels, count);
}

static void count_predicted(struct sim_cache *c, const struct sim_sequence *s, uint32_t expert,
                            enum sim_outcome outcome)
{
    bool had = s->had_predictions[c->step[0].layer];
    bool named = had && s->named[c->step[0].layer * c->config.experts + expert];
    c->f->predicted_accesses += had;
    c->f->predicted_hits += named;
    c->f->covered += named || outcome == SIM_HIT;
}

/* Outcome of an access, and the precision that serves it or is requested. */
static enum sim_outcome outcome_of(const struct sim_cache *c, uint32_t layer, uint32_t expert,
                                   const struct precision_choice *choice, enum precision *precision)
{
    static const enum sim_outcome outcomes[] = {[PRECISION_HIT] = SIM_HIT,
                                                [PRECISION_INFLIGHT] = SIM_INFLIGHT,
                                                [PRECISION_MISS] = SIM_MISS,
                                                [PRECISION_SKIPPED] = SIM_SKIPPED};
    static const enum precision_state states[] = {[SIM_ABSENT] = PRECISION_ABSENT,
                                                  [SIM_LOADING] = PRECISION_LOADING,
                                                  [SIM_READY] = PRECISION_READY};
    enum precision_state state[PRECISION__COUNT] = {PRECISION_ABSENT};
    for (uint32_t i = 0; i < choice->accept_count; i++)
        state[choice->accept[i]] =
            states[c->slot[sim_slot_of(c, layer, expert, choice->accept[i])].state];
    return outcomes[precision_serve(choice, state, precision)];
}

bool sim_servable(const struct sim_cache *c, uint32_t layer, uint32_t expert, float weight_before,
                  uint32_t *slot)
{
    struct precision_choice choice;
    struct precision_input in = {.weight_before = weight_before,
                                 .planned = sim_planned_precision(c, layer, expert)};
    enum precision precision = PRECISION_NATIVE;
    precision_choose(&c->precision_policy, &in, &choice);
    precision_limit(&choice, c->config.precision_mask);
    if (outcome_of(c, layer, expert, &choice, &precision) != SIM_HIT)
        return false;
    *slot = sim_slot_of(c, layer, expert, precision);
    return true;
}

bool sim_cache_serves(const struct sim_cache *c, uint32_t expert, float weight_before)
{
    OBJ_CHECK(c, SIM_MAGIC);
    uint32_t slot;
    sl_assert(c->steps > 0 && expert < c->config.experts);
    return sim_servable(c, c->step[0].layer, expert, weight_before, &slot);
}

void sim_cache_rerouted(struct sim_cache *c, uint32_t experts)
{
    OBJ_CHECK(c, SIM_MAGIC);
    c->f->rerouted += experts;
}

static void count_access(struct sim_cache *c, uint32_t slot, enum sim_outcome outcome,
                         enum precision precision)
{
    struct sim_stats *f = c->f;
    struct sim_slot *n = &c->slot[slot];
    double high = (double)c->config.precision_bytes[c->precision_of[0]];
    f->hits += outcome == SIM_HIT;
    f->hits_inflight += outcome == SIM_INFLIGHT;
    f->misses += outcome == SIM_MISS;
    f->low_precision_accesses += precision != c->precision_of[0];
    if (outcome != SIM_HIT)
        f->penalty += (double)sim_bytes(c, slot) / high;
    if (n->flags & SIM_PREFETCHED) {
        f->prefetches_used++;
        prefetch_limit_outcome(&c->limit, true, sim_in_prefill(c));
        f->prefetch_hits += outcome == SIM_HIT;
        n->flags &= (uint8_t)~SIM_PREFETCHED;
    }
    n->heat = sim_heat(c, slot) + PREFETCH_HEAT_GAIN;
    n->heat_token = c->token;
}

/* The parts of an access; *whole is used where it has none. */
static uint32_t parts_of(const struct sim_access *access, struct sim_part *whole,
                         const struct sim_part **part)
{
    *whole = (struct sim_part){.step = 0, .tokens = access->tokens};
    *part = access->parts > 0 ? access->part : whole;
    return access->parts > 0 ? access->parts : 1;
}

/* Whether only rows of prompts use the expert. */
static bool only_prefill(const struct sim_cache *c, const struct sim_part *part, uint32_t parts)
{
    for (uint32_t i = 0; i < parts; i++)
        if (!is_prefill(&c->step[part[i].step]))
            return false;
    return true;
}

/* What one sequence uses. */
static void access_part(struct sim_cache *c, const struct sim_part *part, uint32_t slot,
                        const struct precision_choice *choice,
                        const struct sim_access_result *result)
{
    sl_assert(part->step < c->steps);
    uint32_t expert = slot % c->config.experts;
    c->f->accesses++;
    count_predicted(c, c->running[part->step], expert, result->outcome);
    if (result->outcome == SIM_SKIPPED) {
        c->f->skipped++;
        return;
    }
    sim_step_residency(c, part->step);
    residency_accessed(
        c->residency, slot,
        &(struct residency_access){.tokens = part->tokens, .high = choice->need == NEED_HIGH});
    count_access(c, slot, result->outcome, result->precision);
}

static void add_item(struct sim_cache *c, uint32_t slot, uint32_t tokens, enum sim_outcome outcome)
{
    c->slot[slot].flags |= SIM_PINNED;
    if (outcome == SIM_INFLIGHT)
        sim_load_promote(c, slot);
    c->item[c->items++] =
        (struct sim_item){.slot = slot,
                          .tokens = tokens,
                          .state = outcome == SIM_HIT        ? SIM_ITEM_READY
                                   : outcome == SIM_INFLIGHT ? SIM_ITEM_SENT
                                                             : SIM_ITEM_UNRESERVED};
}

void sim_cache_access(struct sim_cache *c, const struct sim_access *access,
                      struct sim_access_result *result)
{
    OBJ_CHECK(c, SIM_MAGIC);
    sl_assert(access->expert < c->config.experts && c->items < c->config.experts);
    struct sim_part whole;
    const struct sim_part *part;
    uint32_t parts = parts_of(access, &whole, &part), layer = c->step[0].layer;
    struct precision_choice choice;
    struct precision_input in = {.weight_before = access->weight_before,
                                 .popularity = access->popularity,
                                 .planned = sim_planned_precision(c, layer, access->expert),
                                 .prefill = only_prefill(c, part, parts)};
    precision_choose(&c->precision_policy, &in, &choice);
    precision_limit(&choice, c->config.precision_mask);
    enum precision precision = PRECISION_NATIVE;
    enum sim_outcome outcome = outcome_of(c, layer, access->expert, &choice, &precision);
    *result = (struct sim_access_result){.outcome = outcome, .precision = precision};
    uint32_t slot = sim_slot_of(c, layer, access->expert, precision);
    c->f->experts++;
    for (uint32_t i = 0; i < parts; i++)
        access_part(c, &part[i], slot, &choice, result);
    if (outcome != SIM_SKIPPED)
        add_item(c, slot, access->tokens, outcome);
}

uint32_t sim_cache_predict_k(const struct sim_cache *c)
{
    return prediction_want(c->prediction_method, c->config.knobs.predict_k, c->config.top_k,
                           c->config.experts);
}

const struct prediction_method *sim_cache_prediction_method(const struct sim_cache *c)
{
    return c->prediction_method;
}

/* A list of a step for a layer, in place of an older one. Returns false if an expert of it is not
 * resident. */
static bool take_list(struct sim_cache *c, uint32_t step, uint32_t layer,
                      const struct prediction *predictions, uint32_t count, bool certain)
{
    const struct sim_step *from = &c->step[step];
    struct sim_sequence *s = c->running[step];
    struct sim_hints *h = &s->hints[layer];
    bool all_resident = true;
    struct prediction_place target = {from->sequence, from->position, layer};
    sim_forget_hints(c, s, layer, !prediction_keeps_loads(&h->target, &target));
    h->target = target;
    h->prefill = is_prefill(from);
    h->certain = certain;
    h->valid_ns = c->now + c->config.compute.predict_ns;
    s->had_predictions[layer] |= count > 0;
    for (uint32_t i = 0; i < count; i++) {
        enum precision precision;
        struct precision_predicted in = {.at = i,
                                         .count = count,
                                         .weight_before = predictions[i].weight_before,
                                         .planned =
                                             sim_planned_precision(c, layer, predictions[i].expert),
                                         .prefill = h->prefill};
        sl_assert(predictions[i].expert < c->config.experts);
        s->named[layer * c->config.experts + predictions[i].expert] = 1;
        c->f->predictions++;
        if (!precision_predict(&c->precision_policy, &in, c->config.precision_mask, &precision))
            continue;
        uint32_t slot = sim_slot_of(c, layer, predictions[i].expert, precision);
        all_resident &= c->slot[slot].state == SIM_READY;
        h->prediction[h->count] = predictions[i];
        h->slot[h->count++] = slot;
        c->slot[slot].hints++;
    }
    return all_resident;
}

bool sim_cache_hint(struct sim_cache *c, uint32_t step, uint32_t layer,
                    const struct prediction *predictions, uint32_t count)
{
    OBJ_CHECK(c, SIM_MAGIC);
    sl_assert(step < c->steps && layer < c->config.layers && layer > c->step[step].layer);
    uint32_t want = sim_cache_predict_k(c);
    if (count > want && !is_prefill(&c->step[step]))
        count = want;
    return take_list(c, step, layer, predictions, count, false);
}

void sim_cache_pass(struct sim_cache *c, const struct sim_step *step, uint32_t steps)
{
    OBJ_CHECK(c, SIM_MAGIC);
    take_steps(c, step, steps);
    for (uint32_t i = 0; i < steps; i++) /* compute is where the pass before it ended */
        c->running[i]->layer = c->config.layers - 1;
}

void sim_cache_known(struct sim_cache *c, uint32_t step, uint32_t layer,
                     const struct prediction *known, uint32_t count)
{
    OBJ_CHECK(c, SIM_MAGIC);
    sl_assert(step < c->steps && layer < c->config.layers);
    if (c->limit.rule != PREFETCH_NONE && count > 0)
        (void)take_list(c, step, layer, known, count, true);
}
