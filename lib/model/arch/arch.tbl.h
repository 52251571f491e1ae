/* SPDX-License-Identifier: Apache-2.0 */
/* Every supported architecture, as data. No include guard: include it with the macros below
 * defined; macros not defined expand to nothing, and all are undefined at the end.
 *
 * ARCH(ID, name)
 *     name: general.architecture
 * ARCH_UINT(ID, field, key, min, max, absent)
 *     hyper-parameter from key "<name>.<key>"; absent: REQUIRED, or DERIVED (computed by arch.c)
 * ARCH_ARRAY(ID, field)
 *     the key of this field, which has an ARCH_UINT row, may also be an array with a number per
 *     block: the layers of a kind have the same; those of windows are <field>_window
 * ARCH_FULL_EVERY(ID, period, at)
 *     a model with a window: layers with number % period == at attend to all positions, all others
 *     to the window. at: 0, or period - 1. The key attention.sliding_window_pattern replaces it: an array
 *     of bool, true for layers with a window, or another period
 * ARCH_RECURRENT_KEY(ID, key, kind)
 *     array with an element per block that states which layers are of kind LAYER_RECURRENT; kind: FLAGS (a bool,
 *     true) or HEADS (key heads, 0; all others have the same number). Without it: attention_step
 * ARCH_WINDOW_KEY(ID, key)
 *     array of bool, one per block: true for layers with a window; instead of ARCH_FULL_EVERY
 * ARCH_FLOAT(ID, field, key, min, max)
 *     the same for a float, always required
 * ARCH_FLOAT_OR_0(ID, field, key, min, max)
 *     the same, 0 if absent
 * ARCH_FLOAT_ELSE(ID, field, key, min, max, value)
 *     the same, the value if absent
 * ARCH_FLOAT_OLD(ID, field, key, min, max)
 *     older name of a key, which the next row has: read if that is absent
 * ARCH_FLAG(ID, field, key)
 *     the same for a bool: 0 or 1, 0 if absent
 * ARCH_ELSE(ID, field, key)
 * ARCH_ELSE_SHARE(ID, field, key, by)
 *     another integer key that a field has whose own key is absent; divided by the field `by`
 * ARCH_TENSOR(ID, field, name, value)
 *     field is this value if the file has a tensor of that name
 * ARCH_DEFAULT(ID, field, value)
 *     value of a field whose key is absent or 0
 * ARCH_DEFAULT_OF(ID, field, layers, vocab, value)
 *     the same for models with so many layers and tokens; before the row for all
 * ARCH_MISSING(ID, key, what)
 *     what a file is that lacks this required key
 * ARCH_NAME(ID, role, name)
 *     name of a tensor in this architecture, where it is not the one in arch.h
 * ARCH_ROOT(ID, field, of)
 *     a float that is the square root of another field
 * ARCH_CONST(ID, field, value)
 *     fixed by the architecture, without a key
 * ARCH_CONST_FLOAT(ID, field, value)
 *     the same for a float
 * ARCH_TEXT(ID, field, key, text, value)
 *     field is this value if the string key is the text; other texts of the key, except "none", are
 *     rejected
 * ARCH_ONLY(ID, key, value)
 *     integer or bool key that must have this value if present
 * ARCH_ONLY_FLOAT(ID, key, value)
 *     the same for a float key
 * ARCH_BELOW(ID, key, limit)
 *     integer key that must be below the limit if present
 * ARCH_WIDE(ID, key)
 *     integer key of a window: if present, 0 or at least the context length, so that nothing is outside
 * ARCH_ONLY_TEXT(ID, key, text)
 *     string key that must have this value if present
 * ARCH_SECTIONS(ID, key)
 *     array of 4 numbers that other programs need: rotated pairs by axis; of text they are one axis
 * ARCH_ALSO(ID, key, value)
 * ARCH_ALSO_FIELD(ID, key, field)
 *     integer key that the engine does not need and other programs do: written by `sluice synth`
 * ARCH_LAYERS(ID, which, mixer, ffn)
 *     what these layers consist of (arch.h); which: LEADING (the first dense_layers), RECURRENT,
 *     LEADING_RECURRENT (both), or ALL others. The first row that fits a layer counts
 * ARCH_DENSE(ID, role, storage, presence, ne0, ne1)
 *     tensor of a role of arch.h; required in, and restricted to, the layers that have its part;
 *     not there if a dimension is 0
 * ARCH_DENSE_3D(ID, role, storage, presence, ne0, ne1, ne2)
 *     the same for a tensor of ne2 matrices that are no experts
 * ARCH_EXPERT(ID, matrix, name, ne0, ne1)
 *     3-D tensor of all experts of a layer; ne2 is EXPERTS
 * ARCH_JOINED(ID, matrix, name, ne0, ne1)
 *     the same for a tensor that replaces two of them: GATE_UP has, for each expert, the rows of
 *     gate and then those of up
 * ARCH_REJECTED(ID, name, why)
 *     known tensor that is not supported; %u in the name: a decimal number
 * ARCH_UNUSED(ID, name)
 *     known tensor that the engine does not need and leaves alone, whatever its shape
 *
 * storage: FLOAT (F32, F16 or BF16: norms, biases and most routers), ANY (every type of tensor_types.tbl.h), or KEPT
 * (every type, which `sluice pack --dense` leaves as it is).
 * presence: REQUIRED; OPTIONAL; ACCEPTED: optional, and not written by `sluice synth`; or WINDOW: optional only in layers
 * without a window. Dimensions: enum arch_dim in table.h.
 * Source of keys, names and shapes: the GGUF files that llama.cpp's converter writes, and the
 * model's published configuration. */
