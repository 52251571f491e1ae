/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the tables of the page, and fits them to the width of the canvas. */
#include "procs/clients/top/page/page.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"

#define WIDE_COLUMNS   140 /* from this width on the map is to the right of the tables */
#define TABLE_COLUMNS  88  /* width of the tables then */
#define LEDGER_COLUMNS 124 /* width of the ledger with names */
#define LEGEND_ROWS    20  /* from this height on, what letters mean has a line */
#define MAP_ROWS_MIN   4   /* below the tables */
#define DOING_COLUMN   62  /* column of the wait reason in the process table */
#define ARENA          'A'
#define ARENA_FREE     'a'
#define BAR_FREE       '.'

static const struct part {
    char letter;
    const char *name;
} parts[] = {
#define PART(letter, name, bytes) {letter, name},
#include "procs/clients/top/ledger.tbl.h"
};

static void part_bytes(const json_t *doc, uint64_t bytes[])
{
    size_t i = 0;
#define LEDGER(key)               lookup_u64(doc, "memory.plan." #key)
#define PART(letter, name, value) bytes[i++] = (value);
#include "procs/clients/top/ledger.tbl.h"
#undef LEDGER
}

static void title(struct page *p)
{
    const json_t *doc = p->now->doc;
    uint64_t up = lookup_u64(doc, "uptime_ms") / 1000;
    const char *preset = lookup_text(doc, "preset"), *chosen = lookup_text(doc, "auto.text");
    canvas_put(&p->canvas, 0, 0, PAINT_STRONG,
               "sluice top  engine %s  %s  up %02" PRIu64 ":%02" PRIu64 ":%02" PRIu64
               "  %s%s%s  %s",
               p->run, lookup_text(doc, "state"), up / 3600, up / 60 % 60, up % 60,
               *preset ? preset : lookup_text(doc, "params.preset"), *chosen ? ": " : "", chosen,
               lookup_text(doc, "model.name"));
}

/* A number in five characters at most: "12.3", "1234", "12.3K". */
static const char *number(double value, char out[16])
{
    static const char units[] = " KMGTPE";
    unsigned unit = 0;
    for (; value >= (unit == 0 ? 9999.5 : 999.5) && units[unit + 1]; unit++)
        value /= 1000;
    if (unit == 0)
        snprintf(out, 16, "%.*f", value < 999.5, value);
    else
        snprintf(out, 16, "%.*f%c", value < 99.95, value, units[unit]);
    return out;
}

/* A count, likewise: without a fraction unless it has a unit. */
static const char *count(double value, char out[16])
{
    if (value >= 9999.5)
        return number(value, out);
    snprintf(out, 16, "%.0f", value);
    return out;
}

/* A share in five characters at most: "66.4%", "100%". */
static const char *percent(double share, char out[16])
{
    snprintf(out, 16, "%.*f%%", share < 0.9995, 100 * share);
    return out;
}

/* A time in eight characters at most: "850 us", "384.0 ms", "12.3 s". */
static const char *time_text(double us, char out[16])
{
    if (us < 9999.5)
        snprintf(out, 16, "%.0f us", us);
    else if (us < 999.95e3)
        snprintf(out, 16, "%.1f ms", us / 1e3);
    else
        snprintf(out, 16, "%.*f s", us < 999.95e6, us / 1e6);
    return out;
}

static void work(struct page *p)
{
    const struct rates *f = &p->rates;
    const json_t *doc = p->now->doc;
    struct canvas *c = &p->canvas;
    char a[16], b[16], done[16], failed[16], hit[16], miss[16], skipped[16], stall[16];
    canvas_put(c, 1, 0, PAINT_PLAIN,
               "decode %s prefill %s tok/s  running %" PRIu64 "  queued %" PRIu64
               "  done %s  failed %s",
               number(f->decode_tps, a), number(f->prefill_tps, b),
               lookup_counter(doc, "compute", "sequences_running"),
               lookup_counter(doc, "compute", "sequences_queued"),
               count((double)lookup_counter(doc, "compute", "sequences_done"), done),
               count((double)lookup_counter(doc, "compute", "sequences_failed"), failed));
    canvas_put(c, 2, 0, PAINT_PLAIN,
               "experts %s/s: hit %s in flight %s miss %s skip %s  stalled %s",
               count(f->accesses_per_s, a), percent(f->hit, hit), percent(f->inflight, b),
               percent(f->miss, miss), percent(f->skipped, skipped), percent(f->stall, stall));
    canvas_put(c, 3, 0, PAINT_PLAIN,
               "predicted %s  prefetches used %s  evictions %s/s  resident %" PRIu64 " of %" PRIu64,
               percent(f->recall, hit), percent(f->prefetch_used, b), count(f->evictions_per_s, a),
               map_resident_all(&p->now->map), (uint64_t)p->now->map.rows * p->now->map.experts);
}

/* A size in five characters: "552K", "4.2M", "1023M". */
static const char *size(uint64_t bytes, char out[16])
{
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && units[unit + 1]; unit++)
        value /= 1024;
    snprintf(out, 16, "%.*f%c", unit > 0 && value < 99.95, value, units[unit]);
    return out;
}

