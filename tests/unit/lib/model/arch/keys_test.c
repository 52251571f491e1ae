/* SPDX-License-Identifier: Apache-2.0 */
/* Tests keys that files of llama.cpp's converter leave out or write in another form. The values are
 * those of llama.cpp's loader (src/llama-model.cpp, src/models). */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "lib/model/index/model_index.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

static struct model_index *read_model(struct make *m, const char *what)
{
    struct error error = {0};
    struct model_index *index = make_index(m, &error);
    ck_assert_msg(index, "%s: %s", what, error.text);
    ck_assert_msg(model_index_check(index, index->bytes, &error) == 0, "%s: %s", what, error.text);
    return index;
}

static void name_key(const char *arch, const char *key, char full[128])
{
    snprintf(full, 128, "%s.%s", arch, key);
}

static void put_f32(struct make *m, const char *arch, const char *key, float value)
{
    char full[128];
    name_key(arch, key, full);
    make_f32(m, full, value);
}

static void put_u32(struct make *m, const char *arch, const char *key, uint32_t value)
{
    char full[128];
    name_key(arch, key, full);
    make_u32(m, full, value);
}

static void put_text(struct make *m, const char *arch, const char *key, const char *value)
{
    char full[128];
    name_key(arch, key, full);
    make_text(m, full, value);
}

static void drop(struct make *m, const char *arch, const char *key)
{
    char full[128];
    name_key(arch, key, full);
    if (make_key(m, full))
        make_drop_key(m, full);
}

/* ---- types of norms, biases, routers, sinks ... ---- */

/* ---- scaled rotations ---- */

/* Architectures in which every scaling is computed. */
START_TEST(scaling)
{
    const struct arch *arch = arch_list[_i];
    const char *name = arch->name;
    struct make m;
    if (strcmp(name, "phimoe") == 0 || strcmp(name, "nemotron_h_moe") == 0 ||
        strcmp(name, "jamba") == 0)
        return; /* LongRoPE only: below; no layer rotates, whatever the keys say */
    static const struct {
        const char *type, *key;
        float factor;
        uint32_t want;
    } rows[] = {
        {NULL, "rope.scaling.factor", 4, ROPE_LINEAR},
        {"linear", "rope.scaling.factor", 4, ROPE_LINEAR},
        {NULL, "rope.scale_linear", 4, ROPE_LINEAR},
        {"yarn", "rope.scaling.factor", 4, ROPE_YARN},
        {"none", "rope.scaling.factor", 4, ROPE_UNSCALED},
        {NULL, "rope.scaling.factor", 1, ROPE_UNSCALED},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        make_arch(&m, name, 2, false);
        drop(&m, name, "rope.scaling.factor");
        drop(&m, name, "rope.scaling.type");
        if (rows[i].type)
            put_text(&m, name, "rope.scaling.type", rows[i].type);
        put_f32(&m, name, rows[i].key, rows[i].factor);
        put_u32(&m, name, "rope.scaling.original_context_length", 64);
        put_f32(&m, name, "rope.scaling.yarn_beta_fast", 8);
        put_f32(&m, name, "rope.scaling.yarn_beta_slow", 2);
        put_f32(&m, name, "rope.scaling.yarn_attn_factor", 1.5f);
        put_f32(&m, name, "rope.scaling.attn_factor", 1.25f);
        struct model_index *index = read_model(&m, name);
        const struct model_hparams *h = &index->hparams;
        ck_assert_msg(h->rope_scaling == rows[i].want, "%s %zu: %u", name, i, h->rope_scaling);
        ck_assert(h->rope_scaling == ROPE_UNSCALED || h->rope_factor == 4);
        ck_assert_uint_eq(h->rope_context, 64);
        ck_assert(h->rope_beta_fast == 8 && h->rope_beta_slow == 2);
        ck_assert(h->rope_magnitude == 1.5f && h->rope_attention == 1.25f);
        ck_assert(h->rope_truncate == (strcmp(name, "gpt-oss") != 0));
        ck_assert_uint_eq(index->unread_count, 0);
        free(index);
    }
}
END_TEST

