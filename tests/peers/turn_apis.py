# SPDX-License-Identifier: Apache-2.0
"""A part of turns.py: one conversation with calls of tools in each API. An API has the messages so far, asks for an
answer, and appends the answer and the result of its call, as its clients do.

An answer is (reasoning, content, [(name, arguments)], prompt tokens, tokens that were kept or None)."""
import json


class Chat:
    path, name = "/v1/chat/completions", "chat"

    def __init__(self, ask, tools):
        self.messages = [{"role": "user", "content": ask}]
        self.tools, self.answer = tools, None

    def body(self):
        return {"messages": self.messages, "tools": self.tools, "temperature": 0, "max_tokens": 99}

    def read(self, answer):
        self.answer = answer["choices"][0]["message"]
        usage = answer["usage"]
        calls = [(c["function"]["name"], json.loads(c["function"]["arguments"]))
                 for c in self.answer.get("tool_calls") or []]
        return self.answer.get("reasoning_content", ""), self.answer["content"] or "", calls, usage["prompt_tokens"], \
            usage["prompt_tokens_details"]["cached_tokens"]

    def ids(self):
        return [c["id"] for c in self.answer["tool_calls"]]

    def result(self, text):
        self.messages += [self.answer, {"role": "tool", "tool_call_id": self.ids()[0], "name": "look", "content": text}]


class Responses(Chat):
    path, name = "/v1/responses", "responses"

    def body(self):
        tools = [dict(t["function"], type="function") for t in self.tools]
        return {"input": self.messages, "tools": tools, "temperature": 0, "store": False, "max_output_tokens": 99}

    def read(self, answer):
        self.answer = answer["output"]
        texts = {"reasoning": "", "message": ""}
        calls = []
        for item in self.answer:
            if item["type"] == "function_call":
                calls.append((item["name"], json.loads(item["arguments"])))
            else:
                texts[item["type"]] += "".join(part["text"] for part in item["content"])
        usage = answer["usage"]
        return texts["reasoning"], texts["message"], calls, usage["input_tokens"], \
            usage["input_tokens_details"]["cached_tokens"]

    def ids(self):
        return [item["call_id"] for item in self.answer if item["type"] == "function_call"]

    def result(self, text):
        self.messages += [*self.answer, {"type": "function_call_output", "call_id": self.ids()[0], "output": text}]


class Messages(Chat):
    path, name = "/v1/messages", "messages"

    def body(self):
        tools = [{"name": t["function"]["name"], "description": t["function"]["description"],
                  "input_schema": t["function"]["parameters"]} for t in self.tools]
        return {"messages": self.messages, "tools": tools, "temperature": 0, "max_tokens": 128000}

    def read(self, answer):
        self.answer = answer["content"]
        texts = {"thinking": "", "text": ""}
        calls = []
        for block in self.answer:
            if block["type"] == "tool_use":
                calls.append((block["name"], block["input"]))
            else:
                texts[block["type"]] += block[block["type"]]
        usage = answer["usage"]
        kept = usage["cache_read_input_tokens"]
        return texts["thinking"], texts["text"], calls, usage["input_tokens"] + kept, kept

    def ids(self):
        return [block["id"] for block in self.answer if block["type"] == "tool_use"]

    def result(self, text):
        self.messages += [{"role": "assistant", "content": self.answer}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": self.ids()[0], "content": [{"type": "text", "text": text}]}]}]


class Ollama(Chat):
    path, name = "/api/chat", "ollama"

    def body(self):
        return {"messages": self.messages, "tools": self.tools, "stream": False,
                "options": {"temperature": 0, "num_predict": 99}}

    def read(self, answer):
        self.answer = answer["message"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in self.answer.get("tool_calls") or []]
        return self.answer.get("thinking", ""), self.answer["content"], calls, answer["prompt_eval_count"], None

    def ids(self):
        return []

    def result(self, text):
        self.messages += [self.answer, {"role": "tool", "tool_name": "look", "content": text}]


APIS = Chat, Responses, Messages, Ollama
