/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files in URLs, and the names that files of a skeleton may have. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/fetch/fetch.h"

START_TEST(names_and_siblings)
{
    static const struct {
        const char *url, *name, *sibling;
    } table[] = {
        {"nbd://host/model.gguf", "model.gguf", "nbd://host/b"},
        {"nbd://host:10809/a/model.gguf", "model.gguf", "nbd://host:10809/a/b"},
        {"nbd+unix:///manifest.json?socket=/tmp/x/y", "manifest.json",
         "nbd+unix:///b?socket=/tmp/x/y"},
        {"nbd+unix:///?socket=/s", "", "nbd+unix:///b?socket=/s"},
        {"nbd://host/", "", "nbd://host/b"},
        {"https://host/a.gguf#tls-certificates=/x/y", "a.gguf",
         "https://host/b#tls-certificates=/x/y"},
        {"s3://bucket/a.gguf?endpoint=http://host/", "a.gguf",
         "s3://bucket/b?endpoint=http://host/"},
        {"http://host/a.gguf#address=1.2.3.4", "a.gguf", "http://host/b#address=1.2.3.4"},
        {"nbd://host/a#1.gguf", "a#1.gguf", "nbd://host/b"},
        {"s3://bucket/x#1/a#2.gguf?region=r", "a#2.gguf", "s3://bucket/x#1/b?region=r"},
    };
    char name[FETCH_URL_BYTES], to[FETCH_URL_BYTES];
    struct error error;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        io_url_name(table[i].url, name);
        ck_assert_str_eq(name, table[i].name);
        ck_assert_int_eq(io_url_sibling(table[i].url, "b", to, &error), 0);
        ck_assert_str_eq(to, table[i].sibling);
    }
    char large[FETCH_URL_BYTES];
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = 0;
    ck_assert_int_eq(io_url_sibling(table[0].url, large, to, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

/* They come from a server. */
START_TEST(only_plain_names)
{
    ck_assert(name_is_plain("experts.0.bin") && name_is_plain("A_b-00001-of-00002.gguf"));
    ck_assert(!name_is_plain("") && !name_is_plain("../x") && !name_is_plain("a/b"));
    ck_assert(!name_is_plain(".hidden") && !name_is_plain("/etc/passwd") && !name_is_plain("a b"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("names");
    TCase *tc = tcase_create("names");
    tcase_add_test(tc, names_and_siblings);
    tcase_add_test(tc, only_plain_names);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
