/* SPDX-License-Identifier: Apache-2.0 */
/* Choices: which precision of an expert serves an access, and, under a mask, which experts can be
 * routed to. Which precisions may serve is a pure policy function of gate weights, which of them
 * does, one of what is resident (lib/policy/access/precision.h). One pin remains: on the entry that
 * serves or is waited for; its state counts as read under the pin. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/precision.h"
#include "procs/engine/compute/compute.h"

uint32_t experts_entry(const struct experts *e, uint32_t layer, uint32_t expert,
                       enum precision precision)
{
    uint32_t entry = model_entry_expert_precision(e->child->model, layer, expert, precision);
    sl_assert(entry != ENTRY_NONE);
    return entry;
}

void experts_make_ready(struct experts *e, const struct expert_step *step, struct expert_item *item)
{
    uint32_t entry = experts_entry(e, step->layer, item->expert, item->precision);
    expert_matrices(&model_index_entries(e->child->model)[entry], experts_slot(e->child, entry),
                    item->matrix);
    item->state = ITEM_READY;
}

static struct directory_entry *precision_entry(const struct experts *e, uint32_t layer,
                                               uint32_t expert, enum precision precision)
{
    uint32_t entry = model_entry_expert_precision(e->child->model, layer, expert, precision);
    return entry == ENTRY_NONE ? NULL : &e->child->directory.entries[entry];
}

bool experts_resident(void *self, uint32_t layer, uint32_t expert)
{
    const struct experts *e = self;
    if (e->deterministic)
        return deterministic_resident(e->deterministic, layer, expert);
    for (int precision = 0; precision < PRECISION__COUNT; precision++) {
        struct directory_entry *d = precision_entry(e, layer, expert, (enum precision)precision);
        if (d && entry_state_of(entry_read(&d->word)) == ENTRY_READY)
            return true;
    }
    return false;
}

/* ---- the precision of one access ------------------------------------------------------------- */

/* The precisions that may serve an access, among those in which the expert is stored. */
static struct precision_choice choice_of(const struct experts *e, const struct expert_step *step,
                                         const struct expert_item *item)
{
    const struct model_index *m = e->child->model;
    struct precision_input in = {.weight_before = item->weight_before,
                                 .popularity = item->popularity,
                                 .planned = PRECISION_NATIVE,
                                 .prefill = item->prefill};
    if (e->child->plan && plan_width(e->child->plan))
        in.planned = (enum precision)plan_width(
            e->child->plan)[(size_t)step->layer * m->hparams.experts + item->expert];
    struct precision_choice choice;
    precision_choose(&e->precision_policy, &in, &choice);
    precision_limit(&choice, model_expert_precisions(m, step->layer, item->expert));
    return choice;
}

static enum precision_state state_of(enum entry_state state)
{
    return state == ENTRY_READY     ? PRECISION_READY
           : state == ENTRY_LOADING ? PRECISION_LOADING
                                    : PRECISION_ABSENT;
}

/* The states are read without a pin: take_choice checks again under one. */
static enum precision_outcome serve(const struct experts *e, const struct expert_step *step,
                                    const struct expert_item *item,
                                    const struct precision_choice *choice,
                                    enum precision *precision)
{
    enum precision_state state[PRECISION__COUNT] = {PRECISION_ABSENT};
    for (uint32_t i = 0; i < choice->accept_count; i++) {
        struct directory_entry *d =
            precision_entry(e, step->layer, item->expert, choice->accept[i]);
        state[choice->accept[i]] = state_of(entry_state_of(entry_read(&d->word)));
    }
    return precision_serve(choice, state, precision);
}

/* The only precision needs no check of the others before the pin. */
static bool has_one_answer(const struct precision_choice *choice)
{
    return choice->accept_count == 1 && choice->need != NEED_SKIP;
}

/* Pins what serves or is waited for. An entry can be evicted between the check and the pin: then the
 * choice is made again. */
