/* SPDX-License-Identifier: Apache-2.0 */
/* Has all checks of the reference reader, and more: bounds on alignment and counts, tensors inside
 * the file, typed arrays. Duplicates are found by hashing; the header is read in large blocks. */
#include "lib/model/gguf/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"
#include "lib/text/printable.h"

#define READ_BYTES       (256 * KIB)
#define PREAMBLE_BYTES   24u                      /* magic, version, two counts */
#define KEY_BYTES_MIN    (8u + 1 + 4 + 1)         /* name length, name, type, value */
#define TENSOR_BYTES_MIN (8u + 1 + 4 + 8 + 4 + 8) /* name, dims, one ne, type, offset */

static const struct {
    const char *name;
    uint32_t bytes;
} value_types[] = {
#define X(name, id, bytes) [id] = {#name, bytes},
    GGUF_VALUE_TYPES(X)
#undef X
};

static const char *type_name(uint32_t id)
{
    const struct tensor_type_info *known = tensor_type_info(id);
    if (known)
        return known->name;
    static const struct {
        const char *name;
        uint32_t id;
    } names[] = {
#define GGUF_FOREIGN_TYPE(name, ggml_id) {name, ggml_id},
#include "lib/model/gguf/types.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].id == id)
            return names[i].name;
    return "unknown";
}

/* Reads until the first `want` bytes are in memory. The caller has checked the length of the
 * file. */
static int fill(struct gguf *g, uint64_t want, struct error *error)
{
    if (want > GGUF_HEADER_MAX)
        return error_set(error, ERR_BAD_INPUT, "the header is longer than %" PRIu64 " MiB",
                         GGUF_HEADER_MAX / MIB);
    while (g->have < want) {
        if (g->have == g->capacity) {
            uint64_t capacity = g->capacity ? g->capacity * 2 : READ_BYTES;
            char *bigger = realloc(g->header, capacity);
            if (!bigger)
                return error_set(error, ERR_NO_MEMORY,
                                 "out of memory (%" PRIu64 " bytes of header)", capacity);
            g->header = bigger;
            g->capacity = capacity;
        }
        uint64_t n = g->capacity - g->have < READ_BYTES ? g->capacity - g->have : READ_BYTES;
        if (n > g->source.bytes - g->have)
            n = g->source.bytes - g->have;
        ssize_t got = g->source.read(g->source.arg, g->header + g->have, n, g->have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(error, ERR_IO, errno, "cannot read at offset %" PRIu64, g->have);
        if (got == 0)
            return error_set(error, ERR_GONE, "the file became shorter while it was read");
        g->have += (uint64_t)got;
    }
    return 0;
}

/* Makes the next n bytes available and steps over them; `what` names them in the error when the
 * file ends before. */
static int take(struct gguf *g, uint64_t n, const char *what, const char **bytes,
                struct error *error)
{
    if (n > g->source.bytes - g->at)
        return error_set(error, ERR_BAD_INPUT,
                         "the file ends inside %s at offset %" PRIu64 " (%" PRIu64
                         " bytes wanted, %" PRIu64 " left)",
                         what, g->at, n, g->source.bytes - g->at);
    if (g->at + n > g->have && fill(g, g->at + n, error))
        return -1;
    *bytes = g->header + g->at;
    g->at += n;
    return 0;
}

static uint32_t load_u32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v); /* GGUF is little-endian, like every machine that sluice supports */
    return v;
}

static uint64_t load_u64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static int take_u32(struct gguf *g, const char *what, uint32_t *value, struct error *error)
{
    const char *p = NULL;
    if (take(g, sizeof *value, what, &p, error))
        return -1;
    *value = load_u32(p);
    return 0;
}

static int take_u64(struct gguf *g, const char *what, uint64_t *value, struct error *error)
{
    const char *p = NULL;
    if (take(g, sizeof *value, what, &p, error))
        return -1;
    *value = load_u64(p);
    return 0;
}

/* A length, then that many bytes; sets *where to their offset. Not a pointer: the header may move
 * later. */
static int take_string(struct gguf *g, const char *what, uint64_t *where, uint64_t *bytes,
                       struct error *error)
{
    const char *p;
    if (take_u64(g, what, bytes, error))
        return -1;
    *where = g->at;
    return take(g, *bytes, what, &p, error);
}

