/* SPDX-License-Identifier: Apache-2.0 */
/* A pass of attention to a window and entries; the formulas: lib/device/host/entries. An indexer
 * chooses among entries of few positions, as index/index.c describes it, once there are more of
 * them than are chosen. */
#include "lib/core/internal.h"

/* What the rows of x are multiplied by before anything else. */
static void project(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct core_entries_weights *e = &l->entries;
    const size_t stride = device_entry_row(&e->shape);
    struct device_product product[3 + CORE_ENTRY_PARTS];
    uint32_t count = 0, at = 0;
    product[count++] = (struct device_product){
        .w = l->mla.q_a, .y = c->scratch.query.base[FORM_F32], .y_stride = c->scratch.query.k};
    product[count++] =
        (struct device_product){.w = l->mla.kv_a, .y = c->scratch.k, .y_stride = e->shape.size};
    for (int p = 0; p < CORE_ENTRY_PARTS && e->project[p].n > 0; p++) {
        product[count++] = (struct device_product){.w = e->project[p],
                                                   .y = device_floats_at(c->scratch.projected, at),
                                                   .y_stride = stride};
        at += e->project[p].n;
    }
    if (c->pass.chooses && e->index_weights.n > 0)
        product[count++] = (struct device_product){
            .w = e->index_weights, .y = c->scratch.index_w, .y_stride = e->shape.heads};
    c->device->ops->products(c->device, &(struct op_products){.rows = c->pass.step.rows,
                                                              .x = c->scratch.in,
                                                              .count = count,
                                                              .product = product});
}

static void store_keys(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_entry_store store = {.rows = c->pass.step.rows,
                                         .sequences = c->pass.sequence_count,
                                         .row = c->scratch.row,
                                         .sequence = c->pass.at,
                                         .shape = l->entries.shape,
                                         .q_norm = l->mla.q_a_norm,
                                         .kv_norm = l->mla.kv_a_norm,
                                         .angle_stride = c->rope_size,
                                         .angles = core_angles(c, l->attention.rope_table),
                                         .query_forms = l->mla.query_forms,
                                         .query = c->scratch.query,
                                         .kv = c->scratch.k};
    c->device->ops->entry_store(c->device, &store);
}

static void store_entries(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct core_entries_weights *e = &l->entries;
    const struct op_entry_pool pool = {.rows = c->pass.step.rows,
                                       .sequences = c->pass.sequence_count,
                                       .row = c->scratch.row,
                                       .sequence = c->pass.at,
                                       .shape = e->shape,
                                       .rope = c->ropes[l->attention.rope_table],
                                       .bias = e->bias,
                                       .norm = e->norm,
                                       .index_bias = e->index_bias,
                                       .index_norm = e->index_norm,
                                       .projected = c->scratch.projected};
    if (e->shape.unit > 0)
        c->device->ops->entry_pool(c->device, &pool);
}

/* Queries of the indexer for the rows [first, first + rows). */
static void make_queries(struct core *c, uint32_t first, uint32_t rows)
{
    const struct core_layer *l = core_layer_now(c);
    const struct device_entries *m = &l->entries.shape;
    struct device_product product = {
        .w = l->entries.index_q, .y = c->scratch.index_q, .y_stride = (size_t)m->heads * m->index};
    const struct op_products products = {.rows = rows,
                                         .x = device_rows_from(&c->scratch.query, first),
                                         .count = 1,
                                         .product = &product};
    const struct op_index_heads turn = {
        .rows = rows,
        .heads = m->heads,
        .size = m->index,
        .turn = {.kind = ROPE_PAIRS, .first = m->index - m->rope, .dims = m->rope},
        .eps = m->eps,
        .angle_stride = c->rope_size,
        .angles = device_floats_at(core_angles(c, l->attention.rope_table),
                                   (uint64_t)first * c->rope_size),
        .y = c->scratch.index_q};
    c->device->ops->products(c->device, &products);
    c->device->ops->index_heads(c->device, &turn);
}

