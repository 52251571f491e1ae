/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of lists and dicts. What Python makes a generator is one here, with its elements made at
 * once: true even if empty, without a length. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/run/run.h"

#define FILTER(name)                                                                               \
    static struct jvalue filter_##name(struct jrun *r, const struct jvalue *in,                    \
                                       const struct jbound *a)

/* ---- attributes by name ---- */

/* Element of a value by "a.b.0". NULL: the value itself. */
static struct jvalue get(struct jrun *r, struct jvalue v, const struct jvalue *attribute,
                         const struct jvalue *otherwise)
{
    if (!attribute || attribute->kind == JNONE)
        return v;
    if (attribute->kind != JSTRING) {
        v = jitem(r, &v, attribute);
        return v.kind == JUNDEFINED && otherwise ? *otherwise : v;
    }
    const struct jstring *s = attribute->string;
    for (size_t from = 0; from <= s->bytes;) {
        jheap_step(r->h);
        const char *dot = memchr(s->text + from, '.', s->bytes - from);
        size_t to = dot ? (size_t)(dot - s->text) : s->bytes, n = to - from;
        int64_t index = 0;
        bool digits = n > 0 && n < 10;
        for (size_t i = from; i < to && digits; i++) {
            digits = s->text[i] >= '0' && s->text[i] <= '9';
            index = index * 10 + (s->text[i] - '0');
        }
        struct jvalue key = digits ? jint(index) : jstring_value(jstring_part(r->h, s, from, to));
        v = jitem(r, &v, &key);
        if (v.kind == JUNDEFINED && otherwise)
            v = *otherwise;
        from = to + 1;
    }
    return v;
}

static struct jvalue folded(struct jrun *r, struct jvalue v, bool case_sensitive)
{
    return v.kind == JSTRING && !case_sensitive
               ? jstring_value(jstring_case(r->h, v.string, JCASE_LOWER))
               : v;
}

/* ---- whole lists ---- */

static struct jvalue copy_of(struct jrun *r, const struct jlist *l, enum jlist_form form)
{
    struct jvalue v = jlist_new(r->h, form, l->count);
    for (size_t i = 0; i < l->count; i++)
        jlist_add(r->h, v.list, l->at[i]);
    v.list->origin = l->origin;
    return v;
}

FILTER(list)
{
    (void)a;
    return copy_of(r, jiterate(r->h, in), JFORM_LIST);
}

FILTER(first)
{
    (void)a;
    const struct jlist *l = jiterate(r->h, in);
    return l->count > 0 ? l->at[0] : jundefined(r->h, "No first item, sequence was empty.");
}

FILTER(last)
{
    (void)a;
    if (in->kind == JLIST && in->list->form == JFORM_GENERATOR)
        jheap_fail(r->h, "'generator' object is not reversible");
    const struct jlist *l = jiterate(r->h, in);
    return l->count > 0 ? l->at[l->count - 1]
                        : jundefined(r->h, "No last item, sequence was empty.");
}

FILTER(reverse)
{
    (void)a;
    /* Python reverses what has no order from its end as a list */
    bool generator = in->kind == JLIST && in->list->form == JFORM_GENERATOR;
    const struct jlist *l = jiterate(r->h, in);
    struct jvalue v = jlist_new(r->h, generator ? JFORM_LIST : JFORM_GENERATOR, l->count);
    struct jbuffer b = {0};
    for (size_t i = l->count; i > 0; i--) {
        if (in->kind == JSTRING)
            jbuffer_string(r->h, &b, l->at[i - 1].string);
        else
            jlist_add(r->h, v.list, l->at[i - 1]);
    }
    return in->kind == JSTRING ? jstring_value(jbuffer_take(r->h, &b)) : v;
}

FILTER(join)
{
    const struct jlist *l = jiterate(r->h, in);
    const struct jstring *between = a->at[0] ? jtext(r->h, a->at[0]) : NULL;
    struct jbuffer b = {0};
    for (size_t i = 0; i < l->count; i++) {
        struct jvalue v = get(r, l->at[i], a->at[1], NULL);
        jheap_step(r->h);
        if (i > 0 && between)
            jbuffer_string(r->h, &b, between);
        jprint(r->h, &b, &v);
    }
    return jstring_value(jbuffer_take(r->h, &b));
}

