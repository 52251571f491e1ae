/* SPDX-License-Identifier: Apache-2.0 */
/* For parsers that read a file by its path: the input as a file in memory. */
#ifndef SLUICE_TESTS_FUZZ_FILE_H
#define SLUICE_TESTS_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/assert.h"

struct fuzz_file {
    int fd;
    char path[32];
};

static inline struct fuzz_file fuzz_file_open(const uint8_t *data, size_t size)
{
    struct fuzz_file f = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    sl_assert(f.fd >= 0 && write(f.fd, data, size) == (ssize_t)size);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

static inline void fuzz_file_close(struct fuzz_file *f)
{
    close(f->fd);
}

#endif
