/* SPDX-License-Identifier: Apache-2.0 */
/* The fuzzing seeds by tensor type (tests/fuzz/gguf_types.h), as a build makes them: for every type
 * of GGUF a model with experts of that type is accepted, and rejected where it is cut inside the
 * last block. A seed that is rejected for another reason would not lead the fuzzer to experts of
 * its type. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "lib/tensor/tensor_type.h"

#define SEED_BYTES_MAX 25000 /* -max_len of tests/fuzz/run_fuzz.sh: longer inputs are cut */

static const struct {
    const char *name;
    uint32_t id;
} types[] = {
#define TENSOR_TYPE(type_name, type_id, ...) {#type_name, (type_id)},
#include "lib/tensor/tensor_types.tbl.h"
};

/* NULL: rejected, with *error. */
static struct model_index *seed(const char *type, const char *suffix, struct error *error)
{
    char path[512];
    struct model_index *index = NULL;
    snprintf(path, sizeof path, SLUICE_SEEDS "/gguf/type_%s%s", type, suffix);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "there is no %s: build fuzz_seeds", path);
    ck_assert_int_le(lseek(fd, 0, SEEK_END), SEED_BYTES_MAX);
    int status = model_index_build(fd, "FILE", &index, error);
    ck_assert_int_eq(status, index ? 0 : -1);
    close(fd);
    return index;
}

/* Both experts have that matrix in rows of the type. */
static void check_experts(const struct model_index *index, uint32_t type, enum expert_matrix m)
{
    ck_assert_uint_eq(index->expert_entry_count, 2);
    for (uint32_t expert = 0; expert < 2; expert++) {
        uint32_t entry = model_entry_expert(index, 0, expert);
        const struct model_matrix *matrix = &model_index_entries(index)[entry].matrix[m];
        uint64_t row;
        ck_assert_uint_eq(matrix->type, type);
        ck_assert(tensor_type_row_bytes(type, matrix->k, &row));
        ck_assert_uint_eq(matrix->row_bytes, row);
    }
}

START_TEST(accepted)
{
    struct error error = {0};
    uint32_t id = types[_i].id;
    if (id >= TENSOR_TYPE_OWN_FIRST)
        return;
    struct model_index *index = seed(types[_i].name, "", &error);
    ck_assert_msg(index, "%s: %s", types[_i].name, error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    check_experts(index, id, EXPERT_DOWN);
    free(index);
    index = seed(types[_i].name, "_gate", &error);
    ck_assert_msg(index, "%s: %s", types[_i].name, error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    check_experts(index, id, EXPERT_GATE);
    check_experts(index, id, EXPERT_UP);
    free(index);
}
END_TEST

START_TEST(cut)
{
    struct error error = {0};
    if (types[_i].id >= TENSOR_TYPE_OWN_FIRST)
        return;
    ck_assert_ptr_null(seed(types[_i].name, "_cut", &error));
    ck_assert_msg(error.code == ERR_BAD_INPUT &&
                      strstr(error.text, "ends inside tensor blk.0.ffn_down_exps.weight"),
                  "%s: %s", types[_i].name, error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_types");
    TCase *tcase = tcase_create("seeds");
    tcase_add_loop_test(tcase, accepted, 0, ARRAY_LEN(types));
    tcase_add_loop_test(tcase, cut, 0, ARRAY_LEN(types));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
