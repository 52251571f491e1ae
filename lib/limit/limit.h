/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what limits the speed of an engine now, from the growth of its counters. Pure functions. */
#ifndef SLUICE_LIMIT_LIMIT_H
#define SLUICE_LIMIT_LIMIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMIT_LOADERS_MAX 16

enum limit {
    LIMIT_NONE,    /* nothing is computed, or the engine waits for its clients */
    LIMIT_STORAGE, /* compute waits for experts that are read */
    LIMIT_MEMORY,  /* weights are read from memory for few rows each */
    LIMIT_COMPUTE, /* weights are used for many rows each, or a GPU computes */
    LIMIT__COUNT
};

/* Of the time between two samples. */
struct limit_facts {
    double computing;       /* share of the time with a pass, counted when one ends */
    double stall;           /* share of the time that compute waited for experts */
    bool running;           /* a sequence is computed now */
    double busy;            /* share of the time with a read in flight, of the busiest device */
    double rows_per_expert; /* 0: not known */
    double gpu_busy;        /* share of the time; 0: no GPU, or not counted */
    bool all_resident;      /* every expert is in memory */
    bool throttled;         /* a device has a limit set by its user */
};

/* Counters of one snapshot, for the facts between two. */
struct limit_mark {
    uint64_t computing_ns, stall_ns, gpu_busy_ns, experts, expert_rows;
    uint64_t busy_ns[LIMIT_LOADERS_MAX]; /* of the loader of that number */
    bool running, all_resident, throttled;
};

/* doc: the stats snapshot of the supervisor; NULL: all zero, as when the engine started. */
void limit_mark(const json_t *doc, struct limit_mark *mark);

/* What happened in the `seconds` between two marks. A counter that is smaller now restarted at
 * zero. */
void limit_between(const struct limit_mark *before, const struct limit_mark *now, double seconds,
                   struct limit_facts *facts);

enum limit limit_now(const struct limit_facts *f);
const char *limit_name(enum limit limit);

/* "storage: compute waits 64% of the time, disk busy 91%", in 74 columns at most. Returns out. */
const char *limit_text(const struct limit_facts *f, enum limit limit, char *out, size_t bytes);

#endif
