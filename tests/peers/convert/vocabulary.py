# SPDX-License-Identifier: Apache-2.0
"""Small vocabularies for convert_arch.py, trained on a held-out text of the golden data, in the files of a checkpoint."""
import json
import os
import shutil

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import expression_vectors

SIZE = 384
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
           "<|observation|>", "<unk>", "<|startoftext|>", "<|return|>"]
GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"]
END = 340  # of a document: SPECIAL[0]
RAW = ("gemma4", "sarvam-moe")  # BPE on UTF-8; others: on bytes


def splitting(name):
    """The pre-tokenizer of that name: the published expressions."""
    found = [e for e, names in expression_vectors.EXPRESSIONS if name in names.split()]
    parts = [pre_tokenizers.Split(Regex(x), behavior="isolated") for x in (found[0] if found else [])]
    return pre_tokenizers.Sequence(parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not found)])


def train_bytes(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitting("qwen2")
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=END, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    return tokenizer


def train_gemma(lines):
    """BPE on UTF-8 with a token per byte; a space is U+2581."""
    fixed = GEMMA + [f"<0x{i:02X}>" for i in range(256)]
    first = Tokenizer(models.BPE())
    first.normalizer = normalizers.Replace(" ", "\u2581")
    first.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    first.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=SIZE - len(fixed), show_progress=False))
    model = json.loads(first.to_str())["model"]
    learnt = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(x) if not isinstance(x, str) else tuple(x.split(" ")) for x in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(fixed + learnt)}, merges=merges, byte_fallback=True,
                                     fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = first.normalizer, first.pre_tokenizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in GEMMA])
    return tokenizer


class Vocabularies:
    """text: what is learnt and scored; work: a directory for the files."""

    def __init__(self, text, work):
        self.text, self.work = text, work
        with open(text, encoding="utf-8") as f:
            lines = f.read().splitlines(keepends=True)
        self.bytes, self.gemma = train_bytes(lines), train_gemma(lines)
        sentencepiece.SentencePieceTrainer.Train(
            input=text, model_prefix=os.path.join(work, "spm"), vocab_size=SIZE, model_type="bpe", byte_fallback=True,
            character_coverage=0.995, normalization_rule_name="identity", remove_extra_whitespaces=False,
            add_dummy_prefix=True, split_digits=True, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, minloglevel=2)
        self.pieces = sentencepiece.SentencePieceProcessor(os.path.join(work, "spm.model"))

    def special_ids(self, name):
        if name == "spm":
            return dict(bos_token_id=1, eos_token_id=2)
        if name in RAW:
            return dict(bos_token_id=2, eos_token_id=1)
        return dict(bos_token_id=None, eos_token_id=END)

    def ids(self, name, text):
        if name == "spm":
            return self.pieces.encode(text)
        if name in RAW:
            return self.gemma.encode(text, add_special_tokens=False).ids
        self.bytes.pre_tokenizer = splitting(name)
        return self.bytes.encode(text, add_special_tokens=False).ids

    def write(self, name, directory, tokenizer_class):
        config = dict(tokenizer_class=tokenizer_class or "PreTrainedTokenizerFast")
        if name == "spm":
            shutil.copy(os.path.join(self.work, "spm.model"), os.path.join(directory, "tokenizer.model"))
            config = dict(tokenizer_class="LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                          add_bos_token=True)
        else:
            self.ids(name, "")
            (self.gemma if name in RAW else self.bytes).save(os.path.join(directory, "tokenizer.json"))
            end = GEMMA[1] if name in RAW else SPECIAL[0]
            config.update(eos_token=end, pad_token=end, add_bos_token=False)
            if name in RAW:
                config.update(bos_token="<bos>", unk_token="<unk>", add_bos_token=True)
        with open(os.path.join(directory, "tokenizer_config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
