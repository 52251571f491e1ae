/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools in every form of answer.tbl.h: the same parts whatever the pieces in which the
 * answer arrives. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/chat/answer.h"

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"properties\":{"      \
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"deep\":{\"type\":"           \
    "[\"object\",\"null\"]},\"id\":{\"type\":[\"string\",\"null\"]},"                              \
    "\"rain\":{\"type\":\"boolean\"},\"max\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":"        \
    "\"null\"}]},"                                                                                 \
    "\"zip\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"where\":{\"$ref\":\"#/"     \
    "x\"},"                                                                                        \
    "\"near\":{\"oneOf\":[{\"$ref\":\"#/x\"},{\"type\":\"null\"}]}}}}},"                           \
    "{\"type\":\"function\",\"function\":{\"name\":\"plan\",\"parameters\":{\"properties\":{"      \
    "\"deep\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"number\"},\"s\":{\"type\":"   \
    "\"string\"}}},\"list\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}}}}]"

struct collected {
    FILE *out;
    int last;
};

/* |R:...|C:...|name(arguments)#id */
static void collect(void *arg, const struct answer_piece *p)
{
    struct collected *c = arg;
    if (p->part == ANSWER_CALL)
        fprintf(c->out, "|%s(%s)%s%s", p->name, p->arguments, p->id ? "#" : "", p->id ? p->id : "");
    else if (c->last != (int)p->part)
        fprintf(c->out, "|%c:", p->part == ANSWER_REASONING ? 'R' : 'C');
    if (p->part != ANSWER_CALL)
        fwrite(p->text, 1, p->bytes, c->out);
    c->last = (int)p->part;
}

static char *split(const char *chat_template, bool with_tools, const char *text, size_t bytes,
                   size_t first, size_t piece)
{
    struct answer a;
    struct collected c = {.last = -1};
    char *out;
    size_t n;
    json_t *tools = json_loads(TOOLS, 0, NULL);
    struct answer_form form = answer_form_of(chat_template, strlen(chat_template));
    struct chat_types *types = chat_types_new(tools, &n);
    json_decref(tools); /* nothing of it is kept */
    form.types = types;
    if (!with_tools)
        form.call = (struct answer_call){0};
    c.out = open_memstream(&out, &n);
    answer_open(&a, &form, false, collect, &c);
    for (size_t at = 0, step = first; at < bytes; at += step, step = piece) {
        step = bytes - at < step ? bytes - at : step;
        ck_assert_int_eq(answer_take(&a, text + at, step, false), 0);
    }
    ck_assert_int_eq(answer_take(&a, "", 0, true), 0);
    ck_assert_uint_eq(a.bytes, 0);
    answer_close(&a);
    fclose(c.out);
    chat_types_free(types);
    return out;
}

#define QWEN         "<tool_call>\n<function=x>"
#define GLM          "<arg_key>"
#define MINIMAX      "<minimax:tool_call>"
#define V3           "'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'"
#define V31          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
#define KIMI         "<|tool_calls_section_begin|>"
#define THINKS       "</think><tool_call>\n<function=x>"
#define JSON         "<think></think><tool_call></tool_call>"
#define GEMMA        "<|channel>thought\n<channel|><|tool_call>call:<tool_call|>"
#define HARMONY      "<|start|>assistant<|channel|>analysis<|message|>"
#define MIMO         "<parameter=example_parameter_1>value_1</parameter>"
#define HY3          "{%- set HYTK = ':opensource' %}{{ '<tool_calls{}>'.format(HYTK) }}<arg_key>"
#define HY3_OLD      "</think><tool_calls><tool_call><tool_sep><arg_key>"
#define COHERE       "<|START_THINKING|><|END_THINKING|><|START_ACTION|><|START_TEXT|><|END_TEXT|>"
#define MISTRAL      "[THINK][/THINK][TOOL_CALLS][ARGS]"
#define SMALL        "[TOOL_CALLS][CALL_ID][ARGS]"
#define NEMO         "[TOOL_CALLS]["
#define M1           "<tool_calls>\n</tool_calls><end_of_sentence>"
#define KIMI_K3      "open_tag('think') open_tag('response') open_tag('tools')"
#define K3_(tag)     "<|open|>" tag "<|sep|>"
#define K3C_(tag)    "<|close|>" tag "<|sep|>"
#define LFM2         "List of tools: <|tool_list_start|>["
#define LFM2_(calls) "<|tool_call_start|>" calls "<|tool_call_end|>"
#define LLAMA4       "<|header_start|> {\"name\": function name, \"parameters\": dictionary of"
#define LLAMA4_LIST  "<|header_start|> [func_name1(param1=value1, param2=value2), func_name2(...)]"

#define V32                "'<' + dsml_token + 'function_calls>'</think>"
#define V4                 "\n<｜DSML｜tool_calls>\n"
#define DSML_(name, calls) "<｜DSML｜" name ">\n" calls "</｜DSML｜" name ">"
#define DSML_ONE(name, arguments)                                                                  \
    "<｜DSML｜invoke name=\"" name "\">\n" arguments "</｜DSML｜invoke>\n"
#define DSML_ARG(key, is, value)                                                                   \
    "<｜DSML｜parameter name=\"" key "\"" is ">" value "</｜DSML｜parameter>\n"
