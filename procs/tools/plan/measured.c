/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/tools/plan/measured.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/file/replace.h"

#define SUFFIX ".measured"
#define MAGIC  0x4d454153u

struct measured_file {
    uint32_t magic;
    char path[PATH_MAX], partial[PATH_MAX];
    uint8_t *image; /* header and records, as in the file */
    size_t bytes;
};

#define RECORD_BYTES (MEASURED_KEY_BYTES + sizeof(uint32_t))

/* The record at *at, which moves behind it; false: there is none, or it is cut off. */
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

static bool right(const struct measured_file *f)
{
    struct measured_header h;
    const uint8_t *key, *value;
    uint32_t bytes;
    size_t at = sizeof h;
    if (f->bytes < sizeof h)
        return false;
    memcpy(&h, f->image, sizeof h);
    if (h.magic != MEASURED_MAGIC || h.bytes != f->bytes - sizeof h ||
        h.checksum != XXH3_64bits(f->image + sizeof h, f->bytes - sizeof h))
        return false;
    while (next_record(f, &at, &key, &value, &bytes))
        ;
    return at == f->bytes;
}

/* The whole file in f->image; false: it cannot be read. */
static bool read_image(struct measured_file *f, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)MEASURED_FILE_MAX ||
        !(f->image = malloc((size_t)st.st_size + 1)))
        return false;
    while (f->bytes < (size_t)st.st_size) {
        ssize_t n = read(fd, f->image + f->bytes, (size_t)st.st_size - f->bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        f->bytes += (size_t)n;
    }
    return true;
}

static void forget(struct measured_file *f)
{
    free(f->image);
    f->image = NULL;
    f->bytes = 0;
}

struct measured_file *measured_open(const char *plan_path, struct error *error)
{
    struct measured_file *f = calloc(1, sizeof *f);
    if (!f) {
        error_set(error, ERR_NO_MEMORY, "out of memory (measurements)");
        return NULL;
    }
    f->magic = MAGIC;
    int n = snprintf(f->path, sizeof f->path, "%s" SUFFIX, plan_path);
    int m = snprintf(f->partial, sizeof f->partial, "%s" SUFFIX ".partial", plan_path);
    if (n < 0 || m < 0 || m >= (int)sizeof f->partial) {
        error_set(error, ERR_BAD_INPUT, "%.100s...: path too long", plan_path);
        free(f);
        return NULL;
    }
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return f;
    if (!read_image(f, fd) || !right(f)) {
        log_warn("%.200s is damaged: everything is measured again", f->path);
        forget(f);
    }
    close(fd);
    return f;
}

void measured_close(struct measured_file *f)
{
    if (!f)
        return;
    OBJ_CHECK(f, MAGIC);
    forget(f);
    f->magic = 0;
    free(f);
}

bool measured_find(const struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES],
                   void *value, size_t bytes)
{
    const uint8_t *k, *v;
    uint32_t n;
    size_t at = sizeof(struct measured_header);
    while (f->image && next_record(f, &at, &k, &v, &n))
        if (n == bytes && memcmp(k, key, MEASURED_KEY_BYTES) == 0) {
            memcpy(value, v, bytes);
            return true;
        }
    return false;
}

static int write_image(const struct measured_file *f, struct error *error)
{
    int fd = open(f->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
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

int measured_add(struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES], const void *value,
                 size_t bytes, struct error *error)
{
    OBJ_CHECK(f, MAGIC);
    uint32_t n = (uint32_t)bytes;
    if (f->bytes + RECORD_BYTES + bytes > MEASURED_FILE_MAX)
        forget(f);
    size_t from = f->bytes ? f->bytes : sizeof(struct measured_header),
           end = from + RECORD_BYTES + bytes;
    uint8_t *image = realloc(f->image, end);
    if (!image)
        return error_set(error, ERR_NO_MEMORY, "out of memory (measurements)");
    memcpy(image + from, key, MEASURED_KEY_BYTES);
    memcpy(image + from + MEASURED_KEY_BYTES, &n, sizeof n);
    memcpy(image + from + RECORD_BYTES, value, bytes);
    struct measured_header h = {.magic = MEASURED_MAGIC, .bytes = end - sizeof h};
    h.checksum = XXH3_64bits(image + sizeof h, end - sizeof h);
    memcpy(image, &h, sizeof h);
    f->image = image;
    f->bytes = end;
    return write_image(f, error);
}
