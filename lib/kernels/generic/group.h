/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels: included by table.h. */
/* sluice's own types in plain C. */

static void group_output(const struct kernel_matrix *w, uint32_t j, const uint8_t *x,
                         size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    struct group_type t = group_type_of(w->type);
    const uint8_t *row = (const uint8_t *)w->data + (size_t)j * w->row_bytes;
    float acc[ROWS][PARTS] = {{0}};
    for (uint32_t g = 0; g < w->k / GROUP; g++) {
        uint8_t code[GROUP];
        struct group_scale c = group_grid_of(t, row, g);
        group_codes(t.bits, row + t.head + (size_t)g * t.bytes + t.before, code);
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *xr = x + r * x_stride;
            const int8_t *q = (const int8_t *)xr + (size_t)g * GROUP;
            int32_t dot = 0;
            for (uint32_t i = 0; i < GROUP; i++)
                dot += code[i] * q[i];
            float d = ((const float *)(const void *)(xr + group_scale_offset(w->k)))[g];
            float s = ((const float *)(const void *)(xr + group_sum_offset(w->k)))[g];
            float term = fmaf(-c.zero, s, (float)dot), *part = &acc[r][g % PARTS];
            *part = fmaf(t.before != 0 ? term * c.scale : term, d, *part);
        }
    }
    float scale = t.before != 0 ? 1.0f : group_grid(row).scale;
    for (uint32_t r = 0; r < rows; r++)
        y[r * y_stride + j] = sum_parts(acc[r]) * scale;
}

static void group_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    for_outputs(group_output, ROWS, w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
