/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of GGUF files that the engine does not read and whose value it does not need: they are not
 * reported (unread.c). No include guard: include it with the macro defined, which is undefined at
 * the end.
 *
 * HARMLESS(name, why)
 *     name: of a key; "*" at the end: all that begin like this; "." at the start: after the name of
 *     the architecture. why: for the reader of this table */
HARMLESS("general.*", "describes the file")
HARMLESS("split.*", "read where a model has several files")
HARMLESS("quantize.*", "how the file was quantised")
HARMLESS("synth.*", "how sluice synth made the file")
HARMLESS("imatrix.*", "how the file was quantised")
HARMLESS("tokenizer.ggml.add_eos_token", "of prompts for embeddings")
HARMLESS("tokenizer.ggml.add_sep_token", "of prompts for embeddings")
HARMLESS("tokenizer.ggml.cls_token_id", "of prompts for embeddings")
HARMLESS("tokenizer.ggml.seperator_token_id", "of prompts for embeddings")
HARMLESS("tokenizer.ggml.mask_token_id", "of masked models")
HARMLESS("tokenizer.ggml.padding_token_id", "of batches of unequal length")
HARMLESS("tokenizer.ggml.unknown_token_id", "every byte has a token")
HARMLESS("tokenizer.ggml.token_type_count", "of BERT")
HARMLESS("tokenizer.ggml.fim_*", "of prompts with a gap, which the client writes")
HARMLESS("tokenizer.ggml.prefix_token_id", "of prompts with a gap")
HARMLESS("tokenizer.ggml.suffix_token_id", "of prompts with a gap")
HARMLESS("tokenizer.ggml.middle_token_id", "of prompts with a gap")
HARMLESS("tokenizer.ggml.scores", "of a vocabulary without SentencePiece")
HARMLESS("tokenizer.chat_template.*", "templates other than the default one and the one for tools")
HARMLESS("tokenizer.chat_templates", "their names")
HARMLESS("tokenizer.huggingface.json", "the tokenizer in another form")
HARMLESS(".feed_forward_length",
         "the width of dense layers in a model that has none, or of experts")
HARMLESS(".expert_group_used_count", "without groups")
HARMLESS(".rope.dimension_sections", "pairs by axis: of text, all axes are one")
HARMLESS(".embedding_length_out", "elements of all streams, whose number has a key")
HARMLESS(".ple.image_token_id", "n-grams of images")
HARMLESS(".n_deepstack_layers", "what images add to layers")
HARMLESS(".rope.scaling.finetuned", "whether the model was trained with its scaling")
HARMLESS(".nextn_predict_layers",
         "blocks for drafting, whose tensors are skipped or rejected by name")
HARMLESS(".attention.indexer.head_count", "of an indexer, whose choice the engine does not need")
HARMLESS(".attention.indexer.key_length", "likewise")
HARMLESS(".attention.indexer.local_blocks", "likewise")
HARMLESS(".attention.indexer.types", "likewise: layers with a choice of their own")
HARMLESS(".use_parallel_residual", "of GPT-NeoX")
HARMLESS(".tensor_data_layout", "of the first GGUF files")
#undef HARMLESS
