/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of each layer: addresses of its matrices, copies of its vectors, and the forms of
 * activations that its parts read. */
#include <math.h>
#include <string.h>

#include "lib/core/internal.h"
#include "lib/tensor/tensor_type.h"

static const struct model_tensor *tensor_of(const struct core *c, uint32_t entry, uint32_t extent)
{
    return &model_index_tensors(
        c->model)[model_index_entries(c->model)[entry].extent[extent].tensor];
}

/* All rows, of a tensor of matrices those of all. */
static struct kernel_matrix matrix_of(const struct model_tensor *t, const void *data)
{
    return (struct kernel_matrix){.data = data,
                                  .row_bytes = t->row_bytes,
                                  .k = (uint32_t)t->ne[0],
                                  .n = (uint32_t)(t->bytes / t->row_bytes),
                                  .type = (enum tensor_type)t->type};
}

bool core_has(const struct core *c, uint32_t layer, enum dense_role role)
{
    uint32_t entry = model_entry_dense(c->model, layer, role);
    return entry != ENTRY_NONE && model_part_reads(c->model, c->first, c->end, entry);
}

struct device_matrix core_matrix(struct core *c, uint32_t layer, enum dense_role role)
{
    sl_assert(core_has(c, layer, role));
    uint32_t entry = model_entry_dense(c->model, layer, role);
    const struct model_tensor *t = tensor_of(c, entry, 0);
    const struct kernel_matrix all = matrix_of(t, c->source.dense(c->source.self, entry));
    struct device_matrix m = device_weights(c->device, &all);
    m.n = (uint32_t)t->ne[1];
    return m;
}

/* Vectors of a layer and their fields. A model has those that its architecture names, and of two
 * with the same field at most one. */
