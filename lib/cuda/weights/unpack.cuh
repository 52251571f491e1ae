/* SPDX-License-Identifier: Apache-2.0 */
/* The unpack step of each quantised type: 32 elements of a row as eight words of four signed bytes,
 * with the integer scales and minimums of each 16. Formats: lib/tensor/unpack (reference decoder),
 * lib/kernels/internal.h (sluice's own types). A type is a struct:
 *
 *   PIECES   pieces of 32 elements that share a float scale: the unit of a sum's terms
 *   BYTES    of a unit in a file; HEAD: of a row before its units
 *   planes   what a row on the device has of its units, in that order (planes.cuh)
 *   APART    so far apart are two pieces that share the bytes of their codes
 *   SCALED   the pieces have integer scales; MINIMUMS: and integer minimums
 *   SPLIT    they differ between the halves of a piece
 *   OFFSET   what was subtracted from the codes to make them signed bytes; in types of groups only
 *   form     of the activations
 *   piece_of unpacks a piece; table: 16 values, of types that number them
 *   scales   the float scales of a unit
 *
 * Codes are loaded as vectors of 16 bytes. Scales are loaded as they are stored, next to those of
 * the neighbouring lanes. */
#ifndef SLUICE_CUDA_WEIGHTS_UNPACK_CUH
#define SLUICE_CUDA_WEIGHTS_UNPACK_CUH

#include "lib/cuda/weights/planes.cuh"
extern "C" {
#include "lib/tensor/unpack/values.h"
}

struct piece {
    int32_t code[8];          /* elements 4 i .. 4 i + 3 */
    int32_t scale[2], min[2]; /* of the first 16 elements, and of the last */
};

/* d: scale, other: dmin or zero. */
struct unit_scales {
    float d, other;
};

/* Loads two numbers in F16 that are next to each other at a multiple of 4. */
INLINE unit_scales load_both(const uint8_t *p)
{
    uint32_t both = load_4(p);
    return {half_to_float((uint16_t)both), half_to_float((uint16_t)(both >> 16))};
}

/* Sixteen signed bytes. */
struct table16 {
    uint32_t word[4];
};

#define LOW4 0x0f0f0f0fu

/* Subtracts `by` (below 128, as all four bytes) from bytes below 128, without a borrow between
 * them. */
INLINE uint32_t subtract_bytes(uint32_t v, uint32_t by)
{
    return ((v | 0x80808080u) - by) ^ 0x80808080u;
}

/* The bytes of the table that four nibbles number. A table in constant memory would be read lane by
 * lane; byte permutations are register operations. */
INLINE uint32_t look_up(const table16 &t, uint32_t nibbles)
{
    uint32_t pairs = (nibbles | nibbles >> 4) & 0x00ff00ffu;
    uint32_t select = (pairs | pairs >> 8) & 0x7777u;
    uint32_t high = (nibbles >> 3 & 0x01010101u) * 0xffu;
    return (__byte_perm(t.word[0], t.word[1], select) & ~high) |
           (__byte_perm(t.word[2], t.word[3], select) & high);
}

INLINE void set_scales(piece *p, int32_t first, int32_t last)
{
    p->scale[0] = first;
    p->scale[1] = last;
}

/* ---- one scale per block ---- */

struct block_type {
    enum { PIECES = 1, APART = 1, HEAD = 0, SCALED = 0, SPLIT = 0, MINIMUMS = 0, OFFSET = 0 };
    enum { CODES, SCALE }; /* planes */
    static const kernel_form form = FORM_Q8;
};

struct type_q4_0 : block_type {
    enum { BYTES = 18 };
    static constexpr plane planes[] = {{2, 16}, {0, 2}};
    static const kernel_form form = FORM_Q4;
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &, piece *p)
    {
        uint32_t w[4];
        load_16(plane_of<type_q4_0, CODES>(u), w);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            p->code[i] = (int32_t)subtract_bytes(w[i] & LOW4, 0x08080808u);
            p->code[4 + i] = (int32_t)subtract_bytes(w[i] >> 4 & LOW4, 0x08080808u);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return {load_scale(plane_of<type_q4_0, SCALE>(u)), 0};
    }
};

struct type_q8_0 : block_type {
    enum { BYTES = 34 };
    static constexpr plane planes[] = {{2, 32}, {0, 2}};
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &, piece *p)
    {
        uint32_t w[8];
        load_32(plane_of<type_q8_0, CODES>(u), w);
#pragma unroll
        for (int i = 0; i < 8; i++)
            p->code[i] = (int32_t)w[i];
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return {load_scale(plane_of<type_q8_0, SCALE>(u)), 0};
    }
};

