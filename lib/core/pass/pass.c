/* SPDX-License-Identifier: Apache-2.0 */
/* A pass, layer by layer: the source is asked for the experts of each layer once it is routed. A
 * token whose experts are all on the device is driven by resident_pass.c instead. */
#include "lib/core/internal.h"

static void publish_gate_inputs(struct core *c)
{
    c->source.gate_inputs(c->source.self, &c->pass.step,
                          core_fetch_rows(c, core_gate_input(c), c->hp.hidden), c->hp.hidden,
                          c->hp.hidden);
}

static void publish_inputs(struct core *c)
{
    uint32_t n = model_residual_floats(&c->hp);
    c->source.layer_inputs(c->source.self, &c->pass.step, core_fetch_rows(c, c->scratch.x, n), n,
                           n);
}

static int begin_layer(struct core *c, struct error *error)
{
    core_take_sequences(c);
    c->pass.step.routes = NULL;
    if (c->source.layer_starts)
        c->source.layer_starts(c->source.self, &c->pass.step);
    if (c->source.layer_inputs)
        publish_inputs(c);
    if (core_ngrams(c, error) != 0)
        return -1;
    core_early_inputs(c);
    if (c->hp.router_first && ffn_has_experts((enum layer_ffn)core_parts_now(c)->ffn)) {
        core_route_layer(c);
        if (c->source.gate_inputs)
            publish_gate_inputs(c);
        core_experts_open(c); /* they are loaded during attention */
    }
    return 0;
}

static int run_experts(struct core *c, struct error *error)
{
    if (c->hp.router_first) {
        core_ffn_norm(c);
    } else {
        core_gate_norm(c);
        core_route_layer(c);
        if (c->source.gate_inputs)
            publish_gate_inputs(c);
    }
    return core_experts(c, error);
}

static int run_layer(struct core *c, struct error *error)
{
    enum layer_ffn ffn = (enum layer_ffn)core_parts_now(c)->ffn;
    if (begin_layer(c, error) != 0)
        return -1;
    core_run_mixer(c);
    if (ffn == FFN_NONE)
        return 0;
    core_ffn_begin(c);
    if (ffn == FFN_DENSE)
        core_dense_layer(c);
    else if (run_experts(c, error) != 0)
        return -1;
    core_ffn_end(c);
    return 0;
}

/* The rows begin as the embeddings of their tokens, or as c->pass.resumed. */
static void begin_rows(struct core *c)
{
    if (c->pass.resumed)
        c->device->ops->write(c->device, c->scratch.x, c->pass.resumed,
                              (size_t)c->pass.step.rows * model_residual_floats(&c->hp) *
                                  sizeof(float));
    else
        core_residual_begin(c);
}

/* Layers [first, first + count) of a pass. */
static int run_each_layer(struct core *c, uint32_t first, uint32_t count, struct error *error)
{
    core_ngrams_begin(c, first, count);
    if (core_check_tokens(c, error) != 0)
        return -1;
    if (first == 0 && count == c->hp.layers)
        core_give_known(c);
    begin_rows(c);
    core_finite_begin(c);
    if (!c->pass.resumed && core_finite_embeddings(c, error) != 0)
        return -1;
    core_compute_angles(c);
    for (uint32_t layer = first; layer < first + count; layer++) {
        c->pass.step.layer = layer;
        if (run_layer(c, error) != 0 || core_finite_layer(c, error) != 0)
            return -1;
    }
    return 0;
}

/* The same of the rows that take_rows took, by the driver that can. */
static int run_layers(struct core *c, uint32_t first, uint32_t count, struct error *error)
{
    sl_assert(first >= c->first && first + count <= c->end && (first == 0 || c->pass.resumed));
    core_index_begin(c);
    if (count > 0 && core_index_resumes(c, first, error) != 0)
        return -1;
    device_enter(c->device);
    if (c->pass.sequence_count == 1 && c->pass.sequences->content > 0)
        device_begin(c->device, c->pass.sequences->content, c->scratch.row[0].position,
                     c->pass.step.rows);
    c->resident.logits_there = false;
    int status = 0;
    if (count == c->hp.layers && !c->finds_layer && core_pass_is_resident(c)) {
        core_run_resident(c);
    } else {
        status = run_each_layer(c, first, count, error);
        if (status == 0)
            core_fill_device(c);
    }
    device_wait(c->device); /* keys, values and states are in host memory */
    return status;
}

