/* SPDX-License-Identifier: Apache-2.0 */
/* The header of Check, whose assertions each report that they were reached, with a system call: in
 * a loop these take longer than the test. Here an assertion reports it once per test. Of a crash,
 * Check states the last assertion that was reached for the first time. (No include guard: that of
 * Check's own header suffices.) */
#include_next <check.h>

#ifndef SLUICE_TESTS_HARNESS_CHECK_CHECK_H
#define SLUICE_TESTS_HARNESS_CHECK_CHECK_H

#define _mark_point(file, line)                                                                    \
    __extension__({                                                                                \
        static char reached;                                                                       \
        if (!reached) {                                                                            \
            reached = 1;                                                                           \
            (_mark_point)(file, line);                                                             \
        }                                                                                          \
    })

#endif
