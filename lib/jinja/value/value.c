/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, compares and reads values of the template language. */
#include "lib/jinja/value/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"

/* ---- makers ---- */

struct jvalue jnone(void)
{
    return (struct jvalue){.kind = JNONE};
}

struct jvalue jbool(bool truth)
{
    return (struct jvalue){.kind = JBOOL, .truth = truth};
}

struct jvalue jint(int64_t integer)
{
    return (struct jvalue){.kind = JINT, .integer = integer};
}

struct jvalue jfloat(double real)
{
    return (struct jvalue){.kind = JFLOAT, .real = real};
}

struct jvalue jundefined(struct jheap *h, const char *fmt, ...)
{
    char text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t n = strlen(text) + 1;
    char *copy = jheap_get(h, n);
    memcpy(copy, text, n);
    h->steps += 4; /* of the text */
    return (struct jvalue){.kind = JUNDEFINED, .missing = copy};
}

struct jvalue jstring_value(const struct jstring *s)
{
    return (struct jvalue){.kind = JSTRING, .string = s};
}

struct jvalue jlist_new(struct jheap *h, enum jlist_form form, size_t capacity)
{
    struct jlist *l = jheap_get(h, sizeof *l);
    l->form = (uint8_t)form;
    l->capacity = capacity;
    if (capacity > 0)
        l->at = jheap_array(h, capacity, sizeof *l->at);
    return (struct jvalue){.kind = JLIST, .list = l};
}

void jlist_add(struct jheap *h, struct jlist *l, struct jvalue v)
{
    jheap_work(h, 1);
    l->at = jheap_grow(h, l->at, l->count, &l->capacity, sizeof *l->at);
    l->at[l->count++] = v;
}

struct jvalue jdict_new(struct jheap *h, size_t capacity)
{
    struct jdict *d = jheap_get(h, sizeof *d);
    d->capacity = capacity;
    if (capacity > 0)
        d->at = jheap_array(h, capacity, sizeof *d->at);
    return (struct jvalue){.kind = JDICT, .dict = d};
}

/* Dicts are short arrays; a long one is slow, so each key that is passed is counted. */
struct jvalue *jdict_find_text(struct jheap *h, const struct jdict *d, const char *text,
                               size_t bytes)
{
    struct jvalue *found = NULL;
    size_t i, units = 0;
    for (i = 0; i < d->count && !found; i++) {
        const struct jvalue *k = &d->at[i].key;
        if (k->kind != JSTRING || k->string->bytes != bytes)
            continue;
        units += 1 + bytes / 16;
        if (memcmp(k->string->text, text, bytes) == 0)
            found = &d->at[i].value;
    }
    h->steps += (i + units) / 16; /* its caller steps */
    return found;
}

bool jis_key(struct jheap *h, const struct jvalue *v)
{
    static const bool hashable[] = {[JFORM_TUPLE] = true,
                                    [JFORM_RANGE] = true,
                                    [JFORM_VALUES] = true,
                                    [JFORM_GENERATOR] = true};
    if (v->kind != JLIST)
        return v->kind != JDICT;
    if (v->list->form != JFORM_TUPLE)
        return v->list->form < ARRAY_LEN(hashable) && hashable[v->list->form];
    bool all = true;
    jheap_enter(h);
    for (size_t i = 0; all && i < v->list->count; i++) {
        jheap_step(h);
        all = jis_key(h, &v->list->at[i]);
    }
    jheap_leave(h);
    return all;
}

void jcheck_key(struct jheap *h, const struct jvalue *v)
{
    if (!jis_key(h, v))
        jheap_fail(h, "unhashable type: '%s'", jtype_name(v));
}

struct jvalue *jdict_find(struct jheap *h, const struct jdict *d, struct jvalue key)
{
    jheap_step(h);
    if (key.kind == JSTRING)
        return jdict_find_text(h, d, key.string->text, key.string->bytes);
    jcheck_key(h, &key);
    for (size_t i = 0; i < d->count; i++)
        if (jequal(h, &d->at[i].key, &key))
            return &d->at[i].value;
    return NULL;
}

