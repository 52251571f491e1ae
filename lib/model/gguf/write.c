/* SPDX-License-Identifier: Apache-2.0 */
/* Collects keys and tensors of a GGUF file, lays out its header, and writes it. */
#include "lib/model/gguf/write.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/io/bulk.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

#define ALIGNMENT_DEFAULT 32u
#define STREAM_BYTES      (4 * MIB)

static const uint32_t value_bytes[] = {
#define X(name, id, bytes) [id] = (bytes),
    GGUF_VALUE_TYPES(X)
#undef X
};

struct piece { /* a growing buffer of header bytes */
    char *data;
    size_t bytes, capacity;
};

struct written {
    uint64_t offset; /* in the file; before the layout, from the start of the data */
    uint64_t bytes;
};

struct gguf_writer {
    uint32_t alignment;
    bool no_memory, laid_out, own_types;
    struct piece keys, tensors, header;
    uint64_t key_count;
    struct written *tensor;
    uint32_t tensor_count, tensor_capacity;
    uint64_t data_bytes;
    /* streaming */
    struct bulk out;
    char path[256];
    char *buffer;
    uint64_t buffered, flushed; /* bytes in the buffer, and bytes written before them */
    uint32_t next;              /* tensor being written */
    uint64_t next_done;
};

static void add(struct gguf_writer *w, struct piece *p, const void *data, size_t bytes)
{
    if (w->no_memory)
        return;
    if (p->capacity - p->bytes < bytes) {
        size_t capacity = (p->bytes + bytes) * 2;
        char *bigger = realloc(p->data, capacity);
        if (!bigger) {
            w->no_memory = true;
            return;
        }
        p->data = bigger;
        p->capacity = capacity;
    }
    if (bytes > 0)
        memcpy(p->data + p->bytes, data, bytes);
    p->bytes += bytes;
}

static void add_u32(struct gguf_writer *w, struct piece *p, uint32_t v)
{
    add(w, p, &v, sizeof v);
}

static void add_u64(struct gguf_writer *w, struct piece *p, uint64_t v)
{
    add(w, p, &v, sizeof v);
}

static void add_string(struct gguf_writer *w, struct piece *p, const char *text, size_t bytes)
{
    add_u64(w, p, bytes);
    add(w, p, text, bytes);
}

struct gguf_writer *gguf_writer_new(uint32_t alignment)
{
    sl_assert(alignment >= 8 && alignment <= GGUF_ALIGNMENT_MAX);
    sl_assert((alignment & (alignment - 1)) == 0);
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->alignment = alignment;
    w->out.fd = -1;
    if (alignment != ALIGNMENT_DEFAULT)
        gguf_put_u32(w, "general.alignment", alignment);
    return w;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    bulk_close(&w->out);
    free(w->keys.data);
    free(w->tensors.data);
    free(w->header.data);
    free(w->tensor);
    free(w->buffer);
    free(w);
}

/* ---- keys ---- */

static void write_key_head(struct gguf_writer *w, const char *key, size_t bytes, uint32_t type)
{
    sl_assert(!w->laid_out);
    sl_assert(bytes > 0 && bytes <= GGUF_KEY_BYTES_MAX);
    w->key_count++;
    add_string(w, &w->keys, key, bytes);
    add_u32(w, &w->keys, type);
}

void gguf_put_scalar(struct gguf_writer *w, const char *key, enum gguf_value_type type,
                     const void *value)
{
    sl_assert((size_t)type < ARRAY_LEN(value_bytes) && value_bytes[type] > 0);
    write_key_head(w, key, strlen(key), type);
    add(w, &w->keys, value, value_bytes[type]);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    gguf_put_scalar(w, key, GGUF_U32, &value);
}

void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t value)
{
    gguf_put_scalar(w, key, GGUF_U64, &value);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float value)
{
    gguf_put_scalar(w, key, GGUF_F32, &value);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool value)
{
    unsigned char byte = value;
    gguf_put_scalar(w, key, GGUF_BOOL, &byte);
}

void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t bytes)
{
    write_key_head(w, key, strlen(key), GGUF_STRING);
    add_string(w, &w->keys, text, bytes);
}

void gguf_put_text(struct gguf_writer *w, const char *key, const char *text)
{
    gguf_put_string(w, key, text, strlen(text));
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value_type elem,
                    const void *values, uint64_t count)
{
    sl_assert((size_t)elem < ARRAY_LEN(value_bytes) && value_bytes[elem] > 0);
    sl_assert(count <= GGUF_ARRAY_MAX);
    write_key_head(w, key, strlen(key), GGUF_ARRAY);
    add_u32(w, &w->keys, elem);
    add_u64(w, &w->keys, count);
    add(w, &w->keys, values, count * value_bytes[elem]);
}

