/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the environment, and tests. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/run/run.h"

#define RANGE_MAX      100000 /* of jinja2's sandbox */
#define STRFTIME_STEPS 200

/* ---- functions ---- */

/* How many elements from `first` to `end`, without `end`. */
static uint64_t range_count(int64_t first, int64_t end, int64_t step)
{
    uint64_t from = (uint64_t)first, to = (uint64_t)end;
    if (step > 0 ? first >= end : first <= end)
        return 0;
    return step > 0 ? (to - from - 1) / (uint64_t)step + 1 : (from - to - 1) / -(uint64_t)step + 1;
}

/* A range as four numbers: first, step, count, end. */
static struct jvalue range_parts(struct jrun *r, const struct jvalue *in, const struct jbound *a)
{
    (void)in;
    if (!a->at[0])
        jheap_fail(r->h, "range needs an argument");
    int64_t first = jint_argument(r, a->at[0], 0), end = jint_argument(r, a->at[1], 0);
    int64_t step = jint_argument(r, a->at[2], 1);
    if (!a->at[1]) {
        end = first;
        first = 0;
    }
    if (step == 0)
        jheap_fail(r->h, "range: the step is zero");
    uint64_t count = range_count(first, end, step);
    if (count > RANGE_MAX)
        jheap_fail(r->h, "range: more than %d elements", RANGE_MAX);
    struct jvalue v = jlist_new(r->h, JFORM_TUPLE, 4);
    jlist_add(r->h, v.list, jint(first));
    jlist_add(r->h, v.list, jint(step));
    jlist_add(r->h, v.list, jint((int64_t)count));
    jlist_add(r->h, v.list, jint(end));
    return v;
}

static struct jvalue global_range(struct jrun *r, const struct jvalue *in, const struct jbound *a)
{
    const struct jlist *parts = range_parts(r, in, a).list;
    struct jrange range = {parts->at[0].integer, parts->at[1].integer,
                           (size_t)parts->at[2].integer};
    return jrange_list(r, &range, parts->at[3].integer);
}

struct jvalue jrange_list(struct jrun *r, const struct jrange *range, int64_t end)
{
    struct jvalue v = jlist_new(r->h, JFORM_RANGE, range->count);
    int64_t *bounds = jheap_array(r->h, 3, sizeof *bounds);
    bounds[0] = range->first;
    bounds[1] = end;
    bounds[2] = range->step;
    v.list->bounds = bounds;
    for (size_t i = 0; i < range->count; i++)
        jlist_add(r->h, v.list, jrange_at(range, i));
    return v;
}

bool jrange_of(struct jrun *r, const struct jnode *n, struct jrange *range)
{
    static const struct jrow row = {"range", range_parts, "start stop step"};
    if (n->kind != JNODE_CALL || n->a->kind != JNODE_NAME)
        return false;
    struct jvalue callee = jevaluate(r, n->a);
    if (callee.kind != JGLOBAL || jglobals.at[callee.number].function != global_range)
        return false;
    r->h->line = n->line;
    struct jcall call = jarguments_of(r, n->args);
    const struct jlist *parts = jrow_call(r, &row, NULL, &call).list;
    *range =
        (struct jrange){parts->at[0].integer, parts->at[1].integer, (size_t)parts->at[2].integer};
    return true;
}

static void add_pairs(struct jrun *r, struct jdict *d, const struct jvalue *v)
{
    if (v->kind == JDICT) {
        for (size_t i = 0; i < v->dict->count; i++)
            jdict_set(r->h, d, v->dict->at[i].key, v->dict->at[i].value);
        return;
    }
    const struct jlist *l = jiterate(r->h, v);
    for (size_t i = 0; i < l->count; i++) {
        const struct jlist *pair = jiterate(r->h, &l->at[i]);
        if (pair->count != 2)
            jheap_fail(r->h, "a dict is made of pairs");
        jdict_set(r->h, d, pair->at[0], pair->at[1]);
    }
}

