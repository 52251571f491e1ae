/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a model (a GGUF file, a split one, a store), read past the page cache. */
#ifndef SLUICE_OFFLINE_FILES_H
#define SLUICE_OFFLINE_FILES_H

#include <stdatomic.h>

#include "lib/io/bulk.h"
#include "lib/model/index/model_index.h"

struct offline_files {
    const struct model_index *index;     /* borrowed */
    struct bulk model;                   /* the GGUF file, or the model.gguf of a store */
    struct bulk loader[MODEL_PARTS_MAX]; /* stripes of a store, parts of a split file */
    struct bulk mirror[MODEL_PARTS_MAX]; /* of stripes; read where a stripe fails */
    uint32_t loaders;
    atomic_uint from_mirror;                         /* shards read there so far */
    atomic_uint_fast64_t read_bytes, reads, read_ns; /* so far; of entries; sum over threads */
};

/* Nothing is open. */
void files_init(struct offline_files *f);
/* path: as given by the user. 0, or -1 with *error; files_close in all cases. */
int files_open(struct offline_files *f, const struct model_index *index, const char *path,
               struct error *error);
void files_close(struct offline_files *f);

/* Reads an entry into its slot of entry->slot_bytes bytes, a multiple of the page, and compares it
 * with its checksums, if it has some; a shard that fails is read from its mirror. Any thread. -1
 * with *error: ERR_IO, or ERR_BAD_INPUT for wrong bytes. */
int files_read(struct offline_files *f, uint32_t entry, void *slot, struct error *error);

#endif
