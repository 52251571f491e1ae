/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that describe an architecture: each macro makes a struct arch_row of its kind (table.h).
 * Only the files of this directory include it. An architecture is an array of rows that ends with
 * END, and a line of arch.tbl.h. The keys, names and shapes are those of the GGUF files that
 * llama.cpp's converter writes, and of the models' published configurations.
 *
 * field: one of struct model_hparams. key: of the file, after the name of the architecture and a
 * dot. name: of a tensor; %u is the number of its layer. */
#ifndef SLUICE_MODEL_ARCH_FAMILIES_ROWS_H
#define SLUICE_MODEL_ARCH_FAMILIES_ROWS_H

#include <stddef.h>

#include "lib/model/arch/table.h"

#define ROW(kind_, ...)                                                                            \
    {                                                                                              \
        .kind = ARCH_##kind_, __VA_ARGS__                                                          \
    }
#define OFFSET(name)      (uint16_t) offsetof(struct model_hparams, name)
#define FIELD(name)       .field = #name, .offset = OFFSET(name)
#define RANGE(key_, a, b) .key = (key_), .min = (a), .max = (b)
#define ABSENCE_REQUIRED  true
#define ABSENCE_DERIVED   false

#define END         ROW(END, .group = NULL)
#define GROUP(rows) ROW(GROUP, .group = (rows)) /* the rows of another array */

/* ---- hyper-parameters ---- */

