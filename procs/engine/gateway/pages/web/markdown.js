/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* Markdown of a model as elements: markdown(text) returns a DocumentFragment.
 *
 * The text is not trusted. Elements are made by name, here, and get their text as text: nothing in
 * it can become a tag, an attribute or a script. A link leads to http or https only, and opens
 * another tab; an image is a link, because the page loads nothing from elsewhere. */
const markdown = (() => {
  const DEPTH_MAX = 8; /* of quotes and lists in each other */
  const SPAN = "{1,1000}?"; /* between two marks: the search for the second one is bounded */

  /* ---- within a paragraph ---- */

  /* Alternatives, in the order in which they are tried at a place. */
  const INLINE = new RegExp([
    "(?<ticks>`+)(?<code>[^]" + SPAN + ")\\k<ticks>(?!`)",
    "\\\\(?<escaped>[!-/:-@\\[-`{-~])",
    "!?\\[(?<name>[^\\]\\n]{0,500})\\]\\((?<to>[^()\\s]{1,2000})(?:\\s+\"[^\"\\n]{0,500}\")?\\)",
    "<(?<angle>https?://[^\\s<>]{1,2000})>",
    "(?<bare>\\bhttps?://[^\\s<>\"'`)\\]]{1,2000})",
    "\\*\\*(?=\\S)(?<strong>[^]" + SPAN + ")\\*\\*(?!\\*)",
    "(?<!\\w)__(?=\\S)(?<strong2>[^]" + SPAN + ")__(?!\\w)",
    "\\*(?=[^\\s*])(?<em>[^]" + SPAN + ")(?<=[^\\s*])\\*(?!\\*)",
    "(?<!\\w)_(?=[^\\s_])(?<em2>[^]" + SPAN + ")(?<=[^\\s_])_(?!\\w)",
    "~~(?=\\S)(?<del>[^]" + SPAN + ")~~",
    "(?<line>\\n)",
  ].join("|"), "g");

  function safe(to) {
    try {
      const url = new URL(to);
      return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
    } catch (e) {
      return null;
    }
  }
  function link(to, name) {
    const href = safe(to);
    if (!href) return document.createTextNode(name);
    const a = el("a", name);
    a.href = href;
    a.target = "_blank";
    a.rel = "noopener noreferrer";
    return a;
  }
  function spanned(name, text) {
    const e = el(name);
    inline(text, e);
    return e;
  }
  function node_of(g, whole) {
    if (g.code !== undefined) return el("code", g.code.replace(/^ (.*\S.*) $/s, "$1"));
    if (g.escaped) return document.createTextNode(g.escaped);
    if (g.to !== undefined) return link(g.to, safe(g.to) ? g.name || g.to : whole);
    if (g.angle) return link(g.angle, g.angle);
    if (g.strong || g.strong2) return spanned("strong", g.strong || g.strong2);
    if (g.em || g.em2) return spanned("em", g.em || g.em2);
    if (g.del) return spanned("del", g.del);
    return el("br");
  }
  function inline(text, into) {
    let from = 0;
    for (const m of text.matchAll(INLINE)) {
      into.append(text.slice(from, m.index));
      from = m.index + m[0].length;
      if (m.groups.bare) { /* a stop at its end ends the sentence */
        const to = m.groups.bare.replace(/[.,;:!?*_]+$/, "");
        into.append(link(to, to), m.groups.bare.slice(to.length));
      } else {
        into.append(node_of(m.groups, m[0]));
      }
    }
    into.append(text.slice(from));
  }

  /* ---- blocks ---- */

  const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
  const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
  const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/, QUOTE = /^ {0,3}> ?/;
  const ITEM = /^( *)([-*+]|\d{1,9}[.)])(\s+|$)/;
  const BELOW = /^ *\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
  const is_table = (lines, i) => lines[i].includes("|") && i + 1 < lines.length &&
    lines[i + 1].includes("|") && BELOW.test(lines[i + 1]);
  const starts_block = (lines, i) => FENCE.test(lines[i]) || HEADING.test(lines[i]) ||
    RULE.test(lines[i]) || QUOTE.test(lines[i]) || ITEM.test(lines[i]) || is_table(lines, i);

  function copy_button(code) {
    const button = el("button", "Copy", "quiet");
    button.type = "button";
    button.addEventListener("click", () => navigator.clipboard.writeText(code.textContent)
      .then(() => { button.textContent = "Copied"; }));
    return button;
  }
  function code_block(text, language) {
    const block = el("div", undefined, "code"), head = el("p", language || "code"), pre = el("pre");
    const code = el("code", text);
    if (navigator.clipboard) head.append(copy_button(code)); /* not over plain HTTP from afar */
    pre.append(code);
    block.append(head, pre);
    return block;
  }
  /* Each returns the number of the line after the block. */
  function fence(lines, i, into) {
    const [, mark, language] = lines[i].match(FENCE), from = ++i;
    const closes = (l) => l.trim().length >= mark.length &&
      [...l.trim()].every((c) => c === mark[0]);
    while (i < lines.length && !closes(lines[i])) i++;
    into.append(code_block(lines.slice(from, i).join("\n"), language));
    return i + 1;
  }
  function quote(lines, i, into, depth) {
    const inner = [], block = el("blockquote");
    while (i < lines.length && QUOTE.test(lines[i])) inner.push(lines[i++].replace(QUOTE, ""));
    blocks(inner, block, depth + 1);
    into.append(block);
    return i;
  }
  const cells = (l) => l.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/)
    .map((c) => c.trim().replace(/\\\|/g, "|"));
  function table(lines, i, into) {
    const made = el("table"), columns = cells(lines[i]).length;
    const add = (line, name) => {
      const row = el("tr");
      cells(line).slice(0, columns).forEach((c) => row.append(spanned(name, c)));
      made.append(row);
    };
    add(lines[i], "th");
    for (i += 2; i < lines.length && lines[i].includes("|"); i++) add(lines[i], "td");
    const box = el("div", undefined, "scrolls");
    box.append(made);
    into.append(box);
    return i;
  }
  /* The lines of an item, without its indentation. What is indented less ends it, unless it
   * continues a paragraph. */
  function item(lines, i, indent) {
    const inner = [lines[i].slice(indent)];
    for (i++; i < lines.length; i++) {
      const blank = !lines[i].trim();
      const deep = lines[i].search(/\S/) >= Math.min(indent, 2 + indent / 2);
      if (blank && (i + 1 >= lines.length || lines[i + 1].search(/\S/) < 2)) break;
      if (!blank && !deep && (starts_block(lines, i) || !lines[i - 1].trim())) break;
      inner.push(blank ? "" : lines[i].replace(new RegExp(`^ {0,${indent}}`), ""));
    }
    return [inner, i];
  }
  function list(lines, i, into, depth) {
    const ordered = (l) => /^ *\d/.test(l), kind = ordered(lines[i]);
    const made = el(kind ? "ol" : "ul"), base = lines[i].match(ITEM)[1].length;
    if (kind) made.start = parseInt(lines[i], 10);
    while (i < lines.length) {
      const m = lines[i].match(ITEM);
      if (!lines[i].trim() && i + 1 < lines.length && ITEM.test(lines[i + 1])) { i++; continue; }
      if (!m || ordered(lines[i]) !== kind || m[1].length > base + 3 || RULE.test(lines[i])) break;
      const [inner, next] = item(lines, i, m[0].length), li = el("li");
      blocks(inner, li, depth + 1);
      made.append(li);
      i = next;
    }
    into.append(made);
    return i;
  }
  function paragraph(lines, i, into) {
    const from = i++;
    while (i < lines.length && lines[i].trim() && !starts_block(lines, i)) i++;
    const text = lines.slice(from, i).join("\n").trim();
    into.append(spanned("p", text));
    return i;
  }
  function blocks(lines, into, depth) {
    for (let i = 0; i < lines.length;) {
      const l = lines[i], heading = l.match(HEADING);
      if (!l.trim()) i++;
      else if (FENCE.test(l)) i = fence(lines, i, into);
      else if (heading) {
        into.append(spanned("h" + Math.min(6, heading[1].length + 2), heading[2]));
        i++;
      } else if (RULE.test(l)) {
        into.append(el("hr"));
        i++;
      } else if (depth < DEPTH_MAX && QUOTE.test(l)) i = quote(lines, i, into, depth);
      else if (is_table(lines, i)) i = table(lines, i, into);
      else if (depth < DEPTH_MAX && ITEM.test(l)) i = list(lines, i, into, depth);
      else i = paragraph(lines, i, into);
    }
  }

  return (text) => {
    const made = document.createDocumentFragment();
    blocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), made, 0);
    return made;
  };
})();
