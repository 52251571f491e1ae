/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the headers of safetensors files. */
#include "lib/model/hf/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/reader.h"
#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "lib/text/printable.h"

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

#define TENSOR_VALUES_MAX 64 /* of the description of a tensor */

static const struct json_limits limits = {
    .bytes = SAFETENSORS_INDEX_MAX, .string = MIB, .values = 0, .depth = 16};

static const struct dtype {
    const char *name;
    uint32_t bytes, type;
} dtypes[] = {
    {"F32", 4, TENSOR_F32},
    {"F16", 2, TENSOR_F16},
    {"BF16", 2, TENSOR_BF16},
    {"F64", 8, SAFETENSORS_OTHER},
    {"I64", 8, SAFETENSORS_I64},
    {"I32", 4, SAFETENSORS_I32},
    {"I16", 2, SAFETENSORS_OTHER},
    {"I8", 1, SAFETENSORS_I8},
    {"U64", 8, SAFETENSORS_OTHER},
    {"U32", 4, SAFETENSORS_OTHER},
    {"U16", 2, SAFETENSORS_OTHER},
    {"U8", 1, SAFETENSORS_U8},
    {"BOOL", 1, SAFETENSORS_OTHER},
    {"F8_E4M3", 1, SAFETENSORS_F8_E4M3},
    {"F8_E8M0", 1, SAFETENSORS_F8_E8M0},
    {"F8_E5M2", 1, SAFETENSORS_OTHER},
};

/* An integer >= 0. */
static bool number(const json_t *value, uint64_t *n)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *n = (uint64_t)json_integer_value(value);
    return true;
}

static int check_name(const char *name, size_t bytes, struct error *error)
{
    if (bytes == 0 || bytes > SAFETENSORS_NAME_MAX)
        return error_set(error, ERR_BAD_INPUT, "a tensor has a name of %zu bytes (1 to %u)", bytes,
                         SAFETENSORS_NAME_MAX);
    for (size_t i = 0; i < bytes; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return error_set(error, ERR_BAD_INPUT,
                             "tensor name '%s' has characters other than printable ASCII",
                             printable(name, bytes).text);
    return 0;
}

static int parse_dtype(const json_t *value, const char *name, const struct dtype **dtype,
                       struct error *error)
{
    const char *type_name = json_string_value(value);
    for (size_t i = 0; type_name && i < ARRAY_LEN(dtypes); i++)
        if (strcmp(dtypes[i].name, type_name) == 0) {
            *dtype = &dtypes[i];
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "tensor %s has the unknown dtype '%s'", name,
                     type_name ? printable(type_name, strlen(type_name)).text : "");
}

/* Reads the shape and computes the size in bytes. */
static int parse_shape(struct safetensor *t, const json_t *shape, uint32_t element,
                       struct error *error)
{
    size_t dims = json_array_size(shape);
    if (!json_is_array(shape) || dims > SAFETENSORS_DIMS_MAX)
        return error_set(error, ERR_BAD_INPUT, "tensor %s has no shape of at most %u numbers",
                         t->name, SAFETENSORS_DIMS_MAX);
    t->dims = (uint32_t)dims;
    t->bytes = element;
    for (size_t d = 0; d < SAFETENSORS_DIMS_MAX; d++) {
        t->shape[d] = 1;
        if (d >= dims)
            continue;
        if (!number(json_array_get(shape, d), &t->shape[d]))
            return error_set(error, ERR_BAD_INPUT, "tensor %s has an odd shape", t->name);
        if (mul_overflows(t->bytes, t->shape[d], &t->bytes) || t->bytes > INT64_MAX)
            return error_set(error, ERR_BAD_INPUT, "tensor %s is larger than 2^63 bytes", t->name);
    }
    return 0;
}

/* data_bytes: bytes after the header; they start at data_offset in the file. */
static int parse_offsets(struct safetensor *t, const json_t *offsets, uint64_t data_offset,
                         uint64_t data_bytes, struct error *error)
{
    uint64_t begin, end;
    if (json_array_size(offsets) != 2 || !number(json_array_get(offsets, 0), &begin) ||
        !number(json_array_get(offsets, 1), &end))
        return error_set(error, ERR_BAD_INPUT, "tensor %s has no data_offsets of two numbers",
                         t->name);
    if (begin > end || end > data_bytes)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s lies at %" PRIu64 " to %" PRIu64 " of %" PRIu64
                         " bytes of data",
                         t->name, begin, end, data_bytes);
    if (end - begin != t->bytes)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: its shape takes %" PRIu64 " bytes, its data_offsets %" PRIu64,
                         t->name, t->bytes, end - begin);
    t->offset = data_offset + begin;
    return 0;
}

