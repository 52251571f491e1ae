/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of answers: for each form of calls, the automaton takes the calls that the splitter of
 * answers (lib/model/chat) reads, and no others. */
#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/procs/engine/gateway/api/constraints/call_forms.h"
#include "tests/unit/procs/engine/gateway/api/constraints/wishes.h"

static unsigned read_calls;
static char read_name[20], read_arguments[300];

static void take_piece(void *arg, const struct answer_piece *p)
{
    (void)arg;
    if (p->part != ANSWER_CALL)
        return;
    read_calls++;
    snprintf(read_name, sizeof read_name, "%s", p->name);
    snprintf(read_arguments, sizeof read_arguments, "%s", p->arguments);
}

/* The splitter reads these calls. */
static void check_read(const char *marks, const char *text, unsigned calls)
{
    struct answer_form form = answer_form_of(marks, strlen(marks));
    struct answer a;
    json_t *tools = loaded(TOOLS);
    size_t bytes;
    struct chat_types *types = chat_types_new(tools, &bytes);
    form.types = types;
    read_calls = 0;
    answer_open(&a, &form, false, take_piece, NULL);
    ck_assert(answer_take(&a, text, strlen(text), true) == 0);
    answer_close(&a);
    ck_assert_msg(read_calls == calls && strcmp(read_name, "look") == 0, "%u calls in %s",
                  read_calls, text);
    json_t *arguments = loaded(read_arguments);
    ck_assert_msg(json_is_integer(json_object_get(arguments, "depth")), "%s", read_arguments);
    json_decref(arguments);
    chat_types_free(types);
    json_decref(tools);
}

START_TEST(needed_calls)
{
    struct wish w = {.marks = forms[_i].marks, .tools = TOOLS, .needed = true};
    check(&w, forms[_i].right, 2);
    check(&w, forms[_i].wrong, 0);
    check(&w, "Hello", 0);
    check_read(w.marks, forms[_i].right, 1);
    if (forms[_i].two) {
        check(&w, forms[_i].two, 2);
        check_read(w.marks, forms[_i].two, 2);
        w.one = true;
        check(&w, forms[_i].right, 2);
        check(&w, forms[_i].two, 0);
    }
    w.name = "other";
    check(&w, forms[_i].right, 0);
}
END_TEST

/* Free text, then perhaps calls. */
START_TEST(calls_that_may_be)
{
    struct wish w = {.marks = forms[_i].marks, .tools = TOOLS};
    char text[1000];
    if (strstr(w.marks, "<|header_start|>")) /* see calls_without_marks */
        return;
    bool channels = strstr(w.marks, "<|channel|>") != NULL;
    snprintf(text, sizeof text, "%s%s",
             channels ? "<|channel|>commentary<|message|>Hm <x><|end|><|start|>assistant" : "Hm <t",
             forms[_i].right);
    check(&w, text, 2);
    check(&w, channels ? "<|channel|>final<|message|>Hello <x>" : "Hello <x>", 2);
    snprintf(text, sizeof text, "%s%s", channels ? "" : "Hm", forms[_i].wrong);
    check(&w, text, 0);
}
END_TEST

/* Models whose templates print arguments with str() write Python's names. */
START_TEST(python_names)
{
    struct wish w = {.marks = "<tool_call><function=</tool_call>", .tools = TYPED, .needed = true};
    check(&w, CODER(CODER_PARAMETER("deep", "True") CODER_PARAMETER("none", "None")), 2);
    check(&w, CODER(CODER_PARAMETER("deep", "false") CODER_PARAMETER("none", "7")), 2);
    check(&w, CODER(CODER_PARAMETER("deep", "None")), 0);
    check(&w, CODER(CODER_PARAMETER("none", "True")), 0);
    check(&w, CODER(CODER_PARAMETER("state", "True")), 2);
    check(&w, CODER(CODER_PARAMETER("state", "None")), 0);
    w.tools =
        TOOLS_OF("{\"properties\":{\"a\":{\"type\":\"boolean\",\"enum\":[true]},\"b\":{\"enum\":["
                 "null,1]},\"c\":{\"const\":false}}}");
    check(&w, CODER(CODER_PARAMETER("a", "True") CODER_PARAMETER("b", "None")), 2);
    check(&w, CODER(CODER_PARAMETER("c", "False")), 2);
    check(&w, CODER(CODER_PARAMETER("a", "False")), 0);
    check(&w, CODER(CODER_PARAMETER("b", "True")), 0);
    check(&w, CODER(CODER_PARAMETER("c", "True")), 0);
    w.tools = TYPED;
    w.marks = "<tool_call><arg_key></tool_call>";
    check(&w, GLM(GLM_ARGUMENT("deep", "true")), 2);
    check(&w, GLM(GLM_ARGUMENT("deep", "True")), 0);
    w.marks = GEMMA_MARKS;
    check(&w, GEMMA("deep:true,none:None"), 2);
    check(&w, GEMMA("deep:True"), 0);
}
END_TEST

