/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of flags of layers, which have no rotations or no experts, and of other settings that a
 * file states by the keys and tensors that it has or lacks. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/arch/table.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

static struct model_index *read(struct make *m)
{
    struct error error = {0};
    struct model_index *index = make_index(m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    return index;
}

static void rejected(struct make *m, const char *why)
{
    struct error error = {0};
    ck_assert_ptr_null(make_index(m, &error));
    ck_assert_msg(strstr(error.text, why), "%s", error.text);
}

static uint32_t rotated(const struct model_index *index, uint32_t layer)
{
    return model_attention_of(&index->hparams, layer).rope_dims;
}

/* The array of the file; without it all layers rotate. */
START_TEST(rotations_by_an_array)
{
    struct make m;
    make_arch(&m, "granite_swa", 2, false);
    struct model_index *index = read(&m);
    ck_assert_uint_eq(rotated(index, 0), 0);
    ck_assert_uint_eq(rotated(index, 1), 2);
    free(index);
    make_arch(&m, "granite_swa", 2, false);
    make_drop_key(&m, "granite_swa.attention.rope_pattern");
    index = read(&m);
    ck_assert(rotated(index, 0) == 2 && rotated(index, 1) == 2);
    free(index);
    make_arch(&m, "granite_swa", 2, false);
    make_i32s(&m, "granite_swa.expert_used_count", (const int32_t[]){1, 1}, 2);
    index = read(&m);
    ck_assert_uint_eq(index->hparams.experts_used, 1);
    free(index);
    make_arch(&m, "granite_swa", 2, false);
    make_i32s(&m, "granite_swa.attention.rope_pattern", (const int32_t[]){1, 2}, 2);
    rejected(&m, "rope_pattern' is 2 for layer 1: not 0 or 1");
}
END_TEST

/* Integers, as the converter writes them for this architecture. */
START_TEST(windows_by_integers)
{
    struct make m;
    make_arch(&m, "mimo2", 2, false);
    struct model_index *index = read(&m);
    ck_assert_uint_eq(index->hparams.layer_kind[0], LAYER_FULL);
    ck_assert_uint_eq(index->hparams.layer_kind[1], LAYER_WINDOW);
    free(index);
    make_arch(&m, "mimo2", 2, false);
    make_i32s(&m, "mimo2.attention.sliding_window_pattern", (const int32_t[]){0, -1}, 2);
    rejected(&m, "sliding_window_pattern' is negative");
    make_arch(&m, "mimo2", 2, false);
    make_i32s(&m, "mimo2.attention.sliding_window_pattern", (const int32_t[]){0}, 1);
    rejected(&m, "has 1 numbers for 2 layers");
}
END_TEST

static void without_experts(struct make *m, const char *layer)
{
    static const char *const experts[] = {"ffn_gate_inp.weight", "exp_probs_b.bias",
                                          "ffn_gate_exps.weight", "ffn_up_exps.weight",
                                          "ffn_down_exps.weight"};
    static const struct {
        const char *name;
        uint64_t columns, rows;
    } dense[] = {{"ffn_gate.weight", 4, 8}, {"ffn_up.weight", 4, 8}, {"ffn_down.weight", 8, 4}};
    char name[64];
    for (size_t i = 0; i < ARRAY_LEN(experts); i++) {
        snprintf(name, sizeof name, "%s.%s", layer, experts[i]);
        make_drop_tensor(m, name);
    }
    for (size_t i = 0; i < ARRAY_LEN(dense); i++) {
        snprintf(name, sizeof name, "%s.%s", layer, dense[i].name);
        make_add_tensor(m, name, TENSOR_F32, dense[i].columns, dense[i].rows, 1);
    }
}

/* A layer has experts if it has a router, whatever the layers before it have. */
START_TEST(experts_by_the_router)
{
    struct make m;
    make_arch(&m, "mimo2", 3, false);
    without_experts(&m, "blk.2");
    struct model_index *index = read(&m);
    const struct model_hparams *h = &index->hparams;
    ck_assert_uint_eq(h->dense_layers, 1);
    ck_assert(!hparams_layer_has_experts(h, 0) && hparams_layer_has_experts(h, 1));
    ck_assert(!hparams_layer_has_experts(h, 2));
    ck_assert_uint_eq(h->layer_flags[2], LAYER_UNROUTED);
    free(index);
    make_arch(&m, "mimo2", 3, false);
    without_experts(&m, "blk.2");
    make_drop_key(&m, "mimo2.feed_forward_length");
    rejected(&m, "feed_forward_length' is missing");
    make_arch(&m, "mimo2", 3, false);
    without_experts(&m, "blk.1");
    without_experts(&m, "blk.2");
    rejected(&m, "no layer has experts");
}
END_TEST

/* The first layers without experts rotate, and those with a window. */
START_TEST(rotations_of_cohere)
{
    struct make m;
    make_arch(&m, "cohere2moe", 3, false);
    make_array_raw(&m, "cohere2moe.attention.sliding_window_pattern", GGUF_BOOL, 3, 0);
    bytes_add(&make_key(&m, "cohere2moe.attention.sliding_window_pattern")->value, "\0\1\0", 3);
    struct model_index *index = read(&m);
    ck_assert(rotated(index, 0) > 0 && rotated(index, 1) > 0);
    ck_assert_uint_eq(rotated(index, 2), 0);
    free(index);
}
END_TEST

/* The norm follows from which epsilon is there; a softmax is always one of the chosen. */
START_TEST(norm_and_router_of_cohere)
{
    struct make m;
    make_arch(&m, "cohere2moe", 2, false);
    make_f32(&m, "cohere2moe.attention.layer_norm_epsilon", 0.01f);
    struct model_index *index = read(&m);
    ck_assert_uint_eq(index->hparams.norm, NORM_RMS);
    ck_assert(index->hparams.rms_eps < 0.001f);
    ck_assert_uint_eq(index->hparams.gating, ROUTER_SIGMOID);
    free(index);
    make_arch(&m, "cohere2moe", 2, false);
    make_drop_key(&m, "cohere2moe.attention.layer_norm_rms_epsilon");
    make_f32(&m, "cohere2moe.attention.layer_norm_epsilon", 0.01f);
    make_drop_key(&m, "cohere2moe.expert_weights_norm");
    index = read(&m);
    ck_assert_uint_eq(index->hparams.norm, NORM_LAYER);
    ck_assert(index->hparams.rms_eps == 0.01f);
    ck_assert_uint_eq(index->hparams.norm_top_k, 0);
    free(index);
    make_arch(&m, "cohere2moe", 2, false);
    make_drop_key(&m, "cohere2moe.expert_weights_norm");
    make_u32(&m, "cohere2moe.expert_gating_func", 1);
    index = read(&m);
    ck_assert_uint_eq(index->hparams.norm_top_k, 1);
    free(index);
    make_arch(&m, "cohere2moe", 2, false);
    make_drop_key(&m, "cohere2moe.attention.layer_norm_rms_epsilon");
    rejected(&m, "epsilon is 0");
}
END_TEST

/* Queries, keys and values apart, or in one matrix. */
START_TEST(joined_queries)
{
    struct make m;
    make_arch(&m, "mimo2", 2, false);
    for (unsigned layer = 0; layer < 2; layer++) {
        static const char *const parts[] = {"q", "k", "v"};
        char name[64];
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
            snprintf(name, sizeof name, "blk.%u.attn_%s.weight", layer, parts[i]);
            make_drop_tensor(&m, name);
        }
        snprintf(name, sizeof name, "blk.%u.attn_qkv.weight", layer);
        make_add_tensor(&m, name, TENSOR_F32, 4, 8, 1);
    }
    struct model_index *index = read(&m);
    ck_assert_uint_eq(index->hparams.joined_qkv, 1);
    ck_assert_uint_ne(model_entry_dense(index, 1, DENSE_ATTN_QKV), ENTRY_NONE);
    free(index);
    make_arch(&m, "mimo2", 2, false);
    make_add_tensor(&m, "blk.0.attn_qkv.weight", TENSOR_F32, 4, 8, 1);
    rejected(&m, "expected");
}
END_TEST

