/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the statements of a template: output, if, for, set and macros, each in its scope. */
#include "lib/jinja/run/run.h"

void jscope_push(struct jrun *r, struct jscope *outer)
{
    struct jscope *s = jheap_get(r->h, sizeof *s);
    s->outer = outer;
    r->scope = s;
}

void jdefine(struct jrun *r, const struct jstring *name, struct jvalue v)
{
    struct jscope *s = r->scope;
    r->h->steps += s->count / 16;
    for (size_t i = 0; i < s->count; i++)
        if (s->at[i].name == name) {
            s->at[i].value = v;
            return;
        }
    s->at = jheap_grow(r->h, s->at, s->count, &s->capacity, sizeof *s->at);
    s->at[s->count++] = (struct jvariable){name, v};
}

static void assign_member(struct jrun *r, const struct jnode *target, struct jvalue v)
{
    struct jvalue of = jevaluate(r, target->a);
    if (of.kind != JNAMESPACE)
        jheap_fail(r->h, "cannot assign attribute on non-namespace object");
    jdict_set(r->h, of.dict, jstring_value(target->name), v);
}

void jassign(struct jrun *r, const struct jnode *target, struct jvalue v)
{
    if (target->kind == JNODE_NAME) {
        jdefine(r, target->name, v);
    } else if (target->kind == JNODE_MEMBER) {
        assign_member(r, target, v);
    } else {
        const struct jlist *l = jiterate(r->h, &v);
        if (l->count != target->list.count)
            jheap_fail(r->h, "%zu values to unpack, %zu expected", l->count, target->list.count);
        jheap_enter(r->h);
        for (size_t i = 0; i < l->count; i++)
            jassign(r, target->list.at[i], l->at[i]);
        jheap_leave(r->h);
    }
}

/* What statements write, in a scope of their own. If `break` or `continue` ends them, it is
 * lost. */
static enum jflow capture(struct jrun *r, const struct jnodes *body, struct jvalue *v)
{
    struct jbuffer *out = r->out, buffer = {0};
    struct jscope *scope = r->scope;
    jscope_push(r, scope);
    r->out = &buffer;
    enum jflow flow = jexecute(r, body);
    r->out = out;
    r->scope = scope;
    *v = jstring_value(jbuffer_take(r->h, &buffer));
    return flow;
}

/* Applies the filters around what a block wrote. */
static struct jvalue filtered(struct jrun *r, const struct jnode *filter, struct jvalue v)
{
    if (!filter)
        return v;
    jheap_enter(r->h);
    v = filtered(r, filter->a, v);
    jheap_leave(r->h);
    struct jcall call = jarguments_of(r, filter->args);
    return jfilter(r, filter->name, &v, &call);
}

static enum jflow execute_body_of(struct jrun *r, const struct jnodes *body, struct jscope *outer)
{
    enum jflow flow = jexecute(r, body);
    r->scope = outer;
    return flow;
}

static void keep_scopes(struct jscope *s)
{
    for (; s && !s->kept; s = s->outer)
        s->kept = true;
}

/* The scope of the next turn: that of the turn before, if nothing refers to it. */
static void turn_scope(struct jrun *r, struct jscope *before, struct jscope *outer)
{
    if (!before || before->kept) {
        jscope_push(r, outer);
    } else {
        before->count = 0;
        r->scope = before;
    }
}

static void execute_for(struct jrun *r, const struct jnode *n)
{
    struct jvalue v;
    struct jscope *outer = r->scope, *turn = NULL;
    struct jloop *loop = jheap_get(r->h, sizeof *loop);
    *loop = (struct jloop){.node = n, .outer = outer};
    if (!jrange_of(r, n->b, &loop->range)) {
        v = jevaluate(r, n->b);
        loop->items = jiterate(r->h, &v);
    }
    const struct jstring *name = jname(r->h, r->names, "loop", 4);
    unsigned constant = jloop_constant_conditions(r, n);
    bool any = false, done = false; /* done: a turn was not left by break or continue */
    if (n->c)                       /* evaluated with it whenever an element is needed */
        keep_scopes(outer);
    while (jloop_next(r, loop, &v)) {
        jheap_step(r->h);
        loop->has_previous = any;
        loop->previous = loop->current;
        loop->current = v;
        loop->index0 += any;
        any = true;
        turn_scope(r, turn, outer);
        turn = r->scope;
        jdefine(r, name, (struct jvalue){.kind = JLOOP, .object = loop});
        jassign(r, n->a, v);
        bool idle = constant > 0 && jloop_idle(r, n, constant);
        done |= idle;
        if (idle)
            break;
        enum jflow flow = execute_body_of(r, &n->list, outer);
        done |= flow == JFLOW_NEXT;
        if (flow == JFLOW_BREAK)
            break;
    }
    r->scope = outer;
    if (!done && n->other.count > 0) {
        jscope_push(r, outer);
        execute_body_of(r, &n->other, outer);
    }
}

