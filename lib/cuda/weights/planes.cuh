/* SPDX-License-Identifier: Apache-2.0 */
/* Says where a row on the device has the bytes of its units. A file has them unit by unit, in
 * blocks of 18, 34 or 210 bytes, whose codes start at any even or odd address. On the device a row
 * is
 *
 *   plane 0: bytes [from, from + bytes) of each unit, one unit after the other; then plane 1, ...;
 *   then the row's head; then zeros up to a multiple of 16 bytes
 *
 * and the planes with codes are first, with multiples of 16 bytes of each unit: so all codes are
 * read by aligned vectors of 16 bytes, and lanes with neighbouring units read neighbouring memory.
 * A type states its planes (unpack.cuh). What writes rows (layout.cu), what reads them, and their
 * size follow from that. A type whose units have their codes at multiples of 16 keeps the bytes of
 * the file: it has one plane. */
#ifndef SLUICE_CUDA_WEIGHTS_PLANES_CUH
#define SLUICE_CUDA_WEIGHTS_PLANES_CUH

#include "lib/cuda/device.cuh"

#define VECTOR     16 /* bytes */
#define PLANES_MAX 4

struct plane {
    uint32_t from, bytes; /* of a unit in a file */
};

/* A unit of a row on the device. */
struct row_unit {
    const uint8_t *row;
    uint32_t unit, units; /* of the row */
};

/* The bytes of a unit in the planes before number `count`. */
BOTH constexpr uint32_t bytes_before(const plane *planes, int count)
{
    return count == 0 ? 0 : planes[count - 1].bytes + bytes_before(planes, count - 1);
}

/* Where plane P has its bytes of the unit. */
template <class T, int P> INLINE const uint8_t *plane_of(const row_unit &u)
{
    enum : uint32_t { BEFORE = bytes_before(T::planes, P), BYTES = T::planes[P].bytes };
    return u.row + (BEFORE * u.units + BYTES * u.unit);
}

template <class T> INLINE const uint8_t *head_of(const row_unit &u)
{
    return u.row + T::BYTES * u.units;
}

/* ---- loads. The weights of a job are at an address that a kernel reads, and the compiler cannot
 * know that it is one of global memory. No kernel writes what it loads so. ---- */

#ifdef SLUICE_HARNESS
#define LOAD_WEIGHTS(name, type, instruction)                                                      \
    INLINE uint32_t name(const uint8_t *p)                                                         \
    {                                                                                              \
        return load_as<type>(p);                                                                   \
    }

INLINE void load_16(const uint8_t *p, uint32_t word[4])
{
    CHECK_ALIGNED(p, VECTOR);
    memcpy(word, p, VECTOR);
}
#else
#define LOAD_WEIGHTS(name, type, instruction)                                                      \
    INLINE uint32_t name(const uint8_t *p)                                                         \
    {                                                                                              \
        uint32_t v;                                                                                \
        asm(instruction " %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(p)));                \
        return v;                                                                                  \
    }

INLINE void load_16(const uint8_t *p, uint32_t word[4])
{
    asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
        : "l"(__cvta_generic_to_global(p)));
}
#endif
LOAD_WEIGHTS(load_1, uint8_t, "ld.global.u8")
LOAD_WEIGHTS(load_2, uint16_t, "ld.global.u16")
LOAD_WEIGHTS(load_4, uint32_t, "ld.global.u32")

INLINE void load_32(const uint8_t *p, uint32_t word[8])
{
    load_16(p, word);
    load_16(p + VECTOR, word + 4);
}

INLINE float load_scale(const uint8_t *p)
{
    return half_to_float((uint16_t)load_2(p));
}

/* ---- all of a type, for what is not made for one ---- */

struct row_layout {
    uint32_t unit_bytes, head, elements; /* of a unit */
    uint32_t planes;
    plane of[PLANES_MAX];
    /* Every number above, and a row in a file, is a multiple of it: 1, 2 or 4. */
    uint32_t granule;
};

template <class T> static row_layout layout_of(void)
{
    const uint32_t planes = sizeof T::planes / sizeof T::planes[0];
    row_layout l = {T::BYTES, T::HEAD, QK * T::PIECES, planes, {}, 0};
    uint32_t all = T::BYTES | T::HEAD;
    static_assert(planes <= PLANES_MAX && bytes_before(T::planes, planes) == T::BYTES, "a unit");
    for (uint32_t i = 0; i < planes; i++) {
        l.of[i] = T::planes[i];
        all |= l.of[i].from | l.of[i].bytes;
    }
    l.granule = all % 2 != 0 ? 1 : all % 4 != 0 ? 2 : 4;
    return l;
}

#endif
