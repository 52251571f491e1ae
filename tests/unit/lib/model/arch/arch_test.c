/* SPDX-License-Identifier: Apache-2.0 */
/* Every architecture of arch.tbl.h: a valid file is read correctly. Files with errors:
 * bad_models_test.c. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

static const struct {
    const char *arch;
    uint32_t norm_top_k, qk_norm, rope_kind, shared_inner; /* of a mixed file: hidden size 32 */
    uint32_t dense_per_layer, dense_global;
    uint32_t dense_first; /* of a first layer without experts; 0: it has experts */
} archs[] = {
    {"qwen3moe", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 9, 3, 0},
    {"olmoe", 0, QK_NORM_ROW, ROPE_HALVES, 0, 9, 3, 0},
    {"qwen2moe", 0, QK_NORM_NONE, ROPE_HALVES, 64, 14, 3, 0},
    {"llama", 1, QK_NORM_NONE, ROPE_PAIRS, 0, 7, 4, 0},
    {"llama4", 0, QK_NORM_ROTATED, ROPE_PAIRS, 32, 10, 4, 9},
    {"arctic", 1, QK_NORM_NONE, ROPE_PAIRS, 0, 11, 3, 0},
    {"glm4moe", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 16, 3, 14},
    {"dots1", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 11},
    {"ernie4_5-moe", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 11, 3, 9},
    {"minimax-m2", 1, QK_NORM_ROW, ROPE_HALVES, 0, 10, 3, 0},
    {"minimax-m3", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 17, 3, 11},
    {"minimax-01", 1, QK_NORM_NONE, ROPE_HALVES, 0, 7, 3, 0},
    {"granitemoe", 0, QK_NORM_NONE, ROPE_PAIRS, 0, 7, 3, 0},
    {"granitehybrid", 0, QK_NORM_NONE, ROPE_PAIRS, 0, 7, 3, 0},
    {"granite_swa", 0, QK_NORM_NONE, ROPE_PAIRS, 32, 10, 3, 0},
    {"nemotron_h_moe", 1, QK_NORM_NONE, ROPE_HALVES, 32, 5, 3, 9},
    {"jamba", 0, QK_NORM_NONE, ROPE_HALVES, 0, 7, 3, 17},
    {"hunyuan-moe", 1, QK_NORM_HEAD_AFTER, ROPE_HALVES, 32, 12, 3, 0},
    {"phimoe", 0, QK_NORM_NONE, ROPE_HALVES, 0, 13, 5, 0},
    {"dbrx", 1, QK_NORM_NONE, ROPE_HALVES, 0, 5, 3, 0},
    {"bailingmoe2", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 11, 3, 9},
    {"smallthinker", 1, QK_NORM_NONE, ROPE_HALVES, 0, 7, 3, 0},
    {"gpt-oss", 0, QK_NORM_NONE, ROPE_HALVES, 0, 16, 3, 0},
    {"deepseek2", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 15, 3, 13},
    {"deepseek32", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 20, 3, 18},
    {"glm-dsa", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 20, 3, 18},
    {"deepseek4", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 25, 6, 0},
    {"hy_v4", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 28, 6, 26},
    {"dots3note", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 17, 3, 20},
    {"glm5-next", 1, QK_NORM_NONE, ROPE_HALVES, 32, 28, 3, 26},
    {"glm5next", 1, QK_NORM_NONE, ROPE_HALVES, 32, 28, 3, 26},
    {"kimi-linear", 1, QK_NORM_NONE, ROPE_HALVES, 32, 13, 3, 20},
    {"kimi-k3", 1, QK_NORM_NONE, ROPE_HALVES, 32, 21, 4, 21},
    {"bailingmoe3", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 16, 3, 18},
    {"mistral4", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 15, 3, 13},
    {"bailingmoe", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 10, 3, 0},
    {"deepseek", 0, QK_NORM_NONE, ROPE_PAIRS, 32, 10, 3, 9},
    {"exaone-moe", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 11},
    {"hy_v3", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 11},
    {"step35", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 14, 4, 12},
    {"laguna", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 14, 3, 12},
    {"afmoe", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 16, 3, 14},
    {"mellum", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 9, 3, 0},
    {"mimo2", 1, QK_NORM_NONE, ROPE_HALVES, 0, 8, 3, 9},
    {"cohere2moe", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 9, 3, 8},
    {"maple", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 9, 3, 0},
    {"qwen3vlmoe", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 9, 3, 0},
    {"gemma4", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 20, 4, 0},
    {"qwen35moe", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 0},
    {"qwen3next", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 0},
    {"qwen4exp", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 23, 6, 0},
    {"lfm2moe", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 10, 3, 8},
};

