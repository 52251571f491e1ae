/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/device/cuda/plan.h"

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/device/device.h"

/* A slot of an expert is whole pages; on the device each of its three matrices begins at a multiple of DEVICE_ALIGN:
 * less than a fifth of a page. */
#define PADDING 5
_Static_assert(EXPERT__COUNT *DEVICE_ALIGN < PAGE_BYTES / PADDING, "an expert with its padding");

const char *cuda_part_name(enum cuda_part part)
{
    static const char *const names[] = {
#define X(id, name, text) name,
        CUDA_PARTS(X)
#undef X
    };
    sl_assert((size_t)part < ARRAY_LEN(names));
    return names[part];
}

uint64_t cuda_plan_bytes(const struct cuda_plan *plan)
{
    uint64_t bytes = 0;
    for (int i = 0; i < CUDA_PART__COUNT; i++)
        bytes += plan->bytes[i];
    return bytes;
}

uint64_t cuda_experts_slots(uint64_t bytes)
{
    return bytes / (PADDING + 1) * PADDING;
}

uint64_t cuda_experts_bytes(uint64_t slot_bytes)
{
    return align_up((slot_bytes + PADDING - 1) / PADDING * (PADDING + 1), DEVICE_ALIGN);
}

static uint64_t weights_of(const struct model_index *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->dense_count; i++) {
        const struct model_entry *e = &model_index_entries(m)[i];
        if (e->extents > 0)
            bytes += align_up(model_index_tensors(m)[e->extent[0].tensor].bytes, DEVICE_ALIGN);
    }
    return bytes;
}

static uint64_t side_of(const struct model_hparams *h, uint32_t layer, enum kv_side side,
                        enum kv_type type, uint64_t positions)
{
    return align_up(model_kv_bytes(h, layer, side, type, positions), DEVICE_ALIGN);
}

/* Of the layer with the largest: an operation has those of one layer. */
static uint64_t sequence_of(const struct model_index *m, enum kv_type type, uint32_t context,
                            uint32_t ring)
{
    const struct model_hparams *h = &m->hparams;
    uint64_t most = model_recurrent_layers(h) == 0
                        ? 0
                        : 2 * align_up(model_state_floats(h) * sizeof(float), DEVICE_ALIGN);
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint32_t positions = m->layer[layer].attention.window > 0 && ring > 0 ? ring : context;
        uint64_t bytes = side_of(h, layer, KV_SIDE_KEYS, type, positions) +
                         side_of(h, layer, KV_SIDE_VALUES, type, positions);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Scratch memory of what is unpacked when a model is loaded, which is that of experts until then. */
static uint64_t load_of(const struct model_hparams *h)
{
    uint64_t channels = model_recurrent_layers(h) > 0 ? model_conv_channels(h) : 1;
    return align_up(channels * h->conv_taps * sizeof(float), DEVICE_ALIGN) +
           align_up(channels * sizeof(uint32_t), DEVICE_ALIGN);
}

void cuda_plan_model(struct cuda_plan *plan, const struct model_index *model, enum kv_type kv_type,
                     uint32_t context, uint32_t ring, uint32_t sequences)
{
    plan->positions = context;
    plan->bytes[CUDA_WEIGHTS] = weights_of(model);
    plan->bytes[CUDA_KV] = sequences * sequence_of(model, kv_type, context, ring);
    uint64_t experts =
        cuda_experts_bytes(model->expert_slot_bytes_max * model->hparams.experts_used);
    uint64_t load = load_of(&model->hparams);
    plan->bytes[CUDA_EXPERTS] = experts > load ? experts : load;
}
