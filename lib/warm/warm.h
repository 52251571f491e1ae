/* SPDX-License-Identifier: Apache-2.0 */
/* The experts that a model used most in earlier runs, in a file of a few kilobytes for each model.
 *
 * File: struct warm_header | uses, most used first. Little-endian. It is written under a temporary
 * name and renamed, and it is untrusted when it is read. It only decides what is read first: a
 * wrong file costs time. */
#ifndef SLUICE_WARM_WARM_H
#define SLUICE_WARM_WARM_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define WARM_HASH_BYTES 16
#define WARM_USES_MAX   4096 /* experts of a file */
#define WARM_MAGIC      0x4d524157434c5300ull
/* A run of so many tokens counts as much as all runs before it. */
#define WARM_PRIOR_TOKENS 2000

struct warm_model { /* what a file belongs to */
    uint8_t hash[WARM_HASH_BYTES];
    uint32_t layers, experts, top_k;
};

struct warm_use {
    uint16_t layer, expert;
    uint16_t share; /* of the tokens that used it, 65535: all */
};

struct warm_header {
    uint64_t magic;
    uint8_t hash[WARM_HASH_BYTES];
    uint32_t layers, experts, count, reserved;
    uint64_t checksum; /* XXH3 of the uses */
};
_Static_assert(sizeof(struct warm_header) == 48 && sizeof(struct warm_use) == 6,
               "layout of a file");

#define WARM_BYTES_MAX (sizeof(struct warm_header) + WARM_USES_MAX * sizeof(struct warm_use))

struct warm_list {
    uint32_t count;
    struct warm_use use[WARM_USES_MAX]; /* most used first */
};

/* The list in the bytes of a file. 0, or -1 with ERR_BAD_INPUT: damaged, or of another model. */
int warm_parse(const void *bytes, size_t size, const struct warm_model *model,
               struct warm_list *list, struct error *error);
/* The bytes of a file, at most WARM_BYTES_MAX; returns their number. */
size_t warm_format(const struct warm_list *list, const struct warm_model *model, void *bytes);

/* Reads a file; without one the list is empty. 0, or -1 with ERR_IO or ERR_BAD_INPUT. */
int warm_read(const char *path, const struct warm_model *model, struct warm_list *list,
              struct error *error);
/* Replaces the file. 0, or -1 with ERR_IO. */
int warm_write(const char *path, const struct warm_model *model, const struct warm_list *list,
               struct error *error);

/* Adds the accesses of a run, accesses[layer * experts + expert], to the shares of a list. 0, or -1
 * with ERR_NO_MEMORY; unchanged without accesses. */
int warm_add(struct warm_list *list, const struct warm_model *model, const uint32_t *accesses,
             struct error *error);

/* Makes the directory of this user's cache if it is not there: $XDG_CACHE_HOME/sluice, else
 * ~/.cache/sluice. A directory of another user, or one that others may write, is not used. 0 with
 * the path in `path`, or -1 with *error. */
int warm_cache(char *path, size_t path_bytes, struct error *error);
/* Makes the directory in that cache with a model's files, by the hash. */
int warm_directory(const uint8_t hash[WARM_HASH_BYTES], char *path, size_t path_bytes,
                   struct error *error);

#endif