FILTER(items)
{
    (void)a;
    if (in->kind != JDICT && in->kind != JUNDEFINED)
        jheap_fail(r->h, "Can only get item pairs from a mapping.");
    struct jvalue v = jlist_new(r->h, JFORM_GENERATOR, 0);
    for (size_t i = 0; in->kind == JDICT && i < in->dict->count; i++) {
        struct jvalue pair = jlist_new(r->h, JFORM_TUPLE, 2);
        jlist_add(r->h, pair.list, in->dict->at[i].key);
        jlist_add(r->h, pair.list, in->dict->at[i].value);
        jlist_add(r->h, v.list, pair);
    }
    return v;
}

/* ---- order ---- */

struct sorted {
    struct jvalue key, value;
};

/* Stable; a merge of ever longer runs. */
static void sort(struct jrun *r, struct sorted *at, size_t count, bool reverse)
{
    struct sorted *other = jheap_array(r->h, count, sizeof *other);
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t from = 0; from < count; from += 2 * run) {
            size_t mid = from + run < count ? from + run : count, i = from, j = mid;
            size_t end = mid + run < count ? mid + run : count;
            for (size_t to = from; to < end; to++) {
                bool right = i == mid;
                if (!right && j < end) {
                    int order = jcompare(r->h, &at[j].key, &at[i].key);
                    right = reverse ? order > 0 : order < 0;
                }
                other[to] = at[right ? j++ : i++];
            }
        }
        memcpy(at, other, count * sizeof *at);
        jheap_work(r->h, 2 * count); /* what is left of a run is not compared */
    }
}

/* The value of a list of attributes, separated by commas, as a list: the elements of equal lists
 * need no order. */
static struct jvalue keys_of(struct jrun *r, struct jvalue v, const struct jvalue *attribute,
                             bool case_sensitive)
{
    struct jvalue keys = jlist_new(r->h, JFORM_LIST, 1);
    const struct jstring *s = attribute && attribute->kind == JSTRING ? attribute->string : NULL;
    if (!s)
        jlist_add(r->h, keys.list, folded(r, get(r, v, attribute, NULL), case_sensitive));
    for (size_t from = 0; s && from <= s->bytes;) {
        const char *comma = memchr(s->text + from, ',', s->bytes - from);
        size_t to = comma ? (size_t)(comma - s->text) : s->bytes;
        struct jvalue part = jstring_value(jstring_part(r->h, s, from, to));
        jlist_add(r->h, keys.list, folded(r, get(r, v, &part, NULL), case_sensitive));
        from = to + 1;
    }
    return keys;
}

FILTER(sort)
{
    const struct jlist *l = jiterate(r->h, in);
    bool sensitive = jtruth_argument(a->at[1], false);
    struct sorted *at = jheap_array(r->h, l->count + 1, sizeof *at);
    for (size_t i = 0; i < l->count; i++)
        at[i] = (struct sorted){keys_of(r, l->at[i], a->at[2], sensitive), l->at[i]};
    sort(r, at, l->count, jint_argument(r, a->at[0], 0) != 0);
    struct jvalue v = jlist_new(r->h, JFORM_LIST, l->count);
    for (size_t i = 0; i < l->count; i++)
        jlist_add(r->h, v.list, at[i].value);
    return v;
}

/* Sorts values by an attribute. */
static struct sorted *sorted_by(struct jrun *r, const struct jlist *l,
                                const struct jvalue *attribute, const struct jvalue *otherwise,
                                bool case_sensitive)
{
    struct sorted *at = jheap_array(r->h, l->count + 1, sizeof *at);
    for (size_t i = 0; i < l->count; i++)
        at[i] = (struct sorted){folded(r, get(r, l->at[i], attribute, otherwise), case_sensitive),
                                l->at[i]};
    sort(r, at, l->count, false);
    return at;
}

FILTER(dictsort)
{
    const struct jstring *by = jstring_argument(r, a->at[1]);
    bool by_value = by && jstring_is(by, "value"), sensitive = jtruth_argument(a->at[0], false);
    if (in->kind != JDICT || (by && !by_value && !jstring_is(by, "key")))
        jheap_fail(r->h, "dictsort takes a mapping, and by is key or value");
    size_t n = in->dict->count;
    struct sorted *at = jheap_array(r->h, n + 1, sizeof *at);
    for (size_t i = 0; i < n; i++) {
        const struct jpair *p = &in->dict->at[i];
        struct jvalue pair = jlist_new(r->h, JFORM_TUPLE, 2);
        jlist_add(r->h, pair.list, p->key);
        jlist_add(r->h, pair.list, p->value);
        at[i] = (struct sorted){folded(r, by_value ? p->value : p->key, sensitive), pair};
    }
    sort(r, at, n, jint_argument(r, a->at[2], 0) != 0);
    struct jvalue v = jlist_new(r->h, JFORM_LIST, n);
    for (size_t i = 0; i < n; i++)
        jlist_add(r->h, v.list, at[i].value);
    return v;
}

