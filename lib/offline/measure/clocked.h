/* Lossy systems token by token against a simulated clock and cache (DESIGN.md §5, Lockstep): which
 * tier serves a use, or that it is skipped, follows from what would be resident at that moment with
 * this room and this drive. The model runs for real, in memory; time is the simulator's.
 *
 * Every window is a sequence that is decoded from its first token on. Room and records live on from
 * window to window; each worker takes SERVING_SEGMENT windows and begins them with an empty cache,
 * so that nothing depends on the number of threads. Masked systems have no misses: see serving.h.
 */
#ifndef SLUICE_OFFLINE_MEASURE_CLOCKED_H
#define SLUICE_OFFLINE_MEASURE_CLOCKED_H

#include "lib/offline/measure/evaluate.h"
#include "lib/sim/sim.h"

/* A sim_config for this model: every tier there is, at the size `method` gives it; drive and
 * compute from the plan where it knows them (may be NULL). capacity: bytes of experts. */
void clocked_config(const struct offline_model *m, const struct knobs *knobs,
                    const struct plan *plan, enum quant_method method, uint64_t capacity,
                    struct sim_config *config);

/* Time of a decoded token that waits for nothing, and of reading one expert at the best tier. */
double clocked_token_ns(const struct sim_config *c);
double clocked_read_ns(const struct sim_config *c);

/* `base` gives model, text, threads, compare, against, record, progress. figures: sums over all of
 * the text. -1 with *error, sim_cache_create's among them. */
int clocked_evaluate(const struct offline_evaluation *base, const struct sim_config *config,
                     enum quant_method method, struct offline_losses *losses,
                     struct sim_stats *stats, struct error *error);

#endif
