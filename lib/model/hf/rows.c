/* SPDX-License-Identifier: Apache-2.0 */
/* Makes rows of a GGUF tensor of rows of a checkpoint: chooses and orders them (struct hf_axis),
 * turns matrices, converts elements. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/model/hf/internal.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"

/* A number of F32, F16 or BF16. */
static float load_float(uint32_t type, const char *src)
{
    return type == TENSOR_F32   ? load_f32(src)
           : type == TENSOR_F16 ? f16_to_f32(load_u16(src))
                                : bf16_to_f32(load_u16(src));
}

/* ---- quantised checkpoints ---- */

/* FP8: E4M3 (1 sign, 4 exponent with bias 7, 3 fraction bits; 0x7f and 0xff are not a number, there
 * is no infinity) times the scale of their block of rows and columns. MXFP4: blocks of 32 elements
 * of E2M1 with an exponent, whose 4 bits are in another order in GGUF. */

#define Q8_0_ELEMS 32u
#define Q8_0_BYTES 34u /* F16 scale, 32 signed bytes */

#define F16_INFINITE  0x7c00 /* exponents of infinity and of what is not a number */
#define BF16_INFINITE 0x7f80

static float e4m3_to_f32(uint8_t x)
{
    int exponent = x >> 3 & 15, fraction = x & 7;
    if ((x & 0x7f) == 0x7f)
        return (float)NAN;
    float value =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return x & 0x80 ? -value : value;
}

/* Round to nearest even. */
static uint16_t f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return isnan(f) ? (uint16_t)(u >> 16 | 64) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* A block as ggml's reference makes it: d = max |x| / 127, nearest whole numbers. Returns d. Where
 * 1 / d is not finite, d is 0 as F16, and so are the numbers. */
static uint16_t put_q8_0(const float x[Q8_0_ELEMS], uint8_t *dst)
{
    float top = 0;
    for (uint32_t i = 0; i < Q8_0_ELEMS; i++)
        top = fmaxf(top, fabsf(x[i]));
    float d = top / 127, inverse = 1 / d;
    inverse = isfinite(inverse) ? inverse : 0;
    uint16_t half = f32_to_f16(d);
    memcpy(dst, &half, sizeof half);
    for (uint32_t i = 0; i < Q8_0_ELEMS; i++)
        dst[2 + i] = (uint8_t)(int8_t)lroundf(x[i] * inverse);
    return half;
}

/* Of the block with that row and column of the source. */
static float scale_at(const struct hf_tensor *t, const void *scales, uint64_t row, uint64_t column)
{
    uint64_t each = (t->source_columns + t->block_columns - 1) / t->block_columns;
    uint64_t at = row / t->block_rows * each + column / t->block_columns;
    if (t->factor_type != SAFETENSORS_F8_E8M0)
        return load_float(t->factor_type,
                          (const char *)scales + at * (t->factor_type == TENSOR_F32 ? 4 : 2));
    uint8_t exponent = ((const uint8_t *)scales)[at];
    return exponent == UINT8_MAX ? (float)NAN : ldexpf(1, exponent - 127);
}

/* A row of the source. */
static bool put_row(const struct hf_tensor *t, const float value[256], const uint8_t *src,
                    const void *scales, uint64_t row, uint8_t *dst)
{
    float part[Q8_0_ELEMS];
    bool good = true;
    for (uint64_t i = 0; i < t->source_columns; i += Q8_0_ELEMS) {
        uint64_t n = t->source_columns - i < Q8_0_ELEMS ? t->source_columns - i : Q8_0_ELEMS;
        for (uint64_t j = 0; j < n; j++) {
            part[j] = value[src[i + j]] * scale_at(t, scales, row, i + j);
            good &= isfinite(part[j]) != 0;
        }
        if (t->made_type == TENSOR_Q8_0) {
            uint16_t half = put_q8_0(part, dst + i / Q8_0_ELEMS * Q8_0_BYTES);
            good &= (half & F16_INFINITE) != F16_INFINITE;
            continue;
        }
        for (uint64_t j = 0; j < n; j++) {
            uint16_t bf16 = f32_to_bf16(part[j]);
            good &= (bf16 & BF16_INFINITE) != BF16_INFINITE; /* it may be rounded to that */
            memcpy(dst + 2 * (i + j), &bf16, sizeof bf16);
        }
    }
    return good;
}

