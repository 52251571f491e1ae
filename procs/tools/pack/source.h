/* SPDX-License-Identifier: Apache-2.0 */
/* The source of a pack: a GGUF file, or a Hugging Face directory presented as one
 * (lib/model/hf/hf.h). Both have a GGUF header, an index of the model at native precision, and file
 * extents. */
#ifndef SLUICE_TOOLS_PACK_SOURCE_H
#define SLUICE_TOOLS_PACK_SOURCE_H

#include "lib/io/bulk.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/gguf/split.h"
#include "lib/model/hf/hf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/store/store.h"

#define SOURCE_CHUNK (4 * MIB) /* dense bytes per read */

struct source_file {
    char *path;
    uint64_t bytes;
    int64_t mtime_ns;
};

struct source {
    struct source_file *files;
    uint32_t file_count;
    struct gguf gguf; /* header: of the file, or generated for an HF model */
    struct model_index *index;
    bool is_hf;
    struct hf_model hf;
    struct gguf_parts parts;        /* of a GGUF file; descriptors, [0] -1: not open */
    uint8_t hash[STORE_HASH_BYTES]; /* of the header and the size: source_hash of the manifest */
};

/* fp8_type: see hf_open_as. 0, or -1 with an error. On success the caller must call
 * source_close. */
int source_open(struct source *s, const char *path, uint32_t fp8_type, struct error *error);
void source_close(struct source *s);

/* 0 if no file changed since source_open; else ERR_GONE. */
int source_unchanged(const struct source *s, struct error *error);

/* Location of matrix m of an expert in the source; rows without gaps. */
struct hf_extent source_expert(const struct source *s, uint32_t layer, uint32_t expert,
                               enum expert_matrix m);

/* The tensor of the directory that a matrix of an expert is converted from (plane: the expert);
 * SOURCE_SAME: none, its bytes are those at source_expert. */
#define SOURCE_SAME UINT32_MAX
uint32_t source_converted(const struct source *s, uint32_t layer, uint32_t expert,
                          enum expert_matrix m);

/* True for a tensor that is stored in model.gguf of the store. */
bool source_is_dense(const struct source *s, uint32_t tensor);

/* Passes the bytes of a dense tensor, in GGUF layout, to `sink` in order. */
typedef int source_sink(void *arg, const void *data, uint64_t bytes, struct error *error);
int source_dense(const struct source *s, uint32_t tensor, source_sink *sink, void *arg,
                 struct error *error);

/* Reads [offset, offset + bytes) of an open file into buf, which must be page-aligned and two pages
 * larger; *data is the start of the bytes in it. ERR_GONE if the file is shorter. */
int source_read(const struct bulk *file, void *buf, uint64_t offset, uint64_t bytes,
                const void **data, struct error *error);

/* Rows of a tensor of a Hugging Face directory, converted. Memory: a few MiB; a matrix that is
 * turned is read whole. */
struct source_reader {
    const struct source *source;
    uint32_t tensor, plane;
    void *in;
    uint64_t capacity;
    struct hf_part part; /* what is in `in`, from `data` on; of 0 bytes: nothing */
    const void *data;
    void *scales;
    uint64_t read_ns, read_bytes; /* sums; the user may set them to 0 */
};

/* Bytes that a reader holds of this source at most. */
uint64_t reader_bytes_max(const struct source *s);
void reader_open(struct source_reader *r, const struct source *s);
void reader_close(struct source_reader *r);
/* Selects a plane of a tensor and reads its scales. 0, or -1 with an error. */
int reader_plane(struct source_reader *r, uint32_t tensor, uint32_t plane, struct error *error);
/* Makes rows [row, row + rows) of the plane. file: the open file of its source. */
int reader_rows(struct source_reader *r, const struct bulk *file, uint64_t row, uint64_t rows,
                void *dst, struct error *error);

#endif
