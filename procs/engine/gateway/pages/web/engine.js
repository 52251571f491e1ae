/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* The engine's view is made from /stats and /map, once a second; without this file the page shows
 * the server's own tables. */
const sum = (doc, service, counter) => doc.processes.filter((p) => p.service === service)
  .reduce((n, p) => n + (p.counters[counter] || 0), 0);
const part_of = (a, b) => (b > 0 ? a / b : 0);

/* ---- charts ---- */

/* Counters whose growth between two looks is shown. */
const COUNTERS = {
  decode: ["compute", "tokens_decode"], prefill: ["compute", "tokens_prefill"],
  stall: ["compute", "stall_ns"], hits: ["compute", "hits"], accesses: ["compute", "accesses"],
  passes: ["compute", "passes"], rows: ["compute", "pass_rows"],
  experts: ["compute", "pass_experts"], expert_rows: ["compute", "pass_expert_rows"],
  read: ["loader", "bytes_read"], busy: ["loader", "busy_ns"],
  used: ["cache", "prefetches_used"], unused: ["cache", "prefetches_unused"],
  there: ["compute", "gpu_expert_hits"], sent: ["compute", "gpu_expert_uploads"],
  gone: ["compute", "gpu_expert_evictions"], copied: ["compute", "gpu_uploaded_bytes"],
  gpu: ["compute", "gpu_busy_ns"] };

function share_chart(id, title, part, whole, note) {
  const value = Math.min(1, part_of(part, whole));
  draw_chart({ id, title, values: [value], now: whole > 0 ? percent(value) : "–", note, end: 1,
    format: percent });
}
function number_chart(id, title, values, now, note, format = short) {
  draw_chart({ id, title, values, now, note, format });
}

function work_charts(doc, d, s) {
  const running = sum(doc, "compute", "sequences_running");
  const queued = sum(doc, "compute", "sequences_queued");
  const rows = part_of(d.rows, d.passes), each = part_of(d.expert_rows, d.experts);
  const gap = d.decode ? 1e3 * s * Math.max(1, running) / d.decode : 0;
  number_chart("chart-tokens", "New tokens per second", [d.decode / s], (d.decode / s).toFixed(1),
    "of all answers");
  number_chart("chart-prompts", "Prompt tokens per second", [d.prefill / s],
    (d.prefill / s).toFixed(0), "computed, without those that were kept");
  number_chart("chart-gap", "Time between two tokens of an answer", [gap],
    d.decode ? gap.toFixed(0) + " ms" : "–", "", (n) => short(n) + " ms");
  number_chart("chart-clients", "Requests (second line: waiting)", [running, queued],
    String(running), `computed · ${queued} waiting`);
  number_chart("chart-rows", "Rows per pass (second line: per expert)", [rows, each],
    d.passes ? rows.toFixed(1) : "–",
    `tokens · ${part_of(d.experts, d.passes).toFixed(0)} experts, each for ${each.toFixed(1)}`);
}
function storage_charts(doc, d, s) {
  const loaders = doc.processes.filter((p) => p.service === "loader").length;
  share_chart("chart-stall", "Waiting for experts", d.stall / 1e9, s, "of the time");
  share_chart("chart-hits", "Experts found in memory", d.hits, d.accesses,
    `of ${short(d.accesses)} accesses`);
  number_chart("chart-drive", "Read from storage", [d.read / s], rate(d.read / s),
    `busy ${percent(Math.min(1, part_of(d.busy / 1e9 / s, loaders)))}`, rate);
  share_chart("chart-prefetch", "Prefetched experts that were used", d.used, d.used + d.unused,
    `${d.used} used, ${d.unused} in vain`);
}
function gpu_chart(g, d, s) {
  const name = `GPU ${g.numbers}, ${g.name}`, title = "Experts found on the GPU";
  if (g.lost)
    return draw_chart({ id: "chart-gpu", title, values: [0], now: "lost", end: 1, format: percent,
      note: `${name} · computing on the CPU` });
  share_chart("chart-gpu", title, d.there, d.there + d.sent,
    `${g.slots_used}/${g.slots} slots · ${g.policy} · ${d.sent} copied, ${d.gone} replaced · ` +
    rate(d.copied / s) +
    (d.gpu ? ` · busy ${percent(Math.min(1, d.gpu / 1e9 / s))}` : "") +
    ` · ${bytes(g.budget_bytes)} of ${name}`);
}
let last;
function charts(doc, now) {
  const at = { now };
  for (const k in COUNTERS) at[k] = sum(doc, ...COUNTERS[k]);
  if (last) {
    const s = (now - last.now) / 1e3, d = {};
    for (const k in COUNTERS) d[k] = Math.max(0, at[k] - last[k]); /* a restart counts from zero */
    work_charts(doc, d, s);
    storage_charts(doc, d, s);
    if (doc.gpu) gpu_chart(doc.gpu, d, s);
  }
  last = at;
}

