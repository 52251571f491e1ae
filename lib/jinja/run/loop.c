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

static bool take(struct jrun *r, struct jloop *loop, struct jvalue *v)
{
    while (loop->next < loop->items->count) {
        *v = loop->items->at[loop->next++];
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

/* Elements behind the current one. */
static int64_t remaining(struct jrun *r, struct jloop *loop)
{
    if (!loop->node->c)
        return (int64_t)(loop->items->count - loop->next) + loop->peeked;
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