static enum access_outcome pin_one(struct experts *e, const struct expert_step *step,
                                   struct expert_item *item, const struct precision_choice *choice)
{
    for (;;) {
        enum precision_outcome expected = PRECISION_MISS;
        item->precision = choice->request;
        if (!has_one_answer(choice))
            expected = serve(e, step, item, choice, &item->precision);
        if (expected == PRECISION_SKIPPED) {
            item->state = ITEM_SKIPPED;
            return ACCESS_SKIPPED;
        }
        struct directory_entry *d = precision_entry(e, step->layer, item->expert, item->precision);
        enum entry_state state = entry_state_of(entry_pin(&d->word, PINNER_COMPUTE));
        if (state == ENTRY_READY) {
            experts_make_ready(e, step, item);
            return ACCESS_HIT;
        }
        if (expected == PRECISION_HIT) {
            entry_unpin(&d->word, PINNER_COMPUTE);
            continue;
        }
        item->state = ITEM_WAITED;
        e->failures_before[item->expert] = atomic_load_explicit(&d->failures, memory_order_relaxed);
        return state == ENTRY_LOADING ? ACCESS_INFLIGHT : ACCESS_MISS;
    }
}

/* For the simulator, which decides itself what can serve. */
static void log_prediction(struct experts *e, const struct expert_step *step,
                           const struct expert_item *item)
{
    struct access_record record = {.sequence = step->row->sequence,
                                   .position = step->row->position,
                                   .tokens = 1,
                                   .weight = item->weight,
                                   .layer = (uint16_t)step->layer,
                                   .expert = (uint16_t)item->expert,
                                   .kind = TRACE_GPU_PREDICTED,
                                   .rank = (uint8_t)item->rank,
                                   .from_layer = (uint16_t)(step->layer - 1),
                                   .before = item->weight_before};
    access_log_append(&e->child->access_log, &record);
}

bool experts_pin_ready(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct experts *e = self;
    if (e->child->params->trace[0] && item->tokens > 0)
        log_prediction(e, step, item);
    struct precision_choice choice = choice_of(e, step, item);
    if (serve(e, step, item, &choice, &item->precision) != PRECISION_HIT)
        return false;
    struct directory_entry *d = precision_entry(e, step->layer, item->expert, item->precision);
    if (entry_state_of(entry_pin(&d->word, PINNER_COMPUTE)) == ENTRY_READY) {
        experts_make_ready(e, step, item);
        return true;
    }
    entry_unpin(&d->word, PINNER_COMPUTE);
    return false;
}

/* Deterministic mode: the simulated cache has decided; the real bytes are waited for anyway. */
static enum access_outcome pin_deterministic(struct experts *e, const struct expert_step *step,
                                             struct expert_item *item, enum precision_need *need)
{
    static const enum access_outcome outcomes[] = {[SIM_HIT] = ACCESS_HIT,
                                                   [SIM_INFLIGHT] = ACCESS_INFLIGHT,
                                                   [SIM_MISS] = ACCESS_MISS,
                                                   [SIM_SKIPPED] = ACCESS_SKIPPED};
    const struct sim_access_result *result = deterministic_result(e->deterministic, item->expert);
    *need = NEED_SKIP;
    if (result->outcome == SIM_SKIPPED) {
        item->state = ITEM_SKIPPED;
        return ACCESS_SKIPPED;
    }
    struct precision_choice choice = {.need = NEED_HIGH,
                                      .request = result->precision,
                                      .accept_count = 1,
                                      .accept = {result->precision}};
    *need = result->precision == e->precision_policy.low &&
                    e->precision_policy.low != e->precision_policy.high
                ? NEED_LOW
                : NEED_HIGH;
    (void)pin_one(e, step, item, &choice);
    return outcomes[result->outcome];
}

/* What rows item->row[first .. first + count - 1] use of the expert: as the item, but of these rows. */
static struct expert_item part_of_item(const struct experts *e, const struct expert_step *step,
                                       const struct expert_item *item, uint32_t first,
                                       uint32_t count)
{
    struct expert_item part = *item;
    uint32_t k = e->child->model->hparams.experts_used;
    part.tokens = count;
    part.row += first;
    part.prefill = step->row[part.row[0]].prefill;
    part.weight = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct route *routes = step->routes + (size_t)part.row[i] * k;
        float before[MODEL_TOP_K_MAX];
        uint32_t rank = 0;
        while (rank < k && routes[rank].expert != item->expert)
            rank++;
        sl_assert(rank < k);
        precision_weights_before(&routes->weight, ROUTE_STRIDE, k, before);
        part.rank = i == 0 || rank < part.rank ? rank : part.rank;
        part.weight = routes[rank].weight > part.weight ? routes[rank].weight : part.weight;
        if (i == 0 || before[rank] < part.weight_before)
            part.weight_before = before[rank];
    }
    return part;
}

