/* SPDX-License-Identifier: Apache-2.0 */
/* The skeleton of a file has the hash of that file; both are hashed by ranges as whole. The path of
 * a skeleton has the identity of what the server has. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/file/sample_hash.h"
#include "lib/file/skeleton.h"

#define BYTES (3 * MIB + 17)

static int file_of(const char *bytes)
{
    char path[] = "/tmp/skeleton-test-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    ck_assert_int_eq(pwrite(fd, bytes, BYTES, 0), (ssize_t)BYTES);
    return fd;
}

static void hash_of(int fd, uint8_t hash[SAMPLE_HASH_BYTES])
{
    struct sample_hash *h = sample_hash_start();
    ck_assert_ptr_nonnull(h);
    ck_assert_int_eq(sample_hash_add(h, fd), 0);
    sample_hash_result(h, hash);
    sample_hash_free(h);
}

START_TEST(a_skeleton_has_the_hash_of_its_file)
{
    uint8_t whole[SAMPLE_HASH_BYTES], skeleton[SAMPLE_HASH_BYTES], ranges[SAMPLE_HASH_BYTES];
    uint64_t at, count;
    char *bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (char)(i * 31 + (i >> 8));
    memcpy(bytes, SKELETON_OF_MAGIC, SKELETON_MAGIC_BYTES);
    int fd = file_of(bytes);
    ck_assert(!skeleton_is(fd));
    hash_of(fd, whole);
    struct sample_hash *h = sample_hash_start();
    sample_hash_size(h, BYTES);
    for (uint32_t i = 0; sample_hash_range(BYTES, i, &at, &count); i++)
        sample_hash_bytes(h, bytes + at, count);
    sample_hash_result(h, ranges);
    sample_hash_free(h);
    ck_assert_mem_eq(whole, ranges, sizeof whole);
    ck_assert_int_eq(pwrite(fd, SKELETON_MAGIC, SKELETON_MAGIC_BYTES, 0), SKELETON_MAGIC_BYTES);
    ck_assert(skeleton_is(fd));
    hash_of(fd, skeleton);
    ck_assert_mem_eq(whole, skeleton, sizeof whole);
    close(fd);
    free(bytes);
}
END_TEST

#define ID    "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"

START_TEST(the_last_directory_has_the_identity)
{
    static const struct {
        const char *path, *identity;
    } cases[] = {
        {"/cache/" ID "/skeleton-1/model.gguf", ID},
        {"/home/" OTHER "/skeleton-keys/" ID "/skeleton-1/model.gguf", ID},
        {ID "/skeleton-1", ID},
        {"/skeleton-1/model.gguf", NULL},
        {"/home/skeletons/model.gguf", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = skeleton_identity(cases[i].path);
        ck_assert_msg((got != NULL) == (cases[i].identity != NULL), "%s", cases[i].path);
        ck_assert_msg(!got || strncmp(got, cases[i].identity, SKELETON_IDENTITY_CHARS) == 0, "%s",
                      cases[i].path);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("skeleton");
    TCase *tc = tcase_create("skeleton");
    tcase_add_test(tc, a_skeleton_has_the_hash_of_its_file);
    tcase_add_test(tc, the_last_directory_has_the_identity);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