/* Where no mark stands before a value, a line feed is of the value: "\nb" is not in the enum. */
START_TEST(values_without_a_mark_before_them)
{
    struct wish w = {.marks = "<minimax:tool_call>", .tools = TOOLS, .needed = true};
    check(&w, MINIMAX(MINIMAX_CALL(MINIMAX_PARAMETER("depth", "3") MINIMAX_PARAMETER("mode", "b"))),
          2);
    check(&w,
          MINIMAX(MINIMAX_CALL(MINIMAX_PARAMETER("depth", "3") MINIMAX_PARAMETER("mode", "\nb"))),
          0);
    w.marks = MIMO_MARKS;
    check(&w, CODER(MIMO_PARAMETER("depth", "3") MIMO_PARAMETER("mode", "b")), 2);
    check(&w, CODER(MIMO_PARAMETER("depth", "3") MIMO_PARAMETER("mode", "\nb")), 0);
    w.tools = TYPED;
    check(&w, CODER(MIMO_PARAMETER("deep", "True") MIMO_PARAMETER("none", "None")), 2);
    check(&w, CODER(MIMO_PARAMETER("deep", "\nTrue")), 0);
}
END_TEST

/* A listed argument is not among those of any name, whose values have their schema, too. */
START_TEST(other_arguments)
{
    static const char listed[] =
        TOOLS_OF("{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"}},"
                 "\"additionalProperties\":true}");
    static const char any[] =
        TOOLS_OF("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}");
    struct wish w = {.marks = "<tool_call><function=<parameter=", .tools = listed, .needed = true};
    check(&w, CODER(CODER_PARAMETER("b", "1")), 2);
    check(&w, CODER(CODER_PARAMETER("b", "x")), 0);
    check(&w, CODER(CODER_PARAMETER("other", "x")), 0);
    w.tools = any;
    check(&w, CODER(CODER_PARAMETER("b", "1") CODER_PARAMETER("other", "2")), 2);
    check(&w, CODER(CODER_PARAMETER("b", "x")), 0);
    struct api_request r;
    struct grammar *g = NULL;
    struct error error = {0};
    w.tools = TOOLS_OF("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"array\","
                       "\"uniqueItems\":true}}");
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert(grammar_compile(&r.grammar, NULL, &g, &error) == -1 && api_explain(&r, &error));
    ck_assert_msg(strstr(error.text, "$.additionalProperties"), "%s", error.text);
    api_request_free(&r);
    w.tools = TOOLS_OF("{\"type\":\"object\"}");
    check(&w, CODER(CODER_PARAMETER("b", "x")), 2);
}
END_TEST

/* Gemma 4 writes names without quotes, those of any depth in alphabetical order. */
START_TEST(gemma_names)
{
    static const char sorted[] = TOOLS_OF(
        "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},\"A\":{\"type\":"
        "\"object\",\"properties\":{\"y\":{},\"x\":{\"const\":\"c\"}}},\"m\":{\"type\":"
        "\"string\",\"pattern\":\"^[a<]+$\"}},\"additionalProperties\":true}");
    struct wish w = {.marks = GEMMA_MARKS, .tools = sorted, .needed = true};
    check(&w, GEMMA("A:{x:<|\"|>c<|\"|>,y:[]},b:1,m:<|\"|>aa<|\"|>"), 2);
    check(&w, GEMMA("b:1,A:{}"), 0);
    check(&w, GEMMA("m:<|\"|>a<<|\"|>"), 0);
    check(&w, GEMMA("b:1,other:2"), 0);
    struct api_request r;
    struct grammar *g = NULL;
    struct error error = {0};
    w.tools = TOOLS_OF("{\"properties\":{\"a:b\":{}}}");
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert(grammar_compile(&r.grammar, NULL, &g, &error) == -1);
    ck_assert(api_explain(&r, &error));
    ck_assert_msg(strstr(error.text, "tool 'look': ") && strstr(error.text, "without quotes"), "%s",
                  error.text);
    api_request_free(&r);
}
END_TEST