static bool same_chunk(const struct expert_row *a, const struct expert_row *b)
{
    return a->prefill && b->prefill && a->sequence == b->sequence && a->first == b->first;
}

static void log_rows(struct experts *e, const struct expert_step *step,
                     const struct expert_item *item, enum precision_need need,
                     enum access_outcome outcome)
{
    const struct expert_row *row = &step->row[item->row[0]];
    struct access_record record = {.sequence = row->sequence,
                                   .position = row->first,
                                   .tokens = item->tokens,
                                   .weight = item->weight,
                                   .layer = (uint16_t)step->layer,
                                   .expert = (uint16_t)item->expert,
                                   .kind = ACCESS_EXPERT,
                                   .outcome = (uint8_t)outcome,
                                   .rank = (uint8_t)item->rank,
                                   .need = (uint8_t)need,
                                   .precision = (uint8_t)item->precision,
                                   .pass = (uint16_t)step->pass,
                                   .prefill = row->prefill,
                                   .before = row->prefill ? item->weight_before : 0};
    if (!row->prefill)
        record.position = row->position;
    access_log_append(&e->child->access_log, &record);
}

/* A record for each row that decodes, and one for each sequence's chunk. Returns their number. */
static uint32_t log_access(struct experts *e, const struct expert_step *step,
                           const struct expert_item *item, enum precision_need need,
                           enum access_outcome outcome)
{
    uint32_t records = 0;
    for (uint32_t first = 0, n; first < item->tokens; first += n, records++) {
        const struct expert_row *row = &step->row[item->row[first]];
        n = 1;
        while (first + n < item->tokens && same_chunk(row, &step->row[item->row[first + n]]))
            n++;
        if (n == item->tokens) {
            log_rows(e, step, item, need, outcome);
            continue;
        }
        struct expert_item part = part_of_item(e, step, item, first, n);
        log_rows(e, step, &part, need, outcome);
    }
    return records;
}

struct tally {
    uint64_t outcome[ACCESS_SKIPPED + 1], low;
};

static void count_accesses(struct experts *e, const struct tally *t)
{
    struct proc_row *row = e->child->row;
    struct kv_stats *f = &e->request->stats;
    uint64_t hits = t->outcome[ACCESS_HIT], inflight = t->outcome[ACCESS_INFLIGHT],
             misses = t->outcome[ACCESS_MISS], skipped = t->outcome[ACCESS_SKIPPED];
    counter_add(row, CTR_COMPUTE_accesses, hits + inflight + misses + skipped);
    counter_add(row, CTR_COMPUTE_hits, hits);
    f->hits += hits;
    if (t->low > 0) {
        counter_add(row, CTR_COMPUTE_low_precision_accesses, t->low);
        f->low_precision_accesses += t->low;
    }
    if (inflight + misses + skipped == 0)
        return;
    counter_add(row, CTR_COMPUTE_hits_inflight, inflight);
    counter_add(row, CTR_COMPUTE_misses, misses);
    counter_add(row, CTR_COMPUTE_skipped, skipped);
    f->hits_inflight += inflight;
    f->misses += misses;
    f->skipped += skipped;
}

/* Decode under a changing mask never waits: it routes around experts that were evicted. A layer
 * with too few resident experts was routed without a mask and waits, because nothing else would
 * load its experts. */
static bool drop_evicted(struct experts *e, const struct expert_step *step,
                         struct expert_item *item)
{
    if (!e->masked || e->fixed_mask || step->prefill)
        return false;
    entry_unpin(&precision_entry(e, step->layer, item->expert, item->precision)->word,
                PINNER_COMPUTE);
    item->state = ITEM_LOST;
    return true;
}

