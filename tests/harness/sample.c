/* SPDX-License-Identifier: Apache-2.0 */
/* The short and the long form of the tests: sample.tbl.h. */
#include "tests/harness/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { KIND_AMOUNT, KIND_EVERY, KIND_LONG_ONLY, KIND_TURNS };

struct row {
    const char *program, *what; /* what: of LONG_ONLY and TURNS the names of the cases */
    const char *where;
    unsigned brief, whole;
    enum kind kind;
};

static const struct row amounts[] = {
#define AMOUNT(id, program, brief, whole, what) {program, what, NULL, brief, whole, KIND_AMOUNT},
#include "tests/harness/sample.tbl.h"
};
static const struct row samples[] = {
#define EVERY(id, program, n, what) {program, what, NULL, n, 1, KIND_EVERY},
#include "tests/harness/sample.tbl.h"
};
static const struct row cases[] = {
#define LONG_ONLY(program, name, where) {program, #name, where, 0, 1, KIND_LONG_ONLY},
#define TURNS(program, names, n, where) {program, names, where, n, 1, KIND_TURNS},
#include "tests/harness/sample.tbl.h"
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

bool test_long(void)
{
    const char *value = getenv("SLUICE_LONG");
    return value && strcmp(value, "1") == 0;
}

unsigned test_turn(void)
{
    const char *value = getenv("SLUICE_TURN");
    return value ? (unsigned)strtoul(value, NULL, 10) : 0;
}

unsigned test_amount(enum test_amount id)
{
    return test_long() ? amounts[id].whole : amounts[id].brief;
}

/* Rows that this process left to other changes. A child that was forked has its own. */
static unsigned left[COUNT(samples)];
static pid_t left_of;

static void print_left(void)
{
    for (size_t i = 0; i < COUNT(samples) && left_of == getpid(); i++)
        if (left[i] > 0)
            printf("LEFT %u rows: %s\n", left[i], samples[i].what);
}

static void count_left(enum test_every id)
{
    if (left_of == 0 && atexit(print_left) != 0)
        abort();
    if (left_of != getpid())
        memset(left, 0, sizeof left);
    left_of = getpid();
    left[id]++;
}

bool test_sample(enum test_every id, unsigned *met)
{
    if (((*met)++ + test_turn()) % samples[id].brief == 0 || test_long())
        return true;
    count_left(id);
    return false;
}

/* Copies the n-th of some words with spaces between them; false after the last. */
static bool word(const char *words, size_t n, char name[SAMPLE_NAME])
{
    for (; n > 0 && *words; n--) {
        words += strcspn(words, " ");
        words += strspn(words, " ");
    }
    snprintf(name, SAMPLE_NAME, "%.*s", (int)strcspn(words, " "), words);
    return *name != '\0';
}

/* Of the n-th case of a row. */
static bool has_its_turn(const struct row *row, size_t n)
{
    return (n + test_turn()) % row->brief == 0;
}

enum sample_left sample_left_out(const char *program, const char *name)
{
    char found[SAMPLE_NAME];
    for (const struct row *row = cases; row < cases + COUNT(cases) && !test_long(); row++)
        for (size_t n = 0; strcmp(row->program, program) == 0 && word(row->what, n, found); n++) {
            if (strcmp(found, name) != 0)
                continue;
            if (row->kind == KIND_LONG_ONLY)
                return SAMPLE_LONG_ONLY;
            return has_its_turn(row, n) ? SAMPLE_RUNS : SAMPLE_OTHER_TURN;
        }
    return SAMPLE_RUNS;
}

bool sample_case(const char *program, size_t n, char name[SAMPLE_NAME])
{
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t k = 0; strcmp(cases[i].program, program) == 0 && word(cases[i].what, k, name);
             k++)
            if (n-- == 0)
                return true;
    return false;
}

static void print_start(const struct row *row, const char *program)
{
    printf("# ");
    if (!program)
        printf("%s: ", row->program[0] ? row->program : "several");
}

static void print_turns(const struct row *row, const char *program)
{
    char name[SAMPLE_NAME];
    for (size_t n = 0; word(row->what, n, name); n++) {
        print_start(row, program);
        printf("%s %s, one in %u: %s\n",
               has_its_turn(row, n) ? "now" : "left to another change:", name, row->brief,
               row->where);
    }
}

static void print_row(const struct row *row)
{
    if (row->kind == KIND_AMOUNT)
        printf("%u of %u: %s\n", row->brief, row->whole, row->what);
    else if (row->kind == KIND_EVERY)
        printf("one in %u, in turn: %s\n", row->brief, row->what);
    else
        printf("not %s: %s\n", row->what, row->where);
}

static void print_rows(const struct row *row, size_t count, const char *program)
{
    for (; count > 0; count--, row++) {
        if (program && row->program[0] && strcmp(row->program, program) != 0)
            continue;
        if (row->kind == KIND_TURNS) {
            print_turns(row, program);
            continue;
        }
        print_start(row, program);
        print_row(row);
    }
}

void sample_print(const char *program)
{
    print_rows(amounts, COUNT(amounts), program);
    print_rows(samples, COUNT(samples), program);
    print_rows(cases, COUNT(cases), program);
}
