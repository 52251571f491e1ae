/* SPDX-License-Identifier: Apache-2.0 */
/* The skeleton of a GGUF file, or of all parts of a split one: the header, the tensors that are no
 * experts, and the samples that identify the file. Which tensors these are follows from an index of
 * the skeleton itself (lib/model/index), so that the header is checked here as that of a file is. A
 * table of which a token reads a few rows stays on the server, as experts do. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/file/part_name.h"
#include "lib/file/sample_hash.h"
#include "lib/file/skeleton.h"
#include "lib/model/gguf/split.h"
#include "lib/model/index/model_index.h"
#include "procs/engine/fetch/fetch.h"

#define DEFAULT_NAME "model.gguf"
#define CHUNK_BYTES  (16 * MIB)
#define SAMPLE_BYTES (4 * MIB) /* more than all ranges of sample_hash.h together */

struct part {
    struct server server;
    int fd;
    char name[FETCH_URL_BYTES];
    char *samples; /* the ranges, one after the other */
};

struct range {
    uint32_t part;
    uint64_t from, to;
};

struct job {
    struct fetch *f;
    uint32_t parts;
    struct part part[MODEL_PARTS_MAX];
    struct gguf_parts files;
    struct model_index *index;
    struct range *range;
    uint32_t ranges;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* The names of all parts follow from that of the URL. */
static int name_parts(struct job *j, struct error *error)
{
    struct fetch *f = j->f;
    char name[FETCH_URL_BYTES];
    uint32_t number;
    io_url_name(f->url, name);
    bool split = gguf_part_name(name, &number, &j->parts) && j->parts > 1;
    j->parts = split ? j->parts : 1;
    if (j->parts > MODEL_PARTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "%.200s: split into more than %d files", f->key,
                         MODEL_PARTS_MAX);
    if (split && !name_is_plain(name))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: the name of a part has only letters, digits, '.', '-' and '_'",
                         f->key);
    for (uint32_t i = 0; i < j->parts; i++) {
        if (split)
            gguf_set_part(name, i + 1);
        if (io_url_sibling(f->url, name, f->file_url[i], error) != 0)
            return -1;
        snprintf(j->part[i].name, sizeof j->part[i].name, "%s",
                 name_is_plain(name) && strstr(name, ".gguf") ? name : DEFAULT_NAME);
    }
    return 0;
}

/* ---- identity -------------------------------------------------------------------------------- */

static int sample(struct part *p, struct sample_hash *h, struct error *error)
{
    uint64_t at, bytes, n = 0;
    p->samples = malloc(SAMPLE_BYTES);
    if (!p->samples)
        return error_set(error, ERR_NO_MEMORY, "out of memory (fetch)");
    sample_hash_size(h, p->server.bytes);
    for (uint32_t i = 0; sample_hash_range(p->server.bytes, i, &at, &bytes); i++, n += bytes)
        if (server_read(&p->server, at, at + bytes, p->samples + n, error) != 0)
            return -1;
    sample_hash_bytes(h, p->samples, n);
    return 0;
}

static int identify(struct job *j, uint8_t identity[SAMPLE_HASH_BYTES], struct error *error)
{
    struct sample_hash *h = sample_hash_start();
    int rc = h ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (fetch)");
    for (uint32_t i = 0; i < j->parts && rc == 0; i++) {
        rc = server_open(&j->part[i].server, j->f->file_url[i], error);
        if (rc == 0)
            rc = sample(&j->part[i], h, error);
    }
    if (rc == 0)
        sample_hash_result(h, identity);
    sample_hash_free(h);
    return rc;
}

/* ---- headers --------------------------------------------------------------------------------- */

