/* A drive of a given speed: reads pass it one after another, each in the time its bytes take, and
 * are told of when their time is over. So a throttled drive is to everybody what a slow one is: it
 * can be busy, it can idle, and what it did not use is lost. Pure: time is an argument.
 *
 * A place is a number of bytes since the throttle began: where a read ends in the line of all. */
#ifndef SLUICE_ENGINE_LOADER_THROTTLE_H
#define SLUICE_ENGINE_LOADER_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

struct throttle {
    uint64_t rate;     /* bytes per second, 0: no limit */
    double taken;      /* place of the last read */
    double served;     /* place the drive has come to; at most `taken` */
    uint64_t stamp_ns; /* `served` is right for this moment */
};

/* Sets a new rate. What stands in line goes on at it, and takes a second at most. */
void throttle_set(struct throttle *t, uint64_t rate, uint64_t now_ns);

/* A read of so many bytes stands in line from now on. Returns its place. */
double throttle_take(struct throttle *t, uint64_t bytes, uint64_t now_ns);

/* Time until the read with this place is over; 0: it is. */
uint64_t throttle_left_ns(struct throttle *t, double place, uint64_t now_ns);

/* Largest read worth submitting under this rate: small rates need small reads to be smooth. */
uint64_t throttle_chunk(const struct throttle *t, uint64_t chunk_bytes);

#endif
