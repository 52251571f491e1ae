/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
/* Conversations are kept in this browser, each under a key of its own, so that two tabs do not
 * overwrite each other's. Which one a tab shows is the tab's own: a reload keeps it, and a new tab
 * begins a new conversation.
 *
 * A conversation is { id, changed, settings: { system, temperature, longest, thinking, tools },
 * turns }. A turn is { role, content, thought, calls, note } or, of a tool, { role, id, name,
 * content }. */
const store = (() => {
  const PREFIX = "sluice.chat.", HERE = "sluice.chat";
  const ROLES = ["user", "assistant", "tool"];
  const all = new Map();

  function valid(chat) {
    return chat && typeof chat.id === "string" && Array.isArray(chat.turns) &&
      chat.turns.every((t) => t && ROLES.includes(t.role) && typeof t.content === "string") &&
      typeof chat.settings === "object" && chat.settings !== null;
  }
  function take(key) {
    let chat = null;
    try {
      chat = JSON.parse(localStorage.getItem(key));
    } catch (e) { /* no storage, or not ours */ }
    if (valid(chat) && key === PREFIX + chat.id) all.set(chat.id, chat);
    else all.delete(key.slice(PREFIX.length));
  }
  try {
    for (let i = 0; i < localStorage.length; i++)
      if (localStorage.key(i).startsWith(PREFIX)) take(localStorage.key(i));
  } catch (e) { /* no storage: conversations last as long as the page */ }
  addEventListener("storage", (e) => {
    if (e.key && e.key.startsWith(PREFIX)) take(e.key);
  });

  const newest = () => [...all.values()].sort((a, b) => b.changed - a.changed);
  function remember(id) {
    try {
      sessionStorage.setItem(HERE, id);
    } catch (e) { /* a reload begins a new one then */ }
  }
  function remove(id) {
    all.delete(id);
    try {
      localStorage.removeItem(PREFIX + id);
    } catch (e) { /* it was not kept */ }
  }
  return {
    newest,
    remember,
    remove,
    title(chat) {
      const first = chat.turns.find((t) => t.role === "user");
      const text = first ? first.content.trim().replace(/\s+/g, " ") : "New conversation";
      return text.length > 60 ? text.slice(0, 59) + "…" : text;
    },
    /* With the settings of another one; it is kept with its first turn. */
    fresh(settings = {}) {
      const random = crypto.getRandomValues(new Uint32Array(2));
      const id = Date.now().toString(36) + "-" + [...random].map((n) => n.toString(36)).join("");
      return { id, changed: Date.now(), settings: { ...settings }, turns: [] };
    },
    /* The one that this tab showed last, or null. */
    here() {
      try {
        return all.get(sessionStorage.getItem(HERE)) || null;
      } catch (e) {
        return null;
      }
    },
    get: (id) => all.get(id),
    /* If the browser has no more space, the oldest others go. */
    save(chat) {
      chat.changed = Date.now();
      all.set(chat.id, chat);
      for (;;) {
        try {
          localStorage.setItem(PREFIX + chat.id, JSON.stringify(chat));
          return;
        } catch (e) {
          const oldest = newest().filter((c) => c.id !== chat.id).pop();
          if (!oldest) return;
          remove(oldest.id);
        }
      }
    },
  };
})();
