/* SPDX-License-Identifier: Apache-2.0 */
/* The router of a layer on one row: from a gate input to logits, with the bits of the core.
 *   in = x * scale               model_router_input (lib/model/router.h)
 *   logits = matrix * in + bias  router_logits
 *   rule                         model_router_of (lib/model/arch/arch.h) with the bias of the
 * choice x is the gate input (lib/core/weights.h) of that layer or, to predict, of an earlier
 * one. */
#ifndef SLUICE_ROUTER_ROW_H
#define SLUICE_ROUTER_ROW_H

#include "lib/kernels/kernels.h"
#include "lib/model/index/model_index.h"
#include "lib/model/router.h"

/* Logits [begin, end) of one row. x: the input of the matrix, prepared for its type
 * (kernel_ops.activation). bias: [experts], added to the logits; NULL: none. logits: [experts].
 * Threads may divide the experts at any boundary. */
void router_logits(const struct kernel_ops *ops, const struct kernel_matrix *matrix,
                   const float *bias, uint32_t begin, uint32_t end, const void *x, float *logits);

/* The second step alone, for products of several rows at once. */
void router_add_bias(const struct kernel_ops *ops, const float *bias, uint32_t begin, uint32_t end,
                     float *logits);

/* Payload of a dense entry; NULL: it is not in memory now. */
typedef const void *router_dense(void *self, uint32_t entry);

/* The routers of a model, and the memory for one row of one thread. */
struct router_row;

/* model, ops and self are borrowed until router_row_destroy. NULL: out of memory. */
struct router_row *router_row_create(const struct model_index *model, const struct kernel_ops *ops,
                                     router_dense *dense, void *self);
/* row NULL: nothing. */
void router_row_destroy(struct router_row *row);

#define ROUTER_NO_TOKEN UINT32_MAX

/* Computes logits [experts] of a layer's router from the gate input x [hidden] of a token, and sets
 * *rule, whose bias is valid until the next call. Where a table says which experts the token uses,
 * the others have -infinity, so that the choice is right whatever x is; not of ROUTER_NO_TOKEN.
 * False: the layer has no router, or not all of it is in memory; then logits and *rule are not
 * set. */
bool router_row_logits(struct router_row *row, uint32_t layer, const float *x, uint32_t token,
                       float *logits, struct model_router *rule);

#endif
