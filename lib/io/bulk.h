/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk file I/O that does not grow the page cache: O_DIRECT where the file system supports it,
 * else plain calls followed by write-back and POSIX_FADV_DONTNEED. Offsets, lengths and buffers
 * are multiples of the page; bulk_truncate sets an unaligned length at the end.
 * One thread at a time per struct, except that several threads may read different offsets at
 * once. */
#ifndef SLUICE_IO_BULK_H
#define SLUICE_IO_BULK_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

struct bulk {
    int fd;             /* -1: closed */
    bool direct;        /* O_DIRECT is in effect */
    bool write_back;    /* plain writes are flushed at intervals */
    uint64_t unwritten; /* bytes since the last flush */
};

/* open(2) with these flags, and O_DIRECT when available. 0, or -1: ERR_BAD_INPUT when the file does
 * not exist, else ERR_IO. The error names the path. */
int bulk_open(struct bulk *b, const char *path, int flags, struct error *error);

/* Reads up to `bytes` at offset; *got is smaller only at the end of the file. The errors of the
 * functions below do not name the path: the caller adds it. */
int bulk_read(const struct bulk *b, void *buf, uint64_t bytes, uint64_t offset, uint64_t *got,
              struct error *error);

/* Writes all bytes, or fails with ERR_IO (also when the disk is full). */
int bulk_write(struct bulk *b, const void *buf, uint64_t bytes, uint64_t offset,
               struct error *error);

int bulk_truncate(struct bulk *b, uint64_t bytes, struct error *error);

/* fdatasync, then drops the cached pages. */
int bulk_sync(struct bulk *b, struct error *error);
void bulk_close(struct bulk *b);

/* Page-aligned, zeroed memory; release with free(). NULL when out of memory. */
void *bulk_buffer(uint64_t bytes);

#endif
