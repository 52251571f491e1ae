/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of a server that is slow: a piece is complete long before the server is given up. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/engine/fetch/server.h"
#include "tests/harness/web.h"

#define FILE_BYTES (MIB - 4096) /* 13 s in one piece */

static char path[] = "/tmp/fetch-server-test-XXXXXX";
static unsigned char bytes[FILE_BYTES], got[FILE_BYTES];
static struct web web;

START_TEST(a_slow_server_is_read)
{
    char url[64];
    struct server server;
    struct error error;
    ck_assert(web_start(&web, path));
    web_fault(&web, WEB_TRICKLE, 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/x", (unsigned)web.port);
    ck_assert_msg(server_open(&server, url, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(server.bytes, FILE_BYTES);
    ck_assert_msg(server_read(&server, 0, FILE_BYTES, got, &error) == 0, "%s", error.text);
    ck_assert_mem_eq(got, bytes, FILE_BYTES);
    server_close(&server);
    web_kill(&web);
}
END_TEST

int main(void)
{
    int fd = mkostemp(path, O_CLOEXEC);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 9));
    if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes)
        return EXIT_FAILURE;
    Suite *s = suite_create("server");
    TCase *tc = tcase_create("server");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_slow_server_is_read);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    close(fd);
    unlink(path);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
