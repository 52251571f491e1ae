/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the decoder of a type, and decodes rows to F32 with it. */
#include "lib/tensor/unpack/unpack.h"

#include <stddef.h>

#include "lib/base/assert.h"
#include "lib/tensor/unpack/internal.h"

const struct unpack_info *unpack_info(uint32_t type)
{
    static const struct {
        uint32_t type;
        struct unpack_info info;
    } table[] = {
#define UNPACK(name, unit, sub, minimums, code_max, scale_max, min_max, function)                  \
    {TENSOR_##name, {unit, sub, minimums, code_max, scale_max, min_max, function}},
#include "lib/tensor/unpack/unpack.tbl.h"
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].type == type)
            return &table[i].info;
    return NULL;
}

void unpack_row(uint32_t type, const void *row, uint64_t elems, float *y)
{
    const struct unpack_info *info = unpack_info(type);
    const struct tensor_type_info *layout = tensor_type_info(type);
    sl_assert(info && layout && elems % layout->block_elems == 0);
    uint32_t parts = layout->block_elems / info->unit;
    const uint8_t *block = row;
    for (uint64_t b = 0; b < elems / layout->block_elems; b++, block += layout->block_bytes) {
        for (uint32_t p = 0; p < parts; p++, y += info->unit) {
            struct unpacked u;
            info->unpack(block, p, &u);
            for (uint32_t i = 0; i < info->unit; i++)
                y[i] = unpacked_element(&u, i);
        }
    }
}
