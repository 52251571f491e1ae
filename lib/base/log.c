#include "lib/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log_queue.h"

static struct {
    char process[32];
    enum log_level min_level;
    void (*hook)(const char *, void *);
    void *hook_arg;
} the_log = {.process = "sluice", .min_level = LOG_LEVEL_INFO};

void log_init(const char *process, enum log_level min_level)
{
    snprintf(the_log.process, sizeof the_log.process, "%s", process);
    the_log.min_level = min_level;
}

bool log_level_parse(const char *name, enum log_level *level)
{
    static const char *const names[] = {"debug", "info", "warn", "error", "none"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

int log_start_thread(void)
{
    return log_queue_start(the_log.process);
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

/* Length of what snprintf wrote to line[bytes]; a line that was cut ends with a newline, too. */
static size_t line_bytes(char *line, size_t bytes, int n)
{
    if (n >= (int)bytes) {
        n = (int)bytes - 1;
        line[n - 1] = '\n';
    }
    return (size_t)n;
}

void log_line(const char *fmt, ...)
{
    char text[LOG_LINE_BYTES - 1], line[LOG_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put(line, line_bytes(line, sizeof line, snprintf(line, sizeof line, "%s\n", text)));
}

/* Control bytes of untrusted text are blanked: one event stays one line. */
static void emit(const char *name, const char *fmt, va_list args, char *text, size_t text_bytes)
{
    char line[LOG_LINE_BYTES];
    vsnprintf(text, text_bytes, fmt, args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    int n = snprintf(line, sizeof line, "%s %s: %s\n", name, the_log.process, text);
    put(line, line_bytes(line, sizeof line, n));
}

#define LOG_LEVEL_FUNCTION(level, LEVEL, name)                                                     \
    void log_##level(const char *fmt, ...)                                                         \
    {                                                                                              \
        if (the_log.min_level > (LEVEL))                                                           \
            return;                                                                                \
        char text[LOG_LINE_BYTES - 64];                                                            \
        va_list args;                                                                              \
        va_start(args, fmt);                                                                       \
        emit(name, fmt, args, text, sizeof text);                                                  \
        va_end(args);                                                                              \
    }

LOG_LEVEL_FUNCTION(debug, LOG_LEVEL_DEBUG, "DEBUG")
LOG_LEVEL_FUNCTION(info, LOG_LEVEL_INFO, "INFO")
LOG_LEVEL_FUNCTION(warn, LOG_LEVEL_WARN, "WARN")
LOG_LEVEL_FUNCTION(error, LOG_LEVEL_ERROR, "ERROR")

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
    emit("FATAL", fmt, args, text, sizeof text);
    va_end(args);
    report_exit_message(text);
    log_queue_flush(LOG_FLUSH_MS);
    _exit(exit_code);
}

void log_panic(const char *file, int line, const char *func, const char *fmt, ...)
{
    char text[LOG_LINE_BYTES - 64], whole[LOG_LINE_BYTES - 64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    int n = snprintf(whole, sizeof whole, "PANIC %s: %s:%d (%s): %.500s\n", the_log.process, file,
                     line, func, text);
    size_t bytes = line_bytes(whole, sizeof whole, n);
    put(whole, bytes);
    whole[bytes - 1] = 0;
    report_exit_message(whole);
    log_queue_flush(LOG_FLUSH_MS);
    abort();
}

void log_set_exit_message_hook(void (*hook)(const char *, void *), void *arg)
{
    the_log.hook = hook;
    the_log.hook_arg = arg;
}