void jdict_set(struct jheap *h, struct jdict *d, struct jvalue key, struct jvalue value)
{
    struct jvalue *at = jdict_find(h, d, key);
    if (at) {
        *at = value;
        return;
    }
    d->at = jheap_grow(h, d->at, d->count, &d->capacity, sizeof *d->at);
    d->at[d->count++] = (struct jpair){key, value};
}

/* ---- properties ---- */

const char *jtype_name(const struct jvalue *v)
{
    static const char *const names[] = {[JUNDEFINED] = "Undefined", [JNONE] = "NoneType",
                                        [JBOOL] = "bool",           [JINT] = "int",
                                        [JFLOAT] = "float",         [JSTRING] = "str",
                                        [JDICT] = "dict",           [JMACRO] = "Macro",
                                        [JNAMESPACE] = "Namespace", [JGLOBAL] = "function",
                                        [JMETHOD] = "builtin",      [JLOOP] = "LoopContext"};
    static const char *const forms[] = {
        [JFORM_LIST] = "list",          [JFORM_TUPLE] = "tuple",
        [JFORM_RANGE] = "range",        [JFORM_KEYS] = "dict_keys",
        [JFORM_VALUES] = "dict_values", [JFORM_ITEMS] = "dict_items",
        [JFORM_GENERATOR] = "generator"};
    return v->kind == JLIST ? forms[v->list->form] : names[v->kind];
}

bool jtruth(const struct jvalue *v)
{
    switch ((enum jkind)v->kind) {
    case JUNDEFINED:
    case JNONE: return false;
    case JBOOL: return v->truth;
    case JINT: return v->integer != 0;
    case JFLOAT: return v->real != 0;
    case JSTRING: return v->string->bytes > 0;
    case JLIST: return v->list->form == JFORM_GENERATOR || v->list->count > 0;
    case JDICT: return v->dict->count > 0;
    default: return true;
    }
}

bool jis_number(const struct jvalue *v)
{
    return v->kind == JINT || v->kind == JFLOAT || v->kind == JBOOL;
}

double jreal(const struct jvalue *v)
{
    return v->kind == JFLOAT ? v->real : v->kind == JINT ? (double)v->integer : v->truth;
}

static int64_t whole(const struct jvalue *v)
{
    return v->kind == JBOOL ? v->truth : v->integer;
}

static bool equal_lists(struct jheap *h, const struct jlist *a, const struct jlist *b)
{
    if (a->form != b->form || a->form == JFORM_GENERATOR || a->count != b->count)
        return a == b;
    for (size_t i = 0; i < a->count; i++)
        if (!jequal(h, &a->at[i], &b->at[i]))
            return false;
    return true;
}

static bool equal_dicts(struct jheap *h, const struct jdict *a, const struct jdict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct jvalue *other = jdict_find(h, b, a->at[i].key);
        if (!other || !jequal(h, &a->at[i].value, other))
            return false;
    }
    return true;
}

static size_t shorter(const struct jstring *a, const struct jstring *b)
{
    return a->bytes < b->bytes ? a->bytes : b->bytes;
}

static bool equal_values(struct jheap *h, const struct jvalue *a, const struct jvalue *b)
{
    if (jis_number(a) && jis_number(b))
        return a->kind == JFLOAT || b->kind == JFLOAT ? jreal(a) == jreal(b) : whole(a) == whole(b);
    if (a->kind != b->kind)
        return false;
    switch ((enum jkind)a->kind) {
    case JUNDEFINED:
    case JNONE: return true;
    case JSTRING: return jstring_same(h, a->string, b->string);
    case JLIST: return equal_lists(h, a->list, b->list);
    case JDICT: return a->dict == b->dict || equal_dicts(h, a->dict, b->dict);
    case JGLOBAL: return a->number == b->number;
    default: return a->object == b->object;
    }
}

bool jequal(struct jheap *h, const struct jvalue *a, const struct jvalue *b)
{
    jheap_enter(h);
    jheap_step(h);
    bool equal = equal_values(h, a, b);
    jheap_leave(h);
    return equal;
}

static int compare_lists(struct jheap *h, const struct jlist *a, const struct jlist *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!jequal(h, &a->at[i], &b->at[i]))
            return jcompare(h, &a->at[i], &b->at[i]);
    return a->count < b->count ? -1 : a->count > b->count;
}

