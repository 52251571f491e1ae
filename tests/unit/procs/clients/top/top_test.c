/* SPDX-License-Identifier: Apache-2.0 */
/* Rates that top computes from two samples, and their layout on pages of any size. Without engine
 * or terminal. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/backends.h"
#include "procs/clients/top/page/page.h"

#define EXPERTS 32

/* Row of a process with counters. */
static json_t *row(const char *service, int number, int pid, json_t *counters)
{
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:i, s:i, s:s, s:o}", "service", service, "number",
                     number, "pid", pid, "state", "ready", "wait", "waiting for storage",
                     "restarts", number, "reserved_bytes", 1 << 20, "exit_message", "", "counters",
                     counters);
}

/* The stats of an engine at one time: accesses, bytes read. */
static void make(struct sample *sample, double seconds, int accesses, int bytes, unsigned layers)
{
    memset(sample, 0, sizeof *sample);
    sample->when_ns = (uint64_t)((100 + seconds) * (double)NS_PER_S);
    json_t *processes = json_array();
    json_array_append_new(processes,
                          row("supervisor", 0, 10, json_pack("{s:i}", "requests", accesses)));
    json_array_append_new(
        processes,
        row("compute", 0, 11,
            json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "accesses", accesses, "hits",
                      accesses / 4 * 3, "misses", accesses / 4, "tokens_decode", accesses / 8,
                      "decode_ns", accesses * 1000, "stall_ns", accesses * 250, "messages", 0)));
    json_array_append_new(
        processes, row("loader", 1, 12,
                       json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "bytes_read", bytes, "busy_ns",
                                 bytes * 10, "read_ns", bytes * 20, "reads_submitted", bytes / 1000,
                                 "messages", bytes, "backend", 1)));
    sample->doc = json_pack(
        "{s:s, s:s, s:i, s:o, s:{s:i, s:i, s:i, s:i, s:{s:i, s:i}}, s:{s:i, s:[i, i]}}", "state",
        "ready", "preset", "default", "uptime_ms", (int)(seconds * 1000), "processes", processes,
        "memory", "budget_bytes", 1000, "budget_wanted_bytes", 1000, "used_bytes", 400,
        "arena_quota_bytes", 500, "plan", "kv_bytes", 200, "margin_bytes", 100, "directory",
        "backed_bytes", 250, "throttle_bytes_per_s", 0, 77);
    sample->seen[1].cpu_ns = (uint64_t)(seconds * 5e6);
    json_t *rows = json_array();
    char resident[EXPERTS + 1], heat[EXPERTS + 1];
    for (unsigned i = 0; i < layers; i++) {
        memset(resident, i % 2 ? '0' : '.', EXPERTS);
        memset(heat, '5', EXPERTS);
        resident[EXPERTS] = heat[EXPERTS] = 0;
        json_array_append_new(rows, json_pack("{s:i, s:s, s:s}", "layer", (int)i, "resident",
                                              resident, "heat", heat));
    }
    sample->map_reply = json_pack("{s:i, s:i, s:o}", "experts", EXPERTS, "tokens", 1, "rows", rows);
    struct error error;
    ck_assert_int_eq(map_read(sample->map_reply, &sample->map, &error), 0);
}

