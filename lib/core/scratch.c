/* SPDX-License-Identifier: Apache-2.0 */
/* The core's scratch memory: one allocation, laid out once for the chunk in effect. */
#include "lib/core/internal.h"

struct cutter {
    uint8_t *base; /* NULL: only compute sizes */
    size_t at;
};

static void *cut(struct cutter *m, size_t count, size_t bytes)
{
    size_t at = (m->at + 63) / 64 * 64;
    m->at = at + count * bytes;
    return m->base ? m->base + at : NULL;
}

/* Rows of k elements in the given forms. */
static void cut_forms(struct cutter *m, struct form_rows *f, uint32_t forms, uint32_t rows,
                      uint32_t k)
{
    form_rows_set(f, k);
    for (int i = 0; i < FORM__COUNT; i++)
        f->base[i] = forms & (1u << i) ? cut(m, rows, f->stride[i]) : NULL;
}

/* Several rows of logits at once are needed only to score a prompt: a quarter of a megabyte, or a
 * few rows. */
static uint32_t output_rows_for(uint32_t vocab, uint32_t chunk)
{
    uint64_t rows = MIB / 4 / ((uint64_t)vocab * sizeof(float));
    rows = rows < 2 ? 2 : rows > GATHER_ROWS ? GATHER_ROWS : rows;
    return (uint32_t)(rows < chunk ? rows : chunk);
}

/* The forms needed, over all layers. */
struct forms_wanted {
    uint32_t in, mix, last, gather, inner, dense, query, nope, latent;
};

static struct forms_wanted forms_of(const struct core *c)
{
    const uint32_t floats = 1u << FORM_F32;
    struct forms_wanted w = {.in = floats,
                             .mix = floats,
                             .last = floats | c->output_forms,
                             .dense = floats,
                             .query = floats,
                             .latent = floats};
    for (uint32_t i = 0; i < c->hp.layers; i++) {
        const struct core_layer *l = &c->layer[i];
        w.in |= l->in_forms | l->gate_forms | l->expert_forms;
        w.mix |= l->mix_forms;
        w.gather |= l->expert_forms;
        w.dense |= l->dense_forms;
        w.query |= l->query_forms;
        if (l->k_b.data) {
            w.nope |= form_bit(&l->k_b) & ~floats; /* floats: read in place */
            w.latent |= form_bit(&l->v_b);
        }
        w.inner |=
            l->inner_forms & ~floats; /* floats: read in place, where gate and up wrote them */
    }
    return w;
}

static void cut_experts(struct core *c, struct cutter *m, uint32_t chunk)
{
    const struct model_hparams *hp = &c->hp;
    size_t pairs = (size_t)chunk * hp->experts_used;
    /* one expert has at most `chunk` rows, a token at most top-k experts */
    c->inner_rows = chunk > hp->experts_used ? chunk : hp->experts_used;
    c->pair_of = cut(m, pairs, sizeof *c->pair_of);
    c->pair_token = cut(m, pairs, sizeof *c->pair_token);
    c->pair_out = cut(m, pairs * hp->hidden, sizeof(float));
    c->gate = cut(m, (size_t)c->inner_rows * hp->expert_inner, sizeof(float));
    c->up = cut(m, (size_t)c->inner_rows * hp->expert_inner, sizeof(float));
    c->items = cut(m, hp->experts, sizeof *c->items);
    c->queue = cut(m, hp->experts, sizeof *c->queue);
    c->order = cut(m, hp->experts, sizeof *c->order);
    c->pair_base = cut(m, (size_t)hp->experts + 1, sizeof *c->pair_base);
    c->jobs = cut(m, hp->experts, sizeof *c->jobs);
    c->next_counts = cut(m, (size_t)hp->experts * 2, sizeof(float));
    c->importance = cut(m, hp->experts, sizeof(float));
    c->allowed = cut(m, hp->experts, sizeof *c->allowed);
    c->predicted = cut(m, pairs, sizeof *c->predicted);
}

