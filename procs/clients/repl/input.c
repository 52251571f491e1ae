/* SPDX-License-Identifier: Apache-2.0 */
/* Input lines, from a terminal with libedit or from a pipe. A prompt has at most
 * CONVERSATION_PROMPT_MAX bytes, the history HISTORY_LINES lines. */
#include "procs/clients/repl/input.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "lib/base/assert.h"
#include "procs/clients/common/session.h"
#include "procs/clients/conversation/conversation.h"
#include "procs/clients/repl/paste.h"

#define INPUT_MAGIC   0x52494e50u /* "RINP" */
#define HISTORY_LINES 1000
#define KEY_WAIT_MS   100 /* delay until a signal that arrives just before the wait is noticed */
#define LISTED_MAX    64  /* candidates shown at once */

static const char quotes[] = "\"\"\"";

struct input {
    uint32_t magic;
    EditLine *edit; /* NULL: a pipe */
    FILE *screen;   /* terminal on which the line is edited */
    History *history;
    HistEvent event;
    char history_path[PATH_MAX];
    input_candidates *candidates;
    bool inside; /* between quotes */
    bool marks;  /* the terminal supports bracketed paste */
    mbstate_t shift;
    char line[CONVERSATION_PROMPT_MAX + 1]; /* current line */
    char text[CONVERSATION_PROMPT_MAX + 1]; /* multi-line prompt */
};

static volatile sig_atomic_t resized;

static void on_resize(int number)
{
    (void)number;
    resized = 1;
}

static struct input *input_of(EditLine *edit)
{
    struct input *in = NULL;
    el_get(edit, EL_CLIENTDATA, &in);
    OBJ_CHECK(in, INPUT_MAGIC);
    return in;
}

static const char *edit_prompt(EditLine *edit)
{
    return input_of(edit)->inside ? "... " : ">>> ";
}

/* libedit's own reader drops the first interrupted read: Ctrl-C would have to be pressed twice. */
static int edit_key(EditLine *edit, wchar_t *key)
{
    struct input *in = input_of(edit);
    for (;;) {
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        if (resized) {
            resized = 0;
            el_resize(edit);
        }
        int ready = session_stop ? -1 : poll(&p, 1, KEY_WAIT_MS);
        if (session_stop) {
            errno = EINTR;
            return -1;
        }
        if (ready <= 0)
            continue;
        char byte;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return (int)n;
        size_t made = mbrtowc(key, &byte, 1, &in->shift);
        if (made == (size_t)-2)
            continue;
        if (made == (size_t)-1) { /* invalid byte: skipped */
            memset(&in->shift, 0, sizeof in->shift);
            continue;
        }
        return 1;
    }
}

/* Tab: inserts the common prefix of all candidates, or lists them when there is nothing to
 * insert. */
static unsigned char edit_complete(EditLine *edit, int key)
{
    (void)key;
    struct input *in = input_of(edit);
    const LineInfo *info = el_line(edit);
    size_t bytes = (size_t)(info->cursor - info->buffer), typed = 0, common = 0, count = 0;
    const char *first = NULL, *name;
    for (; count < LISTED_MAX && (name = in->candidates(info->buffer, bytes, count, &typed));
         count++) {
        if (count == 0) {
            first = name;
            common = strlen(name);
        }
        size_t same = 0;
        while (same < common && name[same] == first[same])
            same++;
        common = same;
    }
    if (count == 0)
        return CC_ERROR;
    if (count > 1 && common == typed) {
        fputc('\n', in->screen);
        for (size_t i = 0; i < count; i++)
            fprintf(in->screen, "%s%s", in->candidates(info->buffer, bytes, i, &typed),
                    i + 1 < count ? "  " : "\n");
        return CC_REDISPLAY;
    }
    char rest[128];
    snprintf(rest, sizeof rest, "%.*s%s", (int)(common - typed), first + typed,
             count == 1 ? " " : "");
    return el_insertstr(edit, rest) == 0 ? CC_REFRESH : CC_ERROR;
}

/* Reads a paste to its end. Beyond the maximum length of a prompt it is read but not inserted, and
 * the line is rejected. */
