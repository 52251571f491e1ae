/* A page of text: lines of characters, each with a paint. What is written beyond its edge is cut.
 * The screen shows it with colours, a pipe gets it as it is: it says the same without them. */
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
    unsigned rows, columns, used; /* used: rows that were written to */
    char *text;                   /* [rows][columns], ASCII */
    uint8_t *paint;               /* likewise */
};

/* 0, or -1 without memory; the old size stays then. All blank afterwards. */
int canvas_size(struct canvas *c, unsigned rows, unsigned columns);
void canvas_clear(struct canvas *c);
void canvas_free(struct canvas *c);

/* Writes at row and column. What is not printable ASCII becomes '?'. */
void canvas_put(struct canvas *c, unsigned row, unsigned column, enum paint paint, const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));

/* Lines without the blanks at their ends. */
void canvas_print(const struct canvas *c, FILE *out);

#endif
