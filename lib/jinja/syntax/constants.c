/* SPDX-License-Identifier: Apache-2.0 */
/* jinja2 computes expressions of constants before it renders, in another way than others: there, a
 * slice of what is no sequence is undefined; elsewhere it is an error. */
#include "lib/base/bytes.h"
#include "lib/jinja/syntax/node.h"

/* They call others by name, which jinja2 does not do in advance. */
static bool needs_context(const struct jstring *name)
{
    static const char *const names[] = {"map", "select", "reject", "selectattr", "rejectattr"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (jstring_is(name, names[i]))
            return true;
    return false;
}

static bool may_be_constant(const struct jnode *n)
{
    switch ((enum jnode_kind)n->kind) {
    case JNODE_NAME:
    case JNODE_CALL:
    case JNODE_MEMBER: return false;
    case JNODE_FILTER: return n->a && !needs_context(n->name);
    default: return n->kind < JNODE_DATA;
    }
}

static bool fold(struct jheap *h, struct jnode *n);

static bool fold_all(struct jheap *h, const struct jnodes *nodes)
{
    bool all = true;
    for (size_t i = 0; i < nodes->count; i++)
        all &= fold(h, nodes->at[i]);
    return all;
}

static bool fold_arguments(struct jheap *h, const struct jarguments *args)
{
    bool all = fold_all(h, &args->list);
    for (size_t i = 0; i < args->named_count; i++)
        all &= fold(h, args->named[i].value);
    all &= fold(h, args->star);
    all &= fold(h, args->double_star);
    return all;
}

/* `parent` is computed in advance, so this operand of it is, too. */
static void mark(struct jnode *operand)
{
    if (operand && operand->kind == JNODE_ITEM && operand->constant)
        operand->op = JITEM_FOLDED;
}

static void mark_operands(const struct jnode *n)
{
    mark(n->a);
    mark(n->b);
    mark(n->c);
    for (size_t i = 0; i < n->list.count && n->kind < JNODE_DATA; i++)
        mark(n->list.at[i]);
    for (size_t i = 0; n->args && i < n->args->list.count; i++)
        mark(n->args->list.at[i]);
}

/* NULL: no node. An elif after an elif is no deeper, as in the parser. */
static bool fold(struct jheap *h, struct jnode *n)
{
    if (!n)
        return true;
    jheap_enter(h);
    for (; n->kind == JNODE_IF && n->other.count == 1; n = n->other.at[0]) {
        fold(h, n->a);
        fold_all(h, &n->list);
    }
    bool all = fold(h, n->a);
    all &= fold(h, n->b);
    all &= fold(h, n->c);
    all &= fold_all(h, &n->list);
    all &= fold_all(h, &n->other);
    all &= fold_all(h, &n->parameters);
    all &= fold_all(h, &n->defaults);
    if (n->args)
        all &= fold_arguments(h, n->args);
    n->constant = all && may_be_constant(n);
    if (n->constant || n->kind == JNODE_OUTPUT)
        mark_operands(n);
    jheap_leave(h);
    return n->constant;
}

void jfold(struct jheap *h, const struct jnodes *body)
{
    fold_all(h, body);
}
