/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the map in a rectangle: one line per layer, several blocks of layers side by side where
 * they fit, to show as many layers as possible. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/clients/top/page/page.h"

#define LABEL_COLUMNS 10 /* "LLL hhh/E " */
#define GAP_COLUMNS   2

struct shape {
    uint32_t cell;           /* experts per cell */
    unsigned cells, columns; /* of a block: cells, and total width */
    unsigned blocks;         /* side by side */
};

/* Experts share a cell only when one line cannot hold them; blocks are then placed side by side as
 * they fit. For few layers on many columns the number of blocks is reduced, so that lines fill
 * evenly. */
static struct shape shape_of(const struct map *map, unsigned rows, unsigned columns)
{
    struct shape s;
    unsigned cells_columns = columns > LABEL_COLUMNS + 1 ? columns - LABEL_COLUMNS : 1;
    s.cell = map_cell(map, cells_columns);
    s.cells = (map->experts + s.cell - 1) / s.cell;
    /* Halve the width of blocks while layers would be hidden: less detail, but all layers. */
    while (map->rows > rows * ((columns + GAP_COLUMNS) / (LABEL_COLUMNS + s.cells + GAP_COLUMNS)) &&
           s.cells > 16) {
        s.cell *= 2;
        s.cells = (map->experts + s.cell - 1) / s.cell;
    }
    s.columns = LABEL_COLUMNS + s.cells;
    s.blocks = (columns + GAP_COLUMNS) / (s.columns + GAP_COLUMNS);
    if (s.blocks < 1)
        s.blocks = 1;
    unsigned needed = rows > 0 ? (map->rows + rows - 1) / rows : 1;
    if (s.blocks > needed)
        s.blocks = needed > 0 ? needed : 1;
    return s;
}

static enum paint paint_of(enum map_view view, char cell)
{
    if (cell == '.')
        return PAINT_FAINT;
    if (cell == '+' || cell == '!')
        return PAINT_WARN;
    if (view == MAP_VIEW_HEAT)
        return cell >= '7' ? PAINT_BAD : cell >= '5' ? PAINT_STRONG : PAINT_PLAIN;
    return cell == 'N' || cell == '#' ? PAINT_GOOD : PAINT_PLAIN;
}

static void draw_layer(struct page *p, uint32_t i, const struct shape *s, unsigned row,
                       unsigned column)
{
    const struct map *map = &p->now->map;
    char line[512];
    unsigned long resident = map_resident(map, i);
    canvas_put(&p->canvas, row, column, PAINT_PLAIN, "%3" PRIu32 " %5lu", map->row[i].layer,
               resident);
    map_line(map, i, p->view, s->cell, line, sizeof line);
    for (unsigned k = 0; line[k]; k++)
        canvas_put(&p->canvas, row, column + LABEL_COLUMNS + k, paint_of(p->view, line[k]), "%c",
                   line[k]);
}

unsigned page_draw_map(struct page *p, unsigned row, unsigned column, unsigned rows,
                       unsigned columns)
{
    const struct map *map = &p->now->map;
    if (map->rows == 0 || rows < 2)
        return 0;
    struct shape s = shape_of(map, rows - 1, columns);
    unsigned lines = (map->rows + s.blocks - 1) / s.blocks;
    if (lines > rows - 1)
        lines = rows - 1;
    unsigned shown = lines * s.blocks < map->rows ? lines * s.blocks : map->rows;
    p->map_hidden = map->rows - shown;
    if (p->map_top > p->map_hidden)
        p->map_top = p->map_hidden;
    char head[256];
    snprintf(head, sizeof head, "LAYER, RESIDENT, %s: %s",
             p->view == MAP_VIEW_PRECISION ? "EXPERTS" : "HEAT", map_legend(p->view, s.cell));
    page_heading(p, row, column, columns, head, p->map_hidden);
    for (unsigned i = 0; i < shown; i++)
        draw_layer(p, p->map_top + i, &s, row + 1 + i % lines,
                   column + i / lines * (s.columns + GAP_COLUMNS));
    return 1 + lines;
}
