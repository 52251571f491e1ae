/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of one part, whose numbers are in arrays; the context in which an indexer chooses all
 * positions. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "lib/model/index/model_index.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

#define N "nemotron_h_moe."

/* M E M E, whose second and fourth layer have experts. */
static struct model_index *four_layers(void (*edit)(struct make *m), struct error *error)
{
    struct make m;
    make_arch(&m, "nemotron_h_moe", 4, false);
    if (edit)
        edit(&m);
    struct model_index *index = make_index(&m, error);
    if (index)
        ck_assert_int_eq(model_index_check(index, index->bytes, error), 0);
    return index;
}

START_TEST(layers_of_one_part)
{
    struct error error = {0};
    struct model_index *index = four_layers(NULL, &error);
    ck_assert_msg(index, "%s", error.text);
    const struct model_hparams *h = &index->hparams;
    for (uint32_t layer = 0; layer < 4; layer++) {
        bool network = layer % 2 == 1;
        ck_assert_int_eq(h->layer_kind[layer], network ? LAYER_PLAIN : LAYER_RECURRENT);
        ck_assert_int_eq(index->layer[layer].mixer, network ? MIXER_NONE : MIXER_MAMBA2);
        ck_assert_int_eq(index->layer[layer].ffn, network ? FFN_EXPERTS : FFN_NONE);
        /* one norm, of the part that there is */
        ck_assert_int_eq(model_entry_dense(index, layer, DENSE_ATTN_NORM) == ENTRY_NONE, network);
        ck_assert_int_eq(model_entry_dense(index, layer, DENSE_FFN_NORM) == ENTRY_NONE, !network);
        ck_assert_uint_eq(model_kv_bytes(h, layer, KV_SIDE_KEYS, KV_TYPE_F16, 64), 0);
        ck_assert_int_eq(model_recurrent_of(h, layer).floats == 0, network);
    }
    const struct model_entry *e = &model_index_entries(index)[model_entry_expert(index, 1, 2)];
    ck_assert_uint_eq(e->extents, 2);
    ck_assert_uint_eq(e->matrix[EXPERT_UP].n, 0);
    ck_assert_uint_eq(model_matrix_extent(e, EXPERT_DOWN), 1);
    ck_assert_uint_eq(e->matrix[EXPERT_DOWN].slot_offset,
                      e->extent[1].slot_offset + e->extent[1].head_bytes);
    ck_assert_uint_eq(e->payload_bytes, 2 * 4 * 4 * sizeof(float));
    free(index);
}
END_TEST

static void used_alike(struct make *m)
{
    make_i32s(m, N "expert_used_count", (const int32_t[]){0, 1, 7, 1, 9}, 5);
    make_i32s(m, N "expert_feed_forward_length", (const int32_t[]){0, 4, 0, 4}, 4);
}

static void used_differ(struct make *m)
{
    make_i32s(m, N "expert_used_count", (const int32_t[]){0, 2, 0, 1}, 4);
}

static void sizes_differ(struct make *m)
{
    make_i32s(m, N "expert_feed_forward_length", (const int32_t[]){0, 4, 0, 8}, 4);
}

static void used_few(struct make *m)
{
    make_i32s(m, N "expert_used_count", (const int32_t[]){2, 2}, 2);
}

static void used_none(struct make *m)
{
    make_i32s(m, N "expert_used_count", (const int32_t[]){2, 0, 2, 0}, 4);
}

static void no_networks(struct make *m)
{
    make_i32s(m, N "feed_forward_length", (const int32_t[]){0, 0, 0, 0}, 4);
}

static void one_number(struct make *m)
{
    make_u32(m, N "feed_forward_length", 4);
}

/* An old file: the sizes of all experts of a token. */
static void old_size(struct make *m)
{
    make_drop_key(m, N "expert_feed_forward_length");
    make_i32s(m, N "feed_forward_length", (const int32_t[]){0, 8, 0, 8}, 4);
    make_u32(m, N "expert_used_count", 2);
}

