/* SPDX-License-Identifier: Apache-2.0 */
/* From a table of options to getopt_long, and to values. */
#include "config/option_table.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_error.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define NAME_BYTES 48
#define ROWS_MAX   64

/* What getopt_long returns for names: numbers that no letter has. */
enum { OPTION_HELP = 256, OPTION_VERSION, OPTION_FIRST_ROW };

int option_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value,
               struct error *error)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.80s' is not a whole number", what, text);
    if (number < min || number > max)
        return error_set(error, ERR_BAD_INPUT,
                         "%s: %.80s is out of range (%" PRId64 " to %" PRId64 ")", what, text, min,
                         max);
    *value = number;
    return 0;
}

int option_bytes(const char *what, const char *text, uint64_t *bytes, struct error *error)
{
    if (option_unit_missing(text))
        return error_set(error, ERR_BAD_INPUT, "%s: %.40s bytes; did you mean %.40sMiB?", what,
                         text, text);
    if (bytes_parse(text, bytes))
        return 0;
    return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a size (try 512MiB or 4GiB)", what,
                     text);
}

/* What getopt_long takes. */
struct forms {
    struct option names[ROWS_MAX + 3]; /* --help, --version, and the end */
    char letters[2 * ROWS_MAX + 3];
};

static bool taken_here(const struct option_row *r)
{
    return r->value.kind != OPTION_KIND_NONE && r->value.kind != OPTION_KIND_GROUP;
}

static int value_of(const struct option_row *r)
{
    if (r->arg && r->arg[0] == '[')
        return optional_argument;
    return r->arg ? required_argument : no_argument;
}

static void add_letter(char *letters, char letter, bool has_value)
{
    size_t n = strlen(letters);
    letters[n] = letter;
    letters[n + 1] = has_value ? ':' : 0;
    letters[n + 2] = 0;
}

static void make_forms(const struct option_table *t, struct forms *f)
{
    size_t n = 0;
    *f = (struct forms){.letters = ":"};
    sl_assert(t->count <= ROWS_MAX);
    for (size_t i = 0; i < t->count; i++) {
        const struct option_row *r = &t->rows[i];
        if (!taken_here(r))
            continue;
        if (r->name)
            f->names[n++] = (struct option){r->name, value_of(r), NULL, OPTION_FIRST_ROW + (int)i};
        if (r->letter)
            add_letter(f->letters, r->letter, r->arg != NULL);
    }
    f->names[n++] = (struct option){"help", optional_argument, NULL, OPTION_HELP};
    f->names[n] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
    add_letter(f->letters, 'h', false);
}

/* The row of what getopt_long returned. */
static const struct option_row *row_of(const struct option_table *t, int option)
{
    for (size_t i = 0; i < t->count; i++)
        if (option == OPTION_FIRST_ROW + (int)i ||
            (t->rows[i].letter && option == t->rows[i].letter))
            return &t->rows[i];
    sl_panic("option %d is not in the table", option);
}

/* As it was given: getopt_long returned its letter, or the number of its name. */
static const char *name_of(const struct option_row *r, int option, char name[NAME_BYTES])
{
    if (option == r->letter)
        snprintf(name, NAME_BYTES, "-%c", r->letter);
    else
        snprintf(name, NAME_BYTES, "--%s", r->name);
    return name;
}

static int take_json(const char *name, const char *value, bool *json, struct error *error)
{
    *json = strcmp(value, "json") == 0;
    return *json || strcmp(value, "text") == 0
               ? 0
               : error_set(error, ERR_BAD_INPUT, "%s: '%.80s' is not one of text|json", name,
                           value);
}

static int take_row(const struct option_row *r, int option, void *program, const char *value,
                    struct error *error)
{
    char name[NAME_BYTES];
    void *to = (char *)program + r->value.offset;
    switch (r->value.kind) {
    case OPTION_KIND_FLAG: *(bool *)to = true; return 0;
    case OPTION_KIND_TEXT: *(const char **)to = value ? value : ""; return 0;
    case OPTION_KIND_NUMBER:
        return option_i64(name_of(r, option, name), value, r->value.min, r->value.max, to, error);
    case OPTION_KIND_BYTES: return option_bytes(name_of(r, option, name), value, to, error);
    case OPTION_KIND_JSON: return take_json(name_of(r, option, name), value, to, error);
    case OPTION_KIND_CALL: return r->value.take(program, value, error);
    case OPTION_KIND_NTH: return r->value.take_nth(program, r->value.n, value, error);
    case OPTION_KIND_NONE:
    case OPTION_KIND_GROUP: break;
    }
    sl_panic("%s is taken elsewhere", name_of(r, option, name));
}

/* --help, --help=manual and --version print, and end the process. */
static int take_common(const struct option_table *t, int option, struct error *error)
{
    if (option == OPTION_VERSION)
        printf("sluice %s\n", SLUICE_VERSION);
    else if (!optarg)
        options_help(t, stdout);
    else if (strcmp(optarg, "manual") == 0)
        options_manual(t, stdout);
    else
        return error_set(error, ERR_BAD_INPUT, "--help takes no value; see 'sluice %s --help'",
                         t->command);
    exit(fflush(stdout) == 0 ? 0 : 1);
}

int options_read(const struct option_table *t, void *program, int argc, char **argv,
                 struct error *error)
{
    struct forms forms;
    make_forms(t, &forms);
    for (int option; (option = getopt_long(argc, argv, forms.letters, forms.names, NULL)) != -1;) {
        if (option == '?' || option == ':')
            return option_error(t, option, argv, forms.letters, forms.names, error);
        if (option == 'h' || option == OPTION_HELP || option == OPTION_VERSION)
            return take_common(t, option, error);
        if (take_row(row_of(t, option), option, program, optarg, error) != 0)
            return -1;
    }
    return 0;
}
