/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the last samples in a ring, and draws them as graphs. */
#include "procs/clients/top/history.h"

#include <stdio.h>

#include "lib/base/bytes.h"

#define GRAPH_ROWS_MIN 5 /* with heading */
#define GRAPH_ROWS_MAX 9

enum graph { GRAPH_TOKENS, GRAPH_BYTES, GRAPH_HITS, GRAPH__COUNT };

void history_add(struct history *h, const struct rates *f)
{
    struct moment m = {.tokens_per_s = f->tokens_per_s, .hit = 100 * f->hit};
    for (uint32_t i = 0; i < f->storages; i++)
        m.bytes_per_s += f->storage[i].bytes_per_s;
    h->at[h->count++ % HISTORY_MOMENTS] = m;
}

static double value_of(const struct moment *m, enum graph graph)
{
    return graph == GRAPH_TOKENS ? m->tokens_per_s : graph == GRAPH_BYTES ? m->bytes_per_s : m->hit;
}

/* Value `age` samples ago. */
static double value_at(const struct history *h, uint64_t age, enum graph graph)
{
    return value_of(&h->at[(h->count - 1 - age) % HISTORY_MOMENTS], graph);
}

static void heading(char *out, size_t cap, enum graph graph, double now, double max)
{
    char a[16], b[16];
    if (graph == GRAPH_TOKENS)
        snprintf(out, cap, "GENERATED  %.1f tokens/s, max %.1f", now, max);
    else if (graph == GRAPH_BYTES)
        snprintf(out, cap, "READ  %s/s, max %s/s", bytes_format((uint64_t)now, a),
                 bytes_format((uint64_t)max, b));
    else
        snprintf(out, cap, "HITS  %.1f %% of accesses, max %.1f %%", now, max);
}

static void draw(const struct history *h, enum graph graph, struct canvas *c, unsigned row,
                 unsigned rows, unsigned columns)
{
    char head[128];
    uint64_t shown = h->count < HISTORY_MOMENTS ? h->count : HISTORY_MOMENTS;
    double max = 0;
    shown = shown < columns ? shown : columns;
    for (uint64_t age = 0; age < shown; age++)
        max = value_at(h, age, graph) > max ? value_at(h, age, graph) : max;
    heading(head, sizeof head, graph, shown ? value_at(h, 0, graph) : 0, max);
    canvas_put(c, row, 0, PAINT_HEADING, "%-*.*s", (int)columns, (int)columns, head);
    double top = graph == GRAPH_HITS ? 100 : max, height = rows - 1;
    for (uint64_t age = 0; top > 0 && age < shown; age++)
        for (unsigned level = 0; level < rows - 1; level++) {
            double filled = value_at(h, age, graph) / top * height - level;
            if (filled >= 0.25)
                canvas_put(c, row + rows - 1 - level, columns - 1 - (unsigned)age, PAINT_GOOD, "%c",
                           filled >= 0.75 ? '#' : '.');
        }
}

void history_draw(const struct history *h, struct canvas *c, unsigned row, unsigned rows,
                  unsigned columns)
{
    unsigned graphs = rows / GRAPH_ROWS_MIN;
    graphs = graphs < GRAPH__COUNT ? graphs : GRAPH__COUNT;
    unsigned each = graphs > 0 ? rows / graphs : 0;
    each = each < GRAPH_ROWS_MAX ? each : GRAPH_ROWS_MAX;
    for (unsigned i = 0; i < graphs; i++)
        draw(h, (enum graph)i, c, row + i * each, each, columns);
}
