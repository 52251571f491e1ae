/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of completion requests.
 * FIELD(name, where, how): where: COMPLETION, CHAT or BOTH; how: the function take_HOW of
 * request.c:
 *   sampling    a parameter of lib/sampling/sampling.h, with its bounds
 *   neutral_*   accepted only with the value that requests nothing
 *   anything    ignored: it does not change the response
 * No include guard. */
FIELD("model", BOTH, anything)
FIELD("prompt", COMPLETION, prompt)
FIELD("messages", CHAT, messages)
FIELD("max_tokens", BOTH, max_tokens)
FIELD("max_completion_tokens", CHAT, max_tokens)
FIELD("stream", BOTH, stream)
FIELD("stream_options", BOTH, stream_options)
FIELD("stop", BOTH, stop)
FIELD("temperature", BOTH, sampling)
FIELD("top_p", BOTH, sampling)
FIELD("top_k", BOTH, sampling)
FIELD("min_p", BOTH, sampling)
FIELD("repeat_penalty", BOTH, sampling)
FIELD("repeat_last_n", BOTH, sampling)
FIELD("seed", BOTH, sampling)
FIELD("ignore_eos", BOTH, ignore_eos)
FIELD("special", COMPLETION, special)
FIELD("cache_prompt", BOTH, cache_prompt)
FIELD("logprobs", COMPLETION, logprobs_count)
FIELD("logprobs", CHAT, logprobs_flag)
FIELD("top_logprobs", CHAT, neutral_zero)
FIELD("n", BOTH, neutral_one)
FIELD("best_of", COMPLETION, neutral_one)
FIELD("echo", COMPLETION, neutral_false)
FIELD("suffix", COMPLETION, neutral_empty)
FIELD("presence_penalty", BOTH, neutral_zero)
FIELD("frequency_penalty", BOTH, neutral_zero)
FIELD("logit_bias", BOTH, neutral_empty)
FIELD("tools", CHAT, neutral_empty)
FIELD("tool_choice", CHAT, neutral_none)
FIELD("functions", CHAT, neutral_empty)
FIELD("response_format", CHAT, response_format)
FIELD("modalities", CHAT, modalities)
FIELD("user", BOTH, anything)
FIELD("metadata", BOTH, anything)
FIELD("store", BOTH, neutral_false)
FIELD("service_tier", BOTH, anything)
FIELD("parallel_tool_calls", CHAT, anything)
FIELD("safety_identifier", BOTH, anything)
FIELD("prompt_cache_key", BOTH, anything)
#undef FIELD
