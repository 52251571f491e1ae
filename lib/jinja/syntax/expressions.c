/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, one function per level of precedence. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/syntax/parser.h"

/* ---- tokens ---- */

struct jnode *jnode_new(struct jparser *p, enum jnode_kind kind)
{
    struct jnode *n = jheap_get(p->h, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = p->at->line;
    return n;
}

void jnodes_add(struct jparser *p, struct jnodes *list, struct jnode *n)
{
    list->at = jheap_grow(p->h, list->at, list->count, &list->capacity, sizeof *list->at);
    list->at[list->count++] = n;
}

bool jtoken_is(const struct jtoken *t, const char *name)
{
    return t->kind == JTOKEN_NAME && jstring_is(t->value.string, name);
}

static bool op_is(const struct jparser *p, enum jop op)
{
    return p->at->kind == JTOKEN_OPERATOR && p->at->op == op;
}

bool jaccept_word(struct jparser *p, const char *name)
{
    bool is = jtoken_is(p->at, name);
    p->at += is;
    return is;
}

bool jaccept_op(struct jparser *p, enum jop op)
{
    bool is = op_is(p, op);
    p->at += is;
    return is;
}

_Noreturn void junexpected(struct jparser *p)
{
    static const char *const kinds[] = {"text",
                                        "a block",
                                        "the end of a block",
                                        "an output",
                                        "the end of an output",
                                        "",
                                        "a literal",
                                        "an operator",
                                        "the end of the template"};
    p->h->line = p->at->line;
    if (p->at->kind == JTOKEN_NAME)
        jheap_fail(p->h, "unexpected '%.*s'", (int)p->at->value.string->bytes,
                   p->at->value.string->text);
    jheap_fail(p->h, "unexpected %s", kinds[p->at->kind]);
}

void jexpect_word(struct jparser *p, const char *name)
{
    if (!jaccept_word(p, name))
        junexpected(p);
}

void jexpect_op(struct jparser *p, enum jop op)
{
    if (!jaccept_op(p, op))
        junexpected(p);
}

const struct jstring *jexpect_name(struct jparser *p)
{
    if (p->at->kind != JTOKEN_NAME)
        junexpected(p);
    return p->at++->value.string;
}

/* ---- arguments ---- */

static void parse_argument(struct jparser *p, struct jarguments *args)
{
    const struct jtoken *next = p->at + 1;
    if (jaccept_op(p, JOP_MUL)) {
        if (args->star || args->double_star)
            junexpected(p);
        args->star = jparse_expression(p, true);
    } else if (jaccept_op(p, JOP_POW)) {
        if (args->double_star)
            junexpected(p);
        args->double_star = jparse_expression(p, true);
    } else if (p->at->kind == JTOKEN_NAME && next->kind == JTOKEN_OPERATOR &&
               next->op == JOP_ASSIGN && !args->double_star) {
        args->named = jheap_grow(p->h, args->named, args->named_count, &args->named_capacity,
                                 sizeof *args->named);
        struct jnamed *named = &args->named[args->named_count++];
        named->name = p->at->value.string;
        p->at += 2;
        named->value = jparse_expression(p, true);
    } else {
        if (args->star || args->double_star || args->named_count > 0)
            junexpected(p);
        jnodes_add(p, &args->list, jparse_expression(p, true));
    }
}

/* After "(". */
static struct jarguments *parse_arguments(struct jparser *p)
{
    struct jarguments *args = jheap_get(p->h, sizeof *args);
    for (bool first = true; !jaccept_op(p, JOP_RPAREN); first = false) {
        if (!first) {
            jexpect_op(p, JOP_COMMA);
            if (jaccept_op(p, JOP_RPAREN))
                break;
        }
        parse_argument(p, args);
    }
    return args;
}

/* ---- primaries ---- */

static struct jnode *parse_name(struct jparser *p)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    struct jnode *n = jnode_new(p, JNODE_NAME);
    n->name = jexpect_name(p);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (jstring_is(n->name, words[i])) {
            n->kind = JNODE_CONST;
            n->value = i < 4 ? jbool(i < 2) : jnone();
        }
    return n;
}

static struct jnode *parse_const(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_CONST);
    n->value = p->at++->value;
    while (n->value.kind == JSTRING && p->at->kind == JTOKEN_CONST && p->at->value.kind == JSTRING)
        n->value = jstring_value(jstring_join(p->h, n->value.string, p->at++->value.string));
    return n;
}

