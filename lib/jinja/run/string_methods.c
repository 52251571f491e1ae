/* SPDX-License-Identifier: Apache-2.0 */
/* The methods that strings of a template have. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/run/run.h"

#define METHOD(name)                                                                               \
    static struct jvalue method_##name(struct jrun *r, const struct jvalue *in,                    \
                                       const struct jbound *a)

static const struct jstring *required(struct jrun *r, const struct jvalue *a)
{
    const struct jstring *s = jstring_argument(r, a);
    if (!s)
        jheap_fail(r->h, "a method of str needs a string as argument");
    return s;
}

METHOD(strip)
{
    return jstring_value(
        jstring_strip(r->h, in->string, jstring_argument(r, a->at[0]), JSTRIP_BOTH));
}

METHOD(lstrip)
{
    return jstring_value(
        jstring_strip(r->h, in->string, jstring_argument(r, a->at[0]), JSTRIP_LEFT));
}

METHOD(rstrip)
{
    return jstring_value(
        jstring_strip(r->h, in->string, jstring_argument(r, a->at[0]), JSTRIP_RIGHT));
}

METHOD(upper)
{
    (void)a;
    return jstring_value(jstring_case(r->h, in->string, JCASE_UPPER));
}

METHOD(lower)
{
    (void)a;
    return jstring_value(jstring_case(r->h, in->string, JCASE_LOWER));
}

METHOD(capitalize)
{
    (void)a;
    return jstring_value(jstring_case(r->h, in->string, JCASE_CAPITAL));
}

METHOD(title)
{
    (void)a;
    return jstring_value(jstring_case(r->h, in->string, JCASE_WORDS));
}

/* ---- split ---- */

static void add_part(struct jrun *r, struct jlist *l, const struct jstring *s, size_t from,
                     size_t to)
{
    jlist_add(r->h, l, jstring_value(jstring_part(r->h, s, from, to)));
}

static size_t blanks_end(const struct jstring *s, size_t at, bool blank)
{
    for (size_t next = at; at < s->bytes; at = next)
        if (jchar_blank(jchar_next(s->text, s->bytes, &next)) != blank)
            break;
    return at;
}

static void split_blanks(struct jrun *r, struct jlist *l, const struct jstring *s, int64_t most)
{
    for (size_t at = blanks_end(s, 0, true); at < s->bytes;) {
        bool last = most >= 0 && (int64_t)l->count == most;
        size_t end = last ? s->bytes : blanks_end(s, at, false);
        add_part(r, l, s, at, end);
        at = blanks_end(s, end, true);
    }
}

/* From the right: the words, then those before the last `most` as one. */
static void rsplit_blanks(struct jrun *r, struct jlist *l, const struct jstring *s, int64_t most)
{
    split_blanks(r, l, s, -1);
    if (most < 0 || (int64_t)l->count <= most + 1)
        return;
    size_t joined = l->count - (size_t)most;
    const struct jstring *last = l->at[joined - 1].string;
    size_t end = (size_t)(last->text - s->text) + last->bytes;
    l->at[joined - 1] = jstring_value(jstring_part(r->h, s, 0, end)); /* blanks before it stay */
    l->at += joined - 1;
    l->count -= joined - 1;
    l->capacity -= joined - 1;
}

static void split_at(struct jrun *r, struct jlist *l, const struct jstring *s,
                     const struct jstring *separator, int64_t most)
{
    size_t from = 0, at;
    while ((most < 0 || (int64_t)l->count < most) &&
           (at = jstring_find(r->h, s, separator, from, s->bytes)) != SIZE_MAX) {
        add_part(r, l, s, from, at);
        from = at + separator->bytes;
    }
    add_part(r, l, s, from, s->bytes);
}

static void rsplit_at(struct jrun *r, struct jlist *l, const struct jstring *s,
                      const struct jstring *separator, int64_t most)
{
    size_t to = s->bytes, at;
    while ((most < 0 || (int64_t)l->count < most) &&
           (at = jstring_find_last(r->h, s, separator, 0, to)) != SIZE_MAX) {
        add_part(r, l, s, at + separator->bytes, to);
        to = at;
    }
    add_part(r, l, s, 0, to);
    for (size_t i = 0; i < l->count / 2; i++) {
        struct jvalue v = l->at[i];
        l->at[i] = l->at[l->count - 1 - i];
        l->at[l->count - 1 - i] = v;
    }
}

