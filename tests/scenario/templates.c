/* SPDX-License-Identifier: Apache-2.0 */
/* The model's own chat template in the gateway and in repl: it is executed, within limits and a
 * reservation; the answer is split into its parts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/fixtures.h"

#define TOKENS      48
#define TOKENS_TEXT "48"
#define FIRST       "Who was it that came to the house?"
#define SECOND      "And what did she say to him?"

static const struct sampling_way greedy = {"0", "3"};

/* ---- a template as a program ---- */

/* Of no family. `mode` is a variable of the client. */
#define TALE                                                                                       \
    "{% for m in messages %}"                                                                      \
    "{% if m.role == 'tool' %}{{ raise_exception('This tale has no tools') }}{% endif %}"          \
    "{{ loop.index }}. {{ m.role | title }} wrote: {{ m.content | trim }}\n"                       \
    "{% endfor %}"                                                                                 \
    "{% if mode == 'endless' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}" \
    "{% endfor %}{% endif %}"                                                                      \
    "{% if mode == 'slow' %}{% set s = 'x' * 1000 * 1000 %}{% for a in range(99999) %}"            \
    "{% if 'y' in s %}{% endif %}{% endfor %}{% endif %}"                                          \
    "{% if mode == 'large' %}{% set s = 'x' * 1000 * 1000 * 9 %}{{ s + 'y' }}{% endif %}"          \
    "{% if mode == 'deep' %}{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}{% endif %}"            \
    "{% if add_generation_prompt %}{{ messages | length + 1 }}. Assistant wrote:{% endif %}"
#define ONE_TURN(role, mode)                                                                       \
    "{\"messages\":[{\"role\":\"" role "\",\"content\":\" " FIRST                                  \
    " \"}],\"chat_template_kwargs\":{\"mode\":\"" mode "\"},\"max_tokens\":4}"

static void rejected(unsigned port, const char *body, const char *reason)
{
    struct http h;
    http_call(&h, port, "/v1/chat/completions", NULL, body, 400);
    json_t *doc = http_json(&h);
    CHECK(strstr(lookup_text(doc, "error.message"), reason), "not '%s': %.300s", reason, h.body);
    CHECK(strcmp(lookup_text(doc, "error.param"), "messages") == 0, "%.300s", h.body);
    json_decref(doc);
    http_close(&h);
}

/* A chat is the completion of what the model's own template writes; what a template rejects, or
 * never ends, is an error of that request, and the same gateway serves the next one. */
static void a_template_is_executed(void)
{
    unsigned port;
    char path[PATH_MAX];
    chat_model_make(path, "tale.gguf", TALE);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    pid_t gateway = engine_pid(e, "gateway", 0, 0);
    char *form = sampled_text(
        port, "/v1/completions", &greedy, TOKENS,
        json_pack("{s:s}", "prompt", "1. User wrote: " FIRST "\n2. Assistant wrote:"), false);
    static const struct {
        const char *body, *reason;
    } bad[] = {{ONE_TURN("tool", "calm"), "This tale has no tools"},
               {ONE_TURN("user", "endless"), "too many steps"},
               {ONE_TURN("user", "large"), "needs too much memory"},
               {ONE_TURN("user", "slow"), "too many steps"},
               {ONE_TURN("user", "deep"), "nested too deeply"}};
    for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
        char *chat = sampled_text(
            port, "/v1/chat/completions", &greedy, TOKENS,
            json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", " " FIRST " "),
            false);
        CHECK(strcmp(chat, form) == 0, "the prompt is not the template's: %s", chat);
        free(chat);
        if (i < ARRAY_LEN(bad))
            rejected(port, bad[i].body, bad[i].reason);
    }
    CHECK(engine_pid(e, "gateway", 0, 0) == gateway, "the gateway was restarted");
    free(form);
    engine_stop(e);
}

#define DOTTED "{% for m in messages %}{% for c in m.content %}.{{ c }}{% endfor %}{% endfor %}"

