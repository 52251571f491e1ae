/* SPDX-License-Identifier: Apache-2.0 */
/* "did you mean": the name nearest to a mistyped one. */
#ifndef SLUICE_TEXT_SUGGEST_H
#define SLUICE_TEXT_SUGGEST_H

#include <stddef.h>

#define SUGGEST_NAME_BYTES 48
#define SUGGEST_HINT_BYTES 80

struct suggest {
    char
        word[SUGGEST_NAME_BYTES]; /* as typed, with '-' for '_'; empty: too long for a suggestion */
    char best[SUGGEST_NAME_BYTES]; /* the nearest name so far */
    size_t distance;
};

/* word: the first n bytes are what was typed. */
void suggest_start(struct suggest *s, const char *word, size_t n);
/* One of the names that exist; the first of equally near ones is taken. */
void suggest_name(struct suggest *s, const char *name);
/* "; did you mean PREFIXNAME?", or "" if no name is near: at most a third of the letters differ.
 * Borrows `text`. */
const char *suggest_hint(const struct suggest *s, const char *prefix,
                         char text[SUGGEST_HINT_BYTES]);

#endif
