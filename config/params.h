/* SPDX-License-Identifier: Apache-2.0 */
/* Engine parameters: one table (params.tbl.h), a plain struct, and the functions that fill it. */
#ifndef SLUICE_CONFIG_PARAMS_H
#define SLUICE_CONFIG_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/option_table.h"
#include "lib/base/error.h"

#define PARAM_TEXT_BYTES   512
#define PARAM_ALIAS_BYTES  128 /* a shorter maximum */
#define PARAM_CHOICE_BYTES 16
#define PARALLEL_DEFAULT   4  /* what parallel 0 stands for */
#define PARAMS_QUEUE_DEPTH 16 /* default of queue_depth; simulations take it, too */

/* The values that prefill_chunk 0 stands for: the larger number where its memory is a small part of
 * the budget, and the smaller one without a budget. */
#define PREFILL_CHUNK       256
#define PREFILL_CHUNK_LARGE 512

struct params { /* plain data without pointers: stored in the procs segment */
#define PARAM_U64(name, def, min, max, unit, help) uint64_t name;
#define PARAM_BYTES(name, def, min, max, help)     uint64_t name;
#define PARAM_F64(name, def, min, max, unit, help) double name;
#define PARAM_BOOL(name, def, help)                uint64_t name;
#define PARAM_CHOICE(name, def, choices, help)     char name[PARAM_CHOICE_BYTES];
#define PARAM_TEXT(name, def, help)                char name[PARAM_TEXT_BYTES];
#include "config/params.tbl.h"
};

void params_defaults(struct params *p);

/* Tokens of a pass where no budget decides. */
static inline uint32_t params_prefill_chunk(const struct params *p)
{
    return p->prefill_chunk > 0 ? (uint32_t)p->prefill_chunk : PREFILL_CHUNK;
}

/* True when `name` (dashes or underscores, without "--") is a parameter. */
bool params_known(const char *name);

/* Sets one parameter from text; a percentage may end in '%', a size in a suffix. -1 with
 * ERR_BAD_INPUT naming the parameter, its bounds and the text. */
int params_set(struct params *p, const char *name, const char *text, struct error *error);

/* Reads a file of "name = value" lines (# at the start or after a blank starts a comment). Errors
 * name file and line. */
int params_load(struct params *p, const char *path, struct error *error);

/* Whether the choice of policies is left to sluice, as a tuning may make it: no_tune is off,
 * max_loss above 0, and neither preset nor policy, plan, eviction, prediction or devices was given,
 * in options or in a file. Between the two calls the preset is empty unless it is given. */
void params_open_choice(struct params *p);
bool params_close_choice(struct params *p);

/* Removes every parameter option (--name value, --name=value, --config FILE, -c N, -t N) from argv
 * and applies it. The remaining arguments (argv[0], other options, operands) move to the front and
 * *argc is lowered. */
int params_take_args(struct params *p, int *argc, char **argv, struct error *error);

/* The options of all parameters, for a table of options: placeholder of the value, help, unit,
 * bounds and default. params_take_args takes them. */
void params_options(option_visit *visit, void *arg);

/* Prints a commented-out --config file with every parameter at its default. */
void params_config(FILE *out);

/* Prints a Markdown table of all parameters, for docs/config.md. */
void params_table(FILE *out);

/* Value of a parameter as text, for JSON and ctl. False when the name is unknown. */
bool params_get(const struct params *p, const char *name, char *text, size_t bytes);

/* Calls visit for every parameter in table order. */
void params_each(const struct params *p,
                 void (*visit)(const char *name, const char *value, const char *def,
                               const char *help, void *arg),
                 void *arg);

#endif
