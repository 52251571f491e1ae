/* SPDX-License-Identifier: Apache-2.0 */
/* Formats lines of the log, as text or JSON, and passes them to stderr or to the queue. */
#include "lib/base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log_queue.h"

/* Levels of lines: those of enum log_level up to ERROR, then the two that are always printed. */
enum line_level { LINE_FATAL = LOG_LEVEL_NONE, LINE_PANIC };

static const struct {
    const char *name, *journal; /* priority of syslog */
} levels[] = {
    [LOG_LEVEL_DEBUG] = {"DEBUG", "7"}, [LOG_LEVEL_INFO] = {"INFO", "6"},
    [LOG_LEVEL_WARN] = {"WARN", "4"},   [LOG_LEVEL_ERROR] = {"ERROR", "3"},
    [LINE_FATAL] = {"FATAL", "2"},      [LINE_PANIC] = {"PANIC", "2"},
};

static const char *const level_names[] = {"debug", "info", "warn", "error", "none"};

static struct {
    char process[32];
    _Atomic int min_level; /* enum log_level */
    enum log_format format;
    void (*hook)(const char *, void *);
    void *hook_arg;
} the_log = {.process = "sluice", .min_level = LOG_LEVEL_INFO};

void log_init(const char *process, enum log_level min_level)
{
    snprintf(the_log.process, sizeof the_log.process, "%s", process);
    log_set_level(min_level);
}

void log_set_level(enum log_level min_level)
{
    /* Relaxed: a line logged meanwhile may follow the old level. */
    atomic_store_explicit(&the_log.min_level, (int)min_level, memory_order_relaxed);
}

void log_set_format(enum log_format format)
{
    the_log.format = format;
}