/* A message of so many letters, each of which the template writes a point before. */
static void ask_dotted(unsigned port, const char *path, int letters, int status, const char *text)
{
    static char content[40000], body[41000];
    struct http h;
    memset(content, 'x', (size_t)letters);
    content[letters] = 0;
    snprintf(body, sizeof body,
             "{\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", content);
    http_call(&h, port, path, NULL, body, status);
    CHECK(strstr(h.body, text), "not '%s': %.300s", text, h.body);
    http_close(&h);
}

/* Calls carry as many pieces of the template as the gateway takes, within the memory of both
 * processes; more are an error that says what makes them. */
static void pieces_of_a_template(void)
{
    unsigned port;
    char path[PATH_MAX];
    chat_model_make(path, "dotted.gguf", DOTTED);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    pid_t gateway = engine_pid(e, "gateway", 0, 0), compute = engine_pid(e, "compute", 0, 0);
    for (int i = 0; i < 2; i++) {
        ask_dotted(port, "/v1/messages/count_tokens", 32768, 200, "\"input_tokens\":");
        ask_dotted(port, "/v1/chat/completions", 32768, 400, "context_length_exceeded");
        ask_dotted(port, "/v1/chat/completions", 32769, 400, "send fewer tools");
    }
    CHECK(engine_pid(e, "gateway", 0, 0) == gateway && engine_pid(e, "compute", 0, 0) == compute,
          "a process was restarted");
    engine_stop(e);
}

static uint64_t minimum_with(const char *model, const char *option)
{
    unsigned port;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"-m", model, "--http=0", option, NULL});
    json_t *doc = engine_control(e, "stats", NULL);
    uint64_t bytes = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    engine_stop(e);
    return bytes;
}

/* A rendering's memory is in the ledger from the start, if the model has a template. What is none
 * is reported, once. */
static void a_template_is_reserved(void)
{
    char path[PATH_MAX];
    chat_model_make(path, "reserved.gguf", TALE);
    uint64_t longest = minimum_with(path, NULL), shorter = minimum_with(path, "--http-prompt=1KiB");
    CHECK(longest >= shorter + 13 * MIB, "the minimum is %" PRIu64 ", with short prompts %" PRIu64,
          longest, shorter);
    CHECK(minimum_with(test_model(), NULL) + 13 * MIB <= longest, "a model without a template");
    chat_model_make(path, "odd.gguf", "<|im_start|>\xff<|im_end|>");
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    char *log = engine_log(e), *line = strstr(log, "tokenizer.chat_template is not UTF-8");
    CHECK(line && strstr(line, "'chatml'"), "the template is not reported: %.500s", log);
    CHECK(!strstr(line + 1, "tokenizer.chat_template"), "the template is reported twice");
    free(log);
    engine_stop(e);
}

#define SYSTEM "You write short stories."
#define STORY                                                                                      \
    "{% for m in messages %}{{ loop.index }}. {{ m.role | title }} wrote: {{ m.content }}\n"       \
    "{% endfor %}{% if enable_thinking is defined %}{{ 'Deeply' if enable_thinking else "          \
    "'Briefly' }}, {% endif %}{{ messages | length + 1 }}. Assistant wrote:"

/* The first two turns of repl, saved and loaded after the first; the caller frees. */
static char *story_of_repl(const struct engine *e, bool kept)
{
    struct command c;
    char path[PATH_MAX], *input;
    snprintf(path, sizeof path, "%s/story.%d.json", test_dir(), kept);
    CHECK(asprintf(&input,
                   "/set ignore_eos on\n" FIRST "\n/save %s\n/clear\n/set system\n"
                   "/set thinking auto\n/load %s\n" SECOND "\n",
                   path, path) > 0,
          "out of memory");
    command_run(&c, input, END_MS,
                (const char *const[]){"repl", "--name", e->run, "--temp", "0", "-n", TOKENS_TEXT,
                                      "--system", SYSTEM, "--thinking=off", NULL});
    const char *first = strstr(c.err, " kept)"),
               *second = first ? strstr(first + 1, " kept)") : NULL;
    CHECK(c.status == 0 && second, "status %d: %s", c.status, c.err);
    CHECK((strncmp(second - 2, "(0", 2) != 0) == kept, "not what is kept: %s", c.err);
    char *text = strdup(c.out);
    command_free(&c);
    free(input);
    return text;
}

