/* SPDX-License-Identifier: Apache-2.0 */
/* Files of web/ that the page loads, below the path /web/. ASSET(name, file, type). */
ASSET(page_css, "page.css", "text/css")
ASSET(chat_css, "chat.css", "text/css")
ASSET(dom_js, "dom.js", "text/javascript")
ASSET(charts_js, "charts.js", "text/javascript")
ASSET(requests_js, "requests.js", "text/javascript")
ASSET(engine_js, "engine.js", "text/javascript")
ASSET(markdown_js, "markdown.js", "text/javascript")
ASSET(store_js, "store.js", "text/javascript")
ASSET(stream_js, "stream.js", "text/javascript")
ASSET(turns_js, "turns.js", "text/javascript")
ASSET(chat_js, "chat.js", "text/javascript")
#undef ASSET
