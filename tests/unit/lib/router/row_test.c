/* SPDX-License-Identifier: Apache-2.0 */
/* A router on one row: against its definition in double, for routers with each of their parts;
 * divided among threads; and while a part is not in memory. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/router/row.h"
#include "tests/unit/lib/model/gguf_make.h"

#define LAYERS    2u
#define LAYER     1u
#define HIDDEN    32u
#define EXPERTS   3u
#define ENTRIES   256u
#define TOLERANCE 1e-5 /* of floats */
#define QUANTISED 0.05 /* of inputs as int8 */

static const struct {
    const char *arch;
    enum tensor_type type; /* of the router */
    bool scale, logit_bias, choice_bias;
} routers[] = {
    {"qwen3moe", TENSOR_F32, false, false, false}, {"qwen3moe", TENSOR_BF16, false, false, false},
    {"dbrx", TENSOR_Q8_0, false, false, false},    {"gpt-oss", TENSOR_F32, false, true, false},
    {"gemma4", TENSOR_F32, true, false, false},    {"glm4moe", TENSOR_F32, false, false, true}};

/* A model whose first layer has a table of the experts that a token uses. */
static const char *const with_table = "deepseek4";

static struct {
    struct model_index *index;
    const struct kernel_ops *ops;
    struct router_row *row;
    _Alignas(64) float value[ENTRIES][HIDDEN * HIDDEN]; /* F32 tensors */
    _Alignas(64) uint8_t packed[EXPERTS * HIDDEN * 2];  /* a router of another type */
    uint32_t missing;                                   /* entry that is not in memory */
    float x[HIDDEN], logits[EXPERTS];
    struct model_router rule;
} t;

static const struct model_tensor *tensor_of(uint32_t entry)
{
    return &model_index_tensors(t.index)[model_index_entries(t.index)[entry].extent[0].tensor];
}

static const void *dense(void *self, uint32_t entry)
{
    ck_assert_ptr_eq(self, &t);
    ck_assert_uint_lt(entry, t.index->dense_count);
    if (entry == t.missing)
        return NULL;
    return tensor_of(entry)->type == TENSOR_F32 ? (const void *)t.value[entry] : t.packed;
}

static float random_value(void)
{
    return (float)(random() % 2001 - 1000) / 1000;
}

/* In the type of the router; value[] becomes what that has of it. */
static void to_bf16(uint32_t entry)
{
    for (uint32_t i = 0; i < EXPERTS * HIDDEN; i++) {
        uint32_t bits;
        memcpy(&bits, &t.value[entry][i], sizeof bits);
        bits &= 0xffff0000u;
        memcpy(&t.value[entry][i], &bits, sizeof bits);
        t.packed[2 * i] = (uint8_t)(bits >> 16);
        t.packed[2 * i + 1] = (uint8_t)(bits >> 24);
    }
}

/* Codes of -4 to 4 with a scale of 1/4, which is 0x3400 as F16. */
static void to_q8_0(uint32_t entry)
{
    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint8_t *block = t.packed + (size_t)e * (2 + HIDDEN);
        block[0] = 0x00;
        block[1] = 0x34;
        for (uint32_t i = 0; i < HIDDEN; i++) {
            int code = (int)(random() % 9) - 4;
            block[2 + i] = (uint8_t)(int8_t)code;
            t.value[entry][e * HIDDEN + i] = (float)code / 4;
        }
    }
}

static void set_up_type(const char *arch, enum tensor_type type)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, arch, LAYERS, true);
    struct make_tensor *router = make_tensor(&m, "blk.1.ffn_gate_inp.weight");
    ck_assert_ptr_nonnull(router);
    router->type = (uint32_t)type;
    ck_assert(tensor_type_row_bytes(router->type, EXPERTS * HIDDEN, &router->bytes));
    t.index = make_index(&m, &error);
    ck_assert_msg(t.index != NULL, "%s", error.text);
    ck_assert_uint_eq(t.index->hparams.hidden, HIDDEN);
    ck_assert_uint_eq(t.index->hparams.experts, EXPERTS);
    ck_assert_uint_le(t.index->dense_count, ENTRIES);
    srandom(1);
    for (uint32_t e = 0; e < ENTRIES; e++)
        for (uint32_t n = 0; n < HIDDEN * HIDDEN; n++)
            t.value[e][n] = random_value();
    uint32_t entry = model_entry_dense(t.index, LAYER, DENSE_ROUTER);
    if (type == TENSOR_BF16)
        to_bf16(entry);
    if (type == TENSOR_Q8_0)
        to_q8_0(entry);
    for (uint32_t n = 0; n < HIDDEN; n++)
        t.x[n] = random_value();
    t.missing = ENTRY_NONE;
    t.ops = kernel_ops_select(NULL);
    t.row = router_row_create(t.index, t.ops, dense, &t);
    ck_assert_ptr_nonnull(t.row);
}

static void set_up(int i)
{
    set_up_type(routers[i].arch, routers[i].type);
}

static void tear_down(void)
{
    router_row_destroy(t.row);
    free(t.index);
}

static const float *vector(enum dense_role role)
{
    uint32_t entry = model_entry_dense(t.index, LAYER, role);
    return entry == ENTRY_NONE ? NULL : t.value[entry];
}

