/* SPDX-License-Identifier: Apache-2.0 */
/* Puts characters on a canvas, and prints it. */
#include "procs/clients/top/page/canvas.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 1024

int canvas_size(struct canvas *c, unsigned rows, unsigned columns)
{
    size_t cells = (size_t)rows * columns;
    char *text = malloc(cells + 1);
    uint8_t *paint = malloc(cells + 1);
    if (!text || !paint) {
        free(text);
        free(paint);
        return -1;
    }
    canvas_free(c);
    *c = (struct canvas){.rows = rows, .columns = columns, .text = text, .paint = paint};
    canvas_clear(c);
    return 0;
}

void canvas_clear(struct canvas *c)
{
    size_t cells = (size_t)c->rows * c->columns;
    memset(c->text, ' ', cells);
    memset(c->paint, PAINT_PLAIN, cells);
    c->used = c->clipped = 0;
}

void canvas_free(struct canvas *c)
{
    free(c->text);
    free(c->paint);
    *c = (struct canvas){0};
}

void canvas_put(struct canvas *c, unsigned row, unsigned column, enum paint paint, const char *fmt,
                ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (row >= c->rows)
        return;
    const char *at = line;
    for (; *at && column < c->columns; at++, column++) {
        size_t cell = (size_t)row * c->columns + column;
        c->text[cell] = *at >= ' ' && *at <= '~' ? *at : '?';
        c->paint[cell] = (uint8_t)paint;
    }
    c->clipped += *at != 0;
    if (row >= c->used)
        c->used = row + 1;
}

void canvas_print(const struct canvas *c, FILE *out)
{
    for (unsigned row = 0; row < c->used; row++) {
        const char *line = c->text + (size_t)row * c->columns;
        size_t end = c->columns;
        while (end > 0 && line[end - 1] == ' ')
            end--;
        fwrite(line, 1, end, out);
        fputc('\n', out);
    }
}
