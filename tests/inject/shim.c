/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD that fails the N-th call of a kind, in one program. Tests only.
 *
 *   SLUICE_FAULT=PROGRAM:SITE:N[:MODE[:ERROR]]
 *     PROGRAM  compute, run, generate, ...: the process sluice-PROGRAM
 *     SITE     sites.tbl.h
 *     N        from 1
 *     MODE     once: this call (default); on: from it on, in that process; ever: the same, in every
 *              successor, too
 *     ERROR    number
 *   SLUICE_FAULT_FIRED=FILE  created when the call fails first; with `once` and `on`, a process
 *                            that finds it fails nothing. It holds the site and N.
 *
 * If the program then ends by SIGSEGV, SIGBUS or SIGABRT, it prints "fault_shim: signal N in
 * OBJECT": the program or library, other than the C library, that was running.
 *
 * Calls of glibc to itself are not seen (stdio's reads and writes, mmap of malloc), nor are those
 * of liburing, which makes its own system calls; its requests are changed when they are
 * submitted. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

enum site {
#define SITE(name, error) SITE_##name,
#include "tests/inject/sites.tbl.h"
    SITE__COUNT
};

static const char *const names[] = {
#define SITE(name, error) #name,
#include "tests/inject/sites.tbl.h"
};
static const int errors[] = {
#define SITE(name, error) error,
#include "tests/inject/sites.tbl.h"
};

enum mode { MODE_ONCE, MODE_ON, MODE_EVER };

static struct {
    bool armed;
    enum site site;
    enum mode mode;
    unsigned long n;
    int error;
    char fired[256];
    char label[64];
    atomic_ulong calls;
    atomic_bool firing; /* this process has failed its first call */
} fault;

/* ---- setting ---- */

static bool this_program(const char *name, size_t n)
{
    static const char prefix[] = "sluice-";
    const char *own = program_invocation_short_name;
    size_t skip = sizeof prefix - 1;
    return strncmp(own, prefix, skip) == 0 && strlen(own + skip) == n &&
           strncmp(own + skip, name, n) == 0;
}

static const char *field(const char **at, size_t *n)
{
    const char *start = *at;
    *n = strcspn(start, ":");
    *at = start + *n + (start[*n] == ':');
    return start;
}

static bool parse(const char *text)
{
    size_t n;
    const char *part = field(&text, &n);
    if (!this_program(part, n))
        return false;
    part = field(&text, &n);
    for (fault.site = 0; fault.site < SITE__COUNT; fault.site++)
        if (strlen(names[fault.site]) == n && strncmp(names[fault.site], part, n) == 0)
            break;
    if (fault.site == SITE__COUNT)
        return false;
    fault.n = strtoul(field(&text, &n), NULL, 10);
    part = field(&text, &n);
    fault.mode = strncmp(part, "on", n) == 0 && n == 2     ? MODE_ON
                 : n == 4 && strncmp(part, "ever", 4) == 0 ? MODE_EVER
                                                           : MODE_ONCE;
    part = field(&text, &n);
    fault.error = n > 0 ? (int)strtol(part, NULL, 10) : errors[fault.site];
    return fault.n > 0;
}

/* ---- a crash ---- */

#define FRAMES_MAX 64

static bool of_the_system(const char *object)
{
    static const char *const objects[] = {"/libc.so", "/libfault_shim", "/ld-linux", "/libgcc_s"};
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++)
        if (strstr(object, objects[i]))
            return true;
    return false;
}

static void on_crash(int number)
{
    void *frames[FRAMES_MAX];
    Dl_info info;
    const char *object = "?";
    for (int i = 0, n = backtrace(frames, FRAMES_MAX); i < n; i++)
        if (dladdr(frames[i], &info) && info.dli_fname && info.dli_fname[0] == '/' &&
            !of_the_system(info.dli_fname)) {
            object = info.dli_fname;
            break;
        }
    char line[512];
    int n = snprintf(line, sizeof line, "fault_shim: signal %d in %.400s\n", number, object);
    syscall(SYS_write, STDERR_FILENO, line, (size_t)n);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT};
    void *frame;
    backtrace(&frame, 1); /* loads what it needs */
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        signal(numbers[i], on_crash);
}

__attribute__((constructor)) static void arm(void)
{
    const char *text = getenv("SLUICE_FAULT"), *fired = getenv("SLUICE_FAULT_FIRED");
    if (!text || !fired || strlen(fired) >= sizeof fault.fired || !parse(text))
        return;
    strcpy(fault.fired, fired);
    snprintf(fault.label, sizeof fault.label, "%s %lu\n", names[fault.site], fault.n);
    watch_crashes();
    fault.armed = true;
}

/* ---- whether a call fails ---- */

