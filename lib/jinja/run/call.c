/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: arguments, macros, functions. */
#include <string.h>

#include "lib/jinja/run/run.h"

/* ---- arguments ---- */

static void add_double_star(struct jrun *r, struct jcall *call, size_t *capacity,
                            const struct jnode *n)
{
    struct jvalue v = jevaluate(r, n);
    if (v.kind != JDICT)
        jheap_fail(r->h, "argument after ** must be a mapping, not %s", jtype_name(&v));
    for (size_t i = 0; i < v.dict->count; i++) {
        jheap_step(r->h);
        const struct jvalue *key = &v.dict->at[i].key;
        if (key->kind != JSTRING)
            jheap_fail(r->h, "keywords must be strings");
        call->named =
            jheap_grow(r->h, call->named, call->named_count, capacity, sizeof *call->named);
        call->named[call->named_count++] =
            (struct jkeyword){jname(r->h, r->names, key->string->text, key->string->bytes),
                              key->string, v.dict->at[i].value};
    }
}

struct jcall jarguments_of(struct jrun *r, const struct jarguments *args)
{
    struct jcall call = {0};
    size_t capacity = args->list.count, named_capacity = args->named_count;
    call.list = jheap_array(r->h, capacity, sizeof *call.list);
    call.named = jheap_array(r->h, named_capacity, sizeof *call.named);
    for (size_t i = 0; i < args->list.count; i++)
        call.list[call.count++] = jevaluate(r, args->list.at[i]);
    for (size_t i = 0; i < args->named_count; i++)
        call.named[call.named_count++] = (struct jkeyword){args->named[i].name, args->named[i].name,
                                                           jevaluate(r, args->named[i].value)};
    if (args->star) {
        struct jvalue v = jevaluate(r, args->star);
        const struct jlist *l = jiterate(r->h, &v);
        for (size_t i = 0; i < l->count; i++) {
            jheap_step(r->h);
            call.list = jheap_grow(r->h, call.list, call.count, &capacity, sizeof *call.list);
            call.list[call.count++] = l->at[i];
        }
    }
    if (args->double_star)
        add_double_star(r, &call, &named_capacity, args->double_star);
    return call;
}

/* Position of a name in a list of names; SIZE_MAX: it has none. */
static size_t position_of(const char *names, const struct jstring *name)
{
    size_t i = 0;
    for (const char *at = names; *at; i++) {
        size_t n = strcspn(at, " !");
        if (n == name->bytes && memcmp(at, name->text, n) == 0)
            return i;
        at += n + (at[n] == '!');
        at += *at == ' ';
    }
    return SIZE_MAX;
}

static size_t count_names(const char *names)
{
    size_t n = *names != 0;
    for (; *names; names++)
        n += *names == ' ';
    return n;
}

static void check_required(struct jrun *r, const struct jrow *row, const struct jbound *a)
{
    const char *at = row->parameters;
    for (size_t i = 0; *at; i++) {
        size_t n = strcspn(at, " !");
        if (at[n] == '!' && !a->at[i])
            jheap_fail(r->h, "%s: the argument '%.*s' is missing", row->name, (int)n, at);
        at += n + (at[n] == '!');
        at += *at == ' ';
    }
}

static struct jbound bind(struct jrun *r, const struct jrow *row, const struct jcall *call)
{
    struct jbound a = {.call = call};
    jheap_work(r->h, call->count + call->named_count);
    if (row->parameters[0] != '*') {
        if (call->count > count_names(row->parameters))
            jheap_fail(r->h, "%s: too many arguments", row->name);
        for (size_t i = 0; i < call->count; i++)
            a.at[i] = &call->list[i];
        for (size_t i = 0; i < call->named_count; i++) {
            const struct jstring *name = call->named[i].name;
            size_t at = position_of(row->parameters, name);
            if (at == SIZE_MAX || a.at[at])
                jheap_fail(r->h, "%s: unexpected argument '%.*s'", row->name, (int)name->bytes,
                           name->text);
            a.at[at] = &call->named[i].value;
        }
        check_required(r, row, &a);
    }
    return a;
}

