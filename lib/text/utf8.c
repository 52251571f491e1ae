/* SPDX-License-Identifier: Apache-2.0 */
/* Checks UTF-8, and cuts and repairs it at the borders of pieces. */
#include <string.h>

#include "lib/text/utf8.h"

/* Class of the bytes at the start of a text. */
enum utf8_kind { UTF8_CHARACTER, UTF8_INVALID, UTF8_INCOMPLETE };

/* Length of a sequence by its first byte (0: invalid first byte), and the range of the second byte
 * (Unicode, table 3-7). */
static size_t sequence_bytes(unsigned char first, unsigned char *min, unsigned char *max)
{
    *min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* *used: bytes of the character, or of the part that one U+FFFD replaces (the longest valid prefix
 * of a sequence, at least one byte), as Unicode recommends. */
static enum utf8_kind classify(const char *text, size_t bytes, size_t *used)
{
    unsigned char min, max;
    size_t want = sequence_bytes((unsigned char)text[0], &min, &max);
    *used = 1;
    if (want == 0)
        return UTF8_INVALID;
    for (; *used < want; ++*used) {
        if (*used == bytes)
            return UTF8_INCOMPLETE;
        unsigned char c = (unsigned char)text[*used];
        if (c < min || c > max)
            return UTF8_INVALID;
        min = 0x80;
        max = 0xbf;
    }
    return UTF8_CHARACTER;
}

size_t utf8_complete_prefix(const char *text, size_t bytes)
{
    /* Only a sequence that starts in the last three bytes can be incomplete. */
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        unsigned char c = (unsigned char)text[bytes - back];
        size_t used;
        if ((c & 0xc0) == 0x80)
            continue;
        return classify(text + bytes - back, back, &used) == UTF8_INCOMPLETE ? bytes - back : bytes;
    }
    return bytes;
}

bool utf8_next(const char *text, size_t bytes, size_t *used)
{
    return classify(text, bytes, used) == UTF8_CHARACTER;
}

bool utf8_valid(const char *text, size_t bytes)
{
    for (size_t at = 0, used; at < bytes; at += used)
        if (!utf8_next(text + at, bytes - at, &used))
            return false;
    return true;
}

size_t utf8_sanitise(const char *text, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t at = 0, used; at < bytes; at += used) {
        if (utf8_next(text + at, bytes - at, &used)) {
            memcpy(out + n, text + at, used);
            n += used;
        } else {
            memcpy(out + n, "\xef\xbf\xbd", 3);
            n += 3;
        }
    }
    out[n] = 0;
    return n;
}
