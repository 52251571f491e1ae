/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the gateway's paths. ROUTE(method, path, handler, dialect, open): dialect: of its
 * errors, and of completions; open: also without a key. A path that ends with "/" is the beginning
 * of others. HEAD is handled as GET. OTHERWISE(dialect): of the errors of all other paths. No
 * include guard. */
ROUTE("GET", "/", stats_page, openai, false)
ROUTE("GET", "/dashboard.css", page_style, openai, true)
ROUTE("GET", "/dashboard.js", page_script, openai, true)
ROUTE("GET", "/chat.js", page_chat, openai, true)
ROUTE("GET", "/health", stats_health, openai, true)
ROUTE("GET", "/stats", stats_all, openai, false)
ROUTE("GET", "/map", stats_map, openai, false)
ROUTE("GET", "/metrics", stats_metrics, openai, false)
ROUTE("GET", "/v1/models", stats_describe, openai_models, false)
ROUTE("POST", "/v1/completions", stream_start, openai_completion, false)
ROUTE("POST", "/v1/chat/completions", stream_start, openai_chat, false)
ROUTE("POST", "/v1/responses", stream_start, responses, false)
ROUTE("GET", "/v1/models/", stats_model, openai_model, false)
ROUTE("GET", "/props", stats_describe, openai_props, false)
ROUTE("POST", "/tokenize", ask_start, openai_tokenize, false)
ROUTE("POST", "/detokenize", ask_start, openai_detokenize, false)
ROUTE("POST", "/apply-template", ask_start, openai_template, false)
ROUTE("POST", "/v1/messages", stream_start, anthropic_messages, false)
ROUTE("POST", "/v1/messages/count_tokens", ask_start, anthropic_count, false)
ROUTE("POST", "/v1/embeddings", stats_unsupported, openai, false)
ROUTE("POST", "/api/chat", stream_start, ollama_chat, false)
ROUTE("POST", "/api/generate", stream_start, ollama_generate, false)
ROUTE("GET", "/api/tags", stats_describe, ollama_tags, false)
ROUTE("POST", "/api/show", stats_describe, ollama_show, false)
ROUTE("GET", "/api/ps", stats_describe, ollama_ps, false)
ROUTE("GET", "/api/version", stats_describe, ollama_version, false)
ROUTE("POST", "/api/embed", stats_unsupported, ollama, false)
ROUTE("POST", "/api/embeddings", stats_unsupported, ollama, false)
OTHERWISE(openai)
#undef ROUTE
#undef OTHERWISE
