/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the families of this directory: the functions of unpack.tbl.h, and helpers. */
#ifndef SLUICE_TENSOR_UNPACK_INTERNAL_H
#define SLUICE_TENSOR_UNPACK_INTERNAL_H

#include "lib/tensor/half.h"
#include "lib/tensor/unpack/unpack.h"

#define UNPACK(name, unit, sub, minimums, code_max, scale_max, min_max, function)                  \
    unpack_fn function;
#include "lib/tensor/unpack/unpack.tbl.h"

static inline float load_f16(const void *p)
{
    return f16_to_f32(load_u16(p));
}

/* A unit of `elems` elements with one scale and no minimum. */
static inline void set_plain(struct unpacked *u, float d, uint32_t elems)
{
    u->d = d;
    u->dmin = 0;
    for (uint32_t s = 0; s < elems / UNPACK_SUB; s++) {
        u->scale[s] = 1;
        u->min[s] = 0;
    }
}

/* Super-blocks without minimums. */
static inline void set_no_minimums(struct unpacked *u)
{
    u->dmin = 0;
    memset(u->min, 0, sizeof u->min);
}

/* Scale of sub-block `sub` of 32 elements. */
static inline void set_scale_32(struct unpacked *u, uint32_t sub, int value)
{
    u->scale[2 * sub] = u->scale[2 * sub + 1] = (int16_t)value;
}

/* The 2 n nibbles of n bytes: low ones, then high ones. */
static inline void nibbles(const uint8_t *p, uint32_t n, int8_t *code)
{
    for (uint32_t i = 0; i < n; i++) {
        code[i] = (int8_t)(p[i] & 15);
        code[n + i] = (int8_t)(p[i] >> 4);
    }
}

/* Unpacks nibbles through a table of 16 values. */
static inline void nibble_values(const uint8_t *p, uint32_t n, const int8_t value[16], int8_t *code)
{
    nibbles(p, n, code);
    for (uint32_t i = 0; i < 2 * n; i++)
        code[i] = value[code[i]];
}

#endif
