/* SPDX-License-Identifier: Apache-2.0 */
/* The core's scratch memory: one allocation on the device and one of the host, laid out once for
 * the chunk in effect. */
#include "lib/core/internal.h"

struct cutter {
    uint64_t base; /* 0: only compute sizes */
    size_t at;
};

struct layout {
    struct cutter device, host;
    bool results; /* of the device have a copy on the host */
};

uint32_t core_ones(const struct model_hparams *h)
{
    uint32_t sizes[] = {h->head_size, h->head_size_window, h->value_size, h->value_size_window,
                        h->residual == RESIDUAL_MIXED ? model_residual_floats(h) : 0};
    uint32_t most = h->hidden;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        most = sizes[i] > most ? sizes[i] : most;
    return most;
}

static uint64_t cut(struct cutter *m, size_t count, size_t bytes)
{
    size_t at = (m->at + 63) / 64 * 64;
    m->at = at + count * bytes;
    return m->base ? m->base + at : 0;
}

static struct device_at cut_device(struct layout *m, size_t count, size_t bytes)
{
    return (struct device_at){cut(&m->device, count, bytes)};
}

static struct device_at cut_floats(struct layout *m, size_t count)
{
    return cut_device(m, count, sizeof(float));
}

static void *cut_host(struct layout *m, size_t count, size_t bytes)
{
    return (void *)(uintptr_t)cut(&m->host, count, bytes);
}

static struct device_result cut_result(struct layout *m, size_t count, size_t bytes)
{
    return (struct device_result){cut_device(m, count, bytes),
                                  m->results ? cut_host(m, count, bytes) : NULL};
}

/* Rows of k elements in the given forms. */
static void cut_rows(struct layout *m, struct device_rows *r, uint32_t forms, uint32_t rows,
                     uint32_t k)
{
    device_rows_set(r, k);
    for (int i = 0; i < FORM__COUNT; i++)
        r->base[i] = forms & (1u << i) ? cut_device(m, rows, r->stride[i]) : (struct device_at){0};
}

/* Several rows of logits at once are needed only to score a prompt: a quarter of a megabyte, or a
 * few rows. Offline tools score all rows and give more: the output matrix is read once for them. */
static uint32_t output_rows_for(const struct core *c, uint32_t chunk)
{
    uint64_t bytes = c->output_bytes > MIB / 4 ? c->output_bytes : MIB / 4;
    uint64_t rows = bytes / ((uint64_t)c->hp.vocab * sizeof(float));
    rows = rows < 2 ? 2 : rows > DEVICE_BLOCK_ROWS ? DEVICE_BLOCK_ROWS : rows;
    return (uint32_t)(rows < chunk ? rows : chunk);
}

/* The forms needed, over all layers. */
struct forms_wanted {
    uint32_t in, mix, early, last, gather, inner, dense, query, nope, latent, sum, factored,
        streams, rank, ngrams, groups;
};

static struct forms_wanted forms_of(const struct core *c)
{
    const uint32_t floats = 1u << FORM_F32;
    struct forms_wanted w = {.in = floats,
                             .mix = floats,
                             .early = floats,
                             .last = floats | c->output_forms,
                             .dense = floats,
                             .query = floats,
                             .latent = floats,
                             .sum = floats,
                             .factored = floats,
                             .streams = floats | c->output_site.stream_forms,
                             .rank = floats | c->output_site.up_forms,
                             .ngrams = floats,
                             .groups = floats};
    for (uint32_t i = 0; i < c->hp.layers; i++) {
        const struct core_layer *l = &c->layer[i];
        w.in |= l->in_forms | l->gate_forms | l->expert_forms;
        w.early |= l->router_forms | l->expert_forms;
        w.sum |= l->latent_up.n > 0 ? form_bit(&l->latent_up) : 0;
        w.mix |= l->mix_forms;
        w.streams |= l->mixer_site.stream_forms | l->ffn_site.stream_forms;
        w.rank |= l->mixer_site.up_forms | l->ffn_site.up_forms;
        w.ngrams |= l->ngrams.forms;
        w.gather |= l->expert_forms;
        w.dense |= l->dense_forms;
        if (c->model->layer[i].mixer == MIXER_ENTRIES && l->q.data.address) {
            w.query |= l->mla.query_forms;
            w.groups |= form_bit(&l->entries.groups);
        }
        if (c->model->layer[i].mixer == MIXER_MLA && l->q.data.address) {
            w.query |= l->mla.query_forms;
            w.nope |= form_bit(&l->mla.k_b) & ~floats; /* floats: read in place */
            w.latent |= form_bit(&l->mla.v_b);
        }
        if (c->hp.layer_kind[i] == LAYER_RECURRENT) {
            w.factored |= l->recurrent.second_forms;
            w.mix |= l->recurrent.select_forms;
        }
        w.inner |=
            l->inner_forms & ~floats; /* floats: read in place, where gate and up wrote them */
    }
    return w;
}

