/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what seccomp cannot see: operations through a ring of io_uring, files (Landlock),
 * variables. Nothing here depends on the engine's programs. */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/io/io_ring.h"
#include "lib/sandbox/sandbox.h"
#include "tests/unit/lib/sandbox/attempt.h"

/* ---- the ring ---- */

/* Result of one operation on a ring made by the loader's backend, after it entered its profile. */
static int ring_attempt(void (*prepare)(struct io_uring_sqe *))
{
    pid_t pid = fork();
    if (pid == 0) {
        struct io_uring ring;
        struct io_uring_cqe *cqe;
        struct error error;
        bool restricted;
        uint32_t parts = 0;
        if (io_ring_open(&ring, 4, eventfd(0, EFD_CLOEXEC), &restricted) != 0 || !restricted ||
            sandbox_calls(SANDBOX_LOADER, NULL, NULL, &parts, &error) != 0)
            _exit(NO_SANDBOX);
        prepare(io_uring_get_sqe(&ring));
        if (io_uring_submit(&ring) < 0 || io_uring_wait_cqe(&ring, &cqe) != 0)
            _exit(FAILED_OTHER);
        _exit(cqe->res >= 0 ? PERMITTED : FAILED_EACCES);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char ring_byte;
static int ring_file;

static void prepare_read(struct io_uring_sqe *sqe)
{
    io_uring_prep_read(sqe, ring_file, &ring_byte, 1, 0);
}

static void prepare_write(struct io_uring_sqe *sqe)
{
    io_uring_prep_write(sqe, ring_file, &ring_byte, 1, 0);
}

static void prepare_open(struct io_uring_sqe *sqe)
{
    io_uring_prep_openat(sqe, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
}

static void prepare_socket(struct io_uring_sqe *sqe)
{
    io_uring_prep_rw(45 /* IORING_OP_SOCKET */, sqe, AF_INET, NULL, 0, SOCK_STREAM);
}

static void prepare_connect(struct io_uring_sqe *sqe)
{
    static const struct sockaddr_in at = {.sin_family = AF_INET};
    io_uring_prep_connect(sqe, ring_file, (const struct sockaddr *)&at, sizeof at);
}

static void prepare_link(struct io_uring_sqe *sqe)
{
    prepare_read(sqe);
    sqe->flags |= IOSQE_IO_LINK;
}

START_TEST(ring_reads_only)
{
    struct io_uring probe;
    if (unavailable())
        return;
    if (io_uring_queue_init(2, &probe, IORING_SETUP_R_DISABLED) != 0) {
        printf("SKIP ring: no io_uring that can be restricted\n");
        return;
    }
    io_uring_queue_exit(&probe);
    char path[] = "/tmp/sandbox-ring-XXXXXX";
    ring_file = mkstemp(path);
    ck_assert_int_ge(ring_file, 0);
    unlink(path);
    ck_assert_int_eq(write(ring_file, "x", 1), 1);
    ck_assert_int_eq(ring_attempt(prepare_read), PERMITTED);
    ck_assert_int_eq(ring_attempt(prepare_write), FAILED_EACCES);
    ck_assert_int_eq(ring_attempt(prepare_open), FAILED_EACCES);
    ck_assert_int_eq(ring_attempt(prepare_socket), FAILED_EACCES);
    ck_assert_int_eq(ring_attempt(prepare_connect), FAILED_EACCES);
    ck_assert_int_eq(ring_attempt(prepare_link), FAILED_EACCES);
    close(ring_file);
}
END_TEST

/* ---- files ---- */

static char files_dir[] = "/tmp/sandbox-files-XXXXXX";

static int try_files(const struct sandbox_rule *rules, size_t count, const char *path, int flags)
{
    pid_t pid = fork();
    if (pid == 0) {
        uint32_t parts = 0;
        struct error error;
        if (sandbox_files(rules, count, &parts, &error) != 0 || !(parts & SANDBOX_LANDLOCK))
            _exit(NO_SANDBOX);
        _exit(outcome(open(path, flags | O_CLOEXEC, 0600)));
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* Renames a file in the directory, then makes a directory there. */
static int try_names(uint32_t access, bool directory)
{
    const struct sandbox_rule rule = {files_dir, access};
    char from[64], to[64];
    snprintf(from, sizeof from, "%s/inside", files_dir);
    snprintf(to, sizeof to, "%s/%s", files_dir, directory ? "directory" : "renamed");
    pid_t pid = fork();
    if (pid == 0) {
        uint32_t parts = 0;
        struct error error;
        if (sandbox_files(&rule, 1, &parts, &error) != 0 || !(parts & SANDBOX_LANDLOCK))
            _exit(NO_SANDBOX);
        int rc = outcome(directory ? mkdir(to, 0700) : rename(from, to));
        _exit(rc != PERMITTED ? rc : outcome(directory ? rmdir(to) : rename(to, from)));
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

START_TEST(files_of_rules)
{
    unsigned landlock;
    if (sandbox_disabled() || !(sandbox_available(&landlock) & SANDBOX_LANDLOCK)) {
        printf("SKIP files: no Landlock\n");
        return;
    }
    char inside[64], made[64], link[64];
    ck_assert_ptr_nonnull(mkdtemp(files_dir));
    snprintf(inside, sizeof inside, "%s/inside", files_dir);
    snprintf(made, sizeof made, "%s/made", files_dir);
    snprintf(link, sizeof link, "%s/link", files_dir);
    ck_assert_int_eq(symlink(inside, link), 0);
    close(open(inside, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const struct sandbox_rule read_dir = {files_dir, SANDBOX_READ},
                              read_file = {inside, SANDBOX_READ},
                              write_dir = {files_dir, SANDBOX_WRITE},
                              files = {files_dir, SANDBOX_FILES}, file = {inside, SANDBOX_FILE},
                              by_link = {link, SANDBOX_FILE},
                              sockets = {files_dir, SANDBOX_SOCKETS};
    ck_assert_int_eq(try_files(NULL, 0, inside, O_RDONLY), FAILED_EACCES);
    ck_assert_int_eq(try_files(&read_dir, 1, inside, O_RDONLY), PERMITTED);
    ck_assert_int_eq(try_files(&read_dir, 1, inside, O_WRONLY), FAILED_EACCES);
    ck_assert_int_eq(try_files(&read_dir, 1, made, O_WRONLY | O_CREAT), FAILED_EACCES);
    ck_assert_int_eq(try_files(&read_dir, 1, "/etc/passwd", O_RDONLY), FAILED_EACCES);
    ck_assert_int_eq(try_files(&read_file, 1, inside, O_RDONLY), PERMITTED);
    ck_assert_int_eq(try_files(&sockets, 1, inside, O_RDONLY), FAILED_EACCES);
    ck_assert_int_eq(try_files(&write_dir, 1, made, O_WRONLY | O_CREAT), PERMITTED);
    ck_assert_int_eq(try_files(&write_dir, 1, "/etc/passwd", O_RDONLY), FAILED_EACCES);
    ck_assert_int_eq(try_files(&files, 1, made, O_RDWR | O_CREAT | O_TRUNC), PERMITTED);
    ck_assert_int_eq(try_files(&files, 1, "/etc/passwd", O_RDONLY), FAILED_EACCES);
    ck_assert_int_eq(try_files(&file, 1, inside, O_RDWR | O_TRUNC), PERMITTED);
    ck_assert_int_eq(try_files(&file, 1, made, O_RDWR), FAILED_EACCES);
    ck_assert_int_eq(try_files(&by_link, 1, inside, O_RDWR), FAILED_EACCES);
    ck_assert_int_eq(try_names(SANDBOX_FILES, false), PERMITTED);
    ck_assert_int_eq(try_names(SANDBOX_FILES, true), FAILED_EACCES);
    ck_assert_int_eq(try_names(SANDBOX_WRITE, true), PERMITTED);
    unlink(link);
    unlink(inside);
    unlink(made);
    rmdir(files_dir);
}
END_TEST

static int try_ioctl(const char *path, uint32_t access)
{
    const struct sandbox_rule rule = {path, access};
    pid_t pid = fork();
    if (pid == 0) {
        uint32_t parts = 0;
        struct error error;
        int fd, number;
        if (sandbox_files(&rule, 1, &parts, &error) != 0 || !(parts & SANDBOX_LANDLOCK))
            _exit(NO_SANDBOX);
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
        _exit(fd < 0 ? FAILED_OTHER : outcome(ioctl(fd, TIOCGPTN, &number)));
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static int try_connect(uint16_t port, const char *permitted)
{
    const struct sandbox_rule rule = {permitted, SANDBOX_CONNECT};
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pid_t pid = fork();
    if (pid == 0) {
        uint32_t parts = 0;
        struct error error;
        if (sandbox_files(&rule, 1, &parts, &error) != 0 || !(parts & SANDBOX_NO_TCP))
            _exit(NO_SANDBOX);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        _exit(outcome(connect(fd, (const struct sockaddr *)&to, sizeof to)));
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* Since version 4. */
START_TEST(ports_of_rules)
{
    unsigned landlock = 0;
    if (sandbox_disabled() || !(sandbox_available(&landlock) & SANDBOX_LANDLOCK) || landlock < 4) {
        printf("SKIP ports: no Landlock for TCP\n");
        return;
    }
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof own;
    char port[8], list[32];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, bytes), 0);
    ck_assert_int_eq(listen(fd, 4), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&own, &bytes), 0);
    snprintf(port, sizeof port, "%u", (unsigned)ntohs(own.sin_port));
    ck_assert_int_eq(try_connect(ntohs(own.sin_port), port), PERMITTED);
    ck_assert_int_eq(try_connect(ntohs(own.sin_port), "1"), FAILED_EACCES);
    unsigned here = ntohs(own.sin_port);
    snprintf(list, sizeof list, "1,%u-%u,2", here - 1, here + 1);
    ck_assert_int_eq(try_connect(ntohs(own.sin_port), list), PERMITTED);
    snprintf(list, sizeof list, "%u,1-%u", here + 1, here - 1);
    ck_assert_int_eq(try_connect(ntohs(own.sin_port), list), FAILED_EACCES);
    close(fd);
}
END_TEST

/* Since version 5 of Landlock, calls of a driver need a right of their own. */
START_TEST(devices_of_rules)
{
    static const char path[] = "/dev/ptmx";
    unsigned landlock;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (sandbox_disabled() || !(sandbox_available(&landlock) & SANDBOX_LANDLOCK) || fd < 0) {
        printf("SKIP devices: no Landlock, or no %s\n", path);
        return;
    }
    close(fd);
    ck_assert_int_eq(try_ioctl(path, SANDBOX_DEVICE), PERMITTED);
    ck_assert_int_eq(try_ioctl(path, SANDBOX_WRITE), landlock >= 5 ? FAILED_EACCES : PERMITTED);
}
END_TEST

START_TEST(variables)
{
    ck_assert(sandbox_keeps_variable("TZ=UTC"));
    ck_assert(!sandbox_keeps_variable("TZX=UTC"));
    ck_assert(sandbox_keeps_variable("CUDA_VISIBLE_DEVICES=1"));
    ck_assert(!sandbox_keeps_variable("LD_PRELOAD=/tmp/x.so"));
    ck_assert(!sandbox_keeps_variable("AWS_SECRET_ACCESS_KEY=1"));
    ck_assert(sandbox_secret_variable("AWS_SECRET_ACCESS_KEY=1"));
    ck_assert(!sandbox_secret_variable("TZ=UTC"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sandbox access");
    TCase *c = tcase_create("sandbox access");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, ring_reads_only);
    tcase_add_test(c, files_of_rules);
    tcase_add_test(c, devices_of_rules);
    tcase_add_test(c, ports_of_rules);
    tcase_add_test(c, variables);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
