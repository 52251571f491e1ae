/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a program as a table: parsing and the text of --help are made of it. A row is
 * an option, its value, where the value goes, and what it is for:
 *
 *   static const struct option_row rows[] = {
 *       {'m', "model", "FILE", OPTION_TEXT(struct eval, model), "GGUF file"},
 *       {0, "max-windows", "N", OPTION_NUMBER(struct eval, windows_max, 1, 100), "only the first N"},
 *       {0, "raw", NULL, OPTION_FLAG(struct eval, raw), "control characters stay"},
 *       {0, "method", "M", OPTION_CALL(take_method), "channel or hqq"}};
 *
 * Every table has --help and -h besides. */
#ifndef SLUICE_CONFIG_OPTION_TABLE_H
#define SLUICE_CONFIG_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/error.h"

/* Takes a value (NULL: the option has none) for `program`, what options_read got. */
typedef int option_take(void *program, const char *value, struct error *error);
/* The same for several options, the n-th of them. */
typedef int option_take_nth(void *program, int n, const char *value, struct error *error);

enum option_kind {
    OPTION_KIND_NONE,   /* only in the help: somebody else takes it before */
    OPTION_KIND_FLAG,   /* bool, becomes true */
    OPTION_KIND_TEXT,   /* const char *, borrowed from argv */
    OPTION_KIND_MAYBE,  /* the same, whose value may be missing: "" */
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
    const char *arg;  /* what stands for the value in the help; NULL: the option has none */
    struct option_value value;
    const char *help; /* lines separated by \n; NULL: not in the help */
};

/* The offset of a member, which must have that type. */
#define OPTION_AT(type, member, of)                                                                \
    (offsetof(type, member) + 0 * sizeof(char[_Generic(((type *)0)->member, of : 1)]))
#define OPTION_ELSEWHERE                                                                           \
    {                                                                                              \
        .kind = OPTION_KIND_NONE                                                                   \
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
#define OPTION_MAYBE(type, member)                                                                 \
    {                                                                                              \
        .kind = OPTION_KIND_MAYBE, .offset = OPTION_AT(type, member, const char *)                 \
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

struct option_table {
    const char *command; /* of sluice */
    const char *before;  /* of the help: usage, and what the program does */
    const struct option_row *rows;
    size_t count;
    unsigned column;         /* of the help, where what an option is for begins */
    const char *after;       /* the end of the help; NULL: nothing */
    void (*more)(FILE *out); /* after that: lists of other tables; NULL: nothing */
    bool params;             /* it also takes the engine's parameters (config/params.h) */
    /* Names of other options that it takes, for suggestions, ended by NULL; NULL: none. */
    const char *const *(*names)(void);
};

/* Takes the options from argv with getopt_long; operands are left at optind. --help prints, and
 * ends the process. 0, or -1 with ERR_BAD_INPUT. */
int options_read(const struct option_table *table, void *program, int argc, char **argv,
                 struct error *error);
void options_help(const struct option_table *table, FILE *out);

/* Parses a whole number from min to max; the error names `what`. */
int option_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value,
               struct error *error);
/* Parses a size; a small number without a unit is an error that names the likely unit. */
int option_bytes(const char *what, const char *text, uint64_t *bytes, struct error *error);

#endif