/* Dense tensors of a first layer that is recurrent and has experts; the others: as every layer. */
static uint32_t dense_of_first(const char *arch, uint32_t every)
{
    return strcmp(arch, "qwen35moe") == 0       ? 16
           : strcmp(arch, "qwen3next") == 0     ? 15
           : strcmp(arch, "qwen4exp") == 0      ? 28
           : strcmp(arch, "deepseek4") == 0     ? 31
           : strcmp(arch, "granitehybrid") == 0 ? 11
                                                : every;
}

_Static_assert(ARRAY_LEN(archs) == ARCH_COUNT, "a row for every architecture of arch.tbl.h");

START_TEST(contents)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, archs[_i].arch, 2, true);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    const struct model_hparams *h = &index->hparams;
    ck_assert_str_eq(index->arch, archs[_i].arch);
    ck_assert_uint_eq(h->layers, 2);
    ck_assert_uint_eq(h->expert_inner, 32);
    ck_assert_uint_eq(h->norm_top_k, archs[_i].norm_top_k);
    ck_assert_uint_eq(h->qk_norm, archs[_i].qk_norm);
    ck_assert_uint_eq(h->rope_kind, archs[_i].rope_kind);
    ck_assert_uint_eq(h->shared_inner, archs[_i].shared_inner);
    uint32_t every = archs[_i].dense_per_layer, first = archs[_i].dense_first;
    uint32_t other = dense_of_first(archs[_i].arch, every);
    ck_assert_uint_eq(index->dense_count, every + (first ? first : other) + archs[_i].dense_global);
    ck_assert_uint_eq(index->expert_entry_count, 6);
    ck_assert_uint_eq(index->absent_count, first ? 3 : 0);
    ck_assert_uint_eq(model_layer_has_experts(index, 0), first == 0);
    ck_assert_uint_eq(model_entry_expert(index, 0, 2) == ENTRY_NONE, first != 0);
    ck_assert(model_layer_has_experts(index, 1));
    ck_assert_uint_ne(model_entry_expert(index, 1, 2), ENTRY_NONE);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    free(index);
}
END_TEST

/* Every tensor of a file with a longer row, and a file without it, unless it is optional. */
START_TEST(every_tensor)
{
    struct make m;
    make_arch(&m, archs[_i].arch, 2, false);
    size_t count = m.tensor_count;
    make_free(&m);
    for (size_t i = 0; i < count; i++) {
        struct error error = {0};
        make_arch(&m, archs[_i].arch, 2, false);
        struct make_tensor *t = &m.tensors[i];
        t->ne[0] += 4;
        t->bytes = t->ne[0] * t->ne[1] * t->ne[2] * 4;
        ck_assert_ptr_null(make_index(&m, &error));
        ck_assert_msg(strstr(error.text, "expected"), "%s", error.text);
        make_arch(&m, archs[_i].arch, 2, false);
        char name[sizeof m.tensors[i].name];
        snprintf(name, sizeof name, "%s", m.tensors[i].name);
        make_drop_tensor(&m, name);
        struct model_index *index = make_index(&m, &error);
        bool optional =
            strcmp(name, "rope_freqs.weight") == 0 || strcmp(name, "output.bias") == 0 ||
            (strstr(name, "attn_") && strstr(name, ".bias")) || strstr(name, "exp_probs_b") ||
            strstr(name, "routed_norm") || strstr(name, "attn_q_norm") ||
            strstr(name, "attn_k_norm") || strcmp(name, "blk.0.ssm_conv1d.bias") == 0 ||
            (strcmp(archs[_i].arch, "gemma4") == 0 &&
             (strcmp(name, "blk.0.attn_v.weight") == 0 || strstr(name, "layer_output_scale") ||
              strstr(name, "ffn_down_exps.scale")));
        bool of_dense =
            (strcmp(archs[_i].arch, "hy_v3") == 0 && strstr(error.text, "no such part")) ||
            ((strcmp(archs[_i].arch, "mimo2") == 0 || strcmp(archs[_i].arch, "jamba") == 0) &&
             strstr(error.text, "no layer has experts"));
        ck_assert_msg(index ? optional : of_dense || strstr(error.text, "is missing") != NULL,
                      "%s: %s", name, error.text);
        free(index);
    }
}
END_TEST

