/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a program as a table: parsing, --help, manual page and shell completions are made
 * of it. A row is an option, its value, where the value goes, and what it is for:
 *
 *   static const struct option_row rows[] = {
 *       {'m', "model", "FILE", OPTION_TEXT(struct eval, model), "GGUF file"},
 *       {0, "max-windows", "N", OPTION_NUMBER(struct eval, windows, 1, 100), "only the first N"},
 *       {0, "raw", NULL, OPTION_FLAG(struct eval, raw), "control characters stay"},
 *       {0, "method", "M", OPTION_CALL(take_method), "channel or hqq"}};
 *
 * Every table has --help (-h) and --version besides. --help=manual prints the same as --help in
 * lines for launch/manual/manual.sh: what the line is, a tab, and its text. */
#ifndef SLUICE_CONFIG_OPTION_TABLE_H
#define SLUICE_CONFIG_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/error.h"

/* Takes a value (NULL: there is none) for `program`, what options_read got. */
typedef int option_take(void *program, const char *value, struct error *error);
/* The same for several options, the n-th of them. */
typedef int option_take_nth(void *program, int n, const char *value, struct error *error);

enum option_kind {
    OPTION_KIND_NONE,   /* only in the help: somebody else takes it before */
    OPTION_KIND_GROUP,  /* the option of that name of a group, here and not in its group */
    OPTION_KIND_FLAG,   /* bool, becomes true */
    OPTION_KIND_TEXT,   /* const char *, borrowed from argv; "": a value that may be missing is */
    OPTION_KIND_NUMBER, /* int64_t from min to max */
    OPTION_KIND_BYTES,  /* uint64_t */
    OPTION_KIND_JSON,   /* bool: json is true, text is false */
    OPTION_KIND_CALL,
    OPTION_KIND_NTH
};

struct option_value {
    enum option_kind kind;
    size_t offset; /* in the program's struct */
    int64_t min, max;
    option_take *take;
    option_take_nth *take_nth;
    int n;
};

struct option_row {
    char letter;      /* 0: none */
    const char *name; /* without dashes; NULL: none */
    /* What stands for the value in the help: FILE, text|json (one of these), [=TEXT] (only after a
     * =, and it may be missing). NULL: the option has none. */
    const char *arg;
    struct option_value value;
    const char *help; /* one line; NULL: for programs of sluice only, not in the help */
};

typedef void option_visit(const struct option_row *row, void *arg);

/* Options that several programs have, from a table of their own, and that a function of its own
 * takes from the command line: those of the engine (config/params.h), of sampling. */
struct option_group {
    const char *heading; /* of the help: "Sampling:" */
    /* Calls visit for each option; the rows are valid during the call. */
    void (*each)(option_visit *visit, void *arg);
};

/* The offset of a member, which must have that type. */
#define OPTION_AT(type, member, of)                                                                \
    (offsetof(type, member) + 0 * sizeof(char[_Generic(((type *)0)->member, of : 1)]))
#define OPTION_ELSEWHERE                                                                           \
    {                                                                                              \
        .kind = OPTION_KIND_NONE                                                                   \
    }
/* A whole row: this option of a group stands among the program's own, since many want it. */
#define OPTION_OF_GROUP(option)                                                                    \
    {                                                                                              \
        .name = (option), .value = {.kind = OPTION_KIND_GROUP }                                    \
    }
#define OPTION_FLAG(type, member)                                                                  \
    {                                                                                              \
        .kind = OPTION_KIND_FLAG, .offset = OPTION_AT(type, member, bool)                          \
    }
#define OPTION_JSON(type, member)                                                                  \
    {                                                                                              \
        .kind = OPTION_KIND_JSON, .offset = OPTION_AT(type, member, bool)                          \
    }
#define OPTION_TEXT(type, member)                                                                  \
    {                                                                                              \
        .kind = OPTION_KIND_TEXT, .offset = OPTION_AT(type, member, const char *)                  \
    }
#define OPTION_BYTES(type, member)                                                                 \
    {                                                                                              \
        .kind = OPTION_KIND_BYTES, .offset = OPTION_AT(type, member, uint64_t)                     \
    }
#define OPTION_NUMBER(type, member, low, high)                                                     \
    {                                                                                              \
        .kind = OPTION_KIND_NUMBER, .offset = OPTION_AT(type, member, int64_t), .min = (low),      \
        .max = (high)                                                                              \
    }
#define OPTION_CALL(function)                                                                      \
    {                                                                                              \
        .kind = OPTION_KIND_CALL, .take = (function)                                               \
    }

#define OPTION_NTH(function, which)                                                                \
    {                                                                                              \
        .kind = OPTION_KIND_NTH, .take_nth = (function), .n = (which)                              \
    }

/* The rows of a table, in its initializer. */
#define OPTION_ROWS(list) .rows = (list), .count = sizeof(list) / sizeof(list)[0]

/* A macro that is a number, as text. */
#define OPTION_DIGITS(macro)   OPTION_DIGITS_(macro)
#define OPTION_DIGITS_(digits) #digits

#define OPTION_GROUPS_MAX 2

struct option_table {
    const char *command; /* of sluice */
    const char *before;  /* of the help: usage, and what the program does */
    const struct option_row *rows;
    size_t count;
    unsigned column; /* of the help, where what an option is for begins */
    struct option_group groups[OPTION_GROUPS_MAX]; /* after the rows; ended by one without `each` */
    const char *after;                             /* the end of the help; NULL: nothing */
    void (*more)(FILE *out); /* after that: lists of other tables; NULL: nothing */
};

/* Takes the options from argv with getopt_long; operands are left at optind. --help and --version
 * print, and end the process. 0, or -1 with ERR_BAD_INPUT. */
int options_read(const struct option_table *table, void *program, int argc, char **argv,
                 struct error *error);

/* config/option_help.c */
/* Calls visit for every option, in the order of the help: the program's own, --help and --version,
 * and those of the groups that the program has no row of its own for. */
void options_each(const struct option_table *table, option_visit *visit, void *arg);
void options_help(const struct option_table *table, FILE *out);
/* The same as lines "text", "option" (names, value, what it is for), "internal" (a name). */
void options_manual(const struct option_table *table, FILE *out);

/* Parses a whole number from min to max; the error names `what`. */
int option_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value,
               struct error *error);
/* Parses a size; a small number without a unit is an error that names the likely unit. */
int option_bytes(const char *what, const char *text, uint64_t *bytes, struct error *error);

#endif