static void cut_experts(struct core *c, struct layout *m, uint32_t chunk)
{
    const struct model_hparams *hp = &c->hp;
    size_t pairs = (size_t)chunk * hp->experts_used, items = (size_t)hp->experts * c->forms;
    /* one expert has at most `chunk` rows, a token at most top-k experts */
    c->scratch.inner_rows = chunk > hp->experts_used ? chunk : hp->experts_used;
    c->scratch.pair_of = cut_host(m, pairs, sizeof *c->scratch.pair_of);
    c->scratch.pair_row = cut_host(m, pairs, sizeof *c->scratch.pair_row);
    c->scratch.item_of = cut_host(m, pairs, sizeof *c->scratch.item_of);
    c->scratch.terms = cut_host(m, pairs, sizeof *c->scratch.terms);
    size_t outputs = pairs * hparams_expert_width(hp), hidden = (size_t)chunk * hp->hidden;
    c->scratch.pair_out = cut_floats(m, outputs > hidden ? outputs : hidden); /* also y */
    c->scratch.gate = cut_floats(m, (size_t)c->scratch.inner_rows * hp->expert_inner);
    if (hparams_expert_has(hp, EXPERT_UP))
        c->scratch.up = cut_floats(m, (size_t)c->scratch.inner_rows * hp->expert_inner);
    c->scratch.items = cut_host(m, items, sizeof *c->scratch.items);
    c->scratch.queue = cut_host(m, items, sizeof *c->scratch.queue);
    c->scratch.order = cut_host(m, items, sizeof *c->scratch.order);
    c->scratch.pair_base = cut_host(m, items + 1, sizeof *c->scratch.pair_base);
    c->scratch.jobs = cut_host(m, items, sizeof *c->scratch.jobs);
    c->scratch.job_item = cut_host(m, items, sizeof *c->scratch.job_item);
    c->scratch.next_counts = cut_host(m, (size_t)hp->experts * 2, sizeof(float));
    if (hp->table_layers > 0)
        c->scratch.known = cut_host(m, hp->experts, sizeof *c->scratch.known);
    c->scratch.importance = cut_result(m, hp->experts, sizeof(float));
    memset(c->scratch.has_bias, 0, sizeof c->scratch.has_bias);
    c->scratch.choice_bias =
        m->results ? cut_host(m, (size_t)hp->layers * hp->experts, sizeof *c->scratch.choice_bias)
                   : NULL;
    c->scratch.allowed = cut_host(m, hp->experts, sizeof *c->scratch.allowed);
    c->scratch.predicted = cut_result(m, pairs, sizeof(struct route));
}

/* One network is computed at a time: the largest decides. */
static void cut_dense(struct core *c, struct layout *m, uint32_t chunk, uint32_t forms)
{
    uint32_t rows = chunk < DEVICE_BLOCK_ROWS ? chunk : DEVICE_BLOCK_ROWS;
    uint32_t inner =
        c->hp.shared_inner > c->hp.dense_inner ? c->hp.shared_inner : c->hp.dense_inner;
    if (inner == 0)
        return;
    cut_rows(m, &c->scratch.dense, forms, rows, inner);
    if (hparams_expert_has(&c->hp, EXPERT_UP))
        c->scratch.dense_up = cut_floats(m, (size_t)rows * inner);
    c->scratch.shared_weight = cut_floats(m, rows);
}

/* Inputs before a sequence, of the widest convolution over time. */
static size_t zeros_of(const struct core *c)
{
    uint32_t recurrent = c->states > 0 ? model_recurrent_max(&c->hp).channels : 0;
    uint32_t ngrams = model_ngram_rows(&c->hp) > 0 ? model_residual_floats(&c->hp) : 0;
    return recurrent > ngrams ? recurrent : ngrams;
}

