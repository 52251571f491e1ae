/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and appends records of measurements, under a lock. */
#include "procs/tools/plan/measured.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/file/replace.h"

#define SUFFIX ".measured"
#define LOCK   ".lock"
#define MAGIC  0x4d454153u

struct measured_file {
    uint32_t magic;
    char path[PATH_MAX], partial[PATH_MAX], lock[PATH_MAX];
    int lock_fd;    /* -1: not locked */
    uint8_t *image; /* header and records, as in the file */
    size_t bytes;
};

#define RECORD_BYTES (MEASURED_KEY_BYTES + sizeof(uint32_t))

/* The record at *at, which moves after it; false: there is none, or it is cut off. */
static bool next_record(const struct measured_file *f, size_t *at, const uint8_t **key,
                        const uint8_t **value, uint32_t *bytes)
{
    if (f->bytes - *at < RECORD_BYTES)
        return false;
    *key = f->image + *at;
    memcpy(bytes, *key + MEASURED_KEY_BYTES, sizeof *bytes);
    if (f->bytes - *at - RECORD_BYTES < *bytes)
        return false;
    *value = *key + RECORD_BYTES;
    *at += RECORD_BYTES + *bytes;
    return true;
}

/* ---- lock ---- */

/* Whether the name still has the file that is open: its last owner has removed it. */
static bool is_at(int fd, const char *path)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

static int lock(int fd, const char *path)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno != EWOULDBLOCK)
        return errno;
    log_info("waits until another sluice plan has written %.*s", (int)(strlen(path) - strlen(LOCK)),
             path);
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

static int take_lock(struct measured_file *f, struct error *error)
{
    int why = 0;
    do {
        if (f->lock_fd >= 0)
            close(f->lock_fd);
        f->lock_fd = open(f->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        why = f->lock_fd < 0 ? errno : lock(f->lock_fd, f->lock);
    } while (why == 0 && !is_at(f->lock_fd, f->lock));
    return why ? error_set_errno(error, ERR_IO, why, "cannot write %.200s", f->lock) : 0;
}

/* ---- file ---- */

static bool header_is_right(const struct measured_header *h, uint64_t file_bytes)
{
    return h->magic == MEASURED_MAGIC && file_bytes <= MEASURED_FILE_MAX &&
           h->bytes == file_bytes - sizeof *h;
}

static bool records_are_right(const struct measured_file *f)
{
    struct measured_header h;
    const uint8_t *key, *value;
    uint32_t bytes;
    size_t at = sizeof h;
    memcpy(&h, f->image, sizeof h);
    if (h.checksum != XXH3_64bits(f->image + sizeof h, f->bytes - sizeof h))
        return false;
    while (next_record(f, &at, &key, &value, &bytes))
        ;
    return at == f->bytes;
}

static bool read_all(int fd, void *to, size_t bytes, size_t from)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(from + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* The whole file in f->image; false: it is damaged, or cannot be read. */
static bool read_image(struct measured_file *f, int fd, uint64_t file_bytes)
{
    struct measured_header h;
    if (file_bytes < sizeof h || !read_all(fd, &h, sizeof h, 0) || !header_is_right(&h, file_bytes))
        return false;
    f->image = malloc(file_bytes);
    f->bytes = file_bytes;
    if (!f->image)
        return false;
    memcpy(f->image, &h, sizeof h);
    return read_all(fd, f->image + sizeof h, file_bytes - sizeof h, sizeof h) &&
           records_are_right(f);
}

static void forget(struct measured_file *f)
{
    free(f->image);
    f->image = NULL;
    f->bytes = 0;
}

/* Nothing is read if there is no file. */
static int read_file(struct measured_file *f, struct error *error)
{
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), status = 0;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) != 0)
        status = error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s", f->path);
    else if (!S_ISREG(st.st_mode))
        status = error_set(error, ERR_BAD_INPUT, "%.200s is not a regular file", f->path);
    else if (!read_image(f, fd, (uint64_t)st.st_size)) {
        log_warn("%.200s is damaged: everything is measured again", f->path);
        forget(f);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

static bool join(char out[PATH_MAX], const char *path, const char *suffix)
{
    int n = snprintf(out, PATH_MAX, "%s%s", path, suffix);
    return n >= 0 && n < PATH_MAX;
}

struct measured_file *measured_open(const char *plan_path, struct error *error)
{
    struct measured_file *f = calloc(1, sizeof *f);
    if (!f) {
        error_set(error, ERR_NO_MEMORY, "out of memory (measurements)");
        return NULL;
    }
    f->magic = MAGIC;
    f->lock_fd = -1;
    bool fits = join(f->path, plan_path, SUFFIX) &&
                join(f->partial, plan_path, SUFFIX ".partial") && join(f->lock, plan_path, LOCK);
    if (!fits)
        error_set(error, ERR_BAD_INPUT, "%.100s...: path too long", plan_path);
    if (fits && take_lock(f, error) == 0 && read_file(f, error) == 0)
        return f;
    measured_close(f);
    return NULL;
}

void measured_close(struct measured_file *f)
{
    if (!f)
        return;
    OBJ_CHECK(f, MAGIC);
    if (f->lock_fd >= 0 && is_at(f->lock_fd, f->lock))
        unlink(f->lock);
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    forget(f);
    f->magic = 0;
    free(f);
}

/* ---- records ---- */

static bool within(struct measured_range range, const double *value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(value[i]) || value[i] < range.min || value[i] > range.max)
            return false;
    return true;
}

