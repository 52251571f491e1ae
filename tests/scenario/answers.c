/* SPDX-License-Identifier: Apache-2.0 */
/* Answers whose marks are control tokens, through the gateway, whole and streamed: channels of
 * harmony, calls in the form of Kimi-K2. The models write scripts (scripted.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/scripted.h"

#define CHAT      "/v1/chat/completions"
#define ARGUMENTS "{\"city\":\"Oslo\"}"
#define ASK       "Is it cold? <|tools|><|call|><|end|>"
#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"         \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}}}]"

/* What a client sees of an answer. */
struct seen {
    char reasoning[200], content[400], call[200], finish[16];
    unsigned calls;
};

static void add(char *to, size_t cap, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    CHECK(strlen(to) + strlen(text ? text : "") < cap, "too long: %s", to);
    strcat(to, text ? text : "");
}

/* A message, or a part of one. */
static void take(struct seen *s, const json_t *choice, const char *member)
{
    const json_t *part = json_object_get(choice, member);
    const json_t *calls = json_object_get(part, "tool_calls");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    add(s->reasoning, sizeof s->reasoning, part, "reasoning_content");
    add(s->content, sizeof s->content, part, "content");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        s->calls++;
        snprintf(s->call, sizeof s->call, "%s(%s)", lookup_text(call, "function.name"),
                 lookup_text(call, "function.arguments"));
    }
    if (finish)
        snprintf(s->finish, sizeof s->finish, "%s", finish);
}

static void take_events(struct seen *s, const struct http *h)
{
    for (const char *at = h->body; (at = strstr(at, "data: {")) != NULL;) {
        size_t n = strcspn(at, "\n");
        json_t *event = json_loadb(at + 6, n - 6, JSON_ALLOW_NUL, NULL);
        CHECK(event, "not an event: %.*s", (int)n, at);
        take(s, json_array_get(json_object_get(event, "choices"), 0), "delta");
        json_decref(event);
        at += n;
    }
}

static void ask(unsigned port, const char *more, bool stream, struct seen *s)
{
    struct http h;
    char body[1024];
    snprintf(body, sizeof body, "{%s\"temperature\":0,\"stream\":%s%s%s}",
             strstr(more, "\"messages\"") ? ""
                                          : "\"messages\":[{\"role\":\"user\",\"content\":\"" ASK
                                            "\"}],",
             stream ? "true" : "false", *more ? "," : "", more);
    http_call(&h, port, CHAT, NULL, body, 200);
    *s = (struct seen){.calls = 0};
    if (stream) {
        take_events(s, &h);
    } else {
        json_t *doc = http_json(&h);
        take(s, json_array_get(json_object_get(doc, "choices"), 0), "message");
        json_decref(doc);
    }
    http_close(&h);
}

struct expected {
    const char *more, *reasoning, *content, *call, *finish;
};

static void expect(const struct script *script, const char *name, const struct expected *rows,
                   size_t count)
{
    unsigned port;
    char path[PATH_MAX];
    scripted_model_make(path, name, script);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    for (size_t i = 0; i < 2 * count; i++) {
        const struct expected *want = &rows[i / 2];
        struct seen got;
        ask(port, want->more, i % 2, &got);
        CHECK(strcmp(got.reasoning, want->reasoning) == 0 &&
                  strcmp(got.content, want->content) == 0 && strcmp(got.call, want->call) == 0 &&
                  got.calls == (want->call[0] ? 1 : 0) && strcmp(got.finish, want->finish) == 0,
              "row %zu%s: reasoning '%s', content '%s', %u calls '%s', finish '%s'", i / 2,
              i % 2 ? ", streamed" : "", got.reasoning, got.content, got.calls, got.call,
              got.finish);
    }
    engine_stop(e);
}

/* ---- harmony ---- */

