/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted text for log lines and error messages. */
#ifndef SLUICE_TEXT_PRINTABLE_H
#define SLUICE_TEXT_PRINTABLE_H

#include <stddef.h>

struct printable {
    char text[72];
};

/* The first 71 bytes of `text`; every byte that is not printable ASCII becomes '?'. */
struct printable printable(const char *text, size_t bytes);

#endif
