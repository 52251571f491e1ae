/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: measurements of a model (profile) and the decisions based on them (plan). A flat blob
 * with offsets instead of pointers, like the model index; inspect places it after the index in the
 * model segment, and all processes map it read-only. On disk it is a JSON file, and a binary file
 * for the large tables.
 *
 * Layout:  struct plan | arrays, each at a multiple of PLAN_ARRAY_ALIGN
 *
 * plan.tbl.h lists all contents; an absent array has offset 0, an unknown scalar is NaN. No field
 * is trusted before plan_check has accepted the blob.
 *
 * On disk:
 *     {"format": "sluice-plan", "version": 1,
 *      "model_hash": 32 hex digits, "text_hash": 16 hex digits,
 *      "layers": L, "experts": E, "experts_used": K, "cells": elements of pair_cells,
 *      "scalars": {name: number},
 *      "arrays": {name: [numbers, layer-major; null: unknown]},
 *      "tables": {"file": name in the same directory, "bytes": n, "xxh3": 16 hex digits,
 *                 "arrays": [names in order]}}
 * The binary file has the named arrays one after another, little-endian, as in the blob. */
#ifndef SLUICE_PLAN_PLAN_H
#define SLUICE_PLAN_PLAN_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"

#define PLAN_MAGIC       0x4e414c5043554c53ull /* "SLUCPLAN" */
#define PLAN_VERSION     1u
#define PLAN_HASH_BYTES  16
#define PLAN_FILE_MAX    (256u << 20) /* bytes of the JSON file */
#define PLAN_TABLES_MAX  (1u << 30)   /* bytes of the tables file */
#define PLAN_ARRAY_ALIGN 64

/* Grid of auto's predictions; its axes are in lib/policy/presets/auto.h. */
#define PLAN_AUTO_SHARES     7
#define PLAN_AUTO_BANDWIDTHS 6
#define PLAN_AUTO_CANDIDATES 32 /* files of fewer are read, too */

enum plan_scalar {
#define PLAN_SCALAR(name, min, max, doc) PLAN_##name,
#define PLAN_ARRAY(name, type, size, min, max, doc)
#include "lib/plan/plan.tbl.h"
    PLAN_SCALAR__COUNT
};

/* AUTO arrays: index of a candidate in a cell of the grid. */
static inline uint32_t plan_auto_at(uint32_t share, uint32_t bandwidth, uint32_t candidate)
{
    return (share * PLAN_AUTO_BANDWIDTHS + bandwidth) * PLAN_AUTO_CANDIDATES + candidate;
}

enum plan_array {
#define PLAN_SCALAR(name, min, max, doc)
#define PLAN_ARRAY(name, type, size, min, max, doc) PLAN_ARRAY_##name,
#include "lib/plan/plan.tbl.h"
    PLAN_ARRAY__COUNT
};

struct plan_cell { /* of the pair table; same layout as struct path_cell */
    uint16_t expert, count;
};

struct plan {
    uint64_t magic;
    uint32_t version;
    uint32_t layout_hash; /* of plan.tbl.h and sizeof(struct plan) */
    uint64_t bytes;       /* of the whole blob */
    uint8_t model_hash[PLAN_HASH_BYTES];
    uint64_t text_hash; /* of the tokens and windows of the profile (offline_text.hash); 0: none */
    uint32_t layers, experts, experts_used;
    uint32_t cells; /* elements of pair_cells */
    double scalar[PLAN_SCALAR__COUNT];
    uint64_t offset[PLAN_ARRAY__COUNT]; /* from the start of the blob; 0: absent */
};

/* Identifies the model of a plan: XXH3-128 of the shape (layers, sizes, experts, K, vocabulary), of
 * every norm and of the first 64 KiB of every router. A GGUF file and an expert store packed from
 * it have the same hash; so have different quantisations of one model if norms and routers are
 * stored alike. `fds`: the
 * file of the dense extents of the index, by extent.part. Reads some MiB. 0, or -1 with
 * ERR_IO or ERR_NO_MEMORY. */