static int parse_preamble(struct gguf *g, uint64_t *tensors, uint64_t *keys, struct error *error)
{
    const char *p;
    if (g->source.bytes < PREAMBLE_BYTES)
        return error_set(error, ERR_BAD_INPUT, "not a GGUF file: only %" PRIu64 " bytes long",
                         g->source.bytes);
    if (take(g, PREAMBLE_BYTES, "the preamble", &p, error))
        return -1;
    if (memcmp(p, "GGUF", 4) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "not a GGUF file: it starts with '%s' instead of 'GGUF'",
                         printable(p, 4).text);
    g->version = load_u32(p + 4);
    if (g->version != 0 && (g->version & 0xffff) == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "a big-endian GGUF file; only little-endian is read");
    if (g->version != 2 && g->version != 3)
        return error_set(error, ERR_BAD_INPUT, "GGUF version %" PRIu32 "; only 2 and 3 are read",
                         g->version);
    *tensors = load_u64(p + 8);
    *keys = load_u64(p + 16);
    uint64_t left = g->source.bytes - g->at;
    if (*keys > GGUF_KEYS_MAX || *keys * KEY_BYTES_MIN > left)
        return error_set(error, ERR_BAD_INPUT,
                         "%" PRIu64 " keys claimed: more than %u or than the file can hold", *keys,
                         GGUF_KEYS_MAX);
    if (*tensors > GGUF_TENSORS_MAX || *tensors * TENSOR_BYTES_MIN > left)
        return error_set(error, ERR_BAD_INPUT,
                         "%" PRIu64 " tensors claimed: more than %u or than the file can hold",
                         *tensors, GGUF_TENSORS_MAX);
    return 0;
}

static int skip_array(struct gguf *g, struct gguf_key *key, const char *name, struct error *error)
{
    const char *p;
    if (take_u32(g, "an array", &key->elem, error) || take_u64(g, "an array", &key->count, error))
        return -1;
    key->value_at = g->at;
    if (key->elem == GGUF_ARRAY)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is an array of arrays", name);
    if (key->elem >= ARRAY_LEN(value_types))
        return error_set(error, ERR_BAD_INPUT, "key '%s' is an array of unknown type %" PRIu32,
                         name, key->elem);
    if (key->count > GGUF_ARRAY_MAX)
        return error_set(error, ERR_BAD_INPUT, "key '%s' claims %" PRIu64 " elements", name,
                         key->count);
    if (key->elem != GGUF_STRING)
        return take(g, key->count * value_types[key->elem].bytes, "an array", &p, error);
    for (uint64_t i = 0; i < key->count; i++) {
        uint64_t where, bytes;
        if (take_string(g, "an array of strings", &where, &bytes, error))
            return -1;
    }
    return 0;
}

static int parse_value(struct gguf *g, struct gguf_key *key, const char *name, struct error *error)
{
    const char *p;
    uint64_t where, bytes;
    key->count = 1;
    key->elem = key->type;
    key->value_at = g->at;
    switch (key->type) {
    case GGUF_ARRAY: return skip_array(g, key, name, error);
    case GGUF_STRING: return take_string(g, "a string value", &where, &bytes, error);
    default: break;
    }
    if (key->type >= ARRAY_LEN(value_types))
        return error_set(error, ERR_BAD_INPUT, "key '%s' has unknown type %" PRIu32, name,
                         key->type);
    if (take(g, value_types[key->type].bytes, "a value", &p, error))
        return -1;
    if (key->type == GGUF_BOOL && (unsigned char)*p > 1)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is a bool of value %d", name,
                         (unsigned char)*p);
    return 0;
}

static int parse_keys(struct gguf *g, uint32_t count, struct error *error)
{
    g->keys = calloc(count ? count : 1, sizeof *g->keys);
    g->read = calloc(count ? count : 1, sizeof *g->read);
    if (!g->keys || !g->read)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " keys)", count);
    for (g->key_count = 0; g->key_count < count; g->key_count++) {
        struct gguf_key *key = &g->keys[g->key_count];
        uint64_t bytes;
        if (take_string(g, "a key", &key->name_at, &bytes, error))
            return -1;
        if (bytes == 0 || bytes > GGUF_KEY_BYTES_MAX)
            return error_set(error, ERR_BAD_INPUT,
                             "key %" PRIu32 " has a name of %" PRIu64 " bytes", g->key_count,
                             bytes);
        key->name_bytes = (uint32_t)bytes;
        struct printable name = printable(g->header + key->name_at, bytes);
        if (take_u32(g, "a key", &key->type, error) || parse_value(g, key, name.text, error))
            return -1;
    }
    return 0;
}

