/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a device, in the order of a pass. One is
 *   OP(name)                   begins it
 *   OP_READ(name, bytes)       device memory that it reads; address 0 if the step has none
 *   OP_WRITE(name, bytes)      device memory that it writes; it may read it, too
 *   OP_MATRIX(name)            a matrix; without data if the step does without
 *   OP_READ_ROWS(name, rows)   rows of activations (struct device_rows), in forms with a base
 *   OP_WRITE_ROWS(name, rows)  the same, written
 *   OP_CHOSEN(name, rows)      lists of positions, struct device_chosen
 *   OP_HOST(type, name, n)     array in host memory, read before the operation returns
 *   OP_SEQUENCES, OP_PRODUCTS, OP_JOBS(name, n)   the same, of structs that have device addresses
 *   OP_CACHE(field, access, heads, size, window)   what it does with keys or values of each
 *       sequence that has rows in the pass (field of struct device_sequence): `heads` rows of
 *       `size` elements per position. DEVICE_READS: those of all positions up to the last row's,
 *       with a window only the last `window` of each row; DEVICE_APPENDS: those of the rows are
 *       written, and no others
 *   OP_INDEX(access, shape)    the same of the indexer's keys, of units instead of positions
 *   OP_ENTRIES(access, shape)  the same of entries, with their keys; none if shape->unit is 0
 *   OP_STATE(field, access, floats)   the same of the recurrent state, DEVICE_READS or
 *       DEVICE_WRITES (completely). Fields without a row are not touched
 *   OP_VALUE(type, name)       anything else
 *   OP_END(name)               ends it
 * `bytes`, `rows` and `n` are expressions over the arguments `a`. Sizes without unit are floats. A
 * form of rows is made from their floats: those in `forms`, a bit per enum kernel_form. A scale is
 * one float by which the result of a product is multiplied. No include guard: define what is needed
 * of these, the rest is empty. */
#ifndef OP
#define OP(name)
#endif
#ifndef OP_READ
#define OP_READ(name, bytes)
#endif
#ifndef OP_WRITE
#define OP_WRITE(name, bytes)
#endif
#ifndef OP_MATRIX
#define OP_MATRIX(name)
#endif
#ifndef OP_READ_ROWS
#define OP_READ_ROWS(name, rows)
#endif
#ifndef OP_WRITE_ROWS
#define OP_WRITE_ROWS(name, rows)
#endif
#ifndef OP_CHOSEN
#define OP_CHOSEN(name, rows)
#endif
#ifndef OP_HOST
#define OP_HOST(type, name, count)
#endif
#ifndef OP_SEQUENCES
#define OP_SEQUENCES(name, count)
#endif
#ifndef OP_CACHE
#define OP_CACHE(field, access, heads, size, window)
#endif
#ifndef OP_INDEX
#define OP_INDEX(access, shape)
#endif
#ifndef OP_ENTRIES
#define OP_ENTRIES(access, shape)
#endif
#ifndef OP_STATE
#define OP_STATE(field, access, floats)
#endif
#ifndef OP_PRODUCTS
#define OP_PRODUCTS(name, count)
#endif
#ifndef OP_JOBS
#define OP_JOBS(name, count)
#endif
#ifndef OP_VALUE
#define OP_VALUE(type, name)
#endif
#ifndef OP_END
#define OP_END(name)
#endif
#define FLOATS(n) (sizeof(float) * (size_t)(n))
/* clang-format off */

/* ---- load ---- */

/* y[r * row_stride + i * stride] = element i of row r of w, for all rows: vectors of a model. */
OP(unpack)
    OP_MATRIX(w)
    OP_VALUE(size_t, row_stride)
    OP_VALUE(size_t, stride)
    OP_WRITE(y, FLOATS((a->w.n - 1) * a->row_stride + (a->w.k - 1) * a->stride + 1))
OP_END(unpack)

/* ---- rows ---- */

/* Zeros. */
OP(clear)
    OP_VALUE(size_t, bytes)
    OP_WRITE(y, a->bytes)
OP_END(clear)

