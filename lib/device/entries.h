/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the operations of attention over a window and entries (DeepSeek-V4); included by
 * ops.tbl.h, which describes rows and defines them. host/entries/entries.c has the formulas. */
/* clang-format off */

/* The RMSNorm of the query's first factor, with its forms; that of the rows kv, whose last elements
 * are rotated, and the row of keys, which are values, too. */
OP(entry_store)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_entries, shape)
    OP_CACHE(keys, DEVICE_APPENDS, 1, a->shape.size, a->shape.window)
    OP_READ(q_norm, FLOATS(a->query.k))
    OP_READ(kv_norm, FLOATS(a->shape.size))
    OP_VALUE(size_t, angle_stride)
    OP_READ(angles, FLOATS((a->rows - 1) * a->angle_stride + a->shape.rope))
    OP_VALUE(uint32_t, query_forms)
    OP_WRITE_ROWS(query, a->rows)
    OP_WRITE(kv, FLOATS((size_t)a->rows * a->shape.size))
OP_END(entry_store)

/* Entries that end in the pass, and the indexer's keys of these: of the rows of device_entry_row
 * floats, and of those that the state has of the positions before; then the state of the next
 * pass. */
OP(entry_pool)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_entries, shape)
    OP_ENTRIES(DEVICE_APPENDS, &a->shape)
    OP_STATE(state, DEVICE_READS, device_entry_floats(&a->shape))
    OP_STATE(next_state, DEVICE_WRITES, device_entry_floats(&a->shape))
    OP_VALUE(struct kernel_rope, rope)
    OP_READ(bias, FLOATS((size_t)a->shape.unit * device_entry_parts(&a->shape) * a->shape.size))
    OP_READ(norm, FLOATS(a->shape.size))
    OP_READ(index_bias,
            FLOATS((size_t)a->shape.unit * device_entry_parts(&a->shape) * a->shape.index))
    OP_READ(index_norm, FLOATS(a->shape.index))
    OP_READ(projected, FLOATS((size_t)a->rows * device_entry_row(&a->shape)))
OP_END(entry_pool)

/* Scores of the indexer for all entries that a row sees (kernel_index_scores). q: [rows][heads]
 * [index]; weights: [rows][heads]. */
OP(entry_scores)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_entries, shape)
    OP_ENTRIES(DEVICE_READS, &a->shape)
    OP_READ(q, FLOATS((size_t)a->rows * a->shape.heads * a->shape.index))
    OP_READ(weights, FLOATS((size_t)a->rows * a->shape.heads))
    OP_VALUE(size_t, stride)
    OP_WRITE(score, FLOATS(a->rows * a->stride))
OP_END(entry_scores)

/* The entries that each row attends to, ascending: the best shape.chosen of those that it sees by
 * its scores, which are overwritten, or all if these are fewer. Lists are list_stride apart. */
OP(entry_choice)
    OP_VALUE(uint32_t, rows)
    OP_HOST(struct device_row, row, a->rows)
    OP_VALUE(struct device_entries, shape)
    OP_VALUE(size_t, stride)
    OP_WRITE(score, FLOATS(a->rows * a->stride))
    OP_VALUE(uint32_t, list_stride)
    OP_WRITE(at, sizeof(uint32_t) * a->rows * a->list_stride)
    OP_WRITE(count, sizeof(uint32_t) * a->rows)
OP_END(entry_choice)

/* Attention of each row to its window and to its entries: those of a list, or without lists all
 * that it sees. q: [rows][query heads][size], overwritten. Result: rows of y of a group of heads
 * each, those of a row one after the other, floats. ones: weights of a norm without weights. */
OP(entry_attention)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_entries, shape)
    OP_VALUE(uint32_t, query_heads)
    OP_CACHE(keys, DEVICE_READS, 1, a->shape.size, a->shape.window)
    OP_ENTRIES(DEVICE_READS, &a->shape)
    OP_CHOSEN(chosen, a->rows)
    OP_READ(sinks, FLOATS(a->query_heads))
    OP_READ(ones, FLOATS(a->shape.size))
    OP_VALUE(size_t, angle_stride)
    OP_READ(angles, FLOATS((a->rows - 1) * a->angle_stride + a->shape.rope))
    OP_WRITE(q, FLOATS((size_t)a->rows * a->query_heads * a->shape.size))
    OP_VALUE(uint32_t, groups)
    OP_WRITE_ROWS(y, a->rows * a->groups)
OP_END(entry_attention)

/* clang-format on */
