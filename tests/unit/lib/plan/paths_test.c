/* SPDX-License-Identifier: Apache-2.0 */
/* Counted paths against dense counts, and with too little memory. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/paths.h"

#define LAYERS  3u
#define EXPERTS 12u
#define K       3u

static uint64_t seed;

static uint16_t below(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint16_t)((seed >> 33) % n);
}

static struct plan *plan_of(const struct path_counts *p, uint32_t layers, uint32_t experts,
                            uint32_t k)
{
    struct error error;
    static const uint8_t hash[PLAN_HASH_BYTES];
    struct plan *plan =
        plan_create(layers, experts, k, hash,
                    plan_array_bit(PLAN_ARRAY_pair_first) | plan_array_bit(PLAN_ARRAY_pair_cells),
                    (uint32_t)path_counts_cells(p), &error);
    ck_assert_msg(plan != NULL, "%s", error.text);
    ck_assert_int_eq(path_counts_take(p, plan, &error), 0);
    ck_assert_msg(plan_check(plan, plan->bytes, &error) == 0, "%s", error.text);
    return plan;
}

/* Counts above 16 bits are shifted; the order within a pair is that of the counts. */
START_TEST(counts_are_those_of_a_dense_table)
{
    static uint32_t dense[LAYERS][EXPERTS][EXPERTS][EXPERTS];
    struct error error;
    struct path_counts *p = path_counts_create(LAYERS, EXPERTS, 1 << 20, &error);
    memset(dense, 0, sizeof dense);
    seed = 5;
    for (uint32_t token = 0; token < (_i ? 500000 : 300); token++)
        for (uint32_t layer = 2; layer < LAYERS; layer++) {
            uint16_t a[K], b[K], c[K];
            for (uint32_t i = 0; i < K; i++)
                a[i] = below(1 + below(EXPERTS)), b[i] = below(2 + below(2)), c[i] = below(EXPERTS);
            path_counts_add(p, layer, a, b, c, K);
            for (uint32_t i = 0; i < K * K * K; i++)
                dense[layer][a[i / K / K]][b[i / K % K]][c[i % K]]++;
        }
    ck_assert_uint_eq(path_counts_dropped(p), 0);
    uint32_t max = 0, shift = 0, cells = 0;
    for (uint32_t i = 0; i < sizeof dense / sizeof dense[0][0][0][0]; i++)
        max = (&dense[0][0][0][0])[i] > max ? (&dense[0][0][0][0])[i] : max;
    while (max >> shift > UINT16_MAX)
        shift++;
    ck_assert((shift > 0) == (_i == 1));
    struct plan *plan = plan_of(p, LAYERS, EXPERTS, K);
    const uint32_t *first = plan_pair_first(plan);
    for (uint32_t pair = 0; pair < LAYERS * EXPERTS * EXPERTS; pair++) {
        const uint32_t *row = &dense[0][0][0][0] + (size_t)pair * EXPERTS;
        uint32_t found = 0;
        for (uint32_t e = 0; e < EXPERTS; e++)
            found += row[e] >> shift > 0;
        ck_assert_uint_eq(first[pair + 1] - first[pair], found);
        for (uint32_t i = first[pair]; i < first[pair + 1]; i++) {
            const struct plan_cell *cell = plan_pair_cells(plan) + i;
            ck_assert_uint_eq(cell->count, row[cell->expert] >> shift);
            if (i > first[pair])
                ck_assert(cell[-1].count > cell->count ||
                          (cell[-1].count == cell->count && cell[-1].expert < cell->expert));
        }
        cells += found;
    }
    ck_assert_uint_eq(cells, plan->cells);
    free(plan);
    path_counts_destroy(p);
}
END_TEST

/* Qwen3-30B's shape: densely 403 MB. In 64 MiB, frequent paths keep their counts, also those that
 * appear when the tables are full, and rare ones are dropped. */
START_TEST(many_experts_keep_frequent_paths)
{
    enum { MANY_LAYERS = 48, MANY = 128, USED = 8, TOKENS = 1500, LATE = 700 };
    struct error error;
    struct path_counts *p = path_counts_create(MANY_LAYERS, MANY, 64u << 20, &error);
    seed = 11;
    for (uint32_t token = 0; token < TOKENS; token++)
        for (uint32_t layer = 2; layer < 6; layer++) {
            uint16_t a[USED], b[USED], c[USED];
            bool same = token >= LATE; /* then the first of each is always the same */
            for (uint32_t i = 0; i < USED; i++) {
                bool random = i > 0 || !same;
                a[i] = random ? below(MANY) : 1, b[i] = random ? below(MANY) : 2;
                c[i] = random ? below(MANY) : 3;
            }
            path_counts_add(p, layer, a, b, c, USED);
        }
    uint64_t all = (uint64_t)TOKENS * 4 * USED * USED * USED, kept = 0;
    ck_assert_uint_gt(path_counts_dropped(p), 0);
    ck_assert_uint_le(path_counts_cells(p) * 8, 64u << 20);
    ck_assert_uint_gt(path_counts_cells(p), 4 * 16384); /* four of 48 layers' share is in use */
    struct plan *plan = plan_of(p, MANY_LAYERS, MANY, USED);
    for (uint32_t i = 0; i < plan->cells; i++)
        kept += plan_pair_cells(plan)[i].count;
    ck_assert_uint_eq(kept + path_counts_dropped(p), all);
    for (uint32_t layer = 2; layer < 6; layer++) {
        uint32_t pair = (layer * MANY + 1) * MANY + 2;
        const struct plan_cell *best = plan_pair_cells(plan) + plan_pair_first(plan)[pair];
        ck_assert_uint_eq(best->expert, 3);
        ck_assert_uint_ge(best->count, TOKENS - LATE - 5);
    }
    free(plan);
    path_counts_destroy(p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("paths");
    TCase *c = tcase_create("paths");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, counts_are_those_of_a_dense_table, 0, 2);
    tcase_add_test(c, many_experts_keep_frequent_paths);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
