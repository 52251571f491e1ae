/* SPDX-License-Identifier: Apache-2.0 */
/* FP4 (E2M1) with scales that are floats of eight bits: MXFP4 (E8M0 per 32), NVFP4 (UE4M3 per
 * 16). */
#include "lib/tensor/unpack/internal.h"
#include "lib/tensor/unpack/values.h"

const int8_t unpack_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 127) / 2: codes are doubled. */
static float e8m0_half(uint32_t e)
{
    return float_of(e < 2 ? UINT32_C(0x00200000) << e : (e - 1) << 23);
}

/* Four bits of exponent (bias 7), three of mantissa, without a sign; halved. */
static float ue4m3_half(uint32_t x)
{
    uint32_t e = x >> 3 & 15, m = x & 7;
    if (x == 0x7f)
        return 0;
    if (e == 0)
        return (float)m * 0x1p-10f;
    return float_of((e + 127 - 8) << 23 | m << 20);
}

/* { E8M0, 16 bytes of nibbles } */
void unpack_mxfp4(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    (void)part;
    set_plain(u, e8m0_half(block[0]), 32);
    nibble_values(block + 1, 16, unpack_fp4_values, u->code);
}

/* { 4 x UE4M3, 4 x 8 bytes of nibbles }; a unit is one of the four */
void unpack_nvfp4(const uint8_t *block, uint32_t part, struct unpacked *u)
{
    set_plain(u, ue4m3_half(block[part]), 16);
    nibble_values(block + 4 + 8 * part, 8, unpack_fp4_values, u->code);
}
