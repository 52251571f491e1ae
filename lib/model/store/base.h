/* SPDX-License-Identifier: Apache-2.0 */
/* The model file in which a delta (store.h) has its native experts. */
#ifndef SLUICE_MODEL_STORE_BASE_H
#define SLUICE_MODEL_STORE_BASE_H

#include "lib/model/store/store.h"

struct gguf_parts;

/* The most files that the model of a delta may have: each has a loader, and the stripe has one. */
#define STORE_BASE_PARTS_MAX (MODEL_STRIPES_MAX - 1)

struct store_base {
    struct model_index *index; /* owned */
    uint32_t parts;            /* the number of its files */
    char path[MODEL_PATH_BYTES];
};

/* Computes the hash that identifies a model: the sample_hash (lib/file) of its `count` open parts.
 * 0, or -1 with ERR_IO or ERR_NO_MEMORY; the error names no path. */
int store_base_hash(const struct gguf_parts *parts, uint32_t count, uint8_t hash[STORE_HASH_BYTES],
                    struct error *error);

/* Opens the model file of a delta in the directory `dir`, which is absolute, and checks that it is
 * the one of the manifest. On success the caller frees base->index. Errors: those of
 * model_index_build, and ERR_BAD_INPUT. */
int store_base_open(const struct store_manifest *m, const char *dir, struct store_base *base,
                    struct error *error);

/* Fills files[] with its base->parts files. */
void store_base_files(const struct store_base *base, struct model_stripe *files);

/* Fills entries[] with its experts, layers * experts of them. Its files follow `stripes` stripes in
 * the list of loaders. */
void store_base_entries(const struct store_base *base, uint32_t stripes,
                        struct model_entry *entries);

#endif
