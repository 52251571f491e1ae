/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels, included by table.h: products with the quantised types of GGUF,
 * one for all of them. Every type is unpacked to integers with scales (lib/tensor/unpack). */

/* How a type's row is computed: in pieces of a unit, each with one scale of the activations. */
struct units {
    const struct unpack_info *info;
    uint32_t block_elems, block_bytes, piece;
    bool super;
};

static struct units units_of(enum tensor_type type)
{
    const struct tensor_type_info *layout = tensor_type_info((uint32_t)type);
    struct units u = {.info = unpack_info((uint32_t)type)};
    sl_assert(layout && u.info);
    u.block_elems = layout->block_elems;
    u.block_bytes = layout->block_bytes;
    u.super = kernel_form_of(type) == FORM_SUPER;
    u.piece = u.super || u.info->unit < QK ? u.info->unit : QK;
    return u;
}

static int32_t dot16(const int8_t *a, const int8_t *b)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += (int16_t)(a[i] * b[i]);
    return sum;
}

/* The term of one piece, elements `from` on of the unit and `at` on of the row. */
static float piece_term(const struct units *u, const struct unpacked *w, uint32_t from,
                        const int8_t *x, uint32_t at)
{
    static const int8_t ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int32_t dot = 0, low = 0;
    for (uint32_t i = 0; i < u->piece; i += 16) {
        uint32_t s = (from + i) / UNPACK_SUB, e = at + i;
        const int8_t *xs = x + (u->super ? e : act_half(e / QK, e / 16 % 2));
        dot += w->scale[s] * dot16(w->code + from + i, xs);
        if (u->info->minimums)
            low += w->min[s] * dot16(ones, xs);
    }
    float term = (float)dot * w->d;
    return u->info->minimums ? fmaf(-w->dmin, (float)low, term) : term;
}

static void unit_output(const struct kernel_matrix *w, uint32_t j, const uint8_t *x,
                        size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    const struct units u = units_of(w->type);
    const uint8_t *row = (const uint8_t *)w->data + (size_t)j * w->row_bytes;
    const size_t scales = u.super ? super_scale_offset(w->k) : act_scale_offset(w->k);
    float s[ROWS][PARTS] = {{0}};
    uint32_t part = 0;
    for (uint32_t at = 0; at < w->k; at += u.info->unit) {
        struct unpacked unit;
        u.info->unpack(row + at / u.block_elems * (size_t)u.block_bytes,
                       at % u.block_elems / u.info->unit, &unit);
        for (uint32_t from = 0; from < u.info->unit; from += u.piece, part++) {
            for (uint32_t r = 0; r < rows; r++) {
                const uint8_t *xr = x + r * x_stride;
                float d =
                    ((const float *)(const void *)(xr +
                                                   scales))[(at + from) / (u.super ? SUPER : QK)];
                float *sum = &s[r][part % PARTS];
                *sum = fmaf(piece_term(&u, &unit, from, (const int8_t *)xr, at + from), d, *sum);
            }
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        y[r * y_stride + j] = sum_parts(s[r]);
}

static void unit_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                        const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    for_outputs(unit_output, ROWS, w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