#define TEXT    " string=\"true\""
#define NO_TEXT " string=\"false\""
/* MiniMax-M3 */
#define M3_                     "]<]minimax[>["
#define M3                      "{% set ns = '" M3_ "' %}{% set end = '</mm:think>' %}</tool_call>"
#define M3_TAG(key, value)      M3_ "<" key ">" value M3_ "</" key ">"
#define M3_ONE(name, arguments) M3_ "<invoke name=\"" name "\">" arguments M3_ "</invoke>\n"
#define M3_CALLS(calls)         M3_ "<tool_call>\n" calls M3_ "</tool_call>"
/* Of the calls of Hy3: only the name of the file's marks differs. */
#define HY3_PAIR(x, key, value)                                                                    \
    "<arg_key" x ">" key "</arg_key" x ">\n<arg_value" x ">" value "</arg_value" x ">\n"
#define HY3_CALL(x, name, pairs)                                                                   \
    "<tool_call" x ">" name "<tool_sep" x ">\n" pairs "</tool_call" x ">"

static const struct {
    const char *form, *text, *parts;
    bool no_tools;
} rows[] = {
    {QWEN,
     "Look:\n<tool_call>\n<function=get>\n<parameter=city>\nParis\n</"
     "parameter>\n<parameter=days>\n3\n"
     "</parameter>\n</function>\n</tool_call>",
     "|C:Look:|get({\"city\":\"Paris\",\"days\":3})", false},
    /* Types: of the schema; else a text. */
    {QWEN,
     "<tool_call>\n<function=get>\n<parameter=city>\n12\n</parameter>\n<parameter=deep>\n{\"a\": "
     "[1]}\n"
     "</parameter>\n<parameter=id>\n7\n</parameter>\n<parameter=other>\n7\n</parameter>\n"
     "<parameter=days>\nthree\n</parameter>\n</function>\n</tool_call>",
     "|get({\"city\":\"12\",\"deep\":{\"a\":[1]},\"id\":\"7\",\"other\":\"7\",\"days\":\"three\"})",
     false},
    /* Alternatives, references, and the names of Python. */
    {QWEN,
     "<tool_call><function=get><parameter=rain>\nTrue\n</parameter><parameter=max>\n12\n</"
     "parameter><parameter=zip>\n12\n</parameter><parameter=where>\n{\"a\": "
     "1}\n</parameter><parameter=near>\n"
     "None\n</parameter><parameter=city>\nFalse\n</parameter></function></tool_call>",
     "|get({\"rain\":true,\"max\":12,\"zip\":\"12\",\"where\":{\"a\":1},\"near\":null,\"city\":"
     "\"False\"})",
     false},
    {GLM,
     "<tool_call>get<arg_key>rain</arg_key><arg_value>False</arg_value><arg_key>where</arg_key>"
     "<arg_value>here</arg_value><arg_key>max</arg_key><arg_value>Nones</arg_value></tool_call>",
     "|get({\"rain\":false,\"where\":\"here\",\"max\":\"Nones\"})", false},
    {QWEN, "<tool_call><function=f></function></tool_call>x", "|f({})|C:x", false},
    {QWEN,
     "<tool_call>\n<function=f>\n<parameter=a>\n\nb\n\n</parameter>\n</function>\n</tool_call>",
     "|f({\"a\":\"\\nb\\n\"})", false},
    {QWEN, "<tool_call><function=f><parameter=a>b</function></tool_call>",
     "|C:<tool_call><function=f><parameter=a>b</function></tool_call>", false},
    {QWEN, "<tool_call>{\"name\":\"f\"}</tool_call>", "|C:<tool_call>{\"name\":\"f\"}</tool_call>",
     false},
    {QWEN, "<tool_call><function=f></function> and </tool_call>",
     "|C:<tool_call><function=f></function> and </tool_call>", false},
    {QWEN,
     "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>"
     "</tool_call>",
     "|C:<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>"
     "</tool_call>",
     false},
    {QWEN, "<tool_call><function=f></function>", "|f({})", false}, /* ended by its token */
    {GLM,
     "\n<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>New\nYork\n</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>-2</arg_value>\n</tool_call>\n<tool_call>f</tool_call>",
     "|get({\"city\":\"New\\nYork\\n\",\"days\":-2})|f({})", false},
    /* Ling 3: line feeds before values, none before keys. */
    {"<think></think>" GLM,
     "<think>Cold?</think>I look.\n<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Kiel"
     "</arg_value><arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
     "<tool_call>f\n</tool_call>",
     "|R:Cold?|C:I look.|get({\"city\":\"Kiel\",\"days\":2})|f({})", false},
    {GLM, "<tool_call>get<arg_key>city</arg_key></tool_call>",
     "|C:<tool_call>get<arg_key>city</arg_key></tool_call>", false},
    {GLM, "<tool_call>not a name</tool_call>", "|C:<tool_call>not a name</tool_call>", false},
    {GLM, "<tool_call></tool_call>", "|C:<tool_call></tool_call>", false},
    {MINIMAX,
     "Hi<minimax:tool_call>\n<invoke name=\"get\">\n<parameter name=\"city\">Paris</parameter>\n"
     "</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "|C:Hi|get({\"city\":\"Paris\"})|g({})", false},
    {MINIMAX, "<minimax:tool_call><invoke name=\"g\"></invoke><invoke></minimax:tool_call>",
     "|C:<minimax:tool_call><invoke name=\"g\"></invoke><invoke></minimax:tool_call>", false},
    /* DeepSeek V3.2 and V4: the call says the type, whatever the schema says. */
    {V32,
     "<think>a</think>Hi\n\n" DSML_(
         "function_calls",
         DSML_ONE("get", DSML_ARG("city", TEXT, "12 <b>\n") DSML_ARG("days", NO_TEXT, "3")
                             DSML_ARG("deep", NO_TEXT, "{\"a\": [1]}") DSML_ARG("id", NO_TEXT, "7"))
             DSML_ONE("f", "")),
     "|R:a|C:Hi|get({\"city\":\"12 <b>\\n\",\"days\":3,\"deep\":{\"a\":[1]},\"id\":7})|f({})",
     false},
    {V4,
     DSML_("tool_calls",
           DSML_ONE("get", DSML_ARG("days", TEXT, "3") DSML_ARG("rain", NO_TEXT, "true")
                               DSML_ARG("max", "", "4") DSML_ARG("city", "", "5"))),
     "|get({\"days\":\"3\",\"rain\":true,\"max\":4,\"city\":\"5\"})", false},
    {V4, DSML_("tool_calls", DSML_ONE("f", DSML_ARG("a", " string=\"maybe\"", "1"))),
     "|C:" DSML_("tool_calls", DSML_ONE("f", DSML_ARG("a", " string=\"maybe\"", "1"))), false},
    /* The marks around the calls are another version's. */
    {V32, DSML_("tool_calls", DSML_ONE("f", "")),
     "|C:<｜DSML｜tool_calls>|f({})|C:</｜DSML｜tool_calls>", false},
    /* MiniMax-M3: objects and arrays are tags in tags; types are those of the schema. */
    {M3,
     "<mm:think>a</mm:think>Hi" M3_CALLS(
         M3_ONE("get", M3_TAG("city", "12 <b>\n") M3_TAG("days", "3") M3_TAG("rain", "true"))
             M3_ONE("f", "")),
     "|R:a|C:Hi|get({\"city\":\"12 <b>\\n\",\"days\":3,\"rain\":true})|f({})", false},
    {M3,
     M3_CALLS(M3_ONE("plan", M3_TAG("deep", M3_TAG("n", "1.5") "\n" M3_TAG("s", "7"))
                                 M3_TAG("list", M3_TAG("item", "1") M3_TAG("item", "2")))),
     "|plan({\"deep\":{\"n\":1.5,\"s\":\"7\"},\"list\":[1,2]})", false},
    {M3,
     M3_CALLS(M3_ONE("plan",
                     M3_TAG("list", "") M3_TAG("deep", "") M3_TAG("other", M3_TAG("item", "1")))),
     "|plan({\"list\":[],\"deep\":{},\"other\":[\"1\"]})", false},
    {M3, M3_CALLS(M3_ONE("plan", M3_TAG("deep", M3_TAG("item", "a")) M3_TAG("list", "[1, 2]"))),
     "|plan({\"deep\":{\"item\":\"a\"},\"list\":[1,2]})", false},
    {M3, "</mm:think>Hello", "|C:Hello", false}, /* no reasoning */
    {M3, "</mm:thin", "|C:</mm:thin", false},
    {M3, M3_CALLS(M3_ONE("f", M3_ "<a>1" M3_ "</b>")),
     "|C:" M3_CALLS(M3_ONE("f", M3_ "<a>1" M3_ "</b>")), false},
    {M3, M3_CALLS(M3_ONE("plan", M3_TAG("list", M3_TAG("n", "1")))),
     "|C:" M3_CALLS(M3_ONE("plan", M3_TAG("list", M3_TAG("n", "1")))), false},
    {M3, M3_CALLS(M3_ONE("f", M3_TAG("a", "1") M3_TAG("a", "2"))),
     "|C:" M3_CALLS(M3_ONE("f", M3_TAG("a", "1") M3_TAG("a", "2"))), false},
    {M3, M3_ "<tool_call>" M3_ "<invoke name=\"f\">" M3_TAG("a", "1") M3_ "<b>",
     "|C:" M3_ "<tool_call>" M3_ "<invoke name=\"f\">" M3_TAG("a", "1") M3_ "<b>", false},
    {V3,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n"
     "{\"city\": \"x\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
     "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "|get({\"city\":\"x\"})|f({})", false},
    {V31,
     "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"a\": 1.5}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "|C:ok|get({\"a\":1.5})|f({})", false},
    {V31, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>[1]<｜tool▁call▁end｜>",
     "|C:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>[1]<｜tool▁call▁end｜>",
     false},
    {KIMI,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>"
     "{\"city\":\"x\"}<|tool_call_end|><|tool_call_begin|>functions.f:12<|tool_call_argument_begin|"
     "><|tool_call_end|><|tool_calls_section_end|>",
     "|get({\"city\":\"x\"})#functions.get:0|f({})#functions.f:12", false},
    {KIMI,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"a\":\"x\\u0000y\"}<|tool_call_end|><|tool_calls_section_end|>",
     "|f({\"a\":\"x\\u0000y\"})#functions.f:0", false},
    {KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_end|>",
     "|C:<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_end|>", false},
    {GEMMA,
     "<|channel>thought\nsum\n<channel|>Hi<|tool_call>call:get{city:<|\"|>a \"b\", "
     "{c}<|\"|>,days:3,"
     "deep:{a:[1,true,null],b:{}},id:<|\"|><|\"|>}<tool_call|><|tool_call>call:f{}<tool_call|>",
     "|R:sum|C:Hi|get({\"city\":\"a \\\"b\\\", "
     "{c}\",\"days\":3,\"deep\":{\"a\":[1,true,null],\"b\":{}},\"id\":\"\"})|f({})",
     false},
    {GEMMA, "<|tool_call>call:f{a:None,b:[None]}<tool_call|>", "|f({\"a\":null,\"b\":[null]})",
     false},
    {GEMMA, "<|tool_call>call:f{a:}<tool_call|>", "|C:<|tool_call>call:f{a:}<tool_call|>", false},
    {GEMMA, "<|tool_call>call:f{a:1,a:2}<tool_call|>", "|C:<|tool_call>call:f{a:1,a:2}<tool_call|>",
     false},
    {GEMMA, "<|tool_call>call:f{a:[1}<tool_call|>", "|C:<|tool_call>call:f{a:[1}<tool_call|>",
     false},
    {HARMONY,
     "<|channel|>analysis<|message|>a < b <|x<|end|><|start|>assistant<|channel|>final<|message|>"
     "It is <b>.<|return|>",
     "|R:a < b <|x|C:It is <b>.", false},
    {HARMONY,
     "<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get <|constrain|>json<|message|>{\"city\": \"x\"}<|call|>",
     "|R:t|get({\"city\":\"x\"})", false},
    {HARMONY, " to=functions.get<|channel|>commentary json<|message|>{}", "|get({})", false},
    {HARMONY,
     "<|channel|>commentary<|message|>plan<|end|><|start|>assistant to=functions.f<|channel|>"
     "commentary json<|message|><|call|>",
     "|C:plan|f({})", false},
    {HARMONY, "<|channel|>commentary to=functions.f json<|message|>{no}<|call|>x",
     "|C:<|channel|>commentary to=functions.f json<|message|>{no}x", false},
    {HARMONY, "<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
     "|C:<|channel|>commentary to=functions.f json<|message|>{}", true},
    {HARMONY, "<|channel|>analysis<|message|>t<|start|>assistant<|channel|>final<|message|>x",
     "|R:t|C:x", true},
    /* MiMo: a line feed at an end of a value is of the value. */
    {MIMO,
     "<tool_call>\n<function=get>\n<parameter=city>New\nYork\n</parameter>\n<parameter=days>3"
     "</parameter>\n<parameter=rain>True</parameter>\n</function>\n</tool_call>",
     "|get({\"city\":\"New\\nYork\\n\",\"days\":3,\"rain\":true})", false},
    {HY3,
     "<think:opensource>a</think:opensource>Hi<tool_calls:opensource>\n" HY3_CALL(
         ":opensource", "get",
         HY3_PAIR(":opensource", "city", "x\n")
             HY3_PAIR(":opensource", "days", "2")) "\n" HY3_CALL(":opensource", "f",
                                                                 "") "\n</tool_calls:opensource>",
     "|R:a|C:Hi|get({\"city\":\"x\\n\",\"days\":2})|f({})", false},
    {HY3_OLD,
     "<think>a</think><tool_calls>" HY3_CALL("", "get", HY3_PAIR("", "city", "x")) "</tool_calls>",
     "|R:a|get({\"city\":\"x\"})", false},
    {HY3_OLD, HY3_CALL("", "f", "") "</tool_calls>", "|f({})", false},
    {HY3_OLD, "<tool_calls>\n<tool_call>f</tool_call>\n</tool_calls>",
     "|C:<tool_calls>\n<tool_call>f</tool_call>\n</tool_calls>", false},
    /* Cohere: ids only number the calls; the text stands between two marks. */
    {COHERE,
     "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"get\", \"parameters\": {\"city\": \"x\"}},\n    {\"tool_call_id\": \"1\", "
     "\"tool_name\": \"f\", \"parameters\": {}}\n]<|END_ACTION|>",
     "|R:a|get({\"city\":\"x\"})|f({})", false},
    {COHERE, "<|START_THINKING|>a<|END_THINKING|><|START_TEXT|>Hi.\n<|END_TEXT|>", "|R:a|C:Hi.\n",
     false},
    {COHERE, "<|START_TEXT|>Hi <|START_TEXT|> <|END_TEXT|>, <|END_TEXT|>",
     "|C:Hi <|START_TEXT|> , <|END_TEXT|>", true},
    {COHERE, "Hi.<|END_TEX", "|C:Hi.<|END_TEX", false},
    {COHERE,
     "<|START_TEXT|>I look.<|END_TEXT|>\n<|START_ACTION|>[{\"tool_name\":\"f\"}]<|END_ACTION|>",
     "|C:I look.|f({})", false},
    {COHERE, "<|START_ACTION|>[{\"tool_name\":\"f\",\"arguments\":{}}]<|END_ACTION|>",
     "|C:<|START_ACTION|>[{\"tool_name\":\"f\",\"arguments\":{}}]<|END_ACTION|>", false},
    {COHERE, "<|START_ACTION|>[]<|END_ACTION|>", "|C:<|START_ACTION|>[]<|END_ACTION|>", false},
    {COHERE, "<|START_ACTION|>[{\"tool_name\":\"f\"},1]<|END_ACTION|>",
     "|C:<|START_ACTION|>[{\"tool_name\":\"f\"},1]<|END_ACTION|>", false},
    /* Mistral: a call ends before the next one, or with the answer. */
    {MISTRAL, "[THINK]a[/THINK]Hi[TOOL_CALLS]get[ARGS]{\"city\": \"[x]\"}[TOOL_CALLS]f[ARGS]{}",
     "|R:a|C:Hi|get({\"city\":\"[x]\"})|f({})", false},
    {MISTRAL, "[TOOL_CALLS]f[ARGS]{}\n", "|f({})", false},
    {MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": ", "|C:[TOOL_CALLS]f[ARGS]{\"a\": ", false},
    /* Cut off before or in its arguments: no call. */
    {MISTRAL, "[TOOL_CALLS]f[ARGS]", "|C:[TOOL_CALLS]f[ARGS]", false},
    {MISTRAL, "[TOOL_CALLS]f[ARGS] \n", "|C:[TOOL_CALLS]f[ARGS] \n", false},
    {MISTRAL, "[TOOL_CALLS]f[ARGS][TOOL_CALLS]g[ARGS]{}", "|C:[TOOL_CALLS]f[ARGS]|g({})", false},
    {SMALL, "[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]", "|C:[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]",
     false},
    {HARMONY, "<|channel|>commentary to=functions.f json<|message|>",
     "|C:<|channel|>commentary to=functions.f json<|message|>", false},
    {GLM, "<tool_call>ge", "|C:<tool_call>ge", false},
    {GLM, "<tool_call>get<arg_key>days</arg_key><arg_value>3</arg_value>",
     "|C:<tool_call>get<arg_key>days</arg_key><arg_value>3</arg_value>", false},
    {"</think>" GLM, "<think>a<tool_call>get", "|R:a<tool_call>get", false},
    {MISTRAL, "[TOOL_CALLS]f[ARGS]{} Done.", "|C:[TOOL_CALLS]f[ARGS]{} Done.", false},
    {MISTRAL, "[TOOL_CALLS]f[TOOL_CALLS]g[ARGS]{}", "|C:[TOOL_CALLS]f|g({})", false},
    {SMALL, "[TOOL_CALLS]get[CALL_ID]abc123XYZ[ARGS]{\"days\": 1}", "|get({\"days\":1})#abc123XYZ",
     false},
    {SMALL, "[TOOL_CALLS]get[ARGS]{\"days\": 1}", "|get({\"days\":1})", false},
    {SMALL, "[TOOL_CALLS]get[CALL_ID]abc12[ARGS]{\"days\": 1}", "|get({\"days\":1})", false},
    {SMALL, "[TOOL_CALLS]get[CALL_ID]a\"c123XY\n[ARGS]{}",
     "|C:[TOOL_CALLS]get[CALL_ID]a\"c123XY\n[ARGS]{}", false},
    {SMALL, "[TOOL_CALLS]get[CALL_ID]abc123XYZ0[ARGS]{}", "|get({})", false},
    {NEMO, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"call_1\"}]", "|f({})",
     false},
    {NEMO,
     "Hi[TOOL_CALLS] [{\"name\": \"get\", \"arguments\": {\"city\": \"x\"}, \"id\": "
     "\"abc123XYZ\"}, "
     "{\"name\": \"f\", \"arguments\": \"{}\", \"id\": \"abc123XYA\"}]",
     "|C:Hi|get({\"city\":\"x\"})#abc123XYZ|f({})#abc123XYA", false},
    {NEMO, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "|f({})", false},
    {NEMO, "[TOOL_CALLS][{\"name\": \"f\", \"id\": \"call 1\"}]",
     "|C:[TOOL_CALLS][{\"name\": \"f\", \"id\": \"call 1\"}]", false},
    {NEMO, "[TOOL_CALLS][{\"name\": \"f\"}] x", "|C:[TOOL_CALLS][{\"name\": \"f\"}] x", false},
    {"<|bom|>", "Hi <tool_calls>[\n  {\"name\": \"f\", \"arguments\": {\"a\": 1}}\n]</tool_calls>",
     "|C:Hi|f({\"a\":1})", false},
    /* LFM2: as test_lfm2_parser of llama.cpp has them. */
    {LFM2, "Hi!\n" LFM2_("[get(city=\"Paris\", days=3)]") "Look",
     "|C:Hi!|get({\"city\":\"Paris\",\"days\":3})|C:Look", false},
    {LFM2, LFM2_("[f(), Calendar.create(a=['A', \"B\"], m={\"p\": 'h', 'r': true, \"n\": None,})]"),
     "|f({})|Calendar.create({\"a\":[\"A\",\"B\"],\"m\":{\"p\":\"h\",\"r\":true,\"n\":null}})",
     false},
    {LFM2, LFM2_("[f(a=True, b=false, c=-1.5, d=[], e={}, g=[1, [2,], {\"x\": [3]}],)]"),
     "|f({\"a\":true,\"b\":false,\"c\":-1.5,\"d\":[],\"e\":{},\"g\":[1,[2],{\"x\":[3]}]})", false},
    {LFM2,
     LFM2_("[f(code=\"def x():\\n    print('y', \\\"z\\\")\\t\\\\\\d\\/\", b='It\\'s ]) \"q\"')]"),
     "|f({\"code\":\"def x():\\n    print('y', \\\"z\\\")\\t\\\\\\\\d/\",\"b\":\"It's ]) "
     "\\\"q\\\"\"})",
     false},
    {LFM2,
     LFM2_("[f(a='\\x41\\u00e9\\U0001F600\\ud83d\\ude00\\101\\0', b='', c='''a\n'b' \\\n''')]"),
     "|f({\"a\":\"A\u00e9\U0001F600\U0001F600A\\u0000\",\"b\":\"\",\"c\":\"a\\n'b' \"})", false},
    {LFM2, LFM2_("\n[ f ( a = 1 ,\n b = \"two\nlines\" ) ]\n"),
     "|f({\"a\":1,\"b\":\"two\\nlines\"})", false},
    {LFM2, LFM2_("[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"), "|f({\"a\":1})", false},
    {LFM2, "<|tool_call_start|>[f(a=1)]", "|f({\"a\":1})", false},
    {LFM2, "See [text](url), [f(a=1)].", "|C:See [text](url), [f(a=1)].", false},
    {LFM2, "<|tool_call_start|>[f(a=1)", "|C:<|tool_call_start|>[f(a=1)", false},
    {LFM2, LFM2_("[f(1)]"), "|C:" LFM2_("[f(1)]"), false},
    {LFM2, LFM2_("[f(a=1, a=2)]"), "|C:" LFM2_("[f(a=1, a=2)]"), false},
    {LFM2, LFM2_("[f(a={1: 2})]"), "|C:" LFM2_("[f(a={1: 2})]"), false},
    {LFM2, LFM2_("[f(a={'b': 1, 'b': 2})]"), "|C:" LFM2_("[f(a={'b': 1, 'b': 2})]"), false},
    {LFM2, LFM2_("[f(a=x)]"), "|C:" LFM2_("[f(a=x)]"), false},
    {LFM2, LFM2_("[f(a='x)]"), "|C:" LFM2_("[f(a='x)]"), false},
    {LFM2, LFM2_("[f(a='\\ud83d')]"), "|C:" LFM2_("[f(a='\\ud83d')]"), false},
    {LFM2, LFM2_("[f(a='\\x4')]"), "|C:" LFM2_("[f(a='\\x4')]"), false},
    {LFM2, LFM2_("[f(a=1) g()]"), "|C:" LFM2_("[f(a=1) g()]"), false},
    {LFM2, LFM2_("[f(a=1)] x"), "|C:" LFM2_("[f(a=1)] x"), false},
    {LFM2, LFM2_("[]"), "|C:" LFM2_("[]"), false},
    {LFM2, LFM2_("[f]"), "|C:" LFM2_("[f]"), false},
    {LFM2, LFM2_("[(a=1)]"), "|C:" LFM2_("[(a=1)]"), false},
    {"<think></think>" LFM2, "<think>a " LFM2_("[f()]") " b</think>" LFM2_("[f()]"),
     "|R:a " LFM2_("[f()]") " b|f({})", false},
    /* Kimi-K3: names and keys are attributes; the last mark belongs to no part. */
    {KIMI_K3,
     K3_("think") "a" K3C_("think") K3_("response") "b" K3C_("response") K3_("tools")
         K3_("call tool=\"get\" index=\"1\"")
             K3_("argument key=\"city\" type=\"string\"") "3" K3C_("argument")
                 K3_("argument key=\"days\" type=\"number\"") "3" K3C_("argument") K3C_("call")
                     K3_("call tool=\"f\" index=\"2\"") K3C_("call") K3C_("tools") K3C_("message"),
     "|R:a|C:b|get({\"city\":\"3\",\"days\":3})|f({})", false},
    {KIMI_K3, K3_("response") "b <|close|> c" K3C_("response") K3C_("message"), "|C:b <|close|> c",
     false},
    {KIMI_K3, "b" K3C_("response") K3C_("message"), "|C:b", false}, /* the prompt has the first */
    {KIMI_K3, K3_("tools") K3_("call index=\"1\"") K3C_("call") K3C_("tools"),
     "|C:" K3_("tools") K3_("call index=\"1\"") K3C_("call") K3C_("tools"), false},
    /* Llama 4: the whole answer, with marks around it or without. */
    {LLAMA4, "{\"name\": \"get\", \"parameters\": {\"city\": \"x\"}}", "|get({\"city\":\"x\"})",
     false},
    {LLAMA4,
     "\n{\"type\": \"function\", \"name\": \"get\", \"parameters\": {}}; {\"name\": \"plan\"}",
     "|get({})|plan({})", false},
    {LLAMA4,
     "<|python_start|><|python_end|>{\"name\": \"get\", \"parameters\": {}}{\"name\": \"plan\"}",
     "|get({})|plan({})", false},
    {LLAMA4, "<|python_start|>Hi<|python_end|>{\"name\": \"get\", \"parameters\": {}}",
     "|C:Hi|get({})", false},
    {LLAMA4, "<|python_start|>{ \"name\": \"get\", \"parameters\": {}}<|python_end|>", "|get({})",
     false},
    {LLAMA4, "<|python_start|>[get(days=1), plan()]<|python_end|>", "|get({\"days\":1})|plan({})",
     false},
    {LLAMA4_LIST, "[get(days=1, deep={'a': [None]}), plan()]\n",
     "|get({\"days\":1,\"deep\":{\"a\":[null]}})|plan({})", false},
    {LLAMA4_LIST, "{\"name\": \"get\", \"parameters\": {}}", "|get({})", false},
    {LLAMA4, "[get(days=1)] and more", "|C:[get(days=1)] and more", false},
    {LLAMA4, "{\"name\": \"get\", \"parameters\": {}} x<|python_end|>",
     "|C:{\"name\": \"get\", \"parameters\": {}} x", false},
    {LLAMA4, "{\"name\": \"get\", \"arguments\": {}}", "|C:{\"name\": \"get\", \"arguments\": {}}",
     false},
    {LLAMA4, "{\"name\": \"Kiel\", \"parameters\": {}}",
     "|C:{\"name\": \"Kiel\", \"parameters\": {}}", false},
    {LLAMA4, "{\"name\": \"get\", \"parameters\": 5}", "|C:{\"name\": \"get\", \"parameters\": 5}",
     false},
    {LLAMA4, "{\"type\": \"a\", \"b\": 1}", "|C:{\"type\": \"a\", \"b\": 1}", false},
    {LLAMA4, "{\"name\": \"Kie", "|C:{\"name\": \"Kie", false},
    {LLAMA4, "[other(days=1)]", "|C:[other(days=1)]", false},
    {LLAMA4, "[get](url) it", "|C:[get](url) it", false},
    {LLAMA4, "{\"answer\": 1}", "|C:{\"answer\": 1}", false},
    {LLAMA4, "{ ", "|C:{ ", false},
    {LLAMA4, "[ge", "|C:[ge", false},
    {LLAMA4, "So: {\"name\": \"get\"}", "|C:So: {\"name\": \"get\"}", false},
    {LLAMA4, "{\"name\": \"get\"}", "|C:{\"name\": \"get\"}", true},
    {LLAMA4, "<|python_start|>1 + 1<|python_end|>", "|C:1 + 1", false},
    /* Without the mark before, and without that after. */
    {QWEN, "Let me see.\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>",
     "|C:Let me see.|f({\"a\":\"b\"})", false},
    {QWEN, "<function=f></function>\n<function=g></function>\nDone.", "|f({})|g({})|C:Done.",
     false},
    {QWEN, "<function=f></function></tool_c", "|f({})|C:</tool_c", false},
    {QWEN, "<function=f></function> \n", "|f({})", false},
    {QWEN, "Write <function=f> \n ", "|C:Write <function=f> \n ", false},
    {QWEN, "a <func \n", "|C:a <func \n", false},
    {QWEN, "<function=f></function>", "|C:<function=f></function>", true},
    {MINIMAX, "<invoke name=\"g\"></invoke>", "|g({})", false},
    {KIMI,
     "Hm<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_call_begin|>g<|tool_call_argument_begin|>{}<|tool_call_end|>",
     "|C:Hm|f({})#functions.f:0|g({})", false},
    {V31, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "|f({})", false},
    /* In thoughts: of thoughts that are never closed it is a call. */
    {THINKS, "<think>\nI look.\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
     "|R:I look.|f({})", false},
    {THINKS, "<think>I look.\n<function=f></function>", "|R:I look.|f({})", false},
    {THINKS, "<think>a <tool_call><function=f></function></tool_call> b</think>c",
     "|R:a <tool_call><function=f></function></tool_call> b|C:c", false},
    {THINKS, "<think>a <tool_call> b", "|R:a <tool_call> b", false},
    {THINKS, "<think>a <tool_call> b</think><tool_call><function=f></function></tool_call>",
     "|R:a <tool_call> b|f({})", false},
    {THINKS, "<think>a<tool_call><function=f></function></tool_call>",
     "|R:a<tool_call><function=f></function></tool_call>", true},
    {JSON,
     "<think>a<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>",
     "|R:a|f({})|g({})", false},
    {JSON, "<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>", "|f({})", false},
    /* What is neither name nor arguments would be lost. */
    {JSON, "<tool_call>{\"name\":\"f\",\"argument\":{\"a\":1}}</tool_call>",
     "|C:<tool_call>{\"name\":\"f\",\"argument\":{\"a\":1}}</tool_call>", false},
    /* MiniMax-M1: a call on each line. */
    {M1,
     "<think>a</think>\n<tool_calls>\n{\"name\": \"get\", \"arguments\": {\"city\": \"</x>}{\"}}\n"
     "{\"name\": \"f\", \"arguments\": {}}\n</tool_calls>",
     "|R:a|get({\"city\":\"</x>}{\"})|f({})", false},
    {M1, "Hi<tool_calls>{\"name\": \"f\"}</tool_calls> b", "|C:Hi|f({})|C:b", false},
    {M1, "<tool_calls>{\"name\": \"f\"}\n{\"name\": \"g\"",
     "|C:<tool_calls>{\"name\": \"f\"}\n{\"name\": \"g\"", false},
    {M1, "<tool_calls>\n</tool_calls>", "|C:<tool_calls>\n</tool_calls>", false},
    {M1, "<tool_calls>{\"name\": \"f\"} x</tool_calls>",
     "|C:<tool_calls>{\"name\": \"f\"} x</tool_calls>", false},
    /* A name or arguments with NUL would be cut. */
    {JSON, "<tool_call>{\"name\":\"f\\u0000g\"}</tool_call>",
     "|C:<tool_call>{\"name\":\"f\\u0000g\"}</tool_call>", false},
    {JSON, "<tool_call>{\"name\":\"f\\u0000\",\"arguments\":\"{}\"}</tool_call>",
     "|C:<tool_call>{\"name\":\"f\\u0000\",\"arguments\":\"{}\"}</tool_call>", false},
    {JSON, "<tool_call>{\"name\":\"f\",\"arguments\":\"{}\\u0000x\"}</tool_call>",
     "|C:<tool_call>{\"name\":\"f\",\"arguments\":\"{}\\u0000x\"}</tool_call>", false},
    {JSON, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\u0000x\"}}</tool_call>",
     "|f({\"a\":\"\\u0000x\"})", false},
    /* A header without its end mark does not take the next message with it. */
    {HARMONY, "<|channel|>analysis|>t<|end|><|start|>assistant<|channel|>final<|message|>x",
     "|C:<|channel|>analysis|>tx", false},
    {HARMONY, "<|channel|>final \u4e00<|message|>x<|end|>",
     "|C:<|channel|>final \u4e00<|message|>x", false},
    {QWEN, "<tool_call><function=f><parameter=a</function>\nb\n</parameter></function></tool_call>",
     "|C:<tool_call><function=f><parameter=a</function>\nb\n</parameter></function></tool_call>",
     false},
    {HARMONY, "to be <|or", "|C:to be <|or", false},
    {HARMONY, "<|channel|>final", "|C:<|channel|>final", false},
    {HARMONY, "<|chan", "|C:<|chan", false},
};

/* Two pieces, cut at every byte; and pieces of one size. */
START_TEST(parts_of_calls)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n = strlen(rows[i].text);
        for (size_t cut = 1; cut <= n + 40; cut++) {
            size_t first = cut <= n ? cut : cut - n, piece = cut <= n ? n : cut - n;
            char *parts = split(rows[i].form, !rows[i].no_tools, rows[i].text, n, first, piece);
            ck_assert_msg(strcmp(parts, rows[i].parts) == 0, "row %zu, pieces of %zu, %zu: '%s'", i,
                          first, piece, parts);
            free(parts);
        }
    }
}
END_TEST

/* A call in a channel, of the maximum length and longer by a byte. */
START_TEST(long_calls)
{
    static const char front[] = "<|channel|>commentary to=functions.f<|message|>{\"a\":\"";
    static const size_t pieces[] = {1, 13, 4096, 1 << 20};
    for (size_t more = 0; more < 2; more++) {
        size_t n = ANSWER_CALL_BYTES_MAX + more;
        char *text = malloc(n + 9);
        memset(text, 'x', n);
        memcpy(text, front, sizeof front - 1);
        memcpy(text + n - 2, "\"}", 2);
        memcpy(text + n, "<|call|>", 9);
        for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
            char *parts = split(HARMONY, true, text, n + 8, pieces[i], pieces[i]);
            ck_assert_msg(strncmp(parts, more ? "|C:<|channel|>" : "|f({\"a\":\"xx", 10) == 0,
                          "%.40s", parts);
            if (more)
                ck_assert_uint_eq(strlen(parts), n + 3);
            free(parts);
        }
        free(text);
    }
}
END_TEST

/* The first row whose sign the template has. */
START_TEST(forms_of_templates)
{
    static const struct {
        const char *text;
        int kind;
        bool channels;
    } cases[] = {{QWEN "</tool_call>", ANSWER_PAIRS, false},
                 {M3, ANSWER_NESTED, false},
                 {"</tool_call>", ANSWER_NAMED, false},
                 {V31, ANSWER_OBJECT, false},
                 {GEMMA, ANSWER_GEMMA, false},
                 {MIMO QWEN "</tool_call>", ANSWER_PAIRS, false},
                 {COHERE "</tool_call>", ANSWER_LIST, false},
                 {SMALL, ANSWER_OBJECT, false},
                 {NEMO, ANSWER_LIST, false},
                 {LFM2, ANSWER_PYTHON, false},
                 {LLAMA4, ANSWER_NAMED, false},
                 {LLAMA4_LIST, ANSWER_PYTHON, false},
                 {HARMONY "</think>", ANSWER_NAMED, true},
                 {"{{ x }}", -1, false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct answer_form f = answer_form_of(cases[i].text, strlen(cases[i].text));
        ck_assert_int_eq(f.channels, cases[i].channels);
        ck_assert_int_eq(f.call.open ? (int)f.call.kind : -1, cases[i].kind);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("calls");
    TCase *cases = tcase_create("calls");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, parts_of_calls);
    tcase_add_test(cases, long_calls);
    tcase_add_test(cases, forms_of_templates);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
