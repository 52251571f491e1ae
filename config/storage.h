/* SPDX-License-Identifier: Apache-2.0 */
/* Storage devices: the items of the parameter `devices`, one per loader.
 *
 *   PATH[:KEY=VALUE]...
 *
 *   PATH  file this loader reads; empty: the model file, or this loader's stripe of a store
 *   KEY   one of STORAGE_PARAMS (defaults, bounds and names are those of params.tbl.h), or
 *   mirror  path of another copy of the same bytes, read when PATH cannot be read
 *   cache   DIR:SIZE, the parameter device_cache of this device: a file in front of its server */
#ifndef SLUICE_CONFIG_STORAGE_H
#define SLUICE_CONFIG_STORAGE_H

#include "config/params.h"

#define STORAGE_PATH_BYTES 1024

#define STORAGE_PARAMS(X) X(backend) X(queue_depth) X(io_size) X(direct_io) X(throttle)

struct storage_paths {
    char path[STORAGE_PATH_BYTES];   /* "": the model itself */
    char mirror[STORAGE_PATH_BYTES]; /* "": no mirror */
};

/* Number of items in the list; 0 when it is empty. */
uint32_t storage_count(const struct params *p);

/* Parses item `number`: its paths, and in *own the parameters with the overrides of this device.
 * Without such an item: empty paths and the parameters unchanged. own and paths may be NULL. -1
 * with ERR_BAD_INPUT naming the device and the problem. */
int storage_take(const struct params *p, uint32_t number, struct params *own,
                 struct storage_paths *paths, struct error *error);

/* The parameter device_cache of a device: the directory and the size of its file; empty
 * without one. 0, or -1 with ERR_BAD_INPUT if it is malformed. */
int storage_cache(const struct params *own, char directory[STORAGE_PATH_BYTES], uint64_t *bytes,
                  struct error *error);

/* Largest single read of a device, and the maximum bytes it may have in flight; whole pages. The
 * loader keeps to these limits and the budget reserves them: in-flight reads stay charged when the
 * loader exits. own: the parameters of the device; expert_bytes: size of the largest expert. */
uint64_t storage_read_bytes(const struct params *own, uint64_t expert_bytes);
uint64_t storage_flight_bytes(const struct params *own, uint64_t expert_bytes);

#endif