struct jvalue jrow_call(struct jrun *r, const struct jrow *row, const struct jvalue *in,
                        const struct jcall *call)
{
    struct jbound a = bind(r, row, call);
    return row->function(r, in, &a);
}

int64_t jint_argument(struct jrun *r, const struct jvalue *a, int64_t otherwise)
{
    if (!a)
        return otherwise;
    if (a->kind != JINT && a->kind != JBOOL)
        jheap_fail(r->h, "an integer is required, not %s", jtype_name(a));
    return a->kind == JINT ? a->integer : a->truth;
}

bool jtruth_argument(const struct jvalue *a, bool otherwise)
{
    return a ? jtruth(a) : otherwise;
}

const struct jstring *jstring_argument(struct jrun *r, const struct jvalue *a)
{
    if (!a || a->kind == JNONE)
        return NULL;
    if (a->kind != JSTRING)
        jheap_fail(r->h, "a string is required, not %s", jtype_name(a));
    return a->string;
}

/* ---- macros ---- */

static struct jvalue *named_argument(const struct jcall *call, const struct jstring *name)
{
    for (size_t i = 0; i < call->named_count; i++)
        if (call->named[i].name == name)
            return &call->named[i].value;
    return NULL;
}

static bool is_parameter(const struct jnode *n, const struct jstring *name)
{
    for (size_t i = 0; i < n->parameters.count; i++)
        if (n->parameters.at[i]->name == name)
            return true;
    return false;
}

/* varargs, kwargs and caller: where the macro uses them. */
static void define_rest(struct jrun *r, const struct jnode *n, const struct jcall *call)
{
    struct jvalue rest = jlist_new(r->h, JFORM_TUPLE, 0), others = jdict_new(r->h, 0);
    const struct jstring *caller = jname(r->h, r->names, "caller", 6);
    for (size_t i = n->parameters.count; i < call->count; i++)
        jlist_add(r->h, rest.list, call->list[i]);
    for (size_t i = 0; i < call->named_count; i++) {
        const struct jstring *name = call->named[i].name;
        if (is_parameter(n, name))
            continue;
        if (name == caller && (n->op & JMACRO_CALLER))
            jdefine(r, caller, call->named[i].value);
        else
            jdict_set(r->h, others.dict, jstring_value(call->named[i].key), call->named[i].value);
    }
    if (rest.list->count > 0 && !(n->op & JMACRO_VARARGS))
        jheap_fail(r->h, "a macro got %zu arguments and takes %zu", call->count,
                   n->parameters.count);
    if (others.dict->count > 0 && !(n->op & JMACRO_KWARGS)) {
        const struct jstring *name = others.dict->at[0].key.string;
        jheap_fail(r->h, "a macro takes no argument '%.*s'", (int)name->bytes, name->text);
    }
    if (n->op & JMACRO_VARARGS)
        jdefine(r, jname(r->h, r->names, "varargs", 7), rest);
    if (n->op & JMACRO_KWARGS)
        jdefine(r, jname(r->h, r->names, "kwargs", 6), others);
}

static void define_parameters(struct jrun *r, const struct jnode *n, const struct jcall *call)
{
    size_t first = n->parameters.count - n->defaults.count;
    for (size_t i = 0; i < n->parameters.count; i++) {
        const struct jstring *name = n->parameters.at[i]->name;
        const struct jvalue *given = i < call->count ? &call->list[i] : named_argument(call, name);
        if (i < call->count && named_argument(call, name))
            jheap_fail(r->h, "a macro got argument '%.*s' twice", (int)name->bytes, name->text);
        if (given)
            jdefine(r, name, *given);
        else if (i >= first)
            jdefine(r, name, jevaluate(r, n->defaults.at[i - first]));
        else
            jdefine(r, name,
                    jundefined(r->h, "parameter '%.*s' was not provided", (int)name->bytes,
                               name->text));
    }
}