static struct jvalue split(struct jrun *r, const struct jvalue *in, const struct jbound *a,
                           bool right)
{
    const struct jstring *separator = jstring_argument(r, a->at[0]);
    int64_t most = jint_argument(r, a->at[1], -1);
    struct jvalue v = jlist_new(r->h, JFORM_LIST, 0);
    if (!separator)
        jheap_work(r->h, in->string->bytes);
    if (separator && separator->bytes == 0)
        jheap_fail(r->h, "empty separator");
    if (!separator)
        (right ? rsplit_blanks : split_blanks)(r, v.list, in->string, most);
    else
        (right ? rsplit_at : split_at)(r, v.list, in->string, separator, most);
    return v;
}

METHOD(split)
{
    return split(r, in, a, false);
}

METHOD(rsplit)
{
    return split(r, in, a, true);
}

METHOD(splitlines)
{
    const struct jstring *s = in->string;
    bool keep = jint_argument(r, a->at[0], 0) != 0;
    struct jvalue v = jlist_new(r->h, JFORM_LIST, 0);
    size_t from = 0;
    jheap_work(r->h, s->bytes);
    for (size_t at = 0; at < s->bytes;) {
        size_t end = at;
        uint32_t c = jchar_next(s->text, s->bytes, &at);
        if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
              c == 0x2029))
            continue;
        if (c == '\r' && at < s->bytes && s->text[at] == '\n')
            at++;
        add_part(r, v.list, s, from, keep ? at : end);
        from = at;
    }
    if (from < s->bytes)
        add_part(r, v.list, s, from, s->bytes);
    return v;
}

static struct jvalue partition(struct jrun *r, const struct jvalue *in, const struct jbound *a,
                               bool last)
{
    const struct jstring *s = in->string, *separator = required(r, a->at[0]);
    struct jvalue v = jlist_new(r->h, JFORM_TUPLE, 3);
    if (separator->bytes == 0)
        jheap_fail(r->h, "empty separator");
    size_t at = last ? jstring_find_last(r->h, s, separator, 0, s->bytes)
                     : jstring_find(r->h, s, separator, 0, s->bytes);
    size_t first = at == SIZE_MAX ? (last ? 0 : s->bytes) : at;
    size_t second = at == SIZE_MAX ? first : at + separator->bytes;
    add_part(r, v.list, s, 0, first);
    add_part(r, v.list, s, first, second);
    add_part(r, v.list, s, second, s->bytes);
    return v;
}

METHOD(partition)
{
    return partition(r, in, a, false);
}

METHOD(rpartition)
{
    return partition(r, in, a, true);
}

/* ---- search ---- */

/* Bytes of s[start:end] by the arguments `first` and the one after it. False: start is after the
 * end of s. */
static bool bounds(struct jrun *r, const struct jstring *s, const struct jbound *a, size_t first,
                   size_t *from, size_t *to)
{
    const struct jvalue *start = a->at[first], *end = a->at[first + 1];
    *from = 0;
    *to = s->bytes;
    if (!start && !end)
        return true;
    int64_t n = (int64_t)jstring_length(r->h, s), i = 0, j = n;
    if (start && start->kind != JNONE)
        i = jint_argument(r, start, 0);
    if (end && end->kind != JNONE)
        j = jint_argument(r, end, 0);
    i = i < 0 ? (i + n < 0 ? 0 : i + n) : i;
    j = j < 0 ? (j + n < 0 ? 0 : j + n) : j > n ? n : j;
    if (i > n)
        return false;
    *from = jstring_offset(r->h, s, (size_t)i);
    *to = jstring_offset(r->h, s, (size_t)j);
    return i <= j;
}

static bool fits(struct jrun *r, const struct jstring *s, const struct jstring *part, size_t from,
                 size_t to, bool end)
{
    jheap_step(r->h);
    if (part->bytes > to - from)
        return false;
    jheap_block(r->h, part->bytes);
    return memcmp(s->text + (end ? to - part->bytes : from), part->text, part->bytes) == 0;
}