/* The first failure of all processes; with `ever`, also those of successors. */
static bool claim(void)
{
    long fd =
        syscall(SYS_openat, AT_FDCWD, fault.fired, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fault.mode == MODE_EVER;
    syscall(SYS_write, fd, fault.label, strlen(fault.label));
    syscall(SYS_close, fd);
    return true;
}

static bool fails(enum site site)
{
    if (!fault.armed || fault.site != site)
        return false;
    int saved = errno;
    unsigned long call = atomic_fetch_add(&fault.calls, 1) + 1;
    bool yes = false;
    if (call == fault.n) {
        yes = claim();
        atomic_store(&fault.firing, yes);
    } else if (call > fault.n && fault.mode != MODE_ONCE) {
        yes = atomic_load(&fault.firing);
    }
    errno = yes ? fault.error : saved;
    return yes;
}

#define FAIL_IF(site, value)                                                                       \
    do {                                                                                           \
        if (fails(SITE_##site))                                                                    \
            return value;                                                                          \
    } while (0)

/* Makes a descriptor: two sites. */
#define FAIL_OPEN(value)                                                                           \
    do {                                                                                           \
        FAIL_IF(open, value);                                                                      \
        FAIL_IF(descriptor, value);                                                                \
    } while (0)

/* Reads and writes of files: those of an eventfd or a socket do not fail in such a way. */
static bool is_file(int fd)
{
    struct stat st;
    return fault.armed && syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode);
}

#define FAIL_FILE(site, fd)                                                                        \
    do {                                                                                           \
        if (is_file(fd))                                                                           \
            FAIL_IF(site, -1);                                                                     \
    } while (0)

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* ---- memory ---- */

void *malloc(size_t bytes)
{
    FAIL_IF(malloc, NULL);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    FAIL_IF(malloc, NULL);
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    if (bytes > 0)
        FAIL_IF(malloc, NULL);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    FAIL_IF(malloc, NULL);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    FAIL_IF(malloc, fault.error);
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    FAIL_IF(mmap, MAP_FAILED);
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

/* ---- files ---- */

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (!(mode & FALLOC_FL_PUNCH_HOLE)) /* which allocates nothing */
        FAIL_IF(fallocate, -1);
    return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    FAIL_IF(fallocate, fault.error);
    return syscall(SYS_fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;
}

int ftruncate(int fd, off_t bytes)
{
    FAIL_IF(fallocate, -1);
    return (int)syscall(SYS_ftruncate, fd, bytes);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    FAIL_FILE(pread, fd);
    return syscall(SYS_pread64, fd, to, bytes, offset);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
    FAIL_FILE(pread, fd);
    return syscall(SYS_preadv, fd, parts, count, offset, 0L);
}

ssize_t read(int fd, void *to, size_t bytes)
{
    FAIL_FILE(read, fd);
    return syscall(SYS_read, fd, to, bytes);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    FAIL_FILE(write, fd);
    return syscall(SYS_write, fd, from, bytes);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    FAIL_FILE(write, fd);
    return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    FAIL_FILE(write, fd);
    return syscall(SYS_writev, fd, parts, count);
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    FAIL_OPEN(-1);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    FAIL_OPEN(-1);
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

int fallocate64(int fd, int mode, off_t offset, off_t bytes) __attribute__((alias("fallocate")));
int posix_fallocate64(int fd, off_t offset, off_t bytes) __attribute__((alias("posix_fallocate")));
int ftruncate64(int fd, off_t bytes) __attribute__((alias("ftruncate")));
ssize_t pread64(int fd, void *to, size_t bytes, off_t offset) __attribute__((alias("pread")));
ssize_t pwrite64(int fd, const void *from, size_t bytes, off_t offset)
    __attribute__((alias("pwrite")));
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

int shm_open(const char *name, int flags, mode_t mode)
{
    FAIL_OPEN(-1);
    return ((int (*)(const char *, int, mode_t))next("shm_open"))(name, flags, mode);
}

int memfd_create(const char *name, unsigned flags)
{
    FAIL_OPEN(-1);
    return (int)syscall(SYS_memfd_create, name, flags);
}

/* ---- other descriptors ---- */

int socket(int domain, int type, int protocol)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_socket, domain, type, protocol);
}

int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_accept4, fd, address, bytes, flags);
}

int accept(int fd, struct sockaddr *address, socklen_t *bytes)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_accept4, fd, address, bytes, 0);
}

int pipe2(int ends[2], int flags)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_pipe2, ends, flags);
}

int pipe(int ends[2])
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_pipe2, ends, 0);
}

int eventfd(unsigned value, int flags)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_eventfd2, value, flags);
}

int timerfd_create(int clock, int flags)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_timerfd_create, clock, flags);
}

int epoll_create1(int flags)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_epoll_create1, flags);
}

int dup(int fd)
{
    FAIL_IF(descriptor, -1);
    return (int)syscall(SYS_dup, fd);
}

/* ---- io_uring, threads, processes ---- */

int io_uring_submit(struct io_uring *ring)
{
    unsigned mask = *ring->sq.kring_mask;
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++)
        if (fails(SITE_uring))
            ring->sq.sqes[i & mask].fd = -1;
    return ((int (*)(struct io_uring *))next("io_uring_submit"))(ring);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *arg)
{
    FAIL_IF(thread, fault.error);
    return ((int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))next(
        "pthread_create"))(thread, attributes, run, arg);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const environment[])
{
    FAIL_IF(spawn, fault.error);
    return ((int (*)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                     const posix_spawnattr_t *, char *const[], char *const[]))next("posix_spawn"))(
        pid, path, actions, attributes, argv, environment);
}
