/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of products with random weights, per type, of version KERNEL_ARITHMETIC: bits_test.c, which
 * prints the new ones when they differ.
 * HASH(TYPE, hash)
 * No include guard. */
HASH(BF16, 0x13d05a006dc354d7)
HASH(C2, 0x1fcb76e1a6070629)
HASH(C4, 0xee15aae4677af5a2)
HASH(C8, 0xb190128e51adefdb)
HASH(F16, 0x752d70265b17fbde)
HASH(F32, 0xff4fa237ff1ee83f)
HASH(G2, 0xb6facf4f0af1834b)
HASH(G4, 0xc2b4580a6aab2224)
HASH(Q4_0, 0x21dc1f4a9a45697a)
HASH(Q8_0, 0xc6c1f7a2af5188ab)
#undef HASH