static struct safetensor *add_tensor(struct safetensors *s, const char *name, struct error *error)
{
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity ? s->capacity * 2 : 256;
        struct safetensor *bigger = reallocarray(s->tensors, capacity, sizeof *bigger);
        if (!bigger) {
            error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " tensors)", capacity);
            return NULL;
        }
        s->tensors = bigger;
        s->capacity = capacity;
    }
    struct safetensor *t = &s->tensors[s->count];
    *t = (struct safetensor){.name = strdup(name)};
    if (!t->name) {
        error_set(error, ERR_NO_MEMORY, "out of memory (tensor's name)");
        return NULL;
    }
    s->count++;
    return t;
}

static int by_offset(const void *x, const void *y)
{
    const struct safetensor *a = x, *b = y;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* empty ones first */
}

/* Sorts the tensors of this file from `first` on; they must fill its data without gaps. */
static int check_cover(struct safetensors *s, uint32_t first, uint64_t data_offset,
                       uint64_t file_bytes, struct error *error)
{
    uint64_t at = data_offset;
    if (s->count > first)
        qsort(s->tensors + first, s->count - first, sizeof *s->tensors, by_offset);
    for (uint32_t i = first; i < s->count; i++) {
        const struct safetensor *t = &s->tensors[i];
        if (t->offset != at)
            return error_set(error, ERR_BAD_INPUT, "tensor %s %s", t->name,
                             t->offset < at ? "overlaps another" : "has a hole before it");
        at += t->bytes;
    }
    return at == file_bytes
               ? 0
               : error_set(error, ERR_BAD_INPUT, "%" PRIu64 " bytes at the end belong to no tensor",
                           file_bytes - at);
}

static int parse_tensor(struct safetensors *s, const char *name, const json_t *value,
                        uint64_t data_offset, uint64_t file_bytes, uint32_t file,
                        struct error *error)
{
    const struct dtype *dtype = NULL;
    struct safetensor *t = add_tensor(s, name, error);
    if (!t || parse_dtype(json_object_get(value, "dtype"), name, &dtype, error))
        return -1;
    t->type = dtype->type;
    t->file = file;
    if (parse_shape(t, json_object_get(value, "shape"), dtype->bytes, error))
        return -1;
    return parse_offsets(t, json_object_get(value, "data_offsets"), data_offset,
                         file_bytes - data_offset, error);
}

/* One member of the header. Errors of its contents go to *error, those of JSON stay in the
 * reader. */
static int parse_member(struct safetensors *s, struct json_reader *r, uint64_t data_offset,
                        uint64_t file_bytes, uint32_t file, struct error *error)
{
    char name[SAFETENSORS_NAME_MAX + 1];
    if (strcmp(json_reader_text(r), "__metadata__") == 0)
        return json_skip_value(r) ? 0 : -1;
    if (check_name(json_reader_text(r), json_reader_bytes(r), error))
        return -1;
    strcpy(name, json_reader_text(r));
    json_reader_allow_values(r, TENSOR_VALUES_MAX);
    json_t *value = json_read_value(r);
    int status = value ? parse_tensor(s, name, value, data_offset, file_bytes, file, error) : -1;
    json_decref(value);
    return status;
}

