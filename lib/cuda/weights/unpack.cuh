/* SPDX-License-Identifier: Apache-2.0 */
/* The unpack step of each quantised type: 32 elements of a row as eight words of four signed bytes,
 * with the integer scales and minimums of each 16. Formats: lib/tensor/unpack (reference decoder),
 * lib/kernels/internal.h (sluice's own types). A type is a struct:
 *
 *   PIECES   pieces of 32 elements that share a float scale: the unit of a sum's terms
 *   BYTES    of a unit; HEAD: of a row before its units
 *   ALIGN    what the address of every unit is a multiple of, if rows are
 *   SCALED   the pieces have integer scales; MINIMUMS: and integer minimums
 *   SPLIT    they differ between the halves of a piece
 *   OFFSET   what was subtracted from the codes to make them signed bytes; in types of groups only
 *   form     of the activations
 *   piece    unpacks a piece; table: 16 values, of types that number them
 *   scales   the float scales of a unit
 *
 * Rows keep the bytes of the file: blocks of 18 or 17 bytes are read by two bytes or one. Neighbouring
 * lanes read neighbouring blocks, so the cache lines of a load are used completely. A layout for
 * 16-byte loads would be made on upload, and be one more struct here. */
#ifndef SLUICE_CUDA_WEIGHTS_UNPACK_CUH
#define SLUICE_CUDA_WEIGHTS_UNPACK_CUH

#include "lib/cuda/device.cuh"
extern "C" {
#include "lib/tensor/unpack/values.h"
}

struct row_unit {
    const uint8_t *row;
    uint32_t unit, units; /* of the row */
};

template <class T> INLINE const uint8_t *block_of(const row_unit &u)
{
    return u.row + T::HEAD + (size_t)u.unit * T::BYTES;
}

struct piece {
    int32_t code[8];          /* elements 4 i .. 4 i + 3 */
    int32_t scale[2], min[2]; /* of the first 16 elements, and of the last */
};

/* d: scale, other: dmin or zero. */
struct unit_scales {
    float d, other;
};

/* Sixteen signed bytes. */
struct table16 {
    uint32_t word[4];
};

#define LOW4 0x0f0f0f0fu

/* Subtracts `by` (below 128, as all four bytes) from bytes below 128, without a borrow between them. */
INLINE uint32_t subtract_bytes(uint32_t v, uint32_t by)
{
    return ((v | 0x80808080u) - by) ^ 0x80808080u;
}

/* The bytes of the table that four nibbles number. A table in constant memory would be read lane by lane;
 * byte permutations are register operations. */
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
    enum { PIECES = 1, HEAD = 0, SCALED = 0, SPLIT = 0, MINIMUMS = 0, OFFSET = 0 };
    static const kernel_form form = FORM_Q8;
};

struct type_q4_0 : block_type {
    enum { BYTES = 18, ALIGN = 2 };
    static const kernel_form form = FORM_Q4;
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &, piece *p)
    {
        const uint8_t *block = block_of<type_q4_0>(u);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t w = load_word<ALIGN>(block + 2 + 4 * i);
            p->code[i] = (int32_t)subtract_bytes(w & LOW4, 0x08080808u);
            p->code[4 + i] = (int32_t)subtract_bytes(w >> 4 & LOW4, 0x08080808u);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_q4_0>(u);
        return {load_half(block), 0};
    }
};

struct type_q8_0 : block_type {
    enum { BYTES = 34, ALIGN = 2 };
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &, piece *p)
    {
        const uint8_t *block = block_of<type_q8_0>(u);
#pragma unroll
        for (int i = 0; i < 8; i++)
            p->code[i] = (int32_t)load_word<ALIGN>(block + 2 + 4 * i);
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_q8_0>(u);
        return {load_half(block), 0};
    }
};

/* 16 bytes of nibbles that number values of a table. */
template <int ALIGN> INLINE void values_of(const uint8_t *from, const table16 &table, piece *p)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t w = load_word<ALIGN>(from + 4 * i);
        p->code[i] = (int32_t)look_up(table, w & LOW4);
        p->code[4 + i] = (int32_t)look_up(table, w >> 4 & LOW4);
    }
}

struct type_iq4_nl : block_type {
    enum { BYTES = 18, ALIGN = 2 };
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &t, piece *p)
    {
        const uint8_t *block = block_of<type_iq4_nl>(u);
        values_of<ALIGN>(block + 2, t, p);
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_iq4_nl>(u);
        return {load_half(block), 0};
    }
};

struct type_mxfp4 : block_type {
    enum { BYTES = 17, ALIGN = 1 };
    INLINE void piece_of(const row_unit &u, uint32_t, const table16 &t, piece *p)
    {
        const uint8_t *block = block_of<type_mxfp4>(u);
        values_of<ALIGN>(block + 1, t, p);
    }
    /* Half of E8M0: the table is doubled. */
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_mxfp4>(u);
        uint32_t e = block[0];
        return {float_of(e < 2 ? UINT32_C(0x00200000) << e : (e - 1) << 23), 0};
    }
};

