/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the parser: expressions.c and statements.c. Private to lib/jinja/syntax. */
#ifndef SLUICE_JINJA_SYNTAX_PARSER_H
#define SLUICE_JINJA_SYNTAX_PARSER_H

#include "lib/jinja/syntax/node.h"

struct jparser {
    struct jheap *h;
    const struct jtoken *at; /* the next token */
    unsigned loops;          /* around the statement */
};

struct jnode *jnode_new(struct jparser *p, enum jnode_kind kind);
void jnodes_add(struct jparser *p, struct jnodes *list, struct jnode *n);

bool jtoken_is(const struct jtoken *t, const char *name);
bool jaccept_word(struct jparser *p, const char *name);
bool jaccept_op(struct jparser *p, enum jop op);
void jexpect_word(struct jparser *p, const char *name);
void jexpect_op(struct jparser *p, enum jop op);
const struct jstring *jexpect_name(struct jparser *p);
_Noreturn void junexpected(struct jparser *p);

/* with_if: `a if b` belongs to it. */
struct jnode *jparse_expression(struct jparser *p, bool with_if);
/* One expression, or a tuple of them without parentheses. */
struct jnode *jparse_tuple(struct jparser *p, bool with_if);
/* Names, members of namespaces (where allowed), tuples of them. */
struct jnode *jparse_target(struct jparser *p, bool members);
/* filter: "name(args)|name(args)" of a filter block, or NULL: "|..." after a set block's name. */
struct jnode *jparse_filters(struct jparser *p, struct jnode *of, bool first);

#endif
