/* SPDX-License-Identifier: Apache-2.0 */
/* Marks that models write around parts of an answer. A row is used if the chat template has its last mark, or its sign;
 * the first such row of each kind counts.
 *
 * CHANNELS(sign)          the answer is messages with a header each (channels.c); then no other row counts
 * REASONING(open, close)  thoughts before the answer
 * CALL(sign, open, close, kind, call_open, name_end, call_close, prefix, key_open, key_end, value_open, value_close, lines)
 *     one or more calls of tools between two marks. kind:
 *     NAMED   a JSON object with `name` and `arguments`
 *     PAIRS   call_open NAME name_end, for each argument key_open KEY key_end value_open VALUE value_close, call_close.
 *             name_end "": the name ends before the first key. lines: a value has a line feed before and after
 *             it, which are not of it. Types: calls.c, typed()
 *     OBJECT  call_open NAME name_end JSON-OBJECT call_close. prefix: what a name may start with, then it may end with
 *             ":NUMBER"; both are dropped
 *     GEMMA   call_open NAME name_end, then an object of Gemma 4: keys without quotes, texts between <|"|>
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
#define CALL_NAMED(sign, open, close)                                                              \
    CALL(sign, open, close, NAMED, "", "", "", "", "", "", "", "", false)
#define CALL_OBJECT(sign, open, close, call_open, name_end, call_close, prefix)                    \
    CALL(sign, open, close, OBJECT, call_open, name_end, call_close, prefix, "", "", "", "", false)
CHANNELS("<|channel|>analysis<|message|>")
REASONING("<think>", "</think>")
REASONING("<seed:think>", "</seed:think>")
REASONING("<|channel>thought", "<channel|>")
CALL("<minimax:tool_call>", "<minimax:tool_call>", "</minimax:tool_call>", PAIRS, "<invoke name=\"",
     "\">", "</invoke>", "", "<parameter name=\"", "\">", "", "</parameter>", false)
CALL_OBJECT("<｜tool▁call▁begin｜>' + tool['type']", "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
            "\n```<｜tool▁call▁end｜>", "")
CALL_OBJECT("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "")
CALL_OBJECT("<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
            "<|tool_call_end|>", "functions.")
CALL("<tool_call|>", "<|tool_call>", "<tool_call|>", GEMMA, "call:", "{", "", "", "", "", "", "",
     false)
CALL("<arg_key>", "<tool_call>", "</tool_call>", PAIRS, "", "", "", "", "<arg_key>", "</arg_key>",
     "<arg_value>", "</arg_value>", false)
CALL("<function=", "<tool_call>", "</tool_call>", PAIRS, "<function=", ">", "</function>", "",
     "<parameter=", ">", "", "</parameter>", true)
CALL_NAMED("</tool_call>", "<tool_call>", "</tool_call>")
#undef CALL_NAMED
#undef CALL_OBJECT
#undef CHANNELS
#undef REASONING
#undef CALL