static void choose(struct core *c, uint32_t first, uint32_t rows)
{
    const struct device_entries *m = &core_layer_now(c)->entries.shape;
    uint32_t stride = core_index_scores(&c->hp, c->positions);
    const struct op_entry_scores scores = {
        .rows = rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row + first,
        .sequence = c->pass.at,
        .shape = *m,
        .q = c->scratch.index_q,
        .weights = device_floats_at(c->scratch.index_w, (uint64_t)first * m->heads),
        .stride = stride,
        .score = c->scratch.index_scores};
    const struct op_entry_choice choice = {
        .rows = rows,
        .row = c->scratch.row + first,
        .shape = *m,
        .stride = stride,
        .score = c->scratch.index_scores,
        .list_stride = m->chosen,
        .at = device_offset(c->scratch.index_at, (uint64_t)first * m->chosen * sizeof(uint32_t)),
        .count = device_offset(c->scratch.index_count, first * sizeof(uint32_t))};
    c->device->ops->entry_scores(c->device, &scores);
    c->device->ops->entry_choice(c->device, &choice);
}

/* The entries that the rows attend to. */
static struct device_chosen choose_entries(struct core *c)
{
    const struct core_entries_weights *e = &core_layer_now(c)->entries;
    uint32_t rows = c->pass.step.rows;
    if (!c->pass.chooses || e->index_q.n == 0)
        return (struct device_chosen){.stride = 0};
    uint32_t each = core_index_rows(&c->hp, c->positions, c->scratch.rows_max);
    for (uint32_t first = 0, n; first < rows; first += n) {
        n = rows - first < each ? rows - first : each;
        make_queries(c, first, n);
        choose(c, first, n);
    }
    return (struct device_chosen){
        .at = c->scratch.index_at, .count = c->scratch.index_count, .stride = e->shape.chosen};
}

/* A row of y is a group of heads of a row. */
static void attend(struct core *c, const struct device_chosen *chosen)
{
    const struct core_layer *l = core_layer_now(c);
    const struct device_entries *m = &l->entries.shape;
    struct device_product product = {
        .w = l->q, .y = c->scratch.q, .y_stride = (size_t)l->attention.heads * m->size};
    const struct op_products products = {
        .rows = c->pass.step.rows, .x = c->scratch.query, .count = 1, .product = &product};
    const struct op_entry_attention attention = {.rows = c->pass.step.rows,
                                                 .sequences = c->pass.sequence_count,
                                                 .row = c->scratch.row,
                                                 .sequence = c->pass.at,
                                                 .shape = *m,
                                                 .query_heads = l->attention.heads,
                                                 .chosen = *chosen,
                                                 .sinks = l->sinks,
                                                 .ones = c->scratch.ones,
                                                 .angle_stride = c->rope_size,
                                                 .angles = core_angles(c, l->attention.rope_table),
                                                 .q = c->scratch.q,
                                                 .groups = c->hp.output_groups,
                                                 .y = c->scratch.groups};
    c->device->ops->products(c->device, &products);
    c->device->ops->entry_attention(c->device, &attention);
}

/* The rows of one group among those of all. */
static struct device_rows rows_of_group(const struct core *c, uint32_t group)
{
    struct device_rows rows = device_rows_from(&c->scratch.groups, group);
    for (int form = 0; form < FORM__COUNT; form++)
        rows.stride[form] *= c->hp.output_groups;
    return rows;
}

/* Each group of heads has rows of the first matrix of the output. */
static void multiply_groups(struct core *c)
{
    const struct device_matrix *all = &core_layer_now(c)->entries.groups;
    uint32_t groups = c->hp.output_groups, rank = c->hp.output_rank;
    const struct op_forms forms = {
        .rows = c->pass.step.rows * groups, .forms = form_bit(all), .y = c->scratch.groups};
    c->device->ops->forms(c->device, &forms);
    for (uint32_t g = 0; g < groups; g++) {
        struct device_product product = {
            .w = *all,
            .y = device_floats_at(c->scratch.mix.base[FORM_F32], (uint64_t)g * rank),
            .y_stride = (size_t)groups * rank};
        product.w.data = device_offset(all->data, (uint64_t)g * rank * all->row_bytes);
        product.w.n = rank;
        const struct op_products products = {
            .rows = c->pass.step.rows, .x = rows_of_group(c, g), .count = 1, .product = &product};
        c->device->ops->products(c->device, &products);
    }
}

void core_entries(struct core *c)
{
    project(c);
    store_keys(c);
    store_entries(c);
    const struct device_chosen chosen = choose_entries(c);
    attend(c, &chosen);
    multiply_groups(c);
    core_attention_output(c);
}
