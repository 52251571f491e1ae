/* SPDX-License-Identifier: Apache-2.0 */
/* Literals of the template language, read from the text of a tag. Private to lib/jinja/syntax. */
#ifndef SLUICE_JINJA_SYNTAX_LITERAL_H
#define SLUICE_JINJA_SYNTAX_LITERAL_H

#include "lib/jinja/value/value.h"

/* The number at text[*at], an int or a float; *at moves after it. */
struct jvalue jliteral_number(struct jheap *h, const char *text, size_t bytes, size_t *at);

/* The string whose quote is at text[*at], its escapes replaced; *at moves after the other quote. */
struct jvalue jliteral_string(struct jheap *h, const char *text, size_t bytes, size_t *at);

#endif