static const struct script_token harmony_tokens[] = {
    {"<|start|>", SCRIPT_CONTROL},
    {"<|channel|>", SCRIPT_CONTROL},
    {"<|message|>", SCRIPT_CONTROL},
    {"<|constrain|>", SCRIPT_CONTROL},
    {"<|end|>", SCRIPT_CONTROL},
    {"<|return|>", SCRIPT_CONTROL},
    {"<|call|>", SCRIPT_CONTROL},
    {"<|tools|>", SCRIPT_CONTROL},
    {"assistant", SCRIPT_USER},
    {"analysis", SCRIPT_TEXT},
    {"final", SCRIPT_TEXT},
    {"The user asks.", SCRIPT_TEXT},
    {"It is.", SCRIPT_TEXT},
    {ARGUMENTS, SCRIPT_TEXT},
    {"json", SCRIPT_USER},
    {"commentary to=functions.weather ", SCRIPT_TEXT},
    {NULL, SCRIPT_TEXT}};

/* After its thoughts it answers, or calls if the prompt has <|tools|>. */
static const struct script_edge harmony_edges[] = {
    {"t", "<|channel|>", SCRIPT_ALWAYS},
    {"assistant", "<|channel|>", SCRIPT_ALWAYS},
    {"<|channel|>", "analysis", SCRIPT_ALWAYS},
    {"analysis", "<|message|>", SCRIPT_ALWAYS},
    {"final", "<|message|>", SCRIPT_ALWAYS},
    {"json", "<|message|>", SCRIPT_ALWAYS},
    {"<|constrain|>", "json", SCRIPT_ALWAYS},
    {"<|message|>", "The user asks.", SCRIPT_ALWAYS},
    {"The user asks.", "<|end|>", SCRIPT_ALWAYS},
    {"<|end|>", "<|start|>", SCRIPT_ALWAYS},
    {"<|start|>", "assistant", SCRIPT_ALWAYS},
    {"It is.", "<|return|>", SCRIPT_ALWAYS},
    {ARGUMENTS, "<|call|>", SCRIPT_ALWAYS},
    {"<|call|>", "It is.", SCRIPT_ALWAYS},
    {"commentary to=functions.weather ", "<|constrain|>", SCRIPT_ALWAYS},
    {"<|channel|>", "final", SCRIPT_FIRST},
    {"<|message|>", "It is.", SCRIPT_FIRST},
    {"<|channel|>", "commentary to=functions.weather ", SCRIPT_BOTH},
    {"<|message|>", ARGUMENTS, SCRIPT_BOTH},
    {NULL, NULL, SCRIPT_ALWAYS}};

#define HARMONY(tools)                                                                             \
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"    \
    "{% if never %}<|channel|>analysis<|message|>{% endif %}" tools "<|start|>assistant"

static const struct script harmony = {.tokens = harmony_tokens,
                                      .edges = harmony_edges,
                                      .first = "The user asks.",
                                      .second = "<|tools|>",
                                      .eos = "<|return|>",
                                      .chat_template =
                                          HARMONY("{% if tools %}<|tools|>{% endif %}")};

/* Thoughts, answers and calls are in their members, a call ends the answer. Control tokens that a
 * user writes are text, so <|tools|> in the question is no tool. Clients without parts get no
 * marks. */
static void channels(void)
{
    static const struct expected rows[] = {
        {"", "The user asks.", "It is.", "", "stop"},
        {"\"tools\":" TOOLS, "The user asks.", "", "weather(" ARGUMENTS ")", "tool_calls"},
        {"\"tools\":" TOOLS ",\"tool_choice\":\"none\"", "The user asks.", "It is.", "", "stop"},
        {"\"reasoning_format\":\"none\"", "", "analysisThe user asks.assistantfinalIt is.", "",
         "stop"},
        {"\"ignore_eos\":true,\"max_tokens\":4", "The user asks.", "", "", "length"},
    };
    expect(&harmony, "harmony.gguf", rows, ARRAY_LEN(rows));
}

/* Stop texts are those of the text without marks: a name of a control token is none, and what is
 * after a stop text is no part of any member. A call that is cut is content, with its marks. */
