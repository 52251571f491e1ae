/* SPDX-License-Identifier: Apache-2.0 */
/* SVG plots: panels side by side, one line per contender, axes with units. */
#include <math.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/tools/sim/sim_program.h"

#define PANEL_W 400
#define PANEL_H 300
#define LEFT    64 /* margins of a panel */
#define TOP     40
#define BOTTOM  52
#define GAP     20
#define KEY_W   150

/* A palette for colour-blind readers (Okabe and Ito); markers differ, too. */
static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#000000", "#7F7F7F"};

typedef double (*result_fn)(const struct sim_result *);

struct panel {
    const struct grid *g;
    FILE *out;
    result_fn metric;
    double scale; /* from the metric to the unit of the axis */
    const char *title, *unit;
    uint32_t storage;
    double x0, max; /* left edge; top of the axis */
};

static const char *colour(uint32_t contender)
{
    return colours[contender % ARRAY_LEN(colours)];
}

static const char *dashes(uint32_t contender)
{
    static const char *const kinds[] = {"", " stroke-dasharray=\"6 3\"",
                                        " stroke-dasharray=\"2 3\"",
                                        " stroke-dasharray=\"8 3 2 3\""};
    return kinds[contender / ARRAY_LEN(colours) % ARRAY_LEN(kinds)];
}

static void marker(FILE *out, uint32_t contender, double x, double y)
{
    const char *c = colour(contender);
    switch (contender % 4) {
    case 0: fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y, c); break;
    case 1:
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" fill=\"%s\"/>\n", x - 3,
                y - 3, c);
        break;
    case 2: fprintf(out, "<path d=\"M%.1f %.1fl4 7h-8z\" fill=\"%s\"/>\n", x, y - 4, c); break;
    default: fprintf(out, "<path d=\"M%.1f %.1fl4 4l-4 4l-4 -4z\" fill=\"%s\"/>\n", x, y - 4, c);
    }
}

/* A round step that gives four to eight ticks. */
static double step_of(double max)
{
    double raw = max / 6, unit = pow(10, floor(log10(raw)));
    double n = raw / unit;
    return (n <= 1 ? 1 : n <= 2 ? 2 : n <= 5 ? 5 : 10) * unit;
}

static double budget_max(const struct grid *g)
{
    double max = 0;
    for (uint32_t b = 0; b < g->budgets; b++)
        max = g->budget[b].percent > max ? g->budget[b].percent : max;
    return max > 0 ? max : 1;
}

static double at_x(const struct panel *p, double percent)
{
    return p->x0 + LEFT + percent / budget_max(p->g) * (PANEL_W - LEFT);
}

static double at_y(const struct panel *p, double value)
{
    return TOP + (1 - value / p->max) * PANEL_H;
}

static void text(const struct panel *p, double x, double y, const char *anchor, const char *what)
{
    fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
            what);
}

static void axes(const struct panel *p)
{
    char label[32];
    double step = step_of(p->max), right = p->x0 + PANEL_W, bottom = TOP + PANEL_H;
    for (double v = 0; v <= p->max * 1.0001; v += step) {
        fprintf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
                p->x0 + LEFT, at_y(p, v), right, at_y(p, v));
        snprintf(label, sizeof label, "%g", v);
        text(p, p->x0 + LEFT - 6, at_y(p, v) + 4, "end", label);
    }
    double last = -1000;
    for (uint32_t b = 0; b < p->g->budgets; b++) {
        double x = at_x(p, p->g->budget[b].percent);
        fprintf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#333\"/>\n",
                x, bottom, x, bottom + 4);
        if (fabs(x - last) < 26) /* avoids overlapping labels; the tick remains */
            continue;
        snprintf(label, sizeof label, "%.4g", p->g->budget[b].percent);
        text(p, x, bottom + 18, "middle", label);
        last = x;
    }
    fprintf(
        p->out,
        "<path d=\"M%.1f %d V%.1f H%.1f\" fill=\"none\" stroke=\"#333\"/>\n"
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">experts resident, %% of their bytes"
        "</text>\n<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">%s"
        "</text>\n<text x=\"%.1f\" y=\"22\" text-anchor=\"middle\" font-weight=\"bold\">%s"
        "</text>\n",
        p->x0 + LEFT, TOP, bottom, right, (p->x0 + LEFT + right) / 2, bottom + 40, p->x0 + 16,
        TOP + PANEL_H / 2.0, p->unit, (p->x0 + LEFT + right) / 2, p->title);
}

