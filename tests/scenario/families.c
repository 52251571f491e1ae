/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one model for each form of calls, whose answers are known. */
#include "tests/scenario/families.h"

#include <stddef.h>

/* The marks that a real template has are in a text that is never written. */
#define TEMPLATE(marks)                                                                            \
    "{% for m in messages %}{{ m.content }}{% endfor %}{% if false %}" marks "{% endif %}"

/* Qwen3-Coder, Qwen3.5: Python's names of values, too, and a text between two others. */
static const struct script_token coder_tokens[] = {
    {"<|im_end|>", SCRIPT_CONTROL},     {"<tool_call>", SCRIPT_USER},
    {"</tool_call>", SCRIPT_USER},      {"<think>", SCRIPT_USER},
    {"</think>", SCRIPT_USER},          {"</function>", SCRIPT_USER},
    {"<|fim_prefix|>", SCRIPT_CONTROL}, {"<|fim_suffix|>", SCRIPT_CONTROL},
    {"<|fim_middle|>", SCRIPT_CONTROL}, {NULL, SCRIPT_TEXT}};
static const struct script_answer coder_answers[] = {
    {"A",
     {"<think>", "\nI need to ", "look.\n", "</think>", "\n\nSure.", "\n\n", "<tool_call>",
      "\n<function=look>\n", "<parameter=depth>\n3\n</parameter>\n",
      "<parameter=deep>\nTrue\n</parameter>\n", "<parameter=name>\n007\n</parameter>\n",
      "<parameter=ratio>\n0.5\n</parameter>\n<parameter=list>\n[1, \"b\"]\n</parameter>\n",
      "<parameter=where>\n{\"a\": 1}\n</parameter>\n", "<parameter=none>\nNone\n</parameter>\n",
      "<parameter=size>\nbig\n</parameter>\n", "</function>\n", "</tool_call>"}},
    {"B", {FAMILY_DONE}},
    {"<|fim_middle|>", {FAMILY_MIDDLE}},
    {NULL, {NULL}}};

/* MiMo-V2: as Qwen3-Coder, but without line feeds around values. */
#define MIMO_PAIR(key, value) "<parameter=" key ">" value "</parameter>\n"
static const struct script_answer mimo_answers[] = {
    {"A",
     {"<think>", "I look.", "</think>", "Sure.", "<tool_call>", "\n<function=look>\n",
      MIMO_PAIR("depth", "3"), MIMO_PAIR("deep", "True"), MIMO_PAIR("name", "007"),
      MIMO_PAIR("ratio", "0.5") MIMO_PAIR("list", "[1, \"b\"]"), MIMO_PAIR("where", "{\"a\": 1}"),
      MIMO_PAIR("none", "None") MIMO_PAIR("size", "big"), "</function>\n", "</tool_call>"}},
    {NULL, {NULL}}};

/* GLM-4.5. */
static const struct script_token glm_tokens[] = {
    {"<|user|>", SCRIPT_CONTROL}, {"<think>", SCRIPT_USER},      {"</think>", SCRIPT_USER},
    {"<tool_call>", SCRIPT_USER}, {"</tool_call>", SCRIPT_USER}, {NULL, SCRIPT_TEXT}};
#define GLM_PAIR(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
static const struct script_answer glm_answers[] = {
    {"A",
     {"<think>", "I look.", "</think>", "\nSure.", "\n", "<tool_call>", "look\n",
      GLM_PAIR("depth", "3"), GLM_PAIR("deep", "true"), GLM_PAIR("name", "007"),
      GLM_PAIR("ratio", "0.5") GLM_PAIR("list", "[1, \"b\"]"), GLM_PAIR("where", "{\"a\": 1}"),
      GLM_PAIR("none", "null") GLM_PAIR("size", "big"), "</tool_call>"}},
    {NULL, {NULL}}};

/* MiniMax-M2. */
static const struct script_token minimax_tokens[] = {{"[e~[", SCRIPT_CONTROL},
                                                     {"<think>", SCRIPT_USER},
                                                     {"</think>", SCRIPT_USER},
                                                     {"<minimax:tool_call>", SCRIPT_USER},
                                                     {"</minimax:tool_call>", SCRIPT_USER},
                                                     {"</invoke>", SCRIPT_USER},
                                                     {NULL, SCRIPT_TEXT}};