void experts_pin(void *self, const struct expert_step *step, struct expert_item **items,
                 uint32_t count)
{
    struct experts *e = self;
    struct tally tally = {0};
    bool waited = false;
    enum precision best = (enum precision)__builtin_ctz(e->child->model->precision_mask);
    for (uint32_t i = 0; i < count; i++) {
        enum precision_need need;
        enum access_outcome outcome;
        if (e->deterministic) {
            outcome = pin_deterministic(e, step, items[i], &need);
        } else {
            struct precision_choice choice = choice_of(e, step, items[i]);
            need = choice.need;
            outcome = pin_one(e, step, items[i], &choice);
        }
        if (items[i]->state == ITEM_WAITED && drop_evicted(e, step, items[i]))
            continue;
        waited |= items[i]->state == ITEM_WAITED;
        uint32_t accesses = log_access(e, step, items[i], need, outcome);
        tally.outcome[outcome] += accesses;
        if (outcome != ACCESS_SKIPPED && items[i]->precision != best)
            tally.low += accesses;
    }
    count_accesses(e, &tally);
    if (!waited) {
        experts_publish_rows(e, step);
        return;
    }
    child_inject(e->child, INJECT_COMPUTE_PINNED);
    e->attempt = 0;
    for (uint32_t i = 0; i < count; i++)
        if (items[i]->state == ITEM_WAITED)
            experts_demand_add(e, step, items[i]);
    experts_demand_send(e, step);
    experts_publish_rows(e, step);
}

/* ---- tokens that the GPU computes alone ---- */

/* One precision serves every access, whatever is resident, and experts are routed to by the model alone. */
bool experts_alone(void *self, enum precision *precision)
{
    const struct experts *e = self;
    const struct precision_policy *p = &e->precision_policy;
    if (e->deterministic || e->knobs.routing == ROUTING_MASKED || precision_by_route(p->rule))
        return false;
    struct precision_choice choice;
    precision_choose(p, &(struct precision_input){0}, &choice);
    *precision = choice.request;
    return true;
}

/* The GPU had them: hits, without a pin, whether or not they are in the arena. */
void experts_used(void *self, const struct expert_step *step, const struct route *routes)
{
    struct experts *e = self;
    enum precision precision, best = (enum precision)__builtin_ctz(e->child->model->precision_mask);
    uint32_t k = e->child->model->hparams.experts_used;
    const uint32_t only_row = 0;
    sl_assert(experts_alone(e, &precision));
    for (uint32_t rank = 0; rank < k; rank++) {
        const struct expert_item item = {.expert = routes[rank].expert,
                                         .tokens = 1,
                                         .row = &only_row,
                                         .weight = routes[rank].weight,
                                         .rank = rank,
                                         .precision = precision};
        (void)log_access(e, step, &item, NEED_HIGH, ACCESS_HIT);
    }
    const struct tally tally = {.outcome[ACCESS_HIT] = k, .low = precision != best ? k : 0};
    count_accesses(e, &tally);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* Whether the expert is READY at the precision that may serve any access. Entries left by another
 * preset at another precision do not count: routing to them would drop the expert at every
 * access. */
static bool serves(const struct experts *e, const struct expert_step *step, uint32_t expert)
{
    struct precision_choice choice = choice_of(e, step, &(struct expert_item){.expert = expert});
    struct directory_entry *d = precision_entry(e, step->layer, expert, choice.accept[0]);
    return d && entry_state_of(entry_read(&d->word)) == ENTRY_READY;
}

/* A chunk is not routed again when the cache evicts an expert between mask and pin, as a token is
 * (drop_evicted): its mask pins the experts, so that an expert that is being replaced serves the
 * whole layer. */
static bool hold(struct experts *e, const struct expert_step *step, uint32_t expert)
{
    const struct expert_item item = {.expert = expert, .prefill = true};
    struct precision_choice choice = choice_of(e, step, &item);
    struct directory_entry *d = precision_entry(e, step->layer, expert, choice.accept[0]);
    if (!d)
        return false;
    if (entry_state_of(entry_pin(&d->word, PINNER_COMPUTE)) != ENTRY_READY) {
        entry_unpin(&d->word, PINNER_COMPUTE);
        return false;
    }
    e->held[e->held_count++] = experts_entry(e, step->layer, expert, choice.accept[0]);
    return true;
}

void experts_release(struct experts *e)
{
    for (uint32_t i = 0; i < e->held_count; i++)
        entry_unpin(&e->child->directory.entries[e->held[i]].word, PINNER_COMPUTE);
    e->held_count = 0;
}

void experts_keep_routed(struct experts *e, const struct expert_step *step,
                         const struct route *routes)
{
    bool routed[MODEL_EXPERTS_MAX] = {false};
    uint32_t kept = 0, pairs = step->rows * e->child->model->hparams.experts_used;
    if (e->held_count == 0)
        return;
    for (uint32_t i = 0; i < pairs; i++)
        routed[routes[i].expert] = true;
    for (uint32_t i = 0; i < e->held_count; i++) {
        struct directory_entry *d = &e->child->directory.entries[e->held[i]];
        if (routed[d->expert])
            e->held[kept++] = e->held[i];
        else
            entry_unpin(&d->word, PINNER_COMPUTE);
    }
    e->held_count = kept;
}

static bool allow(struct experts *e, const struct expert_step *step, uint32_t expert)
{
    if (e->fixed_mask)
        return e->mask[(size_t)step->layer * e->child->model->hparams.experts + expert] != 0;
    return step->prefill ? hold(e, step, expert) : serves(e, step, expert);
}

uint32_t experts_rows(const struct experts *e, uint32_t rows)
{
    uint32_t most = e->knobs.mask == MASK_SWAP ? swap_rows_max(e->knobs.interval) : rows;
    return rows < most ? rows : most;
}

bool experts_mask(void *self, const struct expert_step *step, bool *allowed)
{
    struct experts *e = self;
    uint32_t experts = e->child->model->hparams.experts, found = 0;
    e->masked = false;
    if (e->knobs.routing != ROUTING_MASKED)
        return false;
    experts_release(e); /* of the layer before: computed, its pins are cleared already */
    for (uint32_t i = 0; i < experts; i++) {
        allowed[i] = allow(e, step, i);
        found += allowed[i];
    }
    /* A layer with too few resident experts is routed without a mask, and waits. */
    e->masked = found >= e->child->model->hparams.experts_used;
    if (!e->masked)
        experts_release(e);
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
        struct access_record record = {.sequence = step->row->sequence,
                                       .position = step->row->position,
                                       .tokens = step->rows,
                                       .weight = importance[i],
                                       .layer = (uint16_t)step->layer,
                                       .expert = (uint16_t)i,
                                       .kind = ACCESS_CHOICE,
                                       .pass = (uint16_t)step->pass,
                                       .prefill = step->prefill};
        access_log_append(&e->child->access_log, &record);
    }
}

