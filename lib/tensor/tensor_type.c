/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up rows of the table of tensor types. */
#include "lib/tensor/tensor_type.h"

#include <stddef.h>

static const struct tensor_type_info type_table[] = {
#define TENSOR_TYPE(name, id, block_elems, block_bytes, row_head_bytes, computed)                  \
    {#name, (id), (block_elems), (block_bytes), (row_head_bytes), (computed)},
#include "lib/tensor/tensor_types.tbl.h"
};

const struct tensor_type_info *tensor_type_info(uint32_t ggml_id)
{
    for (size_t i = 0; i < sizeof type_table / sizeof type_table[0]; i++)
        if (type_table[i].ggml_id == ggml_id)
            return &type_table[i];
    return NULL;
}

bool tensor_type_computed(uint32_t ggml_id)
{
    const struct tensor_type_info *info = tensor_type_info(ggml_id);
    return info && info->computed;
}

bool tensor_type_row_bytes(uint32_t ggml_id, uint64_t elems, uint64_t *bytes)
{
    const struct tensor_type_info *info = tensor_type_info(ggml_id);
    if (!info || elems % info->block_elems != 0)
        return false;
    uint64_t blocks = elems / info->block_elems;
    if (blocks > ((uint64_t)INT64_MAX - info->row_head_bytes) / info->block_bytes)
        return false;
    *bytes = info->row_head_bytes + blocks * info->block_bytes;
    return true;
}
