/* Choices: which tier of an expert serves a use, and, under a mask, which experts may be routed to.
 * The decision is a pure policy function of gate weights (lib/policy/access/precision.h); here it meets
 * what is resident (DESIGN.md §4): the best tier that may serve and is READY; else one that is as
 * good as what would be asked for and on its way; else a load. A pin is set before the state is
 * looked at, and one pin is left standing: on the entry that serves or is waited for. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/tier.h"
#include "procs/engine/compute/compute.h"

uint32_t experts_entry(const struct experts *e, uint32_t layer, uint32_t expert, enum tier tier)
{
    uint32_t entry = model_entry_expert_tier(e->child->model, layer, expert, tier);
    sl_assert(entry != ENTRY_NONE);
    return entry;
}

void experts_make_ready(struct experts *e, const struct expert_step *step, struct expert_item *item)
{
    uint32_t entry = experts_entry(e, step->layer, item->expert, item->tier);
    expert_matrices(&model_index_entries(e->child->model)[entry], experts_slot(e->child, entry),
                    item->matrix);
    item->state = ITEM_READY;
}

static struct directory_entry *tier_entry(const struct experts *e, uint32_t layer, uint32_t expert,
                                          enum tier tier)
{
    uint32_t entry = model_entry_expert_tier(e->child->model, layer, expert, tier);
    return entry == ENTRY_NONE ? NULL : &e->child->directory.entries[entry];
}

bool experts_resident(void *self, uint32_t layer, uint32_t expert)
{
    const struct experts *e = self;
    if (e->lockstep)
        return lockstep_resident(e->lockstep, layer, expert);
    for (int tier = 0; tier < TIER__COUNT; tier++) {
        struct directory_entry *d = tier_entry(e, layer, expert, (enum tier)tier);
        if (d && entry_state_of(entry_look(&d->word)) == ENTRY_READY)
            return true;
    }
    return false;
}

/* ---- the tier of one use --------------------------------------------------------------------- */

/* What may serve, restricted to the tiers this expert is stored at. */
struct option {
    enum precision_need need;
    enum tier ask;
    uint32_t count;
    enum tier accept[TIER__COUNT];
};

static struct option options_of(const struct experts *e, const struct expert_step *step,
                                const struct expert_item *item)
{
    const struct model_index *m = e->child->model;
    struct directory_entry *high = tier_entry(e, step->layer, item->expert, e->precision.high);
    struct precision_input in = {
        .weight_before = item->weight_before,
        .popularity = item->popularity,
        .width = TIER_NATIVE,
        .prefill = step->rows > 1,
        /* whoever named it, its load began before its router spoke */
        .predicted = high && entry_state_of(entry_look(&high->word)) != ENTRY_ABSENT,
    };
    if (e->child->plan && plan_width(e->child->plan))
        in.width = (enum tier)plan_width(
            e->child->plan)[(size_t)step->layer * m->hparams.experts + item->expert];
    struct precision_choice choice;
    precision_choose(&e->precision, &in, &choice);
    struct option o = {.need = choice.need, .ask = choice.ask};
    for (uint32_t i = 0; i < choice.accept_count; i++)
        if (tier_entry(e, step->layer, item->expert, choice.accept[i]))
            o.accept[o.count++] = choice.accept[i];
    if (o.need != NEED_SKIP && !tier_entry(e, step->layer, item->expert, o.ask)) {
        /* a store may lack single experts of a tier: the best there is serves */
        enum tier best =
            (enum tier)model_index_entries(m)[model_entry_expert(m, step->layer, item->expert)]
                .tier;
        o.ask = best;
        o.accept[o.count == 0 ? o.count++ : o.count - 1] = best;
    }
    return o;
}

/* Pins the tier if it is READY. */
static bool take_tier(struct experts *e, const struct expert_step *step, struct expert_item *item,
                      enum tier tier)
{
    struct directory_entry *d = tier_entry(e, step->layer, item->expert, tier);
    if (entry_state_of(entry_pin(&d->word, PINNER_COMPUTE)) != ENTRY_READY) {
        entry_unpin(&d->word, PINNER_COMPUTE);
        return false;
    }
    item->tier = tier;
    experts_make_ready(e, step, item);
    return true;
}

/* Better than what would be asked for, and already on its way. */
static enum tier coming(const struct experts *e, const struct expert_step *step,
                        const struct expert_item *item, const struct option *o)
{
    for (uint32_t i = 0; i < o->count && o->accept[i] < o->ask; i++) {
        struct directory_entry *d = tier_entry(e, step->layer, item->expert, o->accept[i]);
        if (entry_state_of(entry_look(&d->word)) == ENTRY_LOADING)
            return o->accept[i];
    }
    return o->ask;
}

