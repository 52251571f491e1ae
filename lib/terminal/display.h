/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a response on a terminal: lines break between words, thoughts are dimmed, control
 * characters are made visible. Text is shown as it arrives: a word that turns out to be too long
 * for its line is erased there and written again on the next one. Pure functions. */
#ifndef SLUICE_TERMINAL_DISPLAY_H
#define SLUICE_TERMINAL_DISPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "lib/terminal/terminal.h"

#define DISPLAY_MARK_BYTES 64 /* of a mark, at most: longer ones are not looked for */

#define DISPLAY_DIM   "\033[2m"
#define DISPLAY_PLAIN "\033[0m"

struct display {
    unsigned columns;         /* of the terminal; 0: nothing is wrapped or dimmed */
    bool dim;                 /* thoughts are dimmed */
    const char *open, *close; /* the marks of thoughts; borrowed, NULL: there are none */
    bool inside;              /* in thoughts */
    bool dimmed;              /* the terminal's state */
    struct terminal_filter filter;
    char held[DISPLAY_MARK_BYTES]; /* may be the start of a mark */
    size_t held_bytes;
    char letter[4]; /* a character that has not arrived wholly */
    size_t letter_bytes;
    unsigned column; /* width of the line so far */
    char word[256];  /* its last word */
    size_t word_bytes;
    unsigned word_columns;
};

/* A response begins, at the start of a line. open, close: the marks of thoughts, or NULL; inside:
 * it begins with thoughts. */
void display_start(struct display *d, unsigned columns, bool dim, const char *open,
                   const char *close, bool inside);
void display_put(struct display *d, const char *text, size_t bytes, FILE *out);
/* Writes what is held back, and ends the dimming. */
void display_end(struct display *d, FILE *out);
/* Something else is printed now, on lines of its own. */
void display_at_start(struct display *d, FILE *out);

/* Columns of the terminal behind a file descriptor; 0: it is none, or one without control sequences
 * (TERM=dumb). */
unsigned display_columns(int fd);
/* Whether text may be dimmed there: also NO_COLOR (no-color.org) is not set. */
bool display_dims(int fd);

#endif
