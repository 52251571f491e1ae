/* SPDX-License-Identifier: Apache-2.0 */
/* Small models of Llama 4: with more than one layer, every second one has experts. */
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

static void drop(struct make *m, unsigned layer, const char *rest)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, rest);
    make_drop_tensor(m, name);
}

/* A network of all tokens, whose tensors end so. */
static void network(struct make *m, unsigned layer, const char *end, unsigned h, unsigned inner,
                    uint32_t type)
{
    static const char *const matrices[] = {"gate", "up", "down"};
    for (unsigned i = 0; i < ARRAY_LEN(matrices); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_%s%s.weight", layer, matrices[i], end);
        make_add_tensor(m, name, type, i == 2 ? inner : h, i == 2 ? h : inner, 1);
    }
}

void make_llama4(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    static const char *const experts[] = {"ffn_gate_inp.weight", "ffn_gate_exps.weight",
                                          "ffn_up_exps.weight", "ffn_down_exps.weight"};
    unsigned step = layers > 1 ? 2 : 1;
    for (unsigned layer = 0; layer < layers; layer++) {
        drop(m, layer, "attn_q_norm.weight");
        drop(m, layer, "attn_k_norm.weight");
        if ((layer + 1) % step == 0) {
            network(m, layer, "_shexp", h, h, type);
            continue;
        }
        for (unsigned i = 0; i < ARRAY_LEN(experts); i++)
            drop(m, layer, experts[i]);
        network(m, layer, "", h, 2 * h, type);
    }
    make_u32(m, "llama4.expert_used_count", 1);
    make_u32(m, "llama4.interleave_moe_layer_step", step);
    make_u32(m, "llama4.feed_forward_length", 2 * h);
    make_add_tensor(m, "rope_freqs.weight", TENSOR_F32, h / 4, 1, 1);
}
