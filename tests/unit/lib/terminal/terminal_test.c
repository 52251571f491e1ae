/* SPDX-License-Identifier: Apache-2.0 */
/* Text for a terminal: control characters become visible, whatever the pieces it arrives in. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/terminal/terminal.h"
#include "lib/text/utf8.h"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"", ""},
    {"a\tb\n\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80~", "a\tb\n\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80~"},
    {"\x1b]0;title\x07", "^[]0;title^G"},
    {"\x1b[2J\r\n\b\x7f", "^[[2J^M\n^H^?"},
    {"\xc2\x9b"
     "31m\xc2\x80\xc2\x9f",
     "\xef\xbf\xbd"
     "31m\xef\xbf\xbd\xef\xbf\xbd"},          /* C1 */
    {"\xc2\xa0\xc2\xbf", "\xc2\xa0\xc2\xbf"}, /* not C1 */
    {"\x9b"
     "31m",
     "\xef\xbf\xbd"
     "31m"}, /* C1 in eight bits */
    {"\xc2\x1b[", "\xef\xbf\xbd^[["},
    {"\xc2\xc2\x9b", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xe4\x1b[", "\xef\xbf\xbd^[["},
    {"\xf0\x9f\x98z\xe2\x82\xe2\x82\xac", "\xef\xbf\xbdz\xef\xbf\xbd\xe2\x82\xac"},
    {"\xed\xa0\x80.", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd."}, /* a surrogate */
    {"\xc3\xa4\x9b", "\xc3\xa4\xef\xbf\xbd"},
    {"\xff\xc0\xf5", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
};

START_TEST(shown_texts)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t bytes = strlen(cases[i].text);
        for (size_t cut = 0; cut <= bytes; cut++) { /* in two pieces */
            char out[200];
            struct terminal_filter f = {0};
            size_t n = terminal_filter(&f, cases[i].text, cut, out);
            ck_assert_uint_le(n, TERMINAL_BYTES(cut));
            n += terminal_filter(&f, cases[i].text + cut, bytes - cut, out + n);
            ck_assert_uint_le(n, TERMINAL_BYTES(bytes));
            out[n] = 0;
            ck_assert_msg(strcmp(out, cases[i].shown) == 0, "case %zu, cut at %zu", i, cut);
        }
    }
}
END_TEST

/* Any bytes: no control character is left, in seven bits or as UTF-8. */
START_TEST(random_bytes)
{
    srand(11);
    for (int round = 0; round < 5000; round++) {
        char text[32], out[TERMINAL_BYTES(sizeof text)];
        struct terminal_filter f = {0};
        size_t bytes = (size_t)rand() % (sizeof text + 1);
        for (size_t i = 0; i < bytes; i++)
            text[i] = (char)(rand() % 4 ? "\xc2\x9b\x1b\xe4\x80\n"[rand() % 6] : rand());
        size_t n = terminal_filter(&f, text, bytes, out);
        ck_assert_uint_le(n, TERMINAL_BYTES(bytes));
        ck_assert_msg(utf8_valid(out, n), "round %d", round);
        for (size_t i = 0; i < n; i++) {
            unsigned char c = (unsigned char)out[i],
                          next = i + 1 < n ? (unsigned char)out[i + 1] : 0;
            bool control = (c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
            if (control || (c == 0xc2 && next < 0xa0))
                ck_abort_msg("round %d: byte %zu is %02x", round, i, c);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("terminal");
    TCase *t = tcase_create("terminal");
    tcase_add_test(t, shown_texts);
    tcase_add_test(t, random_bytes);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