static unsigned char edit_paste(EditLine *edit, int key)
{
    struct paste paste = {0};
    wchar_t c, out[PASTE_OUT];
    size_t inserted = 0;
    bool ended = false;
    (void)key;
    while (!ended) {
        if (el_wgetc(edit, &c) != 1)
            return CC_ERROR; /* a signal or the end of input: the next key read reports it */
        ended = paste_take(&paste, c, out);
        if (inserted <= CONVERSATION_PROMPT_MAX && out[0] && el_winsertstr(edit, out) == 0)
            inserted += wcslen(out);
    }
    if (paste.lines > 0 && inserted <= CONVERSATION_PROMPT_MAX)
        el_deletestr(edit, (int)paste.lines);
    return CC_REFRESH;
}

/* $XDG_STATE_HOME/sluice/history, else ~/.local/state/sluice/history; "" without a home
 * directory. */
static void find_history(struct input *in)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char dir[PATH_MAX - 16];
    int n = -1;
    if (state && state[0] == '/')
        n = snprintf(dir, sizeof dir, "%s/sluice", state);
    else if (home && home[0] == '/')
        n = snprintf(dir, sizeof dir, "%s/.local/state/sluice", home);
    if (n < 0 || (size_t)n >= sizeof dir)
        return;
    for (char *c = dir + 1; *c; c++) { /* create every parent; existing ones are fine */
        if (*c != '/')
            continue;
        *c = 0;
        mkdir(dir, 0700);
        *c = '/';
    }
    if (mkdir(dir, 0700) == 0 || errno == EEXIST)
        snprintf(in->history_path, sizeof in->history_path, "%s/history", dir);
}

static int edit_open(struct input *in, struct error *error)
{
    struct sigaction action = {.sa_handler = on_resize};
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, NULL);
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8"); /* prompts are UTF-8 in any locale */
    in->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    in->edit = el_init("sluice", stdin, in->screen, stderr);
    in->history = history_init();
    if (!in->edit || !in->history)
        return error_set(error, ERR_FAILED, "cannot edit lines on this terminal");
    history(in->history, &in->event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &in->event, H_SETUNIQUE, 1);
    find_history(in);
    if (in->history_path[0])
        history(in->history, &in->event, H_LOAD, in->history_path);
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT, edit_prompt);
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_HIST, history, in->history);
    el_set(in->edit, EL_GETCFN, edit_key);
    /* Wide: the narrow form copies both strings and never frees them. */
    el_wset(in->edit, EL_ADDFN, L"sluice-complete", L"Completes a command", edit_complete);
    el_set(in->edit, EL_BIND, "^I", "sluice-complete", NULL);
    el_wset(in->edit, EL_ADDFN, L"sluice-paste", L"Inserts a paste", edit_paste);
    el_set(in->edit, EL_BIND, PASTE_START, "sluice-paste", NULL);
    const char *term = getenv("TERM");
    in->marks = term && *term && strcmp(term, "dumb") != 0;
    el_source(in->edit, NULL);
    return 0;
}

struct input *input_open(bool tty, input_candidates *candidates, struct error *error)
{
    struct input *in = calloc(1, sizeof *in);
    if (!in) {
        error_set(error, ERR_NO_MEMORY, "out of memory (input)");
        return NULL;
    }
    in->magic = INPUT_MAGIC;
    in->candidates = candidates;
    if (tty && edit_open(in, error) != 0) {
        input_close(in);
        return NULL;
    }
    return in;
}

void input_close(struct input *in)
{
    if (!in)
        return;
    OBJ_CHECK(in, INPUT_MAGIC);
    if (in->history)
        history_end(in->history);
    if (in->edit)
        el_end(in->edit);
    in->magic = 0;
    free(in);
}

static int too_long(struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "prompt too long: at most %u bytes",
                     CONVERSATION_PROMPT_MAX);
}

static void mark_pastes(struct input *in, const char *how)
{
    if (!in->marks)
        return;
    fputs(how, in->screen);
    fflush(in->screen);
}

/* Adds a line, or a prompt of several lines as one, to the history. */
static void remember(struct input *in, const char *text)
{
    history(in->history, &in->event, H_ENTER, text);
    if (in->history_path[0]) /* save now: closing the terminal ends this process */
        history(in->history, &in->event, H_SAVE, in->history_path);
}