static struct jvalue call_macro(struct jrun *r, const struct jmacro *m, const struct jcall *call)
{
    struct jbuffer *out = r->out, buffer = {0};
    struct jscope *scope = r->scope;
    unsigned line = r->h->line;
    /* each name looks for each, up to three times */
    jheap_work(r->h, 3 * (1 + m->node->parameters.count) * (1 + call->named_count));
    jscope_push(r, m->scope);
    define_rest(r, m->node, call);
    define_parameters(r, m->node, call);
    r->out = &buffer;
    jexecute(r, &m->node->list);
    r->out = out;
    r->scope = scope;
    r->h->line = line;
    return jstring_value(jbuffer_take(r->h, &buffer));
}

/* ---- what is called ---- */

struct jvalue jcall_value(struct jrun *r, const struct jvalue *callee, const struct jcall *call)
{
    if (callee->kind == JMACRO)
        return call_macro(r, callee->object, call);
    if (callee->kind == JMETHOD)
        return jmethod_call(r, callee->method, call);
    if (callee->kind == JGLOBAL)
        return jrow_call(r, &jglobals.at[callee->number], NULL, call);
    if (callee->kind == JUNDEFINED)
        jheap_fail(r->h, "%s", callee->missing);
    jheap_fail(r->h, "'%s' object is not callable", jtype_name(callee));
}

size_t jrow_find(const struct jrow *rows, size_t count, const struct jstring *name)
{
    for (size_t i = 0; i < count; i++)
        if (jstring_is(name, rows[i].name))
            return i;
    return SIZE_MAX;
}

static const struct jrow *find(const struct jrows *rows, const struct jstring *name)
{
    size_t i = jrow_find(rows->at, rows->count, name);
    return i < rows->count ? &rows->at[i] : NULL;
}

/* ---- generators ---- */

struct pending {
    struct jrun *run;
    const struct jrow *row;
    struct jvalue in;
    struct jcall call;
    struct jbound bound;
};

static void fill(void *arg, struct jlist *l)
{
    struct pending *p = arg;
    struct jvalue made = p->row->function(p->run, &p->in, &p->bound);
    l->at = made.list->at;
    l->count = made.list->count;
    l->capacity = made.list->capacity;
}

/* The arguments are in the heap, and nothing in it is freed before the end. */
static struct jvalue pending_call(struct jrun *r, const struct jrow *row, const struct jvalue *in,
                                  const struct jcall *call)
{
    struct pending *p = jheap_get(r->h, sizeof *p);
    struct jvalue v = jlist_new(r->h, JFORM_GENERATOR, 0);
    *p = (struct pending){.run = r, .row = row, .in = *in, .call = *call};
    p->bound = bind(r, row, call);
    p->bound.call = &p->call;
    v.list->fill = fill;
    v.list->fill_arg = p;
    return v;
}

struct jvalue jfilter(struct jrun *r, const struct jstring *name, const struct jvalue *in,
                      const struct jcall *call)
{
    const struct jrow *row = find(&jtext_filters, name);
    row = row ? row : find(&jlist_filters, name);
    if (row)
        return jrow_call(r, row, in, call);
    row = find(&jlazy_filters, name);
    if (!row)
        jheap_fail(r->h, "no filter named '%.*s'", (int)name->bytes, name->text);
    return pending_call(r, row, in, call);
}

bool jtest(struct jrun *r, const struct jstring *name, const struct jvalue *in,
           const struct jcall *call)
{
    const struct jrow *row = find(&jtests, name);
    if (!row)
        jheap_fail(r->h, "no test named '%.*s'", (int)name->bytes, name->text);
    struct jvalue v = jrow_call(r, row, in, call);
    return jtruth(&v);
}
