/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the operations that choose the positions which attention is over; included by ops.tbl.h,
 * which describes rows and defines them. */
/* clang-format off */

/* Heads of an indexer in place, `heads` of each row: their RMSNorm (no weight: none), then their
 * rotation. */
OP(index_heads)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, heads)
    OP_VALUE(uint32_t, size)
    OP_VALUE(struct device_turn, turn)
    OP_VALUE(float, eps)
    OP_READ(weight, FLOATS(a->size))
    OP_VALUE(size_t, angle_stride)
    OP_READ(angles, FLOATS((a->rows - 1) * a->angle_stride + a->turn.dims))
    OP_WRITE(y, FLOATS((size_t)a->rows * a->heads * a->size))
OP_END(index_heads)

/* The rows k become the keys of the indexer: unit 1. */
OP(index_store)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_index, shape)
    OP_INDEX(DEVICE_APPENDS, &a->shape)
    OP_READ(k, FLOATS((size_t)a->rows * a->shape.size))
OP_END(index_store)

/* The same of units above 1: the key of a unit is the mean of its rows k, or with gates their
 * sum by the softmax of gate + bias of each element over the rows, then its RMSNorm (no weight:
 * none) and rotation at the first position of the unit (rope; factors: instead of its own). A
 * state has the rows of the last unit, as far as they are there, and then their gates.
 * gate_bias: [unit][size] */
OP(index_pool)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_index, shape)
    OP_INDEX(DEVICE_APPENDS, &a->shape)
    OP_STATE(state, DEVICE_READS, device_pool_floats(&a->shape, a->gates.address != 0))
    OP_STATE(next_state, DEVICE_WRITES, device_pool_floats(&a->shape, a->gates.address != 0))
    OP_VALUE(float, eps)
    OP_READ(weight, FLOATS(a->shape.size))
    OP_VALUE(struct device_turn, turn)
    OP_VALUE(struct kernel_rope, rope)
    OP_READ(factors, FLOATS(a->rope.dims / 2))
    OP_READ(k, FLOATS((size_t)a->rows * a->shape.size))
    OP_READ(gates, FLOATS((size_t)a->rows * a->shape.size))
    OP_READ(gate_bias, FLOATS((size_t)a->shape.unit * a->shape.size))
OP_END(index_pool)

/* Scores (kernel_index_scores) of each row and the units that it sees; what its lines have after
 * these has no meaning. weights: of the forms that have them. */
OP(index_scores)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_index, shape)
    OP_INDEX(DEVICE_READS, &a->shape)
    OP_READ(q, FLOATS((size_t)a->rows * a->shape.heads * a->shape.size))
    OP_READ(weights, FLOATS((size_t)a->rows * a->shape.heads))
    OP_VALUE(size_t, stride)
    OP_WRITE(score, FLOATS(a->rows * device_index_lists(&a->shape) * a->stride))
OP_END(index_scores)

/* The lists of each row by its scores (kernel_choose), which are overwritten: as struct
 * device_chosen has them, list_stride apart. That is at least device_choice_most, or the positions
 * of the row with the most, if these are fewer. */
OP(choose_positions)
    OP_VALUE(uint32_t, rows)
    OP_HOST(struct device_row, row, a->rows)
    OP_VALUE(struct device_index, shape)
    OP_VALUE(struct device_choice, choice)
    OP_VALUE(size_t, stride)
    OP_WRITE(score, FLOATS(a->rows * device_index_lists(&a->shape) * a->stride))
    OP_VALUE(uint32_t, list_stride)
    OP_WRITE(at, sizeof(uint32_t) * a->rows * device_index_lists(&a->shape) * a->list_stride)
    OP_WRITE(count, sizeof(uint32_t) * a->rows * device_index_lists(&a->shape))
OP_END(choose_positions)

/* clang-format on */
