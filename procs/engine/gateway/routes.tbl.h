/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's paths. ROUTE(method, path, handler, open): open: also without a key. HEAD is
 * handled as GET. No include guard. */
ROUTE("GET", "/", stats_page, false)
ROUTE("GET", "/dashboard.css", page_style, true)
ROUTE("GET", "/dashboard.js", page_script, true)
ROUTE("GET", "/chat.js", page_chat, true)
ROUTE("GET", "/health", stats_health, true)
ROUTE("GET", "/stats", stats_all, false)
ROUTE("GET", "/map", stats_map, false)
ROUTE("GET", "/metrics", stats_metrics, false)
ROUTE("GET", "/v1/models", stats_models, false)
ROUTE("POST", "/v1/completions", stream_completion, false)
ROUTE("POST", "/v1/chat/completions", stream_chat, false)
#undef ROUTE