static int index_keys(struct gguf *g, struct error *error)
{
    if (!strtab_init(&g->key_names, g->key_count))
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " keys)", g->key_count);
    for (uint32_t i = 0; i < g->key_count; i++) {
        const char *name = g->header + g->keys[i].name_at;
        if (strtab_put(&g->key_names, name, g->keys[i].name_bytes, i) != STRTAB_NONE)
            return error_set(error, ERR_BAD_INPUT, "key '%s' occurs twice",
                             printable(name, g->keys[i].name_bytes).text);
    }
    return 0;
}

/* Name: 1..63 printable ASCII characters without spaces, because names are part of messages. */
static int parse_tensor_name(struct gguf *g, struct model_tensor *t, struct error *error)
{
    uint64_t where, bytes;
    if (take_string(g, "a tensor's name", &where, &bytes, error))
        return -1;
    const char *name = g->header + where;
    if (bytes == 0 || bytes >= MODEL_NAME_BYTES)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %" PRIu32 " has a name of %" PRIu64 " bytes (1 to %d are allowed)",
                         g->tensor_count, bytes, MODEL_NAME_BYTES - 1);
    for (uint64_t i = 0; i < bytes; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return error_set(error, ERR_BAD_INPUT,
                             "tensor name '%s' has characters other than printable ASCII",
                             printable(name, bytes).text);
    memcpy(t->name, name, bytes);
    return 0;
}

static int parse_shape(struct gguf *g, struct model_tensor *t, struct error *error)
{
    if (take_u32(g, "a tensor's shape", &t->dims, error))
        return -1;
    if (t->dims == 0 || t->dims > ARRAY_LEN(t->ne))
        return error_set(error, ERR_BAD_INPUT, "tensor %s has %" PRIu32 " dimensions", t->name,
                         t->dims);
    for (size_t d = 0; d < ARRAY_LEN(t->ne); d++)
        t->ne[d] = 1;
    uint64_t elements = 1;
    for (uint32_t d = 0; d < t->dims; d++) {
        if (take_u64(g, "a tensor's shape", &t->ne[d], error))
            return -1;
        if (t->ne[d] == 0 || t->ne[d] > INT64_MAX)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s has dimension %" PRIu32 " of size %" PRId64, t->name, d,
                             (int64_t)t->ne[d]);
        if (mul_overflows(elements, t->ne[d], &elements) || elements > INT64_MAX)
            return error_set(error, ERR_BAD_INPUT, "tensor %s has more than 2^63 elements",
                             t->name);
    }
    return 0;
}

/* Reads the type and computes the size in bytes. file_offset is still relative to the data here. */
static int parse_storage(struct gguf *g, struct model_tensor *t, struct error *error)
{
    if (take_u32(g, "a tensor's type", &t->type, error) ||
        take_u64(g, "a tensor's offset", &t->file_offset, error))
        return -1;
    t->type = (t->integers = t->type == GGUF_TYPE_I32) ? TENSOR_F32 : t->type;
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!tensor_type_computed(t->type) ||
        (t->type >= TENSOR_TYPE_OWN_FIRST && !g->source.own_types))
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is of type %s (%" PRIu32 "), which sluice cannot compute with",
                         t->name, type_name(t->type), t->type);
    if (!tensor_type_row_bytes(t->type, t->ne[0], &t->row_bytes))
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: rows of %" PRIu64 " elements do not fit type %s", t->name,
                         t->ne[0], type->name);
    /* ne[1] * ne[2] * ne[3] cannot overflow: the product of all four was checked. */
    if (mul_overflows(t->row_bytes, t->ne[1] * t->ne[2] * t->ne[3], &t->bytes) ||
        t->bytes > INT64_MAX)
        return error_set(error, ERR_BAD_INPUT, "tensor %s is larger than 2^63 bytes", t->name);
    return 0;
}

static int parse_tensors(struct gguf *g, uint32_t count, struct error *error)
{
    uint32_t capacity = 0;
    for (g->tensor_count = 0; g->tensor_count < count; g->tensor_count++) {
        if (g->tensor_count == capacity) { /* grows with the tensors read, not with `count` */
            capacity = capacity ? capacity * 2 : 256;
            struct model_tensor *bigger = reallocarray(g->tensors, capacity, sizeof *bigger);
            if (!bigger)
                return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " tensors)",
                                 capacity);
            g->tensors = bigger;
        }
        struct model_tensor *t = &g->tensors[g->tensor_count];
        memset(t, 0, sizeof *t);
        if (parse_tensor_name(g, t, error) || parse_shape(g, t, error) ||
            parse_storage(g, t, error))
            return -1;
    }
    return 0;
}

