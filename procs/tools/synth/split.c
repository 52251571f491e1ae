/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the parts of a split GGUF file from a whole one. */
#include "procs/tools/synth/split.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/split.h"
#include "lib/model/gguf/write.h"

#define COPY_BYTES (1 * MIB)

struct splitting {
    int fd;
    struct gguf_parts files;
    struct gguf gguf;
    uint32_t parts;
    char *buffer;
};

/* The first tensor of a part: parts end where their share of the bytes ends. */
static uint32_t first_tensor(const struct splitting *s, uint32_t part)
{
    uint64_t all = 0, before = 0;
    uint32_t i = 0;
    for (uint32_t t = 0; t < s->gguf.tensor_count; t++)
        all += s->gguf.tensors[t].bytes;
    if (part == s->parts)
        return s->gguf.tensor_count;
    for (;
         i < s->gguf.tensor_count && before + s->gguf.tensors[i].bytes / 2 < all / s->parts * part;
         i++)
        before += s->gguf.tensors[i].bytes;
    return i;
}

static void put_keys(const struct splitting *s, uint32_t part, struct gguf_writer *w)
{
    uint16_t number = (uint16_t)part, count = (uint16_t)s->parts;
    int32_t tensors = (int32_t)s->gguf.tensor_count;
    for (uint32_t i = 0; part == 0 && i < s->gguf.key_count; i++)
        gguf_put_copy(w, &s->gguf, i);
    gguf_put_scalar(w, "split.no", GGUF_U16, &number);
    gguf_put_scalar(w, "split.count", GGUF_U16, &count);
    gguf_put_scalar(w, "split.tensors.count", GGUF_I32, &tensors);
}

static int copy_tensor(const struct splitting *s, const struct model_tensor *t,
                       struct gguf_writer *w, struct error *error)
{
    for (uint64_t at = 0; at < t->bytes;) {
        uint64_t left = t->bytes - at, want = left < COPY_BYTES ? left : COPY_BYTES;
        ssize_t n = pread(s->fd, s->buffer, want, (off_t)(t->file_offset + at));
        if (n <= 0)
            return error_set_errno(error, ERR_IO, n < 0 ? errno : EIO,
                                   "cannot read the whole file");
        if (gguf_writer_data(w, s->buffer, (uint64_t)n, error) != 0)
            return -1;
        at += (uint64_t)n;
    }
    return 0;
}

static int write_part(const struct splitting *s, const char *path, uint32_t part,
                      struct error *error)
{
    uint32_t first = first_tensor(s, part), end = first_tensor(s, part + 1);
    struct gguf_writer *w = gguf_writer_new(32);
    if (!w)
        return error_set(error, ERR_NO_MEMORY, "out of memory (GGUF writer)");
    put_keys(s, part, w);
    for (uint32_t i = first; i < end; i++) {
        const struct model_tensor *t = &s->gguf.tensors[i];
        gguf_put_tensor(w, t->name, gguf_type_of(t), t->dims, t->ne);
    }
    int status = gguf_writer_layout(w, error);
    if (status == 0)
        status = gguf_writer_start(w, path, error);
    for (uint32_t i = first; i < end && status == 0; i++)
        status = copy_tensor(s, &s->gguf.tensors[i], w, error);
    if (status == 0)
        status = gguf_writer_end(w, error);
    gguf_writer_free(w);
    return status;
}

static int write_parts(struct splitting *s, const char *name, struct error *error)
{
    char path[PATH_MAX];
    size_t stem = strlen(name) - strlen(".gguf");
    int status = 0;
    for (uint32_t part = 0; part < s->parts && status == 0; part++) {
        int n = snprintf(path, sizeof path, "%.*s-%05" PRIu32 "-of-%05" PRIu32 ".gguf", (int)stem,
                         name, part + 1, s->parts);
        status = n > 0 && n < (int)sizeof path
                     ? write_part(s, path, part, error)
                     : error_set(error, ERR_BAD_INPUT, "the path %.60s... is too long", name);
    }
    return status;
}

int split_check_name(const char *name, struct error *error)
{
    size_t n = strlen(name);
    if (n < 6 || strcmp(name + n - 5, ".gguf") != 0)
        return error_set(error, ERR_BAD_INPUT, "--split: the name of the file must end with .gguf");
    return 0;
}

int split_write(const char *path, const char *name, uint32_t parts, struct error *error)
{
    sl_assert(parts >= 2 && parts <= MODEL_PARTS_MAX);
    if (split_check_name(name, error) != 0)
        return -1;
    struct splitting *s = calloc(1, sizeof *s);
    char *buffer = malloc(COPY_BYTES);
    int status = -1;
    if (!s || !buffer) {
        error_set(error, ERR_NO_MEMORY, "out of memory (parts)");
    } else {
        s->parts = parts;
        s->buffer = buffer;
        s->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (s->fd < 0) {
            error_set_errno(error, ERR_IO, errno, "cannot open %.200s", path);
        } else {
            gguf_parts_open(&s->files, s->fd, path);
            status = gguf_open_parts(&s->gguf, &s->files, false, error);
            if (status == 0)
                status = write_parts(s, name, error);
            gguf_close(&s->gguf);
            gguf_parts_close(&s->files);
            close(s->fd);
        }
    }
    free(buffer);
    free(s);
    return status;
}
