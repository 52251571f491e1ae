/* SPDX-License-Identifier: Apache-2.0 */
/* All clients return the same text: generate, repl in a pipe and on a terminal, requests to the
 * gateway with and without streaming, curl, and OpenAI's Python package. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/fixtures.h"

#define TOKENS      48
#define TOKENS_TEXT "48"
#define CHATML                                                                                     \
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "                   \
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"

/* Greedy, and sampled. */
static const struct sampling_way ways[] = {{"0", "3"}, {"0.9", "3"}};

static void expect(const struct command *c, int status, const char *client_name)
{
    CHECK(c->status == status, "%s: status %d instead of %d: %.300s", client_name, c->status,
          status, c->err);
}

/* The output must be the text and one newline. */
static void same_line(const struct command *c, const char *text, const char *client_name)
{
    size_t n = strlen(text);
    expect(c, 0, client_name);
    CHECK(c->out_bytes == n + 1 && memcmp(c->out, text, n) == 0 && c->out[n] == '\n',
          "%s: the text differs: %.200s", client_name, c->out);
}

/* ---- the clients ---- */

/* engine: "-m", a file, or "--name", a name. */
static void generate(struct command *c, const char *const engine[2], const struct sampling_way *way,
                     const char *output)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){"generate", engine[0], engine[1], "-p", test_prompt(0), "-n",
                                      TOKENS_TEXT, "--temp", way->temperature, "--seed", way->seed,
                                      "--ignore-eos", "--output", output, "-q", NULL});
    expect(c, 0, "generate");
}

static void through_repl_in_a_pipe(const struct engine *e, const struct sampling_way *way,
                                   const char *text)
{
    struct command c;
    char input[512];
    snprintf(input, sizeof input, "/set ignore_eos on\n%s\n", test_prompt(0));
    command_run(&c, input, END_MS,
                (const char *const[]){"repl", "--name", e->run, "--temp", way->temperature,
                                      "--seed", way->seed, "-n", TOKENS_TEXT, "-q", NULL});
    same_line(&c, text, "repl in a pipe");
    command_free(&c);
}

/* The terminal turns \n into \r\n. The response follows the escape code that ends paste mode. */
static void through_repl_on_a_terminal(const struct engine *e, const struct sampling_way *way,
                                       const char *text)
{
    char *shown = malloc(2 * strlen(text) + 64), *to = shown;
    CHECK(shown, "no memory");
    to += sprintf(to, "%s\r\n\033[?2004l", test_prompt(0));
    for (const char *at = text; *at; at++) {
        if (*at == '\n')
            *to++ = '\r';
        *to++ = *at;
    }
    strcpy(to, "\r\n[" TOKENS_TEXT " tokens at");
    setenv("XDG_STATE_HOME", test_dir(), 1);
    setenv("NO_COLOR", "1", 1);
    /* --raw: the bytes of the text, without the breaks between words. */
    struct terminal *t =
        terminal_open(24, 80, -1,
                      (const char *const[]){"repl", "--name", e->run, "--temp", way->temperature,
                                            "--seed", way->seed, "-n", TOKENS_TEXT, "--raw", NULL});
    terminal_wait(t, ">>> ", END_MS);
    terminal_type(t, "/set ignore_eos on\r");
    terminal_wait(t, ">>> ", END_MS);
    terminal_type(t, test_prompt(0));
    terminal_type(t, "\r");
    terminal_wait(t, shown, END_MS);
    terminal_wait(t, ">>> ", END_MS);
    terminal_type(t, "/bye\r");
    CHECK(terminal_end(t, END_MS) == 0, "repl on a terminal: the exit status is not 0");
    free(shown);
}

static json_t *prompt_of_all(void)
{
    return json_pack("{s:s}", "prompt", test_prompt(0));
}

static void through_http(unsigned port, const struct sampling_way *way, const char *text)
{
    for (int stream = 0; stream < 2; stream++) {
        char *got = sampled_text(port, "/v1/completions", way, TOKENS, prompt_of_all(), stream);
        CHECK(strcmp(got, text) == 0, "/v1/completions, streamed %d: the text differs: %.200s",
              stream, got);
        free(got);
    }
}

static void through_curl(unsigned port, const struct sampling_way *way, const char *text)
{
    char url[80];
    struct command c;
    snprintf(url, sizeof url, "http://127.0.0.1:%u/v1/completions", port);
    for (int stream = 0; stream < 2; stream++) {
        char *body = sampled_body(way, TOKENS, prompt_of_all(), stream);
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"/usr/bin/env", "curl", "-sSN", "--noproxy", "*", "-d",
                                          body, url, NULL});
        expect(&c, 0, "curl");
        struct http reply = {.fd = -1, .body = c.out};
        char *got = reply_text(&reply, stream);
        CHECK(strcmp(got, text) == 0, "curl, streamed %d: the text differs: %.200s", stream, got);
        free(got);
        command_free(&c);
        free(body);
    }
}