static int write_at(void *arg, const void *bytes, uint64_t count, uint64_t at, struct error *error)
{
    const int *fd = arg;
    const char *from = bytes;
    while (count > 0) {
        ssize_t n = pwrite(*fd, from, count, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set_errno(error, ERR_IO, n < 0 ? errno : EIO,
                                   "cannot write what was fetched");
        from += n;
        at += (uint64_t)n;
        count -= (uint64_t)n;
    }
    return 0;
}

static ssize_t read_header(void *arg, void *buf, size_t n, uint64_t offset)
{
    struct part *p = arg;
    struct error ignored;
    uint64_t left = offset < p->server.bytes ? p->server.bytes - offset : 0;
    n = n < left ? n : left;
    errno = EIO;
    if (n > 0 && (server_read(&p->server, offset, offset + n, buf, &ignored) != 0 ||
                  write_at(&p->fd, buf, n, offset, &ignored) != 0))
        return -1;
    return (ssize_t)n;
}

/* The header and the samples, of which some are in holes. */
static int fetch_header(struct part *p, const char *url, struct error *error)
{
    struct gguf g;
    struct error why;
    uint64_t at, bytes, n = 0;
    const struct gguf_source source = {.read = read_header, .arg = p, .bytes = p->server.bytes};
    if (gguf_open(&g, &source, &why) != 0)
        return error_set(error, why.code, "%.200s: %.200s", url, why.text);
    gguf_close(&g);
    for (uint32_t i = 0; sample_hash_range(p->server.bytes, i, &at, &bytes); i++, n += bytes)
        if (write_at(&p->fd, p->samples + n, bytes, at, error) != 0)
            return -1;
    return write_at(&p->fd, SKELETON_MAGIC, SKELETON_MAGIC_BYTES, 0, error);
}

static int fetch_headers(struct job *j, struct error *error)
{
    struct error why;
    for (uint32_t i = 0; i < j->parts; i++) {
        struct part *p = &j->part[i];
        p->fd = place_open(j->f, p->name, p->server.bytes, error);
        if (p->fd < 0 || fetch_header(p, j->f->file_url[i], error) != 0)
            return -1;
    }
    gguf_parts_open(&j->files, j->part[0].fd, j->f->model);
    j->files.skeletons = true;
    int rc = model_index_build_parts(&j->files, &j->index, &why);
    gguf_parts_close(&j->files);
    return rc == 0 ? 0 : error_set(error, why.code, "%.150s: %.250s", j->f->key, why.text);
}

/* ---- dense tensors --------------------------------------------------------------------------- */

static int by_place(const void *left, const void *right)
{
    const struct range *a = left, *b = right;
    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* The ranges that loaders read of dense entries, in order and without overlaps. */
static int list_ranges(struct job *j, struct error *error)
{
    const struct model_index *m = j->index;
    const struct model_entry *entries = model_index_entries(m);
    uint32_t table = m->page_count > 0 ? model_table_entry(m) : ENTRY_NONE, n = 0;
    j->range = calloc((size_t)m->dense_count * ENTRY_EXTENTS_MAX + 1, sizeof *j->range);
    if (!j->range)
        return error_set(error, ERR_NO_MEMORY, "out of memory (fetch)");
    for (uint32_t i = 0; i < m->dense_count; i++)
        for (uint32_t x = 0; x < entries[i].extents && i != table; x++) {
            const struct model_extent *e = &entries[i].extent[x];
            uint32_t part = entries[i].in_parts ? e->part : 0;
            uint64_t end = e->file_offset + e->read_bytes, size = j->part[part].server.bytes;
            j->range[n++] = (struct range){part, e->file_offset, end < size ? end : size};
        }
    qsort(j->range, n, sizeof *j->range, by_place);
    for (uint32_t i = 0; i < n; i++) {
        struct range *last = j->ranges > 0 ? &j->range[j->ranges - 1] : NULL;
        if (last && last->part == j->range[i].part && j->range[i].from <= last->to)
            last->to = j->range[i].to > last->to ? j->range[i].to : last->to;
        else
            j->range[j->ranges++] = j->range[i];
    }
    for (uint32_t i = 0; i < j->ranges; i++)
        j->f->total += j->range[i].to - j->range[i].from;
    return 0;
}

/* What of [from, to) an earlier run has not fetched, in chunks. */
static int fetch_range(struct job *j, const struct range *r, uint64_t skip, struct error *error)
{
    struct part *p = &j->part[r->part];
    for (uint64_t at = r->from + skip; at < r->to;) {
        uint64_t to = r->to - at < CHUNK_BYTES ? r->to : at + CHUNK_BYTES;
        if (server_transfer(&p->server, at, to, write_at, &p->fd, error) != 0 ||
            (at == 0 && write_at(&p->fd, SKELETON_MAGIC, SKELETON_MAGIC_BYTES, 0, error) != 0) ||
            place_note(j->f, p->fd, to - at, error) != 0)
            return -1;
        at = to;
    }
    return 0;
}

static int fetch_dense(struct job *j, struct error *error)
{
    uint64_t skip = j->f->done;
    for (uint32_t i = 0; i < j->ranges; i++) {
        const struct range *r = &j->range[i];
        uint64_t bytes = r->to - r->from;
        if (skip < bytes && fetch_range(j, r, skip, error) != 0)
            return -1;
        skip -= skip < bytes ? skip : bytes;
        bool last = i + 1 == j->ranges || j->range[i + 1].part != r->part;
        if (last && fdatasync(j->part[r->part].fd) != 0)
            return error_set_errno(error, ERR_IO, errno, "cannot write to %.250s", j->f->place);
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int run(struct job *j, struct error *error)
{
    struct fetch *f = j->f;
    uint8_t identity[SAMPLE_HASH_BYTES];
    if (name_parts(j, error) != 0 || identify(j, identity, error) != 0 ||
        place_take(f, identity, error) != 0)
        return -1;
    int n = snprintf(f->model, sizeof f->model, "%s/%s", f->place, j->part[0].name);
    if (n < 0 || n >= (int)sizeof f->model)
        return error_set(error, ERR_BAD_INPUT, "the path %.200s/... is too long", f->place);
    if (f->complete)
        return 0;
    if (fetch_headers(j, error) != 0 || list_ranges(j, error) != 0)
        return -1;
    f->done = f->noted = f->done <= f->total ? f->done : 0;
    return fetch_dense(j, error) != 0 ? -1 : place_complete(f, error);
}

int fetch_gguf(struct fetch *f, struct error *error)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return error_set(error, ERR_NO_MEMORY, "out of memory (fetch)");
    j->f = f;
    for (uint32_t i = 0; i < MODEL_PARTS_MAX; i++)
        j->part[i].fd = -1;
    int rc = run(j, error);
    for (uint32_t i = 0; i < MODEL_PARTS_MAX; i++) {
        server_close(&j->part[i].server);
        free(j->part[i].samples);
        if (j->part[i].fd >= 0)
            close(j->part[i].fd);
    }
    free(j->index);
    free(j->range);
    free(j);
    return rc;
}
