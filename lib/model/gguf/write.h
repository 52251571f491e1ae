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

/* alignment: of every tensor's offset; a power of two from 8 to GGUF_ALIGNMENT_MAX. If it is not
 * 32, the key general.alignment is written. NULL when out of memory. */
struct gguf_writer *gguf_writer_new(uint32_t alignment);
void gguf_writer_free(struct gguf_writer *w);

/* Keys. Names and values are copied. Lack of memory is reported by gguf_writer_layout. */
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_put_text(struct gguf_writer *w, const char *key, const char *text);
void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t bytes);

/* One value of any type except STRING and ARRAY; `value` has the bytes of the file. */
void gguf_put_scalar(struct gguf_writer *w, const char *key, enum gguf_value_type type,
                     const void *value);

/* An array of such values: `count` elements. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value_type elem,
                    const void *values, uint64_t count);

/* An array of strings of the given lengths; bytes NULL: they are NUL-terminated. */
void gguf_put_strings(struct gguf_writer *w, const char *key, const char *const *texts,
                      const size_t *bytes, uint64_t count);

/* Copies key i of an open file. Not general.alignment, which the writer sets itself (asserted). */
void gguf_put_copy(struct gguf_writer *w, const struct gguf *from, uint32_t i);

/* Allows tensors of sluice's own types: the model file of a store. Such a file is read with
 * gguf_source.own_types. */
void gguf_writer_own_types(struct gguf_writer *w);

/* Adds a tensor and returns its number. type: a GGUF type of tensor_types.tbl.h, or one of sluice's
 * own types if allowed; ne[0]: elements of a row. The shape must fit the type (asserted). */
uint32_t gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                         const uint64_t *ne);

/* Ends step 1. 0, or -1 with ERR_NO_MEMORY. */
int gguf_writer_layout(struct gguf_writer *w, struct error *error);

/* After the layout. The header includes the padding before the data. */
const void *gguf_writer_header(const struct gguf_writer *w, uint64_t *bytes);
/* The read of a struct gguf_source, with the writer as its arg: the header, then zeros. */
ssize_t gguf_writer_read(void *writer, void *buf, size_t n, uint64_t offset);
uint64_t gguf_writer_offset(const struct gguf_writer *w, uint32_t tensor); /* in the file */
uint64_t gguf_writer_tensor_bytes(const struct gguf_writer *w, uint32_t tensor);
uint64_t gguf_writer_bytes(const struct gguf_writer *w); /* of the whole file */

/* Streams the file at path (created, or truncated): all bytes of all tensors in order. Errors name
 * the path. gguf_writer_end checks that all data was written, syncs and closes. Without it,
 * gguf_writer_free closes the file, which is then incomplete. */
int gguf_writer_start(struct gguf_writer *w, const char *path, struct error *error);
int gguf_writer_data(struct gguf_writer *w, const void *data, uint64_t bytes, struct error *error);
int gguf_writer_end(struct gguf_writer *w, struct error *error);

#endif