/* 16 bytes of nibbles that number values of a table. */
INLINE void values_of(const uint8_t *from, const table16 &table, piece *p)
{
    uint32_t w[4];
    load_16(from, w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        p->code[i] = (int32_t)look_up(table, w[i] & LOW4);
        p->code[4 + i] = (int32_t)look_up(table, w[i] >> 4 & LOW4);
    }
}

struct type_iq4_nl : block_type {
    enum { BYTES = 18 };
    static constexpr plane planes[] = {{2, 16}, {0, 2}};
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &t, piece *p)
    {
        values_of(plane_of<type_iq4_nl, CODES>(u), t, p);
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return {load_scale(plane_of<type_iq4_nl, SCALE>(u)), 0};
    }
};

struct type_mxfp4 : block_type {
    enum { BYTES = 17 };
    static constexpr plane planes[] = {{1, 16}, {0, 1}};
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &t, piece *p)
    {
        values_of(plane_of<type_mxfp4, CODES>(u), t, p);
    }
    /* Half of E8M0: the table is doubled. */
    INLINE unit_scales scales(const row_unit &u)
    {
        uint32_t e = load_1(plane_of<type_mxfp4, SCALE>(u));
        return {float_of(e < 2 ? UINT32_C(0x00200000) << e : (e - 1) << 23), 0};
    }
};

/* ---- super-blocks ---- */

struct super_type {
    enum { PIECES = 8, APART = 1, HEAD = 0, SCALED = 1, SPLIT = 0, MINIMUMS = 0, OFFSET = 0 };
    static const kernel_form form = FORM_SUPER;
};

/* Scale and minimum s of 8 in the last 12 of 16 bytes, after d and dmin. */
INLINE void six_bits(const uint8_t *block, uint32_t s, piece *p)
{
    uint32_t w[4], by = s % 4 * 8;
    load_16(block, w);
    uint32_t first = w[1] >> by, second = w[2] >> by, third = w[3] >> by;
    bool high = s >= 4;
    int32_t scale = (int32_t)(high ? (third & 15) | (first >> 6 & 3) << 4 : first & 63);
    int32_t min = (int32_t)(high ? (third >> 4 & 15) | (second >> 6 & 3) << 4 : second & 63);
    set_scales(p, scale, scale);
    p->min[0] = p->min[1] = min;
}

struct type_q4_k : super_type {
    enum { BYTES = 144, MINIMUMS = 1 };
    static constexpr plane planes[] = {{0, 144}};
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        const uint8_t *block = plane_of<type_q4_k, 0>(u);
        uint32_t w[8];
        six_bits(block, s, p);
        load_32(block + 16 + s / 2 * 32, w);
#pragma unroll
        for (int i = 0; i < 8; i++)
            p->code[i] = (int32_t)(w[i] >> s % 2 * 4 & LOW4);
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return load_both(plane_of<type_q4_k, 0>(u));
    }
};

struct type_q5_k : super_type {
    enum { BYTES = 176, MINIMUMS = 1 };
    static constexpr plane planes[] = {{0, 176}};
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        const uint8_t *block = plane_of<type_q5_k, 0>(u);
        uint32_t w[8], fifth[8];
        six_bits(block, s, p);
        load_32(block + 48 + s / 2 * 32, w);
        load_32(block + 16, fifth);
#pragma unroll
        for (int i = 0; i < 8; i++)
            p->code[i] = (int32_t)((w[i] >> s % 2 * 4 & LOW4) | (fifth[i] >> s & 0x01010101u) << 4);
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return load_both(plane_of<type_q5_k, 0>(u));
    }
};

struct type_q6_k : super_type {
    enum { BYTES = 210, APART = 2, SPLIT = 1 };
    enum { LOW, HIGH, SCALES, SCALE };
    static constexpr plane planes[] = {{0, 128}, {128, 64}, {192, 16}, {208, 2}};
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        uint32_t low[8], high[8];
        uint32_t both = load_2(plane_of<type_q6_k, SCALES>(u) + 2 * s);
        set_scales(p, (int8_t)both, (int8_t)(both >> 8));
        load_32(plane_of<type_q6_k, LOW>(u) + s / 4 * 64 + s % 2 * 32, low);
        load_32(plane_of<type_q6_k, HIGH>(u) + s / 4 * 32, high);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t w = low[i] >> s % 4 / 2 * 4 & LOW4;
            uint32_t two = high[i] >> s % 4 * 2 & 0x03030303u;
            p->code[i] = (int32_t)subtract_bytes(w | two << 4, 0x20202020u);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return {load_scale(plane_of<type_q6_k, SCALE>(u)), 0};
    }
};