static void edit_latent(struct make *m, unsigned layer)
{
    static const struct {
        const char *name;
        uint64_t ne[3];
    } tensors[] = {{"ffn_latent_down", {4, 3, 1}},
                   {"ffn_latent_up", {3, 4, 1}},
                   {"ffn_up_exps", {3, 4, 3}},
                   {"ffn_down_exps", {4, 3, 3}}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
        if (make_tensor(m, name))
            make_drop_tensor(m, name);
        make_add_tensor(m, name, TENSOR_F32, tensors[i].ne[0], tensors[i].ne[1], tensors[i].ne[2]);
    }
}

static void latent(struct make *m)
{
    make_u32(m, N "moe_latent_size", 3);
    for (unsigned layer = 1; layer < 4; layer += 2)
        edit_latent(m, layer);
}

static void latent_wide(struct make *m)
{
    make_u32(m, N "moe_latent_size", 5);
}

static void other_epsilon(struct make *m)
{
    make_drop_key(m, N "attention.layer_norm_epsilon");
    if (!make_key(m, N "attention.layer_norm_rms_epsilon"))
        make_f32(m, N "attention.layer_norm_rms_epsilon", 1e-5f);
}

static void latent_missing(struct make *m)
{
    make_u32(m, N "moe_latent_size", 4);
}

static void norm_twice(struct make *m)
{
    make_add_tensor(m, "blk.1.ffn_norm.weight", TENSOR_F32, 4, 1, 1);
}

static const struct {
    void (*edit)(struct make *m);
    const char *why; /* NULL: it is right */
    uint32_t used, width;
} of_one_part[] = {
    {used_alike, NULL, 1, 4},
    {old_size, NULL, 2, 4},
    {latent, NULL, 2, 3},
    {other_epsilon, NULL, 2, 4},
    {latent_wide, "with 5 elements are wider than layers of 4", 0, 0},
    {used_differ, "for layer 1 and 1 for layer 3: layers whose experts differ in number", 0, 0},
    {sizes_differ, "for layer 1 and 8 for layer 3: layers whose experts differ in number", 0, 0},
    {used_few, "expert_used_count' has 2 numbers for 4 layers", 0, 0},
    {used_none, "expert_used_count' is 0 for layer 1: not between 1", 0, 0},
    {no_networks, "no layer has experts", 0, 0},
    {one_number, "feed_forward_length' is missing, or no array with a number per layer", 0, 0},
    {latent_missing, "tensor blk.1.ffn_latent_down.weight is missing", 0, 0},
    {norm_twice, "tensor blk.1.ffn_norm.weight is not part of architecture", 0, 0},
};

START_TEST(numbers_by_layer)
{
    struct error error = {0};
    struct model_index *index = four_layers(of_one_part[_i].edit, &error);
    if (of_one_part[_i].why) {
        ck_assert_ptr_null(index);
        ck_assert_msg(strstr(error.text, of_one_part[_i].why), "%s", error.text);
        return;
    }
    ck_assert_msg(index, "%s", error.text);
    ck_assert_uint_eq(index->hparams.experts_used, of_one_part[_i].used);
    ck_assert_uint_eq(index->hparams.expert_inner, 4);
    ck_assert_uint_eq(hparams_expert_width(&index->hparams), of_one_part[_i].width);
    free(index);
}
END_TEST

/* The index of a model with four layers, every second one with attention; blocks of the indexer's
 * pools, NULL: one number for all; chosen positions, 0: not stated. */
struct pools {
    const int32_t *blocks;
    uint32_t chosen;
    bool tensors;
};

