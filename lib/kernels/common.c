/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with one implementation for all instruction sets: they select experts and tokens. */
#include "lib/kernels/internal.h"

void kernel_rope_table(uint32_t position, uint32_t n, double theta, const float *factors,
                       float *cos_sin)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        double angle = (double)position * pow(theta, -2.0 * (double)i / (double)n);
        if (factors)
            angle /= (double)factors[i];
        cos_sin[2 * i] = (float)cos(angle);
        cos_sin[2 * i + 1] = (float)sin(angle);
    }
}

void kernel_rope_pairs(float *x, uint32_t n, const float *cos_sin)
{
    for (uint32_t i = 0; i + 1 < n; i += 2) {
        float c = cos_sin[i], s = cos_sin[i + 1], a = x[i], b = x[i + 1];
        x[i] = a * c - b * s;
        x[i + 1] = a * s + b * c;
    }
}

static float key_of(float x)
{
    return x != x ? -INFINITY : x;
}

void kernel_top_k(const float *x, uint32_t n, uint32_t k, uint32_t *index)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++) {
        float key = key_of(x[i]);
        if (have == k && (k == 0 || !(key > key_of(x[index[k - 1]]))))
            continue;
        uint32_t at = have < k ? have++ : k - 1;
        for (; at > 0 && key > key_of(x[index[at - 1]]); at--)
            index[at] = index[at - 1];
        index[at] = i;
    }
}