static const struct {
    enum dense_role role;
    size_t field; /* offset of a struct device_at in struct core_layer */
} layer_vectors[] = {
    {DENSE_MIXER_STREAM_NORM, offsetof(struct core_layer, mixer_site.norm)},
    {DENSE_FFN_STREAM_NORM, offsetof(struct core_layer, ffn_site.norm)},
    {DENSE_MIXER_BANK_SCORE, offsetof(struct core_layer, mixer_site.score)},
    {DENSE_FFN_BANK_SCORE, offsetof(struct core_layer, ffn_site.score)},
    {DENSE_LATENT_NORM, offsetof(struct core_layer, latent_norm)},
    {DENSE_NGRAM_KEY_NORM, offsetof(struct core_layer, ngrams.key_norm)},
    {DENSE_NGRAM_QUERY_NORM, offsetof(struct core_layer, ngrams.query_norm)},
    {DENSE_NGRAM_CONV_NORM, offsetof(struct core_layer, ngrams.conv_norm)},
    {DENSE_MIXER_MIX_SCALE, offsetof(struct core_layer, mixer_site.mix_scale)},
    {DENSE_MIXER_MIX_BASE, offsetof(struct core_layer, mixer_site.mix_base)},
    {DENSE_FFN_MIX_SCALE, offsetof(struct core_layer, ffn_site.mix_scale)},
    {DENSE_FFN_MIX_BASE, offsetof(struct core_layer, ffn_site.mix_base)},
    {DENSE_ATTN_NORM, offsetof(struct core_layer, mixer_site.norm)},
    {DENSE_FFN_NORM, offsetof(struct core_layer, ffn_site.norm)},
    {DENSE_ATTN_NORM_BIAS, offsetof(struct core_layer, mixer_site.norm_bias)},
    {DENSE_FFN_NORM_BIAS, offsetof(struct core_layer, ffn_site.norm_bias)},
    {DENSE_ATTN_Q_NORM, offsetof(struct core_layer, attn.q_norm)},
    {DENSE_ATTN_K_NORM, offsetof(struct core_layer, attn.k_norm)},
    {DENSE_ROUTER_BIAS, offsetof(struct core_layer, router_bias)},
    {DENSE_ATTN_Q_BIAS, offsetof(struct core_layer, attn.q_bias)},
    {DENSE_ATTN_K_BIAS, offsetof(struct core_layer, attn.k_bias)},
    {DENSE_ATTN_V_BIAS, offsetof(struct core_layer, attn.v_bias)},
    {DENSE_ATTN_OUT_BIAS, offsetof(struct core_layer, out_bias)},
    {DENSE_ROUTER_LOGIT_BIAS, offsetof(struct core_layer, logit_bias)},
    {DENSE_ATTN_SINKS, offsetof(struct core_layer, sinks)},
    {DENSE_ATTN_POST_NORM, offsetof(struct core_layer, attn_post_norm)},
    {DENSE_ATTN_Q_A_NORM, offsetof(struct core_layer, mla.q_a_norm)},
    {DENSE_ATTN_KV_A_NORM, offsetof(struct core_layer, mla.kv_a_norm)},
    {DENSE_MLA_K_NORM, offsetof(struct core_layer, mla.k_norm)},
    {DENSE_INDEX_Q_NORM, offsetof(struct core_layer, index.q_norm)},
    {DENSE_INDEX_K_NORM, offsetof(struct core_layer, index.k_norm)},
    {DENSE_INDEX_K_NORM_BIAS, offsetof(struct core_layer, index.k_norm_bias)},
    {DENSE_INDEX_GATE_BIAS, offsetof(struct core_layer, index.gate_bias)},
    {DENSE_ATTN_QKV_SCALE, offsetof(struct core_layer, q_scale)},
    {DENSE_ATTN_Q_SCALE, offsetof(struct core_layer, q_scale)},
    {DENSE_ATTN_K_SCALE, offsetof(struct core_layer, attn.k_scale)},
    {DENSE_ATTN_V_SCALE, offsetof(struct core_layer, attn.v_scale)},
    {DENSE_ATTN_OUT_SCALE, offsetof(struct core_layer, out_scale)},
    {DENSE_ATTN_GATE_SCALE, offsetof(struct core_layer, gate_scale)},
    {DENSE_DELTA_DT, offsetof(struct core_layer, recurrent.delta_dt)},
    {DENSE_DELTA_A, offsetof(struct core_layer, recurrent.delta_a)},
    {DENSE_DELTA_NORM, offsetof(struct core_layer, recurrent.delta_norm)},
    {DENSE_DELTA_QKV_SCALE, offsetof(struct core_layer, recurrent.project_scale[0])},
    {DENSE_DELTA_GATE_SCALE, offsetof(struct core_layer, recurrent.project_scale[1])},
    {DENSE_DELTA_BETA_SCALE, offsetof(struct core_layer, recurrent.project_scale[2])},
    {DENSE_DELTA_ALPHA_SCALE, offsetof(struct core_layer, recurrent.project_scale[3])},
    {DENSE_DELTA_OUT_SCALE, offsetof(struct core_layer, out_scale)},
    {DENSE_MAMBA_IN_SCALE, offsetof(struct core_layer, recurrent.project_scale[0])},
    {DENSE_MAMBA_STEP_NORM, offsetof(struct core_layer, recurrent.step_norm)},
    {DENSE_MAMBA_K_NORM, offsetof(struct core_layer, recurrent.k_norm)},
    {DENSE_MAMBA_Q_NORM, offsetof(struct core_layer, recurrent.q_norm)},
    {DENSE_CONV_BIAS, offsetof(struct core_layer, recurrent.conv_bias)},
    {DENSE_RECURRENT_D, offsetof(struct core_layer, recurrent.skip)},
    {DENSE_LATENT_DOWN_SCALE, offsetof(struct core_layer, latent_down_scale)},
    {DENSE_LATENT_UP_SCALE, offsetof(struct core_layer, latent_up_scale)},
    {DENSE_FFN_GATE_SCALE, offsetof(struct core_layer, dense_scale[EXPERT_GATE])},
    {DENSE_FFN_UP_SCALE, offsetof(struct core_layer, dense_scale[EXPERT_UP])},
    {DENSE_FFN_DOWN_SCALE, offsetof(struct core_layer, dense_scale[EXPERT_DOWN])},
    {DENSE_SHARED_GATE_SCALE, offsetof(struct core_layer, dense_scale[EXPERT_GATE])},
    {DENSE_SHARED_UP_SCALE, offsetof(struct core_layer, dense_scale[EXPERT_UP])},
    {DENSE_SHARED_DOWN_SCALE, offsetof(struct core_layer, dense_scale[EXPERT_DOWN])},
    {DENSE_EXPERT_GATE_SCALES, offsetof(struct core_layer, expert_scales[EXPERT_GATE])},
    {DENSE_EXPERT_UP_SCALES, offsetof(struct core_layer, expert_scales[EXPERT_UP])},
    {DENSE_EXPERT_DOWN_SCALES, offsetof(struct core_layer, expert_scales[EXPERT_DOWN])},
    {DENSE_FFN_POST_NORM, offsetof(struct core_layer, ffn_post_norm)},
    {DENSE_DENSE_POST_NORM, offsetof(struct core_layer, dense_post_norm)},
    {DENSE_EXPERTS_NORM, offsetof(struct core_layer, experts_norm)},
    {DENSE_EXPERTS_POST_NORM, offsetof(struct core_layer, experts_post_norm)},
    {DENSE_ROUTER_SCALE, offsetof(struct core_layer, router_scale)},
    {DENSE_LAYER_SCALE, offsetof(struct core_layer, layer_scale)},
};

