/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the suites of the test program of lib/base. */
#ifndef SLUICE_TESTS_UNIT_LIB_BASE_BASE_TEST_H
#define SLUICE_TESTS_UNIT_LIB_BASE_BASE_TEST_H

#include <check.h>

Suite *log_suite(void);
Suite *elementary_suite(void);
Suite *statistics_suite(void);

#endif
