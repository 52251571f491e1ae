/* SPDX-License-Identifier: Apache-2.0 */
/* sluice top: live statistics of an engine, on a terminal or as text.
 *
 * Reads the supervisor's stats snapshot and map; CPU time of the processes comes from /proc. Maps
 * no segment and has no effect on the engine.
 *
 * Trust: replies are checked by the stubs in ipc/ and by map_read. */
#include <getopt.h> /* optind */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_table.h"
#include "ipc/engine/engine_client.h"
#include "lib/base/clock.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/session.h"
#include "procs/clients/top/page/page.h"
#include "procs/clients/top/screen.h"

#define BATCH_COLUMNS 80
#define BATCH_ROWS    400
#define WAIT_TICK_MS  50

struct top {
    const char *run;
    double interval;
    int64_t pages;   /* 0: interactive */
    int64_t columns; /* per page */
    bool heat;
    const char *sort;
};

static int take_interval(void *program, const char *value, struct error *error)
{
    struct top *t = program;
    char *end = NULL;
    t->interval = strtod(value, &end);
    if (end == value || *end || !(t->interval >= 0.1 && t->interval <= 3600))
        return error_set(error, ERR_BAD_INPUT,
                         "--interval: '%.80s' is not a number of seconds from 0.1 to 3600", value);
    return 0;
}

static int take_once(void *program, const char *value, struct error *error)
{
    struct top *t = program;
    (void)value, (void)error;
    t->pages = 1;
    return 0;
}

static const struct option_row rows[] = {
    {0, "name", "NAME", OPTION_TEXT(struct top, run),
     "the engine to show (default \"" RUN_NAME_DEFAULT "\")"},
    {0, "interval", "SECONDS", OPTION_CALL(take_interval),
     "time between two samples, over which rates are averaged (default 1)"},
    {0, "once", NULL, OPTION_CALL(take_once),
     "print one page as text (the default without a terminal)"},
    {0, "pages", "N", OPTION_NUMBER(struct top, pages, 1, 1000000), "print N pages as text"},
    {0, "columns", "N", OPTION_NUMBER(struct top, columns, PAGE_COLUMNS_MIN, 1000),
     "width of a printed page (default " OPTION_DIGITS(BATCH_COLUMNS) ")"},
    {0, "sort", "NAME", OPTION_TEXT(struct top, sort), "sort order of the processes:"
#define SORT(name, key) " " #name
#include "procs/clients/top/sorts.tbl.h"
    },
    {0, "heat", NULL, OPTION_FLAG(struct top, heat),
     "printed map shows the heat of experts, not their precision"},
};

static const struct option_table options = {
    .command = "top",
    .before = "usage: sluice top [--name NAME] [--interval SECONDS] [--once | --pages N]\n"
              "\n"
              "Shows a running engine: its speed and what limits it, the requests, where\n"
              "experts were found, memory, processes, devices, and a map of the experts.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 23,
    .after = "\nOn the terminal, h explains the letters and headings, and lists the keys.\n",
};

static int parse(struct top *t, int argc, char **argv, struct error *error)
{
    if (options_read(&options, t, argc, argv, error) != 0)
        return -1;
    if (optind < argc)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option", argv[optind]);
    return 0;
}

static int find_sort(const char *name, enum sort *sort, struct error *error)
{
    *sort = SORT_start;
    for (int i = 0; name && i < SORT__COUNT; i++)
        if (strcmp(sort_name((enum sort)i), name) == 0) {
            *sort = (enum sort)i;
            return 0;
        }
    return name ? error_set(error, ERR_BAD_INPUT,
                            "--sort: unknown order '%.40s' (see sluice top --help)", name)
                : 0;
}

static bool wait_for(double seconds)
{
    uint64_t until = clock_now_ns() + (uint64_t)(seconds * (double)NS_PER_S);
    while (!session_stop && clock_now_ns() < until)
        poll(NULL, 0, WAIT_TICK_MS);
    return !session_stop;
}

static void print_page(struct page *page, const struct sample *before, int64_t number)
{
    rates_make(before, page->now, page->sort, &page->rates);
    page_draw(page);
    if (number > 0)
        putchar('\n');
    canvas_print(&page->canvas, stdout);
    fflush(stdout);
}

/* A page needs two samples: rates are averages between them. */
static int print_pages(const struct top *t, const struct calls *calls, struct page *page,
                       struct error *error)
{
    struct sample before, now = {0};
    int status = sample_get(calls, &before, error);
    if (status != 0)
        return -1;
    for (int64_t i = 0; status == 0 && i < t->pages && !ferror(stdout); i++) {
        if (!wait_for(t->interval)) {
            status = error_set(error, ERR_CANCELLED, "ended by a signal");
            break;
        }
        status = sample_get(calls, &now, error);
        if (status != 0)
            break;
        page->now = &now;
        print_page(page, &before, i);
        sample_free(&before);
        before = now;
        now = (struct sample){0};
    }
    sample_free(&before);
    return status;
}

static int print_all(const struct top *t, struct error *error)
{
    struct page page = {.run = t->run, .view = t->heat ? MAP_VIEW_HEAT : MAP_VIEW_PRECISION};
    if (find_sort(t->sort, &page.sort, error) != 0)
        return -1;
    if (canvas_size(&page.canvas, BATCH_ROWS, (unsigned)t->columns) != 0)
        return error_set(error, ERR_NO_MEMORY, "out of memory (page)");
    struct calls calls = {0};
    int status = calls_open(&calls, t->run, &session_stop, error);
    if (status == 0)
        status = print_pages(t, &calls, &page, error);
    calls_close(&calls);
    canvas_free(&page.canvas);
    return status;
}

int main(int argc, char **argv)
{
    struct top t = {.run = RUN_NAME_DEFAULT, .interval = 1, .columns = BATCH_COLUMNS};
    struct error error;
    session_signals();
    int status = parse(&t, argc, argv, &error);
    if (status == 0 && t.pages == 0 && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)))
        t.pages = 1;
    if (status == 0)
        status = t.pages > 0 ? print_all(&t, &error) : screen_run(t.run, t.interval, &error);
    return status == 0 ? 0 : report("top", &error);
}
