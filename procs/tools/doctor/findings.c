/* SPDX-License-Identifier: Apache-2.0 */
/* Collects what doctor found, once for text and JSON, and prints it. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/tools/doctor/doctor.h"

void findings_open(struct findings *f)
{
    *f = (struct findings){.root = json_pack("{s:[]}", "lines")};
}

void findings_close(struct findings *f)
{
    json_decref(f->root);
    f->root = NULL;
}

void finding_quiet(struct findings *f, const char *section, const char *name, json_t *value)
{
    json_t *object = json_object_get(f->root, section);
    if (!object) {
        object = json_object();
        json_object_set_new(f->root, section, object);
    }
    json_object_set_new(object, name, value);
}

static json_t *as_text(const json_t *value, const char *text)
{
    char number[64];
    if (text)
        return json_string(text);
    if (json_is_string(value))
        return json_string(json_string_value(value));
    if (json_is_boolean(value))
        return json_string(json_is_true(value) ? "yes" : "no");
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else
        snprintf(number, sizeof number, "%.1f", json_number_value(value));
    return json_string(number);
}

const char *two_digits(double value, char out[DIGITS_BYTES])
{
    snprintf(out, DIGITS_BYTES, "%.1e", value);
    double rounded = strtod(out, NULL);
    int decimals = 0;
    for (double at = 10; rounded > 0 && rounded < at && decimals < 9; at /= 10)
        decimals++;
    snprintf(out, DIGITS_BYTES, "%.*f", decimals, rounded);
    return out;
}

void finding(struct findings *f, const char *section, const char *name, json_t *value,
             const char *text, const char *meaning, ...)
{
    char line[400];
    va_list args;
    va_start(args, meaning);
    vsnprintf(line, sizeof line, meaning, args);
    va_end(args);
    json_t *shown = as_text(value, text);
    finding_quiet(f, section, name, value);
    json_array_append_new(json_object_get(f->root, "lines"),
                          json_pack("{s:s, s:s, s:o, s:s}", "section", section, "name", name,
                                    "value", shown, "meaning", line));
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

/* ---- text ---- */

#define NAME_COLUMNS  24 /* at most; a longer one pushes what follows */
#define VALUE_COLUMNS 22
#define TEXT_COLUMNS  28 /* at least; else the text is below */
#define INDENT        6

static unsigned width_of(FILE *out)
{
    struct winsize size;
    int fd = fileno(out);
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 0;
}