/* A real model may think and tell the user something more than once before it calls. */
#define TOKEN(name) "\xff" name "\xff"
#define MESSAGE(channel, text)                                                                     \
    TOKEN("<|channel|>")                                                                           \
    channel TOKEN("<|message|>") text TOKEN("<|end|>") TOKEN("<|start|>") "assistant"
#define FINAL(text) TOKEN("<|channel|>") "final" TOKEN("<|message|>") text

START_TEST(messages_before_a_call)
{
    struct wish w = {.marks = "<|channel|>analysis<|message|>", .tools = TOOLS, .needed = true};
    check(&w,
          MESSAGE("analysis", "a") MESSAGE("commentary", "b") MESSAGE("analysis", "c")
              HARMONY_TO("{\"depth\":1}"),
          2);
    check(&w, MESSAGE("analysis", "a") FINAL("x"), 0);
    w = (struct wish){.marks = w.marks, .schema = "{\"type\":\"null\"}"};
    check(&w, MESSAGE("analysis", "a") MESSAGE("analysis", "b") FINAL("null"), 2);
    check(&w, MESSAGE("analysis", "a") FINAL("x"), 0);
    check(&w, MESSAGE("commentary", "a") FINAL("null"), 0);
}
END_TEST

/* Where the prompt does not end before a header, none is forced. */
#define STRICT_TOOL                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"strict\":true,"                     \
    "\"parameters\":{\"type\":\"object\"}}}]"

/* An answer that begins like a call without marks is one where tools are strict; else nothing is
 * enforced. */
START_TEST(calls_without_marks)
{
    struct wish w = {.marks = LLAMA4_MARKS, .tools = TOOLS};
    check(&w, "{\"a\":1}", -1);
    w.tools = STRICT_TOOL;
    check(&w, LLAMA4_CALL("{\"depth\": 3}"), 2);
    check(&w, "{\"a\":1}", 0);
    check(&w, "[a](b)", 0);
    check(&w, "So {\"a\":1}", 2);
    check(&w, "", 2);
    w.schema = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}";
    check(&w, "{\"a\":1}", 2);
    check(&w, LLAMA4_CALL("{\"depth\": 3}"), 2);
    check(&w, "So", 0);
}
END_TEST

/* MiniMax-M3: objects and arrays are tags in tags, each with the schema of its place. */
START_TEST(nested_values)
{
    static const char tools[] = TOOLS_OF(
        "{\"$defs\":{\"d\":{\"type\":\"object\"}},\"properties\":{\"depth\":{\"type\":\"integer\"},"
        "\"o\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"number\"},\"s\":{\"type\":"
        "\"string\"}},\"required\":[\"n\"]},\"l\":{\"type\":\"array\",\"maxItems\":2,\"items\":{"
        "\"type\":\"array\",\"items\":{\"enum\":[1,\"x\"]}}},\"j\":{\"$ref\":\"#/$defs/d\"},"
        "\"e\":{\"type\":\"array\"}}}");
    struct wish w = {.marks = M3_MARKS, .tools = tools, .needed = true};
    check(&w, M3(M3_CALL(M3_TAG("o", M3_TAG("n", "1.5") "\n" M3_TAG("s", "a]<b]]<< [")))), 2);
    check(&w, M3(M3_CALL(M3_TAG("o", "\n" M3_TAG("s", "a")))), 0);
    check(&w, M3(M3_CALL(M3_TAG("o", M3_TAG("n", "x")))), 0);
    check(&w, M3(M3_CALL(M3_TAG("l", M3_TAG("item", M3_TAG("item", "1") M3_TAG("item", "x"))))), 2);
    check(&w, M3(M3_CALL(M3_TAG("l", M3_TAG("item", M3_TAG("item", "2"))))), 0);
    check(&w, M3(M3_CALL(M3_TAG("l", ""))), 2);
    check(&w, M3(M3_CALL(M3_TAG("l", M3_TAG("item", "") M3_TAG("item", "") M3_TAG("item", "")))),
          0);
    check(&w, M3(M3_CALL(M3_TAG("j", "{\"a\":1}") M3_TAG("e", "[1]"))), 2);
    check(&w, M3(M3_CALL("")), 2);
    check(&w, M3(M3_CALL(M3_TAG("o", "a]<]b"))), 0);
    w.needed = false;
    check(&w, "Hm" TOKEN("]<]minimax[>[") TOKEN("<tool_call>") TOKEN("]<]minimax[>[") "<invoke", 1);
    check(&w, "Hm" TOKEN("]<]minimax[>[") "<invoke", 0);
    struct api_request r;
    w.tools = TOOLS_OF("{\"type\":\"object\"}"); /* of any names */
    check(&w, M3(M3_CALL("")), -1);
    w.needed = true;
    ck_assert_ptr_nonnull(strstr(constrain(&w, &r), "list them as properties"));
    w.tools = TOOLS_OF("{\"type\":\"object\",\"properties\":{}}");
    check(&w, M3(M3_CALL("")), 2);
}
END_TEST