/* The row of w of each token, times factor if that is not 0. */
OP(embed)
    OP_VALUE(uint32_t, rows)
    OP_HOST(struct device_row, row, a->rows)
    OP_MATRIX(w)
    OP_VALUE(float, factor)
    OP_WRITE(x, FLOATS((size_t)a->rows * a->w.k))
OP_END(embed)

/* cos and sin of the angles of each position (kernel_rope_table), rows `stride` floats apart.
 * factors: instead of those of rope. */
OP(angles)
    OP_VALUE(uint32_t, rows)
    OP_HOST(struct device_row, row, a->rows)
    OP_VALUE(struct kernel_rope, rope)
    OP_READ(factors, FLOATS(a->rope.dims / 2))
    OP_VALUE(size_t, stride)
    OP_WRITE(y, FLOATS((a->rows - 1) * a->stride + a->rope.dims))
OP_END(angles)

/* The norm of each row of x, of that kind, and its forms. */
OP(norm)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(enum norm_kind, kind)
    OP_VALUE(float, eps)
    OP_READ(x, FLOATS((size_t)a->rows * a->y.k))
    OP_READ(weight, FLOATS(a->y.k))
    OP_READ(bias, FLOATS(a->y.k))
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(y, a->rows)
OP_END(norm)

/* The input of a router with a scale of its own: u = RMSNorm(x) * weight, y = u * scale, floats. */
OP(gate_norm)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(float, eps)
    OP_READ(x, FLOATS((size_t)a->rows * a->y.k))
    OP_READ(weight, FLOATS(a->y.k))
    OP_READ(scale, FLOATS(a->y.k))
    OP_WRITE(u, FLOATS((size_t)a->rows * a->y.k))
    OP_WRITE_ROWS(y, a->rows)
OP_END(gate_norm)

/* y = x * scale, element by element, floats. y may be x. */
OP(scale_rows)
    OP_VALUE(uint32_t, rows)
    OP_READ(x, FLOATS((size_t)a->rows * a->y.k))
    OP_READ(scale, FLOATS(a->y.k))
    OP_WRITE_ROWS(y, a->rows)
OP_END(scale_rows)

/* The forms of the rows y, of their floats. */
OP(forms)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(y, a->rows)
OP_END(forms)

/* ---- products ---- */

/* Products of the rows x with several matrices. */
OP(products)
    OP_VALUE(uint32_t, rows)
    OP_READ_ROWS(x, a->rows)
    OP_VALUE(uint32_t, count)
    OP_PRODUCTS(product, a->count)
OP_END(products)

/* y = x w * scale + bias;  into += y * factor * the row's weight. into, weight: may be none. */
OP(add_product)
    OP_VALUE(uint32_t, rows)
    OP_READ_ROWS(x, a->rows)
    OP_MATRIX(w)
    OP_READ(scale, FLOATS(1))
    OP_READ(bias, FLOATS(a->w.n))
    OP_VALUE(float, factor)
    OP_READ(weight, FLOATS(a->rows))
    OP_WRITE(y, FLOATS((size_t)a->rows * a->w.n))
    OP_WRITE(into, FLOATS((size_t)a->rows * a->w.n))
OP_END(add_product)

/* y = RMSNorm(y) * weight;  into += y * factor. */
OP(add_norm)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, n)
    OP_VALUE(float, eps)
    OP_VALUE(float, factor)
    OP_READ(weight, FLOATS(a->n))
    OP_WRITE(y, FLOATS((size_t)a->rows * a->n))
    OP_WRITE(into, FLOATS((size_t)a->rows * a->n))
OP_END(add_norm)

#include "lib/device/streams.h"

/* ---- mixers ---- */

/* Attention of a layer but its output matrix. For each row of x: q, k and v are products times
 * their scales, plus biases, clamped; norms and rotation of each head; the rows of keys and values
 * are stored; mix has the result of each head, floats. A v matrix without data: values are the
 * products of k. The four buffers are rows of all heads; with GATE_IN_Q `gated` has those of q and
 * of their gates, otherwise it is none. The rows of a sequence are in the order of their
 * positions. */