static int compare_values(struct jheap *h, const struct jvalue *a, const struct jvalue *b)
{
    if (jis_number(a) && jis_number(b)) {
        if (a->kind == JFLOAT || b->kind == JFLOAT)
            return jreal(a) < jreal(b) ? -1 : jreal(a) > jreal(b);
        return whole(a) < whole(b) ? -1 : whole(a) > whole(b);
    }
    if (a->kind == JSTRING && b->kind == JSTRING) { /* UTF-8 has the order of code points */
        const struct jstring *s = a->string, *t = b->string;
        jheap_block(h, shorter(s, t));
        int order = memcmp(s->text, t->text, shorter(s, t));
        return order != 0 ? (order < 0 ? -1 : 1) : s->bytes < t->bytes ? -1 : s->bytes > t->bytes;
    }
    if (a->kind == JLIST && b->kind == JLIST && a->list->form == b->list->form &&
        a->list->form <= JFORM_TUPLE)
        return compare_lists(h, a->list, b->list);
    if (a->kind == JUNDEFINED || b->kind == JUNDEFINED)
        jheap_fail(h, "%s", a->kind == JUNDEFINED ? a->missing : b->missing);
    jheap_fail(h, "'%s' and '%s' have no order", jtype_name(a), jtype_name(b));
}

int jcompare(struct jheap *h, const struct jvalue *a, const struct jvalue *b)
{
    jheap_enter(h);
    jheap_step(h);
    int order = compare_values(h, a, b);
    jheap_leave(h);
    return order;
}

static struct jlist *characters(struct jheap *h, const struct jstring *s)
{
    struct jlist *l = jlist_new(h, JFORM_LIST, s->bytes).list;
    for (size_t at = 0, next = 0; at < s->bytes; at = next) {
        jchar_next(s->text, s->bytes, &next);
        jlist_add(h, l, jstring_value(jstring_part(h, s, at, next)));
    }
    return l;
}

/* What a generator takes its elements from may be a generator, too, and so on. */
static void fill(struct jheap *h, struct jlist *l)
{
    void (*add)(void *, struct jlist *) = l->fill;
    if (!add)
        return;
    l->fill = NULL;
    jheap_enter(h);
    add(l->fill_arg, l);
    jheap_leave(h);
}

struct jlist *jiterate(struct jheap *h, const struct jvalue *v)
{
    if (v->kind == JSTRING)
        return characters(h, v->string);
    if (v->kind == JLIST && v->list->form != JFORM_GENERATOR)
        return v->list;
    if (v->kind != JLIST && v->kind != JDICT && v->kind != JUNDEFINED)
        jheap_fail(h, "'%s' object is not iterable", jtype_name(v));
    struct jlist *l = jlist_new(h, JFORM_LIST, 0).list;
    if (v->kind == JLIST)
        fill(h, v->list);
    if (v->kind == JLIST && v->list->count > 0) { /* what is left of it */
        l->at = v->list->at + v->list->taken;
        l->count = l->capacity = v->list->count - v->list->taken;
        v->list->taken = v->list->count;
    }
    for (size_t i = 0; v->kind == JDICT && i < v->dict->count; i++)
        jlist_add(h, l, v->dict->at[i].key);
    return l;
}

bool jcontains(struct jheap *h, const struct jvalue *container, const struct jvalue *v)
{
    if (container->kind == JSTRING) {
        if (v->kind != JSTRING)
            jheap_fail(h, "'in <string>' requires string as left operand, not %s", jtype_name(v));
        return jstring_find(h, container->string, v->string, 0, container->string->bytes) !=
               SIZE_MAX;
    }
    if (container->kind == JDICT)
        return jdict_find(h, container->dict, *v) != NULL;
    const struct jlist *l = jiterate(h, container);
    for (size_t i = 0; i < l->count; i++)
        if (jequal(h, &l->at[i], v))
            return true;
    return false;
}

size_t jlength(struct jheap *h, const struct jvalue *v)
{
    switch ((enum jkind)v->kind) {
    case JUNDEFINED: return 0;
    case JSTRING: return jstring_length(h, v->string);
    case JDICT: return v->dict->count;
    case JLIST:
        if (v->list->form != JFORM_GENERATOR)
            return v->list->count;
        break;
    default: break;
    }
    jheap_fail(h, "object of type '%s' has no len()", jtype_name(v));
}
