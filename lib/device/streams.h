/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the operations on a residual of several streams, rows of `streams` times n floats;
 * included by ops.tbl.h, which describes rows and defines them. */
/* clang-format off */

/* Every stream of x is the row of y. */
OP(stream_begin)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, streams)
    OP_VALUE(uint32_t, n)
    OP_READ(y, FLOATS((size_t)a->rows * a->n))
    OP_WRITE(x, FLOATS((size_t)a->rows * a->streams * a->n))
OP_END(stream_begin)

/* The RMSNorm of each stream by itself, with weights of its own; the forms are those of the whole
 * row. */
OP(stream_norm)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, streams)
    OP_VALUE(float, eps)
    OP_READ(x, FLOATS((size_t)a->rows * a->y.k))
    OP_READ(weight, FLOATS(a->y.k))
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(y, a->rows)
OP_END(stream_norm)

/* y = silu(y), and its forms. */
OP(silu_rows)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(y, a->rows)
OP_END(silu_rows)

/* y = the mean over the streams of x * sigmoid(gate), and its forms. gate is overwritten. */
OP(stream_read)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, streams)
    OP_READ_ROWS(x, a->rows)
    OP_WRITE(gate, FLOATS((size_t)a->rows * a->x.k))
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(y, a->rows)
OP_END(stream_read)

/* Stream s of x += y * 2 sigmoid(logits[s]). logits: [rows][streams]; weights: space for the
 * sigmoids. */
OP(stream_add)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, streams)
    OP_VALUE(uint32_t, n)
    OP_READ(logits, FLOATS((size_t)a->rows * a->streams))
    OP_WRITE(weights, FLOATS((size_t)a->rows * a->streams))
    OP_READ(y, FLOATS((size_t)a->rows * a->n))
    OP_WRITE(x, FLOATS((size_t)a->rows * a->streams * a->n))
OP_END(stream_add)

/* The weights of mixed streams (struct device_mixing; host/streams/mixing.c has the steps), of the
 * products of the norm of all streams with their matrix. */
OP(stream_weights)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(struct device_mixing, shape)
    OP_READ(logits, FLOATS((size_t)a->rows * device_mixing_weights(&a->shape)))
    OP_READ(scale, FLOATS(device_mixing_kinds(&a->shape)))
    OP_READ(base, FLOATS(device_mixing_weights(&a->shape)))
    OP_WRITE(weights, FLOATS((size_t)a->rows * device_mixing_weights(&a->shape)))
OP_END(stream_weights)

/* y = the RMSNorm of the sum over the streams s of x, each times the weight s of the row, and its
 * forms. weights: rows `stride` floats apart; none: 1 / streams each. */
OP(stream_gather)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, streams)
    OP_VALUE(float, eps)
    OP_READ(x, FLOATS((size_t)a->rows * a->streams * a->y.k))
    OP_VALUE(size_t, stride)
    OP_READ(weights, FLOATS((a->rows - 1) * a->stride + a->streams))
    OP_READ(norm, FLOATS(a->y.k))
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(y, a->rows)
OP_END(stream_gather)

/* Stream j of x = y * the weight post_j + the sum over the streams i of x_i times that of i for j;
 * without a matrix + x_j. */
OP(stream_mix)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, n)
    OP_VALUE(struct device_mixing, shape)
    OP_READ(weights, FLOATS((size_t)a->rows * device_mixing_weights(&a->shape)))
    OP_READ(y, FLOATS((size_t)a->rows * a->n))
    OP_WRITE(x, FLOATS((size_t)a->rows * a->shape.streams * a->n))
OP_END(stream_mix)

/* What a layer adds by n-grams (host/residual.c has the steps), of the products of their rows with
 * the matrices of keys and values. keys and space: rows of all streams, overwritten. */
OP(ngrams)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_ngrams, shape)
    OP_STATE(state, DEVICE_READS, device_ngram_floats(&a->shape))
    OP_STATE(next_state, DEVICE_WRITES, device_ngram_floats(&a->shape))
    OP_READ(key_norm, FLOATS(a->shape.streams * a->shape.n))
    OP_READ(query_norm, FLOATS(a->shape.streams * a->shape.n))
    OP_READ(conv_norm, FLOATS(a->shape.streams * a->shape.n))
    OP_READ(conv, FLOATS((size_t)a->shape.taps * a->shape.streams * a->shape.n))
    OP_READ(zeros, FLOATS(a->shape.streams * a->shape.n))
    OP_READ(values, FLOATS((size_t)a->rows * a->shape.n))
    OP_WRITE(keys, FLOATS((size_t)a->rows * a->shape.streams * a->shape.n))
    OP_WRITE(space, FLOATS((size_t)a->rows * a->shape.streams * a->shape.n))
    OP_WRITE(x, FLOATS((size_t)a->rows * a->shape.streams * a->shape.n))
OP_END(ngrams)

/* clang-format on */
