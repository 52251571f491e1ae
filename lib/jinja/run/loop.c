/* SPDX-License-Identifier: Apache-2.0 */
/* `loop`: conditions of a loop are evaluated when an element is needed, as in Python. */
#include "lib/jinja/run/run.h"

static bool admits(struct jrun *r, struct jloop *loop, struct jvalue v)
{
    struct jscope *scope = r->scope;
    jscope_push(r, loop->outer);
    jassign(r, loop->node->a, v);
    struct jvalue holds = jevaluate(r, loop->node->c);
    r->scope = scope;
    return jtruth(&holds);
}

static size_t count_of(const struct jloop *loop)
{
    return loop->items ? loop->items->count : loop->range.count;
}

static struct jvalue element(const struct jloop *loop, size_t i)
{
    return loop->items ? loop->items->at[i] : jrange_at(&loop->range, i);
}

static bool take(struct jrun *r, struct jloop *loop, struct jvalue *v)
{
    while (loop->next < count_of(loop)) {
        *v = element(loop, loop->next++);
        jheap_step(r->h);
        if (!loop->node->c || admits(r, loop, *v))
            return true;
    }
    return false;
}

bool jloop_next(struct jrun *r, struct jloop *loop, struct jvalue *v)
{
    if (!loop->peeked)
        return take(r, loop, v);
    loop->peeked = false;
    *v = loop->following;
    return true;
}

static bool peek(struct jrun *r, struct jloop *loop)
{
    if (!loop->peeked)
        loop->peeked = take(r, loop, &loop->following);
    return loop->peeked;
}

/* Elements after the current one. */
static int64_t remaining(struct jrun *r, struct jloop *loop)
{
    if (!loop->node->c)
        return (int64_t)(count_of(loop) - loop->next) + loop->peeked;
    struct jlist *rest = jlist_new(r->h, JFORM_LIST, 0).list;
    for (struct jvalue v; jloop_next(r, loop, &v);)
        jlist_add(r->h, rest, v);
    struct jnode *unconditional = jheap_get(r->h, sizeof *unconditional);
    *unconditional = *loop->node;
    unconditional->c = NULL;
    loop->node = unconditional;
    loop->items = rest;
    loop->next = 0;
    return (int64_t)rest->count;
}

/* ---- loops that only wait for their end ------------------------------------------------------ */

/* Templates that cannot use `break` search backwards through all messages with a namespace's flag:
 * {% for j in range(...) %}{% if not ns.found %}...{% endif %}{% endfor %}. Without an end of such
 * a loop, N messages take N * N turns. */

static bool is_constant(struct jrun *r, const struct jnode *n, const struct jstring *target);

static bool are_constant(struct jrun *r, const struct jnode *n, const struct jstring *target)
{
    jheap_enter(r->h);
    bool both = is_constant(r, n->a, target) && (!n->b || is_constant(r, n->b, target));
    jheap_leave(r->h);
    return both;
}

/* Without effects, and not of the turn, whose variable is `target`: no call, no `in`, which may
 * consume a generator, and only attributes of a variable: an attribute of a namespace may be the
 * loop itself. */
static bool is_constant(struct jrun *r, const struct jnode *n, const struct jstring *target)
{
    jheap_step(r->h);
    switch ((enum jnode_kind)n->kind) {
    case JNODE_CONST: return true;
    case JNODE_NAME: return !jstring_is(n->name, "loop") && n->name != target;
    case JNODE_ATTRIBUTE:
    case JNODE_ITEM: return n->a->kind == JNODE_NAME && are_constant(r, n, target);
    case JNODE_NOT:
    case JNODE_OR:
    case JNODE_AND: return are_constant(r, n, target);
    default: return false;
    }
}

unsigned jloop_constant_conditions(struct jrun *r, const struct jnode *loop)
{
    unsigned count = 0;
    const struct jnode *n = loop->list.count == 1 ? loop->list.at[0] : NULL;
    if (loop->c || loop->a->kind != JNODE_NAME) /* a later element may be an error to unpack */
        return 0;
    while (n && n->kind == JNODE_IF && is_constant(r, n->a, loop->a->name)) {
        count++;
        n = n->other.count == 1 ? n->other.at[0] : NULL;
    }
    return count;
}

bool jloop_idle(struct jrun *r, const struct jnode *loop, unsigned constant_conditions)
{
    const struct jnodes *branch = &loop->list;
    for (; constant_conditions > 0; constant_conditions--) {
        const struct jnode *n = branch->at[0];
        struct jvalue v = jevaluate(r, n->a);
        jheap_step(r->h);
        if (jtruth(&v))
            return n->list.count == 0;
        branch = &n->other;
    }
    return branch->count == 0;
}

struct jvalue jloop_attribute(struct jrun *r, struct jloop *loop, const struct jstring *name)
{
    int64_t index0 = (int64_t)loop->index0;
    if (jstring_is(name, "index"))
        return jint(index0 + 1);
    if (jstring_is(name, "index0"))
        return jint(index0);
    if (jstring_is(name, "first"))
        return jbool(index0 == 0);
    if (jstring_is(name, "last"))
        return jbool(!peek(r, loop));
    if (jstring_is(name, "length"))
        return jint(index0 + 1 + remaining(r, loop));
    if (jstring_is(name, "revindex"))
        return jint(remaining(r, loop) + 1);
    if (jstring_is(name, "revindex0"))
        return jint(remaining(r, loop));
    if (jstring_is(name, "previtem"))
        return loop->has_previous ? loop->previous : jundefined(r->h, "there is no previous item");
    if (jstring_is(name, "nextitem"))
        return peek(r, loop) ? loop->following : jundefined(r->h, "there is no next item");
    if (jstring_is(name, "depth"))
        return jint(1);
    if (jstring_is(name, "depth0"))
        return jint(0);
    struct jvalue self = {.kind = JLOOP, .object = loop};
    return jmethod_of(r, &self, name);
}
