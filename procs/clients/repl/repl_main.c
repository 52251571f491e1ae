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
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config/option_error.h"
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

/* A line on a terminal that is a command of other programs without the slash. """exit""" is a prompt. */
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

static void usage(FILE *out)
{
    fprintf(out,
            "usage: sluice repl [--name NAME] [-m FILE] [options]\n"
            "\n"
            "A conversation with the model. /help lists the commands.\n"
            "\n"
            "  -m, --model FILE           start an engine for this file\n"
            "      --name NAME            the running engine to use (default \"default\")\n"
            "  -n, --tokens N             maximum new tokens of a response (default 0: to the\n"
            "                             end of the text, or of the context)\n"
            "      --system TEXT          system message of the chat\n"
            "      --thinking WHEN        auto (the template's default), on or off\n"
            "      --raw                  control characters go to a terminal unchanged\n"
            "  -q, --quiet                no progress before a response, no rates after it\n"
            "  -v, --verbose              show the log of the private engine\n"
            "\nSampling:\n");
    sampling_help(out);
    fprintf(out, "\nParameters of the private engine:\n");
    params_help(out);
}

static const struct option options[] = {{"model", 1, NULL, 'm'},  {"name", 1, NULL, 'r'},
                                        {"tokens", 1, NULL, 'n'}, {"verbose", 0, NULL, 'v'},
                                        {"quiet", 0, NULL, 'q'},  {"raw", 0, NULL, 'R'},
                                        {"system", 1, NULL, 's'}, {"thinking", 1, NULL, 't'},
                                        {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};

static int parse(struct repl *r, struct session_request *q, int argc, char **argv,
                 struct error *error)
{
    params_defaults(&q->params);
    params_open_choice(&q->params);
    engine_submit_defaults(&r->submit);
    r->submit.max_tokens = 0;
    if (params_take_args(&q->params, &argc, argv, error) != 0 ||
        sampling_take_args(&r->submit.sampling, &argc, argv, error) != 0)
        return -1;
    int option;
    while ((option = getopt_long(argc, argv, ":m:n:qvh", options, NULL)) != -1) {
        switch (option) {
        case 'm': q->model = optarg; break;
        case 'r': q->run = optarg; break;
        case 'q': r->quiet = true; break;
        case 'R': r->raw = true; break;
        case 'v': q->verbose = true; break;
        case 's':
        case 't':
            if (settings_option(r, option == 's' ? "system" : "thinking", optarg, error) != 0)
                return -1;
            break;
        case 'n':
            if (option_i64("-n", optarg, 0, ENGINE_TOKENS_MAX, &r->submit.max_tokens, error) != 0)
                return -1;
            break;
        case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
        default: return option_error("repl", option, argv, options, true, sampling_names(), error);
        }
    }
    if (option_model(&q->model, argc, argv, "", error) != 0)
        return -1;
    return 0;
}

/* The model, its context, and what is next. */
static void banner(struct repl *r)
{
    json_t *doc = session_stats(&r->session);
    const char *name = lookup_text(doc, "model.name"), *arch = lookup_text(doc, "model.arch");
    if (doc)
        fprintf(stderr, "%s (%s), context of %" PRIu64 " tokens, engine '%s'\n",
                printable(name, strlen(name)).text, printable(arch, strlen(arch)).text,
                lookup_u64(doc, "model.context"), r->session.run);
    fprintf(stderr, "/help lists the commands, Ctrl-D ends the conversation\n");
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
    struct repl r = {.chat = true, .tty = isatty(STDIN_FILENO), .out_tty = isatty(STDOUT_FILENO)};
    struct session_request request = {.command = "repl"};
    struct error error;
    session_signals();
    int status = parse(&r, &request, argc, argv, &error);
    if (status == 0)
        status = run(&r, &request, &error);
    conversation_clear(&r.conversation);
    json_decref(r.stats);
    json_decref(r.format_reply);
    chat_format_free(&r.format);
    free(r.system);
    return status == 0 ? 0 : report("repl", &error);
}