struct type_iq4_xs : super_type {
    enum { BYTES = 136 };
    enum { CODES, SCALES }; /* d, the high bits of the scales, their low bits */
    static constexpr plane planes[] = {{8, 128}, {0, 8}};
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &t, piece *p)
    {
        const uint8_t *from = plane_of<type_iq4_xs, SCALES>(u);
        int32_t low = (int32_t)(load_4(from + 4) >> 4 * s & 15);
        int32_t high = (int32_t)(load_2(from + 2) >> 2 * s & 3);
        set_scales(p, (low | high << 4) - 32, (low | high << 4) - 32);
        values_of(plane_of<type_iq4_xs, CODES>(u) + 16 * s, t, p);
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return {load_scale(plane_of<type_iq4_xs, SCALES>(u)), 0};
    }
};

/* ---- sluice's own types ---- */

/* GRID: each group has its scale and zero, else the row has them. */
template <int CODE_BYTES, int GRID> struct group_planes;
template <int CODE_BYTES> struct group_planes<CODE_BYTES, 0> {
    static constexpr plane planes[] = {{0, CODE_BYTES}};
};
template <int CODE_BYTES> struct group_planes<CODE_BYTES, 1> {
    static constexpr plane planes[] = {{4, CODE_BYTES}, {0, 4}};
};

template <int BITS, int GRID> struct group_of : group_planes<BITS * 8, GRID> {
    enum { PIECES = 2, APART = 1, SCALED = 0, SPLIT = 0, MINIMUMS = 0 };
    enum { HEAD = GRID ? 0 : 4, BYTES = BITS * 8 + (GRID ? 4 : 0) };
    enum { OFFSET = BITS == 8 ? 128 : 0 };
    static const kernel_form form = FORM_GROUP;
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        const uint8_t *from = plane_of<group_of, 0>(u);
        uint32_t w[8];
        if (BITS == 2)
            load_16(from, w);
        else
            load_32(BITS == 8 ? from + 32 * s : from, w);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (BITS == 8)
                p->code[i] = (int32_t)(w[i] ^ 0x80808080u);
            else if (BITS == 4)
                p->code[i] = (int32_t)(w[i] >> 4 * s & LOW4);
            else
                p->code[i] = (int32_t)(w[i % 4] >> (4 * s + i / 4 * 2) & 0x03030303u);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        return load_both(GRID ? plane_of<group_of, GRID>(u) : head_of<group_of>(u));
    }
};

/* ---- types by number ---- */

/* X(NAME, struct, table of values or NULL), by family. */
#define BLOCK_TYPES(X)                                                                             \
    X(Q4_0, type_q4_0, NULL)                                                                       \
    X(Q8_0, type_q8_0, NULL)                                                                       \
    X(IQ4_NL, type_iq4_nl, unpack_iq4_values)                                                      \
    X(MXFP4, type_mxfp4, unpack_fp4_values)
#define SUPER_TYPES(X)                                                                             \
    X(Q4_K, type_q4_k, NULL)                                                                       \
    X(Q5_K, type_q5_k, NULL)                                                                       \
    X(Q6_K, type_q6_k, NULL)                                                                       \
    X(IQ4_XS, type_iq4_xs, unpack_iq4_values)

typedef group_of<8, 0> type_c8;
typedef group_of<4, 0> type_c4;
typedef group_of<2, 0> type_c2;
typedef group_of<4, 1> type_g4;
typedef group_of<2, 1> type_g2;
#define GROUP_TYPES(X)                                                                             \
    X(C8, type_c8, NULL)                                                                           \
    X(C4, type_c4, NULL)                                                                           \
    X(C2, type_c2, NULL)                                                                           \
    X(G4, type_g4, NULL)                                                                           \
    X(G2, type_g2, NULL)

/* The table as an argument of a kernel. */
static inline table16 table_of(const int8_t *values)
{
    table16 t = {};
    if (values)
        memcpy(&t, values, sizeof t);
    return t;
}

#endif