/* An integer; absence: REQUIRED, or DERIVED (arch.c computes it). */
#define UINT(field, key, min, max, absence)                                                        \
    ROW(UINT, FIELD(field), RANGE(key, min, max), .required = ABSENCE_##absence)
/* A bool, which becomes 0 or 1; 0 if it is absent. */
#define FLAG(field, key) ROW(FLAG, FIELD(field), RANGE(key, 0, 1))
/* A float that must be there; one that has this value if it is absent; and an older name of the key
 * of the next row, which is read if that one is absent. */
#define FLOAT(field, key, min, max) ROW(FLOAT, FIELD(field), RANGE(key, min, max), .required = true)
#define FLOAT_ELSE(field, key, min, max, value_)                                                   \
    ROW(FLOAT, FIELD(field), RANGE(key, min, max), .value = (value_))
#define FLOAT_OLD(field, key, min, max) ROW(FLOAT_OLD, FIELD(field), RANGE(key, min, max))
/* The field is this value, not 0, if the string is the text. One of the rows of a field must fit,
 * or the text is "none". */
#define TEXT(field, key_, text_, value_)                                                           \
    ROW(TEXT, FIELD(field), .key = (key_), .text = (text_), .value = (value_))
/* Another integer key of a field whose own key is absent; and one that is divided by the field
 * `by`. */
#define ELSE(field, key_) ROW(ELSE, FIELD(field), .key = (key_))
#define ELSE_SHARE(field, key_, by)                                                                \
    ROW(ELSE, FIELD(field), .key = (key_), .divided = true, .other = OFFSET(by))
/* The field is this value if it is absent or 0, and the file has a tensor of that name. */
#define TENSOR(field, name, value_) ROW(TENSOR, FIELD(field), .key = (name), .value = (value_))
/* The field is this value if the file lacks the key, which is one of another field, a float. */
#define LACKS(field, key_, value_) ROW(LACKS, FIELD(field), .key = (key_), .value = (value_))
/* The value of a field whose keys are absent or 0; and the value in models of so many layers and
 * tokens, before the row for all. */
#define DEFAULT(field, value_) ROW(DEFAULT, FIELD(field), .value = (value_))
#define DEFAULT_OF(field, layers_, vocab_, value_)                                                 \
    ROW(DEFAULT, FIELD(field), .layers = (layers_), .vocab = (vocab_), .value = (value_))
/* A field that is still 0 after all keys is a share of another one. */
#define SHARE(field, of, divisor_)                                                                 \
    ROW(SHARE, FIELD(field), .other = OFFSET(of), .divisor = (divisor_))
/* The field is this value where another one, which is read, has the value `is`. */
#define WHERE(field, value_, by, is_)                                                              \
    ROW(WHERE, FIELD(field), .value = (value_), .other = OFFSET(by), .is = (is_))
/* The field is this value if the tensor of that name has as many rows as the dimension says, whose
 * sizes do not depend on the field. */
#define WIDTH(field, name, dim_, value_)                                                           \
    ROW(WIDTH, FIELD(field), .key = (name), .value = (value_), .dim = ARCH_DIM_##dim_)
/* The key of an integer that is not read: files of this architecture have something else there. */
#define UNREAD(key_) ROW(UNREAD, .key = (key_))
/* The end of the message for a file that lacks this required key: what such a file is. */
#define MISSING(key_, what) ROW(MISSING, .key = (key_), .text = (what))
/* Fields without a key: an integer, a float, and the square root of another field. */
#define CONST(field, value_)       ROW(CONST, FIELD(field), .value = (value_))
#define CONST_FLOAT(field, value_) ROW(CONST_FLOAT, FIELD(field), .value = (value_))
#define ROOT(field, of)            ROW(ROOT, FIELD(field), .other = OFFSET(of))

/* ---- kinds of layers ---- */

/* The key of this field, which has a UINT row, may also be an array with a number per block. The
 * layers of a kind have the same number; that of layers with a window becomes <field>_window. */
#define ARRAY(field) ROW(ARRAY, FIELD(field##_window), .other = OFFSET(field))
/* An optional float of each layer, up to 1e6: an array with an element per block, or one number. */
#define LIMITS(field, key_) ROW(LIMITS, FIELD(field), .key = (key_))
/* A model with a window: the layers with number % period == at attend to all positions, the others
 * to the window. at: 0, or period - 1. The key attention.sliding_window_pattern replaces it: an
 * array of bool, true (or 1) for layers with a window, or another period. */
#define FULL_EVERY(period_, at_) ROW(FULL_EVERY, .period = (period_), .at = (at_))
/* Instead of it, an array of bool, one per block, true (or 1) for layers with a window. */
#define WINDOW_KEY(key_) ROW(WINDOW_KEY, .key = (key_))
/* An array with an element per block that states which layers are of kind LAYER_RECURRENT. list:
 * FLAGS (a bool, true) or HEADS (the number of key heads, 0; all other layers have the same).
 * Without the key: attention_step. */
#define RECURRENT_KEY(key_, list) ROW(RECURRENT_##list, .key = (key_))
/* The same of HEADS, for models that have attention: what a file is in which all are 0. */
#define RECURRENT_SOME(key_, what) ROW(RECURRENT_HEADS, .key = (key_), .text = (what))
/* Layers whose attention does not rotate: ALL; FULL, those that attend to all positions in a model
 * with a window; FULL_ROUTED, those of FULL after the first dense_layers. */
#define UNROTATED(which_) ROW(UNROTATED, .which = ARCH_UNROTATED_##which_)
/* Instead of it, an optional array with an element per block, true (or 1) for those that rotate. */
#define ROTATED_KEY(key_) ROW(ROTATED_KEY, .key = (key_))
/* A layer without the tensor of that name has no experts: the first ones are dense_layers, which
 * may be stated by its key, too; others are UNROUTED. */
#define ROUTER_NAME(name) ROW(ROUTER_NAME, .key = (name))
/* The key of the array with the number of the layer that has n-grams (struct model_ngrams), 0 for
 * the first one; without it there are none. What the others say: arch/ngrams. */
#define NGRAMS(key_) ROW(NGRAMS, FIELD(ngram_rows), .key = (key_))
/* Which layers have an indexer, if the model has one that the engine computes: an optional array of
 * bool (true or 1). Without the array, or without a key (NULL): all, if the context is shorter than
 * `sparse` tokens or that is 0, else the layers 0, 1 and 2 and each fourth one after these. */
#define INDEXED(key_, sparse_) ROW(INDEXED, .key = (key_), .value = (sparse_))
/* Instead of it: those after the first dense_layers; without MLA, the others attend to all. */
#define INDEXED_ROUTED ROW(INDEXED_ROUTED, .key = NULL)
/* The key of an array with the positions of an entry of each block: 0 (it has none),
 * MODEL_ENTRY_FEW, which has an indexer, too, or MODEL_ENTRY_MANY. */
#define ENTRIES(key_) ROW(ENTRIES, .key = (key_))
/* Blocks for drafting (skipped_layers) are there only if the first one has the tensor of that name,
 * whatever their key says. */
#define SKIPPED_NAME(name) ROW(SKIPPED_NAME, .key = (name))
/* index_block: an optional array with a number per block, or one number: in layers with attention
 * where it is r, not 0, a query attends to its own incomplete block of r positions, and of the
 * others to those that an indexer chooses, as many positions as index_top_k, whose key is the
 * second one. The indexer is computed if r is the same in all of these layers; else a context in
 * which they are not all chosen is not supported. */
#define CHOICE(key_, positions_)                                                                   \
    ROW(CHOICE, FIELD(index_block), .key = (key_), .text = (positions_))
/* The same in all layers with attention, of an index_block that has a UINT row. The positions are
 * whole blocks. */
#define CHOICE_WHOLE(positions_) ROW(CHOICE, FIELD(index_block), .key = NULL, .text = (positions_))
/* An array with a number per block, the inner size of its network: where it is not 0, the layer is
 * of kind LAYER_PLAIN, and not what other keys say. */
#define NETWORK_KEY(key_) ROW(NETWORK_KEY, .key = (key_))
/* The key of this field, which has a UINT row, may also be an array with a number per block, of
 * which those of layers with experts must be one number. */
#define SAME(field) ROW(SAME, FIELD(field))
/* What layers consist of (arch.h). which: UNROUTED (by ROUTER_NAME), LEADING (the first
 * dense_layers), RECURRENT, PLAIN (of these kinds), LEADING_RECURRENT, UNROUTED_RECURRENT (both),
 * or ALL others. The first row that fits a layer counts. */
#define LAYERS(which_, mixer_, ffn_)                                                               \
    ROW(LAYERS, .which = ARCH_WHICH_##which_, .mixer = MIXER_##mixer_, .ffn = FFN_##ffn_)

/* ---- keys that select computations, of which one is supported ---- */

/* The only value, if the key is there, of an integer or bool, and of a float. FLAG: a bool that
 * must be there. WHY: the reason, for the message. */
#define ONLY(key_, value_)          ROW(ONLY, .key = (key_), .value = (value_))
#define ONLY_FLAG(key_, value_)     ROW(ONLY, .key = (key_), .value = (value_), .required = true)
#define ONLY_FLOAT(key_, value_)    ROW(ONLY_FLOAT, .key = (key_), .value = (value_))
#define ONLY_WHY(key_, value_, why) ROW(ONLY_WHY, .key = (key_), .value = (value_), .text = (why))
/* An integer that must be below the limit. */
#define BELOW(key_, limit) ROW(BELOW, .key = (key_), .value = (limit))
/* A window that must be 0 or at least the context length, so that nothing is outside of it. */
#define WIDE(key_) ROW(WIDE, .key = (key_))

/* ---- keys that only other programs need: `sluice synth` writes them ---- */

/* An integer, and the value of a field. */
#define ALSO(key_, value_)      ROW(ALSO, .key = (key_), .value = (value_))
#define ALSO_FIELD(key_, field) ROW(ALSO_FIELD, FIELD(field), .key = (key_))
/* An array of 4 numbers: the rotated pairs by axis, which are one axis in texts. */
#define SECTIONS(key_) ROW(SECTIONS, .key = (key_))

/* ---- tensors ---- */

#define SHAPE(ne0, ne1, ne2) .ne = {ARCH_DIM_##ne0, ARCH_DIM_##ne1, ARCH_DIM_##ne2}

/* The tensor of a role of arch.h. It is required in, and restricted to, the layers that have its
 * part; it is not there if a dimension is 0. storage: FLOAT (F32, F16 or BF16: norms, biases and
 * most routers), ANY (every type of tensor_types.tbl.h), KEPT (every type, which `sluice pack
 * --dense` leaves as it is), or IDS (I32, which no others have). presence: REQUIRED; OPTIONAL;
 * ACCEPTED (optional, and not written by `sluice synth`); or WINDOW (optional only in layers
 * without a window). Dimensions: enum arch_dim. */
#define DENSE(role_, storage_, presence_, ne0, ne1)                                                \
    ROW(DENSE, .role = DENSE_##role_, .storage = ARCH_STORAGE_##storage_,                          \
        .presence = ARCH_PRESENCE_##presence_, SHAPE(ne0, ne1, ONE))
/* A dense tensor of ne2 matrices that are no experts. */
#define DENSE_3D(role_, storage_, presence_, ne0, ne1, ne2)                                        \
    ROW(DENSE, .role = DENSE_##role_, .storage = ARCH_STORAGE_##storage_,                          \
        .presence = ARCH_PRESENCE_##presence_, SHAPE(ne0, ne1, ne2))
/* The scale of a matrix, or the scales of those of all experts; the scale of its inputs is for
 * hardware with FP4. */
#define SCALE(matrix, name, ne)                                                                    \
    DENSE(matrix##_SCALE, FLOAT, OPTIONAL, ne, ONE), UNUSED(name ".input_scale")
#define SCALES(matrix, name, ne)                                                                   \
    DENSE(matrix##_SCALES, FLOAT, OPTIONAL, ne, ONE), UNUSED(name ".input_scale")
/* The name of a role in this architecture, where it is not the one in arch.h. */
#define NAME(role_, name) ROW(NAME, .role = DENSE_##role_, .key = (name))
/* Another name that files may have for the role. */
#define ALIAS(role_, name) ROW(ALIAS, .role = DENSE_##role_, .key = (name))
/* The tensor of all experts of a layer: one of the three matrices, or GATE_UP, which has, for each
 * expert, the rows of gate and then those of up. */
#define EXPERT(matrix, name, ne0, ne1)                                                             \
    ROW(EXPERT, .role = EXPERT_##matrix, .storage = ARCH_STORAGE_ANY, .key = (name),               \
        SHAPE(ne0, ne1, EXPERTS))
/* A known tensor that is not supported; a second %u in the name is a decimal number. */
#define REJECTED(name, why) ROW(REJECTED, .key = (name), .text = (why))
/* A known tensor that the engine does not need and leaves alone, whatever its shape. If a DENSE row
 * has the name, too: in layers that do not have the part of its role. */
#define UNUSED(name) ROW(UNUSED, .key = (name))

#endif
