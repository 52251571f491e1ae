/* A token bucket that may go into debt. Pure: time is an argument.
 * A read is admitted whenever the bucket is not in debt and then takes all its bytes, so reads
 * larger than the bucket need no special case and the long-run rate is exact. */
#ifndef SLUICE_LOADER_THROTTLE_H
#define SLUICE_LOADER_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

struct throttle {
    uint64_t rate;     /* bytes per second, 0: no limit */
    double tokens;     /* bytes that may be read now; negative: debt */
    uint64_t stamp_ns; /* tokens are right for this moment */
};

/* Sets a new rate; a debt stays, expressed in the new rate at most as one second. */
void throttle_set(struct throttle *t, uint64_t rate, uint64_t now_ns);

/* 0 when a read may go now, else the time until one may. */
uint64_t throttle_wait_ns(struct throttle *t, uint64_t now_ns);

/* Takes the bytes of a read that goes now. */
void throttle_take(struct throttle *t, uint64_t bytes);

/* There is nothing to read: what is saved up from here on is little, so that a rate measured after
 * a pause holds too. While reads are held back lateness is made up for, up to a quarter of a
 * second. */
void throttle_idle(struct throttle *t, uint64_t now_ns);

/* Largest read worth submitting under this rate: small rates need small reads to be smooth. */
uint64_t throttle_chunk(const struct throttle *t, uint64_t chunk_bytes);

#endif
