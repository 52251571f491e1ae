/* SPDX-License-Identifier: Apache-2.0 */
/* K-quants: super-blocks of 256 with integer scales per 16 or 32 elements. */
#include "lib/tensor/unpack/internal.h"

#define SUPER 256

/* Two bits per element: of each 32 bytes, bits 0 and 1 are the first 32 elements, and so on. */
static void two_bits(const uint8_t *p, int8_t *code)
{
    for (uint32_t i = 0; i < SUPER; i++)
        code[i] = (int8_t)(p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
}

/* { 16 bytes: scale, minimum << 4; two bits per element; f16 d, f16 dmin } */
void unpack_q2_k(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    for (uint32_t s = 0; s < 16; s++) {
        u->scale[s] = block[s] & 15;
        u->min[s] = block[s] >> 4;
    }
    two_bits(block + 16, u->code);
    u->d = load_f16(block + 80);
    u->dmin = load_f16(block + 82);
}

/* { 32 bytes of third bits, bit g of byte i for element 32 g + i; two bits per element; 16 scales
 * of six bits; f16 d }. Without its third bit a code is 4 less. Scales: low four bits in 8 bytes of
 * nibbles, then two high bits, of scales b, 4 + b, 8 + b, 12 + b in byte b. */
void unpack_q3_k(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    const uint8_t *scales = block + 96;
    set_no_minimums(u);
    for (uint32_t s = 0; s < 16; s++) {
        int low = scales[s % 8] >> (s / 8 * 4) & 15;
        int high = scales[8 + s % 4] >> (s / 4 * 2) & 3;
        u->scale[s] = (int16_t)((low | high << 4) - 32);
    }
    two_bits(block + 32, u->code);
    for (uint32_t i = 0; i < SUPER; i++)
        if (!(block[i % 32] >> (i / 32) & 1))
            u->code[i] = (int8_t)(u->code[i] - 4);
    u->d = load_f16(block + 108);
}

/* Eight scales and eight minimums of six bits in 12 bytes. The first four of each are the low six
 * bits of bytes 0 .. 3 and 4 .. 7; of the others, bytes 8 .. 11 have the low four bits (scale in
 * the low nibble), and the top bits of bytes 0 .. 7 the high two. */
static void six_bit_scales(const uint8_t *p, struct unpacked *u)
{
    for (uint32_t s = 0; s < 4; s++) {
        set_scale_32(u, s, p[s] & 63);
        u->min[2 * s] = u->min[2 * s + 1] = p[4 + s] & 63;
        set_scale_32(u, 4 + s, (p[8 + s] & 15) | (p[s] >> 6) << 4);
        u->min[8 + 2 * s] = u->min[9 + 2 * s] = (int16_t)((p[8 + s] >> 4) | (p[4 + s] >> 6) << 4);
    }
}

/* { f16 d, f16 dmin, scales and minimums, 128 bytes: of each 32 bytes, the low nibbles, then the
 * high ones } */
void unpack_q4_k(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    u->d = load_f16(block);
    u->dmin = load_f16(block + 2);
    six_bit_scales(block + 4, u);
    for (uint32_t g = 0; g < 4; g++)
        nibbles(block + 16 + 32 * g, 32, u->code + 64 * g);
}

/* { as Q4_K, 32 bytes of fifth bits, bit g of byte i for element 32 g + i; nibbles as Q4_K } */
void unpack_q5_k(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    u->d = load_f16(block);
    u->dmin = load_f16(block + 2);
    six_bit_scales(block + 4, u);
    for (uint32_t g = 0; g < 4; g++)
        nibbles(block + 48 + 32 * g, 32, u->code + 64 * g);
    for (uint32_t i = 0; i < SUPER; i++)
        u->code[i] = (int8_t)(u->code[i] | (block[16 + i % 32] >> (i / 32) & 1) << 4);
}

/* { 128 bytes: of each 64 bytes, the low nibbles, then the high ones; two high bits per element as
 * Q2_K; 16 scales int8; f16 d } */
void unpack_q6_k(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    int8_t high[SUPER];
    set_no_minimums(u);
    for (uint32_t s = 0; s < 16; s++)
        u->scale[s] = (int8_t)block[192 + s];
    for (uint32_t g = 0; g < 2; g++)
        nibbles(block + 64 * g, 64, u->code + 128 * g);
    two_bits(block + 128, high);
    for (uint32_t i = 0; i < SUPER; i++)
        u->code[i] = (int8_t)((u->code[i] | high[i] << 4) - 32);
    u->d = load_f16(block + 208);
}