static struct jnode *parse_list(struct jparser *p, enum jnode_kind kind, enum jop close)
{
    struct jnode *n = jnode_new(p, kind);
    p->at++;
    for (bool first = true; !jaccept_op(p, close); first = false) {
        if (!first) {
            jexpect_op(p, JOP_COMMA);
            if (jaccept_op(p, close))
                break;
        }
        jnodes_add(p, &n->list, jparse_expression(p, true));
        if (kind == JNODE_DICT) {
            jexpect_op(p, JOP_COLON);
            jnodes_add(p, &n->list, jparse_expression(p, true));
        }
    }
    return n;
}

static struct jnode *parse_parentheses(struct jparser *p)
{
    struct jnode *n;
    p->at++;
    if (op_is(p, JOP_RPAREN))
        n = jnode_new(p, JNODE_TUPLE);
    else
        n = jparse_tuple(p, true);
    jexpect_op(p, JOP_RPAREN);
    return n;
}

static struct jnode *parse_primary(struct jparser *p)
{
    if (p->at->kind == JTOKEN_NAME)
        return parse_name(p);
    if (p->at->kind == JTOKEN_CONST)
        return parse_const(p);
    if (op_is(p, JOP_LPAREN))
        return parse_parentheses(p);
    if (op_is(p, JOP_LBRACKET))
        return parse_list(p, JNODE_LIST, JOP_RBRACKET);
    if (op_is(p, JOP_LBRACE))
        return parse_list(p, JNODE_DICT, JOP_RBRACE);
    junexpected(p);
}

static struct jnode *parse_subscript(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_SLICE);
    if (!op_is(p, JOP_COLON)) {
        n->a = jparse_expression(p, true);
        if (!op_is(p, JOP_COLON))
            return n->a;
    }
    p->at++;
    if (!op_is(p, JOP_COLON) && !op_is(p, JOP_RBRACKET) && !op_is(p, JOP_COMMA))
        n->b = jparse_expression(p, true);
    if (jaccept_op(p, JOP_COLON) && !op_is(p, JOP_RBRACKET) && !op_is(p, JOP_COMMA))
        n->c = jparse_expression(p, true);
    return n;
}

static struct jnode *parse_item(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jnode_new(p, JNODE_ITEM);
    p->at++;
    n->a = of;
    n->b = parse_subscript(p);
    if (op_is(p, JOP_COMMA)) {
        struct jnode *tuple = jnode_new(p, JNODE_TUPLE);
        jnodes_add(p, &tuple->list, n->b);
        while (jaccept_op(p, JOP_COMMA))
            jnodes_add(p, &tuple->list, parse_subscript(p));
        n->b = tuple;
    }
    jexpect_op(p, JOP_RBRACKET);
    return n;
}

static struct jnode *parse_attribute(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jnode_new(p, JNODE_ATTRIBUTE);
    p->at++;
    n->a = of;
    if (p->at->kind == JTOKEN_CONST && p->at->value.kind == JINT) {
        n->kind = JNODE_ITEM;
        n->b = parse_const(p);
    } else {
        n->name = jexpect_name(p);
    }
    return n;
}

static struct jnode *parse_call(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jnode_new(p, JNODE_CALL);
    p->at++;
    n->a = of;
    n->args = parse_arguments(p);
    return n;
}

