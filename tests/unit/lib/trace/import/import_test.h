/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the sources of import_test. */
#ifndef SLUICE_TESTS_UNIT_LIB_TRACE_IMPORT_IMPORT_TEST_H
#define SLUICE_TESTS_UNIT_LIB_TRACE_IMPORT_IMPORT_TEST_H

#include <check.h>

TCase *recorded_case(void);

#endif
