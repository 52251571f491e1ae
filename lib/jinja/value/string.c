/* SPDX-License-Identifier: Apache-2.0 */
/* Strings whose bytes remember who wrote them. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/jinja/value/value.h"

const struct jstring *jstring_of(struct jheap *h, const char *text, size_t bytes, enum jorigin o)
{
    struct jstring *s = jheap_get(h, sizeof *s);
    *s = (struct jstring){.text = text, .bytes = bytes, .origin = (uint8_t)o};
    return s;
}

const struct jstring *jstring_copy(struct jheap *h, const char *text, size_t bytes, enum jorigin o)
{
    char *copy = jheap_get(h, bytes);
    memcpy(copy, text, bytes);
    return jstring_of(h, copy, bytes, o);
}

const struct jstring *jstring_part(struct jheap *h, const struct jstring *s, size_t from, size_t to)
{
    sl_assert(from <= to && to <= s->bytes);
    if (from == 0 && to == s->bytes)
        return s;
    struct jstring *part = jheap_get(h, sizeof *part);
    *part = (struct jstring){.text = s->text + from,
                             .bytes = to - from,
                             .origins = s->origins ? s->origins + from : NULL,
                             .origin = s->origin,
                             .markup = s->markup};
    return part;
}

const struct jstring *jstring_marked(struct jheap *h, const struct jstring *s, bool markup)
{
    if (s->markup == markup)
        return s;
    struct jstring *marked = jheap_get(h, sizeof *marked);
    *marked = *s;
    marked->markup = markup;
    return marked;
}

const struct jstring *jstring_escape(struct jheap *h, const struct jstring *s)
{
    static const char marks[] = "&<>'\"";
    static const char *const texts[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct jbuffer b = {0};
    if (s->markup)
        return s;
    jheap_work(h, 2 * s->bytes);
    for (size_t i = 0; i < s->bytes; i++) {
        const char *mark = s->text[i] ? strchr(marks, s->text[i]) : NULL;
        enum jorigin o = s->origins ? s->origins[i] : s->origin;
        if (mark)
            jbuffer_text(h, &b, texts[mark - marks], o);
        else
            jbuffer_add(h, &b, &s->text[i], 1, o);
    }
    return jstring_marked(h, jbuffer_take(h, &b), true);
}

enum jorigin jstring_origin(const struct jstring *s)
{
    return s->origins ? JORIGIN_MESSAGE : (enum jorigin)s->origin;
}

bool jstring_is(const struct jstring *s, const char *text)
{
    return s->bytes == strlen(text) && memcmp(s->text, text, s->bytes) == 0;
}

bool jstring_same(struct jheap *h, const struct jstring *a, const struct jstring *b)
{
    if (a->bytes != b->bytes)
        return false;
    jheap_block(h, a->bytes);
    return memcmp(a->text, b->text, a->bytes) == 0;
}

/* memmem takes up to 5 ns per byte for a part of more than two bytes, for one byte it is memchr. */
size_t jstring_find(struct jheap *h, const struct jstring *s, const struct jstring *part,
                    size_t from, size_t to)
{
    if (from > to)
        return SIZE_MAX;
    const char *at = memmem(s->text + from, to - from, part->text, part->bytes);
    size_t found = at ? (size_t)(at - s->text) : SIZE_MAX, seen = (at ? found : to) - from;
    if (part->bytes > 1)
        jheap_work(h, seen + seen / 2);
    else
        jheap_block(h, seen);
    return found;
}

size_t jstring_find_last(struct jheap *h, const struct jstring *s, const struct jstring *part,
                         size_t from, size_t to)
{
    if (from > to || part->bytes > to - from)
        return SIZE_MAX;
    for (size_t at = to - part->bytes;; at--) {
        h->steps += part->bytes / 256; /* a comparison may end at its last byte */
        if (at % 16 == 0)
            jheap_step(h);
        if (memcmp(s->text + at, part->text, part->bytes) == 0)
            return at;
        if (at == from)
            return SIZE_MAX;
    }
}

/* ---- characters ---- */

uint32_t jchar_next(const char *text, size_t bytes, size_t *at)
{
    unsigned char first = (unsigned char)text[(*at)++];
    unsigned more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc2 ? 1 : 0;
    if (more == 0 || first > 0xf4)
        return first;
    uint32_t c = first & (0x3fu >> more);
    size_t p = *at;
    for (; more > 0; more--, p++) {
        if (p >= bytes || ((unsigned char)text[p] & 0xc0) != 0x80)
            return first;
        c = c << 6 | ((unsigned char)text[p] & 0x3f);
    }
    *at = p;
    return c;
}

