/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that a table names by token: what a pass needs in the first layers is known before it
 * begins, so the cache is told then. When all of it is in memory, no message is sent. */
#include <stdlib.h>

#include "lib/policy/presets/planned.h"
#include "procs/engine/compute/experts/experts.h"

struct experts_known {
    struct msg_hint message;
    struct prediction list[PREDICTIONS_MAX];
};

_Static_assert(PREDICTIONS_MAX == MSG_HINTS_MAX, "a list is one KNOWN");

int experts_open_known(struct experts *e, struct error *error)
{
    if (e->child->model->hparams.table_layers == 0)
        return 0;
    e->known = calloc(1, sizeof *e->known);
    return e->known ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (experts of a table)");
}

/* The entry that an access will probably request; ENTRY_NONE: an access would skip it. */
static uint32_t entry_of(const struct experts *e, uint32_t layer, uint32_t at, uint32_t count,
                         bool prefill)
{
    const struct model_index *m = e->child->model;
    const struct prediction *x = &e->known->list[at];
    struct planned_widths widths = planned_widths(e->child->plan, &e->knobs);
    struct precision_predicted in = {
        .at = at, .count = count, .weight_before = x->weight_before, .prefill = prefill};
    enum precision precision;
    in.planned = planned_precisions(&widths, (size_t)layer * m->hparams.experts + x->expert);
    if (!precision_predict(&e->precision_policy, &in, model_expert_precisions(m, layer, x->expert),
                           &precision))
        return ENTRY_NONE;
    return model_entry_expert_precision(m, layer, x->expert, precision);
}

void experts_known(void *self, const struct expert_step *step, uint32_t layer, uint32_t row,
                   const uint32_t *tokens)
{
    struct experts *e = self;
    const struct expert_row *first = &step->row[row];
    struct msg_hint *m = &e->known->message;
    bool absent = false;
    if (e->knobs.prefetch == PREFETCH_NONE)
        return;
    uint32_t n = prediction_known(tokens, e->child->model->hparams.experts, e->known->list);
    *m = (struct msg_hint){.sent_ns = clock_now_ns(),
                           .sequence = first->sequence,
                           .position = first->position,
                           .layer = (uint16_t)layer,
                           .from_layer = (uint16_t)layer,
                           .prefill = first->prefill};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t entry = entry_of(e, layer, i, n, first->prefill);
        if (entry == ENTRY_NONE)
            continue;
        uint64_t word = entry_read(&e->child->directory.entries[entry].word);
        absent |= entry_state_of(word) != ENTRY_READY;
        m->predictions[m->count++] = (struct msg_prediction){.entry = entry, .probability = 1};
    }
    if (!absent)
        return;
    counter_add(e->child->process, CTR_COMPUTE_known_layers, 1);
    if (channel_send(e->cache, m, MSG_KNOWN) != 0)
        counter_add(e->child->process, CTR_COMPUTE_messages_dropped, 1);
}