static int check_tensor_names(const struct gguf *g, struct error *error)
{
    struct strtab names;
    if (!strtab_init(&names, g->tensor_count))
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " names)",
                         g->tensor_count);
    int status = 0;
    for (uint32_t i = 0; i < g->tensor_count && status == 0; i++) {
        const char *name = g->tensors[i].name;
        if (strtab_put(&names, name, (uint32_t)strlen(name), i) != STRTAB_NONE)
            status = error_set(error, ERR_BAD_INPUT, "tensor %s occurs twice", name);
    }
    strtab_free(&names);
    return status;
}

static int read_alignment(struct gguf *g, struct error *error)
{
    g->alignment = 32;
    uint32_t i = strtab_get(&g->key_names, "general.alignment", strlen("general.alignment"));
    if (i == STRTAB_NONE)
        return 0;
    g->read[i] = true;
    if (g->keys[i].type != GGUF_U32)
        return error_set(error, ERR_BAD_INPUT, "general.alignment is not of type U32");
    g->alignment = load_u32(g->header + g->keys[i].value_at);
    if (g->alignment < 8 || g->alignment > GGUF_ALIGNMENT_MAX ||
        (g->alignment & (g->alignment - 1)) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "general.alignment is %" PRIu32 ": not a power of two from 8 to %u",
                         g->alignment, GGUF_ALIGNMENT_MAX);
    return 0;
}

/* Tensors follow one another, each padded to the alignment: no holes, no overlap, none outside the
 * file. */
static int check_tensor_offsets(struct gguf *g, struct error *error)
{
    g->data_offset = align_up(g->at, g->alignment);
    uint64_t expected = 0;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        struct model_tensor *t = &g->tensors[i];
        if (t->file_offset != expected)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s lies at %" PRIu64 " of the data instead of %" PRIu64,
                             t->name, t->file_offset, expected);
        t->file_offset += g->data_offset; /* expected <= GGUF_FILE_MAX + alignment: no overflow */
        if (t->file_offset > g->source.bytes || t->bytes > g->source.bytes - t->file_offset)
            return error_set(error, ERR_BAD_INPUT,
                             "the file ends inside tensor %s (%" PRIu64 " bytes at %" PRIu64
                             " of %" PRIu64 "): is it complete?",
                             t->name, t->bytes, t->file_offset, g->source.bytes);
        expected += align_up(t->bytes, g->alignment);
    }
    return 0;
}

int gguf_open(struct gguf *g, const struct gguf_source *source, struct error *error)
{
    *g = (struct gguf){.source = *source};
    uint64_t tensors = 0, keys = 0;
    if (source->bytes > GGUF_FILE_MAX) {
        return error_set(error, ERR_BAD_INPUT, "the file is too large (%" PRIu64 " bytes)",
                         source->bytes);
    }
    if (parse_preamble(g, &tensors, &keys, error) || parse_keys(g, (uint32_t)keys, error) ||
        parse_tensors(g, (uint32_t)tensors, error) || index_keys(g, error) ||
        check_tensor_names(g, error) || read_alignment(g, error) ||
        check_tensor_offsets(g, error)) {
        gguf_close(g);
        return -1;
    }
    return 0;
}

void gguf_close(struct gguf *g)
{
    free(g->header);
    free(g->keys);
    free(g->read);
    free(g->tensors);
    strtab_free(&g->key_names);
    *g = (struct gguf){0};
}

static const struct gguf_key *find_key(const struct gguf *g, const char *key)
{
    uint32_t i = strtab_get(&g->key_names, key, strlen(key));
    if (i == STRTAB_NONE)
        return NULL;
    g->read[i] = true;
    return &g->keys[i];
}

bool gguf_key_read(const struct gguf *g, uint32_t i)
{
    sl_assert(i < g->key_count);
    return g->read[i];
}

static int wrong_type(const struct gguf_key *k, const char *key, const char *wanted,
                      struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "key '%s' is of type %s%s instead of %s", key,
                     k->type == GGUF_ARRAY ? "array of " : "", value_types[k->elem].name, wanted);
}