static enum jflow execute_if(struct jrun *r, const struct jnode *n)
{
    for (;;) {
        struct jvalue v = jevaluate(r, n->a);
        if (jtruth(&v))
            return jexecute(r, &n->list);
        if (n->other.count != 1 || n->other.at[0]->kind != JNODE_IF)
            return jexecute(r, &n->other);
        n = n->other.at[0];
    }
}

static enum jflow execute_with(struct jrun *r, const struct jnode *n)
{
    struct jscope *outer = r->scope;
    struct jvalue *values = jheap_array(r->h, n->defaults.count, sizeof *values);
    for (size_t i = 0; i < n->defaults.count; i++)
        values[i] = jevaluate(r, n->defaults.at[i]);
    jscope_push(r, outer);
    for (size_t i = 0; i < n->parameters.count; i++)
        jassign(r, n->parameters.at[i], values[i]);
    return execute_body_of(r, &n->list, outer);
}

static struct jvalue macro_of(struct jrun *r, const struct jnode *n)
{
    struct jmacro *m = jheap_get(r->h, sizeof *m);
    *m = (struct jmacro){n, r->scope};
    keep_scopes(r->scope);
    return (struct jvalue){.kind = JMACRO, .object = m};
}

static struct jvalue call_block(struct jrun *r, const struct jnode *n)
{
    struct jvalue callee = jevaluate(r, n->a->a);
    struct jcall call = jarguments_of(r, n->a->args);
    struct jkeyword *named = jheap_array(r->h, call.named_count + 1, sizeof *named);
    for (size_t i = 0; i < call.named_count; i++)
        named[i] = call.named[i];
    const struct jstring *caller = jname(r->h, r->names, "caller", 6);
    named[call.named_count++] = (struct jkeyword){caller, caller, macro_of(r, n)};
    call.named = named;
    return jcall_value(r, &callee, &call);
}

static enum jflow execute(struct jrun *r, const struct jnode *n)
{
    struct jvalue v;
    enum jflow flow;
    switch ((enum jnode_kind)n->kind) {
    case JNODE_FOR: execute_for(r, n); return JFLOW_NEXT;
    case JNODE_IF: return execute_if(r, n);
    case JNODE_WITH: return execute_with(r, n);
    case JNODE_BREAK: return JFLOW_BREAK;
    case JNODE_CONTINUE: return JFLOW_CONTINUE;
    case JNODE_SET: jassign(r, n->a, jevaluate(r, n->b)); return JFLOW_NEXT;
    case JNODE_SET_BLOCK:
        flow = capture(r, &n->list, &v);
        if (flow == JFLOW_NEXT)
            jassign(r, n->a, filtered(r, n->b, v));
        return flow;
    case JNODE_MACRO: jdefine(r, n->name, macro_of(r, n)); return JFLOW_NEXT;
    case JNODE_DATA: v = n->value; break;
    case JNODE_OUTPUT: v = jevaluate(r, n->a); break;
    case JNODE_CALL_BLOCK: v = call_block(r, n); break;
    default: /* JNODE_FILTER_BLOCK */
        flow = capture(r, &n->list, &v);
        if (flow != JFLOW_NEXT)
            return flow;
        v = filtered(r, n->a, v);
        break;
    }
    jprint(r->h, r->out, &v);
    return JFLOW_NEXT;
}

enum jflow jexecute(struct jrun *r, const struct jnodes *body)
{
    enum jflow flow = JFLOW_NEXT;
    jheap_enter(r->h);
    for (size_t i = 0; i < body->count && flow == JFLOW_NEXT; i++) {
        jheap_step(r->h);
        r->h->line = body->at[i]->line;
        flow = execute(r, body->at[i]);
    }
    jheap_leave(r->h);
    return flow;
}
