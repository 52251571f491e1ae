/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of a model file: header and samples. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/file/part_name.h"
#include "lib/file/sample_hash.h"
#include "lib/tunings/tunings.h"

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

int tunings_hash(const char *path, uint8_t hash[TUNINGS_HASH_BYTES], struct error *error)
{
    char part[PATH_MAX];
    uint32_t number, parts;
    if (!gguf_real_path(path, part))
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open model %.200s", path);
    if (!gguf_part_name(part, &number, &parts))
        parts = 1;
    struct sample_hash *h = sample_hash_start();
    int status = h ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (hash)");
    for (uint32_t i = 1; status == 0 && i <= parts; i++) {
        if (parts > 1)
            gguf_set_part(part, i);
        status = add_file(h, part, error);
    }
    if (status == 0)
        sample_hash_result(h, hash);
    sample_hash_free(h);
    return status;
}