static struct model_index *with_pools(const struct pools *p, struct error *error)
{
    struct make m;
    make_arch(&m, "qwen4exp", 4, false);
    for (unsigned i = m.tensor_count; i-- > 0 && !p->tensors;)
        if (strstr(m.tensors[i].name, ".indexer."))
            make_drop_tensor(&m, m.tensors[i].name);
    if (p->blocks)
        make_i32s(&m, "qwen4exp.attention.compress_ratios", p->blocks, 4);
    else
        make_u32(&m, "qwen4exp.attention.compress_ratios", 4);
    if (p->chosen > 0)
        make_u32(&m, "qwen4exp.attention.indexer.top_k", p->chosen);
    else
        make_drop_key(&m, "qwen4exp.attention.indexer.top_k");
    return make_index(&m, error);
}

/* Blocks of 4, of which 10 positions are chosen: 2 whole ones, and the tail of a third. */
static const int32_t fours[] = {0, 4, 0, 4}, none[] = {0, 0, 0, 0}, recurrent[] = {4, 0, 4, 0};

START_TEST(pools_of_an_indexer)
{
    static const int32_t *const blocks[] = {fours, NULL};
    struct error error;
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        struct model_index *index = with_pools(&(struct pools){blocks[i], 10, true}, &error);
        ck_assert_msg(index, "%s", error.text);
        const struct model_hparams *h = &index->hparams;
        ck_assert_uint_eq(model_chosen_tokens(h), 11);
        ck_assert_uint_eq(model_context(h), h->context);
        ck_assert(model_chooses(h, 12) && !model_chooses(h, 11));
        ck_assert_uint_eq(model_index_unit(h), 4);
        for (uint32_t layer = 0; layer < 4; layer++) {
            bool own = layer % 2 == 1; /* a key of 4 elements for 4 positions; 3 rows of a pool */
            ck_assert_uint_eq(index->layer[layer].index, own ? INDEX_OWN : INDEX_NONE);
            ck_assert_uint_eq(model_kv_bytes(h, layer, KV_SIDE_INDEX, KV_TYPE_Q4_0, 65),
                              own ? 2 * 64 / 4 * 4 * 2 : 0);
            ck_assert_uint_eq(model_pool_floats(h, layer), own ? 3 * 4 : 0);
        }
        ck_assert_uint_eq(model_layer_floats(h, 1), 3 * 4);
        ck_assert_uint_eq(index->unread_count, 0);
        free(index);
    }
}
END_TEST

static uint32_t context_with(const struct pools *p, struct error *error)
{
    struct model_index *index = with_pools(p, error);
    uint32_t context = index ? model_context(&index->hparams) : 0;
    ck_assert(!index || index->hparams.index_heads == 0);
    free(index);
    return context;
}

/* Files whose indexer is not computed. */
START_TEST(context_that_an_indexer_chooses_whole)
{
    static const int32_t differ[] = {0, 4, 0, 2}, some[] = {0, 4, 0, 0}, threes[] = {0, 3, 0, 3};
    struct error error = {0};
    ck_assert_uint_eq(context_with(&(struct pools){fours, 10, false}, &error), 11);
    ck_assert_uint_eq(context_with(&(struct pools){NULL, 10, false}, &error), 11);
    uint32_t all = context_with(&(struct pools){none, 10, false}, &error);
    ck_assert_uint_gt(all, 11);
    ck_assert_uint_eq(context_with(&(struct pools){none, 10, true}, &error), 10);
    ck_assert_uint_eq(context_with(&(struct pools){differ, 10, true}, &error), 11);
    ck_assert_uint_eq(context_with(&(struct pools){some, 10, true}, &error), 11);
    ck_assert_uint_eq(context_with(&(struct pools){threes, 10, true}, &error), 11);
    /* a number of a layer without attention means nothing */
    ck_assert_uint_eq(context_with(&(struct pools){recurrent, 10, false}, &error), all);
    ck_assert_uint_eq(context_with(&(struct pools){fours, 0, true}, &error), 0);
    ck_assert_msg(strstr(error.text, "attention.indexer.top_k' is missing"), "%s", error.text);
    ck_assert_uint_eq(context_with(&(struct pools){fours, 3, true}, &error), 0);
    ck_assert_msg(strstr(error.text, "3 positions, in blocks of 4: impossible"), "%s", error.text);
}
END_TEST