static void begin_pass(struct core *c, const struct core_sequence *sequences, uint32_t count,
                       uint32_t number)
{
    sl_assert(count <= DEVICE_SEQUENCES_MAX);
    c->pass.sequences = sequences;
    c->pass.sequence_count = count;
    c->pass.step =
        (struct expert_step){.pass = number ? number : ++c->passes, .row = c->scratch.source_row};
}

static void take_row(struct core *c, const struct core_row *row)
{
    uint32_t r = c->pass.step.rows++;
    sl_assert(r < c->chunk && row->token < c->hp.vocab && row->sequence < c->pass.sequence_count);
    bool continues = r > 0 && c->scratch.row[r - 1].sequence == row->sequence;
    c->scratch.row[r] = (struct device_row){
        .sequence = row->sequence, .position = row->position, .token = row->token};
    c->scratch.source_row[r] =
        (struct expert_row){.sequence = c->pass.sequences[row->sequence].sequence,
                            .member = row->sequence,
                            .position = row->position,
                            .token = row->token,
                            .first = continues ? c->scratch.source_row[r - 1].first : row->position,
                            .prefill = row->prefill};
    c->pass.step.prefill |= row->prefill;
    c->pass.step.decode |= !row->prefill;
}

static void take_rows(struct core *c, const struct core_pass *pass)
{
    uint32_t decoding = 0;
    sl_assert(pass->rows >= 1);
    begin_pass(c, pass->sequences, pass->sequence_count, pass->number);
    for (uint32_t r = 0; r < pass->rows; r++) {
        take_row(c, &pass->row[r]);
        decoding += !pass->row[r].prefill;
    }
    sl_assert(decoding <= DECODE_ROWS_MAX);
}

int core_pass(struct core *c, const struct core_pass *pass, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    take_rows(c, pass);
    return run_layers(c, 0, c->hp.layers, error);
}

uint32_t core_pass_number(const struct core *c)
{
    return c->pass.step.pass;
}

/* out NULL: the rows stay on the device. */
static int pass_layers(struct core *c, const struct core_pass *pass, uint32_t first, uint32_t count,
                       const float *in, float *out, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    take_rows(c, pass);
    c->pass.resumed = first > 0 ? in : NULL;
    int status = run_layers(c, first, count, error);
    c->pass.resumed = NULL;
    if (status == 0 && out)
        c->device->ops->read(c->device, c->scratch.x, out,
                             (size_t)pass->rows * model_residual_floats(&c->hp) * sizeof *out);
    return status;
}

int core_pass_layers(struct core *c, const struct core_pass *pass, uint32_t first, uint32_t count,
                     float *x, struct error *error)
{
    return pass_layers(c, pass, first, count, x, count > 0 ? x : NULL, error);
}

int core_pass_part(struct core *c, const struct core_pass *pass, const float *x_in, float *x_out,
                   struct error *error)
{
    return pass_layers(c, pass, c->first, c->end - c->first, x_in,
                       c->end < c->hp.layers ? x_out : NULL, error);
}

int core_forward(struct core *c, const struct core_sequence *sequence, const uint32_t *tokens,
                 uint32_t position, uint32_t rows, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    bool prefill = core_rows_prefill(rows);
    sl_assert(rows >= 1);
    begin_pass(c, sequence, 1, 0);
    for (uint32_t r = 0; r < rows; r++)
        take_row(c, &(struct core_row){
                        .position = position + r, .token = tokens[r], .prefill = prefill});
    return run_layers(c, 0, c->hp.layers, error);
}
