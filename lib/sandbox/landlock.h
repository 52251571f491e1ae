/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock, by system calls: the headers of older systems lack parts of it. */
#ifndef SLUICE_SANDBOX_LANDLOCK_H
#define SLUICE_SANDBOX_LANDLOCK_H

#include "lib/sandbox/sandbox.h"

/* Version of the kernel's interface; 0: none. */
unsigned landlock_version(void);

/* Sets SANDBOX_LANDLOCK and SANDBOX_NO_TCP in *parts. */
int landlock_restrict(const struct sandbox_rule *rules, size_t count, uint32_t *parts,
                      struct error *error);

#endif
