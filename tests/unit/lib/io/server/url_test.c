/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of servers: what is taken from them, and what is rejected. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/io/server/url.h"

START_TEST(servers_and_paths)
{
    ck_assert(io_url_is("nbd://host/"));
    ck_assert(io_url_is("nbd+unix:///?socket=/s"));
    ck_assert(io_url_is("ftp://host/"));
    static const char *const paths[] = {"",      "/ssd/a.gguf", "a:b=c", "://x",
                                        "nbd:/", "./nbd://x",   "C:/x"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        ck_assert_msg(!io_url_is(paths[i]), "%s", paths[i]);
}
END_TEST

START_TEST(tcp)
{
    struct io_url u;
    struct error error;
    ck_assert_int_eq(io_url_parse("nbd://storage.lan", &u, &error), 0);
    ck_assert(u.tcp && !u.tls && u.backend == IO_NBD && !io_url_numeric(&u));
    ck_assert_str_eq(u.host, "storage.lan");
    ck_assert_uint_eq(u.port, 10809);
    ck_assert_str_eq(u.name, "");
    ck_assert_int_eq(io_url_parse("nbd://10.0.0.7:99/big%20model", &u, &error), 0);
    ck_assert_uint_eq(u.port, 99);
    ck_assert_str_eq(u.name, "big model");
    ck_assert(io_url_numeric(&u));
    ck_assert_uint_eq(u.host_at, 6);
    ck_assert_uint_eq(u.host_bytes, 8);
    ck_assert_int_eq(io_url_parse("nbd://[fe80::1]:65535/", &u, &error), 0);
    ck_assert_str_eq(u.host, "fe80::1");
    ck_assert_uint_eq(u.port, 65535);
    ck_assert_uint_eq(u.host_at, 6);
    ck_assert_uint_eq(u.host_bytes, 9);
    ck_assert(io_url_numeric(&u));
}
END_TEST

START_TEST(unix_sockets_and_tls)
{
    struct io_url u;
    struct error error;
    ck_assert_int_eq(io_url_parse("nbd+unix:///x?socket=/run/a%3Ab", &u, &error), 0);
    ck_assert(!u.tcp && !u.tls);
    ck_assert_str_eq(u.socket, "/run/a:b");
    ck_assert_str_eq(u.name, "x");
    ck_assert_int_eq(
        io_url_parse("nbds+unix://alice@/?socket=/s&tls-psk-file=/etc/keys", &u, &error), 0);
    ck_assert(u.tls);
    ck_assert_str_eq(u.user, "alice");
    ck_assert_str_eq(u.psk_file, "/etc/keys");
    ck_assert_int_eq(io_url_parse("nbds://10.0.0.1/?tls-certificates=/etc/pki/nbd", &u, &error), 0);
    ck_assert(u.tls && u.tcp);
    ck_assert_str_eq(u.certificates, "/etc/pki/nbd");
}
END_TEST

START_TEST(malformed)
{
    static const char *const texts[] = {"nbd:///x",
                                        "nbd://",
                                        "nbd://:10809/",
                                        "nbd://h:0/",
                                        "nbd://h:65536/",
                                        "nbd://h:/",
                                        "nbd://h:9x/",
                                        "nbd://[::1/",
                                        "nbd://[::1]9/",
                                        "nbd://h/%2",
                                        "nbd://h/%00",
                                        "nbd://h/?socket=/s",
                                        "nbd://user@h/",
                                        "nbd://h/?tls-certificates=/c",
                                        "nbds://h/",
                                        "nbd+unix:///",
                                        "nbd+unix:///?socket=relative",
                                        "nbd+unix://host/?socket=/s",
                                        "nbd+unix:///?sockets=/s",
                                        "nbd+unix:///?socket",
                                        "http://h/",
                                        "nbdx://h/"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct io_url u;
        struct error error;
        ck_assert_msg(io_url_parse(texts[i], &u, &error) == -1, "%s was accepted", texts[i]);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_ptr_nonnull(strstr(error.text, texts[i]));
    }
    char text[2 * IO_URL_TEXT_BYTES] = "nbd://h/";
    memset(text + 8, 'a', IO_URL_TEXT_BYTES);
    struct io_url u;
    struct error error;
    ck_assert_int_eq(io_url_parse(text, &u, &error), -1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("url");
    TCase *c = tcase_create("all");
    tcase_add_test(c, servers_and_paths);
    tcase_add_test(c, tcp);
    tcase_add_test(c, unix_sockets_and_tls);
    tcase_add_test(c, malformed);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
