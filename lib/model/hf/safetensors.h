/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of safetensors models: one file, or the files named by model.safetensors.index.json. Reads
 * headers only; the caller reads tensor data at the offsets given here.
 *
 * The input is untrusted: every length, shape and offset is checked before use, tensors of a file
 * may neither overlap nor leave holes, memory is allocated for data that was read, not for counts
 * in the file, and every error is one line.
 *
 * Format (as published with the safetensors library): u64 length of the header, little-endian; the
 * header, a JSON object {"name": {"dtype", "shape", "data_offsets": [begin, end)}} with offsets
 * from the end of the header, and "__metadata__", an object of strings; the data. */
#ifndef SLUICE_MODEL_HF_SAFETENSORS_H
#define SLUICE_MODEL_HF_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/text/strtab.h"

#define SAFETENSORS_HEADER_MAX (32 * MIB) /* of one file; about 200 000 tensors */
#define SAFETENSORS_INDEX_MAX  (64 * MIB)
#define SAFETENSORS_FILES_MAX  4096u
#define SAFETENSORS_NAME_MAX   255u
#define SAFETENSORS_DIMS_MAX   6u
#define SAFETENSORS_FIRST      (UINT32_MAX - 6) /* no type of GGUF from here on */
#define SAFETENSORS_I64        (UINT32_MAX - 6)
#define SAFETENSORS_I32        (UINT32_MAX - 5)
#define SAFETENSORS_I8         (UINT32_MAX - 4)
#define SAFETENSORS_F8_E8M0    (UINT32_MAX - 3) /* exponents: 2^(x - 127) */
#define SAFETENSORS_U8         (UINT32_MAX - 2)
#define SAFETENSORS_F8_E4M3    (UINT32_MAX - 1)
#define SAFETENSORS_OTHER      UINT32_MAX /* a dtype that sluice does not support */

struct safetensor {
    char *name;
    uint32_t type; /* enum tensor_type, or one of the above */
    uint32_t file; /* index into files */
    uint32_t dims;
    uint64_t shape[SAFETENSORS_DIMS_MAX]; /* outermost first; unused ones are 1 */
    uint64_t offset, bytes;               /* in the file */
};

struct safetensors_file {
    char *name; /* relative to the directory */
    uint64_t bytes;
    int64_t mtime_ns;
};

struct safetensors {
    struct safetensor *tensors; /* by file, then by offset */
    uint32_t count, capacity;
    struct safetensors_file *files;
    uint32_t file_count;
    struct strtab names;
};

/* Reads and checks the headers of a directory. 0, or -1 with ERR_BAD_INPUT, ERR_IO or
 * ERR_NO_MEMORY. On success the caller calls safetensors_close. */
int safetensors_open(struct safetensors *s, const char *dir, struct error *error);
void safetensors_close(struct safetensors *s);

/* The tensor of that name, or NULL. */
const struct safetensor *safetensors_find(const struct safetensors *s, const char *name);

/* Checks one header (without its length field) of a file of `file_bytes` bytes, and adds its
 * tensors with file number `file`. For safetensors_open and fuzzing. s is initially zero; the
 * caller calls safetensors_close, also after an error. */
int safetensors_parse(struct safetensors *s, const char *header, size_t bytes, uint64_t file_bytes,
                      uint32_t file, struct error *error);

#endif
