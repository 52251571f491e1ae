/* SPDX-License-Identifier: Apache-2.0 */
/* Filters whose result is a string, a number or one value. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/run/run.h"

#define NUMBER_STEPS 20 /* of printf, strtod */

#define FILTER(name)                                                                               \
    static struct jvalue filter_##name(struct jrun *r, const struct jvalue *in,                    \
                                       const struct jbound *a)

/* str() of a value: no Markup. */
static struct jvalue plain(struct jrun *r, const struct jvalue *v)
{
    return jstring_value(jstring_marked(r->h, jtext(r->h, v), false));
}

static struct jvalue call_method(struct jrun *r, const char *name, const struct jvalue *self,
                                 const struct jcall *call)
{
    const struct jstring s = {.text = name, .bytes = strlen(name)};
    size_t row = jrow_find(jmethods_string.at, jmethods_string.count, &s);
    return jrow_call(r, &jmethods_string.at[row], self, call);
}

FILTER(string)
{
    (void)a;
    return jstring_value(jtext(r->h, in));
}

FILTER(trim)
{
    return jstring_value(
        jstring_strip(r->h, jtext(r->h, in), jstring_argument(r, a->at[0]), JSTRIP_BOTH));
}

FILTER(upper)
{
    (void)a;
    return jstring_value(jstring_case(r->h, jtext(r->h, in), JCASE_UPPER));
}

FILTER(lower)
{
    (void)a;
    return jstring_value(jstring_case(r->h, jtext(r->h, in), JCASE_LOWER));
}

FILTER(capitalize)
{
    (void)a;
    return jstring_value(jstring_case(r->h, jtext(r->h, in), JCASE_CAPITAL));
}

FILTER(title)
{
    (void)a;
    return jstring_value(jstring_case(r->h, jtext(r->h, in), JCASE_TITLE));
}

FILTER(default)
{
    if (in->kind == JUNDEFINED || (jtruth_argument(a->at[1], false) && !jtruth(in)))
        return a->at[0] ? *a->at[0] : jstring_value(jstring_of(r->h, "", 0, JORIGIN_TEMPLATE));
    return *in;
}

FILTER(replace)
{
    struct jcall call = {0};
    struct jvalue list[3], self = plain(r, in);
    for (; call.count < 3 && a->at[call.count]; call.count++)
        list[call.count] = call.count < 2 ? plain(r, a->at[call.count]) : *a->at[call.count];
    call.list = list;
    return call_method(r, "replace", &self, &call);
}

static double parse_real(struct jheap *h, const struct jstring *s, bool *valid)
{
    char text[128], *end = text;
    h->steps += NUMBER_STEPS;
    size_t n = s->bytes < sizeof text ? s->bytes : 0;
    memcpy(text, s->text, n);
    text[n] = 0;
    double real = strtod(text, &end);
    *valid = n > 0 && end == text + n && !strpbrk(text, "xX(");
    return real;
}

FILTER(float)
{
    bool valid = jis_number(in);
    double real = valid ? jreal(in) : 0;
    if (in->kind == JSTRING)
        real = parse_real(r->h, jstring_strip(r->h, in->string, NULL, JSTRIP_BOTH), &valid);
    if (valid)
        return jfloat(real);
    if (in->kind == JUNDEFINED)
        jheap_fail(r->h, "%s", in->missing);
    return a->at[0] ? *a->at[0] : jfloat(0);
}

FILTER(int)
{
    struct jvalue otherwise = a->at[0] ? *a->at[0] : jint(0);
    bool based = !a->at[1] || a->at[1]->kind == JINT || a->at[1]->kind == JBOOL;
    int64_t base = based ? jint_argument(r, a->at[1], 10) : -1; /* of a text only */
    bool valid = jis_number(in);
    double real = valid ? jreal(in) : 0;
    if (in->kind == JINT || in->kind == JBOOL)
        return jint(jint_argument(r, in, 0));
    if (in->kind == JUNDEFINED)
        jheap_fail(r->h, "%s", in->missing);
    if (in->kind == JSTRING) {
        const struct jstring *s = jstring_strip(r->h, in->string, NULL, JSTRIP_BOTH);
        char text[80] = "", *end = text;
        memcpy(text, s->text, s->bytes < sizeof text ? s->bytes : 0);
        errno = 0;
        long long value =
            base == 0 || (base >= 2 && base <= 36) ? strtoll(text, &end, (int)base) : 0;
        if (text[0] && *end == 0 && errno == 0 && (size_t)(end - text) == s->bytes)
            return jint(value);
        real = parse_real(r->h, s, &valid);
    }
    if (!valid || isnan(real) || fabs(real) >= 0x1p63)
        return otherwise;
    return jint((int64_t)real);
}

