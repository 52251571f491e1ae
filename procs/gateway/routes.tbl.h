/* What the gateway answers. ROUTE(method, path, handler, open): open: without a key, too. HEAD is
 * answered as GET. No include guard. */
ROUTE("GET", "/health", documents_health, true)
ROUTE("GET", "/stats", documents_stats, false)
ROUTE("GET", "/metrics", documents_metrics, false)
ROUTE("GET", "/v1/models", documents_models, false)
ROUTE("POST", "/v1/completions", stream_completion, false)
ROUTE("POST", "/v1/chat/completions", stream_chat, false)
#undef ROUTE
