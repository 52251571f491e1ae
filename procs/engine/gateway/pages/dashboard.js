/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* Everything is made from /stats and /map, once a second; without this file the page shows the
 * server's own tables. Text of the engine goes through textContent only. */
const $ = (id) => document.getElementById(id);
const el = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const bytes = (n) => {
  for (const u of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024 || u === "TiB") return (n < 10 && u !== "B" ? n.toFixed(1) : Math.round(n)) + " " + u;
    n /= 1024;
  }
};
const sum = (doc, service, counter) => doc.processes.filter((p) => p.service === service)
  .reduce((n, p) => n + (p.counters[counter] || 0), 0);

/* ---- charts: the last two minutes of a value ---- */
const kept = {};
function chart(id, value, shown, note, top) {
  const all = (kept[id] = kept[id] || []);
  all.push(value);
  if (all.length > 120) all.shift();
  const most = top || Math.max(1e-9, ...all);
  const shape = (name, set) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const k in set) e.setAttribute(k, set[k]);
    return e;
  };
  const seen = all.length > 1 ? all : [value, value]; /* what is known fills the width, from the first sample on */
  const width = seen.length - 1;
  const points = seen.map((v, i) => `${i},${(39 - 37 * Math.min(1, v / most)).toFixed(2)}`).join(" ");
  const svg = shape("svg", { viewBox: `0 0 ${width} 40`, preserveAspectRatio: "none" });
  svg.append(shape("path", { d: `M0,39.5 H${width}` }));
  svg.append(shape("polygon", { points: `0,40 ${points} ${width},40` }), shape("polyline", { points }));
  $(id).replaceChildren(el("b", shown), el("small", note), svg);
}
function gpu(g, d, s, part, pct) {
  const name = `GPU ${g.numbers}, ${g.name}`;
  $("gpu").hidden = false;
  if (g.lost) return chart("chart-gpu", 0, "lost", `${name} · computing on the CPU`, 1);
  const hits = part(d.there, d.there + d.sent);
  chart("chart-gpu", hits, d.there + d.sent ? pct(hits) : "–", `there · ${g.slots_used}/${g.slots} slots · ` +
    `${g.policy} · ${d.sent} copied, ${d.gone} replaced · ${bytes(d.copied / s)}/s` +
    (d.gpu ? ` · busy ${pct(Math.min(1, d.gpu / 1e9 / s))}` : "") + ` · ${bytes(g.budget_bytes)} of ${name}`, 1);
}
let last;
function charts(doc, now) {
  const names = { decode: ["compute", "tokens_decode"], prefill: ["compute", "tokens_prefill"],
    stall: ["compute", "stall_ns"], hits: ["compute", "hits"], accesses: ["compute", "accesses"],
    read: ["loader", "bytes_read"], busy: ["loader", "busy_ns"],
    used: ["cache", "prefetches_used"], unused: ["cache", "prefetches_unused"],
    there: ["compute", "gpu_expert_hits"], sent: ["compute", "gpu_expert_uploads"],
    gone: ["compute", "gpu_expert_evictions"], copied: ["compute", "gpu_uploaded_bytes"], gpu: ["compute", "gpu_busy_ns"] };
  const at = { now };
  for (const k in names) at[k] = sum(doc, ...names[k]);
  if (last) {
    const s = (now - last.now) / 1e3;
    const d = {};
    for (const k in names) d[k] = Math.max(0, at[k] - last[k]); /* a restart counts from zero */
    const loaders = doc.processes.filter((p) => p.service === "loader").length;
    const part = (a, b) => (b > 0 ? a / b : 0), pct = (x) => Math.round(100 * x) + " %";
    chart("chart-tokens", d.decode / s, (d.decode / s).toFixed(1), `new · ${(d.prefill / s).toFixed(0)} of prompts`);
    chart("chart-stall", Math.min(1, d.stall / 1e9 / s), pct(Math.min(1, d.stall / 1e9 / s)), "of the time", 1);
    chart("chart-hits", part(d.hits, d.accesses), d.accesses ? pct(part(d.hits, d.accesses)) : "–", `of ${d.accesses} uses`, 1);
    chart("chart-drive", d.read / s, bytes(d.read / s) + "/s", `busy ${pct(Math.min(1, d.busy / 1e9 / s / loaders))}`);
    chart("chart-prefetch", part(d.used, d.used + d.unused), d.used + d.unused ? pct(part(d.used, d.used + d.unused)) : "–",
      `${d.used} used, ${d.unused} in vain`, 1);
    if (doc.gpu) gpu(doc.gpu, d, s, part, pct);
    chart("chart-clients", sum(doc, "gateway", "connections"), String(sum(doc, "gateway", "connections")),
      `connections · ${sum(doc, "gateway", "streams")} completions`);
  }
  last = at;
}

