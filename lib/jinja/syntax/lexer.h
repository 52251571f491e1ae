/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a template, with the white space that trim_blocks and lstrip_blocks remove already
 * gone: a newline after a block, and blanks before one at the start of a line. */
#ifndef SLUICE_JINJA_SYNTAX_LEXER_H
#define SLUICE_JINJA_SYNTAX_LEXER_H

#include "lib/jinja/value/value.h"

/* JOPERATOR(NAME, text): longest first. */
#define JOPERATORS(X)                                                                              \
    X(FLOORDIV, "//")                                                                              \
    X(POW, "**")                                                                                   \
    X(EQ, "==")                                                                                    \
    X(NE, "!=")                                                                                    \
    X(GE, ">=")                                                                                    \
    X(LE, "<=")                                                                                    \
    X(GT, ">")                                                                                     \
    X(LT, "<")                                                                                     \
    X(ASSIGN, "=")                                                                                 \
    X(ADD, "+")                                                                                    \
    X(SUB, "-")                                                                                    \
    X(MUL, "*")                                                                                    \
    X(DIV, "/")                                                                                    \
    X(MOD, "%")                                                                                    \
    X(TILDE, "~")                                                                                  \
    X(LBRACKET, "[")                                                                               \
    X(RBRACKET, "]")                                                                               \
    X(LPAREN, "(")                                                                                 \
    X(RPAREN, ")")                                                                                 \
    X(LBRACE, "{")                                                                                 \
    X(RBRACE, "}")                                                                                 \
    X(DOT, ".")                                                                                    \
    X(COLON, ":")                                                                                  \
    X(PIPE, "|")                                                                                   \
    X(COMMA, ",")

enum jop {
    JOP_NONE,
#define X(name, text) JOP_##name,
    JOPERATORS(X)
#undef X
        JOP_IN, /* words */
    JOP_NOT_IN,
};

enum jtoken_kind {
    JTOKEN_DATA, /* value: the text */
    JTOKEN_BLOCK,
    JTOKEN_BLOCK_END,
    JTOKEN_VARIABLE,
    JTOKEN_VARIABLE_END,
    JTOKEN_NAME,  /* value: the name; equal names have the same jstring */
    JTOKEN_CONST, /* value: a string or number */
    JTOKEN_OPERATOR,
    JTOKEN_END,
};

struct jtoken {
    uint8_t kind; /* enum jtoken_kind */
    uint8_t op;   /* enum jop */
    uint32_t line;
    struct jvalue value;
};

struct jnames; /* of the template, each once */

struct jtokens {
    struct jtoken *at; /* the last is JTOKEN_END */
    size_t count, capacity;
    struct jnames *names;
};

/* Fails with jheap_fail on what is no template. */
struct jtokens jlex(struct jheap *h, const char *source, size_t bytes);

/* The name's jstring in `names`. */
const struct jstring *jname(struct jheap *h, struct jnames *names, const char *text, size_t bytes);

/* A table with the same jstrings, to which names may be added. */
struct jnames *jnames_copy(struct jheap *h, const struct jnames *names);

#endif