#define MINIMAX_PAIR(key, value) "<parameter name=\"" key "\">" value "</parameter>\n"
static const struct script_answer minimax_answers[] = {
    {"A",
     {"<think>", "I look.", "</think>", "\n\nSure.", "\n", "<minimax:tool_call>",
      "\n<invoke name=\"look\">\n", MINIMAX_PAIR("depth", "3"), MINIMAX_PAIR("deep", "true"),
      MINIMAX_PAIR("name", "007") MINIMAX_PAIR("ratio", "0.5"),
      MINIMAX_PAIR("list", "[1, \"b\"]") MINIMAX_PAIR("where", "{\"a\": 1}"),
      MINIMAX_PAIR("none", "null") MINIMAX_PAIR("size", "big"), "</invoke>\n",
      "</minimax:tool_call>"}},
    {NULL, {NULL}}};

/* MiniMax-M3: tags within tags, where the schema states what is within; its mark before each tag
 * occurs more than once, so the model writes it as text. */
static const struct script_token minimax_m3_tokens[] = {{"[e~[", SCRIPT_CONTROL},
                                                        {"<mm:think>", SCRIPT_USER},
                                                        {"</mm:think>", SCRIPT_USER},
                                                        {NULL, SCRIPT_TEXT}};
#define M3                  "]<]minimax[>["
#define M3_PAIR(key, value) M3 "<" key ">" value M3 "</" key ">"
static const struct script_answer minimax_m3_answers[] = {
    {"A",
     {"<mm:think>", "I look.", "</mm:think>", "Sure.", M3 "<tool_call>\n",
      M3 "<invoke name=\"look\">", M3_PAIR("depth", "3"), M3_PAIR("deep", "true"),
      M3_PAIR("name", "007") M3_PAIR("ratio", "0.5"),
      M3_PAIR("list", "[1, \"b\"]") M3_PAIR("where", "{\"a\": 1}"),
      M3_PAIR("none", "null") M3_PAIR("size", "big"), M3 "</invoke>\n", M3 "</tool_call>"}},
    {NULL, {NULL}}};

/* MiniMax-M1. */
static const struct script_token minimax_m1_tokens[] = {
    {"<end_of_sentence>", SCRIPT_CONTROL}, {"\"arguments\": ", SCRIPT_USER}, {NULL, SCRIPT_TEXT}};
static const struct script_answer minimax_m1_answers[] = {
    {"A",
     {"<think>I look.", "</think>", "Sure.", "\n<tool_calls>", "\n{\"name\": \"look\", ",
      "\"arguments\": ", FAMILY_ARGUMENTS, "}\n", "</tool_calls>"}},
    {NULL, {NULL}}};

/* Hermes, Qwen3, Granite 4. */
static const struct script_token hermes_tokens[] = {{"<|im_end|>", SCRIPT_CONTROL},
                                                    {"<tool_call>", SCRIPT_USER},
                                                    {"</tool_call>", SCRIPT_USER},
                                                    {"\"arguments\": ", SCRIPT_USER},
                                                    {NULL, SCRIPT_TEXT}};
static const struct script_answer hermes_answers[] = {
    {"A",
     {"Sure.", "\n", "<tool_call>", "\n{\"name\": \"look\", ", "\"arguments\": ", FAMILY_ARGUMENTS,
      "}\n", "</tool_call>"}},
    {NULL, {NULL}}};

/* DeepSeek V3 and R1, and V3.1. */
static const struct script_token deepseek_tokens[] = {{"<｜end▁of▁sentence｜>", SCRIPT_CONTROL},
                                                      {"<think>", SCRIPT_USER},
                                                      {"</think>", SCRIPT_USER},
                                                      {"<｜tool▁calls▁begin｜>", SCRIPT_CONTROL},
                                                      {"<｜tool▁calls▁end｜>", SCRIPT_CONTROL},
                                                      {"<｜tool▁call▁begin｜>", SCRIPT_CONTROL},
                                                      {"<｜tool▁call▁end｜>", SCRIPT_CONTROL},
                                                      {"<｜tool▁sep｜>", SCRIPT_CONTROL},
                                                      {"function", SCRIPT_USER},
                                                      {"look\n```json\n", SCRIPT_USER},
                                                      {"\n```", SCRIPT_USER},
                                                      {"look", SCRIPT_USER},
                                                      {NULL, SCRIPT_TEXT}};