/* ---- logits ---------------------------------------------------------------------------------- */

static void log_levels(struct experts *e, uint32_t layer, const struct expert_row *row,
                       uint32_t experts)
{
    for (uint32_t first = 0; first < experts; first += ACCESS_VALUES) {
        uint32_t count = experts - first < ACCESS_VALUES ? experts - first : ACCESS_VALUES;
        uint8_t values[ACCESS_VALUES] = {0};
        struct access_record record = {.sequence = row->sequence,
                                       .position = row->position,
                                       .layer = (uint16_t)layer,
                                       .expert = (uint16_t)first,
                                       .kind = ACCESS_LOGITS,
                                       .rank = (uint8_t)count};
        memcpy(values, e->levels + first, count);
        memcpy(record.values, values, ACCESS_VALUES_HALF);
        memcpy(record.more_values, values + ACCESS_VALUES_HALF, ACCESS_VALUES_HALF);
        access_log_append(&e->child->access_log, &record);
    }
}

/* Logged before the layer's accesses, so that the cache has the logits when it chooses victims for
 * the demand. */
void experts_logits(void *self, const struct expert_step *step, const float *logits,
                    uint32_t experts)
{
    struct experts *e = self;
    for (uint32_t r = 0; r < step->rows && e->logs_logits; r++) {
        if (step->row[r].prefill)
            continue;
        residency_logit_levels(logits + (size_t)r * experts, experts, e->levels);
        if (e->deterministic)
            deterministic_logits(e->deterministic, e->levels);
        log_levels(e, step->layer, &step->row[r], experts);
    }
}

/* ---- the preset ------------------------------------------------------------------------------ */