OP(attention)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct layer_attention, shape)
    OP_CACHE(keys, DEVICE_READS | DEVICE_APPENDS, a->shape.kv_heads, a->shape.key_size,
             a->shape.window)
    OP_CACHE(values, DEVICE_READS | DEVICE_APPENDS, a->shape.kv_heads, a->shape.value_size,
             a->shape.window)
    OP_VALUE(struct device_heads, heads)
    OP_CHOSEN(chosen, a->rows)
    OP_READ_ROWS(x, a->rows)
    OP_MATRIX(w_q)
    OP_MATRIX(w_k)
    OP_MATRIX(w_v)
    OP_READ(q_scale, FLOATS(1))
    OP_READ(k_scale, FLOATS(1))
    OP_READ(v_scale, FLOATS(1))
    OP_READ(q_bias, FLOATS(a->shape.heads * a->shape.key_size))
    OP_READ(k_bias, FLOATS(a->shape.kv_heads * a->shape.key_size))
    OP_READ(v_bias, FLOATS(a->shape.kv_heads * a->shape.value_size))
    OP_READ(q_norm, FLOATS(a->shape.key_size *
                           (a->heads.qk_norm == QK_NORM_ROW ? a->shape.heads : 1)))
    OP_READ(k_norm, FLOATS(a->shape.key_size *
                           (a->heads.qk_norm == QK_NORM_ROW ? a->shape.kv_heads : 1)))
    OP_READ(ones, FLOATS(a->heads.v_norm ? a->shape.value_size : 1))
    OP_READ(sinks, FLOATS(a->shape.heads))
    OP_VALUE(size_t, angle_stride)
    OP_READ(angles, FLOATS((a->rows - 1) * a->angle_stride + a->shape.rope_dims))
    OP_WRITE(q, FLOATS((size_t)a->rows * a->shape.heads * a->shape.key_size))
    OP_WRITE(gated, FLOATS((size_t)a->rows * a->shape.heads * a->shape.key_size * 2))
    OP_WRITE(k, FLOATS((size_t)a->rows * a->shape.kv_heads * a->shape.key_size))
    OP_WRITE(v, FLOATS((size_t)a->rows * a->shape.kv_heads * a->shape.value_size))
    OP_WRITE_ROWS(mix, a->rows)
OP_END(attention)

/* The result of each head times the function of its gate (none: as it is), and the forms of the
 * rows. gates: rows as model_gates_of says. */
OP(gate_heads)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(struct layer_attention, shape)
    OP_READ(gates, FLOATS((size_t)a->rows * device_gates_of(&a->shape, &a->mix).floats))
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(mix, a->rows)
OP_END(gate_heads)

/* MLA (host/latent.c has the formulas): norm of the query's first factor, with its forms (none: no
 * such factor); norm of the latents, norm (k_norm: may be none) and rotation of the keys (no
 * angles: none), and the row of keys. kv: rows of `key`. */
OP(latent_store)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_latent, shape)
    OP_CACHE(keys, DEVICE_APPENDS, 1, a->shape.key, a->shape.window)
    OP_READ(q_norm, FLOATS(a->shape.q_rank))
    OP_READ(kv_norm, FLOATS(a->shape.rank))
    OP_READ(k_norm, FLOATS(a->shape.rope))
    OP_VALUE(size_t, angle_stride)
    OP_READ(angles, FLOATS((a->rows - 1) * a->angle_stride + a->shape.rope))
    OP_VALUE(uint32_t, query_forms)
    OP_WRITE_ROWS(query, a->rows)
    OP_WRITE(kv, FLOATS((size_t)a->rows * a->shape.key))
OP_END(latent_store)

/* Queries of x, scores and values of all heads; mix has the result of each head, floats. k_b, v_b:
 * a matrix per head, one below the other. sinks: as in attention. */
OP(latent_attention)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_latent, shape)
    OP_CACHE(keys, DEVICE_READS, 1, a->shape.key, a->shape.window)
    OP_CHOSEN(chosen, a->rows)
    OP_READ_ROWS(x, a->rows)
    OP_MATRIX(q)
    OP_READ(q_scale, FLOATS(1))
    OP_MATRIX(k_b)
    OP_MATRIX(v_b)
    OP_VALUE(size_t, angle_stride)
    OP_READ(angles, FLOATS((a->rows - 1) * a->angle_stride + a->shape.rope))
    OP_READ(sinks, FLOATS(a->shape.heads))
    OP_WRITE_ROWS(mix, a->rows)
