/* How large a read is: as large as allowed for what compute waits for, because fewer and larger
 * reads get more out of a drive; for guesses no more than the drive does in a short time, because a
 * demand waits for those that are under way. Pure. */
#ifndef SLUICE_ENGINE_LOADER_CHUNK_H
#define SLUICE_ENGINE_LOADER_CHUNK_H

#include <stdint.h>

#include "ipc/channel/messages.h"

struct chunk_pace {
    double bytes, busy_ns; /* of the reads of late: an old one counts less */
};

/* So many bytes came, and for so long since the read before them there was one at the device. */
void chunk_pace_note(struct chunk_pace *p, uint64_t bytes, uint64_t busy_ns);

/* The largest read for a job of this priority. most_bytes: the largest at all; throttle: bytes per
 * second the drive is held to, 0: none. */
uint64_t chunk_pace_bytes(const struct chunk_pace *p, uint16_t priority, uint64_t most_bytes,
                          uint64_t throttle);

#endif
