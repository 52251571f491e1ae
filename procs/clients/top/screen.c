/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the page with ncurses and handles its keys. */
#include "procs/clients/top/screen.h"

#include <curses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "procs/clients/common/session.h"
#include "procs/clients/top/page/page.h"

#define KEY_WAIT_MS   100 /* new samples are fetched this often */
#define INTERVAL_MIN  0.25
#define INTERVAL_MAX  60.0
#define INTERVAL_STEP 2.0
#define TITLE_ROWS    3

struct screen {
    struct page page;
    struct poller *poller;
    struct sample before, now;
    struct history history;
    uint64_t seen_ns; /* time of the last sample; 0: none yet */
    uint64_t opened_ns;
    struct error error;
    bool help, leave, changed, coloured;
};

/* ---- keys ---- */

static void set_interval(struct screen *s, double interval)
{
    s->page.interval = interval < INTERVAL_MIN   ? INTERVAL_MIN
                       : interval > INTERVAL_MAX ? INTERVAL_MAX
                                                 : interval;
    poller_set_interval(s->poller, (uint64_t)(s->page.interval * (double)NS_PER_S), true);
}

static void key_quit(struct screen *s)
{
    s->leave = true;
}

static void key_help(struct screen *s)
{
    s->help = !s->help;
}

static void key_pause(struct screen *s)
{
    s->page.paused = !s->page.paused;
}

static void key_sort(struct screen *s)
{
    s->page.sort = (enum sort)((s->page.sort + 1) % SORT__COUNT);
}

static void key_map(struct screen *s)
{
    s->page.view = s->page.view == MAP_VIEW_PRECISION ? MAP_VIEW_HEAT : MAP_VIEW_PRECISION;
}

static void key_faster(struct screen *s)
{
    set_interval(s, s->page.interval / INTERVAL_STEP);
}

static void key_slower(struct screen *s)
{
    set_interval(s, s->page.interval * INTERVAL_STEP);
}

static void key_up(struct screen *s)
{
    s->page.map_top -= s->page.map_top > 0;
}

static void key_down(struct screen *s)
{
    s->page.map_top += s->page.map_top < s->page.map_hidden;
}

static void key_redraw(struct screen *s)
{
    (void)s;
    clearok(curscr, TRUE);
}

static const struct key {
    const char *name, *help;
    int key;
    void (*press)(struct screen *s);
} keys[] = {
#define KEY(name, key, help) {#name, help, key, key_##name},
#include "procs/clients/top/keys.tbl.h"
};

static void press(struct screen *s, int key)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (keys[i].key == key) {
            keys[i].press(s);
            s->changed = true;
        }
    if (key == '?')
        key_help(s);
}

/* ---- drawing ---- */

static void key_label(int key, char out[16])
{
    if (key == KEY_UP || key == KEY_DOWN)
        snprintf(out, 16, "%s", key == KEY_UP ? "up" : "down");
    else if (key < ' ')
        snprintf(out, 16, "Ctrl-%c", key + '@');
    else
        snprintf(out, 16, "%c", key);
}

static void draw_help(struct canvas *c)
{
    unsigned row = TITLE_ROWS;
    char name[16];
    canvas_clear(c);
    canvas_put(c, 0, 0, PAINT_STRONG, "sluice top: keys");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        key_label(keys[i].key, name);
        canvas_put(c, row++, 2, PAINT_PLAIN, "%-8s %s", name, keys[i].help);
    }
    static const char *const notes[] = {
        "Rates are averages between two samples.",
        "limit    what is slowest now; token gap: time between two tokens of a sequence",
        "MEMORY   private memory of a process; RESERVED its reservation in the ledger",
        "MSG/S    messages received; RST restarts; DOING what it waits for",
        "LATENCY  mean per read; QUEUED wait of a demand before its read starts (p99)",
        "LAYER    a line per layer: resident experts, then a character per expert",
        "Letters of the budget bar:",
    };
    for (size_t i = 0; i < ARRAY_LEN(notes); i++)
        canvas_put(c, ++row, 0, PAINT_PLAIN, "%s", notes[i]);
    page_draw_part_names(c, row + 1, 2);
    canvas_put(c, c->rows - 1, 0, PAINT_FAINT, "h back");
}

static attr_t attribute(enum paint paint, bool coloured)
{
    static const attr_t plain[] = {
        [PAINT_PLAIN] = A_NORMAL, [PAINT_HEADING] = A_REVERSE, [PAINT_STRONG] = A_BOLD,
        [PAINT_FAINT] = A_DIM,    [PAINT_GOOD] = A_NORMAL,     [PAINT_WARN] = A_BOLD,
        [PAINT_BAD] = A_BOLD};
    attr_t a = plain[paint];
    if (coloured && paint >= PAINT_GOOD)
        a |= COLOR_PAIR((int)paint);
    return a;
}

/* Consecutive cells of one paint are written together. The last cell of the screen is skipped:
 * writing it scrolls some terminals. */