OP_END(latent_attention)

#include "lib/device/bank.h"
#include "lib/device/positions.h"
#include "lib/device/entries.h"

/* The short convolution of LFM2: rows (b | c | x) of `channels` each, `stride` floats apart; mix =
 * c * conv(b * x), floats; b is overwritten. conv: [taps][channels]; zeros: [channels]. */
OP(short_conv)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(uint32_t, taps)
    OP_VALUE(uint32_t, channels)
    OP_STATE(state, DEVICE_READS, (a->taps - 1) * (size_t)a->channels)
    OP_STATE(next_state, DEVICE_WRITES, (a->taps - 1) * (size_t)a->channels)
    OP_READ(conv, FLOATS((size_t)a->taps * a->channels))
    OP_READ(zeros, FLOATS(a->channels))
    OP_VALUE(size_t, stride)
    OP_WRITE(projected, FLOATS((a->rows - 1) * a->stride + (size_t)3 * a->channels))
    OP_WRITE_ROWS(mix, a->rows)
OP_END(short_conv)

/* A recurrence (struct recurrent_rule; host/recurrent.c has the steps) of rows of projections,
 * `stride` floats apart. q_weight, k_weight: of the norms of a head, if the rule has them.
 * conv_bias and skip (D) may be none. With fixed rates and decays, these are dt and decay. */
OP(recurrence)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_recurrence, shape)
    OP_STATE(state, DEVICE_READS, a->shape.layer.floats)
    OP_STATE(next_state, DEVICE_WRITES, a->shape.layer.floats)
    OP_READ(conv, FLOATS((size_t)a->shape.layer.taps * a->shape.layer.channels))
    OP_READ(conv_bias, FLOATS(a->shape.layer.channels))
    OP_READ(zeros, FLOATS(a->shape.layer.channels))
    OP_READ(dt, FLOATS(device_recurrent_decays(&a->shape.layer)))
    OP_READ(decay, FLOATS(a->shape.layer.heads))
    OP_READ(skip, FLOATS(a->shape.layer.heads))
    OP_READ(norm, FLOATS(device_recurrent_norm(&a->shape.layer)))
    OP_READ(q_weight, FLOATS(a->shape.layer.key_size))
    OP_READ(k_weight, FLOATS(a->shape.layer.key_size))
    OP_VALUE(size_t, stride)
    OP_READ(projected, FLOATS((a->rows - 1) * a->stride + a->shape.layer.projected))
    OP_WRITE_ROWS(mix, a->rows)
OP_END(recurrence)

/* A recurrence with decays of elements (Mamba-1): v = silu(conv + conv_bias) of the first channels
 * of a row, which becomes mix; select v is a first factor, k and q, each with a norm; step times
 * the former are the steps; rates and dt are their factors and biases. The row is continued by what
 * it selects and by the steps. mix = y silu(z), floats. */
OP(selective_scan)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, sequences)
    OP_HOST(struct device_row, row, a->rows)
    OP_SEQUENCES(sequence, a->sequences)
    OP_VALUE(struct device_recurrence, shape)
    OP_STATE(state, DEVICE_READS, a->shape.layer.floats)
    OP_STATE(next_state, DEVICE_WRITES, a->shape.layer.floats)
    OP_READ(conv, FLOATS((size_t)a->shape.layer.taps * a->shape.layer.channels))
    OP_READ(conv_bias, FLOATS(a->shape.layer.channels))
    OP_READ(zeros, FLOATS(a->shape.layer.channels))
    OP_MATRIX(select)
    OP_VALUE(uint32_t, select_forms)
    OP_MATRIX(step)
    OP_VALUE(uint32_t, step_forms)
    OP_READ(step_norm, FLOATS(a->shape.layer.step_rank))
    OP_READ(k_norm, FLOATS(a->shape.layer.key_size))
    OP_READ(q_norm, FLOATS(a->shape.layer.key_size))
    OP_READ(dt, FLOATS(a->shape.layer.mixed))
    OP_READ(rates, FLOATS((size_t)a->shape.layer.mixed * a->shape.layer.key_size))
    OP_READ(skip, FLOATS(a->shape.layer.mixed))
    OP_VALUE(size_t, stride)
    OP_WRITE(projected, FLOATS((a->rows - 1) * a->stride + a->shape.layer.projected))
    OP_WRITE_ROWS(first, a->rows)
    OP_WRITE_ROWS(mix, a->rows)