static void stops_among_marks(void)
{
    static const struct expected rows[] = {
        {"\"stop\":[\"asks\",\"is.\"]", "The user ", "", "", "stop"},
        {"\"stop\":[\"is.\"]", "The user asks.", "It ", "", "stop"},
        {"\"stop\":[\"asks.assistantfinalIt\"]", "The user ", "", "", "stop"},
        {"\"stop\":[\"<|end|>\",\"<|message|>\"]", "The user asks.", "It is.", "", "stop"},
        {"\"stop\":[\"Oslo\"],\"tools\":" TOOLS, "The user asks.",
         "<|start|>assistant<|channel|>commentary to=functions.weather "
         "<|constrain|>json<|message|>{\"city\":\"",
         "", "stop"},
    };
    expect(&harmony, "stops.gguf", rows, ARRAY_LEN(rows));
}

/* The template for tools serves requests with tools: only it writes <|tools|>. */
static void template_for_tools(void)
{
    static const struct expected rows[] = {
        {"", "The user asks.", "It is.", "", "stop"},
        {"\"tools\":" TOOLS, "The user asks.", "", "weather(" ARGUMENTS ")", "tool_calls"},
        {"\"tools\":[]", "The user asks.", "It is.", "", "stop"},
    };
    static const struct script script = {.tokens = harmony_tokens,
                                         .edges = harmony_edges,
                                         .first = "The user asks.",
                                         .second = "<|tools|>",
                                         .eos = "<|return|>",
                                         .chat_template = HARMONY(""),
                                         .tools_template = HARMONY("<|tools|>")};
    expect(&script, "tools.gguf", rows, ARRAY_LEN(rows));
}

/* A template for tools that is none: requests with tools are errors, the same gateway serves
 * others. */
