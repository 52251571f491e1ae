/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* A request to the engine, and the events of its answer. */

/* The messages of a conversation. Thoughts and notes stay here. */
function messages_of(chat) {
  const system = (chat.settings.system || "").trim();
  return [...(system ? [{ role: "system", content: system }] : []), ...chat.turns.map((t) => {
    if (t.role === "tool") return { role: "tool", tool_call_id: t.id, content: t.content };
    const calls = (t.calls || []).map((c) => ({ id: c.id, type: "function",
      function: { name: c.name, arguments: c.arguments } }));
    return { role: t.role, content: t.content, ...(calls.length ? { tool_calls: calls } : {}) };
  })];
}
/* Throws a text that names what is wrong with the tools. */
function tools_of(settings) {
  if (!(settings.tools || "").trim()) return undefined;
  let tools;
  try {
    tools = JSON.parse(settings.tools);
  } catch (e) {
    throw new Error(`Tools: ${e.message}`);
  }
  if (!Array.isArray(tools)) throw new Error("Tools: a JSON array is expected");
  return tools;
}
function request_of(chat) {
  const s = chat.settings, on = s.thinking === "on";
  const number = (text) => (text === "" || text === undefined ? undefined : Number(text));
  return { messages: messages_of(chat), stream: true, stream_options: { include_usage: true },
    return_progress: true, temperature: number(s.temperature), max_tokens: number(s.longest),
    tools: tools_of(s),
    chat_template_kwargs: s.thinking ? { enable_thinking: on, thinking: on } : undefined };
}

/* The JSON of each "data:" line of a response. */
async function* events_of(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((l) => l.startsWith("data: {")))
      yield JSON.parse(line.slice(6));
  }
}

/* Calls arrive in pieces, each with the number of its call. */
function add_calls(turn, pieces) {
  for (const piece of pieces) {
    const call = (turn.calls[piece.index || 0] ||= { id: "", name: "", arguments: "" });
    call.id = piece.id || call.id;
    call.name += piece.function?.name || "";
    call.arguments += piece.function?.arguments || "";
  }
}

/* Sends the conversation, and writes the answer into `turn` as it arrives. shown() is called after
 * each change, progress() with how far the prompt is. Returns { finish, usage, seconds }, or throws
 * what went wrong. */
async function answer_into(turn, chat, signal, shown, progress) {
  const reply = await fetch("/v1/chat/completions", { method: "POST", signal,
    headers: { "Content-Type": "application/json" }, body: JSON.stringify(request_of(chat)) });
  if (!reply.ok) throw new Error((await reply.json()).error.message);
  let first = 0, finish = "", usage = null;
  for await (const event of events_of(reply)) {
    const choice = event.choices?.[0], delta = choice?.delta || {};
    if (event.error) throw new Error(event.error.message);
    usage = event.usage || usage;
    finish = choice?.finish_reason || finish;
    if (event.prompt_progress && !first) progress(event.prompt_progress);
    if (!delta.content && !delta.reasoning_content && !delta.tool_calls) continue;
    first = first || performance.now();
    turn.content += delta.content || "";
    turn.thought += delta.reasoning_content || "";
    add_calls(turn, delta.tool_calls || []);
    shown();
  }
  return { finish, usage, seconds: (performance.now() - (first || performance.now())) / 1e3 };
}