/* What a start says of a file that a converter wrote which does not know the blocks. */
START_TEST(blocks_that_a_file_does_not_state)
{
    struct error error;
    char text[MODEL_LIMIT_BYTES];
    struct model_index *index = with_pools(&(struct pools){none, 10, true}, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_msg(strstr(model_limit_text(index, text), "up to 10 tokens") &&
                      strstr(text, "does not state") && strstr(text, "convert"),
                  "%s", text);
    free(index);
}
END_TEST

/* An indexer over pools that gates make; both names of files, and of the size of a pool. Of four
 * layers, every second one has attention. */
static const char *const gated_names[] = {"glm5-next", "glm5next"};

static void gated(struct make *m, int name, const char *pool, uint32_t chosen)
{
    const char *arch = gated_names[name];
    char key[80];
    make_arch(m, arch, 4, false);
    snprintf(key, sizeof key, "%s.attention.indexer.kpool", arch);
    make_drop_key(m, key);
    snprintf(key, sizeof key, "%s.attention.indexer.%s", arch, pool);
    if (pool[0])
        make_u32(m, key, 4);
    snprintf(key, sizeof key, "%s.attention.indexer.top_k", arch);
    make_u32(m, key, chosen);
}

static struct model_index *read_gated(struct make *m)
{
    struct error error = {0};
    struct model_index *index = make_index(m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_msg(model_index_check(index, index->bytes, &error) == 0, "%s", error.text);
    ck_assert_msg(index->unread_count == 0, "%s", index->unread);
    return index;
}

START_TEST(pools_by_gates)
{
    static const char *const pool[] = {"kpool", "block_size"};
    for (size_t i = 0; i < ARRAY_LEN(pool); i++) {
        struct make m;
        gated(&m, _i, pool[i], 8);
        struct model_index *index = read_gated(&m);
        const struct model_hparams *h = &index->hparams;
        ck_assert_uint_eq(model_chosen_tokens(h), 11);
        ck_assert_uint_eq(model_context(h), h->context);
        ck_assert_uint_eq(model_index_unit(h), 4);
        ck_assert_uint_eq(h->rope_dims, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            bool own = layer % 2 == 1; /* a key of 4 elements for 4 positions; 3 rows and gates */
            ck_assert_uint_eq(index->layer[layer].index, own ? INDEX_OWN : INDEX_NONE);
            ck_assert_uint_eq(model_kv_bytes(h, layer, KV_SIDE_INDEX, KV_TYPE_Q4_0, 65),
                              own ? 2 * 64 / 4 * 4 * 2 : 0);
            ck_assert_uint_eq(model_pool_floats(h, layer), own ? 2 * 3 * 4 : 0);
            ck_assert((model_entry_dense(index, layer, DENSE_INDEX_GATE_BIAS) != ENTRY_NONE) ==
                      own);
        }
        free(index);
    }
}
END_TEST

/* The last layer takes the choice of the second one; before that, there is none to take. */
START_TEST(pools_of_another_layer)
{
    static const int32_t last[] = {1, 1, 1, 0}, none_before[] = {1, 0, 1, 1};
    struct make m;
    struct error error;
    gated(&m, 0, "kpool", 8);
    make_i32s(&m, "glm5-next.attention.indexer.types", last, 4);
    struct model_index *index = read_gated(&m);
    ck_assert_uint_eq(index->layer[1].index, INDEX_OWN);
    ck_assert_uint_eq(index->layer[3].index, INDEX_BEFORE);
    ck_assert_uint_eq(model_layer_floats(&index->hparams, 3), 0);
    ck_assert_uint_eq(model_entry_dense(index, 3, DENSE_INDEX_GATE), ENTRY_NONE);
    free(index);
    gated(&m, 0, "kpool", 8);
    make_i32s(&m, "glm5-next.attention.indexer.types", none_before, 4);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "layer 1 has an indexer where the model has none, or takes"),
                  "%s", error.text);
}
END_TEST

