/* SPDX-License-Identifier: Apache-2.0 */
/* Every driver of a pass begins with these parts: the rows get their angles, a layer
 * takes its part of the sequences, and its mixer is the one that the architecture names. */
#include "lib/core/internal.h"

#include "lib/base/bytes.h"

void core_compute_angles(struct core *c)
{
    uint32_t rows = c->pass.step.rows;
    for (uint32_t table = 0; table < LAYER_KIND__COUNT; table++) {
        bool factors = c->rope_has_factors[table];
        if (c->ropes[table].dims == 0)
            continue;
        const struct op_angles angles = {.rows = rows,
                                         .row = c->scratch.row,
                                         .rope = c->ropes[table],
                                         .factors =
                                             factors ? c->rope_factors : (struct device_at){0},
                                         .stride = c->rope_size,
                                         .y = core_angles(c, table)};
        c->device->ops->angles(c->device, &angles);
    }
}

/* Positions that the keys of a sequence have after this pass, or that a ring has. */
static uint32_t positions_of(const struct core *c, uint32_t sequence, uint32_t ring)
{
    uint32_t end = 0;
    for (uint32_t r = 0; r < c->pass.step.rows && ring == 0; r++)
        if (c->scratch.row[r].sequence == sequence)
            end = c->scratch.row[r].position + 1;
    return ring > 0 ? ring : end;
}

/* The first row of the sequence in this pass is its first, or it has none. */
static bool begins(const struct core *c, uint32_t sequence)
{
    uint32_t row = 0;
    while (row < c->pass.step.rows && c->scratch.row[row].sequence != sequence)
        row++;
    return row == c->pass.step.rows || c->scratch.row[row].position == 0;
}

/* Keys, values or the indexer's keys of the current layer. The number of bytes matters where the
 * device is not the host. */
static struct device_at share_side(struct core *c, uint32_t sequence, uint32_t side, uint32_t ring)
{
    const struct core_sequence *s = &c->pass.sequences[sequence];
    uint32_t layer = c->pass.step.layer, positions = 0;
    void *const *all = side == KV_SIDE_KEYS     ? s->keys
                       : side == KV_SIDE_VALUES ? s->values
                                                : s->index;
    if (!c->device->is_host)
        positions = positions_of(c, sequence, ring);
    return device_share(c->device, all[layer],
                        (size_t)model_kv_bytes(&c->hp, layer, side, s->kv_type, positions));
}

/* The state of the current layer, which is `at` floats behind the first one. */
static void share_state(struct core *c, uint32_t sequence, uint64_t at)
{
    const struct core_sequence *s = &c->pass.sequences[sequence];
    size_t floats = (size_t)model_layer_floats(&c->hp, c->pass.step.layer);
    c->pass.at[sequence].next_state =
        device_share(c->device, (float *)s->next_state + at, floats * sizeof(float));
    if (!begins(c, sequence))
        c->pass.at[sequence].state =
            device_share(c->device, (const float *)s->state + at, floats * sizeof(float));
}

/* Without entries it has no state. */
static void take_entries(struct core *c, uint32_t sequence)
{
    const struct core_entries_weights *e = &core_layer_now(c)->entries;
    if (e->shape.unit == 0)
        return;
    c->pass.at[sequence].index = share_side(c, sequence, KV_SIDE_INDEX, 0);
    share_state(c, sequence, e->state_at);
}

void core_take_sequences(struct core *c)
{
    const struct layer_attention *a = &core_layer_now(c)->attention;
    const uint32_t layer = c->pass.step.layer;
    for (uint32_t i = 0; i < c->pass.sequence_count; i++) {
        const struct core_sequence *s = &c->pass.sequences[i];
        uint32_t ring = a->window > 0 ? s->ring : 0;
        c->pass.at[i] =
            (struct device_sequence){.kv_type = model_kv_type(&c->hp, layer, s->kv_type),
                                     .index_type = kv_index_type(s->kv_type),
                                     .ring = ring,
                                     .layer = layer,
                                     .content = c->pass.sequence_count == 1 ? s->content : 0};
        if (c->hp.layer_kind[layer] == LAYER_RECURRENT) {
            share_state(c, i, core_layer_now(c)->recurrent.state_at);
            continue;
        }
        if (core_parts_now(c)->mixer == MIXER_NONE)
            continue;
        c->pass.at[i].keys = share_side(c, i, KV_SIDE_KEYS, ring);
        if (core_parts_now(c)->mixer == MIXER_ENTRIES)
            take_entries(c, i);
        if (!a->values_in_keys)
            c->pass.at[i].values = share_side(c, i, KV_SIDE_VALUES, ring);
        if (core_layer_now(c)->index.k.n == 0)
            continue;
        c->pass.at[i].index = share_side(c, i, KV_SIDE_INDEX, 0);
        if (c->index.unit > 1)
            share_state(c, i, core_layer_now(c)->index.state_at);
    }
}

static void (*const mixers[])(struct core *c) = {
    [MIXER_ATTENTION] = core_attention,  [MIXER_DELTANET] = core_recurrence,
    [MIXER_MAMBA2] = core_recurrence,    [MIXER_KDA] = core_recurrence,
    [MIXER_LIGHTNING] = core_recurrence, [MIXER_MAMBA1] = core_selective_scan,
    [MIXER_SHORTCONV] = core_shortconv,  [MIXER_MLA] = core_mla,
    [MIXER_ENTRIES] = core_entries,      [MIXER_NONE] = NULL};
_Static_assert(ARRAY_LEN(mixers) == MIXER__COUNT, "a function for every mixer");

void core_run_mixer(struct core *c)
{
    uint8_t mixer = core_parts_now(c)->mixer;
    if (mixer == MIXER_NONE)
        return;
    if (!c->hp.parallel)
        core_mixer_input(c);
    mixers[mixer](c);
}
