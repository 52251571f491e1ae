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

/* How many of the row, in this form. */
unsigned test_amount(enum test_amount id);

/* For a row of many that are alike: true for the first of each n rows, and for all in the long
 * form. *met counts the rows. */
bool test_sample(enum test_every id, unsigned *met);

/* The n-th case of the program that the short form leaves out; NULL after the last. */
const char *sample_long_only(const char *program, size_t n);
/* Prints the rows of the program. */
void sample_print(const char *program);

#endif
