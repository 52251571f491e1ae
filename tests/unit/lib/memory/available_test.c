/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a process can take, from the files of a machine below a directory: the lowest of
 * what the machine and each cgroup have, full ones included; unknown if none of them can be
 * read. */
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/bytes.h"
#include "lib/memory/available.h"

#define FILES_MAX 16
#define UNLIMITED "9223372036854771712\n" /* of version 1 */

#define MEMINFO(kib)                                                                               \
    {                                                                                              \
        "proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable:   " kib " kB\n"                       \
    }
#define MOUNTS_V2                                                                                  \
    {                                                                                              \
        "proc/self/mounts", "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"      \
    }
#define MOUNTS_V1                                                                                  \
    {                                                                                              \
        "proc/self/mounts", "cgroup /sys/cpu cgroup rw,cpu 0 0\ncgroup /m cgroup rw,memory 0 0\n"  \
    }
#define GROUP_V2                                                                                   \
    {                                                                                              \
        "proc/self/cgroup", "0::/a/b\n"                                                            \
    }
#define GROUP_V1                                                                                   \
    {                                                                                              \
        "proc/self/cgroup", "3:cpu:/x\n2:memory:/a/b\n0::/y\n"                                     \
    }
#define B "sys/fs/cgroup/a/b/"
#define A "sys/fs/cgroup/a/"

static const struct machine {
    const char *what;
    uint64_t memory, cgroup;
    struct {
        const char *path, *text;
    } files[FILES_MAX];
} machines[] = {
    {"nothing can be read", UINT64_MAX, UINT64_MAX, {{NULL, NULL}}},
    {"no line of available memory", UINT64_MAX, UINT64_MAX, {{"proc/meminfo", "MemTotal: 9 kB\n"}}},
    {"no cgroup", 100 * KIB, UINT64_MAX, {MEMINFO("100")}},
    {"nothing left", 0, UINT64_MAX, {MEMINFO("0")}},
    {"v2 without limits",
     100 * KIB,
     UINT64_MAX,
     {MEMINFO("100"), MOUNTS_V2, GROUP_V2, {B "memory.max", "max\n"}, {B "memory.current", "7\n"}}},
    {"v2 with a limit",
     30000,
     30000,
     {MEMINFO("100"),
      MOUNTS_V2,
      GROUP_V2,
      {B "memory.max", "50000\n"},
      {B "memory.current", "20000\n"}}},
    {"v2: the machine has less",
     1 * KIB,
     30000,
     {MEMINFO("1"),
      MOUNTS_V2,
      GROUP_V2,
      {B "memory.max", "50000\n"},
      {B "memory.current", "20000\n"}}},
    {"v2: page cache is given back",
     35000,
     35000,
     {MEMINFO("100"),
      MOUNTS_V2,
      GROUP_V2,
      {B "memory.max", "50000\n"},
      {B "memory.current", "20000\n"},
      {B "memory.stat", "anon 11000\nfile 9000\ninactive_file 3000\nactive_file 2000\n"}}},
    {"v2: the limit of a parent",
     1000,
     1000,
     {MEMINFO("100"),
      MOUNTS_V2,
      GROUP_V2,
      {B "memory.max", "50000\n"},
      {B "memory.current", "20000\n"},
      {A "memory.max", "40000\n"},
      {A "memory.current", "39000\n"}}},
    {"v2: full",
     0,
     0,
     {MEMINFO("100"),
      MOUNTS_V2,
      GROUP_V2,
      {B "memory.max", "50000\n"},
      {B "memory.current", "50000\n"}}},
    {"v2: over its limit, and the machine unknown",
     0,
     0,
     {MOUNTS_V2, GROUP_V2, {B "memory.max", "50000\n"}, {B "memory.current", "60000\n"}}},
    {"v2: a limit, the machine unknown",
     30000,
     30000,
     {MOUNTS_V2, GROUP_V2, {B "memory.max", "50000\n"}, {B "memory.current", "20000\n"}}},
    {"v1 with a limit, in its root, too",
     31000,
     31000,
     {MEMINFO("100"),
      MOUNTS_V1,
      GROUP_V1,
      {"m/a/b/memory.limit_in_bytes", "50000\n"},
      {"m/a/b/memory.usage_in_bytes", "20000\n"},
      {"m/a/b/memory.stat", "inactive_file 9999\ntotal_inactive_file 600\ntotal_active_file 400\n"},
      {"m/memory.limit_in_bytes", UNLIMITED},
      {"m/memory.usage_in_bytes", "123456\n"}}},
    {"v1: full",
     0,
     0,
     {MEMINFO("100"),
      MOUNTS_V1,
      GROUP_V1,
      {"m/a/memory.limit_in_bytes", "50000\n"},
      {"m/a/memory.usage_in_bytes", "50000\n"}}},
};

static char root[64];

static void make_root(void)
{
    snprintf(root, sizeof root, "/tmp/sluice-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static int remove_one(const char *name, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(name);
}

static void remove_root(void)
{
    ck_assert_int_eq(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void write_file(const char *name, const char *text)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + strlen(root); (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = 0;
        ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = n < (int)sizeof path ? fopen(path, "w") : NULL;
    ck_assert_msg(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

START_TEST(lowest_bound)
{
    const struct machine *m = &machines[_i];
    for (int i = 0; i < FILES_MAX && m->files[i].path; i++)
        write_file(m->files[i].path, m->files[i].text);
    uint64_t memory = memory_available_at(root), cgroup = cgroup_available_at(root);
    ck_assert_msg(memory == m->memory, "%s: %" PRIu64, m->what, memory);
    ck_assert_msg(cgroup == m->cgroup, "%s: cgroup %" PRIu64, m->what, cgroup);
}
END_TEST

START_TEST(this_machine)
{
    ck_assert_uint_lt(memory_available(), UINT64_MAX);
}
END_TEST

START_TEST(this_process)
{
    size_t bytes = 64 << 20;
    uint64_t before = memory_private();
    char *at = malloc(bytes);
    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; i < bytes; i += 4096)
        *(volatile char *)(at + i) = 1;
    uint64_t with = memory_private();
    ck_assert(before > 0 && with >= before + bytes / 2 && with <= before + 2 * bytes);
    free(at);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *cases = tcase_create("available");
    tcase_add_checked_fixture(cases, make_root, remove_root);
    tcase_add_loop_test(cases, lowest_bound, 0, (int)(sizeof machines / sizeof *machines));
    tcase_add_test(cases, this_machine);
    tcase_add_test(cases, this_process);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
