/* SPDX-License-Identifier: Apache-2.0 */
/* Marks that models write around parts of an answer. A row is used if the chat template has its
 * sign; the first such row of each kind counts.
 *
 * CHANNELS(sign)          the answer is messages with a header each (channels.c); then no other row
 *                         counts
 * REASONING(sign, open, close)  thoughts before the answer
 * CONTENT(sign, open, close, optional)  the answer's text stands between two marks; optional: or
 *                         without them
 * TAIL(sign, mark)        what stands behind the last part of an answer, and belongs to none
 * CALL(sign, members...)  one or more calls of tools between two marks: members of struct
 *     answer_call, of which those that are not named are "". close "": a call ends where the next
 *     one begins, or with the answer. open "": calls have no marks; they are all of the answer, but
 *     for its reasoning and the marks of its content, in the form of NAMED or PYTHON. block:
 *     several calls stand between one pair of marks; else each has a pair of its own. kind: NAMED a
 *     JSON object with `name` and `arguments`; block: one behind the other
 *     PAIRS   call_open NAME name_end, for each argument key_open KEY key_end value_open VALUE
 *             value_close, call_close. name_end "": the name ends before the first key, or with the
 *             call. lines: a value has a line feed before and after it, which are not of it.
 *             python: the template prints values with str(). typed: behind key_end is `
 *             string="true"` or `="false"`, which says that the value is a text or JSON, then `>`.
 *             attributes: NAME and KEY end at a quote, and other attributes follow up to the mark:
 *             the number of the call, the type of the value, which is a text if that is "string",
 *             and else JSON. Without such words the schema decides: calls/pairs.c
 *     NESTED  call_open NAME name_end, for each argument key_open KEY key_end VALUE value_close KEY
 *             key_end, call_close. An object in a VALUE is such arguments, an array those with the
 *             key `item`
 *     OBJECT  call_open NAME name_end JSON-OBJECT call_close. prefix: what a name may start with,
 *             then it may end with ":NUMBER"; both are dropped. id_open: before an id, behind NAME
 *     GEMMA   call_open NAME name_end, then an object of Gemma 4: keys without quotes, texts
 *             between <|"|>
 *     LIST    a JSON array of objects with name_key, arguments_key and id_key. numbered: the id is
 *             first and numbers the calls; else it has 9 letters and digits, and is last
 *     PYTHON  [NAME(KEY=VALUE, ...), ...] with Python's literals (calls/python.h), or as in LIST
 *
 * HYTK is what the templates of Hy3 and Hy4 add to the names of their marks; an older one of Hy3
 * adds nothing. In calls of Hy4, nothing is behind the name. MiMo's template shows its values
 * without line feeds in the example that is its sign. MiniMax-M1 thinks between marks that its
 * template does not name, and LFM2 calls between such marks: its templates have what is around the
 * list of tools. DeepSeek V3.2 and V4 call their block by two names; their templates put its marks
 * together. Llama 4 may write its content and calls between two marks, or only the content, which
 * stands before the calls; its templates ask for calls in one form, and it knows both.
 *
 * No include guard. Sources: the chat templates of the models. */
#ifndef CHANNELS
#define CHANNELS(...)
#endif
#ifndef REASONING
#define REASONING(...)
#endif
#ifndef CONTENT
#define CONTENT(...)
#endif
#ifndef TAIL
#define TAIL(...)
#endif
#ifndef CALL
#define CALL(...)
#endif
#define LFM2_CALL .open = "<|tool_call_start|>", .close = "<|tool_call_end|>", .kind = ANSWER_PYTHON
#define DSML_CALL(block_)                                                                          \
    .open = "<｜DSML｜" block_ ">", .close = "</｜DSML｜" block_ ">", .kind = ANSWER_PAIRS,        \
    .call_open = "<｜DSML｜invoke name=\"", .name_end = "\">", .call_close = "</｜DSML｜invoke>",  \
    .key_open = "<｜DSML｜parameter name=\"", .key_end = "\"",                                     \
    .value_close = "</｜DSML｜parameter>", .typed = true, .block = true