void gguf_put_strings(struct gguf_writer *w, const char *key, const char *const *texts,
                      const size_t *bytes, uint64_t count)
{
    sl_assert(count <= GGUF_ARRAY_MAX);
    write_key_head(w, key, strlen(key), GGUF_ARRAY);
    add_u32(w, &w->keys, GGUF_STRING);
    add_u64(w, &w->keys, count);
    for (uint64_t i = 0; i < count; i++)
        add_string(w, &w->keys, texts[i], bytes ? bytes[i] : strlen(texts[i]));
}

/* Bytes of a string in a file, with its length field. The reader has checked it. */
static uint64_t string_span(const char *at)
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return sizeof bytes + bytes;
}

void gguf_put_copy(struct gguf_writer *w, const struct gguf *from, uint32_t i)
{
    sl_assert(i < from->key_count);
    const struct gguf_key *k = &from->keys[i];
    const char *name = from->header + k->name_at, *value = from->header + k->value_at;
    sl_assert(k->name_bytes != strlen("general.alignment") ||
              memcmp(name, "general.alignment", k->name_bytes) != 0);
    write_key_head(w, name, k->name_bytes, k->type);
    if (k->type == GGUF_ARRAY) {
        add_u32(w, &w->keys, k->elem);
        add_u64(w, &w->keys, k->count);
    }
    sl_assert(k->elem < ARRAY_LEN(value_bytes) && k->elem != GGUF_ARRAY);
    uint64_t span = k->count * value_bytes[k->elem];
    if (k->elem == GGUF_STRING)
        for (uint64_t s = 0; s < k->count; s++)
            span += string_span(value + span);
    add(w, &w->keys, value, span);
}

/* ---- tensors ---- */

static bool reserve_tensor(struct gguf_writer *w)
{
    if (w->tensor_count < w->tensor_capacity)
        return true;
    uint32_t capacity = w->tensor_capacity ? w->tensor_capacity * 2 : 256;
    struct written *bigger = reallocarray(w->tensor, capacity, sizeof *bigger);
    if (!bigger) {
        w->no_memory = true;
        return false;
    }
    w->tensor = bigger;
    w->tensor_capacity = capacity;
    return true;
}

void gguf_writer_own_types(struct gguf_writer *w)
{
    w->own_types = true;
}

uint32_t gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                         const uint64_t *ne)
{
    uint64_t bytes;
    sl_assert(!w->laid_out && dims >= 1 && dims <= 4 && strlen(name) < MODEL_NAME_BYTES);
    sl_assert(type < TENSOR_TYPE_OWN_FIRST || w->own_types);
    sl_assert(tensor_type_row_bytes(type == GGUF_TYPE_I32 ? TENSOR_F32 : type, ne[0], &bytes));
    for (uint32_t d = 1; d < dims; d++)
        sl_assert(!mul_overflows(bytes, ne[d], &bytes));
    sl_assert(bytes > 0 && bytes < GGUF_FILE_MAX && w->data_bytes < GGUF_FILE_MAX);
    uint32_t number = w->tensor_count;
    if (w->no_memory || !reserve_tensor(w))
        return number;
    w->tensor_count++;
    w->tensor[number] = (struct written){w->data_bytes, bytes};
    add_string(w, &w->tensors, name, strlen(name));
    add_u32(w, &w->tensors, dims);
    for (uint32_t d = 0; d < dims; d++)
        add_u64(w, &w->tensors, ne[d]);
    add_u32(w, &w->tensors, type);
    add_u64(w, &w->tensors, w->data_bytes);
    w->data_bytes += align_up(bytes, w->alignment);
    return number;
}

/* ---- the layout ---- */

int gguf_writer_layout(struct gguf_writer *w, struct error *error)
{
    static const char zeros[4096];
    sl_assert(!w->laid_out);
    add(w, &w->header, "GGUF", 4);
    add_u32(w, &w->header, 3);
    add_u64(w, &w->header, w->tensor_count);
    add_u64(w, &w->header, w->key_count);
    add(w, &w->header, w->keys.data, w->keys.bytes);
    add(w, &w->header, w->tensors.data, w->tensors.bytes);
    uint64_t padding = align_up(w->header.bytes, w->alignment) - w->header.bytes;
    for (; padding > 0 && !w->no_memory;) {
        size_t n = padding < sizeof zeros ? padding : sizeof zeros;
        add(w, &w->header, zeros, n);
        padding -= n;
    }
    if (w->no_memory)
        return error_set(error, ERR_NO_MEMORY, "out of memory (header of a GGUF file)");
    for (uint32_t i = 0; i < w->tensor_count; i++)
        w->tensor[i].offset += w->header.bytes;
    w->laid_out = true;
    return 0;
}

