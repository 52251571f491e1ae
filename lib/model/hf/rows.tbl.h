/* SPDX-License-Identifier: Apache-2.0 */
/* Says as data how the tensors of GGUF are made of those of a checkpoint. No include guard: include
 * it with the macros below defined; macros not defined expand to nothing, and all are undefined at
 * the end.
 *
 * HF_SIZE(name, field)
 *     a size of config.json that the expressions below use; 0 if it is absent
 * HF_AXIS(name, total)
 *     a choice or order of rows or columns of the source; total: how many the source must have
 * HF_SEGMENT(name, first, n0, s0, n1, s1, n2, s2)
 *     the next n0 * n1 * n2 indices of the axis: digits i0, i1, i2, the last one fastest, are the
 *     source's first + i0 * s0 + i1 * s1 + i2 * s2
 * HF_FORM(name, storage, value, turned, planes, rows, columns)
 *     storage: TYPE (of the source; I8 is MXFP4 with two elements in a byte of a row, and scales
 *     in a tensor of its own), PACKED (the same as U8, ..._packed and ..._scale), F32 (converted),
 *     PRODUCT (F32, times the tensor that the row names), MXFP4 (of ..._blocks and ..._scales),
 *     IDS (I32)
 *     value: SAME, PLUS_1, EXP, MINUS_EXP (-e^x), OF_LATENT (x sqrt(hidden / elements)); only with
 *     storage F32
 *     turned: 1: rows of the tensor are columns of the source
 *     planes: ONE matrix, or one of each of HEADS, WINDOW_HEADS or EXPERTS, from as many parts of
 *     the rows of the source; GROUPS: a vector as one matrix with a row per group
 *     rows, columns: axes of the tensor; a vector has columns only
 *
 * The expressions are of uint64_t: `all` is the size of the source in that direction, in a plane;
 * the sizes above; head_count, kv_head_count; share = v_heads / k_heads (0 without).
 *
 * Sources: the layouts in the models' code of the transformers package, and the output of
 * llama.cpp's converter. */
#ifndef HF_SIZE
#define HF_SIZE(name, field)
#endif
#ifndef HF_AXIS
#define HF_AXIS(name, total)
#endif
#ifndef HF_SEGMENT
#define HF_SEGMENT(name, first, n0, s0, n1, s1, n2, s2)
#endif
#ifndef HF_FORM
#define HF_FORM(name, storage, value, turned, planes, rows, columns)
#endif

HF_SIZE(k_heads, linear_num_key_heads)
HF_SIZE(v_heads, linear_num_value_heads)
HF_SIZE(delta, linear_key_head_dim)
HF_SIZE(nope, qk_nope_head_dim)
HF_SIZE(value, v_head_dim)
HF_SIZE(groups, n_groups)
HF_SIZE(hidden, hidden_size)
HF_SIZE(window_heads, swa_num_attention_heads)
HF_SIZE(window_nope, swa_qk_nope_head_dim)
HF_SIZE(window_value, swa_v_head_dim)
HF_SIZE(index_heads, indexer_n_heads)
HF_SIZE(index_size, indexer_head_dim)

HF_AXIS(ALL, all)
HF_SEGMENT(ALL, 0, all, 1, 1, 0, 1, 0)

/* Rotation: element i of a head turns with i + n/2 in the checkpoint, 2i with 2i + 1 in GGUF, for
 * architectures that rotate pairs: row i + j * n/2 (j = 0, 1) becomes row 2i + j. */
HF_AXIS(Q_PAIRS, head_count *(all / head_count / 2) * 2)
HF_SEGMENT(Q_PAIRS, 0, head_count, all / head_count, all / head_count / 2, 1, 2,
           all / head_count / 2)
HF_AXIS(K_PAIRS, kv_head_count *(all / kv_head_count / 2) * 2)
HF_SEGMENT(K_PAIRS, 0, kv_head_count, all / kv_head_count, all / kv_head_count / 2, 1, 2,
           all / kv_head_count / 2)

