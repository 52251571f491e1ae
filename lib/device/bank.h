/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the operations on a residual that is a bank of sums: rows of `streams` times n floats, of
 * which the first `sources` are read; included by ops.tbl.h, which describes rows and defines
 * them. */
/* clang-format off */

/* y = the sum of p_s x_s over the sources, p being the softmax of score . RMSNorm(x_s); the norm
 * has no weights: `ones`. weights: space for p, [rows][streams]. y is used meanwhile. */
OP(bank_read)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, streams)
    OP_VALUE(uint32_t, sources)
    OP_VALUE(uint32_t, n)
    OP_VALUE(float, eps)
    OP_READ(x, FLOATS((size_t)a->rows * a->streams * a->n))
    OP_READ(ones, FLOATS(a->n))
    OP_READ(score, FLOATS(a->n))
    OP_WRITE(weights, FLOATS((size_t)a->rows * a->streams))
    OP_WRITE(y, FLOATS((size_t)a->rows * a->n))
OP_END(bank_read)

/* x_0 += y; or, if `ends` is not 0, x_ends = x_0 and then x_0 = y. */
OP(bank_add)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, streams)
    OP_VALUE(uint32_t, ends)
    OP_VALUE(uint32_t, n)
    OP_READ(y, FLOATS((size_t)a->rows * a->n))
    OP_WRITE(x, FLOATS((size_t)a->rows * a->streams * a->n))
OP_END(bank_add)
