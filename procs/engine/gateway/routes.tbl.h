/* What the gateway answers. ROUTE(method, path, handler, open): open: without a key, too. HEAD is
 * answered as GET. No include guard. */
ROUTE("GET", "/", documents_page, false)
ROUTE("GET", "/dashboard.css", page_style, true)
ROUTE("GET", "/dashboard.js", page_script, true)
ROUTE("GET", "/health", documents_health, true)
ROUTE("GET", "/stats", documents_stats, false)
ROUTE("GET", "/map", documents_map, false)
ROUTE("GET", "/metrics", documents_metrics, false)
ROUTE("GET", "/v1/models", documents_models, false)
ROUTE("POST", "/v1/completions", stream_completion, false)
ROUTE("POST", "/v1/chat/completions", stream_chat, false)
#undef ROUTE
