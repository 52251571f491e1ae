#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token ids of conversations, by transformers' apply_chat_template(tokenize=True): the reference of unit_chat_ids.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install transformers==5.24.0 tokenizers==0.23.3 jinja2==3.1.6 gguf==0.19.0 numpy sentencepiece
    venv/bin/python tests/golden/chat_ids.py write tests/golden/data/tokenizers
    venv/bin/python tests/golden/chat_ids.py real tests/golden/data/tokenizers TEMPLATES OUT.json

write: DATA/chat_ids/NAME.gguf, small vocabularies with the control tokens of the families, and DATA/chat_ids.json, with
templates in the style of the families. All byte-level vocabularies have the same merges, which are in that file.

real: OUT.json for `unit_chat_ids OUT.json`, the same with the templates of models in the directory TEMPLATES, and more
conversations. Needs only tokenizers and jinja2: `write` checks that encoding what jinja2 renders is the same as
apply_chat_template.

No message has the text of a control token: transformers makes that token of it, sluice never does. `bos`: the template
writes none, but the tokenizer adds one (add_bos_token); apply_chat_template leaves it out, sluice does not."""
import glob
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import chat_templates
import expression_vectors as expressions

BASE = 260  # merges


def turns(before, after, prompt, first=""):
    """Every message between two texts in which ROLE is its role; then the prompt."""
    def quoted(text):
        return "'" + text.replace("\n", "\\n").replace("ROLE", "' + m.role + '") + "'"
    return ("{{ bos_token }}" if first == "BOS" else first) + (
        "{%- if tools %}{{ '" + before.replace("\n", "\\n").replace("ROLE", "system") + "' }}{% for t in tools %}"
        "{{ t | tojson }}\n{% endfor %}{{ '" + after.replace("\n", "\\n") + "' }}{% endif %}"
        "{%- for m in messages %}{{ " + quoted(before) + " + m.content + " + quoted(after) + " }}{% endfor %}"
        "{%- if add_generation_prompt %}{{ '" + prompt.replace("\n", "\\n") + "' }}{% endif %}"
        "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}")


IM = turns("<|im_start|>ROLE\n", "<|im_end|>\n", "<|im_start|>assistant\n")
NAMED = ("{%- for m in messages %}{{ marks[m.role] + m.content + ends[m.role] }}{% endfor %}"
         "{%- if add_generation_prompt %}{{ PROMPT }}{% endif %}")


def named(system, user, assistant, ends, prompt, first):
    return (first + "{%- set marks = {'system': '" + system + "', 'user': '" + user + "', 'assistant': '" + assistant +
            "'} %}{%- set ends = {'system': '" + ends[0] + "', 'user': '" + ends[1] + "', 'assistant': '" + ends[2] +
            "'} %}" + NAMED.replace("PROMPT", "'" + prompt + "'"))


# name: (pre-tokenizer, control tokens, tokens that users defined, BOS, EOS, add_bos_token, template, files of real templates)
FAMILIES = {
    "qwen": ("qwen2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
             ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
             None, "<|im_end|>", False, IM, ["Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "Qwen3.5-4B"]),
    "lfm2": ("lfm2", ["<|startoftext|>", "<|im_start|>", "<|im_end|>", "<|tool_list_start|>", "<|tool_list_end|>",
                      "<|tool_response_start|>", "<|tool_response_end|>"], [], "<|startoftext|>", "<|im_end|>", True,
             "{{ bos_token }}" + IM, ["LFM2-8B-A1B"]),
    "llama3": ("llama-bpe", ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                             "<|eom_id|>", "<|python_tag|>"], [], "<|begin_of_text|>", "<|eot_id|>", True,
               turns("<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>",
                     "<|start_header_id|>assistant<|end_header_id|>\n\n", "BOS"),
               ["meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"]),
    "gpt-oss": ("gpt-4o", ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>",
                           "<|end|>", "<|message|>", "<|call|>"], [], "<|startoftext|>", "<|return|>", False,
                turns("<|start|>ROLE<|channel|>final<|message|>", "<|end|>", "<|start|>assistant"), ["openai-gpt-oss-120b"]),
    "deepseek": ("deepseek-v3", ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
                                 "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"] +
                 [f"<\uff5ctool\u2581{x}\uff5c>" for x in ("calls\u2581begin", "calls\u2581end", "call\u2581begin", "call\u2581end",
                                                          "outputs\u2581begin", "outputs\u2581end", "output\u2581begin",
                                                          "output\u2581end", "sep")], ["<think>", "</think>"],
                 "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", True,
                 named("", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c></think>",
                       ("", "", "<\uff5cend\u2581of\u2581sentence\uff5c>"), "<\uff5cAssistant\uff5c><think>", "{{ bos_token }}"),
                 ["deepseek-ai-DeepSeek-V3.1"]),
    "glm4": ("glm4", ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
                      "<|assistant|>", "<|observation|>"],
             ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>",
              "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"], None, "<|endoftext|>", False,
             turns("<|ROLE|>\n", "", "<|assistant|>", "[gMASK]<sop>\n"), ["GLM-4.6", "GLM-4.7-Flash"]),
    "minimax": ("minimax-m2", ["]~!b[", "]~b]", "[e~["], ["<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"],
                "]~!b[", "[e~[", False, turns("]~b]ROLE\n", "[e~[\n", "]~b]ai\n<think>\n", "]~!b["), ["MiniMax-M2"]),
    "tekken": ("tekken", ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                          "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"], [],
               "<s>", "</s>", True, named("[SYSTEM_PROMPT]", "[INST]", "", ("[/SYSTEM_PROMPT]", "[/INST]", "</s>"), "", "{{ bos_token }}"),
               ["Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407"]),
    "granite": ("refact", ["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"],
                ["<tool_call>", "</tool_call>"], "<|end_of_text|>", "<|end_of_text|>", False,
                turns("<|start_of_role|>ROLE<|end_of_role|>", "<|end_of_text|>\n", "<|start_of_role|>assistant<|end_of_role|>"),
                ["ibm-granite-granite-4.0", "ibm-granite-granite-3.3-2B-Instruct"]),
    "cohere2moe": ("cohere2moe", ["<PAD>", "<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>",
                                  "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|START_THINKING|>", "<|END_THINKING|>",
                                  "<|START_TEXT|>", "<|END_TEXT|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_TOOL_RESULT|>",
                                  "<|END_TOOL_RESULT|>"], [], "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", True,
                   named("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TEXT|>", "<|START_OF_TURN_TOKEN|><|USER_TOKEN|><|START_TEXT|>",
                         "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_TEXT|>", ("<|END_TEXT|><|END_OF_TURN_TOKEN|>",) * 3,
                         "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>", "{{ bos_token }}"), ["Cohere2MoE"]),
    "laguna": ("laguna", ["\u3008|EOS|\u3009", "</assistant>"], ["<think>", "</think>", "<tool_call>", "</tool_call>", "<assistant>"],
               "\u3008|EOS|\u3009", "</assistant>", False,
               "\u3008|EOS|\u3009" + turns("<ROLE>\n", "</assistant>\n", "<assistant>\n</think>"),
               ["poolside-Laguna-XS.2", "poolside-Laguna-XS-2.1", "poolside-Laguna-S-2.1"]),
    "hy3": ("hunyuan", [f"<\uff5chy_{x}:opensource\uff5c>" for x in ("begin_of_sentence", "eos", "User", "Assistant", "pad")] +
            ["<\uff5creasoning_mode:opensource\uff5c>"] +
            [f"<{x}:opensource>" for x in ("think", "/think", "tool_calls", "/tool_calls", "tool_call", "/tool_call", "tool_sep",
                                           "tool_responses", "/tool_responses", "tool_response", "/tool_response")], [],
            "<\uff5chy_begin_of_sentence:opensource\uff5c>", "<\uff5chy_eos:opensource\uff5c>", False,
            named("", "<\uff5chy_User:opensource\uff5c>", "<\uff5chy_Assistant:opensource\uff5c><think:opensource></think:opensource>",
                  ("", "", "<\uff5chy_eos:opensource\uff5c>"), "<\uff5chy_Assistant:opensource\uff5c><think:opensource>",
                  "{{ bos_token }}"), ["tencent-Hy3"]),
    "exaone-moe": ("exaone-moe", ["[PAD]", "<|endofturn|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|tool_declare|>"],
                   ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_result>", "</tool_result>"],
                   None, "<|endofturn|>", False, turns("<|ROLE|>\n", "<|endofturn|>\n", "<|assistant|>\n<think>\n"), []),
    "afmoe": ("afmoe", ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>", "<tool_call>", "</tool_call>"],
              "<|begin_of_text|>", "<|im_end|>", True, "{{ bos_token }}" + IM, []),
    "step": ("deepseek-v3", ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<|im_start|>", "<|im_end|>"],
             ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
             "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<|im_end|>", True, "{{ bos_token }}" + IM, ["StepFun3.5-Flash"]),
    "nemotron": ("pixtral", ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"],
                 ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
                 None, "<|im_end|>", False, IM, ["NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]),
    # the tokenizer adds BOS, the template writes none
    "added": ("llama-bpe", ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"], [], "<|begin_of_text|>", "<|im_end|>", True, IM, []),
    # SentencePiece, from files that tokenizer_vectors.py wrote
    "mixtral": ("spm", ["<unk>", "<s>", "</s>"], ["<tag>"], "<s>", "</s>", True,
                named("", "[INST] ", "", ("\\n", " [/INST]", "</s>"), "", "{{ bos_token }}"), []),
    "gemma4": ("gemma4", ["<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>",
                          "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"], [],
               "<bos>", "<turn|>", True, turns("<|turn>ROLE\n", "<turn|>\n", "<|turn>model\n", "BOS"), ["google-gemma-4-31B-it"]),
}
MERGED_LINES = r"(?:\r?\n)+(?!\r?\n)"  # its matches are merged with the text behind them
RULES = {"qwen2": expressions.ONE_DIGIT, "lfm2": expressions.THREE_DIGITS, "llama-bpe": expressions.THREE_DIGITS,
         "gpt-4o": expressions.GPT4O, "deepseek-v3": expressions.DEEPSEEK_V3, "glm4": expressions.THREE_DIGITS,
         "pixtral": expressions.THREE_DIGITS, "hunyuan": expressions.ONE_DIGIT, "exaone-moe": expressions.EXAONE,
         "laguna": [MERGED_LINES] + expressions.ONE_DIGIT, "cohere2moe": [r"\d{1,3}(?=(?:\d{3})*\b)"] + expressions.GPT4O,
         "afmoe": [*expressions.AFMOE_DIGITS, expressions.AFMOE_SCRIPTS, expressions.DEEPSEEK_V3[2]],
         "minimax-m2": expressions.GPT4O, "tekken": expressions.TEKKEN, "refact": [r"\p{N}"] + expressions.GPT2}
IGNORE_MERGES = {"llama-bpe", "glm4", "lfm2", "tekken", "pixtral", "hunyuan"}

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather \u2013 of a city",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


def conversations():
    user = {"role": "user", "content": "What is 2 + 2? It's 1234567, isn't it?"}
    system = {"role": "system", "content": "Be brief."}
    blank = {"role": "user", "content": "\n\n  two lines\n\n and blanks  \n"}
    other = {"role": "user", "content": " \u4f60\u597d \u00e9\U0001f600 \u041f\u0440\u0438\u0432\u0435\u0442 \u0e01'S 'x' {} <s <| |> [/ ]~ "}
    answer = {"role": "assistant", "content": "It is 4.\n"}
    yield [user], {}
    yield [system, user], {}
    yield [system, user, answer, other], {}
    yield [blank], {}
    yield [user, answer, blank, dict(answer, content=" 5"), other], {}
    yield [system, user], {"tools": TOOLS}
    yield [user], {"enable_thinking": False}
    yield [user], {"enable_thinking": True}
    yield [dict(user, content="")], {}
    yield [user, dict(answer, content="<think>\nsum\n</think>\n\n4"), dict(user, content="x</think><think>y")], {}


def trained(data):
    """Merges of a byte-level vocabulary, from the texts in DATA/../heldout."""
    texts = [open(f, encoding="utf-8").read() for f in sorted(glob.glob(f"{data}/../heldout/*.txt"))]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expressions.ONE_DIGIT[0]), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator([x + "\n\n\n \n\n  \n" for x in texts], trainers.BpeTrainer(
        vocab_size=256 + BASE, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return [m if isinstance(m, str) else " ".join(m) for m in json.loads(t.to_str())["model"]["merges"]]


def add(t, control, user):
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in control])
    t.add_tokens([AddedToken(x, special=False, normalized=False) for x in user])
    return t


def byte_level(pre, merges, control, user):
    pairs = [tuple(m.split(" ")) for m in merges]
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for a, b in pairs:
        vocab.setdefault(a + b, len(vocab))
    t = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=pre in IGNORE_MERGES))
    splits = [(e, "merged_with_next" if e == MERGED_LINES else "isolated") for e in RULES[pre]]
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(e), how) for e, how in splits] +
                                              [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return add(t, control, user)


def characters(data, control):
    """As in tokenizer.json of Gemma: spaces are U+2581, a word ends with its space, bytes for other characters."""
    state = json.load(open(f"{data}/spm_across.json", encoding="utf-8"))["model"]
    vocab = {k: v for k, v in state["vocab"].items() if k not in ("<unk>", "<s>", "</s>", "<tag>")}
    vocab = {k: i for i, k in enumerate(sorted(vocab, key=vocab.get))}
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in state["merges"]]
    vocab["<unk>"] = len(vocab)
    vocab.setdefault("\n", len(vocab))
    for n in range(2, 5):  # runs of newlines are tokens
        vocab["\n" * n] = len(vocab)
        merges += [("\n" * k, "\n" * (n - k)) for k in range(1, n)]
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    return add(t, control, [])


def tokenizer(data, name, merges):
    pre, control, user = FAMILIES[name][:3]
    if pre == "spm":
        return Tokenizer.from_file(f"{data}/spm.json")
    return characters(data, control) if pre == "gemma4" else byte_level(pre, merges, control, user)


def encoded(t, template, own, messages, more):
    """The ids; None if the template raises an exception."""
    try:
        text = template.render(messages=messages, add_generation_prompt=True, **own, **more)
    except Exception:  # whatever Python raises, the template failed
        return None
    return t.encode(text, add_special_tokens=False).ids


def cases(data, name, t, text):
    """What unit_chat_ids reads of one template."""
    _, _, _, bos, eos, adds = FAMILIES[name][:6]
    own = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
    template = chat_templates.environment().from_string(text)
    result = []
    for messages, more in conversations():
        if "enable_thinking" in more and "reasoning_effort" in text and "enable_thinking" not in text:
            continue  # sluice sets the effort instead
        ids = encoded(t, template, own, messages, more)
        if ids is None:
            continue
        if adds and (not ids or ids[0] != t.token_to_id(bos)):
            ids = [t.token_to_id(bos)] + ids
        result.append({"messages": messages, **({"tools": more["tools"]} if "tools" in more else {}),
                       "variables": {k: v for k, v in more.items() if k != "tools"}, "ids": ids})
    file = "spm" if FAMILIES[name][0] == "spm" else f"chat_ids/{name}"
    return {"name": name, "vocabulary": file, "bos": bos or "", "eos": eos, "template": text, "cases": result,
            "controls": FAMILIES[name][1]}


def check_transformers(name, t, text, made):
    """apply_chat_template has the same ids; without BOS where the template writes none."""
    import transformers
    _, _, _, bos, eos, adds = FAMILIES[name][:6]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos, eos_token=eos, chat_template=text)
    for c in made["cases"]:
        got = fast.apply_chat_template(c["messages"], tools=c.get("tools"), add_generation_prompt=True, tokenize=True,
                                       return_dict=False, **c["variables"])
        want = c["ids"][1:] if name == "added" else c["ids"]
        assert got == want, f"{name}: {c['messages']}: {got}, not {want}"


def write_vocabulary(path, name, t, merges, template):
    import gguf
    from tokenizer_vectors import write_gguf
    pre, _, _, bos, eos, adds = FAMILIES[name][:6]
    added = {a["id"]: a for a in json.loads(t.to_str())["added_tokens"]}
    names = {i: text for text, i in t.get_vocab().items()}

    def kind(i):
        if i in added:
            return gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED
        if pre == "gemma4" and len(names[i]) == 6 and names[i].startswith("<0x"):
            return gguf.TokenType.BYTE
        return gguf.TokenType.UNKNOWN if names[i] == "<unk>" else gguf.TokenType.NORMAL

    def fill(w):
        w.add_tokenizer_model("gemma4" if pre == "gemma4" else "gpt2")
        w.add_tokenizer_pre("default" if pre == "gemma4" else pre)
        w.add_token_list([names[i] for i in range(len(names))])
        w.add_token_types([kind(i) for i in range(len(names))])
        w.add_token_merges(merges)
        if bos:
            w.add_bos_token_id(t.token_to_id(bos))
        w.add_eos_token_id(t.token_to_id(eos))
        w.add_add_bos_token(adds)
        w.add_chat_template(template)
        return len(names)
    write_gguf(path, name, fill)


def write(data):
    merges, result = trained(data), []
    os.makedirs(f"{data}/chat_ids", exist_ok=True)
    for name in FAMILIES:
        t, text = tokenizer(data, name, merges), FAMILIES[name][6]
        made = cases(data, name, t, text)
        assert len(made["cases"]) == len(list(conversations())), name
        check_transformers(name, t, text, made)
        if FAMILIES[name][0] != "spm":
            own = [m if isinstance(m, str) else " ".join(m) for m in json.loads(t.to_str())["model"]["merges"]]
            write_vocabulary(f"{data}/chat_ids/{name}.gguf", name, t, own, text)
        result.append(made)
    with open(f"{data}/chat_ids.json", "w") as f:
        f.write("{\"merges\": " + json.dumps(merges) + ",\n\"families\": [\n" +
                ",\n".join(json.dumps(r, separators=(",", ":")) for r in result) + "\n]}\n")


def real(data, templates, out):
    with open(f"{data}/chat_ids.json", encoding="utf-8") as f:
        merges = json.load(f)["merges"]
    result, count = [], 0
    for name, row in FAMILIES.items():
        for file in row[7]:
            with open(f"{templates}/{file}.jinja", newline="", encoding="utf-8") as f:
                made = cases(data, name, tokenizer(data, name, merges), f.read())
            made["name"] = file
            count += len(made["cases"])
            result.append(made)
    with open(out, "w") as f:
        json.dump({"families": result}, f)
    print(f"{len(result)} templates, {count} conversations")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        real(*sys.argv[2:5])