FILTER(abs)
{
    (void)a;
    if (!jis_number(in))
        jheap_fail(r->h, "bad operand type for abs(): '%s'", jtype_name(in));
    if (in->kind == JFLOAT)
        return jfloat(fabs(in->real));
    int64_t i = jint_argument(r, in, 0);
    if (i == INT64_MIN)
        jheap_fail(r->h, "an integer is too large");
    return jint(i < 0 ? -i : i);
}

FILTER(round)
{
    const struct jstring *method = jstring_argument(r, a->at[1]);
    bool whole = a->at[0] && a->at[0]->kind == JNONE;
    int64_t precision = whole ? 0 : jint_argument(r, a->at[0], 0);
    if (!jis_number(in) || precision < -300 || precision > 300)
        jheap_fail(r->h, "round needs a number");
    double scale = pow(10, (double)precision), value = jreal(in);
    if (method && jstring_is(method, "ceil"))
        return jfloat(ceil(value * scale) / scale);
    if (method && jstring_is(method, "floor"))
        return jfloat(floor(value * scale) / scale);
    if (method && !jstring_is(method, "common"))
        jheap_fail(r->h, "method must be common, ceil or floor");
    if (in->kind != JFLOAT && precision >= 0)
        return jint(jint_argument(r, in, 0));
    if (whole) {
        if (!(fabs(value) < 0x1p63))
            jheap_fail(r->h, "an integer is too large");
        return jint((int64_t)nearbyint(value));
    }
    if (precision < 0) {
        double rounded = nearbyint(value * scale) / scale;
        if (in->kind == JFLOAT)
            return jfloat(rounded);
        if (!(fabs(rounded) < 0x1p63))
            jheap_fail(r->h, "an integer is too large");
        return jint((int64_t)rounded);
    }
    r->h->steps += 2 * NUMBER_STEPS + (uint64_t)precision;
    char text[700]; /* printf rounds the exact value to even, as Python does */
    snprintf(text, sizeof text, "%.*f", (int)precision, value);
    return jfloat(strtod(text, NULL));
}

FILTER(length)
{
    (void)a;
    return jint((int64_t)jlength(r->h, in));
}

FILTER(wordcount)
{
    (void)a;
    const struct jstring *s = jtext(r->h, in);
    int64_t words = 0;
    bool inside = false;
    jheap_work(r->h, s->bytes);
    for (size_t at = 0; at < s->bytes;) {
        uint32_t c = jchar_next(s->text, s->bytes, &at);
        bool word =
            c >= 0x80 ? !jchar_blank(c) && !(c >= 0x2000 && c <= 0x2bff) && c < 0x1f000
                      : (c >= '0' && c <= '9') || c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z');
        words += word && !inside;
        inside = word;
    }
    return jint(words);
}

FILTER(escape)
{
    (void)a;
    return jstring_value(jstring_escape(r->h, jtext(r->h, in)));
}

FILTER(forceescape)
{
    (void)a;
    return jstring_value(jstring_escape(r->h, jstring_marked(r->h, jtext(r->h, in), false)));
}

static const struct jstring *spaces(struct jrun *r, int64_t count)
{
    if (count > 4096)
        jheap_fail(r->h, "an indentation is too large");
    char *text = jheap_get(r->h, count > 0 ? (size_t)count : 1);
    memset(text, ' ', count > 0 ? (size_t)count : 0);
    return jstring_of(r->h, text, count > 0 ? (size_t)count : 0, JORIGIN_TEMPLATE);
}

