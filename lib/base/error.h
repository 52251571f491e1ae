/* SPDX-License-Identifier: Apache-2.0 */
/* Errors caused by the environment or the user: a code that selects the exit status, and one line
 * of text. */
#ifndef SLUICE_BASE_ERROR_H
#define SLUICE_BASE_ERROR_H

#include <stdbool.h>

/* ERROR_CODE(NAME, name, exit): name is the code in JSON replies, exit the status of a command that
 * ends with it. Append only. */
#define ERROR_CODES(X)                                                                             \
    X(NONE, "none", 0)                                                                             \
    X(FAILED, "failed", 1)                     /* internal failure; a retry may help */            \
    X(BAD_INPUT, "bad_input", 2)               /* invalid file or argument */                      \
    X(BUDGET_TOO_SMALL, "budget_too_small", 2) /* less than the minimum of the model */            \
    X(BUSY, "busy", 1)                         /* a bounded queue is full, or a lock is held */    \
    X(NOT_FOUND, "not_found", 1)               /* no such request, process or engine */            \
    X(TIMEOUT, "timeout", 1)                   /* a deadline passed */                             \
    X(NO_PROGRESS, "no_progress", 1)           /* no loader progress within the load timeout */    \
    X(NO_MEMORY, "no_memory", 1)               /* an allocation or fallocate failed */             \
    X(IO, "io", 1)                             /* the device or file returned an error */          \
    X(GONE, "gone", 1)                         /* the engine, peer or file no longer exists */     \
    X(CANCELLED, "cancelled", 1)     /* cancelled by the client, or not polled by it in time */    \
    X(CRASHED, "crashed", 1)         /* compute crashed again and again at this request */         \
    X(UNAVAILABLE, "unavailable", 1) /* a process of the engine crashes again and again */         \
    X(MODEL_CHANGED, "model_changed", 1) /* the model's file changed in place while it was read */ \
    X(NO_PLAN, "no_plan", 4)             /* nothing that plan may choose keeps the allowed loss */ \
    X(NOT_FINITE, "not_finite", 1)       /* the model computed NaN or infinity */                  \
    X(CONTEXT, "context_length_exceeded", 2) /* a prompt is longer than the context */             \
    X(GRAMMAR, "grammar", 1) /* no token of the vocabulary continues the grammar of the answer */  \
    X(MEMORY_TOO_SMALL, "memory_too_small", 2) /* what a tool may use is less than it needs */

enum error_code {
#define X(id, name, exit_status) ERR_##id,
    ERROR_CODES(X)
#undef X
        ERR__COUNT
};

struct error {
    enum error_code code;
    char text[400]; /* one line, no newline, NUL-terminated */
};

/* Fills *e (may be NULL) and returns -1, for `return error_set(...)`. */
int error_set(struct error *e, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Same, with ": " and strerror(errno_value) appended. */
int error_set_errno(struct error *e, enum error_code code, int errno_value, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

const char *error_name(enum error_code code);
enum error_code error_from_name(const char *name); /* unknown names: ERR_FAILED */
int error_exit_status(enum error_code code);

#endif
