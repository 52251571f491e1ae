/* SPDX-License-Identifier: Apache-2.0 */
/* "%s" % x and "{}".format(x), with what templates use of them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/run/run.h"

#define WIDTH_MAX    4096
#define NUMBER_STEPS 20 /* of printf */

struct spec {
    char fill, align, sign, type; /* 0: not given */
    bool zeros, markup;
    uint8_t origin; /* enum jorigin, of the fill */
    size_t width;
    int precision; /* -1: not given */
};

static struct jstring with_text(const char *text)
{
    return (struct jstring){.text = text, .bytes = strlen(text)};
}

/* Text of a number by the type of the spec, without its width. */
static const struct jstring *number_text(struct jrun *r, const struct spec *s,
                                         const struct jvalue *v)
{
    char text[400], form[16];
    if (!jis_number(v))
        jheap_fail(r->h, "format '%c' needs a number, not %s", s->type, jtype_name(v));
    const char *sign = s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    r->h->steps += NUMBER_STEPS + (s->precision > 0 ? (uint64_t)s->precision : 0) / 4;
    if (strchr("feg", s->type)) {
        snprintf(form, sizeof form, "%%%s.*%c", sign, s->type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int n = snprintf(text, sizeof text, form, s->precision < 0 ? 6 : s->precision, jreal(v));
#pragma GCC diagnostic pop
        if (n < 0 || (size_t)n >= sizeof text)
            jheap_fail(r->h, "a precision in a format is too large");
    } else {
        if (v->kind == JFLOAT && s->type != 'd')
            jheap_fail(r->h, "format '%c' needs an integer, not float", s->type);
        if (v->kind == JFLOAT && !(fabs(v->real) < 0x1p63))
            jheap_fail(r->h, "an integer is too large");
        int64_t i = v->kind == JFLOAT ? (int64_t)v->real : jint_argument(r, v, 0);
        uint64_t magnitude = i < 0 ? -(uint64_t)i : (uint64_t)i;
        if (s->type == 'x' || s->type == 'X')
            snprintf(text, sizeof text, s->type == 'x' ? "%s%" PRIx64 : "%s%" PRIX64,
                     i < 0 ? "-" : sign, magnitude);
        else
            snprintf(text, sizeof text, "%s%" PRIu64, i < 0 ? "-" : sign, magnitude);
    }
    return jstring_copy(r->h, text, strlen(text), (enum jorigin)v->origin);
}

static void put_padding(struct jrun *r, struct jbuffer *b, const struct spec *s, char fill,
                        size_t count)
{
    jheap_work(r->h, 4 * count);
    for (; count > 0; count--)
        jbuffer_add(r->h, b, &fill, 1, (enum jorigin)s->origin);
}

static void put_padded(struct jrun *r, struct jbuffer *b, const struct spec *s,
                       const struct jstring *text, bool number)
{
    size_t n = jstring_length(r->h, text), pad = s->width > n ? s->width - n : 0;
    char align = s->align ? s->align : number ? '>' : '<';
    if (s->zeros && number && !s->align) {
        size_t sign = text->bytes > 0 && strchr("+- ", text->text[0]) ? 1 : 0;
        jbuffer_string(r->h, b, jstring_part(r->h, text, 0, sign));
        put_padding(r, b, s, '0', pad);
        jbuffer_string(r->h, b, jstring_part(r->h, text, sign, text->bytes));
        return;
    }
    size_t before = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
    char fill = s->fill ? s->fill : s->zeros ? '0' : ' ';
    put_padding(r, b, s, fill, before);
    jbuffer_string(r->h, b, text);
    put_padding(r, b, s, fill, pad - before);
}

static const struct jstring *repr_of(struct jrun *r, const struct jvalue *v)
{
    struct jbuffer repr = {0};
    jprint_repr(r->h, &repr, v);
    return jbuffer_take(r->h, &repr);
}

static void put_value(struct jrun *r, struct jbuffer *b, const struct spec *s,
                      const struct jvalue *v)
{
    if (s->type && strchr("dfegxX", s->type)) {
        put_padded(r, b, s, number_text(r, s, v), true);
        return;
    }
    const struct jstring *text = jtext(r->h, v);
    if (s->type == 'r')
        text = repr_of(r, v);
    if (s->precision >= 0)
        text = jstring_part(r->h, text, 0, jstring_offset(r->h, text, (size_t)s->precision));
    if (s->markup)
        text = jstring_escape(r->h, text);
    put_padded(r, b, s, text, s->type == 0 && jis_number(v) && v->kind != JBOOL);
}

static size_t take_number(struct jrun *r, const struct jstring *s, size_t *at)
{
    size_t n = 0;
    for (; *at < s->bytes && s->text[*at] >= '0' && s->text[*at] <= '9'; ++*at)
        if ((n = n * 10 + (size_t)(s->text[*at] - '0')) > WIDTH_MAX)
            jheap_fail(r->h, "a width in a format is too large");
    return n;
}

static char at_or_end(const struct jstring *s, size_t at)
{
    return at < s->bytes ? s->text[at] : 0;
}

/* ---- % ---- */

static const struct jvalue *percent_argument(struct jrun *r, const struct jvalue *v, size_t *used)
{
    bool tuple = v->kind == JLIST && v->list->form == JFORM_TUPLE;
    if (*used >= (tuple ? v->list->count : 1))
        jheap_fail(r->h, "not enough arguments for format string");
    return tuple ? &v->list->at[(*used)++] : (++*used, v);
}

static const struct jvalue *percent_named(struct jrun *r, const struct jstring *form, size_t *at,
                                          const struct jvalue *v)
{
    const char *close = memchr(form->text + *at, ')', form->bytes - *at);
    if (!close || v->kind != JDICT)
        jheap_fail(r->h, "format requires a mapping");
    size_t n = (size_t)(close - form->text) - *at;
    const struct jvalue *found = jdict_find_text(r->h, v->dict, form->text + *at, n);
    if (!found)
        jheap_fail(r->h, "a format names a key that is missing");
    *at += n + 1;
    return found;
}

/* After "%". */
static void percent_one(struct jrun *r, struct jbuffer *b, const struct jstring *form, size_t *at,
                        const struct jvalue *v, size_t *used)
{
    struct spec s = {.precision = -1,
                     .align = '>',
                     .markup = form->markup,
                     .origin = (uint8_t)jstring_origin(form)};
    const struct jvalue *given = NULL;
    if (at_or_end(form, *at) == '(') {
        ++*at;
        given = percent_named(r, form, at, v);
    }
    for (char c; (c = at_or_end(form, *at)) && strchr("-+ 0#", c); ++*at) {
        s.align = c == '-' ? '<' : s.align;
        s.sign = c == '+' || c == ' ' ? c : s.sign;
        s.zeros |= c == '0';
    }
    s.width = take_number(r, form, at);
    if (at_or_end(form, *at) == '.') {
        ++*at;
        s.precision = (int)take_number(r, form, at);
    }
    s.type = at_or_end(form, (*at)++);
    s.type = s.type == 'i' || s.type == 'u' ? 'd' : s.type;
    if (s.type == 0 || !strchr("srdfegxX", s.type))
        jheap_fail(r->h, "a format character is not supported");
    if (s.zeros && s.align == '>')
        s.align = 0;
    put_value(r, b, &s, given ? given : percent_argument(r, v, used));
}

struct jvalue jformat_percent(struct jrun *r, const struct jstring *form, const struct jvalue *v)
{
    struct jbuffer b = {0};
    size_t used = 0;
    jheap_work(r->h, form->bytes);
    for (size_t at = 0; at < form->bytes;) {
        const char *mark = memchr(form->text + at, '%', form->bytes - at);
        size_t to = mark ? (size_t)(mark - form->text) : form->bytes;
        jbuffer_string(r->h, &b, jstring_part(r->h, form, at, to));
        at = to + (mark != NULL);
        if (mark && at_or_end(form, at) == '%') {
            jbuffer_string(r->h, &b, jstring_part(r->h, form, at, at + 1));
            at++;
        } else if (mark) {
            percent_one(r, &b, form, &at, v, &used);
        }
    }
    bool tuple = v->kind == JLIST && v->list->form == JFORM_TUPLE;
    if (tuple ? used < v->list->count
              : used == 0 && v->kind != JDICT && v->kind != JLIST && v->kind != JUNDEFINED)
        jheap_fail(r->h, "not all arguments converted during string formatting");
    return jstring_value(jstring_marked(r->h, jbuffer_take(r->h, &b), form->markup));
}

/* ---- braces ---- */

static struct spec brace_spec(struct jrun *r, const struct jstring *s)
{
    struct spec out = {.precision = -1, .origin = (uint8_t)jstring_origin(s)};
    size_t at = 0;
    if (s->bytes > 1 && strchr("<>^", s->text[1])) {
        out.fill = s->text[0];
        at = 1;
    }
    if (at_or_end(s, at) && strchr("<>^", s->text[at]))
        out.align = s->text[at++];
    if (at_or_end(s, at) && strchr("+- ", s->text[at]))
        out.sign = s->text[at++];
    if (at_or_end(s, at) == '0') {
        out.zeros = true;
        at++;
    }
    out.width = take_number(r, s, &at);
    if (at_or_end(s, at) == '.') {
        at++;
        out.precision = (int)take_number(r, s, &at);
    }
    if (at_or_end(s, at) && strchr("sdfegxX", s->text[at]))
        out.type = s->text[at++];
    if (at != s->bytes)
        jheap_fail(r->h, "a format specification is not supported");
    return out;
}

static const struct jvalue *brace_argument(struct jrun *r, const struct jstring *name,
                                           const struct jcall *call, size_t *used)
{
    size_t at = 0, index = name->bytes == 0 ? (*used)++ : take_number(r, name, &at);
    if (name->bytes == 0 || at == name->bytes) {
        if (index >= call->count)
            jheap_fail(r->h, "a format has more fields than arguments");
        return &call->list[index];
    }
    for (size_t i = 0; i < call->named_count; i++)
        if (jstring_same(r->h, call->named[i].name, name))
            return &call->named[i].value;
    jheap_fail(r->h, "a format names an argument that is missing");
}

/* A float of a precision without a type: as 'g', but with a digit after the point. */
static const struct jstring *float_text(struct jrun *r, const struct spec *s, double real)
{
    char text[400], sign[2] = {s->sign == '-' ? 0 : s->sign, 0};
    int precision = s->precision > 0 ? s->precision : 1;
    snprintf(text, sizeof text, "%.*e", precision - 1, real);
    const char *exponent = strchr(text, 'e');
    long power = exponent ? strtol(exponent + 1, NULL, 10) : 0;
    bool point = exponent && power < precision - 1 && power >= -4;
    int n = snprintf(text, sizeof text, "%s%.*g", real < 0 ? "" : sign, precision, real);
    if (exponent && !point && !strchr(text, 'e')) /* what 'g' writes in full */
        n = snprintf(text, sizeof text, "%s%.*e", real < 0 ? "" : sign, precision - 1, real);
    else if (exponent && point && !strchr(text, '.'))
        n += snprintf(text + n, sizeof text - (size_t)n, ".0");
    if (n < 0 || (size_t)n >= sizeof text)
        jheap_fail(r->h, "a precision in a format is too large");
    return jstring_copy(r->h, text, (size_t)n, JORIGIN_TEMPLATE);
}

static const struct jstring *signed_text(struct jrun *r, const struct spec *s,
                                         const struct jvalue *v)
{
    struct jbuffer b = {0};
    if ((s->sign == '+' || s->sign == ' ') && !signbit(v->real))
        jbuffer_add(r->h, &b, &s->sign, 1, JORIGIN_TEMPLATE);
    jprint(r->h, &b, v);
    return jbuffer_take(r->h, &b);
}

/* What a type of values takes of a specification that is not empty. */
static void put_field(struct jrun *r, struct jbuffer *b, struct spec s, const struct jvalue *v)
{
    bool whole = v->kind == JINT || v->kind == JBOOL;
    if (whole && s.type == 0)
        s.type = 'd';
    const char *types = v->kind == JSTRING ? "s" : whole ? "dxXefg" : "efg";
    if (v->kind != JSTRING && !jis_number(v))
        jheap_fail(r->h, "a format specification is not for %s", jtype_name(v));
    if ((s.type && !strchr(types, s.type)) || (v->kind == JSTRING && s.sign) ||
        (s.precision >= 0 && s.type && strchr("dxX", s.type)))
        jheap_fail(r->h, "a format specification is not for %s", jtype_name(v));
    if (v->kind == JFLOAT && s.type == 0)
        put_padded(r, b, &s, s.precision >= 0 ? float_text(r, &s, v->real) : signed_text(r, &s, v),
                   true);
    else
        put_value(r, b, &s, v);
}

/* A field, between "{" and "}". */
static void brace_field(struct jrun *r, struct jbuffer *b, const struct jstring *field,
                        const struct jcall *call, size_t *used)
{
    const struct jstring colon = with_text(":"), repr = with_text("!r"), str = with_text("!s");
    size_t at = jstring_find(r->h, field, &colon, 0, field->bytes);
    size_t name = at == SIZE_MAX ? field->bytes : at;
    struct spec s =
        brace_spec(r, jstring_part(r->h, field, at == SIZE_MAX ? name : at + 1, field->bytes));
    s.markup = field->markup;
    bool as_repr = name >= 2 && jstring_find(r->h, field, &repr, name - 2, name) != SIZE_MAX;
    bool as_str = name >= 2 && jstring_find(r->h, field, &str, name - 2, name) != SIZE_MAX;
    name -= as_repr || as_str ? 2 : 0;
    struct jvalue v = *brace_argument(r, jstring_part(r->h, field, 0, name), call, used);
    if (as_repr || as_str)
        v = jstring_value(as_repr ? repr_of(r, &v) : jtext(r->h, &v));
    if (at == SIZE_MAX || at + 1 == field->bytes)
        put_value(r, b, &s, &v);
    else
        put_field(r, b, s, &v);
}

struct jvalue jformat_braces(struct jrun *r, const struct jstring *form, const struct jcall *call)
{
    struct jbuffer b = {0};
    size_t used = 0;
    jheap_work(r->h, form->bytes);
    for (size_t at = 0; at < form->bytes;) {
        size_t to = at;
        while (to < form->bytes && form->text[to] != '{' && form->text[to] != '}')
            to++;
        jbuffer_string(r->h, &b, jstring_part(r->h, form, at, to));
        at = to + 1;
        if (to >= form->bytes)
            break;
        if (at_or_end(form, at) == form->text[to]) {
            jbuffer_string(r->h, &b, jstring_part(r->h, form, to, at));
            at++;
            continue;
        }
        const char *close =
            at < form->bytes ? memchr(form->text + at, '}', form->bytes - at) : NULL;
        if (form->text[to] == '}' || !close)
            jheap_fail(r->h, "a brace in a format has no partner");
        size_t end = (size_t)(close - form->text);
        brace_field(r, &b, jstring_part(r->h, form, at, end), call, &used);
        at = end + 1;
    }
    return jstring_value(jstring_marked(r->h, jbuffer_take(r->h, &b), form->markup));
}