OP_END(selective_scan)

/* ---- a network that every row uses ---- */

/* y = activation(x gate) * (x up) within the limit, each product with its scale; floats. up_y:
 * [rows][outputs]. Without up (n 0), the product with gate takes its place, and there is no
 * up_y. */
OP(gate_up)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(enum ffn_activation, activation)
    OP_VALUE(struct ffn_limit, limit)
    OP_READ_ROWS(x, a->rows)
    OP_MATRIX(gate)
    OP_MATRIX(up)
    OP_READ(gate_scale, FLOATS(1))
    OP_READ(up_scale, FLOATS(1))
    OP_WRITE_ROWS(y, a->rows)
    OP_WRITE(up_y, FLOATS((size_t)a->rows * a->up.n))
OP_END(gate_up)

/* The forms of the rows y, and of each the sigmoid of x times w, a matrix of one row; without it
 * 1. */
OP(row_gates)
    OP_VALUE(uint32_t, rows)
    OP_READ_ROWS(x, a->rows)
    OP_MATRIX(w)
    OP_VALUE(uint32_t, forms)
    OP_WRITE_ROWS(y, a->rows)
    OP_WRITE(weight, FLOATS(a->rows))
OP_END(row_gates)

/* x += RMSNorm(RMSNorm(dense) + RMSNorm(experts)), each with its weights; then x *= scale, one
 * float. */
OP(join)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, n)
    OP_VALUE(float, eps)
    OP_READ(dense_weight, FLOATS(a->n))
    OP_READ(experts_weight, FLOATS(a->n))
    OP_READ(weight, FLOATS(a->n))
    OP_READ(scale, FLOATS(1))
    OP_WRITE(dense, FLOATS((size_t)a->rows * a->n))
    OP_WRITE(experts, FLOATS((size_t)a->rows * a->n))
    OP_WRITE(x, FLOATS((size_t)a->rows * a->n))
OP_END(join)

/* ---- router ---- */

/* Logits of all experts, and the exact choice: struct route [rows][top_k]. choice_bias: instead of
 * that of the rule. table: numbers of the experts that a token uses, in rows by tokens, which are
 * chosen then; each row has different ones of the model's. */
OP(route)
    OP_VALUE(uint32_t, rows)
    OP_HOST(struct device_row, row, a->rows)
    OP_MATRIX(table)
    OP_READ_ROWS(x, a->rows)
    OP_MATRIX(w)
    OP_READ(bias, FLOATS(a->w.n))
    OP_VALUE(struct model_router, rule)
    OP_READ(choice_bias, FLOATS(a->rule.experts))
    OP_WRITE(logits, FLOATS((size_t)a->rows * a->w.n))
    OP_WRITE(routes, (size_t)a->rows * a->rule.top_k * sizeof(struct route))
OP_END(route)

/* The choice again, of the logits of the experts in a set of at least top_k; of all: allowed NULL,
 * which has `masked` 0 instead of the number of experts. */
OP(choose)
    OP_VALUE(uint32_t, rows)
    OP_READ(logits, FLOATS((size_t)a->rows * a->rule.experts))
    OP_VALUE(uint32_t, masked)
    OP_HOST(bool, allowed, a->masked)
    OP_VALUE(struct model_router, rule)
    OP_READ(choice_bias, FLOATS(a->rule.experts))
    OP_WRITE(routes, (size_t)a->rows * a->rule.top_k * sizeof(struct route))
OP_END(choose)

/* For each expert, the sum of |x| * its weight over the rows whose choice contains it. The weights
 * are not normalised (weights.h of lib/core); x is in floats. */
