/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a small model of qwen3moe into one whose attention is over positions that an indexer
 * chooses. */
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make_parts.h"

static void number(struct make *m, const char *arch, const char *key, uint32_t value)
{
    char full[80];
    snprintf(full, sizeof full, "%s.attention.indexer.%s", arch, key);
    make_u32(m, full, value);
}

static void tensor(struct make *m, unsigned layer, const char *name, unsigned ne0, unsigned ne1)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.indexer.%s", layer, name);
    make_add_tensor(m, full, TENSOR_F32, ne0, ne1, 1);
}

void make_indexer(struct make *m, const char *arch, unsigned layer, unsigned h)
{
    bool minimax = strcmp(arch, "minimax-m3") == 0;
    unsigned key = minimax ? 2 * h : h; /* of one head instead of two */
    if (minimax || strcmp(arch, "qwen4exp") == 0) {
        tensor(m, layer, "q_proj.weight", h, 2 * h);
        tensor(m, layer, "k_proj.weight", h, key);
        tensor(m, layer, "q_norm.weight", key, 1);
        tensor(m, layer, "k_norm.weight", key, 1);
        return;
    }
    tensor(m, layer, "attn_q_b.weight", h, 2 * h);
    tensor(m, layer, "attn_k.weight", h, h);
    tensor(m, layer, "k_norm.weight", h, 1);
    tensor(m, layer, "k_norm.bias", h, 1);
    tensor(m, layer, "proj.weight", h, 2);
}

/* In every second layer over pools of 4 positions. */
static void pools(struct make *m, unsigned layers, unsigned h)
{
    int32_t ratios[8] = {0};
    number(m, "qwen4exp", "head_count", 2);
    number(m, "qwen4exp", "key_length", h);
    number(m, "qwen4exp", "top_k", 32);
    for (unsigned layer = 1; layer < layers; layer += 2) {
        ratios[layer] = 4;
        make_indexer(m, "qwen4exp", layer, h);
    }
    make_i32s(m, "qwen4exp.attention.compress_ratios", ratios, layers);
}

void make_gated_pools(struct make *m, const char *arch, unsigned layers, unsigned h)
{
    number(m, arch, "head_count", 2);
    number(m, arch, "key_length", h);
    number(m, arch, "top_k", 32);
    number(m, arch, "kpool", 4);
    for (unsigned layer = 1; layer < layers; layer += 2) {
        char name[64];
        make_indexer(m, arch, layer, h);
        snprintf(name, sizeof name, "blk.%u.indexer_compressor_gate.weight", layer);
        make_add_tensor(m, name, TENSOR_F32, h, h, 1);
        snprintf(name, sizeof name, "blk.%u.indexer_compressor_ape.weight", layer);
        make_add_tensor(m, name, TENSOR_F32, h, 4, 1);
    }
}

void make_indexers(struct make *m, const char *arch, unsigned layers, unsigned h)
{
    number(m, arch, "head_count", 2);
    number(m, arch, "key_length", h);
    number(m, arch, "top_k", 32);
    for (unsigned layer = 0; layer < layers; layer++)
        make_indexer(m, arch, layer, h);
}

/* Every second layer attends to a window, with latents and keys twice as large and no indexer. */
static void window_of_latents(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    const struct make_row window[] = {{"attn_q_b.weight", type, h, 4 * h + 4},
                                      {"attn_kv_a_mqa.weight", type, h, 2 * h + 2},
                                      {"attn_kv_a_norm.weight", TENSOR_F32, 2 * h, 1},
                                      {"attn_k_b.weight", 0, 0, 0},
                                      {"attn_v_b.weight", 0, 0, 0},
                                      {0}};
    char name[64];
    make_edit(m, layer, window);
    snprintf(name, sizeof name, "blk.%u.attn_k_b.weight", layer);
    make_add_tensor(m, name, type, 2 * h, 2 * h, 2);
    snprintf(name, sizeof name, "blk.%u.attn_v_b.weight", layer);
    make_add_tensor(m, name, type, 2 * h, h, 2);
}

void make_dots3note(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    const struct {
        const char *key;
        unsigned value;
    } keys[] = {{"attention.sliding_window", 16},
                {"attention.kv_lora_rank_swa", 2 * h},
                {"attention.key_length_swa", 2 * h + 2},
                {"attention.value_length_swa", 2 * h},
                {"attention.key_length_mla_swa", 2 * h + 2},
                {"attention.value_length_mla_swa", h}};
    make_mla(m, "dots3note", layers, h, type);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        make_number(m, "dots3note", keys[i].key, keys[i].value);
    make_f32(m, "dots3note.rope.freq_base_swa", 1000);
    make_array_raw(m, "dots3note.attention.sliding_window_pattern", GGUF_BOOL, layers, 0);
    number(m, "dots3note", "head_count", 2);
    number(m, "dots3note", "key_length", h);
    number(m, "dots3note", "top_k", 32);
    for (unsigned layer = 0; layer < layers; layer++) {
        bytes_add(&make_key(m, "dots3note.attention.sliding_window_pattern")->value,
                  layer % 2 ? "\1" : "\0", 1);
        make_edit(m, layer,
                  (const struct make_row[]){{"attn_gate.weight", type, h, 2},
                                            {"attn_k_norm.weight", TENSOR_F32, 2, 1},
                                            {0}});
        if (layer % 2 == 0)
            make_indexer(m, "dots3note", layer, h);
        else
            window_of_latents(m, layer, h, type);
    }
}

void make_indexed(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type)
{
    if (strcmp(arch, "qwen4exp") == 0)
        pools(m, layers, h);
    bool minimax = strcmp(arch, "minimax-m3") == 0;
    if (strcmp(arch, "deepseek32") == 0 || strcmp(arch, "glm-dsa") == 0)
        make_mla(m, arch, layers, h, type);
    else if (!minimax)
        return;
    number(m, arch, "head_count", minimax ? 1 : 2);
    number(m, arch, "key_length", minimax ? 2 * h : h);
    number(m, arch, "top_k", minimax ? 2 : 32);
    for (unsigned layer = minimax && layers > 1; layer < layers; layer++) /* with experts */
        make_indexer(m, arch, layer, h);
    if (!minimax)
        return;
    number(m, arch, "block_size", 16);
    number(m, arch, "local_blocks", 1);
}
