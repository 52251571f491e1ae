/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted text for log lines and error messages. */
#ifndef SLUICE_TEXT_PRINTABLE_H
#define SLUICE_TEXT_PRINTABLE_H

#include <stddef.h>

struct printable {
    char text[72];
};

/* The characters of `text` that 71 bytes have room for; those that control a terminal or the order
 * of text become '?', and what is no UTF-8 becomes U+FFFD (utf8.h). */
struct printable printable(const char *text, size_t bytes);

#endif
