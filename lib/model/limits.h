/* SPDX-License-Identifier: Apache-2.0 */
/* Limits for models of all formats, and the two structs that the formats share. */
#ifndef SLUICE_MODEL_LIMITS_H
#define SLUICE_MODEL_LIMITS_H

#include <stdint.h>

#include "lib/base/bytes.h"

#define MODEL_LAYERS_MAX  512
#define MODEL_EXPERTS_MAX 4096
#define MODEL_TOP_K_MAX   64
#define MODEL_TAPS_MAX    8  /* inputs of a convolution over time */
#define MODEL_POOL_MAX    8  /* positions of which an indexer makes a key */
#define MODEL_STREAMS_MAX 16 /* of a residual, but for the sums of blocks */
#define MODEL_CONTEXT_MAX (1u << 20)
#define MODEL_TRAINED_MAX                                                                          \
    (1u << 24) /* the trained context length; one runs with MODEL_CONTEXT_MAX */
#define MODEL_VOCAB_MAX   (1u << 20)
#define MODEL_ROW_MAX     65536 /* elements of a row of a matrix, and of the buffers of kernels */
#define MODEL_NAME_BYTES  64
#define MODEL_STRIPES_MAX 16
#define MODEL_PARTS_MAX   16 /* files of a split model; each has its loader */
#define MODEL_PATH_BYTES  1024
#define GGUF_FILE_MAX     ((uint64_t)1 << 60) /* so that sums of offsets cannot overflow */
#define STORE_SLOT_MAX    (64 * GIB)          /* so that sums over all entries cannot overflow */

/* Identity of an open file. Any change while the engine runs means that the file was replaced. */
struct model_file_id {
    uint64_t dev, ino, bytes;
    int64_t mtime_ns;
};

struct model_tensor {
    char name[MODEL_NAME_BYTES]; /* NUL-terminated */
    uint32_t type;               /* enum tensor_type */
    uint32_t dims;
    uint64_t ne[4]; /* elements, ne[0] along the row; unused ones are 1 */
    uint64_t row_bytes;
    uint64_t file_offset; /* in its part */
    uint64_t bytes;
    uint32_t part; /* of a split model, from 0 */
    /* 1: the elements are I32, which is no type of weights: `type` is F32, of the same size. Only
     * tables of numbers have such elements (ARCH_STORAGE_IDS). */
    uint32_t integers;
};

#endif
