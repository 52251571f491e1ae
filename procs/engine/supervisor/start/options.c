/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `sluice run`. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_error.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

static const struct option long_options[] = {
    {"model", required_argument, NULL, 'm'},
    {"name", required_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {"print-memory", no_argument, NULL, 'p'},
    {"print-config", optional_argument, NULL, 'c'},
    {NULL, 0, NULL, 0},
};

static int copy(char *to, size_t cap, const char *from, const char *what, struct error *error)
{
    if (strlen(from) >= cap)
        return error_set(error, ERR_BAD_INPUT, "%s is longer than %zu bytes", what, cap - 1);
    strcpy(to, from);
    return 0;
}

/* Prints the parameters, for users and for docs/config.md, and exits. */
static int print_config(const char *format, struct error *error)
{
    if (!format)
        params_config(stdout);
    else if (strcmp(format, "md") == 0)
        params_table(stdout);
    else
        return error_set(error, ERR_BAD_INPUT, "--print-config: '%.40s' is not md", format);
    exit(fflush(stdout) == 0 ? 0 : 1);
}

static int take_one(struct options *o, int option, char **argv, struct error *error)
{
    switch (option) {
    case 'm': return copy(o->model, sizeof o->model, optarg, "the model's path", error);
    case 'r': return copy(o->run, sizeof o->run, optarg, "--name", error);
    case 'h': o->help = true; return 0;
    case 'v': o->version = true; return 0;
    case 'p': o->print_memory = true; return 0;
    case 'c': return print_config(optarg, error);
    default: return option_error("run", option, argv, long_options, true, NULL, error);
    }
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
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":m:hv", long_options, NULL)) != -1;)
        if (take_one(o, option, argv, error) != 0)
            return -1;
    if (o->help || o->version)
        return 0;
    if (o->print_memory) /* also while an engine of this name runs */
        snprintf(o->run, sizeof o->run, "doctor-%d", (int)getpid());
    const char *model = o->model[0] ? o->model : NULL;
    if (option_model(&model, argc, argv, "; see 'sluice run --help'", error) != 0 ||
        (model && model != o->model &&
         copy(o->model, sizeof o->model, model, "the model's path", error) != 0))
        return -1;
    if (s->params.trace[0] && !s->params.force && access(s->params.trace, F_OK) == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "--trace %.200s exists already; --force overwrites it", s->params.trace);
    if (!o->model[0])
        return error_set(error, ERR_BAD_INPUT,
                         "no model given; use -m MODEL (see 'sluice run --help')");
    return 0;
}

void options_help(void)
{
    printf("usage: sluice run -m MODEL [--budget BYTES] [--name NAME] [options]\n"
           "\n"
           "Runs the engine in the foreground until SIGINT, SIGTERM or `sluice ctl stop`.\n"
           "\n"
           "  -m, --model MODEL          the model: a GGUF file, or a directory made by pack\n"
           "  --name NAME                name of the engine, to run several at once\n"
           "                             (default \"%s\")\n"
           "  -h, --help                 this text\n"
           "  --version                  the version\n"
           "  --print-memory             the minimum budget for this model, and the budgets for\n"
           "                             shares of resident experts, as JSON; starts nothing\n"
           "  --print-config             print a file for --config with all defaults;\n"
           "                             --print-config=md the same as a table\n"
           "\n"
           "Parameters:\n",
           RUN_NAME_DEFAULT);
    params_help(stdout);
    printf(
        "\nExit status: 0 stopped on request, 1 failed, 2 bad usage, bad model file, or a budget\n"
        "that is too small for the model.\n");
}
