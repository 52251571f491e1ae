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

/* ---- the schemes ---- */

static const struct scheme schemes[RESIDUAL__COUNT] = {
    [RESIDUAL_SINGLE] = {single_begin, single_read, NULL},
};

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
