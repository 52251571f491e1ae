/* Instruction sets kernels exist for, from the slowest. The numbers stand in shared memory.
 * ISA(NAME, word)
 * No include guard. */
ISA(GENERIC, "generic")
ISA(AVX2, "avx2")
ISA(AVX512, "avx512")
#undef ISA
