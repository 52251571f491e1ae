/* SPDX-License-Identifier: Apache-2.0 */
/* sluice generate: one prompt, one response.
 *
 * Connects to a running engine, or starts a private one and stops it at the end. The text goes to
 * stdout as it arrives; progress and statistics go to stderr. Maps no segment. When this process
 * exits, its private engine exits with it; a running engine cancels the sequence because it is no
 * longer polled.
 *
 * Trust: replies of the engine are checked by the stubs in ipc/; the prompt is the user's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/terminal/terminal.h"
#include "procs/clients/common/generation_stats.h"
#include "procs/clients/common/options.h"
#include "procs/clients/conversation/conversation.h"

enum output { OUTPUT_TEXT, OUTPUT_IDS, OUTPUT_JSON };

struct generate {
    struct session_request engine;
    struct engine_submit submit;
    char *prompt_text; /* from -f */
    uint32_t *ids;     /* from --ids */
    enum output output;
    bool chat;               /* the prompt is a message, rendered as the model's chat format */
    const char *system;      /* message of the chat; NULL: none */
    struct chat_prompt made; /* of them */
    char *placed;            /* the grammar, as an answer of the chat has it; NULL: as it is */
    struct grammar_source grammar; /* of the option */
    bool quiet, echo;
    bool raw;       /* control characters are not replaced on a terminal */
    size_t printed; /* ids printed so far */
    bool progress;  /* a line of it is on the terminal */
};

static int take_output(void *program, const char *value, struct error *error)
{
    struct generate *g = program;
    static const char *const formats[] = {"text", "ids", "json"};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(value, formats[i]) == 0) {
            g->output = (enum output)i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "--output: '%.80s' is not one of text|ids|json", value);
}

static int take_prompt(void *program, const char *value, struct error *error)
{
    struct generate *g = program;
    (void)error;
    g->submit.prompt = value;
    g->submit.prompt_bytes = strlen(value);
    return 0;
}

static int take_file(void *program, const char *value, struct error *error)
{
    struct generate *g = program;
    free(g->prompt_text);
    g->prompt_text = NULL;
    if (option_file(value, ENGINE_PROMPT_BYTES_MAX, &g->prompt_text, &g->submit.prompt_bytes,
                    error) != 0)
        return -1;
    g->submit.prompt = g->prompt_text;
    return 0;
}

static int take_ids(void *program, const char *value, struct error *error)
{
    struct generate *g = program;
    free(g->ids);
    g->ids = NULL;
    if (option_ids(value, &g->ids, &g->submit.prompt_ids_count, error) != 0)
        return -1;
    g->submit.prompt_ids = g->ids;
    return 0;
}

static int take_stop(void *program, const char *value, struct error *error)
{
    struct generate *g = program;
    return stop_texts_add(&g->submit.stops, value, strlen(value), error);
}

static int take_grammar(void *program, int kind, const char *value, struct error *error)
{
    struct generate *g = program;
    return option_grammar((enum grammar_kind)kind, value, &g->grammar, error);
}

static int take_special(void *program, const char *value, struct error *error)
{
    struct generate *g = program;
    (void)value, (void)error;
    g->submit.special = text_ranges_all;
    return 0;
}