/* ---- budget ---- */
function budget(doc) {
  const m = doc.memory, p = m.plan;
  const parts = [["experts and dense weights", m.segments.arena, "--a"], ["KV cache", m.segments.kv, "--c"],
    ["private, reserved", p.private_bytes, "--b"], ["programs", p.text_bytes, "--d"],
    ["kernel, tables, segments", p.kernel_bytes + p.page_table_bytes + p.tmpfs_node_bytes + p.segments_bytes, "--soft"],
    ["margin and reads in flight", p.margin_bytes + p.in_flight_bytes, "--e"]];
  $("bar").replaceChildren(...parts.map(([, n, c]) => {
    const i = el("i");
    i.style.width = 100 * n / m.budget_bytes + "%";
    i.style.background = `var(${c})`;
    return i;
  }));
  const free = Math.max(0, m.budget_bytes - parts.reduce((n, x) => n + x[1], 0));
  $("parts").replaceChildren(...parts.concat([["not used", free, "--none"]]).map(([name, n, c]) => {
    const li = el("li"), i = el("i");
    i.style.background = `var(${c})`;
    li.append(i, `${name} ${bytes(n)}`);
    return li;
  }));
  $("headline").textContent = `${doc.model.name || doc.model.path} · ${doc.state} · ${bytes(m.used_bytes)} used of ` +
    `${bytes(m.budget_bytes)} · arena ${bytes(m.arena_quota_bytes)} · preset ${doc.preset}` +
    (doc.auto ? `: ${doc.auto.text}` : "");
}

/* ---- experts ---- */
const colours = { 0: "--a", 1: "--c", 2: "--b", 3: "--d", "+": "--bad" };
function map(doc) {
  const canvas = $("map").firstElementChild, style = getComputedStyle(document.documentElement);
  const cell = Math.max(2, Math.floor(1200 / doc.experts)), high = Math.min(18, cell);
  canvas.width = doc.experts * cell;
  canvas.height = doc.rows.length * high;
  const draw = canvas.getContext("2d");
  doc.rows.forEach((row, layer) => [...row.resident].forEach((sign, expert) => {
    draw.globalAlpha = 1;
    draw.fillStyle = style.getPropertyValue("--none");
    draw.fillRect(expert * cell, layer * high, cell - 1, high - 1);
    if (!colours[sign]) return;
    draw.globalAlpha = 0.35 + 0.65 * Number(row.heat[expert]) / 9;
    draw.fillStyle = style.getPropertyValue(colours[sign]);
    draw.fillRect(expert * cell, layer * high, cell - 1, high - 1);
  }));
}

/* ---- processes ---- */
const named = (p) => (p.service === "loader" ? `loader.${p.number}` : p.service);
function processes(doc) {
  const table = el("table", undefined, "rows procs"), head = el("tr");
  for (const [h, c] of [["process"], ["state"], ["waits for", "w"], ["restarts", "n"], ["private", "n"],
    ["reserved", "n"], ["exit message", "w"]])
    head.append(el("th", h, c));
  table.append(head);
  for (const p of doc.processes) {
    const row = el("tr");
    row.append(el("td", named(p)), el("td", p.state, p.state === "ready" ? "" : "bad"), el("td", p.wait, "w"),
      el("td", p.restarts, "n"), el("td", p.private_bytes ? bytes(p.private_bytes) : "", "n"),
      el("td", p.reserved_bytes ? bytes(p.reserved_bytes) : "", "n"), el("td", p.exit_message || "", "w"));
    table.append(row);
  }
  $("numbers").replaceChildren(table);
}

/* The engine stores exit records, so that a reloaded page shows the same. */
function exits(doc) {
  $("history").replaceChildren(...(doc.exits || []).map((d) => el("li",
    `${new Date(d.wall_ms).toLocaleString()} ${named(d)}, ${d.cause}: ${d.exit_message}${d.restarted ? "" : " (not restarted)"}`)).reverse());
}

/* ---- once per second, while the page is visible ---- */
async function look() {
  if (!document.hidden) {
    try {
      const [stats, experts] = await Promise.all(["/stats", "/map"].map((u) => fetch(u).then((r) => r.json())));
      if (stats.memory) { charts(stats, performance.now()); budget(stats); processes(stats); exits(stats); }
      if (experts.rows) map(experts);
      document.body.classList.add("on");
    } catch (e) {
      $("headline").textContent = "the gateway does not answer";
    }
  }
  setTimeout(look, 1000);
}
look();