static void cut_attention(struct core *c, struct layout *m, uint32_t chunk,
                          const struct forms_wanted *want)
{
    cut_rows(m, &c->scratch.mix, want->mix, chunk, c->mix_size);
    c->scratch.q = cut_floats(m, (size_t)chunk * c->q_size);
    c->scratch.gates = cut_floats(m, (size_t)chunk * c->gate_size);
    c->scratch.k = cut_floats(m, (size_t)chunk * c->k_size);
    c->scratch.v = cut_floats(m, (size_t)chunk * c->v_size);
    c->scratch.projected = cut_floats(m, (size_t)chunk * c->projected_max);
    for (int i = 0; i < CORE_FACTORED && c->factored_max > 0; i++)
        cut_rows(m, &c->scratch.factored[i], want->factored, chunk, c->factored_max);
    c->scratch.zeros = cut_floats(m, zeros_of(c));
    if (c->latent.q_rank > 0 || c->entries)
        cut_rows(m, &c->scratch.query, want->query, chunk, c->hp.q_rank);
    if (c->entries)
        cut_rows(m, &c->scratch.groups, want->groups, chunk * c->hp.output_groups,
                 c->hp.heads * c->hp.head_size / c->hp.output_groups);
    c->scratch.rows_max = chunk;
    c->scratch.rope = cut_floats(m, (size_t)LAYER_KIND__COUNT * chunk * c->rope_size);
}

static void cut_index(struct core *c, struct layout *m, uint32_t chunk)
{
    const struct device_index *a = &c->index;
    if (a->heads == 0)
        return;
    const struct device_choice rule = core_index_choice(c);
    uint32_t scores = core_index_scores(&c->hp, c->positions);
    uint32_t rows = core_index_rows(&c->hp, c->positions, chunk);
    size_t lists = (size_t)chunk * device_index_lists(a);
    uint32_t most = c->entries ? c->hp.index_top_k : device_choice_most(a, &rule);
    if (!c->entries) /* else keys are among what entries are made of */
        c->scratch.index_k = cut_floats(m, (size_t)chunk * a->size);
    if (c->hp.index_gates)
        c->scratch.index_gate = cut_floats(m, (size_t)chunk * a->size);
    if (index_form_info(a->form).weighted)
        c->scratch.index_w = cut_floats(m, (size_t)chunk * a->heads);
    c->scratch.index_at = cut_device(m, lists * most, sizeof(uint32_t));
    c->scratch.index_count = cut_device(m, lists, sizeof(uint32_t));
    c->scratch.index_q = cut_floats(m, (size_t)rows * a->heads * a->size);
    c->scratch.index_scores = cut_floats(m, (size_t)rows * device_index_lists(a) * scores);
}

static void cut_streams(struct core *c, struct layout *m, uint32_t chunk,
                        const struct forms_wanted *want)
{
    uint32_t rows = chunk < DEVICE_BLOCK_ROWS ? chunk : DEVICE_BLOCK_ROWS;
    uint32_t of_a_token = model_ngram_rows(&c->hp);
    c->scratch.stream_share = cut_floats(m, 1);
    if (c->hp.streams < 2)
        return;
    if (c->hp.residual == RESIDUAL_BANK) {
        c->scratch.stream_weights = cut_floats(m, (size_t)rows * c->hp.streams);
        return;
    }
    cut_rows(m, &c->scratch.streams, want->streams, rows, model_residual_floats(&c->hp));
    if (c->hp.residual == RESIDUAL_GATED) {
        cut_rows(m, &c->scratch.stream_rank, want->rank, rows, c->hp.stream_rank);
        c->scratch.stream_gates = cut_floats(m, (size_t)rows * model_residual_floats(&c->hp));
    }
    c->scratch.stream_logits = cut_floats(m, (size_t)chunk * model_stream_weights(&c->hp));
    c->scratch.stream_weights = cut_floats(m, (size_t)chunk * model_stream_weights(&c->hp));
    if (of_a_token == 0)
        return;
    cut_rows(m, &c->scratch.ngrams, want->ngrams, rows, model_ngram_inputs(&c->hp));
    c->scratch.ngram_values = cut_floats(m, (size_t)rows * c->hp.hidden);
    size_t of_a_block = (size_t)rows * of_a_token;
    c->scratch.ngram_number = cut_host(m, (size_t)chunk * of_a_token, sizeof(uint32_t));
    c->scratch.ngram_row = cut_host(m, of_a_block, sizeof *c->scratch.ngram_row);
    c->scratch.ngram_bytes =
        cut_host(m, c->source.table_read ? of_a_block : 0, c->ngram_table.row_bytes);
}

static void cut_output(struct core *c, struct layout *m, uint32_t chunk, uint32_t forms)
{
    if (c->end < c->hp.layers)
        return;
    c->output_rows = output_rows_for(c, chunk);
    c->scratch.logits = cut_result(m, (size_t)c->output_rows * c->hp.vocab, sizeof(float));
    c->scratch.scores = cut_result(m, c->output_rows, sizeof(float));
    cut_rows(m, &c->scratch.last, forms, c->output_rows, c->hp.hidden);
}

/* Floats that attention has of a row until its parts are joined: a result, and two numbers of the
 * softmax. */
