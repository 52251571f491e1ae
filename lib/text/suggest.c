/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the name with the smallest edit distance to a mistyped one. */
#include "lib/text/suggest.h"

#include <stdio.h>
#include <string.h>

static void copy_name(char to[SUGGEST_NAME_BYTES], const char *name, size_t n)
{
    to[0] = 0;
    if (n >= SUGGEST_NAME_BYTES)
        return;
    for (size_t i = 0; i < n; i++)
        to[i] = name[i] == '_' ? '-' : name[i];
    to[n] = 0;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Edit distance in which two exchanged neighbours count as one edit. Three rows of its table. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][SUGGEST_NAME_BYTES + 1];
    size_t m = strlen(b);
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t *now = rows[i % 3], *last = rows[(i - 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                rows[(i - 2) % 3][j - 2] + 1 < now[j])
                now[j] = rows[(i - 2) % 3][j - 2] + 1;
        }
    }
    return rows[strlen(a) % 3][m];
}

void suggest_start(struct suggest *s, const char *word, size_t n)
{
    *s = (struct suggest){.distance = (size_t)-1};
    copy_name(s->word, word, n);
}

void suggest_name(struct suggest *s, const char *name)
{
    char own[SUGGEST_NAME_BYTES];
    copy_name(own, name, strlen(name));
    if (!own[0] || !s->word[0])
        return;
    size_t d = distance(s->word, own);
    if (d < s->distance) {
        s->distance = d;
        memcpy(s->best, own, sizeof own);
    }
}

const char *suggest_hint(const struct suggest *s, const char *prefix, char text[SUGGEST_HINT_BYTES])
{
    size_t n = strlen(s->word);
    text[0] = 0;
    if (s->best[0] && n > 1 && s->distance <= (n < 6 ? 1 : n / 3))
        snprintf(text, SUGGEST_HINT_BYTES, "; did you mean %.8s%s?", prefix, s->best);
    return text;
}
