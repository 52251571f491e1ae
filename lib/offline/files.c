/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the files of a model with O_DIRECT, and reads the shards of an expert from them. */
#include "lib/offline/files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/model/gguf/split.h"
#include "lib/model/store/store.h"

static int open_one(struct bulk *b, const char *path, const struct model_file_id *id,
                    struct error *error)
{
    if (bulk_open(b, path, O_RDONLY, error) != 0)
        return -1;
    return model_file_unchanged(b->fd, id, error);
}

void files_init(struct offline_files *f)
{
    f->model.fd = -1;
    for (uint32_t i = 0; i < MODEL_PARTS_MAX; i++)
        f->loader[i].fd = f->mirror[i].fd = -1;
}

int files_open(struct offline_files *f, const struct model_index *index, const char *path,
               struct error *error)
{
    char first[PATH_MAX];
    f->index = index;
    bool store = index->stripe_count > 0;
    int n = snprintf(first, sizeof first, "%s%s", path, store ? "/" STORE_MODEL_FILE : "");
    if (n < 0 || n >= (int)sizeof first)
        return error_set(error, ERR_BAD_INPUT, "cannot open %.200s: its name is too long", path);
    if (!store)
        gguf_first_part(first);
    if (open_one(&f->model, first, &index->file, error) != 0)
        return -1;
    f->loaders = index->stripe_count + index->part_count;
    for (uint32_t i = 0; i < f->loaders; i++) {
        const struct model_stripe *s = model_loader_file(index, i);
        struct error why, ignored;
        bool primary = open_one(&f->loader[i], s->path, &s->file, &why) == 0,
             second = s->mirror[0] && open_one(&f->mirror[i], s->mirror, &s->file, &ignored) == 0;
        if (!primary)
            bulk_close(&f->loader[i]);
        if (!second)
            bulk_close(&f->mirror[i]);
        if (!primary && !second)
            return error_set(error, why.code, "%s", why.text);
    }
    return 0;
}

void files_close(struct offline_files *f)
{
    bulk_close(&f->model);
    for (uint32_t i = 0; i < MODEL_PARTS_MAX; i++) {
        bulk_close(&f->loader[i]);
        bulk_close(&f->mirror[i]);
    }
}

/* Reads one run; what lies after the end of the file, of `size` bytes, is zeroed. */
static int read_run(struct offline_files *f, const struct bulk *file, uint64_t size,
                    const struct model_extent *x, uint8_t *slot, struct error *error)
{
    uint64_t got = 0, inside = size > x->file_offset ? size - x->file_offset : 0;
    if (bulk_read(file, slot + x->slot_offset, x->read_bytes, x->file_offset, &got, error) != 0)
        return -1;
    atomic_fetch_add_explicit(&f->read_bytes, got, memory_order_relaxed);
    if (got < x->read_bytes && got < inside)
        return error_set(error, ERR_GONE, "the file ends at %" PRIu64 ": it became shorter",
                         x->file_offset + got);
    memset(slot + x->slot_offset + got, 0, x->read_bytes - got);
    return 0;
}

static int read_from(struct offline_files *f, const struct model_entry *e, uint32_t shard,
                     uint32_t shards, const struct bulk *file, uint8_t *slot, struct error *error)
{
    struct model_extent run[ENTRY_EXTENTS_MAX];
    uint32_t runs = model_entry_shard(e, shard, shards, run);
    bool own = e->in_store || e->in_parts;
    uint64_t size = own ? model_loader_file(f->index, shard)->file.bytes : f->index->file.bytes;
    for (uint32_t i = 0; i < runs; i++)
        if (read_run(f, file, size, &run[i], slot, error) != 0)
            return -1;
    if (runs == 0 || e->checksum_first == ENTRY_NONE)
        return 0;
    if (XXH3_64bits(slot + run[0].slot_offset, run[0].read_bytes) !=
        model_index_checksums(f->index)[e->checksum_first + shard])
        return error_set(error, ERR_BAD_INPUT, "layer %u, expert %u: wrong checksum in stripe %u",
                         e->layer, e->expert, shard);
    return 0;
}

static int read_shard(struct offline_files *f, const struct model_entry *e, uint32_t shard,
                      uint32_t shards, uint8_t *slot, struct error *error)
{
    if (!e->in_store && !e->in_parts)
        return read_from(f, e, shard, shards, &f->model, slot, error);
    const struct bulk *file = &f->loader[shard], *mirror = &f->mirror[shard];
    if (file->fd >= 0 && read_from(f, e, shard, shards, file, slot, error) == 0)
        return 0;
    if (mirror->fd < 0 || read_from(f, e, shard, shards, mirror, slot, error) != 0)
        return -1;
    if (file->fd >= 0 && atomic_fetch_add(&f->from_mirror, 1) == 0)
        log_warn("stripe %u cannot be read or is damaged: its mirror is used", shard);
    return 0;
}

int files_read(struct offline_files *f, uint32_t entry, void *slot, struct error *error)
{
    const struct model_entry *e = &model_index_entries(f->index)[entry];
    uint32_t shards = e->in_store || e->in_parts ? f->loaders : 1;
    uint64_t start = clock_now_ns();
    for (uint32_t shard = 0; shard < shards; shard++)
        if (read_shard(f, e, shard, shards, slot, error) != 0)
            return -1;
    atomic_fetch_add_explicit(&f->reads, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->read_ns, clock_now_ns() - start, memory_order_relaxed);
    return 0;
}
