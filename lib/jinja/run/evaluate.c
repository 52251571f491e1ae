/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates the expressions of a template: names, attributes, operators, comparisons. */
#include <string.h>

#include "lib/jinja/run/run.h"

/* ---- names ---- */

static struct jvalue lookup(struct jrun *r, const struct jstring *name)
{
    size_t seen = 0; /* many or large scopes cost more than the step of this name */
    for (const struct jscope *s = r->scope; s; s = s->outer) {
        seen += 1 + s->count;
        r->h->steps += seen / 16;
        seen %= 16;
        for (size_t i = 0; i < s->count; i++)
            if (s->at[i].name == name)
                return s->at[i].value;
    }
    const struct jvalue *v = jdict_find_text(r->h, r->context, name->text, name->bytes);
    if (v)
        return *v;
    size_t number = jrow_find(jglobals.at, jglobals.count, name);
    if (number < jglobals.count)
        return (struct jvalue){.kind = JGLOBAL, .number = (unsigned)number};
    return jundefined(r->h, "'%.*s' is undefined", (int)name->bytes, name->text);
}

struct jvalue jattribute(struct jrun *r, const struct jvalue *of, const struct jstring *name)
{
    if (of->kind == JUNDEFINED)
        jheap_fail(r->h, "%s", of->missing);
    if (of->kind == JLOOP)
        return jloop_attribute(r, of->object, name);
    struct jvalue method = jmethod_of(r, of, name);
    if (method.kind != JUNDEFINED)
        return method;
    if (of->kind == JDICT || of->kind == JNAMESPACE) {
        const struct jvalue *v = jdict_find_text(r->h, of->dict, name->text, name->bytes);
        return v ? *v : method;
    }
    return method;
}

/* ---- items and slices ---- */

/* A character is found from the start of its string: its length is needed only from the end. */
static struct jvalue element(struct jrun *r, const struct jvalue *of, int64_t index)
{
    const struct jstring *s = of->kind == JSTRING ? of->string : NULL;
    if (index < 0)
        index += (int64_t)jlength(r->h, of);
    size_t from = s && index >= 0 ? jstring_offset(r->h, s, (size_t)index) : 0, to = from;
    if (index < 0 || (s ? from == s->bytes : index >= (int64_t)of->list->count))
        return jundefined(r->h, "%s has no element %lld", jtype_name(of), (long long)index);
    if (!s)
        return of->list->at[index];
    jchar_next(s->text, s->bytes, &to);
    return jstring_value(jstring_part(r->h, s, from, to));
}

struct jvalue jitem(struct jrun *r, const struct jvalue *of, const struct jvalue *key)
{
    if (of->kind == JUNDEFINED)
        jheap_fail(r->h, "%s", of->missing);
    bool indexed = of->kind == JSTRING || (of->kind == JLIST && of->list->form <= JFORM_RANGE);
    if (indexed && (key->kind == JINT || key->kind == JBOOL))
        return element(r, of, key->kind == JINT ? key->integer : key->truth);
    if (of->kind == JDICT && jis_key(r->h, key)) {
        const struct jvalue *v = jdict_find(r->h, of->dict, *key);
        if (v)
            return *v;
    }
    if (key->kind == JSTRING)
        return jattribute(r, of, key->string);
    return jundefined(r->h, "'%s' object has no such element", jtype_name(of));
}

static bool bound_of(struct jrun *r, const struct jnode *n, int64_t *bound)
{
    struct jvalue v = n ? jevaluate(r, n) : jnone();
    if (v.kind == JNONE)
        return false;
    *bound = jint_argument(r, &v, 0);
    return true;
}

/* A bound of a slice as an index, of Python's PySlice_AdjustIndices. */
static int64_t clamp(int64_t i, int64_t count, bool backwards)
{
    if (i < 0)
        i += count;
    if (i < 0)
        return backwards ? -1 : 0;
    return i >= count ? count - backwards : i;
}

static struct jvalue slice_text(struct jrun *r, const struct jstring *s, int64_t from, int64_t to)
{
    size_t a = jstring_offset(r->h, s, (size_t)from);
    size_t b = from < to ? jstring_offset(r->h, s, (size_t)to) : a;
    return jstring_value(jstring_part(r->h, s, a, b));
}

