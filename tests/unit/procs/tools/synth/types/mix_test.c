/* SPDX-License-Identifier: Apache-2.0 */
/* The types of a mix are those that llama.cpp's quantiser chose (tests/golden/mix_vectors.py). */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/tools/synth/shape.h"

static json_t *models;

static void make_shape(struct shape *s, const json_t *words)
{
    struct error error;
    ck_assert_int_eq(shape_named(s, json_string_value(json_array_get(words, 0)), &error), 0);
    for (size_t i = 1; i < json_array_size(words); i++)
        ck_assert_int_eq(shape_set(s, json_string_value(json_array_get(words, i)), &error), 0);
    ck_assert_msg(shape_finish(s, &error) == 0, "%s", error.text);
}

/* The tensor's role and row, from its name with "N" for the layer. */
static void find_tensor(const struct shape *s, const char *name, struct mix_tensor *t)
{
    static const struct {
        const char *name;
        bool is_expert;
        uint32_t role;
        enum arch_dim k;
    } rows[] = {
        {"token_embd.weight", false, DENSE_TOKEN_EMBD, ARCH_DIM_HIDDEN},
        {"output.weight", false, DENSE_OUTPUT, ARCH_DIM_HIDDEN},
        {"blk.N.attn_q.weight", false, DENSE_ATTN_Q, ARCH_DIM_HIDDEN},
        {"blk.N.attn_k.weight", false, DENSE_ATTN_K, ARCH_DIM_HIDDEN},
        {"blk.N.attn_v.weight", false, DENSE_ATTN_V, ARCH_DIM_HIDDEN},
        {"blk.N.attn_output.weight", false, DENSE_ATTN_OUT, ARCH_DIM_Q},
        {"blk.N.ffn_gate.weight", false, DENSE_FFN_GATE, ARCH_DIM_HIDDEN},
        {"blk.N.ffn_up.weight", false, DENSE_FFN_UP, ARCH_DIM_HIDDEN},
        {"blk.N.ffn_down.weight", false, DENSE_FFN_DOWN, ARCH_DIM_DENSE},
        {"blk.N.ffn_gate_shexp.weight", false, DENSE_SHARED_GATE, ARCH_DIM_HIDDEN},
        {"blk.N.ffn_up_shexp.weight", false, DENSE_SHARED_UP, ARCH_DIM_HIDDEN},
        {"blk.N.ffn_down_shexp.weight", false, DENSE_SHARED_DOWN, ARCH_DIM_SHARED},
        {"blk.N.ffn_gate_exps.weight", true, EXPERT_GATE, ARCH_DIM_HIDDEN},
        {"blk.N.ffn_up_exps.weight", true, EXPERT_UP, ARCH_DIM_HIDDEN},
        {"blk.N.ffn_down_exps.weight", true, EXPERT_DOWN, ARCH_DIM_INNER},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *t = (struct mix_tensor){.is_expert = rows[i].is_expert,
                                     .role = rows[i].role,
                                     .k = arch_dim_size(&s->h, 0, rows[i].k)};
            return;
        }
    }
    ck_abort_msg("no role for %s", name);
}

static void check_tensor(const struct shape *s, const char *mix, const char *name,
                         const json_t *want)
{
    struct mix_tensor t;
    find_tensor(s, name, &t);
    bool same = json_is_string(want); /* all layers have one type */
    bool dense = strncmp(name, "blk.N.ffn_", 10) == 0 && !strstr(name, "exp");
    uint32_t leading = hparams_next_experts(&s->h, 0);
    uint32_t first = strstr(name, "exp") ? leading : 0;
    uint32_t end = dense ? leading : s->h.layers;
    ck_assert(same || json_array_size(want) == end - first);
    for (t.layer = first; t.layer < end; t.layer++) {
        const char *type = json_string_value(same ? want : json_array_get(want, t.layer - first));
        ck_assert_ptr_nonnull(type);
        const char *got =
            tensor_type_info(mix_type(mix_of_layer(&s->mixes, t.layer), false, &s->h, &t))->name;
        ck_assert_msg(strcmp(got, type) == 0, "%s, %s, %s, layer %u: %s instead of %s", mix,
                      s->arch->name, name, t.layer, got, type);
    }
}

