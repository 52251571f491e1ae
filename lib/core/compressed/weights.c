/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of attention to a window and entries, and tables of experts by token. */
#include "lib/core/internal.h"

#include <string.h>

static const struct {
    enum dense_role role;
    size_t field; /* offset of a struct device_at in struct core_entries_weights */
} vectors[] = {
    {DENSE_ENTRY_BIAS, offsetof(struct core_entries_weights, bias)},
    {DENSE_ENTRY_NORM, offsetof(struct core_entries_weights, norm)},
    {DENSE_INDEX_BIAS, offsetof(struct core_entries_weights, index_bias)},
    {DENSE_INDEX_NORM, offsetof(struct core_entries_weights, index_norm)},
};

size_t core_entries_floats(const struct core *c, uint32_t layer)
{
    size_t floats = 0;
    for (size_t v = 0; v < ARRAY_LEN(vectors); v++)
        floats += core_floats_of(c, layer, vectors[v].role);
    return floats;
}

int core_check_entries(const struct core *c, struct error *error)
{
    return (c->hp.output_groups > 0 || c->hp.table_layers > 0) && c->device->lacks_tables
               ? error_set(error, ERR_BAD_INPUT,
                           "the device '%s' does not compute attention over entries, or experts "
                           "by token",
                           c->device->ops->name)
               : 0;
}

static struct device_entries shape_of(const struct core *c, uint32_t i)
{
    const struct model_hparams *h = &c->hp;
    bool few = model_entry_unit(h, i) == MODEL_ENTRY_FEW;
    return (struct device_entries){.unit = model_entry_unit(h, i),
                                   .size = h->head_size,
                                   .rope = h->rope_dims,
                                   .window = h->window,
                                   .index = few ? h->index_size : 0,
                                   .heads = few ? h->index_heads : 0,
                                   .chosen = few ? h->index_top_k : 0,
                                   .eps = h->rms_eps};
}

void core_entries_sizes(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    l->entries.shape = shape_of(c, i);
    l->v_size = 0; /* values are keys */
    l->mix_size = c->hp.output_groups * c->hp.output_rank;
    c->entries = true;
}

/* What entries are made of; without an indexer the last two are none. */
static void bind_entries(struct core *c, uint32_t i)
{
    static const enum dense_role roles[CORE_ENTRY_PARTS] = {DENSE_ENTRY_VALUES, DENSE_ENTRY_GATES,
                                                            DENSE_INDEX_VALUES, DENSE_INDEX_GATES};
    struct core_entries_weights *e = &c->layer[i].entries;
    uint32_t floats = device_entry_row(&e->shape);
    for (int p = 0; p < CORE_ENTRY_PARTS && (p < 2 || e->shape.index > 0); p++) {
        e->project[p] = core_matrix(c, i, roles[p]);
        c->layer[i].in_forms |= form_bit(&e->project[p]);
    }
    e->state_at = model_state_floats(&c->hp, i);
    sl_assert(model_pool_floats(&c->hp, i) == device_entry_floats(&e->shape));
    c->projected_max = floats > c->projected_max ? floats : c->projected_max;
}

/* The choice, if sequences may be so long that there is one. */
static void bind_choice(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    if (l->entries.shape.index == 0 || !core_index_needed(c))
        return;
    c->index = (struct device_index){.form = INDEX_WEIGHTED,
                                     .heads = c->hp.index_heads,
                                     .size = c->hp.index_size,
                                     .unit = model_index_unit(&c->hp)};
    l->entries.index_q = core_matrix(c, i, DENSE_INDEX_Q);
    l->entries.index_weights = core_matrix(c, i, DENSE_INDEX_WEIGHTS);
    l->mla.query_forms |= form_bit(&l->entries.index_q);
    l->in_forms |= form_bit(&l->entries.index_weights);
}

void core_bind_entries(struct core *c, uint32_t i, uint64_t *at)
{
    struct core_layer *l = &c->layer[i];
    for (size_t v = 0; v < ARRAY_LEN(vectors); v++) {
        struct device_at vector = core_vector(c, i, vectors[v].role, at);
        memcpy((char *)&l->entries + vectors[v].field, &vector, sizeof vector);
    }
    l->mla.q_a = core_matrix(c, i, DENSE_ATTN_Q_A);
    l->q = core_matrix(c, i, DENSE_ATTN_Q_B);
    l->mla.kv_a = core_matrix(c, i, DENSE_ATTN_KV_A);
    l->entries.groups = core_matrix(c, i, DENSE_ATTN_OUT_A);
    l->out = core_matrix(c, i, DENSE_ATTN_OUT);
    l->mla.query_forms = form_bit(&l->q);
    l->in_forms = form_bit(&l->mla.q_a) | form_bit(&l->mla.kv_a);
    l->mix_forms = form_bit(&l->out);
    if (l->entries.shape.unit > 0)
        bind_entries(c, i);
    bind_choice(c, i);
}

