/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of requests: complete, incomplete and invalid ones. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/http/head.h"

#define HOST "Host: x\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST

static enum head check_bytes(const char *bytes, size_t n)
{
    const char *why = NULL;
    enum head result = head_check(bytes, n, &why);
    ck_assert((result == HEAD_REJECTED || result == HEAD_TOO_LONG) == (why != NULL));
    return result;
}

static enum head check_head(const char *text)
{
    return check_bytes(text, strlen(text));
}

START_TEST(heads_that_are_right)
{
    static const char *const heads[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.0\r\nhost:\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nX: \x80\xff\ty\r\nHOST:x \t\r\n\r\n",
        "M-SEARCH http://host:80/p?q=1&r=%20 HTTP/1.1\r\nHost: host:80\r\n\r\n",
        POST "Content-Length: 2\r\n\r\n{}",
        POST "content-length:\t0002 \r\n\r\n",
        POST "Content-Length: 9223372036854775799\r\n\r\n",
        POST "Transfer-Encoding: Chunked\r\nEmpty:\r\n\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        size_t end = (size_t)(strstr(heads[i] + 2, "\r\n\r\n") - heads[i]) + 4;
        ck_assert_msg(check_head(heads[i]) == HEAD_TAKEN, "%s", heads[i]);
        for (size_t n = 0; n < end; n++)
            ck_assert_msg(check_bytes(heads[i], n) == HEAD_MORE, "%zu bytes of %s", n, heads[i]);
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
        "GET /\x80 HTTP/1.1\r\n",
        "GET /a%00 HTTP/1.1\r\n",
        "GET /a% HTTP/1.1\r\n",
        "GET /a%4 HTTP/1.1\r\n",
        "GET /a%4g HTTP/1.1\r\n",
        "GET /?%%20 HTTP/1.1\r\n",
        "GET\t/ HTTP/1.1\r\n",
        " GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\r\r\n",
        "GET /\x7f",
        "GET /\rx",
        "\nGET / HTTP/1.1\r\n",
        "\r\n\r\n",
        "\rGET / HTTP/1.1\r\n",
        "\n\n",
        "G(T / HTTP/1.1\r\n",
        "\x16\x03\x01\x02",
        "\x80\xff",
        "{\"prompt\": 1}",
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        ck_assert_msg(check_head(lines[i]) == HEAD_REJECTED, "%s", lines[i]);
}
END_TEST

/* What a proxy may read differently. */
START_TEST(headers_that_are_wrong)
{
    static const char *const heads[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\n " HOST,
        POST HOST,
        "GET / HTTP/1.1\r\nHost: x, y\r\n",
        "GET / HTTP/1.1\r\nHost: x y\r\n",
        "GET / HTTP/1.1\r\nHost: x@y\r\n",
        "GET / HTTP/1.1\r\nHost: x/y\r\n",
        POST "Content-Length: 2\r\nContent-Length: 3\r\n",
        POST "Content-Length: 2\r\nContent-Length: 2\r\n",
        POST "Content-Length: 2, 2\r\n",
        POST "Content-Length:\r\n",
        POST "Content-Length: x\r\n",
        POST "Content-Length: 0x2\r\n",
        POST "Content-Length: +2\r\n",
        POST "Content-Length: -2\r\n",
        POST "Content-Length: 2 2\r\n",
        POST "Content-Length: 2.0\r\n",
        POST "Content-Length: 9223372036854775808\r\n",
        POST "Content-Length: 18446744073709551618\r\n",
        POST "Content-Length: 100000000000000000000000000000002\r\n",
        POST "Content-Length : 2\r\n",
        POST "Content-Length\t: 2\r\n",
        POST "Content Length: 2\r\n",
        POST "Transfer-Encoding : chunked\r\n",
        POST "Transfer-Encoding:\r\n chunked\r\n",
        POST "Transfer-Encoding: chunked\r\n\t, identity\r\n",
        POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        POST "Transfer-Encoding: gzip, chunked\r\n",
        POST "Transfer-Encoding: identity\r\n",
        POST "Transfer-Encoding: xchunked\r\n",
        POST "Transfer-Encoding: \x0b"
             "chunked\r\n",
        POST "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        POST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
        POST "X: y\rContent-Length: 2\r\n",
        POST "X: y\nContent-Length: 2\r\n",
        POST "X: y\r\n\n",
        POST "\r\r\n",
        POST ": y\r\n",
        POST "X\r\n",
        POST "X(: y\r\n",
        POST "X: \x7f",
        POST "X: \x1b",
    };
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        ck_assert_msg(check_head(heads[i]) == HEAD_REJECTED, "%s", heads[i]);
    ck_assert(check_bytes(POST "X: \0y", sizeof POST + 4) == HEAD_REJECTED);
    ck_assert(check_bytes("GET /\0 HTTP/1.1", 6) == HEAD_REJECTED);
}
END_TEST

/* Decisions before the end of the line or of the head is known. */
START_TEST(heads_that_are_long)
{
    char head[HEAD_BYTES_MAX];
    memset(head, 'x', sizeof head);
    ck_assert(check_bytes(head, HEAD_METHOD_BYTES) == HEAD_MORE);
    ck_assert(check_bytes(head, HEAD_METHOD_BYTES + 1) == HEAD_REJECTED);
    memcpy(head, "GET /", 5);
    ck_assert(check_bytes(head, HEAD_BYTES_MAX - 1) == HEAD_MORE);
    ck_assert(check_bytes(head, HEAD_BYTES_MAX) == HEAD_TOO_LONG);
    static const char rest[] = " HTTP/1.0\r\n\r\n";
    memcpy(head + sizeof head - (sizeof rest - 1), rest, sizeof rest - 1);
    ck_assert(check_bytes(head, HEAD_BYTES_MAX - 1) == HEAD_MORE);
    ck_assert(check_bytes(head, HEAD_BYTES_MAX) == HEAD_TAKEN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *t = tcase_create("head");
    tcase_add_test(t, heads_that_are_right);
    tcase_add_test(t, lines_that_are_wrong);
    tcase_add_test(t, headers_that_are_wrong);
    tcase_add_test(t, heads_that_are_long);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