CHANNELS("<|channel|>analysis<|message|>")
REASONING("</think>", "<think>", "</think>")
REASONING("</seed:think>", "<seed:think>", "</seed:think>")
REASONING("<channel|>", "<|channel>thought", "<channel|>")
REASONING("HYTK = ':opensource'", "<think:opensource>", "</think:opensource>")
REASONING("HYTK = ':6124c78e'", "<think:6124c78e>", "</think:6124c78e>")
REASONING("<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>")
REASONING("</mm:think>", "<mm:think>", "</mm:think>")
REASONING("</tool_calls><end_of_sentence>", "<think>", "</think>")
REASONING("[/THINK]", "[THINK]", "[/THINK]")
REASONING("open_tag('think')", "<|open|>think<|sep|>", "<|close|>think<|sep|>")
CONTENT("open_tag('response')", "<|open|>response<|sep|>", "<|close|>response<|sep|>", false)
TAIL("open_tag('response')", "<|close|>message<|sep|>")
CONTENT("<|END_TEXT|>", "<|START_TEXT|>", "<|END_TEXT|>", false)
CONTENT("<|header_start|>", "<|python_start|>", "<|python_end|>", true)
CALL("]<]minimax[>[", .open = "]<]minimax[>[<tool_call>", .close = "]<]minimax[>[</tool_call>",
     .kind = ANSWER_NESTED, .call_open = "]<]minimax[>[<invoke name=\"", .name_end = "\">",
     .call_close = "]<]minimax[>[</invoke>", .key_open = "]<]minimax[>[<", .key_end = ">",
     .value_close = "]<]minimax[>[</", .block = true)
CALL("<minimax:tool_call>", .open = "<minimax:tool_call>", .close = "</minimax:tool_call>",
     .kind = ANSWER_PAIRS, .call_open = "<invoke name=\"", .name_end = "\">",
     .call_close = "</invoke>", .key_open = "<parameter name=\"", .key_end = "\">",
     .value_close = "</parameter>", .block = true)