int safetensors_parse(struct safetensors *s, const char *header, size_t bytes, uint64_t file_bytes,
                      uint32_t file, struct error *error)
{
    sl_assert(file_bytes >= 8 && bytes <= file_bytes - 8);
    uint32_t first = s->count;
    struct error why = {0};
    struct json_reader *r = json_reader_text_of(header, bytes, &limits, error);
    if (!r)
        return -1;
    if (json_next(r) != JSON_EVENT_OBJECT)
        json_reader_fail(r, ERR_BAD_INPUT, "not a JSON object");
    while (json_next(r) == JSON_EVENT_KEY)
        if (parse_member(s, r, 8 + bytes, file_bytes, file, &why))
            break;
    if (why.code != ERR_NONE)
        json_reader_fail(r, why.code, why.text);
    int status = json_reader_end(r, error);
    json_reader_close(r);
    return status ? status : check_cover(s, first, 8 + bytes, file_bytes, error);
}

/* ---- files ---- */

static int read_all(int fd, void *buf, size_t bytes, uint64_t offset, struct error *error)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, (char *)buf + at, bytes - at, (off_t)(offset + at));
        if (n < 0)
            return error_set_errno(error, ERR_IO, errno, "cannot read");
        if (n == 0)
            return error_set(error, ERR_GONE, "it became shorter while it was read");
        at += (size_t)n;
    }
    return 0;
}

static int parse_file(struct safetensors *s, int fd, uint32_t file, struct error *error)
{
    struct stat st;
    uint64_t length;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "not a regular file");
    s->files[file].bytes = (uint64_t)st.st_size;
    s->files[file].mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (st.st_size < 8)
        return error_set(error, ERR_BAD_INPUT, "not a safetensors file: only %lld bytes long",
                         (long long)st.st_size);
    if (read_all(fd, &length, sizeof length, 0, error))
        return -1;
    if (length > SAFETENSORS_HEADER_MAX || length > (uint64_t)st.st_size - 8)
        return error_set(error, ERR_BAD_INPUT,
                         "not a safetensors file, or cut: its header claims %" PRIu64 " bytes",
                         length);
    char *header = malloc(length + 1);
    if (!header)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu64 " bytes of header)",
                         length);
    int status = read_all(fd, header, length, 8, error);
    if (status == 0)
        status = safetensors_parse(s, header, length, (uint64_t)st.st_size, file, error);
    free(header);
    return status;
}

static int open_file(struct safetensors *s, const char *dir, uint32_t file, struct error *error)
{
    char path[4096];
    struct error why;
    snprintf(path, sizeof path, "%s/%s", dir, s->files[file].name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is rejected, not waited for */
    if (fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", path);
    int status = parse_file(s, fd, file, &why);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return status ? error_set(error, why.code, "%.200s: %.150s", path, why.text) : 0;
}

/* Of a file in the directory of the index. Names are part of one-line messages. */
static bool is_file_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f || name[i] == '/')
            return false;
    return n > 0 && n <= SAFETENSORS_NAME_MAX && name[0] != '.';
}

static int add_file(struct safetensors *s, const char *name, uint32_t *number, struct error *error)
{
    for (*number = 0; *number < s->file_count; ++*number)
        if (strcmp(s->files[*number].name, name) == 0)
            return 0;
    if (!is_file_name(name) || s->file_count == SAFETENSORS_FILES_MAX)
        return error_set(
            error, ERR_BAD_INPUT,
            "%s names '%s', which is not a file in its directory (or one of more than %u)",
            INDEX_NAME, printable(name, strlen(name)).text, SAFETENSORS_FILES_MAX);
    struct safetensors_file *bigger = reallocarray(s->files, s->file_count + 1, sizeof *bigger);
    char *copy = strdup(name);
    if (bigger)
        s->files = bigger;
    if (!bigger || !copy) {
        free(copy);
        return error_set(error, ERR_NO_MEMORY, "out of memory (list of files)");
    }
    s->files[s->file_count++] = (struct safetensors_file){.name = copy};
    return 0;
}

static int index_names(struct safetensors *s, struct error *error)
{
    if (!strtab_init(&s->names, s->count))
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " names)", s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        const char *name = s->tensors[i].name;
        if (strtab_put(&s->names, name, (uint32_t)strlen(name), i) != STRTAB_NONE)
            return error_set(error, ERR_BAD_INPUT, "there are two tensors %s", name);
    }
    return 0;
}

/* A member of weight_map: a tensor and its file. */
typedef int map_visit(struct safetensors *s, const char *tensor, const char *name,
                      struct error *error);

