/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of positions against the same rule written without regard to speed: sort by score,
 * then by number, take k, sort these by number. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/kernels/choose.h"

#define N_MAX 300

static const float *sorted_by;

static int larger_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (sorted_by[x] != sorted_by[y])
        return sorted_by[x] > sorted_by[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static int lower_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t oracle(const float *score, uint32_t n, uint32_t k, uint32_t *chosen)
{
    uint32_t all[N_MAX], visible = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(score[i]) && score[i] != -INFINITY)
            all[visible++] = i;
    sorted_by = score;
    qsort(all, visible, sizeof *all, larger_first);
    uint32_t count = visible < k ? visible : k;
    memcpy(chosen, all, count * sizeof *all);
    qsort(chosen, count, sizeof *chosen, lower_first);
    return count;
}

static void same(const float *score, uint32_t n, uint32_t k)
{
    uint32_t want[N_MAX], have[N_MAX + 1];
    uint32_t count = oracle(score, n, k, want);
    uint32_t space = n < k ? n : k;
    have[space] = 0xdeadbeef;
    ck_assert_uint_eq(kernel_choose(score, n, k, have), count);
    ck_assert_uint_eq(have[space], 0xdeadbeef);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_msg(have[i] == want[i], "%u of %u: the choice %u is %u, not %u", k, n, i, have[i],
                      want[i]);
}

/* kinds: how many different scores; few of them tie often. */
static float draw(struct random *random, uint32_t kinds)
{
    static const float special[] = {0.0f,    -0.0f,    -INFINITY, INFINITY, NAN,    FLT_MIN,
                                    FLT_MAX, -FLT_MAX, -FLT_MIN,  1e-45f,   -1e-45f};
    uint32_t which = (uint32_t)random_below(random, kinds + 20);
    if (which < ARRAY_LEN(special))
        return special[which];
    return ((float)random_below(random, kinds) - (float)kinds / 2) / 8;
}

START_TEST(as_the_oracle)
{
    static const uint32_t kinds[] = {1, 2, 5, 50, 100000};
    struct random random;
    float score[N_MAX];
    random_seed(&random, 7, (uint64_t)_i);
    for (int round = 0; round < 2000; round++) {
        uint32_t n = (uint32_t)random_below(&random, N_MAX + 1);
        uint32_t k = (uint32_t)random_below(&random, 2)
                         ? (uint32_t)random_below(&random, N_MAX + 50)
                         : (uint32_t)random_below(&random, 20);
        for (uint32_t i = 0; i < n; i++)
            score[i] = draw(&random, kinds[_i]);
        same(score, n, k);
    }
}
END_TEST

/* Whatever the digits of equal scores are, the lower positions are taken. */
START_TEST(all_tie)
{
    static const float values[] = {0, -0.0f, 1, -1, 3.25e-40f, -3.25e-40f, 1e30f, -1e30f};
    float score[N_MAX];
    uint32_t chosen[N_MAX];
    for (size_t v = 0; v < ARRAY_LEN(values); v++) {
        for (uint32_t i = 0; i < N_MAX; i++)
            score[i] = values[v];
        for (uint32_t k = 0; k <= N_MAX; k += 50) {
            ck_assert_uint_eq(kernel_choose(score, N_MAX, k, chosen), k);
            for (uint32_t i = 0; i < k; i++)
                ck_assert_uint_eq(chosen[i], i);
        }
    }
}
END_TEST

START_TEST(nothing_to_choose)
{
    float score[4] = {-INFINITY, NAN, -INFINITY, -NAN};
    uint32_t chosen[4] = {9, 9, 9, 9};
    ck_assert_uint_eq(kernel_choose(score, 4, 3, chosen), 0);
    ck_assert_uint_eq(kernel_choose(score, 0, 3, chosen), 0);
    score[2] = 1;
    ck_assert_uint_eq(kernel_choose(score, 4, 0, chosen), 0);
    ck_assert_uint_eq(chosen[0], 9);
    ck_assert_uint_eq(kernel_choose(score, 4, 1, chosen), 1);
    ck_assert_uint_eq(chosen[0], 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("choice of positions");
    TCase *tcase = tcase_create("the k largest scores");
    tcase_add_loop_test(tcase, as_the_oracle, 0, 5);
    tcase_add_test(tcase, all_tie);
    tcase_add_test(tcase, nothing_to_choose);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