const void *gguf_writer_header(const struct gguf_writer *w, uint64_t *bytes)
{
    sl_assert(w->laid_out);
    *bytes = w->header.bytes;
    return w->header.data;
}

ssize_t gguf_writer_read(void *writer, void *buf, size_t n, uint64_t offset)
{
    const struct gguf_writer *w = writer;
    sl_assert(w->laid_out);
    uint64_t left = offset < w->header.bytes ? w->header.bytes - offset : 0;
    size_t have = n < left ? n : left;
    if (have > 0)
        memcpy(buf, (const char *)w->header.data + offset, have);
    memset((char *)buf + have, 0, n - have);
    return (ssize_t)n;
}

uint64_t gguf_writer_offset(const struct gguf_writer *w, uint32_t tensor)
{
    sl_assert(w->laid_out && tensor < w->tensor_count);
    return w->tensor[tensor].offset;
}

uint64_t gguf_writer_tensor_bytes(const struct gguf_writer *w, uint32_t tensor)
{
    sl_assert(w->laid_out && tensor < w->tensor_count);
    return w->tensor[tensor].bytes;
}

uint64_t gguf_writer_bytes(const struct gguf_writer *w)
{
    sl_assert(w->laid_out);
    return w->header.bytes + w->data_bytes;
}

/* ---- streaming ---- */

static int named(const struct gguf_writer *w, const struct error *why, struct error *error)
{
    return error_set(error, why->code, "%s: %.120s", w->path, why->text);
}

/* Writes the buffer in whole pages, the last one padded with zeros (gguf_writer_end truncates
 * it). */
static int flush(struct gguf_writer *w, struct error *error)
{
    struct error why;
    uint64_t whole = align_up(w->buffered, PAGE_BYTES);
    memset(w->buffer + w->buffered, 0, whole - w->buffered);
    if (bulk_write(&w->out, w->buffer, whole, w->flushed, &why))
        return named(w, &why, error);
    w->flushed += w->buffered;
    w->buffered = 0;
    return 0;
}

/* Appends bytes to the stream; data NULL: zeros. */
static int stream(struct gguf_writer *w, const char *data, uint64_t bytes, struct error *error)
{
    while (bytes > 0) {
        uint64_t n = STREAM_BYTES - w->buffered < bytes ? STREAM_BYTES - w->buffered : bytes;
        if (data) {
            memcpy(w->buffer + w->buffered, data, n);
            data += n;
        } else {
            memset(w->buffer + w->buffered, 0, n);
        }
        w->buffered += n;
        bytes -= n;
        if (w->buffered == STREAM_BYTES && flush(w, error))
            return -1;
    }
    return 0;
}

int gguf_writer_start(struct gguf_writer *w, const char *path, struct error *error)
{
    sl_assert(w->laid_out && w->out.fd < 0 && !w->buffer);
    if (strlen(path) >= sizeof w->path)
        return error_set(error, ERR_BAD_INPUT, "the path %.60s... is too long", path);
    strcpy(w->path, path);
    w->buffer = bulk_buffer(STREAM_BYTES);
    if (!w->buffer)
        return error_set(error, ERR_NO_MEMORY, "out of memory (writing %s)", path);
    if (bulk_open(&w->out, path, O_WRONLY | O_CREAT | O_TRUNC, error))
        return -1;
    return stream(w, w->header.data, w->header.bytes, error);
}

int gguf_writer_data(struct gguf_writer *w, const void *data, uint64_t bytes, struct error *error)
{
    const char *from = data;
    sl_assert(w->buffer);
    while (bytes > 0) {
        sl_assert(w->next < w->tensor_count);
        const struct written *t = &w->tensor[w->next];
        uint64_t n = t->bytes - w->next_done < bytes ? t->bytes - w->next_done : bytes;
        if (stream(w, from, n, error))
            return -1;
        from += n;
        bytes -= n;
        w->next_done += n;
        if (w->next_done < t->bytes)
            continue;
        w->next++;
        w->next_done = 0;
        if (stream(w, NULL, align_up(t->bytes, w->alignment) - t->bytes, error))
            return -1;
    }
    return 0;
}

int gguf_writer_end(struct gguf_writer *w, struct error *error)
{
    struct error why;
    sl_assert(w->buffer && w->next == w->tensor_count && w->next_done == 0);
    if (flush(w, error))
        return -1;
    sl_assert(w->flushed == gguf_writer_bytes(w));
    if (bulk_truncate(&w->out, w->flushed, &why) || bulk_sync(&w->out, &why))
        return named(w, &why, error);
    bulk_close(&w->out);
    return 0;
}
