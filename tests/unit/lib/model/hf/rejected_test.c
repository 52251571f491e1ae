/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face directories that are rejected, with the reason. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/hf/hf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/hf/rejected.h"

#define EDIT(name, statement)                                                                      \
    static void name(json_t *config, json_t *tokenizer)                                            \
    {                                                                                              \
        (void)config;                                                                              \
        (void)tokenizer;                                                                           \
        statement;                                                                                 \
    }

EDIT(other_type, json_object_set_new(config, "model_type", json_string("gpt2")))
EDIT(no_layers, json_object_del(config, "num_hidden_layers"))
EDIT(other_norm, json_object_set_new(config, "use_qk_norm", json_false()))
EDIT(rotated, json_object_set_new(config, "no_rope_layers", json_pack("[iiii]", 1, 1, 1, 1)))
EDIT(no_tuning, json_object_set_new(config, "attn_temperature_tuning", json_false()))
EDIT(layers_text, json_object_set_new(config, "num_hidden_layers", json_string("8")))
EDIT(layers_many, json_object_set_new(config, "num_hidden_layers", json_integer(513)))
EDIT(layers_more, json_object_set_new(config, "num_hidden_layers", json_integer(3)))
EDIT(negative, json_object_set_new(config, "hidden_size", json_integer(-1)))
EDIT(gelu, json_object_set_new(config, "hidden_act", json_string("gelu")))
EDIT(not_renormalised, json_object_set_new(config, "norm_topk_prob", json_false()))
EDIT(yarn, json_object_set_new(config, "rope_scaling", json_pack("{s:s}", "type", "yarn")))
EDIT(fp8, json_object_set_new(config, "quantization_config", json_object()))
EDIT(eps_text, json_object_set_new(config, "rms_norm_eps", json_string("small")))
EDIT(small_vocab, json_object_set_new(config, "vocab_size", json_integer(100)))
EDIT(unigram,
     json_object_set_new(json_object_get(tokenizer, "model"), "type", json_string("Unigram")))
EDIT(bytes_fall_back,
     json_object_set_new(json_object_get(tokenizer, "model"), "byte_fallback", json_true()))
EDIT(lower_case,
     json_object_set_new(tokenizer, "normalizer", json_pack("{s:s}", "type", "Lowercase")))
EDIT(whitespace,
     json_object_set_new(tokenizer, "pre_tokenizer", json_pack("{s:s}", "type", "Whitespace")))
EDIT(same_number, json_object_set_new(json_object_get(json_object_get(tokenizer, "model"), "vocab"),
                                      "zz", json_integer(0)))
EDIT(odd_merge, json_object_set_new(json_object_get(tokenizer, "model"), "merges",
                                    json_pack("[[s, s]]", "a b", "c")))
EDIT(no_model, json_object_del(tokenizer, "model"))

