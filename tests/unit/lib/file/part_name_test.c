/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the parts of a split model, and their absolute paths through links. */
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/file/part_name.h"

static char dir[PATH_MAX / 2];

static void setup(void)
{
    char made[] = "/tmp/sluice-part-name-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(made));
    ck_assert_ptr_nonnull(realpath(made, dir));
}

static int remove_one(const char *name, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(name);
}

static void teardown(void)
{
    ck_assert_int_eq(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static const char *in_dir(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

START_TEST(names_of_parts)
{
    uint32_t number, count;
    char path[] = "/x/NAME-00002-of-00012.gguf", whole[] = "/x/NAME.gguf";
    ck_assert(gguf_part_name(path, &number, &count));
    ck_assert_uint_eq(number, 2);
    ck_assert_uint_eq(count, 12);
    ck_assert(!gguf_part_name("NAME-00013-of-00012.gguf", &number, &count));
    ck_assert(!gguf_part_name("NAME-00000-of-00012.gguf", &number, &count));
    ck_assert(!gguf_part_name("NAME-0002-of-00012.gguf", &number, &count));
    ck_assert(!gguf_part_name("NAME- 0002-of-00012.gguf", &number, &count));
    ck_assert(!gguf_part_name("-00001-of-00002.gguf", &number, &count));
    gguf_set_part(path, 12);
    ck_assert_str_eq(path, "/x/NAME-00012-of-00012.gguf");
    gguf_first_part(path);
    ck_assert_str_eq(path, "/x/NAME-00001-of-00012.gguf");
    gguf_first_part(whole);
    ck_assert_str_eq(whole, "/x/NAME.gguf");
}
END_TEST

static void expect(const char *path, const char *wanted)
{
    char real[PATH_MAX], absolute[PATH_MAX];
    ck_assert_msg(gguf_real_path(path, real), "%s: %s", path, strerror(errno));
    snprintf(absolute, sizeof absolute, "%s/%s", dir, wanted);
    ck_assert_str_eq(real, absolute);
}

/* A link to a directory is followed; one of a part is not, since its target leads to no other
 * part. */
START_TEST(links)
{
    ck_assert_int_eq(mkdir(in_dir("models"), 0700), 0);
    fclose(fopen(in_dir("blob"), "w"));
    ck_assert_int_eq(symlink("models", in_dir("link")), 0);
    ck_assert_int_eq(symlink("../blob", in_dir("models/a-00001-of-00002.gguf")), 0);
    ck_assert_int_eq(symlink("../blob", in_dir("models/a-00002-of-00002.gguf")), 0);
    ck_assert_int_eq(symlink("../blob", in_dir("models/a-00001-of-00001.gguf")), 0);
    ck_assert_int_eq(symlink("../blob", in_dir("models/b.gguf")), 0);
    expect(in_dir("link/a-00002-of-00002.gguf"), "models/a-00001-of-00002.gguf");
    expect(in_dir("link/a-00001-of-00001.gguf"), "blob");
    expect(in_dir("link/b.gguf"), "blob");
    ck_assert_int_eq(chdir(in_dir("link")), 0);
    expect("a-00002-of-00002.gguf", "models/a-00001-of-00002.gguf");
    expect("./../link/a-00001-of-00002.gguf", "models/a-00001-of-00002.gguf");
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(not_found_or_too_long)
{
    char real[PATH_MAX], path[2 * PATH_MAX];
    ck_assert(!gguf_real_path(in_dir("none/a-00001-of-00002.gguf"), real));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert(!gguf_real_path(in_dir("none.gguf"), real));
    ck_assert_int_eq(errno, ENOENT);
    snprintf(path, sizeof path, "/%0*d-00001-of-00002.gguf", PATH_MAX, 0);
    ck_assert(!gguf_real_path(path, real));
    ck_assert_int_eq(errno, ENAMETOOLONG);
    snprintf(path, sizeof path, "/tmp/%0*d/a-00001-of-00002.gguf", PATH_MAX, 0);
    ck_assert(!gguf_real_path(path, real));
    ck_assert_int_eq(errno, ENAMETOOLONG);
    ck_assert(gguf_real_path("/a-00002-of-00002.gguf", real));
    ck_assert_str_eq(real, "/a-00001-of-00002.gguf");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("part_name");
    TCase *tests = tcase_create("part_name");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, names_of_parts);
    tcase_add_test(tests, links);
    tcase_add_test(tests, not_found_or_too_long);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
