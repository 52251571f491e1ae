/* SPDX-License-Identifier: Apache-2.0 */
/* The model core: forward pass of a MoE model over rows: tokens, each of which names its sequence
 * and position. The tokens of a prompt's chunk are rows, and so is the token of a decode step.
 *
 * A pass may have rows of several sequences, of prompts and of answers. Layer by layer, each expert
 * that some row is routed to is one item: it is pinned, demanded, waited for and computed once, for
 * all its rows together, and the bits of a row are those that it has alone. (In offline tools rows
 * may choose among forms of an expert: then each form is an item.) What the source gets of
 * a layer (weights.h) names every row: the gate inputs and logits of those that decode, the routes
 * of all, the predicted counts of those of prompts. An item with a row that decodes is served by
 * the rules of decode, because an answer waits for it. If no row is of a prompt, experts are
 * computed by rank, and else in the order of a prompt's chunk. A pass fails as a whole.
 * Architectures differ only in model_hparams and in the dense tensors that a model has. No
 * processes, shared memory or messages: weights come through struct weights_source, the KV cache
 * through pointers.
 *
 * Row invariance (docs/architecture.md): threads divide outputs or rows, never a reduction, so the
 * bits of a row depend neither on the chunk size nor on other rows.
 *
 * core_create allocates all memory; a forward pass allocates nothing. One calling thread at a time
 * (thread 0 of the pool). */
#ifndef SLUICE_CORE_CORE_H
#define SLUICE_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/core/weights.h"
#include "lib/device/device.h"
#include "lib/kernels/kernels.h"
#include "lib/model/index/model_index.h"
#include "lib/policy/access/prefill.h"
#include "lib/policy/access/routing.h"
#include "lib/tensor/tensor_type.h"

struct core;

struct core_config {
    const struct model_index *model; /* borrowed while the core lives; checked */
    /* What computes (lib/device), borrowed; NULL: the host, with `ops` and `threads`. */
    struct device *device;
    /* The layers of this core, if it is a part of several (lib/core/chain): it has only their
     * weights. layers 0: from first_layer to the last. */
    uint32_t first_layer, layers;
    const struct kernel_ops *ops;
    struct weights_source source;
    /* Types the source may serve experts in, in addition to those of the index (offline tools
     * quantise in memory); NULL: none. Read only by core_create. */
    const enum tensor_type *expert_types;
    size_t expert_type_count;
    uint32_t forms; /* of an expert, that weights_source.form chooses among; 0: it is not asked */
    uint32_t threads;
    int nice;       /* of the worker threads */
    uint32_t chunk; /* maximum rows of a forward pass */
    /* Maximum tokens of a sequence; 0: those that the model was trained for. An indexer that would
     * choose all of so many is not computed. */
    uint32_t positions;
    size_t scratch_limit; /* the chunk is halved until scratch fits; 0: no limit */
    size_t output_bytes;  /* for logits of several rows at once, if more than the default */
    prefill_order_fn prefill_order;
};

/* Scores that an indexer makes of a row for each list in a sequence of so many positions. */
static inline uint32_t core_index_scores(const struct model_hparams *h, uint32_t positions)
{
    return positions / model_index_unit(h);
}

/* Rows of a chunk whose positions an indexer chooses at a time: their scores of so many positions
 * take up to CORE_SCORES_BYTES, or are those of one row. */
#define CORE_SCORES_BYTES (4u << 20)
static inline uint32_t core_index_rows(const struct model_hparams *h, uint32_t positions,
                                       uint32_t chunk)
{
    uint64_t scores = (uint64_t)core_index_scores(h, positions) * model_index_lists(h);
    scores += scores == 0; /* a context may be shorter than a pool */
    uint32_t rows = (uint32_t)(CORE_SCORES_BYTES / (scores * sizeof(float)));
    uint32_t most = chunk < DEVICE_BLOCK_ROWS ? chunk : DEVICE_BLOCK_ROWS;
    return rows < 1 ? 1 : rows < most ? rows : most;
}

/* Copies vectors, resolves dense matrices (all dense entries must be resident) and allocates. */
struct core *core_create(const struct core_config *config, struct error *error);
void core_destroy(struct core *core);

/* Bytes that core_create would take of config->device, which only states its types and its
 * workspace: neither its memory nor the source is used. */
int core_device_bytes(const struct core_config *config, uint64_t *bytes, struct error *error);

/* Order in which a chunk's missing experts are requested, from the next pass on. */
void core_prefill_order(struct core *core, prefill_order_fn order);

uint32_t core_chunk(const struct core *core);       /* current chunk size, in rows */
size_t core_scratch_bytes(const struct core *core); /* allocated for all of the above */
uint32_t core_output_rows(
    const struct core *core); /* maximum rows of core_output; 0: without the last layer */

