/* SPDX-License-Identifier: Apache-2.0 */
/* sluice's own types in plain C: the reference in tests of the other instruction sets, and the only
 * implementation of operations that need not be fast. */
#include "lib/kernels/internal.h"

#define ROWS 8 /* rows that share an unpacked group */

struct group_scale {
    float scale, zero;
};

static struct group_scale load_scale(const uint8_t *p)
{
    return (struct group_scale){f16_to_f32(load_u16(p)), f16_to_f32(load_u16(p + 2))};
}

/* Scale and zero of group g: the row's (C8, C4, C2) or the group's (G4, G2). */
static struct group_scale scale_of(struct group_type t, const uint8_t *row, uint32_t g)
{
    return load_scale(t.before != 0 ? row + t.head + (size_t)g * t.bytes : row);
}

static void output_of(const struct kernel_matrix *w, uint32_t j, const uint8_t *x, size_t x_stride,
                      uint32_t rows, float *y, size_t y_stride)
{
    struct group_type t = group_type_of(w->type);
    const uint8_t *row = (const uint8_t *)w->data + (size_t)j * w->row_bytes;
    float acc[ROWS] = {0};
    for (uint32_t g = 0; g < w->k / GROUP; g++) {
        uint8_t code[GROUP];
        struct group_scale c = scale_of(t, row, g);
        group_codes(t.bits, row + t.head + (size_t)g * t.bytes + t.before, code);
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *xr = x + r * x_stride;
            const int8_t *q = (const int8_t *)xr + (size_t)g * GROUP;
            int32_t dot = 0;
            for (uint32_t i = 0; i < GROUP; i++)
                dot += code[i] * q[i];
            float d = ((const float *)(const void *)(xr + group_scale_offset(w->k)))[g];
            float s = ((const float *)(const void *)(xr + group_sum_offset(w->k)))[g];
            float term = (float)dot - c.zero * s;
            acc[r] += (t.before != 0 ? term * c.scale : term) * d;
        }
    }
    float scale = t.before != 0 ? 1.0f : load_scale(row).scale;
    for (uint32_t r = 0; r < rows; r++)
        y[r * y_stride + j] = acc[r] * scale;
}

void generic_group_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                          const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    for (uint32_t r = 0; r < rows; r += ROWS) {
        uint32_t count = rows - r < ROWS ? rows - r : ROWS;
        for (uint32_t j = n_begin; j < n_end; j++)
            output_of(w, j, (const uint8_t *)x + r * x_stride, x_stride, count, y + r * y_stride,
                      y_stride);
    }
}

void group_row_to_f32(const struct kernel_matrix *w, uint32_t row, float *y)
{
    struct group_type t = group_type_of(w->type);
    const uint8_t *p = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    for (uint32_t g = 0; g < w->k / GROUP; g++) {
        uint8_t code[GROUP];
        struct group_scale c = scale_of(t, p, g);
        group_codes(t.bits, p + t.head + (size_t)g * t.bytes + t.before, code);
        for (uint32_t i = 0; i < GROUP; i++)
            y[(size_t)g * GROUP + i] = c.scale * ((float)code[i] - c.zero);
    }
}
