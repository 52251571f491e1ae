/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: one line per event on stderr, "LEVEL process: text" or in one of the formats below. Five
 * functions with fixed effects:
 *   log_info, log_warn, log_error   print and continue
 *   log_fatal                       print, _exit(code)
 *   log_panic                       print, run the panic hook (exit message), abort()
 * Where log_start_thread was called (all processes of an engine), no call waits for the reader of
 * stderr. Not for the hot path: no logging per token on a hit. */
#ifndef SLUICE_BASE_LOG_H
#define SLUICE_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR, LOG_LEVEL_NONE };

/* PLAIN: "LEVEL process: text", for commands. TEXT: the same after a time stamp in UTC. JSON: an
 * object with time, level, process and text. JOURNAL: "<N>process: text", N the priority of syslog;
 * systemd adds the time. */
enum log_format { LOG_FORMAT_PLAIN, LOG_FORMAT_TEXT, LOG_FORMAT_JSON, LOG_FORMAT_JOURNAL };

/* Sets the process name of every line (copied, at most 31 bytes) and the minimum level printed. */
void log_init(const char *process, enum log_level min_level);

/* "debug", "info", "warn", "error" -> level; false for any other name. */
bool log_level_parse(const char *name, enum log_level *level);

const char *log_level_name(enum log_level level);
/* From the next line on; may be called while other threads log. */
void log_set_level(enum log_level min_level);

/* "text", "json", "journal" -> format; false for any other name. Set before other threads log. */
bool log_format_parse(const char *name, enum log_format *format);
void log_set_format(enum log_format format);

/* Starts the thread that writes the lines of this process. Lines that the reader of stderr does not
 * take are queued (32 KiB), then dropped and counted; one line reports the count later. Without it
 * (clients, tools) every call writes to stderr directly. 0, or an error number. After log_init. */
int log_start_thread(void);

/* Waits up to `ms` for the queued lines; before a process ends. */
#define LOG_FLUSH_MS 200
void log_flush(unsigned ms);
uint64_t log_dropped_lines(void); /* since the start */

/* A line as it is, without time, level and process name; JSON and JOURNAL have them. Printed at any
 * level. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void log_fatal(int exit_code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void log_panic(const char *file, int line, const char *func, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Called with the text of a panic or fatal error before the process ends; it becomes the exit
 * message in the process table. One hook per process; it must not allocate. */
void log_set_exit_message_hook(void (*hook)(const char *text, void *arg), void *arg);

/* For messages that are logged once: true on the first call with this flag. */
static inline bool log_once(atomic_flag *flag)
{
    return !atomic_flag_test_and_set_explicit(flag, memory_order_relaxed);
}

#endif