START_TEST(bad_models_are_rejected)
{
    static const struct {
        void (*edit)(json_t *config, json_t *tokenizer);
        const char *without, *reason;
    } cases[] = {
        {other_type, NULL, "config.json: model_type 'gpt2' is not supported (supported: qwen3_moe"},
        {other_type, NULL, ", ...: docs/pack.md)"},
        {no_layers, NULL, "config.json: num_hidden_layers is missing"},
        {layers_text, NULL, "config.json: num_hidden_layers is not a whole number"},
        {layers_many, NULL, "beyond what is supported"},
        {layers_more, NULL, "tensor model.layers.2.input_layernorm.weight is missing"},
        {negative, NULL, "config.json: hidden_size is not a whole number"},
        {gelu, NULL, "config.json: hidden_act is \"gelu\", which is not supported (only \"silu\")"},
        {not_renormalised, NULL, "norm_topk_prob is false, which is not supported (only true)"},
        {yarn, NULL, "rope_scaling of type 'yarn' is not supported"},
        {fp8, NULL, "quantization_config is not supported (only quant_method fp8"},
        {eps_text, NULL, "rms_norm_eps is not a number"},
        {small_vocab, NULL, "tokenizer.json: token '"},
        {unigram, NULL, "a tokenizer of type 'Unigram' is not supported"},
        {bytes_fall_back, NULL, "its normalizer and pre-tokenizer are not those of SentencePiece"},
        {lower_case, NULL, "a normalizer of type 'Lowercase' is not supported"},
        {whitespace, NULL, "its pre-tokenizer is not one of those supported"},
        {same_number, NULL, "two tokens have the number 0"},
        {odd_merge, NULL, "merge 0 is not two tokens"},
        {no_model, NULL, "a tokenizer of type '' is not supported"},
        {NULL, "model.layers.1.mlp.experts.3.up_proj.weight",
         "tensor model.layers.1.mlp.experts.3.up_proj.weight is missing"},
        {NULL, "model.norm.weight", "tensor model.norm.weight is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        hf_make(&(struct hf_make){.gguf = DATA "/arch/qwen3moe_a.gguf",
                                  .dir = dir,
                                  .edit = cases[i].edit,
                                  .without = cases[i].without});
        expect_rejected(cases[i].reason);
    }
}
END_TEST

static json_t *rope_of(json_t *config)
{
    return json_object_get(config, "rope_parameters");
}

/* So many layers with attention over all positions, then another one. */
static void add_types(json_t *config, int count)
{
    json_t *types = json_object_get(config, "layer_types");
    for (int i = 0; i < count; i++)
        json_array_append_new(types, json_string("full_attention"));
    json_array_append_new(types, json_string("mamba"));
}

EDIT(other_layer,
     json_array_set_new(json_object_get(config, "layer_types"), 0, json_string("mamba")))
EDIT(many_layers,
     (json_object_set_new(config, "layer_types", json_array()), add_types(config, 600)))
EDIT(few_layers, json_array_remove(json_object_get(config, "layer_types"), 0))
EDIT(no_types, json_object_del(config, "layer_types"))
EDIT(v_heads, json_object_set_new(config, "linear_num_value_heads", json_integer(6)))
EDIT(v_size, json_object_set_new(config, "linear_value_head_dim", json_integer(8)))
EDIT(no_part, json_object_del(rope_of(config), "partial_rotary_factor"))
EDIT(truncated, json_object_set_new(rope_of(config), "truncate", json_true()))
EDIT(no_truncate, json_object_del(rope_of(config), "truncate"))
EDIT(no_factor, json_object_del(rope_of(config), "factor"))
EDIT(linear, json_object_set_new(rope_of(config), "rope_type", json_string("linear")))
EDIT(full_first,
     json_array_set_new(json_object_get(config, "layer_types"), 0, json_string("full_attention")))
EDIT(mscales, json_object_set_new(rope_of(config), "mscale", json_real(0.5)))
EDIT(nope, json_object_set_new(config, "qk_nope_head_dim", json_integer(31)))
EDIT(large, json_object_set_new(config, "kv_lora_rank", json_integer(UINT32_MAX)))
EDIT(no_moe, json_object_set_new(config, "enable_moe_block", json_false()))
EDIT(per_layer, json_object_del(json_object_get(config, "per_layer_config"), "0"))
EDIT(full_type, json_object_set_new(json_object_get(rope_of(config), "full_attention"), "rope_type",
                                    json_string("default")))
EDIT(proportional,
     json_object_set_new(config, "rope_scaling", json_pack("{s:s}", "type", "proportional")))
EDIT(part_beyond, json_object_set_new(json_object_get(rope_of(config), "full_attention"),
                                      "partial_rotary_factor", json_real(1.5)))
EDIT(dense_last,
     json_object_set_new(config, "mlp_layer_types", json_pack("[s, s]", "sparse", "dense")))
EDIT(alpha, json_object_set_new(config, "rope_parameters",
                                json_pack("{s:s, s:f}", "rope_type", "dynamic", "rope_theta", 1e4)))