/* Lines above the tables, without the GPU's two: in a narrow picture one more, which explains the
 * letters of the budget. */
static unsigned head_rows(const struct page *p)
{
    return 6 + (p->canvas.columns < LEDGER_COLUMNS && p->canvas.rows >= LEGEND_ROWS);
}

/* The two lines of the GPU, below the budget. */
static void gpu(struct page *p)
{
    unsigned row = head_rows(p);
    const struct gpu_rates *g = &p->rates.gpu;
    const json_t *doc = p->now->doc;
    struct canvas *c = &p->canvas;
    char budget[16], to[16], from[16], uploads[16], evictions[16];
    char busy[32] = "", ahead[32] = "", layers[40] = "";
    uint64_t on_gpu = lookup_u64(doc, "gpu.layers"), on_cpu = lookup_u64(doc, "gpu.layers_on_cpu");
    if (g->lost) {
        canvas_put(c, row, 0, PAINT_BAD, "GPU %s lost: computing on the CPU  %s",
                   lookup_text(doc, "gpu.numbers"), lookup_text(doc, "gpu.name"));
        return;
    }
    if (g->busy > 0)
        snprintf(busy, sizeof busy, " busy %.0f%%", 100 * g->busy);
    if (lookup_counter(doc, "compute", "gpu_prefetches") > 0)
        snprintf(ahead, sizeof ahead, " ahead %.0f%%", 100 * g->ahead);
    if (on_cpu > 0)
        snprintf(layers, sizeof layers, " layers %" PRIu64 "/%" PRIu64, on_gpu, on_gpu + on_cpu);
    canvas_put(c, row, 0, PAINT_PLAIN, "GPU %s %s%s %s slots %" PRIu64 "/%" PRIu64 "  %s",
               lookup_text(doc, "gpu.numbers"), size(lookup_u64(doc, "gpu.budget_bytes"), budget),
               layers, lookup_text(doc, "gpu.policy"), lookup_u64(doc, "gpu.slots_used"),
               lookup_u64(doc, "gpu.slots"), lookup_text(doc, "gpu.name"));
    canvas_put(c, row + 1, 0, PAINT_PLAIN, "hit %.0f%% upl %s/s evict %s/s%s to %s/s from %s/s%s",
               100 * g->hit, count(g->uploads_per_s, uploads), count(g->evictions_per_s, evictions),
               ahead, size((uint64_t)g->to_bytes_per_s, to),
               size((uint64_t)g->from_bytes_per_s, from), busy);
}

/* The budget bar: every part as wide as its share, the arena first; its used part is a capital
 * A. */
static void bar(struct page *p, unsigned row, unsigned column, unsigned width)
{
    const json_t *doc = p->now->doc;
    uint64_t bytes[ARRAY_LEN(parts)], budget = lookup_u64(doc, "memory.budget_bytes");
    uint64_t quota = lookup_u64(doc, "memory.arena_quota_bytes");
    uint64_t backed = lookup_u64(doc, "directory.backed_bytes"), sum = quota;
    part_bytes(doc, bytes);
    if (budget == 0)
        return;
    canvas_put(&p->canvas, row, column, PAINT_PLAIN, "[");
    for (unsigned i = 0; i < width; i++) {
        uint64_t at = (uint64_t)((double)budget * ((double)i + 0.5) / (double)width);
        char letter = at < backed && at < quota ? ARENA : at < quota ? ARENA_FREE : BAR_FREE;
        sum = quota;
        for (size_t k = 0; letter == BAR_FREE && k < ARRAY_LEN(parts); k++) {
            sum += bytes[k];
            if (at < sum)
                letter = parts[k].letter;
        }
        canvas_put(&p->canvas, row, column + 1 + i,
                   letter == ARENA        ? PAINT_GOOD
                   : letter == ARENA_FREE ? PAINT_FAINT
                                          : PAINT_PLAIN,
                   "%c", letter);
    }
    canvas_put(&p->canvas, row, column + 1 + width, PAINT_PLAIN, "]");
}

