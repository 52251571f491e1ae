/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the precision of an expert that serves an access. A pure policy function of gate weights
 * says which precisions may serve, and one of the resident experts which of them does
 * (lib/policy/access/precision.h). One pin remains: on the entry that serves or is waited for; its
 * state counts as read under the pin. */
#include "lib/tensor/precision.h"
#include "lib/base/assert.h"
#include "lib/policy/presets/planned.h"
#include "procs/engine/compute/experts/experts.h"

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

struct directory_entry *experts_directory_entry(const struct experts *e, uint32_t layer,
                                                uint32_t expert, enum precision precision)
{
    uint32_t entry = model_entry_expert_precision(e->child->model, layer, expert, precision);
    return entry == ENTRY_NONE ? NULL : &e->child->directory.entries[entry];
}

bool experts_resident(void *self, uint32_t layer, uint32_t expert)
{
    const struct experts *e = self;
    for (int precision = 0; precision < PRECISION__COUNT; precision++) {
        struct directory_entry *d =
            experts_directory_entry(e, layer, expert, (enum precision)precision);
        if (d && entry_state_of(entry_read(&d->word)) == ENTRY_READY)
            return true;
    }
    return false;
}

struct precision_choice experts_precision_choice(const struct experts *e,
                                                 const struct expert_step *step,
                                                 const struct expert_item *item)
{
    const struct model_index *m = e->child->model;
    struct precision_input in = {.weight_before = item->weight_before,
                                 .popularity = item->popularity,
                                 .prefill = item->prefill};
    struct planned_widths widths = planned_widths(e->child->plan, &e->knobs);
    in.planned =
        planned_precisions(&widths, (size_t)step->layer * m->hparams.experts + item->expert);
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

/* The states are read without a pin: experts_pin_choice checks again under one. */
static enum precision_outcome precision_that_serves(const struct experts *e,
                                                    const struct expert_step *step,
                                                    const struct expert_item *item,
                                                    const struct precision_choice *choice,
                                                    enum precision *precision)
{
    enum precision_state state[PRECISION__COUNT] = {PRECISION_ABSENT};
    for (uint32_t i = 0; i < choice->accept_count; i++) {
        struct directory_entry *d =
            experts_directory_entry(e, step->layer, item->expert, choice->accept[i]);
        state[choice->accept[i]] = state_of(entry_state_of(entry_read(&d->word)));
    }
    return precision_serve(choice, state, precision);
}

bool experts_serves(const struct experts *e, const struct expert_step *step, uint32_t expert,
                    float weight_before)
{
    const struct expert_item item = {.expert = expert, .weight_before = weight_before};
    struct precision_choice choice = experts_precision_choice(e, step, &item);
    enum precision precision;
    return precision_that_serves(e, step, &item, &choice, &precision) == PRECISION_HIT;
}

/* The only precision needs no check of the others before the pin. */
static bool has_one_answer(const struct precision_choice *choice)
{
    return choice->accept_count == 1 && choice->need != NEED_SKIP;
}

/* An entry can be evicted between the check and the pin: then the choice is made again. */
enum access_outcome experts_pin_choice(struct experts *e, const struct expert_step *step,
                                       struct expert_item *item,
                                       const struct precision_choice *choice)
{
    for (;;) {
        enum precision_outcome expected = PRECISION_MISS;
        item->precision = choice->request;
        if (!has_one_answer(choice))
            expected = precision_that_serves(e, step, item, choice, &item->precision);
        if (expected == PRECISION_SKIPPED) {
            item->state = ITEM_SKIPPED;
            return ACCESS_SKIPPED;
        }
        struct directory_entry *d =
            experts_directory_entry(e, step->layer, item->expert, item->precision);
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

bool experts_pin_ready(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct experts *e = self;
    if (e->child->params->trace[0] && item->tokens > 0)
        experts_log_predicted(e, step, item);
    struct precision_choice choice = experts_precision_choice(e, step, item);
    if (precision_that_serves(e, step, item, &choice, &item->precision) != PRECISION_HIT)
        return false;
    struct directory_entry *d =
        experts_directory_entry(e, step->layer, item->expert, item->precision);
    if (entry_state_of(entry_pin(&d->word, PINNER_COMPUTE)) == ENTRY_READY) {
        experts_make_ready(e, step, item);
        return true;
    }
    entry_unpin(&d->word, PINNER_COMPUTE);
    return false;
}

/* One precision serves every access, whatever is resident, and experts are routed to by the model
 * alone. */
bool experts_whole_on_device(void *self, enum precision *precision)
{
    const struct experts *e = self;
    const struct precision_policy *p = &e->precision_policy;
    if (e->knobs.routing != ROUTING_EXACT || precision_by_route(p->rule))
        return false;
    struct precision_choice choice;
    precision_choose(p, &(struct precision_input){0}, &choice);
    *precision = choice.request;
    return true;
}
