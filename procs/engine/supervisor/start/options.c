/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `sluice run`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/io/server/url.h"
#include "procs/engine/child/run_trace.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

static int copy(char *to, size_t cap, const char *from, const char *what, struct error *error)
{
    if (strlen(from) >= cap)
        return error_set(error, ERR_BAD_INPUT, "%s is longer than %zu bytes", what, cap - 1);
    strcpy(to, from);
    return 0;
}

static int take_model(void *program, const char *value, struct error *error)
{
    struct options *o = program;
    return copy(o->model, sizeof o->model, value, "the model's path", error);
}

static int take_name(void *program, const char *value, struct error *error)
{
    struct options *o = program;
    return copy(o->run, sizeof o->run, value, "--name", error);
}

/* Prints the parameters, for users and for docs/config.md, and exits. */
static int print_config(void *program, const char *format, struct error *error)
{
    (void)program;
    if (!format)
        params_config(stdout);
    else if (strcmp(format, "md") == 0)
        params_table(stdout);
    else
        return error_set(error, ERR_BAD_INPUT, "--print-config: '%.40s' is not md", format);
    exit(fflush(stdout) == 0 ? 0 : 1);
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_CALL(take_model),
     "the model: a GGUF file, a directory made by pack, or the URL of a server that has one "
     "(docs/network_stores.md)"},
    OPTION_OF_GROUP("budget"),
    OPTION_OF_GROUP("http"),
    {0, "name", "NAME", OPTION_CALL(take_name),
     "name of the engine, to run several at once "
     "(default \"" RUN_NAME_DEFAULT "\")"},
    {0, "print-memory", NULL, OPTION_FLAG(struct options, print_memory),
     "the minimum budget for this model, and the budgets for "
     "shares of resident experts, as JSON; starts nothing"},
    {0, "print-config", "[=md]", OPTION_CALL(print_config),
     "print a file for --config with all defaults, or with =md "
     "the same as a table"},
};

static const struct option_table options = {
    .command = "run",
    .before = "usage: sluice run [-m] FILE [--budget SIZE] [--http PORT] [options]\n"
              "\n"
              "Runs the engine in the foreground until Ctrl-C, SIGTERM or `sluice ctl stop`.\n"
              "With --http PORT it serves OpenAI's API and a web page at http://127.0.0.1:PORT.\n"
              "In other terminals, generate, repl and top use it. Example:\n"
              "\n"
              "  sluice run -m model.gguf --budget 8GiB --http 8080\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 29,
    .groups = {{"Parameters:", params_options}},
    .after = "\n"
             "Exit status: 0 stopped on request, 1 failed, 2 bad usage, bad model file, or a\n"
             "budget that is too small for the model.\n",
};

/* What is overwritten may be readable by others: a new file of such a trace is not (recorder). A
 * pipe or a device stays as it is. */
static int check_trace(const struct params *p, struct error *error)
{
    struct stat st;
    if (!p->trace[0] || stat(p->trace, &st) != 0)
        return 0;
    if (!p->force)
        return error_set(error, ERR_BAD_INPUT,
                         "--trace %.200s exists already; --force overwrites it", p->trace);
    if (!run_trace_follows_text(p) || !S_ISREG(st.st_mode) || (st.st_mode & 0077) == 0 ||
        chmod(p->trace, st.st_mode & 0700) == 0)
        return 0;
    return error_set_errno(error, ERR_BAD_INPUT, errno,
                           "--trace %.200s cannot be made readable by its owner alone", p->trace);
}

int options_take(struct supervisor *s, int argc, char **argv, struct error *error)
{
    struct options *o = &s->options;
    strcpy(o->run, RUN_NAME_DEFAULT);
    params_defaults(&s->params);
    params_open_choice(&s->params);
    if (params_take_args(&s->params, &argc, argv, error) != 0)
        return -1;
    o->choice_is_ours = params_close_choice(&s->params);
    if (options_read(&options, o, argc, argv, error) != 0)
        return -1;
    if (o->print_memory) /* also while an engine of this name runs */
        snprintf(o->run, sizeof o->run, "doctor-%d", (int)getpid());
    const char *model = o->model[0] ? o->model : NULL;
    if (option_model_or_server(&model, argc, argv, "; see 'sluice run --help'", error) != 0 ||
        (model && model != o->model &&
         copy(o->model, sizeof o->model, model, "the model's path", error) != 0))
        return -1;
    if (!o->print_memory && check_trace(&s->params, error) != 0)
        return -1;
    if (!o->model[0])
        return error_set(error, ERR_BAD_INPUT,
                         "no model given; use -m MODEL (see 'sluice run --help')");
    if (s->params.origin[0])
        return error_set(error, ERR_BAD_INPUT, "--origin: give the URL with -m");
    if (!io_url_is(o->model))
        return 0;
    return copy(o->url, sizeof o->url, o->model, "the URL", error) != 0
               ? -1
               : copy(s->params.origin, sizeof s->params.origin, o->model, "the URL", error);
}