/* A part of a range is a range. */
static struct jvalue slice_range(struct jrun *r, const struct jlist *l, int64_t from, int64_t to,
                                 int64_t step)
{
    uint64_t first = (uint64_t)l->bounds[0], by = (uint64_t)l->bounds[2];
    uint64_t width = (uint64_t)(step < 0 ? from - to : to - from);
    uint64_t steps = step < 0 ? -(uint64_t)step : (uint64_t)step;
    bool none = step < 0 ? from <= to : from >= to;
    struct jrange range = {.first = (int64_t)(first + (uint64_t)from * by),
                           .step = (int64_t)(by * (uint64_t)step),
                           .count = none ? 0 : (width - 1) / steps + 1};
    return jrange_list(r, &range, (int64_t)(first + (uint64_t)to * by));
}

static struct jvalue slice(struct jrun *r, const struct jvalue *of, const struct jnode *item)
{
    const struct jnode *n = item->b;
    int64_t step = 1, from = 0, to = 0;
    if (of->kind == JUNDEFINED)
        jheap_fail(r->h, "%s", of->missing);
    if (of->kind != JSTRING && (of->kind != JLIST || of->list->form > JFORM_RANGE)) {
        if (item->op != JITEM_FOLDED)
            jheap_fail(r->h, "'%s' object is not subscriptable", jtype_name(of));
        return jundefined(r->h, "'%s' object has no parts", jtype_name(of));
    }
    int64_t count = (int64_t)jlength(r->h, of);
    bool has_from = bound_of(r, n->a, &from), has_to = bound_of(r, n->b, &to);
    bound_of(r, n->c, &step);
    if (step == 0)
        jheap_fail(r->h, "slice step cannot be zero");
    bool back = step < 0;
    from = has_from ? clamp(from, count, back) : back ? count - 1 : 0;
    to = has_to ? clamp(to, count, back) : back ? -1 : count;
    if (of->kind == JSTRING && step == 1)
        return slice_text(r, of->string, from, to);
    if (of->kind == JLIST && of->list->form == JFORM_RANGE)
        return slice_range(r, of->list, from, to, step);
    const struct jlist *l = jiterate(r->h, of);
    struct jvalue out = jlist_new(r->h, of->kind == JSTRING ? JFORM_LIST : of->list->form, 0);
    for (int64_t i = from; back ? i > to : i < to;) {
        jlist_add(r->h, out.list, l->at[i]);
        if (step > count || step < -count)
            break;
        i += step;
    }
    out.list->origin = of->kind == JSTRING ? JORIGIN_TEMPLATE : l->origin;
    if (of->kind == JLIST)
        return out;
    struct jbuffer b = {0};
    for (size_t i = 0; i < out.list->count; i++)
        jbuffer_string(r->h, &b, out.list->at[i].string);
    return jstring_value(jbuffer_take(r->h, &b));
}

/* ---- operators ---- */

static bool holds(struct jrun *r, enum jop op, const struct jvalue *a, const struct jvalue *b)
{
    switch (op) {
    case JOP_EQ: return jequal(r->h, a, b);
    case JOP_NE: return !jequal(r->h, a, b);
    case JOP_IN: return jcontains(r->h, b, a);
    case JOP_NOT_IN: return !jcontains(r->h, b, a);
    default: break;
    }
    if ((a->kind == JFLOAT && a->real != a->real) || (b->kind == JFLOAT && b->real != b->real))
        return false;
    int order = jcompare(r->h, a, b);
    return op == JOP_LT   ? order < 0
           : op == JOP_LE ? order <= 0
           : op == JOP_GT ? order > 0
                          : order >= 0;
}

static struct jvalue compare(struct jrun *r, const struct jnode *n)
{
    struct jvalue a = jevaluate(r, n->a);
    for (size_t i = 0; i < n->list.count; i++) {
        const struct jnode *operand = n->list.at[i];
        struct jvalue b = jevaluate(r, operand->a);
        if (!holds(r, (enum jop)operand->op, &a, &b))
            return jbool(false);
        a = b;
    }
    return jbool(true);
}

static struct jvalue logical(struct jrun *r, const struct jnode *n)
{
    struct jvalue a = jevaluate(r, n->a);
    return jtruth(&a) == (n->kind == JNODE_OR) ? a : jevaluate(r, n->b);
}

static struct jvalue concat(struct jrun *r, const struct jnode *n)
{
    struct jvalue first = jevaluate(r, n->list.at[0]);
    const struct jstring *s = jstring_marked(r->h, jtext(r->h, &first), false);
    for (size_t i = 1; i < n->list.count; i++) {
        struct jvalue v = jevaluate(r, n->list.at[i]);
        s = jstring_join(r->h, s, jstring_marked(r->h, jtext(r->h, &v), false));
    }
    return jstring_value(s);
}

