/* SPDX-License-Identifier: Apache-2.0 */
/* The files that the loaders read, and the copies of each. Loader and supervisor compute the same
 * list: bit n of a loader's quarantine flags (shm/directory/directory.h) is copy n of it. */
#ifndef SLUICE_ENGINE_CHILD_RUN_STORAGE_H
#define SLUICE_ENGINE_CHILD_RUN_STORAGE_H

#include "config/storage.h"
#include "lib/io/server/url.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "shm/directory/directory.h"
#include "shm/segment/inherited_fds.h"

#define RUN_COPIES_MAX 4

/* The source that a loader reads. */
enum run_source {
    RUN_EXPERTS, /* its stripe of a store; or the GGUF file, or its part of a split one, with the
                  * dense tensors */
    RUN_DENSE,   /* model.gguf of a store; of a GGUF file on a server its skeleton, else unused */
    RUN_SOURCES
};

struct
    run_copies { /* the first is that of the device, then the others in the order they are tried */
    uint32_t count;
    char path[RUN_COPIES_MAX][MODEL_PATH_BYTES];
};

/* Number of files that must have a loader each: stripes of a store, parts of a split file; 0: any
 * number of loaders reads one file. */
static inline uint32_t run_files(const struct model_index *model)
{
    return model->stripe_count + model->part_count;
}

/* Whether the experts are on a server (-m URL, which the parameter `origin` then has): the files
 * that the index names have none, and a loader reads the file of the same name next to the URL. */
static inline bool run_remote(const struct params *params)
{
    return params->origin[0] != 0;
}

/* The source that has an entry. */
enum run_source run_source_of(const struct params *params, const struct model_index *model,
                              uint32_t entry);

/* Copies after the first: the mirror in `devices`, the mirror of the store, for a GGUF file the
 * copies of the other devices, and the file that `devices` replaces. model_path: the model's path
 * in the process table. -1 with ERR_BAD_INPUT. */
int run_copies(const struct params *params, const struct model_index *model, const char *model_path,
               uint32_t loader, enum run_source source, struct run_copies *copies,
               struct error *error);

/* The copies of a loader's experts that are on servers. */
struct run_servers {
    uint32_t count;
    struct io_url url[RUN_COPIES_MAX];
};

/* Leaves out a malformed URL, which the supervisor has rejected. */
void run_servers(const struct params *params, const struct model_index *model,
                 const char *model_path, uint32_t loader, struct run_servers *servers);

/* The identity, in the index, of the file that these are copies of. */
const struct model_file_id *run_inspected(const struct model_index *model, uint32_t loader,
                                          enum run_source source);

/* "loader.1's device PATH", for messages about an entry that could not be read. PATH is the first
 * copy, even when others were tried after it. */
void run_storage_text(const struct params *params, const struct model_index *model,
                      const char *model_path, uint32_t loader, uint32_t entry, char *text,
                      size_t bytes);

/* The place of a copy among the files of its loader (directory_head.files, inherited_fds.h). */
static inline uint32_t run_file_index(enum run_source source, uint32_t copy)
{
    return (uint32_t)source * RUN_COPIES_MAX + copy;
}

/* The quarantine flags: a bit for each copy of each source; above them the last errno value.
 * ESTALE: the file changed in place (run_files.h). */
#define QUARANTINE_ERRNO_SHIFT 16

static inline uint32_t quarantine_bit(enum run_source source, uint32_t copy)
{
    return 1u << run_file_index(source, copy);
}

/* The cache in front of a loader's servers. */
#define QUARANTINE_CACHE (1u << (QUARANTINE_ERRNO_SHIFT - 1))

static inline int quarantine_errno(uint32_t word)
{
    return (int)(word >> QUARANTINE_ERRNO_SHIFT);
}

_Static_assert(RUN_SOURCES *RUN_COPIES_MAX < QUARANTINE_ERRNO_SHIFT, "bits below the errno");
_Static_assert(RUN_SOURCES *RUN_COPIES_MAX == DIRECTORY_FILES_MAX, "one file per copy");
_Static_assert(INHERITED_FILES__END - INHERITED_FILES == DIRECTORY_FILES_MAX, "and a descriptor");

/* Why a file is not read: strerror, but with a text for a file that changed, and for memory that is
 * short. */
const char *run_errno_text(int errno_value);

/* directory_head.model_changed: which loader has no unchanged copy of which source. Not 0. */
static inline uint32_t run_changed_word(uint32_t loader, enum run_source source)
{
    return 1 + loader * RUN_SOURCES + (uint32_t)source;
}

/* Sets ERR_MODEL_CHANGED with the name of the file and what helps. Returns -1. word: not 0. */
int run_changed_error(const struct params *params, const struct model_index *model,
                      const char *model_path, uint32_t word, struct error *error);

#endif
