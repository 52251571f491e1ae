/* SPDX-License-Identifier: Apache-2.0 */
/* Small models with recurrent layers: the first layer is one, the second has attention, and so
 * on. */
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make_parts.h"

#define TAPS 3

void make_edit(struct make *m, unsigned layer, const struct make_row *rows)
{
    for (; rows->name; rows++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", layer, rows->name);
        if (make_tensor(m, name))
            make_drop_tensor(m, name);
        if (rows->ne0 > 0)
            make_add_tensor(m, name, rows->type, rows->ne0, rows->ne1, 1);
    }
}

void make_number(struct make *m, const char *arch, const char *key, uint32_t value)
{
    char full[80];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    make_u32(m, full, value);
}

void make_no_attention(struct make *m, unsigned layer)
{
    make_edit(m, layer,
              (const struct make_row[]){{.name = "attn_q.weight"},
                                        {.name = "attn_k.weight"},
                                        {.name = "attn_v.weight"},
                                        {.name = "attn_output.weight"},
                                        {.name = "attn_q_norm.weight"},
                                        {.name = "attn_k_norm.weight"},
                                        {0}});
}

/* One k head and two v heads of h / 2. */
static void deltanet(struct make *m, unsigned layer, unsigned h, uint32_t type, bool joined)
{
    make_no_attention(m, layer);
    make_edit(m, layer,
              (const struct make_row[]){{"attn_qkv.weight", type, h, 2 * h},
                                        {"attn_gate.weight", type, h, h},
                                        {"ssm_ba.weight", TENSOR_F32, joined ? h : 0, 4},
                                        {"ssm_beta.weight", TENSOR_F32, joined ? 0 : h, 2},
                                        {"ssm_alpha.weight", TENSOR_F32, joined ? 0 : h, 2},
                                        {"ssm_conv1d.weight", TENSOR_F32, TAPS, 2 * h},
                                        {"ssm_dt.bias", TENSOR_F32, 2, 1},
                                        {"ssm_a", TENSOR_F32, 2, 1},
                                        {"ssm_norm.weight", TENSOR_F32, h / 2, 1},
                                        {"ssm_out.weight", type, h, h},
                                        {0}});
}

static void qwen(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type)
{
    make_number(m, arch, "expert_shared_feed_forward_length", h);
    make_number(m, arch, "full_attention_interval", 2);
    make_number(m, arch, "ssm.conv_kernel", TAPS);
    make_number(m, arch, "ssm.state_size", h / 2);
    make_number(m, arch, "ssm.group_count", 1);
    make_number(m, arch, "ssm.time_step_rank", 2);
    make_number(m, arch, "ssm.inner_size", h);
    for (unsigned layer = 0; layer < layers; layer++) {
        make_edit(m, layer,
                  (const struct make_row[]){{.name = "ffn_norm.weight"},
                                            {"post_attention_norm.weight", TENSOR_F32, h, 1},
                                            {"ffn_gate_inp_shexp.weight", TENSOR_F32, h, 1},
                                            {"ffn_gate_shexp.weight", type, h, h},
                                            {"ffn_up_shexp.weight", type, h, h},
                                            {"ffn_down_shexp.weight", type, h, h},
                                            {0}});
        if (layer % 2 == 0)
            deltanet(m, layer, h, type, strcmp(arch, "qwen3next") == 0);
        else
            make_edit(m, layer, (const struct make_row[]){{"attn_q.weight", type, h, 2 * h}, {0}});
    }
}

/* Where a part reads two streams, and adds to them. */
static void streams(struct make *m, unsigned layer, const char *part, unsigned h, uint32_t type)
{
    static const char *const names[] = {"norm", "down", "up", "inject"};
    const struct make_row rows[] = {{"", TENSOR_F32, 2 * h, 1},
                                    {"", type, 2 * h, 4},
                                    {"", TENSOR_F32, 4, 2 * h},
                                    {"", TENSOR_F32, 2 * h, 2}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "hc_%s_%s.weight", part, names[i]);
        make_edit(m, layer,
                  (const struct make_row[]){{name, rows[i].type, rows[i].ne0, rows[i].ne1}, {0}});
    }
}

