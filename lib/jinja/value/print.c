/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: str(), repr() and json.dumps() of Python. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/jinja/value/value.h"

#define FLOAT_STEPS 10 /* of each number of digits that is tried */

/* The shortest decimal that reads as the same number (repr of Python's float). */
void jfloat_text(struct jheap *h, double real, char text[JFLOAT_BYTES])
{
    char digits[JFLOAT_BYTES];
    if (isnan(real) || isinf(real)) {
        snprintf(text, JFLOAT_BYTES, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    int precision = 0;
    do {
        h->steps += FLOAT_STEPS;
        snprintf(digits, sizeof digits, "%.*e", precision++, real);
    } while (precision < 17 && strtod(digits, NULL) != real);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, JFLOAT_BYTES, "%s", digits); /* "1e+16", "1.5e-07": as Python writes it */
        return;
    }
    int decimals = precision - 1 - exponent;
    snprintf(text, JFLOAT_BYTES, "%.*f", decimals < 1 ? 1 : decimals, real);
}

/* ---- repr ---- */

/* Characters that Python escapes, as far as they are assigned: controls, formats, blanks, private
 * use. */
static bool printable_char(uint32_t c)
{
    if (c < 0x7f)
        return c >= ' ';
    return !(c <= 0xa0 || c == 0xad || (c >= 0x600 && c <= 0x605) || c == 0x61c || c == 0x6dd ||
             c == 0x70f || c == 0x1680 || c == 0x180e || (c >= 0x2000 && c <= 0x200f) ||
             (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f) || c == 0x3000 ||
             (c >= 0xd800 && c <= 0xf8ff) || c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb) ||
             (c >= 0xe0000 && c <= 0xe0fff) || c >= 0xf0000);
}

static void repr_char(struct jheap *h, struct jbuffer *b, uint32_t c, enum jorigin o)
{
    char text[16];
    const char *form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (c == '\n' || c == '\r' || c == '\t')
        snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else
        snprintf(text, sizeof text, form, c);
    jbuffer_text(h, b, text, o);
}

static void repr_string(struct jheap *h, struct jbuffer *b, const struct jstring *s)
{
    enum jorigin ends = jstring_origin(s);
    bool twice = memchr(s->text, '\'', s->bytes) && !memchr(s->text, '"', s->bytes);
    const char *quote = twice ? "\"" : "'";
    jheap_work(h, 4 * s->bytes);
    jbuffer_text(h, b, s->markup ? "Markup(" : "", ends);
    jbuffer_text(h, b, quote, ends);
    for (size_t at = 0; at < s->bytes;) {
        size_t start = at;
        uint32_t c = jchar_next(s->text, s->bytes, &at);
        enum jorigin o = s->origins ? s->origins[start] : s->origin;
        if (c == '\\' || c == (unsigned char)quote[0])
            jbuffer_text(h, b, "\\", o);
        if (printable_char(c))
            jbuffer_add(h, b, s->text + start, at - start, o);
        else
            repr_char(h, b, c, o);
    }
    jbuffer_text(h, b, quote, ends);
    jbuffer_text(h, b, s->markup ? ")" : "", ends);
}

static void repr_list(struct jheap *h, struct jbuffer *b, const struct jlist *l)
{
    static const char *const open[] = {"[",           "(", "[", "dict_keys([", "dict_values([",
                                       "dict_items(["};
    static const char *const close[] = {"]", ")", "]", "])", "])", "])"};
    if (l->form == JFORM_GENERATOR) {
        jbuffer_text(h, b, "<generator object>", l->origin);
        return;
    }
    if (l->form == JFORM_RANGE) {
        char text[80];
        int n =
            snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, l->bounds[0], l->bounds[1]);
        snprintf(text + n, sizeof text - (size_t)n, l->bounds[2] == 1 ? ")" : ", %" PRId64 ")",
                 l->bounds[2]);
        jbuffer_text(h, b, text, l->origin);
        return;
    }
    jbuffer_text(h, b, open[l->form], l->origin);
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0)
            jbuffer_text(h, b, ", ", l->origin);
        jprint_repr(h, b, &l->at[i]);
    }
    jbuffer_text(h, b, l->form == JFORM_TUPLE && l->count == 1 ? ",)" : close[l->form], l->origin);
}

