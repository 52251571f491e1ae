/* SPDX-License-Identifier: Apache-2.0 */
/* The lossless routing of a text as a trace, for fitting parameters: every window is a sequence
 * that is decoded token by token, without a prompt. A window runs as one chunk; rows do not depend
 * on each other, so the records equal those of a decode. */
#ifndef SLUICE_OFFLINE_MEASURE_ROUTING_TRACE_H
#define SLUICE_OFFLINE_MEASURE_ROUTING_TRACE_H

#include "lib/offline/offline.h"
#include "lib/offline/text.h"
#include "lib/trace/trace.h"

/* Precisions other than native have the sizes that `method` gives. threads: 0: number of CPUs. 0,
 * or -1 with *error; free the result with trace_free. */
int offline_trace(struct offline_model *m, const struct offline_text *text,
                  enum quant_method method, uint32_t threads, struct trace *out,
                  struct error *error);

/* offline_trace with the candidates of each access for routing resident-first, three times as many
 * as are chosen, and with predictions: the routers of the next `ahead` layers on each layer's gate
 * input, as the predictor applies them. Each list is long enough for every prediction method. Uses
 * `threads` threads. */
int offline_trace_predicted(struct offline_model *m, const struct offline_text *text,
                            enum quant_method method, uint32_t ahead, uint32_t threads,
                            struct trace *out, struct error *error);

#endif
