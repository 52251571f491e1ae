/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the lines above the tables: the engine, its work, its memory, its GPU. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/clients/top/page/format.h"
#include "procs/clients/top/page/page.h"

#define LEDGER_COLUMNS 124 /* width of the ledger with names */
#define LEGEND_ROWS    28  /* from this height on, what letters mean has a line */
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
               lookup_model(doc));
}

static uint64_t counter(const struct page *p, const char *name)
{
    return lookup_counter(p->now->doc, "compute", name);
}

static void line_limit(struct page *p, unsigned row)
{
    char text[96];
    enum limit limit = limit_now(&p->rates.limit);
    canvas_put(&p->canvas, row, 0, limit == LIMIT_NONE ? PAINT_PLAIN : PAINT_STRONG, "limit %s",
               limit_text(&p->rates.limit, limit, text, sizeof text));
}

static void line_sequences(struct page *p, unsigned row)
{
    const struct rates *f = &p->rates;
    char a[16], b[16], done[16], failed[16];
    canvas_put(&p->canvas, row, 0, PAINT_PLAIN,
               "decode %s prefill %s tok/s  running %" PRIu64 "  queued %" PRIu64
               "  done %s  failed %s",
               format_number(f->decode_tps, a), format_number(f->prefill_tps, b),
               counter(p, "sequences_running"), counter(p, "sequences_queued"),
               format_count((double)counter(p, "sequences_done"), done),
               format_count((double)counter(p, "sequences_failed"), failed));
}

static void line_passes(struct page *p, unsigned row)
{
    const struct rates *f = &p->rates;
    char a[16], b[16], c[16], d[16], gap[16];
    canvas_put(&p->canvas, row, 0, PAINT_PLAIN,
               "passes %s/s  rows %s  experts %s  rows/expert %s  token gap %s",
               format_number(f->passes_per_s, a), format_number(f->rows, b),
               format_number(f->experts, c), format_number(f->rows_per_expert, d),
               format_us(f->gap_us, gap));
}

static void line_experts(struct page *p, unsigned row)
{
    const struct rates *f = &p->rates;
    char a[16], b[16], hit[16], miss[16], skipped[16], stall[16];
    canvas_put(&p->canvas, row, 0, PAINT_PLAIN,
               "experts %s/s: hit %s in flight %s miss %s skip %s  stalled %s",
               format_count(f->accesses_per_s, a), format_share(f->hit, hit),
               format_share(f->inflight, b), format_share(f->miss, miss),
               format_share(f->skipped, skipped), format_share(f->stall, stall));
}

static void line_predictions(struct page *p, unsigned row)
{
    const struct rates *f = &p->rates;
    char a[16], b[16], hit[16];
    canvas_put(&p->canvas, row, 0, PAINT_PLAIN,
               "predicted %s  prefetches used %s  evictions %s/s  resident %" PRIu64 " of %" PRIu64,
               format_share(f->recall, hit), format_share(f->prefetch_used, b),
               format_count(f->evictions_per_s, a), map_resident_all(&p->now->map),
               (uint64_t)p->now->map.rows * p->now->map.experts);
}

/* Not shown while no prefix was ever kept. */
static bool has_prefixes(const struct page *p)
{
    return counter(p, "kv_kept_entries") + counter(p, "sequences_reused") > 0;
}

static void line_prefixes(struct page *p, unsigned row)
{
    char kept[16], lent[16], entries[16], hits[16], tokens[16], evictions[16];
    if (!has_prefixes(p))
        return;
    canvas_put(&p->canvas, row, 0, PAINT_PLAIN,
               "prefixes %s, %s  lent %s  hits %s  not computed %s  evictions %s",
               format_count((double)counter(p, "kv_kept_entries"), entries),
               format_size(counter(p, "kv_kept_bytes"), kept),
               format_size(lookup_u64(p->now->doc, "memory.plan.kv_lent_bytes"), lent),
               format_count((double)counter(p, "sequences_reused"), hits),
               format_count((double)counter(p, "tokens_reused"), tokens),
               format_count((double)counter(p, "kv_kept_evictions"), evictions));
}

static bool has_table(const struct page *p)
{
    return lookup_u64(p->now->doc, "model.table_bytes") > 0;
}

