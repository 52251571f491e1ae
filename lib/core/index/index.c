/* SPDX-License-Identifier: Apache-2.0 */
/* An indexer chooses the positions that attention of a layer is over (DeepSeek-V3.2, DeepSeek-AI
 * 2025, section 2.1). Of x, which the mixer reads, and the first factor c of its queries:
 *   k = LayerNorm(W_k x), one of a position, which is stored;  q = W_q c, of each head;  w = W_w x
 *   score of position s = sum over heads h of w_h max(q_h . k_s, 0)
 * The first elements of k and q are rotated. The published form multiplies w by 1 / sqrt(heads *
 * size), which no choice depends on, and may turn k and q by an orthonormal matrix before it rounds
 * them, which leaves their products as they are; keys are not rounded below F16 here.
 *
 * Blocks of positions are chosen in another way (blocks.c). An indexer over pools (pools.c) has a
 * key for several positions; some forms have no weights w.
 *
 * Keys are stored in every pass. Nothing else is computed in a pass whose rows have no more
 * positions than are chosen: attention over all of them has the same bits. */
#include "lib/core/internal.h"

/* ---- weights ---- */

bool core_index_needed(const struct core *c)
{
    return model_chooses(&c->hp, c->positions);
}

int core_check_index(const struct core *c, struct error *error)
{
    uint32_t first = c->first;
    while (first < c->end && c->model->layer[first].index == INDEX_NONE)
        first++;
    if (!core_index_needed(c) || first == c->end)
        return 0;
    if (c->device->lacks_choice)
        return error_set(error, ERR_BAD_INPUT,
                         "the device '%s' does not compute attention over chosen positions: it has "
                         "this model in sequences of up to %u tokens",
                         c->device->ops->name, model_chosen_tokens(&c->hp));
    if (c->model->layer[first].index == INDEX_BEFORE)
        return error_set(error, ERR_BAD_INPUT,
                         "layer %u takes the positions that a layer before it chose, so another "
                         "device cannot begin with it",
                         first);
    return 0;
}

void core_bind_index(struct core *c, uint32_t i)
{
    struct core_layer *l = &c->layer[i];
    const struct model_hparams *h = &c->hp;
    if (!core_index_needed(c) || c->model->layer[i].index != INDEX_OWN)
        return;
    c->index = (struct device_index){.form = h->index_local > 0 ? INDEX_HEADS : INDEX_PLAIN,
                                     .heads = h->index_heads,
                                     .size = h->index_size,
                                     .unit = model_index_unit(h)};
    l->index.q = core_matrix(c, i, DENSE_INDEX_Q);
    l->index.k = core_matrix(c, i, DENSE_INDEX_K);
    l->in_forms |= form_bit(&l->index.k);
    if (core_has(c, i, DENSE_INDEX_WEIGHTS)) {
        c->index.form = INDEX_WEIGHTED;
        l->index.weights = core_matrix(c, i, DENSE_INDEX_WEIGHTS);
        l->in_forms |= form_bit(&l->index.weights);
    }
    if (h->index_gates) {
        l->index.gate = core_matrix(c, i, DENSE_INDEX_GATE);
        l->in_forms |= form_bit(&l->index.gate);
    }
    if (h->kv_rank > 0)
        l->mla.query_forms |= form_bit(&l->index.q);
    else
        l->in_forms |= form_bit(&l->index.q);
    core_bind_pools(c, i);
}

float core_index_eps(const struct core *c)
{
    return c->hp.index_eps != 0 ? c->hp.index_eps : c->hp.rms_eps;
}

/* ---- a pass ---- */

void core_index_begin(struct core *c)
{
    c->pass.chosen = (struct device_chosen){.stride = 0};
    c->pass.chooses = false;
    for (uint32_t r = 0; core_index_needed(c) && r < c->pass.step.rows; r++) {
        sl_assert(c->scratch.row[r].position < c->positions);
        c->pass.chooses |= c->scratch.row[r].position >= model_chosen_tokens(&c->hp);
    }
}

int core_index_resumes(const struct core *c, uint32_t layer, struct error *error)
{
    bool lacks = c->pass.chooses && c->model->layer[layer].index == INDEX_BEFORE;
    return lacks ? error_set(error, ERR_BAD_INPUT,
                             "layer %u takes the positions that a layer before it chose: it is "
                             "computed by itself in sequences of up to %u tokens",
                             layer, model_chosen_tokens(&c->hp))
                 : 0;
}

static struct device_at angles_from(const struct core *c, uint32_t row)
{
    const struct layer_attention *a = &c->layer[c->pass.step.layer].attention;
    return a->rope_dims > 0
               ? device_floats_at(core_angles(c, a->rope_table), (uint64_t)row * c->rope_size)
               : (struct device_at){0};
}

void core_index_heads(struct core *c, uint32_t row, uint32_t rows, uint32_t heads,
                      struct device_at weight, struct device_at y)
{
    const struct layer_attention *a = &core_layer_now(c)->attention;
    const struct op_index_heads turn = {
        .rows = rows,
        .heads = heads,
        .size = c->index.size,
        .turn = {.kind = (enum rope_kind)c->hp.index_rope,
                 .dims = a->rope_dims,
                 .first = c->hp.index_last ? c->index.size - a->rope_dims : 0},
        .eps = core_index_eps(c),
        .weight = weight,
        .angle_stride = c->rope_size,
        .angles = angles_from(c, row),
        .y = y};
    c->device->ops->index_heads(c->device, &turn);
}

