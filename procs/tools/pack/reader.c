/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a tensor of a Hugging Face directory, read and converted. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "procs/tools/pack/source.h"

#define READER_BYTES (4 * MIB) /* of a part, unless a row needs more */

uint64_t reader_bytes_max(const struct source *s)
{
    uint64_t bytes = READER_BYTES;
    for (uint32_t i = 0; i < s->hf.tensor_count; i++)
        if (s->hf.tensors[i].turned && s->hf.tensors[i].form != HF_MADE) {
            uint64_t plane = hf_part_of(&s->hf, i, 0, 0, 1).at.bytes + 3 * PAGE_BYTES;
            bytes = plane > bytes ? plane : bytes;
        }
    return bytes;
}

void reader_open(struct source_reader *r, const struct source *s)
{
    *r = (struct source_reader){.source = s};
}

void reader_close(struct source_reader *r)
{
    free(r->in);
    free(r->scales);
    *r = (struct source_reader){0};
}

static int read_scales(struct source_reader *r, const struct hf_extent *at, struct error *error)
{
    const char *path = r->source->files[at->file].path;
    r->scales = malloc(at->bytes);
    if (!r->scales)
        return error_set(error, ERR_NO_MEMORY, "out of memory (scales of a matrix)");
    int fd = open(path, O_RDONLY | O_CLOEXEC), why = errno;
    ssize_t n = fd >= 0 ? pread(fd, r->scales, at->bytes, (off_t)at->offset) : -1;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)at->bytes
               ? 0
               : error_set_errno(error, ERR_IO, fd < 0 ? why : EIO, "cannot read %.250s", path);
}

int reader_plane(struct source_reader *r, uint32_t tensor, uint32_t plane, struct error *error)
{
    struct hf_extent at = hf_scales_of(&r->source->hf, tensor, plane);
    r->tensor = tensor;
    r->plane = plane;
    r->part.at.bytes = 0;
    free(r->scales);
    r->scales = NULL;
    return at.bytes > 0 ? read_scales(r, &at, error) : 0;
}

static int load(struct source_reader *r, const struct bulk *file, const struct hf_part *part,
                struct error *error)
{
    if (part->at.bytes == r->part.at.bytes && part->at.offset == r->part.at.offset)
        return 0; /* a whole plane, again */
    uint64_t need = align_up(part->at.bytes, PAGE_BYTES) + 2 * PAGE_BYTES;
    need = need > READER_BYTES ? need : READER_BYTES;
    r->part.at.bytes = 0;
    if (need > r->capacity) {
        free(r->in);
        r->capacity = 0;
        r->in = bulk_buffer(need);
        if (!r->in)
            return error_set(error, ERR_NO_MEMORY, "out of memory (part of a tensor)");
        r->capacity = need;
    }
    uint64_t start_ns = clock_now_ns();
    int status = source_read(file, r->in, part->at.offset, part->at.bytes, &r->data, error);
    r->read_ns += clock_now_ns() - start_ns;
    r->read_bytes += part->at.bytes;
    if (status == 0)
        r->part = *part;
    return status;
}

int reader_rows(struct source_reader *r, const struct bulk *file, uint64_t row, uint64_t rows,
                void *dst, struct error *error)
{
    const struct hf_model *hf = &r->source->hf;
    const struct hf_tensor *t = &hf->tensors[r->tensor];
    for (uint64_t done = 0, n; done < rows; done += n) {
        n = rows - done;
        struct hf_part part = {0};
        if (t->form != HF_MADE) {
            part = hf_part_of(hf, r->tensor, r->plane, row + done, n);
            while (part.at.bytes > READER_BYTES && n > 1 && !t->turned) {
                n = (n + 1) / 2;
                part = hf_part_of(hf, r->tensor, r->plane, row + done, n);
            }
            if (load(r, file, &part, error))
                return -1;
        }
        if (hf_make_rows(hf, r->tensor, r->plane, &part, r->data, r->scales, row + done, n,
                         (char *)dst + done * t->made_row_bytes, error))
            return -1;
    }
    return 0;
}