START_TEST(rates_are_of_the_time_between)
{
    struct sample before, now, restarted, none = {0};
    struct rates f;
    make(&before, 10, 1000, 5000, 2);
    make(&now, 12, 5000, 205000, 2);
    rates_make(&before, &now, SORT_start, &f);
    ck_assert_double_eq_tol(f.seconds, 2, 1e-9);
    ck_assert_double_eq_tol(f.accesses_per_s, 2000, 1e-6);
    ck_assert_double_eq_tol(f.hit, 0.75, 1e-9);
    ck_assert_double_eq_tol(f.stall, 0.25, 1e-9);
    ck_assert_double_eq_tol(f.tokens_per_s, 250, 1e-6);
    ck_assert_double_eq_tol(f.decode_tps, 500 * 1e9 / 4e6, 1e-3);
    ck_assert_uint_eq(f.storages, 1);
    ck_assert_uint_eq(f.storage[0].throttle, 77);
    ck_assert_double_eq_tol(f.storage[0].bytes_per_s, 100000, 1e-6);
    ck_assert_double_eq_tol(f.storage[0].read_ms, 200000 * 20 / 1e6 / 200, 1e-6);
    ck_assert_double_eq_tol(f.process[1].cpu, 0.5, 1e-6);
    ck_assert_str_eq(f.process[2].name, "loader.1");
    /* Counters of a restarted process are relative to zero. */
    make(&restarted, 13, 100, 100, 2);
    rates_make(&now, &restarted, SORT_start, &f);
    ck_assert_double_eq_tol(f.accesses_per_s, 100, 1e-6);
    /* Without a previous sample: since the engine's start. */
    rates_make(&none, &now, SORT_start, &f);
    ck_assert_double_eq_tol(f.seconds, 12, 1e-6);
    ck_assert_double_eq_tol(f.accesses_per_s, 5000.0 / 12, 1e-6);
    sample_free(&before);
    sample_free(&now);
    sample_free(&restarted);
}
END_TEST

START_TEST(processes_are_sorted)
{
    struct sample none = {0}, now;
    struct rates f;
    make(&now, 10, 800, 16000, 2);
    rates_make(&none, &now, SORT_messages, &f);
    ck_assert_str_eq(f.process[0].name, "loader.1");
    ck_assert_str_eq(f.process[1].name, "supervisor");
    rates_make(&none, &now, SORT_cpu, &f);
    ck_assert_str_eq(f.process[0].name, "compute");
    ck_assert_str_eq(f.process[1].name, "supervisor"); /* equal values keep the engine's order */
    sample_free(&now);
}
END_TEST

/* The page as text. */
static const char *text_of(struct page *p)
{
    static char text[1 << 17];
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    page_draw(p);
    canvas_print(&p->canvas, f);
    fclose(f);
    return text;
}

static unsigned count(const char *text, const char *needle)
{
    unsigned n = 0;
    for (; (text = strstr(text, needle)); text += strlen(needle))
        n++;
    return n;
}

static void check_page(const struct sample *now, unsigned rows, unsigned columns, unsigned layers)
{
    struct sample none = {0};
    struct page p = {.run = "test", .now = now, .interval = 1};
    ck_assert_int_eq(canvas_size(&p.canvas, rows, columns), 0);
    rates_make(&none, now, SORT_start, &p.rates);
    const char *text = text_of(&p);
    ck_assert_uint_le(count(text, "\n"), rows);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        ck_assert_uint_le(strcspn(line, "\n"), columns);
    ck_assert_msg(strstr(text, "compute") && strstr(text, "hit 75.0%") && strstr(text, "h help"),
                  "%s", text);
    ck_assert_uint_eq(count(text, "NNNNNNNNNNNNNNNN"), layers / 2 * 2);
    canvas_free(&p.canvas);
}

START_TEST(pages_fit_any_terminal)
{
    struct sample now;
    make(&now, 10, 800, 16000, 8);
    check_page(&now, 24, 80, 8); /* every layer in full, half of its experts resident */
    check_page(&now, 50, 200, 8);
    sample_free(&now);
    make(&now, 10, 800, 16000, 60);
    for (unsigned rows = 1; rows < 60; rows += 3)
        for (unsigned columns = 1; columns < 300; columns += 7) {
            struct sample none = {0};
            struct page p = {.run = "test", .now = &now, .interval = 1, .map_top = 1000};
            ck_assert_int_eq(canvas_size(&p.canvas, rows, columns), 0);
            rates_make(&none, &now, SORT_start, &p.rates);
            text_of(&p);
            ck_assert_uint_le(p.map_hidden, 60);
            canvas_free(&p.canvas);
        }
    sample_free(&now);
}
END_TEST