struct device_at core_take(struct core *c, uint64_t *at, size_t n)
{
    struct device_at taken = device_floats_at(c->vectors, *at);
    *at += n;
    return taken;
}

/* Vectors are copied: they are small, used everywhere, and unaligned in the file. */
struct device_at core_vector(struct core *c, uint32_t layer, enum dense_role role, uint64_t *at)
{
    if (!core_has(c, layer, role))
        return (struct device_at){0};
    struct op_unpack unpack = {.w = core_matrix(c, layer, role), .stride = 1};
    unpack.row_stride = unpack.w.k; /* the weights of some norms are in groups */
    unpack.y = core_take(c, at, (size_t)unpack.w.k * unpack.w.n);
    c->device->ops->unpack(c->device, &unpack);
    return unpack.y;
}

/* The biases of all experts stay where they are if they are floats already, aligned as tensors of a
 * file are; else they are copied. */
static const enum dense_role expert_biases[EXPERT__COUNT] = {
    DENSE_EXPERT_GATE_BIAS, DENSE_EXPERT_UP_BIAS, DENSE_EXPERT_DOWN_BIAS};

static struct device_at expert_bias(struct core *c, uint32_t layer, enum dense_role role,
                                    uint64_t *at)
{
    if (!core_has(c, layer, role))
        return (struct device_at){0};
    struct op_unpack unpack = {.w = core_matrix(c, layer, role), .stride = 1};
    if (unpack.w.type == TENSOR_F32) {
        sl_assert(unpack.w.data.address % _Alignof(float) == 0);
        return unpack.w.data;
    }
    unpack.row_stride = unpack.w.k;
    unpack.y = core_take(c, at, (size_t)unpack.w.k * unpack.w.n);
    c->device->ops->unpack(c->device, &unpack);
    return unpack.y;
}

/* Vectors of the whole model, and the matrices that are copied as vectors are. */
static const enum dense_role model_vectors[] = {
    DENSE_ROPE_FREQS,        DENSE_OUTPUT_NORM,      DENSE_OUTPUT_SCALE,
    DENSE_OUTPUT_NORM_BIAS,  DENSE_OUTPUT_BIAS,      DENSE_OUTPUT_STREAM_NORM,
    DENSE_OUTPUT_BANK_SCORE, DENSE_OUTPUT_MIX_SCALE, DENSE_OUTPUT_MIX_BASE};
