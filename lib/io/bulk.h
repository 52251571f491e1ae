/* Files read and written in bulk without growing the page cache: O_DIRECT where the file system has
 * it, elsewhere plain calls followed by write-back and POSIX_FADV_DONTNEED. Offsets, lengths and
 * buffers are multiples of the page; a file's odd tail is made by bulk_truncate at the end.
 * One thread at a time per struct; different offsets may be read through one struct by several
 * threads at once. */
#ifndef SLUICE_IO_BULK_H
#define SLUICE_IO_BULK_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

struct bulk {
    int fd;             /* -1: closed */
    bool direct;        /* O_DIRECT is in force */
    bool write_back;    /* plain writes are pushed out every so often */
    uint64_t unwritten; /* bytes since the last push */
};

/* open(2) with these flags, and O_DIRECT when it can be had. 0, or -1: ERR_BAD_INPUT when the file
 * is not there, else ERR_IO. The error names the path. */
int bulk_open(struct bulk *b, const char *path, int flags, struct error *error);

/* Reads up to `bytes` at offset; *got is less only at the end of the file. The errors of these say
 * what failed but not where: the caller knows the path. */
int bulk_read(const struct bulk *b, void *buf, uint64_t bytes, uint64_t offset, uint64_t *got,
              struct error *error);

/* Writes all of it: ERR_IO when it cannot (a full disk included). */
int bulk_write(struct bulk *b, const void *buf, uint64_t bytes, uint64_t offset,
               struct error *error);

int bulk_truncate(struct bulk *b, uint64_t bytes, struct error *error);

/* fdatasync, and the pages dropped. */
int bulk_sync(struct bulk *b, struct error *error);
void bulk_close(struct bulk *b);

/* Page-aligned memory, zeroed; free() ends it. NULL when there is none. */
void *bulk_buffer(uint64_t bytes);

#endif
