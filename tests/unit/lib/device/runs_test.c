/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that attention computes in one call: of one sequence, in one chunk, with one scale. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "lib/device/pointers.h"

enum { ROWS = 40, WINDOW = 64, AT = 4096 };

static double scale_at(const struct device_scale *s, uint32_t position)
{
    double block = floor((position + (double)s->first) / s->context);
    return (double)s->base * (1 + (double)s->growth * log(1 + block));
}

/* Two sequences: positions from `at` on, then from 3 on. */
static void make_rows(struct device_row *row, uint32_t at)
{
    for (uint32_t r = 0; r < ROWS; r++)
        row[r] = (struct device_row){.sequence = r >= ROWS / 2,
                                     .position = r < ROWS / 2 ? at + r : 3 + r - ROWS / 2};
}

/* As long as the next row has the same scale, as in the definition, and no longer. */
START_TEST(runs_have_one_scale)
{
    const struct device_scale scales[] = {
        {.base = 0.5f, .context = 1}, {0.25f, 0.1f, 16, 1}, {1, 0.3f, 7, 0}, {1, 0.1f, 8192, 1}};
    struct device_row row[ROWS];
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (uint32_t at = 0; at < 100; at++) {
            make_rows(row, at);
            for (uint32_t r = 0, n; r < ROWS; r += n) {
                float scale, next;
                n = device_scaled_run(&scales[i], row + r, ROWS - r, &scale);
                ck_assert(n > 0 && r + n <= ROWS);
                for (uint32_t k = 0; k < n; k++) {
                    ck_assert_uint_eq(row[r + k].sequence, row[r].sequence);
                    ck_assert_double_eq_tol((double)scale,
                                            scale_at(&scales[i], row[r + k].position), 1e-6);
                }
                if (r + n == ROWS || row[r + n].sequence != row[r].sequence)
                    continue;
                device_scaled_run(&scales[i], row + r + n, 1, &next);
                ck_assert_float_ne(next, scale);
            }
        }
}
END_TEST

/* Keys and values begin where the chunk does, in a ring of two chunks, too. */
START_TEST(runs_are_in_one_chunk)
{
    const struct layer_attention all = {.kv_heads = 2, .key_size = 8, .value_size = 16};
    struct layer_attention chunks = all;
    struct device_sequence s = {
        .keys = {AT}, .values = {AT}, .kv_type = KV_TYPE_F32, .ring = 2 * WINDOW};
    chunks.window = WINDOW;
    chunks.chunks = 1;
    for (uint32_t at = 0; at < 5 * WINDOW; at++) {
        uint32_t begin = device_chunk_begin(&chunks, at), n = device_chunk_rows(&chunks, at, 9);
        ck_assert(begin % WINDOW == 0 && begin <= at && at - begin < WINDOW);
        ck_assert(n > 0 && n <= 9 && at + n <= begin + WINDOW);
        ck_assert(n == 9 || at + n == begin + WINDOW);
        size_t tile = (size_t)begin % (2 * WINDOW) * 2 * sizeof(float);
        uint64_t keys = device_address(device_keys_from(&chunks, &s, begin)).address;
        uint64_t values = device_address(device_values_from(&chunks, &s, begin)).address;
        ck_assert_uint_eq(keys - AT, tile * 8);
        ck_assert_uint_eq(values - AT, tile * 16);
        ck_assert_uint_eq(device_chunk_begin(&all, at), 0);
        ck_assert_uint_eq(device_chunk_rows(&all, at, 9), 9);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_runs");
    TCase *c = tcase_create("device_runs");
    tcase_add_test(c, runs_have_one_scale);
    tcase_add_test(c, runs_are_in_one_chunk);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
