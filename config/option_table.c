/* SPDX-License-Identifier: Apache-2.0 */
/* From a table of options to getopt_long, to values, and to the text of --help. */
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
#define FIRST_ROW  256 /* what getopt_long returns for the first row */
#define ROWS_MAX   64

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
    struct option names[ROWS_MAX + 2]; /* --help, and the end */
    char letters[2 * ROWS_MAX + 3];
};

static bool taken_here(const struct option_row *r)
{
    return r->value.kind != OPTION_KIND_NONE;
}

static int value_of(const struct option_row *r)
{
    if (r->value.kind == OPTION_KIND_MAYBE)
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
            f->names[n++] = (struct option){r->name, value_of(r), NULL, FIRST_ROW + (int)i};
        if (r->letter)
            add_letter(f->letters, r->letter, r->arg != NULL);
    }
    f->names[n] = (struct option){"help", 0, NULL, 'h'};
    add_letter(f->letters, 'h', false);
}

/* The row of what getopt_long returned. */
static const struct option_row *row_of(const struct option_table *t, int option)
{
    for (size_t i = 0; i < t->count; i++)
        if (option == FIRST_ROW + (int)i || (t->rows[i].letter && option == t->rows[i].letter))
            return &t->rows[i];
    sl_panic("option %d is not in the table", option);
}

/* As errors name it. */
static const char *name_of(const struct option_row *r, char name[NAME_BYTES])
{
    if (r->name)
        snprintf(name, NAME_BYTES, "--%s", r->name);
    else
        snprintf(name, NAME_BYTES, "-%c", r->letter);
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

static int take_row(const struct option_row *r, void *program, const char *value,
                    struct error *error)
{
    char name[NAME_BYTES];
    void *to = (char *)program + r->value.offset;
    switch (r->value.kind) {
    case OPTION_KIND_FLAG: *(bool *)to = true; return 0;
    case OPTION_KIND_TEXT: *(const char **)to = value; return 0;
    case OPTION_KIND_MAYBE: *(const char **)to = value ? value : ""; return 0;
    case OPTION_KIND_NUMBER:
        return option_i64(name_of(r, name), value, r->value.min, r->value.max, to, error);
    case OPTION_KIND_BYTES: return option_bytes(name_of(r, name), value, to, error);
    case OPTION_KIND_JSON: return take_json(name_of(r, name), value, to, error);
    case OPTION_KIND_CALL: return r->value.take(program, value, error);
    case OPTION_KIND_NTH: return r->value.take_nth(program, r->value.n, value, error);
    case OPTION_KIND_NONE: break;
    }
    sl_panic("%s is taken elsewhere", name_of(r, name));
}

int options_read(const struct option_table *t, void *program, int argc, char **argv,
                 struct error *error)
{
    struct forms forms;
    make_forms(t, &forms);
    for (int option; (option = getopt_long(argc, argv, forms.letters, forms.names, NULL)) != -1;) {
        if (option == 'h') {
            options_help(t, stdout);
            exit(fflush(stdout) == 0 ? 0 : 1);
        }
        if (option == '?' || option == ':')
            return option_error(t->command, option, argv, forms.names, t->params,
                                t->names ? t->names() : NULL, error);
        if (take_row(row_of(t, option), program, optarg, error) != 0)
            return -1;
    }
    return 0;
}

/* ---- the help -------------------------------------------------------------------------------- */

static bool has_letters(const struct option_table *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->rows[i].letter)
            return true;
    return false;
}

/* "  -m, --model FILE"; without letters in the table, names begin where letters would. */
static int print_names(const struct option_row *r, bool letters, FILE *out)
{
    int n = 0;
    if (r->letter)
        n += fprintf(out, "  -%c%s", r->letter, r->name ? ", " : "");
    else
        n += fprintf(out, "%s", letters ? "      " : "  ");
    if (r->name)
        n += fprintf(out, "--%s", r->name);
    if (r->arg)
        n += fprintf(out, " %s", r->arg);
    return n;
}

static void print_row(const struct option_row *r, unsigned column, bool letters, FILE *out)
{
    int at = print_names(r, letters, out);
    const char *line = *r->help ? r->help : NULL;
    if (!line)
        fputc('\n', out);
    for (bool first = true; line; first = false) {
        size_t n = strcspn(line, "\n");
        int blanks = first ? (int)column - at : (int)column;
        fprintf(out, "%*s%.*s\n", blanks < 2 ? 2 : blanks, "", (int)n, line);
        line = line[n] ? line + n + 1 : NULL;
    }
}

void options_help(const struct option_table *t, FILE *out)
{
    bool letters = has_letters(t);
    fputs(t->before, out);
    for (size_t i = 0; i < t->count; i++)
        if (t->rows[i].help)
            print_row(&t->rows[i], t->column, letters, out);
    if (t->after)
        fputs(t->after, out);
    if (t->more)
        t->more(out);
}
