/* SPDX-License-Identifier: Apache-2.0 */
/* Source of the weights of the model core: a file in memory in golden tests and benchmarks,
 * directory and arena in the compute process (procs/engine/compute/experts). */
#ifndef SLUICE_CORE_WEIGHTS_H
#define SLUICE_CORE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/kernels/kernels.h"
#include "lib/model/index/model_index.h"
#include "lib/policy/access/prefill.h"
#include "lib/policy/access/routing.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

/* QUEUED --pin--> WAITED --wait--> READY --computed, unpin--> DONE
 *   \------------pin---------------^
 *   \------------pin--> SKIPPED  (left out by the precision policy: no pin, its share of the
 *    \                            tokens' sums is not added)
 *     \----------pin--> LOST     (masked decode only: evicted after the mask was made; no pin,
 *                                 the core routes again) */
enum expert_item_state { ITEM_QUEUED, ITEM_WAITED, ITEM_READY, ITEM_DONE, ITEM_SKIPPED, ITEM_LOST };

/* Rows of a pass that decode, at most (core.h): the source may have memory for each of them. */
#define DECODE_ROWS_MAX 64

/* One expert of one layer and pass: it is demanded once, read once, and computed for all rows that
 * are routed to it. Written by the core, except `state` (WAITED, READY, SKIPPED, LOST), `precision`
 * and `matrix`: written by the source. */
struct expert_item {
    uint32_t expert;
    uint32_t form;       /* that its rows chose (weights_source.form); else 0 */
    uint32_t tokens;     /* rows of the pass that are routed to it */
    const uint32_t *row; /* [tokens] their numbers, ascending */
    bool prefill;        /* all of them are tokens of prompts: no stream waits for it */
    float weight;        /* largest gate weight among them */
    /* Minimum, over its tokens, of the sum of the gate weights of better ranks, weights normalised
     * to sum 1: s_r of HOBBIT §3.2; 0 when some token ranks it first. */
    float weight_before;
    float popularity; /* prefill: share of the pass's experts with more tokens */
    uint32_t rank;    /* the best among its rows */
    bool queued;      /* the core's: it has a place in the order of work */
    enum expert_item_state state;
    enum precision precision;                   /* of the entry that serves it */
    struct kernel_matrix matrix[EXPERT__COUNT]; /* valid while READY; n 0: it has none */
};

/* The matrices of an expert whose slot begins at `slot`; NULL: without data. */
static inline void expert_matrices(const struct model_entry *entry, const void *slot,
                                   struct kernel_matrix out[EXPERT__COUNT])
{
    for (int m = 0; m < EXPERT__COUNT; m++) {
        const struct model_matrix *x = &entry->matrix[m];
        bool there = slot && x->n > 0;
        const uint8_t *data = there ? (const uint8_t *)slot + x->slot_offset : NULL;
        out[m] = (struct kernel_matrix){.data = data,
                                        .row_bytes = x->row_bytes,
                                        .k = x->k,
                                        .n = x->n,
                                        .type = (enum tensor_type)x->type};
    }
}

/* A row of a pass, as the source sees it. */
struct expert_row {
    uint32_t sequence; /* low bits of the request id */
    uint32_t member;   /* number of the sequence in the pass (core_pass.sequences) */
    uint32_t position, token;
    uint32_t first; /* position of the first row of its chunk, the rows of its sequence beside it */
    bool prefill;   /* a token of a prompt's chunk; else it decodes */
};

/* One layer of one pass. */
struct expert_step {
    uint32_t pass; /* number of the pass; they count from 1 on, again when a core is created */
    uint32_t rows;
    const struct expert_row *row; /* [rows] */
    const struct route *routes;   /* [rows][top-k], best first; NULL: the layer is not routed yet */
    uint32_t layer;
    bool prefill; /* some row is of a prompt's chunk */
    bool decode;  /* some row is not */
};

struct weights_source {
    void *self;

    /* Payload of a dense entry; valid while the core exists. */
    const void *(*dense)(void *self, uint32_t entry);

    /* Maximum slot bytes a chunk may pin at once (one item is always allowed). */
    uint64_t (*pin_limit)(void *self);

    /* Residency without a pin; used only to order the work. */
    bool (*resident)(void *self, uint32_t layer, uint32_t expert);

    /* Pins every item, sets its state (WAITED, or READY with its matrices) and requests the missing
     * ones. */
    void (*pin)(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count);

    /* Waits until at least one WAITED item is READY; ignores items in other states. -1 with *error:
     * none can become READY, or the sequence was cancelled. */
    int (*wait)(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count, struct error *error);

    /* Releases the pin of an item. */
    void (*unpin)(void *self, const struct expert_step *step, struct expert_item *item);

    /* The functions below may be NULL. */

    /* A table on storage (model_index.h). NULL: `dense` has its entry as a whole. */

    /* Rows of it, by number, that the pass will read; may be called before the first layer, and
     * more than once. They are read into memory meanwhile, as far as there is room. */
    void (*table_ask)(void *self, const uint32_t *row, uint32_t rows);

    /* Rows of it, by number, of each token of a pass, before the layers that read them, for those
     * who record them: [rows of the step][rows_of_token]. May be NULL alone. */
    void (*table_rows)(void *self, const struct expert_step *step, const uint32_t *row,
                       uint32_t rows_of_token);

