/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the source of a pack, reads its experts and dense weights, and checks that it did not
 * change. */
#include "procs/tools/pack/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/file/part_name.h"
#include "lib/model/limits.h"

static int add_file(struct source *s, const char *path, struct error *error)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot access %.250s", path);
    struct source_file *bigger = reallocarray(s->files, s->file_count + 1, sizeof *bigger);
    char *copy = strdup(path);
    if (bigger)
        s->files = bigger;
    if (!bigger || !copy) {
        free(copy);
        return error_set(error, ERR_NO_MEMORY, "out of memory (list of files)");
    }
    s->files[s->file_count++] = (struct source_file){
        .path = copy,
        .bytes = (uint64_t)st.st_size,
        .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
    };
    return 0;
}

int source_unchanged(const struct source *s, struct error *error)
{
    for (uint32_t i = 0; i < s->file_count; i++) {
        const struct source_file *f = &s->files[i];
        struct stat st;
        if (stat(f->path, &st) != 0 || (uint64_t)st.st_size != f->bytes ||
            (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != f->mtime_ns)
            return error_set(error, ERR_GONE, "%.250s changed during the pack", f->path);
    }
    return 0;
}

/* Of the header, and of the size of each file. */
static int hash_source(struct source *s, uint64_t bytes, struct error *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return error_set(error, ERR_NO_MEMORY, "out of memory (hash of the source)");
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, s->gguf.header,
                        s->gguf.at); /* what was read of the padding varies */
    XXH3_128bits_update(state, &bytes, sizeof bytes);
    for (uint32_t i = 1; i < s->gguf.part_count; i++)
        XXH3_128bits_update(state, &s->files[i].bytes, sizeof s->files[i].bytes);
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state));
    memcpy(s->hash, hash.digest, sizeof s->hash);
    XXH3_freeState(state);
    return 0;
}

static int open_gguf(struct source *s, const char *path, struct error *error)
{
    struct error why;
    int fd = model_open(path, 0, error);
    if (fd < 0)
        return -1;
    gguf_parts_open(&s->parts, fd, path);
    if (model_index_build_parts(&s->parts, &s->index, error))
        return -1;
    if (gguf_open_parts(&s->gguf, &s->parts, false, &why))
        return error_set(error, why.code, "%.200s: %.180s", path, why.text);
    for (uint32_t i = 0; i < s->gguf.part_count; i++) {
        if (add_file(s, s->parts.path[i], error))
            return -1;
        posix_fadvise(s->parts.fd[i], 0, 0, POSIX_FADV_DONTNEED);
    }
    return hash_source(s, s->files[0].bytes, error);
}

static int open_hf(struct source *s, const char *path, uint32_t fp8_type, struct error *error)
{
    char file[PATH_MAX];
    s->is_hf = true;
    if (hf_open_as(&s->hf, path, fp8_type, error))
        return -1;
    for (uint32_t i = 0; i < s->hf.files.file_count; i++) {
        snprintf(file, sizeof file, "%.3500s/%s", path, s->hf.files.files[i].name);
        if (add_file(s, file, error))
            return -1;
    }
    struct gguf_source from = {
        .read = gguf_writer_read, .arg = s->hf.gguf, .bytes = gguf_writer_bytes(s->hf.gguf)};
    struct error why;
    struct model_file_id id = {.bytes = from.bytes};
    if (model_index_build_source(&from, &id, &s->index, &why) || gguf_open(&s->gguf, &from, &why))
        return error_set(error, why.code, "%.200s: %.180s", path, why.text);
    return hash_source(s, from.bytes, error);
}

