/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of dicts, lists, tuples and `loop`, and the choice of a method by type. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/run/run.h"

#define METHOD(name)                                                                               \
    static struct jvalue method_##name(struct jrun *r, const struct jvalue *in,                    \
                                       const struct jbound *a)

METHOD(get)
{
    const struct jvalue *v = jdict_find(r->h, in->dict, *a->at[0]);
    return v ? *v : a->at[1] ? *a->at[1] : jnone();
}

static struct jvalue view(struct jrun *r, const struct jdict *d, enum jlist_form form)
{
    struct jvalue v = jlist_new(r->h, form, d->count);
    for (size_t i = 0; i < d->count; i++) {
        struct jvalue element = form == JFORM_KEYS ? d->at[i].key : d->at[i].value;
        if (form == JFORM_ITEMS) {
            element = jlist_new(r->h, JFORM_TUPLE, 2);
            jlist_add(r->h, element.list, d->at[i].key);
            jlist_add(r->h, element.list, d->at[i].value);
        }
        jlist_add(r->h, v.list, element);
    }
    v.list->origin = d->origin;
    return v;
}

METHOD(items)
{
    (void)a;
    return view(r, in->dict, JFORM_ITEMS);
}

METHOD(keys)
{
    (void)a;
    return view(r, in->dict, JFORM_KEYS);
}

METHOD(values)
{
    (void)a;
    return view(r, in->dict, JFORM_VALUES);
}

METHOD(copy) /* nothing changes a list or a dict */
{
    (void)r, (void)a;
    return *in;
}

METHOD(count)
{
    int64_t n = 0;
    for (size_t i = 0; i < in->list->count; i++)
        n += jequal(r->h, &in->list->at[i], a->at[0]);
    return jint(n);
}

METHOD(index)
{
    for (size_t i = 0; i < in->list->count; i++)
        if (jequal(r->h, &in->list->at[i], a->at[0]))
            return jint((int64_t)i);
    jheap_fail(r->h, "index: the value is not in the list");
}

METHOD(cycle)
{
    const struct jloop *loop = in->object;
    if (a->call->count == 0)
        jheap_fail(r->h, "no items for cycling given");
    return a->call->list[loop->index0 % a->call->count];
}

METHOD(changed)
{
    struct jloop *loop = in->object;
    struct jvalue now = jlist_new(r->h, JFORM_TUPLE, a->call->count);
    for (size_t i = 0; i < a->call->count; i++)
        jlist_add(r->h, now.list, a->call->list[i]);
    bool changed = !loop->has_changed || !jequal(r->h, &now, &loop->changed);
    loop->has_changed = true;
    loop->changed = now;
    return jbool(changed);
}

static const struct jrow dict_rows[] = {{"get", method_get, "key! default"},
                                        {"items", method_items, ""},
                                        {"keys", method_keys, ""},
                                        {"values", method_values, ""},
                                        {"copy", method_copy, ""}};
static const struct jrow list_rows[] = {{"count", method_count, "value!"},
                                        {"index", method_index, "value!"},
                                        {"copy", method_copy, ""}};
static const struct jrow loop_rows[] = {{"cycle", method_cycle, "*"},
                                        {"changed", method_changed, "*"}};

static const char *const dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const list_unsafe[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};

static struct jrows rows_of(const struct jvalue *v)
{
    switch ((enum jkind)v->kind) {
    case JSTRING: return jmethods_string;
    case JDICT: return (struct jrows){dict_rows, ARRAY_LEN(dict_rows)};
    case JLOOP: return (struct jrows){loop_rows, ARRAY_LEN(loop_rows)};
    case JLIST:
        if (v->list->form <= JFORM_RANGE) /* a tuple and a range have no copy */
            return (struct jrows){list_rows, v->list->form == JFORM_LIST ? 3 : 2};
        break;
    default: break;
    }
    return (struct jrows){NULL, 0};
}

struct jvalue jmethod_of(struct jrun *r, const struct jvalue *of, const struct jstring *name)
{
    struct jrows rows = rows_of(of);
    size_t number = jrow_find(rows.at, rows.count, name);
    if (number < rows.count) {
        struct jmethod *m = jheap_get(r->h, sizeof *m);
        *m = (struct jmethod){*of, (unsigned)number};
        return (struct jvalue){.kind = JMETHOD, .method = m};
    }
    bool list = of->kind == JLIST && of->list->form == JFORM_LIST;
    const char *const *unsafe = of->kind == JDICT ? dict_unsafe : list ? list_unsafe : NULL;
    for (; unsafe && *unsafe; unsafe++)
        if (jstring_is(name, *unsafe))
            jheap_fail(r->h, "access to attribute '%s' of '%s' object is unsafe.", *unsafe,
                       jtype_name(of));
    return jundefined(r->h, "'%s' object has no attribute '%.*s'", jtype_name(of), (int)name->bytes,
                      name->text);
}

struct jvalue jmethod_call(struct jrun *r, const struct jmethod *m, const struct jcall *call)
{
    return jrow_call(r, &rows_of(&m->self).at[m->number], &m->self, call);
}
