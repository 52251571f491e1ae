/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of the core. */
#include "lib/core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/device/host/host.h"
#include "lib/kernels/kv_layout.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

/* ---- creation -------------------------------------------------------------------------------- */

static void alive(void *self)
{
    const struct core *c = self;
    c->source.alive(c->source.self);
}

static int make_constants(struct core *c, struct error *error)
{
    uint32_t n = c->hp.hidden, ones = core_ones(&c->hp);
    const struct {
        struct device_at at;
        uint32_t elements;
        float value;
    } all[] = {{c->scratch.ones, ones, 1.0f},
               {c->scratch.roots, n, 1.0f / sqrtf((float)n)},
               {c->scratch.normed_scale, n, c->hp.normed_scale}};
    float *same = malloc(ones * sizeof *same); /* at least n */
    if (!same)
        return error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        for (uint32_t i = 0; i < all[k].elements; i++)
            same[i] = all[k].value;
        if (all[k].at.address)
            c->device->ops->write(c->device, all[k].at, same, all[k].elements * sizeof *same);
    }
    free(same);
    float share = c->hp.streams > 1 ? 1.0f / (float)c->hp.streams : 1.0f;
    c->device->ops->write(c->device, c->scratch.stream_share, &share, sizeof share);
    return 0;
}

static int allocate_scratch(struct core *c, const struct core_config *config, struct error *error)
{
    uint32_t chunk = config->chunk;
    struct core_bytes bytes = core_scratch_layout(c, chunk, NULL);
    while (config->scratch_limit && bytes.device + bytes.host > config->scratch_limit &&
           chunk > 1) {
        chunk = (chunk + 1) / 2;
        bytes = core_scratch_layout(c, chunk, NULL);
    }
    c->scratch.host = aligned_alloc(64, bytes.host);
    if (!c->scratch.host)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu bytes of scratch for %u rows)",
                         bytes.host, chunk);
    if (c->device->ops->allocate(c->device, bytes.device, &c->scratch.device, error) != 0)
        return -1;
    memset(c->scratch.host, 0, bytes.host); /* fault the pages in now, not in the first token */
    c->device->ops->clear(c->device,
                          &(struct op_clear){.bytes = bytes.device, .y = c->scratch.device});
    struct core_bytes used =
        core_scratch_layout(c, chunk, &(struct core_memory){c->scratch.device, c->scratch.host});
    sl_assert(used.device == bytes.device && used.host == bytes.host);
    c->chunk = chunk;
    c->scratch.bytes = bytes.device + bytes.host;
    return make_constants(c, error);
}

_Static_assert(MODEL_ROW_MAX <= KERNEL_K_MAX, "kernels have buffers for the longest row");

static int check_sizes(const struct model_index *m, struct error *error)
{
    for (uint32_t layer = 0; layer < m->hparams.layers; layer++) {
        const struct layer_attention *a = &m->layer[layer].attention;
        /* Latents of a window are not quantised (model_kv_type), and no lists choose them. */
        bool wide = m->layer[layer].mixer == MIXER_MLA && a->window > 0;
        uint32_t keys = wide ? KERNEL_WIDE_KEY_MAX : KERNEL_HEAD_SIZE_MAX;
        uint32_t values = wide ? KERNEL_WIDE_VALUE_MAX : KERNEL_VALUE_SIZE_MAX;
        if (a->key_size > keys || a->value_size > values)
            return error_set(error, ERR_BAD_INPUT, "unsupported head size %u, %u (maximum %u, %u)",
                             a->key_size, a->value_size, keys, values);
    }
    return 0;
}

static struct core *allocate_core(const struct core_config *config)
{
    uint32_t layers = config->model->hparams.layers;
    struct core *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->magic = CORE_MAGIC;
    c->model = config->model;
    c->hp = config->model->hparams;
    c->source = config->source;
    c->first = config->first_layer;
    c->end = config->layers ? c->first + config->layers : layers;
    sl_assert(c->first < c->end && c->end <= layers);
    c->prefill_order = config->prefill_order;
    c->output_bytes = config->output_bytes;
    c->forms = config->forms > 0 ? config->forms : 1;
    sl_assert(c->forms == 1 || c->source.form);
    c->positions = config->positions > 0 ? config->positions : c->hp.context;
    c->residual = c->hp.residual_scale != 0 ? c->hp.residual_scale : 1.0f;
    c->layer = calloc(layers, sizeof *c->layer);
    if (!c->layer) {
        core_destroy(c);
        return NULL;
    }
    return c;
}

static int open_device(struct core *c, const struct core_config *config, struct error *error)
{
    c->device = config->device;
    if (!c->device) {
        c->device = host_device(config->ops, config->threads, config->nice, error);
        c->owns_device = true;
    }
    if (!c->device)
        return -1;
    device_enter(c->device);
    c->device->alive = c->source.alive ? alive : NULL;
    c->device->alive_self = c;
    return c->device->ops->allocate(c->device, core_vector_floats(c) * sizeof(float), &c->vectors,
                                    error);
}

struct core *core_create(const struct core_config *config, struct error *error)
{
    sl_assert(config->chunk >= 1 && (config->ops || config->device) && config->prefill_order);
    if (check_sizes(config->model, error) != 0)
        return NULL;
    struct core *c = allocate_core(config);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
        return NULL;
    }
    if (open_device(c, config, error) == 0 && core_bind(c, config, error) == 0 &&
        allocate_scratch(c, config, error) == 0)
        return c;
    core_destroy(c);
    return NULL;
}

void core_destroy(struct core *c)
{
    if (!c)
        return;
    OBJ_CHECK(c, CORE_MAGIC);
    if (c->device) {
        device_enter(c->device);
        device_wait(c->device);
        c->device->ops->release(c->device, c->vectors);
        c->device->ops->release(c->device, c->scratch.device);
        c->device->alive = NULL;
    }
    if (c->device && c->owns_device)
        c->device->ops->destroy(c->device);
    free(c->layer);
    free(c->scratch.host);
    c->magic = 0;
    free(c);
}

void core_prefill_order(struct core *c, prefill_order_fn order)
{
    OBJ_CHECK(c, CORE_MAGIC);
    sl_assert(order);
    c->prefill_order = order;
}

uint32_t core_chunk(const struct core *c)
{
    return c->chunk;
}

size_t core_scratch_bytes(const struct core *c)
{
    return c->scratch.bytes;
}

uint32_t core_output_rows(const struct core *c)
{
    return c->output_rows;
}

void core_apply_norm(const struct kernel_ops *ops, const struct model_hparams *h, const float *x,
                     const float *weight, const float *bias, uint32_t n, float *y)
{
    host_norm(ops, (enum norm_kind)h->norm, h->rms_eps, x, weight, bias, n, y);
}

void core_apply_activation(const struct kernel_ops *ops, const struct model_hparams *h,
                           const float *gate, const float *up, uint32_t n, float *y)
{
    const struct ffn_limit caps = {.cap_gate = h->cap_gate, .cap_up = h->cap_up};
    host_activate(ops, (enum ffn_activation)h->activation, caps, gate, up, n, y);
}
