/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that begins with n-grams: rows of a table, whose numbers follow from the last tokens, are
 * added to the residual. The numbers need no other layer, so they are known before the pass. */
#include "lib/model/arch/ngrams/ngrams.h"
#include "lib/core/internal.h"
#include "lib/model/table_pages.h"

_Static_assert(DEVICE_BLOCK_ROWS == TABLE_BLOCK_TOKENS, "the simulator reads the same blocks");

/* ---- weights ---- */

void core_bind_ngrams(struct core *c, uint32_t i, uint64_t *vectors)
{
    struct core_ngrams *n = &c->layer[i].ngrams;
    uint32_t channels = model_residual_floats(&c->hp);
    if (!c->model->layer[i].ngrams)
        return;
    n->key = core_matrix(c, i, DENSE_NGRAM_KEY);
    n->value = core_matrix(c, i, DENSE_NGRAM_VALUE);
    n->forms = form_bit(&n->key) | form_bit(&n->value);
    n->conv = core_take(c, vectors, (size_t)c->hp.ngram_taps * channels);
    /* The file has the taps of a channel next to each other. */
    const struct op_unpack unpack = {.w = core_matrix(c, i, DENSE_NGRAM_CONV),
                                     .row_stride = 1,
                                     .stride = channels,
                                     .y = n->conv};
    sl_assert(unpack.w.k == c->hp.ngram_taps && unpack.w.n == channels);
    c->device->ops->unpack(c->device, &unpack);
}

void core_bind_table(struct core *c)
{
    uint32_t globals = c->hp.layers;
    if (!core_has(c, globals, DENSE_NGRAM_TABLE))
        return;
    if (!c->source.table_read) {
        c->ngram_table = core_matrix(c, globals, DENSE_NGRAM_TABLE);
        return;
    }
    uint32_t entry = model_entry_dense(c->model, globals, DENSE_NGRAM_TABLE);
    const struct model_tensor *t =
        &model_index_tensors(c->model)[model_index_entries(c->model)[entry].extent[0].tensor];
    c->ngram_table = (struct device_matrix){
        .row_bytes = t->row_bytes, .k = (uint32_t)t->ne[0], .type = (enum tensor_type)t->type};
}

int core_check_ngrams(const struct core *c, struct error *error)
{
    bool any = false;
    for (uint32_t i = c->first; i < c->end; i++)
        any |= c->model->layer[i].ngrams != 0;
    return any && c->device->lacks_ngrams
               ? error_set(error, ERR_BAD_INPUT, "the device '%s' does not compute n-grams",
                           c->device->ops->name)
               : 0;
}

/* ---- a pass ---- */

/* The last tokens of a sequence before the pass, as its state has them, the newest first. */
struct before {
    float token[NGRAM_SIZE_MAX];
};

static struct before before_of(struct core *c, const struct device_sequence *s)
{
    struct before b = {{0}};
    uint64_t floats = (uint64_t)model_ngram_past(&c->hp) * model_residual_floats(&c->hp);
    if (s->state.address)
        c->device->ops->read(c->device, device_floats_at(s->state, floats), b.token,
                             (c->hp.ngram_size - 1) * sizeof *b.token);
    return b;
}

/* token[0] is that of the row, token[s] the one s positions before it: of rows of the pass, or
 * before it. */
static void tokens_of(const struct core *c, const struct before *before, uint32_t row,
                      uint32_t token[NGRAM_SIZE_MAX])
{
    const struct device_row *all = c->scratch.row;
    uint32_t sequence = all[row].sequence, known = 0, position = all[row].position;
    for (uint32_t r = row + 1; r > 0 && known < c->hp.ngram_size; r--)
        if (all[r - 1].sequence == sequence)
            token[known++] = all[r - 1].token;
    for (uint32_t i = 0; known < c->hp.ngram_size; i++, known++)
        token[known] = known > position ? c->hp.ngram_end : (uint32_t)before[sequence].token[i];
}

/* What the layer has of the sequences: the state of the n-grams is behind that of the mixer. */
static void take_states(const struct core *c, struct device_sequence at[DEVICE_SEQUENCES_MAX])
{
    uint64_t floats = core_parts_now(c)->recurrent.floats;
    for (uint32_t i = 0; i < c->pass.sequence_count; i++) {
        at[i] = c->pass.at[i];
        at[i].state = device_floats_at(at[i].state, floats);
        at[i].next_state = device_floats_at(at[i].next_state, floats);
    }
}

/* Of all rows of the pass, before a state is written. */
static void find_numbers(struct core *c, const struct device_sequence *sequence)
{
    struct before before[DEVICE_SEQUENCES_MAX];
    uint32_t *at = c->scratch.ngram_number;
    for (uint32_t i = 0; i < c->pass.sequence_count; i++)
        before[i] = before_of(c, &sequence[i]);
    for (uint32_t r = 0; r < c->pass.step.rows; r++) {
        uint32_t token[NGRAM_SIZE_MAX];
        tokens_of(c, before, r, token);
        model_ngram_numbers(&c->hp, token, at);
        at += model_ngram_rows(&c->hp);
    }
}