START_TEST(chosen_types)
{
    const json_t *model = json_array_get(models, (size_t)_i);
    const char *mix, *name;
    json_t *tensors, *want;
    struct shape s;
    struct error error;
    make_shape(&s, json_object_get(model, "shape"));
    ck_assert_uint_gt(json_object_size(json_object_get(model, "mixes")), 30);
    json_object_foreach(json_object_get(model, "mixes"), mix, tensors)
    {
        ck_assert_int_eq(mix_option(mix, &s.mixes, &error), 0);
        json_object_foreach(tensors, name, want) check_tensor(&s, mix, name, want);
    }
}
END_TEST

/* Models whose first layer is recurrent. */
START_TEST(first_layer_without_heads)
{
    const struct mix_tensor v = {.role = DENSE_ATTN_V, .layer = 1, .k = 256};
    struct model_hparams h = {.layers = 2, .heads = 8, .kv_heads = 2, .experts = 2};
    struct error error;
    struct mix_list list;
    ck_assert_int_eq(mix_option("Q2_K", &list, &error), 0);
    enum tensor_type many = mix_type(list.mix[0], false, &h, &v);
    h.kv_heads = 8;
    enum tensor_type one = mix_type(list.mix[0], false, &h, &v);
    ck_assert_int_ne(many, one);
    h.layer_kind[0] = LAYER_RECURRENT;
    h.layer_mixer[0] = MIXER_SHORTCONV;
    h.kv_heads = 2;
    ck_assert_int_eq(mix_type(list.mix[0], false, &h, &v), one); /* key heads of each layer */
    h.layer_mixer[0] = MIXER_DELTANET;
    ck_assert_int_eq(mix_type(list.mix[0], false, &h, &v), many);
    h.kv_heads = 8;
    ck_assert_int_eq(mix_type(list.mix[0], false, &h, &v), one);
}
END_TEST

START_TEST(names)
{
    struct error error;
    struct mix_list list;
    ck_assert_int_eq(mix_option("q4_k_m", &list, &error), 0);
    ck_assert_uint_eq(list.count, 1);
    ck_assert_str_eq(mix_name(list.mix[0]), "Q4_K_M");
    ck_assert_uint_eq(mix_file_type(list.mix[0]), 15);
    ck_assert_int_eq(mix_option("Q8_0,iq2_xxs", &list, &error), 0);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_int_eq(mix_of_layer(&list, 2), MIX_Q8_0);
    ck_assert_int_eq(mix_of_layer(&list, 3), MIX_IQ2_XXS);
    ck_assert_int_eq(mix_option("Q8_0,", &list, &error), -1);
    ck_assert_int_eq(mix_option("F16,F16,F16,F16,F16,F16,F16,F16,F16", &list, &error), -1);
    ck_assert_int_eq(mix_option("Q4_K_XL", &list, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "Q4_K_S|Q4_K_M|"));
    ck_assert_ptr_nonnull(strstr(error.text, "MXFP4"));
}
END_TEST

int main(void)
{
    json_t *doc = json_load_file(SLUICE_SOURCE_DIR "/tests/golden/data/mixes.json", 0, NULL);
    if (!doc)
        return EXIT_FAILURE;
    models = json_object_get(doc, "models");
    Suite *s = suite_create("mixes");
    TCase *c = tcase_create("mixes");
    tcase_add_loop_test(c, chosen_types, 0, (int)json_array_size(models));
    tcase_add_test(c, names);
    tcase_add_test(c, first_layer_without_heads);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    json_decref(doc);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