CALL("dsml_token + 'function_calls>", DSML_CALL("function_calls"))
CALL("<｜DSML｜function_calls>", DSML_CALL("function_calls"))
CALL("dsml_token + 'tool_calls>", DSML_CALL("tool_calls"))
CALL("<｜DSML｜tool_calls>", DSML_CALL("tool_calls"))
CALL("<｜tool▁call▁begin｜>' + tool['type']", .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>", .kind = ANSWER_OBJECT,
     .call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", .name_end = "\n```json\n",
     .call_close = "\n```<｜tool▁call▁end｜>", .block = true)
CALL("<｜tool▁calls▁begin｜>", .open = "<｜tool▁calls▁begin｜>", .close = "<｜tool▁calls▁end｜>",
     .kind = ANSWER_OBJECT, .call_open = "<｜tool▁call▁begin｜>", .name_end = "<｜tool▁sep｜>",
     .call_close = "<｜tool▁call▁end｜>", .block = true)
CALL("<|tool_calls_section_begin|>", .open = "<|tool_calls_section_begin|>",
     .close = "<|tool_calls_section_end|>", .kind = ANSWER_OBJECT,
     .call_open = "<|tool_call_begin|>", .name_end = "<|tool_call_argument_begin|>",
     .call_close = "<|tool_call_end|>", .prefix = "functions.", .block = true)
CALL("open_tag('tools')", .open = "<|open|>tools<|sep|>", .close = "<|close|>tools<|sep|>",
     .kind = ANSWER_PAIRS, .call_open = "<|open|>call tool=\"", .name_end = "<|sep|>",
     .call_close = "<|close|>call<|sep|>", .key_open = "<|open|>argument key=\"",
     .key_end = "<|sep|>", .value_close = "<|close|>argument<|sep|>", .block = true,
     .attributes = true)
CALL("<tool_call|>", .open = "<|tool_call>", .close = "<tool_call|>", .kind = ANSWER_GEMMA,
     .call_open = "call:", .name_end = "{")
CALL("HYTK = ':opensource'", .open = "<tool_calls:opensource>", .close = "</tool_calls:opensource>",
     .kind = ANSWER_PAIRS, .call_open = "<tool_call:opensource>",
     .name_end = "<tool_sep:opensource>", .call_close = "</tool_call:opensource>",
     .key_open = "<arg_key:opensource>", .key_end = "</arg_key:opensource>",
     .value_open = "<arg_value:opensource>", .value_close = "</arg_value:opensource>",
     .block = true)
CALL("HYTK = ':6124c78e'", .open = "<tool_calls:6124c78e>", .close = "</tool_calls:6124c78e>",
     .kind = ANSWER_PAIRS, .call_open = "<tool_call:6124c78e>",
     .call_close = "</tool_call:6124c78e>", .key_open = "<arg_key:6124c78e>",
     .key_end = "</arg_key:6124c78e>", .value_open = "<arg_value:6124c78e>",
     .value_close = "</arg_value:6124c78e>", .block = true)
CALL("<tool_sep>", .open = "<tool_calls>", .close = "</tool_calls>", .kind = ANSWER_PAIRS,
     .call_open = "<tool_call>", .name_end = "<tool_sep>", .call_close = "</tool_call>",
     .key_open = "<arg_key>", .key_end = "</arg_key>", .value_open = "<arg_value>",
     .value_close = "</arg_value>", .block = true)
CALL("<|START_ACTION|>", .open = "<|START_ACTION|>", .close = "<|END_ACTION|>", .kind = ANSWER_LIST,
     .name_key = "tool_name", .arguments_key = "parameters", .id_key = "tool_call_id",
     .numbered = true)
CALL("<|tool_call_start|>", LFM2_CALL)
CALL("<|tool_list_start|>", LFM2_CALL)
CALL("List of tools: [", LFM2_CALL)
CALL("[func_name1(", .open = "", .kind = ANSWER_PYTHON, .name_key = "name",
     .arguments_key = "parameters", .block = true)
CALL("{\"name\": function name, \"parameters\": dictionary", .open = "", .kind = ANSWER_NAMED,
     .name_key = "name", .arguments_key = "parameters", .block = true)
CALL("[CALL_ID]", .open = "[TOOL_CALLS]", .kind = ANSWER_OBJECT, .name_end = "[ARGS]",
     .id_open = "[CALL_ID]")
CALL("[ARGS]", .open = "[TOOL_CALLS]", .kind = ANSWER_OBJECT, .name_end = "[ARGS]")
CALL("[TOOL_CALLS]", .open = "[TOOL_CALLS]", .kind = ANSWER_LIST, .name_key = "name",
     .arguments_key = "arguments", .id_key = "id")
CALL("<|bom|>", .open = "<tool_calls>", .close = "</tool_calls>", .kind = ANSWER_LIST,
     .name_key = "name", .arguments_key = "arguments")
CALL("</tool_calls><end_of_sentence>", .open = "<tool_calls>", .close = "</tool_calls>",
     .kind = ANSWER_NAMED, .block = true)
CALL("<arg_key>", .open = "<tool_call>", .close = "</tool_call>", .kind = ANSWER_PAIRS,
     .key_open = "<arg_key>", .key_end = "</arg_key>", .value_open = "<arg_value>",
     .value_close = "</arg_value>")
CALL("<parameter=example_parameter_1>value_1</parameter>", .open = "<tool_call>",
     .close = "</tool_call>", .kind = ANSWER_PAIRS, .call_open = "<function=", .name_end = ">",
     .call_close = "</function>", .key_open = "<parameter=", .key_end = ">",
     .value_close = "</parameter>", .python = true)
CALL("<function=", .open = "<tool_call>", .close = "</tool_call>", .kind = ANSWER_PAIRS,
     .call_open = "<function=", .name_end = ">", .call_close = "</function>",
     .key_open = "<parameter=", .key_end = ">", .value_close = "</parameter>", .lines = true,
     .python = true)
CALL("</tool_call>", .open = "<tool_call>", .close = "</tool_call>", .kind = ANSWER_NAMED)
#undef CHANNELS
#undef REASONING
#undef CONTENT
#undef TAIL
#undef CALL
#undef LFM2_CALL
#undef DSML_CALL