/* ---- completions ---- */

/* The text of generate with a private engine; the caller frees. */
static char *text_of_generate(const struct sampling_way *way)
{
    struct command c;
    generate(&c, (const char *const[]){"-m", test_model()}, way, "json");
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(lookup_u64(doc, "tokens") == TOKENS, "not JSON, or not all tokens: %.200s", c.out);
    char *text = strdup(lookup_text(doc, "text"));
    json_decref(doc);
    command_free(&c);
    return text;
}

static void every_client(void)
{
    unsigned port;
    struct command c;
    char *text[ARRAY_LEN(ways)];
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        text[i] = text_of_generate(&ways[i]);
        generate(&c, (const char *const[]){"-m", test_model()}, &ways[i], "text");
        same_line(&c, text[i], "generate, an engine of its own");
        command_free(&c);
        generate(&c, (const char *const[]){"--name", e->run}, &ways[i], "text");
        same_line(&c, text[i], "generate, a running engine");
        command_free(&c);
        through_repl_in_a_pipe(e, &ways[i], text[i]);
        through_repl_on_a_terminal(e, &ways[i], text[i]);
        through_http(port, &ways[i], text[i]);
    }
    CHECK(strcmp(text[0], text[1]) != 0, "the sampled text equals the greedy one");
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        free(text[i]);
    engine_stop(e);
}

static void needs(const char *const argv[], const char *why)
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    int status = c.status;
    command_free(&c);
    if (status != 0)
        test_skip("%s", why);
}

static void curl_is_a_client(void)
{
    unsigned port;
    needs((const char *const[]){"/usr/bin/env", "curl", "--version", NULL},
          "curl is not installed");
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        char *text = text_of_generate(&ways[i]);
        through_curl(port, &ways[i], text);
        free(text);
    }
    engine_stop(e);
}

/* ---- a conversation ---- */

#define FIRST  "Who was it that came to the house?"
#define SECOND "And what did she say to him?"

/* The same two turns over HTTP, whole and streamed; the second request has the first response. */
static void two_turns(unsigned port, const struct sampling_way *way, bool stream,
                      char *responses[2])
{
    static const char path[] = "/v1/chat/completions";
    responses[0] = sampled_text(
        port, path, way, TOKENS,
        json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", FIRST), stream);
    responses[1] =
        sampled_text(port, path, way, TOKENS,
                     json_pack("{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]}", "messages", "role",
                               "user", "content", FIRST, "role", "assistant", "content",
                               responses[0], "role", "user", "content", SECOND),
                     stream);
}

static void every_client_of_a_conversation(void)
{
    unsigned port;
    struct command c;
    char path[PATH_MAX], both[8192], *whole[2], *streamed[2];
    chat_model_make(path, "chatml.gguf", CHATML);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        two_turns(port, &ways[i], false, whole);
        two_turns(port, &ways[i], true, streamed);
        for (int turn = 0; turn < 2; turn++)
            CHECK(strcmp(whole[turn], streamed[turn]) == 0,
                  "turn %d, streamed: the text differs: %s", turn, streamed[turn]);
        /* The prompt was ChatML, not plain text. */
        char *form = sampled_text(port, "/v1/completions", &ways[i], TOKENS,
                                  json_pack("{s:s}", "prompt",
                                            "<|im_start|>user\n" FIRST
                                            "<|im_end|>\n<|im_start|>assistant\n"),
                                  false);
        CHECK(strcmp(form, whole[0]) == 0, "the prompt is not in ChatML: %s", whole[0]);
        free(form);
        command_run(&c, "/set ignore_eos on\n" FIRST "\n" SECOND "\n", END_MS,
                    (const char *const[]){"repl", "--name", e->run, "--temp", ways[i].temperature,
                                          "--seed", ways[i].seed, "-n", TOKENS_TEXT, "-q", NULL});
        snprintf(both, sizeof both, "%s\n%s", whole[0], whole[1]);
        same_line(&c, both, "repl");
        command_free(&c);
        for (int turn = 0; turn < 2; turn++) {
            free(whole[turn]);
            free(streamed[turn]);
        }
    }
    engine_stop(e);
}

/* generate --chat says what the gateway says to the same messages. */
static void generate_is_a_chat(void)
{
    unsigned port;
    struct command c;
    char path[PATH_MAX];
    chat_model_make(path, "chatml.gguf", CHATML);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    for (int system = 0; system < 2; system++) {
        json_t *messages = json_pack("[{s:s, s:s}]", "role", "system", "content", "You are brief.");
        if (!system)
            json_array_clear(messages);
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", FIRST));
        char *text = sampled_text(port, "/v1/chat/completions", &ways[0], TOKENS,
                                  json_pack("{s:o}", "messages", messages), false);
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"generate", "--name", e->run, "-p", FIRST, "-n",
                                          TOKENS_TEXT, "--temp", ways[0].temperature, "--seed",
                                          ways[0].seed, "--ignore-eos", "-q",
                                          system ? "--system=You are brief." : "--chat", NULL});
        same_line(&c, text, "generate --chat");
        command_free(&c);
        free(text);
    }
    engine_stop(e);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "--chat", "--ids", "1,2", NULL});
    CHECK(c.status == 2 && strstr(c.err, "--chat takes a message as text"), "%.300s", c.err);
    command_free(&c);
}