static int not_finite(struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "a weight or its scale is not finite, or too large");
}

int hf_fp8_rows(const struct hf_tensor *t, const void *src, const void *scales, uint64_t first,
                uint64_t rows, void *dst, struct error *error)
{
    float value[256];
    sl_assert(t->form == HF_FP8);
    for (int i = 0; i < 256; i++)
        value[i] = e4m3_to_f32((uint8_t)i);
    for (uint64_t r = 0; r < rows; r++)
        if (!put_row(t, value, (const uint8_t *)src + r * t->source_columns, scales, first + r,
                     (uint8_t *)dst + r * t->made_row_bytes))
            return not_finite(error);
    return 0;
}

/* One weight; false: it is not finite as BF16. */
static bool fp8_to_bf16(const struct hf_tensor *t, uint8_t x, const void *scales, uint64_t row,
                        uint64_t column, uint16_t *bf16)
{
    float value = e4m3_to_f32(x) * scale_at(t, scales, row, column);
    *bf16 = f32_to_bf16(value);
    return (*bf16 & BF16_INFINITE) != BF16_INFINITE;
}

/* 32 elements of 4 bits. Checkpoint: byte j has elements 2j (low bits) and 2j + 1. GGUF: byte j has
 * elements j and j + 16. */
static void put_nibbles(const uint8_t src[HF_MXFP4_BYTES], uint8_t dst[HF_MXFP4_BYTES])
{
    for (unsigned j = 0; j < HF_MXFP4_BYTES; j++) {
        unsigned low = src[j / 2] >> (j % 2 * 4) & 15;
        unsigned high = src[j / 2 + HF_MXFP4_BYTES / 2] >> (j % 2 * 4) & 15;
        dst[j] = (uint8_t)(low | high << 4);
    }
}

/* `blocks` blocks of MXFP4 to GGUF's, of 17 bytes: the exponent, then the elements. */
static void mxfp4_row(const uint8_t *src, const uint8_t *exponents, uint64_t blocks, uint8_t *dst)
{
    for (uint64_t b = 0; b < blocks; b++, src += HF_MXFP4_BYTES, dst += 1 + HF_MXFP4_BYTES) {
        dst[0] = exponents[b];
        put_nibbles(src, dst + 1);
    }
}

/* ---- packed whole numbers ---- */

#define INTS_ELEMS 32u /* of a block of Q4_0 and Q8_0, after its scale as F16 */

/* Checkpoint: element i of a row is in bits i * bits and following, plus 2^(bits - 1). GGUF has the
 * same numbers, of 4 bits with that, in the order of MXFP4, and of 8 bits with a sign. scales: of
 * the row. False: one is not finite as F16. */
static bool ints_row(const struct hf_tensor *t, const uint8_t *src, const char *scales,
                     uint8_t *dst)
{
    uint64_t bytes = INTS_ELEMS * t->bits / 8, each = t->factor_type == TENSOR_F32 ? 4 : 2;
    bool good = true;
    for (uint64_t i = 0; i < t->source_columns; i += INTS_ELEMS, src += bytes) {
        uint16_t half =
            f32_to_f16(load_float(t->factor_type, scales + i / t->block_columns * each));
        good &= (half & F16_INFINITE) != F16_INFINITE;
        memcpy(dst, &half, sizeof half);
        dst += sizeof half;
        if (t->bits == 4)
            put_nibbles(src, dst);
        for (unsigned j = 0; j < INTS_ELEMS && t->bits == 8; j++)
            dst[j] = src[j] ^ 0x80;
        dst += bytes;
    }
    return good;
}

/* ---- axes ---- */

#define SIZE_MAX_CHECKED 65536u /* of a number in config.json that makes an axis */

