/* SPDX-License-Identifier: Apache-2.0 */
/* The residual of a row: what the parts of a layer read, and how their results are added to it. A
 * scheme is one pair of steps, and nothing else of the core knows how many streams there are. */
#include "lib/core/internal.h"

struct scheme {
    /* The rows begin as the embeddings of their tokens. */
    void (*begin)(struct core *c, const struct op_embed *embed);
    /* y = what a part reads of the rows [row, row + rows), normed, in these forms. */
    void (*read)(struct core *c, const struct core_site *site, const struct core_reading *r);
    /* Adds y, the results of a part for all rows. NULL: parts add to the rows themselves. */
    void (*add)(struct core *c, const struct core_site *site, struct device_at y);
};

static struct device_at rows_from(const struct core *c, uint32_t row)
{
    return device_floats_at(c->scratch.x, (uint64_t)row * model_residual_floats(&c->hp));
}

/* ---- one stream ---- */

static void single_begin(struct core *c, const struct op_embed *embed)
{
    c->device->ops->embed(c->device, embed);
}

static void single_read(struct core *c, const struct core_site *site, const struct core_reading *r)
{
    const struct op_norm norm = {.rows = r->rows,
                                 .kind = (enum norm_kind)c->hp.norm,
                                 .eps = c->hp.rms_eps,
                                 .x = rows_from(c, r->row),
                                 .weight = site->norm,
                                 .bias = site->norm_bias,
                                 .forms = r->forms,
                                 .y = *r->y};
    c->device->ops->norm(c->device, &norm);
}

/* ---- gated streams ---- */

void core_streams_begin(struct core *c, const struct op_embed *embed)
{
    struct op_embed rows = *embed;
    rows.x = c->scratch.sum;
    const struct op_stream_begin begin = {.rows = embed->rows,
                                          .streams = c->hp.streams,
                                          .n = c->hp.hidden,
                                          .y = c->scratch.sum,
                                          .x = embed->x};
    c->device->ops->embed(c->device, &rows);
    c->device->ops->stream_begin(c->device, &begin);
}

/* The products with the norms: what is between the factors of the gates, and at a site to which a
 * result is added, the logits of its weights. */
static void project_streams(struct core *c, const struct core_site *site, uint32_t row,
                            uint32_t rows)
{
    struct device_rows *rank = &c->scratch.stream_rank;
    uint32_t streams = c->hp.streams;
    const struct device_product product[] = {
        {.w = site->down,
         .scale = c->scratch.stream_share,
         .y = rank->base[FORM_F32],
         .y_stride = rank->k},
        {.w = site->inject,
         .scale = c->scratch.stream_share,
         .y = device_floats_at(c->scratch.stream_logits, (uint64_t)row * streams),
         .y_stride = streams}};
    const struct op_products products = {.rows = rows,
                                         .x = c->scratch.streams,
                                         .count = site->inject.n > 0 ? 2 : 1,
                                         .product = product};
    c->device->ops->products(c->device, &products);
    const struct op_silu_rows silu = {.rows = rows, .forms = site->up_forms, .y = *rank};
    c->device->ops->silu_rows(c->device, &silu);
}

/* At most DEVICE_BLOCK_ROWS rows. */
static void gated_read_block(struct core *c, const struct core_site *site, uint32_t row,
                             uint32_t rows, uint32_t forms, const struct device_rows *y)
{
    const struct op_stream_norm norm = {.rows = rows,
                                        .streams = c->hp.streams,
                                        .eps = c->hp.rms_eps,
                                        .x = rows_from(c, row),
                                        .weight = site->norm,
                                        .forms = site->stream_forms,
                                        .y = c->scratch.streams};
    const struct device_product up = {
        .w = site->up, .y = c->scratch.stream_gates, .y_stride = site->up.n};
    const struct op_products gates = {
        .rows = rows, .x = c->scratch.stream_rank, .count = 1, .product = &up};
    const struct op_stream_read read = {.rows = rows,
                                        .streams = c->hp.streams,
                                        .x = c->scratch.streams,
                                        .gate = c->scratch.stream_gates,
                                        .forms = forms,
                                        .y = *y};
    c->device->ops->stream_norm(c->device, &norm);
    project_streams(c, site, row, rows);
    c->device->ops->products(c->device, &gates);
    c->device->ops->stream_read(c->device, &read);
}