int source_open(struct source *s, const char *path, uint32_t fp8_type, struct error *error)
{
    struct stat st;
    char real[PATH_MAX];
    *s = (struct source){.parts.fd[0] = -1};
    if (!gguf_real_path(path, real) || stat(real, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", path);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "%.250s is neither a file nor a directory", path);
    int status =
        S_ISDIR(st.st_mode) ? open_hf(s, real, fp8_type, error) : open_gguf(s, real, error);
    if (status)
        source_close(s);
    return status;
}

void source_close(struct source *s)
{
    for (uint32_t i = 0; i < s->file_count; i++)
        free(s->files[i].path);
    free(s->files);
    free(s->index);
    gguf_close(&s->gguf);
    if (s->is_hf)
        hf_close(&s->hf);
    if (s->parts.fd[0] >= 0)
        close(s->parts.fd[0]);
    gguf_parts_close(&s->parts);
    *s = (struct source){.parts.fd[0] = -1};
}

static const struct model_entry *entry_of(const struct source *s, uint32_t layer, uint32_t expert)
{
    return &model_index_entries(s->index)[model_entry_expert(s->index, layer, expert)];
}

struct hf_extent source_expert(const struct source *s, uint32_t layer, uint32_t expert,
                               enum expert_matrix m)
{
    const struct model_entry *e = entry_of(s, layer, expert);
    const struct model_matrix *matrix = &e->matrix[m];
    if (s->is_hf) /* one header tensor per matrix */
        return hf_part_of(&s->hf, e->extent[model_matrix_extent(e, m)].tensor, expert, 0, matrix->n)
            .at;
    /* Gate and up may share an extent: find the one that contains the slot bytes of the matrix. */
    uint32_t i = 0;
    while (matrix->slot_offset >= e->extent[i].slot_offset + e->extent[i].read_bytes) {
        i++;
        sl_assert(i < e->extents);
    }
    const struct model_extent *x = &e->extent[i];
    return (struct hf_extent){x->part, x->file_offset + (matrix->slot_offset - x->slot_offset),
                              matrix->n * matrix->row_bytes};
}

uint32_t source_converted(const struct source *s, uint32_t layer, uint32_t expert,
                          enum expert_matrix m)
{
    if (!s->is_hf)
        return SOURCE_SAME;
    const struct model_entry *e = entry_of(s, layer, expert);
    uint32_t t = e->extent[model_matrix_extent(e, m)].tensor;
    return s->hf.tensors[t].same ? SOURCE_SAME : t;
}

bool source_is_dense(const struct source *s, uint32_t tensor)
{
    const struct model_entry *e = model_index_entries(s->index);
    for (uint32_t i = 0; i < s->index->dense_count; i++)
        if (e[i].extent[0].tensor == tensor)
            return true;
    return false;
}

int source_read(const struct bulk *file, void *buf, uint64_t offset, uint64_t bytes,
                const void **data, struct error *error)
{
    uint64_t start = align_down(offset, PAGE_BYTES), got;
    if (bulk_read(file, buf, align_up(offset + bytes, PAGE_BYTES) - start, start, &got, error))
        return -1;
    if (start + got < offset + bytes)
        return error_set(error, ERR_GONE, "the file was truncated during the pack");
    *data = (const char *)buf + (offset - start);
    return 0;
}

/* ---- dense tensors ---- */

struct dense { /* one tensor being copied */
    const struct source *source;
    source_sink *sink;
    void *arg;
    struct bulk file;
    void *buffer; /* SOURCE_CHUNK and two pages, or a row */
};

static int copy(const struct dense *d, struct hf_extent from, struct error *error)
{
    for (uint64_t at = 0; at < from.bytes; at += SOURCE_CHUNK) {
        uint64_t n = from.bytes - at < SOURCE_CHUNK ? from.bytes - at : SOURCE_CHUNK;
        const void *data = NULL;
        struct error why;
        if (source_read(&d->file, d->buffer, from.offset + at, n, &data, &why))
            return error_set(error, why.code, "%.200s: %.150s", d->source->files[from.file].path,
                             why.text);
        if (d->sink(d->arg, data, n, error))
            return -1;
    }
    return 0;
}

static int convert(const struct dense *d, uint32_t tensor, uint32_t plane, const char *path,
                   struct error *error)
{
    struct source_reader r;
    struct error why;
    const struct hf_tensor *t = &d->source->hf.tensors[tensor];
    uint64_t run = SOURCE_CHUNK / t->made_row_bytes;
    run = run > 0 ? run : 1;
    reader_open(&r, d->source);
    int status = reader_plane(&r, tensor, plane, &why);
    if (status != 0)
        error_set(error, why.code, "%.200s: %.150s", path, why.text);
    for (uint64_t row = 0; row < t->rows && status == 0; row += run) {
        uint64_t n = t->rows - row < run ? t->rows - row : run;
        if ((status = reader_rows(&r, &d->file, row, n, d->buffer, &why)))
            error_set(error, why.code, "%.200s: %.150s", path, why.text);
        else
            status = d->sink(d->arg, d->buffer, n * t->made_row_bytes, error);
    }
    reader_close(&r);
    return status;
}

/* A plane of a tensor of a directory, which may be in another file than the one before. */
static int make_plane(struct dense *d, uint32_t tensor, uint32_t plane, struct error *error)
{
    const struct hf_tensor *t = &d->source->hf.tensors[tensor];
    struct hf_extent at = {0};
    if (t->form != HF_MADE)
        at = hf_part_of(&d->source->hf, tensor, plane, 0, t->rows).at;
    const char *path = d->source->files[at.file].path;
    if (bulk_open(&d->file, path, O_RDONLY, error))
        return -1;
    int status = t->same ? copy(d, at, error) : convert(d, tensor, plane, path, error);
    bulk_close(&d->file);
    return status;
}

int source_dense(const struct source *s, uint32_t tensor, source_sink *sink, void *arg,
                 struct error *error)
{
    const struct model_tensor *from = &s->gguf.tensors[tensor];
    const struct hf_tensor *t = s->is_hf ? &s->hf.tensors[tensor] : NULL;
    const struct hf_extent at = {from->part, from->file_offset, from->bytes};
    uint64_t row = t ? t->made_row_bytes : 0;
    struct dense d = {.source = s, .sink = sink, .arg = arg};
    d.buffer =
        bulk_buffer(align_up(row > SOURCE_CHUNK ? row : SOURCE_CHUNK, PAGE_BYTES) + 2 * PAGE_BYTES);
    if (!d.buffer)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tensor buffers)");
    int status = 0;
    for (uint32_t plane = 0; t && plane < t->planes && status == 0; plane++)
        status = make_plane(&d, tensor, plane, error);
    if (!t && (status = bulk_open(&d.file, s->files[at.file].path, O_RDONLY, error)) == 0) {
        status = copy(&d, at, error);
        bulk_close(&d.file);
    }
    free(d.buffer);
    return status;
}
