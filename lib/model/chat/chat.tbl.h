/* How families of models write a conversation down. The template in a model file is a program
 * (Jinja); here it is only recognised, by two texts that it holds, and the family's form is written
 * by this table. The first row that fits wins.
 *
 * CHAT(NAME, word, mark, other mark, system when none is given, before and after a system message,
 *      a user's message, an assistant's message, before the answer, where the system message goes,
 *      control marks)
 *
 * BOS and EOS stand for the model's own tokens. INLINE: a message like the others; FIRST_USER: at
 * the beginning of the next user's message. Control marks, with a space between: what no message
 * may contain, in addition to BOS and EOS, since it would end the message and begin another one. */
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
