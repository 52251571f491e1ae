/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the run directory, its lock and the paths of the sockets in it. */
#include "ipc/endpoints.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"

#define NUMBER_MAX   9999 /* of a loader or service; bounds the length of a path */
#define LOCK_POLL_MS 20

static const char *const files[] = {
#define X(name, file, listener, dialer) file,
    ENDPOINTS(X)
#undef X
};

/* File name of an endpoint. %u is replaced by hand: printf must not take formats from a table. */
static int file_name(enum endpoint endpoint, unsigned number, char *out, size_t cap)
{
    const char *file = files[endpoint];
    const char *mark = strstr(file, "%u");
    if (!mark)
        return snprintf(out, cap, "%s", file);
    return snprintf(out, cap, "%.*s%u%s", (int)(mark - file), file, number, mark + 2);
}

static size_t longest_file(void)
{
    size_t longest = strlen(RUN_LOCK_FILE);
    for (int e = 0; e < ENDPOINT__COUNT; e++) {
        int n = file_name((enum endpoint)e, NUMBER_MAX, NULL, 0);
        if ((size_t)n > longest)
            longest = (size_t)n;
    }
    return longest;
}

static bool name_ok(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > RUN_NAME_MAX || name[0] == '.')
        return false;
    for (const char *c = name; *c; c++)
        if (!(isascii((unsigned char)*c) && isalnum((unsigned char)*c)) && !strchr("._-", *c))
            return false;
    return true;
}

/* Parent of all run directories. */
static int base_dir(char *out, size_t cap)
{
    const char *given = getenv("SLUICE_RUN_DIR");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (given && *given) {
        char cwd[PATH_MAX] = "";
        if (given[0] != '/' && !getcwd(cwd, sizeof cwd))
            return -1;
        return snprintf(out, cap, "%s%s%s", cwd, cwd[0] ? "/" : "", given);
    }
    if (runtime && runtime[0] == '/')
        return snprintf(out, cap, "%s/sluice", runtime);
    return snprintf(out, cap, "/tmp/sluice-%u", (unsigned)geteuid());
}

int run_dir_path(const char *run_name, char out[ENDPOINT_BYTES], struct error *error)
{
    char base[2 * PATH_MAX];
    if (!run_name || !name_ok(run_name))
        return error_set(
            error, ERR_BAD_INPUT,
            "invalid engine name \"%.40s\": up to %d letters, digits, '.', '_', '-', not "
            "starting with '.'",
            run_name ? run_name : "", RUN_NAME_MAX);
    int n = base_dir(base, sizeof base);
    if (n < 0 || (size_t)n >= sizeof base)
        return error_set(error, ERR_BAD_INPUT, "$SLUICE_RUN_DIR is not a usable path");
    while (n > 1 && base[n - 1] == '/')
        base[--n] = 0;
    size_t whole = (size_t)n + 1 + strlen(run_name);
    if (whole + 1 + longest_file() >= ENDPOINT_BYTES)
        return error_set(error, ERR_BAD_INPUT,
                         "run directory %.150s/%s is too long for sockets: at most %zu bytes; "
                         "set SLUICE_RUN_DIR to a shorter one",
                         base, run_name, (size_t)ENDPOINT_BYTES - 2 - longest_file());
    memcpy(out, base, (size_t)n);
    out[n] = '/';
    memcpy(out + n + 1, run_name, strlen(run_name) + 1);
    return 0;
}

/* The directory must be accessible to this user only: a process that can write there could replace
 * our sockets. */
static int check_dir(const char *path, struct error *error)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot stat %s", path);
    if (!S_ISDIR(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "%s is not a directory", path);
    if (st.st_uid != geteuid())
        return error_set(error, ERR_BAD_INPUT, "%s belongs to user %u, not to this user", path,
                         (unsigned)st.st_uid);
    if (st.st_mode & 077)
        return error_set(error, ERR_BAD_INPUT,
                         "%s is accessible to other users (mode %04o); run chmod 700 on it", path,
                         (unsigned)(st.st_mode & 07777));
    return 0;
}

/* Checks a parent directory: owned by this user or root, and others cannot rename its entries. Root
 * has no exemption: another owner could exchange the run directory for a link. */
