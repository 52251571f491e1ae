/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements next to a plan: what was added is found, untrusted files and numbers are not,
 * and one program at a time has them. */
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/log.h"
#include "procs/tools/plan/measured.h"

#define WAIT_S 30

static char dir[64], plan[PATH_MAX], path[PATH_MAX];
static struct error error;
static const uint8_t key_a[MEASURED_KEY_BYTES] = {1, 2}, key_b[MEASURED_KEY_BYTES] = {1, 3},
                     key_c[MEASURED_KEY_BYTES] = {0xff};
static const struct measured_range any = {-1e300, 1e300}, positive = {0, 100};
static const double values[3] = {1.5, 0, 99};

static void make_dir(void)
{
    log_set_level(LOG_LEVEL_NONE); /* lines about files that are damaged on purpose */
    snprintf(dir, sizeof dir, "/tmp/sluice-measured-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(plan, sizeof plan, "%s/plan", dir);
    snprintf(path, sizeof path, "%s/plan.measured", dir);
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

static struct measured_file *opened(void)
{
    struct measured_file *f = measured_open(plan, &error);
    ck_assert_msg(f != NULL, "%s", error.text);
    return f;
}

static void add(struct measured_file *f, const uint8_t *key, const double *value, size_t count)
{
    ck_assert_msg(measured_add(f, key, value, count, &error) == 0, "%s", error.text);
}

static bool has(const struct measured_file *f, const uint8_t *key)
{
    double got[3];
    return measured_find(f, key, positive, got, 3) && memcmp(got, values, sizeof got) == 0;
}

START_TEST(added_and_found)
{
    double got[4];
    struct measured_file *f = opened();
    ck_assert(!has(f, key_a));
    add(f, key_a, values, 3);
    add(f, key_b, values, 2);
    ck_assert(has(f, key_a));
    measured_close(f);
    f = opened();
    ck_assert(has(f, key_a) && !has(f, key_b) && !has(f, key_c));
    ck_assert(measured_find(f, key_b, any, got, 2) && !measured_find(f, key_b, any, got, 3));
    ck_assert(!measured_find(f, key_a, any, got, 4));
    measured_close(f);
    char lock[PATH_MAX + 8];
    snprintf(lock, sizeof lock, "%s.lock", plan);
    ck_assert_int_ne(access(lock, F_OK), 0);
}
END_TEST

/* Neither waits nor takes the plan's measurements for lost. */
START_TEST(not_a_regular_file)
{
    ck_assert_int_eq(_i == 0 ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
    ck_assert_ptr_null(measured_open(plan, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, "plan.measured is not a regular file"), "%s", error.text);
    struct stat st;
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert_int_eq(rmdir(path) == 0 || unlink(path) == 0, 1);
    measured_close(opened());
}
END_TEST

START_TEST(no_directory)
{
    remove_dir();
    ck_assert_ptr_null(measured_open(plan, &error));
    ck_assert_int_eq(error.code, ERR_IO);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
}
END_TEST

/* ---- damaged files ---- */

#define BAD_BYTES 512

struct bad_file {
    const char *what;
    uint64_t magic, bytes, checksum_xor;
    uint64_t file_bytes;  /* of header and records; the rest of them is a hole */
    uint32_t value_bytes; /* as its record states */
};

#define RECORD (MEASURED_KEY_BYTES + 4 + sizeof values)
#define FILE_A (sizeof(struct measured_header) + RECORD)

static const struct bad_file bad_files[] = {
    {"nothing", 0, 0, 0, 0, 0},
    {"part of a header", MEASURED_MAGIC, RECORD, 0, 23, sizeof values},
    {"magic", MEASURED_MAGIC + 1, RECORD, 0, FILE_A, sizeof values},
    {"more than it has", MEASURED_MAGIC, RECORD + 1, 0, FILE_A, sizeof values},
    {"far more", MEASURED_MAGIC, UINT64_MAX - 8, 0, FILE_A, sizeof values},
    {"less", MEASURED_MAGIC, RECORD, 0, FILE_A + 1, sizeof values},
    {"checksum", MEASURED_MAGIC, RECORD, 1, FILE_A, sizeof values},
    {"value longer than the file", MEASURED_MAGIC, RECORD, 0, FILE_A, sizeof values + 1},
    {"longest value", MEASURED_MAGIC, RECORD, 0, FILE_A, UINT32_MAX},
    {"shorter value", MEASURED_MAGIC, RECORD, 0, FILE_A, sizeof values - 1},
    {"too large", MEASURED_MAGIC, 8ull << 40, 0, sizeof(struct measured_header) + (8ull << 40),
     sizeof values},
};

static void write_file(const struct bad_file *b, const double value[3])
{
    uint8_t bytes[FILE_A] = {0}, *record = bytes + sizeof(struct measured_header);
    memcpy(record, key_a, MEASURED_KEY_BYTES);
    memcpy(record + MEASURED_KEY_BYTES, &b->value_bytes, sizeof b->value_bytes);
    memcpy(record + MEASURED_KEY_BYTES + 4, value, sizeof values);
    struct measured_header h = {.magic = b->magic, .bytes = b->bytes};
    h.checksum = XXH3_64bits(record, RECORD) ^ b->checksum_xor;
    memcpy(bytes, &h, sizeof h);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, sizeof bytes, f), sizeof bytes);
    ck_assert_int_eq(fflush(f), 0);
    ck_assert_int_eq(ftruncate(fileno(f), (off_t)b->file_bytes), 0);
    ck_assert_int_eq(fclose(f), 0);
}

/* A damaged file is as none, and the next record replaces it. */
START_TEST(damaged)
{
    const struct bad_file *b = &bad_files[_i];
    write_file(b, values);
    struct measured_file *f = opened();
    ck_assert_msg(!has(f, key_a), "%s", b->what);
    add(f, key_b, values, 3);
    measured_close(f);
    f = opened();
    ck_assert_msg(has(f, key_b) && !has(f, key_a), "%s", b->what);
    measured_close(f);
}
END_TEST

/* The file is right, its numbers are not: as if the record did not exist. */
START_TEST(numbers_that_cannot_be)
{
    static const double wrong[] = {-1, 101, (double)NAN, (double)INFINITY, (double)-INFINITY, 0};
    static const struct bad_file good = {"good", MEASURED_MAGIC, RECORD, 0, FILE_A, sizeof values};
    double got[3], value[3] = {1.5, wrong[_i], 99};
    write_file(&good, value);
    struct measured_file *f = opened();
    ck_assert_int_eq(measured_find(f, key_a, positive, got, 3), wrong[_i] == 0);
    add(f, key_a, values, 3);
    ck_assert(has(f, key_a));
    measured_close(f);
}
END_TEST

/* ---- limits ---- */

START_TEST(full)
{
    enum { COUNT = MEASURED_FILE_MAX / sizeof(double) / 2 };
    double *large = calloc(2 * COUNT, sizeof *large);
    ck_assert_ptr_nonnull(large);
    struct measured_file *f = opened();
    add(f, key_a, large, 2 * COUNT); /* more than a file can hold */
    ck_assert_int_ne(access(path, F_OK), 0);
    add(f, key_b, values, 3);
    add(f, key_a, large, COUNT);
    ck_assert(has(f, key_b));
    add(f, key_c, large, COUNT); /* the file begins again */
    ck_assert(!has(f, key_b));
    ck_assert(measured_find(f, key_c, any, large, COUNT));
    measured_close(f);
    f = opened();
    ck_assert(measured_find(f, key_c, any, large, COUNT));
    measured_close(f);
    free(large);
}
END_TEST

/* ---- two programs ---- */

/* /proc/locks: "1: -> FLOCK  ADVISORY  WRITE 123 00:2b:45 0 EOF". */
static bool waits_for_lock(pid_t pid)
{
    char line[256];
    int of = 0;
    bool waits = false;
    FILE *f = fopen("/proc/locks", "re");
    ck_assert_ptr_nonnull(f);
    while (!waits && fgets(line, sizeof line, f))
        waits = sscanf(line, "%*s -> FLOCK %*s %*s %d", &of) == 1 && of == pid;
    fclose(f);
    return waits;
}

static void second_program(int go)
{
    char byte; /* the other end of `ended` is closed by its exit */
    struct measured_file *f =
        read(go, &byte, 1) == 1 ? measured_open(plan, &error) : NULL; /* it waits here */
    bool found = f && has(f, key_a);
    bool kept = found && measured_add(f, key_b, values, 3, &error) == 0;
    measured_close(f);
    _exit(kept ? 0 : 1);
}

/* The second one reads what the first has written until its end. It exists before the first opens
 * the file, so that it does not inherit the lock. */
START_TEST(one_at_a_time)
{
    int status = 0, go[2], ended[2];
    time_t end = time(NULL) + WAIT_S;
    ck_assert_int_eq(pipe(go), 0);
    ck_assert_int_eq(pipe(ended), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        second_program(go[0]);
    close(ended[1]);
    struct measured_file *f = opened();
    ck_assert_int_eq(write(go[1], "g", 1), 1);
    while (!waits_for_lock(pid))
        ck_assert_msg(poll(&(struct pollfd){.fd = ended[0]}, 1, 1) == 0 && time(NULL) < end,
                      "the second program does not wait");
    add(f, key_a, values, 3);
    measured_close(f);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    f = opened();
    ck_assert(has(f, key_a) && has(f, key_b));
    measured_close(f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("measured");
    TCase *cases = tcase_create("file");
    tcase_add_checked_fixture(cases, make_dir, remove_dir);
    tcase_set_timeout(cases, 2 * WAIT_S);
    tcase_add_test(cases, added_and_found);
    tcase_add_loop_test(cases, not_a_regular_file, 0, 2);
    tcase_add_test(cases, no_directory);
    tcase_add_loop_test(cases, damaged, 0, (int)(sizeof bad_files / sizeof *bad_files));
    tcase_add_loop_test(cases, numbers_that_cannot_be, 0, 6);
    tcase_add_test(cases, full);
    tcase_add_test(cases, one_at_a_time);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
