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

START_TEST(encoded)
{
    struct io_url u;
    struct error error;
    static const char path[] = "/home/a b/%41,&:#?=\xc3\xa9/~x-y_z.1";
    char url[3 * sizeof path + 64] = "s3://bucket/key?credentials=";
    io_url_encode(path, url + strlen(url));
    ck_assert_str_eq(url, "s3://bucket/key?credentials="
                          "/home/a%20b/%2541%2C%26%3A%23%3F%3D%C3%A9/~x-y_z.1");
    ck_assert_int_eq(io_url_parse(url, &u, &error), 0);
    ck_assert_str_eq(u.credentials, path);
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

START_TEST(web_servers)
{
    struct io_url u;
    struct error error;
    ck_assert_int_eq(io_url_parse("http://h:8080/a%20b?x=1&y#address=::1", &u, &error), 0);
    ck_assert(u.backend == IO_HTTP && !u.tls && u.tcp && !u.s3);
    ck_assert_str_eq(u.target, "/a%20b?x=1&y");
    ck_assert_str_eq(u.host, "h");
    ck_assert_str_eq(u.address, "::1");
    ck_assert_uint_eq(u.port, 8080);
    ck_assert_int_eq(u.separator, '&');
    ck_assert_int_eq(io_url_parse("https://[::1]/x", &u, &error), 0);
    ck_assert(u.tls && u.port == 443 && u.separator == '#' && io_url_numeric(&u));
    ck_assert_int_eq(io_url_parse("https://h/x#tls-certificates=/c%3Ad", &u, &error), 0);
    ck_assert_str_eq(u.certificates, "/c:d");
}
END_TEST

START_TEST(objects)
{
    struct io_url u;
    struct error error;
    ck_assert_int_eq(io_url_parse("s3://bucket/a/b c+%25.gguf", &u, &error), 0);
    ck_assert(u.backend == IO_HTTP && u.s3 && u.tls && u.tcp && u.separator == '?');
    ck_assert_str_eq(u.target, "/bucket/a/b%20c%2B%25.gguf");
    ck_assert_str_eq(u.host, "s3.us-east-1.amazonaws.com");
    ck_assert_str_eq(u.profile, "default");
    ck_assert_int_eq(
        io_url_parse("s3://b/k?endpoint=http://h:9000/&region=eu-1&credentials=/c&profile=p", &u,
                     &error),
        0);
    ck_assert(!u.tls && u.port == 9000 && u.separator == '&');
    ck_assert_str_eq(u.host, "h");
    ck_assert_str_eq(u.region, "eu-1");
    ck_assert_str_eq(u.credentials, "/c");
    ck_assert_str_eq(u.profile, "p");
    ck_assert_int_eq(io_url_parse("s3://b/k?endpoint=https://h", &u, &error), 0);
    ck_assert(u.tls && u.port == 443);
}
END_TEST

START_TEST(clusters)
{
    struct io_url u;
    struct error error;
    ck_assert_int_eq(io_url_parse("rados://models/a/b%20c.gguf", &u, &error), 0);
    ck_assert(u.backend == IO_RADOS && u.tcp && !u.tls && u.separator == '?' && !u.host[0]);
    ck_assert_str_eq(u.pool, "models");
    ck_assert_str_eq(u.name, "a/b c.gguf");
    ck_assert_str_eq(u.ports, "3300,6789,6800-7568");
    ck_assert_int_eq(
        io_url_parse("rados://p/o?conf=/c&user=reader&keyring=/k%2Cx&namespace=n", &u, &error), 0);
    ck_assert(u.separator == '&');
    ck_assert_str_eq(u.conf, "/c");
    ck_assert_str_eq(u.user, "reader");
    ck_assert_str_eq(u.credentials, "/k,x");
    ck_assert_str_eq(u.space, "n");
    ck_assert_int_eq(io_url_parse("nbd://h:99/", &u, &error), 0);
    ck_assert_str_eq(u.ports, "99");
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
                                        "nbds+unix:///?socket=/s&tls-certificates=/c",
                                        "nbd+unix:///",
                                        "nbd+unix:///?socket=relative",
                                        "nbd+unix://host/?socket=/s",
                                        "nbd+unix:///?sockets=/s",
                                        "nbd+unix:///?socket",
                                        "ftp://h/",
                                        "nbdx://h/",
                                        "http://h",
                                        "http:///x",
                                        "http://user:secret@h/x",
                                        "http://h/a b",
                                        "http://h%0a/x",
                                        "http://h/x#tls-certificates=/c",
                                        "https://h/x#socket=/s",
                                        "https://h/x#address=name",
                                        "s3://",
                                        "s3://bucket",
                                        "s3://bucket/",
                                        "s3:///key",
                                        "s3://b/k?region=a%2Fb",
                                        "s3://b/k?region=",
                                        "s3://b/k?endpoint=ftp://h",
                                        "s3://b/k?endpoint=http://h/path",
                                        "s3://b/k?endpoint=http://u@h",
                                        "s3://b/k?secret=x",
                                        "rados://pool",
                                        "rados://pool/",
                                        "rados://pool/?conf=/c",
                                        "rados:///object",
                                        "rados://%00/object",
                                        "rados://p/o?key=secret",
                                        "nbd://h/?conf=/c"};
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

START_TEST(below)
{
    static const struct {
        const char *url, *file;
    } rows[] = {{"http://h", "http://h/f"},
                {"http://h/", "http://h/f"},
                {"https://h:1/a/b#tls-certificates=/x", "https://h:1/a/b/f#tls-certificates=/x"},
                {"https://h/a/?q=/1", "https://h/a/f?q=/1"},
                {"s3://b", "s3://b/f"},
                {"s3://b?region=x", "s3://b/f?region=x"},
                {"s3://b/k/?endpoint=http://h", "s3://b/k/f?endpoint=http://h"},
                {"rados://p/o#1?conf=/c", "rados://p/o#1/f?conf=/c"}};
    struct error error;
    char to[IO_URL_TEXT_BYTES], large[2 * IO_URL_TEXT_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_int_eq(io_url_below(rows[i].url, "f", to, &error), 0);
        ck_assert_str_eq(to, rows[i].file);
    }
    memset(large, 'a', sizeof large);
    large[sizeof large - 1] = 0;
    ck_assert_int_eq(io_url_below("s3://b", large, to, &error), -1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("url");
    TCase *c = tcase_create("all");
    tcase_add_test(c, servers_and_paths);
    tcase_add_test(c, tcp);
    tcase_add_test(c, encoded);
    tcase_add_test(c, unix_sockets_and_tls);
    tcase_add_test(c, web_servers);
    tcase_add_test(c, objects);
    tcase_add_test(c, clusters);
    tcase_add_test(c, malformed);
    tcase_add_test(c, below);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
