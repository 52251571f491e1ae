/* SPDX-License-Identifier: Apache-2.0 */
/* The files that the loaders read, and the copies of each. Loader and supervisor compute the same
 * list: bit n of a loader's quarantine flags (shm/directory/directory.h) is copy n of it. */
#ifndef SLUICE_ENGINE_CHILD_RUN_DEVICES_H
#define SLUICE_ENGINE_CHILD_RUN_DEVICES_H

#include "config/devices.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"

#define RUN_COPIES_MAX 4

/* What a loader reads. */
enum run_source {
    RUN_EXPERTS, /* its stripe of a store; or the GGUF file, with the dense tensors */
    RUN_DENSE,   /* model.gguf of a store; unused for a GGUF file */
    RUN_SOURCES
};

struct
    run_copies { /* the first is that of the device, then the others in the order they are tried */
    uint32_t count;
    char path[RUN_COPIES_MAX][MODEL_PATH_BYTES];
};

/* Copies after the first: the mirror in `devices`, the mirror of the store, for a GGUF file the
 * copies of the other devices, and the file that `devices` replaces. model_path: the model's path
 * in the process table. -1 with ERR_BAD_INPUT. */
int run_copies(const struct params *params, const struct model_index *model, const char *model_path,
               uint32_t loader, enum run_source source, struct run_copies *copies,
               struct error *error);

/* "loader.1's device PATH", for messages about an entry that could not be read. PATH is the first
 * copy, even when others were tried after it. */
void run_device_text(const struct params *params, const struct model_index *model,
                     const char *model_path, uint32_t loader, uint32_t entry, char *text,
                     size_t bytes);

/* The quarantine flags: a bit for each copy of each source; above them the last errno value. */
#define QUARANTINE_ERRNO_SHIFT 16

static inline uint32_t quarantine_bit(enum run_source source, uint32_t copy)
{
    return 1u << ((uint32_t)source * RUN_COPIES_MAX + copy);
}

static inline int quarantine_errno(uint32_t word)
{
    return (int)(word >> QUARANTINE_ERRNO_SHIFT);
}

_Static_assert(RUN_SOURCES *RUN_COPIES_MAX <= QUARANTINE_ERRNO_SHIFT, "bits below the errno");

#endif
