/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* The conversation on the page. A message that fails is no turn: it goes back to the box, so that
 * it can be changed, and the next one does not fail because of it. */
{
  const DRAW_MS = 60, KEEP_MS = 2000;
  const form = $("talk").querySelector("form"), box = form.querySelector("textarea");
  const place = $("conversation");
  const fields = ["system", "temperature", "longest", "thinking", "tools"];
  let chat = store.here() || store.fresh(), abort = null;

  /* ---- what is shown ---- */

  /* Scrolls only if the end was to be seen: somebody may be reading above. */
  function at_end(change) {
    const was = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    change();
    if (was) place.scrollTop = place.scrollHeight;
  }
  function add(turn) {
    const at = turns_view.make(turn);
    place.append(at.all);
    turns_view.update(at, turn, false);
    return at;
  }
  function greeting() {
    const help = el("div", undefined, "greeting");
    const lines = ["This is a chat with a language model that sluice runs on one machine, in " +
      "less memory than the model needs. Type a message below.",
    "What you type goes to that machine only, and conversations are kept in this browser. The " +
      "model has no access to files or to the web.",
    "The settings have the system prompt and the temperature. Below an answer stands how fast it " +
      "was; “Engine” shows what the engine does, and what its memory is used for."];
    help.append(...lines.map((text) => el("p", text)));
    return help;
  }
  function last_turn() {
    return chat.turns[chat.turns.length - 1];
  }
  /* The calls of the last answer that have no result yet. */
  function open_calls() {
    const from = chat.turns.findLastIndex((t) => t.role === "assistant");
    if (from < 0) return [];
    const answered = chat.turns.slice(from + 1).map((t) => t.id);
    return (chat.turns[from].calls || []).filter((c) => !answered.includes(c.id));
  }
  function list_chats() {
    const known = store.newest();
    if (!known.some((c) => c.id === chat.id)) known.unshift(chat);
    $("chats").replaceChildren(...known.map((c) => {
      const option = el("option", store.title(c));
      option.value = c.id;
      option.selected = c.id === chat.id;
      return option;
    }));
  }
  function buttons() {
    const busy = Boolean(abort), calls = open_calls();
    $("send").hidden = busy;
    $("stop").hidden = !busy;
    $("chats").disabled = busy;
    $("fresh").disabled = busy || chat.turns.length === 0;
    $("remove").disabled = busy || chat.turns.length === 0;
    $("again").hidden = busy || calls.length > 0 || last_turn()?.role !== "assistant";
    box.placeholder = calls.length > 0 ? `Type the result of ${calls[0].name}` : "Type a message";
    place.setAttribute("aria-busy", String(busy));
  }
  function show_all() {
    place.replaceChildren(...(chat.turns.length ? [] : [greeting()]));
    chat.turns.forEach(add);
    fields.forEach((name) => { $(name).value = chat.settings[name] || ""; });
    list_chats();
    buttons();
    place.scrollTop = place.scrollHeight;
  }
  function open(next) {
    chat = next;
    store.remember(chat.id);
    show_all();
  }
  function keep() {
    store.save(chat);
    store.remember(chat.id);
    list_chats();
  }

  /* ---- an answer ---- */

  /* Draws at most once in DRAW_MS, because an answer is drawn anew each time. */
  function drawer(at, turn) {
    let due = 0;
    const draw = () => {
      due = 0;
      at_end(() => {
        turns_view.update(at, turn, true);
        if (!turn.content) at.thought.open = true;
      });
    };
    return {
      soon() { due = due || setTimeout(draw, DRAW_MS); },
      now() { clearTimeout(due); draw(); },
      end() { clearTimeout(due); },
    };
  }
  /* Shows the seconds until the engine says how far it is. */
  function waiting(turn, draw) {
    const begun = performance.now();
    const tick = () => {
      const s = Math.round((performance.now() - begun) / 1e3);
      turn.note = `The prompt is computed, or waits for other requests: ${s} s`;
      draw.now();
    };
    tick();
    return setInterval(tick, 1000);
  }
  /* Asks for the next answer. Returns the reason if there is none. */
  async function answer() {
    const turn = { role: "assistant", content: "", thought: "", calls: [], note: "" };
    const at = add(turn), draw = drawer(at, turn), asked = { ...chat, turns: chat.turns.slice() };
    let failure = "", kept = performance.now();
    abort = new AbortController();
    buttons();
    place.scrollTop = place.scrollHeight;
    const waits = waiting(turn, draw);
    const shown = () => {
      clearInterval(waits);
      turn.note = "";
      if (chat.turns[chat.turns.length - 1] !== turn) chat.turns.push(turn);
      if (performance.now() - kept > KEEP_MS) { /* a reload keeps what is there */
        kept = performance.now();
        store.save(chat);
      }
      draw.soon();
    };
    const progress = (p) => { clearInterval(waits); turn.note = progress_of(p); draw.now(); };
    try {
      turn.note = note_of(await answer_into(turn, asked, abort.signal, shown, progress),
        chat.settings.longest);
    } catch (e) {
      failure = e.name === "AbortError" ? "stopped" : e.message;
    }
    clearInterval(waits);
    draw.end();
    abort = null;
    if (failure && !turn.content && !turn.calls.length) { /* it is no turn */
      if (last_turn() === turn) chat.turns.pop();
      at.all.remove();
      return failure;
    }
    if (last_turn() !== turn) chat.turns.push(turn);
    if (failure === "stopped") turn.note = "stopped";
    else if (failure) turn.note = `The answer is incomplete: ${failure}`;
    at.thought.open = false;
    at_end(() => turns_view.update(at, turn, false));
    return "";
  }
  /* Adds a turn and asks for the answer. */
  async function send(turn) {
    place.querySelectorAll(":scope > .bad, .greeting").forEach((p) => p.remove());
    chat.turns.push(turn);
    const at = add(turn), calls = open_calls();
    if (turn.role === "tool" && calls.length > 0) { /* the others first */
      keep();
      return buttons();
    }
    const failure = await answer();
    if (failure) {
      chat.turns.pop();
      at.all.remove();
      const help = chat.turns.length === 0 ? "" :
        ". The messages before it count, too: a new chat begins without them.";
      if (failure !== "stopped") place.append(el("p", `Not sent: ${failure}${help}`, "bad"));
      if (!box.value) box.value = turn.content;
    }
    if (chat.turns.length > 0) keep();
    buttons();
    place.scrollTop = place.scrollHeight;
  }
  async function again() {
    const old = chat.turns.pop();
    place.querySelectorAll(":scope > .bad").forEach((p) => p.remove());
    place.lastElementChild.remove();
    const failure = await answer();
    if (failure) {
      chat.turns.push(old);
      add(old);
      if (failure !== "stopped") place.append(el("p", `No other answer: ${failure}`, "bad"));
    }
    keep();
    buttons();
  }

  /* ---- what a person does ---- */

  function grow() {
    box.style.height = "auto";
    box.style.height = Math.min(box.scrollHeight + 2, innerHeight / 3) + "px";
  }
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    const text = box.value, calls = open_calls();
    if (!text.trim() || abort) return;
    box.value = "";
    grow();
    send(calls.length > 0 ? { role: "tool", id: calls[0].id, name: calls[0].name, content: text }
      : { role: "user", content: text });
  });
  /* Enter sends where there is a keyboard; on a touch screen it begins a line. */
  box.addEventListener("keydown", (e) => {
    const touch = matchMedia("(pointer: coarse)").matches;
    if (e.key !== "Enter" || e.shiftKey || e.isComposing || touch) return;
    e.preventDefault();
    form.requestSubmit();
  });
  box.addEventListener("input", grow);
  $("stop").addEventListener("click", () => abort && abort.abort());
  $("again").addEventListener("click", () => abort || again());
  $("fresh").addEventListener("click", () => { open(store.fresh(chat.settings)); box.focus(); });
  $("chats").addEventListener("change", () => open(store.get($("chats").value) || chat));
  $("remove").addEventListener("click", () => {
    if (!confirm("Delete this conversation from this browser?")) return;
    store.remove(chat.id);
    open(store.newest()[0] || store.fresh(chat.settings));
  });
  fields.forEach((name) => $(name).addEventListener("change", () => {
    chat.settings[name] = $(name).value;
    const wrong = $("tools-wrong");
    wrong.textContent = "";
    try {
      tools_of(chat.settings);
    } catch (e) {
      wrong.textContent = e.message;
    }
    wrong.hidden = !wrong.textContent;
    if (chat.turns.length > 0) keep();
  }));
  /* The page is left in the middle of an answer: what arrived is kept. */
  addEventListener("pagehide", () => {
    if (!abort || last_turn()?.role !== "assistant") return;
    last_turn().note = "The page was left before the answer ended.";
    store.save(chat);
  });
  show_all();
}
