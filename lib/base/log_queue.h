/* SPDX-License-Identifier: Apache-2.0 */
/* The queue between the threads of a process that log and the thread that writes to stderr. A
 * reader of stderr that stops (a full pipe, Ctrl-S, a journal that hangs) blocks only that thread.
 * Lines that do not fit are dropped and counted; when the reader continues, a line reports their
 * number. Private to lib/base/log.c. */
#ifndef SLUICE_BASE_LOG_QUEUE_H
#define SLUICE_BASE_LOG_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LINE_BYTES  1024
#define LOG_QUEUE_BYTES (32u << 10)

/* Starts the thread; 0 or an error number. Once per process. dropped_line makes the line that
 * reports `count` dropped lines, and returns its bytes. */
int log_queue_start(size_t (*dropped_line)(uint64_t count, char line[LOG_LINE_BYTES]));
bool log_queue_runs(void);

/* Appends a whole line, with its newline. Never waits for the reader of stderr. */
void log_queue_add(const char *line, size_t bytes);

/* Waits up to `ms` until all lines have been written. */
void log_queue_flush(unsigned ms);
uint64_t log_queue_dropped(void);

#endif