/* The key of the step; experts in the last of each group of layers. Of four layers one attends to
 * all positions, and its queries grow. */
START_TEST(layers_of_llama4)
{
    struct make m;
    make_arch(&m, "llama4", 4, false);
    struct model_index *index = read(&m);
    const struct model_hparams *h = &index->hparams;
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct layer_attention a = model_attention_of(h, layer);
        bool chunks = layer < 3;
        ck_assert_uint_eq(a.window, chunks ? 8192 : 0);
        ck_assert_uint_eq(a.chunks, chunks);
        ck_assert_uint_eq(a.rope_dims, chunks ? 2 : 0);
        ck_assert_uint_eq(a.scaled_queries, !chunks);
        ck_assert_uint_eq(hparams_layer_has_experts(h, layer), layer % 2);
    }
    ck_assert(h->query_scale == 0.1f && h->query_context == 8192 && h->query_first == 1);
    ck_assert_uint_eq(h->weighted_input, 1);
    free(index);
    make_arch(&m, "llama4", 4, false);
    make_u32(&m, "llama4.attention.sliding_window", 0);
    index = read(&m);
    ck_assert_uint_eq(rotated(index, 3), 2);
    ck_assert_uint_eq(model_attention_of(&index->hparams, 0).window, 0);
    free(index);
    make_arch(&m, "llama4", 4, false);
    make_u32(&m, "llama4.attention.sliding_window", 128);
    make_u32(&m, "llama4.attention.temperature_length", 16);
    index = read(&m);
    ck_assert_uint_eq(index->hparams.window, 128);
    ck_assert_uint_eq(index->hparams.query_context, 16);
    free(index);
    make_arch(&m, "llama4", 2, false);
    make_u32(&m, "llama4.context_length", 10485760); /* of Scout */
    free(read(&m));
}
END_TEST