/* Of up to 3 tokens, a row of 4 elements for each. */
static void ngrams(struct make *m, unsigned h)
{
    make_i32s(m, "qwen4exp.ple.layers", (const int32_t[]){0}, 1);
    make_u32(m, "qwen4exp.ple.ngram_size", 3);
    make_u32(m, "qwen4exp.ple.heads_per_ngram", 1);
    make_u32(m, "qwen4exp.ple.conv_kernel", 4);
    make_u32(m, "qwen4exp.ple.eos_token_id", 1);
    make_u32(m, "qwen4exp.embedding_length_per_layer_input", 4);
    make_i32s(m, "qwen4exp.ple.layer_multipliers", (const int32_t[]){1000003, 77777, 12345}, 3);
    make_i32s(m, "qwen4exp.ple.head_offsets", (const int32_t[]){0, 11}, 2);
    make_i32s(m, "qwen4exp.ple.head_vocab_sizes", (const int32_t[]){11, 13}, 2);
    make_add_tensor(m, "per_layer_token_embd.weight", TENSOR_F32, 4, 24, 1);
    make_edit(m, 0,
              (const struct make_row[]){{"ple_key.weight", TENSOR_F32, 8, 2 * h},
                                        {"ple_value.weight", TENSOR_F32, 8, h},
                                        {"ple_norm_key.weight", TENSOR_F32, 2 * h, 1},
                                        {"ple_norm_query.weight", TENSOR_F32, 2 * h, 1},
                                        {"ple_norm_conv.weight", TENSOR_F32, 2 * h, 1},
                                        {"ple_conv1d.weight", TENSOR_F32, 4, 2 * h},
                                        {0}});
}

static void qwen4(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    qwen(m, "qwen4exp", layers, h, type);
    make_u32(m, "qwen4exp.hyper_connection.count", 2);
    make_u32(m, "qwen4exp.hyper_connection.low_rank", 4);
    make_drop_tensor(m, "output_norm.weight");
    make_add_tensor(m, "output_hc_norm.weight", TENSOR_F32, 2 * h, 1, 1);
    make_add_tensor(m, "output_hc_down.weight", type, 2 * h, 4, 1);
    make_add_tensor(m, "output_hc_up.weight", TENSOR_F32, 4, 2 * h, 1);
    for (unsigned layer = 0; layer < layers; layer++) {
        make_edit(m, layer,
                  (const struct make_row[]){
                      {.name = "attn_norm.weight"}, {.name = "post_attention_norm.weight"}, {0}});
        streams(m, layer, "attn", h, type);
        streams(m, layer, "ffn", h, type);
    }
    ngrams(m, h);
}

static void lfm(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    int32_t heads[8] = {0};
    for (unsigned layer = 0; layer < layers; layer++) {
        heads[layer] = layer % 2;
        make_edit(m, layer, (const struct make_row[]){{"exp_probs_b.bias", TENSOR_F32, 3, 1}, {0}});
        if (layer % 2 == 1)
            continue;
        make_no_attention(m, layer);
        make_edit(m, layer,
                  (const struct make_row[]){{"shortconv.in_proj.weight", type, h, 3 * h},
                                            {"shortconv.conv.weight", TENSOR_F32, TAPS, h},
                                            {"shortconv.out_proj.weight", type, h, h},
                                            {0}});
    }
    make_i32s(m, "lfm2moe.attention.head_count_kv", heads, layers);
    make_u32(m, "lfm2moe.shortconv.l_cache", TAPS);
    make_u32(m, "lfm2moe.feed_forward_length", 2 * h);
    make_u32(m, "lfm2moe.leading_dense_block_count", layers > 1);
    make_drop_tensor(m, "output_norm.weight");
    make_add_tensor(m, "token_embd_norm.weight", TENSOR_F32, h, 1, 1);
    if (layers > 1)
        make_edit(m, 0,
                  (const struct make_row[]){{.name = "ffn_gate_inp.weight"},
                                            {.name = "exp_probs_b.bias"},
                                            {.name = "ffn_gate_exps.weight"},
                                            {.name = "ffn_up_exps.weight"},
                                            {.name = "ffn_down_exps.weight"},
                                            {"ffn_gate.weight", type, h, 2 * h},
                                            {"ffn_up.weight", type, h, 2 * h},
                                            {"ffn_down.weight", type, 2 * h, h},
                                            {0}});
}

