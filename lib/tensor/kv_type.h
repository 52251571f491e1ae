/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the KV cache, and the size of what is stored. The bytes of a tile are those of
 * lib/kernels/kv_layout.h. */
#ifndef SLUICE_TENSOR_KV_TYPE_H
#define SLUICE_TENSOR_KV_TYPE_H

#include <stdint.h>
#include <string.h>

enum kv_type { /* numbers are in shared memory */
#define KV_TYPE(id, name, block, block_bytes) KV_TYPE_##id,
#include "lib/tensor/kv_types.tbl.h"
               KV_TYPE__COUNT
};

enum kv_side { KV_SIDE_KEYS, KV_SIDE_VALUES };

struct kv_type_info {
    const char *name;
    uint32_t block, block_bytes;
};

/* NULL: not a type; the number may come from another process. */
static inline const struct kv_type_info *kv_type_info(uint32_t type)
{
    static const struct kv_type_info infos[] = {
#define KV_TYPE(id, name, block, block_bytes) {name, block, block_bytes},
#include "lib/tensor/kv_types.tbl.h"
    };
    return type < KV_TYPE__COUNT ? &infos[type] : NULL;
}

/* The type of that name, KV_TYPE__COUNT if there is none. */
static inline enum kv_type kv_type_find(const char *name)
{
    uint32_t type = 0;
    while (type < KV_TYPE__COUNT && strcmp(kv_type_info(type)->name, name) != 0)
        type++;
    return (enum kv_type)type;
}

#define KV_TILE 64 /* positions that lie together: keys and values are in whole tiles */

/* Bytes of a tile of keys, or of values, of one head. */
static inline uint64_t kv_tile_bytes(enum kv_type type, uint32_t head_size)
{
    const struct kv_type_info *info = kv_type_info((uint32_t)type);
    return (uint64_t)KV_TILE * ((head_size + info->block - 1) / info->block) * info->block_bytes;
}

#endif
