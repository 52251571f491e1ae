/* SPDX-License-Identifier: Apache-2.0 */
/* The router of a layer: from its logits z (one per expert) to K experts and their gate weights.
 *   p = softmax(z), sigmoid(z), or z itself (gating)
 *   s = p + bias                         for the choice only
 *   with groups: the experts are divided evenly, in order; the score of a group is the sum of its two
 *   largest s, with softmax its largest; only experts of the `groups_used` best groups are chosen
 *   I = the K largest s                  ties: the lower number
 *   w = p of I; ROUTER_SOFTMAX_AFTER: softmax over these K
 *   normalise: w /= sum of w;  scale: w *= scale
 * Sources: the published code of Qwen3-MoE (softmax), DeepSeek-V2 (softmax, groups), DeepSeek-V3
 * (sigmoid, bias, groups, scale) and gpt-oss (softmax of the K). */
#ifndef SLUICE_MODEL_ROUTER_H
#define SLUICE_MODEL_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

/* The numbers of GGUF's key expert_gating_func. */
enum router_gating { ROUTER_SOFTMAX = 1, ROUTER_SIGMOID = 2, ROUTER_SOFTMAX_AFTER = 3 };

struct model_router {
    uint32_t experts, top_k; /* 0 < top_k <= experts */
    uint32_t gating;         /* enum router_gating */
    bool normalise;
    float scale;                  /* 0: none */
    uint32_t groups, groups_used; /* groups below 2: none; else they divide the experts, and those
                                   * used have at least top_k */
    const float *bias;            /* [experts], borrowed; NULL: none */
};

#endif