static void gated_read(struct core *c, const struct core_site *site, const struct core_reading *r)
{
    for (uint32_t first = 0, n; first < r->rows; first += n) {
        const struct device_rows y = device_rows_from(r->y, first);
        n = r->rows - first < DEVICE_BLOCK_ROWS ? r->rows - first : DEVICE_BLOCK_ROWS;
        gated_read_block(c, site, r->row + first, n, r->forms, &y);
    }
}

static void gated_add(struct core *c, const struct core_site *site, struct device_at y)
{
    (void)site; /* its logits were made where it was read */
    const struct op_stream_add add = {.rows = c->pass.step.rows,
                                      .streams = c->hp.streams,
                                      .n = c->hp.hidden,
                                      .logits = c->scratch.stream_logits,
                                      .weights = c->scratch.stream_weights,
                                      .y = y,
                                      .x = c->scratch.x};
    c->device->ops->stream_add(c->device, &add);
}

/* ---- the schemes ---- */

static const struct scheme schemes[RESIDUAL__COUNT] = {
    [RESIDUAL_SINGLE] = {single_begin, single_read, NULL},
    [RESIDUAL_GATED] = {core_streams_begin, gated_read, gated_add},
    [RESIDUAL_BANK] = {core_streams_begin, core_bank_read, core_bank_add},
    [RESIDUAL_MIXED] = {core_streams_begin, core_mixed_read, core_mixed_add},
};

/* ---- weights ---- */

/* Of gated streams where a part reads them; the output adds nothing. */
static void bind_streams(struct core *c, uint32_t layer, struct core_site *site,
                         const enum dense_role roles[3])
{
    if (!core_has(c, layer, roles[0]))
        return;
    site->down = core_matrix(c, layer, roles[0]);
    site->up = core_matrix(c, layer, roles[1]);
    site->stream_forms = form_bit(&site->down);
    site->up_forms = form_bit(&site->up);
    if (layer < c->hp.layers) {
        site->inject = core_matrix(c, layer, roles[2]);
        site->stream_forms |= form_bit(&site->inject);
    }
}

void core_bind_sites(struct core *c, uint32_t layer)
{
    static const enum dense_role mixer[] = {DENSE_MIXER_STREAM_DOWN, DENSE_MIXER_STREAM_UP,
                                            DENSE_MIXER_STREAM_INJECT},
                                 ffn[] = {DENSE_FFN_STREAM_DOWN, DENSE_FFN_STREAM_UP,
                                          DENSE_FFN_STREAM_INJECT},
                                 output[] = {DENSE_OUTPUT_STREAM_DOWN, DENSE_OUTPUT_STREAM_UP, 0};
    if (c->hp.residual == RESIDUAL_BANK || c->hp.residual == RESIDUAL_MIXED) {
        (c->hp.residual == RESIDUAL_BANK ? core_bind_bank : core_bind_mixed)(c, layer);
        return;
    }
    if (layer == c->hp.layers) {
        bind_streams(c, layer, &c->output_site, output);
        return;
    }
    bind_streams(c, layer, &c->layer[layer].mixer_site, mixer);
    bind_streams(c, layer, &c->layer[layer].ffn_site, ffn);
}

/* ---- steps of the scheme ---- */

static const struct scheme *scheme_of(const struct core *c)
{
    return &schemes[c->hp.residual];
}

void core_residual_begin(struct core *c)
{
    const struct op_embed embed = {.rows = c->pass.step.rows,
                                   .row = c->scratch.row,
                                   .w = c->embedding,
                                   .factor = c->hp.embedding_scale,
                                   .x = c->scratch.x};
    scheme_of(c)->begin(c, &embed);
}

void core_residual_read(struct core *c, const struct core_site *site, const struct core_reading *r)
{
    scheme_of(c)->read(c, site, r);
}

struct device_at core_residual_into(const struct core *c)
{
    return scheme_of(c)->add ? (struct device_at){0} : c->scratch.x;
}

void core_residual_add(struct core *c, const struct core_site *site, struct device_at y)
{
    if (scheme_of(c)->add)
        scheme_of(c)->add(c, site, y);
}
