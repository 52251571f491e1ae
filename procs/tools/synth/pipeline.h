/* Threads that make pieces ahead of the one that writes them, so that the drive never waits for
 * random numbers. Pieces come out in the order of the file. */
#ifndef SLUICE_TOOLS_SYNTH_PIPELINE_H
#define SLUICE_TOOLS_SYNTH_PIPELINE_H

#include "procs/tools/synth/weights.h"

struct pipeline;

/* NULL with *error. `weights` is borrowed until pipeline_close. */
struct pipeline *pipeline_open(const struct weights *weights, unsigned threads,
                               struct error *error);

/* The next piece, waiting for it; NULL after the last. Valid until the next call. */
const void *pipeline_next(struct pipeline *p, uint64_t *bytes);

/* Nanoseconds pipeline_next has waited. */
uint64_t pipeline_waited_ns(const struct pipeline *p);

/* At any time. */
void pipeline_close(struct pipeline *p);

#endif