static uint64_t index_at(const struct hf_axis *axis, uint64_t i)
{
    if (axis->segments == 0)
        return i;
    uint32_t k = 0;
    for (; i >= axis->segment[k].count; k++) {
        i -= axis->segment[k].count;
        sl_assert(k + 1 < axis->segments);
    }
    const struct hf_segment *s = &axis->segment[k];
    uint64_t at = s->first;
    for (int d = HF_DIGITS - 1; d >= 0; d--) {
        at += i % s->n[d] * s->step[d];
        i /= s->n[d];
    }
    return at;
}

/* True if the last segment that was added has indices, all below `all`. */
static bool add_segment(struct hf_axis *axis, uint64_t all, struct hf_segment s)
{
    uint64_t last = s.first, count = 1;
    for (int d = 0; d < HF_DIGITS; d++) {
        uint64_t reach;
        if (s.n[d] == 0 || mul_overflows(s.n[d] - 1, s.step[d], &reach) || reach > UINT32_MAX ||
            last > UINT32_MAX || mul_overflows(count, s.n[d], &count) || count > UINT32_MAX)
            return false;
        last += reach;
    }
    s.count = count;
    sl_assert(axis->segments < HF_SEGMENTS_MAX);
    axis->segment[axis->segments++] = s;
    axis->count += count;
    return last < all;
}

/* The numbers that expressions use are below SIZE_MAX_CHECKED, so that products of three fit. */
static bool sizes_fit(const struct hf_shape *shape)
{
    for (int i = 0; i < HF_SIZE__COUNT; i++)
        if (shape->size[i] > SIZE_MAX_CHECKED)
            return false;
    return shape->heads <= SIZE_MAX_CHECKED && shape->kv_heads <= SIZE_MAX_CHECKED;
}