static void ask(struct core *c, uint32_t first)
{
    uint32_t count = model_ngram_rows(&c->hp), left = c->pass.step.rows - first;
    if (left > 0 && c->source.table_ask)
        c->source.table_ask(c->source.self, c->scratch.ngram_number + (size_t)first * count,
                            (left < DEVICE_BLOCK_ROWS ? left : DEVICE_BLOCK_ROWS) * count);
}

void core_ngrams_begin(struct core *c, uint32_t first, uint32_t count)
{
    struct device_sequence at[DEVICE_SEQUENCES_MAX];
    uint32_t layer = first;
    while (layer < first + count && !c->model->layer[layer].ngrams)
        layer++;
    if (layer == first + count)
        return;
    c->pass.step.layer = layer;
    core_take_sequences(c);
    take_states(c, at);
    find_numbers(c, at);
    if (c->source.table_rows)
        c->source.table_rows(c->source.self, &c->pass.step, c->scratch.ngram_number,
                             model_ngram_rows(&c->hp));
    ask(c, 0);
}

/* The rows of the table of rows [first, first + rows), next to each other. Those of a table on
 * storage are copied, so that the table of the operation has these rows only. */
static int read_table(struct core *c, uint32_t first, uint32_t rows, struct error *error)
{
    uint32_t count = rows * model_ngram_rows(&c->hp);
    const uint32_t *number = c->scratch.ngram_number + (size_t)first * model_ngram_rows(&c->hp);
    bool copied = c->source.table_read != NULL;
    struct op_embed embed = {.rows = count,
                             .row = c->scratch.ngram_row,
                             .w = c->ngram_table,
                             .x = c->scratch.ngrams.base[FORM_F32]};
    if (copied) {
        sl_assert(c->device->is_host);
        ask(c, first + rows);
        if (c->source.table_read(c->source.self, number, count, c->scratch.ngram_bytes, error) != 0)
            return -1;
        embed.w.data.address = (uintptr_t)c->scratch.ngram_bytes;
        embed.w.n = count;
    }
    for (uint32_t i = 0; i < count; i++)
        c->scratch.ngram_row[i] = (struct device_row){.token = copied ? i : number[i]};
    c->device->ops->embed(c->device, &embed);
    const struct op_forms forms = {
        .rows = rows, .forms = core_layer_now(c)->ngrams.forms, .y = c->scratch.ngrams};
    c->device->ops->forms(c->device, &forms);
    return 0;
}

static void multiply(struct core *c, uint32_t rows)
{
    const struct core_ngrams *n = &core_layer_now(c)->ngrams;
    const struct device_product product[] = {
        {.w = n->key, .y = c->scratch.streams.base[FORM_F32], .y_stride = n->key.n},
        {.w = n->value, .y = c->scratch.ngram_values, .y_stride = n->value.n}};
    const struct op_products products = {
        .rows = rows, .x = c->scratch.ngrams, .count = 2, .product = product};
    c->device->ops->products(c->device, &products);
}

static int add_block(struct core *c, uint32_t first, uint32_t rows,
                     const struct device_sequence *sequence, struct error *error)
{
    const struct core_ngrams *n = &core_layer_now(c)->ngrams;
    const struct op_ngrams op = {
        .rows = rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row + first,
        .sequence = sequence,
        .shape = {.streams = c->hp.streams,
                  .n = c->hp.hidden,
                  .taps = c->hp.ngram_taps,
                  .step = c->hp.ngram_size,
                  .end = c->hp.ngram_end,
                  .eps = c->hp.rms_eps},
        .key_norm = n->key_norm,
        .query_norm = n->query_norm,
        .conv_norm = n->conv_norm,
        .conv = n->conv,
        .zeros = c->scratch.zeros,
        .values = c->scratch.ngram_values,
        .keys = c->scratch.streams.base[FORM_F32],
        .space = c->scratch.stream_gates,
        .x = device_floats_at(c->scratch.x, (uint64_t)first * model_residual_floats(&c->hp))};
    if (read_table(c, first, rows, error) != 0)
        return -1;
    multiply(c, rows);
    c->device->ops->ngrams(c->device, &op);
    return 0;
}

int core_ngrams(struct core *c, struct error *error)
{
    struct device_sequence at[DEVICE_SEQUENCES_MAX];
    if (!core_parts_now(c)->ngrams)
        return 0;
    take_states(c, at);
    for (uint32_t first = 0, n; first < c->pass.step.rows; first += n) {
        n = c->pass.step.rows - first;
        n = n < DEVICE_BLOCK_ROWS ? n : DEVICE_BLOCK_ROWS;
        if (add_block(c, first, n, at, error) != 0)
            return -1;
        for (uint32_t r = first; r < first + n; r++) /* later blocks continue from here */
            at[c->scratch.row[r].sequence].state = at[c->scratch.row[r].sequence].next_state;
    }
    return 0;
}