static const enum dense_role layer_turned[] = {
    DENSE_DELTA_CONV, DENSE_SHORTCONV_CONV, DENSE_NGRAM_CONV, DENSE_KDA_Q_CONV,
    DENSE_KDA_K_CONV, DENSE_KDA_V_CONV,     DENSE_MAMBA_A};

size_t core_floats_of(const struct core *c, uint32_t layer, enum dense_role role)
{
    if (!core_has(c, layer, role))
        return 0;
    const struct model_tensor *t = tensor_of(c, model_entry_dense(c->model, layer, role), 0);
    return (size_t)(t->ne[0] * t->ne[1] * t->ne[2]);
}

static size_t copied_bias_floats(const struct core *c, uint32_t layer, enum dense_role role)
{
    size_t floats = core_floats_of(c, layer, role);
    bool there =
        floats > 0 && tensor_of(c, model_entry_dense(c->model, layer, role), 0)->type == TENSOR_F32;
    return there ? 0 : floats;
}

size_t core_vector_floats(const struct core *c)
{
    uint32_t layers = c->hp.layers;
    size_t floats = 2 * (size_t)c->hp.delta_size + core_fixed_floats(c);
    for (size_t i = 0; i < ARRAY_LEN(model_vectors); i++)
        floats += core_floats_of(c, layers, model_vectors[i]);
    for (uint32_t layer = 0; layer < layers; layer++) {
        floats += core_entries_floats(c, layer);
        for (size_t i = 0; i < ARRAY_LEN(layer_vectors); i++)
            floats += core_floats_of(c, layer, layer_vectors[i].role);
        for (size_t i = 0; i < ARRAY_LEN(layer_turned); i++)
            floats += core_floats_of(c, layer, layer_turned[i]);
        for (size_t i = 0; i < ARRAY_LEN(expert_biases); i++)
            floats += copied_bias_floats(c, layer, expert_biases[i]);
    }
    return floats;
}

/* Experts of a layer may differ in type and in page alignment. */
static void bind_experts(struct core *c, uint32_t layer)
{
    struct core_layer *l = &c->layer[layer];
    for (uint32_t i = c->model->dense_count; i < model_experts_end(c->model); i++) {
        const struct model_entry *e = &model_index_entries(c->model)[i];
        if (e->layer != layer)
            continue;
        if (e->slot_bytes > c->expert_slot_bytes[layer])
            c->expert_slot_bytes[layer] = e->slot_bytes;
        l->expert_forms |= 1u << kernel_form_of((enum tensor_type)e->matrix[EXPERT_GATE].type);
        if (e->matrix[EXPERT_UP].n > 0)
            l->expert_forms |= 1u << kernel_form_of((enum tensor_type)e->matrix[EXPERT_UP].type);
        l->inner_forms |= 1u << kernel_form_of((enum tensor_type)e->matrix[EXPERT_DOWN].type);
    }
}

static void bind_more_types(struct core *c, const struct core_config *config)
{
    uint32_t forms = 0;
    for (size_t i = 0; i < config->expert_type_count; i++)
        forms |= 1u << kernel_form_of(config->expert_types[i]);
    for (uint32_t i = c->first; i < c->end; i++) {
        c->layer[i].expert_forms |= forms;
        c->layer[i].inner_forms |= forms;
        c->layer[i].gate_forms |= forms;
    }
}

/* Rows of a matrix of several. */
static struct device_matrix rows_of(const struct device_matrix *all, uint32_t first, uint32_t n)
{
    struct device_matrix m = *all;
    m.data = device_offset(all->data, first * all->row_bytes);
    m.n = n;
    return m;
}

/* Gate and up in one matrix, the rows of gate first: the file has no gate of its own. */
static void bind_joined(struct core_layer *l)
{
    const struct device_matrix all = l->dense[EXPERT_UP];
    l->dense[EXPERT_GATE] = rows_of(&all, 0, all.n / 2);
    l->dense[EXPERT_UP] = rows_of(&all, all.n / 2, all.n / 2);
    l->dense_scale[EXPERT_GATE] = l->dense_scale[EXPERT_UP];
}