static enum input_result edited_line(struct input *in, struct error *error)
{
    int count = 0;
    mark_pastes(in, PASTE_ON);
    const char *got = el_gets(in->edit, &count);
    mark_pastes(in, PASTE_OFF); /* text typed during a response is echoed unchanged */
    if (!got && session_stop) {
        el_reset(in->edit);
        fputc('\n', in->screen);
        fflush(in->screen);
        return INPUT_INTERRUPTED;
    }
    if (!got || count <= 0)
        return INPUT_END;
    size_t bytes = (size_t)count;
    if (bytes > 1 && !in->inside && strncmp(got, quotes, strlen(quotes)) != 0)
        remember(in, got);
    if (got[bytes - 1] == '\n')
        bytes--;
    if (bytes > CONVERSATION_PROMPT_MAX) {
        too_long(error);
        return INPUT_BAD;
    }
    memcpy(in->line, got, bytes);
    in->line[bytes] = 0;
    return INPUT_TEXT;
}

/* A line that is too long or contains NUL is read to its end and rejected. */
static enum input_result piped_line(struct input *in, struct error *error)
{
    size_t bytes = 0;
    bool fits = true, text = true;
    int c;
    while ((c = getchar_unlocked()) != EOF && c != '\n') {
        text &= c != 0;
        fits &= bytes < CONVERSATION_PROMPT_MAX;
        if (fits)
            in->line[bytes++] = (char)c;
    }
    if (session_stop)
        return INPUT_INTERRUPTED;
    if (c == EOF && bytes == 0)
        return INPUT_END;
    if (bytes > 0 && in->line[bytes - 1] == '\r')
        bytes--;
    in->line[bytes] = 0;
    if (!fits)
        too_long(error);
    else if (!text)
        error_set(error, ERR_BAD_INPUT, "a prompt must not contain NUL bytes");
    return fits && text ? INPUT_TEXT : INPUT_BAD;
}

static enum input_result one_line(struct input *in, struct error *error)
{
    return in->edit ? edited_line(in, error) : piped_line(in, error);
}

/* Appends a line to a prompt of `used` bytes; false when it does not fit. */
static bool join(struct input *in, size_t *used, const char *line)
{
    size_t more = strlen(line), blank = *used > 0;
    if (*used + blank + more > CONVERSATION_PROMPT_MAX)
        return false;
    if (blank)
        in->text[(*used)++] = '\n';
    memcpy(in->text + *used, line, more + 1);
    *used += more;
    return true;
}

/* Reads a multi-line prompt between """ marks; the rest of the first line is in->line + 3. Input up
 * to the closing mark is consumed even when it is too long. */
static enum input_result several_lines(struct input *in, struct error *error)
{
    size_t used = 0;
    bool fits = true, done = false;
    char *line = in->line + strlen(quotes);
    enum input_result result = INPUT_TEXT;
    in->inside = true;
    in->text[0] = 0;
    while (!done) {
        char *end = strstr(line, quotes);
        if (end)
            *end = 0;
        fits = fits && join(in, &used, line);
        done = end != NULL;
        line = in->line;
        if (!done && (result = one_line(in, error)) != INPUT_TEXT) {
            done = result != INPUT_BAD;
            fits &= !(result == INPUT_BAD);
            line[0] = 0;
        }
    }
    in->inside = false;
    if (result == INPUT_END) { /* end of input also ends the prompt */
        result = INPUT_TEXT;
    } else if (!fits && result != INPUT_INTERRUPTED) {
        too_long(error);
        result = INPUT_BAD;
    }
    return result;
}

enum input_result input_next(struct input *in, const char **text, struct error *error)
{
    OBJ_CHECK(in, INPUT_MAGIC);
    enum input_result result = one_line(in, error);
    *text = in->line;
    if (result == INPUT_TEXT && strncmp(in->line, quotes, strlen(quotes)) == 0) {
        result = several_lines(in, error);
        if (result == INPUT_TEXT && in->edit && in->text[0])
            remember(in, in->text);
        if (result == INPUT_TEXT)
            result = INPUT_QUOTED;
        *text = in->text;
    }
    return result;
}