static int visit_map(struct safetensors *s, struct json_reader *r, map_visit *visit,
                     struct error *error)
{
    char tensor[SAFETENSORS_NAME_MAX + 1];
    if (json_next(r) != JSON_EVENT_OBJECT)
        return 0;
    while (json_next(r) == JSON_EVENT_KEY) {
        snprintf(tensor, sizeof tensor, "%s", json_reader_text(r));
        const char *name = json_next(r) == JSON_EVENT_STRING ? json_reader_text(r) : "";
        if (json_last_event(r) != JSON_EVENT_ERROR && visit(s, tensor, name, error))
            return -1;
    }
    return 0;
}

/* Reads the index once per visit: it may have a hundred thousand members. */
static int visit_index(struct safetensors *s, const char *path, map_visit *visit,
                       struct error *error)
{
    struct error why = {0};
    struct json_reader *r = json_reader_file(path, &limits, error);
    if (!r)
        return -1;
    if (json_next(r) != JSON_EVENT_OBJECT)
        json_reader_fail(r, ERR_BAD_INPUT, "not a JSON object");
    int status = 0;
    while (status == 0 && json_next(r) == JSON_EVENT_KEY)
        if (strcmp(json_reader_text(r), "weight_map") == 0)
            status = visit_map(s, r, visit, error);
        else
            json_skip_value(r);
    if (status == 0 && json_reader_end(r, &why) != 0)
        status = error_set(error, why.code, "%.200s: %.180s", path, why.text);
    json_reader_close(r);
    return status;
}

static int visit_file(struct safetensors *s, const char *tensor, const char *name,
                      struct error *error)
{
    uint32_t file;
    (void)tensor;
    return add_file(s, name, &file, error);
}

static int visit_tensor(struct safetensors *s, const char *tensor, const char *name,
                        struct error *error)
{
    const struct safetensor *t = safetensors_find(s, tensor);
    if (!t || strcmp(s->files[t->file].name, name) != 0)
        return error_set(error, ERR_BAD_INPUT, "%s: tensor %s is not in %s", INDEX_NAME,
                         printable(tensor, strlen(tensor)).text,
                         printable(name, strlen(name)).text);
    return 0;
}

/* Opens every file named in the map, and checks that every tensor is in the file given there. */
static int open_mapped(struct safetensors *s, const char *dir, const char *path,
                       struct error *error)
{
    if (visit_index(s, path, visit_file, error))
        return -1;
    if (s->file_count == 0)
        return error_set(error, ERR_BAD_INPUT, "%s has no weight_map", INDEX_NAME);
    for (uint32_t i = 0; i < s->file_count; i++)
        if (open_file(s, dir, i, error))
            return -1;
    return index_names(s, error) || visit_index(s, path, visit_tensor, error) ? -1 : 0;
}

static int open_all(struct safetensors *s, const char *dir, struct error *error)
{
    char path[4096];
    uint32_t file;
    struct stat st;
    snprintf(path, sizeof path, "%s/" INDEX_NAME, dir);
    if (lstat(path, &st) == 0) /* a link that leads nowhere, too */
        return open_mapped(s, dir, path, error);
    if (add_file(s, SINGLE_NAME, &file, error) || open_file(s, dir, file, error))
        return -1;
    return index_names(s, error);
}

int safetensors_open(struct safetensors *s, const char *dir, struct error *error)
{
    memset(s, 0, sizeof *s);
    if (strlen(dir) > 3500)
        return error_set(error, ERR_BAD_INPUT, "the path %.60s... is too long", dir);
    if (open_all(s, dir, error) == 0)
        return 0;
    safetensors_close(s);
    return -1;
}

void safetensors_close(struct safetensors *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free(s->tensors[i].name);
    for (uint32_t i = 0; i < s->file_count; i++)
        free(s->files[i].name);
    free(s->tensors);
    free(s->files);
    strtab_free(&s->names);
    memset(s, 0, sizeof *s);
}

const struct safetensor *safetensors_find(const struct safetensors *s, const char *name)
{
    uint32_t i = strtab_get(&s->names, name, strlen(name));
    return i == STRTAB_NONE ? NULL : &s->tensors[i];
}
