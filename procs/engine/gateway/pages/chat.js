/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* A conversation with the model. It is kept in the tab's session storage, so that it survives a reload. A turn is
 * { role, content, thought, note }; only role and content go to the engine. A message that fails is no turn: it goes
 * back to the box, so that it can be changed, and the next one does not fail because of it. */
{
  const KEY = "sluice.chat";
  const part = (id) => document.getElementById(id);
  const make = (name, text, cls) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (cls) e.className = cls;
    return e;
  };
  const form = part("talk").querySelector("form"), box = form.querySelector("textarea"), view = part("conversation");
  const stop = part("stop"), fresh = part("fresh");
  let turns = [], abort = null;
  try {
    turns = JSON.parse(sessionStorage.getItem(KEY)) || [];
  } catch (e) { /* not ours, or no storage: a new conversation */ }
  const keep = () => {
    try {
      sessionStorage.setItem(KEY, JSON.stringify(turns));
    } catch (e) { /* full: the page still works */ }
  };

  /* The elements of a turn, which grow while it arrives. */
  function shown(turn) {
    const at = { all: make("div", undefined, turn.role === "user" ? "turn me" : "turn"), thought: make("details"),
      text: make("p"), note: make("p", undefined, "note") };
    at.all.append(make("b", turn.role === "user" ? "You" : "Model"), at.thought, at.text, at.note);
    at.thought.append(make("summary", "Thinking"), make("p"));
    view.append(at.all);
    return at;
  }
  function update(at, turn) {
    at.thought.hidden = !turn.thought;
    at.thought.lastChild.textContent = turn.thought || "";
    at.text.textContent = turn.content;
    at.note.textContent = turn.note || "";
    at.note.hidden = !turn.note;
    view.scrollTop = view.scrollHeight;
  }
  function buttons() {
    stop.disabled = !abort;
    form.querySelector("button").disabled = Boolean(abort);
    fresh.disabled = Boolean(abort) || turns.length === 0;
  }
  turns.forEach((turn) => update(shown(turn), turn));
  buttons();

  /* What ended the answer, if it was not its own end, and how long it was. */
  function note_of(finish, usage, seconds) {
    const speed = usage && seconds > 0.5 ? `, ${(usage.completion_tokens / seconds).toFixed(1)} tokens/s` : "";
    const tokens = usage ? `${usage.completion_tokens} tokens${speed}` : "";
    const full = finish === "length" ? "The answer ends here because the context is full: begin a new conversation, or start " +
      "the engine with a larger --ctx-size. " : "";
    return full + tokens;
  }
  /* How far the prompt is: the words of repl and generate. */
  function progress_of({ queue, processed, total, left_ms }) {
    if (queue > 0) return `${queue} request${queue > 1 ? "s" : ""} before this one`;
    const s = Math.ceil(left_ms / 1e3), left = s < 120 ? `${s} s` : `${Math.ceil(s / 60)} min`;
    return `Prompt: ${processed} of ${total} tokens${left_ms === undefined ? "" : `, ${left} left`}`;
  }
  async function receive(turn, at, waits) {
    const messages = turns.map(({ role, content }) => ({ role, content }));
    const reply = await fetch("/v1/chat/completions", { method: "POST", signal: abort.signal,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ messages, stream: true, stream_options: { include_usage: true },
        return_progress: true }) });
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let first = 0, finish = "", usage = null;
    for (let rest = "";;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.filter((l) => l.startsWith("data: {"))) {
        const event = JSON.parse(line.slice(6)), choice = event.choices?.[0];
        if (event.error) throw new Error(event.error.message);
        usage = event.usage || usage;
        finish = choice?.finish_reason || finish;
        if (event.prompt_progress && !first) {
          clearInterval(waits);
          turn.note = progress_of(event.prompt_progress);
          update(at, turn);
        }
        const text = choice?.delta?.content || "", thought = choice?.delta?.reasoning_content || "";
        if (!text && !thought) continue;
        if (!first) { first = performance.now(); clearInterval(waits); turn.note = ""; }
        turn.content += text;
        turn.thought += thought;
        if (!turn.content) at.thought.open = true;
        update(at, turn);
      }
    }
    turn.note = note_of(finish, usage, (performance.now() - (first || performance.now())) / 1e3);
  }
  async function send(text) {
    const mine = { role: "user", content: text }, turn = { role: "assistant", content: "", thought: "", note: "" };
    const begun = performance.now(), since = () => Math.round((performance.now() - begun) / 1e3);
    const above = shown(mine), at = shown(turn);
    const waiting = () => { turn.note = `The prompt is computed, or waits for other requests: ${since()} s`; update(at, turn); };
    update(above, mine);
    turns.push(mine);
    abort = new AbortController();
    buttons();
    waiting();
    const waits = setInterval(waiting, 1000);
    let failure = "";
    try {
      await receive(turn, at, waits);
    } catch (e) {
      failure = e.name === "AbortError" ? "stopped" : e.message;
    }
    clearInterval(waits);
    abort = null;
    if (failure && !turn.content) { /* it is no turn */
      turns.pop();
      above.all.remove();
      at.all.remove();
      const help = turns.length > 0 ? ". The messages before it count, too: New begins without them." : "";
      if (failure !== "stopped") view.append(make("p", `Not sent: ${failure}${help}`, "bad"));
      if (!box.value) box.value = text;
    } else {
      if (failure) turn.note = failure === "stopped" ? "stopped" : `The answer is incomplete: ${failure}`;
      at.thought.open = false;
      turns.push(turn);
      update(at, turn);
    }
    keep();
    buttons();
    view.scrollTop = view.scrollHeight;
  }

  form.addEventListener("submit", (e) => {
    e.preventDefault();
    const text = box.value;
    if (!text.trim() || abort) return;
    view.querySelectorAll(":scope > .bad").forEach((p) => p.remove());
    box.value = "";
    send(text);
  });
  box.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); form.requestSubmit(); }
  });
  stop.addEventListener("click", () => abort && abort.abort());
  fresh.addEventListener("click", () => {
    turns = [];
    keep();
    view.replaceChildren();
    buttons();
    box.focus();
  });
}
