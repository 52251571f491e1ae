/* SPDX-License-Identifier: Apache-2.0 */
/* Names what limits the speed. The order is that of certainty: an idle engine has no limit, time
 * spent waiting for experts is measured, a busy GPU is measured, and what remains is decided by how
 * many rows share a weight that is read from memory. */
#include "lib/limit/limit.h"

#include <stdio.h>

/* Below this share of the time with a pass, the engine waits for its clients. */
#define COMPUTING_MIN 0.2
/* From this share of the passes' time on, an expert that is read counts more than one computed. */
#define STALL_MIN 0.25
#define GPU_MIN   0.5
/* Rows for which a weight is multiplied while the next one arrives from memory: with fewer rows
 * memory is the slower one. Processors differ between 4 and 16 (docs/benchmarks.md). */
#define ROWS_MIN 8

/* The time is counted at the end of a pass, and waiting at once: a long pass has only waited so
 * far. */
static double working(const struct limit_facts *f)
{
    return f->stall > f->computing ? f->stall : f->computing;
}

static double waiting(const struct limit_facts *f)
{
    double all = working(f);
    return all > 0 ? f->stall / all : 0;
}

enum limit limit_now(const struct limit_facts *f)
{
    if (!f->running && working(f) < COMPUTING_MIN)
        return LIMIT_NONE;
    if (waiting(f) >= STALL_MIN)
        return LIMIT_STORAGE;
    if (f->gpu_busy >= GPU_MIN || f->rows_per_expert >= ROWS_MIN)
        return LIMIT_COMPUTE;
    return LIMIT_MEMORY;
}

const char *limit_name(enum limit limit)
{
    static const char *const names[] = {"none", "storage", "memory", "compute"};
    return names[limit];
}

const char *limit_text(const struct limit_facts *f, enum limit limit, char *out, size_t bytes)
{
    int n = 0;
    if (limit == LIMIT_NONE && working(f) <= 0)
        snprintf(out, bytes, "none: no sequence is computed");
    else if (limit == LIMIT_NONE)
        snprintf(out, bytes, "none: nothing is computed %.0f%% of the time",
                 100 * (1 - working(f)));
    else if (limit == LIMIT_COMPUTE && f->gpu_busy >= GPU_MIN)
        snprintf(out, bytes, "compute: the GPU is busy %.0f%% of the time", 100 * f->gpu_busy);
    else if (limit == LIMIT_COMPUTE)
        snprintf(out, bytes, "compute: an expert is computed for %.0f rows at once",
                 f->rows_per_expert);
    else if (limit == LIMIT_MEMORY && f->rows_per_expert > 0)
        snprintf(out, bytes, "memory: weights are read from RAM for %.1f rows each",
                 f->rows_per_expert);
    else if (limit == LIMIT_MEMORY)
        snprintf(out, bytes, "memory: weights are read from RAM for few rows each");
    else
        n = snprintf(out, bytes, "storage: compute waits %.0f%% of the time, disk busy %.0f%%",
                     100 * waiting(f), 100 * f->busy);
    if (limit == LIMIT_STORAGE && n > 0 && (size_t)n < bytes)
        snprintf(out + n, bytes - (size_t)n, "%s",
                 f->throttled      ? " (throttled)"
                 : f->all_resident ? ""
                                   : "; more budget helps");
    return out;
}
