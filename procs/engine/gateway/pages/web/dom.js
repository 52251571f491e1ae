/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* Helpers that all scripts of the page use. Text of the engine and of the model goes through
 * textContent only: nothing that it contains becomes an element. */
const $ = (id) => document.getElementById(id);
const el = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const bytes = (n) => {
  for (const u of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    const digits = n < 10 && u !== "B" && !Number.isInteger(n) ? 1 : 0;
    if (n < 1024 || u === "TiB") return n.toFixed(digits) + " " + u;
    n /= 1024;
  }
};
/* "7", "1.5", "12.3 k": a number of an axis. */
const short = (n) => {
  for (const u of ["", " k", " M", " G"]) {
    if (n < 1000 || u === " G") return String(Number(n.toPrecision(3))) + u;
    n /= 1000;
  }
};
const percent = (share) => Math.round(100 * share) + " %";

/* The page has two views, named by the part of the address behind "#". */
const view = () => (location.hash === "#engine" ? "engine" : "chat");
function show_view() {
  document.body.dataset.view = view();
  document.querySelectorAll("nav a").forEach((a) => {
    if (a.hash === "#" + view()) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  });
}
addEventListener("hashchange", show_view);
show_view();
