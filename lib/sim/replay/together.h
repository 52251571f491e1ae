/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the trace that an engine would have recorded with `--parallel` from traces of sequences
 * that ran alone or otherwise: the engine's scheduler (lib/policy/schedule) decides which of them
 * has rows in a pass, and the records of a pass have the engine's order. Pure.
 *
 * All requests arrive at the start, in the order of their traces. A request waits until one of
 * those that run has ended. A prompt is divided as it was when it was recorded, unless passes have
 * a time limit (struct together_limit): then the scheduler also divides recorded chunks. Which
 * tokens of a chunk use an expert is not recorded: they are spread over it evenly. */
#ifndef SLUICE_SIM_REPLAY_TOGETHER_H
#define SLUICE_SIM_REPLAY_TOGETHER_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/policy/sequences.h"
#include "lib/sim/sim.h"
#include "lib/trace/trace.h"

struct together; /* sequences of traces */

/* Copies the sequences of `count` traces of one model. If there are fewer than `least`, each is cut
 * into parts of equal length, which count as sequences. NULL with ERR_BAD_INPUT: a trace is of
 * another model, or none has a pass; or with ERR_NO_MEMORY. */
struct together *together_create(const struct trace *traces, uint32_t count, uint32_t least,
                                 struct error *error);
void together_destroy(struct together *t);
uint32_t together_sequences(const struct together *t);

/* How long a stream may wait for its next token while prompts are read (--max-token-gap). A pass
 * takes the time that computing takes, without waiting for reads. */
struct together_limit {
    uint64_t gap_ns; /* 0: as an engine chooses it, by the passes with streams only */
    struct sim_compute compute;
};

/* The trace of the same sequences, of which `parallel` (1 to SEQUENCES_MAX) run at a time. limit:
 * NULL: passes have none. For trace_free. -1 with ERR_NO_MEMORY. */
int together_trace(const struct together *t, uint32_t parallel, const struct together_limit *limit,
                   struct trace *out, struct error *error);

#endif
