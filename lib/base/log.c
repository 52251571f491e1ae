#include "lib/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINE_BYTES 1024

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

/* One write(2) per line, so lines of several processes on one stderr never interleave. Control
 * bytes of untrusted text are blanked: one event stays one line. */
static void emit(const char *name, const char *fmt, va_list args, char *text, size_t text_bytes)
{
    char line[LOG_LINE_BYTES];
    vsnprintf(text, text_bytes, fmt, args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    int n = snprintf(line, sizeof line, "%s %s: %s\n", name, the_log.process, text);
    if (n >= (int)sizeof line) {
        n = (int)sizeof line - 1;
        line[n - 1] = '\n';
    }
    ssize_t done = write(STDERR_FILENO, line, (size_t)n);
    (void)done; /* without stderr an error cannot be reported */
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
    if (n > (int)sizeof whole - 1)
        n = (int)sizeof whole - 1;
    ssize_t done = write(STDERR_FILENO, whole, (size_t)n);
    (void)done;
    whole[n - 1] = 0;
    report_exit_message(whole);
    abort();
}

void log_set_exit_message_hook(void (*hook)(const char *, void *), void *arg)
{
    the_log.hook = hook;
    the_log.hook_arg = arg;
}
