/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the measured forward pass. */
#ifndef SLUICE_TOOLS_DOCTOR_FORWARD_FORWARD_H
#define SLUICE_TOOLS_DOCTOR_FORWARD_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/core/core.h"
#include "lib/model/index/model_index.h"
#include "procs/tools/doctor/doctor.h"

#define FORWARD_POSITIONS 512u /* of the context, and different tokens */

struct region {
    char *base;
    uint64_t bytes, used;
};

struct forward {
    const struct model_index *index;
    struct region dense, experts;
    uint64_t *place; /* of each expert's entry in `experts`; NULL: the next part */
    float *ones;     /* every norm and bias */
    char *routers, *embedding;
    char *table; /* of n-grams, any row of which may be read: zeros that take no memory */
    uint64_t table_bytes;
    uint64_t routers_used, routers_bytes;
    void **keys, **values, **index_keys; /* a layer each */
    void *state;                         /* recurrent, of the sequence */
    enum kv_type kv_type;
    uint32_t tokens[FORWARD_POSITIONS];
    uint64_t pinned_ns;                     /* time of the last pin or unpin */
    uint64_t all_ns, experts_ns, output_ns; /* of all passes since the last reset */
};

/* forward.c: memory of zeros in huge pages where possible, if a slot has at least 1 MiB. False: out
 * of memory. `base` is for free(). */
bool region_open(struct region *r, uint64_t bytes, uint64_t slot_bytes);
/* The next part, from the start again where it does not fit; at most r->bytes. */
char *region_take(struct region *r, uint64_t bytes);

/* A core for passes of up to `chunk` rows, in sequences of up to `positions`. NULL with *error. */
struct core *forward_core(struct forward *f, const struct params *params, uint32_t chunk,
                          uint32_t positions, struct error *error);
/* Computes `rows` tokens from a position on and the logits of the last one; returns its
 * nanoseconds, 0 with an error. */
uint64_t forward_pass(struct forward *f, struct core *core, uint32_t position, uint32_t rows,
                      struct error *error);

/* context.c: sets context_s and context_measured of *out, for a context of so many tokens. Takes up
 * to `bytes` for keys and values, and about 2 s, or eight passes if these are longer. */
int context_measure(struct forward *f, const struct params *params, uint64_t bytes,
                    struct forward_speed *out, struct error *error);

/* reads.c: sets slowdown and busy_bytes_per_s of *out, by decode while these devices are read; both
 * stay 0 without a device or memory for it. decode_s of *out is set. Takes about 1.5 s, or four
 * passes if these are longer, and up to `bytes`, at most 128 MiB. */
int reads_measure(struct forward *f, struct core *core, const struct device_reads *device,
                  uint32_t count, uint64_t bytes, struct forward_speed *out, struct error *error);

#endif