/* Two matrices in one: one after the other, or row by row. */
HF_AXIS(FIRST_HALF, all / 2 * 2)
HF_SEGMENT(FIRST_HALF, 0, all / 2, 1, 1, 0, 1, 0)
HF_AXIS(SECOND_HALF, all / 2 * 2)
HF_SEGMENT(SECOND_HALF, all / 2, all / 2, 1, 1, 0, 1, 0)
HF_AXIS(EVEN, all / 2 * 2)
HF_SEGMENT(EVEN, 0, all / 2, 2, 1, 0, 1, 0)
HF_AXIS(ODD, all / 2 * 2)
HF_SEGMENT(ODD, 1, all / 2, 2, 1, 0, 1, 0)

/* MLA: of each head, rows for keys, then rows for values. */
HF_AXIS(NOPE, nope + value)
HF_SEGMENT(NOPE, 0, nope, 1, 1, 0, 1, 0)
HF_AXIS(VALUE, nope + value)
HF_SEGMENT(VALUE, nope, value, 1, 1, 0, 1, 0)
HF_AXIS(WINDOW_NOPE, window_nope + window_value)
HF_SEGMENT(WINDOW_NOPE, 0, window_nope, 1, 1, 0, 1, 0)
HF_AXIS(WINDOW_VALUE, window_nope + window_value)
HF_SEGMENT(WINDOW_VALUE, window_nope, window_value, 1, 1, 0, 1, 0)

/* An indexer: rows of its heads, then those of its key. */
HF_AXIS(INDEX_Q, (index_heads + 1) * index_size)
HF_SEGMENT(INDEX_Q, 0, index_heads, index_size, index_size, 1, 1, 0)
HF_AXIS(INDEX_K, (index_heads + 1) * index_size)
HF_SEGMENT(INDEX_K, index_heads *index_size, index_size, 1, 1, 0, 1, 0)

/* Gated DeltaNet. The v heads of a k head are next to each other in the checkpoint; v head h has k
 * head h % k_heads in GGUF (TILED). */
HF_AXIS(V_TILED, k_heads *share *delta)
HF_SEGMENT(V_TILED, 0, share, delta, k_heads, share *delta, delta, 1)
HF_AXIS(HEADS, all) /* the first numbers; a checkpoint may have more */
HF_SEGMENT(HEADS, 0, head_count, 1, 1, 0, 1, 0)
HF_AXIS(V_NUMBERS_TILED, k_heads *share)
HF_SEGMENT(V_NUMBERS_TILED, 0, share, 1, k_heads, share, 1, 0)
HF_AXIS(QKV_TILED, (2 + share) * k_heads * delta)
HF_SEGMENT(QKV_TILED, 0, 2 * k_heads * delta, 1, 1, 0, 1, 0)
HF_SEGMENT(QKV_TILED, 2 * k_heads * delta, share, delta, k_heads, share *delta, delta, 1)
/* The same where each k head has its q, k, v and z next to each other. */
HF_AXIS(QKV_GROUPED, (2 + 2 * share) * k_heads * delta)
HF_SEGMENT(QKV_GROUPED, 0, k_heads, (2 + 2 * share) * delta, delta, 1, 1, 0)
HF_SEGMENT(QKV_GROUPED, delta, k_heads, (2 + 2 * share) * delta, delta, 1, 1, 0)
HF_SEGMENT(QKV_GROUPED, 2 * delta, k_heads, (2 + 2 * share) * delta, share *delta, 1, 1, 0)
HF_AXIS(Z_GROUPED, (2 + 2 * share) * k_heads * delta)
HF_SEGMENT(Z_GROUPED, (2 + share) * delta, k_heads, (2 + 2 * share) * delta, share *delta, 1, 1, 0)

