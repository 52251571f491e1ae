/* SPDX-License-Identifier: Apache-2.0 */
/* The model file of a delta: found, compared with the manifest, and its experts as entries of the
 * index. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/file/part_name.h"
#include "lib/file/sample_hash.h"
#include "lib/model/gguf/split.h"
#include "lib/model/store/base.h"

int store_base_hash(const struct gguf_parts *parts, uint32_t count, uint8_t hash[STORE_HASH_BYTES],
                    struct error *error)
{
    struct sample_hash *h = sample_hash_start();
    int why = h ? 0 : ENOMEM;
    for (uint32_t i = 0; i < count && why == 0; i++) {
        why = sample_hash_add(h, parts->fd[i]);
        (void)posix_fadvise(parts->fd[i], 0, 0, POSIX_FADV_DONTNEED);
    }
    if (why == 0)
        sample_hash_result(h, hash);
    sample_hash_free(h);
    return why == 0 ? 0
                    : error_set_errno(error, why == ENOMEM ? ERR_NO_MEMORY : ERR_IO, why,
                                      "cannot be read");
}

static uint32_t parts_of(const struct model_index *index)
{
    return index->part_count ? index->part_count : 1;
}

static int match(const struct store_manifest *m, const struct model_index *index,
                 const struct gguf_parts *parts, struct error *error)
{
    uint8_t hash[STORE_HASH_BYTES];
    if (parts_of(index) > STORE_BASE_PARTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %d parts", STORE_BASE_PARTS_MAX);
    if (store_base_hash(parts, parts_of(index), hash, error))
        return -1;
    if (memcmp(hash, m->base_hash, sizeof hash) != 0 || strcmp(index->arch, m->arch) != 0 ||
        index->hparams.layers != m->layers || index->hparams.experts != m->experts)
        return error_set(error, ERR_BAD_INPUT, "not the model that this delta was made of");
    return 0;
}

static int no_base(int why, struct error *error)
{
    return error_set_errno(error, ERR_BAD_INPUT, why, "cannot be opened; the delta needs it");
}

static int open_parts(const struct store_manifest *m, char path[PATH_MAX], struct gguf_parts *parts,
                      struct model_index **index, struct error *error)
{
    struct error why;
    int fd = model_open(path, O_NONBLOCK, &why);
    if (fd < 0)
        return no_base(errno, error);
    gguf_parts_open(parts, fd, path);
    int status = model_index_build_parts(parts, index, error);
    if (status == 0)
        status = match(m, *index, parts, error);
    if (status != 0) {
        free(*index);
        *index = NULL;
    }
    gguf_parts_close(parts);
    close(fd);
    return status;
}

int store_base_open(const struct store_manifest *m, const char *dir, struct store_base *base,
                    struct error *error)
{
    char given[PATH_MAX], path[PATH_MAX];
    int n = m->base_path[0] == '/' ? snprintf(given, sizeof given, "%s", m->base_path)
                                   : snprintf(given, sizeof given, "%s/%s", dir, m->base_path);
    *base = (struct store_base){.index = NULL};
    sl_assert(dir[0] == '/');
    if (n < 0 || n >= (int)sizeof given)
        return error_set(error, ERR_BAD_INPUT, "its path is too long");
    if (!gguf_real_path(given, path))
        return no_base(errno, error);
    if (strlen(path) >= MODEL_PATH_BYTES)
        return error_set(error, ERR_BAD_INPUT, "its path is too long");
    struct gguf_parts *parts = malloc(sizeof *parts);
    if (!parts)
        return error_set(error, ERR_NO_MEMORY, "out of memory (model)");
    int status = open_parts(m, path, parts, &base->index, error);
    free(parts);
    if (status != 0)
        return -1;
    base->parts = parts_of(base->index);
    strcpy(base->path, path);
    return 0;
}

void store_base_files(const struct store_base *base, struct model_stripe *files)
{
    if (base->index->part_count > 0) {
        memcpy(files, model_index_stripes(base->index), base->parts * sizeof *files);
        return;
    }
    *files = (struct model_stripe){.file = base->index->file};
    memcpy(files->path, base->path, sizeof files->path);
}

void store_base_entries(const struct store_base *base, uint32_t stripes,
                        struct model_entry *entries)
{
    const struct model_index *m = base->index;
    uint32_t grid = m->hparams.layers * m->hparams.experts;
    memcpy(entries, model_index_entries(m) + m->precision_first[PRECISION_NATIVE],
           grid * sizeof *entries);
    for (uint32_t i = 0; i < grid; i++) {
        entries[i].in_parts = 1;
        for (uint32_t x = 0; x < entries[i].extents; x++) {
            entries[i].extent[x].part += stripes;
            entries[i].extent[x].tensor = ENTRY_NONE;
        }
    }
}
