/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of rows that architectures share; common.c says what each one is. */
#ifndef SLUICE_MODEL_ARCH_FAMILIES_COMMON_H
#define SLUICE_MODEL_ARCH_FAMILIES_COMMON_H

#include "lib/model/arch/families/rows.h"

extern const struct arch_row arch_common[], arch_transformer[], arch_sizes[], arch_counts[],
    arch_ends[], arch_no_window[], arch_window[], arch_scaling[], arch_scaling_keys[],
    arch_attention[], arch_joined_attention[], arch_attention_out[], arch_biases[],
    arch_expert_ffn[], arch_experts[], arch_all_experts[], arch_softmax[], arch_leading_dense[],
    arch_dense_ffn[], arch_dense_network[], arch_dense_matrices[], arch_ungated_shared[],
    arch_shared_width[], arch_sigmoid[], arch_mamba2[], arch_mla_sizes[], arch_mla[], arch_kda[],
    arch_mla_indexer[], arch_mla_indexer_unused[], arch_kda_layers[], arch_kda_gates[],
    arch_mixed_streams[], arch_weighed_streams[], arch_head_norms[], arch_embedding[],
    arch_output[], arch_attention_matrices[], arch_routed[];

#endif
