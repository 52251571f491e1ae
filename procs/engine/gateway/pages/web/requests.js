/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* Shows what limits the speed now, and the requests of the engine: who asks, how far each is. */
const requests_view = (() => {
  const SHOWN = 20, WINDOW_MS = 10000;
  const seen = new Map(); /* sequence: [[time, new tokens], ...] of the last ten seconds */

  /* New tokens per second since the oldest of these looks; "" before there are two. */
  function speed(row, now) {
    const looks = (seen.get(row.sequence) || []).filter(([at]) => now - at < WINDOW_MS);
    if (row.tokens > 0) looks.push([now, row.tokens]);
    seen.set(row.sequence, looks);
    const [first] = looks, seconds = first ? (now - first[0]) / 1e3 : 0;
    return seconds > 0 ? ((row.tokens - first[1]) / seconds).toFixed(1) : "";
  }
  function doing(row) {
    if (row.state === "queued") return row.queue > 0 ? `waits, ${row.queue} before it` : "waits";
    return row.tokens > 0 ? "answer" : "prompt";
  }
  function time(ms) {
    const s = Math.round(ms / 1e3);
    return s < 120 ? `${s} s` : `${Math.floor(s / 60)} min`;
  }
  function line(row, now) {
    const tr = el("tr"), share = part_of(row.done, row.prompt_tokens);
    const prompt = row.done < row.prompt_tokens
      ? `${row.done} of ${row.prompt_tokens}, ${percent(share)}` : String(row.prompt_tokens);
    tr.append(el("td", row.client || "–", "w"), el("td", doing(row)), el("td", prompt, "n"),
      el("td", String(row.tokens), "n"), el("td", speed(row, now), "n"),
      el("td", time(row.age_ms), "n"));
    return tr;
  }
  function show(doc, now) {
    const rows = doc.sequences || [], table = el("table", undefined, "rows reqs");
    const head = el("tr");
    for (const [h, c] of [["client", "w"], ["doing"], ["prompt", "n"], ["tokens", "n"],
      ["tokens/s", "n"], ["time", "n"]])
      head.append(el("th", h, c));
    table.append(head, ...rows.slice(0, SHOWN).map((row) => line(row, now)));
    for (const sequence of seen.keys())
      if (!rows.some((row) => row.sequence === sequence)) seen.delete(sequence);
    const more = rows.length - SHOWN;
    $("requests").replaceChildren(...(rows.length ? [table] : [el("p", "There are none.", "note")]),
      ...(more > 0 ? [el("p", `and ${more} more`, "note")] : []));
  }
  /* stats has it from its second snapshot on. */
  function limit(stats) {
    if (!stats.limit) return;
    const { name, text } = stats.limit;
    $("limit").replaceChildren("What limits the speed now: ", el("b", name), text.slice(name.length));
  }
  return { show, limit };
})();