START_TEST(wrong_files_of_llama4)
{
    struct make m;
    make_arch(&m, "llama4", 2, false);
    make_drop_key(&m, "llama4.interleave_moe_layer_step");
    rejected(&m, "interleave_moe_layer_step' is missing");
    make_arch(&m, "llama4", 2, false);
    make_u32(&m, "llama4.interleave_moe_layer_step", 3);
    rejected(&m, "no layer has experts");
    make_arch(&m, "llama4", 2, false);
    make_u32(&m, "llama4.interleave_moe_layer_step", 1);
    rejected(&m, "no such part");
    make_arch(&m, "llama4", 2, false);
    make_u32(&m, "llama4.expert_used_count", 2);
    rejected(&m, "expert_used_count is 2");
    make_arch(&m, "llama4", 2, false);
    make_u32(&m, "llama4.attention.sliding_window", 96);
    rejected(&m, "sliding_window is 96: chunks of a multiple of 64");
    make_arch(&m, "llama4", 2, false);
    make_drop_key(&m, "llama4.feed_forward_length");
    rejected(&m, "feed_forward_length' is missing: layer 0");
}
END_TEST

/* A blob whose flags are not those of a file. */
START_TEST(forged_flags)
{
    static const struct {
        const char *arch;
        uint32_t layer, flags;
    } forged[] = {{"qwen3moe", 0, LAYER_UNROTATED},   {"granite_swa", 2, LAYER_UNROTATED},
                  {"granite_swa", 0, LAYER_UNROUTED}, {"granite_swa", 1, 4},
                  {"mimo2", 0, LAYER_UNROUTED},       {"mimo2", 1, LAYER_UNROTATED},
                  {"llama4", 0, LAYER_UNROUTED},      {"llama4", 1, LAYER_UNROTATED}};
    for (size_t i = 0; i < ARRAY_LEN(forged); i++) {
        struct make m;
        struct error error = {0};
        make_arch(&m, forged[i].arch, 2, false);
        struct model_index *index = read(&m);
        index->hparams.layer_flags[forged[i].layer] ^= (uint8_t)forged[i].flags;
        ck_assert_int_eq(model_index_check(index, index->bytes, &error), -1);
        ck_assert_msg(strstr(error.text, "has impossible flags"), "%zu: %s", i, error.text);
        free(index);
    }
}
END_TEST

/* By the rule, layers without a window have an indexer; latents of a window have sizes of their own
 * and none. */
START_TEST(windows_of_latents)
{
    struct make m;
    make_arch(&m, "dots3note", 2, false);
    struct model_index *index = read(&m);
    ck_assert_uint_eq(index->layer[0].index, INDEX_OWN);
    ck_assert_uint_eq(index->layer[1].index, INDEX_NONE);
    ck_assert_uint_eq(index->layer[0].attention.window, 0);
    ck_assert_uint_eq(index->layer[1].attention.window, 16);
    ck_assert_uint_eq(index->layer[1].attention.value_size, 8);
    ck_assert_uint_eq(model_latent_of(&index->hparams, 1).key, 10);
    free(index);
    make_arch(&m, "dots3note", 2, false);
    make_i32s(&m, "dots3note.attention.indexer.types", (const int32_t[]){1, 1}, 2);
    rejected(&m, "layer 1 has an indexer where the model has none");
    make_arch(&m, "dots3note", 2, false);
    make_u32(&m, "dots3note.attention.kv_lora_rank_swa", 6);
    rejected(&m, "attention.key_length is 10; kv_lora_rank 6");
    make_arch(&m, "dots3note", 2, false);
    make_u32(&m, "dots3note.attention.key_length_mla_swa", 2);
    rejected(&m, "key_length_mla 2 leaves none");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arch.flags");
    TCase *t = tcase_create("flags");
    tcase_add_test(t, rotations_by_an_array);
    tcase_add_test(t, windows_by_integers);
    tcase_add_test(t, experts_by_the_router);
    tcase_add_test(t, rotations_of_cohere);
    tcase_add_test(t, norm_and_router_of_cohere);
    tcase_add_test(t, joined_queries);
    tcase_add_test(t, layers_of_llama4);
    tcase_add_test(t, wrong_files_of_llama4);
    tcase_add_test(t, forged_flags);
    tcase_add_test(t, windows_of_latents);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
