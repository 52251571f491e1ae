/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on the device: their size, and rows of a file rearranged into them (planes.cuh). */
#include "lib/cuda/weights/unpack.cuh"

#define LAYOUT_THREADS 128

/* False: a type of floats, or one without kernels. */
static bool find_layout(enum tensor_type type, row_layout *out)
{
    switch (type) {
#define LAYOUT_CASE(name, unpack, values)                                                          \
    case TENSOR_##name: *out = layout_of<unpack>(); return true;
        BLOCK_TYPES(LAYOUT_CASE)
        SUPER_TYPES(LAYOUT_CASE)
        GROUP_TYPES(LAYOUT_CASE)
    default: return false;
    }
}

extern "C" uint32_t gpu_alignment(enum tensor_type type)
{
    row_layout l;
    switch (type) {
    case TENSOR_F32: return 4;
    case TENSOR_F16:
    case TENSOR_BF16: return 2;
    default: return find_layout(type, &l) ? VECTOR : 0;
    }
}

extern "C" uint64_t gpu_row_bytes(enum tensor_type type, uint32_t k)
{
    row_layout l;
    if (!find_layout(type, &l))
        return (uint64_t)k * gpu_alignment(type); /* floats are aligned to their size */
    if (k % l.elements != 0)
        return 0;
    return (uint64_t)divide_up((uint64_t)l.head + k / l.elements * l.unit_bytes, VECTOR) * VECTOR;
}

extern "C" bool gpu_rearranged(enum tensor_type type)
{
    row_layout l;
    return find_layout(type, &l) && (l.head != 0 || l.planes > 1);
}

extern "C" bool gpu_matrix_fits(const struct kernel_matrix *w)
{
    uint32_t align = gpu_alignment(w->type);
    return align != 0 && w->row_bytes % align == 0 && (uintptr_t)w->data % align == 0 &&
           w->k <= KERNEL_K_MAX && w->k % unit_of(kernel_form_of(w->type)) == 0 &&
           w->row_bytes >= gpu_row_bytes(w->type, w->k) && count_fits(w->n);
}

/* ---- rows of a file ---- */

struct layout_args {
    row_layout layout;
    const uint8_t *from;
    uint8_t *to;
    size_t from_row, to_row;      /* bytes */
    uint32_t units, vectors, all; /* vectors: of a row; all: of all rows */
};

#define NOWHERE UINT32_MAX

/* Where a row of a file has byte `at` of a row on the device. */
INLINE uint32_t place_in_file(const row_layout &l, uint32_t units, uint32_t at)
{
    for (uint32_t p = 0; p < l.planes; p++) {
        uint32_t each = l.of[p].bytes;
        if (at < each * units)
            return l.head + at / each * l.unit_bytes + l.of[p].from + at % each;
        at -= each * units;
    }
    return at < l.head ? at : NOWHERE;
}

template <int GRANULE> INLINE uint32_t load_granule(const uint8_t *p)
{
    return GRANULE == 4 ? load_as<uint32_t>(p) : GRANULE == 2 ? load_as<uint16_t>(p) : *p;
}

/* A thread per vector. Its bytes are next to each other in the file, too, unless it has those of
 * several units. */
template <int GRANULE> __global__ void __launch_bounds__(LAYOUT_THREADS) rearrange(layout_args a)
{
    uint32_t number = blockIdx.x * LAYOUT_THREADS + threadIdx.x;
    if (number >= a.all)
        return;
    uint32_t row = number / a.vectors, at = number % a.vectors * VECTOR;
    const uint8_t *from = a.from + row * a.from_row;
    uint32_t first = place_in_file(a.layout, a.units, at);
    bool together =
        first + VECTOR - GRANULE == place_in_file(a.layout, a.units, at + VECTOR - GRANULE);
    uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < VECTOR; i += GRANULE) {
        uint32_t place = together ? first + i : place_in_file(a.layout, a.units, at + i);
        if (place != NOWHERE)
            word[i / 4] |= load_granule<GRANULE>(from + place) << 8 * (i % 4);
    }
    *(int4 *)(void *)(a.to + row * a.to_row + at) = {(int32_t)word[0], (int32_t)word[1],
                                                     (int32_t)word[2], (int32_t)word[3]};
}

template <int GRANULE> static int launch(const layout_args &a, void *stream)
{
    return LAUNCH((rearrange<GRANULE>), dim3(divide_up(a.all, LAYOUT_THREADS)),
                  dim3(LAYOUT_THREADS), 0, stream, a);
}

extern "C" int gpu_rearrange(const struct kernel_matrix *w, void *to, size_t to_row_bytes,
                             void *stream)
{
    layout_args a = {{}, (const uint8_t *)w->data, (uint8_t *)to, w->row_bytes, to_row_bytes, 0, 0,
                     0};
    uint64_t bytes = gpu_row_bytes(w->type, w->k), all = bytes / VECTOR * w->n;
    if (!gpu_rearranged(w->type) || !find_layout(w->type, &a.layout) || bytes > to_row_bytes ||
        !count_fits(all) || (uintptr_t)to % VECTOR != 0 || to_row_bytes % VECTOR != 0 ||
        ((uintptr_t)w->data | w->row_bytes) % a.layout.granule != 0)
        return GPU_UNSUPPORTED;
    if (all == 0)
        return w->k % a.layout.elements == 0 && w->k <= KERNEL_K_MAX ? 0 : GPU_UNSUPPORTED;
    a.units = w->k / a.layout.elements;
    a.vectors = (uint32_t)(bytes / VECTOR);
    a.all = (uint32_t)all;
    switch (a.layout.granule) {
    case 1: return launch<1>(a, stream);
    case 2: return launch<2>(a, stream);
    default: return launch<4>(a, stream);
    }
}
