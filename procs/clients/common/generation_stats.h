/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of one generation: those of the sequence, completed from stats snapshots of the engine
 * taken before and after (memory, reads, evictions, restarts). */
#ifndef SLUICE_CLIENTS_COMMON_GENERATION_STATS_H
#define SLUICE_CLIENTS_COMMON_GENERATION_STATS_H

#include <stdio.h>

#include "procs/clients/common/stream.h"

/* The object printed by `generate --output json`. before, after: stats snapshots, either may be
 * NULL. Reads and evictions include those caused by other clients meanwhile. New reference. */
json_t *generation_stats_make(const struct stream_result *result, const json_t *before,
                              const json_t *after);

/* Prints the statistics as text: the important ones on one line, or all on three. */
void generation_stats_print(FILE *out, const json_t *stats);
void generation_stats_print_all(FILE *out, const json_t *stats);

#endif
