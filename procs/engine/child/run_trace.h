/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --trace. */
#ifndef SLUICE_ENGINE_CHILD_RUN_TRACE_H
#define SLUICE_ENGINE_CHILD_RUN_TRACE_H

#include <stdbool.h>

#include "config/params.h"

/* Whether whoever has the model may learn the text from what is recorded: then nobody but its owner
 * may read the file. */
static inline bool run_trace_follows_text(const struct params *p)
{
    return p->trace[0] && (p->trace_rows || p->trace_logits || p->trace_inputs);
}

#endif
