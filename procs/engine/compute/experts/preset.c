/* SPDX-License-Identifier: Apache-2.0 */
/* The preset in effect and its policy parameters; changed between sequences. */
#include <string.h>
#include <xxhash.h>

#include "lib/model/index/capacity.h"
#include "lib/policy/presets/planned.h"
#include "procs/engine/compute/experts/experts.h"

uint64_t experts_capacity_bytes(const struct experts *e)
{
    const struct directory_head *head = e->child->directory.head;
    return capacity_slot_bytes(
        e->child->model, atomic_load_explicit(&head->quota_bytes, memory_order_relaxed),
        atomic_load_explicit(&head->experts_payload_max, memory_order_relaxed));
}

static uint32_t capacity_entries(const struct experts *e)
{
    const struct directory_head *head = e->child->directory.head;
    return capacity_experts(e->child->model,
                            atomic_load_explicit(&head->quota_bytes, memory_order_relaxed),
                            atomic_load_explicit(&head->experts_payload_max, memory_order_relaxed));
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
    return make_mask(e, error) == 0 ? experts_make_deterministic(e, error) : -1;
}

uint64_t experts_preset_class(const struct experts *e)
{
    char text[4096];
    const struct plan *plan = e->child->plan;
    if (!knobs_lossy(&e->knobs))
        return 0;
    knobs_text(&e->knobs, text, sizeof text);
    uint64_t seed = plan ? XXH3_64bits(plan, plan->bytes) : 0;
    return XXH3_64bits_withSeed(text, strlen(text), seed) | 1;
}
