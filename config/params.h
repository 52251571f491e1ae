/* Parameters: one table (params.tbl.h), a plain struct, and the ways to fill it. */
#ifndef SLUICE_CONFIG_PARAMS_H
#define SLUICE_CONFIG_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/error.h"

#define PARAM_TEXT_BYTES   512
#define PARAM_CHOICE_BYTES 16

struct params { /* plain data, no pointers: it lies in the procs segment */
#define PARAM_U64(name, def, min, max, unit, help) uint64_t name;
#define PARAM_BYTES(name, def, min, max, help)     uint64_t name;
#define PARAM_F64(name, def, min, max, unit, help) double name;
#define PARAM_BOOL(name, def, help)                uint64_t name;
#define PARAM_CHOICE(name, def, choices, help)     char name[PARAM_CHOICE_BYTES];
#define PARAM_TEXT(name, def, help)                char name[PARAM_TEXT_BYTES];
#include "config/params.tbl.h"
};

void params_defaults(struct params *p);

/* True when `name` (dashes or underscores, without "--") is a parameter. */
bool params_known(const char *name);

/* Sets one parameter from text. -1 with ERR_BAD_INPUT naming the parameter, the bounds and the
 * text. A percentage may carry its sign, a size its suffix. */
int params_set(struct params *p, const char *name, const char *text, struct error *error);

/* Reads a file of "name = value" lines (# starts a comment). Errors name file and line. */
int params_load(struct params *p, const char *path, struct error *error);

/* Takes every parameter option (--name value or --name=value, --config FILE) out of argv and sets
 * it; what is left (argv[0], other options, operands) is moved to the front and *argc lowered. */
int params_take_args(struct params *p, int *argc, char **argv, struct error *error);

/* Prints the options with default, bounds, unit and help, one per line or two. */
void params_help(FILE *out);

/* Value of a parameter as text, for documents and ctl. False when unknown. */
bool params_get(const struct params *p, const char *name, char *text, size_t bytes);

/* Calls visit for every parameter in table order. */
void params_each(const struct params *p,
                 void (*visit)(const char *name, const char *value, const char *def,
                               const char *help, void *arg),
                 void *arg);

#endif
