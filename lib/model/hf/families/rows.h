/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that describe the models of Hugging Face: each macro makes a struct hf_row of its kind
 * (internal.h). Only the files of this directory include it. A model is an array of rows that ends
 * with END, and a line of hf.tbl.h. The sources are the published configurations and checkpoints of
 * the models, the documentation of the transformers package, and the output of llama.cpp's
 * converter.
 *
 * field: of config.json. A field a.b is in the object a; other fields may also be in
 * rope_parameters or rope_scaling. key: of GGUF, after the name of the architecture and a dot.
 * presence: REQUIRED, or OPTIONAL (the field may be absent or null). */
#ifndef SLUICE_MODEL_HF_FAMILIES_ROWS_H
#define SLUICE_MODEL_HF_FAMILIES_ROWS_H

#include "lib/model/hf/internal.h"

#define ROW(kind_, ...)                                                                            \
    {                                                                                              \
        .kind = HF_##kind_, __VA_ARGS__                                                            \
    }
#define PRESENCE(presence_) .presence = HF_PRESENCE_##presence_

#define END         ROW(END, .group = NULL)
#define GROUP(rows) ROW(GROUP, .group = (rows)) /* the rows of another array */

/* ---- numbers ---- */

/* A number, or true or false. Of several rows with the same key, the first whose field is there
 * counts. */
