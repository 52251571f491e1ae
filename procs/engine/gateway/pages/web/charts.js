/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* Charts of the last two minutes, with axes: the time below, the unit at the left. */
const CHART = { samples: 120, high: 112, left: 62, right: 8, top: 8, bottom: 20 };
const kept = {}; /* id: { values: an array of samples for each line } */

/* The end of an axis: 1, 2 or 5 times a power of ten, at least the value. */
function axis_end(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 5, 10]) if (step * power >= value * 0.999) return step * power;
}
/* For bytes: a power of two. */
const axis_end_bytes = (value) => 2 ** Math.ceil(Math.log2(Math.max(1024, value)));

function shape(name, set, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const k in set) e.setAttribute(k, set[k]);
  if (text !== undefined) e.textContent = text;
  return e;
}

/* The axes: three values and their lines, three times. */
function axes(svg, wide, end, format) {
  const { high, left, right, top, bottom } = CHART, floor = high - bottom;
  for (const part of [0, 0.5, 1]) {
    const y = floor - part * (floor - top);
    svg.append(shape("path", { d: `M${left},${y} H${wide - right}`, class: "grid" }));
    svg.append(shape("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, format(part * end)));
  }
  const times = [["2 min ago", "start", 0], ["1 min ago", "middle", 0.5], ["now", "end", 1]];
  for (const [name, anchor, part] of times)
    svg.append(shape("text", { x: left + part * (wide - right - left), y: high - 4,
      "text-anchor": anchor }, name));
}

function line(svg, wide, values, end, index) {
  const { samples, high, left, right, top, bottom } = CHART, floor = high - bottom;
  const step = (wide - left - right) / (samples - 1), first = samples - values.length;
  const at = (v, i) => `${(left + (first + i) * step).toFixed(1)},` +
    (floor - Math.min(1, v / end) * (floor - top)).toFixed(1);
  const points = values.map(at).join(" ");
  if (index === 0 && values.length > 1) {
    const from = (left + first * step).toFixed(1);
    svg.append(shape("polygon",
      { points: `${from},${floor} ${points} ${wide - right},${floor}` }));
  }
  svg.append(shape("polyline", { points, class: "line" + index }));
}

/* Makes the card of a chart if there is none. */
function card(id, title) {
  if ($(id)) return $(id);
  const section = el("section"), figure = el("figure");
  section.append(el("h2", title), figure);
  figure.id = id;
  $("charts").append(section);
  return figure;
}

/* Adds a sample of each line, and draws if the chart is to be seen.
 * chart: { id, title, now: the newest value as text, note, values, format, end (of the axis) } */
function draw_chart(chart) {
  const all = (kept[chart.id] = kept[chart.id] || chart.values.map(() => []));
  chart.values.forEach((v, i) => {
    all[i].push(v);
    if (all[i].length > CHART.samples) all[i].shift();
  });
  const figure = card(chart.id, chart.title);
  const wide = figure.clientWidth;
  if (wide === 0) return;
  const most = Math.max(...all.flat());
  const end = chart.end || (chart.format === rate ? axis_end_bytes(most) : axis_end(most));
  const svg = shape("svg", { viewBox: `0 0 ${wide} ${CHART.high}`, role: "img",
    "aria-label": `${chart.title}: ${chart.now}` });
  axes(svg, wide, end, chart.format);
  all.forEach((values, i) => line(svg, wide, values, end, i));
  figure.replaceChildren(el("b", chart.now), el("small", chart.note), svg);
}
const rate = (n) => bytes(n) + "/s";