/* One group of two heads of h / 2, with keys of h / 2. */
static void granite(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    int32_t heads[8] = {0};
    make_number(m, "granitehybrid", "ssm.conv_kernel", TAPS);
    make_number(m, "granitehybrid", "ssm.state_size", h / 2);
    make_number(m, "granitehybrid", "ssm.group_count", 1);
    make_number(m, "granitehybrid", "ssm.time_step_rank", 2);
    make_number(m, "granitehybrid", "ssm.inner_size", h);
    for (unsigned layer = 0; layer < layers; layer++) {
        heads[layer] = layer % 2 == 1 || layers == 1; /* a model has attention */
        make_edit(m, layer,
                  (const struct make_row[]){
                      {.name = "attn_q_norm.weight"}, {.name = "attn_k_norm.weight"}, {0}});
        if (heads[layer] > 0)
            continue;
        make_no_attention(m, layer);
        make_edit(m, layer,
                  (const struct make_row[]){{"ssm_in.weight", type, h, 3 * h + 2},
                                            {"ssm_conv1d.weight", TENSOR_F32, TAPS, 2 * h},
                                            {"ssm_conv1d.bias", TENSOR_F32, 2 * h, 1},
                                            {"ssm_dt.bias", TENSOR_F32, 2, 1},
                                            {"ssm_a", TENSOR_F32, 1, 2},
                                            {"ssm_d", TENSOR_F32, 1, 2},
                                            {"ssm_norm.weight", TENSOR_F32, h, 1},
                                            {"ssm_out.weight", type, h, h},
                                            {0}});
    }
    make_i32s(m, "granitehybrid.attention.head_count_kv", heads, layers);
    make_bool(m, "granitehybrid.rope.scaling.finetuned", false);
}

/* Experts of two matrices, next to a shared one. */
static void nemotron_experts(struct make *m, unsigned layer, unsigned h, uint32_t type)
{
    make_no_attention(m, layer);
    make_edit(m, layer,
              (const struct make_row[]){{.name = "ffn_norm.weight"},
                                        {.name = "ffn_gate_exps.weight"},
                                        {"exp_probs_b.bias", TENSOR_F32, 3, 1},
                                        {"ffn_up_shexp.weight", type, h, h},
                                        {"ffn_down_shexp.weight", type, h, h},
                                        {0}});
}

/* Mamba-2 as in granite; every second layer, or the only one, has experts and nothing else. */
static void nemotron(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    int32_t heads[8] = {0}, networks[8] = {0};
    make_number(m, "nemotron_h_moe", "ssm.conv_kernel", TAPS);
    make_number(m, "nemotron_h_moe", "ssm.state_size", h / 2);
    make_number(m, "nemotron_h_moe", "ssm.group_count", 1);
    make_number(m, "nemotron_h_moe", "ssm.time_step_rank", 2);
    make_number(m, "nemotron_h_moe", "ssm.inner_size", h);
    make_number(m, "nemotron_h_moe", "expert_shared_feed_forward_length", h);
    for (unsigned layer = 0; layer < layers; layer++) {
        networks[layer] = layer % 2 == 1 || layers == 1 ? (int32_t)h : 0;
        if (networks[layer] > 0) {
            nemotron_experts(m, layer, h, type);
            continue;
        }
        make_no_attention(m, layer);
        make_edit(m, layer,
                  (const struct make_row[]){{.name = "ffn_norm.weight"},
                                            {.name = "ffn_gate_inp.weight"},
                                            {.name = "ffn_gate_exps.weight"},
                                            {.name = "ffn_up_exps.weight"},
                                            {.name = "ffn_down_exps.weight"},
                                            {"ssm_in.weight", type, h, 3 * h + 2},
                                            {"ssm_conv1d.weight", TENSOR_F32, TAPS, 2 * h},
                                            {"ssm_conv1d.bias", TENSOR_F32, 2 * h, 1},
                                            {"ssm_dt.bias", TENSOR_F32, 2, 1},
                                            {"ssm_a", TENSOR_F32, 1, 2},
                                            {"ssm_d", TENSOR_F32, 1, 2},
                                            {"ssm_norm.weight", TENSOR_F32, h, 1},
                                            {"ssm_out.weight", type, h, h},
                                            {0}});
    }
    make_i32s(m, "nemotron_h_moe.attention.head_count_kv", heads, layers);
    make_i32s(m, "nemotron_h_moe.feed_forward_length", networks, layers);
    make_f32(m, "nemotron_h_moe.attention.layer_norm_epsilon", 1e-5f);
    make_bool(m, "nemotron_h_moe.expert_weights_norm", true);
}

/* Mamba-1 and, if there is another layer, no experts; every second layer has attention and
 * experts. */
