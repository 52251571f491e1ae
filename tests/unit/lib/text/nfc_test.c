/* SPDX-License-Identifier: Apache-2.0 */
/* Tests Normalization Form C; against the package tokenizers: unit_tokenizer_models. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/text/nfc.h"
#include "lib/text/utf8.h"

static const struct {
    const char *text, *normal;
} cases[] = {
    {"", ""},
    {"plain \xc3\xa9 \xcb\xbf", "plain \xc3\xa9 \xcb\xbf"}, /* up to U+02FF */
    {"cafe\xcc\x81", "caf\xc3\xa9"},
    {"\xe1\xbb\x87 e\xcc\x82\xcc\xa3", "\xe1\xbb\x87 \xe1\xbb\x87"}, /* Vietnamese */
    {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"},        /* jamo */
    {"\xed\x95\x98\xe1\x86\xab", "\xed\x95\x9c"},                    /* a syllable and a jamo */
    {"\xe2\x84\xa6 \xe2\x84\xab", "\xce\xa9 \xc3\x85"},              /* one character for another */
    {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},                    /* never composed */
    {"\xf0\x9d\x85\x9e", "\xf0\x9d\x85\x97\xf0\x9d\x85\xa5"},        /* U+1D15E */
    {"\xe3\x81\x8b\xe3\x82\x99", "\xe3\x81\x8c"},                    /* kana */
    {"\xcc\x81x", "\xcc\x81x"},                                      /* a mark without a letter */
    {"\xef\xbf\xbd\xcc\x81", "\xef\xbf\xbd\xcc\x81"},
    {"\xc3", "\xef\xbf\xbd"}, /* no UTF-8 */
    {"e\xcc\x81\xa9\xe2\x84", "\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xed\xa0\x80\xff", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
};

START_TEST(normal_forms)
{
    size_t bytes = 1, length = strlen(cases[_i].text);
    char *normal = nfc(cases[_i].text, length, &bytes);
    ck_assert_ptr_nonnull(normal);
    ck_assert_uint_eq(bytes, strlen(cases[_i].normal));
    ck_assert(memcmp(normal, cases[_i].normal, bytes) == 0);
    if (utf8_valid(cases[_i].text, length) && !nfc_may_change(cases[_i].text, length))
        ck_assert_str_eq(cases[_i].text, cases[_i].normal);
    free(normal);
}
END_TEST

START_TEST(nul_is_a_character)
{
    static const char text[] = "a\0e\xcc\x81";
    size_t bytes;
    char *normal = nfc(text, sizeof text - 1, &bytes);
    ck_assert_uint_eq(bytes, 4);
    ck_assert(memcmp(normal, "a\0\xc3\xa9", 4) == 0);
    free(normal);
}
END_TEST

/* A million pairs of marks in the wrong order. A sort that compares each with each would not end
 * before the time limit of a test. */
START_TEST(many_marks)
{
    enum { PAIRS = 1000000 };
    char *text = malloc(4 * PAIRS);
    size_t bytes;
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < PAIRS; i++)
        memcpy(text + 4 * i, "\xcc\x81\xcc\xa3", 4);
    char *normal = nfc(text, 4 * PAIRS, &bytes);
    ck_assert_uint_eq(bytes, 4 * PAIRS);
    size_t wrong = 0;
    for (size_t i = 0; i < 2 * PAIRS; i++)
        wrong += memcmp(normal + 2 * i, i < PAIRS ? "\xcc\xa3" : "\xcc\x81", 2) != 0;
    ck_assert_uint_eq(wrong, 0);
    free(normal);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nfc");
    TCase *t = tcase_create("nfc");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, normal_forms, 0, ARRAY_LEN(cases));
    tcase_add_test(t, nul_is_a_character);
    tcase_add_test(t, many_marks);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
