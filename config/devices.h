/* Storage devices: the items of the parameter `devices`, one for each loader.
 *
 *   PATH[:KEY=VALUE]...      PATH: what this loader reads; empty: the model file itself, of a store
 *                            the loader's stripe
 *
 * KEY is a parameter a device may have its own value of (DEVICE_PARAMS: their defaults, bounds and
 * words are those of params.tbl.h), or `mirror`: the path of another copy of the same bytes, which
 * is read when this one cannot be. */
#ifndef SLUICE_CONFIG_DEVICES_H
#define SLUICE_CONFIG_DEVICES_H

#include "config/params.h"

#define DEVICE_PATH_BYTES 1024

#define DEVICE_PARAMS(X) X(backend) X(queue_depth) X(io_size) X(direct_io) X(throttle)

struct device_paths {
    char path[DEVICE_PATH_BYTES];   /* "": the model itself */
    char mirror[DEVICE_PATH_BYTES]; /* "": none is named */
};

/* Items of the list; 0 when it is empty. */
uint32_t devices_count(const struct params *p);

/* What item `number` says: its paths, and in *own the parameters as this device has them. Without
 * such an item no path, and the parameters of all. own and paths may be NULL. -1 with ERR_BAD_INPUT
 * naming the device and what is wrong. */
int devices_take(const struct params *p, uint32_t number, struct params *own,
                 struct device_paths *paths, struct error *error);

/* A device's largest read, and the bytes it may have under way: what its loader keeps to and the
 * budget reserves, for they stay charged when the loader dies. own: the parameters as the device
 * has them; expert_bytes: the largest expert's. Whole pages. */
uint64_t device_read_bytes(const struct params *own, uint64_t expert_bytes);
uint64_t device_flight_bytes(const struct params *own, uint64_t expert_bytes);

#endif
