/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the matrix instructions of a warp by the manual of PTX. */
#include "tests/harness/cuda/matrix.h"

#include <string.h>

#include "tests/harness/cuda/fibres.h"

enum { LANES = 32, M_MAX = 16, N = 8, K_MAX = 32 };

/* An instruction: its sizes, and where element i of a lane's fragment is. */
struct shape {
    int m, k;
    int a_count, b_count, c_count; /* elements of a lane */
    void (*a_at)(int group, int thread, int i, int *row, int *col);
    void (*b_at)(int group, int thread, int i, int *row, int *col);
    void (*c_at)(int group, int thread, int i, int *row, int *col);
};

/* ---- mma.m16n8k32, .s8 ---- */

static void a_16_32(int group, int thread, int i, int *row, int *col)
{
    *row = (0 <= i && i < 4) || (8 <= i && i < 12) ? group : group + 8;
    *col = i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16;
}

static void b_32(int group, int thread, int i, int *row, int *col)
{
    *row = i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16;
    *col = group;
}

static void c_16(int group, int thread, int i, int *row, int *col)
{
    *row = i < 2 ? group : group + 8;
    *col = thread * 2 + (i & 1);
}

/* ---- mma.m16n8k16, .s8 ---- */

static void a_16_16(int group, int thread, int i, int *row, int *col)
{
    *row = i < 4 ? group : group + 8;
    *col = thread * 4 + (i & 3);
}

static void b_16(int group, int thread, int i, int *row, int *col)
{
    *row = thread * 4 + i;
    *col = group;
}

/* ---- mma.m8n8k16, .s8 ---- */

static void a_8(int group, int thread, int i, int *row, int *col)
{
    *row = group;
    *col = thread * 4 + i;
}

static void c_8(int group, int thread, int i, int *row, int *col)
{
    *row = group;
    *col = thread * 2 + i;
}

static int8_t byte_of(const uint32_t *registers, int i)
{
    return (int8_t)(registers[i / 4] >> 8 * (i % 4));
}

/* Inline: with a constant shape it takes less than half the time. */
static inline __attribute__((always_inline)) void multiply(const struct shape *s,
                                                           void *const lanes[LANES])
{
    int8_t a[M_MAX][K_MAX], b[N][K_MAX]; /* b: columns */
    int row, col;
    for (int lane = 0; lane < LANES; lane++) {
        const struct matrix_registers *r = lanes[lane];
        int group = lane >> 2, thread = lane % 4;
        for (int i = 0; i < s->a_count; i++) {
            s->a_at(group, thread, i, &row, &col);
            a[row][col] = byte_of(r->a, i);
        }
        for (int i = 0; i < s->b_count; i++) {
            s->b_at(group, thread, i, &row, &col);
            b[col][row] = byte_of(r->b, i);
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        struct matrix_registers *r = lanes[lane];
        for (int i = 0; i < s->c_count; i++) {
            s->c_at(lane >> 2, lane % 4, i, &row, &col);
            int32_t sum = r->c[i];
            for (int k = 0; k < s->k; k++)
                sum += a[row][k] * b[col][k];
            r->c[i] = sum;
        }
    }
}

void matrix_m16n8k32(void *const lanes[LANES])
{
    static const struct shape shape = {16, 32, 16, 8, 4, a_16_32, b_32, c_16};
    multiply(&shape, lanes);
}

void matrix_m16n8k16(void *const lanes[LANES])
{
    static const struct shape shape = {16, 16, 8, 4, 4, a_16_16, b_16, c_16};
    multiply(&shape, lanes);
}

void matrix_m8n8k16(void *const lanes[LANES])
{
    static const struct shape shape = {8, 16, 4, 4, 2, a_8, b_16, c_8};
    multiply(&shape, lanes);
}

/* Thread 8 i + r has the address of row r of matrix i; thread t gets of each matrix the two
 * elements, of 16 bits, of row t / 4 from column 2 (t % 4) on. */
void matrix_load(void *const lanes[LANES])
{
    for (int lane = 0; lane < LANES; lane++)
        fibres_in_shared(((struct matrix_loads *)lanes[lane])->row, 16);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) {
            const struct matrix_loads *source = lanes[8 * i + lane / 4];
            struct matrix_loads *to = lanes[lane];
            memcpy(&to->to[i], (const uint8_t *)source->row + 2 * sizeof(uint16_t) * (lane % 4),
                   sizeof to->to[i]);
        }
}
