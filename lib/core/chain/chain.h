/* SPDX-License-Identifier: Apache-2.0 */
/* A forward pass over several devices: each computes consecutive layers, a part, with a core of its
 * own. Rows go from part to part through memory of the host, and the results are those of one core,
 * bit for bit. One part: nothing but its core. */
#ifndef SLUICE_CORE_CHAIN_CHAIN_H
#define SLUICE_CORE_CHAIN_CHAIN_H

#include "lib/core/core.h"

#define CHAIN_PARTS_MAX 8

struct chain;

struct chain_part {
    struct device *device; /* borrowed; NULL: the host, as in core_config */
    uint32_t layers;
    size_t scratch_limit; /* as in core_config */
};

/* config: of all parts, but for device, layers and scratch_limit. The parts together have all
 * layers, in their order. NULL with *error. */
struct chain *chain_create(const struct core_config *config, const struct chain_part *parts,
                           uint32_t count, struct error *error);
void chain_destroy(struct chain *chain);

/* As the functions of a core (core.h). */
uint32_t chain_rows(
    const struct chain *chain); /* core_chunk: maximum of a pass, the smallest of the parts */
void chain_prefill_order(struct chain *chain, prefill_order_fn order);
size_t chain_scratch_bytes(const struct chain *chain);
/* A pass with a value that is not finite is repeated if another device than the host may have made
 * it, so that the error names the layer. */
int chain_pass(struct chain *chain, const struct core_pass *pass, struct error *error);
int chain_forward(struct chain *chain, const struct core_sequence *sequence, const uint32_t *tokens,
                  uint32_t position, uint32_t rows, struct error *error);
uint32_t chain_pass_number(const struct chain *chain);
float *chain_output(struct chain *chain, uint32_t row, uint32_t rows);
uint32_t chain_output_rows(const struct chain *chain);
int chain_check_output(struct chain *chain, const float *values, size_t count, struct error *error);
void chain_find_layer(struct chain *chain, bool on);
void chain_score(struct chain *chain, uint32_t row, uint32_t rows, const uint32_t *targets,
                 float *out);

#endif