/* A device in quarantine is marked, and no other. */
START_TEST(quarantine_is_shown)
{
    struct sample now, none = {0};
    make(&now, 10, 800, 16000, 8);
    json_array_append_new(json_object_get(now.doc, "processes"),
                          row("loader", 2, 102, json_pack("{s:i}", "quarantined", 1)));
    struct page p = {.run = "test", .now = &now, .interval = 1};
    ck_assert_int_eq(canvas_size(&p.canvas, 40, 80), 0);
    rates_make(&none, &now, SORT_start, &p.rates);
    const char *text = text_of(&p), *storage = strstr(strstr(text, "DEVICE"), "loader.2");
    ck_assert_ptr_nonnull(storage);
    ck_assert_uint_eq(count(text, "QUARANTINE"), 1);
    ck_assert_ptr_eq(memchr(storage, 'Q', strcspn(storage, "\n")), strstr(text, "QUARANTINE"));
    canvas_free(&p.canvas);
    sample_free(&now);
}
END_TEST

/* Counters of the GPU, as of `uses` uses of experts, a quarter of them copied. */
static void add_gpu(struct sample *sample, int uses, bool lost)
{
    json_object_set_new(sample->doc, "gpu",
                        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:b}", "numbers", "0,1",
                                  "policy", "prefetch", "name", "card", "budget_bytes", 1 << 20,
                                  "layers", 3, "layers_on_cpu", 5, "slots", 64, "slots_used", 12,
                                  "lost", lost));
    json_t *compute = json_array_get(json_object_get(sample->doc, "processes"), 1);
    json_t *counters =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:i, s:i, s:i, s:i}", "gpu_expert_hits",
                  uses / 4 * 3, "gpu_expert_uploads", uses / 4, "gpu_expert_evictions", uses / 8,
                  "gpu_uploaded_bytes", uses * 1024, "gpu_downloaded_bytes", uses, "gpu_busy_ns",
                  (json_int_t)uses * 1000000, "gpu_prefetches", uses / 2, "gpu_prefetches_timely",
                  uses / 4, "gpu_prefetches_late", uses / 8, "gpu_prefetches_unused", uses / 8);
    json_object_update(json_object_get(compute, "counters"), counters);
    json_decref(counters);
}

START_TEST(the_gpu_has_a_line)
{
    struct sample before, now;
    make(&before, 10, 1000, 5000, 60);
    make(&now, 12, 5000, 205000, 60);
    add_gpu(&before, 400, false);
    add_gpu(&now, 1200, false);
    struct page p = {.run = "test", .now = &now, .interval = 1};
    ck_assert_int_eq(canvas_size(&p.canvas, 24, 140), 0);
    rates_make(&before, &now, SORT_start, &p.rates);
    ck_assert_double_eq_tol(p.rates.gpu.busy, 0.4, 1e-9);
    const char *text = text_of(&p);
    ck_assert_msg(
        strstr(text,
               "\nGPU 0,1 1.0M layers 3/8 prefetch slots 12/64  card\n"
               "hit 75% upl 100/s evict 50/s ahead 75% to 400K/s from 400B/s busy 40%\nPROCESS"),
        "%s", text);
    canvas_free(&p.canvas);
    for (unsigned rows = 1; rows < 40; rows++)
        for (unsigned columns = 30; columns < 300; columns += 27) {
            ck_assert_int_eq(canvas_size(&p.canvas, rows, columns), 0);
            ck_assert_uint_le(count(text_of(&p), "\n"), rows);
            canvas_free(&p.canvas);
        }
    add_gpu(&now, 1200, true);
    ck_assert_int_eq(canvas_size(&p.canvas, 24, 80), 0);
    rates_make(&before, &now, SORT_start, &p.rates);
    text = text_of(&p);
    ck_assert_msg(strstr(text, "\nGPU 0,1 lost: computing on the CPU  card\n"), "%s", text);
    canvas_free(&p.canvas);
    sample_free(&before);
    sample_free(&now);
}
END_TEST