/* A sequence as the core sees it: keys and values per layer, in whole tiles (kernels.h). */
struct core_sequence {
    uint32_t sequence;
    enum kv_type kv_type;
    void *const *keys;
    void *const *values;
    void *const
        *index;    /* keys of indexers, of layers that have one; read if the core computes it */
    uint32_t ring; /* in layers with a window, position p is at p % ring: whole tiles, at least the
                    * window and the rows of a pass less 1; 0: at p */
    /* Recurrent state (model_state_bytes), if the model has one: before the first row of a pass
     * (not read if that is position 0) and after its last. May be the same memory, if a pass that
     * fails need not be repeated. */
    const void *state;
    void *next_state;
    /* Names what the sequence has before the first row of a pass (device_ops.begin); 0: nothing
     * names it. Used in passes of one sequence. */
    uint64_t content;
    bool renormalise_skips; /* scale up the other weights by the share of skipped experts */
};

/* A token of a pass. */
struct core_row {
    uint32_t sequence; /* number in core_pass.sequences */
    uint32_t position;
    uint32_t token;
    bool prefill; /* of a prompt's chunk. Others decode: at most DECODE_ROWS_MAX of a pass */
};

struct core_pass {
    const struct core_sequence *sequences; /* borrowed during the pass */
    uint32_t sequence_count;
    const struct core_row *row; /* those of a sequence in order of their positions, without a gap */
    uint32_t rows;              /* 1 .. core_chunk() */
    uint32_t number;            /* expert_step.pass; 0: the core counts its passes */
};

/* Computes the rows of a pass. The KV rows of a sequence before its first position here must be
 * valid; those of the positions of the pass are written. On -1 the sequences may continue later
 * from the same positions: nothing outside these KV rows and next_state was changed and no pin is
 * left. */
int core_pass(struct core *core, const struct core_pass *pass, struct error *error);

/* expert_step.pass of the last pass. */
uint32_t core_pass_number(const struct core *core);

/* Layers [first, first + count) of a pass, for tools that take many sequences through one layer
 * before the next. x: [rows] of model_residual_floats, written after the last of these layers;
 * read before the first of them unless that is layer 0. With count 0 the rows are only taken, for
 * core_output. */
int core_pass_layers(struct core *core, const struct core_pass *pass, uint32_t first,
                     uint32_t count, float *x, struct error *error);

/* All layers of a core that may be a part: x_in, likewise, is read unless it has layer 0, x_out
 * written unless it has the last. They may be the same. */
int core_pass_part(struct core *core, const struct core_pass *pass, const float *x_in, float *x_out,
                   struct error *error);

/* Whether so many tokens of one sequence, computed together, are treated as a prompt's chunk: a
 * single one decodes, even if it is the last of a prompt. */
static inline bool core_rows_prefill(uint32_t rows)
{
    return rows > 1;
}

/* The same as core_pass for one sequence: tokens at positions position, position + 1, ..., of a
 * prompt if core_rows_prefill(rows). */
int core_forward(struct core *core, const struct core_sequence *sequence, const uint32_t *tokens,
                 uint32_t position, uint32_t rows, struct error *error);

/* Steps on their own, for tools that repeat them. The norm of a row of n floats as the architecture
 * names it; bias NULL: none; y may be x. And y = activation(gate) * up without limits;
 * y may be gate. */
void core_apply_norm(const struct kernel_ops *ops, const struct model_hparams *h, const float *x,
                     const float *weight, const float *bias, uint32_t n, float *y);
void core_apply_activation(const struct kernel_ops *ops, const struct model_hparams *h,
                           const float *gate, const float *up, uint32_t n, float *y);

/* Logits of rows [row, row + rows) of the last forward pass, rows <= core_output_rows:
 * [rows][vocab], valid until the next call. */
float *core_output(struct core *core, uint32_t row, uint32_t rows);

/* Values of core_output or core_score: -1 with ERR_NOT_FINITE if they are not numbers, or the rows
 * that they were made of. A pass in which the host computed such a value in a layer has failed
 * before, with the layer in its error. Of another device only this is checked; a pass repeated with
 * core_find_layer, which also checks the rows after each layer, fails with the layer if they have
 * such a value. */
int core_check_output(struct core *core, const float *values, size_t count, struct error *error);
void core_find_layer(struct core *core, bool on);

/* Log-probability of a token under one row of logits: its logit less this. */
double core_log_sum(const float *logits, uint32_t vocab);
/* Log-probability of `token` under one row of logits. */
float core_log_probability(const float *logits, uint32_t vocab, uint32_t token);

/* Log-probability of targets[i] after row `row + i` of the last forward pass; any number of
 * rows. */
void core_score(struct core *core, uint32_t row, uint32_t rows, const uint32_t *targets,
                float *out);

#endif