static struct jvalue begins(struct jrun *r, const struct jvalue *in, const struct jbound *a,
                            bool end)
{
    size_t from, to;
    bool inside = bounds(r, in->string, a, 1, &from, &to);
    if (a->at[0] && a->at[0]->kind == JLIST && a->at[0]->list->form == JFORM_TUPLE) {
        bool any = false;
        for (size_t i = 0; i < a->at[0]->list->count; i++)
            any |=
                inside && fits(r, in->string, required(r, &a->at[0]->list->at[i]), from, to, end);
        return jbool(any);
    }
    const struct jstring *part = required(r, a->at[0]);
    return jbool(inside && fits(r, in->string, part, from, to, end));
}

METHOD(startswith)
{
    return begins(r, in, a, false);
}

METHOD(endswith)
{
    return begins(r, in, a, true);
}

static int64_t position(struct jrun *r, const struct jvalue *in, const struct jbound *a, bool last)
{
    size_t from, to;
    const struct jstring *s = in->string, *part = required(r, a->at[0]);
    if (!bounds(r, s, a, 1, &from, &to))
        return -1;
    size_t at =
        last ? jstring_find_last(r->h, s, part, from, to) : jstring_find(r->h, s, part, from, to);
    return at == SIZE_MAX ? -1 : (int64_t)jstring_length(r->h, jstring_part(r->h, s, 0, at));
}

METHOD(find)
{
    return jint(position(r, in, a, false));
}

METHOD(rfind)
{
    return jint(position(r, in, a, true));
}

METHOD(index)
{
    int64_t at = position(r, in, a, false);
    if (at < 0)
        jheap_fail(r->h, "substring not found");
    return jint(at);
}

METHOD(rindex)
{
    int64_t at = position(r, in, a, true);
    if (at < 0)
        jheap_fail(r->h, "substring not found");
    return jint(at);
}

METHOD(count)
{
    size_t from, to;
    const struct jstring *s = in->string, *part = required(r, a->at[0]);
    int64_t n = 0;
    if (!bounds(r, s, a, 1, &from, &to))
        return jint(0);
    if (part->bytes == 0)
        return jint((int64_t)jstring_length(r->h, jstring_part(r->h, s, from, to)) + 1);
    for (size_t at; (at = jstring_find(r->h, s, part, from, to)) != SIZE_MAX;
         from = at + part->bytes)
        n++;
    return jint(n);
}

METHOD(replace)
{
    const struct jstring *s = in->string, *old = required(r, a->at[0]),
                         *new = required(r, a->at[1]);
    int64_t most = a->at[2] && a->at[2]->kind == JNONE ? -1 : jint_argument(r, a->at[2], -1);
    struct jbuffer b = {0};
    if (s->markup) {
        old = jstring_escape(r->h, old);
        new = jstring_escape(r->h, new);
    }
    size_t at = 0;
    for (; most != 0; most -= most > 0) {
        size_t to = jstring_find(r->h, s, old, at, s->bytes);
        if (to == SIZE_MAX || (old->bytes == 0 && at > s->bytes))
            break;
        jbuffer_string(r->h, &b, jstring_part(r->h, s, at, to));
        jbuffer_string(r->h, &b, new);
        at = to + old->bytes;
        if (old->bytes > 0)
            continue;
        if (at == s->bytes)
            break;
        size_t next = at; /* between all characters */
        jchar_next(s->text, s->bytes, &next);
        jbuffer_string(r->h, &b, jstring_part(r->h, s, at, next));
        at = next;
    }
    jbuffer_string(r->h, &b, jstring_part(r->h, s, at, s->bytes));
    return jstring_value(jstring_marked(r->h, jbuffer_take(r->h, &b), s->markup));
}

METHOD(removeprefix)
{
    const struct jstring *s = in->string, *part = required(r, a->at[0]);
    bool is = fits(r, s, part, 0, s->bytes, false);
    return jstring_value(jstring_part(r->h, s, is ? part->bytes : 0, s->bytes));
}

METHOD(removesuffix)
{
    const struct jstring *s = in->string, *part = required(r, a->at[0]);
    bool is = fits(r, s, part, 0, s->bytes, true);
    return jstring_value(jstring_part(r->h, s, 0, s->bytes - (is ? part->bytes : 0)));
}