FILTER(tojson)
{
    struct jjson_form form = {.ascii = jtruth_argument(a->at[0], false),
                              .sorted = jtruth_argument(a->at[3], false)};
    struct jbuffer b = {0};
    if (a->at[1] && a->at[1]->kind == JSTRING)
        form.indent = a->at[1]->string;
    else if (a->at[1] && a->at[1]->kind != JNONE)
        form.indent = spaces(r, jint_argument(r, a->at[1], 0));
    if (a->at[2] && a->at[2]->kind != JNONE) {
        const struct jlist *l = jiterate(r->h, a->at[2]);
        if (l->count != 2)
            jheap_fail(r->h, "separators are a pair");
        form.item = jstring_argument(r, &l->at[0]);
        form.colon = jstring_argument(r, &l->at[1]);
    }
    jprint_json(r->h, &b, in, &form);
    return jstring_value(jbuffer_take(r->h, &b));
}

/* Lines as str.splitlines has them. */
FILTER(indent)
{
    if (in->kind != JSTRING)
        jheap_fail(r->h, "indent takes a text, not %s", jtype_name(in));
    const struct jstring *s = in->string, *width,
                         *newline = jstring_of(r->h, "\n", 1, JORIGIN_TEMPLATE);
    bool first = jtruth_argument(a->at[1], false), blank = jtruth_argument(a->at[2], false);
    width = a->at[0] && a->at[0]->kind == JSTRING ? a->at[0]->string
                                                  : spaces(r, jint_argument(r, a->at[0], 4));
    struct jvalue self = jstring_value(jstring_join(r->h, s, newline));
    struct jcall call = {0};
    struct jvalue lines = call_method(r, "splitlines", &self, &call);
    struct jbuffer b = {0};
    for (size_t i = 0; i < lines.list->count; i++) {
        const struct jstring *line = lines.list->at[i].string;
        if (i > 0)
            jbuffer_text(r->h, &b, "\n", JORIGIN_TEMPLATE);
        if (i == 0 ? first : blank || line->bytes > 0)
            jbuffer_string(r->h, &b, width);
        jbuffer_string(r->h, &b, line);
    }
    return jstring_value(jstring_marked(r->h, jbuffer_take(r->h, &b), s->markup));
}

FILTER(format)
{
    const struct jstring *s = jtext(r->h, in);
    struct jvalue v;
    if (a->call->named_count > 0) {
        v = jdict_new(r->h, a->call->named_count);
        for (size_t i = 0; i < a->call->named_count; i++)
            jdict_set(r->h, v.dict, jstring_value(a->call->named[i].key), a->call->named[i].value);
    } else {
        v = jlist_new(r->h, JFORM_TUPLE, a->call->count);
        for (size_t i = 0; i < a->call->count; i++)
            jlist_add(r->h, v.list, a->call->list[i]);
    }
    return jformat_percent(r, s, &v);
}

FILTER(safe)
{
    (void)a;
    return jstring_value(jstring_marked(r->h, jtext(r->h, in), true));
}

FILTER(attr)
{
    const struct jstring *name = jstring_argument(r, a->at[0]);
    if (!name || in->kind == JDICT) /* only what is no element */
        return jundefined(r->h, "no such attribute");
    return jattribute(r, in, name);
}

static const struct jrow rows[] = {
    {"string", filter_string, ""},
    {"trim", filter_trim, "chars"},
    {"upper", filter_upper, ""},
    {"lower", filter_lower, ""},
    {"capitalize", filter_capitalize, ""},
    {"title", filter_title, ""},
    {"default", filter_default, "default_value boolean"},
    {"d", filter_default, "default_value boolean"},
    {"replace", filter_replace, "old! new! count"},
    {"float", filter_float, "default"},
    {"int", filter_int, "default base"},
    {"abs", filter_abs, ""},
    {"round", filter_round, "precision method"},
    {"length", filter_length, ""},
    {"count", filter_length, ""},
    {"wordcount", filter_wordcount, ""},
    {"escape", filter_escape, ""},
    {"e", filter_escape, ""},
    {"forceescape", filter_forceescape, ""},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys"},
    {"indent", filter_indent, "width first blank"},
    {"format", filter_format, "*"},
    {"safe", filter_safe, ""},
    {"attr", filter_attr, "name!"}};
const struct jrows jtext_filters = {rows, ARRAY_LEN(rows)};