/* The largest values that are likely, on the usual terminal: none is cut at the edge. */
START_TEST(no_value_is_clipped)
{
    struct sample now, none = {0};
    make(&now, 10, 800, 16000, 8);
    add_gpu(&now, 1200, false);
    json_t *doc = now.doc, *compute = json_array_get(json_object_get(doc, "processes"), 1);
    json_t *more = json_pack("{s:i, s:i, s:i, s:i}", "sequences_running", 1, "sequences_queued", 32,
                             "sequences_done", 98765432, "sequences_failed", 98765432);
    json_object_update(json_object_get(compute, "counters"), more);
    json_t *memory = json_object_get(doc, "memory"), *plan = json_object_get(memory, "plan");
    json_t *counts = json_pack("{s:i, s:i, s:i, s:i, s:i}", "kv_kept_entries", 128, "kv_kept_bytes",
                               1023 << 20, "sequences_reused", 98765432, "tokens_reused", 987654321,
                               "kv_kept_evictions", 98765432);
    json_object_update(json_object_get(compute, "counters"), counts);
    json_decref(counts);
    static const char *const plans[] = {"kv_bytes",     "margin_bytes",     "compute_bytes",
                                        "cache_bytes",  "text_bytes",       "segments_bytes",
                                        "kernel_bytes", "page_table_bytes", "in_flight_bytes"};
    for (size_t i = 0; i < ARRAY_LEN(plans); i++)
        json_object_set_new(plan, plans[i], json_integer(1023ll << 20));
    json_object_set_new(memory, "arena_quota_bytes", json_integer(1023ll << 30));
    json_object_set_new(json_object_get(doc, "directory"), "backed_bytes",
                        json_integer(1023ll << 30));
    struct page p = {.run = "test", .now = &now, .interval = 1};
    ck_assert_int_eq(canvas_size(&p.canvas, 40, 80), 0);
    rates_make(&none, &now, SORT_start, &p.rates);
    struct rates *f = &p.rates;
    f->decode_tps = f->prefill_tps = f->accesses_per_s = f->evictions_per_s = 99940;
    f->passes_per_s = f->rows = f->experts = f->rows_per_expert = 99940;
    f->gap_us = 383973;
    f->limit = (struct limit_facts){.stall = 1, .busy = 1, .throttled = true};
    f->hit = f->inflight = f->miss = f->skipped = f->stall = f->recall = f->prefetch_used = 1;
    f->gpu.hit = f->gpu.ahead = f->gpu.busy = 1;
    f->gpu.uploads_per_s = f->gpu.evictions_per_s = 99940;
    f->gpu.to_bytes_per_s = f->gpu.from_bytes_per_s = 99.4 * (double)GIB;
    f->storage[0].p99_us = 383973;
    f->storage[0].read_ms = 123456;
    const char *text = text_of(&p);
    ck_assert_msg(p.canvas.clipped == 0, "%s", text);
    /* Every letter of the bar is explained, here as names with sizes have no space. */
    ck_assert_msg(strstr(text, "\nA=arena a=free K=kv P=private T=text S=segments O=kernel "
                               "F=in flight M=margin\n"),
                  "%s", text);
    ck_assert_msg(strstr(text, "stalled 100%\n") && strstr(text, "384.0 ms") &&
                      strstr(text, "123.5 s") && strstr(text, "failed 98.8M\n") &&
                      strstr(text, "io_uring\n") && strstr(text, " M 1023M\n"),
                  "%s", text);
    json_decref(more);
    canvas_free(&p.canvas);
    sample_free(&now);
}
END_TEST

/* Every back end has its name, those of servers, too. */
START_TEST(backends_are_named)
{
    for (int id = -1; id < IO_BACKEND__COUNT; id++) {
        const struct io_backend_info *info =
            id < 0 ? NULL : io_backend_info((enum io_backend_id)id);
        struct sample now, none = {0};
        char end[32];
        make(&now, 10, 800, 16000, 8);
        json_t *loader = json_array_get(json_object_get(now.doc, "processes"), 2);
        json_object_set_new(json_object_get(loader, "counters"), "backend",
                            json_integer(info ? info->number : 0));
        struct page p = {.run = "test", .now = &now, .interval = 1};
        ck_assert_int_eq(canvas_size(&p.canvas, 40, 88), 0);
        rates_make(&none, &now, SORT_start, &p.rates);
        const char *text = text_of(&p);
        snprintf(end, sizeof end, "  %s\n", info ? info->name : "-");
        ck_assert_msg(strstr(text, end) != NULL, "%s: %s", end, text);
        canvas_free(&p.canvas);
        sample_free(&now);
    }
}
END_TEST

