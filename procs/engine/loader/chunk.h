/* SPDX-License-Identifier: Apache-2.0 */
/* Size of a read. Demands: the maximum, because large reads give more bandwidth. Prefetches: what
 * the device reads in a short time, because a demand waits for prefetches in flight. Pure. */
#ifndef SLUICE_ENGINE_LOADER_CHUNK_H
#define SLUICE_ENGINE_LOADER_CHUNK_H

#include <stdint.h>

#include "ipc/channel/messages.h"

struct chunk_pace {
    double bytes, busy_ns; /* decayed average of recent reads */
};

/* `bytes` were read; for busy_ns since the previous read, reads were in flight. */
void chunk_pace_note(struct chunk_pace *p, uint64_t bytes, uint64_t busy_ns);

/* Maximum read of a job of this priority. max_bytes: maximum of all; throttle: bytes per second, 0:
 * none. */
uint64_t chunk_pace_bytes(const struct chunk_pace *p, uint16_t priority, uint64_t max_bytes,
                          uint64_t throttle);

#endif
