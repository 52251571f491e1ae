/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, errors, tensor types. */
#include "tests/unit/lib/base/base_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/tensor/tensor_type.h"
#include "lib/text/suggest.h"

START_TEST(sizes_as_people_write_them)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"4GiB", 4 * GIB},
        {"512MiB", 512 * MIB},
        {"64KiB", 64 * KIB},
        {"4G", 4 * GIB},
        {"4GB", 4000000000u},
        {"1.5GiB", GIB + GIB / 2},
        {"1 tib", 1024 * GIB},
        {"17b", 17},
        {"0.5k", 512},
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        uint64_t bytes = 99;
        ck_assert_msg(bytes_parse(good[i].text, &bytes), "%s", good[i].text);
        ck_assert_msg(bytes == good[i].bytes, "%s is %llu", good[i].text,
                      (unsigned long long)bytes);
    }
    static const char *const bad[] = {"",           "-1",     "GiB", "4 Gi",  "1e30",
                                      "4GiBs",      " 4GiB ", "+4",  "4G 4G", "0x10000000000000000",
                                      "99999999TiB"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        uint64_t bytes = 99;
        ck_assert_msg(!bytes_parse(bad[i], &bytes), "'%s' was taken", bad[i]);
        ck_assert_uint_eq(bytes, 99);
    }
    ck_assert(!bytes_parse(NULL, NULL));
}
END_TEST