/* The next larger budget; they may be given in any order. */
static uint32_t budget_after(const struct grid *g, double percent)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t b = 0; b < g->budgets; b++)
        if (g->budget[b].percent > percent &&
            (best == UINT32_MAX || g->budget[b].percent < g->budget[best].percent))
            best = b;
    return best;
}

static void line(const struct panel *p, uint32_t contender)
{
    const struct grid *g = p->g;
    bool open = false;
    fprintf(p->out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"%s d=\"",
            colour(contender), dashes(contender));
    for (uint32_t b = budget_after(g, -1); b != UINT32_MAX;
         b = budget_after(g, g->budget[b].percent)) {
        const struct cell *c = grid_cell(g, contender, b, p->storage);
        if (!c->made)
            continue;
        fprintf(p->out, "%c%.1f %.1f", open ? 'L' : 'M', at_x(p, g->budget[b].percent),
                at_y(p, p->metric(&c->result) * p->scale));
        open = true;
    }
    fprintf(p->out, "%s\"/>\n", open ? "" : "M0 0");
    for (uint32_t b = 0; b < g->budgets; b++) {
        const struct cell *c = grid_cell(g, contender, b, p->storage);
        if (c->made)
            marker(p->out, contender, at_x(p, g->budget[b].percent),
                   at_y(p, p->metric(&c->result) * p->scale));
    }
}

static void panel(struct panel *p)
{
    const struct grid *g = p->g;
    double max = 0;
    for (uint32_t i = 0; i < g->contenders; i++)
        for (uint32_t b = 0; b < g->budgets; b++) {
            const struct cell *c = grid_cell(g, i, b, p->storage);
            if (c->made && p->metric(&c->result) * p->scale > max)
                max = p->metric(&c->result) * p->scale;
        }
    if (p->max <= 0) {
        max = max > 0 ? max : 1;
        p->max = ceil(max / step_of(max)) * step_of(max);
    }
    axes(p);
    for (uint32_t i = 0; i < g->contenders; i++)
        line(p, i);
}

static void key(FILE *out, const struct grid *g, double x)
{
    for (uint32_t i = 0; i < g->contenders; i++) {
        double y = TOP + 10 + 20.0 * i;
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                "stroke-width=\"1.8\"%s/>\n",
                x, y, x + 24, y, colour(i), dashes(i));
        marker(out, i, x + 12, y);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 30, y + 4,
                g->contender[i].label);
    }
}

int plot_svg(FILE *out, const struct grid *g)
{
    uint32_t panels = 1 + g->storages;
    double width = panels * (PANEL_W + GAP) + KEY_W, height = TOP + PANEL_H + BOTTOM;
    double keys = TOP + 20.0 * g->contenders + 20;
    height = keys > height ? keys : height;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
    struct panel p = {.g = g,
                      .out = out,
                      .metric = result_hits,
                      .scale = 100,
                      .title = "Hit rate",
                      .unit = "accesses that hit, %",
                      .max = 100};
    panel(&p);
    for (uint32_t d = 0; d < g->storages; d++) {
        char speed[24], title[64];
        snprintf(title, sizeof title, "Time per token at %s", speed_text(&g->storage[d], speed));
        p = (struct panel){.g = g,
                           .out = out,
                           .metric = result_token_ms,
                           .scale = 1,
                           .title = title,
                           .unit = "ms per decoded token (modelled)",
                           .storage = d,
                           .x0 = (d + 1.0) * (PANEL_W + GAP)};
        panel(&p);
    }
    key(out, g, panels * (PANEL_W + GAP) + 10.0);
    fprintf(out, "</svg>\n");
    return fflush(out) == 0 && !ferror(out) ? 0 : -1;
}