static char *turn_of_story(unsigned port, json_t *messages)
{
    return sampled_text(port, "/v1/chat/completions", &greedy, TOKENS,
                        json_pack("{s:O, s:{s:b}}", "messages", messages, "chat_template_kwargs",
                                  "enable_thinking", 0),
                        false);
}

/* repl renders the conversation as the gateway does: through the template of the file, with a
 * system message and variables. The text is the same with the kept rows of the turn before and
 * without. */
static void repl_executes_the_template(void)
{
    unsigned port;
    char path[PATH_MAX], expected[8192];
    chat_model_make(path, "story.gguf", STORY);
    for (int kept = 0; kept < 2; kept++) {
        struct engine *e =
            gateway_start(&port, (const char *const[]){"-m", path, "--http=0",
                                                       kept ? NULL : "--keep-kv=0", NULL});
        json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "system", "content",
                                     SYSTEM, "role", "user", "content", FIRST);
        char *got = story_of_repl(e, kept), *first = turn_of_story(port, messages);
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "assistant", "content", first));
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", SECOND));
        char *second = turn_of_story(port, messages);
        snprintf(expected, sizeof expected, "%s\n1 turn saved\n1 turn loaded\n%s\n", first, second);
        CHECK(strcmp(got, expected) == 0, "repl: '%s', not '%s'", got, expected);
        json_decref(messages);
        free(got);
        free(first);
        free(second);
        engine_stop(e);
    }
}

/* ---- answers in parts ---- */

#define REASONED                                                                                   \
    "{% if never %}</think>{% endif %}{{ messages[0].content }}{{ tools | length }}<think>"

/* A prompt that ends with the opening mark of reasoning: the answer is reasoning until its end, and
 * content with that mark if the client wants it whole. Tools reach the template. */
static void answers_in_parts(void)
{
    static const char path[] = "/v1/chat/completions";
    unsigned port;
    char model[PATH_MAX], body[512];
    chat_model_make(model, "thought.gguf", REASONED);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", model, "--http=0", NULL});
    char *text[3]; /* reasoning, content, the completion of the prompt */
    for (int whole = 0; whole < 2; whole++) {
        struct http h;
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"" FIRST
                 "\"}],\"temperature\":0,\"max_tokens\":16,\"ignore_eos\":true,"
                 "\"tools\":[{\"type\":\"function\"}],\"reasoning_format\":\"%s\"}",
                 whole ? "none" : "auto");
        http_call(&h, port, path, NULL, body, 200);
        json_t *doc = http_json(&h);
        const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
        text[whole] =
            strdup(lookup_text(choice, whole ? "message.content" : "message.reasoning_content"));
        CHECK(whole || strcmp(lookup_text(choice, "message.content"), "") == 0, "%.300s", h.body);
        json_decref(doc);
        http_close(&h);
    }
    text[2] = sampled_text(port, "/v1/completions", &greedy, TOKENS,
                           json_pack("{s:s}", "prompt", FIRST "1<think>"), false);
    CHECK(strncmp(text[1], "<think>", 7) == 0, "no mark before '%s'", text[1]);
    const char *whole = text[1] + 7, *reasoning = whole + strspn(whole, " \n\t");
    size_t n = strlen(text[0]);
    CHECK(n > 10 && strncmp(reasoning, text[0], n) == 0 &&
              strspn(reasoning + n, " \n\t") == strlen(reasoning + n),
          "reasoning '%s', whole '%s'", text[0], whole);
    CHECK(strncmp(text[2], whole, strlen(whole)) == 0, "'%s', not '%s'", whole, text[2]);
    for (int i = 0; i < 3; i++)
        free(text[i]);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(a_template_is_executed),     ROW(pieces_of_a_template), ROW(a_template_is_reserved),
        ROW(repl_executes_the_template), ROW(answers_in_parts),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
