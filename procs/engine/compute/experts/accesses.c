/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the access log: accesses of experts, unmasked choices, logits and predictions; and the
 * counters of accesses. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/access/precision.h"
#include "lib/tensor/precision.h"
#include "procs/engine/compute/experts/experts.h"

/* For the simulator, which decides itself what can serve. */
void experts_log_predicted(struct experts *e, const struct expert_step *step,
                           const struct expert_item *item)
{
    struct access_record record = {
        .sequence = step->row->sequence,
        .position = step->row->position,
        .tokens = 1,
        .weight = item->weight,
        .layer = (uint16_t)step->layer,
        .expert = (uint16_t)item->expert,
        .kind = TRACE_GPU_PREDICTED,
        .rank = (uint8_t)item->rank,
        .from_layer = (uint16_t)hparams_experts_before(&e->child->model->hparams, step->layer),
        .before = item->weight_before};
    access_log_append(&e->child->access_log, &record);
}

/* What rows item->row[first .. first + count - 1] use of the expert: as the item, but of these
 * rows. */
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

static void count_for(const struct experts *e, const struct expert_row *row,
                      enum access_outcome outcome, bool low)
{
    struct kv_stats *f = &e->request[row->member]->stats;
    f->hits += outcome == ACCESS_HIT;
    f->hits_inflight += outcome == ACCESS_INFLIGHT;
    f->misses += outcome == ACCESS_MISS;
    f->skipped += outcome == ACCESS_SKIPPED;
    f->low_precision_accesses += low;
}

/* A record for each row that decodes, and one for each sequence's chunk. */
void experts_log_access(struct experts *e, const struct expert_step *step,
                        const struct expert_item *item, enum precision_need need,
                        enum access_outcome outcome, struct access_tally *tally)
{
    enum precision best = (enum precision)__builtin_ctz(e->child->model->precision_mask);
    tally->experts++;
    tally->rows += item->tokens;
    for (uint32_t first = 0, n; first < item->tokens; first += n) {
        const struct expert_row *row = &step->row[item->row[first]];
        n = 1;
        while (first + n < item->tokens && same_chunk(row, &step->row[item->row[first + n]]))
            n++;
        tally->outcome[outcome]++;
        bool low = outcome != ACCESS_SKIPPED && item->precision != best;
        tally->low += low;
        count_for(e, row, outcome, low);
        if (n == item->tokens) {
            log_rows(e, step, item, need, outcome);
            continue;
        }
        struct expert_item part = part_of_item(e, step, item, first, n);
        log_rows(e, step, &part, need, outcome);
    }
}

void experts_count_accesses(struct experts *e, const struct access_tally *t)
{
    struct process *row = e->child->process;
    uint64_t hits = t->outcome[ACCESS_HIT], inflight = t->outcome[ACCESS_INFLIGHT],
             misses = t->outcome[ACCESS_MISS], skipped = t->outcome[ACCESS_SKIPPED];
    counter_add(row, CTR_COMPUTE_accesses, hits + inflight + misses + skipped);
    counter_add(row, CTR_COMPUTE_hits, hits);
    counter_add(row, CTR_COMPUTE_pass_experts, t->experts);
    counter_add(row, CTR_COMPUTE_pass_expert_rows, t->rows);
    if (t->low > 0)
        counter_add(row, CTR_COMPUTE_low_precision_accesses, t->low);
    if (inflight + misses + skipped == 0)
        return;
    counter_add(row, CTR_COMPUTE_hits_inflight, inflight);
    counter_add(row, CTR_COMPUTE_misses, misses);
    counter_add(row, CTR_COMPUTE_skipped, skipped);
}

/* The GPU had them: hits, without a pin, whether or not they are in the arena. */
void experts_used(void *self, const struct expert_step *step, const struct route *routes)
{
    struct experts *e = self;
    struct access_tally tally = {0};
    enum precision precision;
    uint32_t k = e->child->model->hparams.experts_used;
    const uint32_t only_row = 0;
    sl_assert(experts_whole_on_device(e, &precision));
    for (uint32_t rank = 0; rank < k; rank++) {
        const struct expert_item item = {.expert = routes[rank].expert,
                                         .tokens = 1,
                                         .row = &only_row,
                                         .weight = routes[rank].weight,
                                         .rank = rank,
                                         .precision = precision};
        experts_log_access(e, step, &item, NEED_HIGH, ACCESS_HIT, &tally);
    }
    experts_count_accesses(e, &tally);
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

void experts_log_levels(struct experts *e, uint32_t layer, const struct expert_row *row,
                        const float *logits, const struct model_router *rule)
{
    uint32_t experts = rule->experts;
    routing_margins(rule, logits, e->margins + experts, e->margins);
    residency_logit_levels(e->margins, experts, e->levels);
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
                    const struct model_router *rule)
{
    struct experts *e = self;
    experts_log_router(e, step, logits, rule);
    for (uint32_t r = 0; r < step->rows && e->logs_logits; r++) {
        if (!step->row[r].prefill)
            experts_log_levels(e, step->layer, &step->row[r], logits + (size_t)r * rule->experts,
                               rule);
    }
}
