/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of a model file: header and samples. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/file/sample_hash.h"
#include "lib/tunings/tunings.h"

#define PARTS 65535u

static int add_file(struct sample_hash *h, const char *path, struct error *error)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return error_set_errno(error, ERR_BAD_INPUT, why, "cannot open model %.200s", path);
    }
    int why = S_ISREG(st.st_mode) ? sample_hash_add(h, fd) : EINVAL;
    close(fd);
    if (why == EINVAL)
        return error_set(error, ERR_BAD_INPUT, "%.200s is not a model file", path);
    return why == 0 ? 0 : error_set_errno(error, ERR_IO, why, "cannot read %.200s", path);
}

/* Parts of NAME-00002-of-00003.gguf: 3, and where the number is. Other names: 1. */
static unsigned parts_of(const char *path, size_t *number)
{
    unsigned n, of;
    char rest;
    size_t length = strlen(path), tail = strlen("-00001-of-00001.gguf");
    if (length <= tail || sscanf(path + length - tail, "-%5u-of-%5u.ggu%c", &n, &of, &rest) != 3 ||
        rest != 'f' || of == 0 || of > PARTS)
        return 1;
    *number = length - tail + 1;
    return of;
}

int tunings_hash(const char *path, uint8_t hash[TUNINGS_HASH_BYTES], struct error *error)
{
    char part[PATH_MAX], digits[16];
    size_t at = 0;
    if (strlen(path) >= sizeof part)
        return error_set(error, ERR_BAD_INPUT, "the model's path is too long");
    strcpy(part, path);
    unsigned parts = parts_of(path, &at);
    struct sample_hash *h = sample_hash_start();
    int status = h ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (hash)");
    for (unsigned i = 1; status == 0 && i <= parts; i++) {
        snprintf(digits, sizeof digits, "%05u", i);
        if (parts > 1)
            memcpy(part + at, digits, 5);
        status = add_file(h, part, error);
    }
    if (status == 0)
        sample_hash_result(h, hash);
    sample_hash_free(h);
    return status;
}