/* The network that every token uses: of a layer without experts, or the shared expert. */
static void bind_dense(struct core *c, uint32_t i, const enum dense_role roles[EXPERT__COUNT])
{
    struct core_layer *l = &c->layer[i];
    for (int m = 0; m < EXPERT__COUNT; m++)
        if (core_has(c, i, roles[m]))
            l->dense[m] = core_matrix(c, i, roles[m]);
    if (l->dense[EXPERT_UP].n == 2 * l->dense[EXPERT_DOWN].k)
        bind_joined(l);
    l->gate_forms |= form_bit(&l->dense[EXPERT_GATE]);
    if (l->dense[EXPERT_UP].n > 0)
        l->gate_forms |= form_bit(&l->dense[EXPERT_UP]);
    l->dense_forms = form_bit(&l->dense[EXPERT_DOWN]);
}

/* Of the table of tensors: no bytes are asked for, which the source gives once. */
static uint32_t router_form(const struct core *c, uint32_t layer)
{
    if (!core_has(c, layer, DENSE_ROUTER))
        return 0;
    uint32_t entry = model_entry_dense(c->model, layer, DENSE_ROUTER);
    return 1u << kernel_form_of((enum tensor_type)tensor_of(c, entry, 0)->type);
}

static void bind_experts_step(struct core *c, uint32_t i, uint64_t *vectors)
{
    static const enum dense_role roles[EXPERT__COUNT] = {DENSE_SHARED_GATE, DENSE_SHARED_UP,
                                                         DENSE_SHARED_DOWN};
    struct core_layer *l = &c->layer[i];
    l->router = core_matrix(c, i, DENSE_ROUTER);
    for (int m = 0; m < EXPERT__COUNT; m++)
        l->expert_bias[m] = expert_bias(c, i, expert_biases[m], vectors);
    l->routing = model_router_of(&c->hp, NULL);
    bind_experts(c, i);
    if (c->hp.shared_inner > 0)
        bind_dense(c, i, roles);
    if (core_has(c, i, DENSE_SHARED_ROUTER)) {
        l->shared_router = core_matrix(c, i, DENSE_SHARED_ROUTER);
        l->gate_forms |= form_bit(&l->shared_router);
    }
    l->router_forms = router_form(c, i);
    l->router_forms |= router_form(c, hparams_next_experts(&c->hp, i + 1)); /* to predict */
    l->gate_forms |= l->router_forms;
    if (c->hp.expert_width > 0) {
        l->latent_down = core_matrix(c, i, DENSE_LATENT_DOWN);
        l->latent_up = core_matrix(c, i, DENSE_LATENT_UP);
        l->gate_forms |= form_bit(&l->latent_down);
    } else if (!l->experts_norm.address && !core_expert_inputs(c)) { /* one norm for both */
        l->gate_forms |= l->expert_forms;
    }
}

static void bind_qkv(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    if (core_has(c, i, DENSE_ATTN_QKV)) {
        struct device_matrix all = core_matrix(c, i, DENSE_ATTN_QKV);
        l->attn.k_scale = l->attn.v_scale = l->q_scale;
        l->q = rows_of(&all, 0, l->q_size);
        l->attn.k = rows_of(&all, l->q_size, l->k_size);
        l->attn.v = rows_of(&all, l->q_size + l->k_size, l->v_size);
        return;
    }
    l->q = core_matrix(c, i, DENSE_ATTN_Q);
    l->attn.k = core_matrix(c, i, DENSE_ATTN_K);
    if (core_has(c, i, DENSE_ATTN_V))
        l->attn.v = core_matrix(c, i, DENSE_ATTN_V);
    sl_assert(l->attn.v.data.address || l->v_size == l->k_size);
}