EDIT(topk_differs, json_object_set_new(config, "moe_topk", json_pack("[i, i]", 3, 2)))
EDIT(layout, json_array_set_new(json_object_get(config, "rope_layout"), 1, json_integer(0)))
EDIT(fewer_experts, json_object_set_new(config, "num_local_experts", json_integer(3)))

EDIT(no_groups, json_object_set_new(config, "topk_method", json_string("group_limited_greedy")))
EDIT(other_method, json_object_set_new(config, "topk_method", json_string("noaux_tc")))
EDIT(short_list, json_object_set_new(config, "mlp_layer_types", json_pack("[s]", "dense")))
EDIT(short_layouts, (json_object_set_new(config, "sliding_window_layout", json_pack("[i]", 0)),
                     json_object_set_new(config, "rope_layout", json_pack("[i]", 1))))
EDIT(layout_text, json_array_set_new(json_object_get(config, "rope_layout"), 0, json_null()))
EDIT(factor_text,
     json_array_set_new(json_object_get(rope_of(config), "short_factor"), 1, json_string("1")))
EDIT(factor_zero,
     json_array_set_new(json_object_get(rope_of(config), "short_factor"), 1, json_integer(0)))
EDIT(factor_large,
     json_array_set_new(json_object_get(rope_of(config), "long_factor"), 1, json_real(1e39)))
EDIT(interval_zero, (json_object_del(config, "layer_types"),
                     json_object_set_new(config, "full_attention_interval", json_integer(0))))
EDIT(window_text, json_object_set_new(config, "sliding_window_size", json_string("16")))
EDIT(heads_zero, json_object_set_new(config, "num_attention_heads", json_integer(0)))
EDIT(head_text,
     json_object_set_new(json_object_get(json_object_get(config, "per_layer_config"), "0"),
                         "head_dim", json_string("32")))

EDIT(short_types, json_object_set_new(config, "layer_types", json_pack("[s]", "full_attention")))
EDIT(enum_gap, json_object_set_new(config, "moe_layers_enum", json_string("0,2")))
EDIT(enum_text, json_object_set_new(config, "moe_layers_enum", json_string("all")))
EDIT(theta_text, json_array_set_new(json_object_get(config, "rope_theta"), 0, json_string("1")))
#define KIND(name) json_array_set_new(json_object_get(config, "layer_types"), 1, json_string(name))
EDIT(v4_unknown, (hf_make_named_kinds(config, tokenizer), KIND("mamba")))
EDIT(v4_full, (hf_make_named_kinds(config, tokenizer), KIND("full_attention")))
EDIT(v4_short, (hf_make_named_kinds(config, tokenizer),
                json_array_remove(json_object_get(config, "layer_types"), 2)))
EDIT(v4_both, (hf_make_named_kinds(config, tokenizer),
               json_object_set_new(config, "compress_ratios", json_pack("[i, i, i]", 4, 128, 4))))
EDIT(v4_rate, (hf_make_named_kinds(config, tokenizer),
               json_object_set_new(json_object_get(config, "compress_rates"),
                                   "compressed_sparse_attention", json_string("4"))))
EDIT(v4_tables, (hf_make_named_kinds(config, tokenizer),
                 json_object_set_new(config, "mlp_layer_types",
                                     json_pack("[s, s, s]", "moe", "hash_moe", "moe"))))
EDIT(v4_linear, (hf_make_named_kinds(config, tokenizer),
                 json_object_set_new(json_object_get(rope_of(config), "compress"), "rope_type",
                                     json_string("linear"))))
EDIT(v4_alone, (hf_make_named_kinds(config, tokenizer), json_object_del(rope_of(config), "main")))
static void v4_whole(json_t *config, json_t *tokenizer)
{
    hf_make_named_kinds(config, tokenizer);
    json_object_del(json_object_get(rope_of(config), "main"), "partial_rotary_factor");
    json_object_del(json_object_get(rope_of(config), "compress"), "partial_rotary_factor");
}
EDIT(v4_parts, (hf_make_named_kinds(config, tokenizer),
                json_object_set_new(json_object_get(rope_of(config), "main"),
                                    "partial_rotary_factor", json_real(0.25))))