    /* Copies rows of it to `to`, one after the other as in the file, and waits for those that are
     * not in memory. -1 with *error: one cannot be read, or the sequence was cancelled. Not NULL if
     * table_ask is not. */
    int (*table_read)(void *self, const uint32_t *row, uint32_t rows, uint8_t *to,
                      struct error *error);

    /* Before the first layer of a pass: experts that a table names, for each layer with a table
     * and each sequence of the pass. tokens [experts]: how many of its rows, from `row` on, use
     * each. */
    void (*known)(void *self, const struct expert_step *step, uint32_t layer, uint32_t row,
                  const uint32_t *tokens);

    /* For a device that prefetches (device.h): pins an expert that can serve an access now and
     * makes the item READY. False: none can. It is no access, and requests nothing. An item of no
     * token was not predicted: the device has space for it. NULL: nothing is prefetched. */
    bool (*pin_ready)(void *self, const struct expert_step *step, struct expert_item *item);

    /* Masked routing (SwapMoE): sets allowed[expert] for the experts of the layer that may be
     * routed to, at least top-k of them; the core routes as if the logits of the others were -inf.
     * False: this sequence routes exactly. One thread calls it before the layer is routed. */
    bool (*mask)(void *self, const struct expert_step *step, bool *allowed);

    /* Masked routing: the unmasked choice. importance[expert]: sum, over the rows whose
     * unmasked top-k contains it, of |x| * G(x)_expert, x the gate input, G the softmax over all
     * experts (SwapMoE); 0: not chosen. */
    void (*choice)(void *self, const struct expert_step *step, const float *importance);

    /* If some row decodes: the gate inputs of this layer, [rows][n], before its router runs; those
     * of a prompt's rows do not matter. x is valid until all pins of the layer are set. The gate
     * input is what the router of this layer multiplies with its matrix; it need not be the input
     * of the experts. A layer with DENSE_ROUTER_SCALE multiplies it, element by element, with that
     * vector first: x is then RMSNorm(residual) / sqrt(n) without the vector. To apply the router
     * of another layer to x, multiply with that layer's vector. */
    void (*gate_input)(void *self, const struct expert_step *step, const float *x, uint32_t n);

    /* If some row decodes, and no table chooses: the router logits, [rows][experts], before any
     * expert of the layer is pinned. rule: how they choose experts, with its bias in host
     * memory. */
    void (*logits)(void *self, const struct expert_step *step, const float *logits,
                   const struct model_router *rule);

    /* If some row decodes: may replace routes of such rows, [rows][top-k], by experts of its choice
     * with weights of its choice, best first and each expert once in a row; those of rows with
     * `prefill` stay. A row of a prompt that is the only one of its sequence in a pass is not one
     * of them: it decodes (core_rows_prefill). What a table of experts chooses stays: such layers
     * are not asked for. logits and rule: as of `logits`. After that, before the layer is pinned,
     * and only where `reroutes` is true: reading logits from another device takes time. */
    bool (*reroutes)(void *self);
    void (*reroute)(void *self, const struct expert_step *step, const float *logits,
                    const struct model_router *rule, struct route *routes);

    /* If some row is of a prompt's chunk: predicted accesses of the *next* layer by all such rows:
     * its router on this layer's gate input. counts[0..experts-1]: tokens per expert;
     * counts[experts..]: as weight_before of an expert item, for experts with tokens. Not computed
     * when NULL. */
    void (*next_counts)(void *self, const struct expert_step *step, const float *counts,
                        uint32_t experts);

    /* Offline tools, all rows of the pass: the residual at the input of the layer (before
     * attention and its norm), and the gate input of its router. Row r at x + r * stride floats, n
     * floats each. */
    void (*layer_inputs)(void *self, const struct expert_step *step, const float *x, size_t stride,
                         uint32_t n);
    void (*gate_inputs)(void *self, const struct expert_step *step, const float *x, size_t stride,
                        uint32_t n);

    /* Offline tools, with core_config.forms: which form of an expert, below `forms`, serves a row
     * that is routed to it. Rows with different forms of an expert are different items, as if they
     * were of different passes. weight_before: that of the row in expert_item. After `routed`, for
     * every row and rank in their order. */
    uint32_t (*form)(void *self, const struct expert_step *step, uint32_t row,
                     const struct route *route, float weight_before);

    /* Start of a layer: progress report, test hooks. */
    void (*layer_starts)(void *self, const struct expert_step *step);

    /* Progress report within a long chunk; called by one thread. */
    void (*alive)(void *self);

    /* Called before each pass. True: the device may compute the whole token without asking the
     * host, because it has all experts (pass/resident_pass.c); *precision is the one that serves
     * every access, whatever is resident. False: a policy needs to see accesses or routes, so the
     * host stays in the loop. */
    bool (*whole_on_device)(void *self, enum precision *precision);

    /* What such a token used of a layer: top-k routes, best first, after the token. No other
     * function but layer_starts is called for it: nothing is pinned, and gate inputs and logits do
     * not come to the host. Not NULL if `whole_on_device` is not. */
    void (*used)(void *self, const struct expert_step *step, const struct route *routes);

    /* Tests: the routes, rows x top-k. */
    void (*routed)(void *self, const struct expert_step *step, const struct route *routes);
};

#endif