static struct jvalue sign(struct jrun *r, const struct jnode *n)
{
    struct jvalue v = jevaluate(r, n->a);
    if (v.kind == JUNDEFINED)
        jheap_fail(r->h, "%s", v.missing);
    if (!jis_number(&v))
        jheap_fail(r->h, "bad operand type for a sign: '%s'", jtype_name(&v));
    if (v.kind == JFLOAT)
        return jfloat(n->kind == JNODE_NEGATIVE ? -v.real : v.real);
    int64_t i = jint_argument(r, &v, 0);
    if (n->kind == JNODE_NEGATIVE && i == INT64_MIN)
        jheap_fail(r->h, "an integer is too large");
    return jint(n->kind == JNODE_NEGATIVE ? -i : i);
}

/* ---- literals ---- */

static struct jvalue list_of(struct jrun *r, const struct jnode *n, enum jlist_form form)
{
    struct jvalue v = jlist_new(r->h, form, n->list.count);
    for (size_t i = 0; i < n->list.count; i++)
        jlist_add(r->h, v.list, jevaluate(r, n->list.at[i]));
    return v;
}

static struct jvalue dict_of(struct jrun *r, const struct jnode *n)
{
    struct jvalue v = jdict_new(r->h, n->list.count / 2);
    for (size_t i = 0; i + 1 < n->list.count; i += 2) {
        struct jvalue key = jevaluate(r, n->list.at[i]);
        jdict_set(r->h, v.dict, key, jevaluate(r, n->list.at[i + 1]));
    }
    return v;
}

/* ---- expressions ---- */

static struct jvalue choice(struct jrun *r, const struct jnode *n)
{
    struct jvalue v = jevaluate(r, n->b);
    if (jtruth(&v))
        return jevaluate(r, n->a);
    return n->c ? jevaluate(r, n->c) : jundefined(r->h, "the inline if has no else");
}

static struct jvalue not_of(struct jrun *r, const struct jnode *n)
{
    struct jvalue v = jevaluate(r, n->a);
    return jbool(!jtruth(&v));
}

static struct jvalue item_of(struct jrun *r, const struct jnode *n)
{
    struct jvalue of = jevaluate(r, n->a);
    if (n->b->kind == JNODE_SLICE)
        return slice(r, &of, n);
    struct jvalue key = jevaluate(r, n->b);
    return jitem(r, &of, &key);
}

static struct jvalue applied(struct jrun *r, const struct jnode *n)
{
    struct jvalue in = jevaluate(r, n->a);
    r->h->line = n->line;
    if (n->kind == JNODE_ATTRIBUTE)
        return jattribute(r, &in, n->name);
    struct jcall call = jarguments_of(r, n->args);
    r->h->line = n->line;
    if (n->kind == JNODE_FILTER)
        return jfilter(r, n->name, &in, &call);
    if (n->kind == JNODE_TEST)
        return jbool(jtest(r, n->name, &in, &call));
    return jcall_value(r, &in, &call);
}

static struct jvalue binary(struct jrun *r, const struct jnode *n)
{
    struct jvalue a = jevaluate(r, n->a), b = jevaluate(r, n->b);
    return jbinary(r, (enum jop)n->op, &a, &b);
}

static struct jvalue evaluate(struct jrun *r, const struct jnode *n)
{
    switch ((enum jnode_kind)n->kind) {
    case JNODE_CONST: return n->value;
    case JNODE_NAME: return lookup(r, n->name);
    case JNODE_TUPLE: return list_of(r, n, JFORM_TUPLE);
    case JNODE_LIST: return list_of(r, n, JFORM_LIST);
    case JNODE_DICT: return dict_of(r, n);
    case JNODE_IF_ELSE: return choice(r, n);
    case JNODE_OR:
    case JNODE_AND: return logical(r, n);
    case JNODE_NOT: return not_of(r, n);
    case JNODE_COMPARE: return compare(r, n);
    case JNODE_BINARY: return binary(r, n);
    case JNODE_CONCAT: return concat(r, n);
    case JNODE_NEGATIVE:
    case JNODE_POSITIVE: return sign(r, n);
    case JNODE_ITEM: return item_of(r, n);
    case JNODE_ATTRIBUTE:
    case JNODE_CALL:
    case JNODE_FILTER:
    case JNODE_TEST: return applied(r, n);
    default: jheap_fail(r->h, "a slice is only allowed in brackets"); /* a[1:2, 3] */
    }
}

struct jvalue jevaluate(struct jrun *r, const struct jnode *n)
{
    jheap_enter(r->h);
    jheap_step(r->h);
    struct jvalue v = evaluate(r, n);
    jheap_leave(r->h);
    return v;
}
