/* SPDX-License-Identifier: Apache-2.0 */
/* Writer of GGUF files (version 3, little-endian). Three steps:
 *
 *   1. gguf_writer_new, then gguf_put_* for every key and gguf_put_tensor for every tensor, in the
 *      order of the file. Memory is proportional to the header.
 *   2. gguf_writer_layout: from here on the header's bytes, every tensor's offset and the file's
 *      size are final.
 *   3. The file is either streamed (gguf_writer_start, _data, _end: tensors in order; the writer
 *      adds the padding and does not fill the page cache), or the caller writes the header and then
 *      the tensors at gguf_writer_offset, for example with several threads.
 *
 * Errors of the caller (tensor data of the wrong size) are asserted; only memory and the file can
 * fail. Format: the GGUF specification. */
#ifndef SLUICE_MODEL_GGUF_WRITE_H
#define SLUICE_MODEL_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/error.h"
#include "lib/model/gguf/gguf.h"

struct gguf_writer;

/* Makes a writer; the caller calls gguf_writer_free. alignment: a power of two from 8 to
 * GGUF_ALIGNMENT_MAX, of which every tensor's offset is a multiple. If it is not 32, the key
 * general.alignment is written. NULL when memory is short. */
struct gguf_writer *gguf_writer_new(uint32_t alignment);
void gguf_writer_free(struct gguf_writer *w);

/* These add a key. Names and values are copied. If memory is short, gguf_writer_layout reports
 * it. */
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_put_text(struct gguf_writer *w, const char *key, const char *text);
void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t bytes);

/* Adds a value of any type except STRING and ARRAY; `value` has the bytes as in the file. */
void gguf_put_scalar(struct gguf_writer *w, const char *key, enum gguf_value_type type,
                     const void *value);

/* Adds an array of `count` such values. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value_type elem,
                    const void *values, uint64_t count);

/* Adds an array of strings of the given lengths; with bytes NULL they are NUL-terminated. */
void gguf_put_strings(struct gguf_writer *w, const char *key, const char *const *texts,
                      const size_t *bytes, uint64_t count);

/* Copies key i of an open file. It must not be general.alignment, which the writer sets itself
 * (asserted). */
void gguf_put_copy(struct gguf_writer *w, const struct gguf *from, uint32_t i);

/* Allows tensors of sluice's own types: the model file of a store. Such a file is read with
 * gguf_source.own_types. */
void gguf_writer_own_types(struct gguf_writer *w);

/* Adds a tensor and returns its number. type: a GGUF type of tensor_types.tbl.h, or one of sluice's
 * own types if allowed, or GGUF_TYPE_I32; ne[0]: elements of a row. The shape must fit the type
 * (asserted). */
uint32_t gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                         const uint64_t *ne);

/* Ends step 1. 0, or -1 with ERR_NO_MEMORY. */
int gguf_writer_layout(struct gguf_writer *w, struct error *error);

/* The following functions may be called after gguf_writer_layout. */

/* The header, with the padding before the data; borrowed from the writer. */
const void *gguf_writer_header(const struct gguf_writer *w, uint64_t *bytes);
/* The `read` of a struct gguf_source whose arg is the writer: it gives the header, then zeros. */
ssize_t gguf_writer_read(void *writer, void *buf, size_t n, uint64_t offset);
/* The offset of a tensor in the file, its bytes, and the bytes of the whole file. */
uint64_t gguf_writer_offset(const struct gguf_writer *w, uint32_t tensor);
uint64_t gguf_writer_tensor_bytes(const struct gguf_writer *w, uint32_t tensor);
uint64_t gguf_writer_bytes(const struct gguf_writer *w);

/* Streams the file at path (created, or truncated): all bytes of all tensors in order. Errors name
 * the path. gguf_writer_end checks that all data was written, syncs and closes. Without it,
 * gguf_writer_free closes the file, which is then incomplete. */
int gguf_writer_start(struct gguf_writer *w, const char *path, struct error *error);
int gguf_writer_data(struct gguf_writer *w, const void *data, uint64_t bytes, struct error *error);
int gguf_writer_end(struct gguf_writer *w, struct error *error);

#endif
