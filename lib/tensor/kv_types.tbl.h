/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the KV cache.
 * KV_TYPE(NAME, name, block, block_bytes): a head row is blocks of `block` elements, its last one
 * filled up, of `block_bytes` bytes each, scales included. F32 is a reference for measurements;
 * `--kv-type` (config/params.tbl.h) does not offer it.
 * No include guard. */
KV_TYPE(F16, "f16", 1, 2)
KV_TYPE(Q8_0, "q8_0", 32, 34)
KV_TYPE(Q4_0, "q4_0", 32, 18)
KV_TYPE(F32, "f32", 1, 4)
#undef KV_TYPE
