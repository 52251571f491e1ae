/* SPDX-License-Identifier: Apache-2.0 */
/* IQ types: super-blocks of 256 whose elements are points of a grid with signs; IQ4_XS, whose
 * elements are numbers in a table of values. */
#include "lib/tensor/unpack/grids/grids.h"
#include "lib/tensor/unpack/internal.h"
#include "lib/tensor/unpack/values.h"

/* Eight elements: a point of a grid of bytes, and signs. */
static void eight(uint64_t point, uint8_t signs, int8_t *code)
{
    for (uint32_t i = 0; i < 8; i++) {
        int value = (int)(point >> 8 * i & 255);
        code[i] = (int8_t)(signs >> i & 1 ? -value : value);
    }
}

/* Two points of four elements. */
static void fours(uint32_t first, uint32_t second, uint8_t signs, int8_t *code)
{
    eight((uint64_t)second << 32 | first, signs, code);
}

/* { f16 d; per 32 elements: 4 bytes of points, then 4 x 7 bits of signs and 4 bits of scale } */
void unpack_iq2_xxs(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_no_minimums(u);
    u->d = load_f16(block) / 8;
    for (uint32_t s = 0; s < 8; s++) {
        const uint8_t *p = block + 2 + 8 * s;
        uint32_t rest = load_u32(p + 4);
        set_scale_32(u, s, 2 * (int)(rest >> 28) + 1);
        for (uint32_t g = 0; g < 4; g++)
            eight(unpack_grid_iq2_xxs[p[g]], unpack_signs(rest >> 7 * g), u->code + 32 * s + 8 * g);
    }
}

/* Sixteen scales of four bits. */
static void four_bit_scales(const uint8_t *p, struct unpacked *u)
{
    for (uint32_t s = 0; s < 16; s++)
        u->scale[s] = (int16_t)(2 * (p[s / 2] >> (s % 2 * 4) & 15) + 1);
}

/* { f16 d; per 8 elements 9 bits of point and 7 of signs; scales per 16 } */
void unpack_iq2_xs(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_no_minimums(u);
    u->d = load_f16(block) / 8;
    four_bit_scales(block + 66, u);
    for (uint32_t g = 0; g < 32; g++) {
        uint32_t q = load_u16(block + 2 + 2 * g);
        eight(unpack_grid_iq2_xs[q & 511], unpack_signs(q >> 9), u->code + 8 * g);
    }
}

/* { f16 d; per 8 elements a low byte of the point; per 8 elements a byte of signs; per 8 elements
 * two high bits of the point; scales per 16 } */
void unpack_iq2_s(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_no_minimums(u);
    u->d = load_f16(block) / 8;
    four_bit_scales(block + 74, u);
    for (uint32_t g = 0; g < 32; g++) {
        uint32_t high = block[66 + g / 4] >> (g % 4 * 2) & 3;
        eight(unpack_grid_iq2_s[block[2 + g] | high << 8], block[34 + g], u->code + 8 * g);
    }
}

/* { f16 d; per 4 elements a byte of point; per 32 elements 4 x 7 bits of signs, 4 of scale } */
void unpack_iq3_xxs(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_no_minimums(u);
    u->d = load_f16(block) / 4;
    for (uint32_t g = 0; g < 32; g++) {
        uint32_t rest = load_u32(block + 66 + g / 4 * 4);
        const uint8_t *p = block + 2 + 2 * g;
        set_scale_32(u, g / 4, 2 * (int)(rest >> 28) + 1);
        fours(unpack_grid_iq3_xxs[p[0]], unpack_grid_iq3_xxs[p[1]],
              unpack_signs(rest >> 7 * (g % 4)), u->code + 8 * g);
    }
}

/* { f16 d; per 4 elements a low byte of the point; per 4 elements its ninth bit; per 8 elements a
 * byte of signs; scales per 32 of four bits } */
void unpack_iq3_s(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_no_minimums(u);
    u->d = load_f16(block);
    for (uint32_t s = 0; s < 8; s++)
        set_scale_32(u, s, 2 * (block[106 + s / 2] >> (s % 2 * 4) & 15) + 1);
    for (uint32_t g = 0; g < 32; g++) {
        const uint8_t *p = block + 2 + 2 * g;
        uint32_t high = block[66 + g / 4] >> (g % 4 * 2);
        fours(unpack_grid_iq3_s[p[0] | (high & 1) << 8], unpack_grid_iq3_s[p[1] | (high & 2) << 7],
              block[74 + g], u->code + 8 * g);
    }
}

/* Eight elements of IQ1: 8 times the point, plus or minus 1. */
static void eight_shifted(uint64_t point, int shift, int8_t *code)
{
    for (uint32_t i = 0; i < 8; i++)
        code[i] = (int8_t)(8 * (int8_t)(point >> 8 * i & 255) + shift);
}

/* { f16 d; per 8 elements a low byte of the point; per 32 elements 4 x 3 high bits of points, 3
 * bits of scale, 1 of shift } */
void unpack_iq1_s(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_no_minimums(u);
    u->d = load_f16(block) / 8;
    for (uint32_t g = 0; g < 32; g++) {
        uint32_t rest = load_u16(block + 34 + g / 4 * 2);
        uint32_t high = rest >> 3 * (g % 4) & 7;
        set_scale_32(u, g / 4, 2 * (int)(rest >> 12 & 7) + 1);
        eight_shifted(unpack_grid_iq1[block[2 + g] | high << 8], rest & 0x8000 ? -1 : 1,
                      u->code + 8 * g);
    }
}

/* { per 8 elements a low byte of the point; per 8 elements three high bits and one of shift; four
 * 16-bit words: each four scales of three bits, and in its top bits a quarter of the f16 d } */
void unpack_iq1_m(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    uint16_t d = 0;
    set_no_minimums(u);
    for (uint32_t s = 0; s < 16; s++) {
        uint32_t word = load_u16(block + 48 + s / 4 * 2);
        u->scale[s] = (int16_t)(2 * (int)(word >> 3 * (s % 4) & 7) + 1);
        d = (uint16_t)(d | (word >> 12) << 4 * (s / 4));
    }
    u->d = f16_to_f32(d) / 8;
    for (uint32_t g = 0; g < 32; g++) {
        uint32_t high = block[32 + g / 2] >> (g % 2 * 4) & 15;
        eight_shifted(unpack_grid_iq1[block[g] | (high & 7) << 8], high & 8 ? -1 : 1,
                      u->code + 8 * g);
    }
}

/* { f16 d; 8 x 2 high bits of scales; 8 x 4 low bits; per 32 elements 16 bytes of nibbles: numbers
 * in a table of values } */
void unpack_iq4_xs(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    uint32_t high = load_u16(block + 2);
    set_no_minimums(u);
    u->d = load_f16(block);
    for (uint32_t s = 0; s < 8; s++) {
        int low = block[4 + s / 2] >> (s % 2 * 4) & 15;
        set_scale_32(u, s, (low | (int)(high >> 2 * s & 3) << 4) - 32);
        nibble_values(block + 8 + 16 * s, 16, unpack_iq4_values, u->code + 32 * s);
    }
}