EDIT(other_part,
     json_array_set_new(json_object_get(config, "partial_rotary_factors"), 0, json_real(0.25)))
EDIT(limit_text, json_array_set_new(json_object_get(config, "swiglu_limits"), 1, json_string("7")))
EDIT(llama3_zero, json_object_set_new(json_object_get(config, "rope_scaling"), "low_freq_factor",
                                      json_integer(0)))
EDIT(no_heads, json_object_set_new(config, "num_attention_heads_per_layer", json_array()))
EDIT(linear_full, json_object_set_new(json_object_get(rope_of(config), "full_attention"),
                                      "rope_type", json_string("linear")))
EDIT(no_ropes, (json_object_del(rope_of(config), "full_attention"),
                json_object_del(rope_of(config), "sliding_attention")))
EDIT(no_mup, json_object_set_new(config, "mup_enabled", json_false()))
EDIT(no_whole_group, (json_object_del(config, "layer_types"),
                      json_object_set_new(config, "layer_group_size", json_integer(3))))
EDIT(free_decay, json_object_set_new(config, "kda_safe_gate", json_false()))
EDIT(with_factors, json_object_set_new(config, "no_kda_lora", json_false()))
EDIT(no_granularity, json_object_del(config, "gated_attention_proj_granularity_type"))
EDIT(no_bound, json_object_del(json_object_get(config, "linear_attn_config"), "gate_lower_bound"))
EDIT(no_tail, json_object_set_new(config, "index_kpool_always_select_tail", json_false()))
EDIT(rotated_part, json_object_set_new(config, "qk_rope_head_dim", json_integer(2)))
EDIT(two_factors, json_object_set_new(config, "layernorm_mlp_alpha", json_real(2)))
EDIT(half_beta, json_object_set_new(config, "layernorm_mlp_beta", json_real(0.5)))
EDIT(third_kind, json_array_set_new(json_object_get(config, "attn_type_list"), 0, json_integer(2)))
EDIT(no_kinds, json_object_del(config, "attn_type_list"))
EDIT(first_blocks, json_object_set_new(json_object_get(config, "sparse_attention_config"),
                                       "sparse_init_block", json_integer(1)))
EDIT(sparse_first,
     json_array_set_new(json_object_get(json_object_get(config, "sparse_attention_config"),
                                        "sparse_attention_freq"),
                        0, json_integer(1)))
EDIT(no_window_heads, json_object_set_new(config, "swa_num_attention_heads", json_integer(0)))
EDIT(one_network, json_object_set_new(config, "parallel_attn_mlp_res", json_false()))

EDIT(second_layer, json_object_set_new(config, "ple_layer_ids", json_pack("[i, i]", 1, 2)))
EDIT(layer_beyond, json_object_set_new(config, "ple_layer_ids", json_pack("[i]", 4)))
EDIT(no_parts, json_object_set_new(config, "split_ngram_parts", json_integer(0)))
EDIT(end_text, json_object_set_new(config, "eos_token_id", json_string("end")))
EDIT(silu_gate, json_object_set_new(config, "output_gate_type", json_string("silu")))
EDIT(no_ratio, json_object_del(config, "indexer_compress_ratio"))

