/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats of model families, for templates that the interpreter rejects (format.h): two
 * strings in a template identify the family, and this table has the family's format. The first row
 * that matches is used.
 *
 * CHAT(NAME, name, mark, other mark, default system message, before and after a system message,
 *      before and after a user message, before and after an assistant message, before the response,
 *      position of the system message, text marks)
 *
 * CHAT_BOS and CHAT_EOS stand for the model's own tokens. Position: INLINE, a message like the
 * others; FIRST_USER, at the start of the next user message. Text marks, separated by spaces: marks
 * of the template that are ordinary text and no control tokens in vocabularies of the family. No
 * message may contain them, because the model could not distinguish them from the template's. */
#define INST_MARKS "[INST] [/INST] <<SYS>> <</SYS>>"
CHAT(QWEN2_5, "qwen2.5", "<|im_start|>", "You are Qwen, created by Alibaba Cloud.",
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "<|im_start|>system\n",
     "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n",
     "<|im_end|>\n", "<|im_start|>assistant\n", INLINE, "")
CHAT(QWEN2, "qwen2", "<|im_start|>", "You are a helpful assistant.", "You are a helpful assistant.",
     "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n",
     "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n", INLINE, "")
CHAT(QWEN1_5, "qwen1.5", "<|im_start|>", "You are a helpful assistant",
     "You are a helpful assistant", "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n",
     "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n", INLINE,
     "")
CHAT(CHATML, "chatml", "<|im_start|>", "<|im_end|>", "", "<|im_start|>system\n", "<|im_end|>\n",
     "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n",
     "<|im_start|>assistant\n", INLINE, "")
CHAT(LLAMA3, "llama3", "<|start_header_id|>", "<|eot_id|>", "",
     "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", INLINE, "")
CHAT(LLAMA2, "llama2", "[INST]", "<<SYS>>", "", "<<SYS>>\n", "\n<</SYS>>\n\n", "[INST] ",
     " [/INST]", " ", " " CHAT_EOS CHAT_BOS, "", FIRST_USER, INST_MARKS)
CHAT(MISTRAL, "mistral", "[INST]", "[/INST]", "", "", "\n\n", "[INST] ", " [/INST]", " ", CHAT_EOS,
     "", FIRST_USER, INST_MARKS)
CHAT(PHI3, "phi3", "<|assistant|>", "<|end|>", "", "<|system|>\n", "<|end|>\n", "<|user|>\n",
     "<|end|>\n", "<|assistant|>\n", "<|end|>\n", "<|assistant|>\n", INLINE, "")
CHAT(TULU, "tulu", "<|user|>", "<|assistant|>", "", "<|system|>\n", "\n", "<|user|>\n", "\n",
     "<|assistant|>\n", CHAT_EOS "\n", "<|assistant|>\n", INLINE,
     "<|system|> <|user|> <|assistant|>")
#undef INST_MARKS
#undef INST_MARKS
#undef CHAT
