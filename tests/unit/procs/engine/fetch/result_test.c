/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of what a program that fetches may name: nothing outside its directory, and nothing of
 * another server. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "procs/engine/fetch/result.h"

START_TEST(paths)
{
    ck_assert(fetch_path_allowed("/cache", "/cache/0f/skeleton-1/model.gguf"));
    ck_assert(fetch_path_allowed("/a/../cache", "/a/../cache/0f/..model"));
    static const char *const others[] = {"",
                                         "/etc/passwd",
                                         "/cache",
                                         "/cached/model.gguf",
                                         "cache/model.gguf",
                                         "/cache/../etc/passwd",
                                         "/cache/0f/../../etc/passwd",
                                         "/cache/0f/.."};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        ck_assert_msg(!fetch_path_allowed("/cache", others[i]), "%s", others[i]);
}
END_TEST

START_TEST(urls)
{
    static const struct {
        const char *model, *url;
        bool allowed;
    } table[] = {
        {"nbd://10.0.0.1/a b.gguf", "nbd://10.0.0.1/a b.gguf", true},
        {"nbd://10.0.0.1/", "nbd://10.0.0.1/", true},
        {"nbd://10.0.0.1/x/m-1.gguf", "nbd://10.0.0.1/x/m-2.gguf", true},
        {"nbd://10.0.0.1/x/m-1.gguf", "nbd://10.0.0.2/x/m-2.gguf", false},
        {"nbd://10.0.0.1/x/m-1.gguf", "nbd://10.0.0.1/y/m-2.gguf", false},
        {"nbd://10.0.0.1/x/m-1.gguf", "nbd://10.0.0.1/x/..", false},
        {"nbd://10.0.0.1/x/m-1.gguf", "nbd://10.0.0.1/x/m 2.gguf", false},
        {"nbd://10.0.0.1/x/m-1.gguf", "nbd://10.0.0.1/x/", false},
        {"nbd://10.0.0.1/x/m-1.gguf", "/etc/passwd", false},
        {"nbd://10.0.0.1/x/m-1.gguf", "", false},
        {"nbd+unix:///m?socket=/s", "nbd+unix:///n?socket=/s", true},
        {"nbd+unix:///m?socket=/s", "nbd+unix:///n?socket=/t", false},
        {"nbd+unix:///m?socket=/s", "nbd+unix:///n?socket=/t?socket=/s", false},
        {"https://host/m#address=10.0.0.1", "https://host/n#address=10.0.0.1", true},
        {"https://host/m#address=10.0.0.1", "https://host/n#address=10.0.0.2", false},
        {"https://host/m#address=10.0.0.1", "http://host/n#address=10.0.0.1", false},
        {"s3://b/m?credentials=/c", "s3://b/n?credentials=/c", true},
        {"s3://b/m?credentials=/c", "s3://b/n?credentials=/c&endpoint=http://x", false},
        {"s3://b/m", "s3://b/m,:mirror=/x", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        ck_assert_msg(fetch_url_allowed(table[i].model, table[i].url) == table[i].allowed, "%s",
                      table[i].url);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("result");
    TCase *tc = tcase_create("result");
    tcase_add_test(tc, paths);
    tcase_add_test(tc, urls);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
