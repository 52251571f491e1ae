/* SPDX-License-Identifier: Apache-2.0 */
/* The short and the long form of the tests: sample.tbl.h. */
#include "tests/harness/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { KIND_AMOUNT, KIND_EVERY, KIND_LONG_ONLY, KIND_TURN };

struct row {
    const char *program, *what; /* what: of LONG_ONLY and TURN the name of the case */
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
#define TURN(program, name, n, where)   {program, #name, where, n, 1, KIND_TURN},
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

/* Of a row that takes turns: those of one program and number that follow each other in the table
 * run one after the other. */
static bool has_its_turn(const struct row *row)
{
    unsigned before = 0;
    for (const struct row *other = cases; other < row; other++)
        before += other->kind == KIND_TURN && strcmp(other->program, row->program) == 0 &&
                  other->brief == row->brief;
    return (before + test_turn()) % row->brief == 0;
}

enum sample_left sample_left_out(const char *program, const char *name)
{
    for (const struct row *row = cases; row < cases + COUNT(cases) && !test_long(); row++) {
        if (strcmp(row->program, program) != 0 || strcmp(row->what, name) != 0)
            continue;
        if (row->kind == KIND_LONG_ONLY)
            return SAMPLE_LONG_ONLY;
        return has_its_turn(row) ? SAMPLE_RUNS : SAMPLE_OTHER_TURN;
    }
    return SAMPLE_RUNS;
}

const char *sample_case(const char *program, size_t n)
{
    for (size_t i = 0; i < COUNT(cases); i++)
        if (strcmp(cases[i].program, program) == 0 && n-- == 0)
            return cases[i].what;
    return NULL;
}

static void print_row(const struct row *row)
{
    if (row->kind == KIND_AMOUNT)
        printf("%u of %u: %s\n", row->brief, row->whole, row->what);
    else if (row->kind == KIND_EVERY)
        printf("one in %u, in turn: %s\n", row->brief, row->what);
    else if (row->kind == KIND_LONG_ONLY)
        printf("not %s: %s\n", row->what, row->where);
    else
        printf("%s %s, one in %u: %s\n",
               has_its_turn(row) ? "now" : "left to another change:", row->what, row->brief,
               row->where);
}

static void print_rows(const struct row *row, size_t count, const char *program)
{
    for (; count > 0; count--, row++) {
        if (program && row->program[0] && strcmp(row->program, program) != 0)
            continue;
        printf("# ");
        if (!program)
            printf("%s: ", row->program[0] ? row->program : "several");
        print_row(row);
    }
}

void sample_print(const char *program)
{
    print_rows(amounts, COUNT(amounts), program);
    print_rows(samples, COUNT(samples), program);
    print_rows(cases, COUNT(cases), program);
}