function prefixes(doc) {
  const of = (counter) => sum(doc, "compute", counter);
  $("prefixes").textContent = `${of("kv_kept_entries")} kept in ${bytes(of("kv_kept_bytes"))} · ` +
    `${of("sequences_reused")} requests began with one · ` +
    `${of("tokens_reused")} tokens of prompts were not computed · ` +
    `${of("kv_kept_evictions")} given up for others`;
}

/* ---- budget ---- */
function budget(doc) {
  const m = doc.memory, p = m.plan;
  const parts = [["experts and dense weights", m.segments.arena, "--a"],
    ["KV cache", m.segments.kv, "--c"], ["private, reserved", p.private_bytes, "--b"],
    ["programs", p.text_bytes, "--d"],
    ["kernel, tables, segments", p.kernel_bytes + p.page_table_bytes + p.tmpfs_node_bytes +
      p.segments_bytes, "--soft"],
    ["margin and reads in flight", p.margin_bytes + p.in_flight_bytes, "--e"]];
  $("bar").replaceChildren(...parts.map(([, n, c]) => {
    const i = el("i");
    i.style.width = 100 * n / m.budget_bytes + "%";
    i.style.background = `var(${c})`;
    return i;
  }));
  const free = Math.max(0, m.budget_bytes - parts.reduce((n, x) => n + x[1], 0));
  const all = parts.concat([["not used", free, "--none"]]);
  $("parts").replaceChildren(...all.map(([name, n, c]) => {
    const li = el("li"), i = el("i");
    i.style.background = `var(${c})`;
    li.append(i, `${name} ${bytes(n)}`);
    return li;
  }));
  $("headline").textContent = `${doc.model.name || doc.model.path} · ${doc.state} · ` +
    `${bytes(m.used_bytes)} used of ${bytes(m.budget_bytes)} · preset ${doc.preset}` +
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
  for (const [h, c] of [["process"], ["state"], ["waits for", "w"], ["restarts", "n"],
    ["private", "n"], ["reserved", "n"], ["exit message", "w"]])
    head.append(el("th", h, c));
  table.append(head);
  for (const p of doc.processes) {
    const row = el("tr");
    row.append(el("td", named(p)), el("td", p.state, p.state === "ready" ? "" : "bad"),
      el("td", p.wait, "w"), el("td", p.restarts, "n"),
      el("td", p.private_bytes ? bytes(p.private_bytes) : "", "n"),
      el("td", p.reserved_bytes ? bytes(p.reserved_bytes) : "", "n"),
      el("td", p.exit_message || "", "w"));
    table.append(row);
  }
  $("numbers").replaceChildren(table);
}

/* The engine stores exit records, so that a reloaded page shows the same. */
function exits(doc) {
  $("history").replaceChildren(...(doc.exits || []).map((d) => el("li",
    `${new Date(d.wall_ms).toLocaleString()} ${named(d)}, ${d.cause}: ${d.exit_message}` +
    (d.restarted ? "" : " (not restarted)"))).reverse());
}

/* ---- once per second, while the page is visible ---- */
function fetched(path) {
  return fetch(path).then((r) => r.json());
}
let computing = false; /* a process that starts again would let the others wait */
async function look() {
  const engine = view() === "engine";
  if (!document.hidden) {
    try {
      const [stats, experts, requests] = await Promise.all([fetched("/stats"),
        engine && fetched("/map"), engine && computing && fetched("/requests")]);
      if (stats.memory) {
        document.body.classList.add("on");
        charts(stats, performance.now());
        budget(stats);
        prefixes(stats);
        processes(stats);
        exits(stats);
        requests_view.limit(stats);
        computing = stats.processes.some((p) => p.service === "compute" && p.state === "ready");
      }
      if (experts.rows) map(experts);
      if (requests.sequences) requests_view.show(requests, performance.now());
    } catch (e) {
      $("headline").textContent = "The gateway does not answer.";
    }
  }
  setTimeout(look, 1000);
}
look();
