/* SPDX-License-Identifier: Apache-2.0 */
/* The list of used experts: its file, the order of its experts, its directory. */
#include <check.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/warm/warm.h"

#define LAYERS  3u
#define EXPERTS 4u

static const struct warm_model model = {
    .hash = {1, 2, 0xfe}, .layers = LAYERS, .experts = EXPERTS, .top_k = 2};
static struct warm_list list, other;
static struct error error;
static char dir[64], path[PATH_MAX];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/sluice-warm-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/experts", dir);
    list.count = other.count = 0;
}

static int remove_one(const char *name, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(name);
}

static void remove_dir(void)
{
    ck_assert_int_eq(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void add(const uint32_t accesses[LAYERS * EXPERTS])
{
    ck_assert_int_eq(warm_add(&list, &model, accesses, &error), 0);
}

static uint16_t share_of(uint32_t layer, uint32_t expert)
{
    for (uint32_t i = 0; i < list.count; i++)
        if (list.use[i].layer == layer && list.use[i].expert == expert)
            return list.use[i].share;
    return 0;
}

/* 10 tokens of 2 experts in each of 3 layers. */
static const uint32_t ten_tokens[LAYERS * EXPERTS] = {10, 4, 6, 0, 0, 10, 10, 0, 1, 2, 7, 10};

START_TEST(most_used_first)
{
    add(ten_tokens);
    ck_assert_uint_eq(list.count, 9); /* three were not used */
    ck_assert(list.use[0].layer == 0 && list.use[0].expert == 0 && list.use[0].share == 65535);
    for (uint32_t i = 1; i < list.count; i++)
        ck_assert_uint_ge(list.use[i - 1].share, list.use[i].share);
    ck_assert_uint_eq(share_of(0, 1), (unsigned)(0.4 * 65535 + 0.5));
    ck_assert_uint_eq(share_of(1, 0), 0);
}
END_TEST

/* Layers without experts do not count: the shares of the others would be too large, and equal at
 * the top. */
START_TEST(layers_without_experts)
{
    static const uint32_t ten[LAYERS * EXPERTS] = {0, 0, 0, 0, 9, 8, 2, 1, 10, 5, 5, 0};
    add(ten);
    ck_assert_uint_eq(share_of(1, 0), (unsigned)(0.9 * 65535 + 0.5));
    ck_assert_uint_eq(share_of(1, 1), (unsigned)(0.8 * 65535 + 0.5));
    ck_assert_uint_eq(share_of(2, 0), 65535);
}
END_TEST

/* A short run after a long one moves the shares little, a long one as much as everything before
 * it. */
START_TEST(runs_have_the_weight_of_their_length)
{
    static const uint32_t one_token[LAYERS * EXPERTS] = {0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0};
    uint32_t many[LAYERS * EXPERTS];
    add(ten_tokens);
    uint16_t before = share_of(0, 1);
    add(one_token);
    ck_assert_uint_gt(share_of(0, 1), before);
    ck_assert_uint_lt(share_of(0, 1), before + 100);
    before = share_of(0, 1);
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
        many[i] = one_token[i] * WARM_PRIOR_TOKENS;
    add(many);
    ck_assert_int_le(abs((int)share_of(0, 1) - (before + 65535) / 2), 1);
}
END_TEST

START_TEST(nothing_used_changes_nothing)
{
    static const uint32_t none[LAYERS * EXPERTS];
    add(none);
    ck_assert_uint_eq(list.count, 0);
    add(ten_tokens);
    other = list;
    add(none);
    ck_assert(memcmp(&list, &other, sizeof list) == 0);
}
END_TEST

START_TEST(written_and_read)
{
    ck_assert_int_eq(warm_read(path, &model, &other, &error), 0); /* no file yet */
    ck_assert_uint_eq(other.count, 0);
    add(ten_tokens);
    ck_assert_int_eq(warm_write(path, &model, &list, &error), 0);
    ck_assert_int_eq(warm_read(path, &model, &other, &error), 0);
    ck_assert_uint_eq(other.count, list.count);
    ck_assert(memcmp(other.use, list.use, list.count * sizeof list.use[0]) == 0);
    struct stat st;
    ck_assert(stat(path, &st) == 0 && (st.st_mode & 077) == 0);
}
END_TEST

/* Every change of the file is noticed, and gives an empty list. */
START_TEST(damaged)
{
    unsigned char bytes[WARM_BYTES_MAX + 1];
    add(ten_tokens);
    size_t n = warm_format(&list, &model, bytes);
    for (size_t i = 0; i < n; i++) {
        if (i >= offsetof(struct warm_header, reserved) &&
            i < offsetof(struct warm_header, checksum))
            continue;
        bytes[i] ^= 4;
        ck_assert_msg(warm_parse(bytes, n, &model, &other, &error) != 0, "byte %zu", i);
        ck_assert_uint_eq(other.count, 0);
        bytes[i] ^= 4;
    }
    for (size_t cut = 0; cut < n; cut++)
        ck_assert_int_ne(warm_parse(bytes, cut, &model, &other, &error), 0);
    ck_assert_int_ne(warm_parse(bytes, n + 1, &model, &other, &error), 0);
    ck_assert_int_eq(warm_parse(bytes, n, &model, &other, &error), 0);
}
END_TEST

/* A well-formed list of experts that the model lacks, or in another order. */
START_TEST(impossible)
{
    unsigned char bytes[WARM_BYTES_MAX];
    static const struct warm_use wrong[][2] = {
        {{LAYERS, 0, 9}, {0, 0, 3}}, {{0, EXPERTS, 9}, {0, 0, 3}}, {{0, 0, 3}, {0, 1, 9}}};
    memcpy(list.use, wrong[_i], sizeof wrong[0]);
    list.count = 2;
    size_t n = warm_format(&list, &model, bytes);
    ck_assert_int_ne(warm_parse(bytes, n, &model, &other, &error), 0);
    ck_assert_uint_eq(other.count, 0);
}
END_TEST

START_TEST(no_write_through_a_link)
{
    char target[PATH_MAX];
    struct stat st;
    snprintf(target, sizeof target, "%s/target", dir);
    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert_int_ne(warm_read(path, &model, &other, &error), 0);
    add(ten_tokens);
    ck_assert_int_eq(warm_write(path, &model, &list, &error), 0);
    ck_assert(stat(target, &st) != 0 && lstat(path, &st) == 0 && S_ISREG(st.st_mode));
}
END_TEST

START_TEST(directory)
{
    char got[PATH_MAX], expected[PATH_MAX], sluice[PATH_MAX];
    setenv("XDG_CACHE_HOME", dir, 1);
    ck_assert_int_eq(warm_directory(model.hash, got, sizeof got, &error), 0);
    snprintf(expected, sizeof expected, "%s/sluice/0102fe00000000000000000000000000", dir);
    ck_assert_str_eq(got, expected);
    ck_assert_int_eq(warm_directory(model.hash, got, 40, &error), -1);
    snprintf(sluice, sizeof sluice, "%s/sluice", dir);
    ck_assert_int_eq(chmod(sluice, 0777), 0); /* others may replace what is in it */
    ck_assert_int_eq(warm_directory(model.hash, got, sizeof got, &error), -1);
    ck_assert_int_eq(chmod(sluice, 0700), 0);
    char away[PATH_MAX];
    snprintf(away, sizeof away, "%s/away", dir);
    ck_assert_int_eq(rename(sluice, away), 0);
    ck_assert_int_eq(symlink(away, sluice), 0);
    ck_assert_int_eq(warm_directory(model.hash, got, sizeof got, &error), -1);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", dir, 1);
    ck_assert_int_eq(unlink(sluice), 0);
    ck_assert_int_eq(warm_directory(model.hash, got, sizeof got, &error), 0);
    snprintf(expected, sizeof expected, "%s/.cache/sluice/0102fe00000000000000000000000000", dir);
    ck_assert_str_eq(got, expected);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    ck_assert_int_eq(warm_directory(model.hash, got, sizeof got, &error), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("warm");
    TCase *cases = tcase_create("list");
    tcase_add_checked_fixture(cases, make_dir, remove_dir);
    tcase_add_test(cases, most_used_first);
    tcase_add_test(cases, layers_without_experts);
    tcase_add_test(cases, runs_have_the_weight_of_their_length);
    tcase_add_test(cases, nothing_used_changes_nothing);
    tcase_add_test(cases, written_and_read);
    tcase_add_test(cases, damaged);
    tcase_add_loop_test(cases, impossible, 0, 3);
    tcase_add_test(cases, no_write_through_a_link);
    tcase_add_test(cases, directory);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
