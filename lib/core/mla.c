/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention of one layer (MLA); its formulas: lib/device/host/latent.c. */
#include <math.h>

#include "lib/core/internal.h"

/* 1 / sqrt(key size), and a factor for a context longer than the trained one. */
static float scale_of(const struct model_hparams *h, uint32_t key)
{
    double m = 1;
    if (h->rope_scaling == ROPE_YARN)
        m = kernel_yarn_magnitude((double)h->rope_log_multiplier, (double)h->rope_factor);
    return (float)(m * m / sqrt((double)key));
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What memory is needed for: of each size the largest. */
static void extend(struct device_latent *all, const struct device_latent *m)
{
    all->heads = larger(all->heads, m->heads);
    all->nope = larger(all->nope, m->nope);
    all->rope = larger(all->rope, m->rope);
    all->value = larger(all->value, m->value);
    all->rank = larger(all->rank, m->rank);
    all->key = larger(all->key, m->key);
    all->q_rank = larger(all->q_rank, m->q_rank);
}

int core_check_mla(const struct core *c, struct error *error)
{
    for (uint32_t i = c->first; i < c->end && c->device->lacks_window; i++)
        if (c->model->layer[i].mixer == MIXER_MLA &&
            (c->model->layer[i].attention.window > 0 || core_has(c, i, DENSE_MLA_K_NORM)))
            return error_set(error, ERR_BAD_INPUT,
                             "the device '%s' does not compute MLA over a window, or with a norm "
                             "of rotated keys",
                             c->device->ops->name);
    return 0;
}

void core_mla_sizes(struct core *c, uint32_t i)
{
    const struct model_hparams *h = &c->hp;
    const struct layer_latent m = model_latent_of(h, i);
    struct core_layer *l = &c->layer[i];
    l->mla.shape = (struct device_latent){.heads = m.heads,
                                          .nope = m.key - h->rope_dims,
                                          .rope = h->rope_dims,
                                          .value = m.value,
                                          .rank = m.rank,
                                          .key = m.rank + h->rope_dims,
                                          .q_rank = h->q_rank,
                                          .window = l->attention.window,
                                          .eps = h->latent_eps != 0 ? h->latent_eps : h->rms_eps,
                                          .scale = core_scale_of(c, i, scale_of(h, m.key))};
    l->q_size = l->v_size = 0; /* queries stay in the scratch of a thread, values are keys */
    l->mix_size = m.heads * m.value;
    extend(&c->latent, &l->mla.shape);
}

/* A matrix for each head as one, of the rows of all. */
static struct device_matrix heads_matrix(struct core *c, uint32_t i, enum dense_role role)
{
    struct device_matrix m = core_matrix(c, i, role);
    m.n *= c->layer[i].mla.shape.heads;
    return m;
}

void core_bind_mla(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    if (c->hp.q_rank > 0) {
        l->mla.q_a = core_matrix(c, i, DENSE_ATTN_Q_A);
        l->q = core_matrix(c, i, DENSE_ATTN_Q_B);
        l->mla.query_forms = form_bit(&l->q);
        l->in_forms = form_bit(&l->mla.q_a);
    } else {
        l->q = core_matrix(c, i, DENSE_ATTN_Q);
        l->in_forms = form_bit(&l->q);
    }
    l->mla.kv_a = core_matrix(c, i, DENSE_ATTN_KV_A);
    l->mla.k_b = heads_matrix(c, i, DENSE_ATTN_K_B);
    l->mla.v_b = heads_matrix(c, i, DENSE_ATTN_V_B);
    l->out = core_matrix(c, i, DENSE_ATTN_OUT);
    l->in_forms |= form_bit(&l->mla.kv_a);
    l->mix_forms = form_bit(&l->out);
}

/* None where the layer does not rotate. */
static struct device_at angles_of(const struct core *c, const struct core_layer *l)
{
    return l->attention.rope_dims > 0 ? core_angles(c, l->attention.rope_table)
                                      : (struct device_at){0};
}

/* W_q_a, if there is one, and W_kv_a. */
static void project(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    struct device_product product[2];
    uint32_t count = 0;
    if (l->mla.shape.q_rank > 0)
        product[count++] = (struct device_product){
            .w = l->mla.q_a, .y = c->scratch.query.base[FORM_F32], .y_stride = l->mla.shape.q_rank};
    product[count++] =
        (struct device_product){.w = l->mla.kv_a, .y = c->scratch.k, .y_stride = l->mla.shape.key};
    c->device->ops->products(c->device, &(struct op_products){.rows = c->pass.step.rows,
                                                              .x = c->scratch.in,
                                                              .count = count,
                                                              .product = product});
}

void core_mla(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    project(c);
    const struct op_latent_store store = {.rows = c->pass.step.rows,
                                          .sequences = c->pass.sequence_count,
                                          .row = c->scratch.row,
                                          .sequence = c->pass.at,
                                          .shape = l->mla.shape,
                                          .q_norm = l->mla.q_a_norm,
                                          .kv_norm = l->mla.kv_a_norm,
                                          .k_norm = l->mla.k_norm,
                                          .angle_stride = c->rope_size,
                                          .angles = angles_of(c, l),
                                          .query_forms = l->mla.query_forms,
                                          .query = c->scratch.query,
                                          .kv = c->scratch.k};
    c->device->ops->latent_store(c->device, &store);
    core_index(c);
    const struct op_latent_attention attention = {
        .rows = c->pass.step.rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row,
        .sequence = c->pass.at,
        .shape = l->mla.shape,
        .chosen = core_chosen(c),
        .x = l->mla.shape.q_rank > 0 ? c->scratch.query : c->scratch.in,
        .q = l->q,
        .q_scale = l->q_scale,
        .k_b = l->mla.k_b,
        .v_b = l->mla.v_b,
        .angle_stride = c->rope_size,
        .angles = angles_of(c, l),
        .sinks = l->sinks,
        .mix = c->scratch.mix,
    };
    c->device->ops->latent_attention(c->device, &attention);
    core_attention_output(c);
}
