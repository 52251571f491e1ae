/* What is packed: a GGUF file, or a Hugging Face directory seen as one (lib/model/hf/hf.h). Either way
 * there is a GGUF header, an index of the model at its native tier, and places of bytes in files.
 */
#ifndef SLUICE_TOOLS_PACK_SOURCE_H
#define SLUICE_TOOLS_PACK_SOURCE_H

#include "lib/io/bulk.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/hf/hf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/store/store.h"

#define SOURCE_CHUNK (4 * MIB) /* of dense bytes a time */

struct source_file {
    char *path;
    uint64_t bytes;
    int64_t mtime_ns;
};

struct source {
    struct source_file *files;
    uint32_t file_count;
    struct gguf gguf; /* header: the file's, or the one an HF model would have */
    struct model_index *index;
    bool is_hf;
    struct hf_model hf;
    int gguf_fd;
    uint8_t hash[STORE_HASH_BYTES]; /* of the header and the size: source_hash of the manifest */
};

/* 0, or -1 with one line. On success the caller ends with source_close. */
int source_open(struct source *s, const char *path, struct error *error);
void source_close(struct source *s);

/* 0 when no file has changed since it was opened. */
int source_unchanged(const struct source *s, struct error *error);

/* Where matrix m of an expert lies: its bytes as they are, rows without gaps. */
struct source_place {
    uint32_t file;
    uint64_t offset, bytes;
};
struct source_place source_expert(const struct source *s, uint32_t layer, uint32_t expert,
                                  enum expert_matrix m);

/* True for a tensor that belongs into the store's model.gguf. */
bool source_is_dense(const struct source *s, uint32_t tensor);

/* Hands the bytes of a dense tensor, as a GGUF file has them, to `sink` in order. */
typedef int source_sink(void *arg, const void *data, uint64_t bytes, struct error *error);
int source_dense(const struct source *s, uint32_t tensor, source_sink *sink, void *arg,
                 struct error *error);

/* Reads [offset, offset + bytes) of an open file into buf, which is page-aligned and two pages
 * larger; *data is where the bytes begin in it. A file that ends before is ERR_GONE. */
int source_read(const struct bulk *file, void *buf, uint64_t offset, uint64_t bytes,
                const void **data, struct error *error);

#endif
