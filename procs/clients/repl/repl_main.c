/* SPDX-License-Identifier: Apache-2.0 */
/* sluice repl: a conversation with a running or a private engine.
 *
 * Reads lines with libedit from a terminal, plain lines from a pipe. The conversation is rendered
 * through the model's chat template at every turn; without a chat template the
 * model continues the conversation as one text. The conversation may fill the engine's context;
 * then the oldest turns are left out.
 * Responses go to stdout, everything else to stderr. Ctrl-C ends the response, Ctrl-D the session.
 *
 * Maps no segment. When this process exits, its sequence is cancelled for lack of polling and its
 * private engine exits.
 *
 * Trust: replies are checked by the stubs in ipc/, saved conversations by conversation_load. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/terminal/terminal.h"
#include "lib/text/printable.h"
#include "procs/clients/common/options.h"
#include "procs/clients/repl/input.h"
#include "procs/clients/repl/repl.h"

/* Reports a failed line and records it for the exit status. */
static void failed(struct repl *r, const struct error *error)
{
    fflush(stdout);
    fprintf(stderr, "%s\n", error->text);
    if (r->failure.code == ERR_NONE)
        r->failure = *error;
}

/* A line on a terminal that is a command of other programs without the slash. """exit""" is a
 * prompt. */
static const char *bare_command(const struct repl *r, const char *text)
{
    static const char *const words[][2] = {
        {"exit", "/bye"}, {"quit", "/bye"}, {"bye", "/bye"}, {"help", "/help"}, {"?", "/help"}};
    for (size_t i = 0; r->tty && i < ARRAY_LEN(words); i++)
        if (strcasecmp(text, words[i][0]) == 0)
            return words[i][1];
    return text;
}

/* Runs one line. -1: the engine has exited. */
static int do_line(struct repl *r, const char *text, struct error *error)
{
    char *line = text[0] == '/' ? strdup(text) : NULL;
    int status = text[0] == '/' ? line ? command_run(r, line, error)
                                       : error_set(error, ERR_NO_MEMORY, "out of memory (line)")
                 : text[0] ? turn_run(r, text, error)
                                : 0;
    free(line);
    if (status == 0)
        return 0;
    if (error->code == ERR_GONE || session_gone(&r->session))
        return -1;
    if (error->code != ERR_CANCELLED || !session_stop)
        failed(r, error);
    return 0;
}

/* After a signal: Ctrl-C at a terminal continues; any other signal, or Ctrl-C in a script, ends the
 * session. */
static bool continues(const struct repl *r)
{
    if (!session_stop)
        return true;
    if (!r->tty || session_stop != SIGINT)
        return false;
    session_stop = 0;
    return true;
}

static int converse(struct repl *r, struct error *error)
{
    struct input *in = input_open(r->tty, command_candidate, error);
    int status = in ? 0 : -1;
    r->terminal =
        terminal_guard(r->raw); /* not for line editing, which has its own control sequences */
    while (status == 0 && !r->leave) {
        const char *text = NULL;
        enum input_result got = input_next(in, &text, error);
        if (got == INPUT_END)
            break;
        if (got == INPUT_BAD)
            failed(r, error);
        else if (got == INPUT_TEXT || got == INPUT_QUOTED)
            status = do_line(r, got == INPUT_TEXT ? bare_command(r, text) : text, error);
        fflush(stdout);
        if (!continues(r))
            status = error_set(error, ERR_CANCELLED, "ended by a signal");
    }
    input_close(in);
    if (status == 0 && !r->tty && r->failure.code != ERR_NONE) {
        error_set(error, r->failure.code, "a line failed: %.300s", r->failure.text);
        status = -1;
    }
    return status;
}

/* What the options are for. */
struct start {
    struct repl repl;
    struct session_request request;
};

static int take_system(void *program, const char *value, struct error *error)
{
    struct start *s = program;
    return settings_option(&s->repl, "system", value, error);
}

static int take_thinking(void *program, const char *value, struct error *error)
{
    struct start *s = program;
    return settings_option(&s->repl, "thinking", value, error);
}

