/* SPDX-License-Identifier: Apache-2.0 */
/* The seccomp filter of a profile, made from the tables. */
#ifndef SLUICE_SANDBOX_FILTER_H
#define SLUICE_SANDBOX_FILTER_H

#include <linux/filter.h>

#include "lib/sandbox/sandbox.h"

#define FILTER_MAX 1024

struct filter {
    unsigned short count;
    struct sock_filter code[FILTER_MAX];
};

void filter_make(enum sandbox_profile profile, struct filter *filter);

/* "?" for an unknown number. */
const char *filter_call_name(int number);

#endif