static void line_table(struct page *p, unsigned row)
{
    const struct rates *f = &p->rates;
    char rows[16], pages[16], wait[16], bytes[16];
    if (!has_table(p))
        return;
    canvas_put(&p->canvas, row, 0, PAINT_PLAIN,
               "table of %s on storage: rows %s/s  pages read %s/s  waiting %s",
               format_size(lookup_u64(p->now->doc, "model.table_bytes"), bytes),
               format_count(f->table_rows_per_s, rows), format_count(f->table_pages_per_s, pages),
               format_share(f->table_wait, wait));
}

static void work(struct page *p)
{
    line_limit(p, 1);
    line_sequences(p, 2);
    line_passes(p, 3);
    line_experts(p, 4);
    line_predictions(p, 5);
    line_prefixes(p, 6);
    line_table(p, 6 + has_prefixes(p));
}

/* The first line of the budget. */
static unsigned budget_row(const struct page *p)
{
    return 6 + has_prefixes(p) + has_table(p);
}

/* Lines above the tables, without the GPU's two: in a narrow picture one more, which explains the
 * letters of the budget. */
static unsigned head_rows(const struct page *p)
{
    return budget_row(p) + 2 +
           (p->canvas.columns < LEDGER_COLUMNS && p->canvas.rows >= LEGEND_ROWS);
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
               lookup_text(doc, "gpu.numbers"),
               format_size(lookup_u64(doc, "gpu.budget_bytes"), budget), layers,
               lookup_text(doc, "gpu.policy"), lookup_u64(doc, "gpu.slots_used"),
               lookup_u64(doc, "gpu.slots"), lookup_text(doc, "gpu.name"));
    canvas_put(c, row + 1, 0, PAINT_PLAIN, "hit %.0f%% upl %s/s evict %s/s%s to %s/s from %s/s%s",
               100 * g->hit, format_count(g->uploads_per_s, uploads),
               format_count(g->evictions_per_s, evictions), ahead,
               format_size((uint64_t)g->to_bytes_per_s, to),
               format_size((uint64_t)g->from_bytes_per_s, from), busy);
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
                     format_size(lookup_u64(doc, "directory.backed_bytes"), a),
                     format_size(lookup_u64(doc, "memory.arena_quota_bytes"), b));
    for (size_t i = 0; i < ARRAY_LEN(parts) && n > 0 && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%c %s%s%s", names ? "  " : " ",
                      parts[i].letter, format_size(bytes[i], a), names ? " " : "",
                      names ? parts[i].name : "");
    canvas_put(&p->canvas, budget_row(p) + 1, 0, PAINT_FAINT, "%s", text);
    if (head_rows(p) == budget_row(p) + 2)
        return;
    n = snprintf(text, sizeof text, "A=arena a=free");
    for (size_t i = 0; i < ARRAY_LEN(parts) && n > 0 && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %c=%s", parts[i].letter, parts[i].name);
    canvas_put(&p->canvas, budget_row(p) + 2, 0, PAINT_FAINT, "%s", text);
}

static void budget(struct page *p, unsigned columns)
{
    const json_t *doc = p->now->doc;
    char a[16], b[16], text[256];
    uint64_t wanted = lookup_u64(doc, "memory.budget_wanted_bytes");
    uint64_t limit = lookup_u64(doc, "memory.budget_bytes");
    uint64_t used = lookup_u64(doc, "memory.used_bytes");
    int n = snprintf(text, sizeof text, "budget %s used %s %.0f%%", format_size(limit, a),
                     format_size(used, b), limit ? 100.0 * (double)used / (double)limit : 0);
    if (wanted != limit && n > 0 && n < (int)sizeof text)
        n += snprintf(text + n, sizeof text - (size_t)n, " -> %s", format_size(wanted, a));
    canvas_put(&p->canvas, budget_row(p), 0, used > limit ? PAINT_BAD : PAINT_PLAIN, "%s", text);
    if (n > 0 && (unsigned)n + 10 < columns)
        bar(p, budget_row(p), (unsigned)n + 1, columns - (unsigned)n - 3);
    ledger(p, columns);
}

unsigned page_draw_head(struct page *p)
{
    title(p);
    work(p);
    budget(p, p->canvas.columns);
    if (p->rates.gpu.on)
        gpu(p);
    return head_rows(p) + (p->rates.gpu.lost ? 1 : 2) * p->rates.gpu.on;
}

void page_draw_part_names(struct canvas *c, unsigned row, unsigned column)
{
    canvas_put(c, row, column, PAINT_PLAIN, "A arena, backed  a arena, free");
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        canvas_put(c, row + 1 + (unsigned)i / 4, column + (unsigned)i % 4 * 16, PAINT_PLAIN,
                   "%c %s", parts[i].letter, parts[i].name);
}
