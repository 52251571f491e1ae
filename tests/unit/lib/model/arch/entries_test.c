/* SPDX-License-Identifier: Apache-2.0 */
/* Models with entries that stand for several positions (deepseek4): sizes of what a sequence has,
 * what a token reads, tables of experts, and what is wrong. */
#define B "blk.0."
#define EDITS(X)                                                                                   \
    X(deepseek4, ratio, "compress_ratios' is 8 for layer 0: 0, 4 and 128 are supported",           \
      make_i32s(m, "deepseek4.attention.compress_ratios", (const int32_t[]){8}, 1))                \
    X(deepseek4, ratios_missing, "compress_ratios' is missing",                                    \
      make_drop_key(m, "deepseek4.attention.compress_ratios"))                                     \
    X(deepseek4, ratios_short, "compress_ratios' is missing, or no array with a number per layer", \
      make_i32s(m, "deepseek4.attention.compress_ratios", NULL, 0))                                \
    X(deepseek4, no_indexer, "layer 0 has an indexer where the model has none",                    \
      make_u32(m, "deepseek4.attention.indexer.head_count", 0))                                    \
    X(deepseek4, gating, "expert_gating_func' is 2: not between 4 and 4",                          \
      make_u32(m, "deepseek4.expert_gating_func", 2))                                              \
    X(deepseek4, groups, "output_group_count 3: 1, key_length 4 and a divisor of head_count 2",    \
      make_u32(m, "deepseek4.attention.output_group_count", 3))                                    \
    X(deepseek4, no_groups, "output_group_count' is 0: not between",                               \
      make_u32(m, "deepseek4.attention.output_group_count", 0))                                    \
    X(deepseek4, key_heads, "attention.head_count_kv 2",                                           \
      make_u32(m, "deepseek4.attention.head_count_kv", 2))                                         \
    X(deepseek4, no_window, "sliding_window' is 0: not between",                                   \
      make_u32(m, "deepseek4.attention.sliding_window", 0))                                        \
    X(deepseek4, full_layer, "layer 0 has no window",                                              \
      make_array_raw(m, "deepseek4.attention.sliding_window_pattern", GGUF_BOOL, 1, 1))            \
    X(deepseek4, rotation, "indexer.key_length is 2; an even number from rope.dimension_count 4",  \
      make_u32(m, "deepseek4.rope.dimension_count", 4),                                            \
      make_u32(m, "deepseek4.attention.indexer.key_length", 2))                                    \
    X(deepseek4, ape, "attn_compressor_ape.weight is 8 x 5 x 1 x 1; 8 x 4",                        \
      make_resize(m, B "attn_compressor_ape.weight", 8, 5))                                        \
    X(deepseek4, table_missing, "tensor blk.0.ffn_gate_tid2eid.weight is missing",                 \
      make_drop_tensor(m, B "ffn_gate_tid2eid.weight"))                                            \
    X(deepseek4, table_floats, "ffn_gate_tid2eid.weight is not of type I32",                       \
      make_tensor(m, B "ffn_gate_tid2eid.weight")->type = 0)                                       \
    X(deepseek4, integers, "attn_sinks.weight is of type I32",                                     \
      make_tensor(m, B "attn_sinks.weight")->type = GGUF_TYPE_I32)                                 \
    X(deepseek4, bias_of_table, "exp_probs_b.bias is 3 x 1 x 1 x 1; 0 x 1",                        \
      make_add_tensor(m, B "exp_probs_b.bias", 0, 3, 1, 1))                                        \
    X(deepseek4, no_table, "ffn_gate_tid2eid.weight is 2 x 262 x 1 x 1; 0 x 262",                  \
      make_u32(m, "deepseek4.hash_layer_count", 0))

#include "tests/unit/lib/model/arch/edits.h"