bool measured_find(const struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES],
                   struct measured_range range, double *value, size_t count)
{
    const uint8_t *k, *v;
    uint32_t n;
    size_t at = sizeof(struct measured_header);
    while (f->image && next_record(f, &at, &k, &v, &n)) {
        if (n != count * sizeof *value || memcmp(k, key, MEASURED_KEY_BYTES) != 0)
            continue;
        memcpy(value, v, n);
        if (within(range, value, count))
            return true;
        log_warn("%.200s: a number that cannot be: it is measured again", f->path);
    }
    return false;
}

static int write_image(const struct measured_file *f, struct error *error)
{
    int fd =
        open(f->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    bool good = fd >= 0;
    for (size_t done = 0; good && done < f->bytes;) {
        ssize_t n = write(fd, f->image + done, f->bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        good = n > 0;
        done += good ? (size_t)n : 0;
    }
    int why = good ? 0 : errno ? errno : EIO;
    if (fd >= 0 && close(fd) != 0 && good)
        why = errno;
    if (why == 0)
        why = file_replace(f->partial, f->path, true);
    if (why == 0)
        return 0;
    unlink(f->partial);
    return error_set_errno(error, ERR_IO, why, "cannot write %.200s", f->path);
}

int measured_add(struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES],
                 const double *value, size_t count, struct error *error)
{
    OBJ_CHECK(f, MAGIC);
    size_t header = sizeof(struct measured_header), bytes = count * sizeof *value;
    uint32_t n = (uint32_t)bytes;
    if (count > (MEASURED_FILE_MAX - header - RECORD_BYTES) / sizeof *value)
        return 0;
    if (f->bytes + RECORD_BYTES + bytes > MEASURED_FILE_MAX)
        forget(f);
    size_t from = f->bytes ? f->bytes : header, end = from + RECORD_BYTES + bytes;
    uint8_t *image = realloc(f->image, end);
    if (!image)
        return error_set(error, ERR_NO_MEMORY, "out of memory (measurements)");
    memcpy(image + from, key, MEASURED_KEY_BYTES);
    memcpy(image + from + MEASURED_KEY_BYTES, &n, sizeof n);
    memcpy(image + from + RECORD_BYTES, value, bytes);
    struct measured_header h = {.magic = MEASURED_MAGIC, .bytes = end - header};
    h.checksum = XXH3_64bits(image + header, end - header);
    memcpy(image, &h, header);
    f->image = image;
    f->bytes = end;
    return write_image(f, error);
}
