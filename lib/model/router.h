/* SPDX-License-Identifier: Apache-2.0 */
/* The router of a layer: from its logits z (one per expert) to K experts and their gate weights.
 *   p = softmax(z), sigmoid(z), sqrt(ln(1 + exp(z))), or z itself (gating)
 *   s = p + bias                         for the choice only
 *   with groups: the experts are divided evenly, in order; the score of a group is the sum of its
 *   two largest s, with softmax its largest; only experts of the `groups_used` best groups are
 *   chosen
 *   I = the K largest s                  ties: the lower number; or those of a table by the token
 *   w = p of I; ROUTER_SOFTMAX_AFTER: softmax over these K; ROUTER_SIGMOID_AFTER: sigmoid of each
 *   ROUTER_SPARSE_MIXER (p = z): the k-th chosen expert has w = softmax of it among the logits not
 *   yet chosen that are near its own, m: those with m - z <= ROUTER_SPARSE_NEAR * max(|z|, m)
 *   normalise: w /= sum of w;  scale: w *= scale
 * Sources: the published code of Qwen3-MoE (softmax), DeepSeek-V2 (softmax, groups), DeepSeek-V3
 * (sigmoid, bias, groups, scale) and gpt-oss (softmax of the K), Phi-3.5-MoE (SparseMixer in
 * evaluation, twice its jitter of 0.01), Llama 4 (sigmoid of the chosen logit), DeepSeek-V4
 * (square root, table). */
#ifndef SLUICE_MODEL_ROUTER_H
#define SLUICE_MODEL_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

/* The numbers of GGUF's key expert_gating_func. */
enum router_gating {
    ROUTER_SOFTMAX = 1,
    ROUTER_SIGMOID = 2,
    ROUTER_SOFTMAX_AFTER = 3,
    ROUTER_SQRT_SOFTPLUS = 4,
    /* without a number in GGUF */
    ROUTER_SPARSE_MIXER = 100,
    ROUTER_SIGMOID_AFTER = 101
};

#define ROUTER_SPARSE_NEAR 0.02f

struct model_router {
    uint32_t experts, top_k; /* 0 < top_k <= experts */
    uint32_t gating;         /* enum router_gating */
    bool normalise;
    float scale;                  /* 0: none */
    uint32_t groups, groups_used; /* groups below 2: none; else they divide the experts, and those
                                   * used have at least top_k */
    const float *bias;            /* [experts], borrowed; NULL: none */
};

/* The input of a router's matrix from the gate input (lib/core/weights.h) of that layer, or, to
 * predict, of an earlier one: in[i] = x[i] * scale[i], with the router's own scale; NULL: x. in may
 * be x. */
static inline void model_router_input(const float *x, const float *scale, uint32_t n, float *in)
{
    for (uint32_t i = 0; i < n; i++)
        in[i] = scale ? x[i] * scale[i] : x[i];
}

#endif
