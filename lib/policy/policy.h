/* Policies: plain code over plain structs. Time and randomness are arguments; no I/O, no shared
 * memory, no threads - cache manager, predictor, compute and the simulator run these very
 * functions. Each interface has a trivially right member that serves as the tests' oracle. Chosen
 * by name; systems.h has the combinations.
 *
 *   residency.h   who is held, who leaves (eviction and allocation)
 *   prediction.h  which experts a coming layer will use
 *   prefetch.h    whether a guess may be loaded now
 *   prefill.h     in which order a chunk's experts are loaded
 *   precision.h   which tiers may serve a use
 *   routing.h     from router logits to experts
 *   swap.h        which experts a masked layer keeps
 *   systems.h     all of it by name */
#ifndef SLUICE_POLICY_H
#define SLUICE_POLICY_H

#include "lib/policy/precision.h"
#include "lib/policy/prediction.h"
#include "lib/policy/prefetch.h"
#include "lib/policy/prefill.h"
#include "lib/policy/residency.h"
#include "lib/policy/routing.h"

#endif