/* The converter does not write rope.scaling.type. */
START_TEST(longrope_by_tensors)
{
    struct make m;
    make_arch(&m, "phimoe", 1, false);
    drop(&m, "phimoe", "rope.scaling.type");
    put_u32(&m, "phimoe", "rope.scaling.original_context_length", 64);
    put_f32(&m, "phimoe", "rope.scaling.attn_factor", 1.25f);
    put_u32(&m, "phimoe", "attention.sliding_window", 0);
    struct model_index *index = read_model(&m, "phimoe without factors");
    ck_assert_uint_eq(index->hparams.rope_scaling, ROPE_UNSCALED);
    ck_assert(index->hparams.rope_attention == 1.25f);
    ck_assert_uint_eq(index->hparams.context, 128);
    free(index);
    make_arch(&m, "phimoe", 1, false);
    drop(&m, "phimoe", "rope.scaling.type");
    put_u32(&m, "phimoe", "rope.scaling.original_context_length", 64);
    put_f32(&m, "phimoe", "rope.scaling.attn_factor", 1.25f);
    make_add_tensor(&m, "rope_factors_short.weight", TENSOR_F32, 1, 1, 1);
    make_add_tensor(&m, "rope_factors_long.weight", TENSOR_F32, 1, 1, 1);
    index = read_model(&m, "phimoe");
    ck_assert_uint_eq(index->hparams.rope_scaling, ROPE_SHORT);
    ck_assert(index->hparams.rope_attention == 1.25f);
    ck_assert_uint_eq(index->hparams.context, 64);
    free(index);
}
END_TEST

START_TEST(queries_by_position)
{
    struct make m;
    make_arch(&m, "deepseek2", 2, false);
    put_f32(&m, "deepseek2", "attention.temperature_scale", 0.1f);
    put_u32(&m, "deepseek2", "attention.temperature_length", 32);
    struct model_index *index = read_model(&m, "deepseek2");
    ck_assert(index->hparams.query_scale == 0.1f);
    ck_assert_uint_eq(index->hparams.query_context, 32);
    free(index);
    make_arch(&m, "deepseek2", 2, false);
    put_f32(&m, "deepseek2", "attention.temperature_scale", 0.1f);
    index = read_model(&m, "deepseek2 without a length"); /* as llama.cpp's mistral3 */
    ck_assert_uint_eq(index->hparams.query_context, index->hparams.context);
    free(index);
}
END_TEST

/* ---- keys with defaults ---- */

START_TEST(absent_keys)
{
    struct make m;
    make_arch(&m, "qwen3moe", 1, false);
    drop(&m, "qwen3moe", "rope.freq_base");
    drop(&m, "qwen3moe", "expert_feed_forward_length");
    put_u32(&m, "qwen3moe", "feed_forward_length", 8); /* of all experts of a token, two of 4 */
    struct model_index *index = read_model(&m, "qwen3moe");
    ck_assert(index->hparams.rope_theta == 10000);
    ck_assert_uint_eq(index->hparams.expert_inner, 4);
    free(index);
    make_arch(&m, "qwen2moe", 1, false);
    drop(&m, "qwen2moe", "expert_shared_feed_forward_length");
    put_u32(&m, "qwen2moe", "feed_forward_length", 8);
    index = read_model(&m, "qwen2moe");
    ck_assert_uint_eq(index->hparams.shared_inner, 8);
    free(index);
    make_arch(&m, "dots1", 2, false);
    make_drop_tensor(&m, "blk.1.exp_probs_b.bias");
    free(read_model(&m, "dots1 without a bias"));
    make_arch(&m, "qwen3moe", 1, false);
    put_u32(&m, "qwen3moe", "expert_group_count", 1);
    make_add_tensor(&m, "blk.0.attn_q.bias", TENSOR_F32, 4, 1, 1);
    index = read_model(&m, "qwen3moe with a bias and one group");
    ck_assert_uint_ne(model_entry_dense(index, 0, DENSE_ATTN_Q_BIAS), ENTRY_NONE);
    free(index);
}
END_TEST

