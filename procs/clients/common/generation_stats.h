/* The figures of one generation: what the sequence's own statistics say, completed from the
 * engine's document (memory, reads, evictions, restarts), which is read before and after. */
#ifndef SLUICE_CLIENTS_COMMON_GENERATION_STATS_H
#define SLUICE_CLIENTS_COMMON_GENERATION_STATS_H

#include <stdio.h>

#include "procs/clients/common/stream.h"

/* The object `generate --output json` prints. before, after: documents, either may be NULL. What
 * other clients caused meanwhile is in the reads and evictions. New reference. */
json_t *generation_stats_make(const struct stream_result *result, const json_t *before,
                              const json_t *after);

/* Three lines for people. */
void generation_stats_print(FILE *out, const json_t *stats);

#endif
