/* SPDX-License-Identifier: Apache-2.0 */
/* Emulates a device of a given bandwidth: reads are serialized, each takes the time of its bytes,
 * and its completion is delayed to that time. Idle time gives no credit, as with a real slow
 * device. Pure: time is an argument.
 *
 * A position is a number of bytes since the start of the throttle: the end of a read in the
 * sequence. */
#ifndef SLUICE_ENGINE_LOADER_THROTTLE_H
#define SLUICE_ENGINE_LOADER_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

struct throttle {
    uint64_t rate;     /* bytes per second, 0: no limit */
    double taken;      /* position of the last read */
    double served;     /* position that the emulated device has reached; at most `taken` */
    uint64_t stamp_ns; /* time for which `served` is valid */
};

/* Sets a new rate. Queued reads continue at that rate, for one second at most. */
void throttle_set(struct throttle *t, uint64_t rate, uint64_t now_ns);

/* Queues a read of `bytes`. Returns its position. */
double throttle_take(struct throttle *t, uint64_t bytes, uint64_t now_ns);

/* Time until the read at this position completes; 0: it is complete. */
uint64_t throttle_left_ns(struct throttle *t, double position, uint64_t now_ns);

/* Maximum read size at this rate: low rates need small reads to be smooth. */
uint64_t throttle_chunk(const struct throttle *t, uint64_t chunk_bytes);

#endif