START_TEST(logits_by_definition)
{
    set_up(_i);
    const float *scale = vector(DENSE_ROUTER_SCALE), *bias = vector(DENSE_ROUTER_LOGIT_BIAS);
    const float *choice = vector(DENSE_ROUTER_BIAS);
    ck_assert(routers[_i].scale == (scale != NULL));
    ck_assert(routers[_i].logit_bias == (bias != NULL));
    ck_assert(routers[_i].choice_bias == (choice != NULL));
    ck_assert(router_row_logits(t.row, LAYER, t.x, ROUTER_NO_TOKEN, t.logits, &t.rule));
    for (uint32_t e = 0; e < EXPERTS; e++) {
        double sum = bias ? (double)bias[e] : 0;
        for (uint32_t i = 0; i < HIDDEN; i++)
            sum += (double)vector(DENSE_ROUTER)[e * HIDDEN + i] * (double)t.x[i] *
                   (scale ? (double)scale[i] : 1);
        double limit = routers[_i].type == TENSOR_Q8_0 ? QUANTISED : TOLERANCE;
        ck_assert_msg(fabs((double)t.logits[e] - sum) < limit, "expert %u: %g, not %g", e,
                      (double)t.logits[e], sum);
        ck_assert(!choice || t.rule.bias[e] == choice[e]);
    }
    ck_assert(choice || !t.rule.bias);
    ck_assert_uint_eq(t.rule.top_k, t.index->hparams.experts_used);
    tear_down();
}
END_TEST

/* Any division of the experts gives the bits of the whole. */
START_TEST(columns_of_threads)
{
    set_up(3);
    const float *bias = vector(DENSE_ROUTER_LOGIT_BIAS);
    const struct kernel_matrix w = {.data = vector(DENSE_ROUTER),
                                    .row_bytes = HIDDEN * sizeof(float),
                                    .k = HIDDEN,
                                    .n = EXPERTS,
                                    .type = TENSOR_F32};
    ck_assert(router_row_logits(t.row, LAYER, t.x, ROUTER_NO_TOKEN, t.logits, &t.rule));
    for (uint32_t at = 0; at <= EXPERTS; at++) {
        float divided[EXPERTS] = {0};
        router_logits(t.ops, &w, bias, 0, at, t.x, divided);
        router_logits(t.ops, &w, bias, at, EXPERTS, t.x, divided);
        ck_assert_mem_eq(divided, t.logits, sizeof divided);
    }
    tear_down();
}
END_TEST

/* Nothing is computed without a part of the router; other tensors are not asked for. */
START_TEST(parts_that_are_not_in_memory)
{
    set_up(_i);
    for (t.missing = 0; t.missing < t.index->dense_count; t.missing++) {
        const struct model_entry *e = &model_index_entries(t.index)[t.missing];
        bool part = e->layer == LAYER &&
                    (e->role == DENSE_ROUTER || e->role == DENSE_ROUTER_SCALE ||
                     e->role == DENSE_ROUTER_LOGIT_BIAS || e->role == DENSE_ROUTER_BIAS);
        t.logits[0] = 77;
        ck_assert(router_row_logits(t.row, LAYER, t.x, ROUTER_NO_TOKEN, t.logits, &t.rule) ==
                  !part);
        ck_assert((t.logits[0] == 77) == part);
    }
    tear_down();
}
END_TEST

START_TEST(layers_without_experts_have_no_router)
{
    set_up(5);
    ck_assert(!model_layer_has_experts(t.index, 0));
    ck_assert(!router_row_logits(t.row, 0, t.x, ROUTER_NO_TOKEN, t.logits, &t.rule));
    ck_assert(router_row_logits(t.row, LAYER, t.x, ROUTER_NO_TOKEN, t.logits, &t.rule));
    tear_down();
}
END_TEST

/* Of a token, the experts of the table have the logits of the router, and the others none; without
 * a token all have them. A number that is no expert is left out. */
START_TEST(experts_of_a_table)
{
    float all[EXPERTS];
    set_up_type(with_table, TENSOR_F32);
    uint32_t entry = model_entry_dense(t.index, 0, DENSE_EXPERT_TABLE);
    ck_assert_uint_ne(entry, ENTRY_NONE);
    memcpy(&t.value[entry][5 * 2], (const uint32_t[]){2, 0}, 2 * sizeof(uint32_t));
    memcpy(&t.value[entry][6 * 2], (const uint32_t[]){1, 9}, 2 * sizeof(uint32_t));
    ck_assert(router_row_logits(t.row, 0, t.x, ROUTER_NO_TOKEN, all, &t.rule));
    ck_assert(router_row_logits(t.row, 0, t.x, 5, t.logits, &t.rule));
    ck_assert(t.logits[0] == all[0] && t.logits[1] == -INFINITY && t.logits[2] == all[2]);
    ck_assert(router_row_logits(t.row, 0, t.x, 6, t.logits, &t.rule));
    ck_assert(t.logits[0] == -INFINITY && t.logits[1] == all[1] && t.logits[2] == -INFINITY);
    ck_assert(router_row_logits(t.row, 1, t.x, 5, t.logits, &t.rule));
    for (uint32_t e = 0; e < EXPERTS; e++)
        ck_assert(isfinite(t.logits[e]));
    t.missing = entry;
    ck_assert(!router_row_logits(t.row, 0, t.x, 5, t.logits, &t.rule));
    tear_down();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("router_row");
    TCase *c = tcase_create("router_row");
    tcase_add_loop_test(c, logits_by_definition, 0, ARRAY_LEN(routers));
    tcase_add_test(c, columns_of_threads);
    tcase_add_loop_test(c, parts_that_are_not_in_memory, 0, ARRAY_LEN(routers));
    tcase_add_test(c, layers_without_experts_have_no_router);
    tcase_add_test(c, experts_of_a_table);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