/* Bytes of the arena available to experts. */
static uint64_t capacity_bytes(const struct experts *e)
{
    const struct model_index *m = e->child->model;
    const struct directory_head *head = e->child->directory.head;
    uint64_t quota = atomic_load_explicit(&head->quota_bytes, memory_order_relaxed);
    uint64_t cap = atomic_load_explicit(&head->experts_payload_max, memory_order_relaxed);
    uint64_t capacity = quota > m->dense_bytes ? quota - m->dense_bytes : 0;
    return capacity < cap ? capacity : cap;
}

/* The number of largest experts that fit; the cache computes the same. */
static uint32_t capacity_entries(const struct experts *e)
{
    const struct directory_head *head = e->child->directory.head;
    return planned_capacity(e->child->model,
                            atomic_load_explicit(&head->quota_bytes, memory_order_relaxed),
                            atomic_load_explicit(&head->experts_payload_max, memory_order_relaxed));
}

static const void *deterministic_dense(void *self, uint32_t entry)
{
    const struct experts *e = self;
    const struct model_extent *x = &model_index_entries(e->child->model)[entry].extent[0];
    return experts_slot(e->child, entry) + x->slot_offset + x->head_bytes;
}

/* Predictions go into the access log as trace records, so that the simulator can repeat them: after
 * the accesses of the layer in which they were made. */
static void deterministic_predicted(void *self, const struct deterministic_prediction *made,
                                    const struct prediction *prediction)
{
    struct experts *e = self;
    struct access_record record = {.sequence = made->row->sequence,
                                   .position = made->row->position,
                                   .tokens = made->rows,
                                   .weight = prediction->probability,
                                   .layer = (uint16_t)made->layer,
                                   .expert = (uint16_t)prediction->expert,
                                   .kind = TRACE_PREDICTED,
                                   .rank =
                                       (uint8_t)(made->rank < UINT8_MAX ? made->rank : UINT8_MAX),
                                   .prefill = made->row->prefill,
                                   .from_layer = (uint16_t)made->from_layer,
                                   .before = prediction->weight_before};
    if (e->predictions_count < e->predictions_max)
        e->predictions[e->predictions_count++] = record;
}

void experts_flush_predictions(struct experts *e)
{
    for (uint32_t i = 0; i < e->predictions_count; i++)
        access_log_append(&e->child->access_log, &e->predictions[i]);
    e->predictions_count = 0;
}

static int make_deterministic(struct experts *e, struct error *error)
{
    struct deterministic_config config = {.model = e->child->model,
                                          .ops = kernel_ops_select(e->child->params->isa),
                                          .dense = deterministic_dense,
                                          .predicted = deterministic_predicted,
                                          .self = e};
    deterministic_destroy(e->deterministic);
    e->deterministic = NULL;
    if (!e->child->params->deterministic)
        return 0;
    /* at most four layers ahead; memory that no pass uses is not backed */
    e->predictions_max = 4 * e->child->model->hparams.experts * DECODE_ROWS_MAX;
    e->predictions_count = 0;
    if (!e->predictions)
        e->predictions = calloc(e->predictions_max, sizeof *e->predictions);
    if (!e->predictions)
        return error_set(error, ERR_NO_MEMORY, "out of memory (predictions)");
    deterministic_model(e->child->model, &e->knobs, e->child->plan, capacity_bytes(e), &config.sim);
    e->deterministic = deterministic_create(&config, error);
    return e->deterministic ? 0 : -1;
}

static int make_mask(struct experts *e, struct error *error)
{
    const struct model_hparams *h = &e->child->model->hparams;
    e->fixed_mask = e->knobs.mask == MASK_NORM || e->knobs.mask == MASK_FREQUENCY;
    if (!e->fixed_mask)
        return 0;
    return planned_mask(e->child->plan, e->knobs.mask, h, capacity_entries(e), e->mask, error);
}

int experts_set_preset(struct experts *e, uint32_t preset, struct error *error)
{
    struct knobs knobs;
    struct precision_policy policy;
    if (child_knobs(e->child, preset, &knobs, &policy, error) != 0)
        return -1;
    e->preset = preset;
    e->knobs = knobs;
    e->precision_policy = policy;
    e->publishes = prediction_method_of(knobs.prediction)->source;
    e->predicts_chunks = prediction_for_chunks(prediction_method_of(knobs.prediction));
    e->logs_logits = knobs.eviction == EVICTION_LEARNED;
    return make_mask(e, error) == 0 ? make_deterministic(e, error) : -1;
}
