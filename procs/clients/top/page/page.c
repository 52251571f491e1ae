/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the tables of the page, and fits them to the width of the canvas. */
#include "procs/clients/top/page/page.h"

#include <inttypes.h>
#include <string.h>

#include "lib/io/backends.h"
#include "lib/json/lookup.h"
#include "procs/clients/top/page/format.h"

#define WIDE_COLUMNS  140 /* from this width on the map is to the right of the tables */
#define TABLE_COLUMNS 88  /* width of the tables then */
#define MAP_ROWS_MIN  4   /* below the tables */
#define REQUESTS_PART 4   /* requests get at most one in so many of the lines */
#define DOING_COLUMN  62  /* column of the wait reason in the process table */

/* Shortens "waiting for X" to "awaits X" when it does not fit. */
static const char *doing(const struct process_rates *f, unsigned columns, char *out, size_t cap)
{
    static const char prefix[] = "waiting for ";
    const char *message = lookup_text(f->row, "exit_message"), *wait = lookup_text(f->row, "wait");
    if (!f->ready && *message)
        return message;
    if (strlen(wait) <= columns || strncmp(wait, prefix, strlen(prefix)) != 0)
        return wait;
    snprintf(out, cap, "awaits %s", wait + strlen(prefix));
    return out;
}

void page_heading(struct page *p, unsigned row, unsigned column, unsigned columns, const char *text,
                  unsigned hidden)
{
    char more[32] = "";
    if (hidden)
        snprintf(more, sizeof more, "  (%u more)", hidden);
    canvas_put(&p->canvas, row, column, PAINT_HEADING, "%-*s", (int)columns, "");
    canvas_put(&p->canvas, row, column, PAINT_HEADING, "%.*s", (int)columns, text);
    if (hidden && strlen(more) < columns)
        canvas_put(&p->canvas, row, column + columns - (unsigned)strlen(more), PAINT_HEADING, "%s",
                   more);
}

static void process_line(struct page *p, const struct process_rates *f, unsigned row,
                         unsigned columns)
{
    char memory[16], reserved[16], messages[16], line[256], wait[64];
    unsigned left = columns > DOING_COLUMN ? columns - DOING_COLUMN : 0;
    snprintf(line, sizeof line, "%-10s %7" PRIu64 " %-8.8s %5.1f %6s %8s %6s %3.0f  %s", f->name,
             lookup_u64(f->row, "pid"), lookup_text(f->row, "state"), f->cpu,
             format_size((uint64_t)f->memory, memory),
             f->reserved > 0 ? format_size((uint64_t)f->reserved, reserved) : "-",
             format_number(f->messages, messages), f->restarts, doing(f, left, wait, sizeof wait));
    enum paint paint = !f->ready                                    ? PAINT_BAD
                       : f->reserved > 0 && f->memory > f->reserved ? PAINT_WARN
                                                                    : PAINT_PLAIN;
    canvas_put(&p->canvas, row, 0, paint, "%.*s", (int)columns, line);
}

static bool is_loader(const struct process_rates *f)
{
    return strcmp(lookup_text(f->row, "service"), "loader") == 0;
}

/* At most `max` rows. Loaders are dropped first, because the device table below shows them. */
static unsigned processes(struct page *p, unsigned row, unsigned columns, unsigned max)
{
    char line[256];
    unsigned others = p->rates.processes - p->rates.storages;
    unsigned loaders = max > others ? max - others : 0, shown = 0, head = row++;
    for (uint32_t i = 0; i < p->rates.processes; i++) {
        const struct process_rates *f = &p->rates.process[i];
        if (shown == max || (is_loader(f) && loaders == 0))
            continue;
        loaders -= is_loader(f);
        process_line(p, f, row++, columns);
        shown++;
    }
    snprintf(line, sizeof line, "%-10s %7s %-8s %5s %6s %8s %6s %3s  %s", "PROCESS", "PID", "STATE",
             "CPU%", "MEMORY", "RESERVED", "MSG/S", "RST", "DOING");
    page_heading(p, head, 0, columns, line, p->rates.processes - shown);
    return row;
}

/* "-": the loader has not opened it yet. */
static const char *backend_name(uint64_t number)
{
    for (int id = 0; id < IO_BACKEND__COUNT; id++)
        if (io_backend_info((enum io_backend_id)id)->number == number)
            return io_backend_info((enum io_backend_id)id)->name;
    return "-";
}

/* "io_uring", and how full the file in front of its server is. */
static const char *backend_text(const json_t *row, char text[48])
{
    const char *name = backend_name(lookup_u64(row, "counters.backend"));
    uint64_t slots = lookup_u64(row, "counters.cache_slots");
    if (slots == 0)
        return name;
    snprintf(text, 48, "%s, cache %.0f%% full", name,
             100 * (double)lookup_u64(row, "counters.cache_used") / (double)slots);
    return text;
}