/* Keys and their gates, and weights if something is chosen; both if the form has them. */
static void project(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    struct device_product product[3] = {
        {.w = l->index.k, .y = c->scratch.index_k, .y_stride = c->index.size}};
    uint32_t count = 1;
    if (c->hp.index_gates)
        product[count++] = (struct device_product){
            .w = l->index.gate, .y = c->scratch.index_gate, .y_stride = c->index.size};
    if (c->pass.chooses && index_form_info(c->index.form).weighted)
        product[count++] = (struct device_product){
            .w = l->index.weights, .y = c->scratch.index_w, .y_stride = c->index.heads};
    c->device->ops->products(c->device, &(struct op_products){.rows = c->pass.step.rows,
                                                              .x = c->scratch.in,
                                                              .count = count,
                                                              .product = product});
}

void core_index_norm(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_norm norm = {.rows = c->pass.step.rows,
                                 .kind = NORM_LAYER,
                                 .eps = core_index_eps(c),
                                 .x = c->scratch.index_k,
                                 .weight = l->index.k_norm,
                                 .bias = l->index.k_norm_bias,
                                 .y = device_rows_of_floats(c->scratch.index_k, c->index.size)};
    c->device->ops->norm(c->device, &norm);
}

static void token_keys(struct core *c)
{
    core_index_norm(c);
    core_index_heads(c, 0, c->pass.step.rows, 1, (struct device_at){0}, c->scratch.index_k);
}

static void store_keys(struct core *c)
{
    const struct op_index_store store = {.rows = c->pass.step.rows,
                                         .sequences = c->pass.sequence_count,
                                         .row = c->scratch.row,
                                         .sequence = c->pass.at,
                                         .shape = c->index,
                                         .k = c->scratch.index_k};
    if (c->hp.index_local > 0)
        core_block_keys(c);
    else
        token_keys(c);
    c->device->ops->index_store(c->device, &store);
}

/* Queries of the rows [first, first + rows). */
static void make_queries(struct core *c, uint32_t first, uint32_t rows)
{
    const struct core_layer *l = core_layer_now(c);
    const struct device_rows *x = c->hp.kv_rank > 0 ? &c->scratch.query : &c->scratch.in;
    struct device_product product = {.w = l->index.q,
                                     .y = c->scratch.index_q,
                                     .y_stride = (size_t)c->index.heads * c->index.size};
    const struct op_products products = {
        .rows = rows, .x = device_rows_from(x, first), .count = 1, .product = &product};
    c->device->ops->products(c->device, &products);
    core_index_heads(c, first, rows, c->index.heads, l->index.q_norm, c->scratch.index_q);
}

static struct device_at words_at(struct device_at at, uint64_t n)
{
    return device_offset(at, n * sizeof(uint32_t));
}

static void choose(struct core *c, uint32_t first, uint32_t rows)
{
    const struct device_choice rule = core_index_choice(c);
    uint32_t most = device_choice_most(&c->index, &rule);
    uint32_t stride = core_index_scores(&c->hp, c->positions);
    uint64_t list = (uint64_t)first * device_index_lists(&c->index);
    bool weighted = index_form_info(c->index.form).weighted;
    const struct op_index_scores scores = {
        .rows = rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row + first,
        .sequence = c->pass.at,
        .shape = c->index,
        .q = c->scratch.index_q,
        .weights = device_floats_at(c->scratch.index_w, weighted ? first * c->index.heads : 0),
        .stride = stride,
        .score = c->scratch.index_scores};
    const struct op_choose_positions choice = {.rows = rows,
                                               .row = c->scratch.row + first,
                                               .shape = c->index,
                                               .choice = rule,
                                               .stride = stride,
                                               .score = c->scratch.index_scores,
                                               .list_stride = most,
                                               .at = words_at(c->scratch.index_at, list * most),
                                               .count = words_at(c->scratch.index_count, list)};
    c->device->ops->index_scores(c->device, &scores);
    c->device->ops->choose_positions(c->device, &choice);
}

void core_index(struct core *c)
{
    uint32_t rows = c->pass.step.rows;
    if (core_layer_now(c)->index.k.n == 0)
        return;
    project(c);
    if (c->index.unit > 1)
        core_store_pools(c);
    else
        store_keys(c);
    if (!c->pass.chooses)
        return;
    uint32_t each = core_index_rows(&c->hp, c->positions, c->scratch.rows_max);
    for (uint32_t first = 0, n; first < rows; first += n) {
        n = rows - first < each ? rows - first : each;
        make_queries(c, first, n);
        choose(c, first, n);
    }
    const struct device_choice rule = core_index_choice(c);
    c->pass.chosen = (struct device_chosen){.at = c->scratch.index_at,
                                            .count = c->scratch.index_count,
                                            .stride = device_choice_most(&c->index, &rule),
                                            .lists = device_index_lists(&c->index)};
}
