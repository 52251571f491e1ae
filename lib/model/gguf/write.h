/* Writer of GGUF files (version 3, little-endian). Three steps:
 *
 *   1. gguf_writer_new, then gguf_put_* for every key and gguf_put_tensor for every tensor, in the
 *      order of the file. Everything stays in memory: proportional to the header.
 *   2. gguf_writer_layout: now the header's bytes, every tensor's offset and the file's size stand.
 *   3. The file, either streamed (gguf_writer_start, _data, _end: tensors in order, padding made
 *      here, no page cache grown), or by the caller at gguf_writer_offset (several threads, say),
 *      who writes the header first.
 *
 * The caller's own state wrong (a key twice, data that does not add up) is asserted; only memory
 * and the file can fail. Format: the GGUF specification. */
#ifndef SLUICE_MODEL_GGUF_WRITE_H
#define SLUICE_MODEL_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/gguf/gguf.h"

struct gguf_writer;

/* alignment: of every tensor's offset; a power of two from 8 to GGUF_ALIGNMENT_MAX. Anything but 32
 * is written as the key general.alignment. NULL when there is no memory. */
struct gguf_writer *gguf_writer_new(uint32_t alignment);
void gguf_writer_free(struct gguf_writer *w);

/* Keys. Names and values are copied. Lack of memory is reported by gguf_writer_layout. */
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_put_text(struct gguf_writer *w, const char *key, const char *text);
void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t bytes);

/* One value of any type but STRING and ARRAY, from memory as the file has it. */
void gguf_put_scalar(struct gguf_writer *w, const char *key, enum gguf_value_type type,
                     const void *value);

/* An array of such values. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value_type elem,
                    const void *values, uint64_t count);

/* An array of strings; bytes NULL: they end with NUL. */
void gguf_put_strings(struct gguf_writer *w, const char *key, const char *const *texts,
                      const size_t *bytes, uint64_t count);

/* Key i of an open file as it is. Not for general.alignment, which is the writer's own. */
void gguf_put_copy(struct gguf_writer *w, const struct gguf *from, uint32_t i);

/* The file is a store's: its tensors may be of sluice's own types (gguf_source.own_types reads it).
 */
void gguf_writer_own_types(struct gguf_writer *w);

/* A tensor of a type of tensor_types.tbl.h that GGUF has, or of an own one where allowed; ne[0]
 * along the row. Returns its number. The shape fits the type (asserted). */
uint32_t gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t dims,
                         const uint64_t *ne);

/* Ends step 1. 0, or -1 with ERR_NO_MEMORY. */
int gguf_writer_layout(struct gguf_writer *w, struct error *error);

/* After the layout. The header includes the padding before the data. */
const void *gguf_writer_header(const struct gguf_writer *w, uint64_t *bytes);
uint64_t gguf_writer_offset(const struct gguf_writer *w, uint32_t tensor); /* in the file */
uint64_t gguf_writer_tensor_bytes(const struct gguf_writer *w, uint32_t tensor);
uint64_t gguf_writer_bytes(const struct gguf_writer *w); /* of the whole file */

/* Streaming into the file at path (created, or truncated). Every byte of every tensor in order; the
 * errors name the path. gguf_writer_end checks that all of it came, syncs and closes. Without it
 * gguf_writer_free closes, and what is there has no meaning. */
int gguf_writer_start(struct gguf_writer *w, const char *path, struct error *error);
int gguf_writer_data(struct gguf_writer *w, const void *data, uint64_t bytes, struct error *error);
int gguf_writer_end(struct gguf_writer *w, struct error *error);

#endif