static void repr_dict(struct jheap *h, struct jbuffer *b, const struct jdict *d)
{
    jbuffer_text(h, b, "{", d->origin);
    for (size_t i = 0; i < d->count; i++) {
        if (i > 0)
            jbuffer_text(h, b, ", ", d->origin);
        jprint_repr(h, b, &d->at[i].key);
        jbuffer_text(h, b, ": ", d->origin);
        jprint_repr(h, b, &d->at[i].value);
    }
    jbuffer_text(h, b, "}", d->origin);
}

static void repr_other(struct jheap *h, struct jbuffer *b, const struct jvalue *v)
{
    char text[JFLOAT_BYTES];
    switch ((enum jkind)v->kind) {
    case JUNDEFINED: jbuffer_text(h, b, "Undefined", JORIGIN_TEMPLATE); break;
    case JNONE: jbuffer_text(h, b, "None", v->origin); break;
    case JBOOL: jbuffer_text(h, b, v->truth ? "True" : "False", v->origin); break;
    case JINT:
        snprintf(text, sizeof text, "%" PRId64, v->integer);
        jbuffer_text(h, b, text, v->origin);
        break;
    case JFLOAT:
        jfloat_text(h, v->real, text);
        jbuffer_text(h, b, text, v->origin);
        break;
    case JNAMESPACE:
        jbuffer_text(h, b, "<Namespace ", JORIGIN_TEMPLATE);
        repr_dict(h, b, v->dict);
        jbuffer_text(h, b, ">", JORIGIN_TEMPLATE);
        break;
    default:
        jbuffer_text(h, b, "<", JORIGIN_TEMPLATE);
        jbuffer_text(h, b, jtype_name(v), JORIGIN_TEMPLATE);
        jbuffer_text(h, b, ">", JORIGIN_TEMPLATE);
    }
}

void jprint_repr(struct jheap *h, struct jbuffer *b, const struct jvalue *v)
{
    jheap_enter(h);
    jheap_step(h);
    if (v->kind == JSTRING)
        repr_string(h, b, v->string);
    else if (v->kind == JLIST)
        repr_list(h, b, v->list);
    else if (v->kind == JDICT)
        repr_dict(h, b, v->dict);
    else
        repr_other(h, b, v);
    jheap_leave(h);
}

void jprint(struct jheap *h, struct jbuffer *b, const struct jvalue *v)
{
    if (v->kind == JSTRING)
        jbuffer_string(h, b, v->string);
    else if (v->kind != JUNDEFINED)
        jprint_repr(h, b, v);
}

const struct jstring *jtext(struct jheap *h, const struct jvalue *v)
{
    if (v->kind == JSTRING)
        return v->string;
    struct jbuffer b = {0};
    jprint(h, &b, v);
    return jbuffer_take(h, &b);
}

/* ---- JSON ---- */

struct json_writer {
    struct jheap *h;
    struct jbuffer *b;
    const struct jjson_form *form;
    unsigned level;
};

static void put_json_escape(struct json_writer *w, uint32_t c, enum jorigin o)
{
    static const char shorts[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    char text[16];
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
        if (c == (unsigned char)shorts[i]) {
            snprintf(text, sizeof text, "\\%c", shorts[i + 1]);
            jbuffer_text(w->h, w->b, text, o);
            return;
        }
    if (c >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                 0xdc00 + (c & 0x3ff));
    else
        snprintf(text, sizeof text, "\\u%04x", c);
    jbuffer_text(w->h, w->b, text, o);
}

static void put_json_string(struct json_writer *w, const struct jstring *s)
{
    enum jorigin ends = jstring_origin(s);
    jheap_work(w->h, 4 * s->bytes);
    jbuffer_text(w->h, w->b, "\"", ends);
    for (size_t at = 0; at < s->bytes;) {
        size_t start = at;
        uint32_t c = jchar_next(s->text, s->bytes, &at);
        enum jorigin o = s->origins ? s->origins[start] : s->origin;
        if (c < ' ' || c == '"' || c == '\\' || (w->form->ascii && c > '~'))
            put_json_escape(w, c, o);
        else
            jbuffer_add(w->h, w->b, s->text + start, at - start, o);
    }
    jbuffer_text(w->h, w->b, "\"", ends);
}

/* What the template gives between the values of a message is of the message, too; what a message
 * gives stays its own. */
static void put_json_given(struct json_writer *w, const struct jstring *s, enum jorigin o)
{
    jbuffer_add(w->h, w->b, s->text, s->bytes,
                o == JORIGIN_TEMPLATE ? jstring_origin(s) : JORIGIN_MESSAGE);
}

static void put_json_break(struct json_writer *w, enum jorigin o)
{
    if (!w->form->indent)
        return;
    jbuffer_text(w->h, w->b, "\n", o);
    for (unsigned i = 0; i < w->level; i++) {
        jheap_step(w->h);
        put_json_given(w, w->form->indent, o);
    }
}

static void put_json_separator(struct json_writer *w, const struct jstring *s,
                               const char *otherwise, enum jorigin o)
{
    if (s)
        put_json_given(w, s, o);
    else
        jbuffer_text(w->h, w->b, otherwise, o);
}

static void put_json(struct json_writer *w, const struct jvalue *v);

static void put_json_list(struct json_writer *w, const struct jlist *l)
{
    jbuffer_text(w->h, w->b, "[", l->origin);
    w->level++;
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0)
            put_json_separator(w, w->form->item, w->form->indent ? "," : ", ", l->origin);
        put_json_break(w, l->origin);
        put_json(w, &l->at[i]);
    }
    w->level--;
    if (l->count > 0)
        put_json_break(w, l->origin);
    jbuffer_text(w->h, w->b, "]", l->origin);
}

