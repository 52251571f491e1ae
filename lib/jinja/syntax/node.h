/* SPDX-License-Identifier: Apache-2.0 */
/* The syntax tree of a template. */
#ifndef SLUICE_JINJA_SYNTAX_NODE_H
#define SLUICE_JINJA_SYNTAX_NODE_H

#include "lib/jinja/syntax/lexer.h"

enum jnode_kind {
    /* expressions */
    JNODE_CONST,   /* value */
    JNODE_NAME,    /* name */
    JNODE_TUPLE,   /* list */
    JNODE_LIST,    /* list */
    JNODE_DICT,    /* list: key, value, key, value, ... */
    JNODE_IF_ELSE, /* a if b else c; c may be NULL */
    JNODE_OR,      /* a, b */
    JNODE_AND,
    JNODE_NOT,     /* a */
    JNODE_COMPARE, /* a, then list: JNODE_OPERAND */
    JNODE_OPERAND, /* op a */
    JNODE_BINARY,  /* a op b */
    JNODE_CONCAT,  /* list */
    JNODE_NEGATIVE,
    JNODE_POSITIVE,
    JNODE_ATTRIBUTE, /* a.name */
    JNODE_ITEM,      /* a[b]; op: JITEM_FOLDED */
    JNODE_SLICE,     /* a:b:c, each may be NULL */
    JNODE_CALL,      /* a(args) */
    JNODE_FILTER,    /* a|name(args); a NULL: what a block renders to */
    JNODE_TEST,      /* a is name(args) */
    JNODE_MEMBER,    /* other.name as a target; a: JNODE_NAME */
    /* statements */
    JNODE_DATA,   /* value */
    JNODE_OUTPUT, /* a */
    JNODE_FOR,    /* a: target, b: of what, c: condition or NULL, list, other: if there is none */
    JNODE_IF,     /* a, list, other (a JNODE_IF alone: elif) */
    JNODE_SET,    /* a = b */
    JNODE_SET_BLOCK,    /* a = list, filtered by b (may be NULL) */
    JNODE_MACRO,        /* name(parameters) list */
    JNODE_CALL_BLOCK,   /* a: the call; parameters and list: its caller */
    JNODE_FILTER_BLOCK, /* a: filter, list */
    JNODE_WITH,         /* parameters = defaults in a scope of its own around list */
    JNODE_BREAK,
    JNODE_CONTINUE,
};

/* Names that a macro uses, in `op` of a JNODE_MACRO or JNODE_CALL_BLOCK. */
enum { JMACRO_VARARGS = 1, JMACRO_KWARGS = 2, JMACRO_CALLER = 4 };

/* In `op` of a JNODE_ITEM with a slice: a part of what is no sequence is undefined, not an
 * error. */
enum { JITEM_FOLDED = 1 };

struct jnode;

struct jnodes {
    struct jnode **at;
    size_t count, capacity;
};

struct jnamed {
    const struct jstring *name;
    struct jnode *value;
};

struct jarguments {
    struct jnodes list;
    struct jnamed *named;
    size_t named_count, named_capacity;
    struct jnode *star, *double_star; /* may be NULL */
};

struct jnode {
    uint8_t kind; /* enum jnode_kind */
    uint8_t op;   /* enum jop */
    bool constant;
    uint32_t line;
    const struct jstring *name;
    struct jvalue value;
    struct jnode *a, *b, *c;
    struct jnodes list, other;
    struct jnodes parameters, defaults; /* defaults are those of the last parameters */
    struct jarguments *args;
};

/* The statements of a template. Fails with jheap_fail on what is no template. */
struct jnodes jparse(struct jheap *h, struct jtokens *tokens);

/* Finds what jinja2 computes in advance: expressions of constants, where an item of what has none
 * is undefined, slices included. */
void jfold(struct jheap *h, const struct jnodes *body);

#endif