START_TEST(an_answer_without_its_beginning)
{
    static const char text[] = " Paris is mild.";
    struct wish w = {.marks = "<|channel|>analysis<|message|>", .tools = TOOLS, .continues = true};
    check(&w, text, -1);
    w.continues = false;
    check(&w, text, 0);
    w.no_prompt = true;
    check(&w, text, -1);
    struct api_request r;
    w.tools = STRICT_TOOL;
    ck_assert_ptr_nonnull(strstr(constrain(&w, &r), "a strict tool: 'add_generation_prompt'"));
    w.no_prompt = false;
    w.continues = true;
    ck_assert_ptr_nonnull(strstr(constrain(&w, &r), "a strict tool: the last message"));
    w = (struct wish){.marks = forms[0].marks, .tools = TOOLS, .continues = true};
    check(&w, text, 2);
    check(&w, forms[0].right, 2);
    check(&w, forms[0].wrong, 0);
}
END_TEST

/* ---- schemas --------------------------------------------------------------------------------- */

#define SCHEMA "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}"

START_TEST(schemas)
{
    struct wish w = {.marks = "", .schema = SCHEMA};
    check(&w, "{\"a\":1}", 2);
    check(&w, "{\"a\":\"1\"}", 0);
    w = (struct wish){.marks = "", .object = true};
    check(&w, "{\"x\":[1]}", 2);
    check(&w, "7", 0);
    w = (struct wish){.marks = ""};
    check(&w, "7", -1);
    w = (struct wish){.marks = "<think></think>", .schema = SCHEMA};
    check(&w, "<think>so {\n</think>\n\n{\"a\":1}", 2);
    check(&w, "{\"a\":1}", 2);
    check(&w, "so {</think>{\"a\":1}", 0);
    w.inside = true;
    check(&w, "so {</think>{\"a\":1}", 2);
    check(&w, "{\"a\":1}", 1);
    w = (struct wish){.marks = "<|channel|>analysis<|message|>", .schema = SCHEMA};
    check(&w,
          "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>"
          "{\"a\":1}",
          2);
    check(&w, "<|channel|>final <|constrain|>json<|message|>{\"a\":1}", 2);
    check(&w, "<|channel|>final<|message|>no", 0);
    w = (struct wish){.marks = COHERE_MARKS, .schema = SCHEMA, .inside = true};
    check(&w, "so<|END_THINKING|><|START_TEXT|>{\"a\":1}<|END_TEXT|>", 2);
    check(&w, "so<|END_THINKING|>{\"a\":1}", 0);
    w.tools = TOOLS;
    check(&w, "so<|END_THINKING|><|START_TEXT|>{\"a\":1}<|END_TEXT|>", 2);
    check(&w, "<|END_THINKING|>" COHERE(COHERE_CALL("0", "{\"depth\": 3}")), 2);
}
END_TEST

/* A mark is its text, or the control token of that name. */
START_TEST(marks_as_tokens)
{
    struct wish w = {.marks = "[/THINK][ARGS]", .tools = TOOLS, .needed = true};
    check(&w, TOKEN("[TOOL_CALLS]") "look" TOKEN("[ARGS]") "{\"depth\":3}", 2);
    check(&w, "x" TOKEN("[TOOL_CALLS]"), 0);
    w.inside = true;
    check(&w, "so" TOKEN("[/THINK]") TOKEN("[TOOL_CALLS]") "look" TOKEN("[ARGS]") "{\"depth\":3}",
          2);
    w = (struct wish){.marks = COHERE_MARKS, .tools = TOOLS, .needed = true, .inside = true};
    check(&w,
          "so" TOKEN("<|END_THINKING|>") TOKEN("<|START_ACTION|>") "[" COHERE_CALL(
              "0", "{\"depth\":3}") "]" TOKEN("<|END_ACTION|>"),
          2);
}
END_TEST

