/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of calls, with a right and a wrong call of the tool `look` in each. */
#ifndef SLUICE_TESTS_CALL_FORMS_H
#define SLUICE_TESTS_CALL_FORMS_H

#define HERMES(arguments)                                                                          \
    "<tool_call>\n{\"name\": \"look\", \"arguments\": " arguments "}\n</tool_call>"
#define CODER(parameters) "<tool_call>\n<function=look>\n" parameters "</function>\n</tool_call>"

#define CODER_PARAMETER(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define GLM(arguments)              "<tool_call>look\n" arguments "</tool_call>"
#define GLM_ARGUMENT(key, value)    "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
#define MINIMAX(calls)              "<minimax:tool_call>\n" calls "</minimax:tool_call>"
#define MINIMAX_CALL(parameters)    "<invoke name=\"look\">\n" parameters "</invoke>\n"
#define MINIMAX_PARAMETER(key, v)   "<parameter name=\"" key "\">" v "</parameter>\n"
#define DEEPSEEK(calls)             "<｜tool▁calls▁begin｜>" calls "<｜tool▁calls▁end｜>"
#define DEEPSEEK_V3(arguments)                                                                     \
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n" arguments                         \
    "\n```<｜tool▁call▁end｜>"
#define DEEPSEEK_V31(arguments)                                                                    \
    "<｜tool▁call▁begin｜>look<｜tool▁sep｜>" arguments "<｜tool▁call▁end｜>"
#define KIMI_NUMBER(number, arguments)                                                             \
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:" number                        \
    "<|tool_call_argument_begin|>" arguments "<|tool_call_end|><|tool_calls_section_end|>"
#define KIMI(arguments) KIMI_NUMBER("0", arguments)
#define HARMONY(arguments)                                                                         \
    "<|channel|>commentary to=functions.look <|constrain|>json<|message|>" arguments
/* As the template writes a call in a conversation. */
#define HARMONY_TO(arguments)      " to=functions.look<|channel|>commentary json<|message|>" arguments
#define GEMMA(arguments)           "<|tool_call>call:look{" arguments "}<tool_call|>"
#define GEMMA_MARKS                "<|channel>thought<channel|><|tool_call><tool_call|>"
#define MIMO_MARKS                 "<parameter=example_parameter_1>value_1</parameter>"
#define MIMO_PARAMETER(key, value) "<parameter=" key ">" value "</parameter>\n"
#define HY3_CALL(arguments)                                                                        \
    "<tool_call:opensource>look<tool_sep:opensource>\n" arguments "</tool_call:opensource>\n"
#define HY3_ARGUMENT(key, value)                                                                   \
    "<arg_key:opensource>" key "</arg_key:opensource>\n<arg_value:opensource>" value               \
    "</arg_value:opensource>\n"
#define HY3(calls)    "<tool_calls:opensource>\n" calls "</tool_calls:opensource>"
#define COHERE_MARKS  "<|END_THINKING|><|END_TEXT|><|START_ACTION|>"
#define COHERE(calls) "<|START_ACTION|>[\n    " calls "\n]<|END_ACTION|>"
#define COHERE_CALL(id, parameters)                                                                \
    "{\"tool_call_id\": \"" id "\", \"tool_name\": \"look\", \"parameters\": " parameters "}"
#define MISTRAL(arguments)   "[TOOL_CALLS]look[ARGS]" arguments
#define SMALL(id, arguments) "[TOOL_CALLS]look[CALL_ID]" id "[ARGS]" arguments
#define NEMO_CALL(arguments)                                                                       \
    "{\"name\": \"look\", \"arguments\": " arguments ", \"id\": \"abc123XYZ\"}"

#define M1_CALL(arguments) "{\"name\": \"look\", \"arguments\": " arguments "}\n"
#define M1(calls)          "<tool_calls>\n" calls "</tool_calls>"

#define LFM2(calls)             "<|tool_call_start|>[" calls "]<|tool_call_end|>"
#define LLAMA4_MARKS            "<|header_start|>{\"name\": function name, \"parameters\": dictionary"
#define LLAMA4_CALL(parameters) "{\"name\": \"look\", \"parameters\": " parameters "}"

#define DSML(calls)      "<｜DSML｜function_calls>\n" calls "</｜DSML｜function_calls>"
#define DSML_CALL(pairs) "<｜DSML｜invoke name=\"look\">\n" pairs "</｜DSML｜invoke>\n"
#define DSML_ARGUMENT(key, is_text, value)                                                         \
    "<｜DSML｜parameter name=\"" key "\" string=\"" is_text "\">" value "</｜DSML｜parameter>\n"

#define M3_MARKS           "</mm:think>]<]minimax[>[</tool_call>"
#define M3_                "]<]minimax[>["
#define M3(calls)          M3_ "<tool_call>\n" calls M3_ "</tool_call>"
#define M3_CALL(arguments) M3_ "<invoke name=\"look\">" arguments M3_ "</invoke>\n"
#define M3_TAG(key, value) M3_ "<" key ">" value M3_ "</" key ">"

#define K3_MARKS     "open_tag('think') open_tag('response') open_tag('tools')"
#define K3_(tag)     "<|open|>" tag "<|sep|>"
#define K3C_(tag)    "<|close|>" tag "<|sep|>"
#define K3(calls)    K3_("tools") calls K3C_("tools")
#define K3_CALL(all) K3_("call tool=\"look\" index=\"1\"") all K3C_("call")
#define K3_ARGUMENT(key, type, value)                                                              \
    K3_("argument key=\"" key "\" type=\"" type "\"") value K3C_("argument")

static const struct {
    const char *marks, *right, *wrong,
        *two; /* two: calls, which are too many where one is wanted */
} forms[] = {
    {"<tool_call></tool_call>", HERMES("{\"depth\": 3, \"name\": \"x\"}"),
     HERMES("{\"depth\": \"x\"}"), HERMES("{\"depth\": 3}") "\n" HERMES("{\"depth\":4}")},
    {"</tool_calls><end_of_sentence>", M1(M1_CALL("{\"depth\": 3}")),
     M1(M1_CALL("{\"depth\": \"x\"}")), M1(M1_CALL("{\"depth\": 3}") M1_CALL("{\"depth\": 4}"))},
    {"<tool_call><function=</tool_call>",
     CODER(CODER_PARAMETER("depth", "3") CODER_PARAMETER("name", "a < </b> </p\n<</para x")
               CODER_PARAMETER("mode", "b") CODER_PARAMETER("list", "[1, {}]")
                   CODER_PARAMETER("short", "a\nb")),
     CODER(CODER_PARAMETER("depth", "x")),
     CODER(CODER_PARAMETER("depth", "3")) "\n" CODER(CODER_PARAMETER("depth", "4"))},
    {"<tool_call><arg_key></tool_call>",
     GLM(GLM_ARGUMENT("depth", "3") GLM_ARGUMENT("name", "<</arg_valu")),
     GLM(GLM_ARGUMENT("depth", "3") GLM_ARGUMENT("mode", "c")),
     GLM(GLM_ARGUMENT("depth", "3")) GLM(GLM_ARGUMENT("depth", "3"))},
    {"<minimax:tool_call>",
     MINIMAX(MINIMAX_CALL(MINIMAX_PARAMETER("depth", "3") MINIMAX_PARAMETER("name", "x"))),
     MINIMAX(MINIMAX_CALL(MINIMAX_PARAMETER("name", "x"))),
     MINIMAX(MINIMAX_CALL(MINIMAX_PARAMETER("depth", "3"))
                 MINIMAX_CALL(MINIMAX_PARAMETER("depth", "4")))},
    {"<｜tool▁call▁begin｜>' + tool['type']", DEEPSEEK(DEEPSEEK_V3("{\"depth\": 3}")),
     DEEPSEEK(DEEPSEEK_V3("{\"depth\": null}")),
     DEEPSEEK(DEEPSEEK_V3("{\"depth\": 3}") "\n" DEEPSEEK_V3("{\"depth\": 3}"))},
    {"<｜tool▁calls▁begin｜>", DEEPSEEK(DEEPSEEK_V31("{\"depth\": 3}")),
     DEEPSEEK(DEEPSEEK_V31("{\"depth\": []}")),
     DEEPSEEK(DEEPSEEK_V31("{\"depth\": 3}") DEEPSEEK_V31("{\"depth\": 3}"))},
    {"<|tool_calls_section_begin|>", KIMI("{\"depth\": 3}"), KIMI("{}"), NULL},
    {"<|tool_calls_section_begin|>", KIMI_NUMBER("12", "{\"depth\": 3}"),
     KIMI_NUMBER("00000", "{\"depth\": 3}"), NULL},
    {"<|channel|>analysis<|message|>", HARMONY("{\"depth\": 3}"), HARMONY("{}"), NULL},
    {"<|channel|>analysis<|message|>", HARMONY_TO("{\"depth\": 3}"), HARMONY_TO("{}"), NULL},
    {GEMMA_MARKS,
     GEMMA("depth:3,list:[1,{a_b:<|\"|>{\"<|\"\n|><|\"|>},<|\"|><|\"|>],mode:<|\"|>b<|\"|>,"
           "name:<|\"|>a, \"b\" \\ <|x<|\"|>,short:<|\"|>{,}<|\"|>"),
     GEMMA("depth:3,mode:<|\"|>c<|\"|>"), GEMMA("depth:3") GEMMA("depth:4")},
    {GEMMA_MARKS, GEMMA("depth:3"), GEMMA("depth:<|\"|>3<|\"|>"), NULL},
    {MIMO_MARKS, CODER(MIMO_PARAMETER("depth", "3") MIMO_PARAMETER("name", "\nx\n")),
     CODER(CODER_PARAMETER("depth", "3")),
     CODER(MIMO_PARAMETER("depth", "3")) "\n" CODER(MIMO_PARAMETER("depth", "4"))},
    {"HYTK = ':opensource'",
     HY3(HY3_CALL(HY3_ARGUMENT("depth", "3") HY3_ARGUMENT("name", "<</arg_value x"))),
     HY3(HY3_CALL(HY3_ARGUMENT("depth", "x"))),
     HY3(HY3_CALL(HY3_ARGUMENT("depth", "3")) HY3_CALL(HY3_ARGUMENT("depth", "4")))},
    {COHERE_MARKS, COHERE(COHERE_CALL("0", "{\"depth\": 3}")), COHERE(COHERE_CALL("0", "{}")),
     COHERE(COHERE_CALL("0", "{\"depth\": 3}") ",\n    " COHERE_CALL("1", "{\"depth\": 4}"))},
    {COHERE_MARKS, COHERE(COHERE_CALL("17", "{\"depth\": 3}")),
     COHERE(COHERE_CALL("call", "{\"depth\": 3}")), NULL},
    {"[/THINK][ARGS]", MISTRAL("{\"depth\": 3}"), MISTRAL("{}"),
     MISTRAL("{\"depth\": 3}") MISTRAL("{\"depth\": 4}")},
    {"[CALL_ID][ARGS]", SMALL("abc123XYZ", "{\"depth\": 3}"), SMALL("abc12", "{\"depth\": 3}"),
     SMALL("abc123XYZ", "{\"depth\": 3}") SMALL("abc123XYA", "{\"depth\": 4}")},
    {"[TOOL_CALLS]", "[TOOL_CALLS][" NEMO_CALL("{\"depth\": 3}") "]",
     "[TOOL_CALLS][" NEMO_CALL("{}") "]",
     "[TOOL_CALLS][" NEMO_CALL("{\"depth\": 3}") ", " NEMO_CALL("{\"depth\": 4}") "]"},
    {"List of tools: [", LFM2("look(depth=3, name=\"a ]) \\\" \", list=[1, {\"a\": None}])"),
     LFM2("look(name=\"x\")"), LFM2("look(depth=3), look(depth=4)")},
    {"<|tool_list_start|>", LFM2("look(depth=3)"),
     "<|tool_call_start|>look(depth=3)<|tool_call_end|>", NULL},
    {LLAMA4_MARKS, LLAMA4_CALL("{\"depth\": 3}"), LLAMA4_CALL("{\"depth\": \"x\"}"),
     LLAMA4_CALL("{\"depth\": 3}") LLAMA4_CALL("{\"depth\": 4}")},
    {"<|header_start|>[func_name1(", "[look(depth=3)]", "[look(depth=True)]",
     "[look(depth=3),\n look(depth=4)]"},
    {M3_MARKS, M3(M3_CALL(M3_TAG("depth", "3") M3_TAG("name", "a ]<x") M3_TAG("list", "[1, {}]"))),
     M3(M3_CALL(M3_TAG("depth", "x"))),
     M3(M3_CALL(M3_TAG("depth", "3")) M3_CALL(M3_TAG("depth", "4")))},
    {"dsml_token + 'function_calls>",
     DSML(DSML_CALL(DSML_ARGUMENT("depth", "false", "3")
                        DSML_ARGUMENT("name", "true", "a < </｜DSML｜b ｜</｜DSML｜paramete\n"))),
     DSML(DSML_CALL(DSML_ARGUMENT("depth", "true", "3"))),
     DSML(DSML_CALL(DSML_ARGUMENT("depth", "false", "3"))
              DSML_CALL(DSML_ARGUMENT("depth", "false", "4")))},
    {"<｜DSML｜function_calls>",
     DSML(DSML_CALL(DSML_ARGUMENT("depth", "false", "3") DSML_ARGUMENT("mode", "true", "b"))),
     DSML(DSML_CALL(DSML_ARGUMENT("depth", "false", "3") DSML_ARGUMENT("mode", "true", "c"))),
     NULL},
    {K3_MARKS,
     K3(K3_CALL(K3_ARGUMENT("depth", "number", "3")
                    K3_ARGUMENT("name", "string", "<|close|>argument<|close|>argument<|sep|x <<|c")
                        K3_ARGUMENT("mode", "string", "b") K3_ARGUMENT("list", "array", "[1, {}]")))
         K3C_("message"),
     K3(K3_CALL(K3_ARGUMENT("depth", "string", "3"))),
     K3(K3_CALL(K3_ARGUMENT("depth", "number", "3")) K3_CALL(K3_ARGUMENT("depth", "number", "4")))},
    {K3_MARKS, K3(K3_CALL(K3_ARGUMENT("depth", "integer", "3"))),
     K3(K3_CALL(K3_ARGUMENT("depth", "number", "3") K3_ARGUMENT("mode", "string", "c"))), NULL},
    {"<|bom|>", "<tool_calls>[{\"name\": \"look\", \"arguments\": {\"depth\": 3}}]</tool_calls>",
     "<tool_calls>[{\"name\": \"look\", \"arguments\": {}}]</tool_calls>", NULL},
};

#endif
