/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that generate pieces ahead of the writer, so that the device does not wait for random
 * numbers. Pieces are returned in file order. */
#ifndef SLUICE_TOOLS_SYNTH_PIPELINE_H
#define SLUICE_TOOLS_SYNTH_PIPELINE_H

#include "procs/tools/synth/weights.h"

struct pipeline;

/* NULL with an error. `weights` is borrowed until pipeline_close. */
struct pipeline *pipeline_open(const struct weights *weights, unsigned threads,
                               struct error *error);

/* Waits for and returns the next piece; NULL after the last. Valid until the next call. */
const void *pipeline_next(struct pipeline *p, uint64_t *bytes);

/* Total wait time of pipeline_next in ns. */
uint64_t pipeline_waited_ns(const struct pipeline *p);

/* Stops the threads and frees the pipeline, at any time. NULL is ignored. */
void pipeline_close(struct pipeline *p);

#endif
