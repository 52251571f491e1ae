/* Where the model core gets its weights: the golden tests and benchmarks hand it a file in memory,
 * the process the directory and the arena (experts.c). */
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

/*  QUEUED --pin--> WAITED --wait--> READY --computed, unpin--> DONE
 *     \------------pin------------------^
 *     \------------pin--> SKIPPED   (the precision policy leaves it out: no pin stands, its share
 * of \                             the tokens' sums is not added)
 *       \----------pin--> LOST      (masked decode only: it was evicted since the mask was made; no
 *                                    pin stands, the core routes again) */
enum expert_item_state { ITEM_QUEUED, ITEM_WAITED, ITEM_READY, ITEM_DONE, ITEM_SKIPPED, ITEM_LOST };

/* One expert of one layer and chunk. Writers: the core, but `state` (WAITED, READY, SKIPPED, LOST),
 * `tier` and `matrix`, which are the source's. */
struct expert_item {
    uint32_t expert;
    uint32_t tokens; /* of the chunk that use it */
    float weight;    /* largest gate weight among them */
    /* Least over its tokens of the sum of the gate weights of better ranks, of weights normalised
     * to sum 1: s_r of HOBBIT §3.2; 0 when some token ranks it first. */
    float weight_before;
    float popularity; /* prefill: share of the chunk's experts that more of its tokens use */
    uint32_t rank;    /* in decode: its rank; in prefill the best */
    enum expert_item_state state;
    enum precision precision;                   /* of the entry that serves it */
    struct kernel_matrix matrix[EXPERT__COUNT]; /* gate, up, down; valid while READY */
};

/* The matrices of an expert whose entry's slot begins at `slot`. */
static inline void expert_matrices(const struct model_entry *entry, const void *slot,
                                   struct kernel_matrix out[EXPERT__COUNT])
{
    for (int m = 0; m < EXPERT__COUNT; m++) {
        const struct model_matrix *x = &entry->matrix[m];
        out[m] = (struct kernel_matrix){.data = (const uint8_t *)slot + x->slot_offset,
                                        .row_bytes = x->row_bytes,
                                        .k = x->k,
                                        .n = x->n,
                                        .type = (enum tensor_type)x->type};
    }
}

struct expert_step {
    uint32_t sequence; /* low bits of the request id */
    uint32_t position; /* of the token, first of the chunk */
    uint32_t rows;     /* 1: decode */
    uint32_t layer;
};

struct weights_source {
    void *self;

    /* Payload of a dense entry; stays where it is while the core lives. */
    const void *(*dense)(void *self, uint32_t entry);

    /* Slot bytes a chunk may have pinned at once (one item is always allowed). */
    uint64_t (*pin_limit)(void *self);

    /* A look without a pin, for the order of work only. */
    bool (*resident)(void *self, uint32_t layer, uint32_t expert);

    /* Pins every item, looks at it (WAITED or READY with its parts) and asks for what is not
     * there. */
    void (*pin)(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count);

    /* Waits until at least one of the items that are WAITED became READY. -1 when it never will,
     * or when the sequence shall end. Items in other states are passed over. */
    int (*wait)(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count, struct error *error);

    /* Ends the use of a pinned item. */
    void (*unpin)(void *self, const struct expert_step *step, struct expert_item *item);

    /* The rest may be NULL. */

    /* Masked routing (SwapMoE): fills allowed[expert] with the experts of the layer that may be
     * routed to, at least top-k of them; the core routes as if the others' logits were -inf.
     * False: this sequence routes exactly. Called by one thread before the routers of a layer run.
     */
    bool (*mask)(void *self, const struct expert_step *step, bool *allowed);

    /* Masked routing: what would have been chosen without the mask. importance[expert]: sum over
     * the chunk's tokens whose unmasked top-k contains it of |x| * G(x)_expert, x the gate input, G
     * the softmax over all experts (SwapMoE); 0: not chosen. */
    void (*choice)(void *self, const struct expert_step *step, const float *importance);

    /* decode: the gate input of this layer, before its router runs. x stays as it is until all pins
     * of the layer are set. */
    void (*gate_input)(void *self, const struct expert_step *step, const float *x, uint32_t n);

    /* decode: what the router said of every expert, before anything of the layer is pinned. */
    void (*logits)(void *self, const struct expert_step *step, const float *logits,
                   uint32_t experts);

    /* prefill: how many tokens of the chunk will use each expert of the *next* layer, as its router
     * says of this layer's gate input. Not computed when NULL. */
    void (*next_counts)(void *self, const struct expert_step *step, const float *counts,
                        uint32_t experts);

    /* All rows of the chunk, for offline tools: the residual stream as the layer takes it (before
     * attention and its norm), and the gate input of its router; row r at x + r * stride floats, n
     * floats each. */
    void (*layer_inputs)(void *self, const struct expert_step *step, const float *x, size_t stride,
                         uint32_t n);
    void (*gate_inputs)(void *self, const struct expert_step *step, const float *x, size_t stride,
                        uint32_t n);

    /* A layer begins: sign of life, test switches. */
    void (*layer_starts)(void *self, const struct expert_step *step);

    /* Called by one thread every now and then within a long chunk: still computing. */
    void (*alive)(void *self);

    /* What was routed, rows x top-k (tests). */
    void (*routed)(void *self, const struct expert_step *step, const struct route *routes);
};

#endif
