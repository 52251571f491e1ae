/* SPDX-License-Identifier: Apache-2.0 */
/* Random blocks of every type have the deviation that was requested, a mean of about 0 and finite
 * elements; encoded rows are close to the given ones. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/tensor/unpack/unpack.h"
#include "procs/tools/synth/types/blocks.h"
#include "procs/tools/synth/types/encoder.h"

#define SUB_BLOCK 32
#define ELEMS     (1024 * 256)

static const uint32_t types[] = {
#define UNPACK(name, ...) TENSOR_##name,
#include "lib/tensor/unpack/unpack.tbl.h"
};

static uint64_t bytes_of(uint32_t type)
{
    uint64_t bytes = 0;
    ck_assert(tensor_type_row_bytes(type, ELEMS, &bytes));
    return bytes;
}

START_TEST(random_blocks)
{
    uint32_t type = types[_i];
    const char *name = tensor_type_info(type)->name;
    struct random random;
    char *blocks = malloc(bytes_of(type) + 8);
    float *x = malloc(ELEMS * sizeof *x);
    ck_assert(blocks && x);
    random_seed(&random, 7, 1);
    blocks_random((enum tensor_type)type, 0.02f, &random, blocks, bytes_of(type));
    unpack_row(type, blocks, ELEMS, x);
    double sum = 0, squares = 0, part = 0, parts = 0;
    for (size_t i = 0; i < ELEMS; i++) {
        ck_assert_msg(isfinite(x[i]), "%s: element %zu is %g", name, i, (double)x[i]);
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        part += (double)x[i];
        if (i % SUB_BLOCK < SUB_BLOCK - 1)
            continue;
        parts += part * part;
        part = 0;
    }
    double deviation = sqrt(squares / ELEMS), mean = sum / ELEMS;
    ck_assert_msg(fabs(deviation - 0.02) < 0.002, "%s: deviation %g", name, deviation);
    ck_assert_msg(fabs(mean) < 0.0015, "%s: mean %g", name, mean);
    /* 1 for independent elements: what a row adds up of inputs that are alike. Codes from -1 to 2
     * have a mean. */
    double most = type == TENSOR_TQ2_0 || type == TENSOR_Q2_0 ? 6.5 : 1.9;
    ck_assert_msg(parts / squares < most, "%s: sub-blocks have means, %g", name, parts / squares);
    free(blocks);
    free(x);
}
END_TEST

/* The share of the variance that is lost, by the bits of a code. */
static double loss_allowed(uint32_t type)
{
    switch (type) {
    case TENSOR_Q1_0: return 0.4;
    case TENSOR_Q2_0:
    case TENSOR_TQ2_0:
    case TENSOR_Q2_K: return 0.2;
    case TENSOR_Q3_K: return 0.06;
    case TENSOR_IQ3_S: return 0.05;
    case TENSOR_Q8_0: return 0.0002;
    default: return 0.025;
    }
}

START_TEST(encoded_rows)
{
    uint32_t type = types[_i];
    struct encoder *e = encoder_new((enum tensor_type)type);
    ck_assert(encoder_has((enum tensor_type)type) == (e != NULL));
    if (!e)
        return;
    const char *name = tensor_type_info(type)->name;
    struct random random;
    char *blocks = malloc(bytes_of(type));
    float *x = malloc(ELEMS * sizeof *x), *y = malloc(ELEMS * sizeof *y);
    ck_assert(blocks && x && y);
    random_seed(&random, 7, 2);
    double squares = 0, errors = 0;
    for (size_t i = 0; i < ELEMS; i++)
        x[i] = random_normal(&random) * 0.5f;
    encoder_row(e, x, ELEMS, blocks);
    unpack_row(type, blocks, ELEMS, y);
    for (size_t i = 0; i < ELEMS; i++) {
        squares += (double)x[i] * (double)x[i];
        errors += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
    }
    ck_assert_msg(errors / squares < loss_allowed(type), "%s: %g of the variance is lost", name,
                  errors / squares);
    free(blocks);
    free(x);
    free(y);
    encoder_free(e);
}
END_TEST

/* The types that an embedding gets from some mix. */
START_TEST(embedding_types)
{
    static const enum tensor_type wanted[] = {
        TENSOR_F32,  TENSOR_F16,   TENSOR_BF16,   TENSOR_Q4_0,   TENSOR_Q4_1, TENSOR_Q5_0,
        TENSOR_Q5_1, TENSOR_Q8_0,  TENSOR_Q2_K,   TENSOR_Q3_K,   TENSOR_Q4_K, TENSOR_Q5_K,
        TENSOR_Q6_K, TENSOR_IQ3_S, TENSOR_IQ4_NL, TENSOR_IQ4_XS, TENSOR_Q1_0};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        ck_assert_msg(encoder_has(wanted[i]), "type %d", (int)wanted[i]);
    ck_assert(!encoder_has(TENSOR_IQ2_XXS));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("blocks");
    TCase *c = tcase_create("blocks");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, random_blocks, 0, (int)ARRAY_LEN(types));
    tcase_add_loop_test(c, encoded_rows, 0, (int)ARRAY_LEN(types));
    tcase_add_test(c, embedding_types);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
