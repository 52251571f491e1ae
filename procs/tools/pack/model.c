/* SPDX-License-Identifier: Apache-2.0 */
/* model.gguf of a store: the keys of the source, and its dense tensors, page-aligned; dense
 * matrices have the precision of --dense. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "procs/tools/pack/pack.h"

#define TEMPORARY STORE_MODEL_FILE ".tmp"

struct writing {
    struct pack *pack;
    struct gguf_writer *writer;
};

static int put(void *arg, const void *data, uint64_t bytes, struct error *error)
{
    struct writing *w = arg;
    atomic_fetch_add(&w->pack->meters.bytes_read, bytes);
    atomic_fetch_add(&w->pack->meters.bytes_written, bytes);
    return gguf_writer_data(w->writer, data, bytes, error);
}

static bool is_key(const struct gguf *g, uint32_t i, const char *name)
{
    return g->keys[i].name_bytes == strlen(name) &&
           memcmp(g->header + g->keys[i].name_at, name, strlen(name)) == 0;
}

static int write_model(struct writing *w, const char *path, struct error *error)
{
    const struct source *s = &w->pack->source;
    const struct gguf *g = &s->gguf;
    gguf_writer_own_types(w->writer);
    for (uint32_t i = 0; i < g->key_count; i++)
        if (!is_key(g, i, "general.alignment") && !is_key(g, i, "split.no") &&
            !is_key(g, i, "split.count") && !is_key(g, i, "split.tensors.count"))
            gguf_put_copy(w->writer, g, i);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        if (source_is_dense(s, i)) {
            const struct model_tensor *t = &g->tensors[i];
            gguf_put_tensor(w->writer, t->name,
                            t->integers ? gguf_type_of(t) : dense_type(w->pack, i), t->dims, t->ne);
        }
    if (gguf_writer_layout(w->writer, error) || gguf_writer_start(w->writer, path, error))
        return -1;
    for (uint32_t i = 0; i < g->tensor_count; i++)
        if (source_is_dense(s, i) && dense_write(w->pack, i, put, w, error))
            return -1;
    return gguf_writer_end(w->writer, error);
}

/* XXH3-128 of the whole file. */
static int hash_file(const char *path, uint8_t out[STORE_HASH_BYTES], struct error *error)
{
    struct bulk file;
    XXH3_state_t *state = XXH3_createState();
    void *buf = bulk_buffer(SOURCE_CHUNK);
    int status = state && buf ? bulk_open(&file, path, O_RDONLY, error)
                              : error_set(error, ERR_NO_MEMORY, "out of memory (hash of a file)");
    if (status == 0) {
        uint64_t got = SOURCE_CHUNK;
        XXH3_128bits_reset(state);
        for (uint64_t at = 0; status == 0 && got == SOURCE_CHUNK; at += got) {
            status = bulk_read(&file, buf, SOURCE_CHUNK, at, &got, error);
            if (status == 0)
                XXH3_128bits_update(state, buf, got);
        }
        XXH128_canonical_t hash;
        XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state));
        memcpy(out, hash.digest, STORE_HASH_BYTES);
        bulk_close(&file);
    }
    free(buf);
    XXH3_freeState(state);
    return status;
}

int pack_model(struct pack *p, struct error *error)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    uint8_t hash[STORE_HASH_BYTES];
    snprintf(path, sizeof path, "%s/" STORE_MODEL_FILE, p->dir);
    snprintf(temporary, sizeof temporary, "%s/" TEMPORARY, p->dir);
    if (p->model_complete && hash_file(path, hash, NULL) == 0 &&
        memcmp(hash, p->manifest.model_hash, sizeof hash) == 0)
        return 0;
    struct writing w = {p, gguf_writer_new(PAGE_BYTES)};
    if (!w.writer)
        return error_set(error, ERR_NO_MEMORY, "out of memory (GGUF header)");
    int status = write_model(&w, temporary, error);
    gguf_writer_free(w.writer);
    if (status || hash_file(temporary, p->manifest.model_hash, error))
        return -1;
    if (rename(temporary, path) != 0 || fsync(p->dir_fd) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot rename %.250s", temporary);
    return journal_model(p, error);
}
