/* SPDX-License-Identifier: Apache-2.0 */
/* The preset auto, which chooses among the others. */
#ifndef SLUICE_ENGINE_SUPERVISOR_AUTO_H
#define SLUICE_ENGINE_SUPERVISOR_AUTO_H

#include "procs/engine/supervisor/supervisor.h"

/* Before any child runs: chooses by the plan's predictions and the throttles. */
void auto_start(struct supervisor *s);
/* Limit of a loader's bandwidth, bytes per second; 0: none. */
uint64_t auto_throttle(struct supervisor *s, uint32_t loader);
/* Whether auto runs and chooses again when capacity or a throttle changes, so that no change of
 * them is rejected for the loss of what runs now. */
bool auto_follows(const struct supervisor *s);
/* At readiness, on every tick, and when the budget or a throttle has changed: evaluates capacity,
 * bandwidth and token times, and chooses again. The choice takes effect with the next sequence. */
void auto_poll(struct supervisor *s);
/* A preset was requested. Returns the preset to run. */
uint32_t auto_requested(struct supervisor *s, uint32_t preset);
json_t *auto_stats(const struct supervisor *s); /* NULL: auto is off */
/* {"preset", "lossless", "why"} of each candidate with that share of the experts resident, in the
 * order of auto.tbl.h; "why" is missing if it can run here. */
json_t *auto_candidates_json(struct supervisor *s, double share);

#endif