/* What the rates of passes and the limit are made of. */
START_TEST(passes_have_rates)
{
    struct sample before, now;
    struct rates f;
    make(&before, 10, 1000, 5000, 2);
    make(&now, 12, 5000, 205000, 2);
    for (int i = 0; i < 2; i++) {
        json_t *compute = json_array_get(json_object_get((i ? now : before).doc, "processes"), 1);
        json_t *more = json_pack("{s:i, s:i, s:i, s:i, s:i}", "passes", i * 100, "pass_rows",
                                 i * 400, "pass_experts", i * 1000, "pass_expert_rows", i * 3000,
                                 "sequences_running", 4);
        json_object_update(json_object_get(compute, "counters"), more);
        json_decref(more);
    }
    rates_make(&before, &now, SORT_start, &f);
    ck_assert_double_eq_tol(f.passes_per_s, 50, 1e-9);
    ck_assert_double_eq_tol(f.rows, 4, 1e-9);
    ck_assert_double_eq_tol(f.experts, 10, 1e-9);
    ck_assert_double_eq_tol(f.rows_per_expert, 3, 1e-9);
    ck_assert_double_eq_tol(f.gap_us, 2e6 * 4 / 500, 1e-6); /* 500 tokens of four sequences */
    ck_assert_double_eq_tol(f.limit.computing, 4e6 / 2e9, 1e-9);
    ck_assert_double_eq_tol(f.limit.stall, 1e6 / 2e9, 1e-9);
    ck_assert_double_eq_tol(f.limit.busy, f.storage[0].busy, 1e-9);
    ck_assert(f.limit.running && f.limit.throttled && !f.limit.all_resident);
    sample_free(&before);
    sample_free(&now);
}
END_TEST

/* Who asks, and how far each is; of many, as many as a quarter of the lines has. */
START_TEST(requests_are_shown)
{
    struct sample now, none = {0};
    make(&now, 10, 800, 16000, 8);
    json_t *all = json_array();
    for (int i = 0; i < 12; i++)
        json_array_append_new(
            all, json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i}", "sequence", 7 + i, "client",
                           i == 1 ? "" : "127.0.0.1 /v1/chat/completions", "state",
                           i < 2 ? "running" : "queued", "prompt_tokens", 4096, "done",
                           i == 0 ? 4096 : 512, "queue", i == 2 ? 1 : 0, "tokens", i == 0 ? 42 : 0,
                           "age_ms", 1500));
    now.requests = json_pack("{s:o}", "sequences", all);
    struct page p = {.run = "test", .now = &now, .interval = 1};
    ck_assert_int_eq(canvas_size(&p.canvas, 40, 80), 0);
    rates_make(&none, &now, SORT_start, &p.rates);
    const char *text = text_of(&p);
    ck_assert_msg(
        strstr(text,
               "7        127.0.0.1 /v1/chat/completions   answer       4096/4096     42 1.5 s\n"
               "8        -                                prompt        512/4096      0 1.5 s\n"
               "9        127.0.0.1 /v1/chat/completions   queued, 1     512/4096"),
        "%s", text);
    ck_assert_msg(strstr(text, "(5 more)\n7 ") && strstr(text, "PROCESS") && !p.canvas.clipped,
                  "%s", text);
    canvas_free(&p.canvas);
    sample_free(&now);
}
END_TEST

/* Sixteen loaders on 24 lines: all other processes, some devices and part of the map are shown. */
START_TEST(many_loaders_leave_space)
{
    struct sample now, none = {0};
    make(&now, 10, 800, 16000, 8);
    for (int i = 2; i <= 16; i++)
        json_array_append_new(json_object_get(now.doc, "processes"),
                              row("loader", i, 100 + i, json_pack("{s:i}", "bytes_read", i)));
    json_array_append_new(json_object_get(now.doc, "processes"),
                          row("predictor", 0, 99, json_object()));
    struct page p = {.run = "test", .now = &now, .interval = 1};
    ck_assert_int_eq(canvas_size(&p.canvas, 24, 80), 0);
    rates_make(&none, &now, SORT_start, &p.rates);
    const char *text = text_of(&p);
    ck_assert_msg(strstr(text, "\npredictor ") && strstr(text, "\ncompute ") &&
                      strstr(text, "more)") && strstr(text, "DEVICE") &&
                      strstr(text, "LAYER, RESIDENT, EXPERTS: ") && strstr(text, "h help"),
                  "%s", text);
    ck_assert_uint_le(count(text, "\n"), 24);
    canvas_free(&p.canvas);
    sample_free(&now);
}
END_TEST

