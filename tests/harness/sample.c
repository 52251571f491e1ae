/* SPDX-License-Identifier: Apache-2.0 */
/* The short and the long form of the tests: sample.tbl.h. */
#include "tests/harness/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_AMOUNT, KIND_EVERY, KIND_LONG_ONLY };

struct row {
    const char *program, *what; /* what: of LONG_ONLY the name of the case */
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
static const struct row long_only[] = {
#define LONG_ONLY(program, name, where) {program, #name, where, 0, 1, KIND_LONG_ONLY},
#include "tests/harness/sample.tbl.h"
};

bool test_long(void)
{
    const char *value = getenv("SLUICE_LONG");
    return value && strcmp(value, "1") == 0;
}

unsigned test_amount(enum test_amount id)
{
    return test_long() ? amounts[id].whole : amounts[id].brief;
}

bool test_sample(enum test_every id, unsigned *met)
{
    return (*met)++ % samples[id].brief == 0 || test_long();
}

const char *sample_long_only(const char *program, size_t n)
{
    for (size_t i = 0; i < sizeof long_only / sizeof *long_only; i++)
        if (strcmp(long_only[i].program, program) == 0 && n-- == 0)
            return long_only[i].what;
    return NULL;
}

static void print_rows(const struct row *row, size_t count, const char *program)
{
    for (; count > 0; count--, row++) {
        if (row->program[0] && strcmp(row->program, program) != 0)
            continue;
        if (row->kind == KIND_AMOUNT)
            printf("# %u of %u: %s\n", row->brief, row->whole, row->what);
        else if (row->kind == KIND_EVERY)
            printf("# every %u. of: %s\n", row->brief, row->what);
        else
            printf("# not %s: %s\n", row->what, row->where);
    }
}

void sample_print(const char *program)
{
    print_rows(amounts, sizeof amounts / sizeof *amounts, program);
    print_rows(samples, sizeof samples / sizeof *samples, program);
    print_rows(long_only, sizeof long_only / sizeof *long_only, program);
}