/* Solar Open: every layer has experts, and no key states the width of a dense one. */
START_TEST(no_dense_layer)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "glm4moe", 1, false);
    drop(&m, "glm4moe", "feed_forward_length");
    put_u32(&m, "glm4moe", "leading_dense_block_count", 0);
    struct model_index *index = read_model(&m, "glm4moe");
    ck_assert(model_layer_has_experts(index, 0));
    free(index);
    make_arch(&m, "glm4moe", 2, false);
    drop(&m, "glm4moe", "feed_forward_length");
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "glm4moe.feed_forward_length' is missing: the first 1 layers"),
                  "%s", error.text);
}
END_TEST

static void expect_kinds(struct make *m, const char *what, enum layer_kind first,
                         enum layer_kind second)
{
    struct model_index *index = read_model(m, what);
    ck_assert_msg(index->hparams.layer_kind[0] == first && index->hparams.layer_kind[1] == second,
                  "%s: %u, %u", what, index->hparams.layer_kind[0], index->hparams.layer_kind[1]);
    ck_assert_uint_eq(index->unread_count, 0);
    free(index);
}

/* Instead of the architecture's own rule. */
START_TEST(windows_of_the_file)
{
    struct make m;
    make_arch(&m, "gpt-oss", 2, false);
    put_f32(&m, "gpt-oss", "rope.freq_base_swa", 500);
    expect_kinds(&m, "gpt-oss", LAYER_WINDOW, LAYER_FULL);
    make_arch(&m, "gpt-oss", 2, false);
    put_u32(&m, "gpt-oss", "attention.sliding_window_pattern", 3);
    expect_kinds(&m, "gpt-oss, period 3", LAYER_WINDOW, LAYER_WINDOW);
    make_arch(&m, "gpt-oss", 2, false);
    make_array_raw(&m, "gpt-oss.attention.sliding_window_pattern", GGUF_BOOL, 2, 2);
    expect_kinds(&m, "gpt-oss, an array of false", LAYER_FULL, LAYER_FULL);
    make_arch(&m, "smallthinker", 2, false);
    put_u32(&m, "smallthinker", "attention.sliding_window", 16);
    put_u32(&m, "smallthinker", "attention.sliding_window_pattern", 1);
    expect_kinds(&m, "smallthinker, period 1", LAYER_FULL, LAYER_FULL);
    make_arch(&m, "smallthinker", 2, false);
    put_u32(&m, "smallthinker", "attention.sliding_window", 16);
    put_u32(&m, "smallthinker", "attention.sliding_window_pattern", 0);
    expect_kinds(&m, "smallthinker, period 0", LAYER_WINDOW, LAYER_WINDOW);
    make_arch(&m, "smallthinker", 2, false);
    drop(&m, "smallthinker", "attention.sliding_window");
    make_array_raw(&m, "smallthinker.attention.sliding_window_pattern", GGUF_BOOL, 2, 2);
    expect_kinds(&m, "smallthinker, a pattern without a window", LAYER_FULL, LAYER_FULL);
}
END_TEST

static void limits_are(struct make *m, const char *what, float first, float second)
{
    struct model_index *index = read_model(m, what);
    const float *dense = index->hparams.dense_limits;
    ck_assert_msg(dense[0] == first && dense[1] == second && dense[2] == 0, "%s: %g, %g, %g", what,
                  (double)dense[0], (double)dense[1], (double)dense[2]);
    free(index);
}

static void limits_fail(const float *limits, uint32_t count, const char *text)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "step35", 2, false);
    drop(&m, "step35", "swiglu_clamp_shexp");
    make_array_raw(&m, "step35.swiglu_clamp_shexp", GGUF_F32, count, 0);
    bytes_add(&make_key(&m, "step35.swiglu_clamp_shexp")->value, limits, count * sizeof *limits);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, text), "%s", error.text);
}