/* A blob whose parameters contradict its architecture. */
START_TEST(forged_parameters)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, archs[_i].arch, 1, true);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    uint32_t *const fields[] = {&index->hparams.norm_top_k, &index->hparams.qk_norm,
                                &index->hparams.rope_kind, &index->hparams.shared_inner,
                                &index->hparams.index_last};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        uint32_t right = *fields[i];
        *fields[i] = right ^ 3;
        ck_assert_msg(model_index_check(index, index->bytes, &error) == -1, "field %zu", i);
        *fields[i] = right;
    }
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    free(index);
}
END_TEST

static const struct {
    const char *arch, *why;
} unsupported[] = {
#define LATER(name) {name, "is not supported yet"},
#define DENSE(name) {name, "is not a MoE model"},
#include "lib/model/arch/unsupported.tbl.h"
};

/* The list in the message has the name: "bailingmoe2" is not "bailingmoe". */
static bool lists(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++)
        if (at > text && at[-1] == ' ' && (at[n] == ',' || at[n] == ' '))
            return true;
    return false;
}

/* A known architecture is named with the reason, and is none that is supported. */
START_TEST(known_but_not_supported)
{
    struct make m;
    struct error error = {0};
    char want[128];
    const char *arch = unsupported[_i].arch;
    ck_assert_ptr_null(arch_find(arch, strlen(arch)));
    make_tiny(&m, 1, false);
    make_text(&m, "general.architecture", arch);
    ck_assert_ptr_null(make_index(&m, &error));
    snprintf(want, sizeof want, "architecture '%s' %s", arch, unsupported[_i].why);
    ck_assert_msg(strncmp(error.text, want, strlen(want)) == 0, "%s", error.text);
    ck_assert_msg(!!strstr(error.text, "llama.cpp") == !!strstr(want, "MoE"), "%s", error.text);
    int named = 0; /* what runs instead: names, and the number of the others */
    while (named < ARCH_COUNT && lists(error.text, arch_list[named]->name))
        named++;
    snprintf(want, sizeof want, " and %d more", ARCH_COUNT - named);
    ck_assert_msg(named > 10 && strstr(error.text, want), "%s", error.text);
}
END_TEST

#define B   "blk.0."
#define MLA "deepseek2.attention."

/* Merges gate and up of a file with hidden and inner size 4 into one tensor. */
static void join(struct make *m)
{
    make_drop_tensor(m, B "ffn_gate_exps.weight");
    make_drop_tensor(m, B "ffn_up_exps.weight");
    make_add_tensor(m, B "ffn_gate_up_exps.weight", TENSOR_F32, 4, 8, 3);
}

START_TEST(gate_and_up_joined)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "olmoe", 1, false);
    join(&m);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    const struct model_tensor *t = model_index_tensors(index);
    while (strcmp(t->name, B "ffn_gate_up_exps.weight") != 0)
        t++;
    for (uint32_t expert = 0; expert < 3; expert++) {
        const struct model_entry *e =
            &model_index_entries(index)[model_entry_expert(index, 0, expert)];
        ck_assert_uint_eq(e->extents, 3);
        for (int which = EXPERT_GATE; which <= EXPERT_UP; which++) {
            const struct model_extent *x = &e->extent[which];
            ck_assert_uint_eq(x->file_offset + x->head_bytes,
                              t->file_offset + (2 * expert + (unsigned)which) * 64);
            ck_assert_uint_eq(x->payload_bytes, 64);
            ck_assert_uint_eq(e->matrix[which].n, 4);
            ck_assert_uint_eq(e->matrix[which].slot_offset, x->slot_offset + x->head_bytes);
        }
    }
    free(index);
}
END_TEST

/* Scales are dense weights, those of a layer's experts too; what scales inputs is left alone. */
START_TEST(scales)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "qwen2moe", 1, false);
    make_add_tensor(&m, "output.weight", TENSOR_F32, 4, TINY_VOCAB, 1);
    uint32_t before = (uint32_t)m.tensor_count;
    make_add_tensor(&m, "output.scale", TENSOR_F32, 1, 1, 1);
    make_add_tensor(&m, B "attn_k.scale", TENSOR_F32, 1, 1, 1);
    make_add_tensor(&m, B "ffn_down_shexp.scale", TENSOR_F32, 1, 1, 1);
    make_add_tensor(&m, B "ffn_up_exps.scale", TENSOR_F32, 3, 1, 1);
    make_add_tensor(&m, B "ffn_up_exps.input_scale", TENSOR_F16, 5, 2, 1);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    ck_assert_uint_eq(index->tensor_count, before + 5);
    ck_assert_uint_eq(index->dense_count, before - 3 + 4);
    static const enum dense_role roles[] = {DENSE_OUTPUT_SCALE, DENSE_ATTN_K_SCALE,
                                            DENSE_SHARED_DOWN_SCALE, DENSE_EXPERT_UP_SCALES};
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        uint32_t layer = roles[i] == DENSE_OUTPUT_SCALE ? 1 : 0;
        uint32_t entry = model_entry_dense(index, layer, roles[i]);
        ck_assert_uint_ne(entry, ENTRY_NONE);
        ck_assert(!model_dense_quantisable(index, entry));
        ck_assert_uint_eq(model_index_entries(index)[entry].payload_bytes,
                          roles[i] == DENSE_EXPERT_UP_SCALES ? 12 : 4);
    }
    ck_assert_uint_eq(model_entry_dense(index, 0, DENSE_EXPERT_DOWN_SCALES), ENTRY_NONE);
    free(index);
}
END_TEST