/* ---- super-blocks ---- */

struct super_type {
    enum { PIECES = 8, HEAD = 0, SCALED = 1, SPLIT = 0, MINIMUMS = 0, OFFSET = 0 };
    static const kernel_form form = FORM_SUPER;
};

/* Scale and minimum s of 8 in 12 bytes. */
INLINE void six_bits(const uint8_t *q, uint32_t s, piece *p)
{
    uint32_t t = s % 4, high = s / 4;
    int32_t scale = high ? (q[8 + t] & 15) | (q[t] >> 6) << 4 : q[t] & 63;
    int32_t min = high ? q[8 + t] >> 4 | (q[4 + t] >> 6) << 4 : q[4 + t] & 63;
    set_scales(p, scale, scale);
    p->min[0] = p->min[1] = min;
}

struct type_q4_k : super_type {
    enum { BYTES = 144, ALIGN = 4, MINIMUMS = 1 };
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        const uint8_t *block = block_of<type_q4_k>(u);
        six_bits(block + 4, s, p);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t w = load_word<ALIGN>(block + 16 + s / 2 * 32 + 4 * i);
            p->code[i] = (int32_t)(w >> s % 2 * 4 & LOW4);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_q4_k>(u);
        return {load_half(block), load_half(block + 2)};
    }
};

struct type_q5_k : super_type {
    enum { BYTES = 176, ALIGN = 4, MINIMUMS = 1 };
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        const uint8_t *block = block_of<type_q5_k>(u);
        six_bits(block + 4, s, p);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t w = load_word<ALIGN>(block + 48 + s / 2 * 32 + 4 * i);
            uint32_t fifth = load_word<ALIGN>(block + 16 + 4 * i) >> s & 0x01010101u;
            p->code[i] = (int32_t)((w >> s % 2 * 4 & LOW4) | fifth << 4);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_q5_k>(u);
        return {load_half(block), load_half(block + 2)};
    }
};

struct type_q6_k : super_type {
    enum { BYTES = 210, ALIGN = 2, SPLIT = 1 };
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        const uint8_t *block = block_of<type_q6_k>(u);
        const uint8_t *low = block + s / 4 * 64 + s % 2 * 32, *high = block + 128 + s / 4 * 32;
        set_scales(p, (int8_t)block[192 + 2 * s], (int8_t)block[193 + 2 * s]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t w = load_word<ALIGN>(low + 4 * i) >> s % 4 / 2 * 4 & LOW4;
            uint32_t two = load_word<ALIGN>(high + 4 * i) >> s % 4 * 2 & 0x03030303u;
            p->code[i] = (int32_t)subtract_bytes(w | two << 4, 0x20202020u);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_q6_k>(u);
        return {load_half(block + 208), 0};
    }
};

struct type_iq4_xs : super_type {
    enum { BYTES = 136, ALIGN = 4 };
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &t, piece *p)
    {
        const uint8_t *block = block_of<type_iq4_xs>(u);
        int32_t low = block[4 + s / 2] >> s % 2 * 4 & 15;
        int32_t high = load_as<uint16_t>(block + 2) >> 2 * s & 3;
        set_scales(p, (low | high << 4) - 32, (low | high << 4) - 32);
        values_of<ALIGN>(block + 8 + 16 * s, t, p);
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<type_iq4_xs>(u);
        return {load_half(block), 0};
    }
};

/* ---- sluice's own types ---- */

template <int BITS, int GRID> struct group_of {
    /* GRID: each group has its scale and zero, else the row has them */
    enum { PIECES = 2, SCALED = 0, SPLIT = 0, MINIMUMS = 0, ALIGN = 4 };
    enum { HEAD = GRID ? 0 : 4, BEFORE = GRID ? 4 : 0, BYTES = BITS * 8 + BEFORE };
    enum { OFFSET = BITS == 8 ? 128 : 0 };
    static const kernel_form form = FORM_GROUP;
    INLINE void piece_of(const row_unit &u, uint32_t s, const table16 &, piece *p)
    {
        const uint8_t *block = block_of<group_of>(u);
        const uint8_t *from = block + BEFORE;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (BITS == 8)
                p->code[i] = (int32_t)(load_word<ALIGN>(from + 32 * s + 4 * i) ^ 0x80808080u);
            else if (BITS == 4)
                p->code[i] = (int32_t)(load_word<ALIGN>(from + 4 * i) >> 4 * s & LOW4);
            else
                p->code[i] = (int32_t)(load_word<ALIGN>(from + i % 4 * 4) >> (4 * s + i / 4 * 2) &
                                       0x03030303u);
        }
    }
    INLINE unit_scales scales(const row_unit &u)
    {
        const uint8_t *block = block_of<group_of>(u);
        const uint8_t *grid = GRID ? block : u.row;
        return {load_half(grid), load_half(grid + 2)};
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