/* Legend of the bar: letters with sizes, and with names where they fit. */
static void ledger(struct page *p, unsigned columns)
{
    const json_t *doc = p->now->doc;
    bool names = columns >= LEDGER_COLUMNS;
    char a[16], b[16], text[256];
    uint64_t bytes[ARRAY_LEN(parts)];
    part_bytes(doc, bytes);
    int n = snprintf(text, sizeof text, names ? "A %s of %s arena" : "A %s/%s",
                     size(lookup_u64(doc, "directory.backed_bytes"), a),
                     size(lookup_u64(doc, "memory.arena_quota_bytes"), b));
    for (size_t i = 0; i < ARRAY_LEN(parts) && n > 0 && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%c %s%s%s", names ? "  " : " ",
                      parts[i].letter, size(bytes[i], a), names ? " " : "",
                      names ? parts[i].name : "");
    canvas_put(&p->canvas, 5, 0, PAINT_FAINT, "%s", text);
    if (head_rows(p) == 6)
        return;
    n = snprintf(text, sizeof text, "A=arena a=free");
    for (size_t i = 0; i < ARRAY_LEN(parts) && n > 0 && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %c=%s", parts[i].letter, parts[i].name);
    canvas_put(&p->canvas, 6, 0, PAINT_FAINT, "%s", text);
}

static void budget(struct page *p, unsigned columns)
{
    const json_t *doc = p->now->doc;
    char a[16], b[16], text[256];
    uint64_t wanted = lookup_u64(doc, "memory.budget_wanted_bytes");
    uint64_t limit = lookup_u64(doc, "memory.budget_bytes");
    uint64_t used = lookup_u64(doc, "memory.used_bytes");
    int n = snprintf(text, sizeof text, "budget %s used %s %.0f%%", size(limit, a), size(used, b),
                     limit ? 100.0 * (double)used / (double)limit : 0);
    if (wanted != limit && n > 0 && n < (int)sizeof text)
        n += snprintf(text + n, sizeof text - (size_t)n, " -> %s", size(wanted, a));
    canvas_put(&p->canvas, 4, 0, used > limit ? PAINT_BAD : PAINT_PLAIN, "%s", text);
    if (n > 0 && (unsigned)n + 10 < columns)
        bar(p, 4, (unsigned)n + 1, columns - (unsigned)n - 3);
    ledger(p, columns);
}

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
             size((uint64_t)f->memory, memory),
             f->reserved > 0 ? size((uint64_t)f->reserved, reserved) : "-",
             number(f->messages, messages), f->restarts, doing(f, left, wait, sizeof wait));
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

static const char *backend_name(uint64_t backend)
{
    return backend == 1 ? "io_uring" : backend == 2 ? "pread" : "-";
}

static unsigned storages(struct page *p, unsigned row, unsigned columns, unsigned max)
{
    char rate[16], throttle[16], queued[16], latency[16], line[256];
    unsigned shown = p->rates.storages < max ? p->rates.storages : max;
    snprintf(line, sizeof line, "%-11s %9s %6s %9s %9s %9s %9s  %s", "DEVICE", "READ/S", "BUSY%",
             "LATENCY", "QUEUED", "IN FLIGHT", "THROTTLE", "BACKEND");
    page_heading(p, row++, 0, columns, line, p->rates.storages - shown);
    for (uint32_t i = 0; i < shown; i++) {
        const struct storage_rates *d = &p->rates.storage[i];
        bool bad = lookup_u64(d->row, "counters.quarantined") > 0;
        snprintf(line, sizeof line, "loader.%-4" PRIu64 " %9s %6.1f %9s %9s %9" PRIu64 " %9s  %s",
                 d->number, size((uint64_t)d->bytes_per_s, rate), 100 * d->busy,
                 time_text(1e3 * d->read_ms, latency), time_text((double)d->p99_us, queued),
                 d->in_flight, d->throttle ? size(d->throttle, throttle) : "none",
                 bad ? "QUARANTINE" : backend_name(lookup_u64(d->row, "counters.backend")));
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

/* Below the head: processes, devices, the map to the right or below, graphs in the remaining rows.
 * When space is short, processes get half of it and devices half of the rest. */
static void tables(struct page *p, bool foot)
{
    struct canvas *c = &p->canvas;
    bool wide = c->columns >= WIDE_COLUMNS && p->now->map.rows > 0;
    unsigned columns = wide ? TABLE_COLUMNS : c->columns, last = c->rows - foot;
    unsigned head = head_rows(p) + (p->rates.gpu.lost ? 1 : 2) * p->rates.gpu.on;
    unsigned height = last - head, map = wide ? 0 : MAP_ROWS_MIN;
    unsigned all = p->rates.processes + p->rates.storages + 2 + map;
    unsigned max = all <= height ? p->rates.processes : height > 2 ? height / 2 - 1 : 0;
    unsigned row = processes(p, head, columns, max);
    unsigned left = last > row + wide ? last - row - wide : 0;
    max = all <= height ? p->rates.storages : left / 2;
    if (left > 1)
        row = storages(p, row + wide, columns, max);
    if (wide)
        page_draw_map(p, head, TABLE_COLUMNS + 2, height, c->columns - TABLE_COLUMNS - 2);
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
        title(p);
        work(p);
        budget(p, c->columns);
        if (p->rates.gpu.on)
            gpu(p);
        tables(p, foot);
    } else {
        canvas_put(c, 0, 0, PAINT_STRONG, "sluice top  engine %s", p->run);
    }
    if (foot)
        footer(p);
}

void page_draw_part_names(struct canvas *c, unsigned row, unsigned column)
{
    canvas_put(c, row, column, PAINT_PLAIN, "A arena, backed  a arena, free");
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        canvas_put(c, row + 1 + (unsigned)i / 4, column + (unsigned)i % 4 * 16, PAINT_PLAIN,
                   "%c %s", parts[i].letter, parts[i].name);
}