size_t core_entries_keys(const struct core *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->hp.layers && c->entries; i++) {
        const struct device_entries *m = &c->layer[i].entries.shape;
        uint32_t seen = m->unit > 0 ? c->positions / m->unit : 0;
        if (m->index > 0 && seen > m->chosen)
            seen = m->chosen;
        most = seen > most ? seen : most;
    }
    uint64_t keys = (uint64_t)c->hp.window + most, tiles = (keys + KV_TILE - 1) / KV_TILE;
    return c->entries ? (size_t)(tiles * KV_TILE * c->hp.head_size) : 0;
}

/* ---- tables of experts ---- */

/* A row has different experts of the model. */
static int check_row(const struct core *c, uint32_t layer, uint32_t token, const uint32_t *row,
                     struct error *error)
{
    for (uint32_t k = 0; k < c->hp.experts_used; k++) {
        bool twice = false;
        for (uint32_t j = 0; j < k; j++)
            twice |= row[j] == row[k];
        if (twice || row[k] >= c->hp.experts)
            return error_set(error, ERR_BAD_INPUT,
                             "the table of layer %u has expert %u for token %u, %s", layer, row[k],
                             token, twice ? "twice" : "which the model does not have");
    }
    return 0;
}

static int check_token(const struct core *c, uint32_t layer, uint32_t token, struct error *error)
{
    const struct device_matrix *t = &c->layer[layer].table;
    uint32_t row[MODEL_TOP_K_MAX];
    c->device->ops->read(c->device, device_offset(t->data, token * t->row_bytes), row,
                         c->hp.experts_used * sizeof *row);
    return check_row(c, layer, token, row, error);
}

/* Rows of tokens that no text has may be anything: a pass with such a token fails, and a table with
 * more wrong rows than right ones is refused. */
static int check_table(struct core *c, uint32_t layer, struct error *error)
{
    uint32_t tokens = c->device->is_host ? c->layer[layer].table.n : 0, wrong = 0;
    struct error last;
    for (uint32_t token = 0; token < tokens; token++)
        if (check_token(c, layer, token, &last) != 0) {
            *error = last;
            wrong++;
        }
    c->wrong_rows |= wrong > 0;
    return wrong > tokens / 2 ? -1 : 0;
}

int core_check_tokens(const struct core *c, struct error *error)
{
    for (uint32_t layer = 0; c->wrong_rows && layer < c->hp.table_layers; layer++)
        for (uint32_t row = 0; row < c->pass.step.rows; row++)
            if (check_token(c, layer, c->scratch.row[row].token, error) != 0)
                return -1;
    return 0;
}

/* Of the rows of one sequence, from `row` on. Returns the row after them. */
static uint32_t count_known(struct core *c, uint32_t layer, uint32_t row)
{
    const struct device_matrix *t = &c->layer[layer].table;
    const uint32_t member = c->scratch.source_row[row].member;
    uint32_t used[MODEL_TOP_K_MAX];
    memset(c->scratch.known, 0, c->hp.experts * sizeof *c->scratch.known);
    for (; row < c->pass.step.rows && c->scratch.source_row[row].member == member; row++) {
        uint64_t at = c->scratch.row[row].token * t->row_bytes;
        c->device->ops->read(c->device, device_offset(t->data, at), used,
                             c->hp.experts_used * sizeof *used);
        for (uint32_t k = 0; k < c->hp.experts_used; k++)
            c->scratch.known[used[k]]++;
    }
    return row;
}

void core_give_known(struct core *c)
{
    for (uint32_t layer = 0; c->source.known && layer < c->hp.table_layers; layer++)
        for (uint32_t row = 0, next; row < c->pass.step.rows; row = next) {
            next = count_known(c, layer, row);
            c->source.known(c->source.self, &c->pass.step, layer, row, c->scratch.known);
        }
}

int core_bind_tables(struct core *c, struct error *error)
{
    for (uint32_t i = c->first; i < c->end; i++) {
        if (!core_has(c, i, DENSE_EXPERT_TABLE))
            continue;
        c->layer[i].table = core_matrix(c, i, DENSE_EXPERT_TABLE);
        if (check_table(c, i, error) != 0)
            return -1;
    }
    return 0;
}
