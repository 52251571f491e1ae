/* SPDX-License-Identifier: Apache-2.0 */
/* Every supported architecture, in the order in which messages list them. No include guard: include
 * it with ARCH defined.
 *
 * ARCH(id)  struct arch arch_<id>, in a file of families/ */
ARCH(deepseek2)
ARCH(gemma4)
ARCH(glm4moe)
ARCH(gpt_oss)
ARCH(granitemoe)
ARCH(granitehybrid)
ARCH(lfm2moe)
ARCH(bailingmoe2)
ARCH(llama)
ARCH(olmoe)
ARCH(dots1)
ARCH(ernie4_5_moe)
ARCH(minimax_m2)
ARCH(hunyuan_moe)
ARCH(phimoe)
ARCH(dbrx)
ARCH(smallthinker)
ARCH(bailingmoe)
ARCH(deepseek)
ARCH(exaone_moe)
ARCH(hy_v3)
ARCH(mellum)
ARCH(mistral4)
ARCH(qwen3vlmoe)
ARCH(qwen3moe)
ARCH(qwen2moe)
ARCH(qwen35moe)
ARCH(qwen3next)
#undef ARCH