/* An array or one number; other architectures have none. */
START_TEST(limits_of_networks)
{
    struct make m;
    make_arch(&m, "step35", 2, false);
    limits_are(&m, "one number", 0.25f, 0.25f);
    make_arch(&m, "step35", 2, false);
    drop(&m, "step35", "swiglu_clamp_shexp");
    limits_are(&m, "no limit", 0, 0);
    make_arch(&m, "step35", 2, false);
    struct model_index *index = read_model(&m, "an array");
    ck_assert(index->hparams.expert_limits[0] == 0 && index->hparams.expert_limits[1] == 0.5f);
    ck_assert(model_expert_limit(&index->hparams, 1).result);
    free(index);
    limits_fail((const float[]){1, NAN}, 2, "for layer 1: not between 0 and");
    limits_fail((const float[]){-1, 1}, 2, "is -1 for layer 0: not between 0 and");
    limits_fail((const float[]){INFINITY, 1}, 2, "for layer 0: not between 0 and");
    limits_fail((const float[]){1}, 1, "has 1 numbers for 2 layers");
}
END_TEST

/* Limits in an index that its architecture or number of layers rules out. */
START_TEST(limits_that_are_impossible)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "qwen3moe", 2, false);
    struct model_index *index = read_model(&m, "qwen3moe");
    index->hparams.expert_limits[1] = 1;
    ck_assert_int_ne(arch_check_hparams(&arch_qwen3moe, &index->hparams, &error), 0);
    free(index);
    make_arch(&m, "step35", 2, false);
    index = read_model(&m, "step35");
    ck_assert_int_eq(arch_check_hparams(&arch_step35, &index->hparams, &error), 0);
    index->hparams.dense_limits[2] = 1;
    ck_assert_int_ne(arch_check_hparams(&arch_step35, &index->hparams, &error), 0);
    free(index);
}
END_TEST

/* Query heads, rotated elements and gates by kind of layer. */
START_TEST(attention_by_kind)
{
    struct make m;
    make_arch(&m, "step35", 2, true); /* heads of 32 */
    struct model_index *index = read_model(&m, "step35");
    const struct layer_attention *window = &index->layer[0].attention,
                                 *full = &index->layer[1].attention;
    ck_assert(window->heads == 4 && window->rope_dims == 32 && window->window == 16);
    ck_assert(full->heads == 2 && full->rope_dims == 16 && full->window == 0);
    ck_assert(full->gate == HEAD_GATE_SIGMOID && full->gate_form == GATE_OF_HEAD);
    ck_assert(index->hparams.rope_theta_window == 10000);
    free(index);
    make_arch(&m, "step35", 2, true); /* llama.cpp halves it, too */
    put_u32(&m, "step35", "rope.dimension_count", 8);
    make_tensor(&m, "rope_freqs.weight")->ne[0] = 4;
    make_tensor(&m, "rope_freqs.weight")->bytes = 4 * sizeof(float);
    index = read_model(&m, "step35, 8 elements");
    ck_assert(index->layer[0].attention.rope_dims == 8 && index->layer[1].attention.rope_dims == 4);
    free(index);
}
END_TEST

/* As the matrix says. */
START_TEST(gates_of_laguna)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "laguna", 2, false);
    struct model_index *index = read_model(&m, "a gate per head");
    ck_assert_uint_eq(index->layer[0].attention.gate_form, GATE_OF_HEAD);
    ck_assert_uint_eq(index->layer[0].attention.heads, 2);
    ck_assert_uint_eq(index->layer[1].attention.heads, 4);
    free(index);
    for (uint64_t heads = 2; heads <= 4; heads += 2) { /* the window is in layer 1 */
        make_arch(&m, "laguna", 2, false);
        make_tensor(&m, "blk.0.attn_gate.weight")->ne[1] = 4;
        make_tensor(&m, "blk.0.attn_gate.weight")->bytes *= 2;
        make_tensor(&m, "blk.1.attn_gate.weight")->ne[1] = 2 * heads;
        make_tensor(&m, "blk.1.attn_gate.weight")->bytes *= heads / 2;
        index = make_index(&m, &error);
        ck_assert_msg((index != NULL) == (heads == 4), "%s", error.text);
        if (index)
            ck_assert_uint_eq(index->layer[1].attention.gate_form, GATE_OF_ELEMENT);
        free(index);
    }
    ck_assert_msg(strstr(error.text, "blk.1.attn_gate.weight is 4 x 4"), "%s", error.text);
}
END_TEST

