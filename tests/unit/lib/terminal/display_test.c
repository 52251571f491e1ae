/* SPDX-License-Identifier: Apache-2.0 */
/* Responses as a terminal shows them: read by a small terminal of the test's own. */
#include <check.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "lib/terminal/display.h"

#define CELLS   4096
#define COLUMNS 24
#define OPEN    "<think>"
#define CLOSE   "</think>"

/* What is on the screen: characters with their style, and line ends; the cursor is at the end of a
 * line. */
struct screen {
    wchar_t cell[CELLS];
    bool dim[CELLS];
    size_t n;
};

static unsigned width(const struct screen *s, size_t from)
{
    unsigned columns = 0;
    for (; from < s->n && s->cell[from] != L'\n'; from++)
        columns += (unsigned)wcwidth(s->cell[from]);
    return columns;
}

static void show(struct screen *s, const char *text)
{
    bool dim = false;
    *s = (struct screen){.n = 0};
    for (unsigned back; *text;) {
        wchar_t c;
        int used = 0;
        if (sscanf(text, "\033[%uD\033[K%n", &back, &used) == 1 && used > 0) {
            while (back > 0) /* moves left over whole characters, and erases them */
                back -= (unsigned)wcwidth(s->cell[--s->n]);
        } else if (strncmp(text, DISPLAY_DIM, 4) == 0 || strncmp(text, DISPLAY_PLAIN, 4) == 0) {
            dim = text[2] == '2';
            used = 4;
        } else {
            ck_assert_int_ne(*text, '\033');
            used = mbtowc(&c, text, MB_CUR_MAX);
            ck_assert_int_gt(used, 0);
            s->cell[s->n] = c;
            s->dim[s->n++] = dim;
        }
        text += used;
    }
    for (size_t i = 0; i < s->n; i++)
        if (i == 0 || s->cell[i - 1] == L'\n')
            ck_assert_uint_lt(width(s, i), COLUMNS);
    ck_assert(!dim); /* the prompt after it is not dimmed */
}

static struct screen the_screen;

/* The response in pieces of `step` bytes. */
static const wchar_t *shown(const char *text, size_t step, bool dim, bool thoughts, bool inside)
{
    struct display d;
    char *out = NULL;
    size_t bytes, n = strlen(text);
    FILE *f = open_memstream(&out, &bytes);
    display_start(&d, COLUMNS, dim, thoughts ? OPEN : NULL, thoughts ? CLOSE : NULL, inside);
    for (size_t at = 0; at < n; at += step)
        display_put(&d, text + at, n - at < step ? n - at : step, f);
    display_end(&d, f);
    fclose(f);
    show(&the_screen, out);
    free(out);
    return the_screen.cell;
}

START_TEST(lines_break_between_words)
{
    static const struct {
        const char *text;
        const wchar_t *shown;
    } t[] = {
        {"It was a dark and stormy night, and nothing stirred.",
         L"It was a dark and \nstormy night, and \nnothing stirred."},
        {"one\n\ntwo", L"one\n\ntwo"},
        {"exactly 23 columns wide and", L"exactly 23 columns wide\nand"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b", L"aaaaaaaaaaaaaaaaaaaaaaa\naaaaaaaa b"},
        {"x aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", L"x \naaaaaaaaaaaaaaaaaaaaaaa\naaaaaaaa"},
        {"Übergrößenträger dürften überall", L"Übergrößenträger \ndürften überall"},
        {"它是一个黑暗而风雨交加的夜晚", L"它是一个黑暗而风雨交加\n的夜晚"},
        {"a\033[2Jb\r\x7f", L"a^[[2Jb^M^?"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (size_t step = 1; step < 40; step += 3) {
            const wchar_t *got = shown(t[i].text, step, true, false, false);
            ck_assert_msg(wcscmp(got, t[i].shown) == 0, "row %zu in steps of %zu: '%ls'", i, step,
                          got);
        }
}
END_TEST

/* The thoughts with their marks are dimmed, and nothing else. */
START_TEST(thoughts_are_dimmed)
{
    static const struct {
        const char *text;
        bool inside;
        const char *dim; /* a letter per character that is shown */
    } t[] = {
        {"<think>a</think>b", false, "DDDDDDDDDDDDDDDD."},
        {"a</think>b <thin", true, "DDDDDDDDD......."},
        {"a <b> <<think>c", false, ".......DDDDDDDD"},
        {"plain", false, "....."},
        /* the line is full where the thoughts end */
        {"<think>a bcdefg</think>hijklm", false, "DDDDDDDDDDDDDDDDDDDDDDD......."},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (size_t step = 1; step < 20; step++)
            for (int dim = 0; dim < 2; dim++) {
                shown(t[i].text, step, dim, true, t[i].inside);
                ck_assert_uint_eq(the_screen.n, strlen(t[i].dim));
                for (size_t k = 0; k < the_screen.n; k++)
                    ck_assert_msg(the_screen.dim[k] == (dim && t[i].dim[k] == 'D'),
                                  "row %zu in steps of %zu: character %zu", i, step, k);
            }
}
END_TEST

START_TEST(without_a_terminal_text_is_unchanged)
{
    struct display d;
    char *out = NULL;
    size_t bytes;
    FILE *f = open_memstream(&out, &bytes);
    static const char text[] = "<think>it</think> was\033 a dark and stormy night, and nothing";
    display_start(&d, 0, true, OPEN, CLOSE, true);
    display_put(&d, text, sizeof text - 1, f);
    display_end(&d, f);
    fclose(f);
    ck_assert_str_eq(out, text);
    free(out);
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    setenv("TERM", "vt100", 1);
    ck_assert_uint_eq(display_columns(ends[1]), 0);
    ck_assert(!display_dims(ends[1]));
    close(ends[0]);
    close(ends[1]);
}
END_TEST

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    Suite *suite = suite_create("display");
    TCase *tcase = tcase_create("display");
    tcase_add_test(tcase, lines_break_between_words);
    tcase_add_test(tcase, thoughts_are_dimmed);
    tcase_add_test(tcase, without_a_terminal_text_is_unchanged);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
