/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of requests. FIELD(name, where, how): where: MESSAGES, COUNT or BOTH; how: the
 * function take_<how> in request.c or api/fields.h. Fields that are not here are ignored. No
 * include guard. */
FIELD("model", BOTH, anything)
FIELD("messages", BOTH, messages)
FIELD("system", BOTH, system)
FIELD("tools", BOTH, tools)
FIELD("tool_choice", BOTH, tool_choice)
FIELD("thinking", BOTH, thinking)
FIELD("output_config", BOTH, output_config)
FIELD("output_format", BOTH, output_format)
FIELD("max_tokens", MESSAGES, max_tokens)
FIELD("stream", MESSAGES, stream)
FIELD("stop_sequences", MESSAGES, stop)
FIELD("temperature", MESSAGES, sampling)
FIELD("top_p", MESSAGES, sampling)
FIELD("top_k", MESSAGES, sampling)
FIELD("metadata", BOTH, anything)
FIELD("service_tier", MESSAGES, anything)
#undef FIELD
