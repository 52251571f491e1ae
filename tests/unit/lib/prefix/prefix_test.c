/* SPDX-License-Identifier: Apache-2.0 */
/* The format of prefix files: where their parts are, that every flipped bit of head and tables is
 * noticed, what a prompt can use of them, and whose directories are refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/prefix/directory.h"
#include "lib/prefix/prefix.h"

static struct prefix_head with_rings(void)
{
    return (struct prefix_head){.tokens = 200,
                                .bond = {.model = {1, 2}, .shape = 3, .arithmetic = 1},
                                .tile_bytes = 5000,
                                .ring_bytes = 100,
                                .state_bytes = 4096,
                                .states = 2,
                                .lowest = 150,
                                .prompt = 90};
}

static uint32_t *tables_of(const struct prefix_head *h)
{
    uint32_t *tables = calloc(1, prefix_tables_bytes(h));
    ck_assert_ptr_nonnull(tables);
    for (uint32_t i = 0; i < h->tokens; i++)
        prefix_tokens(h, tables)[i] = 7 * i;
    for (uint32_t i = 0; i < h->states; i++)
        prefix_positions(h, tables)[i] = 64 * (i + 1);
    for (uint32_t i = 0; i < prefix_blocks(h); i++)
        prefix_set_checksum(h, tables, i, 1000 + i);
    return tables;
}

/* 4 tiles of 2 pages, the ring, 2 states; tables of 202 words and 7 checksums. */
START_TEST(layout)
{
    struct prefix_head h = with_rings();
    uint32_t *tables = tables_of(&h);
    ck_assert_uint_eq(prefix_tiles(&h), 4);
    ck_assert_uint_eq(prefix_blocks(&h), 7);
    ck_assert_uint_eq(prefix_tables_bytes(&h), 202 * 4 + 7 * 8);
    ck_assert_uint_eq(prefix_block_offset(&h, 0), 8192);
    ck_assert_uint_eq(prefix_block_offset(&h, 4), 8192 + 4 * 8192);
    ck_assert_uint_eq(prefix_block_offset(&h, 6), 8192 + 4 * 8192 + 2 * 4096);
    ck_assert_uint_eq(prefix_file_bytes(&h), 8192 + 4 * 8192 + 3 * 4096);
    for (uint32_t i = 0; i < 7; i++)
        ck_assert_uint_eq(prefix_checksum(&h, tables, i), 1000 + i);
    free(tables);
}
END_TEST

