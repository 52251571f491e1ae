/* SPDX-License-Identifier: Apache-2.0 */
/* A helper thread that allocates pages of the arena for the cache's main thread, one job at a time,
 * in slices short enough to be abandoned quickly when a demand arrives. It allocates with
 * fallocate, never with stores (large slots in huge pages where available), and decides nothing. */
#ifndef SLUICE_ENGINE_CACHE_PREFAULT_H
#define SLUICE_ENGINE_CACHE_PREFAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "shm/arena/arena.h"

struct prefault;

struct prefault_job {
    struct arena_range range;
    uint32_t epoch; /* of the quota it was ordered under */
    int status;     /* 0, or -errno: -ECANCELED when abandoned, -ENOSPC when /dev/shm is full */
    struct segment_huge huge;
};

struct prefault *prefault_start(const struct segment *arena, struct error *error);
int prefault_fd(const struct prefault *p); /* readable when a job ended */
bool prefault_busy(const struct prefault *p);
void prefault_order(struct prefault *p, const struct prefault_job *job); /* Pre: not busy */
void prefault_abandon(struct prefault *p); /* the current job ends after its current slice */
bool prefault_take(struct prefault *p, struct prefault_job *ended);
void prefault_stop(struct prefault *p);

#endif
