/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets that have kernels, slowest first. The numbers are stored in shared memory.
 * ISA(NAME, name)
 * No include guard. */
ISA(GENERIC, "generic")
ISA(AVX2, "avx2")
ISA(AVX512, "avx512")
ISA(VBMI, "avx512vbmi") /* AVX-512, and lookups in 64 bytes */
ISA(AMX, "amx")         /* the same, and AMX for products of several rows */
#undef ISA
