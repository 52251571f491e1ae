/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of shards (XXH3-64, lib/model/store/store.h), computed while the shard is being read:
 * each completely read prefix is added at once, so that at the end only the last chunk is left.
 * Reads the arena; independent of devices and messages. */
#ifndef SLUICE_ENGINE_LOADER_VERIFY_H
#define SLUICE_ENGINE_LOADER_VERIFY_H

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"
#include "procs/engine/loader/jobs.h"

struct verify {
    const struct model_index *model; /* borrowed */
    const char *arena;               /* borrowed */
    uint32_t shard;                  /* of every entry: this loader's number */
    void *states;                    /* a running sum for each job; NULL: no entry has a checksum */
    uint64_t bytes;                  /* total, and the time it took */
    uint64_t ns;
};

/* 0, or -1 when out of memory. */
int verify_create(struct verify *v, const struct model_index *model, const void *arena,
                  uint32_t shard, const struct jobs *jobs, struct error *error);
void verify_destroy(struct verify *v);

/* Adds what has been read. Cheap when that is nothing, or without a checksum. */
void verify_arrived(struct verify *v, const struct jobs *jobs, struct job *job);

enum verdict { VERDICT_UNKNOWN, VERDICT_RIGHT, VERDICT_WRONG };

/* Pre: job_ended without a status: all bytes have arrived. VERDICT_UNKNOWN: no checksum. */
enum verdict verify_end(struct verify *v, const struct jobs *jobs, struct job *job);

#endif
