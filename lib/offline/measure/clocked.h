/* SPDX-License-Identifier: Apache-2.0 */
/* Lossy presets evaluated token by token against a simulated clock and cache (deterministic mode,
 * see docs/architecture.md): the precision that serves an access, or a skip, follows from what
 * would be resident at that moment with this capacity and storage device. The model runs for real,
 * in memory; time is the simulator's.
 *
 * Every window is a sequence that is decoded from its first token. Cache and records persist from
 * window to window of a segment (`base`; 0: CLOCKED_SEGMENT), which starts with an empty cache.
 * Segments are decoded abreast, each with a cache and clock of its own, so that nothing depends
 * on how many of them there are at a time, or on the number of threads. Presets with masked routing
 * have no misses: see serving.h. */
#ifndef SLUICE_OFFLINE_MEASURE_CLOCKED_H
#define SLUICE_OFFLINE_MEASURE_CLOCKED_H

#include "lib/offline/measure/evaluate.h"
#include "lib/sim/sim.h"

#define CLOCKED_SEGMENT 2 /* windows, if the segment of `base` is 0 */

/* A sim_config for this model: all precisions, at the sizes that `method` gives; storage device and
 * compute from the plan where it has them (may be NULL). capacity: bytes of experts. */
void clocked_config(const struct offline_model *m, const struct knobs *knobs,
                    const struct plan *plan, enum quant_method method, uint64_t capacity,
                    struct sim_config *config);

/* ns of a decoded token without stalls, and ns to read one expert at native precision. */
double clocked_token_ns(const struct sim_config *c);
double clocked_read_ns(const struct sim_config *c);

/* `base` gives model, text, threads, segment, streams, compare, against, record, progress. stats:
 * sums over the whole text. -1 with *error, also those of sim_cache_create. */
int clocked_evaluate(const struct offline_evaluation *base, const struct sim_config *config,
                     enum quant_method method, struct offline_losses *losses,
                     struct sim_stats *stats, struct error *error);

#endif
