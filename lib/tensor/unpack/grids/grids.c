/* SPDX-License-Identifier: Apache-2.0 */
/* The grids of the IQ types, expanded from their tables at compile time. */
#include "lib/tensor/unpack/grids/grids.h"

#define EIGHT(X, a, b, c, d, e, f, g, h) X(a), X(b), X(c), X(d), X(e), X(f), X(g), X(h),

/* Two bits per element, three values. */
#define TWO(n, at, v0, v1, v2)                                                                     \
    ((uint64_t)(((n) >> 2 * (at)&3) == 0   ? (v0)                                                  \
                : ((n) >> 2 * (at)&3) == 1 ? (v1)                                                  \
                                           : (v2))                                                 \
     << 8 * (at))
#define TWOS(n, v0, v1, v2)                                                                        \
    (TWO(n, 0, v0, v1, v2) | TWO(n, 1, v0, v1, v2) | TWO(n, 2, v0, v1, v2) |                       \
     TWO(n, 3, v0, v1, v2) | TWO(n, 4, v0, v1, v2) | TWO(n, 5, v0, v1, v2) |                       \
     TWO(n, 6, v0, v1, v2) | TWO(n, 7, v0, v1, v2))
#define IQ1(n) TWOS(n, 0xff, 0, 1)
#define IQ2(n) TWOS(n, 8, 25, 43)

/* Three bits per element: 8 n + 4, but 62 for the last; odd numbers. */
#define THREE(n, at)      ((uint32_t)(n) >> 3 * (at)&7)
#define IQ3_XXS_AT(n, at) ((THREE(n, at) == 7 ? UINT32_C(62) : 8 * THREE(n, at) + 4) << 8 * (at))
#define IQ3_XXS(n)        (IQ3_XXS_AT(n, 0) | IQ3_XXS_AT(n, 1) | IQ3_XXS_AT(n, 2) | IQ3_XXS_AT(n, 3))
#define IQ3_S_AT(n, at)   ((2 * THREE(n, at) + 1) << 8 * (at))
#define IQ3_S(n)          (IQ3_S_AT(n, 0) | IQ3_S_AT(n, 1) | IQ3_S_AT(n, 2) | IQ3_S_AT(n, 3))

const uint64_t unpack_grid_iq1[2048] = {
#define GRID(...) EIGHT(IQ1, __VA_ARGS__)
#include "lib/tensor/unpack/grids/iq1.tbl.h"
};

const uint64_t unpack_grid_iq2_xxs[256] = {
#define GRID(...) EIGHT(IQ2, __VA_ARGS__)
#include "lib/tensor/unpack/grids/iq2_xxs.tbl.h"
};

const uint64_t unpack_grid_iq2_xs[512] = {
#define GRID(...) EIGHT(IQ2, __VA_ARGS__)
#include "lib/tensor/unpack/grids/iq2_xs.tbl.h"
};

const uint64_t unpack_grid_iq2_s[1024] = {
#define GRID(...) EIGHT(IQ2, __VA_ARGS__)
#include "lib/tensor/unpack/grids/iq2_s.tbl.h"
};

const uint32_t unpack_grid_iq3_xxs[256] = {
#define GRID(...) EIGHT(IQ3_XXS, __VA_ARGS__)
#include "lib/tensor/unpack/grids/iq3_xxs.tbl.h"
};

const uint32_t unpack_grid_iq3_s[512] = {
#define GRID(...) EIGHT(IQ3_S, __VA_ARGS__)
#include "lib/tensor/unpack/grids/iq3_s.tbl.h"
};
