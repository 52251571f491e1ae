/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the table of requests: who asks, how far the prompt is, how many tokens the answer has. */
#include <inttypes.h>
#include <string.h>

#include "lib/json/lookup.h"
#include "procs/clients/top/page/format.h"
#include "procs/clients/top/page/page.h"

#define CLIENT_COLUMNS 32

static const json_t *sequences(const struct page *p)
{
    return json_object_get(p->now->requests, "sequences");
}

unsigned page_requests(const struct page *p)
{
    return (unsigned)json_array_size(sequences(p));
}

/* "queued, 2", "prompt", "answer". */
static const char *doing(const json_t *row, char *out, size_t cap)
{
    uint64_t before = lookup_u64(row, "queue");
    if (strcmp(lookup_text(row, "state"), "queued") != 0)
        return lookup_u64(row, "tokens") > 0 ? "answer" : "prompt";
    snprintf(out, cap, "queued, %" PRIu64, before);
    return out;
}

static void line(struct page *p, const json_t *row, unsigned at, unsigned columns)
{
    char text[160], prompt[48], state[32], age[16], done[16], all[16], tokens[16];
    const char *client = lookup_text(row, "client");
    snprintf(prompt, sizeof prompt, "%s/%s", format_count((double)lookup_u64(row, "done"), done),
             format_count((double)lookup_u64(row, "prompt_tokens"), all));
    snprintf(text, sizeof text, "%-8" PRIu64 " %-*.*s %-10.10s %11s %6s %s",
             lookup_u64(row, "sequence"), CLIENT_COLUMNS, CLIENT_COLUMNS, *client ? client : "-",
             doing(row, state, sizeof state), prompt,
             format_count((double)lookup_u64(row, "tokens"), tokens),
             format_us(1e3 * (double)lookup_u64(row, "age_ms"), age));
    canvas_put(&p->canvas, at, 0, PAINT_PLAIN, "%.*s", (int)columns, text);
}

unsigned page_draw_requests(struct page *p, unsigned row, unsigned columns, unsigned max)
{
    char head[160];
    unsigned all = page_requests(p), shown = all < max ? all : max;
    if (shown == 0)
        return row;
    snprintf(head, sizeof head, "%-8s %-*s %-10s %11s %6s %s", "REQUEST", CLIENT_COLUMNS, "CLIENT",
             "DOING", "PROMPT", "TOKENS", "TIME");
    page_heading(p, row++, 0, columns, head, all - shown);
    for (unsigned i = 0; i < shown; i++)
        line(p, json_array_get(sequences(p), i), row++, columns);
    return row;
}
