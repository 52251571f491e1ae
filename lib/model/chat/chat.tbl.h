/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats of model families. The template in a model file is a program (Jinja). It is not
 * executed: two strings in it identify the family, and this table has the family's format. The
 * first row that matches is used.
 *
 * CHAT(NAME, name, mark, other mark, default system message, before and after a system message,
 *      before and after a user message, before and after an assistant message, before the response,
 *      position of the system message, control marks)
 *
 * CHAT_BOS and CHAT_EOS stand for the model's own tokens. Position: INLINE, a message like the
 * others; FIRST_USER, at the start of the next user message. Control marks, separated by spaces:
 * strings that no message may contain, in addition to BOS and EOS, because they would end the
 * message and start another one. */
#define CHATML_MARKS                                                                               \
    "<|im_start|> <|im_end|> <|endoftext|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> "          \
    "<|fim_pad|> <|repo_name|> <|file_sep|> <|object_ref_start|> <|object_ref_end|> "              \
    "<|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> "       \
    "<|vision_pad|> <|image_pad|> <|video_pad|>"
#define INST_MARKS                                                                                 \
    "[INST] [/INST] <<SYS>> <</SYS>> <s> </s> <unk> [SYSTEM_PROMPT] [/SYSTEM_PROMPT] "             \
    "[AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS]"
CHAT(QWEN2_5, "qwen2.5", "<|im_start|>", "You are Qwen, created by Alibaba Cloud.",
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "<|im_start|>system\n",
     "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n",
     "<|im_end|>\n", "<|im_start|>assistant\n", INLINE, CHATML_MARKS)
CHAT(QWEN2, "qwen2", "<|im_start|>", "You are a helpful assistant.", "You are a helpful assistant.",
     "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n",
     "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n", INLINE, CHATML_MARKS)
CHAT(QWEN1_5, "qwen1.5", "<|im_start|>", "You are a helpful assistant",
     "You are a helpful assistant", "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n",
     "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n", INLINE,
     CHATML_MARKS)
CHAT(CHATML, "chatml", "<|im_start|>", "<|im_end|>", "", "<|im_start|>system\n", "<|im_end|>\n",
     "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n",
     "<|im_start|>assistant\n", INLINE, CHATML_MARKS)
CHAT(LLAMA3, "llama3", "<|start_header_id|>", "<|eot_id|>", "",
     "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", INLINE,
     "<|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|> <|begin_of_text|> "
     "<|end_of_text|> <|python_tag|> <|finetune_right_pad_id|> <|reserved_special_token_")
CHAT(LLAMA2, "llama2", "[INST]", "<<SYS>>", "", "<<SYS>>\n", "\n<</SYS>>\n\n", "[INST] ",
     " [/INST]", " ", " " CHAT_EOS CHAT_BOS, "", FIRST_USER, INST_MARKS)
CHAT(MISTRAL, "mistral", "[INST]", "[/INST]", "", "", "\n\n", "[INST] ", " [/INST]", " ", CHAT_EOS,
     "", FIRST_USER, INST_MARKS)
CHAT(PHI3, "phi3", "<|assistant|>", "<|end|>", "", "<|system|>\n", "<|end|>\n", "<|user|>\n",
     "<|end|>\n", "<|assistant|>\n", "<|end|>\n", "<|assistant|>\n", INLINE,
     "<|system|> <|user|> <|assistant|> <|end|> <|endoftext|> <|placeholder <s> </s> <unk>")
CHAT(TULU, "tulu", "<|user|>", "<|assistant|>", "", "<|system|>\n", "\n", "<|user|>\n", "\n",
     "<|assistant|>\n", CHAT_EOS "\n", "<|assistant|>\n", INLINE,
     "<|system|> <|user|> <|assistant|> <|endoftext|> <|padding|>")
#undef CHATML_MARKS
#undef INST_MARKS
#undef CHAT
