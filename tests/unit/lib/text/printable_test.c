/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted text in error messages. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/text/printable.h"

#define REPLACED "\xef\xbf\xbd"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"", ""},
    {"plain ~", "plain ~"},
    {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
    {"a\nb\x1b[31m\x7f", "a?b?[31m?"},
    {"\xc2\x9b"
     "31m\xc2\xa0",
     "?31m\xc2\xa0"}, /* C1 */
    {"\xe2\x80\xae"
     "a\xe2\x81\xa6\xe2\x80\xa8\xe2\x80\x8f",
     "?a???"}, /* the order of text */
    {"\xff\xc3", REPLACED REPLACED},
    {"\xe2\x82 \xed\xa0\x80", REPLACED " " REPLACED REPLACED REPLACED},
};

START_TEST(shown)
{
    struct printable w = printable(cases[_i].text, strlen(cases[_i].text));
    ck_assert_str_eq(w.text, cases[_i].shown);
}
END_TEST

/* A character that has no room is left out, and nothing after the text is read. */
START_TEST(long_texts)
{
    enum { BYTES = 100 };
    char *text = malloc(BYTES);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < BYTES; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    ck_assert_uint_eq(strlen(printable(text, BYTES).text), 70);
    ck_assert_uint_eq(strlen(printable(text, 11).text), 10 + strlen(REPLACED));
    memset(text, '\xff', BYTES);
    ck_assert_uint_eq(strlen(printable(text, BYTES).text), 69);
    memset(text, 0, BYTES);
    ck_assert_uint_eq(strlen(printable(text, BYTES).text), 71);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("printable");
    TCase *t = tcase_create("printable");
    tcase_add_loop_test(t, shown, 0, ARRAY_LEN(cases));
    tcase_add_test(t, long_texts);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