static void jamba(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    int32_t heads[8] = {0};
    make_drop_key(m, "jamba.expert_feed_forward_length");
    make_number(m, "jamba", "feed_forward_length", h);
    make_number(m, "jamba", "ssm.conv_kernel", TAPS);
    make_number(m, "jamba", "ssm.state_size", 2);
    make_number(m, "jamba", "ssm.time_step_rank", h);
    make_number(m, "jamba", "ssm.inner_size", 2 * h);
    for (unsigned layer = 0; layer < layers; layer++) {
        heads[layer] = layer % 2;
        make_edit(m, layer,
                  (const struct make_row[]){
                      {.name = "attn_q_norm.weight"}, {.name = "attn_k_norm.weight"}, {0}});
        if (layer % 2 == 1)
            continue;
        make_no_attention(m, layer);
        make_edit(m, layer,
                  (const struct make_row[]){{"ssm_in.weight", type, h, 4 * h},
                                            {"ssm_conv1d.weight", TENSOR_F32, TAPS, 2 * h},
                                            {"ssm_conv1d.bias", TENSOR_F32, 2 * h, 1},
                                            {"ssm_x.weight", type, 2 * h, h + 4},
                                            {"ssm_dt_norm.weight", TENSOR_F32, h, 1},
                                            {"ssm_b_norm.weight", TENSOR_F32, 2, 1},
                                            {"ssm_c_norm.weight", TENSOR_F32, 2, 1},
                                            {"ssm_dt.weight", type, h, 2 * h},
                                            {"ssm_dt.bias", TENSOR_F32, 2 * h, 1},
                                            {"ssm_a", TENSOR_F32, 2, 2 * h},
                                            {"ssm_d", TENSOR_F32, 2 * h, 1},
                                            {"ssm_out.weight", type, 2 * h, h},
                                            {0}});
        if (layers > 1)
            make_edit(m, layer,
                      (const struct make_row[]){{.name = "ffn_gate_inp.weight"},
                                                {.name = "ffn_gate_exps.weight"},
                                                {.name = "ffn_up_exps.weight"},
                                                {.name = "ffn_down_exps.weight"},
                                                {"ffn_gate.weight", type, h, h},
                                                {"ffn_up.weight", type, h, h},
                                                {"ffn_down.weight", type, h, h},
                                                {0}});
    }
    make_i32s(m, "jamba.attention.head_count_kv", heads, layers);
}

/* Two heads of h. */
static void kda_layer(struct make *m, unsigned layer, unsigned h, uint32_t type, bool low_rank)
{
    unsigned n = low_rank ? h : 2 * h;
    make_edit(m, layer,
              (const struct make_row[]){{.name = "attn_q_a.weight"},
                                        {.name = "attn_q_a_norm.weight"},
                                        {.name = "attn_q_b.weight"},
                                        {.name = "attn_kv_a_mqa.weight"},
                                        {.name = "attn_kv_a_norm.weight"},
                                        {.name = "attn_k_b.weight"},
                                        {.name = "attn_v_b.weight"},
                                        {"attn_q.weight", type, h, 2 * h},
                                        {"attn_k.weight", type, h, 2 * h},
                                        {"attn_v.weight", type, h, 2 * h},
                                        {"ssm_conv1d_q.weight", TENSOR_F32, TAPS, 2 * h},
                                        {"ssm_conv1d_k.weight", TENSOR_F32, TAPS, 2 * h},
                                        {"ssm_conv1d_v.weight", TENSOR_F32, TAPS, 2 * h},
                                        {"ssm_f_a.weight", type, h, n},
                                        {"ssm_f_b.weight", type, low_rank ? h : 0, 2 * h},
                                        {"ssm_g_a.weight", type, h, n},
                                        {"ssm_g_b.weight", type, low_rank ? h : 0, 2 * h},
                                        {"ssm_beta.weight", type, h, 2},
                                        {"ssm_dt.bias", TENSOR_F32, 2 * h, 1},
                                        {"ssm_a", TENSOR_F32, 1, 2},
                                        {"ssm_norm.weight", TENSOR_F32, h, 1},
                                        {"attn_output.weight", type, 2 * h, h},
                                        {0}});
}