static struct jnode *parse_postfix(struct jparser *p, struct jnode *n)
{
    for (;;) {
        if (op_is(p, JOP_DOT))
            n = parse_attribute(p, n);
        else if (op_is(p, JOP_LBRACKET))
            n = parse_item(p, n);
        else if (op_is(p, JOP_LPAREN))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* ---- filters and tests ---- */

/* A name may have dots; none of ours has, and a name that does not exist fails when it is used. */
static const struct jstring *dotted_name(struct jparser *p)
{
    const struct jstring *name = jexpect_name(p);
    while (jaccept_op(p, JOP_DOT))
        name = jstring_join(p->h, jstring_join(p->h, name, jstring_of(p->h, ".", 1, 0)),
                            jexpect_name(p));
    return name;
}

struct jnode *jparse_filters(struct jparser *p, struct jnode *of, bool first)
{
    for (; first || jaccept_op(p, JOP_PIPE); first = false) {
        struct jnode *n = jnode_new(p, JNODE_FILTER);
        n->a = of;
        n->name = dotted_name(p);
        n->args = jaccept_op(p, JOP_LPAREN) ? parse_arguments(p) : jheap_get(p->h, sizeof *n->args);
        of = n;
    }
    return of;
}

static bool argument_follows(const struct jparser *p)
{
    if (p->at->kind == JTOKEN_CONST)
        return true;
    if (p->at->kind == JTOKEN_NAME)
        return !jtoken_is(p->at, "else") && !jtoken_is(p->at, "or") && !jtoken_is(p->at, "and");
    return op_is(p, JOP_LBRACKET) || op_is(p, JOP_LBRACE);
}

/* After "is". */
static struct jnode *parse_test(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jnode_new(p, JNODE_TEST);
    bool negated = jaccept_word(p, "not");
    n->a = of;
    n->name = dotted_name(p);
    n->args = jheap_get(p->h, sizeof *n->args);
    if (jaccept_op(p, JOP_LPAREN)) {
        n->args = parse_arguments(p);
    } else if (argument_follows(p)) {
        if (jtoken_is(p->at, "is"))
            junexpected(p);
        jnodes_add(p, &n->args->list, parse_postfix(p, parse_primary(p)));
    }
    if (!negated)
        return n;
    struct jnode *not = jnode_new(p, JNODE_NOT);
    not ->a = n;
    return not ;
}

static struct jnode *parse_filtered(struct jparser *p, struct jnode *n)
{
    for (;;) {
        if (op_is(p, JOP_PIPE))
            n = jparse_filters(p, n, false);
        else if (jaccept_word(p, "is"))
            n = parse_test(p, n);
        else if (op_is(p, JOP_LPAREN))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* ---- operators ---- */

static struct jnode *parse_unary(struct jparser *p, bool with_filter)
{
    struct jnode *n;
    jheap_enter(p->h);
    if (op_is(p, JOP_SUB) || op_is(p, JOP_ADD)) {
        n = jnode_new(p, op_is(p, JOP_SUB) ? JNODE_NEGATIVE : JNODE_POSITIVE);
        p->at++;
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    n = with_filter ? parse_filtered(p, n) : n;
    jheap_leave(p->h);
    return n;
}

static struct jnode *parse_concat(struct jparser *p);
static struct jnode *parse_binary(struct jparser *p, unsigned level);

static const struct level {
    enum jop ops[5];
} levels[] = {{{JOP_ADD, JOP_SUB, JOP_NONE}},
              {{JOP_MUL, JOP_DIV, JOP_FLOORDIV, JOP_MOD, JOP_NONE}},
              {{JOP_POW, JOP_NONE}}};

static bool op_of_level(const struct jparser *p, unsigned level)
{
    for (const enum jop *op = levels[level].ops; *op != JOP_NONE; op++)
        if (op_is(p, *op))
            return true;
    return false;
}

static struct jnode *parse_operand(struct jparser *p, unsigned level)
{
    return level == 0 ? parse_concat(p) : level == 1 ? parse_binary(p, 2) : parse_unary(p, true);
}

/* Level 0: a + b, 1: a * b, 2: a ** b, all from left to right; "~" is between 0 and 1. */
static struct jnode *parse_binary(struct jparser *p, unsigned level)
{
    struct jnode *n = parse_operand(p, level);
    while (op_of_level(p, level)) {
        struct jnode *binary = jnode_new(p, JNODE_BINARY);
        binary->op = p->at++->op;
        binary->a = n;
        binary->b = parse_operand(p, level);
        n = binary;
    }
    return n;
}

static struct jnode *parse_concat(struct jparser *p)
{
    struct jnode *n = parse_binary(p, 1);
    if (!op_is(p, JOP_TILDE))
        return n;
    struct jnode *concat = jnode_new(p, JNODE_CONCAT);
    jnodes_add(p, &concat->list, n);
    while (jaccept_op(p, JOP_TILDE))
        jnodes_add(p, &concat->list, parse_binary(p, 1));
    return concat;
}

static enum jop accept_comparison(struct jparser *p)
{
    if (p->at->kind == JTOKEN_OPERATOR && p->at->op >= JOP_EQ && p->at->op <= JOP_LT)
        return (enum jop)p->at++->op;
    if (jaccept_word(p, "in"))
        return JOP_IN;
    if (jtoken_is(p->at, "not") && jtoken_is(p->at + 1, "in")) {
        p->at += 2;
        return JOP_NOT_IN;
    }
    return JOP_NONE;
}

static struct jnode *parse_compare(struct jparser *p)
{
    struct jnode *n = parse_binary(p, 0), *compare = NULL;
    for (enum jop op; (op = accept_comparison(p)) != JOP_NONE;) {
        if (!compare) {
            compare = jnode_new(p, JNODE_COMPARE);
            compare->a = n;
        }
        struct jnode *operand = jnode_new(p, JNODE_OPERAND);
        operand->op = (uint8_t)op;
        operand->a = parse_binary(p, 0);
        jnodes_add(p, &compare->list, operand);
    }
    return compare ? compare : n;
}

static struct jnode *parse_not(struct jparser *p)
{
    bool not = false, any = false;
    for (; jtoken_is(p->at, "not"); p->at++) {
        not = !not ;
        any = true;
    }
    struct jnode *n = parse_compare(p);
    for (int i = any ? (not ? 1 : 2) : 0; i > 0; i--) { /* not not x: its truth */
        struct jnode *outer = jnode_new(p, JNODE_NOT);
        outer->a = n;
        n = outer;
    }
    return n;
}

static struct jnode *parse_logical(struct jparser *p, bool or)
{
    struct jnode *n = or ? parse_logical(p, false) : parse_not(p);
    while (jaccept_word(p, or ? "or" : "and")) {
        struct jnode *logical = jnode_new(p, or ? JNODE_OR : JNODE_AND);
        logical->a = n;
        logical->b = or ? parse_logical(p, false) : parse_not(p);
        n = logical;
    }
    return n;
}

struct jnode *jparse_expression(struct jparser *p, bool with_if)
{
    jheap_enter(p->h);
    jheap_step(p->h);
    struct jnode *n = parse_logical(p, true);
    while (with_if && jaccept_word(p, "if")) {
        struct jnode *choice = jnode_new(p, JNODE_IF_ELSE);
        choice->a = n;
        choice->b = parse_logical(p, true);
        if (jaccept_word(p, "else"))
            choice->c = jparse_expression(p, true);
        n = choice;
    }
    jheap_leave(p->h);
    return n;
}

/* ---- tuples without parentheses, targets ---- */

static bool tuple_ends(const struct jparser *p)
{
    return p->at->kind == JTOKEN_BLOCK_END || p->at->kind == JTOKEN_VARIABLE_END ||
           op_is(p, JOP_RPAREN) || op_is(p, JOP_ASSIGN) || jtoken_is(p->at, "in");
}

struct jnode *jparse_tuple(struct jparser *p, bool with_if)
{
    struct jnode *first = jparse_expression(p, with_if);
    if (!op_is(p, JOP_COMMA))
        return first;
    struct jnode *n = jnode_new(p, JNODE_TUPLE);
    jnodes_add(p, &n->list, first);
    while (jaccept_op(p, JOP_COMMA) && !tuple_ends(p))
        jnodes_add(p, &n->list, jparse_expression(p, with_if));
    return n;
}

static struct jnode *parse_one_target(struct jparser *p, bool members)
{
    if (op_is(p, JOP_LPAREN)) {
        p->at++;
        jheap_enter(p->h);
        struct jnode *inner = jparse_target(p, members);
        jheap_leave(p->h);
        jexpect_op(p, JOP_RPAREN);
        return inner;
    }
    struct jnode *n = parse_name(p);
    if (n->kind != JNODE_NAME)
        junexpected(p);
    if (!members || !op_is(p, JOP_DOT))
        return n;
    p->at++;
    struct jnode *member = jnode_new(p, JNODE_MEMBER);
    member->a = n;
    member->name = jexpect_name(p);
    return member;
}

struct jnode *jparse_target(struct jparser *p, bool members)
{
    struct jnode *first = parse_one_target(p, members);
    if (!op_is(p, JOP_COMMA))
        return first;
    struct jnode *n = jnode_new(p, JNODE_TUPLE);
    jnodes_add(p, &n->list, first);
    while (jaccept_op(p, JOP_COMMA) && !tuple_ends(p))
        jnodes_add(p, &n->list, parse_one_target(p, members));
    return n;
}
