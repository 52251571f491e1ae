/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* The elements of a turn, which grow while it arrives. */
const turns_view = (() => {
  const NAMES = { user: "You", assistant: "Model", tool: "Result" };

  /* The arguments as the model wrote them, indented if they are JSON. */
  function pretty(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch (e) {
      return text;
    }
  }
  function call_block(call) {
    const block = el("details", undefined, "call"), pre = el("pre");
    block.append(el("summary", `Calls ${call.name}`), pre);
    pre.append(el("code", pretty(call.arguments)));
    block.open = true;
    return block;
  }
  function make(turn) {
    const at = { all: el("div", undefined, "turn " + turn.role), head: el("b"),
      thought: el("details"), text: el("div", undefined, "text"), calls: el("div"),
      note: el("p", undefined, "note") };
    at.thought.append(el("summary", "Thoughts"), el("p"));
    at.all.append(at.head, at.thought, at.text, at.calls, at.note);
    at.drawn = "";
    return at;
  }
  function update(at, turn, arrives) {
    at.head.textContent = turn.role === "tool" ? `Result of ${turn.name}` : NAMES[turn.role];
    at.thought.hidden = !turn.thought;
    at.thought.lastChild.textContent = turn.thought || "";
    at.thought.firstChild.textContent = arrives && !turn.content ? "Thinking …" : "Thoughts";
    if (turn.role !== "assistant") at.text.textContent = turn.content;
    else if (at.drawn !== turn.content) at.text.replaceChildren(markdown(turn.content));
    at.drawn = turn.content;
    at.calls.replaceChildren(...(turn.calls || []).filter(Boolean).map(call_block));
    at.note.textContent = turn.note || "";
    at.note.hidden = !turn.note;
  }
  return { make, update };
})();

/* What ended an answer, if it was not its own end, and how long it was. */
function note_of({ finish, usage, seconds }, longest) {
  const count = usage ? usage.completion_tokens : 0;
  const speed = count && seconds > 0.5 ? `, ${(count / seconds).toFixed(1)} tokens/s` : "";
  const tokens = usage ? `${count} tokens${speed}` : "";
  if (finish !== "length") return tokens;
  if (longest && count >= Number(longest))
    return `The answer ends here because the settings allow no more tokens. ${tokens}`;
  return "The answer ends here because the context is full: begin a new chat, or start the " +
    `engine with a larger --ctx-size. ${tokens}`;
}
/* How far the prompt is: the words of repl and generate. */
function progress_of({ queue, processed, total, left_ms }) {
  if (queue > 0) return `${queue} request${queue > 1 ? "s" : ""} before this one`;
  const s = Math.ceil(left_ms / 1e3), left = s < 120 ? `${s} s` : `${Math.ceil(s / 60)} min`;
  return `Prompt: ${processed} of ${total} tokens${left_ms === undefined ? "" : `, ${left} left`}`;
}