#ifndef ARCH
#define ARCH(id, name)
#endif
#ifndef ARCH_UINT
#define ARCH_UINT(id, field, key, min, max, absent)
#endif
#ifndef ARCH_ARRAY
#define ARCH_ARRAY(id, field)
#endif
#ifndef ARCH_FULL_EVERY
#define ARCH_FULL_EVERY(id, period, at)
#endif
#ifndef ARCH_RECURRENT_KEY
#define ARCH_RECURRENT_KEY(id, key, kind)
#endif
#ifndef ARCH_WINDOW_KEY
#define ARCH_WINDOW_KEY(id, key)
#endif
#ifndef ARCH_TEXT
#define ARCH_TEXT(id, field, key, text, value)
#endif
#ifndef ARCH_FLOAT
#define ARCH_FLOAT(id, field, key, min, max)
#endif
#ifndef ARCH_FLOAT_OR_0
#define ARCH_FLOAT_OR_0(id, field, key, min, max)
#endif
#ifndef ARCH_FLOAT_ELSE
#define ARCH_FLOAT_ELSE(id, field, key, min, max, value)
#endif
#ifndef ARCH_FLOAT_OLD
#define ARCH_FLOAT_OLD(id, field, key, min, max)
#endif
#ifndef ARCH_ELSE_SHARE
#define ARCH_ELSE_SHARE(id, field, key, by)
#endif
#ifndef ARCH_ELSE
#define ARCH_ELSE(id, field, key)
#endif
#ifndef ARCH_TENSOR
#define ARCH_TENSOR(id, field, name, value)
#endif
#ifndef ARCH_BELOW
#define ARCH_BELOW(id, key, limit)
#endif
#ifndef ARCH_FLAG
#define ARCH_FLAG(id, field, key)
#endif
#ifndef ARCH_DEFAULT
#define ARCH_DEFAULT(id, field, value)
#endif
#ifndef ARCH_DEFAULT_OF
#define ARCH_DEFAULT_OF(id, field, layers, vocab, value)
#endif
#ifndef ARCH_MISSING
#define ARCH_MISSING(id, key, what)
#endif
#ifndef ARCH_NAME
#define ARCH_NAME(id, role, name)
#endif
#ifndef ARCH_ROOT
#define ARCH_ROOT(id, field, of)
#endif
#ifndef ARCH_CONST_FLOAT
#define ARCH_CONST_FLOAT(id, field, value)
#endif
#ifndef ARCH_CONST
#define ARCH_CONST(id, field, value)
#endif
#ifndef ARCH_ONLY
#define ARCH_ONLY(id, key, value)
#endif
#ifndef ARCH_ONLY_FLOAT
#define ARCH_ONLY_FLOAT(id, key, value)
#endif
#ifndef ARCH_WIDE
#define ARCH_WIDE(id, key)
#endif
#ifndef ARCH_ONLY_TEXT
#define ARCH_ONLY_TEXT(id, key, text)
#endif
#ifndef ARCH_SECTIONS
#define ARCH_SECTIONS(id, key)
#endif
#ifndef ARCH_ALSO
#define ARCH_ALSO(id, key, value)
#endif
#ifndef ARCH_ALSO_FIELD
#define ARCH_ALSO_FIELD(id, key, field)
#endif
#ifndef ARCH_LAYERS
#define ARCH_LAYERS(id, which, mixer, ffn)
#endif
#ifndef ARCH_DENSE
#define ARCH_DENSE(id, role, storage, presence, ne0, ne1)
#endif
#ifndef ARCH_DENSE_3D
#define ARCH_DENSE_3D(id, role, storage, presence, ne0, ne1, ne2)
#endif
#ifndef ARCH_EXPERT
#define ARCH_EXPERT(id, matrix, name, ne0, ne1)
#endif
#ifndef ARCH_JOINED
#define ARCH_JOINED(id, matrix, name, ne0, ne1)
#endif
#ifndef ARCH_REJECTED
#define ARCH_REJECTED(id, name, why)
#endif
#ifndef ARCH_UNUSED
#define ARCH_UNUSED(id, name)
#endif

