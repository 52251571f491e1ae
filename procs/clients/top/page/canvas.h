/* SPDX-License-Identifier: Apache-2.0 */
/* A page of text: characters in rows and columns, each with a paint. Output beyond the edges is
 * cut. The screen shows it with colours, a pipe without; the text carries the same information. */
#ifndef SLUICE_CLIENTS_TOP_PAGE_CANVAS_H
#define SLUICE_CLIENTS_TOP_PAGE_CANVAS_H

#include <stdint.h>
#include <stdio.h>

enum paint {
    PAINT_PLAIN,
    PAINT_HEADING,
    PAINT_STRONG,
    PAINT_FAINT,
    PAINT_GOOD,
    PAINT_WARN,
    PAINT_BAD
};

struct canvas {
    unsigned rows, columns, used; /* rows written so far */
    unsigned clipped;             /* texts that were cut at the right edge since it was cleared */
    char *text;                   /* [rows][columns], ASCII */
    uint8_t *paint;               /* likewise */
};

/* Sets the size and clears the canvas. 0, or -1 when out of memory (the old size stays). */
int canvas_size(struct canvas *c, unsigned rows, unsigned columns);
void canvas_clear(struct canvas *c);
void canvas_free(struct canvas *c);

/* Writes at row and column. Characters other than printable ASCII become '?'. */
void canvas_put(struct canvas *c, unsigned row, unsigned column, enum paint paint, const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));

/* Prints the used rows without trailing blanks. */
void canvas_print(const struct canvas *c, FILE *out);

#endif
