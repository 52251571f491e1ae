/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the weights of a model in memory, with pins, little capacity and a random order of
 * readiness. */
#include "tests/golden/image.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/tensor/precision.h"
#include "tests/harness/tagged.h"

static const void *source_dense(void *self, uint32_t entry)
{
    const struct image *m = self;
    const void *memory = offline_dense(m->file, entry);
    return m->device ? tagged(memory) : memory;
}

static uint64_t source_pin_limit(void *self)
{
    const struct image *m = self;
    return m->model->expert_slot_bytes_max * IMAGE_PIN_SLOTS;
}

static bool source_resident(void *self, uint32_t layer, uint32_t expert)
{
    (void)self;
    return (layer + expert) % 3 != 0; /* varies the order of work */
}

static size_t bytes_of(const struct kernel_matrix *m)
{
    return (size_t)m->row_bytes * m->n;
}

static void lend(struct kernel_matrix *m)
{
    if (!m->data)
        return;
    void *slot = aligned_alloc(64, align_up(bytes_of(m), 64));
    sl_assert(slot);
    memcpy(slot, m->data, bytes_of(m));
    m->data = tagged(slot);
}

static void end_lease(struct kernel_matrix *m)
{
    if (!m->data)
        return;
    void *slot = untagged(m->data);
    memset(slot, 0xff, bytes_of(m)); /* NaN for a device that reads it later */
    free(slot);
    m->data = NULL;
}

static void source_pin(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count)
{
    const struct image *m = self;
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(items[i]->state == ITEM_QUEUED);
        offline_matrices(m->file, step->layer, items[i]->expert, PRECISION_NATIVE, QUANT_CHANNEL,
                         items[i]->matrix);
        for (int k = 0; m->device && k < EXPERT__COUNT; k++)
            lend(&items[i]->matrix[k]);
        items[i]->state = ITEM_READY;
    }
}

/* Some, as if the others were not there. */
static bool source_pin_ready(void *self, const struct expert_step *step, struct expert_item *item)
{
    if ((step->row->position + step->layer + item->expert) % 4 == 0)
        return false;
    source_pin(self, step, &item, 1);
    return true;
}

static int source_wait(void *self, const struct expert_step *step, struct expert_item **items,
                       uint32_t count, struct error *error)
{
    (void)self, (void)step, (void)items, (void)count;
    return error_set(error, ERR_FAILED, "a file in memory has nothing to wait for");
}

static void source_unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    const struct image *m = self;
    (void)step;
    sl_assert(item->state == ITEM_READY);
    for (int k = 0; m->device && k < EXPERT__COUNT; k++)
        end_lease(&item->matrix[k]);
}

static void source_routed(void *self, const struct expert_step *step, const struct route *routes)
{
    struct image *m = self;
    if (m->routed)
        m->routed(m->routed_arg, step, routes);
}

struct weights_source image_source(struct image *m)
{
    return image_source_on(m, NULL);
}

struct weights_source image_source_on(struct image *m, struct device *device)
{
    m->device = device;
    return (struct weights_source){.self = m,
                                   .dense = source_dense,
                                   .pin_limit = source_pin_limit,
                                   .resident = source_resident,
                                   .pin = source_pin,
                                   .pin_ready = source_pin_ready,
                                   .wait = source_wait,
                                   .unpin = source_unpin,
                                   .routed = source_routed};
}

/* Of all types: blocks of 32 can be larger than a small head in F32. */
static size_t largest_kv_bytes(const struct model_hparams *hp, uint32_t layer, uint32_t side,
                               uint32_t context)
{
    uint64_t most = 0;
    for (int type = 0; type < KV_TYPE__COUNT; type++) {
        uint64_t bytes = model_kv_bytes(hp, layer, side, (enum kv_type)type, context);
        most = bytes > most ? bytes : most;
    }
    return (size_t)most;
}

void image_open(struct image *m, const char *path, uint32_t context)
{
    struct error error;
    *m = (struct image){.context = context, .file = offline_open(path, model_index_build, &error)};
    if (!m->file)
        log_fatal(1, "%s", error.text);
    m->model = offline_index(m->file);
    const struct model_hparams *hp = &m->model->hparams;
    m->keys = calloc(hp->layers, sizeof *m->keys);
    m->values = calloc(hp->layers, sizeof *m->values);
    m->index = calloc(hp->layers, sizeof *m->index);
    m->state = calloc(1, (size_t)model_state_bytes(hp) + 1);
    sl_assert(m->keys && m->values && m->index && m->state);
    for (uint32_t i = 0; i < hp->layers; i++) {
        m->keys[i] = calloc(largest_kv_bytes(hp, i, KV_SIDE_KEYS, context), 1);
        m->values[i] = calloc(largest_kv_bytes(hp, i, KV_SIDE_VALUES, context), 1);
        m->index[i] = calloc(largest_kv_bytes(hp, i, KV_SIDE_INDEX, context), 1);
        sl_assert(m->keys[i] && m->values[i] && m->index[i]);
    }
}

void image_close(struct image *m)
{
    for (uint32_t i = 0; i < m->model->hparams.layers; i++) {
        free(m->keys[i]);
        free(m->values[i]);
        free(m->index[i]);
    }
    free(m->keys);
    free(m->values);
    free(m->index);
    free(m->state);
    offline_close(m->file);
}

struct core_sequence image_sequence(const struct image *m)
{
    return (struct core_sequence){.sequence = 1,
                                  .kv_type = m->kv_type,
                                  .keys = m->keys,
                                  .values = m->values,
                                  .index = m->index,
                                  .state = m->state,
                                  .next_state = m->state};
}

struct core *image_core(struct image *m, const struct kernel_ops *ops, uint32_t threads,
                        uint32_t chunk)
{
    struct core_config config = {.model = m->model,
                                 .ops = ops,
                                 .source = image_source(m),
                                 .threads = threads,
                                 .chunk = chunk,
                                 .positions = m->context,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    struct error error;
    struct core *core = core_create(&config, &error);
    if (!core)
        log_fatal(1, "%s", error.text);
    return core;
}
