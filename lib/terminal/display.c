/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a response to a terminal as it arrives: breaks lines, dims thoughts, and moves a word that
 * became too long. */
#include "lib/terminal/display.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define COLUMNS_MIN 20
#define TAB         8
#define PIECE_BYTES 256

unsigned display_columns(int fd)
{
    struct winsize size;
    const char *term = getenv("TERM");
    if (!term || !*term || strcmp(term, "dumb") == 0 || !isatty(fd) ||
        ioctl(fd, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col >= COLUMNS_MIN ? size.ws_col : 0;
}

bool display_dims(int fd)
{
    const char *unwanted = getenv("NO_COLOR");
    return !(unwanted && *unwanted) && display_columns(fd) > 0;
}

void display_start(struct display *d, unsigned columns, bool dim, const char *open,
                   const char *close, bool inside)
{
    *d = (struct display){.columns = columns, .dim = dim && columns > 0};
    if (!open || !close || strlen(open) > sizeof d->held || strlen(close) > sizeof d->held)
        return;
    d->open = open;
    d->close = close;
    d->inside = inside;
}

static void forget_word(struct display *d)
{
    d->word_bytes = 0;
    d->word_columns = 0;
}

static void new_line(struct display *d)
{
    forget_word(d);
    d->column = 0;
}

/* A word has one style, because a word that is moved is written in the one of then. */
static void style(struct display *d, bool dim, FILE *out)
{
    if (dim == d->dimmed)
        return;
    fputs(dim ? DISPLAY_DIM : DISPLAY_PLAIN, out);
    d->dimmed = dim;
    forget_word(d);
}

void display_at_start(struct display *d, FILE *out)
{
    style(d, false, out);
    new_line(d);
}

/* ---- lines ---- */

static wchar_t code_of(const char *letter, size_t bytes)
{
    static const unsigned char first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    wchar_t code = (unsigned char)letter[0] & first[bytes];
    for (size_t i = 1; i < bytes; i++)
        code = (code << 6) | ((unsigned char)letter[i] & 0x3f);
    return code;
}

/* Continues on the next line, with the word that does not fit if there is something before
 * it. */
static void break_line(struct display *d, FILE *out)
{
    bool moves = d->word_columns > 0 && d->column > d->word_columns;
    if (moves)
        fprintf(out, "\033[%uD\033[K", d->word_columns);
    fputc('\n', out);
    d->column = 0;
    if (moves) {
        fwrite(d->word, 1, d->word_bytes, out);
        d->column = d->word_columns;
    } else {
        forget_word(d);
    }
}

static void put_letter(struct display *d, const char *letter, size_t bytes, FILE *out)
{
    int width = wcwidth(code_of(letter, bytes));
    unsigned columns = width < 0 ? 1 : (unsigned)width, limit = d->columns - 1;
    if (*letter == '\n') {
        fputc('\n', out);
        new_line(d);
        return;
    }
    if (*letter == '\t')
        columns = TAB - d->column % TAB;
    bool blank = *letter == ' ' || *letter == '\t';
    if (d->column + columns > limit) {
        if (blank) { /* the line's end takes its place */
            fputc('\n', out);
            new_line(d);
            return;
        }
        break_line(d, out);
    }
    fwrite(letter, 1, bytes, out);
    d->column += columns;
    if (blank || columns > 1 || d->word_bytes + bytes > sizeof d->word) { /* a break may follow */
        forget_word(d);
        return;
    }
    memcpy(d->word + d->word_bytes, letter, bytes);
    d->word_bytes += bytes;
    d->word_columns += columns;
}

static size_t letter_bytes(unsigned char first)
{
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

static void put_lines(struct display *d, const char *text, size_t bytes, FILE *out)
{
    char shown[TERMINAL_BYTES(PIECE_BYTES)];
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        size_t n = terminal_filter(&d->filter, text + at, piece, shown);
        for (size_t i = 0; i < n; i++) {
            d->letter[d->letter_bytes++] = shown[i];
            if (d->letter_bytes < letter_bytes((unsigned char)d->letter[0]))
                continue;
            put_letter(d, d->letter, d->letter_bytes, out);
            d->letter_bytes = 0;
        }
    }
}

/* ---- thoughts ---- */

static void put_styled(struct display *d, const char *text, size_t bytes, FILE *out)
{
    if (bytes == 0)
        return;
    style(d, d->inside && d->dim, out);
    put_lines(d, text, bytes, out);
}

/* Takes one byte: the mark that is looked for is held until it is whole or differs. A mark belongs
 * to the thoughts. */
static void put_byte(struct display *d, char byte, FILE *out)
{
    const char *mark = d->inside ? d->close : d->open;
    size_t n = strlen(mark);
    d->held[d->held_bytes++] = byte;
    size_t from = 0;
    while (from < d->held_bytes && memcmp(d->held + from, mark, d->held_bytes - from) != 0)
        from++;
    put_styled(d, d->held, from, out);
    memmove(d->held, d->held + from, d->held_bytes - from);
    d->held_bytes -= from;
    if (d->held_bytes < n)
        return;
    bool inside = d->inside;
    d->inside = true;
    put_styled(d, d->held, n, out);
    d->inside = !inside;
    d->held_bytes = 0;
}

void display_put(struct display *d, const char *text, size_t bytes, FILE *out)
{
    if (d->columns == 0) {
        fwrite(text, 1, bytes, out);
        return;
    }
    if (!d->open) {
        put_lines(d, text, bytes, out);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        put_byte(d, text[i], out);
}

void display_end(struct display *d, FILE *out)
{
    put_styled(d, d->held, d->held_bytes, out);
    d->held_bytes = 0;
    style(d, false, out);
}
