/* SPDX-License-Identifier: Apache-2.0 */
/* The models of Hugging Face that can be read, in the order in which messages list them. No include
 * guard: include it with HF_ARCH defined.
 *
 * HF_ARCH(id)  struct hf_arch hf_<id>, in a file of families/ */
HF_ARCH(qwen3moe)
HF_ARCH(olmoe)
HF_ARCH(qwen2moe)
HF_ARCH(llama)
HF_ARCH(glm4moe)
HF_ARCH(dots1)
HF_ARCH(ernie4_5_moe)
HF_ARCH(minimax_m2)
HF_ARCH(deepseek2)
HF_ARCH(deepseek3)
HF_ARCH(glm4_lite)
HF_ARCH(gemma4)
HF_ARCH(gpt_oss)
HF_ARCH(lfm2moe)
HF_ARCH(bailingmoe2)
HF_ARCH(granitemoe)
HF_ARCH(phimoe)
HF_ARCH(hunyuan_moe)
HF_ARCH(dbrx)
HF_ARCH(smallthinker)
HF_ARCH(qwen3next)
HF_ARCH(qwen35moe)
HF_ARCH(qwen3vlmoe)
HF_ARCH(mellum)
HF_ARCH(exaone_moe)
HF_ARCH(hy_v3)
HF_ARCH(mistral4)
HF_ARCH(deepseek)
#undef HF_ARCH
