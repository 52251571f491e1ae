/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: signatures, names, full file systems. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/arena/arena.h"
#include "shm/directory/directory.h"
#include "shm/kv/kv.h"
#include "shm/rings/access_log.h"
#include "shm/rings/gates.h"
#include "shm/table/process_table.h"
#include "tests/unit/shm/shm_test.h"

static unsigned names_in_dev_shm(const char *part)
{
    unsigned n = 0;
    DIR *d = opendir("/dev/shm");
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

START_TEST(every_kind_attaches)
{
    for (int kind = 0; kind < SEGMENT__COUNT; kind++) {
        struct segment s = test_segment((enum segment_kind)kind, 3 * PAGE_BYTES + 1), t;
        struct error e;
        ck_assert_uint_eq(s.bytes, 4 * PAGE_BYTES);
        ck_assert(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
        ck_assert_uint_eq(segment_allocated_bytes(s.fd),
                          segment_fixed_bytes((enum segment_kind)kind, s.bytes));
        ck_assert_int_eq(segment_attach(dup(s.fd), (enum segment_kind)kind, true, BOOT, &t, &e), 0);
        ((char *)t.base)[SEGMENT_HEAD_BYTES] = 77;
        ck_assert_int_eq(((char *)s.base)[SEGMENT_HEAD_BYTES], 77);
        segment_detach(&t);
        ck_assert_int_eq(t.fd, -1);
        segment_detach(&s);
    }
    char tag[32];
    snprintf(tag, sizeof tag, "test-%d", (int)getpid());
    ck_assert_uint_eq(names_in_dev_shm(tag), 0);
}
END_TEST

static void expect_attach_error(struct segment *s, enum segment_kind kind, uint64_t boot,
                                const char *text)
{
    struct segment t;
    struct error e = {.text = ""};
    ck_assert_int_eq(segment_attach(s->fd, kind, false, boot, &t, &e), -1);
    ck_assert_int_eq(e.code, ERR_FAILED);
    ck_assert_msg(strstr(e.text, text) != NULL, "'%s' lacks '%s'", e.text, text);
    ck_assert_int_ge(fcntl(s->fd, F_GETFD), 0); /* still the caller's */
}

START_TEST(mismatches_name_both_values)
{
    struct segment s = test_segment(SEGMENT_ACCESS_LOG, access_log_bytes());
    struct segment_head *head = s.base, right = *head;
    expect_attach_error(&s, SEGMENT_ACCESS_LOG, BOOT + 1,
                        "boot generation is 0x1234, this program expects 0x1235");
    expect_attach_error(&s, SEGMENT_KV, BOOT, "kv segment: kind is 0x4, this program expects 0x5");
    head->magic = 0x77;
    expect_attach_error(&s, SEGMENT_ACCESS_LOG, BOOT, "magic is 0x77, this program expects 0x");
    *head = right;
    head->version = 9;
    expect_attach_error(&s, SEGMENT_ACCESS_LOG, BOOT,
                        "layout version is 0x9, this program expects 0x1");
    *head = right;
    head->layout_hash ^= 1;
    expect_attach_error(&s, SEGMENT_ACCESS_LOG, BOOT, "layout hash is 0x");
    *head = right;
    head->bytes = 4096;
    expect_attach_error(&s, SEGMENT_ACCESS_LOG, BOOT, "size is 0x1000, this program expects 0x");
    segment_detach(&s);
}
END_TEST

START_TEST(not_a_segment)
{
    struct segment t, s = {.fd = open("/dev/null", O_RDONLY)};
    struct error e;
    expect_attach_error(&s, SEGMENT_ACCESS_LOG, 0, "is not a segment");
    close(s.fd);
    ck_assert_int_eq(segment_attach(-1, SEGMENT_ACCESS_LOG, false, 0, &t, &e), -1);
}
END_TEST

START_TEST(layout_hashes_differ)
{
    for (int a = 0; a < SEGMENT__COUNT; a++)
        for (int b = 0; b < a; b++)
            ck_assert_uint_ne(segment_layout_hash((enum segment_kind)a),
                              segment_layout_hash((enum segment_kind)b));
}
END_TEST

START_TEST(readonly_descriptor)
{
    struct segment s = test_segment(SEGMENT_ACCESS_LOG, access_log_bytes()), t;
    struct error e;
    int fd = segment_reopen_readonly(s.fd, &e);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(segment_attach(fd, SEGMENT_ACCESS_LOG, true, BOOT, &t, &e), -1);
    ck_assert_int_eq(segment_attach(fd, SEGMENT_ACCESS_LOG, false, BOOT, &t, &e), 0);
    segment_detach(&t);
    segment_detach(&s);
}
END_TEST

static void leave_name(const char *name)
{
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

/* A file under the name that a run and a kind alone give: another user may make it in advance. */
START_TEST(guessed_names_stop_nothing)
{
    char tag[32];
    snprintf(tag, sizeof tag, "guess-%d", (int)getpid());
    for (int kind = 0; kind < SEGMENT__COUNT; kind++) {
        char name[64];
        struct segment s;
        struct error e;
        snprintf(name, sizeof name, "/sluice.%u.%s.%s", (unsigned)geteuid(), tag,
                 segment_name((enum segment_kind)kind));
        leave_name(name);
        int rc = segment_create((enum segment_kind)kind, tag, BOOT, PAGE_BYTES, &s, &e);
        shm_unlink(name);
        ck_assert_int_eq(rc, 0);
        segment_detach(&s);
    }
    ck_assert_uint_eq(names_in_dev_shm(tag), 0);
}
END_TEST

/* Names of this run go; those of a run whose tag only begins alike, and of another user, stay. */
START_TEST(stale_names_go)
{
    static const char *const ends[] = {"0123456789abcdef", "fedcba9876543210",
                                       "other.0123456789abcdef", "0123456789abcdef0", "arena"};
    char tag[32], name[5][96];
    unsigned user = (unsigned)geteuid(), last = 5;
    snprintf(tag, sizeof tag, "stale-%d", (int)getpid());
    for (unsigned i = 0; i < last; i++) {
        snprintf(name[i], sizeof name[i], "/sluice.%u.%s.%s", user, tag, ends[i]);
        leave_name(name[i]);
    }
    char path[128];
    snprintf(path, sizeof path, "/dev/shm%s", name[1]);
    bool others = user == 0 && chown(path, 65534, 65534) == 0; /* only root can make one */
    segment_remove_stale(tag);
    unsigned left = names_in_dev_shm(tag), first_left = shm_unlink(name[0]) == 0;
    for (unsigned i = 1; i < last; i++)
        shm_unlink(name[i]);
    ck_assert_uint_eq(first_left, 0);
    ck_assert_uint_eq(left, others ? 4 : 3);
    ck_assert_uint_eq(names_in_dev_shm(tag), 0);
}
END_TEST

START_TEST(punch_and_allocate)
{
    struct segment s = test_segment(SEGMENT_ARENA, 64 * MIB);
    ck_assert_int_eq(segment_allocate(s.fd, 4 * MIB, 20 * MIB), 0);
    ck_assert_uint_eq(segment_allocated_bytes(s.fd), PAGE_BYTES + 20 * MIB);
    ((char *)s.base)[5 * MIB] = 1;
    ck_assert_int_eq(segment_punch(s.fd, 4 * MIB, 19 * MIB), 0); /* more than one slice */
    ck_assert_uint_eq(segment_allocated_bytes(s.fd), PAGE_BYTES + 1 * MIB);
    ck_assert_int_eq(((char *)s.base)[5 * MIB], 0);
    segment_detach(&s);
}
END_TEST

/* ---- a full /dev/shm: an error with a reason, never SIGBUS. A child process with a small one. */

static int create_on_full_tmpfs(void)
{
    struct segment s;
    struct error e = {.text = ""};
    if (segment_create(SEGMENT_ARENA, "full", BOOT, 64 * MIB, &s, &e) != 0)
        return 10; /* one page must still fit */
    if (segment_allocate(s.fd, PAGE_BYTES, 4 * MIB) != -ENOSPC)
        return 11;
    struct segment t;
    if (segment_create(SEGMENT_PROCS, "full", BOOT, 4 * MIB, &t, &e) == 0 ||
        e.code != ERR_NO_MEMORY || !strstr(e.text, "procs"))
        return 12;
    if (segment_allocate(s.fd, PAGE_BYTES, MIB - 2 * PAGE_BYTES) != 0)
        return 13;
    struct model_hparams h = {.layers = 2, .kv_heads = 2, .head_size = 64};
    struct kv_shape shape =
        kv_shape_of(&h, KV_TYPE_F16, 1024, 256, &(struct kv_counts){.sequences = 1});
    if (segment_create(SEGMENT_KV, "full", BOOT, kv_bytes(&shape), &t, &e) == 0)
        return 14;
    segment_detach(&s);
    if (segment_create(SEGMENT_KV, "full", BOOT, kv_bytes(&shape), &t, &e) != 0)
        return 15;
    struct kv kv;
    kv_format(t.base, &shape);
    if (kv_attach(t.fd, true, BOOT, &kv, &e) != 0)
        return 16;
    uint64_t first = 0;
    for (uint32_t tokens = 64; tokens <= 1024; tokens += 64) {
        uint64_t before = segment_allocated_bytes(t.fd);
        if (kv_slot_resize(&kv, 0, tokens, NULL, NULL, &e) == 0) {
            first = segment_allocated_bytes(t.fd);
            continue;
        }
        if (first == 0 || e.code != ERR_NO_MEMORY)
            return 17;
        /* the failed call must have left nothing */
        return segment_allocated_bytes(t.fd) == before ? 0 : 18;
    }
    return 19;
}

static uint64_t page_table_bytes(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmPTE: %lu", &kib) == 1)
            break;
    fclose(f);
    return kib * 1024;
}

/* 128 MiB of addresses have 256 KiB of tables once each page of them was used. */
START_TEST(punched_memory_has_no_page_tables)
{
    const uint64_t bytes = 128ull << 20, first = 4ull << 20;
    struct segment s = test_segment(SEGMENT_KV, first + bytes);
    volatile char *base = s.base;
    uint64_t before = page_table_bytes();
    for (uint64_t at = first; at < first + bytes; at += 64 * PAGE_BYTES) {
        ck_assert_int_eq(segment_allocate(s.fd, at, PAGE_BYTES), 0);
        base[at] = 1;
    }
    ck_assert_uint_ge(page_table_bytes(), before + bytes / 512 - PAGE_BYTES);
    ck_assert_int_eq(segment_punch(s.fd, first, bytes), 0);
    segment_free_tables(&s, first, bytes);
    ck_assert_uint_le(page_table_bytes(), before + 4 * PAGE_BYTES);
    ck_assert_int_eq(segment_allocate(s.fd, first, PAGE_BYTES), 0);
    base[first] = 7; /* the same file is there */
    char byte;
    ck_assert_int_eq(pread(s.fd, &byte, 1, (off_t)first), 1);
    ck_assert_int_eq(byte, 7);
    segment_free_tables(&s, first + PAGE_BYTES, PAGE_BYTES);
    ck_assert_int_eq(base[first], 7);
    segment_detach(&s);
}
END_TEST

START_TEST(full_tmpfs)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("small", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
            _exit(77);
        _exit(create_on_full_tmpfs());
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "signal %d", WTERMSIG(status)); /* SIGBUS would be 7 */
    if (WEXITSTATUS(status) == 77) {
        fprintf(stderr, "SKIP full_tmpfs: mounting a small /dev/shm needs root\n");
        return;
    }
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("segment");
    TCase *t = tcase_create("segment");
    tcase_add_test(t, every_kind_attaches);
    tcase_add_test(t, mismatches_name_both_values);
    tcase_add_test(t, not_a_segment);
    tcase_add_test(t, layout_hashes_differ);
    tcase_add_test(t, readonly_descriptor);
    tcase_add_test(t, guessed_names_stop_nothing);
    tcase_add_test(t, stale_names_go);
    tcase_add_test(t, punch_and_allocate);
    tcase_add_test(t, punched_memory_has_no_page_tables);
    tcase_add_test(t, full_tmpfs);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