static unsigned storages(struct page *p, unsigned row, unsigned columns, unsigned max)
{
    char rate[16], throttle[16], queued[16], latency[16], backend[48], line[256];
    unsigned shown = p->rates.storages < max ? p->rates.storages : max;
    snprintf(line, sizeof line, "%-11s %9s %6s %9s %9s %9s %9s  %s", "DEVICE", "READ/S", "BUSY%",
             "LATENCY", "QUEUED", "IN FLIGHT", "THROTTLE", "BACKEND");
    page_heading(p, row++, 0, columns, line, p->rates.storages - shown);
    for (uint32_t i = 0; i < shown; i++) {
        const struct storage_rates *d = &p->rates.storage[i];
        bool bad = lookup_u64(d->row, "counters.quarantined") > 0;
        snprintf(line, sizeof line, "loader.%-4" PRIu64 " %9s %6.1f %9s %9s %9" PRIu64 " %9s  %s",
                 d->number, format_size((uint64_t)d->bytes_per_s, rate), 100 * d->busy,
                 format_us(1e3 * d->read_ms, latency), format_us((double)d->p99_us, queued),
                 d->in_flight, d->throttle ? format_size(d->throttle, throttle) : "none",
                 bad ? "QUARANTINE" : backend_text(d->row, backend));
        canvas_put(&p->canvas, row++, 0, bad ? PAINT_BAD : PAINT_PLAIN, "%.*s", (int)columns, line);
    }
    return row;
}

/* The last line: the current problem, or the keys. */
static void footer(struct page *p)
{
    unsigned row = p->canvas.rows - 1;
    canvas_put(&p->canvas, row, 0, PAINT_PLAIN, "%*s", (int)p->canvas.columns, "");
    if (p->problem)
        canvas_put(&p->canvas, row, 0, PAINT_BAD, "%s%.1f s old: %s",
                   p->now->doc ? "" : "no engine, ", p->age, p->problem);
    else if (p->interval > 0)
        canvas_put(&p->canvas, row, 0, PAINT_FAINT,
                   "%severy %.1f s  by %s  h help  q quit  p pause  s sort  m map%s",
                   p->paused ? "PAUSED  " : "", p->interval, sort_name(p->sort),
                   p->map_hidden ? "  up/down" : "");
}

/* Below the head: requests, processes, devices, the map to the right or below, graphs in the
 * remaining rows. When space is short, processes get half of it and devices half of the rest. */
static void tables(struct page *p, unsigned head, bool foot)
{
    struct canvas *c = &p->canvas;
    bool wide = c->columns >= WIDE_COLUMNS && p->now->map.rows > 0;
    unsigned columns = wide ? TABLE_COLUMNS : c->columns, last = c->rows - foot;
    unsigned first = page_draw_requests(p, head, columns, (last - head) / REQUESTS_PART);
    unsigned height = last - first, map = wide ? 0 : MAP_ROWS_MIN;
    unsigned all = p->rates.processes + p->rates.storages + 2 + map;
    unsigned max = all <= height ? p->rates.processes : height > 2 ? height / 2 - 1 : 0;
    unsigned row = processes(p, first, columns, max);
    unsigned left = last > row + wide ? last - row - wide : 0;
    max = all <= height ? p->rates.storages : left / 2;
    if (left > 1)
        row = storages(p, row + wide, columns, max);
    if (wide)
        page_draw_map(p, head, TABLE_COLUMNS + 2, last - head, c->columns - TABLE_COLUMNS - 2);
    else if (row + 2 <= last)
        row += page_draw_map(p, row, 0, last - row, columns);
    if (p->history && row + 1 < last)
        history_draw(p->history, c, row + 1, last - row - 1, columns);
}

void page_draw(struct page *p)
{
    struct canvas *c = &p->canvas;
    canvas_clear(c);
    p->map_hidden = 0;
    if (c->rows < PAGE_ROWS_MIN || c->columns < PAGE_COLUMNS_MIN) {
        canvas_put(c, 0, 0, PAINT_WARN, "needs %dx%d", PAGE_COLUMNS_MIN, PAGE_ROWS_MIN);
        return;
    }
    bool foot = p->interval > 0;
    if (p->now->doc) {
        tables(p, page_draw_head(p), foot);
    } else {
        canvas_put(c, 0, 0, PAINT_STRONG, "sluice top  engine %s", p->run);
    }
    if (foot)
        footer(p);
}