START_TEST(pools_that_are_wrong)
{
    struct make m;
    struct error error;
    gated(&m, 0, "kpool", 10);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "10 positions, in blocks of 4: impossible"), "%s", error.text);
    gated(&m, 0, "kpool", 8);
    make_resize(&m, "blk.1.indexer_compressor_ape.weight", 4, 3);
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "ape.weight is 4 x 3 x 1 x 1; 4 x 4"), "%s", error.text);
    gated(&m, 0, "kpool", 8);
    make_drop_tensor(&m, "blk.3.indexer_compressor_gate.weight");
    ck_assert_ptr_null(make_index(&m, &error));
    ck_assert_msg(strstr(error.text, "blk.3.indexer_compressor_gate.weight is missing"), "%s",
                  error.text);
}
END_TEST

/* Files whose indexer is not computed: without its tensors, or without the size of a pool. */
START_TEST(context_of_pools)
{
    struct make m;
    char text[MODEL_LIMIT_BYTES];
    gated(&m, _i, "kpool", 8);
    for (size_t i = m.tensor_count; i-- > 0;)
        if (strstr(m.tensors[i].name, ".indexer"))
            make_drop_tensor(&m, m.tensors[i].name);
    struct model_index *index = read_gated(&m);
    ck_assert_uint_eq(model_context(&index->hparams), 11);
    ck_assert(strstr(model_limit_text(index, text), "up to 11 tokens"));
    free(index);
    gated(&m, _i, "", 8);
    index = read_gated(&m);
    ck_assert_uint_eq(model_context(&index->hparams), 8);
    ck_assert(strstr(model_limit_text(index, text), "does not state"));
    free(index);
}
END_TEST

/* Blocks and tails that belong to no file, as a damaged index may have them. */
START_TEST(impossible_blocks)
{
    static const uint32_t blocks[][2] = {{0, UINT32_MAX}, {1, 1}, {4, 2}, {UINT32_MAX, 1}};
    struct error error = {0};
    struct model_index *index = with_pools(&(struct pools){fours, 10, false}, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(arch_check_hparams(&arch_qwen4exp, &index->hparams, &error), 0);
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        index->hparams.index_block = blocks[i][0];
        index->hparams.index_tail = blocks[i][1];
        ck_assert_int_ne(arch_check_hparams(&arch_qwen4exp, &index->hparams, &error), 0);
    }
    free(index);
}
END_TEST

/* A matrix of gate and up together reads what each of them does, also in a latent. */
START_TEST(joined_matrices_read_the_same)
{
    unsigned joined = 0;
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        const struct arch_row *gate = NULL, *row;
        ARCH_EACH (row, arch_list[i], ARCH_ROWS(EXPERT)) {
            gate = row->role == EXPERT_GATE ? row : gate;
            if (row->role != EXPERT_GATE_UP)
                continue;
            ck_assert_msg(gate && row->ne[0] == gate->ne[0], "%s", arch_list[i]->name);
            joined++;
        }
    }
    ck_assert_uint_gt(joined, 10);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arch.parts");
    TCase *t = tcase_create("parts");
    tcase_add_test(t, layers_of_one_part);
    tcase_add_loop_test(t, numbers_by_layer, 0, ARRAY_LEN(of_one_part));
    tcase_add_test(t, pools_of_an_indexer);
    tcase_add_test(t, blocks_that_a_file_does_not_state);
    tcase_add_test(t, context_that_an_indexer_chooses_whole);
    tcase_add_loop_test(t, context_of_pools, 0, 2);
    tcase_add_loop_test(t, pools_by_gates, 0, 2);
    tcase_add_test(t, pools_of_another_layer);
    tcase_add_test(t, pools_that_are_wrong);
    tcase_add_test(t, impossible_blocks);
    tcase_add_test(t, joined_matrices_read_the_same);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