/* One network is computed at a time: the largest decides. */
static void cut_dense(struct core *c, struct cutter *m, uint32_t chunk, uint32_t forms)
{
    uint32_t rows = chunk < GATHER_ROWS ? chunk : GATHER_ROWS;
    uint32_t inner =
        c->hp.shared_inner > c->hp.dense_inner ? c->hp.shared_inner : c->hp.dense_inner;
    if (inner == 0)
        return;
    cut_forms(m, &c->dense, forms, rows, inner);
    c->dense_up = cut(m, (size_t)rows * inner, sizeof(float));
    c->shared_weight = cut(m, rows, sizeof(float));
}

static void cut_mla(struct cutter *m, const struct core_mla *sizes, const struct forms_wanted *want,
                    struct mla_thread *t)
{
    t->q = cut(m, (size_t)MLA_QUERIES * (sizes->nope + sizes->rope), sizeof(float));
    t->key_q = cut(m, (size_t)MLA_QUERIES * sizes->key, sizeof(float));
    cut_forms(m, &t->nope, want->nope, MLA_QUERIES, sizes->nope);
    cut_forms(m, &t->latent, want->latent, MLA_QUERIES, sizes->rank);
}

size_t core_scratch_layout(struct core *c, uint32_t chunk, uint8_t *base)
{
    const struct model_hparams *hp = &c->hp;
    struct cutter m = {.base = base};
    struct forms_wanted want = forms_of(c);
    c->row = cut(&m, chunk, sizeof *c->row);
    c->x = cut(&m, (size_t)chunk * hp->hidden, sizeof(float));
    cut_forms(&m, &c->in, want.in, chunk, hp->hidden);
    cut_forms(&m, &c->mix, want.mix, chunk, c->mix_size);
    c->q = cut(&m, (size_t)chunk * c->q_size, sizeof(float));
    c->gated_q = cut(&m, hp->gated_attention ? (size_t)chunk * 2 * c->q_size : 0, sizeof(float));
    c->k = cut(&m, (size_t)chunk * c->k_size, sizeof(float));
    c->v = cut(&m, (size_t)chunk * c->v_size, sizeof(float));
    c->projected = cut(&m, (size_t)chunk * c->projected_max, sizeof(float));
    c->zeros = cut(&m, c->states > 0 ? model_conv_channels(hp) : 0, sizeof(float));
    if (c->mla.q_rank > 0)
        cut_forms(&m, &c->mla.query, want.query, chunk, c->mla.q_rank);
    c->rows_max = chunk;
    c->rope = cut(&m, (size_t)LAYER_KIND__COUNT * chunk * c->rope_size, sizeof(float));
    c->router_logits = cut(&m, (size_t)chunk * hp->experts, sizeof(float));
    c->routes = cut(&m, (size_t)chunk * hp->experts_used, sizeof *c->routes);
    cut_experts(c, &m, chunk);
    c->ones = cut(&m, hp->hidden, sizeof(float));
    c->roots = cut(&m, hp->hidden, sizeof(float));
    if (c->two_ffn_parts) {
        c->sum = cut(&m, (size_t)chunk * hp->hidden, sizeof(float));
        c->experts_sum = cut(&m, (size_t)chunk * hp->hidden, sizeof(float));
    }
    c->y = c->pair_out; /* attention and the dense network end before experts begin */
    cut_dense(c, &m, chunk, want.dense);
    c->output_rows = output_rows_for(hp->vocab, chunk);
    c->logits = cut(&m, (size_t)c->output_rows * hp->vocab, sizeof(float));
    cut_forms(&m, &c->last, want.last, c->output_rows, hp->hidden);
    for (uint32_t t = 0; t < c->threads; t++) {
        struct core_thread *thread = &c->thread[t];
        uint32_t rows = chunk < GATHER_ROWS ? chunk : GATHER_ROWS;
        cut_forms(&m, &thread->gather, want.gather, rows, hp->hidden);
        cut_forms(&m, &thread->inner, want.inner, rows, hp->expert_inner);
        if (c->mla.key > 0)
            cut_mla(&m, &c->mla, &want, &thread->mla);
        thread->router = cut(&m, ROUTING_SCRATCH(hp->experts) + hp->experts, sizeof(float));
    }
    return (m.at + 63) / 64 * 64;
}
