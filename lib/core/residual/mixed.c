/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of RESIDUAL_MIXED: streams that are read as a weighted sum, and, unless they are only
 * weighed, mixed by a doubly stochastic matrix when a result is added.
 * lib/device/host/streams/mixing.c has the formulas of the weights, which are made where a part
 * reads the streams, and kept until its result is added. */
#include "lib/core/internal.h"

/* ---- weights ---- */

static void bind_site(struct core *c, uint32_t layer, struct core_site *site, enum dense_role role)
{
    if (!core_has(c, layer, role))
        return;
    site->mix = core_matrix(c, layer, role);
    site->stream_forms = form_bit(&site->mix);
}

void core_bind_mixed(struct core *c, uint32_t layer)
{
    if (layer == c->hp.layers) {
        bind_site(c, layer, &c->output_site, DENSE_OUTPUT_MIX);
        return;
    }
    bind_site(c, layer, &c->layer[layer].mixer_site, DENSE_MIXER_MIX);
    bind_site(c, layer, &c->layer[layer].ffn_site, DENSE_FFN_MIX);
}

int core_check_mixed(const struct core *c, struct error *error)
{
    return c->hp.residual == RESIDUAL_MIXED && c->device->lacks_mixing
               ? error_set(error, ERR_BAD_INPUT,
                           "the device '%s' does not compute a residual of mixed streams",
                           c->device->ops->name)
               : 0;
}

/* ---- a pass ---- */

/* At the output there is nothing to add: weights of the sum alone. */
static struct device_mixing shape_of(const struct core *c, const struct core_site *site)
{
    const bool adds = site != &c->output_site;
    return (struct device_mixing){.streams = c->hp.streams,
                                  .steps = adds ? c->hp.stream_steps : 0,
                                  .magnitude = adds ? c->hp.stream_magnitude : 0,
                                  .eps = c->hp.stream_eps};
}

static struct device_at weights_from(const struct core *c, const struct device_mixing *shape,
                                     uint32_t row)
{
    return device_floats_at(c->scratch.stream_weights, row * device_mixing_weights(shape));
}

/* At most DEVICE_BLOCK_ROWS rows. */
static void make_weights(struct core *c, const struct core_site *site,
                         const struct device_mixing *shape, uint32_t row, uint32_t rows)
{
    const struct op_norm norm = {
        .rows = rows,
        .kind = NORM_RMS,
        .eps = c->hp.rms_eps,
        .x = device_floats_at(c->scratch.x, (uint64_t)row * model_residual_floats(&c->hp)),
        .weight = c->scratch.ones,
        .forms = site->stream_forms,
        .y = c->scratch.streams};
    const struct device_product product = {
        .w = site->mix, .y = c->scratch.stream_logits, .y_stride = site->mix.n};
    const struct op_products products = {
        .rows = rows, .x = c->scratch.streams, .count = 1, .product = &product};
    const struct op_stream_weights weights = {.rows = rows,
                                              .shape = *shape,
                                              .logits = c->scratch.stream_logits,
                                              .scale = site->mix_scale,
                                              .base = site->mix_base,
                                              .weights = weights_from(c, shape, row)};
    sl_assert(site->mix.n == device_mixing_weights(shape));
    c->device->ops->norm(c->device, &norm);
    c->device->ops->products(c->device, &products);
    c->device->ops->stream_weights(c->device, &weights);
}

void core_mixed_read(struct core *c, const struct core_site *site, const struct core_reading *r)
{
    const struct device_mixing shape = shape_of(c, site);
    bool mean = !site->mix.data.address;
    const struct op_stream_gather gather = {
        .rows = r->rows,
        .streams = c->hp.streams,
        .eps = c->hp.rms_eps,
        .x = device_floats_at(c->scratch.x, (uint64_t)r->row * model_residual_floats(&c->hp)),
        .stride = device_mixing_weights(&shape),
        .weights = mean ? (struct device_at){0} : weights_from(c, &shape, r->row),
        .norm = site->norm,
        .forms = r->forms,
        .y = *r->y};
    for (uint32_t first = 0, n; first < r->rows && !mean; first += n) {
        n = r->rows - first < DEVICE_BLOCK_ROWS ? r->rows - first : DEVICE_BLOCK_ROWS;
        make_weights(c, site, &shape, r->row + first, n);
    }
    c->device->ops->stream_gather(c->device, &gather);
}

void core_mixed_add(struct core *c, const struct core_site *site, struct device_at y)
{
    const struct device_mixing shape = shape_of(c, site);
    const struct op_stream_mix mix = {.rows = c->pass.step.rows,
                                      .n = c->hp.hidden,
                                      .shape = shape,
                                      .weights = weights_from(c, &shape, 0),
                                      .y = y,
                                      .x = c->scratch.x};
    c->device->ops->stream_mix(c->device, &mix);
}
