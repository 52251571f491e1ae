/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a table of options: as the text of --help, and as lines that manual pages and shell
 * completions are made of. */
#include <stdlib.h>
#include <string.h>

#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define HELP_COLUMNS 80
#define GROUP_COLUMN 29 /* of the help, where what an option of a group is for begins */

static const struct option_row common[] = {
    {'h', "help", NULL, OPTION_ELSEWHERE, "this text"},
    {0, "version", NULL, OPTION_ELSEWHERE, "the version"},
};

/* ---- every option ---------------------------------------------------------------------------- */

struct search {
    const char *name;
    option_visit *visit;
    void *arg;
    bool found;
};

static void visit_named(const struct option_row *row, void *arg)
{
    struct search *s = arg;
    if (!row->name || strcmp(row->name, s->name) != 0)
        return;
    s->found = true;
    s->visit(row, s->arg);
}

/* The option of a group that stands among the program's own. */
static void visit_of_groups(const struct option_table *t, const char *name, option_visit *visit,
                            void *arg)
{
    struct search s = {.name = name, .visit = visit, .arg = arg};
    for (size_t g = 0; g < OPTION_GROUPS_MAX && t->groups[g].each; g++)
        t->groups[g].each(visit_named, &s);
    sl_assert(s.found);
}

static void each_own(const struct option_table *t, option_visit *visit, void *arg)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->rows[i].value.kind == OPTION_KIND_GROUP)
            visit_of_groups(t, t->rows[i].name, visit, arg);
        else
            visit(&t->rows[i], arg);
    for (size_t i = 0; i < ARRAY_LEN(common); i++)
        visit(&common[i], arg);
}

struct others {
    const struct option_table *table;
    option_visit *visit;
    void *arg;
};

static void visit_other(const struct option_row *row, void *arg)
{
    struct others *o = arg;
    for (size_t i = 0; row->name && i < o->table->count; i++)
        if (o->table->rows[i].name && strcmp(o->table->rows[i].name, row->name) == 0)
            return;
    o->visit(row, o->arg);
}

/* The options of a group without those that the program has a row for. */
static void each_of_group(const struct option_table *t, const struct option_group *group,
                          option_visit *visit, void *arg)
{
    struct others o = {.table = t, .visit = visit, .arg = arg};
    group->each(visit_other, &o);
}

void options_each(const struct option_table *t, option_visit *visit, void *arg)
{
    each_own(t, visit, arg);
    for (size_t g = 0; g < OPTION_GROUPS_MAX && t->groups[g].each; g++)
        each_of_group(t, &t->groups[g], visit, arg);
}

/* ---- the help -------------------------------------------------------------------------------- */

struct help {
    FILE *out;
    unsigned column;
    bool letters; /* names begin after the place of a letter */
};

static bool has_letters(const struct option_table *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->rows[i].letter)
            return true;
    return false;
}

/* "  -m, --model FILE" */
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
        n += fprintf(out, "%s%s", r->arg[0] == '[' ? "" : " ", r->arg);
    return n;
}

/* A text from the column on, in lines of at most HELP_COLUMNS; `at`: where the first begins. */
static void print_text(const char *text, unsigned column, unsigned at, FILE *out)
{
    const char *blank = "";
    while (*text) {
        unsigned n = (unsigned)strcspn(text, " ");
        if (at > column && at + 1 + n > HELP_COLUMNS) {
            fputc('\n', out);
            at = 0;
        }
        if (at < column) {
            fprintf(out, "%*s", (int)(column - at), "");
            at = column;
            blank = "";
        }
        at += (unsigned)fprintf(out, "%s%.*s", blank, (int)n, text);
        text += n + (text[n] == ' ');
        blank = " ";
    }
    fputc('\n', out);
}

/* Names that reach the column have a line of their own. */
static void print_row(const struct option_row *r, void *arg)
{
    const struct help *h = arg;
    if (!r->help)
        return;
    unsigned at = (unsigned)print_names(r, h->letters, h->out);
    if (*r->help && at + 2 > h->column) {
        fputc('\n', h->out);
        at = 0;
    }
    print_text(r->help, h->column, at, h->out);
}

void options_help(const struct option_table *t, FILE *out)
{
    struct help h = {.out = out, .column = t->column, .letters = has_letters(t)};
    fputs(t->before, out);
    each_own(t, print_row, &h);
    h = (struct help){.out = out, .column = GROUP_COLUMN};
    for (size_t g = 0; g < OPTION_GROUPS_MAX && t->groups[g].each; g++) {
        fprintf(out, "\n%s\n", t->groups[g].heading);
        each_of_group(t, &t->groups[g], print_row, &h);
    }
    if (t->after)
        fputs(t->after, out);
    if (t->more)
        t->more(out);
}

/* ---- the lines of manual pages --------------------------------------------------------------- */

static void print_lines(const char *text, FILE *out)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        fprintf(out, "text\t%.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

/* "option", names, value, what it is for. */
static void print_option(const struct option_row *r, void *arg)
{
    FILE *out = arg;
    if (!r->help) {
        fprintf(out, "internal\t--%s\n", r->name);
        return;
    }
    fputs("option\t", out);
    if (r->letter)
        fprintf(out, "-%c%s", r->letter, r->name ? " " : "");
    if (r->name)
        fprintf(out, "--%s", r->name);
    fprintf(out, "\t%s\t%s\n", r->arg ? r->arg : "", r->help);
}

static void print_more(void (*more)(FILE *out), FILE *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    more(memory);
    fclose(memory);
    print_lines(text, out);
    free(text);
}

void options_manual(const struct option_table *t, FILE *out)
{
    print_lines(t->before, out);
    each_own(t, print_option, out);
    for (size_t g = 0; g < OPTION_GROUPS_MAX && t->groups[g].each; g++) {
        fprintf(out, "text\t\ntext\t%s\n", t->groups[g].heading);
        each_of_group(t, &t->groups[g], print_option, out);
    }
    if (t->after)
        print_lines(t->after, out);
    if (t->more)
        print_more(t->more, out);
}