static int take_system(void *program, const char *value, struct error *error)
{
    struct generate *g = program;
    (void)error;
    g->chat = true;
    g->system = *value ? value : NULL;
    return 0;
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct generate, engine.model),
     "GGUF file, or a directory made by pack"},
    OPTION_OF_GROUP("budget"),
    {'p', "prompt", "TEXT", OPTION_CALL(take_prompt), "the prompt"},
    {'f', "file", "FILE", OPTION_CALL(take_file), "the prompt from a file, - for standard input"},
    {0, "ids", "1,2,3", OPTION_CALL(take_ids), "the prompt as token ids"},
    {0, "chat", NULL, OPTION_FLAG(struct generate, chat),
     "the prompt is a message to the model, as in repl, not a text to be continued"},
    {0, "system", "TEXT", OPTION_CALL(take_system), "with this system message (--chat is implied)"},
    {'n', "tokens", "N", OPTION_NUMBER(struct generate, submit.max_tokens, 0, ENGINE_TOKENS_MAX),
     "maximum new tokens (default 128)"},
    {0, "echo", NULL, OPTION_FLAG(struct generate, echo),
     "print the prompt before the response (--output text)"},
    {0, "stop", "TEXT", OPTION_CALL(take_stop),
     "stop sequence: end the response at this text; up to 8"},
    {0, "json-schema", "FILE", OPTION_NTH(take_grammar, GRAMMAR_JSON_SCHEMA),
     "the response is JSON that fits this schema (docs/grammar.md)"},
    {0, "grammar", "FILE", OPTION_NTH(take_grammar, GRAMMAR_GBNF),
     "the response keeps to this grammar in GBNF"},
    {0, "ignore-eos", NULL, OPTION_FLAG(struct generate, submit.ignore_eos),
     "continue after the end-of-text token"},
    {0, "special", NULL, OPTION_CALL(take_special), "parse control tokens written in the prompt"},
    {0, "raw", NULL, OPTION_FLAG(struct generate, raw),
     "control characters go to a terminal unchanged"},
    {0, "output", "text|ids|json", OPTION_CALL(take_output), "format on stdout (default text)"},
    {0, "name", "NAME", OPTION_TEXT(struct generate, engine.run), "the engine to use"},
    {'q', "quiet", NULL, OPTION_FLAG(struct generate, quiet), "no statistics on stderr"},
    {'v', "verbose", NULL, OPTION_FLAG(struct generate, engine.verbose),
     "show the engine's log, and more statistics"},
};

static const struct option_table options = {
    .command = "generate",
    .before = "usage: sluice generate [[-m] FILE] (-p TEXT | -f FILE | --ids 1,2,3) [options]\n"
              "\n"
              "Continues a prompt, or answers it (--chat). Uses the running engine (--name\n"
              "NAME, or \"default\" if it serves the same file); otherwise starts a private\n"
              "engine for this response. Example:\n"
              "\n"
              "  sluice generate -m model.gguf --budget 8GiB -p \"Once upon a time\"\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 29,
    .groups = {{"Sampling:", sampling_options},
               {"Parameters of the private engine:", params_options}},
};

static int check_chat(const struct generate *g, struct error *error)
{
    const struct engine_submit *s = &g->submit;
    if (!g->chat)
        return 0;
    if (!s->prompt || s->special.count > 0 || g->echo)
        return error_set(error, ERR_BAD_INPUT,
                         "--chat takes a message as text (-p, -f), without --ids, --special and "
                         "--echo");
    return strlen(s->prompt) == s->prompt_bytes
               ? 0
               : error_set(error, ERR_BAD_INPUT, "the message has a NUL byte");
}

static int parse(struct generate *g, int argc, char **argv, struct error *error)
{
    struct engine_submit *s = &g->submit;
    engine_submit_defaults(s);
    params_defaults(&g->engine.params);
    params_open_choice(&g->engine.params);
    if (params_take_args(&g->engine.params, &argc, argv, error) != 0 ||
        sampling_take_args(&s->sampling, &argc, argv, error) != 0)
        return -1;
    if (options_read(&options, g, argc, argv, error) != 0)
        return -1;
    s->grammar = g->grammar;
    if (option_model_or_server(&g->engine.model, argc, argv, " (the prompt goes after -p)",
                               error) != 0)
        return -1;
    if (!s->prompt && !s->prompt_ids)
        return error_set(error, ERR_BAD_INPUT,
                         "no prompt given; use -p TEXT, -f FILE or --ids 1,2,3");
    if (s->prompt && s->prompt_ids)
        return error_set(error, ERR_BAD_INPUT,
                         "prompt given twice; use either text (-p, -f) or --ids");
    if (g->echo && !s->prompt)
        return error_set(error, ERR_BAD_INPUT, "--echo prints a prompt of -p or -f, not --ids");
    if (g->echo && g->output != OUTPUT_TEXT)
        return error_set(error, ERR_BAD_INPUT, "--echo prints a text, for --output text only");
    if (s->prompt_bytes > ENGINE_PROMPT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "the prompt is longer than %u bytes",
                         ENGINE_PROMPT_BYTES_MAX);
    return check_chat(g, error);
}

