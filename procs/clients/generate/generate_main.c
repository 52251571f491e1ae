/* SPDX-License-Identifier: Apache-2.0 */
/* sluice generate: one prompt, one response.
 *
 * Connects to a running engine, or starts a private one and stops it at the end. The text goes to
 * stdout as it arrives; progress and statistics go to stderr. Maps no segment. When this process
 * exits, its private engine exits with it; a running engine cancels the sequence because it is no
 * longer polled.
 *
 * Trust: replies of the engine are checked by the stubs in ipc/; the prompt is the user's. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_error.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/terminal/terminal.h"
#include "procs/clients/common/generation_stats.h"
#include "procs/clients/common/options.h"

enum output { OUTPUT_TEXT, OUTPUT_IDS, OUTPUT_JSON };

struct generate {
    struct session_request engine;
    struct engine_submit submit;
    char *prompt_text; /* from -f */
    uint32_t *ids;     /* from --ids */
    enum output output;
    bool quiet, echo;
    bool raw;       /* control characters are not replaced on a terminal */
    size_t printed; /* ids printed so far */
    bool progress;  /* a line of it is on the terminal */
};

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: sluice generate [[-m] FILE] (-p TEXT | -f FILE | --ids 1,2,3) [-n N] [options]\n"
        "\n"
        "Continues a prompt. Uses the running engine (--name NAME, or \"default\" if it serves\n"
        "the same file); otherwise starts a private engine for this response.\n"
        "\n"
        "  -m, --model FILE           GGUF file, or a directory made by pack\n"
        "  -p, --prompt TEXT          the prompt\n"
        "  -f, --file FILE            the prompt from a file, - for standard input\n"
        "      --ids 1,2,3            the prompt as token ids\n"
        "  -n, --tokens N             maximum new tokens (default 128)\n"
        "      --echo                 print the prompt before the response (--output text)\n"
        "      --stop TEXT            stop sequence: end the response at this text; up to 8\n"
        "      --ignore-eos           continue after the end-of-text token\n"
        "      --special              parse control tokens written in the prompt\n"
        "      --raw                  control characters go to a terminal unchanged\n"
        "      --output text|ids|json format on stdout (default text)\n"
        "      --name NAME            the engine to use\n"
        "  -q, --quiet                no statistics on stderr\n"
        "  -v, --verbose              show the engine's log, and more statistics\n"
        "\nSampling:\n");
    sampling_help(out);
    fprintf(out, "\nParameters of the private engine:\n");
    params_help(out);
}

static int set_output(struct generate *g, const char *format, struct error *error)
{
    static const char *const formats[] = {"text", "ids", "json"};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(format, formats[i]) == 0) {
            g->output = (enum output)i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "--output: '%.80s' is not one of text|ids|json", format);
}

enum {
    OPT_IDS = 256,
    OPT_ECHO,
    OPT_STOP,
    OPT_IGNORE_EOS,
    OPT_SPECIAL,
    OPT_RAW,
    OPT_OUTPUT,
    OPT_NAME
};

static const struct option options[] = {{"model", 1, NULL, 'm'},
                                        {"prompt", 1, NULL, 'p'},
                                        {"file", 1, NULL, 'f'},
                                        {"ids", 1, NULL, OPT_IDS},
                                        {"tokens", 1, NULL, 'n'},
                                        {"echo", 0, NULL, OPT_ECHO},
                                        {"stop", 1, NULL, OPT_STOP},
                                        {"ignore-eos", 0, NULL, OPT_IGNORE_EOS},
                                        {"special", 0, NULL, OPT_SPECIAL},
                                        {"raw", 0, NULL, OPT_RAW},
                                        {"output", 1, NULL, OPT_OUTPUT},
                                        {"name", 1, NULL, OPT_NAME},
                                        {"quiet", 0, NULL, 'q'},
                                        {"verbose", 0, NULL, 'v'},
                                        {"help", 0, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static int one_option(struct generate *g, int option, const char *value, struct error *error)
{
    struct engine_submit *s = &g->submit;
    switch (option) {
    case 'm': g->engine.model = value; return 0;
    case 'p':
        s->prompt = value;
        s->prompt_bytes = strlen(value);
        return 0;
    case 'f':
        free(g->prompt_text);
        g->prompt_text = NULL;
        if (option_file(value, ENGINE_PROMPT_BYTES_MAX, &g->prompt_text, &s->prompt_bytes, error) !=
            0)
            return -1;
        s->prompt = g->prompt_text;
        return 0;
    case OPT_IDS:
        free(g->ids);
        g->ids = NULL;
        if (option_ids(value, &g->ids, &s->prompt_ids_count, error) != 0)
            return -1;
        s->prompt_ids = g->ids;
        return 0;
    case 'n': return option_i64("-n", value, 0, ENGINE_TOKENS_MAX, &s->max_tokens, error);
    case OPT_ECHO: g->echo = true; return 0;
    case OPT_STOP: return stop_texts_add(&s->stops, value, strlen(value), error);
    case OPT_IGNORE_EOS: s->ignore_eos = true; return 0;
    case OPT_SPECIAL: s->special = text_ranges_all; return 0;
    case OPT_RAW: g->raw = true; return 0;
    case OPT_OUTPUT: return set_output(g, value, error);
    case OPT_NAME: g->engine.run = value; return 0;
    case 'q': g->quiet = true; return 0;
    case 'v': g->engine.verbose = true; return 0;
    case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
    default: sl_panic("option %d of the table is not handled", option);
    }
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
    int option;
    while ((option = getopt_long(argc, argv, ":m:p:f:n:qvh", options, NULL)) != -1)
        if ((option == '?' || option == ':'
                 ? option_error("generate", option, argv, options, true, sampling_names(), error)
                 : one_option(g, option, optarg, error)) != 0)
            return -1;
    if (option_model(&g->engine.model, argc, argv, " (the prompt goes after -p)", error) != 0)
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
    return 0;
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

static int finish(struct generate *g, struct session *session, const struct stream_result *result,
                  const json_t *before, struct error *error)
{
    json_t *after = session_stats(session);
    json_t *stats = generation_stats_make(result, before, after);
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
    int status = stream_run(&session, &g->submit, print_next, g, &result, error);
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
    free(g.prompt_text);
    free(g.ids);
    return status;
}