/* The integer types, widened; false for the others. */
static bool load_integer(uint32_t type, const char *p, uint64_t *value, bool *negative)
{
    int64_t v;
    switch (type) {
    case GGUF_U8: v = (uint8_t)*p; break;
    case GGUF_I8: v = (int8_t)*p; break;
    case GGUF_U16: v = (uint16_t)(load_u32((char[4]){p[0], p[1], 0, 0})); break;
    case GGUF_I16: v = (int16_t)(load_u32((char[4]){p[0], p[1], 0, 0})); break;
    case GGUF_U32: v = load_u32(p); break;
    case GGUF_I32: v = (int32_t)load_u32(p); break;
    case GGUF_U64: v = (int64_t)load_u64(p); break;
    case GGUF_I64: v = (int64_t)load_u64(p); break;
    default: return false;
    }
    *value = (uint64_t)v;
    *negative = v < 0 && type != GGUF_U64;
    return true;
}

int gguf_get_uint(const struct gguf *g, const char *key, uint64_t *value, struct error *error)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k)
        return 0;
    bool negative = false;
    if (!load_integer(k->type, g->header + k->value_at, value, &negative))
        return wrong_type(k, key, "an integer", error);
    if (negative)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is negative", key);
    return 1;
}

int gguf_get_float(const struct gguf *g, const char *key, double *value, struct error *error)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k)
        return 0;
    if (k->type == GGUF_F32) {
        float v;
        memcpy(&v, g->header + k->value_at, sizeof v);
        *value = v;
    } else if (k->type == GGUF_F64) {
        memcpy(value, g->header + k->value_at, sizeof *value);
    } else {
        return wrong_type(k, key, "a float", error);
    }
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *value, struct error *error)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k)
        return 0;
    if (k->type != GGUF_BOOL)
        return wrong_type(k, key, "a bool", error);
    *value = g->header[k->value_at] != 0;
    return 1;
}

int gguf_get_string(const struct gguf *g, const char *key, const char **text, size_t *bytes,
                    struct error *error)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k)
        return 0;
    if (k->type != GGUF_STRING)
        return wrong_type(k, key, "a string", error);
    struct gguf_array one = {g->header + k->value_at, 1, GGUF_STRING};
    gguf_array_string(&one, text, bytes);
    return 1;
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_value_type elem,
                   struct gguf_array *array, struct error *error)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k)
        return 0;
    if (k->type != GGUF_ARRAY || k->elem != (uint32_t)elem)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is %s%s instead of an array of %s", key,
                         k->type == GGUF_ARRAY ? "an array of " : "", value_types[k->elem].name,
                         value_types[elem].name);
    *array = (struct gguf_array){g->header + k->value_at, k->count, k->elem};
    return 1;
}

void gguf_array_string(struct gguf_array *a, const char **text, size_t *bytes)
{
    sl_assert(a->left > 0 && a->elem == GGUF_STRING);
    *bytes = load_u64(a->next); /* in bounds: checked when the header was parsed */
    *text = a->next + 8;
    a->next += 8 + *bytes;
    a->left--;
}

int32_t gguf_array_i32(struct gguf_array *a)
{
    sl_assert(a->left > 0 && a->elem == GGUF_I32);
    int32_t v = (int32_t)load_u32(a->next);
    a->next += 4;
    a->left--;
    return v;
}

bool gguf_array_bool(struct gguf_array *a)
{
    sl_assert(a->left > 0 && a->elem == GGUF_BOOL);
    a->left--;
    return *a->next++ != 0;
}

int gguf_get_uints(const struct gguf *g, const char *key, struct gguf_array *array,
                   struct error *error)
{
    const struct gguf_key *k = find_key(g, key);
    const char zero[8] = {0};
    uint64_t value;
    bool negative;
    if (!k || k->type != GGUF_ARRAY)
        return 0;
    if (!load_integer(k->elem, zero, &value, &negative))
        return wrong_type(k, key, "an array of integers", error);
    *array = (struct gguf_array){g->header + k->value_at, k->count, k->elem};
    return 1;
}

int gguf_array_uint(struct gguf_array *a, const char *key, uint64_t *value, struct error *error)
{
    bool negative = false;
    bool integer = a->left > 0 && load_integer(a->elem, a->next, value, &negative);
    sl_assert(integer);
    a->next += value_types[a->elem].bytes;
    a->left--;
    return negative ? error_set(error, ERR_BAD_INPUT, "key '%s' is negative", key) : 0;
}

float gguf_array_f32(struct gguf_array *a)
{
    sl_assert(a->left > 0 && a->elem == GGUF_F32);
    float v;
    memcpy(&v, a->next, sizeof v);
    a->next += 4;
    a->left--;
    return v;
}
