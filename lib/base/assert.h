/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions about the process's own state: always compiled in, fatal (exit message, then abort).
 * For untrusted input (files, messages, shared memory of another process) use errors
 * (lib/base/error.h). */
#ifndef SLUICE_BASE_ASSERT_H
#define SLUICE_BASE_ASSERT_H

#include "lib/base/log.h"

#define sl_assert(cond)                                                                            \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            log_panic(__FILE__, __LINE__, __func__, "assertion failed: %s", #cond);                \
    } while (0)

#define sl_panic(...) log_panic(__FILE__, __LINE__, __func__, __VA_ARGS__)

/* Objects passed through void * have a magic as their first member (uint32_t magic). */
#define OBJ_CHECK(ptr, MAGIC)                                                                      \
    do {                                                                                           \
        sl_assert((ptr) != NULL);                                                                  \
        sl_assert((ptr)->magic == (MAGIC));                                                        \
    } while (0)

#endif
