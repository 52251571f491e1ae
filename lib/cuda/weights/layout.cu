/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels need of the memory of a matrix. */
#include "lib/cuda/weights/unpack.cuh"

extern "C" uint32_t gpu_alignment(enum tensor_type type)
{
    switch (type) {
    case TENSOR_F32: return 4;
    case TENSOR_F16:
    case TENSOR_BF16: return 2;
#define ALIGN_CASE(name, unpack, values)                                                           \
    case TENSOR_##name: return unpack::ALIGN;
        BLOCK_TYPES(ALIGN_CASE)
        SUPER_TYPES(ALIGN_CASE)
        GROUP_TYPES(ALIGN_CASE)
    default: return 0;
    }
}

extern "C" bool gpu_matrix_fits(const struct kernel_matrix *w)
{
    uint32_t align = gpu_alignment(w->type);
    return align != 0 && w->row_bytes % align == 0 && (uintptr_t)w->data % align == 0 &&
           w->k <= KERNEL_K_MAX && w->k % unit_of(kernel_form_of(w->type)) == 0 && count_fits(w->n);
}