/* ---- control tokens ---- */

#define CONTROL    "<|endoftext|>" /* the control token of the demo model */
#define AS_TEXT    5               /* tokens that it has at least as text */
#define ONE_TOKEN  "\"max_tokens\":1"
#define MESSAGE(t) "{\"messages\":[{\"role\":\"user\",\"content\":\"" t "\"}]," ONE_TOKEN "}"
#define PROMPT(t)  "{\"prompt\":\"" t "\"," ONE_TOKEN "}"
#define SPECIAL(t) "{\"prompt\":\"" t "\",\"special\":true," ONE_TOKEN "}"

static uint64_t tokens_of(unsigned port, const char *path, const char *body)
{
    struct http h;
    http_call(&h, port, path, NULL, body, 200);
    json_t *doc = http_json(&h);
    uint64_t tokens = lookup_u64(doc, "usage.prompt_tokens");
    json_decref(doc);
    http_close(&h);
    return tokens;
}

static uint64_t tokens_in_repl(const struct engine *e, const char *input)
{
    struct command c;
    command_run(&c, input, END_MS,
                (const char *const[]){"repl", "--name", e->run, "-n", "1", NULL});
    const char *rates = strstr(c.err, "prompt of ");
    CHECK(c.status == 0 && rates, "status %d: %s", c.status, c.err);
    uint64_t tokens = strtoull(rates + strlen("prompt of "), NULL, 10);
    command_free(&c);
    return tokens;
}

static uint64_t tokens_in_generate(const struct engine *e, const char *option)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "--name", e->run, "-n", "1", "--output=json",
                                      "-p", "a" CONTROL, option, NULL});
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(c.status == 0 && doc, "status %d: %s", c.status, c.err);
    uint64_t tokens = lookup_u64(doc, "prompt_tokens");
    json_decref(doc);
    command_free(&c);
    return tokens;
}

/* Messages are text, whatever they contain. A prompt has control tokens only on request. */
static void control_tokens_of_users(void)
{
    unsigned port;
    char path[PATH_MAX];
    chat_model_make(path, "chatml.gguf", CHATML);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    uint64_t message = tokens_of(port, "/v1/chat/completions", MESSAGE("a"));
    uint64_t prompt = tokens_of(port, "/v1/completions", PROMPT("a"));
    CHECK(tokens_of(port, "/v1/chat/completions", MESSAGE("a" CONTROL)) >= message + AS_TEXT,
          "a message forged a control token");
    CHECK(tokens_in_repl(e, "a\n") == message, "repl renders another prompt");
    CHECK(tokens_in_repl(e, "a" CONTROL "\n") >= message + AS_TEXT,
          "a line of repl forged a control token");
    CHECK(tokens_of(port, "/v1/completions", PROMPT("a" CONTROL)) >= prompt + AS_TEXT,
          "a prompt has a control token that was not requested");
    CHECK(tokens_of(port, "/v1/completions", SPECIAL("a" CONTROL)) == prompt + 1,
          "a prompt lacks the control token");
    CHECK(tokens_in_generate(e, "-q") >= prompt + AS_TEXT, "generate parses control tokens");
    CHECK(tokens_in_generate(e, "--special") == prompt + 1, "generate --special does not");
    CHECK(tokens_in_repl(e, "/set chat off\n/set special on\na" CONTROL "\n") == prompt + 1,
          "repl parses no control tokens");
    engine_stop(e);
}

/* ---- OpenAI's package ---- */

static void openai_package(void)
{
    unsigned port;
    char url[64];
    struct command c;
    needs((const char *const[]){"/usr/bin/env", "python3", "-c", "import openai", NULL},
          "no python3 with the package openai (not in Debian)");
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    char *text = text_of_generate(&ways[0]);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/v1", port);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/usr/bin/env", "python3", "-B",
                                      SLUICE_SOURCE_DIR "/tests/scenario/openai_client.py", url,
                                      test_prompt(0), TOKENS_TEXT, text, NULL});
    CHECK(c.status == 0, "status %d: %s", c.status,
          c.err_bytes > 500 ? c.err + c.err_bytes - 500 : c.err);
    test_note("openai: %.*s", (int)strcspn(c.out, "\n"), c.out);
    command_free(&c);
    free(text);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(every_client),       ROW(curl_is_a_client),        ROW(every_client_of_a_conversation),
        ROW(generate_is_a_chat), ROW(control_tokens_of_users), ROW(openai_package),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
