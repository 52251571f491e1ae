/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that GBNF and regular expressions have in common: characters, their escapes, and
 * classes. */
#ifndef SLUICE_GRAMMAR_ESCAPE_H
#define SLUICE_GRAMMAR_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/grammar/expr.h"

#define CLASS_RANGES_MAX 1024

struct cursor {
    const char *at, *end; /* UTF-8 */
    uint32_t line;
};

/* The next byte, -1 at the end. */
static inline int cursor_peek(const struct cursor *c)
{
    return c->at < c->end ? (unsigned char)*c->at : -1;
}

/* The next character of valid UTF-8. There is one. */
uint32_t cursor_character(struct cursor *c);

/* `digits` hexadecimal digits; false: there are fewer. */
bool cursor_hex(struct cursor *c, unsigned digits, uint32_t *value);

/* The next character, or what GBNF's escape stands for; false: no such escape. */
bool cursor_escaped(struct cursor *c, uint32_t *value);

/* Bytes of a character in UTF-8; 0: it is none. */
size_t utf8_encode(uint32_t c, char bytes[4]);

/* A class of GBNF, from [ to ]. *why: what is wrong. */
size_t class_read(struct cursor *c, struct char_range ranges[CLASS_RANGES_MAX], bool *negated,
                  const char **why);

#endif
