/* What top shows, as a page of text. The same for the screen and for a pipe. */
#ifndef SLUICE_CLIENTS_TOP_PAGE_PAGE_H
#define SLUICE_CLIENTS_TOP_PAGE_PAGE_H

#include "procs/clients/top/history.h"
#include "procs/clients/top/page/canvas.h"
#include "procs/clients/top/rates.h"

#define PAGE_ROWS_MIN    10
#define PAGE_COLUMNS_MIN 40

struct page {
    struct canvas canvas;
    const char *run;
    const struct sample *now;      /* doc NULL: nothing was seen yet */
    struct rates rates;            /* of it */
    const struct history *history; /* NULL: no graphs */
    enum sort sort;
    enum map_view view;
    unsigned map_top;    /* first layer shown */
    unsigned map_hidden; /* layers that had no room; set by page_draw */
    bool paused;
    double interval;     /* seconds, 0: said nowhere */
    const char *problem; /* of the last look, NULL: none */
    double age;          /* seconds since the last good look */
};

/* Draws all of it onto the canvas, which has its size already. */
void page_draw(struct page *p);

/* What the letters of the budget's bar mean: three lines. */
void page_draw_part_names(struct canvas *c, unsigned row, unsigned column);

/* A table's heading across a rectangle; it says how many rows had no room below it. */
void page_heading(struct page *p, unsigned row, unsigned column, unsigned columns, const char *text,
                  unsigned hidden);

/* map_page.c: the map in a rectangle of the canvas. Returns the rows it took. */
unsigned page_draw_map(struct page *p, unsigned row, unsigned column, unsigned rows,
                       unsigned columns);

#endif