static int check_parent(const char *path, struct error *error)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot stat %s", path);
    if (!S_ISDIR(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "%s is not a directory", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return error_set(error, ERR_BAD_INPUT, "%s belongs to user %u, not to this user", path,
                         (unsigned)st.st_uid);
    if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
        return error_set(error, ERR_BAD_INPUT, "%s is writable by every user", path);
    return 0;
}

int run_dir_create(const char *run_dir, struct error *error)
{
    char path[ENDPOINT_BYTES];
    size_t n = strlen(run_dir);
    if (run_dir[0] != '/' || n >= sizeof path)
        return error_set(error, ERR_BAD_INPUT, "invalid run directory %.200s", run_dir);
    memcpy(path, run_dir, n + 1);
    char *last = NULL;
    for (char *c = path + 1; *c; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return error_set_errno(error, ERR_FAILED, errno, "cannot create %s", path);
        *c = '/';
        last = c;
    }
    if (last) {
        *last = 0;
        if (check_parent(path, error) != 0)
            return -1;
        *last = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return error_set_errno(error, ERR_FAILED, errno, "cannot create %s", path);
    return check_dir(path, error);
}

int endpoint_path(const char *run_dir, enum endpoint endpoint, unsigned number,
                  char out[ENDPOINT_BYTES], struct error *error)
{
    char file[64];
    file_name(endpoint, number, file, sizeof file);
    int n = snprintf(out, ENDPOINT_BYTES, "%s/%s", run_dir, file);
    if (n < 0 || n >= ENDPOINT_BYTES)
        return error_set(error, ERR_BAD_INPUT, "socket path %.150s/%s is too long", run_dir, file);
    return 0;
}

bool endpoint_is_file(const char *name)
{
    for (int e = 0; e < ENDPOINT__COUNT; e++) {
        const char *mark = strstr(files[e], "%u");
        size_t before = mark ? (size_t)(mark - files[e]) : 0;
        size_t digits =
            mark && strncmp(name, files[e], before) == 0 ? strspn(name + before, "0123456789") : 0;
        if (mark ? digits > 0 && strcmp(name + before + digits, mark + 2) == 0
                 : strcmp(name, files[e]) == 0)
            return true;
    }
    return false;
}

int run_dir_open(const char *run_dir, struct error *error)
{
    int fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        error_set_errno(error, ERR_FAILED, errno, "cannot open %s", run_dir);
    } else if (st.st_uid != geteuid()) {
        error_set(error, ERR_BAD_INPUT, "%s belongs to user %u, not to this user", run_dir,
                  (unsigned)st.st_uid);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static int open_lock(const char *run_dir, int flags)
{
    char path[ENDPOINT_BYTES + sizeof RUN_LOCK_FILE + 1];
    snprintf(path, sizeof path, "%s/%s", run_dir, RUN_LOCK_FILE);
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

enum run_state run_dir_state(const char *run_dir)
{
    int fd = open_lock(run_dir, O_RDONLY);
    if (fd < 0)
        return RUN_UNKNOWN;
    enum run_state state = RUN_UNKNOWN;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0)
        state = RUN_GONE; /* released by close; a starting engine retries for seconds */
    else if (errno == EWOULDBLOCK)
        state = RUN_LOCKED;
    close(fd);
    return state;
}

static long lock_owner(int fd)
{
    char text[24] = "";
    if (pread(fd, text, sizeof text - 1, 0) <= 0)
        return 0;
    return strtol(text, NULL, 10);
}

/* Whether the lock file is still the one of the directory: a sweep may have removed both. */
static bool lock_is_current(const char *run_dir, int fd)
{
    struct stat own, current;
    int now = open_lock(run_dir, O_RDONLY);
    bool same = now >= 0 && fstat(fd, &own) == 0 && fstat(now, &current) == 0 &&
                own.st_dev == current.st_dev && own.st_ino == current.st_ino;
    if (now >= 0)
        close(now);
    return same;
}

/* The lock file, locked; or -1. Retries until the deadline while another process holds it. */
static int lock_take(const char *run_dir, uint64_t deadline, struct error *error)
{
    int fd = open_lock(run_dir, O_RDWR | O_CREAT);
    if (fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot open the lock of %s", run_dir);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int why = errno;
        if (why == EINTR)
            continue;
        if (why != EWOULDBLOCK || clock_now_ns() >= deadline) {
            if (why == EWOULDBLOCK)
                error_set(error, ERR_BUSY, "an engine (process %ld) is already running in %s",
                          lock_owner(fd), run_dir);
            else
                error_set_errno(error, ERR_FAILED, why, "cannot lock %s", run_dir);
            close(fd);
            return -1;
        }
        poll(NULL, 0, LOCK_POLL_MS);
    }
    return fd;
}

int run_dir_lock(const char *run_dir, unsigned wait_ms, struct error *error)
{
    uint64_t deadline = clock_now_ns() + wait_ms * NS_PER_MS;
    int fd;
    while ((fd = lock_take(run_dir, deadline, error)) >= 0 && !lock_is_current(run_dir, fd)) {
        close(fd);
        if (run_dir_create(run_dir, error) != 0)
            return -1;
    }
    if (fd < 0)
        return -1;
    char text[24];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        error_set_errno(error, ERR_FAILED, errno, "cannot write the lock of %s", run_dir);
        close(fd);
        return -1;
    }
    return fd;
}
