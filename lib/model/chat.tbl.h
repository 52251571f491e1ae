/* How families of models write a conversation down. The template in a model file is a program
 * (Jinja); here it is only recognised, by two texts that it holds, and the family's form is written
 * by this table. The first row that fits wins.
 *
 * CHAT(NAME, word, mark, other mark, system when none is given, before and after a system message,
 *      a user's message, an assistant's message, before the answer, where the system message goes)
 *
 * BOS and EOS stand for the model's own tokens. INLINE: a message like the others; FIRST_USER: at
 * the beginning of the first user's message. */
CHAT(QWEN2_5, "qwen2.5", "<|im_start|>", "You are Qwen, created by Alibaba Cloud.",
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "<|im_start|>system\n",
     "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n",
     "<|im_end|>\n", "<|im_start|>assistant\n", INLINE)
CHAT(QWEN2, "qwen2", "<|im_start|>", "You are a helpful assistant.", "You are a helpful assistant.",
     "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n",
     "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n", INLINE)
CHAT(QWEN1_5, "qwen1.5", "<|im_start|>", "You are a helpful assistant",
     "You are a helpful assistant", "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n",
     "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n", INLINE)
CHAT(CHATML, "chatml", "<|im_start|>", "<|im_end|>", "", "<|im_start|>system\n", "<|im_end|>\n",
     "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n",
     "<|im_start|>assistant\n", INLINE)
CHAT(LLAMA3, "llama3", "<|start_header_id|>", "<|eot_id|>", "",
     "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", INLINE)
CHAT(LLAMA2, "llama2", "[INST]", "<<SYS>>", "", "<<SYS>>\n", "\n<</SYS>>\n\n", "[INST] ",
     " [/INST]", " ", " " CHAT_EOS CHAT_BOS, "", FIRST_USER)
CHAT(MISTRAL, "mistral", "[INST]", "[/INST]", "", "", "\n\n", "[INST] ", " [/INST]", " ", CHAT_EOS,
     "", FIRST_USER)
CHAT(PHI3, "phi3", "<|assistant|>", "<|end|>", "", "<|system|>\n", "<|end|>\n", "<|user|>\n",
     "<|end|>\n", "<|assistant|>\n", "<|end|>\n", "<|assistant|>\n", INLINE)
CHAT(TULU, "tulu", "<|user|>", "<|assistant|>", "", "<|system|>\n", "\n", "<|user|>\n", "\n",
     "<|assistant|>\n", CHAT_EOS "\n", "<|assistant|>\n", INLINE)
#undef CHAT