static struct jvalue global_dict(struct jrun *r, const struct jvalue *in, const struct jbound *a)
{
    (void)in;
    struct jvalue v = jdict_new(r->h, 0);
    if (a->call->count > 1)
        jheap_fail(r->h, "dict takes at most one argument by position");
    if (a->call->count == 1)
        add_pairs(r, v.dict, &a->call->list[0]);
    for (size_t i = 0; i < a->call->named_count; i++)
        jdict_set(r->h, v.dict, jstring_value(a->call->named[i].key), a->call->named[i].value);
    return v;
}

static struct jvalue global_namespace(struct jrun *r, const struct jvalue *in,
                                      const struct jbound *a)
{
    struct jvalue v = global_dict(r, in, a);
    v.kind = JNAMESPACE;
    return v;
}

static struct jvalue global_raise(struct jrun *r, const struct jvalue *in, const struct jbound *a)
{
    (void)in;
    const struct jstring *text = a->at[0] ? jtext(r->h, a->at[0]) : NULL;
    jheap_fail(r->h, "%.*s", text ? (int)(text->bytes > 300 ? 300 : text->bytes) : 0,
               text ? text->text : "");
}

static struct jvalue global_strftime(struct jrun *r, const struct jvalue *in,
                                     const struct jbound *a)
{
    (void)in;
    char form[128], text[512];
    r->h->steps += STRFTIME_STEPS;
    const struct jstring *s = jstring_argument(r, a->at[0]);
    if (!s || s->bytes >= sizeof form || memchr(s->text, 0, s->bytes))
        jheap_fail(r->h, "strftime_now needs a short format");
    memcpy(form, s->text, s->bytes);
    form[s->bytes] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, form, r->now);
#pragma GCC diagnostic pop
    return jstring_value(jstring_copy(r->h, text, n, jstring_origin(s)));
}

static const struct jrow globals[] = {{"range", global_range, "start stop step"},
                                      {"dict", global_dict, "*"},
                                      {"namespace", global_namespace, "*"},
                                      {"raise_exception", global_raise, "message"},
                                      {"strftime_now", global_strftime, "format"}};
const struct jrows jglobals = {globals, ARRAY_LEN(globals)};

/* ---- tests ---- */

#define TEST(name, condition)                                                                      \
    static struct jvalue test_##name(struct jrun *r, const struct jvalue *in,                      \
                                     const struct jbound *a)                                       \
    {                                                                                              \
        (void)r, (void)in, (void)a;                                                                \
        return jbool(condition);                                                                   \
    }

static bool is_sequence(const struct jvalue *v) /* has a length and elements by index */
{
    return v->kind == JSTRING || v->kind == JDICT || v->kind == JUNDEFINED ||
           (v->kind == JLIST && v->list->form <= JFORM_RANGE);
}

static bool is_case(struct jrun *r, const struct jvalue *v, enum jcase to)
{
    struct jvalue s = jstring_value(jtext(r->h, v));
    enum jcase other = to == JCASE_UPPER ? JCASE_LOWER : JCASE_UPPER;
    return jstring_same(r->h, s.string, jstring_case(r->h, s.string, to)) &&
           !jstring_same(r->h, s.string, jstring_case(r->h, s.string, other));
}

/* What Python's % gives: of a text, a text, which is not 0. */
static bool rest_is(struct jrun *r, const struct jvalue *in, struct jvalue by, int64_t expected)
{
    struct jvalue rest = jbinary(r, JOP_MOD, in, &by), wanted = jint(expected);
    return jequal(r->h, &rest, &wanted);
}

/* Names are keys of a dict of the environment. */
static bool is_name(struct jrun *r, const struct jvalue *v)
{
    jcheck_key(r->h, v);
    return v->kind == JSTRING;
}

