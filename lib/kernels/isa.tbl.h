/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets that have kernels, slowest first. The numbers are stored in shared memory, so a
 * change of them is another layout of KV (shm/segment/segment.h). ISA(NAME, name, what it is) No
 * include guard. */
ISA(GENERIC, "generic", "runs on every CPU, slow")
#ifdef __aarch64__
ISA(NEON, "neon", "several times faster than generic")
ISA(DOTPROD, "dotprod", "faster with quantised types")
#else
ISA(AVX2, "avx2", "several times faster than generic")
ISA(AVXVNNI, "avxvnni", "faster with prompts of quantised types")
ISA(AVX512, "avx512", "faster again, most of all with prompts")
ISA(VBMI, "avx512vbmi", "the same, and lookups in 64 bytes for MXFP4, NVFP4 and IQ4_NL")
ISA(AMX, "amx", "the same, and AMX for products of several rows: fastest for prompts")
#endif
#undef ISA
