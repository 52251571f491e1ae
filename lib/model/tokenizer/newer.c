/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces characters that PCRE2 does not know by older ones of the same kind, before words are
 * matched. */
#include "lib/model/tokenizer/newer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/text/utf8.h"

static const struct {
    uint32_t first, last, as;
} newer[] = {
#define NEWER(first, last, as) {first, last, as},
#include "lib/model/tokenizer/unicode.tbl.h"
};

/* Characters with this first byte may be in the table: not those of ASCII, of two bytes and most of
 * the Han ideographs and Hangul syllables. */
static bool may_be_newer(unsigned char first)
{
    return first >= 0xe0 && (first <= 0xe3 || first == 0xea || first >= 0xf0);
}

static uint32_t character(const unsigned char *c, size_t bytes)
{
    return bytes == 3
               ? (c[0] & 0xfu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu)
               : (c[0] & 7u) << 18 | (c[1] & 0x3fu) << 12 | (c[2] & 0x3fu) << 6 | (c[3] & 0x3fu);
}

static void put_character(uint32_t c, char *out, size_t bytes)
{
    for (size_t i = bytes; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((bytes == 3 ? 0xe0 : 0xf0) | c);
}

/* What a character is treated like; 0: PCRE2 has it. */
static uint32_t stand_in(uint32_t c)
{
    size_t lo = 0, hi = ARRAY_LEN(newer);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (newer[mid].last < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < ARRAY_LEN(newer) && newer[lo].first <= c ? newer[lo].as : 0;
}

bool newer_known(const char *text, size_t bytes, char **known)
{
    *known = NULL;
    for (size_t at = 0, used = 1; at < bytes; at += used, used = 1) {
        /* a byte that continues a character is none that starts one */
        if (!may_be_newer((unsigned char)text[at]) || !utf8_next(text + at, bytes - at, &used))
            continue;
        uint32_t as = stand_in(character((const unsigned char *)text + at, used));
        if (as == 0)
            continue;
        if (!*known) {
            *known = malloc(bytes);
            if (!*known)
                return false;
            memcpy(*known, text, bytes);
        }
        put_character(as, *known + at, used);
    }
    return true;
}