static uint32_t attention_floats(const struct core *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->hp.layers; i++) {
        const struct layer_attention *a = &c->layer[i].attention; /* of MLA: of latents */
        uint32_t floats = a->heads * (a->value_size + 2);
        bool entries = c->model->layer[i].mixer == MIXER_ENTRIES;
        most = floats > most && !entries ? floats : most;
    }
    return most;
}

/* Floats of a row of keys and one of values. */
static uint32_t kv_floats(const struct core *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->hp.layers; i++) {
        const struct layer_attention *a = &c->layer[i].attention;
        uint32_t floats = a->kv_heads * (a->key_size + (a->values_in_keys ? 0 : a->value_size));
        most = floats > most ? floats : most;
    }
    return most;
}

static void cut_workspace(struct core *c, struct layout *m, uint32_t chunk,
                          const struct forms_wanted *want)
{
    const struct layer_recurrent recurrent =
        c->states > 0 ? model_recurrent_max(&c->hp) : (struct layer_recurrent){0};
    const struct device_limits limits = {.rows = chunk,
                                         .experts = c->hp.experts,
                                         .top_k = c->hp.experts_used,
                                         .expert_width = hparams_expert_width(&c->hp),
                                         .gather_forms = want->gather,
                                         .inner = c->hp.expert_inner,
                                         .inner_forms = want->inner,
                                         .latent = c->latent,
                                         .nope_forms = want->nope,
                                         .latent_forms = want->latent,
                                         .attention_floats = attention_floats(c),
                                         .kv_floats = kv_floats(c),
                                         .recurrent = recurrent,
                                         .entry_floats = core_entries_keys(c)};
    struct device_at at = cut_device(m, c->device->ops->workspace(c->device, &limits), 1);
    if (at.address)
        c->device->ops->use_workspace(c->device, &limits, at);
}

struct core_bytes core_scratch_layout(struct core *c, uint32_t chunk,
                                      const struct core_memory *base)
{
    const struct model_hparams *hp = &c->hp;
    struct layout m = {.results = !c->device->is_host};
    struct forms_wanted want = forms_of(c);
    size_t residual = (size_t)chunk * model_residual_floats(hp);
    if (base) {
        m.device.base = base->device.address;
        m.host.base = (uintptr_t)base->host;
    }
    c->scratch.row = cut_host(&m, chunk, sizeof *c->scratch.row);
    c->scratch.source_row = cut_host(&m, chunk, sizeof *c->scratch.source_row);
    c->scratch.fetched = m.results ? cut_host(&m, residual, sizeof(float)) : NULL;
    c->scratch.x = cut_floats(&m, residual);
    cut_rows(&m, &c->scratch.in, want.in, chunk, hp->hidden);
    cut_attention(c, &m, chunk, &want);
    cut_index(c, &m, chunk);
    size_t routed = (size_t)chunk + m.results; /* core_predicts_next */
    c->scratch.router_logits = cut_result(&m, routed * hp->experts, sizeof(float));
    c->scratch.routes = cut_result(&m, routed * hp->experts_used, sizeof(struct route));
    cut_experts(c, &m, chunk);
    c->resident.routes =
        cut_result(&m, m.results ? (size_t)hp->layers * hp->experts_used : 0, sizeof(struct route));
    c->resident.sequence = cut_host(&m, hp->layers, sizeof *c->resident.sequence);
    c->scratch.ones = cut_floats(&m, core_ones(hp));
    c->scratch.roots = cut_floats(&m, hp->hidden);
    if (hp->normed_scale != 0)
        c->scratch.normed_scale = cut_floats(&m, hp->hidden);
    if (c->ffn_sums)
        c->scratch.sum = cut_floats(&m, (size_t)chunk * hp->hidden);
    if (c->early_experts)
        cut_rows(&m, &c->scratch.early, want.early, chunk, hp->hidden);
    if (c->two_ffn_parts)
        c->scratch.experts_sum = cut_floats(&m, (size_t)chunk * hp->hidden);
    if (core_expert_inputs(c))
        cut_rows(&m, &c->scratch.expert_in, want.gather | 1u << FORM_F32, chunk,
                 hparams_expert_width(hp));
    if (hp->expert_width > 0)
        cut_rows(&m, &c->scratch.latent_sum, want.sum, chunk, hp->expert_width);
    c->scratch.y =
        c->scratch.pair_out; /* attention and the dense network end before experts begin */
    cut_dense(c, &m, chunk, want.dense);
    cut_streams(c, &m, chunk, &want);
    cut_output(c, &m, chunk, want.last);
    cut_workspace(c, &m, chunk, &want);
    return (struct core_bytes){(m.device.at + 63) / 64 * 64, (m.host.at + 63) / 64 * 64};
}