bool hf_axis_of(struct hf_axis *axis, enum hf_axis_name name, const struct hf_shape *shape,
                uint64_t all)
{
    *axis = (struct hf_axis){.count = all};
    if (name == HF_AXIS_ALL)
        return true;
    if (!sizes_fit(shape) || all > UINT32_MAX)
        return false;
    const uint64_t head_count = shape->heads, kv_head_count = shape->kv_heads;
/* Some belong to no axis: tensors.c. */
#define HF_SIZE(n, field) const uint64_t n __attribute__((unused)) = shape->size[HF_SIZE_##n];
#include "lib/model/hf/rows.tbl.h"
    const uint64_t share = k_heads > 0 ? v_heads / k_heads : 0;
    const struct {
        enum hf_axis_name name;
        uint64_t total;
    } totals[] = {
#define HF_AXIS(axis_name, total) {HF_AXIS_##axis_name, (total)},
#include "lib/model/hf/rows.tbl.h"
    };
    const struct {
        enum hf_axis_name name;
        struct hf_segment segment;
    } segments[] = {
#define HF_SEGMENT(axis_name, first, n0, s0, n1, s1, n2, s2)                                       \
    {HF_AXIS_##axis_name, {(first), 0, {(n0), (n1), (n2)}, {(s0), (s1), (s2)}}},
#include "lib/model/hf/rows.tbl.h"
    };
    bool good = true;
    axis->count = 0;
    for (size_t i = 0; i < ARRAY_LEN(totals); i++)
        good = good && (totals[i].name != name || totals[i].total == all);
    for (size_t i = 0; i < ARRAY_LEN(segments) && good; i++)
        if (segments[i].name == name)
            good = add_segment(axis, all, segments[i].segment);
    return good;
}

/* ---- parts of the source ---- */

static const struct safetensor *source_of(const struct hf_model *hf, const struct hf_tensor *t,
                                          uint32_t plane)
{
    return &hf->files.tensors[hf->sources[t->source + (t->stacked ? 0 : plane)]];
}

struct hf_part hf_part_of(const struct hf_model *hf, uint32_t number, uint32_t plane, uint64_t row,
                          uint64_t rows)
{
    const struct hf_tensor *t = &hf->tensors[number];
    sl_assert(number < hf->tensor_count && t->form != HF_MADE && plane < t->planes);
    sl_assert(rows > 0 && row + rows <= t->rows);
    const struct safetensor *s = source_of(hf, t, plane);
    uint64_t first = 0, end = t->source_rows;
    if (!t->turned) {
        first = UINT64_MAX;
        end = 0;
        for (uint64_t i = row; i < row + rows; i++) {
            uint64_t at = index_at(&t->row_axis, i);
            first = at < first ? at : first;
            end = at + 1 > end ? at + 1 : end;
        }
    }
    uint64_t before = (t->stacked ? plane * t->source_rows : 0) + first;
    return (struct hf_part){
        .at = {s->file, s->offset + before * t->row_bytes, (end - first) * t->row_bytes},
        .first = first};
}

struct hf_extent hf_scales_of(const struct hf_model *hf, uint32_t number, uint32_t plane)
{
    const struct hf_tensor *t = &hf->tensors[number];
    sl_assert(number < hf->tensor_count && plane < t->planes);
    if (t->form != HF_FP8 && t->form != HF_MXFP4 && t->form != HF_INTS && t->form != HF_TIMES)
        return (struct hf_extent){0};
    const struct safetensor *s =
        &hf->files.tensors[hf->sources[t->scales + (t->stacked ? 0 : plane)]];
    if (t->form != HF_MXFP4 || !t->stacked)
        return (struct hf_extent){s->file, s->offset, s->bytes};
    uint64_t each = s->bytes / t->planes;
    return (struct hf_extent){s->file, s->offset + plane * each, each};
}

/* ---- conversion ---- */

static uint32_t element_bytes(const struct hf_tensor *t)
{
    return t->type == TENSOR_F32 ? 4 : t->form == HF_FP8 ? 1 : 2;
}

struct making { /* some rows of a plane */
    const struct hf_tensor *t;
    const char *src;
    uint64_t first;  /* row of the plane at src */
    uint64_t before; /* rows of the source before the plane */
    const void *scales;
    uint64_t row, rows;
    char *dst;
};

/* A vector. */
static void product_row(const struct hf_tensor *t, const char *src, const char *factors, char *dst)
{
    uint32_t each = t->factor_type == TENSOR_F32 ? 4 : 2;
    for (uint64_t c = 0; c < t->columns; c++) {
        float x = load_float(t->type, src + c * element_bytes(t)) *
                  load_float(t->factor_type, factors + c * each);
        memcpy(dst + c * sizeof x, &x, sizeof x);
    }
}

static float value_of(const struct hf_tensor *t, float x)
{
    switch (t->value) {
    case HF_VALUE_SAME: break;
    case HF_VALUE_PLUS_1: return x + 1;
    case HF_VALUE_EXP: return expf(x);
    case HF_VALUE_MINUS_EXP: return -expf(x);
    case HF_VALUE_OF_LATENT: return x * (float)sqrt((double)t->hidden / (double)t->columns);
    }
    return x;
}

/* One element to its place. */
static bool put_element(const struct making *k, uint64_t from_row, uint64_t from_column, char *dst)
{
    const struct hf_tensor *t = k->t;
    const char *src = k->src + (from_row - k->first) * t->row_bytes;
    if (t->form == HF_FP8) {
        uint16_t bf16;
        bool good = fp8_to_bf16(t, (uint8_t)src[from_column], k->scales, k->before + from_row,
                                from_column, &bf16);
        memcpy(dst, &bf16, sizeof bf16);
        return good;
    }
    src += from_column * element_bytes(t);
    if (t->made_type == t->type && t->value == HF_VALUE_SAME) {
        memcpy(dst, src, element_bytes(t));
    } else {
        float x = value_of(t, load_float(t->type, src));
        memcpy(dst, &x, sizeof x);
    }
    return true;
}

/* Column by column of the tensor, so that rows of the source are read in order. */
static bool turn(const struct making *k)
{
    const struct hf_tensor *t = k->t;
    uint64_t each = t->made_row_bytes / t->columns;
    bool good = true;
    for (uint64_t c = 0; c < t->columns; c++) {
        uint64_t from = index_at(&t->column_axis, c);
        for (uint64_t r = 0; r < k->rows; r++)
            good &= put_element(k, from, index_at(&t->row_axis, k->row + r),
                                k->dst + r * t->made_row_bytes + c * each);
    }
    return good;
}

static bool order_columns(const struct making *k)
{
    const struct hf_tensor *t = k->t;
    uint64_t each = t->made_row_bytes / t->columns;
    bool good = true;
    for (uint64_t r = 0; r < k->rows; r++) {
        uint64_t from = index_at(&t->row_axis, k->row + r);
        for (uint64_t c = 0; c < t->columns; c++)
            good &= put_element(k, from, index_at(&t->column_axis, c),
                                k->dst + r * t->made_row_bytes + c * each);
    }
    return good;
}

/* A number beyond 32 bits becomes one that is no expert. */
static void ids_row(const struct hf_tensor *t, const char *src, char *dst)
{
    uint64_t wide = t->type == SAFETENSORS_I64 ? sizeof(int64_t) : sizeof(int32_t);
    for (uint64_t i = 0; i < t->columns; i++) {
        int64_t x = wide == sizeof(int64_t) ? (int64_t)load_u64(src + i * wide)
                                            : (int32_t)load_u32(src + i * wide);
        int32_t id = x >= 0 && x <= INT32_MAX ? (int32_t)x : -1;
        memcpy(dst + i * sizeof id, &id, sizeof id);
    }
}

/* Whole rows of the source. */
static int whole_rows(const struct making *k, struct error *error)
{
    const struct hf_tensor *t = k->t;
    if (t->form == HF_FP8 && t->row_axis.segments == 0)
        return hf_fp8_rows(t, k->src + (k->row - k->first) * t->row_bytes, k->scales,
                           k->before + k->row, k->rows, k->dst, error);
    for (uint64_t r = 0; r < k->rows; r++) {
        uint64_t from = index_at(&t->row_axis, k->row + r);
        const char *src = k->src + (from - k->first) * t->row_bytes;
        char *dst = k->dst + r * t->made_row_bytes;
        if (t->form == HF_FP8) {
            if (hf_fp8_rows(t, src, k->scales, k->before + from, 1, dst, error))
                return -1;
        } else if (t->form == HF_MXFP4) {
            uint64_t blocks = t->source_columns / HF_MXFP4_ELEMS;
            mxfp4_row((const uint8_t *)src, (const uint8_t *)k->scales + from * blocks, blocks,
                      (uint8_t *)dst);
        } else if (t->form == HF_INTS) {
            uint64_t groups = t->source_columns / t->block_columns;
            uint64_t each = t->factor_type == TENSOR_F32 ? 4 : 2;
            if (!ints_row(t, (const uint8_t *)src,
                          (const char *)k->scales + (k->before + from) * groups * each,
                          (uint8_t *)dst))
                return not_finite(error);
        } else if (t->form == HF_TIMES) {
            product_row(t, src, k->scales, dst);
        } else if (t->form == HF_IDS) {
            ids_row(t, src, dst);
        } else if (t->made_type == t->type && t->value == HF_VALUE_SAME) {
            memcpy(dst, src, t->row_bytes);
        } else {
            for (uint64_t c = 0; c < t->columns; c++)
                put_element(k, from, c, dst + c * sizeof(float));
        }
    }
    return 0;
}

int hf_make_rows(const struct hf_model *hf, uint32_t number, uint32_t plane,
                 const struct hf_part *part, const void *src, const void *scales, uint64_t row,
                 uint64_t rows, void *dst, struct error *error)
{
    const struct hf_tensor *t = &hf->tensors[number];
    sl_assert(number < hf->tensor_count && plane < t->planes && row + rows <= t->rows);
    if (t->form == HF_MADE) {
        memcpy(dst, hf->made + t->made + row * t->columns, rows * t->made_row_bytes);
        return 0;
    }
    struct making k = {.t = t,
                       .src = src,
                       .first = part->first,
                       .before = t->stacked ? plane * t->source_rows : 0,
                       .scales = scales,
                       .row = row,
                       .rows = rows,
                       .dst = dst};
    if (!t->turned && t->column_axis.segments == 0)
        return whole_rows(&k, error);
    return (t->turned ? turn(&k) : order_columns(&k)) ? 0 : not_finite(error);
}
