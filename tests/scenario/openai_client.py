# SPDX-License-Identifier: Apache-2.0
"""Tests the gateway with OpenAI's Python package: openai_client.py URL PROMPT TOKENS TEXT.

TEXT is the greedy output of `sluice generate` for PROMPT. Exits with an error at the first difference.
"""

import sys

import openai

url, prompt, tokens, text = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=60)
checked = []


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r} instead of {wanted!r}")
    if what not in checked:
        checked.append(what)


def completion(**more):
    wanted = dict(model=model, prompt=prompt, max_tokens=tokens, temperature=0, extra_body={"ignore_eos": True})
    return client.completions.create(**{**wanted, **more})


def chat(**more):
    wanted = dict(model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=tokens,
                  temperature=0, extra_body={"ignore_eos": True})
    return client.chat.completions.create(**{**wanted, **more})


def rejected(what, kind, status, call, param):
    try:
        call()
    except kind as error:
        check(what, (error.status_code, error.param, bool(error.body["message"])), (status, param, True))
    else:
        sys.exit(f"{what}: nothing was rejected")


models = client.models.list().data
check("models", len(models), 1)
model = models[0].id

whole = completion(logprobs=0)
choice = whole.choices[0]
check("completions", (choice.text, choice.finish_reason), (text, "length"))
check("usage", (whole.usage.completion_tokens, whole.usage.total_tokens),
      (tokens, tokens + whole.usage.prompt_tokens))
check("logprobs", "".join(choice.logprobs.tokens), text)
check("logprobs", [p <= 0 for p in choice.logprobs.token_logprobs], [True] * tokens)

parts = list(completion(stream=True, stream_options={"include_usage": True}))
check("streaming", "".join(p.choices[0].text for p in parts if p.choices), text)
check("streaming", parts[-1].usage.completion_tokens, tokens)

middle = text[len(text) // 2:len(text) // 2 + 6]
cut = completion(stop=["never generated", middle]).choices[0]
check("stop", (cut.text, cut.finish_reason), (text[:text.index(middle)], "stop"))

answer = chat(logprobs=True).choices[0]
check("chat", (answer.message.role, answer.finish_reason), ("assistant", "length"))
check("chat logprobs", "".join(t.token for t in answer.logprobs.content), answer.message.content)
deltas = [p.choices[0] for p in chat(stream=True) if p.choices]
check("chat streaming", "".join(d.delta.content or "" for d in deltas), answer.message.content)
check("chat streaming", (deltas[0].delta.role, deltas[-1].finish_reason), ("assistant", "length"))

rejected("bad request", openai.BadRequestError, 400, lambda: completion(temperature=-1), "temperature")
check("unknown field", completion(extra_body={"moon": 1, "ignore_eos": True}).choices[0].text, text)
rejected("not found", openai.NotFoundError, 404, lambda: client.files.list(), None)

print(f"{openai.__version__}: {', '.join(checked)}")