static enum use_outcome pin_one(struct experts *e, const struct expert_step *step,
                                struct expert_item *item, const struct option *o)
{
    /* The last one is tried together with the pin that is left standing. */
    bool only_ask = o->count == 1 && o->need != NEED_SKIP && o->accept[0] == o->ask;
    for (uint32_t i = 0; i < o->count && !only_ask; i++)
        if (take_tier(e, step, item, o->accept[i]))
            return USE_HIT;
    if (o->need == NEED_SKIP) {
        item->tier = o->count > 0 ? o->accept[0] : TIER_NATIVE;
        item->state = ITEM_SKIPPED;
        return USE_SKIPPED;
    }
    item->tier = coming(e, step, item, o);
    struct directory_entry *d = tier_entry(e, step->layer, item->expert, item->tier);
    enum entry_state state = entry_state_of(entry_pin(&d->word, PINNER_COMPUTE));
    if (state == ENTRY_READY) {
        experts_make_ready(e, step, item);
        return USE_HIT;
    }
    item->state = ITEM_WAITED;
    e->failures_before[item->expert] = atomic_load_explicit(&d->failures, memory_order_relaxed);
    return state == ENTRY_LOADING ? USE_LATE : USE_MISS;
}

/* Lockstep: the model of the cache has decided; the real bytes are waited for all the same. */
static enum use_outcome pin_lockstep(struct experts *e, const struct expert_step *step,
                                     struct expert_item *item, enum precision_need *need)
{
    static const enum use_outcome outcomes[] = {[SIM_HIT] = USE_HIT,
                                                [SIM_LATE] = USE_LATE,
                                                [SIM_MISS] = USE_MISS,
                                                [SIM_SKIPPED] = USE_SKIPPED};
    const struct sim_answer *answer = lockstep_answer(e->lockstep, item->expert);
    *need = NEED_SKIP;
    if (answer->outcome == SIM_SKIPPED) {
        item->state = ITEM_SKIPPED;
        return USE_SKIPPED;
    }
    struct option o = {.need = NEED_HIGH, .ask = answer->tier, .count = 1};
    o.accept[0] = answer->tier;
    *need = answer->tier == e->precision.low && e->precision.low != e->precision.high ? NEED_LOW
                                                                                      : NEED_HIGH;
    (void)pin_one(e, step, item, &o);
    return outcomes[answer->outcome];
}

static void log_use(struct experts *e, const struct expert_step *step,
                    const struct expert_item *item, enum precision_need need,
                    enum use_outcome outcome)
{
    struct use_record record = {.sequence = step->sequence,
                                .position = step->position,
                                .tokens = item->tokens,
                                .weight = item->weight,
                                .layer = (uint16_t)step->layer,
                                .expert = (uint16_t)item->expert,
                                .kind = USE_EXPERT,
                                .outcome = (uint8_t)outcome,
                                .rank = (uint8_t)item->rank,
                                .need = (uint8_t)need,
                                .tier = (uint8_t)item->tier,
                                .prefill = step->rows > 1,
                                .before = step->rows > 1 ? item->weight_before : 0};
    uses_append(&e->child->uses, &record);
}

struct tally {
    uint64_t outcome[USE_SKIPPED + 1], low;
};

static void count_uses(struct experts *e, const struct tally *t)
{
    struct proc_row *row = e->child->row;
    struct kv_figures *f = &e->request->figures;
    uint64_t hits = t->outcome[USE_HIT], late = t->outcome[USE_LATE], misses = t->outcome[USE_MISS],
             skipped = t->outcome[USE_SKIPPED];
    counter_add(row, CTR_COMPUTE_uses, hits + late + misses + skipped);
    counter_add(row, CTR_COMPUTE_hits, hits);
    f->hits += hits;
    if (t->low > 0) {
        counter_add(row, CTR_COMPUTE_low_tier_uses, t->low);
        f->low_tier_uses += t->low;
    }
    if (late + misses + skipped == 0)
        return;
    counter_add(row, CTR_COMPUTE_late, late);
    counter_add(row, CTR_COMPUTE_misses, misses);
    counter_add(row, CTR_COMPUTE_skipped, skipped);
    f->late += late;
    f->misses += misses;
    f->skipped += skipped;
}

/* Decode under a moving mask never waits: what is gone is not waited for but routed around. A layer
 * that was routed exactly for want of residents waits, or nobody would ever load what it needs. */
