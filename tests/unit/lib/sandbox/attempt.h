/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of the sandbox share this: how a process reports what became of an attempt. */
#ifndef SLUICE_UNIT_SANDBOX_ATTEMPT_H
#define SLUICE_UNIT_SANDBOX_ATTEMPT_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "lib/sandbox/sandbox.h"

/* Exit statuses of a process that attempts something. */
enum { PERMITTED, FAILED_EACCES, FAILED_EPERM, FAILED_OTHER, NO_SANDBOX };

static inline int outcome(long rc)
{
    if (rc >= 0)
        return PERMITTED;
    return errno == EACCES ? FAILED_EACCES : errno == EPERM ? FAILED_EPERM : FAILED_OTHER;
}

/* States a SKIP. */
static inline bool unavailable(void)
{
    unsigned landlock;
    bool none = sandbox_disabled() || !(sandbox_available(&landlock) & SANDBOX_SECCOMP);
    if (none)
        printf("SKIP sandbox: %s\n", sandbox_disabled() ? "a build with sanitizers" : "no seccomp");
    return none;
}

#endif
