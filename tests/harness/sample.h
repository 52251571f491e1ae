/* SPDX-License-Identifier: Apache-2.0 */
/* Tests ask here what their short form leaves out, by the table sample.tbl.h. */
#ifndef SLUICE_TESTS_HARNESS_SAMPLE_H
#define SLUICE_TESTS_HARNESS_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

enum test_amount {
#define AMOUNT(id, ...) AMOUNT_##id,
#include "tests/harness/sample.tbl.h"
};
enum test_every {
#define EVERY(id, ...) EVERY_##id,
#include "tests/harness/sample.tbl.h"
};

/* True for `sluice test --long`. */
bool test_long(void);

/* The number of the change that is tested, of which rows that take turns depend: SLUICE_TURN, which
 * `sluice test` sets; 0 without it. */
unsigned test_turn(void);

/* How many of the row, in this form. */
unsigned test_amount(enum test_amount id);

/* For a row of many that are alike: true for one of each n rows, the next one at the next change,
 * and for all in the long form. *met counts the rows. The first row that is left to another change
 * makes the process print their number at its end, "LEFT number rows: what" (count.awk). */
bool test_sample(enum test_every id, unsigned *met);

/* Why a case of the program does not run now. */
enum sample_left { SAMPLE_RUNS, SAMPLE_LONG_ONLY, SAMPLE_OTHER_TURN };
enum sample_left sample_left_out(const char *program, const char *name);

#define SAMPLE_NAME 64
/* Copies the name of the n-th case of the program that the table names; false after the last. */
bool sample_case(const char *program, size_t n, char name[SAMPLE_NAME]);
/* Prints the rows of the program; NULL: of all programs, with their names. */
void sample_print(const char *program);

#endif