int plan_model_hash(const struct model_index *model, const int *fds, uint8_t hash[PLAN_HASH_BYTES],
                    struct error *error);

/* Checks a mapped or received blob of `bytes` bytes completely: magic, version, sizes, the
 * position of every array, and every element against the bounds of plan.tbl.h. 0, or -1 with
 * ERR_BAD_INPUT. */
int plan_check(const struct plan *plan, uint64_t bytes, struct error *error);

/* Checks that a checked plan is for this model: same shape and hash. -1 with ERR_BAD_INPUT; the
 * error names both. `what` names the plan, usually its path. */
int plan_matches(const struct plan *plan, const struct model_index *model,
                 const uint8_t hash[PLAN_HASH_BYTES], const char *what, struct error *error);

/* Reads and checks a plan file (and its tables file). Newly allocated; the caller frees it with
 * free(). NULL with ERR_BAD_INPUT (damaged, or the tables belong to another file), ERR_IO or
 * ERR_NO_MEMORY; the error names the path. */
struct plan *plan_read(const char *path, struct error *error);

/* plan_read from memory, for tests and fuzzing. tables may be NULL when tables_bytes is 0. */
struct plan *plan_parse(const char *text, size_t bytes, const void *tables, size_t tables_bytes,
                        struct error *error);

/* Writes a plan: first the tables as PATH.HASH.tables (if any), then PATH, each by rename; then
 * older tables are removed. Their name contains their hash, so that the old plan keeps its tables
 * until the new one is in place. 0, or -1 with ERR_IO. */
int plan_write(const struct plan *plan, const char *path, struct error *error);
uint64_t plan_write_bytes(const struct plan *plan); /* memory that it takes for that, at most */

/* A new plan for a model of this shape with the arrays of `arrays` (bit per enum plan_array); all
 * unknown (scalars NaN; F32 elements NaN, integers their minimum). The caller frees it. */
struct plan *plan_create(uint32_t layers, uint32_t experts, uint32_t experts_used,
                         const uint8_t hash[PLAN_HASH_BYTES], uint64_t arrays, uint32_t cells,
                         struct error *error);

/* A copy of `plan` with the additional arrays of `arrays`; cells: elements of pair_cells in the
 * copy, unchanged if `plan` has that array. The caller frees both. */
struct plan *plan_extended(const struct plan *plan, uint64_t arrays, uint32_t cells,
                           struct error *error);

static inline uint64_t plan_array_bit(enum plan_array a)
{
    return (uint64_t)1 << a;
}

uint64_t plan_arrays(const struct plan *plan); /* bit per enum plan_array that it has */

/* Elements of an array in this plan, also if absent. */
uint64_t plan_array_count(const struct plan *plan, enum plan_array a);

static inline bool plan_has(const struct plan *plan, enum plan_array a)
{
    return plan->offset[a] != 0;
}

static inline bool plan_knows(const struct plan *plan, enum plan_scalar s)
{
    return !isnan(plan->scalar[s]);
}

/* plan_frequency(p), plan_width(p), ...: the array, or NULL when the plan has none. */
#define PLAN_TYPE_F32  float
#define PLAN_TYPE_U32  uint32_t
#define PLAN_TYPE_U16  uint16_t
#define PLAN_TYPE_U8   uint8_t
#define PLAN_TYPE_CELL struct plan_cell
#define PLAN_SCALAR(name, min, max, doc)
#define PLAN_ARRAY(name, type, size, min, max, doc)                                                \
    static inline PLAN_TYPE_##type *plan_##name(const struct plan *plan)                           \
    {                                                                                              \
        uint64_t at = plan->offset[PLAN_ARRAY_##name];                                             \
        return at ? (PLAN_TYPE_##type *)((uintptr_t)plan + at) : NULL;                             \
    }
#include "lib/plan/plan.tbl.h"

/* The share that the lower half of the ranks (of an odd number the smaller half) has of the gate
 * weights of a token's experts, mean over the layers of rank_share; NaN: it is not known. */
double plan_tail_share(const struct plan *plan);

#endif
