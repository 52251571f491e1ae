/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what may happen to a file that is open: replaced and removed are harmless, changed is
 * not. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/engine/child/run_files.h"

#define BYTES 10000

static char dir[64], path[96], other[96];
static int fd;
static struct directory_file file;
static struct model_file_id inspected;
static struct error error;

static void write_file(const char *name, size_t bytes)
{
    FILE *f = fopen(name, "w");
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(i % 251), f);
    fclose(f);
}

static struct model_file_id inspect(const char *name)
{
    struct stat st;
    ck_assert_int_eq(stat(name, &st), 0);
    return (struct model_file_id){.dev = st.st_dev,
                                  .ino = st.st_ino,
                                  .bytes = (uint64_t)st.st_size,
                                  .mtime_ns =
                                      (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
}

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/sluice-files-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/model", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    write_file(path, BYTES);
    inspected = inspect(path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(run_file_accept(fd, path, &inspected, &file, &error) == 0, "%s", error.text);
}

static void teardown(void)
{
    close(fd);
    unlink(path);
    unlink(other);
    rmdir(dir);
}

static enum run_file_state check(void)
{
    return run_file_check(fd, path, &file);
}

static void set_mtime(int64_t ns)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {ns / 1000000000, ns % 1000000000}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A file system with coarse timestamps gives the same ctime twice within a few milliseconds. */
static void until_ctime_moves(void (*act)(void))
{
    struct stat st;
    uint64_t deadline = clock_now_ns() + 5 * NS_PER_S;
    do {
        act();
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert(clock_now_ns() < deadline);
    } while ((int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec ==
             atomic_load(&file.ctime_ns));
}

static void same_mtime_again(void)
{
    set_mtime(inspected.mtime_ns);
}

static void overwrite_and_hide(void)
{
    int to = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert(to >= 0 && pwrite(to, "x", 1, 5000) == 1);
    close(to);
    same_mtime_again();
}

START_TEST(untouched)
{
    char byte;
    ck_assert_int_eq(pread(fd, &byte, 1, 0), 1);
    ck_assert_int_eq(check(), RUN_FILE_SAME);
    ck_assert_uint_eq(file.held, 1);
    ck_assert_uint_eq(file.bytes, BYTES);
}
END_TEST

START_TEST(size_and_mtime_are_changes)
{
    set_mtime(12345);
    ck_assert_int_eq(check(), RUN_FILE_CHANGED);
    set_mtime(inspected.mtime_ns);
    ck_assert_int_eq(truncate(path, BYTES / 2), 0);
    set_mtime(inspected.mtime_ns);
    ck_assert_int_eq(check(), RUN_FILE_CHANGED);
    ck_assert_int_eq(truncate(path, BYTES + 1), 0);
    set_mtime(inspected.mtime_ns);
    ck_assert_int_eq(check(), RUN_FILE_CHANGED);
}
END_TEST

/* Its writer has set the old mtime again. */
START_TEST(ctime_alone_is_a_change)
{
    until_ctime_moves(overwrite_and_hide);
    ck_assert_int_eq(check(), RUN_FILE_CHANGED);
    ck_assert_int_eq(check(), RUN_FILE_CHANGED);
}
END_TEST

static void rename_over(void)
{
    write_file(other, BYTES);
    ck_assert_int_eq(rename(other, path), 0);
}

START_TEST(replaced_is_moved_once)
{
    until_ctime_moves(rename_over);
    ck_assert_int_eq(check(), RUN_FILE_MOVED);
    ck_assert_int_eq(check(), RUN_FILE_SAME);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {12345, 0}};
    ck_assert_int_eq(futimens(fd, times), 0); /* and then it changes, without a name */
    ck_assert_int_eq(check(), RUN_FILE_CHANGED);
}
END_TEST

static void move_away(void)
{
    if (access(path, F_OK) != 0)
        ck_assert_int_eq(rename(other, path), 0);
    ck_assert_int_eq(rename(path, other), 0);
}

static void remove_path(void)
{
    (void)unlink(path);
}

START_TEST(renamed_is_moved)
{
    until_ctime_moves(move_away);
    ck_assert_int_eq(check(), RUN_FILE_MOVED);
    ck_assert_int_eq(check(), RUN_FILE_SAME);
}
END_TEST

START_TEST(removed_is_moved)
{
    until_ctime_moves(remove_path);
    ck_assert_int_eq(check(), RUN_FILE_MOVED);
    ck_assert_int_eq(check(), RUN_FILE_SAME);
}
END_TEST

static void add_link(void)
{
    (void)unlink(other);
    ck_assert_int_eq(link(path, other), 0);
}

static void change_mode(void)
{
    ck_assert_int_eq(chmod(path, 0444), 0);
}

START_TEST(links_and_mode_are_harmless)
{
    until_ctime_moves(add_link);
    ck_assert_int_eq(check(), RUN_FILE_SAME);
    until_ctime_moves(change_mode);
    ck_assert_int_eq(check(), RUN_FILE_SAME);
    until_ctime_moves(same_mtime_again); /* what was explained before explains nothing later */
    ck_assert_int_eq(check(), RUN_FILE_CHANGED);
}
END_TEST

static int accept_path(const char *name, struct directory_file *out)
{
    int in = open(name, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(in, 0);
    int rc = run_file_accept(in, name, &inspected, out, &error);
    close(in);
    return rc;
}

START_TEST(copies_have_the_size)
{
    struct directory_file out;
    write_file(other, BYTES);
    ck_assert_int_eq(accept_path(other, &out), 0);
    ck_assert_uint_ne(out.ino, file.ino);
    write_file(other, BYTES - 1);
    ck_assert_int_eq(accept_path(other, &out), -1);
    ck_assert_int_eq(error.code, ERR_GONE);
    ck_assert_ptr_nonnull(strstr(error.text, other));
    ck_assert_int_eq(accept_path(dir, &out), -1);
    set_mtime(12345); /* the inspected file itself: not a copy of what it was */
    ck_assert_int_eq(accept_path(path, &out), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "was written to"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_files");
    TCase *t = tcase_create("run_files");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, untouched);
    tcase_add_test(t, size_and_mtime_are_changes);
    tcase_add_test(t, ctime_alone_is_a_change);
    tcase_add_test(t, replaced_is_moved_once);
    tcase_add_test(t, renamed_is_moved);
    tcase_add_test(t, removed_is_moved);
    tcase_add_test(t, links_and_mode_are_harmless);
    tcase_add_test(t, copies_have_the_size);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
