/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of values that formats define: what kernels need, too. */
#ifndef SLUICE_TENSOR_UNPACK_VALUES_H
#define SLUICE_TENSOR_UNPACK_VALUES_H

#include <stdint.h>

extern const int8_t unpack_iq4_values[16]; /* IQ4_NL, IQ4_XS */
extern const int8_t unpack_fp4_values[16]; /* MXFP4, NVFP4: E2M1, doubled */

/* The signs of 8 elements from 7 bits, bit i set: element i is negative. The eighth makes their
 * number even. */
static inline uint8_t unpack_signs(uint32_t seven)
{
    seven &= 127;
    return (uint8_t)(seven | (uint32_t)(__builtin_popcount(seven) & 1) << 7);
}

#endif