static struct model_index *read_model(struct make *m)
{
    struct error error = {0};
    struct model_index *index = make_index(m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_msg(model_index_check(index, index->bytes, &error) == 0, "%s", error.text);
    ck_assert_msg(index->unread_count == 0, "%s", index->unread);
    return index;
}

/* Layer 0 has entries of 4 positions, with keys of an indexer, layer 1 of 128; heads of 4 elements,
 * keys of 4. Keys are never quantised. */
START_TEST(what_a_sequence_has)
{
    struct make m;
    make_arch(&m, "deepseek4", 2, false);
    struct model_index *index = read_model(&m);
    const struct model_hparams *h = &index->hparams;
    ck_assert_uint_eq(model_entry_unit(h, 0), 4);
    ck_assert_uint_eq(model_entry_unit(h, 1), 128);
    ck_assert_uint_eq(model_chosen_tokens(h), 8 * 4 + 3);
    ck_assert(model_chooses(h, 36) && !model_chooses(h, 35));
    for (uint32_t layer = 0; layer < 2; layer++) {
        ck_assert_uint_eq(index->layer[layer].mixer, MIXER_ENTRIES);
        ck_assert_uint_eq(index->layer[layer].index, layer == 0 ? INDEX_OWN : INDEX_NONE);
        ck_assert_uint_eq(index->layer[layer].attention.window, 16);
        ck_assert_uint_eq(index->layer[layer].attention.rope_table, LAYER_FULL);
        ck_assert_uint_eq(model_kv_bytes(h, layer, KV_SIDE_KEYS, KV_TYPE_Q4_0, 64), 64 * 4 * 2);
        ck_assert_uint_eq(model_kv_bytes(h, layer, KV_SIDE_VALUES, KV_TYPE_F16, 64), 0);
    }
    ck_assert_uint_eq(model_kv_bytes(h, 0, KV_SIDE_INDEX, KV_TYPE_Q8_0, 65), 2 * 16 * 8 * 2);
    ck_assert_uint_eq(model_kv_bytes(h, 1, KV_SIDE_INDEX, KV_TYPE_F32, 128), 4 * 4);
    ck_assert_uint_eq(model_layer_floats(h, 0), 8 * 4 * (4 + 4));
    ck_assert_uint_eq(model_layer_floats(h, 1), 128 * 2 * 4);
    ck_assert_uint_eq(model_state_bytes(h), (8 * 32 + 128 * 8) * sizeof(float));
    free(index);
}
END_TEST

/* Keys of the window; of 1,000 entries 8 with all keys of the indexer, or all of 31. */
START_TEST(what_a_token_reads)
{
    struct make m;
    make_arch(&m, "deepseek4", 2, false);
    struct model_index *index = read_model(&m);
    const struct model_hparams *h = &index->hparams;
    ck_assert_uint_eq(model_attended(h, 0, 4000), 16);
    ck_assert_uint_eq(model_read_bytes(h, 0, KV_SIDE_KEYS, KV_TYPE_F16, 4000), 16 * 8);
    ck_assert_uint_eq(model_read_bytes(h, 0, KV_SIDE_INDEX, KV_TYPE_F16, 4000), 8 * 8 + 1000 * 8);
    ck_assert_uint_eq(model_read_bytes(h, 0, KV_SIDE_INDEX, KV_TYPE_F16, 24), 6 * 8);
    ck_assert_uint_eq(model_read_bytes(h, 1, KV_SIDE_INDEX, KV_TYPE_F16, 4000), 31 * 8);
    ck_assert_uint_eq(model_read_products(h, 1, 4000), (16 + 31) * 2 * 8);
    ck_assert_uint_eq(model_read_products(h, 0, 4000), (16 + 8) * 2 * 8 + 1000 * 2 * 4);
    free(index);
}
END_TEST

/* Without entries, rotations are those of a window; limits of shared experts are those of others,
 * if they are not stated. */
START_TEST(layers_without_entries)
{
    struct make m;
    struct error error = {0};
    static const char *const parts[] = {"attn_compressor_kv",     "attn_compressor_gate",
                                        "attn_compressor_ape",    "attn_compressor_norm",
                                        "indexer.attn_q_b",       "indexer.proj",
                                        "indexer_compressor_kv",  "indexer_compressor_gate",
                                        "indexer_compressor_ape", "indexer_compressor_norm"};
    make_arch(&m, "deepseek4", 1, false);
    make_i32s(&m, "deepseek4.attention.compress_ratios", (const int32_t[]){0}, 1);
    make_f32(&m, "deepseek4.swiglu_clamp_exp", 10);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "attn_compressor_kv.weight is 4 x 8"), "%s", error.text);
    make_arch(&m, "deepseek4", 1, false);
    make_i32s(&m, "deepseek4.attention.compress_ratios", (const int32_t[]){0}, 1);
    make_f32(&m, "deepseek4.swiglu_clamp_exp", 10);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char name[64];
        snprintf(name, sizeof name, B "%s.weight", parts[i]);
        make_drop_tensor(&m, name);
    }
    struct model_index *index = read_model(&m);
    ck_assert_uint_eq(index->layer[0].attention.rope_table, LAYER_WINDOW);
    ck_assert_uint_eq(model_state_bytes(&index->hparams), 0);
    ck_assert_uint_eq(model_kv_bytes(&index->hparams, 0, KV_SIDE_INDEX, KV_TYPE_F16, 64), 0);
    ck_assert_uint_eq(model_context(&index->hparams), index->hparams.context);
    ck_assert(index->hparams.expert_limits[0] == 10 && index->hparams.dense_limits[0] == 10);
    free(index);
}
END_TEST

/* A block for drafting is skipped if it is there; files may state one that they do not have. */
START_TEST(blocks_for_drafting)
{
    struct make m;
    make_arch(&m, "deepseek4", 2, false);
    make_u32(&m, "deepseek4.nextn_predict_layers", 1);
    if (_i > 0)
        make_add_tensor(&m, "blk.1.nextn.eh_proj.weight", 0, 8, 4, 1);
    struct model_index *index = read_model(&m);
    ck_assert_uint_eq(index->hparams.layers, _i > 0 ? 1 : 2);
    ck_assert_uint_eq(index->hparams.skipped_layers, _i > 0 ? 1 : 0);
    free(index);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arch.entries");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, bad_models_are_rejected, 0, ARRAY_LEN(edits));
    tcase_add_test(t, what_a_sequence_has);
    tcase_add_test(t, what_a_token_reads);
    tcase_add_test(t, layers_without_entries);
    tcase_add_loop_test(t, blocks_for_drafting, 0, 2);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
