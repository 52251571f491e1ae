/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks with one float scale, and perhaps a float minimum: Q1_0 .. Q8_0, IQ4_NL. */
#include "lib/tensor/unpack/internal.h"
#include "lib/tensor/unpack/values.h"

#define BLOCK 32

const int8_t unpack_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

static void set_minimum(struct unpacked *u, float minimum)
{
    u->dmin = minimum;
    u->min[0] = u->min[1] = -1;
}

/* Adds the fifth bits of 32 elements, bit i for element i, and `offset`. */
static void fifth_bits(const uint8_t *p, int offset, int8_t *code)
{
    uint32_t high = load_u32(p);
    for (uint32_t i = 0; i < BLOCK; i++)
        code[i] = (int8_t)(code[i] + (int)((high >> i & 1) << 4) + offset);
}

/* { f16 d, 128 bits: 1 for d, 0 for -d } */
void unpack_q1_0(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), 128);
    for (uint32_t i = 0; i < 128; i++)
        u->code[i] = block[2 + i / 8] >> (i % 8) & 1 ? 1 : -1;
}

/* { f16 d, 64 pairs of bits: the code + 1 } */
void unpack_q2_0(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), 64);
    for (uint32_t i = 0; i < 64; i++)
        u->code[i] = (int8_t)((block[2 + i / 4] >> (i % 4 * 2) & 3) - 1);
}

/* { f16 d, 16 bytes of nibbles: the code + 8 } */
void unpack_q4_0(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), BLOCK);
    nibbles(block + 2, 16, u->code);
    for (uint32_t i = 0; i < BLOCK; i++)
        u->code[i] = (int8_t)(u->code[i] - 8);
}

/* { f16 d, f16 minimum, 16 bytes of nibbles } */
void unpack_q4_1(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), BLOCK);
    set_minimum(u, load_f16(block + 2));
    nibbles(block + 4, 16, u->code);
}

/* { f16 d, 32 high bits, 16 bytes of nibbles: the code + 16 } */
void unpack_q5_0(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), BLOCK);
    nibbles(block + 6, 16, u->code);
    fifth_bits(block + 2, -16, u->code);
}

/* { f16 d, f16 minimum, 32 high bits, 16 bytes of nibbles } */
void unpack_q5_1(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), BLOCK);
    set_minimum(u, load_f16(block + 2));
    nibbles(block + 8, 16, u->code);
    fifth_bits(block + 4, 0, u->code);
}

/* { f16 d, 32 codes } */
void unpack_q8_0(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), BLOCK);
    memcpy(u->code, block + 2, BLOCK);
}

/* { f16 d, 16 bytes of nibbles: numbers in a table of values } */
void unpack_iq4_nl(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block), BLOCK);
    nibble_values(block + 2, 16, unpack_iq4_values, u->code);
}