HF_FORM(MATRIX, TYPE, SAME, 0, ONE, ALL, ALL)
HF_FORM(F32, F32, SAME, 0, ONE, ALL, ALL)
HF_FORM(IDS, IDS, SAME, 0, ONE, ALL, ALL)
HF_FORM(F32_PRODUCT, PRODUCT, SAME, 0, ONE, ALL, ALL)
HF_FORM(PACKED, PACKED, SAME, 0, ONE, ALL, ALL)
HF_FORM(F32_GROUPS, F32, SAME, 0, GROUPS, ALL, ALL)
HF_FORM(F32_PLUS_1, F32, PLUS_1, 0, ONE, ALL, ALL)
HF_FORM(Q_ROWS, TYPE, SAME, 0, ONE, Q_PAIRS, ALL)
HF_FORM(K_ROWS, TYPE, SAME, 0, ONE, K_PAIRS, ALL)
HF_FORM(FIRST_ROWS, TYPE, SAME, 0, ONE, FIRST_HALF, ALL)
HF_FORM(SECOND_ROWS, TYPE, SAME, 0, ONE, SECOND_HALF, ALL)
HF_FORM(EVEN_COLUMNS, F32, SAME, 0, ONE, ALL, EVEN)
HF_FORM(ODD_COLUMNS, F32, SAME, 0, ONE, ALL, ODD)
HF_FORM(INDEX_Q, TYPE, SAME, 0, ONE, INDEX_Q, ALL)
HF_FORM(INDEX_K, TYPE, SAME, 0, ONE, INDEX_K, ALL)
HF_FORM(MLA_K, TYPE, SAME, 1, HEADS, ALL, NOPE)
HF_FORM(MLA_V, TYPE, SAME, 0, HEADS, VALUE, ALL)
HF_FORM(MLA_K_WINDOW, TYPE, SAME, 1, WINDOW_HEADS, ALL, WINDOW_NOPE)
HF_FORM(MLA_V_WINDOW, TYPE, SAME, 0, WINDOW_HEADS, WINDOW_VALUE, ALL)
HF_FORM(F32_OF_LATENT, F32, OF_LATENT, 0, ONE, ALL, ALL)
HF_FORM(DELTA_QKV, TYPE, SAME, 0, ONE, QKV_TILED, ALL)
HF_FORM(DELTA_V_ROWS, TYPE, SAME, 0, ONE, V_TILED, ALL)
HF_FORM(DELTA_V_COLUMNS, TYPE, SAME, 0, ONE, ALL, V_TILED)
HF_FORM(DELTA_GATE_ROWS, TYPE, SAME, 0, ONE, V_NUMBERS_TILED, ALL)
HF_FORM(DELTA_CONV, F32, SAME, 0, ONE, QKV_TILED, ALL)
HF_FORM(DELTA_DT, F32, SAME, 0, ONE, ALL, V_NUMBERS_TILED)
HF_FORM(DELTA_A, F32, MINUS_EXP, 0, ONE, ALL, V_NUMBERS_TILED)
HF_FORM(DELTA_A_GROUPED, F32, MINUS_EXP, 0, ONE, ALL, ALL)
HF_FORM(DELTA_A_HEADS, F32, MINUS_EXP, 0, ONE, ALL, HEADS)
HF_FORM(STATE_A, F32, MINUS_EXP, 1, ONE, ALL, ALL)
HF_FORM(STATE_RATE, F32, EXP, 1, ONE, ALL, ALL)
HF_FORM(STATE_D, F32, SAME, 1, ONE, ALL, ALL)
HF_FORM(DELTA_QKV_GROUPED, TYPE, SAME, 0, ONE, QKV_GROUPED, ALL)
HF_FORM(DELTA_Z_GROUPED, TYPE, SAME, 0, ONE, Z_GROUPED, ALL)
/* Experts of a layer in one tensor. */
HF_FORM(STACK, TYPE, SAME, 0, EXPERTS, ALL, ALL)
HF_FORM(STACK_FIRST, TYPE, SAME, 0, EXPERTS, FIRST_HALF, ALL)
HF_FORM(STACK_SECOND, TYPE, SAME, 0, EXPERTS, SECOND_HALF, ALL)
HF_FORM(STACK_TURNED, TYPE, SAME, 1, EXPERTS, ALL, ALL)
HF_FORM(STACK_TURNED_FIRST, TYPE, SAME, 1, EXPERTS, FIRST_HALF, ALL)
HF_FORM(STACK_TURNED_SECOND, TYPE, SAME, 1, EXPERTS, SECOND_HALF, ALL)
HF_FORM(STACK_TURNED_EVEN, TYPE, SAME, 1, EXPERTS, EVEN, ALL)
HF_FORM(STACK_TURNED_ODD, TYPE, SAME, 1, EXPERTS, ODD, ALL)
HF_FORM(MXFP4, MXFP4, SAME, 0, EXPERTS, ALL, ALL)
HF_FORM(MXFP4_EVEN, MXFP4, SAME, 0, EXPERTS, EVEN, ALL)
HF_FORM(MXFP4_ODD, MXFP4, SAME, 0, EXPERTS, ODD, ALL)

#undef HF_SIZE
#undef HF_AXIS
#undef HF_SEGMENT
#undef HF_FORM