static bool lose(struct experts *e, const struct expert_step *step, struct expert_item *item)
{
    if (!e->masked || e->fixed_mask || step->rows > 1)
        return false;
    entry_unpin(&tier_entry(e, step->layer, item->expert, item->tier)->word, PINNER_COMPUTE);
    item->state = ITEM_LOST;
    return true;
}

void experts_pin(void *self, const struct expert_step *step, struct expert_item **items,
                 uint32_t count)
{
    struct experts *e = self;
    struct tally tally = {0};
    bool waited = false;
    enum tier best = (enum tier)__builtin_ctz(e->child->model->tier_mask);
    for (uint32_t i = 0; i < count; i++) {
        struct option o = {0};
        enum use_outcome outcome;
        if (e->lockstep) {
            outcome = pin_lockstep(e, step, items[i], &o.need);
        } else {
            o = options_of(e, step, items[i]);
            outcome = pin_one(e, step, items[i], &o);
        }
        if (items[i]->state == ITEM_WAITED && lose(e, step, items[i]))
            continue;
        tally.outcome[outcome]++;
        waited |= items[i]->state == ITEM_WAITED;
        tally.low += outcome != USE_SKIPPED && items[i]->tier != best;
        log_use(e, step, items[i], o.need, outcome);
    }
    count_uses(e, &tally);
    if (!waited) {
        experts_publish_row(e, step);
        return;
    }
    child_inject(e->child, INJECT_COMPUTE_PINNED);
    e->attempt = 0;
    for (uint32_t i = 0; i < count; i++)
        if (items[i]->state == ITEM_WAITED)
            experts_demand_add(e, step, items[i]);
    experts_demand_send(e, step);
    experts_publish_row(e, step);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* There at a tier that may serve any use: what another system left at another tier may not, and an
 * expert that was routed to for its sake would be lost at every turn. */
static bool serves(const struct experts *e, const struct expert_step *step, uint32_t expert)
{
    struct option o = options_of(e, step, &(struct expert_item){.expert = expert});
    struct directory_entry *d = tier_entry(e, step->layer, expert, o.accept[0]);
    return d && entry_state_of(entry_look(&d->word)) == ENTRY_READY;
}

bool experts_mask(void *self, const struct expert_step *step, bool *allowed)
{
    struct experts *e = self;
    uint32_t experts = e->child->model->hparams.experts, found = 0;
    e->masked = false;
    if (strcmp(e->knobs.routing, "masked") != 0)
        return false;
    for (uint32_t i = 0; i < experts; i++) {
        allowed[i] =
            e->fixed_mask ? e->mask[(size_t)step->layer * experts + i] != 0 : serves(e, step, i);
        found += allowed[i];
    }
    /* Before its experts have come a layer has too few of them: it routes exactly, and waits. */
    e->masked = found >= e->child->model->hparams.experts_used;
    return e->masked;
}

void experts_choice(void *self, const struct expert_step *step, const float *importance)
{
    struct experts *e = self;
    if (e->fixed_mask)
        return;
    for (uint32_t i = 0; i < e->child->model->hparams.experts; i++) {
        if (importance[i] == 0)
            continue;
        struct use_record record = {.sequence = step->sequence,
                                    .position = step->position,
                                    .tokens = step->rows,
                                    .weight = importance[i],
                                    .layer = (uint16_t)step->layer,
                                    .expert = (uint16_t)i,
                                    .kind = USE_CHOICE,
                                    .prefill = step->rows > 1};
        uses_append(&e->child->uses, &record);
    }
}

/* ---- logits ---------------------------------------------------------------------------------- */

/* Before the layer's uses, so that a demand's victims are chosen with them known. */
void experts_logits(void *self, const struct expert_step *step, const float *logits,
                    uint32_t experts)
{
    struct experts *e = self;
    if (!e->logs_logits)
        return;
    residency_logit_levels(logits, experts, e->levels);
    if (e->lockstep)
        lockstep_logits(e->lockstep, e->levels);
    for (uint32_t first = 0; first < experts; first += USE_VALUES) {
        uint32_t count = experts - first < USE_VALUES ? experts - first : USE_VALUES;
        uint8_t values[USE_VALUES] = {0};
        struct use_record record = {.sequence = step->sequence,
                                    .position = step->position,
                                    .layer = (uint16_t)step->layer,
                                    .expert = (uint16_t)first,
                                    .kind = USE_LOGITS,
                                    .rank = (uint8_t)count};
        memcpy(values, e->levels + first, count);
        memcpy(record.values, values, USE_VALUES_HALF);
        memcpy(record.more_values, values + USE_VALUES_HALF, USE_VALUES_HALF);
        uses_append(&e->child->uses, &record);
    }
}

/* ---- the system ------------------------------------------------------------------------------ */

/* Bytes of the experts' part of the arena. */
static uint64_t capacity_bytes(const struct experts *e)
{
    const struct model_index *m = e->child->model;
    const struct directory_head *head = e->child->directory.head;
    uint64_t quota = atomic_load_explicit(&head->quota_bytes, memory_order_relaxed);
    uint64_t cap = atomic_load_explicit(&head->experts_payload_max, memory_order_relaxed);
    uint64_t room = quota > m->dense_bytes ? quota - m->dense_bytes : 0;
    return room < cap ? room : cap;
}

/* How many it holds, of the largest; the cache reckons alike. */
static uint32_t capacity_entries(const struct experts *e)
{
    const struct directory_head *head = e->child->directory.head;
    return planned_capacity(e->child->model,
                            atomic_load_explicit(&head->quota_bytes, memory_order_relaxed),
                            atomic_load_explicit(&head->experts_payload_max, memory_order_relaxed));
}

static const void *lockstep_dense(void *self, uint32_t entry)
{
    const struct experts *e = self;
    const struct model_extent *x = &model_index_entries(e->child->model)[entry].extent[0];
    return experts_slot(e->child, entry) + x->slot_offset + x->head_bytes;
}

/* Guesses go into the use log as trace records, so that the simulator can repeat them: behind the
 * uses of the layer they were made in. */
static void lockstep_guessed(void *self, const struct expert_step *step, uint32_t layer,
                             uint32_t rank, const struct guess *guess)
{
    struct experts *e = self;
    struct use_record record = {.sequence = step->sequence,
                                .position = step->position,
                                .tokens = step->rows,
                                .weight = guess->probability,
                                .layer = (uint16_t)layer,
                                .expert = (uint16_t)guess->expert,
                                .kind = TRACE_PREDICTED,
                                .rank = (uint8_t)(rank < UINT8_MAX ? rank : UINT8_MAX),
                                .prefill = step->rows > 1,
                                .system = (uint16_t)step->layer};
    if (e->guesses_count < e->guesses_max)
        e->guesses[e->guesses_count++] = record;
}

void experts_flush_guesses(struct experts *e)
{
    for (uint32_t i = 0; i < e->guesses_count; i++)
        uses_append(&e->child->uses, &e->guesses[i]);
    e->guesses_count = 0;
}

static int make_lockstep(struct experts *e, struct error *error)
{
    struct lockstep_config config = {.model = e->child->model,
                                     .ops = kernel_ops_select(e->child->params->isa),
                                     .dense = lockstep_dense,
                                     .guessed = lockstep_guessed,
                                     .self = e};
    lockstep_destroy(e->lockstep);
    e->lockstep = NULL;
    if (!e->child->params->lockstep)
        return 0;
    e->guesses_max = 4 * e->child->model->hparams.experts; /* at most four layers ahead */
    e->guesses_count = 0;
    if (!e->guesses)
        e->guesses = calloc(e->guesses_max, sizeof *e->guesses);
    if (!e->guesses)
        return error_set(error, ERR_NO_MEMORY, "no memory for guesses");
    lockstep_model(e->child->model, &e->knobs, e->child->plan, capacity_bytes(e), &config.sim);
    e->lockstep = lockstep_create(&config, error);
    return e->lockstep ? 0 : -1;
}

static int make_mask(struct experts *e, struct error *error)
{
    const struct model_hparams *h = &e->child->model->hparams;
    e->fixed_mask = strcmp(e->knobs.mask, "norm") == 0 || strcmp(e->knobs.mask, "frequency") == 0;
    if (!e->fixed_mask)
        return 0;
    return planned_mask(e->child->plan, e->knobs.mask, h, capacity_entries(e), e->mask, error);
}

int experts_system(struct experts *e, uint32_t system, struct error *error)
{
    const struct model_index *m = e->child->model;
    uint64_t bytes[TIER__COUNT];
    struct knobs knobs;
    struct precision precision;
    for (int t = 0; t < TIER__COUNT; t++)
        bytes[t] = m->tier_entries[t] ? m->tier_slot_bytes[t] / m->tier_entries[t] : 0;
    if (child_knobs(e->child, system, &knobs, error) != 0 ||
        knobs_precision(&knobs, m->tier_mask, bytes, &precision, error) != 0)
        return -1;
    e->system = system;
    e->knobs = knobs;
    e->precision = precision;
    e->publishes = prediction_named(knobs.prediction)->source;
    e->logs_logits = strcmp(knobs.eviction, "logits") == 0;
    return make_mask(e, error) == 0 ? make_lockstep(e, error) : -1;
}
