/* SPDX-License-Identifier: Apache-2.0 */
/* The page of `sluice top`, the same for a terminal and a pipe. */
#ifndef SLUICE_CLIENTS_TOP_PAGE_PAGE_H
#define SLUICE_CLIENTS_TOP_PAGE_PAGE_H

#include "procs/clients/top/history.h"
#include "procs/clients/top/page/canvas.h"
#include "procs/clients/top/rates.h"

#define PAGE_ROWS_MIN    12
#define PAGE_COLUMNS_MIN 40

struct page {
    struct canvas canvas;
    const char *run;
    const struct sample *now;      /* doc NULL: no sample yet */
    struct rates rates;            /* of that sample */
    const struct history *history; /* NULL: no graphs */
    enum sort sort;
    enum map_view view;
    unsigned map_top;    /* first layer shown */
    unsigned map_hidden; /* layers that did not fit; set by page_draw */
    bool paused;
    double interval;     /* seconds, 0: not shown */
    const char *problem; /* of the last sample, NULL: none */
    double age;          /* seconds since the last successful sample */
};

/* Draws the page onto the canvas, whose size is already set. */
void page_draw(struct page *p);

/* head.c: draws the lines above the tables. Returns their number. */
unsigned page_draw_head(struct page *p);
/* Draws the legend of the budget bar: three lines. */
void page_draw_part_names(struct canvas *c, unsigned row, unsigned column);

/* Draws a table heading across a rectangle, with the number of hidden rows. */
void page_heading(struct page *p, unsigned row, unsigned column, unsigned columns, const char *text,
                  unsigned hidden);

/* requests_page.c: their number; draws a heading and at most `max` of them. Returns the row after
 * them. */
unsigned page_requests(const struct page *p);
unsigned page_draw_requests(struct page *p, unsigned row, unsigned columns, unsigned max);

/* map_page.c: draws the map in a rectangle of the canvas. Returns the rows used. */
unsigned page_draw_map(struct page *p, unsigned row, unsigned column, unsigned rows,
                       unsigned columns);

#endif