TEST(defined, in->kind != JUNDEFINED)
TEST(undefined, in->kind == JUNDEFINED)
TEST(none, in->kind == JNONE)
TEST(string, in->kind == JSTRING)
TEST(number, jis_number(in))
TEST(integer, in->kind == JINT)
TEST(float, in->kind == JFLOAT)
TEST(boolean, in->kind == JBOOL)
TEST(true, in->kind == JBOOL && in->truth)
TEST(false, in->kind == JBOOL && !in->truth)
TEST(mapping, in->kind == JDICT)
TEST(iterable, in->kind == JSTRING || in->kind == JLIST || in->kind == JDICT ||
                   in->kind == JUNDEFINED || in->kind == JLOOP)
TEST(sequence, is_sequence(in))
TEST(callable,
     in->kind == JMACRO || in->kind == JGLOBAL || in->kind == JMETHOD || in->kind == JUNDEFINED)
TEST(odd, rest_is(r, in, jint(2), 1))
TEST(even, rest_is(r, in, jint(2), 0))
TEST(divisibleby, rest_is(r, in, *a->at[0], 0))
TEST(eq, jequal(r->h, in, a->at[0]))
TEST(ne, !jequal(r->h, in, a->at[0]))
TEST(lt, jcompare(r->h, in, a->at[0]) < 0)
TEST(le, jcompare(r->h, in, a->at[0]) <= 0)
TEST(gt, jcompare(r->h, in, a->at[0]) > 0)
TEST(ge, jcompare(r->h, in, a->at[0]) >= 0)
TEST(in, jcontains(r->h, a->at[0], in))
TEST(lower, is_case(r, in, JCASE_LOWER))
TEST(upper, is_case(r, in, JCASE_UPPER))
TEST(sameas, in->kind == a->at[0]->kind && jequal(r->h, in, a->at[0]))
TEST(escaped, in->kind == JSTRING && in->string->markup)
TEST(filter,
     is_name(r, in) && (jrow_find(jtext_filters.at, jtext_filters.count, in->string) != SIZE_MAX ||
                        jrow_find(jlist_filters.at, jlist_filters.count, in->string) != SIZE_MAX ||
                        jrow_find(jlazy_filters.at, jlazy_filters.count, in->string) != SIZE_MAX))
TEST(test, is_name(r, in) && jrow_find(jtests.at, jtests.count, in->string) != SIZE_MAX)

static const struct jrow tests[] = {{"defined", test_defined, ""},
                                    {"undefined", test_undefined, ""},
                                    {"none", test_none, ""},
                                    {"string", test_string, ""},
                                    {"number", test_number, ""},
                                    {"integer", test_integer, ""},
                                    {"float", test_float, ""},
                                    {"boolean", test_boolean, ""},
                                    {"true", test_true, ""},
                                    {"false", test_false, ""},
                                    {"mapping", test_mapping, ""},
                                    {"iterable", test_iterable, ""},
                                    {"sequence", test_sequence, ""},
                                    {"callable", test_callable, ""},
                                    {"odd", test_odd, ""},
                                    {"even", test_even, ""},
                                    {"divisibleby", test_divisibleby, "num!"},
                                    {"eq", test_eq, "other!"},
                                    {"equalto", test_eq, "other!"},
                                    {"==", test_eq, "other!"},
                                    {"ne", test_ne, "other!"},
                                    {"!=", test_ne, "other!"},
                                    {"lt", test_lt, "other!"},
                                    {"lessthan", test_lt, "other!"},
                                    {"<", test_lt, "other!"},
                                    {"le", test_le, "other!"},
                                    {"<=", test_le, "other!"},
                                    {"gt", test_gt, "other!"},
                                    {"greaterthan", test_gt, "other!"},
                                    {">", test_gt, "other!"},
                                    {"ge", test_ge, "other!"},
                                    {">=", test_ge, "other!"},
                                    {"in", test_in, "seq!"},
                                    {"lower", test_lower, ""},
                                    {"upper", test_upper, ""},
                                    {"sameas", test_sameas, "other!"},
                                    {"escaped", test_escaped, ""},
                                    {"filter", test_filter, ""},
                                    {"test", test_test, ""}};
const struct jrows jtests = {tests, ARRAY_LEN(tests)};