/* ---- positions that an indexer chooses ---- */

/* The tensors of an indexer that is not computed are no entries: they are not loaded, and not in
 * the budget. */
START_TEST(indexer_is_left_alone)
{
    static const char *const archs[] = {"deepseek2"};
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        struct make m;
        make_arch(&m, archs[i], 2, false);
        struct model_index *without = read_model(&m, archs[i]);
        make_arch(&m, archs[i], 2, false);
        make_indexer(&m, archs[i], 0, 4);
        make_indexer(&m, archs[i], 1, 4);
        struct model_index *with = read_model(&m, archs[i]);
        ck_assert_uint_eq(with->dense_count, without->dense_count);
        ck_assert_uint_gt(with->tensor_count, without->tensor_count);
        ck_assert_uint_eq(with->entry_count, without->entry_count);
        ck_assert_msg(with->unread_count == 0, "%s: %s", archs[i], with->unread);
        free(with);
        free(without);
    }
}
END_TEST

/* Up to how many tokens a file of a context of 128 is computed. */
static void limited(struct make *m, uint32_t tokens, const char *what)
{
    char text[MODEL_LIMIT_BYTES], wanted[40];
    struct error error = {0};
    struct model_index *index = read_model(m, what);
    snprintf(wanted, sizeof wanted, "up to %u tokens", tokens);
    ck_assert_uint_eq(model_context(&index->hparams), tokens);
    ck_assert_int_eq(model_check_tokens(index, tokens, "--ctx-size", &error), 0);
    if (tokens < 128) {
        ck_assert_msg(strstr(model_limit_text(index, text), wanted), "%s: %s", what, text);
        ck_assert_int_eq(model_check_tokens(index, tokens + 1, "--ctx-size", &error), -1);
        ck_assert_msg(strstr(error.text, wanted) && strstr(error.text, "--ctx-size"), "%s",
                      error.text);
    } else {
        ck_assert_str_eq(model_limit_text(index, text), "");
        ck_assert_int_eq(model_check_tokens(index, 1u << 30, "--ctx-size", &error), 0);
    }
    free(index);
}

static void drop_indexer(struct make *m)
{
    for (size_t i = m->tensor_count; i-- > 0;)
        if (strstr(m->tensors[i].name, ".indexer."))
            make_drop_tensor(m, m->tensors[i].name);
}

START_TEST(tokens_up_to_which_all_are_chosen)
{
    struct make m;
    make_arch(&m, "glm-dsa", 2, false);
    limited(&m, 128, "32 positions, which are computed");
    make_arch(&m, "deepseek32", 2, false);
    put_u32(&m, "deepseek32", "attention.indexer.top_k", 127);
    drop(&m, "deepseek32", "attention.indexer.head_count"); /* as sluice pack wrote it */
    limited(&m, 127, "127 positions");
    make_arch(&m, "deepseek32", 2, false); /* or from a GGUF file, whose keys it copied */
    drop_indexer(&m);
    limited(&m, 32, "an indexer without tensors");
    make_arch(&m, "qwen3moe", 2, false);
    limited(&m, 128, "no indexer");
}
END_TEST