METHOD(join)
{
    struct jbuffer b = {0};
    if (!a->at[0])
        jheap_fail(r->h, "join() takes exactly one argument");
    const struct jlist *l = jiterate(r->h, a->at[0]);
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0)
            jbuffer_string(r->h, &b, in->string);
        if (l->at[i].kind != JSTRING)
            jheap_fail(r->h, "sequence item %zu: expected str instance, %s found", i,
                       jtype_name(&l->at[i]));
        jbuffer_string(
            r->h, &b, in->string->markup ? jstring_escape(r->h, l->at[i].string) : l->at[i].string);
    }
    return jstring_value(jstring_marked(r->h, jbuffer_take(r->h, &b), in->string->markup));
}

METHOD(format)
{
    return jformat_braces(r, in->string, a->call);
}

/* ---- classes of characters: of ASCII; letters beyond it count as letters ---- */

static struct jvalue all_are(struct jrun *r, const struct jvalue *in, bool (*is)(uint32_t))
{
    const struct jstring *s = in->string;
    bool all = s->bytes > 0;
    jheap_work(r->h, s->bytes);
    for (size_t at = 0; all && at < s->bytes;)
        all = is(jchar_next(s->text, s->bytes, &at));
    return jbool(all);
}

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(uint32_t c)
{
    return ((c | 32) >= 'a' && (c | 32) <= 'z') ||
           (c >= 0xc0 && c != 0xd7 && c != 0xf7 && !jchar_blank(c));
}

static bool is_letter_or_digit(uint32_t c)
{
    return is_letter(c) || is_digit(c);
}

METHOD(isdigit)
{
    (void)a;
    return all_are(r, in, is_digit);
}

METHOD(isalpha)
{
    (void)a;
    return all_are(r, in, is_letter);
}

METHOD(isalnum)
{
    (void)a;
    return all_are(r, in, is_letter_or_digit);
}

METHOD(isspace)
{
    (void)a;
    return all_are(r, in, jchar_blank);
}

static struct jvalue in_case(struct jrun *r, const struct jvalue *in, enum jcase to,
                             enum jcase other)
{
    return jbool(jstring_same(r->h, in->string, jstring_case(r->h, in->string, to)) &&
                 !jstring_same(r->h, in->string, jstring_case(r->h, in->string, other)));
}

METHOD(isupper)
{
    (void)a;
    return in_case(r, in, JCASE_UPPER, JCASE_LOWER);
}

METHOD(islower)
{
    (void)a;
    return in_case(r, in, JCASE_LOWER, JCASE_UPPER);
}

static const struct jrow rows[] = {{"strip", method_strip, "chars"},
                                   {"lstrip", method_lstrip, "chars"},
                                   {"rstrip", method_rstrip, "chars"},
                                   {"upper", method_upper, ""},
                                   {"lower", method_lower, ""},
                                   {"capitalize", method_capitalize, ""},
                                   {"title", method_title, ""},
                                   {"split", method_split, "sep maxsplit"},
                                   {"rsplit", method_rsplit, "sep maxsplit"},
                                   {"splitlines", method_splitlines, "keepends"},
                                   {"partition", method_partition, "sep"},
                                   {"rpartition", method_rpartition, "sep"},
                                   {"startswith", method_startswith, "prefix start end"},
                                   {"endswith", method_endswith, "suffix start end"},
                                   {"find", method_find, "sub start end"},
                                   {"rfind", method_rfind, "sub start end"},
                                   {"index", method_index, "sub start end"},
                                   {"rindex", method_rindex, "sub start end"},
                                   {"count", method_count, "sub start end"},
                                   {"replace", method_replace, "old new count"},
                                   {"removeprefix", method_removeprefix, "prefix"},
                                   {"removesuffix", method_removesuffix, "suffix"},
                                   {"join", method_join, "iterable"},
                                   {"format", method_format, "*"},
                                   {"isdigit", method_isdigit, ""},
                                   {"isdecimal", method_isdigit, ""},
                                   {"isnumeric", method_isdigit, ""},
                                   {"isalpha", method_isalpha, ""},
                                   {"isalnum", method_isalnum, ""},
                                   {"isspace", method_isspace, ""},
                                   {"isupper", method_isupper, ""},
                                   {"islower", method_islower, ""}};
const struct jrows jmethods_string = {rows, ARRAY_LEN(rows)};