/* The block for drafting after the last layer is left out, whatever its tensors are. */
START_TEST(drafting_block)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "glm4moe", 3, true);
    make_u32(&m, "glm4moe.nextn_predict_layers", 1);
    make_add_tensor(&m, "blk.2.nextn.eh_proj.weight", TENSOR_F32, 64, 32, 1);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_uint_eq(index->hparams.layers, 2);
    ck_assert_uint_eq(index->dense_count, 14 + 16 + 3);
    ck_assert_uint_eq(index->expert_entry_count, 6);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    free(index);
    make_arch(&m, "glm4moe", 3, true);
    make_u32(&m, "glm4moe.nextn_predict_layers", 1);
    make_add_tensor(&m, "blk.3.nextn.eh_proj.weight", TENSOR_F32, 64, 32, 1);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "not part of architecture glm4moe"));
}
END_TEST

/* A layer has the tensors of its parts, and no others. */
START_TEST(tensors_of_another_part)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "dots1", 2, false);
    make_add_tensor(&m, "blk.0.ffn_gate_inp.weight", TENSOR_F32, 4, 3, 1);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "layer 0 of this model has no such part"));
    make_arch(&m, "dots1", 2, false);
    make_add_tensor(&m, "blk.1.ffn_up.weight", TENSOR_F32, 4, 8, 1);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "layer 1 of this model has no such part"));
    make_arch(&m, "dots1", 2, false);
    make_drop_tensor(&m, "blk.0.ffn_up.weight");
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "tensor blk.0.ffn_up.weight is missing"));
    make_arch(&m, "dots1", 2, false);
    make_drop_tensor(&m, "blk.1.ffn_gate_exps.weight");
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "tensor blk.1.ffn_gate_exps.weight is missing"));
}
END_TEST

static uint32_t gating_of(uint32_t layers, uint32_t tokens)
{
    struct make m;
    struct error error = {0};
    struct model_hparams h;
    struct gguf g;
    make_arch(&m, "deepseek2", 1, false);
    make_u32(&m, "deepseek2.block_count", layers);
    make_drop_key(&m, "deepseek2.vocab_size");
    struct bytes file = make_write(&m);
    struct gguf_source source = {.read = make_read, .arg = &file, .bytes = file.size};
    ck_assert_int_eq(gguf_open(&g, &source, &error), 0);
    ck_assert_msg(arch_read_hparams(arch_find("deepseek2", 9), &g, tokens, &h, &error) == 0, "%s",
                  error.text);
    gguf_close(&g);
    bytes_free(&file);
    make_free(&m);
    return h.gating;
}

/* Files without the key of the router's function. */
START_TEST(default_of_a_model)
{
    ck_assert_uint_eq(gating_of(47, 154880), ROUTER_SIGMOID);
    ck_assert_uint_eq(gating_of(48, 154880), ROUTER_SIGMOID);
    ck_assert_uint_eq(gating_of(46, 154880), ROUTER_SOFTMAX);
    ck_assert_uint_eq(gating_of(47, 102400), ROUTER_SOFTMAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arch");
    TCase *tcase = tcase_create("tables");
    tcase_add_loop_test(tcase, contents, 0, ARRAY_LEN(archs));
    tcase_add_loop_test(tcase, every_tensor, 0, ARRAY_LEN(archs));
    tcase_add_loop_test(tcase, forged_parameters, 0, ARRAY_LEN(archs));
    tcase_add_test(tcase, gate_and_up_joined);
    tcase_add_test(tcase, scales);
    tcase_add_test(tcase, drafting_block);
    tcase_add_test(tcase, default_of_a_model);
    tcase_add_test(tcase, tensors_of_another_part);
    tcase_add_loop_test(tcase, known_but_not_supported, 0, ARRAY_LEN(unsupported));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
