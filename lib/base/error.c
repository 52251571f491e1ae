/* SPDX-License-Identifier: Apache-2.0 */
/* Fills an error with its code and its line of text, and names the codes. */
#include "lib/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int exit_status;
} codes[] = {
#define X(id, name, exit_status) {name, exit_status},
    ERROR_CODES(X)
#undef X
};

static void fill(struct error *e, enum error_code code, const char *fmt, va_list args)
{
    e->code = code;
    vsnprintf(e->text, sizeof e->text, fmt, args);
}

int error_set(struct error *e, enum error_code code, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list args;
    va_start(args, fmt);
    fill(e, code, fmt, args);
    va_end(args);
    return -1;
}

int error_set_errno(struct error *e, enum error_code code, int errno_value, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list args;
    va_start(args, fmt);
    fill(e, code, fmt, args);
    va_end(args);
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, ": %s%s", strerror(errno_value),
             errno_value == EMFILE ? " (raise the limit of open files: ulimit -n)" : "");
    return -1;
}

const char *error_name(enum error_code code)
{
    return (unsigned)code < ERR__COUNT ? codes[code].name : "failed";
}

enum error_code error_from_name(const char *name)
{
    for (int i = 0; i < ERR__COUNT; i++)
        if (strcmp(codes[i].name, name) == 0)
            return (enum error_code)i;
    return ERR_FAILED;
}

int error_exit_status(enum error_code code)
{
    return (unsigned)code < ERR__COUNT ? codes[code].exit_status : 1;
}
