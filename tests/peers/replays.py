#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The requests that programs send, one after the other as they do, with the gateway (README.md): Codex, Claude Code,
Home Assistant, Zed, Continue and Open WebUI. readers.py reads the answers as strictly as these programs. Needs no package.

    replays.py --models FAMILY_MODELS --libexec LIBEXEC -o WORK

Prints a line "ok NAME" or "not ok NAME: reason" per program. Exit status: 0 all as expected and no process ended, 1 not."""
import argparse
import functools
import sys

import readers
from session import Engine, family_models, holds, same, with_engine

LONG = "x" * 20000  # more tokens than the model's context
WORDS = "You are a careful assistant that helps people with their files. "


def parts(seen):
    return seen["reasoning"], seen["content"], [tuple(c[1:]) for c in seen["calls"]], seen["finish"]


def expected(family, doc, finish):
    return family["reasoning"], family["content"], [("look", doc["arguments"])], finish


def done(doc, finish):
    return "", doc["done"], [], finish


# ---- Codex: /v1/responses, streamed ----


def codex_body(doc, given, key):
    look = dict(doc["tools"][0]["function"], type="function", strict=False)
    lark = "start: begin_patch hunk+ end_patch\nbegin_patch: \"*** Begin Patch\" LF\n"
    return {"model": "gpt-5-codex", "instructions": WORDS, "input": given, "tool_choice": "auto",
            "parallel_tool_calls": False, "reasoning": {"effort": "medium", "summary": "auto"}, "store": False,
            "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": key,
            "text": {"verbosity": "low"}, "client_metadata": {"x-codex-installation-id": key},
            "tools": [look, {"type": "custom", "name": "apply_patch", "description": "Patches files.",
                             "format": {"type": "grammar", "syntax": "lark", "definition": lark}},
                      {"type": "namespace", "name": "mcp__notes", "description": "Notes.", "tools": [
                          {"type": "function", "name": "search", "description": "Searches.", "strict": False,
                           "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]},
                      {"type": "web_search", "external_web_access": True}, {"type": "local_shell"},
                      {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}]}


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def codex(family, doc, engine):
    key = "0199a213-81c0-7800-8aa1-bbab2a035a53"
    headers = {"Authorization": "Bearer unused", "originator": "codex_cli_rs", "session_id": key,
               "OpenAI-Beta": "responses=experimental", "Accept": "text/event-stream"}
    given = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
             user("<environment_context><cwd>/home/u</cwd></environment_context>"), user(doc["ask"])]
    first = readers.responses(engine, codex_body(doc, given, key), headers)
    same("the first turn", parts(first), expected(family, doc, "completed"))
    given += first["items"] + [
        {"type": "function_call_output", "call_id": first["calls"][0][0],
         "output": [{"type": "input_text", "text": "A result."}]},
        {"type": "custom_tool_call", "call_id": "call_p", "name": "apply_patch", "input": "*** Begin Patch\n"},
        {"type": "custom_tool_call_output", "call_id": "call_p", "output": "Done."},
        {"type": "reasoning", "id": "rs_x", "summary": [], "content": None, "encrypted_content": "gAAA"},
        {"type": "local_shell_call", "call_id": "call_s", "status": "completed",
         "action": {"type": "exec", "command": ["ls"]}},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}, user("B")]
    second = readers.responses(engine, codex_body(doc, given, key), headers)
    same("the second turn", parts(second), done(doc, "completed"))
    holds("nothing of the prompt was kept", second["usage"]["input_tokens_details"]["cached_tokens"] > 100)
    compact = readers.responses(engine, dict(codex_body(doc, [*given, user("Summarise: B")], key), tools=[]), headers)
    same("the summary", parts(compact), done(doc, "completed"))
    error = readers.refusal(engine, "/v1/responses", codex_body(doc, [user(LONG)], key))["error"]
    same("a long prompt", error["code"], "context_length_exceeded")


# ---- Claude Code: /v1/messages?beta=true, streamed ----


def claude_code(family, doc, engine):
    headers = {"x-api-key": "unused", "anthropic-version": "2023-06-01", "x-app": "cli",
               "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
                                 "prompt-caching-scope-2026-01-05,effort-2025-11-24",
               "User-Agent": "claude-cli/2.1.295 (external, cli)", "x-stainless-lang": "js"}
    short = {"type": "ephemeral"}
    tools = [{"name": t["function"]["name"], "description": t["function"]["description"],
              "input_schema": dict(t["function"]["parameters"], additionalProperties=False,
                                   **{"$schema": "https://json-schema.org/draft/2020-12/schema"})}
             for t in doc["tools"]]
    tools += [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]
    same("HEAD /", readers.request(engine, "HEAD", "/")[0], 200)
    probe = readers.call(engine, "POST", "/v1/messages?beta=true", {
        "model": "claude-haiku-4-5", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}],
        "metadata": {"user_id": "user_1"}}, headers)
    same("the probe", (probe["type"], probe["usage"]["output_tokens"] <= 1), ("message", True))
    history = [{"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>\nToday is a day.\n</system-reminder>\n"},
        {"type": "text", "text": doc["ask"], "cache_control": short}]}]

    def body(number):
        return {"model": "claude-opus-4-6", "max_tokens": 128000, "messages": history, "tools": tools,
                "system": [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.295; cch={number:05x};"},
                           {"type": "text", "text": "You are a command line agent.", "cache_control": short},
                           {"type": "text", "text": WORDS * 20, "cache_control": short}],
                "metadata": {"user_id": "user_1_session_2"}, "thinking": {"type": "adaptive"},
                "output_config": {"effort": "high"}, "safeguards": {"x": 1},
                "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "stream": True}

    kept = 0
    for turn in range(3):
        seen = readers.messages(engine, body(turn), headers)
        same(f"turn {turn}", parts(seen), expected(family, doc, "tool_use"))
        counted = {k: v for k, v in body(turn + 50).items() if k not in ("max_tokens", "stream", "metadata")}
        count = readers.call(engine, "POST", "/v1/messages/count_tokens?beta=true", counted, headers)
        usage = seen["usage"]
        same("count_tokens", count, {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]})
        if turn:
            holds(f"turn {turn}: {usage['cache_read_input_tokens']} tokens were kept; turn {turn - 1} had {kept}",
                  usage["cache_read_input_tokens"] >= kept)
        kept = count["input_tokens"]
        history[-1]["content"][-1].pop("cache_control", None)
        history += [{"role": "assistant", "content": seen["items"]}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": seen["calls"][0][0], "is_error": turn == 1, "content": doc["ask"],
             "cache_control": short}]}]
    history += [{"role": "user", "content": [{"type": "text", "text": "B", "cache_control": short}]}]
    same("the end", parts(readers.messages(engine, body(9), headers)), done(doc, "end_turn"))
    title = readers.messages(engine, {
        "model": "claude-haiku-4-5", "max_tokens": 32000, "system": [{"type": "text", "text": "Write a short title."}],
        "messages": [{"role": "user", "content": "B"}], "temperature": 1, "tools": [], "metadata": {"user_id": "u"},
        "stream": True, "top_k": 1}, headers)
    same("the title", parts(title), done(doc, "end_turn"))
    error = readers.refusal(engine, "/v1/messages?beta=true",
                            dict(body(0), messages=[{"role": "user", "content": LONG}]))
    same("a long prompt", (error["type"], error["error"]["type"]), ("error", "invalid_request_error"))
    holds(f"a long prompt: {error}", error["error"]["message"].startswith("prompt is too long: "))


# ---- Home Assistant: Ollama's API, and its integration of llama.cpp ----


def home_assistant(family, doc, engine):
    model = readers.call(engine, "GET", "/api/tags")["models"][0]["model"]
    history = [{"role": "system", "content": WORDS}, {"role": "user", "content": doc["ask"]}]
    ask = {"model": model, "tools": doc["tools"], "stream": True, "keep_alive": "-1s", "think": False,
           "options": {"num_ctx": 8192, "temperature": 0}}
    for turn in range(2):
        seen = readers.ollama(engine, dict(ask, messages=history))
        same(f"turn {turn}", parts(seen), expected(family, doc, "stop"))
        history += seen["items"] + [{"role": "tool", "tool_name": "look", "content": '{"state": "A"}'},
                                    {"role": "user", "content": doc["ask"]}]
    history[-1]["content"] = "B"
    same("the end", parts(readers.ollama(engine, dict(ask, messages=history))), done(doc, "stop"))
    text = readers.ollama(engine, {"model": model, "prompt": "B", "stream": True, "options": {"temperature": 0}},
                          "/api/generate")
    same("generate", parts(text), done(doc, "stop"))
    models = readers.call(engine, "GET", "/v1/models")
    readers.has("the list", models["data"][0], id=str, object=str, created=int, owned_by=str)
    probe = {"model": models["data"][0]["id"], "messages": [{"role": "user", "content": "ping"}], "max_tokens": 3,
             "tools": doc["tools"], "user": "u", "top_p": 1, "temperature": 1}
    readers.has("the probe", readers.call(engine, "POST", "/v1/chat/completions", probe), id=str, choices=list, usage=dict)
    same("the probe, streamed", readers.chat(engine, probe)["finish"], "length")
    error = readers.refusal(engine, "/api/chat", dict(ask, messages=[{"role": "user", "content": LONG}]))
    holds(f"a long prompt: {error}", isinstance(error["error"], str))


# ---- Zed: Ollama's lists, read strictly; chat of both APIs ----


def zed(family, doc, engine):
    for entry in readers.call(engine, "GET", "/api/tags")["models"]:
        readers.has("a model", entry, name=str, modified_at=str, size=int, digest=str, details=dict)
        readers.has("details", entry["details"], format=str, family=str, families=list, parameter_size=str,
                    quantization_level=str)
        shown = readers.call(engine, "POST", "/api/show", {"model": entry["name"]})
        readers.has("a model", shown, capabilities=list, model_info=dict)
        same("capabilities", set(shown["capabilities"]) - {"insert", "vision"}, {"completion", "tools", "thinking"})
        arch = shown["model_info"]["general.architecture"]
        readers.has("model_info", shown["model_info"], **{f"{arch}.context_length": int})
    history = [{"role": "system", "content": WORDS}, {"role": "user", "content": doc["ask"]}]
    ask = {"model": "any", "stream": True, "max_completion_tokens": 4000, "temperature": 0, "tools": doc["tools"],
           "tool_choice": "auto", "parallel_tool_calls": False, "stop": [], "stream_options": {"include_usage": True},
           "prompt_cache_key": "thread"}
    kept = 0
    for turn in range(2):
        seen = readers.chat(engine, dict(ask, messages=history))
        same(f"turn {turn}", parts(seen), expected(family, doc, "tool_calls"))
        readers.has("usage", seen["usage"], prompt_tokens=int, completion_tokens=int, total_tokens=int)
        holds("tokens that were kept", seen["usage"]["prompt_tokens_details"]["cached_tokens"] >= kept)
        kept = seen["usage"]["prompt_tokens"] - 1
        history += seen["items"] + [{"role": "tool", "tool_call_id": seen["calls"][0][0], "content": [
            {"type": "text", "text": doc["ask"]}]}]
    history[-1]["content"] = "B"
    same("the end", parts(readers.chat(engine, dict(ask, messages=history))), done(doc, "stop"))
    seen = readers.ollama(engine, {"model": "any", "stream": True, "keep_alive": -1, "think": True, "tools": doc["tools"],
                                   "options": {"num_ctx": 4096, "stop": [], "temperature": 0},
                                   "messages": [{"role": "user", "content": doc["ask"]}]})
    same("Ollama's chat", parts(seen), expected(family, doc, "stop"))


# ---- Continue: lists by the old names, chat, completion in the middle ----


def continue_dev(family, doc, engine):
    del family
    shown = readers.call(engine, "POST", "/api/show", {"name": "any"})
    readers.has("a model", shown, parameters=str, template=str)
    holds(f"no num_ctx: {shown['parameters']!r}", shown["parameters"].split()[0] == "num_ctx")
    readers.has("the list", readers.call(engine, "GET", "/v1/models"), data=list)
    ask = {"model": "any", "max_tokens": 2048, "temperature": 0, "messages": [
        {"role": "system", "content": WORDS}, {"role": "user", "content": [{"type": "text", "text": "Say: B"}]}]}
    same("chat", parts(readers.chat(engine, ask)), done(doc, "stop"))
    whole = readers.call(engine, "POST", "/v1/chat/completions", dict(ask, stream=False))
    same("chat, whole", whole["choices"][0]["message"]["content"], doc["done"])
    text, finish = "", None
    stream = readers.events(engine, "/v1/completions", {
        "model": "any", "prompt": "B", "max_tokens": 4, "temperature": 0, "stream": True, "stop": ["\n\n", "/src/"],
        "presence_penalty": 0, "frequency_penalty": 0})
    same("the last event", stream[-1], (None, "[DONE]"))
    for _, data in stream[:-1]:
        choice = readers.json.loads(data)["choices"][0]
        readers.has("a choice", choice, text=str, index=int)
        text, finish = text + choice["text"], choice["finish_reason"]
    same("completions", (text, finish), (doc["done"], "stop"))
    same("capabilities", "insert" in shown["capabilities"], True)
    middle = {"model": "any", "prompt": "def f():\n", "suffix": "\n    return x\n", "max_tokens": 64, "temperature": 0}
    text = ""
    for _, data in readers.events(engine, "/v1/completions", dict(middle, stream=True))[:-1]:
        text += readers.json.loads(data)["choices"][0]["text"]
    same("in the middle", text, doc["middle"])
    seen = readers.ollama(engine, {"model": "any", "prompt": middle["prompt"], "suffix": middle["suffix"], "stream": True,
                                   "raw": True, "options": {"temperature": 0, "num_predict": 64}}, "/api/generate")
    same("in the middle, Ollama's", parts(seen), ("", doc["middle"], [], "stop"))


def continue_other(family, doc, engine):
    """A model without tokens for a text in the middle: the program is told what it cannot use."""
    del family, doc
    shown = readers.call(engine, "POST", "/api/show", {"name": "any"})
    same("capabilities", "insert" in shown["capabilities"], False)
    error = readers.refusal(engine, "/v1/completions", {"model": "any", "prompt": "def f():", "suffix": "return 1",
                                                        "max_tokens": 4, "stream": True})["error"]
    same("suffix", error["param"], "suffix")
    error = readers.refusal(engine, "/api/generate", {"model": "any", "prompt": "def f():", "suffix": "return 1"})
    holds(f"suffix: {error}", "suffix" in error["error"])


# ---- Open WebUI: the server's lists and side requests ----


def open_webui(family, doc, engine):
    readers.has("the version", readers.call(engine, "GET", "/api/version"), version=str)
    running = readers.call(engine, "GET", "/api/ps")["models"][0]
    readers.has("a model that runs", running, name=str, model=str, size=int, digest=str, expires_at=str, size_vram=int)
    model = readers.call(engine, "GET", "/v1/models")["data"][0]["id"]
    ask = {"model": model, "temperature": 0, "stream_options": {"include_usage": True}, "tools": doc["tools"],
           "messages": [{"role": "system", "content": WORDS}, {"role": "user", "content": doc["ask"]}],
           "user": {"name": "A", "id": "1", "email": "a@example.org", "role": "admin"}}
    first = readers.chat(engine, ask)
    same("chat", parts(first), expected(family, doc, "tool_calls"))
    task = "### Task:\nWrite a title, tags or questions for the chat.\n### Chat History:\n<chat_history>\nB"
    for limit in ("max_tokens", "max_completion_tokens"):
        side = readers.call(engine, "POST", "/v1/chat/completions", {
            "model": model, "messages": [{"role": "user", "content": task}], "stream": False, limit: 1000,
            "temperature": 0})
        same(f"a side request with {limit}", side["choices"][0]["message"]["content"], doc["done"])
    history = ask["messages"] + first["items"] + [
        {"role": "tool", "tool_call_id": first["calls"][0][0], "content": "B"}]
    second = readers.chat(engine, dict(ask, messages=history))
    same("the second turn", parts(second), done(doc, "stop"))
    holds("nothing of the first turn was kept", second["usage"]["prompt_tokens_details"]["cached_tokens"] >=
          first["usage"]["prompt_tokens"] - 1)
    seen = readers.ollama(engine, {"model": model, "stream": True, "messages": [{"role": "user", "content": "B"}],
                                   "options": {"temperature": 0}, "keep_alive": "5m"})
    same("Ollama's chat", parts(seen), done(doc, "stop"))


PROGRAMS = {"codex": codex, "claude_code": claude_code, "home_assistant": home_assistant, "zed": zed,
            "continue": continue_dev, "open_webui": open_webui}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    a = p.parse_args()
    doc = family_models(a.models, a.out)
    family = next(f for f in doc["families"] if f["name"] == "coder")
    good = with_engine("replay", lambda: Engine(family["path"], a.libexec, a.out),
                       {name: functools.partial(session, family, doc) for name, session in PROGRAMS.items()})
    other = next(f for f in doc["families"] if f["name"] == "hermes")
    good &= with_engine("replay", lambda: Engine(other["path"], a.libexec, a.out),
                        {"continue_other": functools.partial(continue_other, other, doc)})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
