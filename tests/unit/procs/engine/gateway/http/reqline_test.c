/* SPDX-License-Identifier: Apache-2.0 */
/* First lines of connections: complete, incomplete and invalid request lines. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/http/reqline.h"

static enum reqline check_line(const char *text)
{
    const char *why = NULL;
    enum reqline result = reqline_check(text, strlen(text), &why);
    ck_assert((result == REQLINE_REJECTED) == (why != NULL));
    return result;
}

START_TEST(lines_that_are_right)
{
    static const char *const lines[] = {
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.0\n",
        "\r\nGET / HTTP/1.1\r\nHost: x",
        "\nGET / HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "M-SEARCH http://host:80/p?q=1&r=%20 HTTP/1.1\r\n",
        "POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ck_assert_msg(check_line(lines[i]) == REQLINE_TAKEN, "%s", lines[i]);
        /* Each prefix is incomplete, not invalid. */
        char part[128];
        size_t end = (size_t)(strchr(lines[i] + 2, '\n') - lines[i]);
        for (size_t n = 0; n < end; n++) {
            memcpy(part, lines[i], n);
            part[n] = 0;
            ck_assert_msg(check_line(part) == REQLINE_MORE, "%zu bytes of %s", n, lines[i]);
        }
    }
}
END_TEST

START_TEST(lines_that_are_wrong)
{
    static const char *const lines[] = {
        "GARBAGE\r\n",
        "GET\r\n",
        "GET \r\n",
        "GET /\r\n",
        "GET / HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n",
        "GET / http/1.1\r\n",
        "GET / HTTP/1.1 \r\n",
        "GET / HTTP/1.x\r\n",
        "GET / HTTP/1.11\r\n",
        "GET  HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n",
        "GET /\ta HTTP/1.1\r\n",
        "GET\t/ HTTP/1.1\r\n",
        " GET / HTTP/1.1\r\n",
        "\r\n\r\n",
        "\rGET / HTTP/1.1\r\n",
        "\n\n",
        "G(T / HTTP/1.1\r\n",
        "\x16\x03\x01\x02",
        "\x80\xff",
        "{\"prompt\": 1}",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ck_assert_msg(check_line(lines[i]) == REQLINE_REJECTED, "%s", lines[i]);
}
END_TEST

/* Decisions before the end of the line is known. */
START_TEST(lines_that_are_long)
{
    char line[REQLINE_CHECK_BYTES + 1];
    const char *why = NULL;
    memset(line, 'x', sizeof line);
    ck_assert(reqline_check(line, REQLINE_METHOD_BYTES, &why) == REQLINE_MORE);
    ck_assert(reqline_check(line, REQLINE_METHOD_BYTES + 1, &why) == REQLINE_REJECTED);
    memcpy(line, "GET /", 5);
    ck_assert(reqline_check(line, REQLINE_CHECK_BYTES - 1, &why) == REQLINE_MORE);
    ck_assert(reqline_check(line, REQLINE_CHECK_BYTES, &why) == REQLINE_TAKEN);
    line[20] = 0; /* inside a complete line */
    memcpy(line + 40, " HTTP/1.1\r\n", 11);
    ck_assert(reqline_check(line, 51, &why) == REQLINE_REJECTED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *t = tcase_create("reqline");
    tcase_add_test(t, lines_that_are_right);
    tcase_add_test(t, lines_that_are_wrong);
    tcase_add_test(t, lines_that_are_long);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