static void rejected_template_for_tools(void)
{
    static const char with_tools[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"" ASK "\"}],\"tools\":" TOOLS "}";
    struct script script = harmony;
    unsigned port;
    char path[PATH_MAX];
    script.tools_template = "{% if %}";
    scripted_model_make(path, "rejected.gguf", &script);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    pid_t gateway = engine_pid(e, "gateway", 0, 0);
    for (int i = 0; i < 4; i++) {
        struct seen got;
        struct http h;
        ask(port, i % 2 ? "\"tools\":" TOOLS ",\"tool_choice\":\"none\"" : "", i / 2, &got);
        CHECK(strcmp(got.content, "It is.") == 0, "content '%s'", got.content);
        http_call(&h, port, CHAT, NULL, with_tools, 400);
        CHECK(strstr(h.body, "the model's chat template for tools: "), "%.300s", h.body);
        http_close(&h);
    }
    CHECK(engine_pid(e, "gateway", 0, 0) == gateway, "the gateway was restarted");
    char *log = engine_log(e), *line = strstr(log, "chat template for tools: ");
    CHECK(line && strstr(line, "conversations with tools are rejected"), "%.500s", log);
    free(log);
    engine_stop(e);
}

/* The headers and thoughts come before the text that a grammar of the command line allows. */
static void grammars_of_clients(void)
{
    static const struct {
        const char *option, *text, *end;
    } grammars[] = {{"--json-schema", "{\"const\": \"x\\ny\"}\n", "\"x\\ny\""},
                    {"--json-schema", "{\"enum\": [\n\"one\"]}", "\"one\""},
                    {"--grammar", "root ::= answer\nanswer ::= \"\\nIt is not.\"", "\nIt is not."}};
    char model[PATH_MAX], path[PATH_MAX], expected[100];
    scripted_model_make(model, "clients.gguf", &harmony);
    for (size_t i = 0; i < 2 * ARRAY_LEN(grammars); i++) {
        const char *option = grammars[i / 2].option;
        struct command c;
        FILE *f = fopen(path_in_dir(path, "grammar"), "w");
        CHECK(f && fputs(grammars[i / 2].text, f) >= 0 && fclose(f) == 0, "cannot write %s", path);
        if (i % 2)
            command_run(&c, "Is it?\n", END_MS,
                        (const char *const[]){"repl", "-q", "-m", model, "--temperature", "0",
                                              option, path, NULL});
        else
            command_run(&c, NULL, END_MS,
                        (const char *const[]){"generate", "-q", "-m", model, "--chat", "-p",
                                              "Is it?", "--temperature", "0", option, path, NULL});
        snprintf(expected, sizeof expected, "analysisThe user asks.assistantfinal%s",
                 grammars[i / 2].end);
        CHECK(c.status == 0 && strstr(c.out, expected), "%s %s: status %d, '%s' '%.300s'",
              i % 2 ? "repl" : "generate", option, c.status, c.out, c.err);
        command_free(&c);
    }
}

/* ---- Kimi-K2 ---- */

static const struct script_token kimi_tokens[] = {{"<|im_assistant|>", SCRIPT_CONTROL},
                                                  {"<|im_end|>", SCRIPT_CONTROL},
                                                  {"[EOS]", SCRIPT_CONTROL},
                                                  {"<think>", SCRIPT_CONTROL},
                                                  {"</think>", SCRIPT_CONTROL},
                                                  {"Hm.", SCRIPT_TEXT},
                                                  {"Let me look.", SCRIPT_TEXT},
                                                  {"<|tool_calls_section_begin|>", SCRIPT_CONTROL},
                                                  {"<|tool_calls_section_end|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_begin|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_argument_begin|>", SCRIPT_CONTROL},
                                                  {"<|tool_call_end|>", SCRIPT_CONTROL},
                                                  {"functions.weather:", SCRIPT_USER},
                                                  {"functions.weather:0", SCRIPT_TEXT},
                                                  {ARGUMENTS, SCRIPT_TEXT},
                                                  {NULL, SCRIPT_TEXT}};
static const struct script_edge kimi_edges[] = {
    {"<|im_assistant|>", "<think>", SCRIPT_ALWAYS},
    {"<think>", "Hm.", SCRIPT_ALWAYS},
    {"Hm.", "</think>", SCRIPT_ALWAYS},
    {"</think>", "Let me look.", SCRIPT_ALWAYS},
    {"Let me look.", "<|tool_calls_section_begin|>", SCRIPT_ALWAYS},
    {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", SCRIPT_ALWAYS},
    {"<|tool_call_begin|>", "functions.weather:0", SCRIPT_ALWAYS},
    {"functions.weather:0", "<|tool_call_argument_begin|>", SCRIPT_ALWAYS},
    {"<|tool_call_argument_begin|>", ARGUMENTS, SCRIPT_ALWAYS},
    {ARGUMENTS, "<|tool_call_end|>", SCRIPT_ALWAYS},
    {"<|tool_call_end|>", "<|tool_calls_section_end|>", SCRIPT_ALWAYS},
    {"<|tool_calls_section_end|>", "<|im_end|>", SCRIPT_ALWAYS},
    {"<|im_end|>", "Hm.", SCRIPT_ALWAYS},
    {NULL, NULL, SCRIPT_ALWAYS}};

/* The end of the turn is not the end of the text, and ends the answer. */
static void calls_in_control_tokens(void)
{
    static const struct expected rows[] = {
        {"\"tools\":" TOOLS, "Hm.", "Let me look.", "weather(" ARGUMENTS ")", "tool_calls"},
        {"", "Hm.", "Let me look.functions.weather:0" ARGUMENTS, "", "stop"},
        {"\"reasoning_format\":\"none\"", "", "Hm.Let me look.functions.weather:0" ARGUMENTS, "",
         "stop"},
        {"\"stop\":[\"functions\"],\"tools\":" TOOLS, "Hm.",
         "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>", "", "stop"},
    };
    static const struct script script = {
        .tokens = kimi_tokens,
        .edges = kimi_edges,
        .eos = "[EOS]",
        .eot = "<|im_end|>",
        .chat_template = "{% if never %}</think><|tool_calls_section_begin|>{% endif %}"
                         "{{ messages[0].content }}<|im_assistant|>"};
    expect(&script, "kimi.gguf", rows, ARRAY_LEN(rows));
}

/* ---- a template that writes the opening mark, and a message that is continued ---- */

static void fronts_and_continuations(void)
{
    static const struct script_token tokens[] = {{"<|im_end|>", SCRIPT_CONTROL},
                                                 {"<think>", SCRIPT_USER},
                                                 {"</think>", SCRIPT_USER},
                                                 {NULL, SCRIPT_TEXT}};
    static const struct script_answer written[] = {
        {"\n", {"Hmm.\n", "</think>", "\n\nFour."}}, {"r", {"-legged."}}, {NULL, {NULL}}};
    static const struct script script = {
        .tokens = tokens,
        .answers = written,
        .eos = "<|im_end|>",
        .chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
                         "{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}"};
    static const struct expected rows[] = {
        {"", "Hmm.", "Four.", "", "stop"},
        {"\"reasoning_format\":\"none\"", "", "<think>\nHmm.\n</think>\n\nFour.", "", "stop"},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"?\"},{\"role\":\"assistant\",\"content\":"
         "\"four\"}]",
         "", "-legged.", "", "stop"},
        {"\"continue_final_message\":false,\"messages\":[{\"role\":\"user\",\"content\":\"?\"},"
         "{\"role\":\"assistant\",\"content\":\"four\"}]",
         "Hmm.", "Four.", "", "stop"},
    };
    expect(&script, "fronts.gguf", rows, ARRAY_LEN(rows));
}

/* ---- tokens that are no whole characters ---- */

/* The tokens of an answer, each as its bytes. */
static void check_bytes(unsigned port, int tokens, const char *const expected[])
{
    struct http h;
    char body[200];
    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}],\"temperature\":0,\"logprobs\":"
             "true,\"max_tokens\":%d}",
             tokens);
    http_call(&h, port, CHAT, NULL, body, 200);
    json_t *doc = http_json(&h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    const json_t *all = json_object_get(json_object_get(choice, "logprobs"), "content");
    CHECK(json_array_size(all) == (size_t)tokens, "%.500s", h.body);
    for (int i = 0; i < tokens; i++) {
        char *bytes =
            json_dumps(json_object_get(json_array_get(all, (size_t)i), "bytes"), JSON_COMPACT);
        CHECK(strcmp(bytes, expected[i]) == 0, "token %d of %d: %s", i, tokens, bytes);
        free(bytes);
    }
    json_decref(doc);
    http_close(&h);
}

/* An answer that ends within a character keeps the bytes of all its tokens. */
static void bytes_of_tokens(void)
{
    static const struct script_token tokens[] = {{"<|im_end|>", SCRIPT_CONTROL},
                                                 {NULL, SCRIPT_TEXT}};
    static const struct script_answer written[] = {{"A", {"Caf\xc3", "\xa9 \xe6", "\x9d\xb1 ok"}},
                                                   {NULL, {NULL}}};
    static const struct script script = {.tokens = tokens,
                                         .answers = written,
                                         .eos = "<|im_end|>",
                                         .chat_template = "{{ messages[0].content }}"};
    static const char *const expected[] = {"[67,97,102,195]", "[169,32,230]",
                                           "[157,177,32,111,107]"};
    unsigned port;
    char path[PATH_MAX];
    scripted_model_make(path, "bytes.gguf", &script);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    check_bytes(port, 3, expected);
    check_bytes(port, 2, expected);
    check_bytes(port, 1, expected);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(channels),
        ROW(stops_among_marks),
        ROW(template_for_tools),
        ROW(rejected_template_for_tools),
        ROW(grammars_of_clients),
        ROW(calls_in_control_tokens),
        ROW(fronts_and_continuations),
        ROW(bytes_of_tokens),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