static const struct script_answer v3_answers[] = {
    {"A",
     {"<think>", "\nI look.\n", "</think>", "\n\nSure.", "<｜tool▁calls▁begin｜>",
      "<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>", "look\n```json\n", FAMILY_ARGUMENTS,
      "\n```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}},
    {NULL, {NULL}}};
static const struct script_answer v31_answers[] = {
    {"A",
     {"Sure.", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "look", "<｜tool▁sep｜>",
      FAMILY_ARGUMENTS, "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}},
    {NULL, {NULL}}};

/* DeepSeek V3.2 and V4: what their marks have within occurs more than once, so the model writes it
 * as text. */
static const struct script_token dsml_tokens[] = {{"<｜end▁of▁sentence｜>", SCRIPT_CONTROL},
                                                  {"<think>", SCRIPT_USER},
                                                  {"</think>", SCRIPT_USER},
                                                  {NULL, SCRIPT_TEXT}};
#define DSML_PAIR(key, text, value)                                                                \
    "<｜DSML｜parameter name=\"" key "\" string=\"" text "\">" value "</｜DSML｜parameter>\n"
#define DSML_ANSWERS(name, block)                                                                  \
    static const struct script_answer name##_answers[] = {                                         \
        {"A",                                                                                      \
         {"<think>", "I look.", "</think>", "Sure.", "\n\n<｜DSML｜" block ">\n",                  \
          "<｜DSML｜invoke name=\"look\">\n", DSML_PAIR("depth", "false", "3"),                    \
          DSML_PAIR("deep", "false", "true"),                                                      \
          DSML_PAIR("name", "true", "007") DSML_PAIR("ratio", "false", "0.5"),                     \
          DSML_PAIR("list", "false", "[1, \"b\"]") DSML_PAIR("where", "false", "{\"a\": 1}"),      \
          DSML_PAIR("none", "false", "null") DSML_PAIR("size", "true", "big"),                     \
          "</｜DSML｜invoke>\n", "</｜DSML｜" block ">"}},                                         \
        {NULL, {NULL}}}
DSML_ANSWERS(v32, "function_calls");
DSML_ANSWERS(v4, "tool_calls");

/* Kimi-K2. */
static const struct script_token kimi_tokens[] = {{"<|im_end|>", SCRIPT_CONTROL},
                                                  {"<think>", SCRIPT_USER},
                                                  {"</think>", SCRIPT_USER},
                                                  {"<|tool_calls_section_begin|>", SCRIPT_CONTROL},
                                                  {"<|tool_calls_section_end|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_begin|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_argument_begin|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_end|>", SCRIPT_CONTROL},
                                                  {"functions.look:", SCRIPT_USER},
                                                  {NULL, SCRIPT_TEXT}};
static const struct script_answer kimi_answers[] = {
    {"A",
     {"<think>", "I look.", "</think>", "Sure.", "<|tool_calls_section_begin|>",
      "<|tool_call_begin|>", "functions.look:0", "<|tool_call_argument_begin|>", FAMILY_ARGUMENTS,
      "<|tool_call_end|>", "<|tool_calls_section_end|>"}},
    {NULL, {NULL}}};

/* Kimi-K3: tags with attributes, whose marks occur more than once, so that the model writes them as
 * text. */
static const struct script_token kimi_k3_tokens[] = {{"<|end_of_msg|>", SCRIPT_CONTROL},
                                                     {NULL, SCRIPT_TEXT}};
#define K3_OPEN(tag)  "<|open|>" tag "<|sep|>"
#define K3_CLOSE(tag) "<|close|>" tag "<|sep|>"
#define K3_PAIR(key, type, value)                                                                  \
    K3_OPEN("argument key=\"" key "\" type=\"" type "\"") value K3_CLOSE("argument")
static const struct script_answer kimi_k3_answers[] = {
    {"A",
     {K3_OPEN("think"), "I look.", K3_CLOSE("think"), K3_OPEN("response"), "Sure.",
      K3_CLOSE("response"), K3_OPEN("tools"), K3_OPEN("call tool=\"look\" index=\"1\""),
      K3_PAIR("depth", "number", "3") K3_PAIR("deep", "boolean", "true"),
      K3_PAIR("name", "string", "007") K3_PAIR("ratio", "number", "0.5"),
      K3_PAIR("list", "array", "[1, \"b\"]") K3_PAIR("where", "object", "{\"a\": 1}"),
      K3_PAIR("none", "null", "null") K3_PAIR("size", "string", "big"),
      K3_CLOSE("call") K3_CLOSE("tools"), K3_CLOSE("message")}},
    {NULL, {NULL}}};

/* Hy3: as GLM, with other marks. */
static const struct script_token hy3_tokens[] = {{"<｜hy_eos:opensource｜>", SCRIPT_CONTROL},
                                                 {"<think:opensource>", SCRIPT_CONTROL},
                                                 {"</think:opensource>", SCRIPT_CONTROL},
                                                 {"<tool_calls:opensource>", SCRIPT_CONTROL},
                                                 {"</tool_calls:opensource>", SCRIPT_CONTROL},
                                                 {"<tool_call:opensource>", SCRIPT_CONTROL},
                                                 {"</tool_call:opensource>", SCRIPT_CONTROL},
                                                 {"<tool_sep:opensource>", SCRIPT_CONTROL},
                                                 {"look", SCRIPT_USER},
                                                 {NULL, SCRIPT_TEXT}};
#define HY3_PAIR(key, value)                                                                       \
    "<arg_key:opensource>" key "</arg_key:opensource>\n<arg_value:opensource>" value               \
    "</arg_value:opensource>\n"
static const struct script_answer hy3_answers[] = {
    {"A",
     {"<think:opensource>", "I look.", "</think:opensource>", "Sure.", "<tool_calls:opensource>",
      "\n", "<tool_call:opensource>", "look", "<tool_sep:opensource>", "\n" HY3_PAIR("depth", "3"),
      HY3_PAIR("deep", "true"), HY3_PAIR("name", "007"),
      HY3_PAIR("ratio", "0.5") HY3_PAIR("list", "[1, \"b\"]"), HY3_PAIR("where", "{\"a\": 1}"),
      HY3_PAIR("none", "null") HY3_PAIR("size", "big"), "</tool_call:opensource>",
      "\n</tool_calls:opensource>"}},
    {NULL, {NULL}}};

/* Command A+ and North: a text stands between two marks. */
static const struct script_token cohere_tokens[] = {
    {"<|END_OF_TURN_TOKEN|>", SCRIPT_CONTROL}, {"<|START_THINKING|>", SCRIPT_CONTROL},
    {"<|END_THINKING|>", SCRIPT_CONTROL},      {"<|START_TEXT|>", SCRIPT_CONTROL},
    {"<|END_TEXT|>", SCRIPT_CONTROL},          {"<|START_ACTION|>", SCRIPT_CONTROL},
    {"<|END_ACTION|>", SCRIPT_CONTROL},        {"\"tool_call_id\": ", SCRIPT_USER},
    {"\"parameters\": ", SCRIPT_USER},         {NULL, SCRIPT_TEXT}};
static const struct script_answer cohere_answers[] = {
    {"A",
     {"<|START_THINKING|>", "I look.", "<|END_THINKING|>", "<|START_TEXT|>", "Sure.",
      "<|END_TEXT|>", "<|START_ACTION|>", "[\n    {", "\"tool_call_id\": ", "\"0\"",
      ", \"tool_name\": \"look\", ", "\"parameters\": ", FAMILY_ARGUMENTS, "}\n]",
      "<|END_ACTION|>"}},
    {NULL, {NULL}}};

/* Mistral Small 4, Ministral 3: a call ends with the answer. */
static const struct script_token mistral_tokens[] = {
    {"</s>", SCRIPT_CONTROL},     {"[THINK]", SCRIPT_CONTROL},
    {"[/THINK]", SCRIPT_CONTROL}, {"[TOOL_CALLS]", SCRIPT_CONTROL},
    {"[ARGS]", SCRIPT_CONTROL},   {"look", SCRIPT_USER},
    {NULL, SCRIPT_TEXT}};
static const struct script_answer mistral_answers[] = {
    {"A",
     {"[THINK]", "I look.", "[/THINK]", "Sure.", "[TOOL_CALLS]", "look", "[ARGS]",
      FAMILY_ARGUMENTS}},
    {NULL, {NULL}}};

/* Gemma 4: the marks around texts occur more than once, so the model writes them as text. */
static const struct script_token gemma_tokens[] = {
    {"<turn|>", SCRIPT_CONTROL},      {"<|channel>", SCRIPT_CONTROL},
    {"<channel|>", SCRIPT_CONTROL},   {"<|tool_call>", SCRIPT_CONTROL},
    {"<tool_call|>", SCRIPT_CONTROL}, {NULL, SCRIPT_TEXT}};
static const struct script_answer gemma_answers[] = {
    {"A",
     {"<|channel>", "thought\nI look.\n", "<channel|>", "Sure.", "<|tool_call>",
      "call:look{deep:true,depth:3,", "list:[1,<|\"|>b<|\"|>],name:<|\"|>007<|\"|>,",
      "none:null,ratio:0.5,size:<|\"|>big<|\"|>,where:{a:1}}", "<tool_call|>"}},
    {NULL, {NULL}}};

/* LFM2: a list as in Python. */
static const struct script_token lfm2_tokens[] = {{"<|im_end|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_start|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_end|>", SCRIPT_CONTROL},
                                                  {NULL, SCRIPT_TEXT}};
static const struct script_answer lfm2_answers[] = {
    {"A",
     {"Sure.", "<|tool_call_start|>", "[look(depth=3, deep=True, ", "name='007', ratio=0.5, ",
      "list=[1, \"b\"], where={\"a\": 1}, ", "none=None, size='big')]", "<|tool_call_end|>"}},
    {NULL, {NULL}}};

/* Llama 4: no mark is around its calls; a text before them stands between two. */
static const struct script_token llama4_tokens[] = {{"<|eot|>", SCRIPT_CONTROL},
                                                    {"<|python_start|>", SCRIPT_CONTROL},
                                                    {"<|python_end|>", SCRIPT_CONTROL},
                                                    {"\"parameters\": ", SCRIPT_USER},
                                                    {NULL, SCRIPT_TEXT}};
static const struct script_answer llama4_answers[] = {
    {"A",
     {"<|python_start|>", "Sure.", "<|python_end|>", "{\"name\": \"look\", ",
      "\"parameters\": ", FAMILY_ARGUMENTS, "}"}},
    {NULL, {NULL}}};

/* gpt-oss: headers of messages are text between control tokens. <|start|>, <|channel|> and
 * <|message|> occur more than once; here the second message has them as text. */
static const struct script_token harmony_tokens[] = {
    {"<|return|>", SCRIPT_CONTROL},  {"<|start|>", SCRIPT_CONTROL},
    {"<|channel|>", SCRIPT_CONTROL}, {"<|message|>", SCRIPT_CONTROL},
    {"<|end|>", SCRIPT_CONTROL},     {"<|call|>", SCRIPT_CONTROL},
    {"assistant", SCRIPT_USER},      {NULL, SCRIPT_TEXT}};
static const struct script_answer harmony_answers[] = {
    {"A",
     {"<|channel|>", "analysis", "<|message|>", "I look.", "<|end|>", "<|start|>",
      "assistant<|channel|>commentary<|message|>Sure.<|end|>",
      "<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>",
      FAMILY_ARGUMENTS, "<|call|>"}},
    {NULL, {NULL}}};

#define SCRIPT(name, end, marks)                                                                   \
    {                                                                                              \
        .tokens = name##_tokens, .answers = name##_answers, .eos = end,                            \
        .chat_template = TEMPLATE(marks)                                                           \
    }
#define DEEPSEEK(tokens_, name, marks)                                                             \
    {                                                                                              \
        .tokens = tokens_##_tokens, .answers = name##_answers, .eos = "<｜end▁of▁sentence｜>",     \
        .chat_template = TEMPLATE(marks)                                                           \
    }

const struct family families[] = {
    {"coder", SCRIPT(coder, "<|im_end|>", "<think></think><tool_call><function=></tool_call>"),
     "I need to look.", "Sure.", NULL, NULL},
    {"glm", SCRIPT(glm, "<|user|>", "</think><tool_call><arg_key></tool_call>"), "I look.", "Sure.",
     NULL, NULL},
    {"minimax", SCRIPT(minimax, "[e~[", "</think><minimax:tool_call>"), "I look.", "Sure.", NULL,
     NULL},
    {"minimax_m3", SCRIPT(minimax_m3, "[e~[", "</mm:think>]<]minimax[>[</tool_call>"), "I look.",
     "Sure.", NULL, NULL},
    {"minimax_m1",
     SCRIPT(minimax_m1, "<end_of_sentence>", "<tool_calls></tool_calls><end_of_sentence>"),
     "I look.", "Sure.", NULL, NULL},
    {"hermes", SCRIPT(hermes, "<|im_end|>", "<tool_call></tool_call>"), "", "Sure.", NULL, NULL},
    {"deepseek_v3",
     DEEPSEEK(deepseek, v3,
              "</think>{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] }}"),
     "I look.", "Sure.", NULL, NULL},
    {"deepseek_v31", DEEPSEEK(deepseek, v31, "<｜tool▁calls▁begin｜>"), "", "Sure.", NULL, NULL},
    {"deepseek_v32", DEEPSEEK(dsml, v32, "</think>{{ '<' + dsml_token + 'function_calls>' }}"),
     "I look.", "Sure.", NULL, NULL},
    {"deepseek_v4", DEEPSEEK(dsml, v4, "</think><｜DSML｜tool_calls>"), "I look.", "Sure.", NULL,
     NULL},
    {"kimi", SCRIPT(kimi, "<|im_end|>", "</think><|tool_calls_section_begin|>"), "I look.", "Sure.",
     "functions.look:0", NULL},
    {"kimi_k3",
     SCRIPT(kimi_k3, "<|end_of_msg|>", "open_tag('think')open_tag('response')open_tag('tools')"),
     "I look.", "Sure.", NULL, NULL},
    {"mimo",
     {.tokens = coder_tokens,
      .answers = mimo_answers,
      .eos = "<|im_end|>",
      .chat_template = TEMPLATE("</think><parameter=example_parameter_1>value_1</parameter>")},
     "I look.",
     "Sure.",
     NULL,
     NULL},
    {"hy3", SCRIPT(hy3, "<｜hy_eos:opensource｜>", "HYTK = ':opensource'"), "I look.", "Sure.",
     NULL, NULL},
    {"cohere",
     SCRIPT(cohere, "<|END_OF_TURN_TOKEN|>", "<|END_THINKING|><|END_TEXT|><|START_ACTION|>"),
     "I look.", "Sure.", NULL, NULL},
    {"mistral", SCRIPT(mistral, "</s>", "[/THINK][TOOL_CALLS][ARGS]"), "I look.", "Sure.", NULL,
     NULL},
    {"gemma", SCRIPT(gemma, "<turn|>", "<|channel>thought<channel|><|tool_call><tool_call|>"),
     "I look.", "Sure.", NULL,
     "{\"deep\":true,\"depth\":3,\"list\":[1,\"b\"],\"name\":\"007\",\"none\":null,\"ratio\":0.5,"
     "\"size\":\"big\",\"where\":{\"a\":1}}"},
    {"lfm2", SCRIPT(lfm2, "<|im_end|>", "<|tool_list_start|>"), "", "Sure.", NULL, NULL},
    {"llama4",
     SCRIPT(llama4, "<|eot|>",
            "<|header_start|>{\"name\": function name, \"parameters\": dictionary of"),
     "", "Sure.", NULL, NULL},
    {"harmony", SCRIPT(harmony, "<|return|>", "<|start|>assistant<|channel|>analysis<|message|>"),
     "I look.", "Sure.", NULL, NULL},
    {NULL, {0}, NULL, NULL, NULL, NULL}};