/* From `column` on, in lines that begin at `indent`; width 0: one line. */
static void print_words(const char *text, unsigned column, unsigned indent, unsigned width)
{
    bool first = true;
    while (*text) {
        unsigned n = (unsigned)strcspn(text, " ");
        if (!first && width > 0 && column + 1 + n > width) {
            printf("\n%*s", (int)indent, "");
            column = indent;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", (int)n, text);
        column += n + !first;
        first = false;
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

static unsigned longest(const json_t *lines, const char *section, const char *key, unsigned most)
{
    size_t i;
    unsigned columns = 0;
    json_t *line;
    json_array_foreach(lines, i, line)
    {
        unsigned n = (unsigned)strlen(text_of(line, key));
        if (strcmp(text_of(line, "section"), section) == 0 && n > columns && n <= most)
            columns = n;
    }
    return columns;
}

static void print_line(const json_t *line, unsigned name, unsigned value, unsigned width)
{
    char head[600];
    const char *text = text_of(line, "meaning");
    snprintf(head, sizeof head, "  %-*s  %-*s", (int)name, text_of(line, "name"), (int)value,
             text_of(line, "value"));
    unsigned column = (unsigned)strlen(head);
    if (!*text) {
        print_words(head, 0, INDENT, 0);
    } else if (width == 0 || column + 2 + TEXT_COLUMNS <= width) {
        printf("%s  ", head);
        print_words(text, column + 2, column + 2, width);
    } else {
        printf("%s\n%*s", head, INDENT, "");
        print_words(text, INDENT, INDENT, width);
    }
}

static void print_section(const json_t *lines, const char *section, unsigned width)
{
    unsigned name = longest(lines, section, "name", NAME_COLUMNS);
    unsigned value = longest(lines, section, "value", VALUE_COLUMNS);
    size_t i;
    json_t *line;
    printf("\n%s\n", section);
    json_array_foreach(lines, i, line)
    {
        if (strcmp(text_of(line, "section"), section) == 0)
            print_line(line, name, value, width);
    }
}

/* With a model what is about it, else the devices. */
static bool explains(const struct findings *f, const char *section)
{
    static const char *const of_model[] = {"model", "auto", "advice"};
    if (!json_object_get(f->root, "model"))
        return strncmp(section, "device", 6) == 0;
    for (size_t i = 0; i < ARRAY_LEN(of_model); i++)
        if (strcmp(section, of_model[i]) == 0)
            return true;
    return strncmp(section, "gpu", 3) == 0 &&
           json_object_get(json_object_get(f->root, "gpu"), "estimates");
}

static void print_verdict(const struct findings *f, unsigned width)
{
    size_t i;
    json_t *line;
    json_array_foreach(json_object_get(json_object_get(f->root, "verdict"), "lines"), i, line)
    {
        const char *text = json_string_value(line);
        printf("%-9.9s", text);
        /* The command stays one line, so that it can be copied. */
        print_words(text + 9, 9, 9, strncmp(text, "next ", 5) == 0 ? 0 : width);
    }
}

/* Each section once, in the order of their first lines. */
static void print_sections(const struct findings *f, bool all, unsigned width)
{
    const json_t *lines = json_object_get(f->root, "lines");
    json_t *done = json_object(), *line;
    size_t i;
    json_array_foreach(lines, i, line)
    {
        const char *section = text_of(line, "section");
        if (json_object_get(done, section) || (!all && !explains(f, section)))
            continue;
        json_object_set_new(done, section, json_true());
        print_section(lines, section, width);
    }
    json_decref(done);
}

void findings_print(const struct findings *f, enum findings_form form)
{
    unsigned width = width_of(stdout);
    if (form == FINDINGS_JSON) {
        json_dumpf(f->root, stdout, JSON_INDENT(2));
        printf("\n");
        return;
    }
    print_verdict(f, width);
    print_sections(f, form == FINDINGS_ALL, width);
    if (form == FINDINGS_SHORT)
        printf("\n--all prints all measurements.\n");
}

/* ---- progress ---- */

struct progress {
    pthread_t thread;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t change;
    bool tty, end;
    char text[80];
    uint64_t since_ns;
};

/* The lock is held. */
static void show(const struct progress *p)
{
    if (p->text[0])
        fprintf(stderr, "\r\033[Kdoctor: %s, %.0f s ", p->text,
                (double)(clock_now_ns() - p->since_ns) / NS_PER_S);
    fflush(stderr);
}

static void *count_seconds(void *arg)
{
    struct progress *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->end) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&p->change, &p->lock, &until);
        show(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void progress_open(struct findings *f)
{
    struct progress *p = calloc(1, sizeof *p);
    if (!p)
        return;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
    p->tty = isatty(STDERR_FILENO) && pthread_create(&p->thread, NULL, count_seconds, p) == 0;
    f->progress = p;
}

void progress(struct findings *f, const char *fmt, ...)
{
    struct progress *p = f->progress;
    char text[sizeof p->text];
    if (!p)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!p->tty) {
        fprintf(stderr, "doctor: %s\n", text);
        return;
    }
    pthread_mutex_lock(&p->lock);
    memcpy(p->text, text, sizeof text);
    p->since_ns = clock_now_ns();
    pthread_cond_signal(&p->change);
    pthread_mutex_unlock(&p->lock);
}

void progress_close(struct findings *f)
{
    struct progress *p = f->progress;
    if (!p)
        return;
    if (p->tty) {
        pthread_mutex_lock(&p->lock);
        p->end = true;
        p->text[0] = 0;
        pthread_cond_signal(&p->change);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
        fputs("\r\033[K", stderr);
    }
    pthread_cond_destroy(&p->change);
    pthread_mutex_destroy(&p->lock);
    free(p);
    f->progress = NULL;
}
