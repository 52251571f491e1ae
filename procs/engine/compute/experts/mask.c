/* SPDX-License-Identifier: Apache-2.0 */
/* Masked routing: which experts of a layer can be routed to. The sets of a plan, or the experts
 * that can serve now. */
#include "lib/policy/access/swap.h"
#include "procs/engine/compute/experts/experts.h"

/* Whether the expert is READY at the precision that may serve any access. Entries left by another
 * preset at another precision do not count: routing to them would drop the expert at every
 * access. */
static bool expert_can_serve(const struct experts *e, const struct expert_step *step,
                             uint32_t expert)
{
    struct precision_choice choice =
        experts_precision_choice(e, step, &(struct expert_item){.expert = expert});
    struct directory_entry *d = experts_directory_entry(e, step->layer, expert, choice.accept[0]);
    return d && entry_state_of(entry_read(&d->word)) == ENTRY_READY;
}

/* A chunk is not routed again when the cache evicts an expert between mask and pin, as a token is
 * (experts_drop_evicted): its mask pins the experts, so that an expert that is being replaced
 * serves the whole layer. */
static bool pin_for_mask(struct experts *e, const struct expert_step *step, uint32_t expert)
{
    const struct expert_item item = {.expert = expert, .prefill = true};
    struct precision_choice choice = experts_precision_choice(e, step, &item);
    struct directory_entry *d = experts_directory_entry(e, step->layer, expert, choice.accept[0]);
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

static bool mask_allows(struct experts *e, const struct expert_step *step, uint32_t expert)
{
    if (e->fixed_mask)
        return e->mask[(size_t)step->layer * e->child->model->hparams.experts + expert] != 0;
    return step->prefill ? pin_for_mask(e, step, expert) : expert_can_serve(e, step, expert);
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
    /* A layer whose experts a table chooses has no others, and waits. */
    if (e->knobs.routing != ROUTING_MASKED || step->layer < e->child->model->hparams.table_layers)
        return false;
    experts_release(e); /* of the layer before: computed, its pins are cleared already */
    for (uint32_t i = 0; i < experts; i++) {
        allowed[i] = mask_allows(e, step, i);
        found += allowed[i];
    }
    /* A layer with too few resident experts is routed without a mask, and waits. */
    e->masked = found >= e->child->model->hparams.experts_used;
    if (!e->masked)
        experts_release(e);
    return e->masked;
}

/* Decode under a changing mask never waits: it routes around experts that were evicted. A layer
 * with too few resident experts was routed without a mask and waits, because nothing else would
 * load its experts. */
bool experts_drop_evicted(struct experts *e, const struct expert_step *step,
                          struct expert_item *item)
{
    if (!e->masked || e->fixed_mask || step->prefill)
        return false;
    entry_unpin(&experts_directory_entry(e, step->layer, item->expert, item->precision)->word,
                PINNER_COMPUTE);
    item->state = ITEM_LOST;
    return true;
}