#define UINT(field_, key_, presence) ROW(UINT, .field = #field_, .key = (key_), PRESENCE(presence))
#define FLOAT(field_, key_, presence)                                                              \
    ROW(FLOAT, .field = #field_, .key = (key_), PRESENCE(presence))
#define BOOL(field_, key_, presence) ROW(BOOL, .field = #field_, .key = (key_), PRESENCE(presence))
/* An optional array of whole numbers, one per layer. It counts before later rows of its key. */
#define LISTED(field_, key_) ROW(LISTED, .field = #field_, .key = (key_), PRESENCE(OPTIONAL))
/* The number of layers of that name in layer_types: the field, or its default. All these rows make
 * one array, with an element per layer; a LISTED row of their key may be there, too, with the same
 * numbers. */
#define TYPED(name_, field_, otherwise, key_)                                                      \
    ROW(TYPED, .text = (name_), .field = #field_, .value = (otherwise), .key = (key_))
/* An optional number / 10. */
#define TENTH(field_, key_) ROW(TENTH, .field = #field_, .key = (key_), PRESENCE(OPTIONAL))
/* The part of a head that is rotated, as a fraction, becomes its number of elements. */
#define ROTATED(field_, key_) ROW(ROTATED, .field = #field_, .key = (key_), PRESENCE(OPTIONAL))
/* rope_theta * alpha^(n / (n - 2)), n: elements of a head; nothing if the field is absent. */
#define ALPHA(field_, key_) ROW(ALPHA, .field = #field_, .key = (key_), PRESENCE(OPTIONAL))
/* The number of first layers without experts, or a text with the numbers of those that have some;
 * without the field, that of leading "dense" in mlp_layer_types, which must be "sparse" after them,
 * or of leading 0 in moe_layer_freq, then 1. */
#define LEADING(field_, key_) ROW(LEADING, .field = #field_, .key = (key_), PRESENCE(REQUIRED))
/* The same with other names in mlp_layer_types. */
#define LEADING_OF(first, rest, field_, key_)                                                      \
    ROW(LEADING, .field = #field_, .key = (key_), .text = (first), .with = (rest),                 \
        PRESENCE(REQUIRED))
/* The sum and the product of two required whole numbers; two fields, also lists, that must be the
 * same or both absent. */
#define SUM(a, b, key_)     ROW(SUM, .field = #a, .key = (key_), .with = #b)
#define PRODUCT(a, b, key_) ROW(PRODUCT, .field = #a, .key = (key_), .with = #b)
#define EQUAL(a, b)         ROW(EQUAL, .field = #a, .with = #b)
/* The field, if present, is true unless the number `other` is this value. */
#define UNLESS(field_, other, value_)                                                              \
    ROW(UNLESS, .field = #field_, .with = #other, .value = (value_))
/* A required whole number, of models whose field `other` is that text. */
#define WITH(other, text_, field_, key_)                                                           \
    ROW(WITH, .field = #field_, .key = (key_), .with = #other, .text = (text_))
/* Numbers that are the same for all models of the architecture; SET: a bool, which is true. */
#define KEY(key_, value_)    ROW(KEY, .key = (key_), .value = (value_))
#define SET(key_)            ROW(SET, .key = (key_))
#define NUMBER(key_, value_) ROW(NUMBER, .key = (key_), .number = (value_))
/* A number by whether the field is true. */
#define CHOICE(field_, key_, yes_, no_)                                                            \
    ROW(CHOICE, .field = #field_, .key = (key_), .yes = (yes_), .no = (no_))

/* ---- values that are supported ---- */

/* The field, if present, must be one of these JSON values, in compact form, separated by spaces;
 * "*": any. */
#define MUST(field_, accepted) ROW(MUST, .field = #field_, .text = (accepted), PRESENCE(OPTIONAL))
/* A field that must be there, with one of these values. */
#define HAS(field_, accepted) ROW(MUST, .field = #field_, .text = (accepted), PRESENCE(REQUIRED))
/* A quant_method that rows of tensors have forms for; FP8 with a scale per block is always
 * accepted. */
#define QUANTISED(method) ROW(QUANTISED, .text = (method))
/* A type of rotary embedding besides "default", and rope.scaling.type of GGUF. home "": of all
 * layers; else the path of an object that must have this type, or that of another row with the same
 * path; it may be absent if another path is there. needs: a field that must be there,
 * or "". */
#define ROPE(home, type_, scaling_, needs_)                                                        \
    ROW(ROPE, .field = (home), .text = (type_), .scaling = (scaling_), .needs = (needs_))

/* ---- kinds of layers ---- */

/* The other kind of layer_types, besides "full_attention". Several rows: models of several
 * versions. NAMED: the kind with attention has that name. */
#define OTHER(kind_)              ROW(OTHER, .text = (kind_), .with = "full_attention")
#define OTHER_NAMED(kind_, full_) ROW(OTHER, .text = (kind_), .with = (full_))
/* The name in layer_types of the only kind there is. */
#define ALIKE(kind_) ROW(OTHER, .with = (kind_))
/* Without layer_types, an array with a number per layer: 1 for the other kind, 0 for layers that
 * attend to all positions. */
#define KINDS_LISTED(field_) ROW(KINDS_LISTED, .field = #field_)
/* The same the other way round: 0 for the other kind. */
#define FULL_FLAGS(field_) ROW(KINDS_LISTED, .field = #field_, .text = "full")
/* Layers with number % period == at attend to all positions, the others are of the other kind. */
#define FIXED(period_, at_) ROW(FIXED, .period = (period_), .at = (at_))
/* An optional list, empty or of 0 and 1, 0 for the layers with number % period == at. */
#define ROTATES(field_, period_, at_)                                                              \
    ROW(ROTATES, .field = #field_, .period = (period_), .at = (at_))
/* Without layer_types, each layer of that number attends to all positions: the field, or its
 * default. */
#define INTERVAL(field_, otherwise) ROW(INTERVAL, .field = #field_, .value = (otherwise))
/* The same, and so do the layers after the last whole number of those. */
#define INTERVAL_REST(field_, otherwise)                                                           \
    ROW(INTERVAL, .field = #field_, .value = (otherwise), .text = "rest")
/* Without layer_types, a list of the layers that attend to all positions, the first is 1. */
#define FULL_LISTED(field_) ROW(FULL_LISTED, .field = #field_)
/* Without layer_types, layers with number % period == offset attend to all positions, by two
 * fields; and only such layers have experts. */
#define FULL_PERIOD(period_, offset_)   ROW(FULL_PERIOD, .field = #period_, .with = #offset_)
#define EXPERT_PERIOD(period_, offset_) ROW(EXPERT_PERIOD, .field = #period_, .with = #offset_)
/* An array of bool, true for a layer of the other kind. */
#define LAYER_FLAGS(key_) ROW(LAYER_FLAGS, .key = (key_))
/* An array of bool, true for a layer that is rotated: by a list of 0 and 1, or by the list
 * `bases`, in which a layer has 0, or the base that all others have. Nothing without lists. */
#define LAYER_ROTATED(field_, bases, key_)                                                         \
    ROW(LAYER_ROTATED, .field = #field_, .with = #bases, .key = (key_))
/* An array of numbers: the field for layers that attend to all positions, and for the others; "":
 * 0. */
#define LAYER_UINTS(full, other, key_)                                                             \
    ROW(LAYER_UINTS, .field = (full), .with = (other), .key = (key_))
/* The same with the number 1 for the former. */
#define LAYER_ONES(key_) ROW(LAYER_ONES, .key = (key_))
/* A number that may be a list with one per layer, the same for all of a kind: of layers that attend
 * to all positions, and of the others. KINDS: these two must be the numbers, if the field is there.
 */
#define BY_KIND(field_, full, other)                                                               \
    ROW(BY_KIND, .field = #field_, .key = (full), .with = (other), PRESENCE(REQUIRED))
#define KINDS(field_, full_, other_)                                                               \
    ROW(KINDS, .field = #field_, .full = (full_), .other = (other_), PRESENCE(OPTIONAL))
/* An optional list of a number for each layer, null for 0. */
#define LIMITS(field_, key_) ROW(LIMITS, .field = #field_, .key = (key_))
/* An array of bool, true for a layer with an indexer: by an optional list of "full" and "shared",
 * or an optional text with a letter F or S for each layer, or a period. */
#define INDEXERS(list, letters, key_) ROW(INDEXERS, .field = #list, .with = #letters, .key = (key_))
/* Each layer is attention, the other mixer, or experts alone: a list of kinds, or a text of *, M
 * and E. NETWORK_UINTS: an array of numbers, the field for layers of experts, 0 for the others. */
#define PATTERN(list, letters)      ROW(PATTERN, .field = #list, .with = #letters)
#define NETWORK_UINTS(field_, key_) ROW(NETWORK_UINTS, .field = #field_, .key = (key_))
/* Arrays of 0 and 1, an element per layer. Layers with a window, and those that are rotated, are
 * all but number % period == at, and then the key gets `size`; or no layer has a window and all are
 * rotated. */
#define LAYOUT(windows, rotated, period_, at_, size_, key_)                                        \
    ROW(LAYOUT, .field = #windows, .with = #rotated, .key = (key_), .size = #size_,                \
        .period = (period_), .at = (at_))
/* The number of layers that attend to all positions: the field `global` if the flag `gate` is not
 * false, else that of these layers in per_layer_config, else the field. EACH: an array, in which
 * the other layers have that of the field. */
#define FULL(field_, global, gate_, key_)                                                          \
    ROW(FULL, .field = #field_, .with = #global, .key = (key_), .gate = (gate_))
#define EACH(field_, global, gate_, key_)                                                          \
    ROW(EACH, .field = #field_, .with = #global, .key = (key_), .gate = (gate_))

/* ---- tensors: name of the checkpoint (the first %u is the layer), gguf: name in GGUF ---- */

/* form: rows.tbl.h. presence: REQUIRED, OPTIONAL; DENSE and EXPERTS: required in layers without
 * and with experts, not looked for in the others; SHARED: as EXPERTS, of models with shared
 * experts (expert_shared_count); FULL and OTHER: required in layers with
 * attention over all positions, or of the other kind (OTHER), and not looked for in the others.
 * Of several rows with the same `gguf` in a layer, the first whose tensor is there counts, also
 * of experts. */
#define DENSE(name, gguf, form_, presence)                                                         \
    ROW(DENSE, .field = (name), .key = (gguf), .form = HF_FORM_##form_, PRESENCE(presence))
/* A vector, times that of another name. */
#define DENSE_TIMES(name, factor, gguf, presence)                                                  \
    ROW(DENSE, .field = (name), .with = (factor), .key = (gguf), .form = HF_FORM_F32_PRODUCT,      \
        PRESENCE(presence))
/* The matrix of one expert, whose number is the second %u, also in another form; and the matrices
 * of all experts of a layer in one tensor. */
#define EXPERT(name, gguf) ROW(EXPERT, .field = (name), .key = (gguf), .form = HF_FORM_MATRIX)
#define EXPERT_AS(name, gguf, form_)                                                               \
    ROW(EXPERT, .field = (name), .key = (gguf), .form = HF_FORM_##form_)
#define EXPERTS(name, gguf, form_)                                                                 \
    ROW(EXPERTS, .field = (name), .key = (gguf), .form = HF_FORM_##form_)
/* A tensor that identifies a known, unsupported form of the model. */
#define REJECTED(name, why) ROW(REJECTED, .field = (name), .text = (why))
/* N-grams of the layer in the list, the first is 1, whose table has so many parts; tensors: where
 * the names of their tensors begin. */
#define NGRAMS(layers, parts, tensors)                                                             \
    ROW(NGRAMS, .field = #layers, .with = #parts, .text = (tensors))
/* A tensor of the numbers of an optional array, which are positive. */
#define NUMBERS(gguf, field_) ROW(NUMBERS, .field = #field_, .key = (gguf))
/* A tensor of the divisors of the frequencies of layers that attend to all positions, of which
 * the part of a head is rotated, as the type llama3 has them; 1 for the rest of a head. theta:
 * the field of the base. */
#define LLAMA3(gguf, theta, part_) ROW(LLAMA3, .field = #theta, .key = (gguf), .rotated = (part_))
/* A tensor of the divisors of the frequencies: 1 for the first part of the elements of a head
 * (FULL), then numbers that make their rotation 0. */
#define UNROTATED(gguf, field_, global, part_)                                                     \
    ROW(UNROTATED, .field = #field_, .with = #global, .key = (gguf), .part = #part_)

#endif