/* Either calls or the schema. */
START_TEST(schemas_and_tools)
{
    struct wish w = {.marks = forms[0].marks, .schema = SCHEMA, .tools = TOOLS};
    check(&w, "{\"a\":1}", 2);
    check(&w, forms[0].right, 2);
    check(&w, forms[0].wrong, 0);
    w.needed = true;
    check(&w, "{\"a\":1}", 0);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

#define TOOL(schema)                                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" schema "}}"
#define PATTERN                                                                                    \
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\",\"pattern\":\"a\"}}}"

START_TEST(impossible)
{
    static const struct {
        struct wish wish;
        const char *why;
    } rows[] = {
        {{.marks = "<tool_call></tool_call>", .needed = true}, "there are no tools"},
        {{.marks = "", .tools = TOOLS, .needed = true}, "cannot be enforced"},
        {{.marks = "", .tools = TOOLS, .object = true}, "tools together with a schema"},
        {{.marks = "<tool_call></tool_call>", .tools = TOOLS, .needed = true, .name = "none"},
         "no function 'none'"},
        {{.marks = "<tool_call><function=", .tools = "[" TOOL(PATTERN) "]", .needed = true},
         "tool 'f', at $.properties.x, pattern"},
        {{.marks = "<|channel|>analysis<|message|>", .schema = SCHEMA, .continues = true},
         "the last message is the assistant's"},
        {{.marks = "<|channel|>analysis<|message|>", .schema = SCHEMA, .no_prompt = true},
         "'add_generation_prompt' is false"},
        {{.marks = "<|channel|>analysis<|message|>",
          .tools = TOOLS,
          .needed = true,
          .no_prompt = true},
         "'add_generation_prompt' is false"},
        {{.marks = "<|channel|>analysis<|message|>",
          .tools = "[{\"type\":\"function\",\"strict\":true,\"name\":\"f\"}]",
          .no_prompt = true},
         "a strict tool: 'add_generation_prompt'"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct api_request r;
        const char *why = constrain(&rows[i].wish, &r);
        ck_assert_msg(strstr(why, rows[i].why), "row %zu: '%s'", i, why);
        api_request_free(&r);
    }
}
END_TEST

/* What the engine says of a line is said of the tool. */
START_TEST(explained)
{
    struct wish w = {.marks = "<tool_call></tool_call>",
                     .tools = "[" TOOL("{}") "," TOOL("{\"properties\":{\"x\":{\"not\":{}}}}") "]",
                     .needed = true};
    struct api_request r;
    struct grammar *g = NULL;
    struct error error = {0};
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert(!r.grammar_optional);
    ck_assert(grammar_compile(&r.grammar, NULL, &g, &error) == -1);
    api_explain(&r, &error);
    ck_assert_msg(strstr(error.text, "tool 'f': JSON Schema, at $.properties.x, not: "), "%s",
                  error.text);
    api_request_free(&r);
    w.marks = "<tool_call><function=</tool_call>"; /* each argument has a rule */
    w.tools = "[" TOOL("{}") "," TOOL("{\"properties\":{\"x\":{\"type\":\"array\",\"items\":{"
                                      "\"not\":{}}}}}") "]";
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert(grammar_compile(&r.grammar, NULL, &g, &error) == -1);
    ck_assert(api_explain(&r, &error));
    ck_assert_msg(strstr(error.text, "tool 'f': JSON Schema, at $.properties.x.items, not: "), "%s",
                  error.text);
    api_request_free(&r);
    w.needed = false;
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert(r.grammar_optional);
    api_request_free(&r);
}
END_TEST

/* Each argument has the definitions of its tool: the text stays bounded. */
START_TEST(too_large)
{
    char *tools;
    size_t bytes;
    FILE *out = open_memstream(&tools, &bytes);
    ck_assert_ptr_nonnull(out);
    fputs("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"$defs\":{\"d\":"
          "{\"type\":\"integer\",\"description\":\"",
          out);
    for (unsigned i = 0; i < 20000; i++)
        fputc('x', out);
    fputs("\"}},\"properties\":{", out);
    for (unsigned i = 0; i < 2000; i++)
        fprintf(out, "%s\"p%u\":{\"$ref\":\"#/$defs/d\"}", i ? "," : "", i);
    fputs("}}}}]", out);
    fclose(out);
    struct wish w = {.marks = "<tool_call><function=", .tools = tools, .needed = true};
    struct api_request r;
    const char *why = constrain(&w, &r);
    ck_assert_msg(strstr(why, "the schemas of the tools take more than"), "%s", why);
    api_request_free(&r);
    free(tools);
}
END_TEST

/* ---- what lines are of ----------------------------------------------------------------------- */

#define ARGUMENTS 500

static size_t heap, allocations, failing; /* of JSON values; failing: this allocation; 0: none */

static void *counted_malloc(size_t bytes)
{
    if (++allocations == failing)
        return NULL;
    void *p = malloc(bytes);
    heap += malloc_usable_size(p);
    return p;
}

static void counted_free(void *p)
{
    heap -= malloc_usable_size(p);
    free(p);
}

/* Two tools, each with so many arguments that have a rule; malloc'ed. */
static char *two_tools(size_t arguments)
{
    char *tools;
    size_t bytes;
    FILE *out = open_memstream(&tools, &bytes);
    for (unsigned tool = 0; tool < 2; tool++) {
        fprintf(out, "%s{\"type\":\"function\",\"function\":{\"name\":\"%u%0*u\",\"parameters\":{",
                tool ? "," : "[", tool, API_TOOL_NAME_BYTES_MAX - 1, 0);
        fputs("\"properties\":{", out);
        for (size_t i = 0; i < arguments; i++)
            fprintf(out, "%s\"p%zu\":{\"type\":\"integer\"}", i ? "," : "", i);
        fputs("}}}}", out);
    }
    fputs("]", out);
    fclose(out);
    return tools;
}

/* The name of a tool is there once, whatever the number of its arguments, and all is counted. */
START_TEST(lines_are_counted)
{
    char *tools = two_tools(ARGUMENTS);
    struct wish w = {.marks = "<tool_call><function=", .tools = tools, .needed = true};
    struct api_request r;
    json_set_alloc_funcs(counted_malloc, counted_free);
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert_uint_eq(json_array_size(r.grammar_lines), 2 + 2 * ARGUMENTS);
    for (size_t i = 2; i < json_array_size(r.grammar_lines); i++) {
        const json_t *of = json_array_get(r.grammar_lines, i);
        ck_assert_ptr_eq(json_array_get(of, 0),
                         json_array_get(r.grammar_lines, (i - 2) / ARGUMENTS));
    }
    size_t bytes = api_lines_bytes(&r), all = heap;
    json_decref(r.grammar_lines);
    r.grammar_lines = NULL;
    ck_assert_msg(all - heap <= bytes && bytes < 2 * (all - heap), "%zu bytes, %zu counted",
                  all - heap, bytes);
    api_request_free(&r);
    free(tools);
}
END_TEST

/* Without memory there is an error: lines are not of other tools. */
START_TEST(lines_without_memory)
{
    char *tools = two_tools(3);
    struct wish w = {.marks = "<tool_call><function=", .tools = tools, .needed = true};
    struct api_request r;
    size_t errors = 0, all;
    json_set_alloc_funcs(counted_malloc, counted_free);
    json_decref(loaded(tools));
    size_t before = allocations; /* of the tools themselves */
    allocations = 0;
    ck_assert_str_eq(constrain(&w, &r), "");
    all = allocations;
    api_request_free(&r);
    for (size_t k = before + 1; k <= all; k++) {
        allocations = 0;
        failing = k;
        bool failed = *constrain(&w, &r) != 0;
        failing = 0;
        errors += failed;
        ck_assert_msg(failed || json_array_size(r.grammar_lines) == 2 + 2 * 3, "allocation %zu", k);
        api_request_free(&r);
    }
    ck_assert_uint_gt(errors, 8);
    free(tools);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("constrain");
    tcase_add_loop_test(cases, needed_calls, 0, (int)ARRAY_LEN(forms));
    tcase_add_loop_test(cases, calls_that_may_be, 0, (int)ARRAY_LEN(forms));
    tcase_add_test(cases, schemas);
    tcase_add_test(cases, marks_as_tokens);
    tcase_add_test(cases, schemas_and_tools);
    tcase_add_test(cases, impossible);
    tcase_add_test(cases, explained);
    tcase_add_test(cases, python_names);
    tcase_add_test(cases, values_without_a_mark_before_them);
    tcase_add_test(cases, other_arguments);
    tcase_add_test(cases, gemma_names);
    tcase_add_test(cases, messages_before_a_call);
    tcase_add_test(cases, calls_without_marks);
    tcase_add_test(cases, nested_values);
    tcase_add_test(cases, an_answer_without_its_beginning);
    tcase_add_test(cases, too_large);
    tcase_add_test(cases, lines_are_counted);
    tcase_add_test(cases, lines_without_memory);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
