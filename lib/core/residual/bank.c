/* SPDX-License-Identifier: Apache-2.0 */
/* A residual that is a bank of sums (RESIDUAL_BANK): stream 0 is the sum of the block that runs,
 * the streams after it are the sums that blocks have ended with, in their order. All of them belong
 * to one pass; nothing remains for the next token. */
#include "lib/core/internal.h"

/* At most DEVICE_BLOCK_ROWS rows: the weighted sum, then its norm in place. */
static void read_block(struct core *c, const struct core_site *site, uint32_t row, uint32_t rows,
                       uint32_t forms, const struct device_rows *y)
{
    const struct op_bank_read read = {
        .rows = rows,
        .streams = c->hp.streams,
        .sources = site->sums + 1,
        .n = c->hp.hidden,
        .eps = c->hp.rms_eps,
        .x = device_floats_at(c->scratch.x, (uint64_t)row * model_residual_floats(&c->hp)),
        .ones = c->scratch.ones,
        .score = site->score,
        .weights = c->scratch.stream_weights,
        .y = y->base[FORM_F32]};
    const struct op_norm norm = {.rows = rows,
                                 .kind = (enum norm_kind)c->hp.norm,
                                 .eps = c->hp.rms_eps,
                                 .x = y->base[FORM_F32],
                                 .weight = site->norm,
                                 .bias = site->norm_bias,
                                 .forms = forms,
                                 .y = *y};
    c->device->ops->bank_read(c->device, &read);
    c->device->ops->norm(c->device, &norm);
}

void core_bank_read(struct core *c, const struct core_site *site, const struct core_reading *r)
{
    for (uint32_t first = 0, n; first < r->rows; first += n) {
        const struct device_rows y = device_rows_from(r->y, first);
        n = r->rows - first < DEVICE_BLOCK_ROWS ? r->rows - first : DEVICE_BLOCK_ROWS;
        read_block(c, site, r->row + first, n, r->forms, &y);
    }
}

void core_bank_add(struct core *c, const struct core_site *site, struct device_at y)
{
    const struct op_bank_add add = {.rows = c->pass.step.rows,
                                    .streams = c->hp.streams,
                                    .ends = site->ends,
                                    .n = c->hp.hidden,
                                    .y = y,
                                    .x = c->scratch.x};
    c->device->ops->bank_add(c->device, &add);
}

/* A block ends where the mixer of the next one's first layer adds its result: what that mixer, and
 * a router that predicts its experts, have read before is the sum as it ends. */
void core_bind_bank(struct core *c, uint32_t layer)
{
    const struct model_hparams *h = &c->hp;
    if (layer == h->layers) {
        c->output_site.sums = model_bank_sums(h, layer, false);
        return;
    }
    struct core_layer *l = &c->layer[layer];
    l->mixer_site.sums = model_bank_sums(h, layer, false);
    l->ffn_site.sums = model_bank_sums(h, layer, true);
    l->mixer_site.ends = layer % h->bank_block == 0 ? l->ffn_site.sums : 0;
}
