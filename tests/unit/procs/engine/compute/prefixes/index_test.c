/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of prefixes: its bounds in bytes and tokens, files that fail and are still there,
 * files of an engine that writes at the same time, and a removal of all that was interrupted. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/engine/compute/prefixes/index.h"

#define LIMIT (64 * MIB)

static char dir[64];
static const struct prefix_bond bond = {.model = {1, 2}, .shape = 3, .arithmetic = 4};
static struct prefix_index x, other;

static void make_dir(void)
{
    strcpy(dir, "/tmp/sluice-index-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
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

static void open_index(struct prefix_index *index)
{
    struct error error;
    ck_assert_msg(index_open(index, dir, LIMIT, &bond, false, &error) == 0, "%s", error.text);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static bool exists(const char *name)
{
    struct stat st;
    return stat(path_of(name), &st) == 0;
}

/* Of tokens that begin with `first`, without blocks. */
static struct prefix_head head_of(uint32_t tokens, uint32_t first, void **tables)
{
    struct prefix_head h = {.tokens = tokens, .bond = bond, .cost_ns = 1000000000, .uses = first};
    *tables = calloc(1, prefix_tables_bytes(&h));
    ck_assert_ptr_nonnull(*tables);
    for (uint32_t i = 0; i < tokens; i++)
        prefix_tokens(&h, *tables)[i] = first + i;
    prefix_seal(&h, *tables);
    return h;
}

static void write_at(int fd, const void *bytes, size_t n, uint64_t at)
{
    ck_assert_int_eq(pwrite(fd, bytes, n, (off_t)at), (ssize_t)n);
}

/* Writes the file; returns its name. */
static const char *put_file(uint32_t tokens, uint32_t first)
{
    static char name[PREFIX_NAME_BYTES];
    void *tables;
    struct prefix_head h = head_of(tokens, first, &tables);
    prefix_name(&bond, tables, tokens, name);
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    write_at(fd, &h, sizeof h, 0);
    write_at(fd, tables, prefix_tables_bytes(&h), PREFIX_ALIGN);
    ck_assert_int_eq(ftruncate(fd, (off_t)prefix_file_bytes(&h)), 0);
    close(fd);
    free(tables);
    return name;
}

static void put_name(const char *name)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static uint32_t files(struct prefix_index *index)
{
    uint32_t n;
    index_bytes(index, &n);
    return n;
}

/* How many rows a prompt of these tokens finds. */
static uint32_t rows_of(struct prefix_index *index, uint32_t tokens, uint32_t first)
{
    struct index_found found;
    _Atomic uint32_t *log = calloc(tokens, sizeof *log);
    ck_assert_ptr_nonnull(log);
    for (uint32_t i = 0; i < tokens; i++)
        atomic_store(&log[i], first + i);
    index_find(index, log, tokens, 0, false, &found);
    free(log);
    return found.use.rows;
}

/* ---- tokens ---- */

START_TEST(tokens_of_all_files_are_bounded)
{
    put_file(INDEX_TOKENS_MAX / 2, 1);
    put_file(INDEX_TOKENS_MAX / 2 + 1, 2);
    put_file(INDEX_TOKENS_MAX + 1, 3);
    open_index(&x);
    ck_assert_uint_eq(files(&x), 3);
    ck_assert_uint_le(x.tokens, INDEX_TOKENS_MAX);
    ck_assert_uint_eq(atomic_load(&x.counts.rejected), 2);
    index_close(&x);
}
END_TEST

START_TEST(a_file_that_is_written_has_room_for_its_tokens)
{
    put_file(INDEX_TOKENS_MAX / 4, 1);
    put_file(INDEX_TOKENS_MAX / 4, 2);
    put_file(INDEX_TOKENS_MAX / 4, 3);
    open_index(&x);
    ck_assert_uint_eq(x.tokens, INDEX_TOKENS_MAX / 4 * 3);
    ck_assert_int_eq(index_make_room(&x, MIB, INDEX_TOKENS_MAX / 4), 0);
    ck_assert_uint_eq(files(&x), 3);
    ck_assert_int_eq(index_make_room(&x, MIB, INDEX_TOKENS_MAX / 2), 0);
    ck_assert_uint_eq(files(&x), 2);
    ck_assert_uint_eq(x.tokens, INDEX_TOKENS_MAX / 2);
    ck_assert_int_eq(index_make_room(&x, MIB, INDEX_TOKENS_MAX + 1), EFBIG);
    ck_assert_uint_eq(files(&x), 2);
    index_close(&x);
}
END_TEST

/* ---- files that fail ---- */

/* It could not be read: it is not used, and its bytes count until it is removed for others, first
 * of all. */
START_TEST(a_file_that_fails_still_counts)
{
    uint32_t n;
    char name[PREFIX_NAME_BYTES];
    strcpy(name, put_file(100, 1));
    put_file(100, 1000);
    open_index(&x);
    uint64_t before = index_bytes(&x, &n);
    ck_assert_uint_eq(rows_of(&x, 100, 1), 100);
    index_fail(&x, name, "test");
    ck_assert_uint_eq(rows_of(&x, 100, 1), 0);
    ck_assert_uint_eq(index_bytes(&x, &n), before);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(x.tokens, 100);
    ck_assert_uint_eq(atomic_load(&x.counts.errors), 1);
    ck_assert_int_eq(index_make_room(&x, LIMIT - before / 2, 1), 0);
    ck_assert(!exists(name));
    ck_assert_uint_eq(rows_of(&x, 100, 1000), 100);
    index_close(&x);
}
END_TEST

START_TEST(a_damaged_file_is_removed_by_the_writer_only)
{
    uint32_t n;
    char name[PREFIX_NAME_BYTES];
    strcpy(name, put_file(100, 1));
    open_index(&x);
    open_index(&other);
    ck_assert(x.lock >= 0 && other.lock < 0);
    uint64_t before = index_bytes(&other, &n);
    index_reject(&other, name, "test");
    ck_assert(exists(name));
    ck_assert_uint_eq(index_bytes(&other, &n), before);
    ck_assert_uint_eq(rows_of(&other, 100, 1), 0);
    index_reject(&x, name, "test");
    ck_assert(!exists(name));
    ck_assert_uint_eq(index_bytes(&x, &n), 0);
    index_close(&other);
    index_close(&x);
}
END_TEST

/* A directory instead of the file cannot be unlinked. */
START_TEST(a_file_that_cannot_be_removed_still_counts)
{
    uint32_t n;
    char name[PREFIX_NAME_BYTES];
    strcpy(name, put_file(100, 1));
    open_index(&x);
    uint64_t before = index_bytes(&x, &n);
    ck_assert(unlink(path_of(name)) == 0 && mkdir(path_of(name), 0700) == 0);
    ck_assert_int_ne(index_make_room(&x, LIMIT - before / 2, 1), 0);
    ck_assert_uint_eq(index_bytes(&x, &n), before);
    index_reject(&x, name, "test");
    ck_assert_uint_eq(index_bytes(&x, &n), before);
    ck_assert_uint_eq(rows_of(&x, 100, 1), 0);
    void *tables;
    struct prefix_head h = head_of(200, 1, &tables); /* includes it */
    index_add(&x, "0123456789abcdef.prefix", &h, tables);
    ck_assert_uint_eq(index_bytes(&x, &n), before + prefix_file_bytes(&h));
    index_close(&x);
}
END_TEST

/* ---- removal of all ---- */

static const char part[] = "0123456789abcdef.prefix.part";

START_TEST(a_file_that_another_engine_writes_stays)
{
    open_index(&x);
    put_file(100, 1);
    put_name(part);
    open_index(&other);
    ck_assert(other.lock < 0);
    ck_assert_uint_eq(rows_of(&other, 100, 1), 100);
    index_clear_begin(&other);
    index_clear(&other);
    ck_assert(exists(part));
    ck_assert_uint_eq(files(&other), 0);
    index_clear_begin(&x);
    index_clear(&x);
    ck_assert(!exists(part) && !exists("clear"));
    index_close(&other);
    index_close(&x);
}
END_TEST

/* A writer that is killed after it has begun leaves files, which nobody uses. */
START_TEST(an_interrupted_removal_is_ended)
{
    char name[PREFIX_NAME_BYTES];
    strcpy(name, put_file(100, 1));
    open_index(&x);
    index_clear_begin(&x);
    ck_assert(exists(name));
    ck_assert_uint_eq(rows_of(&x, 100, 1), 0);
    index_close(&x);
    open_index(&x);
    ck_assert(!exists(name) && !exists("clear"));
    ck_assert_uint_eq(rows_of(&x, 100, 1), 0);
    put_file(100, 1);
    index_close(&x);
    open_index(&x);
    ck_assert_uint_eq(rows_of(&x, 100, 1), 100);
    index_close(&x);
}
END_TEST

/* The engine that reads takes the lock when the writer has ended. */
START_TEST(a_removal_is_ended_by_the_next_writer)
{
    char name[PREFIX_NAME_BYTES];
    open_index(&x);
    open_index(&other);
    strcpy(name, put_file(100, 1));
    put_name(part);
    index_clear_begin(&x);
    ck_assert(!index_may_write(&other));
    index_close(&x);
    ck_assert(index_may_write(&other));
    ck_assert(!exists(name) && !exists(part) && !exists("clear"));
    ck_assert_uint_eq(rows_of(&other, 100, 1), 0);
    index_close(&other);
}
END_TEST

/* As compute opens it, if a predecessor was killed before it began. */
START_TEST(a_removal_at_the_start)
{
    struct error error;
    char name[PREFIX_NAME_BYTES];
    strcpy(name, put_file(100, 1));
    ck_assert_int_eq(index_open(&x, dir, LIMIT, &bond, true, &error), 0);
    ck_assert(!exists(name) && !exists("clear"));
    ck_assert_uint_eq(files(&x), 0);
    index_close(&x);
}
END_TEST

/* What cannot be removed is not used. */
START_TEST(a_removal_that_fails)
{
    char name[PREFIX_NAME_BYTES];
    strcpy(name, put_file(100, 1));
    ck_assert_int_eq(mkdir(path_of("0123456789abcdef.prefix"), 0700), 0);
    open_index(&x);
    index_clear_begin(&x);
    index_clear(&x);
    ck_assert(!exists(name) && exists("clear"));
    put_file(100, 1); /* as if it could not be removed, either: it is from before */
    index_close(&x);
    open_index(&x);
    ck_assert_uint_eq(rows_of(&x, 100, 1), 0);
    ck_assert_uint_gt(atomic_load(&x.counts.errors), 0);
    index_close(&x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("index");
    TCase *t = tcase_create("index");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_dir, remove_dir);
    tcase_add_test(t, tokens_of_all_files_are_bounded);
    tcase_add_test(t, a_file_that_is_written_has_room_for_its_tokens);
    tcase_add_test(t, a_file_that_fails_still_counts);
    tcase_add_test(t, a_damaged_file_is_removed_by_the_writer_only);
    tcase_add_test(t, a_file_that_cannot_be_removed_still_counts);
    tcase_add_test(t, a_file_that_another_engine_writes_stays);
    tcase_add_test(t, an_interrupted_removal_is_ended);
    tcase_add_test(t, a_removal_is_ended_by_the_next_writer);
    tcase_add_test(t, a_removal_at_the_start);
    tcase_add_test(t, a_removal_that_fails);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
