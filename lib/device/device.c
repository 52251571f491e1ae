/* SPDX-License-Identifier: Apache-2.0 */
/* All devices share these functions: layouts of rows, names of operations. */
#include "lib/device/device.h"

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

void device_rows_set(struct device_rows *rows, uint32_t k)
{
    rows->k = k;
    for (int i = 0; i < FORM__COUNT; i++)
        rows->stride[i] = i == FORM_F32
                              ? (size_t)k * sizeof(float)
                              : kernel_activation_bytes(kernel_form_type((enum kernel_form)i), k);
}

struct device_rows device_rows_from(const struct device_rows *rows, uint32_t first)
{
    struct device_rows from = *rows;
    for (int i = 0; i < FORM__COUNT; i++)
        from.base[i] = device_offset(rows->base[i], first * rows->stride[i]);
    return from;
}

struct device_rows device_rows_of_floats(struct device_at at, uint32_t k)
{
    struct device_rows rows = {.k = k};
    rows.stride[FORM_F32] = (size_t)k * sizeof(float);
    rows.base[FORM_F32] = at;
    return rows;
}

struct device_span device_span_of(const struct device_row *row, uint32_t rows, uint32_t sequence)
{
    struct device_span span = {0};
    for (uint32_t r = 0; r < rows; r++) {
        if (row[r].sequence != sequence)
            continue;
        if (span.end == 0)
            span.first = row[r].position;
        span.end = row[r].position + 1;
    }
    return span;
}

static const char *const names[] = {
#define OP(name) #name,
#include "lib/device/ops.tbl.h"
};

const char *device_op_name(enum device_op op)
{
    sl_assert((size_t)op < ARRAY_LEN(names));
    return names[op];
}
