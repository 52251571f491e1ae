/* SPDX-License-Identifier: Apache-2.0 */
/* plan.tbl.h as data, and array elements as doubles. Shared by plan.c and file.c. */
#ifndef SLUICE_PLAN_TABLE_H
#define SLUICE_PLAN_TABLE_H

#include "lib/plan/plan.h"

enum plan_element {
    PLAN_ELEMENT_F32,
    PLAN_ELEMENT_U32,
    PLAN_ELEMENT_U16,
    PLAN_ELEMENT_U8,
    PLAN_ELEMENT_CELL
};
enum plan_size {
    PLAN_SIZE_LAYERS,
    PLAN_SIZE_EXPERTS,
    PLAN_SIZE_RANKS,
    PLAN_SIZE_AUTO,
    PLAN_SIZE_PAIRS,
    PLAN_SIZE_PAIR_FIRST,
    PLAN_SIZE_CELLS
};

struct plan_scalar_info {
    const char *name;
    double min, max;
    const char *doc;
};

struct plan_array_info {
    const char *name;
    enum plan_element element;
    enum plan_size size;
    double min, max;
    const char *doc;
};

extern const struct plan_scalar_info plan_scalars[PLAN_SCALAR__COUNT];
extern const struct plan_array_info plan_array_infos[PLAN_ARRAY__COUNT];

/* True if the array is in the tables file, not in the JSON. */
static inline bool plan_in_tables(enum plan_array a)
{
    return plan_array_infos[a].size >= PLAN_SIZE_PAIRS;
}

uint64_t plan_array_bytes(const struct plan *plan, enum plan_array a);

/* Element i of a present array; the value must be in bounds. */
double plan_get(const struct plan *plan, enum plan_array a, uint64_t i);
void plan_set(struct plan *plan, enum plan_array a, uint64_t i, double value);

/* True if the value is in the bounds of plan.tbl.h: NaN only for scalars and F32 elements, whole
 * numbers only for other elements. */
bool plan_scalar_right(enum plan_scalar s, double value);
bool plan_element_right(enum plan_array a, double value);

/* A hash as hex digits; returns text. */
const char *plan_hash_text(const uint8_t hash[PLAN_HASH_BYTES], char text[2 * PLAN_HASH_BYTES + 1]);

#endif