/* The bar is the budget: half of it arena, half of that filled; KV a fifth, margin a tenth. */
START_TEST(the_bar_is_the_budget)
{
    struct sample now;
    make(&now, 10, 800, 16000, 2);
    struct page p = {.run = "test", .now = &now};
    ck_assert_int_eq(canvas_size(&p.canvas, 60, 80), 0);
    const char *text = text_of(&p);
    const char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;
    ck_assert_ptr_nonnull(to);
    double width = (double)(to - from - 1), n['z' + 1] = {0};
    for (const char *c = from + 1; c < to; c++)
        n[(unsigned char)*c]++;
    ck_assert_double_eq_tol(n['A'] / width, 0.25, 0.03);
    ck_assert_double_eq_tol(n['a'] / width, 0.25, 0.03);
    ck_assert_double_eq_tol(n['K'] / width, 0.2, 0.03);
    ck_assert_double_eq_tol(n['M'] / width, 0.1, 0.03);
    ck_assert_double_eq_tol(n['.'] / width, 0.2, 0.03);
    canvas_free(&p.canvas);
    sample_free(&now);
}
END_TEST

/* Empty JSON stats, and none at all. */
START_TEST(nothing_is_shown_as_nothing)
{
    struct sample none = {0}, empty = {.doc = json_object(), .when_ns = 5};
    struct page p = {.run = "test", .now = &none, .interval = 1, .problem = "it is gone"};
    ck_assert_int_eq(canvas_size(&p.canvas, 24, 80), 0);
    const char *text = text_of(&p);
    ck_assert(strstr(text, "it is gone") && strstr(text, "engine test"));
    p.now = &empty;
    rates_make(&none, &empty, SORT_start, &p.rates);
    text = text_of(&p);
    ck_assert(strstr(text, "hit 0.0%"));
    ck_assert_ptr_null(strstr(text, "nan"));
    canvas_free(&p.canvas);
    sample_free(&empty);
}
END_TEST

START_TEST(graphs_stand_on_their_newest)
{
    struct history h = {0};
    struct canvas c = {0};
    for (int i = 1; i <= 2 * HISTORY_MOMENTS; i++) {
        struct rates f = {.tokens_per_s = i % 2 ? 10 : 5, .hit = 0.5};
        history_add(&h, &f);
    }
    ck_assert_int_eq(canvas_size(&c, 15, 40), 0);
    history_draw(&h, &c, 0, 15, 40);
    ck_assert_int_eq(memcmp(c.text, "GENERATED  5.0 tokens/s, max 10.0", 33), 0);
    ck_assert_int_eq(c.text[4 * 40 + 39], '#');
    ck_assert_int_eq(c.text[1 * 40 + 39], ' '); /* 5 of max 10: half the height */
    ck_assert_int_eq(c.text[1 * 40 + 38], '#');
    history_draw(&h, &c, 14, 1, 40); /* too small: draws nothing */
    canvas_free(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("top");
    TCase *cases = tcase_create("top");
    tcase_add_test(cases, rates_are_of_the_time_between);
    tcase_add_test(cases, processes_are_sorted);
    tcase_add_test(cases, backends_are_named);
    tcase_add_test(cases, passes_have_rates);
    tcase_add_test(cases, requests_are_shown);
    tcase_add_test(cases, pages_fit_any_terminal);
    tcase_add_test(cases, many_loaders_leave_space);
    tcase_add_test(cases, no_value_is_clipped);
    tcase_add_test(cases, quarantine_is_shown);
    tcase_add_test(cases, the_gpu_has_a_line);
    tcase_add_test(cases, the_bar_is_the_budget);
    tcase_add_test(cases, nothing_is_shown_as_nothing);
    tcase_add_test(cases, graphs_stand_on_their_newest);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
