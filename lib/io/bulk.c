/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes whole pages with O_DIRECT, or with plain calls whose pages are dropped from the
 * page cache. */
#include "lib/io/bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define WRITE_BACK_BYTES (8 * MIB)
#define CALL_BYTES       (64 * MIB) /* per system call: far below the kernel's limit */

int bulk_open(struct bulk *b, const char *path, int flags, struct error *error)
{
    *b = (struct bulk){.fd = open(path, flags | O_DIRECT | O_CLOEXEC, 0666), .direct = true};
    if (b->fd < 0 && errno == EINVAL) {
        b->direct = false;
        b->fd = open(path, flags | O_CLOEXEC, 0666);
    }
    b->write_back = !b->direct && (flags & O_ACCMODE) != O_RDONLY;
    if (b->fd < 0)
        return error_set_errno(error, errno == ENOENT ? ERR_BAD_INPUT : ERR_IO, errno,
                               "cannot open %.250s", path);
    return 0;
}

static bool aligned(const void *buf, uint64_t bytes, uint64_t offset)
{
    return (uintptr_t)buf % PAGE_BYTES == 0 && bytes % PAGE_BYTES == 0 && offset % PAGE_BYTES == 0;
}

int bulk_read(const struct bulk *b, void *buf, uint64_t bytes, uint64_t offset, uint64_t *got,
              struct error *error)
{
    sl_assert(aligned(buf, bytes, offset));
    *got = 0;
    while (*got < bytes) {
        uint64_t n = bytes - *got < CALL_BYTES ? bytes - *got : CALL_BYTES;
        ssize_t r = pread(b->fd, (char *)buf + *got, n, (off_t)(offset + *got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return error_set_errno(error, ERR_IO, errno, "cannot read at offset %" PRIu64,
                                   offset + *got);
        *got += (uint64_t)r;
        if ((uint64_t)r < n && (r == 0 || b->direct))
            break; /* a direct read is short only at the end of the file */
    }
    if (!b->direct)
        posix_fadvise(b->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}

/* Flushes plain writes, so that their pages can be dropped. */
static int push_out(struct bulk *b, struct error *error)
{
    b->unwritten = 0;
    if (fdatasync(b->fd) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot write");
    posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

int bulk_write(struct bulk *b, const void *buf, uint64_t bytes, uint64_t offset,
               struct error *error)
{
    sl_assert(aligned(buf, bytes, offset));
    for (uint64_t done = 0; done < bytes;) {
        uint64_t n = bytes - done < CALL_BYTES ? bytes - done : CALL_BYTES;
        ssize_t r = pwrite(b->fd, (const char *)buf + done, n, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        /* On a full disk the first write is short; the next one fails, or is not page-aligned. */
        if (r == 0 || (r > 0 && b->direct && (uint64_t)r % PAGE_BYTES != 0))
            return error_set_errno(error, ERR_IO, ENOSPC, "cannot write at offset %" PRIu64,
                                   offset + done);
        if (r < 0)
            return error_set_errno(error, ERR_IO, errno, "cannot write at offset %" PRIu64,
                                   offset + done);
        done += (uint64_t)r;
    }
    b->unwritten += bytes;
    return b->write_back && b->unwritten >= WRITE_BACK_BYTES ? push_out(b, error) : 0;
}

int bulk_truncate(struct bulk *b, uint64_t bytes, struct error *error)
{
    if (ftruncate(b->fd, (off_t)bytes) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot set the file length to %" PRIu64,
                               bytes);
    return 0;
}

int bulk_sync(struct bulk *b, struct error *error)
{
    return push_out(b, error);
}

void bulk_close(struct bulk *b)
{
    if (b->fd >= 0)
        close(b->fd);
    b->fd = -1;
}

void *bulk_buffer(uint64_t bytes)
{
    uint64_t whole = align_up(bytes ? bytes : 1, PAGE_BYTES);
    void *p = aligned_alloc(PAGE_BYTES, whole);
    if (p)
        memset(p, 0, whole);
    return p;
}