FILTER(groupby)
{
    const struct jlist *l = jiterate(r->h, in);
    bool sensitive = jtruth_argument(a->at[2], false);
    const struct sorted *at = sorted_by(r, l, a->at[0], a->at[1], sensitive);
    struct jvalue v = jlist_new(r->h, JFORM_LIST, 0), group = {0};
    for (size_t i = 0; i < l->count; i++) {
        if (i == 0 || !jequal(r->h, &at[i].key, &at[i - 1].key)) {
            struct jvalue pair = jlist_new(r->h, JFORM_TUPLE, 2);
            group = jlist_new(r->h, JFORM_LIST, 0);
            jlist_add(r->h, pair.list, get(r, at[i].value, a->at[0], a->at[1]));
            jlist_add(r->h, pair.list, group);
            jlist_add(r->h, v.list, pair);
        }
        jlist_add(r->h, group.list, at[i].value);
    }
    return v;
}

static struct jvalue extreme(struct jrun *r, const struct jvalue *in, const struct jbound *a,
                             int sign)
{
    const struct jlist *l = jiterate(r->h, in);
    bool sensitive = jtruth_argument(a->at[0], false);
    struct jvalue best = jundefined(r->h, "No aggregated item, sequence was empty."),
                  best_key = best;
    for (size_t i = 0; i < l->count; i++) {
        struct jvalue key = folded(r, get(r, l->at[i], a->at[1], NULL), sensitive);
        if (i > 0 && jcompare(r->h, &key, &best_key) * sign <= 0)
            continue;
        best = l->at[i];
        best_key = key;
    }
    return best;
}

FILTER(min)
{
    return extreme(r, in, a, -1);
}

FILTER(max)
{
    return extreme(r, in, a, 1);
}

FILTER(sum)
{
    const struct jlist *l = jiterate(r->h, in);
    struct jvalue sum = a->at[1] ? *a->at[1] : jint(0);
    if (sum.kind == JSTRING)
        jheap_fail(r->h, "sum() can't sum strings");
    for (size_t i = 0; i < l->count; i++) {
        struct jvalue v = get(r, l->at[i], a->at[0], NULL);
        jheap_step(r->h);
        sum = jbinary(r, JOP_ADD, &sum, &v);
    }
    return sum;
}

FILTER(unique)
{
    const struct jlist *l = jiterate(r->h, in);
    bool sensitive = jtruth_argument(a->at[0], false);
    struct jvalue v = jlist_new(r->h, JFORM_GENERATOR, 0), seen = jdict_new(r->h, 0);
    for (size_t i = 0; i < l->count; i++) {
        struct jvalue key = folded(r, get(r, l->at[i], a->at[1], NULL), sensitive);
        if (jdict_find(r->h, seen.dict, key))
            continue;
        jdict_set(r->h, seen.dict, key, jnone());
        jlist_add(r->h, v.list, l->at[i]);
    }
    return v;
}

FILTER(batch)
{
    const struct jlist *l = jiterate(r->h, in);
    bool fills = a->at[1] && a->at[1]->kind != JNONE, number = jis_number(a->at[0]);
    /* Python compares lengths with it, whatever it is; only to fill a part it must be whole */
    double n = number ? jreal(a->at[0]) : -1;
    struct jvalue v = jlist_new(r->h, JFORM_GENERATOR, 0), part = jlist_new(r->h, JFORM_LIST, 0);
    for (size_t i = 0; i < l->count; i++) {
        if ((double)part.list->count == n) {
            jlist_add(r->h, v.list, part);
            part = jlist_new(r->h, JFORM_LIST, 0);
        }
        jlist_add(r->h, part.list, l->at[i]);
    }
    if (l->count == 0)
        return v;
    if (fills && (!number || (double)part.list->count < n))
        for (int64_t rest = jint_argument(r, a->at[0], 0); (int64_t)part.list->count < rest;)
            jlist_add(r->h, part.list, *a->at[1]);
    jlist_add(r->h, v.list, part);
    return v;
}

