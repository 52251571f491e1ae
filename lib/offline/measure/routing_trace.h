/* The lossless routing of a text as a trace, for what is fitted on traces: every window is a
 * sequence that is decoded token by token, without a prompt. Chunks of a window are routed at once;
 * rows do not depend on each other, so that the records are those of a decode. */
#ifndef SLUICE_OFFLINE_MEASURE_ROUTING_TRACE_H
#define SLUICE_OFFLINE_MEASURE_ROUTING_TRACE_H

#include "lib/offline/offline.h"
#include "lib/offline/text.h"
#include "lib/trace/trace.h"

/* Tiers other than native have the size `method` gives them. 0, or -1 with *error; trace_free ends
 * what it filled. */
int offline_trace(struct offline_model *m, const struct offline_text *text,
                  enum quant_method method, struct trace *out, struct error *error);

/* The same with guesses: the next `ahead` layers' routers on each layer's gate input, as the
 * predictor applies them, as many as any prediction names. On so many threads. */
int offline_trace_predicted(struct offline_model *m, const struct offline_text *text,
                            enum quant_method method, uint32_t ahead, uint32_t threads,
                            struct trace *out, struct error *error);

#endif