/* Replaces the prompt by the chat that consists of it and the system message. */
static int make_chat(struct generate *g, struct session *session, struct error *error)
{
    struct chat_format format = {0};
    struct conversation empty = {0};
    struct error why = {.code = ERR_NONE};
    json_t *reply = NULL;
    if (control_call(session->control, "chat", NULL, &reply, error) != 0)
        return -1;
    if (chat_format_read(&format, reply, &why) != 0 && !format.program)
        fprintf(stderr, "%s: the message has the form of the family '%s'\n", why.text,
                chat_name((enum chat_family)format.model.family));
    struct conversation_form form = {.chat = &format, .system = g->system};
    int status = conversation_chat(&empty, &form, g->submit.prompt, &g->made, error);
    if (status == 0) {
        g->submit.prompt = g->made.text;
        g->submit.prompt_bytes = g->made.bytes;
        g->submit.special = g->made.written;
        status = conversation_place_grammar(&format.answer, &g->made, &g->submit.grammar,
                                            &g->placed, error);
    }
    chat_format_free(&format);
    json_decref(reply);
    return status;
}

static void print_next(const struct engine_next *next, void *arg)
{
    struct generate *g = arg;
    if (!g->quiet)
        progress_show(&next->progress, &g->progress);
    if (g->echo && !next->progress.known && g->output == OUTPUT_TEXT) {
        fwrite(g->submit.prompt, 1, g->submit.prompt_bytes, stdout);
        g->echo = false; /* once */
    }
    if (g->output == OUTPUT_TEXT) {
        fwrite(next->text, 1, next->text_bytes, stdout);
    } else if (g->output == OUTPUT_IDS) {
        for (size_t i = 0; i < next->count; i++)
            printf("%s%" PRIu32, g->printed++ ? " " : "", next->ids[i]);
    } else {
        return;
    }
    fflush(stdout);
    if (ferror(stdout))
        session_stop = 1; /* the reader closed the pipe */
}

/* The engine's log says so, too, but only -v shows it. */
static void warn_dropped(const json_t *before, const json_t *after)
{
    uint64_t dropped = lookup_counter(after, "recorder", "records_dropped"),
             earlier = lookup_counter(before, "recorder", "records_dropped");
    if (dropped > earlier)
        fprintf(stderr,
                "sluice generate: the trace lacks %" PRIu64 " records, dropped because the file "
                "could not be written fast enough\n",
                dropped - earlier);
}

static int finish(struct generate *g, struct session *session, const struct stream_result *result,
                  const json_t *before, struct error *error)
{
    json_t *after = session_stats(session);
    json_t *stats = generation_stats_make(result, before, after);
    warn_dropped(before, after);
    if (g->output == OUTPUT_JSON)
        json_dumpf(stats, stdout, JSON_INDENT(2));
    printf("\n");
    fflush(stdout);
    if (!g->quiet && g->output != OUTPUT_JSON)
        (g->engine.verbose ? generation_stats_print_all : generation_stats_print)(stderr, stats);
    json_decref(stats);
    json_decref(after);
    return ferror(stdout) ? error_set(error, ERR_FAILED, "cannot write to standard output") : 0;
}

static int run(struct generate *g, struct error *error)
{
    struct session session;
    struct stream_result result = {.count = 0};
    if (session_tune(&g->engine, g->quiet, error) != 0 ||
        session_open(&session, &g->engine, error) != 0)
        return -1;
    json_t *before = session_stats(&session);
    int status = g->chat ? make_chat(g, &session, error) : 0;
    if (status == 0)
        status = stream_run(&session, &g->submit, print_next, g, &result, error);
    progress_end(&g->progress);
    if (status == 0)
        status = finish(g, &session, &result, before, error);
    else if (result.count > 0 && g->output != OUTPUT_JSON)
        printf("\n");
    if (status == 0 && strcmp(result.finish, "cancelled") == 0)
        status = error_set(error, ERR_CANCELLED, "cancelled after %zu tokens", result.count);
    json_decref(before);
    stream_result_free(&result);
    session_close(&session);
    return status;
}

int main(int argc, char **argv)
{
    struct generate g = {.engine = {.command = "generate"}};
    struct error error;
    session_signals();
    int status = parse(&g, argc, argv, &error);
    if (status == 0) {
        terminal_guard(g.raw);
        status = run(&g, &error);
    }
    if (status != 0)
        status = report("generate", &error);
    chat_prompt_free(&g.made);
    option_grammar_free(&g.grammar);
    free(g.placed);
    free(g.prompt_text);
    free(g.ids);
    return status;
}
