/* SPDX-License-Identifier: Apache-2.0 */
/* The sequences of several traces: together.c finds them, weave.c computes them together. Private
 * to lib/sim/replay. */
#ifndef SLUICE_SIM_REPLAY_WEAVE_H
#define SLUICE_SIM_REPLAY_WEAVE_H

#include "lib/sim/replay/together.h"

struct source {            /* a sequence */
    uint64_t first, count; /* of its records, which are consecutive */
};

struct together {
    struct trace_header header;
    struct trace_record *record; /* without starts and ends */
    uint64_t records;
    struct source *source;
    uint32_t sources, sources_max;
    uint32_t rows; /* of the largest pass of a sequence */
};

#endif
