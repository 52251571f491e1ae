/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of what a program that fetches may name: nothing outside its directory. */
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

int main(void)
{
    Suite *s = suite_create("result");
    TCase *tc = tcase_create("result");
    tcase_add_test(tc, paths);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
