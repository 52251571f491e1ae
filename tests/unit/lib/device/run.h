/* SPDX-License-Identifier: Apache-2.0 */
/* A text through the core on a device, or through a chain of cores, for tests that compare devices:
 * chunks, one of them in two halves of the layers (not of a chain), then single tokens. */
#ifndef SLUICE_TESTS_UNIT_LIB_DEVICE_RUN_H
#define SLUICE_TESTS_UNIT_LIB_DEVICE_RUN_H

#include "lib/core/chain/chain.h"
#include "tests/golden/image.h"
#include "tests/unit/lib/device/checked.h"

#define RUN_CONTEXT 64
#define RUN_CHUNK   11 /* at most */

struct run {
    struct image *image;
    struct device *device; /* pointers that the core shares with it are tagged; NULL: the host */
    uint32_t (*pending)(const struct device *d); /* operations that have not run; NULL: not known */
    const struct chain_part *parts; /* of a chain; then `device` is one of its devices, or NULL */
    uint32_t part_count;            /* 0: no chain */
    bool masked;
    bool alone;             /* tokens may be computed by the device alone, which give less */
    uint64_t content;       /* core_sequence.content */
    uint32_t chunk, single; /* tokens of each of three chunks, and after them */
    /* of run.c */
    struct core *core;
    struct chain *chain;
    struct weights_source file;
    struct XXH64_state_s *hash;
    uint32_t early; /* experts given back while operations were pending */
};

/* Hash of everything that the core gives. */
uint64_t run_hash(struct run *r);

#endif
