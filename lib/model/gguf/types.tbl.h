/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the types of GGUF that no tensor may have: for the error that rejects them. The others
 * are in lib/tensor/tensor_types.tbl.h. Source: the GGUF specification. No include
 * guard: include it with GGUF_FOREIGN_TYPE defined.
 * GGUF_FOREIGN_TYPE(name, ggml_id) */
GGUF_FOREIGN_TYPE("Q4_2 (withdrawn)", 4)
GGUF_FOREIGN_TYPE("Q4_3 (withdrawn)", 5)
GGUF_FOREIGN_TYPE("Q8_1", 9)
GGUF_FOREIGN_TYPE("Q8_K", 15)
GGUF_FOREIGN_TYPE("I8", 24)
GGUF_FOREIGN_TYPE("I16", 25)
GGUF_FOREIGN_TYPE("I64", 27)
GGUF_FOREIGN_TYPE("F64", 28)
#undef GGUF_FOREIGN_TYPE
