/* SPDX-License-Identifier: Apache-2.0 */
/* Makes expert stores from GGUF files, for tests: native bytes only, in any set of precisions.
 * Written from lib/model/store/store.h, independently of the packer's writer, so that each checks
 * the other. */
#ifndef SLUICE_TESTS_UNIT_LIB_MODEL_STORE_MAKE_H
#define SLUICE_TESTS_UNIT_LIB_MODEL_STORE_MAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/store/store.h"

struct store_make {
    uint32_t stripes;
    uint32_t precision_mask; /* every precision has the native bytes */
    bool spread;             /* each expert on one stripe; else cut over all */
    bool mirrored;           /* each stripe has a mirror in the store's directory */
    bool scattered;          /* each expert in one precision, in turn; else in all */
    const char
        *elsewhere; /* directory of the stripes with odd numbers, absolute; NULL: the store */
    uint64_t seed;  /* part of the store's id */
};

/* Makes the directory and its files. 0, or -1 with the reason. */
int store_make(const char *gguf, const char *dir, const struct store_make *how,
               struct error *error);

/* Writes the current checksums of entries.bin and model.gguf into the manifest, for tests that
 * damaged one of them and must get past that check. */
int store_make_resum(const char *dir, struct error *error);

#endif