size_t jstring_length(struct jheap *h, const struct jstring *s)
{
    size_t n = 0;
    jheap_work(h, s->bytes);
    for (size_t at = 0; at < s->bytes; n++)
        jchar_next(s->text, s->bytes, &at);
    return n;
}

size_t jstring_offset(struct jheap *h, const struct jstring *s, size_t character)
{
    size_t at = 0;
    for (; character > 0 && at < s->bytes; character--)
        jchar_next(s->text, s->bytes, &at);
    jheap_work(h, at);
    return at;
}

bool jchar_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool strips(struct jheap *h, const struct jstring *chars, uint32_t c)
{
    if (!chars)
        return jchar_blank(c);
    jheap_work(h, chars->bytes);
    for (size_t at = 0; at < chars->bytes;)
        if (jchar_next(chars->text, chars->bytes, &at) == c)
            return true;
    return false;
}

/* Start of the character that ends at `end`. */
static size_t char_before(const struct jstring *s, size_t from, size_t end)
{
    for (size_t at = end > from + 4 ? end - 4 : from; at < end; at++) {
        size_t next = at;
        jchar_next(s->text, end, &next);
        if (next == end)
            return at;
    }
    return end - 1;
}

const struct jstring *jstring_strip(struct jheap *h, const struct jstring *s,
                                    const struct jstring *chars, enum jstrip sides)
{
    size_t from = 0, to = s->bytes;
    while ((sides & JSTRIP_LEFT) && from < to) {
        size_t next = from;
        if (!strips(h, chars, jchar_next(s->text, to, &next)))
            break;
        from = next;
    }
    while ((sides & JSTRIP_RIGHT) && from < to) {
        size_t start = char_before(s, from, to), next = start;
        if (!strips(h, chars, jchar_next(s->text, to, &next)))
            break;
        to = start;
    }
    jheap_work(h, s->bytes - (to - from));
    return jstring_part(h, s, from, to);
}

/* ---- upper and lower case: ASCII, Latin-1, Latin Extended-A, Greek, Cyrillic, Armenian ---- */

static bool
pairs_even(uint32_t c) /* an upper-case letter of even number is before its lower case */
{
    return (c >= 0x100 && c <= 0x137 && c != 0x130 && c != 0x131) || (c >= 0x14a && c <= 0x177) ||
           (c >= 0x460 && c <= 0x481) || (c >= 0x48a && c <= 0x4bf) || (c >= 0x4d0 && c <= 0x52f) ||
           (c >= 0x1e00 && c <= 0x1e95) || (c >= 0x1ea0 && c <= 0x1eff);
}

static bool pairs_odd(uint32_t c)
{
    return (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e);
}

static uint32_t upper_of(uint32_t c)
{
    if (c < 0x80)
        return c >= 'a' && c <= 'z' ? c - 32 : c;
    if ((c >= 0xe0 && c <= 0xfe && c != 0xf7) || (c >= 0x3b1 && c <= 0x3c9 && c != 0x3c2) ||
        (c >= 0x430 && c <= 0x44f))
        return c - 32;
    if (pairs_even(c))
        return c & ~(uint32_t)1;
    if (pairs_odd(c))
        return c - (c % 2 == 0);
    if (c >= 0x450 && c <= 0x45f)
        return c - 80;
    if (c >= 0x561 && c <= 0x586)
        return c - 48;
    return c == 0xff ? 0x178 : c == 0xb5 ? 0x39c : c == 0x3c2 ? 0x3a3 : c;
}

static uint32_t lower_of(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if ((c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3a9 && c != 0x3a2) ||
        (c >= 0x410 && c <= 0x42f))
        return c + 32;
    if (pairs_even(c))
        return c | 1;
    if (pairs_odd(c))
        return c + (c % 2 == 1);
    if (c >= 0x400 && c <= 0x40f)
        return c + 80;
    if (c >= 0x531 && c <= 0x556)
        return c + 48;
    return c == 0x178 ? 0xff : c;
}

/* jinja2 splits titles there. */
static bool starts_word_after(uint32_t c)
{
    return jchar_blank(c) || (c < 0x80 && strchr("-({[<", (int)c) && c != 0);
}