OP(importance)
    OP_VALUE(uint32_t, rows)
    OP_READ_ROWS(x, a->rows)
    OP_READ(logits, FLOATS((size_t)a->rows * a->rule.experts))
    OP_VALUE(struct model_router, rule)
    OP_READ(choice_bias, FLOATS(a->rule.experts))
    OP_WRITE(importance, FLOATS(a->rule.experts))
OP_END(importance)

/* ---- experts ---- */

/* For each job, gate = activation(x gate) * (x up) within the limit, of its rows, with scales and
 * biases; without up as gate_up. pair_row: the row of each pair. gate, up: rows of n, those of a
 * job from inner_base on; up: of jobs that have it. */
OP(expert_gate_up)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, n)
    OP_VALUE(enum ffn_activation, activation)
    OP_VALUE(struct ffn_limit, limit)
    OP_READ_ROWS(x, a->rows)
    OP_VALUE(uint32_t, jobs)
    OP_JOBS(job, a->jobs)
    OP_VALUE(uint32_t, pairs)
    OP_HOST(uint32_t, pair_row, a->pairs)
    OP_VALUE(uint32_t, inner_rows)
    OP_WRITE(gate, FLOATS((size_t)a->inner_rows * a->n))
    OP_WRITE(up, FLOATS((size_t)a->inner_rows * a->n))
OP_END(expert_gate_up)

/* For each job, y of its pairs = gate down, with scale and bias; rows of n. Then the terms of row 0
 * are added to `into`, as add_terms does, when all experts of a single row are in the jobs. */
OP(expert_down)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, inner)
    OP_VALUE(uint32_t, n)
    OP_VALUE(uint32_t, jobs)
    OP_JOBS(job, a->jobs)
    OP_VALUE(uint32_t, inner_rows)
    OP_READ(gate, FLOATS((size_t)a->inner_rows * a->inner))
    OP_VALUE(uint32_t, pairs)
    OP_WRITE(y, FLOATS((size_t)a->pairs * a->n))
    OP_VALUE(uint32_t, terms)
    OP_HOST(struct device_term, term, a->terms)
    OP_WRITE(into, FLOATS(a->n))
OP_END(expert_down)

/* into[r] += the terms of the row, [rows][terms], in their order, whatever the order of the
 * jobs. */
OP(add_terms)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, n)
    OP_VALUE(uint32_t, terms)
    OP_HOST(struct device_term, term, (size_t)a->rows * a->terms)
    OP_READ(y, FLOATS((size_t)a->rows * a->terms * a->n))
    OP_WRITE(into, FLOATS((size_t)a->rows * a->n))
OP_END(add_terms)

/* ---- output ---- */

/* y = cap * tanh(z / cap) with z = (x w * scale + bias) / divisor; divisor, cap 0: without. */
OP(logits)
    OP_VALUE(uint32_t, rows)
    OP_READ_ROWS(x, a->rows)
    OP_MATRIX(w)
    OP_READ(scale, FLOATS(1))
    OP_READ(bias, FLOATS(a->w.n))
    OP_VALUE(float, divisor)
    OP_VALUE(float, cap)
    OP_WRITE(y, FLOATS((size_t)a->rows * a->w.n))
OP_END(logits)

/* Log-probability of a token under each row of logits. */
OP(score)
    OP_VALUE(uint32_t, rows)
    OP_VALUE(uint32_t, vocab)
    OP_READ(logits, FLOATS((size_t)a->rows * a->vocab))
    OP_HOST(uint32_t, token, a->rows)
    OP_WRITE(y, FLOATS(a->rows))
OP_END(score)

/* clang-format on */
#undef OP
#undef OP_READ
#undef OP_WRITE
#undef OP_MATRIX
#undef OP_READ_ROWS
#undef OP_WRITE_ROWS
#undef OP_CHOSEN
#undef OP_HOST
#undef OP_SEQUENCES
#undef OP_CACHE
#undef OP_INDEX
#undef OP_ENTRIES
#undef OP_STATE
#undef OP_PRODUCTS
#undef OP_JOBS
#undef OP_VALUE
#undef OP_END
#undef FLOATS
