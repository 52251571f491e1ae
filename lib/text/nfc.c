/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a text to Normalization Form C, stretch by stretch. */
#include "lib/text/nfc.h"

#include <stdint.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "lib/base/assert.h"
#include "lib/text/utf8.h"

#define FIRST_MARK      0x300 /* none below it changes, or combines with the one before it */
#define FIRST_MARK_BYTE 0xcc
#define REPLACEMENT     0xfffd
/* Characters that one character is decomposed into: at most 4 in Unicode. */
#define DECOMPOSED_MAX 16

/* Characters that may combine with each other, decomposed. */
struct stretch {
    int32_t *at;
    size_t count, capacity;
};

bool nfc_may_change(const char *text, size_t bytes)
{
    unsigned char high = 0;
    for (size_t i = 0; i < bytes; i++)
        high |= (unsigned char)((unsigned char)text[i] >= FIRST_MARK_BYTE);
    return high != 0;
}

/* Whether a character is one that no other before it combines with. False for some of which that is
 * true, too: then a stretch is longer. */
static bool starts_stretch(int32_t c)
{
    static const struct {
        int32_t from, to;
    } starts[] = {{0, FIRST_MARK - 1}, {0x370, 0x482},   {0x2000, 0x20cf}, {0x3041, 0x3096},
                  {0x30a1, 0x30fa},    {0x3400, 0x9fff}, {0xac00, 0xd7a3}, {0x1f000, 0x10ffff}};
    for (size_t i = 0; i < sizeof starts / sizeof *starts && c >= starts[i].from; i++)
        if (c <= starts[i].to)
            return true;
    return false;
}

static bool push(struct stretch *s, int32_t c)
{
    utf8proc_int32_t parts[DECOMPOSED_MAX];
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, parts, DECOMPOSED_MAX, UTF8PROC_DECOMPOSE, NULL);
    sl_assert(n > 0 && n <= DECOMPOSED_MAX);
    if (s->count + (size_t)n > s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 64;
        int32_t *bigger = reallocarray(s->at, capacity, sizeof *bigger);
        if (!bigger)
            return false;
        s->at = bigger;
        s->capacity = capacity;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++)
        s->at[s->count++] = parts[i];
    return true;
}

static unsigned mark_class(int32_t c)
{
    return c < FIRST_MARK ? 0 : (unsigned)utf8proc_get_property(c)->combining_class;
}

static int compare_marks(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* Sorts marks by their class; those of the same class keep their order. utf8proc's own way of
 * sorting takes time quadratic in their number. */
static bool sort_marks(int32_t *at, size_t count)
{
    uint64_t *keys = reallocarray(NULL, count, sizeof *keys);
    if (!keys)
        return false;
    for (size_t i = 0; i < count; i++) /* 8 bits of class, 32 of position, 21 of character */
        keys[i] = (uint64_t)mark_class(at[i]) << 53 | (uint64_t)i << 21 | (uint64_t)at[i];
    qsort(keys, count, sizeof *keys, compare_marks);
    for (size_t i = 0; i < count; i++)
        at[i] = (int32_t)(keys[i] & 0x1fffff);
    free(keys);
    return true;
}

static bool order_marks(struct stretch *s)
{
    for (size_t from = 0, to; from < s->count; from = to) {
        bool sorted = true;
        unsigned class = mark_class(s->at[from]);
        for (to = from + 1; class != 0 && to < s->count; to++) {
            unsigned next = mark_class(s->at[to]);
            if (next == 0)
                break;
            sorted &= class <= next;
            class = next;
        }
        if (!sorted && !sort_marks(s->at + from, to - from))
            return false;
    }
    return true;
}

/* Writes the stretch, composed, and empties it. */
static bool flush(struct stretch *s, char *out, size_t *n)
{
    if (!order_marks(s))
        return false;
    utf8proc_ssize_t count = utf8proc_normalize_utf32(s->at, (utf8proc_ssize_t)s->count,
                                                      UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    sl_assert(count >= 0);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        *n += (size_t)utf8proc_encode_char(s->at[i], (utf8proc_uint8_t *)out + *n);
    s->count = 0;
    return true;
}

char *nfc(const char *text, size_t bytes, size_t *out_bytes)
{
    struct stretch s = {0};
    char *out = malloc(3 * bytes + 1);
    bool memory = out != NULL;
    *out_bytes = 0;
    for (size_t at = 0, used; memory && at < bytes; at += used) {
        utf8proc_int32_t c = REPLACEMENT;
        if (utf8_next(text + at, bytes - at, &used))
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)used, &c);
        if (s.count > 0 && starts_stretch(c))
            memory = flush(&s, out, out_bytes);
        memory = memory && push(&s, c);
    }
    memory = memory && flush(&s, out, out_bytes);
    free(s.at);
    if (memory)
        return out;
    free(out);
    return NULL;
}
