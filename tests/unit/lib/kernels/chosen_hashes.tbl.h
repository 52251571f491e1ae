/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of attention over a list, by KV type: chosen_test.c, which prints the new ones when they
 * differ.
 * HASH(TYPE, hash)
 * No include guard. */
HASH(F16, 0xe7aa2d944ce30ece)
HASH(Q8_0, 0xefde0dd1905224e5)
HASH(Q4_0, 0x2e6d5032da891a95)
HASH(F32, 0x7e719900a0c8c4bc)
#undef HASH