START_TEST(speeds)
{
    double speed = 0;
    ck_assert(speed_parse("500MB/s", &speed) && speed == 5e8);
    ck_assert(speed_parse("1.5GiB", &speed) && speed == 1.5 * (double)GIB);
    static const char *const bad[] = {
        "",     "/s",      "0",         "0MB/s",
        "fast", "500MB/h", "500MB/s/s", "500MB/s and a word that is too long for a speed"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ck_assert_msg(!speed_parse(bad[i], &speed), "'%s' was taken", bad[i]);
    ck_assert(speed == 1.5 * (double)GIB);
}
END_TEST

START_TEST(percentages)
{
    double p = -1;
    ck_assert(percent_parse("12.5%", &p) && p == 12.5);
    ck_assert(percent_parse("100", &p) && p == 100);
    static const char *const bad[] = {"0", "0%", "-5", "100.1", "5%%", "nan", "", "%"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ck_assert_msg(!percent_parse(bad[i], &p), "'%s' was taken", bad[i]);
}
END_TEST

/* Percentages with up to six places, against whole numbers: percent * 10^6 of 10^8 parts. */
START_TEST(percentages_of_a_number)
{
    uint64_t seed = 1;
    for (int i = 0; i < 100000; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t parts = 1 + (seed >> 20) % 100000000, whole = seed >> 27;
        ck_assert_uint_eq(percent_of((double)parts / 1e6, whole), whole * parts / 100000000);
    }
    for (uint64_t n = 1; n <= 100; n++) /* 0.29 * 100 is below 29 */
        ck_assert_uint_eq(percent_of((double)n, 100), n);
    ck_assert_uint_eq(percent_of(100, UINT64_MAX), UINT64_MAX);
    ck_assert_uint_eq(percent_of(12.5, 256), 32);
}
END_TEST

START_TEST(sizes_for_people)
{
    char text[16];
    ck_assert_str_eq(bytes_format(0, text), "0 B");
    ck_assert_str_eq(bytes_format(1023, text), "1023 B");
    ck_assert_str_eq(bytes_format(GIB + GIB / 2, text), "1.5 GiB");
    ck_assert_uint_lt(strlen(bytes_format(UINT64_MAX, text)), 16);
}
END_TEST

START_TEST(arithmetic)
{
    uint64_t x;
    ck_assert_uint_eq(align_up(1, 4096), 4096);
    ck_assert_uint_eq(align_up(4096, 4096), 4096);
    ck_assert_uint_eq(align_down(4095, 4096), 0);
    ck_assert(add_overflows(UINT64_MAX, 1, &x));
    ck_assert(!add_overflows(UINT64_MAX, 0, &x) && x == UINT64_MAX);
    ck_assert(mul_overflows(UINT64_MAX / 2, 3, &x));
    ck_assert(!mul_overflows(3, 5, &x) && x == 15);
}
END_TEST

START_TEST(errors)
{
    struct error e;
    ck_assert_int_eq(error_set(&e, ERR_BUSY, "queue of %d is full", 16), -1);
    ck_assert_int_eq(e.code, ERR_BUSY);
    ck_assert_str_eq(e.text, "queue of 16 is full");
    ck_assert_int_eq(error_set_errno(&e, ERR_IO, ENOSPC, "writing"), -1);
    ck_assert_str_eq(e.text, "writing: No space left on device");
    ck_assert_int_eq(error_set(NULL, ERR_IO, "not stored"), -1);
    ck_assert_int_eq(error_set_errno(NULL, ERR_IO, EIO, "not stored"), -1);
    char longer[1000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    error_set_errno(&e, ERR_IO, EIO, "%s", longer);
    ck_assert_uint_eq(strlen(e.text), sizeof e.text - 1);
}
END_TEST

START_TEST(error_names)
{
    for (int i = 0; i < ERR__COUNT; i++)
        ck_assert_int_eq(error_from_name(error_name((enum error_code)i)), i);
    ck_assert_int_eq(error_from_name("no such word"), ERR_FAILED);
    ck_assert_str_eq(error_name(ERR__COUNT), "failed");
    ck_assert_int_eq(error_exit_status(ERR_NONE), 0);
    ck_assert_int_eq(error_exit_status(ERR_BAD_INPUT), 2);
    ck_assert_int_eq(error_exit_status(ERR_BUDGET_TOO_SMALL), 2);
    ck_assert_int_eq(error_exit_status(ERR__COUNT), 1);
}
END_TEST

START_TEST(tensor_types)
{
    uint64_t bytes;
    ck_assert(tensor_type_row_bytes(TENSOR_Q4_0, 2048, &bytes) && bytes == 2048 / 32 * 18);
    ck_assert(tensor_type_row_bytes(TENSOR_C4, 128, &bytes) && bytes == 4 + 64); /* head + codes */
    ck_assert(tensor_type_row_bytes(TENSOR_G2, 128, &bytes) && bytes == 2 * 20);
    ck_assert(tensor_type_row_bytes(TENSOR_F32, 3, &bytes) && bytes == 12);
    ck_assert(!tensor_type_row_bytes(TENSOR_Q4_0, 33, &bytes)); /* not a multiple of the block */
    ck_assert(!tensor_type_row_bytes(12345, 32, &bytes));
    ck_assert(!tensor_type_row_bytes(TENSOR_F32, UINT64_C(1) << 62, &bytes));
    ck_assert_str_eq(tensor_type_info(TENSOR_BF16)->name, "BF16");
    ck_assert_ptr_null(tensor_type_info(12345));
}
END_TEST

START_TEST(near_names_are_suggested)
{
    static const char *const names[] = {"budget", "ctx_size", "cache", "status", "stats"};
    static const struct {
        const char *word, *hint;
    } t[] = {
        {"budgt", "; did you mean --budget?"},
        {"bugdet", "; did you mean --budget?"},
        {"ctx_sizes", "; did you mean --ctx-size?"},
        {"ctx-siez", "; did you mean --ctx-size?"},
        {"statsu", "; did you mean --status?"},
        {"stat", "; did you mean --stats?"},
        {"stts", "; did you mean --stats?"},
        {"x", ""},
        {"", ""},
        {"zebra", ""},
        {"a-word-that-is-longer-than-all-names-of-this-program", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct suggest s;
        char hint[SUGGEST_HINT_BYTES];
        suggest_start(&s, t[i].word, strlen(t[i].word));
        for (size_t n = 0; n < ARRAY_LEN(names); n++)
            suggest_name(&s, names[n]);
        ck_assert_str_eq(suggest_hint(&s, "--", hint), t[i].hint);
    }
}
END_TEST

START_TEST(clock_goes_forward)
{
    uint64_t a = clock_now_ns(), b = clock_now_ns();
    ck_assert_uint_ge(b, a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *t = tcase_create("base");
    tcase_add_test(t, speeds);
    tcase_add_test(t, sizes_as_people_write_them);
    tcase_add_test(t, percentages);
    tcase_add_test(t, percentages_of_a_number);
    tcase_add_test(t, sizes_for_people);
    tcase_add_test(t, arithmetic);
    tcase_add_test(t, errors);
    tcase_add_test(t, error_names);
    tcase_add_test(t, tensor_types);
    tcase_add_test(t, near_names_are_suggested);
    tcase_add_test(t, clock_goes_forward);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_add_suite(runner, log_suite());
    srunner_add_suite(runner, statistics_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
