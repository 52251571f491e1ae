/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the types that dense tensors may have. */
#include <check.h>
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

/* A file in which that tensor has the type; false: it has no such tensor, or the type does not
 * fit. */
static bool with_type(const struct arch *arch, const struct arch_row *row, uint32_t layer,
                      enum tensor_type type, struct make *m)
{
    struct arch_location location = {.role = row->role, .layer = layer};
    char name[MODEL_NAME_BYTES];
    uint64_t row_bytes;
    make_arch(m, arch->name, 2, true);
    struct make_tensor *t = make_tensor(m, arch_tensor_name(arch, &location, name));
    bool fits = t && tensor_type_row_bytes(type, t->ne[0], &row_bytes);
    if (fits) {
        t->type = type;
        t->bytes = row_bytes * t->ne[1] * t->ne[2];
    } else
        make_free(m);
    return fits;
}

START_TEST(every_float_type)
{
    const struct arch *arch = arch_list[_i];
    uint32_t tried = 0, rejected = 0;
    struct make m;
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(DENSE)) {
        for (uint32_t layer = 0; layer < 2; layer++) {
            struct error error = {0};
            if (row->storage != ARCH_STORAGE_FLOAT)
                continue;
            for (int half = 0; half < 2; half++)
                if (with_type(arch, row, layer, half ? TENSOR_F16 : TENSOR_BF16, &m)) {
                    free(read_model(&m, arch->name));
                    tried++;
                }
            if (!with_type(arch, row, layer, TENSOR_Q8_0, &m))
                continue;
            ck_assert_ptr_null(make_index(&m, &error));
            ck_assert_msg(strstr(error.text, "of type Q8_0; only F32, F16 and BF16"), "%s",
                          error.text);
            rejected++;
        }
    }
    ck_assert_uint_ge(tried, 10);
    ck_assert_uint_ge(rejected, 1);
}
END_TEST

/* What llama.cpp's quantiser leaves in the converter's type, by name (tensor_allows_quantization);
 * rows that no block divides become F16. */
static bool stays_float(const struct make_tensor *t)
{
    static const char *const kept[] = {"_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d",
                                       "shortconv.conv.weight", "ffn_gate_tid2eid.weight"};
    size_t length = strlen(t->name);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (strstr(t->name, kept[i]))
            return true;
    return t->ne[1] * t->ne[2] <= 1 || t->ne[0] % 32 != 0 || length < 6 ||
           strcmp(t->name + length - 6, "weight") != 0;
}

START_TEST(what_a_quantiser_changes)
{
    const struct arch *arch = arch_list[_i];
    const struct arch_row *row;
    uint32_t tried = 0;
    struct make m;
    ARCH_EACH (row, arch, ARCH_ROWS(DENSE)) {
        struct arch_location location = {.role = row->role};
        for (location.layer = 0; location.layer < 2; location.layer++) {
            char name[MODEL_NAME_BYTES];
            make_arch(&m, arch->name, 2, true);
            struct make_tensor *t = make_tensor(&m, arch_tensor_name(arch, &location, name));
            bool changes = t && !stays_float(t);
            make_free(&m);
            if (!changes || !with_type(arch, row, location.layer, TENSOR_Q8_0, &m))
                continue;
            free(read_model(&m, arch->name));
            tried++;
        }
    }
    ck_assert_uint_ge(tried, 4);
}
END_TEST

/* The converter writes it in the type of the other matrices. */
START_TEST(router_of_dbrx)
{
    struct make m;
    make_arch(&m, "dbrx", 1, true);
    struct make_tensor *t = make_tensor(&m, "blk.0.ffn_gate_inp.weight");
    t->type = TENSOR_Q8_0;
    t->bytes = 34 * t->ne[1];
    struct model_index *index = read_model(&m, "dbrx");
    ck_assert(!model_dense_quantisable(index, model_entry_dense(index, 0, DENSE_ROUTER)));
    free(index);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("types");
    TCase *tcase = tcase_create("dense tensors");
    tcase_add_loop_test(tcase, every_float_type, 0, ARCH_COUNT);
    tcase_add_loop_test(tcase, what_a_quantiser_changes, 0, ARCH_COUNT);
    tcase_add_test(tcase, router_of_dbrx);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
