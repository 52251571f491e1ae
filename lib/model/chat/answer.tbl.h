/* SPDX-License-Identifier: Apache-2.0 */
/* Marks that models write around parts of an answer. A row is used if the chat template has its
 * last mark, or its sign; the first such row of each kind counts.
 *
 * CHANNELS(sign)          the answer is messages with a header each (channels.c); then no other row
 *                         counts
 * REASONING(open, close)  thoughts before the answer
 * CALL(sign, members...)  one or more calls of tools between two marks: members of struct
 *     answer_call, of which those that are not named are "". kind:
 *     NAMED   a JSON object with `name` and `arguments`
 *     PAIRS   call_open NAME name_end, for each argument key_open KEY key_end value_open VALUE
 *             value_close, call_close. name_end "": the name ends before the first key. lines: a
 *             value has a line feed before and after it, which are not of it. Types: calls.c,
 *             typed()
 *     OBJECT  call_open NAME name_end JSON-OBJECT call_close. prefix: what a name may start with,
 *             then it may end with ":NUMBER"; both are dropped
 *     GEMMA   call_open NAME name_end, then an object of Gemma 4: keys without quotes, texts
 *             between <|"|>
 *
 * No include guard. Sources: the chat templates of the models. */
#ifndef CHANNELS
#define CHANNELS(...)
#endif
#ifndef REASONING
#define REASONING(...)
#endif
#ifndef CALL
#define CALL(...)
#endif
CHANNELS("<|channel|>analysis<|message|>")
REASONING("<think>", "</think>")
REASONING("<seed:think>", "</seed:think>")
REASONING("<|channel>thought", "<channel|>")
CALL("<minimax:tool_call>", .open = "<minimax:tool_call>", .close = "</minimax:tool_call>",
     .kind = ANSWER_PAIRS, .call_open = "<invoke name=\"", .name_end = "\">",
     .call_close = "</invoke>", .key_open = "<parameter name=\"", .key_end = "\">",
     .value_close = "</parameter>")
CALL("<｜tool▁call▁begin｜>' + tool['type']", .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>", .kind = ANSWER_OBJECT,
     .call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", .name_end = "\n```json\n",
     .call_close = "\n```<｜tool▁call▁end｜>")
CALL("<｜tool▁calls▁begin｜>", .open = "<｜tool▁calls▁begin｜>", .close = "<｜tool▁calls▁end｜>",
     .kind = ANSWER_OBJECT, .call_open = "<｜tool▁call▁begin｜>", .name_end = "<｜tool▁sep｜>",
     .call_close = "<｜tool▁call▁end｜>")
CALL("<|tool_calls_section_begin|>", .open = "<|tool_calls_section_begin|>",
     .close = "<|tool_calls_section_end|>", .kind = ANSWER_OBJECT,
     .call_open = "<|tool_call_begin|>", .name_end = "<|tool_call_argument_begin|>",
     .call_close = "<|tool_call_end|>", .prefix = "functions.")
CALL("<tool_call|>", .open = "<|tool_call>", .close = "<tool_call|>", .kind = ANSWER_GEMMA,
     .call_open = "call:", .name_end = "{")
CALL("<arg_key>", .open = "<tool_call>", .close = "</tool_call>", .kind = ANSWER_PAIRS,
     .key_open = "<arg_key>", .key_end = "</arg_key>", .value_open = "<arg_value>",
     .value_close = "</arg_value>")
CALL("<function=", .open = "<tool_call>", .close = "</tool_call>", .kind = ANSWER_PAIRS,
     .call_open = "<function=", .name_end = ">", .call_close = "</function>",
     .key_open = "<parameter=", .key_end = ">", .value_close = "</parameter>", .lines = true)
CALL("</tool_call>", .open = "<tool_call>", .close = "</tool_call>", .kind = ANSWER_NAMED)
#undef CHANNELS
#undef REASONING
#undef CALL
