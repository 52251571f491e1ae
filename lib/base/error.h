/* Errors about foreign things: a code that decides the exit status, and one line for a person. */
#ifndef SLUICE_BASE_ERROR_H
#define SLUICE_BASE_ERROR_H

#include <stdbool.h>

/* ERROR_CODE(NAME, word, exit): word is what JSON replies carry, exit the status of a command that
 * ends with it. Append only. */
#define ERROR_CODES(X)                                                                             \
    X(NONE, "none", 0)                                                                             \
    X(FAILED, "failed", 1)       /* something broke; trying again may help */                      \
    X(BAD_INPUT, "bad_input", 2) /* the user's file or argument is wrong */                        \
    X(BUDGET_TOO_SMALL, "budget_too_small",                                                        \
      2)                             /* the budget is smaller than what must be resident */        \
    X(BUSY, "busy", 1)               /* a bounded queue is full, or a lock is held */              \
    X(NOT_FOUND, "not_found", 1)     /* no such request, process or run */                         \
    X(TIMEOUT, "timeout", 1)         /* a deadline passed */                                       \
    X(NO_PROGRESS, "no_progress", 1) /* loaders made no progress for the whole stall limit */      \
    X(NO_MEMORY, "no_memory", 1)     /* an allocation or fallocate failed */                       \
    X(IO, "io", 1)                   /* the device or file reported an error */                    \
    X(GONE, "gone", 1)               /* the engine, peer or file is not there any more */          \
    X(CANCELLED, "cancelled", 1)     /* the client or its silence ended the sequence */

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

/* Fills *e (which may be NULL) and returns -1, so that callers write `return error_set(...)`. */
int error_set(struct error *e, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Same, with ": " and strerror(errno_value) appended. */
int error_set_errno(struct error *e, enum error_code code, int errno_value, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

const char *error_name(enum error_code code);
enum error_code error_from_name(const char *name); /* unknown words are ERR_FAILED */
int error_exit_status(enum error_code code);

#endif
