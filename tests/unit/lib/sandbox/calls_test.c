/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp: every profile in a process of its own, which then makes system calls that are forbidden
 * or permitted. Nothing here depends on the engine's programs. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/sandbox/sandbox.h"
#include "tests/unit/lib/sandbox/attempt.h"

static const char *const profile_names[] = {
#define SANDBOX_PROFILE(id, name, groups, files, network) name,
#include "lib/sandbox/profiles.tbl.h"
};

static int report[2]; /* of on_violation */
static char reported[SANDBOX_TEXT_BYTES];

static void on_violation(const char *text, void *arg)
{
    (void)arg;
    ssize_t n = write(report[1], text, strlen(text) + 1);
    (void)n;
}

/* Status of a process that enters the profile and attempts something; 128 + signal. */
static int attempt(enum sandbox_profile profile, long (*action)(void))
{
    ck_assert_int_eq(pipe2(report, O_CLOEXEC | O_NONBLOCK), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        uint32_t parts = 0;
        struct error error;
        if (sandbox_calls(profile, on_violation, NULL, &parts, &error) != 0 ||
            !(parts & SANDBOX_SECCOMP))
            _exit(NO_SANDBOX);
        _exit(outcome(action()));
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    memset(reported, 0, sizeof reported);
    ssize_t n = read(report[0], reported, sizeof reported - 1);
    (void)n;
    close(report[0]);
    close(report[1]);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- forbidden in every profile ---- */

static long do_execve(void)
{
    char *const argv[] = {"/bin/true", NULL};
    return execve(argv[0], argv, argv + 1);
}

static long do_fork(void)
{
    return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static long do_ptrace(void)
{
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static long do_read_other(void)
{
    char byte;
    struct iovec local = {&byte, 1}, remote = {&byte, 1};
    return process_vm_readv(getppid(), &local, 1, &remote, 1, 0);
}

static long do_tcp(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static long do_udp(void)
{
    return socket(AF_INET, SOCK_DGRAM, 0);
}

/* Landlock does not restrict its ports. */
static long do_mptcp(void)
{
    return socket(AF_INET, SOCK_STREAM, 262);
}

static long do_other_stream(void)
{
    return socket(AF_VSOCK, SOCK_STREAM, 0);
}

static long do_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0);
}

static long do_kill_parent(void)
{
    return kill(getppid(), 0);
}

static long do_ring(void)
{
    char params[256] = {0};
    return syscall(SYS_io_uring_setup, 4, params);
}

static long do_ring_register(void)
{
    return syscall(SYS_io_uring_register, 3, 0, NULL, 0);
}

static long do_mount(void)
{
    return syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL);
}

static long do_dumpable(void)
{
    return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static long do_limit(void)
{
    struct rlimit limit = {1, 1};
    return syscall(SYS_prlimit64, 0, RLIMIT_CORE, &limit, NULL);
}

static long do_bpf(void)
{
    return syscall(SYS_bpf, 0, NULL, 0);
}

static long do_filter(void)
{
    return syscall(SYS_seccomp, 0, 0, NULL);
}

static long do_rename(void)
{
    return syscall(SYS_renameat2, AT_FDCWD, "/tmp/sandbox-test-none", AT_FDCWD, "/tmp/b", 0);
}

static long do_renameat(void)
{
    return syscall(SYS_renameat, AT_FDCWD, "/tmp/sandbox-test-none", AT_FDCWD, "/tmp/b");
}

static long do_time_of_file(void)
{
    return syscall(SYS_utimensat, -1, "sandbox-test-none", NULL, 0);
}

static long do_space_of_device(void)
{
    return syscall(SYS_fstatfs, -1, NULL);
}

static long do_lock_of_file(void)
{
    return syscall(SYS_flock, -1, LOCK_EX);
}

static long do_sync(void)
{
    return syscall(SYS_fdatasync, -1);
}

static long do_remove_directory(void)
{
    return rmdir("/tmp/sandbox-test-none");
}

static long do_mkdir(void)
{
    return syscall(SYS_mkdirat, AT_FDCWD, "/tmp/sandbox-test-none/x", 0700);
}

#define ALL         (~0u)
#define P(id)       (1u << SANDBOX_##id)
#define SUPERVISORS (P(SUPERVISOR) | P(SUPERVISOR_GPU) | P(SUPERVISOR_NET) | P(SUPERVISOR_GPU_NET))
#define GPUS        (P(COMPUTE_GPU) | P(COMPUTE_GPU_FILES))
#define DRIVERS     (P(SUPERVISOR_GPU) | P(SUPERVISOR_GPU_NET) | GPUS)
#define CARRIERS    (P(FETCH) | P(PUSH)) /* of models and stores, from and to servers */
#define NET_CACHES  (P(LOADER_NET_CACHE) | P(LOADER_TLS_CACHE) | P(LOADER_CEPH_CACHE))
#define CACHES      (P(LOADER_CACHE) | NET_CACHES)
#define SERVERS     (P(LOADER_NET) | P(LOADER_TLS) | P(LOADER_CEPH) | CARRIERS | NET_CACHES)
#define NETS        (P(SUPERVISOR_NET) | P(SUPERVISOR_GPU_NET) | SERVERS)
#define FAILS       (SUPERVISORS | GPUS) /* with EPERM, where others end */
#define ASKS        (P(LOADER_CEPH) | P(LOADER_CEPH_CACHE) | CARRIERS) /* socket: EACCES */
#define PREFIXES    (P(COMPUTE_FILES) | P(COMPUTE_GPU_FILES))          /* with --prefix-dir */
#define NAMERS      (P(PACK) | CARRIERS) /* make, name and remove files of a directory */
#define FILES       (PREFIXES | NAMERS)

/* By every profile; `start`: except the supervisors', which start processes. */
static const struct {
    const char *call;
    long (*action)(void);
    bool start;
} forbidden[] = {{"execve", do_execve, true},       {"clone", do_fork, true},
                 {"ptrace", do_ptrace, false},      {"process_vm_readv", do_read_other, false},
                 {"socket", do_netlink, false},     {"kill", do_kill_parent, true},
                 {"io_uring_setup", do_ring, true}, {"io_uring_register", do_ring_register, true},
                 {"mount", do_mount, false},        {"prctl", do_dumpable, false},
                 {"prlimit64", do_limit, true},     {"bpf", do_bpf, false},
                 {"seccomp", do_filter, true}};

START_TEST(forbidden_everywhere)
{
    if (unavailable())
        return;
    for (int p = 0; p < SANDBOX_PROFILE__COUNT; p++)
        for (size_t i = 0; i < ARRAY_LEN(forbidden); i++) {
            char expected[SANDBOX_TEXT_BYTES];
            int n = snprintf(expected, sizeof expected, "forbidden system call %s (",
                             forbidden[i].call);
            if (FAILS >> p & 1)
                continue; /* below */
            int status = attempt((enum sandbox_profile)p, forbidden[i].action);
            if (ASKS >> p & 1 && forbidden[i].action == do_netlink) {
                ck_assert_int_eq(status, FAILED_EACCES);
                continue;
            }
            ck_assert_msg(status == 128 + SIGSYS, "%s, %s: status %d", profile_names[p],
                          forbidden[i].call, status);
            ck_assert_msg(strncmp(reported, expected, (size_t)n) == 0, "%s, %s: reported '%s'",
                          profile_names[p], forbidden[i].call, reported);
        }
}
END_TEST

static long do_setns(void)
{
    return syscall(SYS_setns, -1, 0);
}

static long do_unshare(void)
{
    return syscall(SYS_unshare, CLONE_NEWUSER);
}

static long do_setuid(void)
{
    return syscall(SYS_setuid, getuid());
}

static void check_failing(int p)
{
    static long (*const more[])(void) = {do_setns, do_unshare, do_setuid};
    for (size_t i = 0; i < ARRAY_LEN(forbidden); i++) {
        int status = attempt((enum sandbox_profile)p, forbidden[i].action);
        ck_assert_msg(forbidden[i].start && (SUPERVISORS >> p & 1)
                          ? status == PERMITTED || status == FAILED_OTHER
                          : status == FAILED_EPERM,
                      "%s, %s: status %d", profile_names[p], forbidden[i].call, status);
    }
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        ck_assert_int_eq(attempt((enum sandbox_profile)p, more[i]), FAILED_EPERM);
}

/* The supervisors, whose end is that of the engine, and a process with a driver. */
START_TEST(forbidden_without_an_end)
{
    if (unavailable())
        return;
    for (int p = 0; p < SANDBOX_PROFILE__COUNT; p++)
        if (FAILS >> p & 1)
            check_failing(p);
}
END_TEST

/* ---- forbidden in some ---- */

static long do_open(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static long do_create(void)
{
    return open("/tmp/sandbox-test", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

static long do_unix(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long do_bind(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    return bind(-1, (struct sockaddr *)&at, sizeof at);
}

static long do_unlink(void)
{
    return syscall(SYS_unlinkat, AT_FDCWD, "/tmp/sandbox-test-none", 0);
}

static long do_executable(void)
{
    void *p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? -1 : 0;
}

static long do_ioctl(void)
{
    return syscall(SYS_ioctl, 0, 0x5401, NULL);
}

/* Of a device: not that of a terminal. */
static long do_device_call(void)
{
    long rc = ioctl(eventfd(0, EFD_CLOEXEC), FIOCLEX);
    if (rc < 0 && errno == ENOTTY)
        errno = EACCES; /* what the filter returns, apart from other errors */
    return rc;
}

static long do_lock(void)
{
    static char page[PAGE_BYTES];
    return mlock(page, sizeof page);
}

static long do_memory_file(void)
{
    return memfd_create("sandbox-test", MFD_CLOEXEC);
}

static long do_size_file(void)
{
    return ftruncate(-1, 1);
}

static long do_write_file(void)
{
    return pwrite(-1, "x", 1, 0);
}

#define WRITERS (P(INSPECT) | P(INSPECT_STORE) | P(RECORDER) | NAMERS | CACHES)
#if defined __x86_64__
#define REMOVES_DIRECTORIES (SUPERVISORS | NAMERS)
#else
#define REMOVES_DIRECTORIES (FAILS | P(COMPUTE) | P(COMPUTE_FILES) | NAMERS) /* by unlinkat */
#endif
#define OPENS                                                                                      \
    (FAILS | P(LOADER_TLS) | P(LOADER_TLS_CACHE) | P(LOADER_CEPH) | P(LOADER_CEPH_CACHE) |         \
     P(COMPUTE_FILES) | P(INSPECT_STORE) | NAMERS | P(GATEWAY_LOG))

static const struct {
    const char *name;
    long (*action)(void);
    uint32_t permitted; /* profiles */
    int otherwise;
} partly[] = {
    {"open", do_open, OPENS, FAILED_EACCES},
    {"create", do_create, OPENS, FAILED_EACCES}, /* Landlock: see files_of_rules */
    {"unix socket", do_unix, ALL & ~(P(INSPECT) | P(INSPECT_STORE) | P(PACK)), 128 + SIGSYS},
    {"TCP", do_tcp, NETS, 128 + SIGSYS},
    {"UDP", do_udp, 0, 128 + SIGSYS},
    {"MPTCP", do_mptcp, 0, 128 + SIGSYS},
    {"streams of another family", do_other_stream, 0, 128 + SIGSYS},
    {"bind", do_bind, FAILS | P(COMPUTE) | P(COMPUTE_FILES), 128 + SIGSYS},
    {"unlink", do_unlink, FAILS | P(COMPUTE) | FILES, 128 + SIGSYS},
    {"renameat", do_renameat, SUPERVISORS | FILES, 128 + SIGSYS},
    {"space of a device", do_space_of_device, SUPERVISORS | FILES, 128 + SIGSYS},
    {"lock of a file", do_lock_of_file, SUPERVISORS | FILES, 128 + SIGSYS},
    {"time of a file", do_time_of_file, SUPERVISORS | PREFIXES, 128 + SIGSYS},
    {"renameat2", do_rename, SUPERVISORS | NAMERS, 128 + SIGSYS},
    {"mkdir", do_mkdir, SUPERVISORS | NAMERS, 128 + SIGSYS},
    {"rmdir", do_remove_directory, REMOVES_DIRECTORIES, 128 + SIGSYS},
    {"fdatasync", do_sync, SUPERVISORS | WRITERS, 128 + SIGSYS},
    {"executable memory", do_executable, FAILS, 128 + SIGSYS},
    {"pwrite", do_write_file, SUPERVISORS | WRITERS | PREFIXES, 128 + SIGSYS},
    {"call of a device", do_device_call, DRIVERS, FAILED_EACCES},
    {"locked memory", do_lock, DRIVERS, 128 + SIGSYS},
    {"file in memory", do_memory_file, FAILS, 128 + SIGSYS},
    {"size of a file", do_size_file, FAILS | WRITERS, 128 + SIGSYS},
    {"ioctl", do_ioctl, ALL, 0}, /* fails, or is the driver's: ends no process */
};

static int otherwise(int p, size_t row)
{
    long (*action)(void) = partly[row].action;
    bool is_socket = action == do_udp || action == do_mptcp || action == do_other_stream;
    if (partly[row].otherwise != 128 + SIGSYS)
        return partly[row].otherwise;
    return FAILS >> p & 1               ? FAILED_EPERM
           : ASKS >> p & 1 && is_socket ? FAILED_EACCES
                                        : 128 + SIGSYS;
}

START_TEST(forbidden_in_some)
{
    if (unavailable())
        return;
    for (int p = 0; p < SANDBOX_PROFILE__COUNT; p++)
        for (size_t i = 0; i < ARRAY_LEN(partly); i++) {
            int status = attempt((enum sandbox_profile)p, partly[i].action);
            bool permitted = (partly[i].permitted >> p & 1) != 0;
            ck_assert_msg(permitted ? status == PERMITTED || status == FAILED_OTHER
                                    : status == otherwise(p, i),
                          "%s, %s: status %d", profile_names[p], partly[i].name, status);
        }
    unlink("/tmp/sandbox-test");
}
END_TEST

/* ---- permitted in every profile ---- */

static void *nothing(void *arg)
{
    return arg;
}

/* What the C library does in any program: threads, memory, time, random numbers. */
static long do_ordinary(void)
{
    pthread_t thread;
    struct timespec ts;
    char byte;
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return -1;
    char *memory = malloc(64 * MIB);
    if (!memory)
        return -1;
    memset(memory, 1, MIB);
    memory = realloc(memory, 128 * MIB);
    free(memory);
    if (clock_gettime(CLOCK_MONOTONIC, &ts) != 0 || getentropy(&byte, 1) != 0 ||
        prctl(PR_SET_NAME, "ordinary") != 0 || sysconf(_SC_NPROCESSORS_ONLN) < 1)
        return -1;
    signal(SIGUSR1, SIG_IGN);
    return raise(SIGUSR1);
}

static long do_abort(void)
{
    abort();
}

START_TEST(permitted_everywhere)
{
    if (unavailable())
        return;
    for (int p = 0; p < SANDBOX_PROFILE__COUNT; p++) {
        int status = attempt((enum sandbox_profile)p, do_ordinary);
        ck_assert_msg(status == PERMITTED, "%s: status %d: %s", profile_names[p], status, reported);
        status = attempt((enum sandbox_profile)p, do_abort);
        ck_assert_msg(status == 128 + SIGABRT, "%s: abort: status %d", profile_names[p], status);
    }
}
END_TEST

/* ---- another thread ---- */

static int go[2];

static void *forbidden_thread(void *arg)
{
    char byte;
    (void)arg;
    if (read(go[0], &byte, 1) == 1)
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    _exit(PERMITTED);
}

/* A thread that was there before is restricted, too. */
START_TEST(threads_before)
{
    if (unavailable())
        return;
    ck_assert_int_eq(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        uint32_t parts = 0;
        struct error error;
        pthread_create(&thread, NULL, forbidden_thread, NULL);
        if (sandbox_calls(SANDBOX_CACHE, NULL, NULL, &parts, &error) != 0 ||
            write(go[1], "x", 1) != 1)
            _exit(NO_SANDBOX);
        pthread_join(thread, NULL);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    close(go[0]);
    close(go[1]);
}
END_TEST

/* ---- other architectures ---- */

#if defined __x86_64__
static long do_x32(void)
{
    return syscall(0x40000000 + SYS_getpid);
}

/* getpid of 32-bit programs */
static long do_32bit(void)
{
    long rc;
    __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20L) : "memory");
    return rc < 0 ? (errno = EACCES, -1) : rc;
}

START_TEST(other_architectures)
{
    if (unavailable())
        return;
    ck_assert_int_eq(attempt(SANDBOX_COMPUTE, do_x32), 128 + SIGSYS);
    int status = attempt(SANDBOX_COMPUTE, do_32bit); /* SIGSEGV: a kernel without them */
    ck_assert_msg(status == 128 + SIGSYS || status == 128 + SIGSEGV, "status %d", status);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("sandbox calls");
    TCase *c = tcase_create("sandbox calls");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, forbidden_everywhere);
    tcase_add_test(c, forbidden_without_an_end);
    tcase_add_test(c, forbidden_in_some);
    tcase_add_test(c, permitted_everywhere);
    tcase_add_test(c, threads_before);
#if defined __x86_64__
    tcase_add_test(c, other_architectures);
#endif
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