static void show(const struct canvas *c, bool coloured)
{
    erase();
    for (unsigned row = 0; row < c->rows; row++) {
        const char *text = c->text + (size_t)row * c->columns;
        const uint8_t *paint = c->paint + (size_t)row * c->columns;
        unsigned columns = row + 1 == c->rows ? c->columns - 1 : c->columns;
        for (unsigned from = 0, to; from < columns; from = to) {
            for (to = from; to < columns && paint[to] == paint[from]; to++)
                continue;
            attrset(attribute((enum paint)paint[from], coloured));
            mvaddnstr((int)row, (int)from, text + from, (int)(to - from));
        }
    }
    refresh();
}

static void problem_of(struct screen *s)
{
    uint64_t now = clock_now_ns(), since = s->seen_ns ? s->seen_ns : s->opened_ns;
    s->page.age = (double)(now - since) / (double)NS_PER_S;
    s->page.problem = s->error.code != ERR_NONE ? s->error.text
                      : s->page.age > 2 * s->page.interval + 2 && !s->page.paused
                          ? "the supervisor does not reply"
                          : NULL;
    if (s->error.code == ERR_GONE)
        s->page.problem = s->seen_ns ? "the engine has exited; waiting for an engine of this name"
                                     : "waiting for an engine of this name";
}

static void draw(struct screen *s)
{
    if ((unsigned)LINES != s->page.canvas.rows || (unsigned)COLS != s->page.canvas.columns)
        if (canvas_size(&s->page.canvas, (unsigned)LINES, (unsigned)COLS) != 0)
            return;
    problem_of(s);
    if (s->help) {
        draw_help(&s->page.canvas);
    } else {
        if (s->now.doc)
            rates_make(&s->before, &s->now, s->page.sort, &s->page.rates);
        page_draw(&s->page);
    }
    show(&s->page.canvas, s->coloured);
}

/* ---- the loop ---- */

/* False for another engine of the same name or a restart: samples are not compared across them. */
static bool same_engine(const struct sample *a, const struct sample *b)
{
    return a->doc &&
           lookup_u64(lookup_row(a->doc, 0), "pid") == lookup_u64(lookup_row(b->doc, 0), "pid");
}

static void take(struct screen *s)
{
    struct sample sample;
    struct error error;
    bool fresh = poller_take(s->poller, &sample, &error);
    s->changed |= fresh || error.code != s->error.code;
    s->error = error;
    if (!fresh)
        return;
    s->seen_ns = clock_now_ns();
    if (s->page.paused) {
        sample_free(&sample);
        return;
    }
    sample_free(&s->before);
    s->before = s->now;
    s->now = sample;
    if (!same_engine(&s->before, &s->now)) {
        sample_free(&s->before);
        s->history.count = 0;
        return;
    }
    rates_make(&s->before, &s->now, s->page.sort, &s->page.rates);
    history_add(&s->history, &s->page.rates);
}

/* NO_COLOR (no-color.org): any value but "" disables colours. */
static bool colours(void)
{
    const char *unwanted = getenv("NO_COLOR");
    if (!has_colors() || (unwanted && *unwanted))
        return false;
    start_color();
    use_default_colors();
    init_pair(PAINT_GOOD, COLOR_GREEN, -1);
    init_pair(PAINT_WARN, COLOR_YELLOW, -1);
    init_pair(PAINT_BAD, COLOR_RED, -1);
    return true;
}

static void loop(struct screen *s)
{
    uint64_t drawn_ns = 0;
    while (!s->leave && !session_stop) {
        int key = getch(); /* waits KEY_WAIT_MS; a resize arrives as a key */
        if (key == KEY_RESIZE)
            clearok(curscr, TRUE);
        if (key != ERR) {
            press(s, key);
            s->changed = true;
        }
        take(s);
        /* The displayed age grows without new samples. */
        if (s->changed || (s->error.code != ERR_NONE && clock_now_ns() - drawn_ns > NS_PER_S / 2)) {
            draw(s);
            drawn_ns = clock_now_ns();
            s->changed = false;
        }
    }
}

int screen_run(const char *run, double interval, struct error *error)
{
    struct screen s = {.page = {.run = run, .interval = interval, .now = &s.now},
                       .opened_ns = clock_now_ns(),
                       .changed = true};
    s.page.history = &s.history;
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (!terminal) {
        const char *name = getenv("TERM");
        return error_set(error, ERR_BAD_INPUT,
                         "unknown terminal type '%.40s'; use --once to print without a terminal",
                         name ? name : "");
    }
    s.poller = poller_open(run, (uint64_t)(interval * (double)NS_PER_S), error);
    int status = s.poller ? 0 : -1;
    if (status == 0) {
        cbreak();
        noecho();
        keypad(stdscr, TRUE);
        curs_set(0);
        timeout(KEY_WAIT_MS);
        s.coloured = colours();
        loop(&s);
    }
    endwin();
    delscreen(terminal);
    poller_close(s.poller);
    sample_free(&s.before);
    sample_free(&s.now);
    canvas_free(&s.page.canvas);
    return status;
}