/* Index of a name; -1: it is not one of them. */
static int name_find(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

bool log_level_parse(const char *name, enum log_level *level)
{
    int i = name_find(level_names, sizeof level_names / sizeof level_names[0], name);
    if (i >= 0)
        *level = (enum log_level)i;
    return i >= 0;
}

const char *log_level_name(enum log_level level)
{
    return level_names[level];
}

bool log_format_parse(const char *name, enum log_format *format)
{
    static const char *const names[] = {"text", "json", "journal"};
    int i = name_find(names, sizeof names / sizeof names[0], name);
    if (i >= 0)
        *format = (enum log_format)(LOG_FORMAT_TEXT + i);
    return i >= 0;
}

static size_t line_of_dropped(uint64_t count, char line[LOG_LINE_BYTES]);

int log_start_thread(void)
{
    return log_queue_start(line_of_dropped);
}

void log_flush(unsigned ms)
{
    log_queue_flush(ms);
}

uint64_t log_dropped_lines(void)
{
    return log_queue_dropped();
}

/* One write(2) per line, so lines of several processes on one stderr never interleave. */
static void put(const char *line, size_t bytes)
{
    if (log_queue_runs()) {
        log_queue_add(line, bytes);
        return;
    }
    ssize_t done = write(STDERR_FILENO, line, bytes);
    (void)done; /* without stderr an error cannot be reported */
}

/* "2026-11-24T12:34:56.789Z" */
#define STAMP_BYTES 32
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
static void stamp_make(char stamp[STAMP_BYTES])
{
    struct timespec now;
    struct tm utc;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(stamp, STAMP_BYTES, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
}

/* Bytes of the UTF-8 character at `c`, or of the part of one that a U+FFFD replaces (*valid:
 * false), as lib/text/utf8.h. The text ends with NUL. */
static size_t character_bytes(const unsigned char *c, bool *valid)
{
    unsigned char min = c[0] == 0xe0 ? 0xa0 : c[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char max = c[0] == 0xed ? 0x9f : c[0] == 0xf4 ? 0x8f : 0xbf;
    size_t n = c[0] < 0x80   ? 1
               : c[0] < 0xc2 ? 0
               : c[0] < 0xe0 ? 2
               : c[0] < 0xf0 ? 3
               : c[0] < 0xf5 ? 4
                             : 0;
    *valid = n > 0;
    for (size_t i = 1; i < n; i++, min = 0x80, max = 0xbf)
        if (c[i] < min || c[i] > max) {
            *valid = false;
            return i;
        }
    return n > 0 ? n : 1;
}

/* The text as UTF-8, as far as it fits; `json`: inside a JSON string. Returns its end. */
static char *put_text(char *to, const char *end, const char *text, bool json)
{
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        bool valid, escaped = json && (*c == '"' || *c == '\\');
        size_t used = character_bytes(c, &valid), n = valid ? used : strlen(REPLACEMENT);
        if ((size_t)(end - to) < n + escaped)
            break;
        if (escaped)
            *to++ = '\\';
        memcpy(to, valid ? (const char *)c : REPLACEMENT, n);
        to += n;
        c += used;
    }
    return to;
}

static size_t json_line(const char *level, const char *text, char line[LOG_LINE_BYTES])
{
    static const char tail[] = "\"}\n";
    char stamp[STAMP_BYTES];
    stamp_make(stamp);
    int n = snprintf(line, LOG_LINE_BYTES,
                     "{\"time\": \"%s\", \"level\": \"%s\", \"process\": \"%s\", \"text\": \"",
                     stamp, level, the_log.process);
    char *at = put_text(line + n, line + LOG_LINE_BYTES - sizeof tail, text, true);
    memcpy(at, tail, sizeof tail - 1);
    return (size_t)(at - line) + sizeof tail - 1;
}

/* A line without control bytes in the format of this process; `bare`: see log_line. Returns its
 * bytes. */
static size_t line_make(int level, bool bare, const char *text, char line[LOG_LINE_BYTES])
{
    char stamp[STAMP_BYTES] = "";
    int n = 0;
    switch (the_log.format) {
    case LOG_FORMAT_JSON: return json_line(levels[level].name, text, line);
    case LOG_FORMAT_JOURNAL:
        n = snprintf(line, LOG_LINE_BYTES, "<%s>%s: ", levels[level].journal, the_log.process);
        break;
    case LOG_FORMAT_TEXT: stamp_make(stamp); /* fall through */
    case LOG_FORMAT_PLAIN:
        if (!bare)
            n = snprintf(line, LOG_LINE_BYTES, "%s%s%s %s: ", stamp, stamp[0] ? " " : "",
                         levels[level].name, the_log.process);
        break;
    }
    char *at = put_text(line + n, line + LOG_LINE_BYTES - 2, text, false);
    *at++ = '\n';
    return (size_t)(at - line);
}

/* For the log thread: it reports lines that it could not take. */
static size_t line_of_dropped(uint64_t count, char line[LOG_LINE_BYTES])
{
    char text[80];
    snprintf(text, sizeof text, "%" PRIu64 " log lines dropped: stderr was not read", count);
    return line_make(LOG_LEVEL_WARN, false, text, line);
}

/* Control bytes of untrusted text are blanked: one event stays one line. */
static void emit(int level, bool bare, const char *fmt, va_list args, char *text, size_t text_bytes)
{
    char line[LOG_LINE_BYTES];
    vsnprintf(text, text_bytes, fmt, args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    put(line, line_make(level, bare, text, line));
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char text[LOG_LINE_BYTES - 1];
    va_list args;
    va_start(args, fmt);
    emit((int)level, true, fmt, args, text, sizeof text);
    va_end(args);
}

#define LOG_LEVEL_FUNCTION(level, LEVEL)                                                           \
    void log_##level(const char *fmt, ...)                                                         \
    {                                                                                              \
        if (atomic_load_explicit(&the_log.min_level, memory_order_relaxed) > (int)(LEVEL))         \
            return;                                                                                \
        char text[LOG_LINE_BYTES - 64];                                                            \
        va_list args;                                                                              \
        va_start(args, fmt);                                                                       \
        emit((LEVEL), false, fmt, args, text, sizeof text);                                        \
        va_end(args);                                                                              \
    }

LOG_LEVEL_FUNCTION(debug, LOG_LEVEL_DEBUG)
LOG_LEVEL_FUNCTION(info, LOG_LEVEL_INFO)
LOG_LEVEL_FUNCTION(warn, LOG_LEVEL_WARN)
LOG_LEVEL_FUNCTION(error, LOG_LEVEL_ERROR)

static void report_exit_message(const char *text)
{
    if (the_log.hook)
        the_log.hook(text, the_log.hook_arg);
}

void log_fatal(int exit_code, const char *fmt, ...)
{
    char text[LOG_LINE_BYTES - 64];
    va_list args;
    va_start(args, fmt);
    emit(LINE_FATAL, false, fmt, args, text, sizeof text);
    va_end(args);
    report_exit_message(text);
    log_queue_flush(LOG_FLUSH_MS);
    _exit(exit_code);
}

void log_panic(const char *file, int line, const char *func, const char *fmt, ...)
{
    char text[512], whole[LOG_LINE_BYTES - 128], message[LOG_LINE_BYTES - 64], out[LOG_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(whole, sizeof whole, "%s:%d (%s): %s", file, line, func, text);
    put(out, line_make(LINE_PANIC, false, whole, out));
    snprintf(message, sizeof message, "PANIC %s: %s", the_log.process, whole);
    report_exit_message(message);
    log_queue_flush(LOG_FLUSH_MS);
    abort();
}

void log_set_exit_message_hook(void (*hook)(const char *, void *), void *arg)
{
    the_log.hook = hook;
    the_log.hook_arg = arg;
}