/* What the architectures with tables of conversions reject, with the reason. */
START_TEST(bad_moved_models_are_rejected)
{
    static const struct {
        const char *model;
        void (*edit)(json_t *config, json_t *tokenizer);
        const char *reason;
    } cases[] = {
        {"dots3note-base", no_window_heads, "rows are not those of 0 parts"},
        {"step35-mtp", enum_gap, "moe_layers_enum is not a list of all layers from one on"},
        {"step35-mtp", enum_text, "moe_layers_enum is not a list of all layers from one on"},
        {"step35-mtp", theta_text, "rope_theta is not a number for layer 0"},
        {"step35-mtp", other_part, "partial_rotary_factors is 0.25: only 0.5 is supported"},
        {"step35-mtp", limit_text, "swiglu_limits: element 1 is neither a number nor null"},
        {"step35-mtp", llama3_zero, "numbers of rope_scaling are out of range"},
        {"step35-mtp", short_types, "layer_types is not a list of 2 kinds"},
        {"laguna-base", no_heads, "num_attention_heads_per_layer is not a list of a number for"},
        {"laguna-base", linear_full, "rope_parameters.full_attention of type 'linear'"},
        {"laguna-base", no_ropes, "rope_parameters.full_attention.rope_theta is missing"},
        {"afmoe-base", full_first, "layer 0 is not of the kind that it has in published models"},
        {"afmoe-base", no_mup, "mup_enabled is false, which is not supported"},
        {"llama4-base", other_norm,
         "use_qk_norm is not that of models whose num_local_experts is 4"},
        {"llama4-base", rotated, "no_rope_layers is not that of published models"},
        {"llama4-base", no_tuning, "attn_temperature_tuning is false, which is not supported"},
        {"bailingmoe3-base", no_whole_group, "model.layers.0.attention.kv_a_proj_with_mqa.weight"},
        {"bailingmoe3-base", free_decay, "kda_safe_gate is false, which is not supported"},
        {"bailingmoe3-base", with_factors, "no_kda_lora is false, which is not supported"},
        {"bailingmoe3-base", no_granularity, "gated_attention_proj_granularity_type is missing"},
        {"glm5-next-base", no_bound, "linear_attn_config.gate_lower_bound is missing"},
        {"glm5-next-base", no_tail, "index_kpool_always_select_tail is false, which is not"},
        {"glm5-next-base", rotated_part, "qk_rope_head_dim is 2, which is not supported"},
        {"minimax-01-base", two_factors, "layernorm_mlp_alpha differ, which is not supported"},
        {"minimax-01-base", half_beta, "layernorm_mlp_beta is 0.5, which is not supported"},
        {"minimax-01-base", third_kind, "attn_type_list is not a list of 8 numbers 0 or 1"},
        {"minimax-01-base", no_kinds, "layer_types is missing"},
        {"minimax-m3-base", first_blocks, "sparse_init_block is 1, which is not supported"},
        {"minimax-m3-base", sparse_first,
         "sparse_attention_freq and moe_layer_freq differ, which is not supported"},
        {"arctic-base", one_network, "parallel_attn_mlp_res is false, which is not supported"},
        {"qwen4exp-base", second_layer, "ple_layer_ids is not a list of one layer of 1 to 3"},
        {"qwen4exp-base", layer_beyond, "ple_layer_ids is not a list of one layer of 1 to 3"},
        {"qwen4exp-base", no_parts, "split_ngram_parts is not a number of 1 to 65536 parts"},
        {"qwen4exp-base", end_text, "eos_token_id, which ends n-grams, is no token"},
        {"qwen4exp-base", silu_gate, "output_gate_type is \"silu\", which is not supported"},
        {"qwen4exp-base", no_ratio, "indexer_compress_ratio is not a whole number of 16 bits"},
        {"qwen3next_a", other_layer, "layer 0 has another attention"},
        {"qwen3next_a", few_layers, "layer_types is not a list of 3 kinds"},
        {"qwen3next_a", v_heads, "do not fit the sizes in config.json"},
        {"qwen35moe_a", v_size, "linear_key_head_dim and linear_value_head_dim differ"},
        {"qwen35moe_a", no_part, "partial_rotary_factor is missing"},
        {"hunyuan_a", many_layers, "layer 600 has another attention"},
        {"lfm2moe_a", no_types, "layer_types is missing"},
        {"deepseek4-base", v4_unknown, "layer_types: layer 1 has another attention"},
        {"deepseek4-base", v4_full, "layer_types: layer 1 is of a kind that is not supported"},
        {"deepseek4-base", v4_short, "layer_types: layer 2 is of a kind that is not supported"},
        {"deepseek4-base", v4_both, "layer_types has another number for layer 2"},
        {"deepseek4-base", v4_rate, "compressed_sparse_attention is not a whole number"},
        {"deepseek4-base", v4_tables, "layer 1 is of another kind than those before it"},
        {"deepseek4-base", v4_linear, "rope_parameters.compress of type 'linear'"},
        {"deepseek4-base", v4_alone, "rope_parameters.compress.partial_rotary_factor differ"},
        {"deepseek4-base", v4_whole, "rope_parameters.main of type 'default' is not supported"},
        {"deepseek4-base", v4_parts, "rope_parameters.compress.partial_rotary_factor differ"},
        {"oss_a", truncated, "truncate is true, which is not supported (only false)"},
        {"oss_a", no_truncate, "truncate is missing"},
        {"oss_a", no_factor, "rope_parameters of type 'yarn' is not supported"},
        {"oss_a", linear, "rope_parameters of type 'linear' is not supported"},
        {"oss_a", full_first, "layer 0 is not of the kind that it has in published models"},
        {"oss_a", fewer_experts, "rows are not those of 3 parts"},
        {"deepseek_v2", no_groups, "n_group is not a whole number"},
        {"deepseek_v2", other_method, "topk_method is \"noaux_tc\", which is not supported"},
        {"kimi_k2", mscales, "mscale and mscale_all_dim differ"},
        {"kimi_k2", nope, "do not fit the sizes in config.json"},
        {"kimi_k2", large, "kv_lora_rank and qk_rope_head_dim are too large"},
        {"glm4_7_flash_f32", dense_last, "mlp_layer_types: layer 1 has no experts"},
        {"gemma4_a", no_moe, "enable_moe_block is false"},
        {"gemma4_a", per_layer, "per_layer_config: head_dim differs between layers of a kind"},
        {"gemma4_a", full_type, "rope_parameters.full_attention of type 'default'"},
        {"gemma4_a", yarn, "rope_scaling of type 'yarn' is not supported"},
        {"gemma4_a", proportional, "rope_scaling of type 'proportional' is not supported"},
        {"gemma4_a", part_beyond, "partial_rotary_factor is out of range"},
        {"hunyuan_a", alpha, "rope_parameters of type 'dynamic' is not supported"},
        {"hunyuan_a", topk_differs, "moe_topk differs between layers"},
        {"smallthinker_a", layout, "sliding_window_layout and rope_layout are not those"},
        {"smallthinker_a", short_layouts, "sliding_window_layout and rope_layout are not those"},
        {"smallthinker_a", layout_text, "sliding_window_layout and rope_layout are not those"},
        {"smallthinker_a", window_text, "sliding_window_size is not a whole number of 16 bits"},
        {"glm4_7_flash_f32", short_list, "mlp_layer_types is not a list of 2 kinds of layers"},
        {"phimoe_a", factor_text, "short_factor: element 1 is no positive number"},
        {"phimoe_a", factor_zero, "short_factor: element 1 is no positive number"},
        {"phimoe_a", factor_large, "long_factor: element 1 is no positive number"},
        {"qwen3next_a", interval_zero, "full_attention_interval is not a number of layers"},
        {"qwen3next_a", heads_zero, "beyond what is supported"},
        {"gemma4_a", head_text, "per_layer_config: head_dim differs between layers of a kind"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_moved(cases[i].model, cases[i].edit);
        expect_rejected(cases[i].reason);
    }
}
END_TEST
int main(void)
{
    Suite *suite = suite_create("hf_rejected");
    TCase *t = tcase_create("hf_rejected");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, bad_models_are_rejected);
    tcase_add_test(t, bad_moved_models_are_rejected);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
