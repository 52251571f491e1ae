#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions of the Python packages litellm, langchain-openai and llm with the gateway (README.md).

    client_libraries.sh ROOT BUILD            makes the environment and calls this:
    client_libraries.py --models FAMILY_MODELS --libexec LIBEXEC -o WORK

These packages read the gateway's answers with rules of their own: which errors are a context that is full, how deltas
become a message, which calls are executed. The model's answers are known (tests/scenario/families.h). Prints a line
"ok NAME" or "not ok NAME: reason" per session. Exit status: 0 all as expected and no process ended, 1 not."""
import argparse
import asyncio
import functools
import json
import os
import subprocess
import sys

from session import Engine, Wrong, family_models, holds, same, with_engine

LONG = "x" * 20000  # more tokens than the model's context


def raises(what, kind, call):
    try:
        call()
    except kind as error:
        return error
    except Exception as error:
        raise Wrong(f"{what}: {type(error).__name__}: {error}") from error
    raise Wrong(f"{what}: nothing was refused")


# ---- litellm ----


def litellm_parts(reply):
    choice = reply.choices[0]
    calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or []]
    return getattr(choice.message, "reasoning_content", None) or "", choice.message.content or "", calls, \
        choice.finish_reason


def litellm_provider(litellm, family, doc, model, base, refusal):
    """Two turns and a prompt that is too long, with the code that litellm has for this server."""
    ask = dict(model=model, api_base=base, api_key="unused", num_retries=0, temperature=0, tools=doc["tools"])
    expected = family["reasoning"], family["content"], [("look", doc["arguments"])], "tool_calls"
    messages = [{"role": "user", "content": doc["ask"]}]
    whole = litellm.completion(messages=messages, **ask)
    same(f"{model}", litellm_parts(whole), expected)
    parts = list(litellm.completion(messages=messages, stream=True, stream_options={"include_usage": True}, **ask))
    streamed = litellm.stream_chunk_builder(parts, messages=messages)
    same(f"{model}, streamed", litellm_parts(streamed), expected)
    same(f"{model}, prompt tokens", streamed.usage.prompt_tokens, whole.usage.prompt_tokens)
    call = whole.choices[0].message.tool_calls[0]
    messages += [whole.choices[0].message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "B"}]
    last = litellm.completion(messages=messages, **ask)
    same(f"{model}, the result", litellm_parts(last), ("", doc["done"], [], "stop"))
    error = raises(f"{model}, a long prompt", refusal,
                   lambda: litellm.completion(**dict(ask, messages=[{"role": "user", "content": LONG}])))
    same(f"{model}, status", error.status_code, 400)


KEPT = {"type": "object", "properties": {"kind": {"enum": ["town", "house"]}, "people": {"type": "integer"},
                                         "name": {"type": "string", "maxLength": 8}},
        "required": ["kind", "people", "name"], "additionalProperties": False, "title": "Place", "description": "A place."}


def check_kept(what, value):
    import jsonschema  # which litellm needs
    try:
        jsonschema.validate(value, KEPT)
    except jsonschema.ValidationError as error:
        raise Wrong(f"{what}: {value!r}: {error.message}") from error


def litellm_schemas(litellm, engine, doc):
    shape = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": KEPT}}
    ask = dict(api_key="unused", num_retries=0, messages=[{"role": "user", "content": doc["ask"]}])
    for model, base in ("hosted_vllm/any", "/v1"), ("openai/any", "/v1"), ("ollama_chat/any", ""):
        for temperature in 0, 1:
            reply = litellm.completion(model=model, api_base=engine.url + base, response_format=shape,
                                       temperature=temperature, **ask)
            check_kept(f"{model}, {temperature}", json.loads(reply.choices[0].message.content))


def litellm_session(family, doc, engine):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a list of prices
    import litellm
    litellm.suppress_debug_info = True
    full, bad = litellm.exceptions.ContextWindowExceededError, litellm.exceptions.BadRequestError
    for model, base, refusal in (("hosted_vllm/any", "/v1", full), ("llamafile/any", "/v1", full),
                                 ("anthropic/any", "", full), ("ollama_chat/any", "", bad)):
        litellm_provider(litellm, family, doc, model, engine.url + base, refusal)
    litellm_schemas(litellm, engine, doc)
    ask = dict(api_base=engine.url + "/v1", api_key="unused", num_retries=0, temperature=0)
    text = litellm.text_completion(model="text-completion-openai/any", prompt="B", max_tokens=3, **ask)
    same("text_completion", text.choices[0].text, doc["done"])
    wrong = raises("a wrong value", bad,
                   lambda: litellm.completion(model="openai/any", messages=[], **dict(ask, temperature=-1)))
    holds(f"a wrong value is not named: {wrong}", "temperature" in str(wrong) or "messages" in str(wrong))
    answer = litellm.responses(model="openai/any", input="B", **ask)
    same("responses", [c.text for i in answer.output if i.type == "message" for c in i.content], [doc["done"]])
    # Through litellm's own translation from Anthropic's API.
    blocks = asyncio.run(litellm.anthropic.messages.acreate(
        model="hosted_vllm/any", max_tokens=99, messages=[{"role": "user", "content": "B"}], **ask))
    same("messages", [b["text"] for b in blocks["content"] if b["type"] == "text"], [doc["done"]])


# ---- langchain-openai ----


def langchain_parts(message):
    return message.text if isinstance(message.text, str) else message.text(), \
        [(c["name"], c["args"]) for c in message.tool_calls]


def langchain_chat(model, family, doc, what):
    from langchain_core.messages import HumanMessage, ToolMessage
    expected = family["content"], [("look", doc["arguments"])]
    bound, messages = model.bind_tools(doc["tools"]), [HumanMessage(doc["ask"])]
    whole = bound.invoke(messages)
    same(what, langchain_parts(whole), expected)
    streamed = None
    for part in bound.stream(messages):
        streamed = part if streamed is None else streamed + part
    same(f"{what}, streamed", langchain_parts(streamed), expected)
    for message in (whole, streamed):
        same(f"{what}, invalid calls", message.invalid_tool_calls, [])
    usage = streamed.usage_metadata
    same(f"{what}, usage", (usage["input_tokens"], usage["input_token_details"]["cache_read"] > 0),
         (whole.usage_metadata["input_tokens"], True))
    call = whole.tool_calls[0]
    messages += [whole, ToolMessage("B", tool_call_id=call["id"])]
    same(f"{what}, the result", langchain_parts(bound.invoke(messages)), (doc["done"], []))
    parts = [p.text if isinstance(p.text, str) else p.text() for p in bound.stream(messages)]
    same(f"{what}, the result, streamed", "".join(parts), doc["done"])


def langchain_schemas(langchain_openai, ask, doc):
    ways = [dict(method="json_schema", strict=True), dict(method="function_calling"),
            dict(method="function_calling", strict=True)]
    for responses in False, True:
        model = langchain_openai.ChatOpenAI(use_responses_api=responses, **dict(ask, temperature=1))
        for way in ways:
            got = model.with_structured_output(KEPT, include_raw=True, **way).invoke(doc["ask"])
            same(f"{way}, responses {responses}: error", got["parsing_error"], None)
            check_kept(f"{way}, responses {responses}", got["parsed"])


def langchain_session(family, doc, engine):
    import langchain_openai
    import openai
    ask = dict(model="any", base_url=engine.url + "/v1", api_key="unused", temperature=0, max_retries=0, timeout=120)
    langchain_chat(langchain_openai.ChatOpenAI(stream_usage=True, **ask), family, doc, "chat")
    langchain_chat(langchain_openai.ChatOpenAI(use_responses_api=True, **ask), family, doc, "responses")
    langchain_schemas(langchain_openai, ask, doc)
    model = langchain_openai.ChatOpenAI(**ask)
    same("batch", [m.content for m in model.batch(["B"] * 4)], [doc["done"]] * 4)
    probabilities = model.bind(logprobs=True).invoke("B").response_metadata["logprobs"]["content"]
    same("logprobs", "".join(t["token"] for t in probabilities), doc["done"])
    text = langchain_openai.OpenAI(max_tokens=3, **ask)
    same("completions", (text.invoke("B"), "".join(text.stream("B"))), (doc["done"],) * 2)
    error = raises("a long prompt", openai.BadRequestError, lambda: model.invoke(LONG))
    same("a long prompt", error.code, "context_length_exceeded")


# ---- llm ----


def llm_session(work, family, doc, engine):
    del family
    home = os.path.join(work, "llm")
    os.makedirs(home, exist_ok=True)
    kinds = {"chat": {"supports_tools": True}, "answers": {"supports_tools": True, "responses": True},
             "text": {"completion": True}}
    with open(os.path.join(home, "extra-openai-models.yaml"), "w") as f:  # JSON is YAML
        json.dump([{"model_id": name, "model_name": "any", "api_base": engine.url + "/v1", **more}
                   for name, more in kinds.items()], f)
    os.environ["LLM_USER_PATH"] = home
    import llm
    seen = []

    def look(**arguments):
        seen.append(arguments)
        return "B"

    function = doc["tools"][0]["function"]
    tool = llm.Tool(name="look", description=function["description"], input_schema=function["parameters"],
                    implementation=look)
    for name in ("chat", "answers"):
        model = llm.get_model(name)
        for stream in (True, False):
            text = model.chain(doc["ask"], tools=[tool], stream=stream, options={"temperature": 0}).text()
            same(f"{name}, streamed {stream}", (text.endswith(doc["done"]), seen.pop()), (True, doc["arguments"]))
    talk = llm.get_model("chat").conversation()
    for turn in range(2):
        same(f"turn {turn}", talk.prompt("B", temperature=0).text(), doc["done"])
    same("text", llm.get_model("text").prompt("B", temperature=0, max_tokens=3).text(), doc["done"])
    raises("a long prompt", Exception, lambda: llm.get_model("chat").prompt(LONG).text())

    def command(*words):
        return subprocess.run([sys.executable, "-m", "llm", *words], capture_output=True, text=True, timeout=300)

    done = command("-m", "chat", "-o", "temperature", "0", "-u", "B")
    same("the command", (done.returncode, done.stdout), (0, doc["done"] + "\n"))
    holds(f"no usage: {done.stderr}", "Token usage: " in done.stderr)
    done = command("-c", "-o", "temperature", "0", "--no-stream", "Again: B")
    same("the command, continued", (done.returncode, done.stdout), (0, doc["done"] + "\n"))
    done = command("-m", "chat", LONG)
    holds(f"the command: {done.returncode}, {done.stderr[-300:]}", done.returncode == 1 and "too long" in done.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--only", help="one of litellm, langchain, llm")
    a = p.parse_args()
    doc = family_models(a.models, a.out)
    family = next(f for f in doc["families"] if f["name"] == "coder")
    sessions = {"litellm": litellm_session, "langchain": langchain_session,
                "llm": functools.partial(llm_session, os.path.abspath(a.out))}
    good = with_engine("libraries", lambda: Engine(family["path"], a.libexec, a.out),
                       {name: functools.partial(session, family, doc) for name, session in sessions.items() if a.only in (None, name)})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