/* ---- map, select ---- */

/* The arguments after the first `skip`. */
static struct jcall arguments_after(const struct jcall *call, size_t skip)
{
    struct jcall rest = *call;
    rest.list += skip;
    rest.count -= skip;
    return rest;
}

static const struct jstring *name_at(struct jrun *r, const struct jcall *call, size_t i)
{
    if (i >= call->count || call->list[i].kind != JSTRING)
        jheap_fail(r->h, "the name of a filter, test or attribute is missing");
    return call->list[i].string;
}

FILTER(map)
{
    const struct jcall *call = a->call;
    struct jvalue v = jlist_new(r->h, JFORM_GENERATOR, 0);
    const struct jvalue *attribute = NULL, *otherwise = NULL;
    for (size_t i = 0; call->count == 0 && i < call->named_count; i++) {
        if (jstring_is(call->named[i].name, "attribute"))
            attribute = &call->named[i].value;
        else if (jstring_is(call->named[i].name, "default"))
            otherwise = &call->named[i].value;
    }
    if (!jtruth(in))
        return v;
    const struct jlist *l = jiterate(r->h, in);
    for (size_t i = 0; i < l->count; i++) {
        jheap_step(r->h);
        if (attribute) {
            jlist_add(r->h, v.list, get(r, l->at[i], attribute, otherwise));
            continue;
        }
        const struct jstring *name = name_at(r, call, 0);
        struct jcall rest = arguments_after(call, 1);
        jheap_enter(r->h);
        jlist_add(r->h, v.list, jfilter(r, name, &l->at[i], &rest));
        jheap_leave(r->h);
    }
    return v;
}

static struct jvalue selected(struct jrun *r, const struct jvalue *in, const struct jcall *call,
                              bool by_attribute, bool wanted)
{
    struct jvalue v = jlist_new(r->h, JFORM_GENERATOR, 0);
    const struct jvalue *attribute = NULL;
    if (!jtruth(in))
        return v;
    if (by_attribute) {
        if (call->count == 0)
            jheap_fail(r->h, "Missing parameter for attribute name");
        attribute = &call->list[0];
    }
    const struct jlist *l = jiterate(r->h, in);
    for (size_t i = 0; i < l->count; i++) {
        struct jvalue tested = get(r, l->at[i], attribute, NULL);
        bool holds = jtruth(&tested);
        jheap_step(r->h);
        if (call->count > by_attribute) {
            struct jcall rest = arguments_after(call, (size_t)by_attribute + 1);
            holds = jtest(r, name_at(r, call, by_attribute), &tested, &rest);
        }
        if (holds == wanted)
            jlist_add(r->h, v.list, l->at[i]);
    }
    return v;
}

FILTER(select)
{
    return selected(r, in, a->call, false, true);
}

FILTER(reject)
{
    return selected(r, in, a->call, false, false);
}

FILTER(selectattr)
{
    return selected(r, in, a->call, true, true);
}

FILTER(rejectattr)
{
    return selected(r, in, a->call, true, false);
}

static const struct jrow rows[] = {{"list", filter_list, ""},
                                   {"first", filter_first, ""},
                                   {"last", filter_last, ""},
                                   {"reverse", filter_reverse, ""},
                                   {"join", filter_join, "d attribute"},
                                   {"sort", filter_sort, "reverse case_sensitive attribute"},
                                   {"dictsort", filter_dictsort, "case_sensitive by reverse"},
                                   {"groupby", filter_groupby, "attribute! default case_sensitive"},
                                   {"min", filter_min, "case_sensitive attribute"},
                                   {"max", filter_max, "case_sensitive attribute"},
                                   {"sum", filter_sum, "attribute start"}};
const struct jrows jlist_filters = {rows, ARRAY_LEN(rows)};

static const struct jrow lazy_rows[] = {{"items", filter_items, ""},
                                        {"unique", filter_unique, "case_sensitive attribute"},
                                        {"batch", filter_batch, "linecount! fill_with"},
                                        {"map", filter_map, "*"},
                                        {"select", filter_select, "*"},
                                        {"reject", filter_reject, "*"},
                                        {"selectattr", filter_selectattr, "*"},
                                        {"rejectattr", filter_rejectattr, "*"}};
const struct jrows jlazy_filters = {lazy_rows, ARRAY_LEN(lazy_rows)};