START_TEST(every_flipped_bit_is_noticed)
{
    struct prefix_head h = with_rings();
    struct error error;
    uint32_t *tables = tables_of(&h);
    prefix_seal(&h, tables);
    uint64_t bytes = prefix_file_bytes(&h);
    ck_assert_int_eq(prefix_check_head(&h, bytes, &error), 0);
    ck_assert_int_eq(prefix_check_tables(&h, tables, &error), 0);
    ck_assert_int_ne(prefix_check_head(&h, bytes - 1, &error), 0);
    for (size_t bit = 0; bit < 8 * sizeof h; bit++) {
        struct prefix_head other = h;
        ((uint8_t *)&other)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_ne(prefix_check_head(&other, bytes, &error), 0);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    for (size_t bit = 0; bit < 8 * prefix_tables_bytes(&h); bit++) {
        ((uint8_t *)tables)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_ne(prefix_check_tables(&h, tables, &error), 0);
        ((uint8_t *)tables)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(tables);
}
END_TEST

static int check_sealed(struct prefix_head h)
{
    struct error error;
    uint32_t *tables = tables_of(&h);
    prefix_seal(&h, tables);
    free(tables);
    return prefix_check_head(&h, prefix_file_bytes(&h), &error);
}

/* With right checksums. */
START_TEST(numbers_beyond_their_limits)
{
    struct prefix_head h = with_rings();
    ck_assert_int_eq(check_sealed(h), 0);
    h.cost_ns = (1ull << 62) - 1;
    ck_assert_int_eq(check_sealed(h), 0);
    h.cost_ns++;
    ck_assert_int_ne(check_sealed(h), 0);
    h = with_rings();
    h.lowest = h.tokens + 2;
    ck_assert_int_ne(check_sealed(h), 0);
    h = with_rings();
    h.prompt = h.tokens + 1;
    ck_assert_int_ne(check_sealed(h), 0);
    h = with_rings();
    h.state_bytes = 0;
    ck_assert_int_ne(check_sealed(h), 0);
    h = with_rings();
    h.tile_bytes = PREFIX_BLOCK_MAX + 1;
    ck_assert_int_ne(check_sealed(h), 0);
}
END_TEST

static struct prefix_use use_of(const struct prefix_head *h, uint32_t common, bool recurrent)
{
    static const uint32_t positions[] = {64, 128};
    return prefix_use(h, positions, common, recurrent);
}

START_TEST(what_a_prompt_uses)
{
    struct prefix_head rings = with_rings(), all = rings, recurrent = rings;
    all.ring_bytes = all.states = 0;
    recurrent.ring_bytes = 0;
    ck_assert_uint_eq(use_of(&all, 77, false).rows, 77);
    ck_assert_uint_eq(use_of(&all, 77, false).state, PREFIX_NO_STATE);
    ck_assert_uint_eq(use_of(&all, 300, false).rows, 200);
    ck_assert_uint_eq(prefix_use_bytes(&all, use_of(&all, 77, false), 64), 8192);
    ck_assert_uint_eq(prefix_use_bytes(&all, use_of(&all, 77, false), 77), 0);
    ck_assert_uint_eq(use_of(&rings, 150, false).rows, 150); /* the ring */
    ck_assert_uint_eq(prefix_use_bytes(&rings, use_of(&rings, 150, false), 0), 3 * 8192 + 4096);
    ck_assert_uint_eq(use_of(&rings, 149, false).rows, 128); /* the last state */
    ck_assert_uint_eq(use_of(&rings, 149, false).state, 1);
    ck_assert_uint_eq(prefix_use_bytes(&rings, use_of(&rings, 149, false), 0), 2 * 8192 + 4096);
    ck_assert_uint_eq(use_of(&rings, 63, false).rows, 0);
    ck_assert_uint_eq(use_of(&recurrent, 200, true).rows, 128);
    ck_assert_uint_eq(use_of(&recurrent, 127, true).rows, 64);
    ck_assert_uint_eq(use_of(&recurrent, 63, true).rows, 0);
}
END_TEST

START_TEST(names)
{
    char a[PREFIX_NAME_BYTES], b[PREFIX_NAME_BYTES];
    const uint32_t tokens[] = {1, 2, 3};
    struct prefix_bond bond = with_rings().bond, other = bond;
    other.model[1]++;
    prefix_name(&bond, tokens, 3, a);
    ck_assert(prefix_is_name(a));
    prefix_name(&bond, tokens, 2, b);
    ck_assert_str_ne(a, b);
    prefix_name(&other, tokens, 3, b);
    ck_assert_str_ne(a, b);
    ck_assert(!prefix_is_name("0123456789abcdef.prefix.part"));
    ck_assert(!prefix_is_name("0123456789abcde.prefix"));
    ck_assert(!prefix_is_name("../456789abcdef.prefix"));
    ck_assert(!prefix_is_name("lock"));
}
END_TEST

START_TEST(directories)
{
    char top[] = "/tmp/sluice-prefix-XXXXXX", path[64];
    struct error error;
    struct stat st;
    ck_assert_ptr_nonnull(mkdtemp(top));
    snprintf(path, sizeof path, "%s/made", top);
    ck_assert_int_lt(prefix_directory_open(path, false, &error), 0);
    int fd = prefix_directory_open(path, true, &error);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    close(fd);
    for (mode_t mode = 0720; mode <= 0777; mode++) {
        ck_assert_int_eq(chmod(path, mode), 0);
        fd = prefix_directory_open(path, true, &error);
        ck_assert_int_eq(fd >= 0, (mode & 022) == 0);
        if (fd >= 0)
            close(fd);
    }
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(rmdir(top), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix");
    TCase *tests = tcase_create("prefix");
    tcase_add_test(tests, layout);
    tcase_add_test(tests, every_flipped_bit_is_noticed);
    tcase_add_test(tests, numbers_beyond_their_limits);
    tcase_add_test(tests, what_a_prompt_uses);
    tcase_add_test(tests, names);
    tcase_add_test(tests, directories);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
