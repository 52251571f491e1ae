/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of GGUF headers (versions 2 and 3, little-endian): keys and tensor table of one file.
 *
 * The input is untrusted: every count, length, type and offset is checked before use, memory is
 * allocated for data that was read, not for counts in the file, and every error is one line. The
 * header stays in memory unchanged (at most GGUF_HEADER_MAX bytes). Values are read from it on
 * demand, with a check of their type. */
#ifndef SLUICE_MODEL_GGUF_GGUF_H
#define SLUICE_MODEL_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/model/limits.h"
#include "lib/text/strtab.h"

#define GGUF_HEADER_MAX    (256 * MIB)
#define GGUF_KEYS_MAX      65536u
#define GGUF_TENSORS_MAX   1000000u
#define GGUF_KEY_BYTES_MAX 65535u
#define GGUF_ARRAY_MAX     ((uint64_t)1 << 30)
#define GGUF_ALIGNMENT_MAX (1u << 20)

/* The type of tensors of integers (model_tensor.integers), which tensor_types.tbl.h does not have:
 * no weight has it. */
#define GGUF_TYPE_I32 26u

/* The type of a tensor in files. */
static inline uint32_t gguf_type_of(const struct model_tensor *t)
{
    return t->integers ? GGUF_TYPE_I32 : t->type;
}

/* GGUF_VALUE_TYPE(NAME, id in the file, bytes of one element; 0: variable length) */
#define GGUF_VALUE_TYPES(X)                                                                        \
    X(U8, 0, 1)                                                                                    \
    X(I8, 1, 1)                                                                                    \
    X(U16, 2, 2)                                                                                   \
    X(I16, 3, 2)                                                                                   \
    X(U32, 4, 4)                                                                                   \
    X(I32, 5, 4)                                                                                   \
    X(F32, 6, 4)                                                                                   \
    X(BOOL, 7, 1)                                                                                  \
    X(STRING, 8, 0)                                                                                \
    X(ARRAY, 9, 0)                                                                                 \
    X(U64, 10, 8)                                                                                  \
    X(I64, 11, 8)                                                                                  \
    X(F64, 12, 8)

enum gguf_value_type {
#define X(name, id, bytes) GGUF_##name = (id),
    GGUF_VALUE_TYPES(X)
#undef X
};

/* The source of the bytes: a file, or memory in tests. read fills buf with up to n bytes at offset
 * and returns their number, 0 at the end, or -1 with errno set. */
struct gguf_source {
    ssize_t (*read)(void *arg, void *buf, size_t n, uint64_t offset);
    void *arg;
    uint64_t bytes; /* size of the whole file */
    bool own_types; /* tensors may have sluice's own types (model file of a store) */
};

struct gguf_key {
    uint64_t name_at; /* offsets into the header */
    uint64_t value_at;
    uint64_t count; /* elements of an array; else 1 */
    uint32_t name_bytes;
    uint32_t type; /* enum gguf_value_type */
    uint32_t elem; /* element type of an array */
};

struct gguf {
    struct gguf_source source;
    char *header;
    uint64_t have, capacity; /* bytes of the header read so far, and allocated */
    uint64_t at;             /* the parser's position; after gguf_open the header's length */
    uint32_t version;
    uint32_t alignment;
    uint32_t key_count, tensor_count;
    uint32_t part_count;  /* files of the model (split.h); 0 or 1: not split */
    uint64_t data_offset; /* where tensor data starts in the file */
    struct gguf_key *keys;
    bool *read;                   /* [key_count]: one of the functions below looked the key up */
    struct model_tensor *tensors; /* in file order; offsets from the start of their file */
    struct strtab key_names;
};

/* Parses and checks the whole header. 0, or -1 with ERR_BAD_INPUT, ERR_IO, ERR_GONE (the
 * file became shorter) or ERR_NO_MEMORY. On success the caller calls gguf_close. */
int gguf_open(struct gguf *g, const struct gguf_source *source, struct error *error);
void gguf_close(struct gguf *g);

/* Typed reads: 1 if found, 0 if the file has no such key, -1 (ERR_BAD_INPUT) if it has another
 * type. gguf_get_uint accepts every integer type with a value >= 0. Strings are borrowed from the
 * header; they are not NUL-terminated. */
int gguf_get_uint(const struct gguf *g, const char *key, uint64_t *value, struct error *error);
int gguf_get_float(const struct gguf *g, const char *key, double *value, struct error *error);
int gguf_get_bool(const struct gguf *g, const char *key, bool *value, struct error *error);
int gguf_get_string(const struct gguf *g, const char *key, const char **text, size_t *bytes,
                    struct error *error);

/* Whether one of these functions has looked up key i, which is below key_count, since gguf_open. */
bool gguf_key_read(const struct gguf *g, uint32_t i);

/* Reader of an array: elements are read in order. */
struct gguf_array {
    const char *next;
    uint64_t left; /* elements not yet read */
    uint32_t elem;
};

/* Starts to read an array whose elements have type `elem`. The result is that of a typed read. */
int gguf_get_array(const struct gguf *g, const char *key, enum gguf_value_type elem,
                   struct gguf_array *array, struct error *error);

/* Starts to read an array of any integer type, whose elements gguf_array_uint gives. The result is
 * that of a typed read; it is 0 also if the key is no array. */
int gguf_get_uints(const struct gguf *g, const char *key, struct gguf_array *array,
                   struct error *error);
/* Sets *value to the next element. 0, or -1 with ERR_BAD_INPUT if it is negative. */
int gguf_array_uint(struct gguf_array *a, const char *key, uint64_t *value, struct error *error);

/* These give the next element. It is asserted that there is one and that it has the type. A text is
 * borrowed from the header. */
void gguf_array_string(struct gguf_array *a, const char **text, size_t *bytes);
int32_t gguf_array_i32(struct gguf_array *a);
bool gguf_array_bool(struct gguf_array *a);
float gguf_array_f32(struct gguf_array *a);

#endif