static void bind_attention(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    sl_assert(c->hp.qk_norm != QK_NORM_ROW ||
              (!l->attn.q_bias.address &&
               !l->attn.k_bias.address)); /* the order of bias and norm is undefined */
    bind_qkv(c, i);
    l->out = core_matrix(c, i, DENSE_ATTN_OUT);
    l->in_forms = form_bit(&l->q) | form_bit(&l->attn.k) | form_bit(&l->attn.v);
    l->mix_forms = form_bit(&l->out);
}

/* Gates with a matrix of their own. */
static void bind_gates(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    if (!core_has(c, i, DENSE_ATTN_GATE))
        return;
    l->gate = core_matrix(c, i, DENSE_ATTN_GATE);
    l->in_forms |= form_bit(&l->gate);
}

/* Of the scores of a layer. */
struct device_scale core_scale_of(const struct core *c, uint32_t i, float base)
{
    const struct model_hparams *h = &c->hp;
    return (struct device_scale){.base = base,
                                 .growth =
                                     c->layer[i].attention.scaled_queries ? h->query_scale : 0,
                                 .context = h->query_context,
                                 .first = h->query_first};
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* A norm without weights has those of core_attention. */
static enum qk_norm norm_of_heads(const struct core *c, const struct layer_attention *a)
{
    if (c->hp.qk_norm != QK_NORM_ROTATED)
        return (enum qk_norm)c->hp.qk_norm;
    return a->rope_dims > 0 ? QK_NORM_HEAD_AFTER : QK_NORM_NONE;
}

static struct device_heads heads_of(const struct core *c, uint32_t i)
{
    const struct layer_attention *a = &c->layer[i].attention;
    float base = a->scale != 0 ? a->scale : 1.0f / sqrtf((float)a->key_size);
    return (struct device_heads){
        .qk_norm = norm_of_heads(c, a),
        .rope_kind = (enum rope_kind)c->hp.rope_kind,
        .v_norm = c->hp.v_norm != 0,
        .eps = c->hp.rms_eps,
        .clamp = c->hp.clamp_qkv,
        .scale = core_scale_of(c, i, base),
        .cap = c->hp.score_cap,
    };
}

/* Sizes of attention of a layer, of the largest layer, and the rotations. */
static void bind_sizes(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    struct layer_attention *a = &l->attention;
    *a = c->model->layer[i].attention;
    l->q_size = a->heads * a->key_size;
    l->k_size = a->kv_heads * a->key_size;
    l->v_size = a->kv_heads * a->value_size;
    l->mix_size = a->heads * a->value_size;
    if (c->model->layer[i].mixer == MIXER_MLA)
        core_mla_sizes(c, i);
    else if (c->model->layer[i].mixer == MIXER_ENTRIES)
        core_entries_sizes(c, i);
    else
        l->attn.heads = heads_of(c, i);
    c->q_size = larger(c->q_size, l->q_size);
    c->k_size = larger(c->k_size, l->k_size);
    c->v_size = larger(c->v_size, l->v_size);
    c->mix_size = larger(c->mix_size, l->mix_size);
    c->gate_size = larger(c->gate_size, model_gates_of(a, l->mix_size / a->heads).floats);
    c->rope_size = larger(c->rope_size, a->rope_dims);
    if (a->rope_dims != 0) {
        c->rope_has_factors[a->rope_table] =
            a->rope_table != LAYER_WINDOW || model_full_unrotated(&c->hp);
        c->ropes[a->rope_table] =
            core_rope_of(&c->hp, (enum layer_kind)a->rope_table, a->rope_dims);
    }
}

static void bind_mixer(struct core *c, uint32_t i, uint64_t *vectors)
{
    switch ((enum layer_mixer)c->model->layer[i].mixer) {
    case MIXER_ATTENTION:
        bind_sizes(c, i);
        bind_attention(c, i);
        core_bind_index(c, i);
        bind_gates(c, i);
        return;
    case MIXER_MLA:
        bind_sizes(c, i);
        core_bind_mla(c, i);
        core_bind_index(c, i);
        bind_gates(c, i);
        return;
    case MIXER_ENTRIES:
        bind_sizes(c, i);
        core_bind_entries(c, i, vectors);
        return;
    case MIXER_NONE: return;
    default: core_bind_recurrent(c, i, vectors);
    }
}

/* The L2 norm of q and k is an RMSNorm with these weights; that of q has its factor, too. */
static void bind_delta_weights(struct core *c, uint64_t *vectors)
{
    uint32_t size = c->hp.delta_size;
    float weight[KERNEL_HEAD_SIZE_MAX];
    if (size == 0)
        return;
    sl_assert(size <= KERNEL_HEAD_SIZE_MAX);
    c->delta_q_weight = core_take(c, vectors, size);
    c->delta_k_weight = core_take(c, vectors, size);
    for (uint32_t i = 0; i < size; i++)
        weight[i] = 1.0f / (float)size;
    c->device->ops->write(c->device, c->delta_q_weight, weight, size * sizeof *weight);
    for (uint32_t i = 0; i < size; i++)
        weight[i] = 1.0f / sqrtf((float)size);
    c->device->ops->write(c->device, c->delta_k_weight, weight, size * sizeof *weight);
}

static void bind_vectors(struct core *c, uint32_t i, uint64_t *vectors)
{
    struct core_layer *l = &c->layer[i];
    for (size_t v = 0; v < ARRAY_LEN(layer_vectors); v++) {
        struct device_at vector = core_vector(c, i, layer_vectors[v].role, vectors);
        if (vector.address)
            memcpy((char *)l + layer_vectors[v].field, &vector, sizeof vector);
    }
}

/* Of the next layer with experts after those of the core: what predicts its experts. */
static void bind_next(struct core *c, uint64_t *vectors)
{
    uint32_t i = hparams_next_experts(&c->hp, c->end);
    if (i == c->hp.layers || !core_has(c, i, DENSE_ROUTER))
        return;
    bind_vectors(c, i, vectors);
    c->layer[i].router = core_matrix(c, i, DENSE_ROUTER);
    c->layer[i].routing = model_router_of(&c->hp, NULL);
}

static void bind_layer(struct core *c, uint32_t i, uint64_t *vectors)
{
    bind_vectors(c, i, vectors);
    core_bind_sites(c, i);
    core_bind_ngrams(c, i, vectors);
    bind_mixer(c, i, vectors);
    if (model_layer_has_experts(c->model, i))
        bind_experts_step(c, i, vectors);
    c->ffn_sums |= core_has(c, i, DENSE_FFN_POST_NORM) || c->hp.streams > 1;
    c->two_ffn_parts |= c->model->layer[i].ffn == FFN_DENSE_AND_EXPERTS;
    c->early_experts |= c->model->layer[i].ffn == FFN_DENSE_THEN_EXPERTS;
    if (ffn_has_dense((enum layer_ffn)c->model->layer[i].ffn))
        bind_dense(c, i, (const enum dense_role[]){DENSE_FFN_GATE, DENSE_FFN_UP, DENSE_FFN_DOWN});
}

/* Divisors of angles are values of the file, and infinity is one: an angle that does not turn. */
static int check_rope_factors(struct core *c, struct error *error)
{
    float factor = 1; /* of a device without memory (needs.c) */
    uint32_t count = core_has(c, c->hp.layers, DENSE_ROPE_FREQS)
                         ? core_matrix(c, c->hp.layers, DENSE_ROPE_FREQS).k
                         : 0;
    for (uint32_t i = 0; i < count; i++) {
        c->device->ops->read(c->device, device_floats_at(c->rope_factors, i), &factor,
                             sizeof factor);
        if (!(factor > 0)) /* NaN included */
            return error_set(
                error, ERR_BAD_INPUT, "divisor %u of the rotary angles (%s) is %g, must be above 0",
                i,
                tensor_of(c, model_entry_dense(c->model, c->hp.layers, DENSE_ROPE_FREQS), 0)->name,
                (double)factor);
    }
    return 0;
}

static int check_type(const struct core *c, enum tensor_type type, struct error *error)
{
    if (c->device->ops->computes(c->device, type))
        return 0;
    return error_set(error, ERR_BAD_INPUT, "the device '%s' does not compute with %s",
                     c->device->ops->name, tensor_type_info((uint32_t)type)->name);
}

/* The device computes with every type that these layers have, or that the source may serve. */
static int check_types(const struct core *c, const struct core_config *config, struct error *error)
{
    for (uint32_t i = 0; i < model_experts_end(c->model); i++) {
        const struct model_entry *e = &model_index_entries(c->model)[i];
        bool dense = i < c->model->dense_count;
        if (dense ? !model_part_reads(c->model, c->first, c->end, i)
                  : e->layer < c->first || e->layer >= c->end)
            continue;
        for (uint32_t m = 0; e->extents > 0 && m < (dense ? 1u : EXPERT__COUNT); m++) {
            uint32_t type = dense ? tensor_of(c, i, 0)->type : e->matrix[m].type;
            if (check_type(c, (enum tensor_type)type, error) != 0)
                return -1;
        }
    }
    for (size_t i = 0; i < config->expert_type_count; i++)
        if (check_type(c, config->expert_types[i], error) != 0)
            return -1;
    return 0;
}

/* After the last layer. */
static void bind_output(struct core *c, uint64_t *vectors)
{
    uint32_t globals = c->hp.layers;
    c->output = core_matrix(c, globals,
                            core_has(c, globals, DENSE_OUTPUT) ? DENSE_OUTPUT : DENSE_TOKEN_EMBD);
    c->output_site.norm = core_vector(c, globals, DENSE_OUTPUT_NORM, vectors);
    if (c->hp.residual == RESIDUAL_GATED)
        c->output_site.norm = core_vector(c, globals, DENSE_OUTPUT_STREAM_NORM, vectors);
    c->output_site.score = core_vector(c, globals, DENSE_OUTPUT_BANK_SCORE, vectors);
    c->output_site.mix_scale = core_vector(c, globals, DENSE_OUTPUT_MIX_SCALE, vectors);
    c->output_site.mix_base = core_vector(c, globals, DENSE_OUTPUT_MIX_BASE, vectors);
    core_bind_sites(c, globals);
    c->output_scale = core_vector(c, globals, DENSE_OUTPUT_SCALE, vectors);
    c->output_site.norm_bias = core_vector(c, globals, DENSE_OUTPUT_NORM_BIAS, vectors);
    c->output_bias = core_vector(c, globals, DENSE_OUTPUT_BIAS, vectors);
    c->output_forms = form_bit(&c->output);
}

int core_bind(struct core *c, const struct core_config *config, struct error *error)
{
    uint32_t globals = c->hp.layers;
    uint64_t vectors = 0;
    if (check_types(c, config, error) != 0 || core_check_ngrams(c, error) != 0 ||
        core_check_index(c, error) != 0 || core_check_mixed(c, error) != 0 ||
        core_check_mla(c, error) != 0 || core_check_entries(c, error) != 0)
        return -1;
    c->rope_factors = core_vector(c, globals, DENSE_ROPE_FREQS, &vectors);
    for (uint32_t i = c->first; i < c->end; i++)
        bind_layer(c, i, &vectors);
    bind_next(c, &vectors);
    bind_delta_weights(c, &vectors);
    core_bind_table(c);
    if (c->first == 0)
        c->embedding = core_matrix(c, globals, DENSE_TOKEN_EMBD);
    if (c->end == globals)
        bind_output(c, &vectors);
    sl_assert(vectors == core_vector_floats(c));
    bind_more_types(c, config);
    return core_bind_tables(c, error) != 0 ? -1 : check_rope_factors(c, error);
}