#include "lib/model/arch/families/common.rows"
#include "lib/model/arch/families/deepseek.rows"
#include "lib/model/arch/families/gemma.rows"
#include "lib/model/arch/families/glm.rows"
#include "lib/model/arch/families/gptoss.rows"
#include "lib/model/arch/families/granite.rows"
#include "lib/model/arch/families/lfm.rows"
#include "lib/model/arch/families/ling.rows"
#include "lib/model/arch/families/llama.rows"
#include "lib/model/arch/families/olmoe.rows"
#include "lib/model/arch/families/others.rows"
#include "lib/model/arch/families/qwen.rows"

#undef ARCH_LEADING_DENSE
#undef ARCH_DENSE_FFN
#undef ARCH_DEFAULT_OF
#undef ARCH_MISSING
#undef ARCH_UNGATED_SHARED
#undef ARCH_SIGMOID
#undef ARCH_ARRAY
#undef ARCH_FULL_EVERY
#undef ARCH_WINDOW_KEY
#undef ARCH_RECURRENT_KEY
#undef ARCH_DELTANET
#undef ARCH_GATED_SHARED
#undef OLD_DELTANET
#undef ARCH_TEXT
#undef ARCH_TRANSFORMER
#undef ARCH_NO_WINDOW
#undef ARCH_SCALING
#undef ARCH_SCALING_KEYS
#undef ARCH_BIASES
#undef ARCH_EXPERT_INNER
#undef ARCH_FLOAT_ELSE
#undef ARCH_FLOAT_OLD
#undef ARCH_ELSE
#undef ARCH_ELSE_SHARE
#undef ARCH_TENSOR
#undef ARCH_BELOW
#undef ARCH_ATTENTION
#undef ARCH_JOINED_ATTENTION
#undef ARCH_ATTENTION_ENDS
#undef ARCH_ATTENTION_OUT
#undef ARCH_SIZES
#undef ARCH_SHARED_WIDTH
#undef ARCH_WIDE
#undef ARCH_EXPERT_FFN
#undef ARCH_ROUTED_FFN
#undef ARCH_FLOAT_OR_0
#undef ARCH_FLAG
#undef ARCH_DEFAULT
#undef ARCH_NAME
#undef ARCH_COMMON
#undef ARCH_SCALE
#undef ARCH_SCALES
#undef ARCH_ALL_EXPERTS
#undef ARCH_SOFTMAX
#undef OLD_EXPERTS
#undef ARCH
#undef ARCH_UINT
#undef ARCH_FLOAT
#undef ARCH_ROOT
#undef ARCH_CONST_FLOAT
#undef ARCH_CONST
#undef ARCH_ONLY
#undef ARCH_ONLY_FLOAT
#undef ARCH_ONLY_TEXT
#undef ARCH_ALSO
#undef ARCH_SECTIONS
#undef ARCH_ALSO_FIELD
#undef ARCH_LAYERS
#undef ARCH_DENSE
#undef ARCH_DENSE_3D
#undef ARCH_EXPERT
#undef ARCH_JOINED
#undef ARCH_REJECTED
#undef ARCH_UNUSED