static void put_json_key(struct json_writer *w, const struct jvalue *key)
{
    if (key->kind == JSTRING) {
        put_json_string(w, key->string);
        return;
    }
    if (!jis_number(key) && key->kind != JNONE)
        jheap_fail(w->h, "keys of JSON must be str, int, float, bool or None, not %s",
                   jtype_name(key));
    jbuffer_text(w->h, w->b, "\"", key->origin);
    put_json(w, key);
    jbuffer_text(w->h, w->b, "\"", key->origin);
}

static void put_json_dict(struct json_writer *w, const struct jdict *d)
{
    struct jpair *at = d->at;
    if (w->form->sorted && d->count > 1) {
        at = jheap_array(w->h, d->count, sizeof *at);
        for (size_t i = 0; i < d->count; i++) { /* insertion: stable, and these are small */
            size_t to = i;
            for (; to > 0 && jcompare(w->h, &d->at[i].key, &at[to - 1].key) < 0; to--)
                at[to] = at[to - 1];
            at[to] = d->at[i];
        }
    }
    jbuffer_text(w->h, w->b, "{", d->origin);
    w->level++;
    for (size_t i = 0; i < d->count; i++) {
        if (i > 0)
            put_json_separator(w, w->form->item, w->form->indent ? "," : ", ", d->origin);
        put_json_break(w, d->origin);
        put_json_key(w, &at[i].key);
        put_json_separator(w, w->form->colon, ": ", d->origin);
        put_json(w, &at[i].value);
    }
    w->level--;
    if (d->count > 0)
        put_json_break(w, d->origin);
    jbuffer_text(w->h, w->b, "}", d->origin);
}

static void put_json(struct json_writer *w, const struct jvalue *v)
{
    jheap_enter(w->h);
    jheap_step(w->h);
    if (v->kind == JSTRING)
        put_json_string(w, v->string);
    else if (v->kind == JLIST && v->list->form <= JFORM_TUPLE)
        put_json_list(w, v->list);
    else if (v->kind == JDICT)
        put_json_dict(w, v->dict);
    else if (v->kind == JNONE)
        jbuffer_text(w->h, w->b, "null", v->origin);
    else if (v->kind == JBOOL)
        jbuffer_text(w->h, w->b, v->truth ? "true" : "false", v->origin);
    else if (v->kind == JFLOAT && isnan(v->real))
        jbuffer_text(w->h, w->b, "NaN", v->origin);
    else if (v->kind == JFLOAT && isinf(v->real))
        jbuffer_text(w->h, w->b, v->real < 0 ? "-Infinity" : "Infinity", v->origin);
    else if (jis_number(v))
        jprint_repr(w->h, w->b, v);
    else
        jheap_fail(w->h, "Object of type %s is not JSON serializable", jtype_name(v));
    jheap_leave(w->h);
}

void jprint_json(struct jheap *h, struct jbuffer *b, const struct jvalue *v,
                 const struct jjson_form *form)
{
    struct json_writer w = {.h = h, .b = b, .form = form};
    put_json(&w, v);
}