const struct jstring *jstring_case(struct jheap *h, const struct jstring *s, enum jcase to)
{
    struct jbuffer b = {0};
    bool first = true;
    jheap_work(h, 4 * s->bytes);
    for (size_t at = 0; at < s->bytes;) {
        size_t start = at;
        uint32_t c = jchar_next(s->text, s->bytes, &at);
        enum jorigin o = s->origins ? s->origins[start] : s->origin;
        bool upper = to == JCASE_UPPER || (first && to != JCASE_LOWER);
        uint32_t changed = upper ? upper_of(c) : lower_of(c);
        if (upper && c == 0xdf) { /* the one letter of these that becomes two */
            jbuffer_text(h, &b, to == JCASE_UPPER ? "SS" : "Ss", o);
        } else if (changed != c) {
            jbuffer_char(h, &b, changed, o);
        } else {
            jbuffer_add(h, &b, s->text + start, at - start, o);
        }
        first = (to == JCASE_TITLE && starts_word_after(c)) ||
                (to == JCASE_WORDS && upper_of(c) == c && lower_of(c) == c && c != 0xdf);
    }
    return jstring_marked(h, jbuffer_take(h, &b), s->markup);
}

/* ---- buffers ---- */

static void reserve(struct jheap *h, struct jbuffer *b, size_t more)
{
    if (more <= b->capacity - b->bytes)
        return;
    size_t capacity = b->bytes + more;
    capacity += capacity / 2 + 32;
    char *text = jheap_get(h, capacity);
    uint8_t *origins = jheap_get(h, capacity);
    if (b->bytes > 0) {
        memcpy(text, b->text, b->bytes);
        memcpy(origins, b->origins, b->bytes);
    }
    b->text = text;
    b->origins = origins;
    b->capacity = capacity;
}

void jbuffer_add(struct jheap *h, struct jbuffer *b, const char *text, size_t bytes, enum jorigin o)
{
    if (bytes == 0)
        return;
    h->steps += bytes / 128; /* its caller steps */
    reserve(h, b, bytes);
    memcpy(b->text + b->bytes, text, bytes);
    memset(b->origins + b->bytes, (int)o, bytes);
    b->bytes += bytes;
    b->template_bytes += o == JORIGIN_TEMPLATE ? bytes : 0;
}

void jbuffer_text(struct jheap *h, struct jbuffer *b, const char *text, enum jorigin o)
{
    jbuffer_add(h, b, text, strlen(text), o);
}

void jbuffer_char(struct jheap *h, struct jbuffer *b, uint32_t c, enum jorigin o)
{
    char u[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) {
        u[0] = (char)c;
    } else {
        for (size_t i = n - 1; i > 0; i--, c >>= 6)
            u[i] = (char)(0x80 | (c & 0x3f));
        u[0] = (char)((0xf00u >> n & 0xf0) | c);
    }
    jbuffer_add(h, b, u, n, o);
}

void jbuffer_string(struct jheap *h, struct jbuffer *b, const struct jstring *s)
{
    jheap_step(h);
    if (!s->origins) {
        jbuffer_add(h, b, s->text, s->bytes, s->origin);
        return;
    }
    if (s->bytes == 0)
        return;
    jheap_work(h, s->bytes / 4);
    reserve(h, b, s->bytes);
    memcpy(b->text + b->bytes, s->text, s->bytes);
    memcpy(b->origins + b->bytes, s->origins, s->bytes);
    b->bytes += s->bytes;
    for (size_t i = 0; i < s->bytes; i++)
        b->template_bytes += s->origins[i] == JORIGIN_TEMPLATE;
}

const struct jstring *jbuffer_take(struct jheap *h, struct jbuffer *b)
{
    struct jstring *s = jheap_get(h, sizeof *s);
    bool mixed = b->template_bytes > 0 && b->template_bytes < b->bytes;
    *s = (struct jstring){.text = b->text ? b->text : "",
                          .bytes = b->bytes,
                          .origins = mixed ? b->origins : NULL,
                          .origin = b->bytes > 0 && b->template_bytes == 0 ? JORIGIN_MESSAGE
                                                                           : JORIGIN_TEMPLATE};
    return s;
}

const struct jstring *jstring_join(struct jheap *h, const struct jstring *a,
                                   const struct jstring *b)
{
    if (a->markup != b->markup) {
        a = jstring_escape(h, a);
        b = jstring_escape(h, b);
    }
    bool markup = a->markup;
    if (a->bytes == 0 || b->bytes == 0)
        return a->bytes == 0 ? b : a;
    struct jbuffer joined = {0};
    if (h->joined && h->joined->bytes == a->bytes && h->joined->text == a->text)
        joined = *h->joined; /* a loop that appends copies each byte once, not at every turn */
    else
        jbuffer_string(h, &joined, a);
    jbuffer_string(h, &joined, b);
    if (!h->joined)
        h->joined = jheap_get(h, sizeof *h->joined);
    *h->joined = joined;
    return jstring_marked(h, jbuffer_take(h, &joined), markup);
}
