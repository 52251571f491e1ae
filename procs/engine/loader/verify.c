/* SPDX-License-Identifier: Apache-2.0 */
/* Adds arrived prefixes of a shard to its checksum, and compares the checksum at the end. */
#include "procs/engine/loader/verify.h"

#include <stdlib.h>
#define XXH_STATIC_LINKING_ONLY /* the size of a state, for an array of them */
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"

#define STATE_ALIGN 64 /* alignment that the library requires */

int verify_create(struct verify *v, const struct model_index *model, const void *arena,
                  uint32_t shard, const struct jobs *jobs, struct error *error)
{
    *v = (struct verify){.model = model, .arena = arena, .shard = shard};
    if (model->checksum_count == 0)
        return 0;
    /* Only states of used jobs are touched, so that the others cost no memory. */
    _Static_assert(sizeof(XXH3_state_t) % STATE_ALIGN == 0, "an array of states is aligned");
    v->states = aligned_alloc(STATE_ALIGN, jobs->capacity * sizeof(XXH3_state_t));
    return v->states ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (checksums)");
}

void verify_destroy(struct verify *v)
{
    free(v->states);
    v->states = NULL;
}

static const struct model_entry *entry_of(const struct verify *v, const struct job *job)
{
    sl_assert(job->entry < v->model->entry_count);
    return &model_index_entries(v->model)[job->entry];
}

static XXH3_state_t *state_of(const struct verify *v, const struct jobs *jobs,
                              const struct job *job)
{
    return (XXH3_state_t *)v->states + (job - jobs->job);
}

void verify_arrived(struct verify *v, const struct jobs *jobs, struct job *job)
{
    if (job->status != 0 || entry_of(v, job)->checksum_first == ENTRY_NONE)
        return;
    sl_assert(job->runs == 1); /* an entry of a store is one extent */
    uint64_t arrived = jobs_arrived(jobs, job);
    sl_assert(arrived >= job->summed && arrived <= job->run[0].bytes);
    if (arrived == job->summed)
        return;
    uint64_t start = clock_now_ns();
    XXH3_state_t *state = state_of(v, jobs, job);
    if (job->summed == 0)
        XXH3_64bits_reset(state);
    XXH3_64bits_update(state, v->arena + job->run[0].arena_offset + job->summed,
                       arrived - job->summed);
    v->bytes += arrived - job->summed;
    v->ns += clock_now_ns() - start;
    job->summed = arrived;
}

enum verdict verify_end(struct verify *v, const struct jobs *jobs, struct job *job)
{
    sl_assert(job_ended(job) && job->status == 0);
    uint32_t first = entry_of(v, job)->checksum_first;
    if (first == ENTRY_NONE)
        return VERDICT_UNKNOWN;
    verify_arrived(v, jobs, job);
    sl_assert(job->summed == job->bytes);
    uint64_t sum = XXH3_64bits_digest(state_of(v, jobs, job));
    return sum == model_index_checksums(v->model)[first + v->shard] ? VERDICT_RIGHT : VERDICT_WRONG;
}
