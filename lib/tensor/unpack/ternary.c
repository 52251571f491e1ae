/* SPDX-License-Identifier: Apache-2.0 */
/* Ternary types: super-blocks of 256 with one scale. */
#include "lib/tensor/unpack/internal.h"

/* Element `digit` of a byte: it stores, times 256 / 243 and rounded up, a number of five digits to
 * the base 3. */
static int8_t ternary_digit(uint8_t byte, uint32_t digit)
{
    static const uint8_t power[] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * power[digit]);
    return (int8_t)((rest * 3 >> 8) - 1);
}

/* { 32 bytes: digit g of byte i is element 32 g + i; 16 bytes: element 160 + 16 g + i; 4 bytes of
 * four digits: element 240 + 4 g + i; f16 d } */
void unpack_tq1_0(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block + 52), 256);
    for (uint32_t i = 0; i < 160; i++)
        u->code[i] = ternary_digit(block[i % 32], i / 32);
    for (uint32_t i = 0; i < 80; i++)
        u->code[160 + i] = ternary_digit(block[32 + i % 16], i / 16);
    for (uint32_t i = 0; i < 16; i++)
        u->code[240 + i] = ternary_digit(block[48 + i % 4], i / 4);
}

/* { 64 bytes: of each 32 bytes, bits 0 and 1 are the first 32 elements, and so on: the code + 1;
 * f16 d } */
void unpack_tq2_0(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, load_f16(block + 64), 256);
    for (uint32_t i = 0; i < 256; i++)
        u->code[i] = (int8_t)((block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
}
