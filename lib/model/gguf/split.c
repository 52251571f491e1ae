/* SPDX-License-Identifier: Apache-2.0 */
/* Opens all parts of a split model, checks that they belong together, and joins their tensor
 * tables. */
#include "lib/model/gguf/split.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/file/skeleton.h"

void gguf_parts_open(struct gguf_parts *p, int fd, const char *path)
{
    uint32_t number;
    memset(p, 0, sizeof *p);
    if (strlen(path) >= sizeof p->path[0] || !gguf_part_name(path, &number, &p->count) ||
        number != 1)
        p->count = 1;
    size_t n = strlen(path), cap = sizeof p->path[0]; /* of one file only a name in messages */
    snprintf(p->path[0], cap, "%s", n < cap ? path : path + n - cap + 1);
    p->fd[0] = fd;
    for (uint32_t i = 1; i < p->count && i < MODEL_PARTS_MAX; i++) {
        memcpy(p->path[i], p->path[0], sizeof p->path[0]);
        gguf_set_part(p->path[i], i + 1);
        p->fd[i] = open(p->path[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        p->why[i] = p->fd[i] < 0 ? errno : 0;
    }
}

void gguf_parts_close(struct gguf_parts *p)
{
    for (uint32_t i = 1; i < p->count && i < MODEL_PARTS_MAX; i++)
        if (p->fd[i] >= 0)
            close(p->fd[i]);
    p->count = 0;
}

/* ---- headers --------------------------------------------------------------------------------- */

ssize_t gguf_read(void *reader, void *buf, size_t n, uint64_t offset)
{
    struct gguf_reader *r = reader;
    ssize_t got = pread(r->fd, buf, n, (off_t)offset);
    if (got > 0 && offset + (uint64_t)got > r->end)
        r->end = offset + (uint64_t)got;
    if (got > 0 && offset == 0 && r->skeletons)
        skeleton_restore(buf, (size_t)got);
    return got;
}

static int open_one(struct gguf *g, struct gguf_parts *p, uint32_t i, bool own_types,
                    struct error *error)
{
    struct stat st;
    if (fstat(p->fd[i], &st) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot stat the file");
    if (!S_ISREG(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "not a regular file");
    if (!p->skeletons && skeleton_is(p->fd[i]))
        return error_set(error, ERR_BAD_INPUT,
                         "a skeleton of a model on a server, without experts: open the URL");
    struct gguf_reader r = {.fd = p->fd[i], .skeletons = p->skeletons};
    struct gguf_source source = {
        .read = gguf_read, .arg = &r, .bytes = (uint64_t)st.st_size, .own_types = own_types};
    int status = gguf_open(g, &source, error);
    p->read_to[i] = r.end;
    if (status == 0)
        g->source = (struct gguf_source){.bytes = source.bytes, .own_types = own_types};
    return status;
}

/* The name without directories, for messages. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int foreign(const struct gguf_parts *p, uint32_t i, const char *key, uint64_t value,
                   uint64_t wanted, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT,
                     "%.100s is not a part of this model: %s is %" PRIu64 " instead of %" PRIu64,
                     base_name(p->path[i]), key, value, wanted);
}

/* Checks a key of part i, which must have the value. */
static int check_key(const struct gguf *g, const struct gguf_parts *p, uint32_t i, const char *key,
                     uint64_t wanted, struct error *error)
{
    uint64_t value;
    int found = gguf_get_uint(g, key, &value, error);
    if (found < 0)
        return -1;
    if (!found)
        return error_set(error, ERR_BAD_INPUT,
                         "%.100s is not a part of this model: it has no key %s",
                         base_name(p->path[i]), key);
    return value == wanted ? 0 : foreign(p, i, key, value, wanted, error);
}

static int append(struct gguf *g, const struct gguf *part, uint32_t number, struct error *error)
{
    uint64_t count = (uint64_t)g->tensor_count + part->tensor_count;
    if (count > GGUF_TENSORS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %u tensors", GGUF_TENSORS_MAX);
    struct model_tensor *more = reallocarray(g->tensors, count + 1, sizeof *more);
    if (!more)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu64 " tensors)", count);
    g->tensors = more;
    for (uint32_t i = 0; i < part->tensor_count; i++) {
        more[g->tensor_count] = part->tensors[i];
        more[g->tensor_count++].part = number;
    }
    return 0;
}

static int add_part(struct gguf *g, struct gguf_parts *p, uint32_t i, uint64_t tensors,
                    struct error *error)
{
    struct gguf part;
    struct error why;
    if (p->fd[i] < 0)
        return error_set_errno(error, ERR_BAD_INPUT, p->why[i],
                               "part %" PRIu32 " of %" PRIu32 " cannot be opened: %.100s", i + 1,
                               p->count, base_name(p->path[i]));
    if (open_one(&part, p, i, g->source.own_types, &why))
        return error_set(error, why.code, "%.80s: %.150s", base_name(p->path[i]), why.text);
    int status = check_key(&part, p, i, "split.count", p->count, error);
    if (status == 0)
        status = check_key(&part, p, i, "split.no", i, error);
    if (status == 0)
        status = check_key(&part, p, i, "split.tensors.count", tensors, error);
    if (status == 0)
        status = append(g, &part, i, error);
    gguf_close(&part);
    return status;
}

int gguf_check_whole(const struct gguf *g, struct error *error)
{
    uint64_t count = 1;
    if (gguf_get_uint(g, "split.count", &count, error) < 0)
        return -1;
    return count <= 1 ? 0
                      : error_set(error, ERR_BAD_INPUT,
                                  "one part of a model split into %" PRIu64
                                  " files: its name must end with -00001-of-%05" PRIu64 ".gguf",
                                  count, count);
}

static int add_parts(struct gguf *g, struct gguf_parts *p, struct error *error)
{
    uint64_t count = 1, tensors = 0;
    if (gguf_get_uint(g, "split.count", &count, error) < 0)
        return -1;
    if (count <= 1 || p->count == 1) {
        g->part_count = 1;
        return gguf_check_whole(g, error);
    }
    if (count > MODEL_PARTS_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "split into %" PRIu64 " files; at most %d are supported: merge them",
                         count, MODEL_PARTS_MAX);
    if (check_key(g, p, 0, "split.count", p->count, error) ||
        check_key(g, p, 0, "split.no", 0, error) ||
        gguf_get_uint(g, "split.tensors.count", &tensors, error) < 0)
        return -1;
    for (uint32_t i = 1; i < p->count; i++)
        if (add_part(g, p, i, tensors, error))
            return -1;
    if (g->tensor_count != tensors)
        return error_set(error, ERR_BAD_INPUT,
                         "the parts have %" PRIu32 " tensors, split.tensors.count is %" PRIu64,
                         g->tensor_count, tensors);
    g->part_count = p->count;
    return 0;
}

int gguf_open_parts(struct gguf *g, struct gguf_parts *p, bool own_types, struct error *error)
{
    if (open_one(g, p, 0, own_types, error))
        return -1;
    if (add_parts(g, p, error) == 0)
        return 0;
    gguf_close(g);
    return -1;
}