static int take_grammar(void *program, int kind, const char *value, struct error *error)
{
    struct start *s = program;
    return option_grammar((enum grammar_kind)kind, value, &s->repl.submit.grammar, error);
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct start, request.model),
     "start an engine for this file"},
    OPTION_OF_GROUP("budget"),
    {0, "name", "NAME", OPTION_TEXT(struct start, request.run),
     "the running engine to use (default \"default\")"},
    {'n', "tokens", "N", OPTION_NUMBER(struct start, repl.submit.max_tokens, 0, ENGINE_TOKENS_MAX),
     "maximum new tokens of a response (default 0: to the "
     "end of the text, or of the context)"},
    {0, "system", "TEXT", OPTION_CALL(take_system), "system message of the chat"},
    {0, "thinking", "WHEN", OPTION_CALL(take_thinking), "auto (the template's default), on or off"},
    {0, "json-schema", "FILE", OPTION_NTH(take_grammar, GRAMMAR_JSON_SCHEMA),
     "every response is JSON that fits this schema (docs/grammar.md)"},
    {0, "grammar", "FILE", OPTION_NTH(take_grammar, GRAMMAR_GBNF),
     "every response keeps to this grammar in GBNF"},
    {0, "raw", NULL, OPTION_FLAG(struct start, repl.raw),
     "control characters go to a terminal unchanged"},
    {'q', "quiet", NULL, OPTION_FLAG(struct start, repl.quiet),
     "no progress before a response, no rates after it"},
    {'v', "verbose", NULL, OPTION_FLAG(struct start, request.verbose),
     "show the log of the private engine"},
};

static const struct option_table options = {
    .command = "repl",
    .before = "usage: sluice repl [--name NAME] [-m FILE] [options]\n"
              "\n"
              "A conversation with the model. /help lists the commands. Example:\n"
              "\n"
              "  sluice repl -m model.gguf --budget 8GiB\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 29,
    .groups = {{"Sampling:", sampling_options},
               {"Parameters of the private engine:", params_options}},
};

static int parse(struct start *s, int argc, char **argv, struct error *error)
{
    struct session_request *q = &s->request;
    struct engine_submit *submit = &s->repl.submit;
    params_defaults(&q->params);
    params_open_choice(&q->params);
    engine_submit_defaults(submit);
    submit->max_tokens = 0;
    if (params_take_args(&q->params, &argc, argv, error) != 0 ||
        sampling_take_args(&submit->sampling, &argc, argv, error) != 0 ||
        options_read(&options, s, argc, argv, error) != 0)
        return -1;
    if (option_model_or_server(&q->model, argc, argv, "", error) != 0)
        return -1;
    return 0;
}

/* The model, its context, and what is next. */
static void banner(struct repl *r)
{
    json_t *doc = session_stats(&r->session);
    const char *name = lookup_model(doc), *arch = lookup_text(doc, "model.arch");
    if (doc)
        fprintf(stderr, "a conversation with %s (%s), context of %" PRIu64 " tokens\n",
                printable(name, strlen(name)).text, printable(arch, strlen(arch)).text,
                lookup_u64(doc, "model.context"));
    if (!r->session.own)
        fprintf(stderr, "engine '%s', which other programs may use, too\n", r->session.run);
    fprintf(stderr,
            "type a message; /help lists commands, Ctrl-C ends a response, Ctrl-D the session\n");
    json_decref(doc);
}

static int run(struct repl *r, struct session_request *request, struct error *error)
{
    if (session_tune(request, r->quiet, error) != 0 ||
        session_open(&r->session, request, error) != 0)
        return -1;
    r->watch = watch_open(r, error);
    int status = r->watch ? 0 : -1;
    if (status == 0) {
        if (r->tty && !r->quiet)
            banner(r);
        status = converse(r, error);
    }
    watch_close(r->watch);
    session_close(&r->session);
    return status;
}

int main(int argc, char **argv)
{
    struct start start = {
        .repl = {.chat = true, .tty = isatty(STDIN_FILENO), .out_tty = isatty(STDOUT_FILENO)},
        .request = {.command = "repl"}};
    struct repl *r = &start.repl;
    struct error error;
    session_signals();
    int status = parse(&start, argc, argv, &error);
    if (status == 0)
        status = run(r, &start.request, &error);
    conversation_clear(&r->conversation);
    json_decref(r->stats);
    json_decref(r->format_reply);
    chat_format_free(&r->format);
    free(r->system);
    option_grammar_free(&r->submit.grammar);
    return status == 0 ? 0 : report("repl", &error);
}