/* In place of MLA in every second layer, from the first one on. */
void make_kda(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type,
              bool low_rank)
{
    int32_t heads[8] = {0};
    char key[80];
    make_number(m, arch, "ssm.conv_kernel", TAPS);
    make_number(m, arch, "kda.head_dim", h);
    for (unsigned layer = 0; layer < layers; layer++) {
        heads[layer] = layer % 2;
        if (layer % 2 == 0)
            kda_layer(m, layer, h, type, low_rank);
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", arch);
    make_i32s(m, key, heads, layers);
}

/* Two heads of h / 2. */
void make_minimax_01(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    for (unsigned layer = 0; layer < layers; layer++) {
        make_edit(m, layer,
                  (const struct make_row[]){
                      {.name = "attn_q_norm.weight"}, {.name = "attn_k_norm.weight"}, {0}});
        if (layer % 2 == 0)
            make_edit(m, layer,
                      (const struct make_row[]){{.name = "attn_q.weight"},
                                                {.name = "attn_k.weight"},
                                                {.name = "attn_v.weight"},
                                                {"attn_qkv.weight", type, h, 3 * h},
                                                {"attn_gate.weight", type, h, h},
                                                {"attn_norm_2.weight", TENSOR_F32, h, 1},
                                                {0}});
    }
    make_drop_key(m, "minimax-01.expert_feed_forward_length");
    make_number(m, "minimax-01", "feed_forward_length", h);
    make_number(m, "minimax-01", "full_attention_interval", 2);
    make_f32(m, "minimax-01.residual_scale", 3.5f);
}

/* Queries of one matrix in layers with MLA. As files have it, value_length is another number. */
void make_kimi_linear(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_mla(m, "kimi-linear", layers, h, type);
    for (unsigned layer = 0; layer < layers; layer++)
        make_edit(m, layer,
                  (const struct make_row[]){{.name = "attn_q_a.weight"},
                                            {.name = "attn_q_a_norm.weight"},
                                            {.name = "attn_q_b.weight"},
                                            {"attn_q.weight", type, h, 2 * (h + 2)},
                                            {0}});
    make_drop_key(m, "kimi-linear.attention.q_lora_rank");
    make_drop_key(m, "kimi-linear.expert_weights_norm");
    make_u32(m, "kimi-linear.attention.value_length", 7);
    make_kda(m, "kimi-linear", layers, h, type, true);
}

/* Gates of one matrix, latents of h, blocks of two layers. */
void make_kimi_k3(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_mla(m, "kimi-k3", layers, h, type);
    make_kda(m, "kimi-k3", layers, h, type, true);
    for (unsigned layer = 0; layer < layers; layer++) {
        make_edit(m, layer,
                  (const struct make_row[]){{"attn_res_score.weight", TENSOR_F32, h, 1},
                                            {"ffn_res_score.weight", TENSOR_F32, h, 1},
                                            {0}});
        if (layer > 0 || layers == 1) /* it has experts */
            make_edit(m, layer,
                      (const struct make_row[]){{"ffn_routed_down.weight", type, h, h},
                                                {"ffn_routed_norm.weight", TENSOR_F32, h, 1},
                                                {"ffn_routed_up.weight", type, h, h},
                                                {0}});
        if (layer % 2 == 1)
            make_edit(m, layer,
                      (const struct make_row[]){{"attn_gate.weight", type, h, 2 * h}, {0}});
        else
            make_edit(m, layer,
                      (const struct make_row[]){{.name = "ssm_g_a.weight"},
                                                {.name = "ssm_g_b.weight"},
                                                {"ssm_g.weight", type, h, 2 * h},
                                                {"ssm_a", TENSOR_F32, 2, 1},
                                                {0}});
    }
    make_add_tensor(m, "output_res_score.weight", TENSOR_F32, h, 1, 1);
    make_number(m, "kimi-k3", "expert_latent_length", h);
    make_number(m, "kimi-k3", "attn_res.block_size", 2);
    make_f32(m, "kimi-k3.kda.gate_lower_bound", -5);
    make_f32(m, "kimi-k3.activation.situ_beta", 4);
    make_f32(m, "kimi-k3.activation.situ_linear_beta", 25);
}

/* One gate per head in layers with MLA. */
void make_bailingmoe3(struct make *m, unsigned layers, unsigned h, uint32_t type)
{
    make_mla(m, "bailingmoe3", layers, h, type);
    for (unsigned layer = 1; layer < layers; layer += 2)
        make_edit(m, layer, (const struct make_row[]){{"attn_gate.weight", type, h, 2}, {0}});
    make_u32(m, "bailingmoe3.attention.value_length", 7);
    make_bool(m, "bailingmoe3.kda.safe_gate", true);
    make_f32(m, "bailingmoe3.kda.gate_lower_bound", -5);
    make_kda(m, "bailingmoe3", layers, h, type, false);
}

void make_recurrent(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type)
{
    if (strcmp(arch, "lfm2moe") == 0)
        lfm(m, layers, h, type);
    else if (strcmp(arch, "granitehybrid") == 0)
        granite(m, layers, h, type);
    else if (strcmp(arch, "nemotron_h_moe") == 0)
        nemotron(m, layers, h, type);
    else if (strcmp(arch, "jamba") == 0)
        jamba(m, layers, h, type);
    else if (strcmp(arch, "qwen35moe") == 0 || strcmp(arch, "qwen3next") == 0)
        qwen(m, arch, layers, h, type);
    else if (strcmp(arch, "qwen4exp") == 0)
        qwen4(m, layers, h, type);
}
