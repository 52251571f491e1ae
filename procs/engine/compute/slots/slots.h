/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of the kv segment, as compute uses them: which of them are kept (kept.h), and the
 * versions of their state (state.h). What is kept and what is given up, lib/policy/reuse decides
 * (table.h); here is how, in an order in which compute may be killed anywhere. The runner thread
 * only. */
#ifndef SLUICE_ENGINE_COMPUTE_SLOTS_SLOTS_H
#define SLUICE_ENGINE_COMPUTE_SLOTS_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "procs/engine/child/child.h"
#include "procs/engine/compute/slots/worth.h"
#include "shm/kv/kv.h"

struct slots {
    struct child *child;
    _Atomic uint64_t *beat_ns;           /* heartbeat of the thread: gigabytes take seconds */
    const _Atomic uint64_t *spare_bytes; /* of the budget, which experts do not need; NULL: none */
    uint64_t spare_seen;                 /* all that is kept is within so much of it */
    uint32_t preset;                     /* of the sequences that run */
    bool lossy;
    uint64_t preset_class; /* 0: lossless; else a hash of all that decides precisions */
    /* Names what a slot has (core_sequence.content); 0: no name yet. Changes with what the host
     * writes there. */
    uint64_t content[KV_SLOTS_MAX], contents;
    /* The slot + 1 whose pass writes the version of the state now; 0: none does. */
    uint8_t writes[KV_STATES_MAX];
    struct worth worth; /* of memory to what is kept, and to experts */
    /* The slot + 1 and the version + 1 that are copied now, which must stay; 0: none. */
    uint32_t copied, copied_version;
};

#endif