/* The layers that have an indexer, a digit each, of a model of five. */
static void indexed(struct make *m, const char *digits, uint32_t entries)
{
    struct model_index *index = read_model(m, digits);
    uint32_t found = 0;
    for (uint32_t layer = 0; layer < 5; layer++) {
        bool own = digits[layer] == '1';
        ck_assert_uint_eq(index->layer[layer].index, own ? INDEX_OWN : INDEX_BEFORE);
        ck_assert(own == (model_kv_bytes(&index->hparams, layer, KV_SIDE_INDEX, KV_TYPE_Q4_0, 64) ==
                          64ul * 2 * 4));
        for (int role = DENSE_INDEX_Q; role <= DENSE_INDEX_WEIGHTS; role++)
            found += model_entry_dense(index, layer, (enum dense_role)role) != ENTRY_NONE;
    }
    ck_assert_uint_eq(found, entries);
    ck_assert_msg(index->unread_count == 0, "%s", index->unread);
    free(index);
}

/* A layer that takes the choice of another one may have tensors of its own. */
START_TEST(layers_with_an_indexer)
{
    struct make m;
    struct error error;
    const char *const types = "glm-dsa.attention.indexer.types";
    make_arch(&m, "deepseek32", 5, false);
    indexed(&m, "11111", 25);
    make_arch(&m, "glm-dsa", 5, false);
    indexed(&m, "11111", 25);
    make_arch(&m, "glm-dsa", 5, false);
    put_u32(&m, "glm-dsa", "context_length", 1u << 20);
    indexed(&m, "11100", 15);
    make_arch(&m, "glm-dsa", 5, false);
    make_i32s(&m, types, (const int32_t[]){1, 0, 1, 0, 1}, 5);
    indexed(&m, "10101", 15);
    make_arch(&m, "glm-dsa", 5, false);
    make_i32s(&m, types, (const int32_t[]){0, 1, 0, 1, 1}, 5);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "layer 0 "), "%s", error.text);
    make_arch(&m, "glm-dsa", 2, false);
    make_tensor(&m, "blk.1.indexer.proj.weight")->ne[1] = 1;
    make_tensor(&m, "blk.1.indexer.proj.weight")->bytes /= 2;
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "blk.1.indexer.proj.weight is 4 x 1"), "%s", error.text);
    make_arch(&m, "glm-dsa", 2, false);
    put_u32(&m, "glm-dsa", "attention.indexer.key_length", 1);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "indexer.key_length is 1"), "%s", error.text);
}
END_TEST

/* Files of DeepSeek-V3.2 from before its own architecture. */
START_TEST(indexer_in_deepseek2)
{
    struct make m;
    make_arch(&m, "deepseek2", 2, false);
    limited(&m, 128, "no indexer");
    for (int key = 0; key < 2; key++) {
        make_arch(&m, "deepseek2", 2, false);
        make_indexer(&m, "deepseek2", 0, 4);
        put_u32(&m, "deepseek2", "context_length", 4096);
        if (key)
            put_u32(&m, "deepseek2", "attention.indexer.top_k", 64);
        struct model_index *index = read_model(&m, "with an indexer");
        ck_assert_uint_eq(model_context(&index->hparams), key ? 64 : 2048);
        free(index);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("keys");
    TCase *tcase = tcase_create("files of the converter");
    tcase_add_loop_test(tcase, scaling, 0, ARCH_COUNT);
    tcase_add_test(tcase, layers_with_an_indexer);
    tcase_add_test(tcase, longrope_by_tensors);
    tcase_add_test(tcase, queries_by_position);
    tcase_add_test(tcase, absent_keys);
    tcase_add_test(tcase, no_dense_layer);
    tcase_add_test(tcase, windows_of_the_file);
    tcase_add_test(tcase, limits_of_networks);
    tcase_add_test(tcase, limits_that_are_impossible);
    tcase_add_test(tcase, attention_by_kind);
    tcase_add_test(tcase, gates_of_laguna);
    tcase_add_test(tcase, indexer_is_left_alone);
    tcase_add_test(tcase, tokens_up_to_which_all_are_chosen);
    tcase_add_test(tcase, indexer_in_deepseek2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
