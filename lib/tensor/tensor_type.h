/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor types, generated from tensor_types.tbl.h, the only list of them. */
#ifndef SLUICE_TENSOR_TENSOR_TYPE_H
#define SLUICE_TENSOR_TENSOR_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#define TENSOR_TYPE_GGUF_END  64   /* types of GGUF files have lower numbers */
#define TENSOR_TYPE_OWN_FIRST 1000 /* types from here on occur only in stores */
#define TENSOR_TYPE_END       1005 /* all types have lower numbers */

enum tensor_type {
#define TENSOR_TYPE(name, id, ...) TENSOR_##name = (id),
#include "lib/tensor/tensor_types.tbl.h"
};

struct tensor_type_info {
    const char *name;
    uint32_t ggml_id;
    uint32_t block_elems;
    uint32_t block_bytes;
    uint32_t row_head_bytes;
    bool computed; /* false: nothing but its description and its decoder exists */
};

/* Description of a type by the id of GGUF files; NULL for an unknown one. */
const struct tensor_type_info *tensor_type_info(uint32_t ggml_id);

/* Is it a type that a model's weights may have? */
bool tensor_type_computed(uint32_t ggml_id);

/* Bytes of a row of `elems` elements, its head included. False when the type is unknown, elems is
 * not a multiple of the block, or the product exceeds 63 bits. */
bool tensor_type_row_bytes(uint32_t ggml_id, uint64_t elems, uint64_t *bytes);

#endif
